/*
 * The bridge: encoder activations forward into the LLM's layout, gradients backward.
 *
 *     mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
 *     desc.src = encoder;                                 a grid, say "tp=2,dp=4"
 *     desc.dst = llm;                                     "tp=2,cp=2,dp=2" over the same ranks
 *     desc.partition = &zigzag;                           how cp cuts sequences; NULL: not at all
 *     mimo_bridge_create(&bridge, comm, &desc);
 *     mimo_bridge_forward(bridge, &dst_tile, &src_tile, 1, NULL);
 *     mimo_bridge_backward(bridge, &d_src_tile, &d_dst_tile, 1, NULL);
 *     mimo_bridge_destroy(bridge);
 *
 * All ranks make these calls, in the same order, also a rank without rows. Each passes its own
 * tiles: parts of B samples of S tokens, in rows of H elements (<mimo/tensor.h>). mimo_bridge_tile
 * says which shapes they have on this rank:
 *
 *   src tile  [S, b, H], b = B / src dp: the rank's encoder output.
 *   dst tile  Without a partition [S, B / dst dp, H]: full sequences. Backward takes the gradient
 *             of each cp rank (mimo_partition_adjoint makes it, zero-padded) and adds them.
 *             With a partition [rows, B / dst dp, H]: this rank's shard (cp, then sp). Backward
 *             takes the shard's gradient.
 *
 * The encoder (src) and the LLM (dst) live on the same ranks under different grids. The source
 * tensor is the same on all src ranks that hold copies: along tp, along cp without a src partition,
 * and along dimensions of which the grid says so (MIMO_CHECK=replicas verifies it). The bridge
 * never gathers or sums along tp, and never divides. docs/concepts.md has the rules, under
 * "Bridge".
 *
 *   at the start   mimo_bridge_create, mimo_bridge_create_fastest, mimo_bridge_self_test
 *   before calls   mimo_bridge_update (their batches), mimo_bridge_select, mimo_bridge_tile,
 *                  mimo_bridge_prepare
 *   moves          mimo_bridge_forward, mimo_bridge_backward; begun by _start and ended by
 *                  mimo_op_wait (<mimo/op.h>), to overlap; _start_chunked, to overlap in chunks
 *   questions      mimo_bridge_samples, mimo_bridge_executor, mimo_bridge_pairing
 *
 * Under a thd partition (routed alone) a sample is a pack: sequences of different lengths, one
 * after the other. S is then T, the last of the cumulative lengths (of cu_padded, where it is
 * given). b and B count packs. All packs have the same lengths. Where every dst dp rank has one
 * pack, B = dst dp.
 *
 * Tiles may be "sbh" or "bsh" on either side. They may also be flat and sample-major: "bh" or "th"
 * [N, H], N = b*S. A flat tile does not say what S is.
 *
 *   routed      S belongs to the call. A packing gives it; otherwise the first sbh or bsh tile of
 *               any of the call's tensors does. Where all tiles are flat and nothing is packed,
 *               rows move as samples do, and S is not needed. With a partition S is always needed.
 *   collective  S belongs to each tensor. The tensor's other tile gives it. Where both are flat,
 *               rows move as samples do. With a partition a dst tile cannot be flat.
 */
#ifndef MIMO_BRIDGE_H
#define MIMO_BRIDGE_H

#include <mimo/buffer.h>
#include <mimo/op.h>
#include <mimo/pairing.h>
#include <mimo/partition.h>
#include <mimo/plan.h>
#include <mimo/transport.h>

MIMO_BEGIN_DECLS

typedef struct mimo_bridge mimo_bridge;

/**
 * How rows are found and combined.
 *
 *   collective  gathers, slices and sums whole batches (docs/concepts.md, "The gather-narrow-sum
 *               method"). The grids keep the rules of mimo_pairing_of and span the communicator.
 *               The dp sizes divide the batch. The tensors of a call may differ in everything.
 *   routed      moves each row that a rank consumes once, from one rank that holds it, all tensors
 *               of a call at once. It is the default. The tensors of a call have the same samples
 *               and positions. Letters, H and dtype are each one's own (labels and position ids are
 *               tiles of H = 1). Any two grids inside the communicator will do: equal, overlapping
 *               or apart, in any order of dimensions, with cp on either side.
 *                 - A rank can hold no rows of a side: it is outside that grid, has pp > 0, or has
 *                   no samples. It passes an empty view there: data NULL, 0 samples, the rest as on
 *                   other ranks.
 *                 - Samples go to the dp coordinates in order. An even split is best: the first
 *                   B mod dp coordinates take one sample more (mimo_bridge_samples).
 *                 - A batch that the caller gave (mimo_bridge_desc.batch, mimo_bridge_update) is
 *                   split evenly. A batch that is not given may be split unevenly. No rank sees the
 *                   split from its own tiles: [7,3] over dp=2 looks even to either rank. So the
 *                   ranks agree at the beginning of each such call, on devices as well. Where their
 *                   guesses differ, they gather the sizes of all tiles. Rows of flat tiles can be
 *                   given for each rank instead (mimo_batch_desc.src_rows).
 *                 - Several ranks can give gradient for one row (dst cp without a partition,
 *                   all_stages). Their contributions are added by ascending rank. f16 and bf16 are
 *                   added in f32 and rounded once. Ranks along other dimensions (tp) have equal
 *                   contributions; one of them counts.
 *
 * Where both algorithms apply and each element has at most one contribution that is not zero, both
 * give the same bits. (Only -0 may become +0, and a signalling NaN a quiet one.)
 */
