/* Nodes of schedules: the order inside steps, their times, budgets, and the rules. */
#include <stdio.h>

#include "core/hash.h"
#include "core/memory.h"
#include "cases_ran.h"
#include "expect_failure.h"
#include "node_bed.h"

/* ------------------------------------------- goldens ----------------------------------------- */

static void expect_text(mimo_nodes *nodes, const char *expected)
{
    char *text = nodes_text_of(nodes, MIMO_SCHEDULE_TEXT);
    cr_assert_str_eq(text, expected);
    free(text);
    mimo_nodes_destroy(nodes);
}

static void expect_count(int64_t forward, int64_t back, uint32_t parts, int64_t expected)
{
    int64_t count;
    mimo_nodes *nodes = step_of_layers(forward, back, parts, NULL);
    mimo_nodes_of(&count, nodes, 0);
    cr_assert_eq(count, expected, "%ld layers forward, %ld back: %ld nodes, not %ld", (long)forward,
                 (long)back, (long)count, (long)expected);
    mimo_nodes_destroy(nodes);
}

Test(nodes, counts)
{
    static const int64_t mixtures[][3] = {{1, 1, 16}, {1, 2, 22}, {2, 1, 20}, {2, 2, 26},
                                          {3, 2, 30}, {4, 4, 46}, {0, 2, 15}, {2, 0, 11}};
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        expect_count(mixtures[i][0], mixtures[i][1], MIMO_LAYER_MIXTURE, mixtures[i][2]);
    /* with a shared expert: forward shared and behind, backward both of its halves */
    expect_count(1, 1, MIMO_LAYER_SHARED, 20);
    expect_count(1, 2, MIMO_LAYER_SHARED, 28);
    expect_count(2, 1, MIMO_LAYER_SHARED, 26);
    expect_count(4, 4, MIMO_LAYER_SHARED, 62);
    expect_count(0, 2, MIMO_LAYER_SHARED, 19);
    expect_count(2, 0, MIMO_LAYER_SHARED, 15);
    expect_count(1, 1, MIMO_LAYER_ROUTED, 17);
    expect_count(2, 2, MIMO_LAYER_ROUTED | MIMO_LAYER_SHARED, 36);
    expect_count(2, 0, MIMO_LAYER_DENSE, 7);
    expect_count(0, 2, MIMO_LAYER_DENSE, 11);
}

Test(nodes, order)
{
    expect_text(step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL),
                "step: f.pre_process b.post_process.bwd b.combine0 f.pre0 b.mlp0.bwd f.dispatch0 "
                "b.mlp0.dw b.dispatch0 f.mlp0 f.combine0 b.pre0.bwd f.send_recv b.send_recv "
                "b.pre0.dw f.post_process b.pre_process.bwd\n");
    expect_text(step_of_layers(1, 2, MIMO_LAYER_MIXTURE, NULL),
                "step: f.pre_process b.post_process.bwd "
                "b.combine1 f.pre0 b.mlp1.bwd f.dispatch0 b.mlp1.dw b.dispatch1 f.mlp0 f.combine0 "
                "b.pre1.bwd b.pre1.dw "
                "b.combine0 b.mlp0.bwd b.mlp0.dw b.dispatch0 b.pre0.bwd "
                "f.send_recv b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n");
    expect_text(step_of_layers(2, 1, MIMO_LAYER_MIXTURE, NULL),
                "step: f.pre_process b.post_process.bwd "
                "b.combine0 f.pre0 b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 f.combine0 "
                "b.pre0.bwd "
                "f.pre1 f.dispatch1 f.mlp1 f.combine1 "
                "f.send_recv b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n");
    expect_text(step_of_layers(1, 1, MIMO_LAYER_SHARED, NULL),
                "step: f.pre_process b.post_process.bwd b.combine0 f.pre0 b.shared0.bwd b.mlp0.bwd "
                "f.dispatch0 b.mlp0.dw b.shared0.dw b.dispatch0 f.shared0 f.mlp0 f.combine0 "
                "b.pre0.bwd f.behind0 f.send_recv b.send_recv b.pre0.dw f.post_process "
                "b.pre_process.bwd\n");
}

