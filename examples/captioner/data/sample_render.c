#include "captioner/data/sample_render.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "captioner/data/emoji_list.h"
#include "captioner/data/emoji_names.h"
#include "captioner/data/render_module.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/folders.h"

_Static_assert((int)SAMPLE_NAME_CAPACITY == (int)EMOJI_NAME_CAPACITY, "names fit samples");
_Static_assert((int)SAMPLE_LARGEST_IMAGE == (int)RENDER_LARGEST, "sizes fit the renderer");

static const struct plugin_name render_plugin = {
    .file = "captioner-render.so",
    .symbol = RENDER_MODULE_SYMBOL,
    .version = RENDER_MODULE_VERSION,
    .packages = "libfreetype-dev and libharfbuzz-dev",
};

static const char *font_path(const struct sample_source *source)
{
    return source->font ? source->font : SAMPLE_FONT_DEFAULT_PATH;
}

static const char *list_path(const struct sample_source *source)
{
    return source->emoji_test ? source->emoji_test : EMOJI_LIST_DEFAULT_PATH;
}

static mimo_status hash_file(uint64_t *hash, const char *path)
{
    struct stat found;
    CHECK(stat(path, &found) == 0, MIMO_ERR_NOT_FOUND, "cannot find %s: %s", path, strerror(errno));
    *hash = hash_bytes(*hash, path, strlen(path));
    *hash = hash_int(*hash, found.st_size);
    *hash = hash_int(*hash, found.st_mtim.tv_sec);
    *hash = hash_int(*hash, found.st_mtim.tv_nsec);
    return MIMO_OK;
}

/* Which font, list and names these are, by path, size and time of change, and which rule holds out;
 * never 0. */
static mimo_status identify(uint64_t *out, const struct sample_source *source)
{
    uint64_t hash = hash_int(HASH_START, EMOJI_SPLIT);
    TRY(hash_file(&hash, font_path(source)));
    TRY(hash_file(&hash, list_path(source)));
    if (source->names)
        TRY(hash_file(&hash, source->names));
    *out = hash ? hash : 1;
    return MIMO_OK;
}

static mimo_status draw_all(struct samples *samples, const struct emoji_list *list,
                            const struct render_module *module, struct render_font *font)
{
    struct plugin_sentence why = {.text = ""};
    for (int64_t i = 0; i < list->count; i++) {
        const struct emoji *emoji = &list->emoji[i];
        mimo_status status = module->draw(font, emoji->codes, emoji->code_count,
                                          samples->image_size, sample_image(samples, i), &why);
        CHECK(status == MIMO_OK, status, "cannot draw \"%s\": %s", emoji->name, why.text);
        size_t length = strlen(emoji->name);
        memcpy(sample_name(samples, i), emoji->name, length + 1);
        samples->name_length[i] = (uint8_t)length;
        samples->held_out[i] = emoji->held_out;
        samples->held_out_count += emoji->held_out;
    }
    return MIMO_OK;
}

/* Load the module, open the font, draw, and put both away again. */
static mimo_status render_list(struct samples *samples, const struct emoji_list *list,
                               const struct sample_source *source)
{
    struct plugin plugin = {.handle = NULL};
    TRY(plugin_open(&plugin, &render_plugin, source->module_folder));
    const struct render_module *module = plugin.interface;
    struct render_font *font = NULL;
    struct plugin_sentence why = {.text = ""};
    mimo_status status = module->open(&font, font_path(source), &why);
    if (status != MIMO_OK)
        mimo_fail(status, "%s", why.text);
    else
        status = draw_all(samples, list, module, font);
    module->close(font);
    plugin_close(&plugin);
    return status;
}

/* The emoji with the names that the source asks for. */
static mimo_status read_emoji(struct emoji_list *list, const struct sample_source *source)
{
    struct emoji_left_out left_out = {0};
    TRY(emoji_list_read(list, list_path(source)));
    int64_t all = list->count;
    if (source->names)
        TRY(emoji_list_rename(&left_out, list, source->names));
    if (list->count < all)
        fprintf(stderr,
                "%" PRId64 " of %" PRId64 " emoji are left out: %s has no name for %" PRId64
                " and one of more than %d bytes for %" PRId64 "\n",
                all - list->count, all, source->names, left_out.unnamed, EMOJI_NAME_CAPACITY,
                left_out.too_long);
    return MIMO_OK;
}