typedef enum mimo_algorithm {
    MIMO_ALGORITHM_AUTO = 0,       /* routed; mimo_bridge_create_fastest measures instead */
    MIMO_ALGORITHM_COLLECTIVE = 1, /* all-gather or narrow; all_reduce over cp */
    MIMO_ALGORITHM_ROUTED = 2,     /* each consumed row moves once */
} mimo_algorithm;

/** What moves a pass, forward or backward. The two fields are all that there will be: it is passed
 *  by value. */
typedef struct mimo_executor {
    mimo_algorithm algorithm;
    mimo_transport transport;
} mimo_executor;

typedef struct mimo_bridge_desc {
    size_t size;          /* set by the initializer */
    const mimo_grid *src; /* borrowed (see mimo_grid_destroy); need not be connected */
    const mimo_grid *dst; /* borrowed as well */
    const mimo_partition_rule *partition; /* copied; NULL: the dst tile holds full sequences */
    mimo_executor executor;
    /* Routed alone: the src tile is a shard under this rule. Copied. */
    const mimo_partition_rule *src_partition;
    /* Routed alone: all pp stages of dst consume, not only pp = 0. Backward adds their
     * contributions. */
    bool all_stages;
    /* Destinations in a buffer: senders do not ask before they write. The caller promises that no
     * rank begins a call before all ranks have done with the destinations of that call. To keep the
     * promise, use two destinations in turn, and let all ranks wait for each other once between two
     * calls. (The call itself is no such wait: a rank that only sends waits for nobody.) Senders
     * then do not notice when ranks call differently: see <mimo/buffer.h>. */
    bool destinations_idle;
    /* Thread blocks that a call may use to write into buffers, or to stage messages. With 1,
     * zero-copy uses a second one where rows stay, and staged where it both sends and receives. 0:
     * MIMO_CTAS. With a limit of either kind a staged call takes them when the first peer has begun
     * the call, and waits for that in one warp: the kernels beside it have the multiprocessors. */
    int ctas;
    mimo_executor backward_executor; /* of backward; where both fields are AUTO, as `executor` */
    int64_t batch; /* B of the calls to come, see mimo_bridge_update; -1: not known yet */
    /* The name of the bridge in sentences ("images"). Copied; a long one is shortened. The same on
     * all ranks, and different for each bridge. NULL: the bridge's number among those made from the
     * communicator, from 1. */
    const char *name;
} mimo_bridge_desc;

#define MIMO_BRIDGE_DESC_INIT                                                                   \
    {                                                                                           \
        sizeof(mimo_bridge_desc), NULL, NULL, NULL, {MIMO_ALGORITHM_AUTO, MIMO_TRANSPORT_AUTO}, \
            NULL, false, false, 0, {MIMO_ALGORITHM_AUTO, MIMO_TRANSPORT_AUTO}, -1, NULL         \
    }

MIMO_API void mimo_bridge_desc_init(mimo_bridge_desc *out, size_t size);

