/*
 * The bridge: encoder activations forward into the LLM's layout, gradients backward.
 *
 * The encoder (src) and the LLM (dst) live on the same ranks under different grids. The source
 * tensor is the same on all src tp ranks (MIMO_CHECK=replicas verifies it); the bridge never
 * gathers or sums along tp, and never divides.
 *
 *   src tile  [S, b, H], b = B / src dp: the rank's encoder output
 *   dst tile  without a partition [S, B / dst dp, H], full sequences: backward takes each cp rank's
 *             gradient (mimo_partition_adjoint makes it, zero-padded) and adds them;
 *             with one [rows, B / dst dp, H], already this rank's shard (cp, then sp): backward
 *             takes the shard's gradient
 *
 * Under a thd partition (routed alone) a sample is a packed row: S is T, the last of the cumulative
 * lengths (of cu_padded, where there is one), and b and B count packed rows, all cut at the same
 * lengths. One packed row on every dst dp rank is B = dst dp.
 *
 * Tiles may be "sbh" or "bsh" on either side, or flat and sample-major, "bh" or "th" [N, H], N =
 * b*S. A flat tile does not tell S:
 *
 *   routed      S is the call's: the first sbh or bsh tile of any of its tensors tells it, or a
 *               packing does. Where all tiles of a call are flat and nothing is packed, rows move
 *               as samples do and S is not needed; a partition needs it.
 *   collective  S is each tensor's own, and told by its other tile; without one, rows move as
 *               samples do. With a partition a dst tile can't be flat.
 *
 * (SEMANTICS: "Bridge".)
 *
 * Two executors move the rows:
 *
 *   collective  gathers, slices and sums whole batches: the seed algorithm. The grids keep the
 *               rules of mimo_pairing_of and span the communicator; batches divide; the tensors of
 *               a call may differ in everything.
 *   routed      moves each row that a rank consumes once, from one rank that holds it, all tensors
 *               of a call at once. They have the same samples and positions; letters, H and dtype
 *               are each one's own (labels and position ids are tiles of H = 1). Any two grids
 *               inside the communicator will do, equal, overlapping or apart, in any order of
 *               dimensions, with cp on either side; this is the executor of a bridge that names
 *               none:
 *                 - a rank that holds no rows of a side (outside its grid, pp > 0, no samples)
 *                   passes an empty view there: data NULL, 0 samples, the rest as on other ranks;
 *                 - samples are dealt out along dp in order. Evenly is best (mimo_bridge_samples:
 *                   the first B mod dp ranks take one more). Where the caller told the batch
 *                   (mimo_bridge_desc.batch, mimo_bridge_update), it is cut so. Otherwise no rank
 *                   can see from its own tiles how the batch is cut ([7,3] over dp=2 looks even
 *                   from either rank), so the ranks agree at the beginning of each call, on devices
 *                   too, and learn any other cut from the tiles of all;
 *                 - where several ranks give gradient for one row (dst cp without a partition,
 *                   all_stages), their parts are added by ascending rank, f16 and bf16 in f32 and
 *                   rounded once. Ranks along other dimensions (tp) have equal parts, and one of
 *                   them counts.
 *
 * Both give the same bits where both apply and each element has one contribution that is not zero
 * (only -0 may become +0, and a signalling NaN a quiet one).
 */
#ifndef MIMO_BRIDGE_H
#define MIMO_BRIDGE_H

#include <mimo/buffer.h>
#include <mimo/pairing.h>
#include <mimo/partition.h>
#include <mimo/plan.h>

MIMO_BEGIN_DECLS

typedef struct mimo_bridge mimo_bridge;
typedef struct mimo_op mimo_op;

typedef enum mimo_executor {
    MIMO_EXECUTOR_AUTO = 0,       /* routed; mimo_bridge_create_fastest measures instead */
    MIMO_EXECUTOR_COLLECTIVE = 1, /* all-gather or narrow; all_reduce over cp */
    MIMO_EXECUTOR_ROUTED = 2,     /* each consumed row moves once: straight into destinations that
                                     lie in a mimo_buffer, else as p2p */
    MIMO_EXECUTOR_P2P = 3,        /* routed: at most one message to each peer a call */
    MIMO_EXECUTOR_ZERO_COPY = 4,  /* routed: destinations that are in no buffer are an error */
} mimo_executor;

