#include "train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captioner_memory.h"
#include "captioner_support.h"

struct train_log {
    FILE *file;
    char *path;
};

mimo_status train_log_open(struct train_log **out, const char *path, bool append)
{
    struct train_log *log;
    TRY(memory_reserve(&log, 1, sizeof *log));
    mimo_status status = memory_copy_string(&log->path, path);
    if (status == MIMO_OK && !(log->file = fopen(path, append ? "ae" : "we")))
        status = mimo_fail(MIMO_ERR_IO, "cannot open the log %s: %s", path, strerror(errno));
    if (status != MIMO_OK) {
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

mimo_status train_log_write(struct train_log *log, const struct train_log_line *line)
{
    number_text loss, norm, ms;
    errno = 0;
    int printed = fprintf(log->file,
                          "{\"step\":%" PRId64 ",\"loss\":%s,\"tokens\":%" PRId64
                          ",\"grad_norm\":%s,\"ms\":%s}\n",
                          line->step, spell(loss, line->loss), line->tokens,
                          spell(norm, line->grad_norm), spell(ms, line->ms));
    CHECK(printed > 0 && fflush(log->file) == 0, MIMO_ERR_IO,
          "cannot write step %" PRId64 " to the log %s: %s", line->step, log->path,
          strerror(errno));
    return MIMO_OK;
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
