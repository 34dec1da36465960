// The items of `rows`: a piece of a token's row, and where it goes. An own token's row goes to the
// lowest of its rows on each peer, and to all of its rows here. A peer's token, once its row is
// here, is copied from its lowest row to its other rows.
#ifndef MIMO_COMM_NCCL_ROW_ITEMS_CUH
#define MIMO_COMM_NCCL_ROW_ITEMS_CUH

#include "comm/nccl/nccl_moves.cuh"

namespace
{

constexpr int64_t kStage = 15 << 10; // bytes: the most of a row that moves at a time
constexpr int kLeastLag = 4;         // rounds

// How a row is cut: into chunks that move at a time, and pieces of chunks that have a flag each.
// The same on all ranks, also where they move rows in other ways.
struct Cut {
    int64_t chunk; // bytes, except of the last one
    int chunks, per_piece, pieces;

    __device__ explicit Cut(int64_t row_bytes)
    {
        const bool whole = row_bytes % 16 != 0;
        chunks = whole || row_bytes == 0 ? 1 : (int)((row_bytes + kStage - 1) / kStage);
        chunk = whole ? row_bytes : ((row_bytes + chunks - 1) / chunks + 15) / 16 * 16;
        per_piece = (chunks + MIMO_EXPERT_PIECES - 1) / MIMO_EXPERT_PIECES;
        pieces = (chunks + per_piece - 1) / per_piece;
    }

    __device__ int64_t bytes_of(int64_t row_bytes, int number) const
    {
        return min(chunk, row_bytes - number * chunk);
    }

    __device__ int first(int piece) const
    {
        return piece * per_piece;
    }

    __device__ int end(int piece) const
    {
        return min(chunks, (piece + 1) * per_piece);
    }
};

// An item on its way: where its chunk goes, and whose flags say so.
struct Sent {
    int32_t row[MIMO_EXPERT_MOST_TOP_K];
    uint16_t x[MIMO_EXPERT_MOST_TOP_K]; // kNoX: to no row
    uint16_t leads;                     // bits of choices: the lowest row of their x
    uint16_t posts;                     // 1: flags are set behind it
    int32_t tensor, source, token, piece;
    uint32_t bytes;
    int64_t skip; // bytes of the row before the chunk
};

// The flags of items on peers.
class RowFlags
{
  public:
    __device__ explicit RowFlags(const Call &call)
        : call(call), memory(call.group.memory, call.shape.ranks)
    {
    }

    // Set those of an item on the ranks that choice j of its token leads to. By all lanes of a
    // warp, each with an item and a choice of its own; j may be no choice.
    __device__ void set(const Sent &sent, int j) const
    {
        const bool leads = j < call.shape.top_k && sent.posts && sent.leads >> j & 1;
        const int64_t offset = row_flag(call, sent.tensor, sent.source, sent.token, sent.piece);
        for (int t = 0; t < call.shape.etp; t++) {
            const int rank = leads ? sent.x[j] * call.shape.etp + t : call.group.rank;
            char *const there = memory.of(rank);
            if (rank != call.group.rank)
                store_relaxed((uint32_t *)(there + offset), call.flag());
        }
    }

  private:
    const Call &call;
    OfRanks<char *> memory;
};

// The items of one tensor that one warp takes.
class RowItems
{
  public:
    __device__ RowItems(const Call &call, const mimo_moves_tensor *tensors, int index, int worker,
                        int workers)
        : call(call), tensor(tensors[index]), index(index), cut(tensor.row_bytes),
          order(call, worker, workers, tensor.row_bytes > 0 ? cut.pieces : 0, true,
                lag_of(call, workers, cut.pieces)),
          there(tensor.there, call.shape.ranks), capacity(call.tables.capacity, call.shape.ranks),
          own_capacity(capacity.of(call.group.rank))
    {
        look_ahead();
    }

    enum Found { NONE, WAITS, HERE };

    // The next chunk, by all lanes. WAITS: a peer has not written it, or flags of chunks before
    // it are to be posted first.
    __device__ Found next(Sent &out, const char *&from)
    {
        while (chunk == chunks) {
            if (!taken && !ahead.exists)
                return NONE;
            if (!taken && !take_token())
                continue;
            taken = true;
            if (item.source != call.group.rank && !has_arrived())
                return has_ended() ? NONE : WAITS;
            taken = false;
            if (!place())
                continue;
            chunk = cut.first(item.piece);
            chunks = cut.end(item.piece);
        }
        describe(out);
        from = source + chunk++ * cut.chunk;
        return HERE;
    }

    __device__ bool is_remote(const Sent &sent) const
    {
        return sent.source == call.group.rank;
    }

