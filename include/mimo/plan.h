/*
 * Layouts and plans: which rows move between which ranks. Pure, local, without a communicator: any
 * process can build any rank's plan. Thread-safe on layouts and plans that no thread destroys.
 *
 * A *row* is one token of one sample: H contiguous elements. A *layout* says which ranks hold row
 * (sample, position), and at which local row. A *plan* is what one rank sends, receives and keeps.
 * Under it, every row that a rank needs under the dst layout arrives exactly once, from one owner
 * under the src layout.
 *
 * Forward is plan(src -> dst). Backward is plan(dst -> src), the same function with its arguments
 * swapped: each src copy needs its own gradient.
 *
 * docs/concepts.md has an example with numbers, under "Things that are some rows".
 */
#ifndef MIMO_PLAN_H
#define MIMO_PLAN_H

#include <stdio.h>

#include <mimo/grid.h>
#include <mimo/partition.h>

MIMO_BEGIN_DECLS

/* ----------------------------------------- layouts ------------------------------------------ */

typedef struct mimo_layout mimo_layout;

/**
 * Rows that one rank holds: samples [b0, b0+nb) x positions [s0, s0+ns). Row (b, s) lies at local
 * row
 *
 *   row0 + (b - b0) * row_b + (s - s0) * row_s
 */
typedef struct mimo_box {
    int64_t b0, nb;
    int64_t s0, ns;
    int64_t row0, row_b, row_s;
} mimo_box;

/** The order of a tile's rows in memory. */
typedef enum mimo_row_order {
    MIMO_ROWS_SBH = 0, /* [S, B, H]: row_b = 1, row_s = local B */
    MIMO_ROWS_BSH = 1, /* [B, S, H], and flat sample-major [B*S, H]: row_b = local S, row_s = 1 */
} mimo_row_order;

/** What it means that several ranks hold the same rows: ranks along cp where no partition cuts S,
 *  and ranks along pp where every stage holds rows. */
typedef enum mimo_copies {
    MIMO_COPIES_EQUAL = 0,   /* replicas: any of them may send */
    MIMO_COPIES_PARTIAL = 1, /* contributions: a reader needs their sum, added by ascending rank */
} mimo_copies;

/** Rows of one modality in one sample: rows [row, row + length) of the modality stand at positions
 *  [position, position + length) of the sample's sequence. */
typedef struct mimo_span {
    int64_t sample, row, position, length;
} mimo_span;

/** Rows [row, row + rows) of a modality in one sample: an image, say. They lie in one tile, one
 *  after the other. */
typedef struct mimo_item {
    int64_t sample, row, rows;
} mimo_item;

/** Which rows a layout has. In a ragged layout they are those of one modality, and each sample has
 *  its own number of them. */
typedef enum mimo_ragged {
    MIMO_RAGGED_NOT = 0,    /* every position of every sample is a row */
    MIMO_RAGGED_PACKED = 1, /* only rows of spans, one after the other, sample-major */
    MIMO_RAGGED_PLACED = 2, /* only rows of spans, at their positions in a tile of S positions */
    MIMO_RAGGED_ITEMS = 3, /* experimental: only rows of items, on any dp coordinate: each one lists
                               its items, which lie in its tile one after the other */
} mimo_ragged;

typedef struct mimo_layout_desc {
    size_t size;           /* set by the initializer */
    const mimo_grid *grid; /* borrowed; must outlive the layout */
    mimo_row_order order;
    int64_t batch;                        /* global B; split along dp, see samples */
    int64_t seq;                          /* global S; thd: T */
    const mimo_partition_rule *partition; /* how cp (and tp under sp) cut S; NULL: not at all */
    mimo_copies cp_copies;                /* of cp ranks where nothing cuts S, and of stages */
    const int64_t *samples; /* samples[dp] of each dp coordinate, B in all; copied. NULL: evenly,
                               the first B mod dp coordinates hold one more */
    bool all_stages;        /* every pp stage holds rows, not only the first */
    mimo_ragged ragged;
    const mimo_span *spans; /* ragged: spans[span_count] of all samples, by sample; copied */
    int64_t span_count;
    /* Experimental (<mimo/status.h>). Ragged items: dp coordinate d has items[first_item[d]] to
     * items[first_item[d + 1] - 1], in the order of its tile; first_item[dp + 1]. Copied. */
    const mimo_item *items;
    const int64_t *first_item;
} mimo_layout_desc;

