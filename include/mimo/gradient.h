/*
 * The gradient rules of a step: local sums and counts in, one global token count N, every reduction
 * a SUM, one scale 1/max(N, 1) on both modules. (docs/concepts.md: "Loss and gradients".)
 *
 *   before steps      mimo_gradient_prepare()    groups of ranks      collective
 *   per micro-batch   mimo_gradient_add(loss sum, token count)          local
 *   end of step       mimo_gradient_count()      N and the loss         collective
 *                     mimo_gradient_finalize()   sum and scale          collective
 *                     mimo_gradient_norm()       one norm, f64          collective
 *                     mimo_gradient_reset()                             local
 *
 * Nothing divides before the end of the step: not by micro-batches, not by dp, not by cp. Backward
 * runs on the *sum* of token losses, with no scale.
 */
#ifndef MIMO_GRADIENT_H
#define MIMO_GRADIENT_H

#include <stdio.h>

#include <mimo/grid.h>

MIMO_BEGIN_DECLS

typedef struct mimo_gradient mimo_gradient;

/** One run of parameters whose gradients lie together and follow the same rule. Calls take arrays
 *  of them. Each element has the size of the first one. */
typedef struct mimo_gradient_bucket {
    size_t size;      /* set by the initializer */
    const char *name; /* for explain and errors; borrowed during the call */
    void *grad;       /* borrowed; summed and scaled in place; at a multiple of the element size */
    int64_t count;    /* elements on this rank */
    mimo_dtype dtype; /* f32, f64, f16, bf16; or i64: sums in fixed point, which are summed, and
                         which the caller scales */
    mimo_side module; /* MIMO_SRC: encoder parameters; MIMO_DST: LLM parameters */
    /* Dims along which ranks hold different elements, comma-separated ("tp", "tp,pp"); "" where
     * there are none. With pp > 1 pp is one of them, except for parameters that all stages have:
     * stages hold other layers, and the norm counts only stage 0 of a bucket that does not say so.
     */
    const char *shard;
    /* Dims along which ranks hold the same elements, but each only a part of their gradient. The
     * gradient is SUMmed along them. "tp" for norm weights and row-parallel biases under sp, for
     * q/k norms with heads split over tp, and for replicated low-rank factors beside a sharded one.
     * "pp" for tied embeddings, which the first stage and the last one have: with pp > 2 the stages
     * between them pass as many elements, all 0, and ignore the sum. "" where there are none. */
    const char *partial;
    /* The name of a grid that was added (mimo_gradient_add_grid), whose dims the two strings above
     * then name; NULL: the grid of `module`. With a name, `module` plays no part. */
    const char *grid;
} mimo_gradient_bucket;

#define MIMO_GRADIENT_BUCKET_INIT                                                     \
    {                                                                                 \
        sizeof(mimo_gradient_bucket), NULL, NULL, 0, MIMO_F32, MIMO_SRC, "", "", NULL \
    }

MIMO_API void mimo_gradient_bucket_init(mimo_gradient_bucket *out, size_t size);

/**
 * Create over the two grids of a step. Collective over `comm` (rank r of it is rank r of both
 * grids), blocking. Grids and communicator are borrowed (mimo_grid_destroy, mimo_comm_destroy). The
 * caller owns *out.
 *
 * Data dimensions are dp of src, and dp x cp of dst. cp > 1 of src is MIMO_ERR_UNSUPPORTED. Another
 * dimension of size > 1 (experts, for example) is MIMO_ERR_GRID, unless the grid says that ranks
 * along it hold copies (mimo_grid_set_copies): then these have the same elements and gradients, and
 * one of them counts. A grid may have fewer ranks than the communicator: the other ranks take part
 * in every call, with no elements of that module. MIMO_CHECK is read and remembered. Errors:
 * MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_GRID, MIMO_ERR_UNSUPPORTED, MIMO_ERR_COMM,
 * MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_gradient_create(mimo_gradient **out, mimo_comm *comm,
                                          const mimo_grid *src, const mimo_grid *dst);

/** Release. Collective in effect. NULL is fine. */
MIMO_API void mimo_gradient_destroy(mimo_gradient *gradient);

