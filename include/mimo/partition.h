/*
 * The sequence partition: which tokens of a sequence one LLM rank keeps under context parallelism
 * (cp) and sequence parallelism (sp, over tp). docs/concepts.md has the rules with numbers, under
 * "Sequence partition".
 *
 * sbhd, zigzag: S tokens are split into 2*cp chunks of L = S/(2cp). Rank c keeps chunk c, then
 * chunk 2cp-1-c. Local row i is the global row
 *
 *   i < L ? c*L + i : (2cp-1-c)*L + (i-L)
 *
 * thd, packed: cu[0..n] are cumulative lengths, T = cu[n]. Each sequence is split like that by
 * itself.
 *
 * Embeddings, labels, loss mask and position ids are all split by cp with the same map. Sequence
 * parallelism then keeps rows [t*n, (t+1)*n), n = rows/tp, of the *embeddings only*: the loss runs
 * after the gather over tp. Shift labels on the full sequence, before the split; in a pack each
 * sequence by itself (mimo_partition_shift_labels).
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
    bool sp;     /* also cut the embeddings along tp */
    bool strict; /* Megatron-LM's rule: 2*cp*tp divides S (cp = 1: tp does). Without it, 2cp divides
                    S and tp divides S/cp. tp counts under sp alone */
    int64_t sequences;        /* thd: n */
    const int32_t *cu;        /* thd: n + 1 cumulative lengths; copied on creation */
    const int32_t *cu_padded; /* thd: padded lengths, which then drive the split; or NULL */
} mimo_partition_rule;

#define MIMO_PARTITION_RULE_INIT                                            \
    {                                                                       \
        sizeof(mimo_partition_rule), MIMO_SBHD, false, false, 0, NULL, NULL \
    }

MIMO_API void mimo_partition_rule_init(mimo_partition_rule *out, size_t size);

/** Which rank this is: its cp and tp coordinates, and their sizes. */
typedef struct mimo_partition_coords {
    size_t size; /* set by the initializer */
    int64_t cp_rank, cp_size;
    int64_t tp_rank, tp_size; /* used under sp only */
} mimo_partition_coords;

#define MIMO_PARTITION_COORDS_INIT                \
    {                                             \
        sizeof(mimo_partition_coords), 0, 1, 0, 1 \
    }

MIMO_API void mimo_partition_coords_init(mimo_partition_coords *out, size_t size);

/** What a tensor holds; it decides whether sp applies. */
typedef enum mimo_content {
    MIMO_EMBEDDINGS = 0, /* cp, then sp */
    MIMO_LABELS = 1,     /* cp only: labels, loss mask, position ids */
} mimo_content;

/**
 * Create a partition. The caller owns *out. Local.
 *
 * Errors: MIMO_ERR_ARGUMENT (NULL, a size field that no initializer set, unknown format, coordinate
 * outside its size, size < 1; those of tp are read under sp alone). For thd MIMO_ERR_SHAPE: cu[0]
 * != 0; cu decreases; cp > 1 and 2cp does not divide a length (the sequence is named); under sp, tp
 * does not divide the rows of a rank; cu_padded is shorter than cu somewhere. Sequences of length
 * zero and repeated last entries are valid.
 */
MIMO_API mimo_status mimo_partition_create(mimo_partition **out, const mimo_partition_rule *rule,
                                           const mimo_partition_coords *coords);

/** Release. NULL is fine. */
MIMO_API void mimo_partition_destroy(mimo_partition *partition);

/**
 * Number of local rows of a sequence of `seq` tokens (thd: seq = T, the last of the cumulative
 * lengths that drive the split). Local.
 *
 * Errors: MIMO_ERR_SHAPE, with the numbers, where thd has another T, or a rule is broken:
 *   cp > 1          2cp divides seq
 *   sp              tp divides seq/cp
 *   strict          2*cp*tp divides seq; with cp = 1, tp divides it. This holds for labels as
 *                   well. Without sp, tp counts as 1
 * cp = 1 without sp takes any seq.
 */
