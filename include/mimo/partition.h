/*
 * PartitionAdapter: how one LLM rank keeps its tokens of a sequence under context parallelism (cp)
 * and sequence parallelism (sp, over tp). (SEMANTICS: "Sequence partition".)
 *
 * sbhd, zigzag: S tokens are split into 2*cp chunks of L = S/(2cp); rank c keeps chunk c, then
 * chunk 2cp-1-c. Local row i is global row  i < L ? c*L + i : (2cp-1-c)*L + (i-L).
 *
 * thd, packed: cu[0..n] are cumulative lengths, T = cu[n]; each sequence is split like that on its
 * own.
 *
 * Embeddings, labels, loss mask and position ids are all split by cp with the same map. Sequence
 * parallelism then keeps rows [t*n, (t+1)*n), n = rows/tp, of the *embeddings only* (the loss runs
 * after the tp gather). Labels are shifted on the full sequence, before the split.
 *
 * A partition is a pure value: no communicator, thread-safe once created.
 */
#ifndef MIMO_PARTITION_H
#define MIMO_PARTITION_H

#include <stdbool.h>

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

typedef struct mimo_partition mimo_partition;

typedef enum mimo_sequence_format {
    MIMO_SBHD = 0, /* every sample has S tokens */
    MIMO_THD = 1,  /* samples of different lengths, packed one after the other */
} mimo_sequence_format;

/** What all ranks of an LLM share about the partition. */
typedef struct mimo_partition_rule {
    size_t size; /* set by the initializer */
    mimo_sequence_format format;
    bool sp;     /* cut the embeddings along tp too */
    bool strict; /* upstream's rule S mod 2*cp*tp = 0 (cp = 1: S mod tp) instead of S mod 2cp = 0
                    and (S/cp) mod tp = 0 */
    int64_t sequences;        /* thd: n */
    const int32_t *cu;        /* thd: n + 1 cumulative lengths; copied on creation */
    const int32_t *cu_padded; /* thd: the padded ones, which then drive the split; or NULL */
} mimo_partition_rule;

#define MIMO_PARTITION_RULE_INIT                                            \
    {                                                                       \
        sizeof(mimo_partition_rule), MIMO_SBHD, false, false, 0, NULL, NULL \
    }

/** This rank's place: cp and tp coordinates and sizes. */
typedef struct mimo_partition_place {
    int64_t cp_rank, cp_size;
    int64_t tp_rank, tp_size; /* used under sp only */
} mimo_partition_place;

/** What a tensor holds; it decides whether sp applies. */
typedef enum mimo_content {
    MIMO_EMBEDDINGS = 0, /* cp, then sp */
    MIMO_LABELS = 1,     /* cp only: labels, loss mask, position ids */
} mimo_content;

/**
 * Create a partition. The caller owns *out. Local.
 *
 * Errors: MIMO_ERR_ARGUMENT (NULL, unknown format, coordinate outside its size, size < 1); for thd
 * MIMO_ERR_SHAPE: cu[0] != 0, decreasing, a length that is not divisible by 2cp where cp > 1 (the
 * sequence is named), rows per rank not divisible by tp under sp, cu_padded shorter than cu
 * somewhere. Zero-length sequences and repeated trailing sentinels are valid.
 */
MIMO_API mimo_status mimo_partition_create(mimo_partition **out, const mimo_partition_rule *rule,
                                           const mimo_partition_place *place);

/** Release. NULL is fine. */
MIMO_API void mimo_partition_destroy(mimo_partition *partition);

/**
 * Number of local rows of a sequence of `seq` tokens (thd: seq = T, the last of the cumulative
 * lengths that drive the split). Local.
 *
 * Errors: MIMO_ERR_SHAPE where seq does not divide (cp > 1: seq mod 2cp; sp: (seq/cp) mod tp;
 * strict: seq mod 2*cp*tp, cp = 1: seq mod tp, of labels too; tp counts under sp only), with the
 * numbers, or where thd has another T. cp = 1 without sp takes any seq.
 */
MIMO_API mimo_status mimo_partition_rows(const mimo_partition *partition, mimo_content content,
                                         int64_t seq, int64_t *rows);

/** The index map: global[i] is the global row of local row i, for i < rows (an attention layer
 * needs it for its mask, a rotary embedding for its positions). Local. Errors as
 * mimo_partition_rows. */
MIMO_API mimo_status mimo_partition_index(const mimo_partition *partition, mimo_content content,
                                          int64_t seq, int64_t *global);

/**
 * Keep this rank's rows: `to` (shard) from `from` (full). Local; enqueued with a stream.
 *
 * The sequence dimension is the letter 's' (sbhd) or 't' (thd); every other dimension is carried
 * along, at any place: "sbh", "bsh", "bs", "pbs", "th", "t". Both views have the same letters,
 * dtype and memory; shapes agree except along the sequence. They must not overlap. Any dtype.
 *
 * Errors: MIMO_ERR_SHAPE with both views; divisibility as mimo_partition_rows; MIMO_ERR_ARGUMENT
 * where data is NULL or the views overlap; MIMO_ERR_UNSUPPORTED (a kind of memory that this build
 * lacks).
 */
MIMO_API mimo_status mimo_partition_shard(const mimo_partition *partition, mimo_content content,
                                          const mimo_tensor *to, const mimo_tensor *from,
                                          mimo_stream stream);

/**
 * The adjoint of mimo_partition_shard: `to` (full) becomes zeros with this rank's rows put back.
 * Under sp (embeddings) the rows are first gathered over tp, without a sum: then the call is
 * collective over `tp`, a communicator of the place's tp ranks in tp order, and blocking on the
 * host. Where the place has one tp rank, and without sp, `tp` may be NULL; then the call is local.
 * Every element of `to` is written.
 *
 * Errors: MIMO_ERR_SHAPE as above; MIMO_ERR_ARGUMENT where `tp` is needed and NULL or has another
 * size or rank than the place says.
 */
MIMO_API mimo_status mimo_partition_adjoint(const mimo_partition *partition, mimo_content content,
                                            const mimo_tensor *to, const mimo_tensor *from,
                                            mimo_comm *tp, mimo_stream stream);

/**
 * Padding helper: lengths[n] of sequences -> cu_padded[n + 1] in which every length is the next
 * multiple of `multiple` (2cp, or 2*cp*tp under sp). Pad with token 0 and label -100. Local.
 * Errors: MIMO_ERR_ARGUMENT (negative length, multiple < 1), MIMO_ERR_OVERFLOW.
 */
MIMO_API mimo_status mimo_partition_pad(const int32_t *lengths, int64_t sequences, int64_t multiple,
                                        int32_t *cu_padded);

/**
 * Padding helper: copy rows into their padded places. `to` "t" [cu_padded[n]] and `from` "t"
 * [cu[n]], both i32 or both i64, host memory; every element of `to` is written, with `fill` (0 for
 * tokens, -100 for labels) behind each sequence. Local.
 * Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_SHAPE (views that do not fit the lengths, with the numbers; a
 * padded sequence shorter than its own, which is named).
 */
MIMO_API mimo_status mimo_partition_pad_rows(const mimo_tensor *to, const mimo_tensor *from,
                                             const int32_t *cu, const int32_t *cu_padded,
                                             int64_t sequences, int64_t fill);

MIMO_END_DECLS

#endif
