/* Reading a training log (train_log.h), step by step. */
#ifndef CAPTIONER_LOG_READER_H
#define CAPTIONER_LOG_READER_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>
#include <mimo/status.h>

/* Hashes are texts of 16 hexadecimal digits, as they stand in the log. */
struct log_step {
    int64_t step, tokens;
    double loss, grad_norm;     /* not-a-number where the log has null */
    const char *params, *grads; /* NULL: the log has no hashes */
    const cJSON *tensors;       /* {name: [params, grads or null]}; NULL: it has none of tensors */
};

struct log_start {
    int64_t first_step, micro_batches;
    const char *params;
    const char *same_bits; /* "V,C" of the fixed order; NULL: the fast order */
    const cJSON *grids;    /* {module: text} */
    const cJSON *tensors;  /* {name: {"module", "shape", "rule", "params"}}, or NULL */
};

typedef struct log_reader log_reader;

/** Open a log. The caller closes it. MIMO_ERR_NOT_FOUND, MIMO_ERR_IO, MIMO_ERR_MEMORY. */
mimo_status log_reader_open(log_reader **out, const char *path);
void log_reader_close(log_reader *reader); /* NULL is fine */

/** The next step, owned by the reader until the next call; NULL at the end. MIMO_ERR_IO, with the
 *  line: no such log, or steps that do not ascend. A last line that was cut short (the run that
 *  wrote it died, or goes on) is left out. */
mimo_status log_reader_next(const struct log_step **out, log_reader *reader);

/** What the run of that step started from; NULL where the log does not say. Owned by the reader. */
const struct log_start *log_reader_start(const log_reader *reader);

/** Whether a last line was left out. */
bool log_reader_cut_short(const log_reader *reader);

#endif