/**
 * Create a bridge. Collective over `comm` (rank r of it is rank r of both grids), blocking. The
 * communicator is borrowed (see mimo_comm_destroy). The bridge splits its own groups from it, so
 * its messages never meet others. The caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_MISMATCH (ranks differ in the descriptor, in its name or
 * thd lengths, in MIMO_AGREE or in MIMO_CHECK; the first rank that differs from rank 0 is named),
 * MIMO_ERR_GRID (a dimension larger than 1 is none of tp, cp, pp and dp, and the grid does not say
 * that it means copies; collective: the rules of mimo_pairing_of, or a grid does not span the whole
 * communicator; routed: a grid is not inside it), MIMO_ERR_UNSUPPORTED (collective: a thd partition
 * or a src partition), MIMO_ERR_SHAPE (the lengths of a thd partition), MIMO_ERR_ARGUMENT (also an
 * empty name, and wrong values of MIMO_CTAS and MIMO_CHECK), MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_bridge_create(mimo_bridge **out, mimo_comm *comm,
                                        const mimo_bridge_desc *desc);

/** What a bridge is going to move. */
typedef struct mimo_bridge_sizes {
    size_t size;        /* set by the initializer */
    int64_t batch, seq; /* global B and S; S of full sequences */
    int64_t hidden;
    mimo_dtype dtype;
    bool in_buffer;                        /* destinations will lie in a mimo_buffer */
    const char *src_letters, *dst_letters; /* of the tiles, "sbh" or "bsh"; NULL: "sbh" */
    bool any_batch; /* calls need what routed alone takes: updates, uneven or ragged batches */
} mimo_bridge_sizes;

#define MIMO_BRIDGE_SIZES_INIT                                                  \
    {                                                                           \
        sizeof(mimo_bridge_sizes), 0, 0, 0, MIMO_BF16, false, NULL, NULL, false \
    }

MIMO_API void mimo_bridge_sizes_init(mimo_bridge_sizes *out, size_t size);

/**
 * Create a bridge with the executors that are fastest for these sizes, forward and backward each by
 * itself. Collective, blocking. Takes memory for the tiles while it lasts.
 *
 * The candidates are collective, where its rules hold, and routed with the transports
 *
 *   AUTO     always: zero-copy where `in_buffer`, otherwise staged or p2p
 *   P2P      where `in_buffer`, and where something can be staged
 *   STAGED   where not `in_buffer`, on devices where ranks share memory
 *
 * They move tiles of these sizes in fifteen interleaved repeats. A repeat is one call each way on
 * the host, and twenty calls on a device. The times of the slowest rank count, so all ranks choose
 * alike. Another candidate replaces AUTO only where it was ahead in at least ten repeats and its
 * best time is more than 3% lower. mimo_bridge_executor says what was chosen. A descriptor that
 * pins the same executors moves the same way without measuring.
 *
 * What the bridge accepts does not depend on which candidate was faster. Where collective was a
 * candidate, calls keep the rules of both algorithms: both dp sizes divide the batch, the tensors
 * of a call have the same samples and positions, and there is no mimo_bridge_update. Set
 * `any_batch` where calls need more: then collective is no candidate. It is no candidate either
 * where its rules do not hold for the grids, or a dp size does not divide the batch of the sizes.
 *
 * Errors: those of mimo_bridge_create; MIMO_ERR_ARGUMENT (a size that is not positive, letters of
 * another tile, an executor that is pinned, a descriptor with another batch than the sizes),
 * MIMO_ERR_MISMATCH (sizes differ between ranks), MIMO_ERR_SHAPE (sizes that the bridge can't cut),
 * MIMO_ERR_OVERFLOW, and those of a forward and a backward.
 */
MIMO_API mimo_status mimo_bridge_create_fastest(mimo_bridge **out, mimo_comm *comm,
                                                const mimo_bridge_desc *desc,
                                                const mimo_bridge_sizes *sizes);

/**
 * Release. Collective in effect. NULL is fine.
 *
 * Operations that were begun and not waited for go on, and their handles stay valid. The last
 * mimo_op_wait then releases the bridge in place of this call. This call leaves a sentence in
 * mimo_last_error(). Nothing else may be called on the bridge. If an operation is never waited for,
 * the bridge is never released.
 */
MIMO_API void mimo_bridge_destroy(mimo_bridge *bridge);

/** Experimental. The items of a ragged batch: of all dp coordinates ("lanes"), the same on every
 *  rank. Where dst_first is NULL and dst_packed is not set, dst tiles have positions, and spans say
 *  where rows go. Arrays are read during the update. */
typedef struct mimo_batch_items {
    size_t size;              /* set by the initializer */
    const mimo_item *src;     /* src lane d has src[src_first[d]] to src[src_first[d + 1] - 1], */
    const int64_t *src_first; /* in the order of its tile; src_first[dp + 1] */
    const mimo_item *dst;     /* the same for dst; dst_first NULL: dst holds no items */
    const int64_t *dst_first;
    bool dst_packed; /* dst tiles hold all rows of their samples */
} mimo_batch_items;

#define MIMO_BATCH_ITEMS_INIT                                   \
    {                                                           \
        sizeof(mimo_batch_items), NULL, NULL, NULL, NULL, false \
    }