/**
 * Give the buckets of `name` a grid of their own: another encoder's, or a view for experts.
 *
 *     mimo_gradient_add_grid(gradient, "audio", grid, "dp", "");
 *     mimo_gradient_add_grid(gradient, "experts", view, "edp", "ep");
 *
 * Along the dims of `data` ranks hold different samples or tokens, and the gradient is SUMmed.
 * Along those of `shard` ranks hold different elements of every bucket: each names them in its own
 * `shard`, with others or alone. Either is "" or NULL where there are none. Along a dimension that
 * neither these nor a bucket name, ranks hold copies, whatever its name is. Nothing else differs
 * from the modules: one N, counted over the LLM's grid alone, one scale, one norm.
 *
 * Rank r of the communicator is rank r of the grid, which may have fewer ranks. It is borrowed
 * (mimo_grid_destroy); texts are copied. Collective over the communicator, blocking. Errors, on
 * every rank, the object as it was: MIMO_ERR_EXISTS (the name is taken; the modules have "encoder"
 * and "LLM"), MIMO_ERR_GRID (empty name, more ranks than the communicator, an unknown or repeated
 * dim, one of copies, a dim both in data and in shard), MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH (ranks
 * brought other names, grids or dims), MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_gradient_add_grid(mimo_gradient *gradient, const char *name,
                                            const mimo_grid *grid, const char *data,
                                            const char *shard);

/** Add a micro-batch: the sum of the losses of this rank's own tokens, and the number of its valid
 *  tokens. A rank without a sample adds 0 and 0, or nothing. Local. MIMO_ERR_ARGUMENT: negative
 *  count. mimo_gradient_count checks the rest on all ranks:
 *
 *  - The tp ranks of one place along cp and dp share their tokens: all add the same numbers, which
 *    count once. Where each of them computes the losses of its own sp shard, it first SUMs loss and
 *    count over tp (mimo_comm_allreduce), and adds these sums. Parameters that it applied to its
 *    shard alone, such as a whole head, then have `partial` "tp".
 *  - Only the last pp stage counts. Where a schedule computes the loss on another stage, that one
 *    sends both numbers to the last one. The others add nothing, and so do ranks outside the LLM's
 *    grid. */
MIMO_API mimo_status mimo_gradient_add(mimo_gradient *gradient, double loss_sum, int64_t tokens);

/** N (tokens over the LLM's dp x cp and all micro-batches since the reset) and the reported loss,
 *  the SUM of sums / max(N, 1), on every rank. Either output may be NULL. Collective over the
 *  communicator, blocking, also on devices: what all ranks added comes in one gather, and is
 *  checked on each of them, with MIMO_AGREE=0 as well.
 *
 *  A loss sum that is NaN or infinite is no error on a rank with tokens. The loss is what such a
 *  sum makes of it, as loops that scale it expect, and a warning names the rank (<mimo/log.h>).
 *  After an error a finalize needs another count.
 *
 *  Errors, on every rank, with the rank and its numbers: MIMO_ERR_STATE (on some rank an add
 *  followed a finalize without a reset between them: N would count two steps), MIMO_ERR_MISMATCH
 *  (ranks that share their tokens added other counts, or losses that differ by more than rounding),
 *  MIMO_ERR_ARGUMENT (a rank whose tokens count nowhere added some, or a loss; NaN or infinity with
 *  0 tokens), MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_gradient_count(int64_t *tokens, double *loss, mimo_gradient *gradient);

/**
 * Do what the first mimo_gradient_finalize of these buckets would do beside the sums: compare them
 * between the ranks, make the groups, and take the memory of a deadline. So no step makes
 * communicators, where no deadline holds ("Deadlines" in <mimo/comm.h>). The buckets are those of
 * the finalize to come; no gradient is touched, and no count is needed. To prepare again does no
 * harm. Collective over the communicator, blocking the host. Errors: those of finalize, except that
 * a count is missing.
 */
