#include "captioner/diff/log_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/input_file.h"
#include "train/support/utf8.h"

struct log_reader {
    FILE *file;
    char *path;
    char *text; /* the line, of getline */
    size_t capacity;
    int64_t line;
    bool cut_short;
    cJSON *start_line, *step_line; /* own what `start` and `step` point to */
    struct log_start start;
    struct log_step step;
};

mimo_status log_reader_open(log_reader **out, const char *path)
{
    log_reader *reader;
    TRY(memory_reserve(&reader, 1, sizeof *reader));
    mimo_status status = memory_copy_string(&reader->path, path);
    if (status == MIMO_OK)
        status = input_file_stream(&reader->file, path, "", "");
    if (status != MIMO_OK) {
        log_reader_close(reader);
        return status;
    }
    *out = reader;
    return MIMO_OK;
}

void log_reader_close(log_reader *reader)
{
    if (!reader)
        return;
    if (reader->file)
        fclose(reader->file);
    cJSON_Delete(reader->start_line);
    cJSON_Delete(reader->step_line);
    free(reader->text);
    memory_release(reader->path);
    memory_release(reader);
}

const struct log_start *log_reader_start(const log_reader *reader)
{
    return reader->start_line ? &reader->start : NULL;
}

bool log_reader_cut_short(const log_reader *reader)
{
    return reader->cut_short;
}

#define MOST_WHOLE 9007199254740992.0 /* doubles hold every whole number up to here */

static mimo_status read_whole(int64_t *out, const log_reader *reader, const cJSON *line,
                              const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    CHECK(value >= 0 && value <= MOST_WHOLE && value == floor(value), MIMO_ERR_IO,
          "%s is no log of the captioner: line %" PRId64 " has no whole number \"%s\"",
          reader->path, reader->line, key);
    *out = (int64_t)value;
    return MIMO_OK;
}

static mimo_status read_number(double *out, const log_reader *reader, const cJSON *line,
                               const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    CHECK(cJSON_IsNumber(item) || cJSON_IsNull(item), MIMO_ERR_IO,
          "%s is no log of the captioner: line %" PRId64 " has no number or null \"%s\"",
          reader->path, reader->line, key);
    *out = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    return MIMO_OK;
}

static bool is_hash(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

static mimo_status read_hash(const char **out, const log_reader *reader, const cJSON *line,
                             const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    CHECK(!item || is_hash(item), MIMO_ERR_IO,
          "line %" PRId64 " of %s has \"%s\" that is no hash of 16 digits", reader->line,
          reader->path, key);
    *out = cJSON_GetStringValue(item);
    return MIMO_OK;
}

/* Texts of a log are printed: they have no control characters. */
static bool is_printable(const char *text)
{
    return text && utf8_printable(text, strlen(text)) == strlen(text);
}

static bool is_text(const cJSON *object, const char *key)
{
    return is_printable(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key)));
}

static bool is_described(const cJSON *tensor)
{
    return is_hash(cJSON_GetObjectItemCaseSensitive(tensor, "params")) &&
           is_text(tensor, "module") && is_text(tensor, "rule") &&
           cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(tensor, "shape"));
}

static bool is_hashed(const cJSON *tensor)
{
    return cJSON_IsArray(tensor) && cJSON_GetArraySize(tensor) == 2 && is_hash(tensor->child) &&
           (is_hash(tensor->child->next) || cJSON_IsNull(tensor->child->next));
}

static mimo_status read_tensors(const cJSON **out, const log_reader *reader, const cJSON *line,
                                bool (*is_sound)(const cJSON *tensor))
{
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(line, "tensors"), *tensor;
    CHECK(!tensors || cJSON_IsObject(tensors), MIMO_ERR_IO,
          "line %" PRId64 " of %s has \"tensors\" that are no object", reader->line, reader->path);
    cJSON_ArrayForEach(tensor, tensors)
        CHECK(is_printable(tensor->string) && is_sound(tensor), MIMO_ERR_IO,
              "line %" PRId64 " of %s has a tensor \"%s\" that is not as the captioner writes it",
              reader->line, reader->path, tensor->string);
    *out = tensors;
    return MIMO_OK;
}