/** What an update says about the calls of one micro-batch. */
typedef struct mimo_batch_desc {
    size_t size;   /* set by the initializer */
    int64_t batch; /* B, split evenly along dp on either side. -1: calls find it from their tiles. A
                      ragged batch must give it */
    bool ragged;   /* each sample has its own number of src rows, at the positions of its spans */
    const mimo_span *spans; /* ragged: spans[span_count], read during the call */
    int64_t span_count;
    /* Experimental (<mimo/status.h>). For calls of flat tiles alone: the rows of this rank's src
     * tile and of its dst tile. Every rank gives its own, 0 where it has none. Both -1: not given.
     */
    int64_t src_rows, dst_rows;
    /* Experimental. Of a ragged batch; NULL: src tiles hold the rows of their samples. */
    const mimo_batch_items *items;
} mimo_batch_desc;

#define MIMO_BATCH_DESC_INIT                                      \
    {                                                             \
        sizeof(mimo_batch_desc), -1, false, NULL, 0, -1, -1, NULL \
    }

MIMO_API void mimo_batch_desc_init(mimo_batch_desc *out, size_t size);

/**
 * Give a routed bridge what the next calls move: descs[n], one for each micro-batch. Each element
 * has the size of the first one. Calls move micro-batch 0 until mimo_bridge_select chooses another
 * one. n = 0: back to what its descriptor said, for all calls.
 *
 * Collective over the communicator, blocking the host. The ranks agree and gather once for all n.
 * No operation of the bridge may be in flight (begun, and not waited for). A graph that captured
 * calls of the bridge must not be replayed afterwards. While the update is in force, graphs of all
 * its micro-batches stay valid, and each micro-batch keeps its own prepared calls.
 *
 * Why give the batch: ranks then know how it is split and need not agree on it.
 *   - On a device, calls then only enqueue. A call whose batch was not given makes the host wait
 *     for an agreement first. It is MIMO_ERR_STATE while a graph is captured.
 *   - With MIMO_AGREE=0, such a call is MIMO_ERR_STATE, on the host and on devices.
 *   - Where all tiles of a call are flat and no packing gives S, rows are split over dp, not
 *     samples, and no batch describes that. Such a call needs src_rows and dst_rows instead.
 *
 * Rows (src_rows, dst_rows): every rank gives how many rows it holds on either side. Any split will
 * do, also with ranks that have none: images of unequal size, say.
 *   - Rows are numbered over dp: those of dp coordinate 0 come first, then those of 1. Row i of
 *     all src tiles is row i of all dst tiles.
 *   - Ranks at the same dp coordinate of a side hold the same rows and give the same number. A rank
 *     without a role on a side (outside the grid, or another pp stage) gives 0.
 *   - All ranks give rows, or none does. A call with an sbh or bsh tile uses `batch`.
 *
 * Ragged: each sample has its own number of rows of one modality (image tokens, say).
 *   - The src tile is flat, "th" or "bh" [rows, H]: the rows of this rank's samples, sample after
 *     sample. The dst tile is "sbh" or "bsh" as always.
 *   - Spans say where rows go: row r of a sample goes to the position that the sample's spans give
 *     it. The spans of a sample list its rows 0, 1, ... in order of ascending positions. (The ids
 *     of a sample determine its spans: they are where the modality's special id stands.)
 *   - Forward writes these positions and leaves the others alone; they are text, or another
 *     bridge's. Backward reads these positions alone.
 *   - A rank passes the spans of the samples that it knows, those of one sample together. At least
 *     one rank passes each sample that has rows. Ranks that pass the same sample pass the same
 *     spans.
 *
 * Items (experimental): a src tile holds parts of any samples, such as the images that a balanced
 * encoder has worked on (<mimo/balance.h>).
 *   - Every rank passes all items of all lanes, and all spans. So nothing is gathered: the ranks
 *     compare a hash. Each row of each sample is in one item of a side.
 *   - The src tile is flat, "th" or "bh": the rows of this rank's items, one after the other.
 *   - The dst tile is one of three: "sbh" or "bsh", where spans say where rows go; flat, with the
 *     rows of this rank's dst items; or flat, with all rows of its samples (dst_packed). The last
 *     two take no spans, and a bridge without partition.
 *   - A chunk of a call is an equal part of the items of a lane, where items receive.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (also a ragged batch of -1, spans of a batch
 * that is not ragged, rows of one side alone or of a ragged batch, items of a batch that is not
 * ragged), MIMO_ERR_STATE (an operation in flight), MIMO_ERR_UNSUPPORTED (a pass is collective, or
 * was measured against collective; ragged with a src or thd partition; rows, dst items and packed
 * dst tiles with any partition), MIMO_ERR_SHAPE (no such sample; the rows of both sides have
 * different sums, ranks at one dp coordinate give different rows, or a rank gives rows where it has
 * no role; a row is in two items or in none, a sample has other rows in items than in spans),
 * MIMO_ERR_MISMATCH (also items that differ between ranks), MIMO_ERR_MEMORY, MIMO_ERR_COMM. After
 * an error the last update stays in force. Spans that are out of order, overlap or leave the
 * sequence are MIMO_ERR_SHAPE of the calls that follow, because only these know S.
 */