/* A route is set as soon as the choice is known, and nobody waits for it before the rows go. */
Test(nodes, order_with_routes_ahead)
{
    expect_text(step_of_layers(1, 1, MIMO_LAYER_ROUTED, NULL),
                "step: f.pre_process b.post_process.bwd b.combine0 f.pre0 f.route0 b.mlp0.bwd "
                "f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 f.combine0 b.pre0.bwd f.send_recv "
                "b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n");
}

/* What goes before early: the backward of PRE, and behind the last micro-batch gradients. */
Test(nodes, order_of_options)
{
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    desc.early = desc.grad_sync = true;
    expect_text(step_of_layers(1, 1, MIMO_LAYER_MIXTURE, &desc),
                "step: f.pre_process b.post_process.bwd b.combine0 f.pre0 b.mlp0.bwd f.dispatch0 "
                "b.mlp0.dw b.dispatch0 b.pre0.bwd f.mlp0 f.combine0 f.send_recv b.send_recv "
                "b.pre0.dw f.post_process b.pre_process.bwd b.grad_sync\n");
}

static mimo_nodes *again(uint32_t parts, mimo_node_recompute recompute)
{
    bed_chunk f, b;
    mimo_nodes *nodes = NULL;
    filled(&f, 1, parts);
    filled(&b, 1, parts);
    b.layers[0].recompute = recompute;
    SUCCEEDS(mimo_nodes_create_step(&nodes, &f.chunk, &b.chunk, NULL));
    return nodes;
}

Test(nodes, order_with_recomputation)
{
    expect_text(again(MIMO_LAYER_MIXTURE, MIMO_RECOMPUTE_KEEP_ROWS),
                "step: f.pre_process b.post_process.bwd b.combine0 b.pre0.replay f.pre0 "
                "b.mlp0.replay b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 f.combine0 "
                "b.pre0.bwd f.send_recv b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n");
    expect_text(again(MIMO_LAYER_SHARED, MIMO_RECOMPUTE_SEND_ROWS),
                "step: f.pre_process b.post_process.bwd b.combine0 b.pre0.replay "
                "b.dispatch0.replay f.pre0 b.shared0.replay b.shared0.bwd b.mlp0.replay b.mlp0.bwd "
                "f.dispatch0 b.mlp0.dw b.shared0.dw b.dispatch0 f.shared0 f.mlp0 f.combine0 "
                "b.pre0.bwd f.behind0 f.send_recv b.send_recv b.pre0.dw f.post_process "
                "b.pre_process.bwd\n");
}

/* Four replays of rows find room beside products of 14, and one of 40 finds none. The route of a
 * forward that is repeated stays. */
Test(nodes, rows_are_kept_or_sent_by_their_costs)
{
    for (int64_t cost = 1; cost <= 40; cost += 39) {
        bed_chunk f, b;
        mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
        mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
        mimo_nodes *nodes = NULL;
        int64_t replays = 0;
        costs.of[MIMO_NODE_DISPATCH][MIMO_NODE_REPLAY] = cost;
        desc.costs = &costs;
        filled(&f, 4, MIMO_LAYER_ROUTED);
        filled(&b, 4, MIMO_LAYER_ROUTED);
        for (int i = 0; i < 4; i++)
            b.layers[i].recompute = MIMO_RECOMPUTE_BY_COSTS;
        SUCCEEDS(mimo_nodes_create_step(&nodes, &f.chunk, &b.chunk, &desc));
        for (int64_t i = 0; i < nodes->stages[0].count; i++) {
            const mimo_node *node = &nodes->stages[0].nodes[i];
            replays += node->pass == MIMO_NODE_REPLAY && node->part == MIMO_NODE_DISPATCH;
            cr_assert(node->pass != MIMO_NODE_REPLAY || node->part != MIMO_NODE_ROUTE);
        }
        cr_assert_eq(replays, cost == 1 ? 4 : 0, "cost %ld: %ld", (long)cost, (long)replays);
        mimo_nodes_destroy(nodes);
    }
}