mimo_status samples_render(struct samples *out, const struct sample_source *source)
{
    struct emoji_list list = {0};
    struct samples samples = {0};
    mimo_status status;
    /* First, so that the next run sees where a file was replaced meanwhile. Of a file that is
     * missing the readers say more. */
    uint64_t identity = 0;
    identify(&identity, source);
    TRY_GOTO(status, done, read_emoji(&list, source));
    TRY_GOTO(status, done, samples_create(&samples, list.count, source->image_size));
    TRY_GOTO(status, done, render_list(&samples, &list, source));
    samples.source = identity;
    *out = samples;
    samples = (struct samples){0};
done:
    samples_release(&samples);
    emoji_list_release(&list);
    return status;
}

mimo_status sample_file_prepare(const char *path, const struct sample_source *source)
{
    struct samples samples = {0};
    TRY(samples_render(&samples, source));
    mimo_status status = sample_file_write(path, &samples);
    samples_release(&samples);
    return status;
}

/* "$XDG_CACHE_HOME/mimo-bridge", which counts only where it is absolute, or below $HOME. */
static mimo_status cache_folder(char **out)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *tail = "/mimo-bridge";
    if (!base || base[0] != '/') {
        base = getenv("HOME");
        tail = "/.cache/mimo-bridge";
    }
    CHECK(base && base[0], MIMO_ERR_NOT_FOUND,
          "neither XDG_CACHE_HOME nor HOME is set, so there is no cache of samples: make a "
          "file with --prepare and name it with --samples");
    size_t bytes = strlen(base) + strlen(tail) + 1;
    TRY(memory_reserve(out, (int64_t)bytes, 1));
    snprintf(*out, bytes, "%s%s", base, tail);
    return MIMO_OK;
}

mimo_status sample_cache_path(char **out, const struct sample_source *source)
{
    char *folder;
    TRY(cache_folder(&folder));
    char names[2 + 16] = ""; /* a dash and 64 bits in hexadecimal */
    if (source->names)
        snprintf(names, sizeof names, "-%016" PRIx64,
                 hash_bytes(HASH_START, source->names, strlen(source->names)));
    /* 20: any 64-bit number */
    size_t bytes = strlen(folder) + sizeof "/emoji-.samples" + 20 + strlen(names);
    char *path;
    mimo_status status = memory_reserve(&path, (int64_t)bytes, 1);
    if (status == MIMO_OK) {
        snprintf(path, bytes, "%s/emoji-%" PRId64 "%s.samples", folder, source->image_size, names);
        *out = path;
    }
    memory_release(folder);
    return status;
}

/* Whether the file at `path` can be used for the source as it is. */
static bool cache_is_good(const char *path, const struct sample_source *source)
{
    struct samples samples = {0};
    if (sample_file_read(&samples, path) != MIMO_OK)
        return false;
    uint64_t wanted = 0;
    bool known = identify(&wanted, source) == MIMO_OK;
    bool named = source->font || source->emoji_test || source->names;
    bool good =
        samples.image_size == source->image_size && (known ? samples.source == wanted : !named);
    samples_release(&samples);
    return good;
}

static mimo_status refill(const char *path, const struct sample_source *source)
{
    char *folder;
    size_t kept;
    TRY(cache_folder(&folder));
    mimo_status status = make_folders(folder, &kept);
    memory_release(folder);
    TRY(status);
    return sample_file_prepare(path, source);
}

mimo_status sample_cache_fill(char **path, const struct sample_source *source)
{
    char *cache;
    TRY(sample_cache_path(&cache, source));
    mimo_status status = cache_is_good(cache, source) ? MIMO_OK : refill(cache, source);
    if (status == MIMO_OK)
        *path = cache;
    else
        memory_release(cache);
    return status;
}
