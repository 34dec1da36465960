#include "captioner/training/train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

struct train_log {
    FILE *file;
    char *path;
};

enum { NEW_MODE = 0666 };

/* A pipe waits for its reader, when it is opened and when it is full, and all ranks would wait for
 * this one. So it is opened without waiting, and refused. */
static mimo_status open_file(FILE **out, const char *path, bool append)
{
    struct stat found;
    int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_APPEND : O_TRUNC);
    int fd = open(path, how, NEW_MODE);
    bool waits = fd < 0 ? errno == ENXIO : fstat(fd, &found) == 0 && S_ISFIFO(found.st_mode);
    if (fd >= 0 && !waits && fcntl(fd, F_SETFL, how & O_APPEND) == 0)
        *out = fdopen(fd, append ? "a" : "w");
    if (*out)
        return MIMO_OK;
    int error = errno;
    if (fd >= 0)
        close(fd);
    CHECK(!waits, MIMO_ERR_IO,
          "cannot open the log %s: it is a pipe, and the run would wait for who reads it", path);
    return mimo_fail(MIMO_ERR_IO, "cannot open the log %s: %s", path, strerror(error));
}

static mimo_status create(struct train_log **out, const char *path)
{
    struct train_log *log;
    TRY(memory_reserve(&log, 1, sizeof *log));
    mimo_status status = memory_copy_string(&log->path, path);
    if (status == MIMO_OK)
        *out = log;
    else
        memory_release(log);
    return status;
}

mimo_status train_log_open(struct train_log **out, const char *path, bool append)
{
    struct train_log *log;
    TRY(create(&log, path));
    mimo_status status = open_file(&log->file, path, append);
    if (status != MIMO_OK) {
        (void)train_log_close(log);
        return status;
    }
    *out = log;
    return MIMO_OK;
}

mimo_status train_log_take(struct train_log **out, const char *path, int fd)
{
    struct train_log *log = NULL;
    mimo_status status = create(&log, path);
    if (status == MIMO_OK && !(log->file = fdopen(fd, "w")))
        status = mimo_fail(MIMO_ERR_IO, "cannot open the log %s: %s", path, strerror(errno));
    if (status != MIMO_OK) {
        close(fd);
        (void)train_log_close(log);
        return status;
    }
    *out = log;
    return MIMO_OK;
}

/* Enough for any double: sign, 17 digits, point, exponent. */
typedef char number_text[32];

/* The shortest text that gives the same double back. (cJSON compares with a tolerance and drops the
 * last digits.) */
static const char *spell(number_text text, double value)
{
    if (!isfinite(value))
        return "null";
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(number_text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

/* A failed write is noticed once, when the line is flushed. */
static void write_hash(FILE *file, const char *before, uint64_t hash)
{
    fprintf(file, "%s\"%016" PRIx64 "\"", before, hash);
}

static void write_hashes(FILE *file, const struct train_log_hashes *hashes)
{
    write_hash(file, ",\"params\":", hashes->params);
    write_hash(file, ",\"grads\":", hashes->grads);
    for (int64_t i = 0; i < hashes->count; i++) {
        const struct train_log_tensor *tensor = &hashes->tensors[i];
        fprintf(file, "%s\"%s\":", i == 0 ? ",\"tensors\":{" : ",", tensor->name);
        write_hash(file, "[", tensor->params);
        if (tensor->trained)
            write_hash(file, ",", tensor->grads);
        fputs(tensor->trained ? "]" : ",null]", file);
    }
    fputs(hashes->count > 0 ? "}" : "", file);
}

static void write_tensor(FILE *file, const struct train_log_tensor *tensor)
{
    fprintf(file, "\"%s\":{\"module\":\"%s\",\"shape\":", tensor->name, tensor->module);
    for (int i = 0; i < tensor->ndim; i++)
        fprintf(file, "%s%" PRId64, i == 0 ? "[" : ",", tensor->shape[i]);
    fprintf(file, "],\"rule\":\"%s\"", tensor->rule);
    write_hash(file, ",\"params\":", tensor->params);
    fputs("}", file);
}

/* End the line that the caller printed, and see that it is there. */
static mimo_status end_line(const struct train_log *log, int64_t step)
{
    fputs("}\n", log->file);
    CHECK(fflush(log->file) == 0 && !ferror(log->file), MIMO_ERR_IO,
          "cannot write step %" PRId64 " to the log %s: %s", step, log->path, strerror(errno));
    return MIMO_OK;
}

mimo_status train_log_begin(struct train_log *log, const struct train_log_start *start)
{
    const struct train_log_hashes *hashes = start->hashes;
    FILE *file = log->file;
    errno = 0;
    fprintf(file,
            "{\"first_step\":%" PRId64 ",\"micro_batches\":%" PRId64
            ",\"grids\":{\"encoder\":\"%s\",\"llm\":\"%s\"",
            start->first_step, start->micro_batches, start->encoder, start->llm);
    if (start->experts)
        fprintf(file, ",\"experts\":\"%s\"", start->experts);
    fputs("}", file);
    if (start->same_bits)
        fprintf(file, ",\"same_bits\":\"%s\"", start->same_bits);
    if (hashes)
        write_hash(file, ",\"params\":", hashes->params);
    for (int64_t i = 0; hashes && i < hashes->count; i++) {
        fputs(i == 0 ? ",\"tensors\":{" : ",", file);
        write_tensor(file, &hashes->tensors[i]);
    }
    fputs(hashes && hashes->count > 0 ? "}" : "", file);
    return end_line(log, start->first_step);
}

static void write_balance(FILE *file, const struct train_log_balance *balance)
{
    number_text loaded, encoded, moved;
    fprintf(file, ",\"balance\":{\"loaded\":%s,\"encoded\":%s,\"moved\":%s}",
            spell(loaded, balance->loaded), spell(encoded, balance->encoded),
            spell(moved, balance->moved));
}

mimo_status train_log_write(struct train_log *log, const struct train_log_line *line)
{
    number_text loss, norm, ms, held_out;
    errno = 0;
    fprintf(log->file,
            "{\"step\":%" PRId64 ",\"loss\":%s,\"tokens\":%" PRId64 ",\"grad_norm\":%s,\"ms\":%s",
            line->step, spell(loss, line->loss), line->tokens, spell(norm, line->grad_norm),
            spell(ms, line->ms));
    if (line->held_out)
        fprintf(log->file, ",\"held_out\":%s", spell(held_out, *line->held_out));
    if (line->lanes)
        write_balance(log->file, line->lanes);
    if (line->hashes)
        write_hashes(log->file, line->hashes);
    return end_line(log, line->step);
}

mimo_status train_log_close(struct train_log *log)
{
    mimo_status status = MIMO_OK;
    if (!log)
        return MIMO_OK;
    if (log->file && fclose(log->file) != 0)
        status = mimo_fail(MIMO_ERR_IO, "cannot finish the log %s: %s", log->path, strerror(errno));
    memory_release(log->path);
    memory_release(log);
    return status;
}