typedef struct mimo_bridge_desc {
    size_t size;          /* set by the initializer */
    const mimo_grid *src; /* borrowed, as is dst (mimo_grid_destroy); need not be connected */
    const mimo_grid *dst;
    const mimo_partition_rule *partition; /* copied; NULL: the dst tile holds full sequences */
    mimo_executor executor;
    /* Routed alone: the src tile is a shard too (copied); and all pp stages of dst consume, not
     * only pp = 0, so that backward adds their gradients. */
    const mimo_partition_rule *src_partition;
    bool all_stages;
    /* Destinations in a buffer: no rank begins a call before all ranks have done with what it is to
     * write (two destinations in turn, and something between the calls that all ranks wait for: a
     * rank that only sends waits for nobody here), so senders need not ask. Nor can they find that
     * ranks call differently, where no agreement does: see <mimo/buffer.h>. */
    bool destinations_idle;
    /* Thread blocks that writing into buffers may take (1: another one copies rows that stay); 0:
     * MIMO_CTAS. */
    int ctas;
    mimo_executor backward_executor; /* of backward alone; AUTO: `executor` serves both ways */
    int64_t batch; /* B of the calls to come, as mimo_bridge_update tells it; -1: not known yet */
    /* What sentences call the bridge, "images" (copied; long ones are cut there), the same on all
     * ranks and another one for each bridge; NULL: its number among the bridges made from the
     * communicator, from 1. */
    const char *name;
} mimo_bridge_desc;

#define MIMO_BRIDGE_DESC_INIT                                                                  \
    {                                                                                          \
        sizeof(mimo_bridge_desc), NULL, NULL, NULL, MIMO_EXECUTOR_AUTO, NULL, false, false, 0, \
            MIMO_EXECUTOR_AUTO, -1, NULL                                                       \
    }

/**
 * Create a bridge. Collective over `comm` (rank r of it is rank r of both grids), blocking. The
 * communicator is borrowed (mimo_comm_destroy); the bridge splits its own groups from it, so its
 * messages never meet others'. The caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_MISMATCH (descriptors, names and the lengths of a thd
 * partition included, or MIMO_AGREE or MIMO_CHECK differ between ranks; the first rank that differs
 * from rank 0 is named), MIMO_ERR_GRID (collective: the rules of
 * mimo_pairing_of, or the span is not the communicator; routed: a grid is not inside it),
 * MIMO_ERR_UNSUPPORTED (collective: a thd partition, one of src), MIMO_ERR_SHAPE (the lengths of a
 * thd partition), MIMO_ERR_ARGUMENT (also an empty name, MIMO_CTAS and MIMO_CHECK), MIMO_ERR_COMM,
 * MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_bridge_create(mimo_bridge **out, mimo_comm *comm,
                                        const mimo_bridge_desc *desc);

/** What a bridge is going to move. */
typedef struct mimo_bridge_sizes {
    size_t size;        /* set by the initializer */
    int64_t batch, seq; /* global B and S; S of full sequences */
    int64_t hidden;
    mimo_dtype dtype;
    bool in_buffer;                        /* destinations are going to lie in a mimo_buffer */
    const char *src_letters, *dst_letters; /* of the tiles, "sbh" or "bsh"; NULL: "sbh" */
    bool any_batch; /* calls need what routed alone takes: updates, uneven or ragged batches */
} mimo_bridge_sizes;

#define MIMO_BRIDGE_SIZES_INIT                                                  \
    {                                                                           \
        sizeof(mimo_bridge_sizes), 0, 0, 0, MIMO_BF16, false, NULL, NULL, false \
    }

/**
 * Create a bridge with the executors that are fastest for these sizes, forward and backward each by
 * itself: the candidates (routed, which writes into buffers where `in_buffer`; then p2p beside it;
 * collective where its rules hold) move tiles of that size in fifteen interleaved repeats, of
 * one call each way on the host and of twenty on devices. The slowest rank's times count, so that
 * all ranks choose alike; what replaces routed has been faster in ten repeats, and in its fastest
 * by 3%. Takes memory for the tiles while it lasts. Collective, blocking. What was chosen is for
 * mimo_bridge_executor to tell: a descriptor that pins it moves the same way again, unmeasured.
 *
 * What the bridge accepts does not depend on who was faster. Where collective was a candidate,
 * calls keep the rules of both executors: any batch that the dp sizes of both sides divide, tensors
 * of the same samples and positions, no mimo_bridge_update. Say `any_batch` where calls need more:
 * collective is no candidate then. (It is none either where its rules do not hold for the grids, or
 * dp does not divide the batch of the sizes.)
 *
 * Errors: those of mimo_bridge_create; MIMO_ERR_ARGUMENT (a size that is not positive, letters of
 * another tile, an executor that is pinned, a descriptor that tells another batch than the sizes),
 * MIMO_ERR_MISMATCH (sizes differ between ranks), MIMO_ERR_SHAPE (sizes that the bridge can't cut),
 * MIMO_ERR_OVERFLOW, and those of a forward and a backward.
 */