/* Multi-token prediction: the last layer of the last chunk has a head of its own. */
Test(nodes, order_with_mtp)
{
    bed_chunk f, b;
    mimo_nodes *nodes = NULL;
    filled(&f, 2, MIMO_LAYER_MIXTURE);
    filled(&b, 1, MIMO_LAYER_MIXTURE);
    f.chunk.mtp = b.chunk.mtp = 1;
    f.layers[0].parts = 1u << MIMO_NODE_PRE; /* attention alone, and an MLP alone */
    f.layers[1].parts = 1u << MIMO_NODE_MLP;
    SUCCEEDS(mimo_nodes_create_step(&nodes, &f.chunk, &b.chunk, NULL));
    expect_text(nodes, "step: f.pre_process b.post_process.bwd b.post0.bwd b.combine0 f.pre0 "
                       "b.mlp0.bwd b.mlp0.dw b.dispatch0 b.pre0.bwd f.mlp1 f.post1 f.send_recv "
                       "b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n");
}

static void expect_times(int64_t layers, int64_t back, int64_t move, int64_t exposed, int64_t moves)
{
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    for (int pass = 0; pass < MIMO_NODE_PASSES; pass++)
        costs.of[MIMO_NODE_DISPATCH][pass] = costs.of[MIMO_NODE_COMBINE][pass] = move;
    desc.costs = &costs;
    mimo_nodes *nodes = step_of_layers(layers, back, MIMO_LAYER_MIXTURE, &desc);
    mimo_nodes_report report = nodes_report_of(nodes);
    cr_assert_eq(report.time - report.local, exposed, "%ld, %ld: %ld exposed", (long)layers,
                 (long)back, (long)(report.time - report.local));
    cr_assert_eq(report.serial - report.local, moves);
    cr_assert_eq(report.local, 7 * layers + 14 * back);
    cr_assert_eq(report.hidden, 1000 * (moves - exposed) / moves);
    cr_assert_eq(report.ceiling, 1000 * moves / report.serial);
    mimo_nodes_destroy(nodes);
}

Test(nodes, times)
{
    expect_times(1, 1, 2, 0, 8);  /* 21 of 29 */
    expect_times(4, 4, 2, 0, 32); /* 84 of 116 */
    expect_times(2, 1, 2, 2, 12);
    expect_times(16, 16, 4, 1, 256);
    expect_times(16, 16, 5, 17, 320);
    expect_times(16, 16, 6, 48, 384);
    expect_times(16, 16, 8, 176, 512);
    expect_times(2, 0, 2, 8, 8); /* alone, nothing hides a forward's exchanges */
}

/* -------------------------------------------- rules ------------------------------------------ */

static int64_t numbered(const mimo_nodes *nodes, const char *name)
{
    return place_of(nodes, 0, name, *name == 'f' ? 1 : 0);
}

/* What a node of one layer forward beside one back needs, written down by hand. */
static const char *const needed[][2] = {
    {"f.pre0", "f.pre_process"},
    {"f.route0", "f.pre0"},
    {"f.dispatch0", "f.route0"},
    {"f.dispatch0", "f.pre0"},
    {"f.mlp0", "f.dispatch0"},
    {"f.combine0", "f.mlp0"},
    {"f.send_recv", "f.combine0"},
    {"f.post_process", "f.combine0"},
    {"b.combine0", "b.post_process.bwd"},
    {"b.mlp0.bwd", "b.combine0"},
    {"b.mlp0.dw", "b.mlp0.bwd"},
    {"b.dispatch0", "b.mlp0.bwd"},
    {"b.pre0.bwd", "b.dispatch0"},
    {"b.pre0.dw", "b.pre0.bwd"},
    {"b.send_recv", "b.pre0.bwd"},
    {"b.pre_process.bwd", "b.pre0.bwd"},
};

static bool stands_right(const mimo_nodes *nodes)
{
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (numbered(nodes, needed[i][0]) < numbered(nodes, needed[i][1]))
            return false;
    return true;
}

/* Each node is put at each other place: the check says what the table says. */
Test(nodes, any_node_elsewhere)
{
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_ROUTED, NULL);
    int64_t count = nodes->stages[0].count, right = 0, wrong = 0;
    for (int64_t from = 0; from < count; from++)
        for (int64_t to = 0; to < count; to++) {
            move_node(nodes, 0, from, to);
            bool stands = stands_right(nodes);
            *(stands ? &right : &wrong) += 1;
            cr_assert_eq(mimo_nodes_check(nodes) == MIMO_OK, stands, "%ld to %ld: %s", (long)from,
                         (long)to, mimo_last_error());
            move_node(nodes, 0, to, from);
        }
    cr_assert(right > 60 && wrong > 60, "%ld and %ld", (long)right, (long)wrong);
    mimo_nodes_destroy(nodes);
}