MIMO_API mimo_status mimo_bridge_update(mimo_bridge *bridge, const mimo_batch_desc *descs, int n);

/**
 * Choose which micro-batch of the last update the next calls move, 0 <= i < n. Without an update,
 * or after one that gave nothing, 0 alone exists.
 *
 * Local, and it does not block: any order, as often as wanted, also while operations are in flight.
 * Each operation keeps the micro-batch that was chosen when it began. All ranks choose alike before
 * a call (otherwise it is MIMO_ERR_MISMATCH, where calls agree). These functions use the chosen
 * micro-batch as well: mimo_bridge_tile, mimo_bridge_staging, mimo_bridge_samples,
 * mimo_bridge_prepare, mimo_bridge_self_test.
 *
 * Errors, on this rank alone: MIMO_ERR_ARGUMENT (no such micro-batch).
 */
MIMO_API mimo_status mimo_bridge_select(mimo_bridge *bridge, int i);

/**
 * The view that a side of a call has on this rank, for one tensor of these sizes: letters, shape,
 * dtype and kind of memory, with data NULL. A forward takes such views as `from` (MIMO_SRC) and
 * `to` (MIMO_DST), a backward the other way round. Local, pure; thread-safe while no thread updates
 * the bridge or selects.
 *
 *   letters  of the sizes; here also "th" and "bh". NULL: "sbh"; of a ragged batch "th" for src,
 *            and for dst where that is flat
 *   batch    of the sizes, split evenly along dp. -1: the one that the bridge was given
 *            (mimo_bridge_desc.batch, mimo_bridge_update). Where both are given they are equal
 *   seq      S of full sequences. 0 takes T of a packing. Not read for src of a ragged batch
 *
 * Where both sides are flat and the ranks gave their rows (mimo_batch_desc.src_rows), these are the
 * rows of the tiles. `batch` is then -1, or batch * seq is the number of rows in all.
 *
 * A flat side has [samples * positions, H] rows; src of a ragged batch has as many as the spans of
 * this rank's samples. A rank without a role on a side gets 0 samples. `in_buffer` and `any_batch`
 * do not matter.
 *
 * Errors, *out untouched, the same for either side (except src of a ragged batch):
 * MIMO_ERR_ARGUMENT (NULL, no such side, unknown letters or dtype, negative sizes, no batch known),
 * MIMO_ERR_SHAPE (sizes that the bridge can't cut, or that contradict what it was given; a flat
 * side of samples without positions, which would not say how many they are), MIMO_ERR_OVERFLOW,
 * MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_bridge_tile(mimo_tensor *out, const mimo_bridge *bridge, mimo_side side,
                                      const mimo_bridge_sizes *sizes);

/**
 * Move n tensors that share the layout from src tile to dst tile: to[i] from from[i]. Collective
 * over the communicator. Done on return on the host; enqueued with a stream. Each pair has one
 * dtype. No tensor of `to` may overlap another one of the call. `from` is only read. Forward
 * without backward, and forward twice, are normal uses.
 *
 * Errors, the same on every rank:
 *   - Before any data moves: MIMO_ERR_SHAPE (prints the view and what the bridge needs),
 *     MIMO_ERR_OVERFLOW (a size does not fit 64 bits), MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH (ranks
 *     call different things; the first tensor that differs is named), MIMO_ERR_STATE (the batch was
 *     not given, and ranks may not agree on it: see mimo_bridge_update), MIMO_ERR_UNSUPPORTED,
 *     MIMO_ERR_MEMORY. `to` is untouched.
 *   - Later: MIMO_ERR_COMM, MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED. `to` is unspecified.
 *   - With MIMO_CHECK=samples also MIMO_ERR_INTERNAL, after data has moved: the first row that came
 *     from another row than it should have, with both rows and their ranks.
 */
MIMO_API mimo_status mimo_bridge_forward(mimo_bridge *bridge, const mimo_tensor *to,
                                         const mimo_tensor *from, int n, mimo_stream stream);

