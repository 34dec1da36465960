#include "captioner/training/run_drawing.h"

#include <stdlib.h>

#include "captioner/training/run_files.h"
#include "train/support/atomic_file.h"

mimo_status run_drawing_probe(const char *folder, const char *file)
{
    char path[RUN_FILE_PATH];
    TRY(run_file_path(path, folder, file));
    return atomic_file_probe(path);
}

static mimo_status write_text(const char *path, const char *text, size_t length)
{
    struct atomic_file out = ATOMIC_FILE_INIT;
    mimo_status status = atomic_file_open(&out, path);
    if (status == MIMO_OK)
        status = atomic_file_write(&out, text, length);
    if (status == MIMO_OK)
        status = atomic_file_commit(&out);
    atomic_file_discard(&out);
    return status;
}

mimo_status run_drawing_write(const char *folder, const char *file, run_draw *draw,
                              const void *context)
{
    char path[RUN_FILE_PATH], *text = NULL;
    size_t length = 0;
    TRY(run_file_path(path, folder, file));
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream, MIMO_ERR_MEMORY, "out of memory for %s", path);
    mimo_status status = draw(stream, context);
    if (fclose(stream) != 0 && status == MIMO_OK)
        status = mimo_fail(MIMO_ERR_MEMORY, "out of memory for %s", path);
    if (status == MIMO_OK)
        status = write_text(path, text, length);
    free(text);
    return status;
}