static void breaks(mimo_nodes *nodes, const char *words)
{
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT, words);
    mimo_nodes_destroy(nodes);
}

static mimo_nodes *moved(mimo_nodes *nodes, const char *name, const char *before)
{
    move_node(nodes, 0, numbered(nodes, name), numbered(nodes, before));
    return nodes;
}

Test(nodes, after_its_inputs)
{
    mimo_nodes_desc sync = MIMO_NODES_DESC_INIT;
    sync.grad_sync = true;
    breaks(moved(step_of_layers(1, 2, MIMO_LAYER_MIXTURE, NULL), "b.mlp1.dw", "b.mlp1.bwd"),
           "schedule: b.mlp1.dw before b.mlp1.bwd (node 4)");
    breaks(moved(step_of_layers(1, 1, MIMO_LAYER_MIXTURE, &sync), "b.grad_sync", "b.pre0.dw"),
           "schedule: b.grad_sync before ");
    breaks(
        moved(again(MIMO_LAYER_MIXTURE, MIMO_RECOMPUTE_KEEP_ROWS), "b.mlp0.bwd", "b.mlp0.replay"),
        "schedule: b.mlp0.bwd before b.mlp0.replay (node 5)");
    breaks(moved(again(MIMO_LAYER_MIXTURE, MIMO_RECOMPUTE_SEND_ROWS), "b.dispatch0.replay",
                 "b.pre0.replay"),
           "schedule: b.dispatch0.replay before b.pre0.replay (node 3)");
    breaks(moved(step_of_layers(1, 1, MIMO_LAYER_SHARED, NULL), "f.behind0", "f.combine0"),
           "schedule: f.behind0 before f.combine0 (node 12)");
    breaks(moved(step_of_layers(1, 1, MIMO_LAYER_SHARED, NULL), "f.behind0", "f.shared0"),
           "schedule: f.behind0 before f.shared0 (node 10)");
    breaks(moved(step_of_layers(1, 1, MIMO_LAYER_SHARED, NULL), "b.pre0.bwd", "b.shared0.bwd"),
           "schedule: b.pre0.bwd before b.shared0.bwd (node 4)");
}

/* What was given up is made again once. */
static void replays_once(mimo_node_recompute way)
{
    mimo_nodes *nodes = again(MIMO_LAYER_MIXTURE, way);
    int64_t at = numbered(nodes, "b.mlp0.replay");
    SUCCEEDS(mimo_nodes_append(&nodes->stages[0], nodes->stages[0].nodes[at]));
    breaks(nodes, "schedule: b.mlp0.replay at nodes ");
    nodes = again(MIMO_LAYER_MIXTURE, way);
    move_node(nodes, 0, at, nodes->stages[0].count - 1);
    nodes->stages[0].count--;
    breaks(nodes, "schedule: stage 0 has no b.mlp0.replay (FB1.0/0.1)");
}

Test(nodes, replayed_once)
{
    replays_once(MIMO_RECOMPUTE_KEEP_ROWS);
    replays_once(MIMO_RECOMPUTE_SEND_ROWS);
}

static mimo_nodes *changed(mimo_nodes *nodes, int64_t i, mimo_node node)
{
    nodes->stages[0].nodes[i] = node;
    return nodes;
}