/** The adjoint: to[i], the gradient of the src tile, from from[i], the gradient of the dst tile.
 *  `from` is only read (the sum over cp runs on a copy). Rules and errors as mimo_bridge_forward.
 *
 *  Gradients are summed where dst cp > 1 (collective), or where several ranks give gradient for one
 *  row (routed). There MIMO_F8 is MIMO_ERR_UNSUPPORTED, and a tile of either side whose address is
 *  no multiple of the element size is MIMO_ERR_ARGUMENT. */
MIMO_API mimo_status mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                          const mimo_tensor *from, int n, mimo_stream stream);

/**
 * Begin a forward or backward. Collective over the communicator, without blocking: requests and
 * staging belong to the operation, so several operations may be in flight on one bridge. They move
 * data in the order in which they were begun.
 *
 * All ranks begin the same operations in the same order. They may wait for them in any order, also
 * across bridges of other communicators of the family: a wait moves on all that was begun in the
 * family ("Waits" in <mimo/comm.h> has the exception).
 *
 * Until mimo_op_wait, `to` must not be touched and `from` must not be written. The views themselves
 * are copied. After MIMO_ERR_TIMEOUT or MIMO_ERR_ABORTED, whose the tensors are depends on whether
 * a deadline was in force here, where the operation begins ("Deadlines" in <mimo/comm.h>).
 *
 * mimo_op_wait reports an error of one rank on every rank. Only these are returned here, on one
 * rank alone: a NULL bridge or `out`, and MIMO_ERR_MEMORY for a further operation while one that
 * ran out of memory waits for its mimo_op_wait.
 *
 * Open MPI moves data only inside MPI calls: overlap needs calls of mimo_op_test in between.
 */
MIMO_API mimo_status mimo_bridge_forward_start(mimo_op **out, mimo_bridge *bridge,
                                               const mimo_tensor *to, const mimo_tensor *from,
                                               int n, mimo_stream stream);
MIMO_API mimo_status mimo_bridge_backward_start(mimo_op **out, mimo_bridge *bridge,
                                                const mimo_tensor *to, const mimo_tensor *from,
                                                int n, mimo_stream stream);

/**
 * Begin a forward or backward whose rows arrive in m chunks, one after the other. Work on the first
 * samples can begin before the last ones are here.
 *
 * Chunk i of a rank whose `to` has b samples is all rows of its samples
 *
 *   [i*b/m, (i+1)*b/m), rounded down.
 *
 * In forward these are the LLM's samples, in backward the encoder's, whatever samples the other
 * side's tiles have. b may differ between ranks, and chunks may be empty. Where all tiles are flat
 * and S is not known, b counts rows. Of a ragged src tile, b counts samples.
 *
 * The results have the same bits as those of one call. Rules and errors are those of
 * mimo_bridge_forward_start; also MIMO_ERR_ARGUMENT (m < 1) and MIMO_ERR_MISMATCH (m differs). Each
 * chunk is an exchange of its own, with its own messages or flags. `collective` moves everything
 * as one chunk: a wait for any chunk waits for all.
 */
MIMO_API mimo_status mimo_bridge_forward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                       const mimo_move_desc *desc);
MIMO_API mimo_status mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                        const mimo_move_desc *desc);

/**
 * Make a call ready without moving data: its plan, its staging, its program, and the connections
 * that NCCL makes at the first message between two ranks. The first such call then costs what later
 * ones cost, and can be captured in a graph where none ran before.
 *
 * `move` is what the call will be: n, letters, dtypes, shapes, chunks, stream. The tensors' memory
 * is not touched. A later call matches if each of its tensors is aligned as here (to the same power
 * of two, up to 16 bytes), and if each destination lies in the same mimo_buffer as here, or in none
 * where it is in none here. Offsets may differ. A tensor without elements may be aligned in any
 * way, except a destination in a mimo_buffer: other ranks' destinations lie at its offset. On a
 * device, a call of more than 128 tensors matches at the addresses given here alone. `chunks` is 1
 * for a call that is not in chunks. A call in chunks and a whole one are prepared apart. A call
 * that matches nothing is prepared when it is made.
 *
 * Calls are prepared in any order, also after others were captured. All that was prepared stays
 * ready until the next mimo_bridge_update or the end of the bridge. On a device staging belongs to
 * a stream: prepare for each stream that will have such calls. Staging that a graph uses is kept
 * when a larger call needs more, so the largest call first takes the least memory.
 *
 * Collective over the communicator; the ranks agree even where MIMO_AGREE=0. Blocking: on return
 * the host has waited for `stream`. It counts among the operations of the bridge, so all ranks call
 * it in the same order. Where collective moves the pass, it takes memory for all tensors of the
 * call while it lasts. mimo_bridge_update undoes it.
 *
 * Errors, the same on every rank: those of mimo_bridge_forward_start_chunked and of
 * mimo_bridge_backward; MIMO_ERR_STATE also where `stream` is being captured. On that rank alone:
 * MIMO_ERR_ARGUMENT where bridge is NULL. On a device also MIMO_ERR_MEMORY, MIMO_ERR_DEVICE and
 * MIMO_ERR_COMM, where staging or a connection could not be made on that rank.
 */