/* clang-format off */
#define MIMO_LAYOUT_DESC_INIT                                                                     \
    {                                                                                             \
        sizeof(mimo_layout_desc), NULL, MIMO_ROWS_SBH, 0, 0, NULL, MIMO_COPIES_EQUAL, NULL,       \
        false, MIMO_RAGGED_NOT, NULL, 0, NULL, NULL                                               \
    }
/* clang-format on */

MIMO_API void mimo_layout_desc_init(mimo_layout_desc *out, size_t size);

/**
 * Create a layout. The caller owns *out. Local.
 *
 * dp splits the batch. With a partition, cp (and tp under sp) cut the sequence. Ranks along tp,
 * along cp without a partition, and along dimensions of which the grid says so hold copies. Ranks
 * with pp > 0 hold nothing, unless all_stages is set. Under a thd partition each sample is a pack
 * of T positions. In a ragged layout, row (sample, s) is row s of the modality in that sample:
 * boxes and blocks then count rows of the modality in place of positions. A ragged layout takes
 * memory for each sample of the batch. A layout of items splits no batch: a dp coordinate has the
 * items that it lists, of any samples. Each row of each sample is in exactly one of all items.
 *
 * Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_GRID (a dimension larger than 1 is none of tp, cp, pp and dp,
 * and the grid does not say that it means copies), MIMO_ERR_SHAPE (S does not divide as the
 * partition asks or is not T, samples are negative or not B in all, spans are out of order, overlap
 * or leave the sequence, a row is in two items or in none), MIMO_ERR_UNSUPPORTED (ragged: packed or
 * items under a partition, placed under a thd one), MIMO_ERR_OVERFLOW.
 */
MIMO_API mimo_status mimo_layout_create(mimo_layout **out, const mimo_layout_desc *desc);

/** Release. NULL is fine. */
MIMO_API void mimo_layout_destroy(mimo_layout *layout);

/** The boxes of `rank`, in ascending local row (ragged: by sample and row), into boxes[capacity].
 *  *count is the number of all its boxes; call with capacity 0 to learn it. A rank outside the
 *  grid has none. Thread-safe. */
MIMO_API mimo_status mimo_layout_boxes(int64_t *count, mimo_box *boxes, int64_t capacity,
                                       const mimo_layout *layout, int64_t rank);

/** Number of local rows of `rank`. Thread-safe. */
MIMO_API mimo_status mimo_layout_rows(int64_t *rows, const mimo_layout *layout, int64_t rank);

/* ------------------------------------------ plans ------------------------------------------- */

typedef struct mimo_plan mimo_plan;

/**
 * One block: nb x ns rows that move from one rank to another, in two loops with a stride on either
 * side. Row (i, j), i < nb, j < ns, goes
 *
 *   from  src_row + i*src_b + j*src_s  on the sender
 *   to    dst_row + i*dst_b + j*dst_s  on the receiver
 *
 * b0 and s0 say which global rows these are.
 */
typedef struct mimo_block {
    int64_t peer; /* recv: who sends; send: who receives; local: this rank */
    union {
        int64_t contribution; /* contribution class; 0 where src copies are equal */
        int64_t klass MIMO_DEPRECATED("contribution"); /* its name until 0.2 */
    };
    int64_t b0, nb;
    int64_t s0, ns;
    int64_t src_row, src_b, src_s;
    int64_t dst_row, dst_b, dst_s;
} mimo_block;

