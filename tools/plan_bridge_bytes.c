/* mimo-plan bridge: the plans of all ranks, counted by rank, by pair of ranks, and for the cost
 * model. */
#include "core/memory.h"
#include "grid/grid_types.h"
#include "plan_bridge.h"

static void keep_most(plan_most *most, plan_most other)
{
    if (other.bytes > most->bytes)
        *most = other;
}

static void add_traffic(plan_bridge *bridge, int direction, const mimo_plan *plan, int64_t rank)
{
    const mimo_block_kind kinds[] = {MIMO_SEND, MIMO_LOCAL};
    int64_t *row = &bridge->traffic[direction][(rank - bridge->first) * bridge->ranks];
    for (int k = 0; k < 2; k++) {
        int64_t count;
        const mimo_block *blocks = mimo_plan_blocks(plan, kinds[k], &count);
        for (int64_t i = 0; i < count; i++)
            row[blocks[i].peer - bridge->first] += blocks[i].nb * blocks[i].ns * bridge->row_bytes;
    }
}

/* A sender's pairs, of which it returns the number: the blocks for a peer stand together. */
static int64_t add_pairs(plan_links *links, const mimo_plan *plan, int64_t row_bytes, int64_t rank)
{
    int64_t count, end, peers = 0;
    const mimo_block *block = mimo_plan_blocks(plan, MIMO_SEND, &count);
    for (int64_t first = 0; first < count; first = end) {
        int64_t rows = 0;
        for (end = first; end < count && block[end].peer == block[first].peer; end++)
            rows += block[end].nb * block[end].ns;
        keep_most(&links->pair, (plan_most){rows * row_bytes, rank, block[first].peer});
        peers++;
    }
    links->pairs += peers;
    return peers;
}

static void count_plan(plan_bridge *bridge, int direction, const mimo_plan *plan, int64_t rank)
{
    plan_links *links = &bridge->links[direction];
    mimo_plan_load load = mimo_plan_load_of(plan, bridge->row_bytes);
    int64_t peers = add_pairs(links, plan, bridge->row_bytes, rank);
    bridge->flows[rank - bridge->first][direction] =
        (plan_flow){load.in, load.out, load.local, peers};
    mimo_plan_load_merge(&bridge->load[direction], &load);
    links->bytes += load.in;
    keep_most(&links->in, (plan_most){load.in, rank, rank});
    keep_most(&links->out, (plan_most){load.out, rank, rank});
    if (bridge->traffic[direction])
        add_traffic(bridge, direction, plan, rank);
}

static mimo_status plan_rank(plan_bridge *bridge, int direction, int64_t rank)
{
    mimo_plan *plan;
    bool forward = direction == PLAN_FORWARD;
    MIMO_TRY(mimo_plan_create(&plan, bridge->layouts[forward ? MIMO_SRC : MIMO_DST],
                              bridge->layouts[forward ? MIMO_DST : MIMO_SRC], rank));
    count_plan(bridge, direction, plan, rank);
    mimo_plan_destroy(plan);
    return MIMO_OK;
}

static mimo_status reserve_bytes(plan_bridge *bridge)
{
    bool drawn = bridge->request->rank < 0 && bridge->ranks <= PLAN_DRAWN_RANKS;
    int64_t cells = bridge->ranks * bridge->ranks;
    MIMO_TRY(mimo_reserve(&bridge->group, bridge->pairing.group_size, sizeof(int64_t)));
    MIMO_TRY(mimo_reserve(&bridge->flows, bridge->ranks, sizeof *bridge->flows));
    for (int direction = 0; drawn && direction < PLAN_DIRECTIONS; direction++)
        MIMO_TRY(mimo_reserve(&bridge->traffic[direction], cells, sizeof(int64_t)));
    return MIMO_OK;
}

/*
 * Where the grids pair, few ranks stand for all. The side with fewer dp coordinates cuts the ranks
 * into slices, `step` ranks apart, which exchange nothing and hold equally many samples. What the
 * ranks of one slice do, those of another do too: the rule that names one of C equal copies as the
 * sender takes turns over a slice's ranks, which are a multiple of C, so the turns begin alike.
 * With --general every rank is planned.
 */
typedef struct slices {
    int64_t count, step;
} slices;

static slices slices_of(const plan_bridge *bridge)
{
    const mimo_grid *src = bridge->grids[MIMO_SRC], *dst = bridge->grids[MIMO_DST];
    int64_t src_dp = mimo_grid_dim_size(src, "dp"), dst_dp = mimo_grid_dim_size(dst, "dp");
    bool src_has_few = src_dp < dst_dp;
    return (slices){src_has_few ? src_dp : dst_dp, mimo_grid_stride(src_has_few ? src : dst, "dp")};
}

/* The rank of the first slice that does the same. */
static int64_t stand_in(const slices *cut, int64_t relative)
{
    return relative - relative / cut->step % cut->count * cut->step;
}

static void count_again(plan_bridge *bridge, int64_t relative, int64_t other)
{
    for (int direction = 0; direction < PLAN_DIRECTIONS; direction++) {
        const plan_flow *flow = &bridge->flows[other][direction];
        bridge->flows[relative][direction] = *flow;
        bridge->links[direction].bytes += flow->recv;
        bridge->links[direction].pairs += flow->peers;
    }
}

mimo_status plan_bridge_count(plan_bridge *bridge)
{
    MIMO_TRY(reserve_bytes(bridge));
    bool each = bridge->request->general || bridge->traffic[PLAN_FORWARD];
    slices cut = bridge->pairing.scale > 0 ? slices_of(bridge) : (slices){1, 1};
    for (int64_t r = 0; r < bridge->ranks; r++) {
        int64_t other = each ? r : stand_in(&cut, r);
        if (other < r)
            count_again(bridge, r, other);
        for (int direction = 0; other == r && direction < PLAN_DIRECTIONS; direction++)
            MIMO_TRY(plan_rank(bridge, direction, bridge->first + r));
    }
    return MIMO_OK;
}

double plan_imbalance(int64_t most, int64_t bytes, int64_t parts)
{
    return bytes > 0 ? (double)most * (double)parts / (double)bytes : 1;
}

mimo_cost plan_bridge_cost(const plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    mimo_cost_case of = {.src = bridge->grids[MIMO_SRC],
                         .dst = bridge->grids[MIMO_DST],
                         .pairing = bridge->pairing,
                         .cut = true,
                         .sp = request->sp,
                         .order = {request->order, request->order},
                         .batch = request->batch,
                         .seq = request->seq,
                         .row_bytes = bridge->row_bytes};
    for (int direction = 0; direction < PLAN_DIRECTIONS; direction++)
        of.load[direction] = (mimo_rounds_load){{bridge->load[direction]}, 1};
    return mimo_cost_estimate(&of, &request->speed);
}