Test(nodes, each_node_once)
{
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    const mimo_node *own = nodes->stages[0].nodes;
    const mimo_node pre = own[3], mlp = own[4];
    mimo_node other = pre;
    breaks(changed(nodes, 4, pre), "schedule: f.pre0 at nodes 3 and 4 (node 4)");
    nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    nodes->stages[0].count--;
    breaks(nodes, "schedule: stage 0 has no b.pre_process.bwd (FB1.0/0.1)");
    other.part = MIMO_NODE_SHARED;
    nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    SUCCEEDS(mimo_nodes_append(&nodes->stages[0], other));
    breaks(nodes, "schedule: f.shared0 (node 16), which the step does not have");
    other = mlp;
    other.layer = 1;
    breaks(changed(step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL), 4, other),
           "schedule: node 4 of stage 0 is part 4, pass 2 of step 0, micro-batch 0, chunk 1, layer "
           "1: there is no such");
    nodes = again(MIMO_LAYER_MIXTURE, MIMO_RECOMPUTE_NONE);
    other = mlp;
    other.pass = MIMO_NODE_REPLAY;
    SUCCEEDS(mimo_nodes_append(&nodes->stages[0], other));
    breaks(nodes, "schedule: b.mlp0.replay (node 16), which the step does not have");
}

static void refuses(const mimo_node_chunk *forward, const mimo_node_chunk *back,
                    const mimo_nodes_desc *desc, mimo_status status, const char *words)
{
    mimo_nodes *nodes = NULL;
    FAILS(mimo_nodes_create_step(&nodes, forward, back, desc), status, words);
    cr_assert_null(nodes);
}

Test(nodes, refusals)
{
    bed_chunk bed, dense;
    mimo_nodes *nodes = NULL;
    const mimo_node_chunk *mixture = filled(&bed, 2, MIMO_LAYER_MIXTURE);
    FAILS(mimo_nodes_create_step(&nodes, NULL, NULL, NULL), MIMO_ERR_ARGUMENT, "both chunks are");
    FAILS(mimo_nodes_create_step(NULL, mixture, NULL, NULL), MIMO_ERR_ARGUMENT, "out is");
    FAILS(mimo_nodes_create(&nodes, NULL, mixture, NULL), MIMO_ERR_ARGUMENT, "schedule is NULL");
    filled(&dense, 2, MIMO_LAYER_DENSE);
    refuses(&dense.chunk, &dense.chunk, NULL, MIMO_ERR_ARGUMENT,
            "schedule: a forward beside a backward, and no layer has an exchange to hide");
    bed.chunk.mtp = 2;
    refuses(mixture, NULL, NULL, MIMO_ERR_UNSUPPORTED,
            "schedule: multi-token prediction of depth 2 (chunk 0): orders of nodes know depth 1");
    bed.chunk.mtp = -1;
    refuses(mixture, NULL, NULL, MIMO_ERR_ARGUMENT, "schedule: chunk 0 has mtp -1");
    bed.chunk.mtp = 1;
    bed.chunk.count = 0;
    refuses(mixture, NULL, NULL, MIMO_ERR_ARGUMENT,
            "schedule: chunk 0 has multi-token prediction, and no layer for it");
    bed.chunk.count = -1;
    refuses(mixture, NULL, NULL, MIMO_ERR_ARGUMENT, "schedule: chunk 0 has -1 layers");
    bed.chunk = (mimo_node_chunk){NULL, 1, 0, 0};
    refuses(mixture, NULL, NULL, MIMO_ERR_ARGUMENT,
            "schedule: chunk 0 has 1 layers, which are NULL");
}

Test(nodes, refusals_of_layers)
{
    static const uint32_t wrong[] = {0,
                                     1u << MIMO_NODE_DISPATCH,
                                     MIMO_LAYER_MIXTURE & ~(1u << MIMO_NODE_PRE),
                                     MIMO_LAYER_MIXTURE & ~(1u << MIMO_NODE_COMBINE),
                                     MIMO_LAYER_MIXTURE | 1u << MIMO_NODE_SHARED,
                                     MIMO_LAYER_DENSE | 1u << MIMO_NODE_BEHIND,
                                     MIMO_LAYER_DENSE | 1u << MIMO_NODE_ROUTE,
                                     MIMO_LAYER_MIXTURE | 1u << MIMO_NODE_POST};
    bed_chunk bed;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refuses(filled(&bed, 1, wrong[i]), NULL, NULL, MIMO_ERR_ARGUMENT,
                "schedule: layer 0 of chunk 0 has the parts ");
    filled(&bed, 2, MIMO_LAYER_MIXTURE);
    bed.layers[1].recompute = (mimo_node_recompute)4;
    refuses(NULL, &bed.chunk, NULL, MIMO_ERR_ARGUMENT,
            "schedule: layer 1 of chunk 1 recomputes in a way 4");
}

