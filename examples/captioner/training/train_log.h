/*
 * The training log: one JSON object per training step, one step per line, each flushed when it is
 * written, so that a reader (or a crash) sees whole lines.
 *
 *   {"step":1,"loss":5.54,"tokens":431,"grad_norm":1.7,"ms":81.2}
 *
 * A step after which the held-out samples were looked at has "held_out":0.71 as well.
 *
 * With --balance it has how long the longest lane of the encoder was, as a multiple of the mean: if
 * each lane had encoded the pictures that it loaded, and as they were dealt out; and the part of
 * the rows that another lane encoded: "balance":{"loaded":1.6,"encoded":1,"moved":0.2}.
 *
 * Numbers have the digits that give the same double back; a loss that is not finite is written as
 * null, as JSON has it. With hashes a line also has the hash of the parameters after the step, and
 * that of the gradients that the step used. A hash is text of 16 hexadecimal digits. The line may
 * have both hashes of each tensor. (A frozen one has no gradient: null.)
 *
 *   "params":"143c...","grads":"b196...","tensors":{"llm.head.bias":["e603...","0b5a..."],...}
 *
 * Then a line of another kind comes before the first step of a run: what the run starts from. It
 * says what mimo-diff needs to know of the topology, and of each tensor. With --same-bits it has
 * "same_bits":"8,1" behind the grids, and is there without hashes as well.
 *
 *   {"first_step":1,"micro_batches":4,"grids":{"encoder":"tp=2,dp=4","llm":"tp=2,cp=2,dp=2"},
 *    "params":"5f1d...",
 *    "tensors":{"llm.head.bias":
 *      {"module":"llm","shape":[300],"rule":"sharded","params":"e603..."},...}}
 *
 * The rule is that of the gradient over the tp of the module's grid: "sharded", "replicated" or
 * "partial", or "frozen" where there is none. Over all other dimensions of that grid, and over
 * micro-batches, gradients are added. The tensors of experts are of a module "experts" with a grid
 * of its own: "experts":"etp=2,ep=2,edp=2". Their rule is over etp, and ranks along ep have others.
 */
#ifndef CAPTIONER_TRAIN_LOG_H
#define CAPTIONER_TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

struct train_log; /* an open log */

/* A tensor of the model, its hashes, and what the first line says of it. Texts are borrowed. */
struct train_log_tensor {
    const char *name, *module, *rule;
    const int64_t *shape; /* [ndim] */
    int ndim;
    bool trained; /* it has a gradient */
    uint64_t params, grads;
};

struct train_log_hashes {
    uint64_t params, grads; /* of the whole model */
    int64_t count;          /* 0: the log has no hashes of single tensors */
    const struct train_log_tensor *tensors;
};

/* What a run starts from. */
struct train_log_start {
    int64_t first_step; /* of the run; from 1 */
    int64_t micro_batches;
    const char *encoder, *llm;             /* grids as mimo_grid_text writes them */
    const char *same_bits;                 /* "V,C"; NULL: the run adds in the fast order */
    const struct train_log_hashes *hashes; /* of the parameters; no gradients; NULL: none */
    const char *experts;                   /* the grid of experts; NULL: there are none */
};

/* How the encoder's lanes were balanced in a step. */
struct train_log_balance {
    double loaded, encoded; /* the longest lane, as multiples of the mean */
    double moved;           /* of the rows, encoded by another lane than loaded them */
};

struct train_log_line {
    int64_t step;                          /* from 1 */
    double loss;                           /* mean over the tokens */
    int64_t tokens;                        /* that the loss counts, over all ranks */
    double grad_norm;                      /* over both modules, before clipping */
    double ms;                             /* wall clock of the step */
    const struct train_log_hashes *hashes; /* NULL: none */
    const double *held_out;                /* loss of held-out samples; NULL: not looked at */
    const struct train_log_balance *lanes; /* NULL: they were not balanced */
};

/** Open a log, from its beginning or, where a run is resumed, at its end. Never waits. MIMO_ERR_IO,
 *  also for a pipe. */
mimo_status train_log_open(struct train_log **out, const char *path, bool append);

/** The same with a file that is open at its end, and from now on the log's, whatever the result.
 *  `path` is for sentences. */
mimo_status train_log_take(struct train_log **out, const char *path, int fd);

/** Write the line before the first step. MIMO_ERR_IO. */
mimo_status train_log_begin(struct train_log *log, const struct train_log_start *start);

/** Write one line. MIMO_ERR_IO, on a full disk for one, names the path and the step. */
mimo_status train_log_write(struct train_log *log, const struct train_log_line *line);

/** Close and release. MIMO_ERR_IO where the system only now tells of a failed write. NULL is
 *  fine. */
mimo_status train_log_close(struct train_log *log);

#endif
