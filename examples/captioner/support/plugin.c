#include "captioner/support/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

#ifndef CAPTIONER_MODULE_DIR
#error "the build defines CAPTIONER_MODULE_DIR, the folder that the modules are installed to"
#endif

static mimo_status join(char **out, const char *folder, const char *file)
{
    size_t bytes = strlen(folder) + 1 + strlen(file) + 1;
    TRY(memory_reserve(out, (int64_t)bytes, 1));
    snprintf(*out, bytes, "%s/%s", folder, file);
    return MIMO_OK;
}

/* The folder of the running program, from the kernel: argv[0] may be anything. */
static mimo_status program_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    CHECK(length > 0, MIMO_ERR_UNSUPPORTED, "cannot read /proc/self/exe");
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return MIMO_OK;
}

static mimo_status find_module(char **path, const struct plugin_name *name, const char *folder)
{
    char beside[PATH_MAX];
    if (folder)
        return join(path, folder, name->file);
    TRY(program_folder(beside));
    TRY(join(path, beside, name->file));
    if (access(*path, F_OK) == 0)
        return MIMO_OK;
    memory_release(*path);
    *path = NULL;
    TRY(join(path, CAPTIONER_MODULE_DIR, name->file));
    if (access(*path, F_OK) == 0)
        return MIMO_OK;
    memory_release(*path);
    *path = NULL;
    return mimo_fail(
        MIMO_ERR_UNSUPPORTED,
        "%s is neither in %s nor in %s: install the Debian packages %s and build again", name->file,
        beside, CAPTIONER_MODULE_DIR, name->packages);
}

static mimo_status load(struct plugin *plugin, const struct plugin_name *name, const char *path)
{
    /* Libraries below a module (fontconfig) keep caches that they cannot find again once they were
     * unloaded and loaded anew: what is loaded stays. */
    plugin->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    CHECK(plugin->handle, MIMO_ERR_UNSUPPORTED,
          "cannot load %s (it needs the Debian packages %s): %s", path, name->packages, dlerror());
    plugin->interface = dlsym(plugin->handle, name->symbol);
    CHECK(plugin->interface, MIMO_ERR_UNSUPPORTED, "%s has no symbol %s", path, name->symbol);
    unsigned version;
    memcpy(&version, plugin->interface, sizeof version);
    CHECK(version == name->version, MIMO_ERR_UNSUPPORTED,
          "%s has version %u, this program needs %u", path, version, name->version);
    return MIMO_OK;
}

mimo_status plugin_open(struct plugin *out, const struct plugin_name *name, const char *folder)
{
    char *path = NULL;
    struct plugin plugin = {.handle = NULL};
    TRY(find_module(&path, name, folder));
    mimo_status status = load(&plugin, name, path);
    memory_release(path);
    if (status != MIMO_OK) {
        plugin_close(&plugin);
        return status;
    }
    *out = plugin;
    return MIMO_OK;
}

void plugin_close(struct plugin *plugin)
{
    if (plugin->handle)
        dlclose(plugin->handle);
    *plugin = (struct plugin){.handle = NULL};
}
