/* mimo-plan bridge: who needs which samples and tokens of a bridge, and the bytes that move. */
#include <inttypes.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "grid/grid_types.h"
#include "plan_bridge.h"

/* ---------------------------------------- arguments ----------------------------------------- */

enum {
    KEY_SRC = 256,
    KEY_DST,
    KEY_BATCH,
    KEY_SEQ,
    KEY_HIDDEN,
    KEY_DTYPE,
    KEY_OFFSET,
    KEY_ORDER,
    KEY_SP,
    KEY_RANK,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {.name = "src", .key = KEY_SRC, .arg = "GRID", .doc = "The encoder's grid, as tp=2,dp=4"},
    {.name = "dst", .key = KEY_DST, .arg = "GRID", .doc = "The LLM's grid, on the same ranks"},
    {.name = "batch", .key = KEY_BATCH, .arg = "B", .doc = "Samples of all dp ranks together"},
    {.name = "seq", .key = KEY_SEQ, .arg = "S", .doc = "Tokens of a sample"},
    {.name = "hidden", .key = KEY_HIDDEN, .arg = "H", .doc = "Elements of a token"},
    {.name = "dtype", .key = KEY_DTYPE, .arg = "TYPE", .doc = "Element type, as bf16"},
    {.name = "offset", .key = KEY_OFFSET, .arg = "N", .doc = "First rank of both grids (0)"},
    {.name = "order",
     .key = KEY_ORDER,
     .arg = "ORDER",
     .doc = "Order of a tile's rows: sbh (default) or bsh"},
    {.name = "sp", .key = KEY_SP, .doc = "Sequence parallelism: tp cuts the LLM's shards too"},
    {.name = "rank", .key = KEY_RANK, .arg = "R", .doc = "Print one rank only"},
    {.name = "json", .key = KEY_JSON, .doc = "Print JSON"},
    {0},
};

static int parse_order(mimo_row_order *out, const char *text)
{
    if (strcmp(text, "sbh") == 0)
        *out = MIMO_ROWS_SBH;
    else if (strcmp(text, "bsh") == 0)
        *out = MIMO_ROWS_BSH;
    else
        return plan_usage("--order is '%s', and can be sbh or bsh", text);
    return 0;
}