MIMO_API mimo_status mimo_gradient_prepare(mimo_gradient *gradient,
                                           const mimo_gradient_bucket *buckets, int n);

/**
 * Turn local gradient sums into the gradient of the mean token loss: SUM over the grid's data
 * dimensions and over each bucket's `partial` dims, then * 1/max(N, 1) unless they are i64. Sums
 * of i64 have the same bits on every topology; they must not overflow. Collective over the
 * communicator; blocking on the host, enqueued with a stream. With a stream, ranks compare their
 * buckets and make the groups of the sums only where these differ from the last call's; then the
 * host waits. All ranks pass buckets in the same order with the same names, grids, dims and
 * dtypes. Ranks that differ along no `shard` dim hold the same elements, so they pass the same
 * count. Buckets may come in several calls after one count, each bucket in one of them.
 *
 * Errors, on every rank before a gradient is touched (where a device's ranks do not compare, those
 * of one rank are its own): MIMO_ERR_STATE (mimo_gradient_count was not called since the last add,
 * or a bucket of this name and grid was finalized since the last count), MIMO_ERR_GRID (unknown or
 * empty dim, a dim both sharded and partial, or a data dim or one of copies in either, one of the
 * grid's `shard` that is missing, elements on a rank outside the grid), MIMO_ERR_NOT_FOUND (no grid
 * of this name), MIMO_ERR_ARGUMENT, MIMO_ERR_OVERFLOW, MIMO_ERR_MISMATCH (its sentence numbers
 * ranks as the communicator does), MIMO_ERR_UNSUPPORTED (dtype); then MIMO_ERR_COMM.
 */
MIMO_API mimo_status mimo_gradient_finalize(mimo_gradient *gradient,
                                            const mimo_gradient_bucket *buckets, int n,
                                            mimo_stream stream);

/** The global L2 norm over all buckets: each parameter element counts once, and partial sums are
 *  in f64. Of ranks that differ along no `shard` dim, the first one counts: stages of norm 3 and 4
 *  give 5 with "tp,pp", and 3 with "tp". With MIMO_CHECK=replicas that is MIMO_ERR_MISMATCH: the
 *  norms of a bucket are compared between ranks that should hold the same elements of it, and the
 *  sentence names the dims along which they differ. Call it after finalize, with its stream.
 *  Collective, blocking the host. Errors as finalize; and MIMO_ERR_UNSUPPORTED for i64. */
MIMO_API mimo_status mimo_gradient_norm(double *norm, mimo_gradient *gradient,
                                        const mimo_gradient_bucket *buckets, int n,
                                        mimo_stream stream);

/** Begin the next step: forget losses and counts. Local. */
MIMO_API void mimo_gradient_reset(mimo_gradient *gradient);

/** Print every factor that finalize applies to each bucket, with the reason: the dims that are
 *  summed over with their number of ranks, the dims that are not and why, and the scale with N.
 *  Local. Errors: MIMO_ERR_IO, and those of finalize that concern this rank's own buckets. */
MIMO_API mimo_status mimo_gradient_explain(FILE *stream, const mimo_gradient *gradient,
                                           const mimo_gradient_bucket *buckets, int n);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/** The lines of mimo_gradient_explain as text: at most capacity - 1 characters into `text` (always
 *  terminated; NULL where capacity is 0), and the length of the whole into *length (may be NULL).
 *  Local. Errors: MIMO_ERR_ARGUMENT (capacity < 0), and those of mimo_gradient_explain. */
MIMO_API mimo_status mimo_gradient_text(int64_t *length, char *text, int64_t capacity,
                                        const mimo_gradient *gradient,
                                        const mimo_gradient_bucket *buckets, int n);

#endif

MIMO_END_DECLS

#endif