Test(nodes, refusals_of_numbers)
{
    bed_chunk bed;
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    const mimo_node_chunk *chunk = filled(&bed, 1, MIMO_LAYER_MIXTURE);
    desc.costs = &costs;
    costs.of[MIMO_NODE_MLP][MIMO_NODE_WEIGHTS] = -2;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT, "schedule: the cost of b.mlp0.dw is -2");
    costs.of[MIMO_NODE_MLP][MIMO_NODE_WEIGHTS] = INT64_MAX / 4;
    refuses(chunk, NULL, &desc, MIMO_ERR_OVERFLOW, "");
    costs.of[MIMO_NODE_MLP][MIMO_NODE_WEIGHTS] = -2;
    desc.costs = NULL;
    bed.layers[0].costs = &costs;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT, "schedule: the cost of b.mlp0.dw is -2");
    bed.layers[0].costs = NULL;
    desc.lanes[MIMO_NODE_LANE_HOPS] = 0;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT, "schedule: the lane hops has 0 multiprocessors");
    desc.lanes[MIMO_NODE_LANE_HOPS] = 8;
    desc.lanes[MIMO_NODE_LANE_COMPUTE] = -1;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT,
            "schedule: the lane compute has -1 multiprocessors, and must have from 0 to 4096");
    desc.lanes[MIMO_NODE_LANE_COMPUTE] = 0;
    desc.multiprocessors = -1;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT, "schedule: -1 multiprocessors");
    desc.multiprocessors = 0;
    desc.encoder_pieces = -1;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT,
            "schedule: an encoder in -1 pieces, and there may be 1024");
    desc.size = 12;
    refuses(chunk, NULL, &desc, MIMO_ERR_ARGUMENT, "mimo_nodes_desc");
}

Test(nodes, questions)
{
    int64_t waits[MIMO_NODE_LANES], count;
    mimo_node_time times[32];
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    cr_assert_null(mimo_nodes_of(&count, nodes, 1));
    cr_assert_eq(count, 0);
    FAILS(mimo_nodes_waits(waits, nodes, 1, 0), MIMO_ERR_ARGUMENT, "there is no stage 1 of 1");
    FAILS(mimo_nodes_waits(waits, nodes, 0, 16), MIMO_ERR_ARGUMENT, "there is no node 16 of 16");
    FAILS(mimo_nodes_waits(NULL, nodes, 0, 0), MIMO_ERR_ARGUMENT, "waits is NULL");
    FAILS(mimo_nodes_times(times, nodes, -1), MIMO_ERR_ARGUMENT, "there is no stage -1 of 1");
    FAILS(mimo_nodes_times(times, NULL, 0), MIMO_ERR_ARGUMENT, "nodes is NULL");
    FAILS(mimo_nodes_check(NULL), MIMO_ERR_ARGUMENT, "nodes is NULL");
    FAILS(mimo_nodes_print(NULL, nodes, MIMO_SCHEDULE_TEXT), MIMO_ERR_ARGUMENT, "stream is NULL");
    FAILS(mimo_nodes_print(stderr, nodes, MIMO_SCHEDULE_CSV), MIMO_ERR_ARGUMENT,
          "format 1 has no nodes");
    FAILS(mimo_nodes_report_of(NULL, nodes), MIMO_ERR_ARGUMENT, "out is NULL");
    FILE *full = fopen("/dev/full", "w");
    FAILS(mimo_nodes_print(full, nodes, MIMO_SCHEDULE_TEXT), MIMO_ERR_IO, "takes no more");
    fclose(full);
    mimo_nodes_destroy(nodes);
    mimo_nodes_destroy(NULL);
}

/* ------------------------------------------- runs -------------------------------------------- */

static char *text_of_run(const mimo_nodes *nodes, mimo_schedule_format format,
                         const mimo_nodes_run *run)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    SUCCEEDS(mimo_nodes_print_run(stream, nodes, format, run));
    fclose(stream);
    return text;
}

/* A run in which every node took what it was planned to has the events of the plan. Then a combine
 * goes on for 2 behind the last product. */
