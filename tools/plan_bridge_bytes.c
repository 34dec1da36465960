/* mimo-plan bridge: counts the plans of all ranks by rank, by pair of ranks, and for the cost
 * model. */
#include "tools/plan_paired.h"
#include "core/memory.h"
#include "plan_bridge.h"

static void keep_most(plan_most *most, plan_most other)
{
    if (other.bytes > most->bytes)
        *most = other;
}

static void add_traffic(plan_bridge *bridge, int pass, const mimo_plan *plan, int64_t rank)
{
    const mimo_block_kind kinds[] = {MIMO_SEND, MIMO_LOCAL};
    int64_t *row = &bridge->traffic[pass][(rank - bridge->first) * bridge->ranks];
    for (int k = 0; k < 2; k++) {
        int64_t count;
        const mimo_block *blocks = mimo_plan_blocks(&count, plan, kinds[k]);
        for (int64_t i = 0; i < count; i++)
            row[blocks[i].peer - bridge->first] += blocks[i].nb * blocks[i].ns * bridge->row_bytes;
    }
}

/* Count a sender's pairs. Returns their number. The blocks for one peer follow one another. */
static int64_t add_pairs(plan_links *links, const mimo_plan *plan, int64_t row_bytes, int64_t rank)
{
    int64_t count, end, peers = 0;
    const mimo_block *block = mimo_plan_blocks(&count, plan, MIMO_SEND);
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

static void count_plan(plan_bridge *bridge, int pass, const mimo_plan *plan, int64_t rank)
{
    plan_links *links = &bridge->links[pass];
    mimo_plan_load load = mimo_plan_load_of(plan, bridge->row_bytes);
    int64_t peers = add_pairs(links, plan, bridge->row_bytes, rank);
    bridge->flows[rank - bridge->first][pass] = (plan_flow){load.in, load.out, load.local, peers};
    mimo_plan_load_merge(&bridge->load[pass], &load);
    links->bytes += load.in;
    keep_most(&links->in, (plan_most){load.in, rank, rank});
    keep_most(&links->out, (plan_most){load.out, rank, rank});
    if (bridge->traffic[pass])
        add_traffic(bridge, pass, plan, rank);
}

static mimo_status plan_rank(plan_bridge *bridge, int pass, int64_t rank)
{
    mimo_plan *plan;
    bool forward = pass == PLAN_FORWARD;
    MIMO_TRY(mimo_plan_create(&plan, bridge->layouts[forward ? MIMO_SRC : MIMO_DST],
                              bridge->layouts[forward ? MIMO_DST : MIMO_SRC], rank));
    count_plan(bridge, pass, plan, rank);
    mimo_plan_destroy(plan);
    return MIMO_OK;
}

static mimo_status reserve_bytes(plan_bridge *bridge)
{
    bool drawn = bridge->request->rank < 0 && bridge->ranks <= PLAN_DRAWN_RANKS;
    int64_t cells = bridge->ranks * bridge->ranks;
    MIMO_TRY(mimo_reserve(&bridge->group, bridge->pairing.group_size, sizeof(int64_t)));
    MIMO_TRY(mimo_reserve(&bridge->flows, bridge->ranks, sizeof *bridge->flows));
    for (int pass = 0; drawn && pass < PLAN_PASSES; pass++)
        MIMO_TRY(mimo_reserve(&bridge->traffic[pass], cells, sizeof(int64_t)));
    return MIMO_OK;
}

static mimo_status plan_each(plan_bridge *bridge)
{
    for (int64_t r = 0; r < bridge->ranks; r++)
        for (int pass = 0; pass < PLAN_PASSES; pass++)
            MIMO_TRY(plan_rank(bridge, pass, bridge->first + r));
    return MIMO_OK;
}

/* Where the grids pair, all ranks move the same number of bytes in the same number of messages. So
 * the first rank's plan stands for all. Ranks differ only in what they pack; plan_paired counts
 * that in closed form. */
static mimo_status plan_first(plan_bridge *bridge, int pass)
{
    plan_links *links = &bridge->links[pass];
    bool forward = pass == PLAN_FORWARD;
    MIMO_TRY(plan_rank(bridge, pass, bridge->first));
    for (int64_t r = 1; r < bridge->ranks; r++)
        bridge->flows[r][pass] = bridge->flows[0][pass];
    links->bytes *= bridge->ranks;
    links->pairs *= bridge->ranks;
    return mimo_plan_load_paired(&bridge->load[pass],
                                 bridge->layouts[forward ? MIMO_SRC : MIMO_DST],
                                 bridge->layouts[forward ? MIMO_DST : MIMO_SRC], bridge->row_bytes);
}

mimo_status plan_bridge_count(plan_bridge *bridge)
{
    MIMO_TRY(reserve_bytes(bridge));
    bool paired = bridge->pairing.scale > 0 && !bridge->request->each_rank;
    if (!paired || bridge->traffic[PLAN_FORWARD])
        return plan_each(bridge);
    for (int pass = 0; pass < PLAN_PASSES; pass++)
        MIMO_TRY(plan_first(bridge, pass));
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
    for (int pass = 0; pass < PLAN_PASSES; pass++)
        of.load[pass] = (mimo_phases_load){{bridge->load[pass]}, 1};
    return mimo_cost_estimate(&of, &request->speed);
}