MIMO_API mimo_status mimo_bridge_prepare(mimo_bridge *bridge, bool backward,
                                         const mimo_move_desc *move);

/**
 * Test the bridge on its own grids and backend. A small batch of whole numbers, keyed by `seed`,
 * goes forward and another one backward, each as two tensors of unequal width in one call.
 *   1. Every row that a rank received, copies included, is compared with what the layouts say.
 *   2. Over all ranks, <Px, y> = <x, P'y> must hold exactly: backward is the adjoint of forward.
 *   3. Every global row must be counted once.
 *
 * It costs two moves of a few kilobytes and a few exchanges of words: cheap enough for every start.
 * Collective over the communicator, blocking. Wait for all operations first. If one was not waited
 * for, this call runs it to its end and returns MIMO_ERR_STATE; mimo_op_wait is still due. The
 * caller's tensors are not touched.
 *
 * Errors, the same on every rank: MIMO_ERR_INTERNAL (the first rank, row, element and tensor that
 * are wrong, with both numbers), MIMO_ERR_MISMATCH (seeds differ), MIMO_ERR_STATE (some rank has
 * begun an operation and not waited for it), the errors of the two moves (MIMO_ERR_SHAPE while a
 * ragged update is in force), MIMO_ERR_MEMORY, MIMO_ERR_COMM. On that rank alone: MIMO_ERR_ARGUMENT
 * where bridge is NULL.
 */
MIMO_API mimo_status mimo_bridge_self_test(mimo_bridge *bridge, uint64_t seed);

/* ---------------------------------------- accessors ----------------------------------------- */
/* Local. The group lists of any rank are in <mimo/pairing.h>. */

/** The executor of a pass, forward or backward. The algorithm is never AUTO; the transport is AUTO
 *  where each call chooses. */
MIMO_API mimo_executor mimo_bridge_executor(const mimo_bridge *bridge, bool backward);

/** Fan, scale and groups of the bridge into *out (from MIMO_PAIRING_INIT); scale 0 where the grids
 *  do not pair (routed). */
MIMO_API mimo_status mimo_bridge_pairing(mimo_pairing *out, const mimo_bridge *bridge);

/** This rank's gather group in slot order, into ranks[pairing.group_size], and its slot. Where
 * EQUAL, no ranks and slot 0. MIMO_ERR_GRID where the grids do not pair or do not hold the rank.
 * Deprecated since 0.4: mimo_pairing_slot and mimo_pairing_group say it of any rank. */
MIMO_DEPRECATED("mimo_pairing_group")
MIMO_API mimo_status mimo_bridge_gather_group(int64_t *ranks, int64_t *slot,
                                              const mimo_bridge *bridge);

/** This rank's slice [*start, *start + *length) of a gathered batch of `batch` samples. Where the
 * bridge narrows, the rank keeps this slice. Where it gathers, the rank's own samples are this
 * slice. MIMO_ERR_SHAPE where the scale does not divide the batch; MIMO_ERR_GRID as
 * mimo_bridge_gather_group. Deprecated since 0.4: the slice has batch / scale samples
 * (mimo_bridge_pairing) and begins at that many times the slot (mimo_pairing_slot). */
MIMO_DEPRECATED("mimo_pairing_slot")
MIMO_API mimo_status mimo_bridge_slot_samples(int64_t *start, int64_t *length,
                                              const mimo_bridge *bridge, int64_t batch);

/** The samples of a global batch that this rank loads as encoder (MIMO_SRC) or holds as LLM
 *  (MIMO_DST). Routed deals uneven batches out, and gives 0 samples to a rank that holds none.
 *  MIMO_ERR_SHAPE where the side's dp does not divide the batch, and a pass is collective or was
 *  measured against collective (mimo_bridge_create_fastest). A batch of -1 asks for the rows that
 *  the ranks gave an update (mimo_batch_desc.src_rows): MIMO_ERR_SHAPE where they gave none. Also
 *  MIMO_ERR_SHAPE: the side holds items, which are of any samples. */