MIMO_API mimo_status mimo_partition_rows(int64_t *rows, const mimo_partition *partition,
                                         mimo_content content, int64_t seq);

/** The index map: global[i] is the global row of local row i, for i < rows. Of packed sequences it
 * is the row of the pack: mimo_partition_positions has the positions in each of them. Local. Errors
 * as mimo_partition_rows. */
MIMO_API mimo_status mimo_partition_index(int64_t *global, const mimo_partition *partition,
                                          mimo_content content, int64_t seq);

/**
 * Keep this rank's rows: `to` (shard) from `from` (full). Local; enqueued with a stream.
 *
 * The sequence dimension is the letter 's' (sbhd) or 't' (thd). Any other dimensions may stand
 * before and behind it: "sbh", "bsh", "bs", "pbs", "th", "t". Both views have the same letters,
 * dtype and memory. Their shapes agree except along the sequence. They must not overlap. Any dtype.
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
 * Every element of `to` is written.
 *
 * Under sp, rows of embeddings are first gathered over tp, without a sum. Then the call is
 * collective over `tp`, a communicator of this rank's tp group in tp order, and blocking on the
 * host. Without sp, or with tp = 1, `tp` may be NULL. Then the call is local.
 *
 * Errors: MIMO_ERR_SHAPE as above; MIMO_ERR_ARGUMENT where `tp` is needed and NULL, or has another
 * size or rank than the coordinates say.
 */
MIMO_API mimo_status mimo_partition_adjoint(const mimo_partition *partition, mimo_content content,
                                            const mimo_tensor *to, const mimo_tensor *from,
                                            mimo_comm *tp, mimo_stream stream);

/**
 * Padding helper: lengths[n] of sequences -> cu_padded[n + 1] in which every length is the next
 * multiple of `multiple` (2cp, or 2*cp*tp under sp). Pad with token 0 and label -100. Local.
 * Errors: MIMO_ERR_ARGUMENT (negative length, multiple < 1), MIMO_ERR_OVERFLOW.
 */
MIMO_API mimo_status mimo_partition_pad(int32_t *cu_padded, const int32_t *lengths,
                                        int64_t sequences, int64_t multiple);

/**
 * Padding helper: copy rows to where the padded lengths put them. `to` is "t" [cu_padded[n]],
 * `from` is "t" [cu[n]], both i32 or both i64, in host memory. Every element of `to` is written,
 * with `fill` behind each sequence (0 for tokens, -100 for labels). Local.
 *
 * Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_SHAPE (views that do not fit the lengths, with the numbers; a
 * sequence that is longer than its padded length, which is named).
 */
MIMO_API mimo_status mimo_partition_pad_rows(const mimo_tensor *to, const mimo_tensor *from,
                                             const int32_t *cu, const int32_t *cu_padded,
                                             int64_t sequences, int64_t fill);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/**
 * Positions for a rotary embedding or an attention mask: position[i] is the position of local row i
 * in its own sequence, for i < rows. Of packed sequences each begins at 0, and rows of its padding
 * count on. Otherwise it is the index map. Local. Errors as mimo_partition_rows.
 */
MIMO_API mimo_status mimo_partition_positions(int64_t *position, const mimo_partition *partition,
                                              mimo_content content, int64_t seq);

/**
 * Labels for the next token, before the split: `to` row i is `from` row i + 1 of the same sequence,
 * and `fill` (-100) for its last row. Views are "t" of packed sequences, whose cumulative lengths
 * are cu[sequences + 1] (of padded ones: cu_padded, with `fill` in the padding of `from`). Both are
 * i32 or both i64, in host memory. `to` and `from` may be the same rows. A shift of the pack as a
 * whole would teach the last token of a sequence the first one of the next. Local.
 *
 * Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_SHAPE (views that do not fit the lengths, lengths that
 * decrease).
 */
MIMO_API mimo_status mimo_partition_shift_labels(const mimo_tensor *to, const mimo_tensor *from,
                                                 const int32_t *cu, int64_t sequences,
                                                 int64_t fill);

#endif

MIMO_END_DECLS

#endif