MIMO_API mimo_status mimo_bridge_create_fastest(mimo_bridge **out, mimo_comm *comm,
                                                const mimo_bridge_desc *desc,
                                                const mimo_bridge_sizes *sizes);

/**
 * Release. Collective in effect. NULL is fine.
 *
 * Where operations were begun and not waited for, they go on, and their handles stay valid: the
 * last mimo_op_wait releases the bridge in place of this call, which leaves a sentence in
 * mimo_last_error(). Nothing else may be called on the bridge then. One that is never waited for is
 * never released.
 */
MIMO_API void mimo_bridge_destroy(mimo_bridge *bridge);

/** What an update tells of the calls that follow it. */
typedef struct mimo_batch_desc {
    size_t size;   /* set by the initializer */
    int64_t batch; /* B, cut evenly along either side's dp; -1: to be found out from the tiles; a
                      ragged batch has to say it */
    bool ragged;   /* each sample has its own number of src rows, at positions that spans tell */
    const mimo_span *spans; /* ragged: spans[span_count], read during the call */
    int64_t span_count;
} mimo_batch_desc;

#define MIMO_BATCH_DESC_INIT                        \
    {                                               \
        sizeof(mimo_batch_desc), -1, false, NULL, 0 \
    }

/**
 * Tell a routed bridge what the calls that follow move; NULL: as its descriptor told.
 * Collective over the communicator, blocking the host; no operation of the bridge may be in flight
 * (begun, and not waited for). A graph that captured calls of the bridge must not be replayed
 * afterwards.
 *
 * A batch alone: calls need not find out how it is cut. So on devices they only enqueue, where
 * calls of an unknown batch make the host wait for an agreement first, and are MIMO_ERR_STATE while
 * a graph is captured. With MIMO_AGREE=0 calls of an unknown batch are MIMO_ERR_STATE everywhere.
 * Rows of flat tiles are cut as they are where all tiles of a call are flat and no packing tells S:
 * no batch describes that, so such calls agree first, told or not.
 *
 * Ragged: the src tile is flat, "th" or "bh" [rows, H]: the rows of one modality (image tokens,
 * say) of this rank's samples, sample after sample; the dst tile is "sbh" or "bsh" as ever. Row r
 * of a sample goes to the position that the sample's spans give it; they tell of rows 0, 1, ... in
 * order of ascending positions. Forward writes these positions and leaves the others alone (they
 * are text, or another bridge's); backward reads these alone. A rank tells the spans of samples
 * that it knows, those of one sample together; somebody must tell of each sample that has rows, and
 * whoever tells of the same sample tells the same. (The ids of a sample tell its spans: they are
 * where the modality's special id stands.)
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (also a ragged batch that is left at the
 * initializer's -1, and spans of one that is not ragged), MIMO_ERR_STATE (an operation in flight),
 * MIMO_ERR_UNSUPPORTED (a direction is collective, or may have been; ragged with a src or thd
 * partition), MIMO_ERR_SHAPE (no such sample), MIMO_ERR_MISMATCH, MIMO_ERR_MEMORY, MIMO_ERR_COMM.
 * The last update stays in force then.
 * Spans that are out of order, overlap or leave the sequence are a MIMO_ERR_SHAPE of the calls that
 * follow, which know S.
 */
MIMO_API mimo_status mimo_bridge_update(mimo_bridge *bridge, const mimo_batch_desc *desc);

/**
 * Move n tensors that share the layout from src tile to dst tile: to[i] from from[i]. Collective
 * over the communicator; done on return on the host, enqueued with a stream. Each pair has one
 * dtype; no tensor of `to` may overlap another of the call. `from` is only read. Forward without
 * backward, and forward twice, are normal uses.
 *
 * Errors, the same on every rank, before any data moves: MIMO_ERR_SHAPE (prints the view and what
 * the bridge needs), MIMO_ERR_OVERFLOW (a size does not fit 64 bits), MIMO_ERR_ARGUMENT,
 * MIMO_ERR_MISMATCH (ranks call different things; the first tensor that differs is named),
 * MIMO_ERR_STATE (nobody told the batch, and ranks may not agree on it: see mimo_bridge_update),
 * MIMO_ERR_UNSUPPORTED, MIMO_ERR_MEMORY; then MIMO_ERR_COMM, MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED,
 * after which `to` is unspecified. After the others it is untouched. With MIMO_CHECK=samples also
 * MIMO_ERR_INTERNAL, after data has moved: the first row that came from another place than it
 * should have, with both places.
 */