static int check_complete(const plan_bridge_request *request, const char *program)
{
    const char *missing = !request->src          ? "--src"
                          : !request->dst        ? "--dst"
                          : request->batch == 0  ? "--batch"
                          : request->seq == 0    ? "--seq"
                          : request->hidden == 0 ? "--hidden"
                          : !request->dtype      ? "--dtype"
                                                 : NULL;
    return missing ? plan_usage("%s is missing; see '%s --help'", missing, program) : 0;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    plan_bridge_request *request = state->input;
    switch (key) {
    case KEY_SRC:
        request->src = argument;
        return 0;
    case KEY_DST:
        request->dst = argument;
        return 0;
    case KEY_BATCH:
        return plan_number(&request->batch, "--batch", argument, 1);
    case KEY_SEQ:
        return plan_number(&request->seq, "--seq", argument, 1);
    case KEY_HIDDEN:
        return plan_number(&request->hidden, "--hidden", argument, 1);
    case KEY_DTYPE:
        request->dtype = argument;
        return 0;
    case KEY_OFFSET:
        return plan_number(&request->offset, "--offset", argument, 0);
    case KEY_ORDER:
        return parse_order(&request->order, argument);
    case KEY_SP:
        request->sp = true;
        return 0;
    case KEY_RANK:
        return plan_number(&request->rank, "--rank", argument, 0);
    case KEY_JSON:
        request->json = true;
        return 0;
    case ARGP_KEY_ARG:
        return plan_usage("argument '%s' is one too many; see '%s --help'", argument, state->name);
    case ARGP_KEY_END:
        return check_complete(request, state->name);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ----------------------------------------- layouts ------------------------------------------ */

/* Both dp sizes divide the batch. */
static mimo_status check_batch(const plan_bridge *bridge)
{
    int64_t first, count;
    for (int side = MIMO_SRC; side <= MIMO_DST; side++)
        MIMO_TRY(mimo_pairing_samples(bridge->grids[side], bridge->request->offset,
                                      bridge->request->batch, &first, &count));
    return MIMO_OK;
}

/* No sum of bytes is larger than an all-reduce and a gather of every rank's whole batch: 4 batches
 * a rank. Checked here once, all arithmetic on bytes is safe. */
static mimo_status set_row_bytes(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    mimo_dtype dtype;
    int64_t bytes;
    MIMO_TRY(mimo_dtype_parse(&dtype, request->dtype));
    MIMO_TRY(mimo_mul(&bridge->row_bytes, request->hidden, (int64_t)mimo_dtype_size(dtype)));
    MIMO_TRY(mimo_mul(&bytes, bridge->row_bytes, request->batch));
    MIMO_TRY(mimo_mul(&bytes, bytes, request->seq));
    return mimo_mul(&bytes, bytes, 4 * mimo_grid_size(bridge->grids[MIMO_SRC]));
}

static mimo_status make_layouts(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    rule.sp = request->sp;
    desc.order = request->order;
    desc.batch = request->batch;
    desc.seq = request->seq;
    desc.grid = bridge->grids[MIMO_SRC];
    MIMO_TRY(mimo_layout_create(&bridge->layouts[MIMO_SRC], &desc));
    desc.grid = bridge->grids[MIMO_DST];
    desc.partition = &rule;
    return mimo_layout_create(&bridge->layouts[MIMO_DST], &desc);
}

static mimo_status set_ranks(plan_bridge *bridge)
{
    const mimo_grid *grid = bridge->grids[MIMO_SRC];
    bridge->first = mimo_grid_offset(grid);
    bridge->ranks = mimo_grid_size(grid);
    if (bridge->request->rank < 0)
        return MIMO_OK;
    MIMO_TRY(mimo_grid_check_rank(grid, bridge->request->rank));
    bridge->first = bridge->request->rank;
    bridge->ranks = 1;
    return MIMO_OK;
}

/* Every rule, before anything is planned. */
static mimo_status make_bridge(plan_bridge *bridge)
{
    const plan_bridge_request *request = bridge->request;
    MIMO_TRY(mimo_grid_parse(&bridge->grids[MIMO_SRC], request->src, request->offset));
    MIMO_TRY(mimo_grid_parse(&bridge->grids[MIMO_DST], request->dst, request->offset));
    MIMO_TRY(mimo_pairing_of(&bridge->pairing, bridge->grids[MIMO_SRC], bridge->grids[MIMO_DST]));
    MIMO_TRY(check_batch(bridge));
    MIMO_TRY(set_row_bytes(bridge));
    MIMO_TRY(make_layouts(bridge));
    return set_ranks(bridge);
}

/* ------------------------------------------ bytes ------------------------------------------- */

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

static mimo_status plan_rank(plan_bridge *bridge, int direction, int64_t rank)
{
    mimo_plan *plan;
    bool forward = direction == PLAN_FORWARD;
    MIMO_TRY(mimo_plan_create(&plan, bridge->layouts[forward ? MIMO_SRC : MIMO_DST],
                              bridge->layouts[forward ? MIMO_DST : MIMO_SRC], rank));
    bridge->flows[rank - bridge->first][direction] =
        (plan_flow){mimo_plan_rows(plan, MIMO_RECV) * bridge->row_bytes,
                    mimo_plan_rows(plan, MIMO_SEND) * bridge->row_bytes,
                    mimo_plan_rows(plan, MIMO_LOCAL) * bridge->row_bytes};
    if (bridge->traffic[direction])
        add_traffic(bridge, direction, plan, rank);
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

static mimo_status plan_ranks(plan_bridge *bridge)
{
    MIMO_TRY(reserve_bytes(bridge));
    for (int64_t r = 0; r < bridge->ranks; r++)
        for (int direction = 0; direction < PLAN_DIRECTIONS; direction++)
            MIMO_TRY(plan_rank(bridge, direction, bridge->first + r));
    return MIMO_OK;
}

/* ----------------------------------------- command ------------------------------------------ */

static void release(plan_bridge *bridge)
{
    for (int i = 0; i < 2; i++) {
        mimo_release(bridge->traffic[i]);
        mimo_layout_destroy(bridge->layouts[i]);
        mimo_grid_destroy(bridge->grids[i]);
    }
    mimo_release(bridge->flows);
    mimo_release(bridge->group);
}

static int answer(const plan_bridge_request *request)
{
    plan_bridge bridge = {.request = request};
    int status;
    if (make_bridge(&bridge) != MIMO_OK || plan_ranks(&bridge) != MIMO_OK)
        status = plan_fail_library();
    else
        status = (request->json ? plan_bridge_print_json : plan_bridge_print_text)(&bridge);
    release(&bridge);
    return status;
}

int plan_bridge_command(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print how an encoder's grid and an LLM's grid over the same ranks meet: gather "
               "groups, the samples and tokens of each rank, and the bytes that move when each row "
               "goes once from one owner to each rank that needs it, with the partition attached."};
    plan_bridge_request request = {.rank = -1, .order = MIMO_ROWS_SBH};
    int status = plan_parse(&argp, argc, argv, &request);
    return status == 0 ? answer(&request) : status;
}
