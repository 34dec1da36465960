#include "captioner/pictures/pictures.h"

#include <inttypes.h>

#include "captioner/pictures/pictures_module.h"
#include "train/support/atomic_file.h"
#include "train/support/train_support.h"
#include "captioner/support/plugin.h"

static const struct plugin_name pictures_plugin = {
    .file = "captioner-pictures.so",
    .symbol = PICTURES_MODULE_SYMBOL,
    .version = PICTURES_MODULE_VERSION,
    .packages = "libcairo2-dev",
};

/* One of the two is drawn. */
struct subject {
    const struct contact_sheet *sheet;
    const struct loss_curve *curve;
};

static mimo_status to_file(void *context, const void *data, size_t bytes)
{
    return atomic_file_write(context, data, bytes);
}

static mimo_status draw(const struct pictures_module *module, const struct subject *subject,
                        struct atomic_file *file)
{
    struct plugin_sentence why = {.text = ""};
    const struct picture_sink sink = {.write = to_file, .context = file};
    mimo_status status = subject->sheet ? module->contact_sheet(subject->sheet, &sink, &why)
                                        : module->loss_curve(subject->curve, &sink, &why);
    /* Without a sentence it was the sink, which left its own. */
    if (status != MIMO_OK && why.text[0])
        mimo_fail(status, "cannot draw %s: %s", file->path, why.text);
    return status;
}

static mimo_status write_picture(const char *path, const struct subject *subject,
                                 const char *module_folder)
{
    struct plugin plugin = {.handle = NULL};
    struct atomic_file file = ATOMIC_FILE_INIT;
    TRY(plugin_open(&plugin, &pictures_plugin, module_folder));
    mimo_status status = atomic_file_open(&file, path);
    if (status == MIMO_OK)
        status = draw(plugin.interface, subject, &file);
    if (status == MIMO_OK)
        status = atomic_file_commit(&file);
    atomic_file_discard(&file);
    plugin_close(&plugin);
    return status;
}

mimo_status picture_probe(const char *path, const char *module_folder)
{
    struct plugin plugin = {.handle = NULL};
    TRY(plugin_open(&plugin, &pictures_plugin, module_folder));
    plugin_close(&plugin);
    return atomic_file_probe(path);
}

mimo_status picture_contact_sheet(const char *path, const struct contact_sheet *sheet,
                                  const char *module_folder)
{
    CHECK(sheet->count >= 1 && sheet->image_size >= 1, MIMO_ERR_ARGUMENT,
          "a contact sheet of %d images of %d pixels", sheet->count, sheet->image_size);
    const struct subject subject = {.sheet = sheet};
    return write_picture(path, &subject, module_folder);
}

mimo_status picture_loss_curve(const char *path, const struct loss_curve *curve,
                               const char *module_folder)
{
    CHECK(curve->count >= 1, MIMO_ERR_ARGUMENT, "a loss curve of %" PRId64 " steps", curve->count);
    const struct subject subject = {.curve = curve};
    return write_picture(path, &subject, module_folder);
}