typedef enum mimo_block_kind {
    MIMO_RECV = 0,
    MIMO_SEND = 1,
    MIMO_LOCAL = 2,
} mimo_block_kind;

/**
 * The plan of one rank for moving rows from layout `src` to layout `dst`. Cost and memory grow with
 * the rank's own peers, not with the grids. The caller owns *out. The layouts are only read during
 * the call. Local, thread-safe.
 *
 * The owner of a needed row is the rank itself where it holds the row. Otherwise it is one of the
 * equal copies, by a closed rule that spreads the readers over the copies. Where src copies are
 * partial, each class has one owner.
 *
 * Blocks are sorted by (peer, class, b0, s0). So the i-th block that a rank sends to a peer is the
 * i-th block that the peer receives from it.
 *
 * Errors: MIMO_ERR_SHAPE (the layouts differ in batch or seq, one alone is ragged, or a sample has
 * different numbers of rows in them), MIMO_ERR_MEMORY, MIMO_ERR_ARGUMENT (rank < 0). A rank that
 * holds rows in neither layout has an empty plan.
 */
MIMO_API mimo_status mimo_plan_create(mimo_plan **out, const mimo_layout *src,
                                      const mimo_layout *dst, int64_t rank);

/** Release. NULL is fine. */
MIMO_API void mimo_plan_destroy(mimo_plan *plan);

/** The blocks of a kind, and their number in *count. A kind that does not exist has none. Owned by
 *  the plan. Thread-safe. */
MIMO_API const mimo_block *mimo_plan_blocks(int64_t *count, const mimo_plan *plan,
                                            mimo_block_kind kind);

/** Rows in all blocks of a kind. Thread-safe. */
MIMO_API int64_t mimo_plan_rows(const mimo_plan *plan, mimo_block_kind kind);

/** Number of contribution classes (1 where src copies are equal). Thread-safe. */
MIMO_API int64_t mimo_plan_classes(const mimo_plan *plan);

/**
 * Prove all ranks' plans of a pair of layouts:
 *   - every row that a rank needs is written exactly once per class, from a rank that holds it;
 *   - nothing else is written;
 *   - sends match receives in order and size;
 *   - no rank receives a row that it holds.
 *
 * Builds the plans of all ranks from the first to the last of the two grids, those between them
 * included, and holds them at once: for tests and tools. MIMO_ERR_INTERNAL names the first rank and
 * row that break a rule. Other errors: MIMO_ERR_ARGUMENT (NULL), and those of mimo_plan_create.
 */
MIMO_API mimo_status mimo_plan_check(const mimo_layout *src, const mimo_layout *dst);

/** Write the blocks to a stream, one on each line, in a form that is stable enough to be stored as
 *  golden text. MIMO_ERR_IO where it fails. */
MIMO_API mimo_status mimo_plan_print(FILE *stream, const mimo_plan *plan);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/** The lines of mimo_plan_print as text: at most capacity - 1 characters into `text` (always
 *  terminated; NULL where capacity is 0), and the length of the whole into *length (may be NULL).
 *  MIMO_ERR_ARGUMENT: capacity < 0. */
MIMO_API mimo_status mimo_plan_text(int64_t *length, char *text, int64_t capacity,
                                    const mimo_plan *plan);

/**
 * The spans of a modality: where its special id stands in token ids [B, S] ("bs", i32 or i64, host
 * memory), by sample and position, into spans[capacity]. *count is the number of all; call with
 * capacity 0 to learn it. Samples count from 0. Local, pure. MIMO_ERR_ARGUMENT: NULL, other ids, a
 * negative number.
 */
MIMO_API mimo_status mimo_spans_find(int64_t *count, mimo_span *spans, int64_t capacity,
                                     const mimo_tensor *ids, int64_t special);