    // Call run(to) for the rows that choice j of a token leads to. By all lanes, also where they
    // have different choices.
    template <class Run> __device__ void for_rows(const Sent &sent, int j, Run run) const
    {
        const bool is_pair = j < call.shape.top_k && sent.x[j] != kNoX;
        const int64_t row = is_pair ? sent.row[j] : 0;
        if (is_pair && sent.x[j] == own_x(call) && row < own_capacity)
            run(tensor.to + row * tensor.row_bytes + sent.skip);
        const bool leads = is_pair && sent.leads >> j & 1;
        for (int t = 0; t < call.shape.etp; t++) {
            const int rank = leads ? sent.x[j] * call.shape.etp + t : call.group.rank;
            char *const base = there.of(rank);
            const int rows = capacity.of(rank);
            if (rank != call.group.rank && (tensor.flat || row < rows))
                run(base + place_of(sent, row) + sent.skip);
        }
    }

    // Nothing more is taken.
    __device__ void stop()
    {
        order.stop();
        ahead.exists = false;
        chunk = chunks;
        taken = false;
    }

  private:
    const Call &call;
    const mimo_moves_tensor &tensor;
    int index;
    Cut cut;
    Order order;
    OfRanks<char *> there;
    OfRanks<int32_t> capacity;
    int own_capacity;
    Patience patience;
    // The item behind this one: what the tables say of it is on its way.
    struct {
        Item item;
        bool exists;
        int row;
        uint16_t x;
    } ahead;
    Item item = {};
    bool taken = false;        // the item waits
    int chunk = 0, chunks = 0; // of the item
    const char *source = NULL;
    // Of this lane's choice.
    int row = -1;
    uint16_t x = kNoX;
    bool lead = false;

    // In rounds. A step takes each worker to its next item. What it waits for is one and a half
    // steps before, so a peer that is as fast has sent it; the last rounds leave the link idle.
    __device__ static int lag_of(const Call &call, int workers, int pieces)
    {
        const int two_steps = call.shape.ranks * kRound * pieces * 2;
        return max(kLeastLag, (3 * workers + two_steps - 1) / two_steps);
    }

    // Nothing here depends on what is read, so nothing waits for it.
    __device__ void look_ahead()
    {
        ahead.exists = order.next(ahead.item);
        if (!ahead.exists)
            return;
        ahead.row = row_of_lane(call, ahead.item);
        if (ahead.item.source == call.group.rank)
            ahead.x = x_of_lane(call, ahead.item.token);
    }

    // Whether this rank has to do with the token.
    __device__ bool take_token()
    {
        item = ahead.item;
        row = ahead.row;
        x = row < 0 ? kNoX : (uint16_t)own_x(call);
        if (item.source == call.group.rank)
            x = ahead.x;
        look_ahead();
        return __any_sync(~0u, x != kNoX);
    }

    __device__ bool has_arrived() const
    {
        bool arrived = true;
        if (lane_of() == 0)
            arrived = call.has(row_flag(call, index, item.source, item.token, item.piece));
        return __all_sync(~0u, arrived);
    }

    __device__ bool has_ended()
    {
        if (!patience.ends(call))
            return false;
        stop();
        return true;
    }

    // Find where the row goes. False: it is where it belongs.
    __device__ bool place()
    {
        if (item.source == call.group.rank)
            return place_own();
        const int first = __reduce_min_sync(~0u, x == kNoX ? INT32_MAX : row);
        const int from =
            MIMO_MOVES_BROKEN(MIMO_BUG_COPY_ROW_BEFORE) && first > 0 ? first - 1 : first;
        lead = false;
        if (!tensor.flat && row == first)
            x = kNoX;
        if (row >= own_capacity)
            x = kNoX;
        source = tensor.to + from * tensor.row_bytes;
        if (tensor.flat)
            source = tensor.there[call.group.rank] + tensor.at +
                     token_index(call, item) * tensor.row_bytes;
        return __any_sync(~0u, x != kNoX);
    }

    __device__ bool place_own()
    {
        lead = x != kNoX;
        for (int j = 0; j < call.shape.top_k; j++) {
            const int other_x = __shfl_sync(~0u, x, j), other = __shfl_sync(~0u, row, j);
            lead = lead && (other_x != x || other >= row);
        }
        if (x != own_x(call) && !lead)
            x = kNoX;
        source = tensor.from + item.token * tensor.row_bytes;
        return true;
    }

    __device__ void describe(Sent &out) const
    {
        const uint32_t leads = __ballot_sync(~0u, lead);
        if (lane_of() < call.shape.top_k) {
            out.row[lane_of()] = row;
            out.x[lane_of()] = x;
        }
        if (lane_of() == 0) {
            out.leads = (uint16_t)leads;
            out.posts = chunk + 1 == chunks;
            out.bytes = (uint32_t)cut.bytes_of(tensor.row_bytes, chunk);
            out.tensor = index;
            out.source = item.source;
            out.token = item.token;
            out.piece = item.piece;
            out.skip = chunk * cut.chunk;
        }
        __syncwarp();
    }

    // Where a token's row begins on a peer.
    __device__ int64_t place_of(const Sent &sent, int64_t tile_row) const
    {
        const int64_t token = (int64_t)sent.source * call.shape.max_tokens + sent.token;
        return tensor.at + (tensor.flat ? token : tile_row) * tensor.row_bytes;
    }
};

} // namespace

#endif
