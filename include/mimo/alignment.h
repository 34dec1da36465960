/*
 * Alignment of modality rows with the positions of a token sequence. docs/concepts.md has it under
 * "Alignment".
 *
 * ids [B, S] are walked in (b, s) order; the n-th occurrence of modality m's special id takes row n
 * of E_m, every other position takes the next text row. Order of operations in a step: modality
 * rows cross the bridge, text rows are looked up locally, *merge* (here), cp split, sp split.
 *
 * Local and pure: no communicator. One thread at a time per object.
 */
#ifndef MIMO_ALIGNMENT_H
#define MIMO_ALIGNMENT_H

#include <mimo/tensor.h>

MIMO_BEGIN_DECLS

typedef struct mimo_alignment mimo_alignment;

typedef struct mimo_alignment_desc {
    size_t size;    /* set by the initializer */
    int modalities; /* M, >= 0 */
    /* special[M]: for each modality the id that stands for one of its rows; copied. */
    const int64_t *special;
    int64_t vocabulary; /* ids in [0, vocabulary) that are not special are text; 0: any id >= 0 */
    mimo_memory memory; /* where the rows and the merged tiles lie */
} mimo_alignment_desc;

#define MIMO_ALIGNMENT_DESC_INIT                                  \
    {                                                             \
        sizeof(mimo_alignment_desc), 0, NULL, 0, MIMO_MEMORY_HOST \
    }

MIMO_API void mimo_alignment_desc_init(mimo_alignment_desc *out, size_t size);

/** Create. The caller owns *out. Errors: MIMO_ERR_ARGUMENT (NULL, a special id that is negative or
 *  named twice), MIMO_ERR_UNSUPPORTED (memory that this build can't handle), MIMO_ERR_MEMORY. */
MIMO_API mimo_status mimo_alignment_create(mimo_alignment **out, const mimo_alignment_desc *desc);

/** Release. NULL is fine. */
MIMO_API void mimo_alignment_destroy(mimo_alignment *alignment);

/**
 * Take the ids of a micro-batch: "bs" [B, S], i32 or i64, host memory; read during the call only.
 *
 * On a device the table of positions is copied there on `stream`. Merges and splits that are
 * enqueued later on it use the new ids, earlier ones use the old ids. A captured merge reads the
 * table when it is replayed, so a graph survives updates with the same number of ids. The host may
 * wait for earlier work of the stream.
 *
 * Errors: MIMO_ERR_SHAPE; MIMO_ERR_ARGUMENT for an unknown id (named with its sample and position);
 * MIMO_ERR_MEMORY; MIMO_ERR_DEVICE. After an error other than MIMO_ERR_DEVICE the previous
 * ids stay in force.
 */
MIMO_API mimo_status mimo_alignment_update(mimo_alignment *alignment, const mimo_tensor *ids,
                                           mimo_stream stream);

/** How many rows a modality takes (-1: text rows) with the ids in force. MIMO_ERR_STATE before the
 *  first update; MIMO_ERR_ARGUMENT (no such modality). */
MIMO_API mimo_status mimo_alignment_rows(int64_t *rows, const mimo_alignment *alignment,
                                         int modality);

/**
 * Merge: to, "sbh" [S, B, H] or "bsh" [B, S, H], from the modalities' rows and the text rows. Each
 * row of `to` is written once. Enqueued with a stream.
 *
 * rows[M]: per modality "th" or "bh" [N_m, H], sample-major; or "bsh" [b, s, H], or "sbh" [s, b,
 * H], b*s = N_m, whose rows are taken sample-major by their letters (never as they lie). A modality
 * without rows passes an empty view. text: "th" [N_text, H]. All share H, dtype and memory, and
 * none may overlap `to` (which is not checked). `rows` may be NULL where M = 0.
 *
 * A view with data NULL (and its true shape) is skipped: its positions of `to` are left alone. A
 * ragged bridge (mimo_bridge_update) can have written a modality's rows there itself.
 *
 * Errors: MIMO_ERR_SHAPE where a count differs (prints both; a special id present without rows is
 * this error) or a view does not fit; MIMO_ERR_ARGUMENT where data of `to` is NULL; MIMO_ERR_STATE
 * before the first update.
 */
MIMO_API mimo_status mimo_alignment_merge(const mimo_alignment *alignment, const mimo_tensor *to,
                                          const mimo_tensor *rows, const mimo_tensor *text,
                                          mimo_stream stream);

/** The adjoint: copy the gradient of the merged tile, `from`, to rows[M] and text. Each of their
 *  rows is written once. A view with data NULL (and its true shape) is skipped. Rules and errors as
 *  mimo_alignment_merge. */
MIMO_API mimo_status mimo_alignment_split(const mimo_alignment *alignment, const mimo_tensor *rows,
                                          const mimo_tensor *text, const mimo_tensor *from,
                                          mimo_stream stream);

MIMO_END_DECLS

#endif
