/* The training log: one JSON object per training step, one step per line, each flushed when it is
 * written, so that a reader (or a crash) sees whole lines. */
#ifndef CAPTIONER_TRAIN_LOG_H
#define CAPTIONER_TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

struct train_log; /* an open log */

/* One line: {"step":1,"loss":5.54,"tokens":431,"grad_norm":1.7,"ms":81.2}. Numbers have the digits
 * that give the same double back; a loss that is not finite is written as null, as JSON has it. */
struct train_log_line {
    int64_t step;     /* from 1 */
    double loss;      /* mean over the tokens */
    int64_t tokens;   /* that the loss counts, over all ranks */
    double grad_norm; /* over both modules, before clipping */
    double ms;        /* wall clock of the step */
};

/** Open a log, from its beginning or, where a run is resumed, at its end. MIMO_ERR_IO. */
mimo_status train_log_open(struct train_log **out, const char *path, bool append);

/** Write one line. MIMO_ERR_IO, on a full disk for one, names the path and the step. */
mimo_status train_log_write(struct train_log *log, const struct train_log_line *line);

/** Close and release. MIMO_ERR_IO where the system only now tells of a failed write. NULL is
 *  fine. */
mimo_status train_log_close(struct train_log *log);

#endif