MIMO_API mimo_status mimo_bridge_forward(mimo_bridge *bridge, const mimo_tensor *to,
                                         const mimo_tensor *from, int n, mimo_stream stream);

/** The adjoint: to[i], the gradient of the src tile, from from[i], the gradient of the dst tile.
 *  `from` is only read (the sum over cp runs on a copy). Rules and errors as mimo_bridge_forward.
 *  Where gradients are summed (collective: dst cp > 1; routed: several ranks give gradient for one
 *  row) MIMO_F8 is MIMO_ERR_UNSUPPORTED, and a tile of either side whose address is no multiple of
 *  the element size is MIMO_ERR_ARGUMENT. */
MIMO_API mimo_status mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                          const mimo_tensor *from, int n, mimo_stream stream);

/**
 * Begin a forward or backward without waiting. Requests and staging belong to the operation, so
 * several may be in flight on one bridge; they move data in the order in which they were begun. All
 * ranks begin the same operations in the same order; they may wait for them in any order, also
 * across the bridges of one communicator, as whatever waits on that moves all of them (what waits
 * on a communicator that was split from it moves none: there all ranks wait in the same order).
 * Until mimo_op_wait, `to` must not be touched and `from` not be written; the views themselves are
 * copied. Whose they are after MIMO_ERR_TIMEOUT or MIMO_ERR_ABORTED depends on whether a deadline
 * was in force here, where the operation begins ("Deadlines" in <mimo/comm.h>).
 *
 * An error on one rank is reported by mimo_op_wait on every rank. Returned here, on one rank alone,
 * are only a NULL bridge or `out` and MIMO_ERR_MEMORY for a further operation while one that ran
 * out of memory waits for its mimo_op_wait.
 *
 * Open MPI moves data only inside MPI calls: overlap needs calls of mimo_op_test in between.
 */
MIMO_API mimo_status mimo_bridge_forward_start(mimo_op **out, mimo_bridge *bridge,
                                               const mimo_tensor *to, const mimo_tensor *from,
                                               int n, mimo_stream stream);
MIMO_API mimo_status mimo_bridge_backward_start(mimo_op **out, mimo_bridge *bridge,
                                                const mimo_tensor *to, const mimo_tensor *from,
                                                int n, mimo_stream stream);

/** What a call in chunks moves. */
typedef struct mimo_move_desc {
    size_t size;                  /* set by the initializer */
    const mimo_tensor *to, *from; /* to[n] and from[n], as mimo_bridge_forward takes them */
    int n;
    int chunks; /* m > 0, the same on all ranks */
    mimo_stream stream;
} mimo_move_desc;

#define MIMO_MOVE_DESC_INIT                            \
    {                                                  \
        sizeof(mimo_move_desc), NULL, NULL, 0, 1, NULL \
    }

/**
 * Begin a forward or backward whose rows arrive in m chunks, one after the other, so that work on
 * the first samples can begin before the last ones are here. Chunk i of a rank whose `to` has b
 * samples are all rows of its samples [i*b/m, (i+1)*b/m), rounded down: in forward the LLM's, in
 * backward the encoder's, whatever the other side's tiles look like. b may differ between ranks,
 * and chunks may be empty. (Where all tiles are flat, and S is not known, rows are cut so; a
 * ragged src tile is cut by its samples.)
 *
 * The results have the same bits as those of one call, and rules and errors are those of
 * mimo_bridge_forward_start; also MIMO_ERR_ARGUMENT (m < 1) and MIMO_ERR_MISMATCH (m differs). Each
 * chunk is an exchange of its own, with its own messages or flags. The collective executor moves
 * everything as one chunk: whoever waits for any of them waits for all.
 */
MIMO_API mimo_status mimo_bridge_forward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                       const mimo_move_desc *desc);
MIMO_API mimo_status mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                        const mimo_move_desc *desc);