MIMO_API mimo_status mimo_bridge_samples(int64_t *first, int64_t *count, const mimo_bridge *bridge,
                                         mimo_side side, int64_t batch);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

MIMO_API void mimo_batch_items_init(mimo_batch_items *out, size_t size);

/**
 * Take part in a call that this rank can't make: its part failed before the call (a tensor that a
 * binding can't describe). The ranks that make the call get this rank's status and sentence, as if
 * the library had found the mistake. So it stands in place of mimo_bridge_forward or
 * mimo_bridge_backward (`backward`), in chunks or not, or where `prepare` of mimo_bridge_prepare.
 *
 * `local` is the status; mimo_last_error() is the sentence (mimo_fail sets it). It is collective
 * where the call is, and then blocks the host. Where ranks don't agree on calls (on a device,
 * unless MIMO_CHECK=calls), nobody else learns of it.
 *
 * Never MIMO_OK: the status and the sentence of the lowest failing rank; MIMO_ERR_ARGUMENT where
 * `local` is MIMO_OK or no mimo_status.
 */
MIMO_API mimo_status mimo_bridge_refuse(mimo_bridge *bridge, bool backward, bool prepare,
                                        mimo_status local);

/**
 * The same in place of mimo_bridge_update: the last update stays in force on all ranks. Collective,
 * blocking. Where MIMO_AGREE=0 nobody else learns of it, and the ranks that tell spans or rows wait
 * for this one.
 */
MIMO_API mimo_status mimo_bridge_refuse_update(mimo_bridge *bridge, mimo_status local);

/** What an update of several bridges gives one of them: as mimo_bridge_update takes it. */
typedef struct mimo_update_desc {
    size_t size; /* set by the initializer */
    mimo_bridge *bridge;
    const mimo_batch_desc *descs; /* descs[n] */
    int n;
} mimo_update_desc;

#define MIMO_UPDATE_DESC_INIT                   \
    {                                           \
        sizeof(mimo_update_desc), NULL, NULL, 0 \
    }

MIMO_API void mimo_update_desc_init(mimo_update_desc *out, size_t size);

/**
 * mimo_bridge_update of `count` bridges at once: the ranks agree once for all of them. Every bridge
 * is updated, or, after an error, none. Elements have the size of the first one.
 *
 * Collective over the communicator that all bridges were made from, blocking the host. A rank that
 * can't make the call takes part by mimo_bridge_refuse_update of any of the bridges.
 *
 * Errors: those of mimo_bridge_update; MIMO_ERR_ARGUMENT also where count < 1, a bridge is named
 * twice or the bridges belong to two communicators.
 */
MIMO_API mimo_status mimo_bridge_update_all(const mimo_update_desc *updates, int count);

/**
 * The most bytes of staging that a forward and a backward of one tensor of these sizes take on this
 * rank. Sizes are those of mimo_bridge_tile. Local, pure; it costs as much as planning a call.
 *
 *   on a device  for each stream that calls are on. Calls on one stream share it. Messages count as
 *                if all of them were packed. Where `in_buffer`, every rank counts as within reach.
 *                The FIFOs of transport staged come on top (mimo_nccl_desc.staging_bytes)
 *   on the host  for each operation in flight, without what MPI and guarded calls take
 *                ("Deadlines" in <mimo/comm.h>)
 *
 * A call of several tensors takes at most the sum over them. Staging is kept, and has the
 * size of the largest call. While it grows, the old and the new area exist together.
 *
 * Errors, *bytes untouched: those of mimo_bridge_tile.
 */
MIMO_API mimo_status mimo_bridge_staging(int64_t *bytes, const mimo_bridge *bridge,
                                         const mimo_bridge_sizes *sizes);

/**
 * The spans of the samples that this rank holds as LLM (MIMO_DST), of the chosen micro-batch, into
 * spans[capacity]: also those that other ranks gave, by sample and row. So they are the positions
 * that forward writes, and all others of the tile stay as they are. Samples count within the
 * micro-batch; mimo_bridge_samples says which one is the first. *count is the number of all spans;
 * call with capacity 0 to learn it. Local, pure; thread-safe while nobody updates the bridge.
 *
 * Errors, outputs untouched: MIMO_ERR_ARGUMENT (NULL, or a negative capacity), MIMO_ERR_STATE (the
 * micro-batch is not ragged, or its dst tiles have no positions).
 */
MIMO_API mimo_status mimo_bridge_spans(int64_t *count, mimo_span *spans, int64_t capacity,
                                       const mimo_bridge *bridge);

#endif

MIMO_END_DECLS

#endif
