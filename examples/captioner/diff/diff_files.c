#include "captioner/diff/diff_files.h"

#include <string.h>

#include "captioner/diff/diff_logs.h"
#include "captioner/diff/diff_saved.h"
#include "train/formats/safetensors_format.h"
#include "train/support/train_support.h"
#include "train/support/input_file.h"

typedef enum file_kind { TRAINING_LOG, SAFETENSORS } file_kind;
static const char *const kind_names[] = {"a training log", "a safetensors file"};

static mimo_status read_start(char start[SAFETENSORS_PREFIX], struct input_file *file,
                              const char *path)
{
    TRY(input_file_open(file, path));
    int64_t bytes = file->size < SAFETENSORS_PREFIX ? file->size : SAFETENSORS_PREFIX;
    return input_file_read(file, start, bytes, 0);
}

/* A safetensors file begins with a length in 8 bytes, of which the upper 4 are 0 within the
 * format's bound. A log is text. */
static mimo_status find_kind(file_kind *out, const char *path)
{
    static const char upper[4];
    char start[SAFETENSORS_PREFIX] = "?";
    struct input_file file = INPUT_FILE_INIT;
    mimo_status status = read_start(start, &file, path);
    bool saved = file.size >= SAFETENSORS_PREFIX && memcmp(start + 4, upper, sizeof upper) == 0;
    input_file_close(&file);
    TRY(status);
    CHECK(saved || start[0] == '{', MIMO_ERR_IO,
          "%s is neither a log of the captioner nor a safetensors file", path);
    *out = saved ? SAFETENSORS : TRAINING_LOG;
    return MIMO_OK;
}

mimo_status diff_files(bool *equal, FILE *out, const char *path_a, const char *path_b)
{
    file_kind a, b;
    TRY(find_kind(&a, path_a));
    TRY(find_kind(&b, path_b));
    CHECK(a == b, MIMO_ERR_SHAPE, "%s is %s and %s is %s: give two of a kind", path_a,
          kind_names[a], path_b, kind_names[b]);
    return a == TRAINING_LOG ? diff_logs(equal, out, path_a, path_b)
                             : diff_saved(equal, out, path_a, path_b);
}