/**
 * Wait for a chunk (0 <= chunk < m) of an operation that was begun in chunks. Its rows of `to` are
 * then the caller's again; the others, and `from`, stay the operation's until mimo_op_wait. Local:
 * each rank waits for what it needs, in any order, as often as it likes.
 *
 * On the host it blocks, and moves operations on as mimo_op_wait does; `stream` is NULL. On a
 * device it returns at once, and what is enqueued on `stream` from then on waits for the chunk:
 * another stream than the operation's, where later chunks move on meanwhile. In a graph, waiting
 * for chunk m - 1 joins the operation's stream to `stream`.
 *
 * Returns the operation's error where it has failed. MIMO_ERR_ARGUMENT: no such chunk.
 * MIMO_ERR_STATE: the operation was not begun in chunks. mimo_op_wait is due in any case.
 */
MIMO_API mimo_status mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream);

/** Move the bridge's operations on, without blocking; *done says whether this one has ended (well
 * or not). Returns MIMO_OK while nothing failed, else the operation's error. */
MIMO_API mimo_status mimo_op_test(mimo_op *op, bool *done);

/** Wait for the end, release the operation and null the handle; with the last operation of a bridge
 * that was destroyed meanwhile, the bridge too. Returns the operation's status. A handle that is
 * NULL already gives MIMO_OK. */
MIMO_API mimo_status mimo_op_wait(mimo_op **op);

/**
 * Test the bridge on its own grids and backend: a small batch of whole numbers, keyed by `seed`,
 * goes forward and another one backward, each as two tensors of unequal width in one call. Every
 * row that a rank received is compared with what the layouts say in closed form, copies included;
 * then over all ranks <Px, y> = <x, P'y> must hold exactly, and every global row be counted once.
 * Two moves of a few kilobytes and a few exchanges of words: cheap enough for every start.
 * Collective over the communicator, blocking; no operation may be in flight (those that are come to
 * their end, and are still to be waited for). The caller's tensors are not touched.
 *
 * Errors, the same on every rank: MIMO_ERR_INTERNAL (the first rank, row, element and tensor that
 * are wrong, with both numbers), MIMO_ERR_MISMATCH (seeds differ), MIMO_ERR_STATE (some rank has
 * begun an operation and not waited for it), the errors of the two moves (MIMO_ERR_SHAPE while a
 * ragged update is in force), MIMO_ERR_MEMORY, MIMO_ERR_COMM;
 * MIMO_ERR_ARGUMENT, on that rank alone, where bridge is NULL.
 */
MIMO_API mimo_status mimo_bridge_self_test(mimo_bridge *bridge, uint64_t seed);

/* ---------------------------------------- accessors ----------------------------------------- */
/* Local. The group lists of any rank are in <mimo/pairing.h>. */

/** The executor of a direction; never MIMO_EXECUTOR_AUTO. */
MIMO_API mimo_executor mimo_bridge_executor(const mimo_bridge *bridge, bool backward);

/** Direction, scale and groups of the bridge; scale 0 where the grids do not pair (routed). */
MIMO_API mimo_pairing mimo_bridge_pairing(const mimo_bridge *bridge);

/** This rank's gather group in slot order, into ranks[pairing.group_size], and its slot; nothing
 * and slot 0 where EQUAL. MIMO_ERR_GRID where the grids do not pair, or do not hold the rank. */
MIMO_API mimo_status mimo_bridge_gather_group(const mimo_bridge *bridge, int64_t *ranks,
                                              int64_t *slot);

/** This rank's slice [*start, *start + *length) of a gathered batch of `batch` samples: the rows
 * that it keeps where the bridge narrows, and the place of its own where it gathers. MIMO_ERR_SHAPE
 * where the scale does not divide the batch; MIMO_ERR_GRID as mimo_bridge_gather_group. */
MIMO_API mimo_status mimo_bridge_slice(const mimo_bridge *bridge, int64_t batch, int64_t *start,
                                       int64_t *length);

/** The samples of a global batch that this rank loads as encoder (MIMO_SRC) or holds as LLM
 *  (MIMO_DST). Where a direction is collective, or may have been (mimo_bridge_create_fastest):
 *  MIMO_ERR_SHAPE where the side's dp does not divide the batch. Routed deals uneven batches out,
 *  and gives 0 samples to a rank that holds none. */
MIMO_API mimo_status mimo_bridge_samples(const mimo_bridge *bridge, mimo_side side, int64_t batch,
                                         int64_t *first, int64_t *count);

MIMO_END_DECLS

#endif