/* The grids of modules by their names, as texts; and the order of additions. */
static mimo_status read_topology(log_reader *reader, const cJSON *line)
{
    struct log_start *start = &reader->start;
    const cJSON *order = cJSON_GetObjectItemCaseSensitive(line, "same_bits"), *grid;
    start->grids = cJSON_GetObjectItemCaseSensitive(line, "grids");
    cJSON_ArrayForEach(grid, start->grids) CHECK(
        is_printable(cJSON_GetStringValue(grid)), MIMO_ERR_IO,
        "line %" PRId64 " of %s has a grid that is no printable text", reader->line, reader->path);
    CHECK(!order || is_printable(cJSON_GetStringValue(order)), MIMO_ERR_IO,
          "line %" PRId64 " of %s has \"same_bits\" that is no printable text", reader->line,
          reader->path);
    start->same_bits = cJSON_GetStringValue(order);
    return MIMO_OK;
}

static mimo_status read_start(log_reader *reader, const cJSON *line)
{
    struct log_start *start = &reader->start;
    TRY(read_whole(&start->first_step, reader, line, "first_step"));
    TRY(read_whole(&start->micro_batches, reader, line, "micro_batches"));
    TRY(read_hash(&start->params, reader, line, "params"));
    TRY(read_tensors(&start->tensors, reader, line, is_described));
    return read_topology(reader, line);
}

static mimo_status read_step(log_reader *reader, const cJSON *line)
{
    struct log_step *step = &reader->step;
    int64_t before = step->step;
    TRY(read_whole(&step->step, reader, line, "step"));
    CHECK(step->step > before, MIMO_ERR_IO,
          "line %" PRId64 " of %s is step %" PRId64 " after step %" PRId64
          ": the steps of a log must ascend",
          reader->line, reader->path, step->step, before);
    TRY(read_whole(&step->tokens, reader, line, "tokens"));
    TRY(read_number(&step->loss, reader, line, "loss"));
    TRY(read_number(&step->grad_norm, reader, line, "grad_norm"));
    TRY(read_hash(&step->params, reader, line, "params"));
    TRY(read_hash(&step->grads, reader, line, "grads"));
    return read_tensors(&step->tensors, reader, line, is_hashed);
}

/* The object of the next line; NULL at the end. */
static mimo_status read_line(cJSON **out, log_reader *reader)
{
    const char *end = NULL;
    errno = 0;
    ssize_t length = getline(&reader->text, &reader->capacity, reader->file);
    *out = NULL;
    CHECK(length >= 0 || feof(reader->file), MIMO_ERR_IO, "cannot read %s: %s", reader->path,
          strerror(errno));
    if (length < 0)
        return MIMO_OK;
    reader->line++;
    cJSON *line = cJSON_ParseWithLengthOpts(reader->text, (size_t)length, &end, 0);
    bool whole =
        cJSON_IsObject(line) && strspn(end, "\r\n") == (size_t)(reader->text + length - end);
    if (whole) {
        *out = line;
        return MIMO_OK;
    }
    cJSON_Delete(line);
    reader->cut_short = reader->text[0] == '{' && reader->text[length - 1] != '\n';
    CHECK(reader->cut_short, MIMO_ERR_IO,
          "%s is no log of the captioner: line %" PRId64 " is no JSON object", reader->path,
          reader->line);
    return MIMO_OK;
}

mimo_status log_reader_next(const struct log_step **out, log_reader *reader)
{
    cJSON *line;
    *out = NULL;
    for (;;) {
        TRY(read_line(&line, reader));
        if (!line)
            return MIMO_OK;
        bool starts = cJSON_GetObjectItemCaseSensitive(line, "first_step");
        cJSON **owner = starts ? &reader->start_line : &reader->step_line;
        cJSON_Delete(*owner);
        *owner = line;
        if (!starts)
            break;
        TRY(read_start(reader, line));
    }
    TRY(read_step(reader, reader->step_line));
    *out = &reader->step;
    return MIMO_OK;
}