/** Spans of one sample at positions of a pack. Arrays are borrowed during the call. */
typedef struct mimo_packed_spans {
    const mimo_span *spans; /* spans[span_count], by position and row */
    int64_t span_count;
    const int32_t
        *cu; /* cu[sequences + 1], cumulative lengths of the pack, padded; the last is T */
    int64_t sequences;
} mimo_packed_spans;

/**
 * Spans at positions of a pack, whose sequences a partition cuts one by one (thd), as spans at
 * positions of one sequence that is cut as a whole (sbhd) over `cp` ranks: under either, each rank
 * has the same rows at the same local places. (sp cuts the rows of either alike.) So packs of one
 * length T whose sequences differ from sample to sample move in a ragged batch over a bridge with
 * an sbhd partition.
 *
 * Writes them into out[capacity], by row and not by position, and their number into *count: call
 * with capacity 0 to learn it. Local, pure. Errors: MIMO_ERR_ARGUMENT (NULL, a negative number,
 * cp < 1), MIMO_ERR_SHAPE (lengths that decrease or that 2 cp does not divide; spans out of order
 * or outside the pack).
 */
MIMO_API mimo_status mimo_spans_pack(int64_t *count, mimo_span *out, int64_t capacity,
                                     const mimo_packed_spans *pack, int64_t cp);

/* ------------------------------------------ images ------------------------------------------ */

/** What a lane (a dp coordinate) has loaded of a batch. An image has `patches` in an encoder's
 *  input, and patches / merge rows in its output. Images stand in the order of their samples, in a
 *  sample in the order of its rows. Arrays are borrowed during the call. */
typedef struct mimo_lane_images {
    int64_t samples, seq;   /* of this lane, and positions of a sample */
    const int64_t *patches; /* patches[images], at least 1, of each image */
    int64_t images;
    const mimo_span *spans; /* spans[span_count]: where rows go, by sample. Samples count from the
                               lane's first one. Their rows are not read */
    int64_t span_count;
} mimo_lane_images;

/** The images of all lanes, lane after lane. Arrays are the caller's. */
typedef struct mimo_image_lists {
    mimo_item *rows;    /* of each image: its rows in its sample */
    mimo_item *patches; /* and its patches, which count within their sample as well */
    mimo_span *spans;   /* of all lanes, with their rows; samples count within the batch */
} mimo_image_lists;

/**
 * Find the sample and the rows of each image: it takes the sample's next patches / merge rows.
 * Local, pure. The arrays of `out` have as many elements as all lanes have images and spans.
 *
 * A span is a run of special ids, with other ids on both sides of it. Several images may lie in one
 * run. any_runs: an image may go on in the next run, as where other ids stand between its rows.
 * Without it that is MIMO_ERR_SHAPE: images of 3 and 5 rows do not fit runs of 5 and 3.
 *
 * Errors: MIMO_ERR_ARGUMENT (NULL, a negative number, merge < 1), MIMO_ERR_SHAPE (lanes don't split
 * the samples evenly, the first ones with one more; samples of two lengths; spans out of order; an
 * image of no patches or of no multiple of merge; a sample's spans have other rows than its
 * images; an image in two runs), MIMO_ERR_OVERFLOW. After an error the arrays hold no meaning.
 */
MIMO_API mimo_status mimo_images_find(const mimo_image_lists *out, const mimo_lane_images *lanes,
                                      int64_t count, int64_t merge, bool any_runs);

/**
 * List items by lane: item i is on lane[i]. Lane d gets out[first[d]] to out[first[d + 1] - 1], in
 * the order of items[count]; first[lanes + 1]. So mimo_batch_items takes them. Local, pure.
 * MIMO_ERR_ARGUMENT: NULL, a negative number, a lane that does not exist.
 */
MIMO_API mimo_status mimo_items_deal(mimo_item *out, int64_t *first, const mimo_item *items,
                                     const int64_t *lane, int64_t count, int64_t lanes);

#endif

MIMO_END_DECLS

#endif