Test(nodes, run_as_planned)
{
    mimo_node_time times[32];
    const mimo_node_time *stages[] = {times};
    mimo_nodes_run run = MIMO_NODES_RUN_INIT;
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    SUCCEEDS(mimo_nodes_times(times, nodes, 0));
    run.times = stages;
    char *plan = nodes_text_of(nodes, MIMO_SCHEDULE_TRACE);
    char *ran = text_of_run(nodes, MIMO_SCHEDULE_TRACE, &run);
    cr_assert_str_eq(ran, plan);
    free(plan);
    free(ran);
    run.unit = "us";
    times[numbered(nodes, "f.combine0")].end += 6; /* 15 to 23, products to 21 */
    ran = text_of_run(nodes, MIMO_SCHEDULE_SVG, &run);
    cr_assert(strstr(ran, "one step: ran in 23 us<"), "%s", ran);
    cr_assert(strstr(ran, "exchanges are on their way for 14 us, 85.7% of it beside products"),
              "%s", ran);
    cr_assert(strstr(ran, "f.pre0 of 1, 0 to 3 us<"), "%s", ran);
    free(ran);
    mimo_nodes_destroy(nodes);
}

Test(nodes, runs_that_cannot_be)
{
    mimo_node_time times[32];
    const mimo_node_time *stages[] = {times};
    mimo_nodes_run run = MIMO_NODES_RUN_INIT;
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    SUCCEEDS(mimo_nodes_times(times, nodes, 0));
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "mimo_nodes_print_run: times is NULL");
    run.times = stages;
    FAILS(mimo_nodes_print_run(NULL, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "stream is NULL");
    FAILS(mimo_nodes_print_run(stdout, NULL, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "nodes is NULL");
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_SVG, NULL), MIMO_ERR_ARGUMENT,
          "run is NULL");
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_TEXT, &run), MIMO_ERR_ARGUMENT,
          "mimo_nodes_print_run: format 0 has no times");
    run.unit = "m/s";
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "mimo_nodes_print_run: unit 'm/s' is not 1 to 15 letters");
    run.unit = NULL;
    FILE *full = fopen("/dev/full", "w");
    FAILS(mimo_nodes_print_run(full, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_IO, "takes no more");
    fclose(full);
    times[3].begin = times[3].end + 1;
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "mimo_nodes_print_run: f.pre0 from 4 to 3 (node 3)");
    times[3].begin = -1;
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_TRACE, &run), MIMO_ERR_ARGUMENT,
          "f.pre0 from -1 to 3");
    run.size = 5;
    FAILS(mimo_nodes_print_run(stdout, nodes, MIMO_SCHEDULE_SVG, &run), MIMO_ERR_ARGUMENT,
          "mimo_nodes_run: the descriptor's size is 5");
    mimo_nodes_destroy(nodes);
}

/* An executor needs an event for each of these, and no other. */
Test(nodes, waits)
{
    int64_t waits[MIMO_NODE_LANES];
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_ROUTED, NULL);
    static const struct {
        const char *node, *input;
        mimo_node_lane lane;
    } edges[] = {{"f.route0", "f.pre0", MIMO_NODE_LANE_COMPUTE},
                 {"f.dispatch0", "f.pre0", MIMO_NODE_LANE_COMPUTE},
                 {"f.mlp0", "f.dispatch0", MIMO_NODE_LANE_EXCHANGES},
                 {"b.mlp0.bwd", "b.combine0", MIMO_NODE_LANE_EXCHANGES},
                 {"b.dispatch0", "b.mlp0.bwd", MIMO_NODE_LANE_COMPUTE},
                 {"f.send_recv", "f.combine0", MIMO_NODE_LANE_EXCHANGES},
                 {"b.send_recv", "b.pre0.bwd", MIMO_NODE_LANE_COMPUTE}};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        SUCCEEDS(mimo_nodes_waits(waits, nodes, 0, numbered(nodes, edges[i].node)));
        for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
            cr_assert_eq(waits[lane],
                         lane == (int)edges[i].lane ? numbered(nodes, edges[i].input) : -1,
                         "%s waits for %ld in lane %d", edges[i].node, (long)waits[lane], lane);
    }
    mimo_nodes_destroy(nodes);
}
