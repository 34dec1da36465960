/* Nodes of whole schedules: all stages, hops, the encoder, lanes and their multiprocessors. */
#include <stdio.h>

#include "core/hash.h"
#include "core/memory.h"
#include "cases_ran.h"
#include "expect_failure.h"
#include "node_bed.h"

enum { MOST_CHUNKS = 16 };

/* Chunks of a model with equal layers. */
typedef struct model {
    bed_chunk beds[MOST_CHUNKS];
    mimo_node_chunk chunks[MOST_CHUNKS];
} model;

static mimo_node_chunk *model_of(model *out, int64_t chunks, int64_t layers, uint32_t parts)
{
    for (int64_t n = 0; n < chunks; n++)
        out->chunks[n] = *filled(&out->beds[n], layers, parts);
    return out->chunks;
}

static mimo_nodes *cut(mimo_schedule_desc sizes, const mimo_node_chunk *chunks,
                       const mimo_nodes_desc *desc)
{
    mimo_schedule *schedule = made(sizes);
    mimo_nodes *nodes = NULL;
    SUCCEEDS(mimo_nodes_create(&nodes, schedule, chunks, desc));
    mimo_schedule_destroy(schedule); /* nothing is borrowed */
    return nodes;
}

static mimo_schedule_desc paired(mimo_schedule_desc desc)
{
    desc.overlap = true;
    return desc;
}

static mimo_nodes *of_1f1b(int64_t pp, int64_t micro_batches, const mimo_nodes_desc *desc)
{
    model all;
    return cut(paired(desc_of(MIMO_SCHEDULE_1F1B, pp, micro_batches)),
               model_of(&all, pp, 1, MIMO_LAYER_MIXTURE), desc);
}

Test(node_schedules, text)
{
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    desc.grad_sync = true;
    mimo_nodes *nodes = of_1f1b(1, 2, &desc);
    char *text = nodes_text_of(nodes, MIMO_SCHEDULE_TEXT);
    cr_assert_str_eq(text,
                     "stage 0, F0: f.pre_process f.pre0 f.dispatch0 f.mlp0 f.combine0 f.send_recv "
                     "f.post_process\n"
                     "stage 0, FB1/0: f.pre_process b.post_process.bwd b.combine0 f.pre0 "
                     "b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 f.combine0 b.pre0.bwd "
                     "f.send_recv b.send_recv b.pre0.dw f.post_process b.pre_process.bwd\n"
                     "stage 0, B1: b.post_process.bwd b.combine0 b.mlp0.bwd b.mlp0.dw b.dispatch0 "
                     "b.pre0.bwd b.send_recv b.pre0.dw b.pre_process.bwd b.grad_sync\n");
    free(text);
    mimo_nodes_destroy(nodes);
}

/* A table whose backwards come in another order: gradients are whole behind the last of these. */
Test(node_schedules, backwards_in_another_order)
{
    model all;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    mimo_schedule_desc sizes = desc_of(MIMO_SCHEDULE_1F1B, 1, 2);
    mimo_schedule *schedule = NULL;
    mimo_nodes *nodes = NULL;
    sizes.any_order = desc.grad_sync = true;
    SUCCEEDS(mimo_schedule_create_csv(&schedule, &sizes, "0F0,0F1,0B1,0B0\n"));
    SUCCEEDS(mimo_nodes_create(&nodes, schedule, model_of(&all, 1, 1, MIMO_LAYER_MIXTURE), &desc));
    cr_assert_eq(place_of(nodes, 0, "b.grad_sync", 0), nodes->stages[0].count - 1);
    mimo_nodes_destroy(nodes);
    mimo_schedule_destroy(schedule);
}

Test(node_schedules, text_of_other_steps)
{
    model all;
    mimo_nodes *nodes = cut(with_encoder(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 1, 1), 1, 0),
                            model_of(&all, 1, 1, MIMO_LAYER_DENSE), NULL);
    char *text = nodes_text_of(nodes, MIMO_SCHEDULE_TEXT);
    cr_assert_str_eq(text, "stage 0, E0: f.encoder\n"
                           "stage 0, BF0: f.call\n"
                           "stage 0, F0: f.pre_process f.pre0 f.mlp0 f.send_recv f.post_process\n"
                           "stage 0, I0: b.post_process.bwd b.mlp0.bwd b.pre0.bwd b.send_recv "
                           "b.pre_process.bwd\n"
                           "stage 0, BB0: b.call\n"
                           "stage 0, EB0: b.encoder.bwd\n"
                           "stage 0, W0: b.mlp0.dw b.pre0.dw\n");
    free(text);
    mimo_nodes_destroy(nodes);
}

/* ------------------------------------------- encoder ----------------------------------------- */

/* Exchanges of 5, which leave a stage idle, and an encoder of 4 and 8 for each micro-batch. */
static mimo_nodes *with_pieces(int64_t pp, int64_t micro_batches, int64_t alive, int64_t pieces)
{
    model all;
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    for (int pass = 0; pass < MIMO_NODE_PASSES; pass++)
        costs.of[MIMO_NODE_DISPATCH][pass] = costs.of[MIMO_NODE_COMBINE][pass] = 5;
    costs.of[MIMO_NODE_ENCODER][MIMO_NODE_FORWARD] = 4;
    costs.of[MIMO_NODE_ENCODER][MIMO_NODE_INPUTS] = 8;
    desc.costs = &costs;
    desc.encoder_pieces = pieces;
    return cut(with_encoder(paired(desc_of(MIMO_SCHEDULE_1F1B, pp, micro_batches)), 1, alive),
               model_of(&all, pp, 1, MIMO_LAYER_MIXTURE), &desc);
}

/* Pieces of the next group stand behind f.dispatch0 and f.combine0 of a forward that nothing else
 * hides, those of a backward where b.combine0 is exposed; two groups are alive at most. */
Test(node_schedules, encoder_fills_what_stays_exposed)
{
    mimo_nodes *nodes = with_pieces(1, 3, 2, 2);
    char *text = nodes_text_of(nodes, MIMO_SCHEDULE_TEXT);
    cr_assert_str_eq(text, "stage 0, BF0: f.encoder1 f.encoder2 f.call\n"
                           "stage 0, F0: f.pre_process f.pre0 f.dispatch0 f.encoder1 "
                           "f.encoder2 f.mlp0 f.combine0 f.send_recv f.post_process\n"
                           "stage 0, BF1: f.call\n"
                           "stage 0, FB1/0: f.pre_process b.post_process.bwd b.combine0 "
                           "f.pre0 b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 "
                           "f.combine0 b.pre0.bwd f.send_recv b.send_recv b.pre0.dw "
                           "f.post_process b.pre_process.bwd\n"
                           "stage 0, BB0: b.call\n"
                           "stage 0, BF2: b.encoder2.bwd b.encoder1.bwd f.encoder1 "
                           "f.encoder2 f.call\n"
                           "stage 0, FB2/1: f.pre_process b.post_process.bwd b.combine0 "
                           "f.pre0 b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 f.mlp0 "
                           "f.combine0 b.pre0.bwd f.send_recv b.send_recv b.pre0.dw "
                           "f.post_process b.pre_process.bwd\n"
                           "stage 0, BB1: b.call\n"
                           "stage 0, B2: b.post_process.bwd b.combine0 b.encoder2.bwd "
                           "b.mlp0.bwd b.mlp0.dw b.dispatch0 b.pre0.bwd b.send_recv "
                           "b.pre0.dw b.pre_process.bwd\n"
                           "stage 0, BB2: b.call\n"
                           "stage 0, EB2: b.encoder1.bwd b.encoder2.bwd b.encoder1.bwd\n");
    free(text);
    cr_assert_eq(nodes_report_of(nodes).time, 111);
    mimo_nodes_destroy(nodes);
    nodes = with_pieces(1, 3, 2, 0);
    cr_assert_eq(nodes_report_of(nodes).time, 119);
    mimo_nodes_destroy(nodes);
}

/* One stage waits for nobody else: most of the encoder is hidden. More stages hide it anyway. */
Test(node_schedules, encoder_in_pieces_takes_less_time)
{
    static const int64_t times[][3] = {{1, 294, 266}, {2, 386, 380}, {4, 464, 463}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        for (int64_t pieces = 0; pieces <= 4; pieces += 4) {
            mimo_nodes *nodes = with_pieces(times[i][0], 8, 8, pieces);
            int64_t time = nodes_report_of(nodes).time;
            cr_assert_eq(time, times[i][1 + pieces / 4], "pp %ld, %ld pieces: %ld",
                         (long)times[i][0], (long)pieces, (long)time);
            mimo_nodes_destroy(nodes);
        }
}

static void moves_wrongly(const char *name, int64_t group, const char *before, const char *words)
{
    mimo_nodes *nodes = with_pieces(1, 3, 2, 2);
    int64_t from = place_of(nodes, 0, name, group), to = place_of(nodes, 0, before, group);
    int64_t step = nodes->stages[0].nodes[to].step;
    nodes->stages[0].nodes[from].step = step;
    move_node(nodes, 0, from, to);
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT, words);
    mimo_nodes_destroy(nodes);
}

Test(node_schedules, pieces_follow_each_other)
{
    mimo_nodes *nodes = with_pieces(1, 3, 2, 2);
    moves_wrongly("f.encoder2", 1, "f.encoder1",
                  "schedule: f.encoder2 before f.encoder1 (stage 0, ");
    moves_wrongly("b.encoder1.bwd", 2, "b.encoder2.bwd",
                  "schedule: b.encoder1.bwd before b.encoder2.bwd (stage 0, ");
    moves_wrongly("b.encoder2.bwd", 0, "f.encoder2", "schedule: b.encoder2.bwd before ");
    nodes->schedule->limit = 1;
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT,
          "schedule: stage 0 holds 2 encoder groups at f.encoder1, and may hold 1 (stage 0, F0, ");
    nodes->schedule->limit = 2;
    nodes->stages[0].count--;
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT,
          "schedule: stage 0 has no b.encoder1.bwd (EB2)");
    mimo_nodes_destroy(nodes);
}

/* -------------------------------------------- times ------------------------------------------ */

/* Layers that take as long as the steps of a schedule, with nothing to move: the nodes take as long
 * as its steps, whose times the schedule's own walk finds. */
static void same_as_steps(mimo_schedule_desc sizes, int64_t hop)
{
    model all;
    mimo_step_costs steps = MIMO_STEP_COSTS_INIT;
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    bool split = sizes.kind == MIMO_SCHEDULE_ZERO_BUBBLE;
    steps.hop = hop;
    sizes.costs = &steps;
    for (int pass = 0; pass < MIMO_NODE_PASSES; pass++)
        costs.of[MIMO_NODE_PRE][pass] = 4;
    costs.of[MIMO_NODE_PRE][MIMO_NODE_INPUTS] = split ? 4 : 8;
    costs.of[MIMO_NODE_PRE][MIMO_NODE_WEIGHTS] = split ? 4 : 0;
    costs.of[MIMO_NODE_SEND_RECV][MIMO_NODE_FORWARD] = hop;
    costs.of[MIMO_NODE_SEND_RECV][MIMO_NODE_INPUTS] = hop;
    desc.costs = &costs;
    mimo_schedule *schedule = made(sizes);
    mimo_nodes *nodes =
        cut(sizes, model_of(&all, sizes.stages * sizes.chunks, 1, 1u << MIMO_NODE_PRE), &desc);
    int64_t expected = report_of(schedule, NULL).time, time = nodes_report_of(nodes).time;
    cr_assert_eq(time, expected, "kind %d, pp %ld, M %ld, G %ld: %ld, not %ld", (int)sizes.kind,
                 (long)sizes.stages, (long)sizes.micro_batches, (long)sizes.encoder_group,
                 (long)time, (long)expected);
    mimo_nodes_destroy(nodes);
    mimo_schedule_destroy(schedule);
}

Test(node_schedules, take_as_long_as_steps)
{
    static const mimo_schedule_kind kinds[] = {MIMO_SCHEDULE_1F1B, MIMO_SCHEDULE_ZERO_BUBBLE,
                                               MIMO_SCHEDULE_INTERLEAVED, MIMO_SCHEDULE_FORWARD};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int64_t pp = 1; pp <= 4; pp++)
            for (int64_t m = 1; m <= 8; m++)
                for (int64_t group = 0; group <= 2 && group <= m; group++) {
                    bool interleaved = kinds[k] == MIMO_SCHEDULE_INTERLEAVED;
                    mimo_schedule_desc desc = with_encoder(desc_of(kinds[k], pp, m), group, 0);
                    if (!interleaved || m % pp == 0)
                        same_as_steps(with_chunks(desc, interleaved ? 2 : 1), m % 2);
                }
}

/* Exchanges beside another micro-batch's products: shorter than one behind the other, never shorter
 * than without them. */
static void bounds(mimo_schedule_desc sizes, const mimo_node_chunk *chunks, uint64_t seed)
{
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    desc.early = seed & 1;
    desc.grad_sync = seed & 2;
    mimo_nodes *whole = cut(sizes, chunks, &desc);
    desc.encoder_pieces = (int64_t)(seed >> 4) % 5;
    mimo_nodes *nodes = cut(sizes, chunks, &desc);
    mimo_nodes_report report = nodes_report_of(nodes);
    cr_assert_leq(report.time, nodes_report_of(whole).time);
    mimo_nodes_destroy(whole);
    cr_assert(report.local <= report.time && report.time <= report.serial,
              "%ld without exchanges, %ld, %ld in a row", (long)report.local, (long)report.time,
              (long)report.serial);
    cr_assert(report.hidden >= 0 && report.hidden <= 1000);
    mimo_nodes_destroy(nodes);
}

Test(node_schedules, sweep)
{
    static const uint32_t kinds[] = {MIMO_LAYER_DENSE,  MIMO_LAYER_MIXTURE,  MIMO_LAYER_SHARED,
                                     MIMO_LAYER_ROUTED, 1u << MIMO_NODE_PRE, 1u << MIMO_NODE_MLP};
    int64_t ran = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        uint64_t random = mimo_mix64(seed + 1);
        int64_t pp = 1 + (int64_t)(random % 4), chunks = 1 + (int64_t)(random >> 8) % 2;
        int64_t m = pp * (1 + (int64_t)(random >> 16) % 3);
        mimo_schedule_desc sizes =
            desc_of(chunks > 1 ? MIMO_SCHEDULE_INTERLEAVED : MIMO_SCHEDULE_1F1B, pp, m);
        model all;
        model_of(&all, pp * chunks, 0, 0);
        for (int64_t n = 0; n < pp * chunks; n++) {
            all.chunks[n].count = (int64_t)(mimo_mix64(random + (uint64_t)n) % 4);
            for (int64_t i = 0; i < all.chunks[n].count; i++) {
                uint64_t layer = mimo_mix64(random + (uint64_t)(100 * n + i));
                all.beds[n].layers[i].parts = kinds[layer % 6];
                all.beds[n].layers[i].recompute = (mimo_node_recompute)((layer >> 8) % 4);
            }
            all.chunks[n].layers = all.beds[n].layers;
        }
        all.beds[0].layers[0].parts = MIMO_LAYER_MIXTURE;
        all.chunks[0].count = all.chunks[0].count > 0 ? all.chunks[0].count : 1;
        all.chunks[pp * chunks - 1].mtp = all.chunks[pp * chunks - 1].count > 0 && seed & 4;
        sizes = with_encoder(with_chunks(sizes, chunks), (int64_t)(random >> 24) % 3 % (m + 1), 0);
        bounds(paired(sizes), all.chunks, random);
        ran++;
    }
    cr_assert_eq(ran, 400);
}

/* ------------------------------------------- budgets ----------------------------------------- */

static mimo_nodes_desc device_of(int64_t multiprocessors, int64_t exchanges)
{
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    desc.multiprocessors = multiprocessors;
    desc.lanes[MIMO_NODE_LANE_EXCHANGES] = exchanges;
    return desc;
}

static mimo_status with_lanes(int64_t pp, bool encoder, const mimo_nodes_desc *desc, int64_t need)
{
    model all;
    mimo_nodes *nodes = NULL;
    mimo_schedule *schedule =
        made(with_encoder(paired(desc_of(MIMO_SCHEDULE_1F1B, pp, 4)), encoder ? 1 : 0, 0));
    mimo_status status =
        mimo_nodes_create(&nodes, schedule, model_of(&all, pp, 1, MIMO_LAYER_MIXTURE), desc);
    if (status == MIMO_OK)
        cr_assert_eq(nodes_report_of(nodes).lanes, need);
    mimo_nodes_destroy(nodes);
    mimo_schedule_destroy(schedule);
    return status;
}

/* An inner stage has two neighbours, and sends to and takes from both. */
Test(node_schedules, room_for_lanes)
{
    mimo_nodes_desc desc = device_of(132, 32);
    SUCCEEDS(with_lanes(1, false, &desc, 32));
    SUCCEEDS(with_lanes(2, false, &desc, 32 + 2 * 8));
    SUCCEEDS(with_lanes(3, true, &desc, 80));
    desc.grad_sync = true;
    SUCCEEDS(with_lanes(3, true, &desc, 96));
    desc.lanes[MIMO_NODE_LANE_COMPUTE] = 4; /* collectives over tp */
    SUCCEEDS(with_lanes(3, true, &desc, 100));
    desc = device_of(132, 80);
    SUCCEEDS(with_lanes(3, true, &desc, 128));
    desc = device_of(132, 96);
    FAILS(with_lanes(3, true, &desc, 0), MIMO_ERR_ARGUMENT,
          "schedule: lanes need 144 multiprocessors of 128 (stage 1; 4 of 132 stay free)");
    desc = device_of(0, 96);
    SUCCEEDS(with_lanes(3, true, &desc, 144));
}

/* f.pre beside b.combine gets 100 of 132, and takes 4 where it took 3; b.mlp.bwd has b.combine
 * before and f.dispatch beside it. */
Test(node_schedules, products_beside_moves)
{
    mimo_nodes_desc desc = device_of(132, 32);
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, &desc);
    static const struct {
        const char *name;
        int64_t micro_batch, begin, end, multiprocessors;
    } expected[] = {
        {"b.combine0", 0, 0, 2, 32},    {"f.pre0", 1, 0, 4, 100},
        {"b.mlp0.bwd", 0, 4, 10, 100},  {"f.dispatch0", 1, 4, 6, 32},
        {"b.mlp0.dw", 0, 10, 16, 100},  {"b.dispatch0", 0, 10, 12, 32},
        {"f.mlp0", 1, 16, 20, 132},     {"f.combine0", 1, 20, 22, 32},
        {"b.pre0.bwd", 0, 20, 24, 100}, {"b.pre0.dw", 0, 24, 27, 132},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        int64_t at = place_of(nodes, 0, expected[i].name, expected[i].micro_batch);
        const mimo_node_time *time = &nodes->stages[0].times[at];
        cr_assert(time->begin == expected[i].begin && time->end == expected[i].end &&
                      time->multiprocessors == expected[i].multiprocessors,
                  "%s: %ld to %ld with %ld", expected[i].name, (long)time->begin, (long)time->end,
                  (long)time->multiprocessors);
    }
    mimo_nodes_report report = nodes_report_of(nodes);
    cr_assert_eq(report.time, 27);
    cr_assert_eq(report.local, 21);
    cr_assert_eq(report.serial, 29);
    cr_assert_eq(report.hidden, 250);
    mimo_nodes_destroy(nodes);
}

/* What a node is sized for leaves room for every lane that moves beside it. */
static void check_rooms(const mimo_nodes *nodes, int64_t stage)
{
    const mimo_stage_nodes *list = &nodes->stages[stage];
    for (int64_t i = 0; i < list->count; i++)
        for (int64_t k = 0; k < list->count; k++) {
            mimo_node_lane lane = mimo_node_lane_of(list->nodes[k].part);
            const mimo_node_time *own = &list->times[i], *other = &list->times[k];
            if (mimo_node_lane_of(list->nodes[i].part) != MIMO_NODE_LANE_COMPUTE ||
                (lane != MIMO_NODE_LANE_EXCHANGES && lane != MIMO_NODE_LANE_HOPS))
                continue;
            if (own->begin < other->end && other->begin < own->end && other->begin < other->end &&
                own->begin < own->end)
                cr_assert_leq(own->multiprocessors, 132 - other->multiprocessors);
        }
}

Test(node_schedules, every_move_has_room)
{
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = device_of(132, 16);
    costs.of[MIMO_NODE_SEND_RECV][MIMO_NODE_FORWARD] = 1;
    costs.of[MIMO_NODE_SEND_RECV][MIMO_NODE_INPUTS] = 1;
    desc.costs = &costs;
    mimo_nodes *nodes = of_1f1b(3, 6, &desc);
    for (int64_t p = 0; p < 3; p++)
        check_rooms(nodes, p);
    mimo_nodes_destroy(nodes);
}

/* -------------------------------------------- rules ------------------------------------------ */

static mimo_status with_ends(const uint32_t has[4], const int64_t mtp[4])
{
    model all;
    mimo_nodes *nodes = NULL;
    mimo_schedule *schedule = made(paired(desc_of(MIMO_SCHEDULE_1F1B, 4, 4)));
    model_of(&all, 4, 1, MIMO_LAYER_MIXTURE);
    for (int n = 0; n < 4; n++) {
        all.chunks[n].has = has[n];
        all.chunks[n].mtp = mtp[n];
    }
    mimo_status status = mimo_nodes_create(&nodes, schedule, all.chunks, NULL);
    mimo_nodes_destroy(nodes);
    mimo_schedule_destroy(schedule);
    return status;
}

Test(node_schedules, ends_of_the_model)
{
    static const int64_t none[4] = {0};
    enum { E = MIMO_CHUNK_EMBEDDING, N = MIMO_CHUNK_FINAL_NORM, H = MIMO_CHUNK_HEAD };
    SUCCEEDS(with_ends((const uint32_t[]){E, 0, 0, N | H}, none));
    FAILS(with_ends((const uint32_t[]){E, N, 0, N | H}, none), MIMO_ERR_ARGUMENT,
          "schedule: final norm in chunks 1 and 3");
    FAILS(with_ends((const uint32_t[]){E, N, 0, H}, none), MIMO_ERR_ARGUMENT,
          "schedule: final norm in chunk 1, and it belongs to chunk 3");
    FAILS(with_ends((const uint32_t[]){E, 0, 0, N}, none), MIMO_ERR_ARGUMENT,
          "schedule: no chunk has the head");
    FAILS(with_ends((const uint32_t[]){0, E, 0, N | H}, none), MIMO_ERR_ARGUMENT,
          "schedule: embedding in chunk 1, and it belongs to chunk 0");
    FAILS(with_ends((const uint32_t[]){0, 0, 0, 0}, (const int64_t[]){0, 1, 0, 1}),
          MIMO_ERR_ARGUMENT, "schedule: multi-token prediction in chunks 1 and 3");
    FAILS(with_ends((const uint32_t[]){0, 0, 0, 0}, (const int64_t[]){1, 0, 0, 0}),
          MIMO_ERR_ARGUMENT,
          "schedule: multi-token prediction in chunk 0, and it belongs to chunk 3");
}

/* The last chunk has the final norm also where it has no layer. */
Test(node_schedules, last_chunk_without_layers)
{
    model all;
    model_of(&all, 2, 1, MIMO_LAYER_MIXTURE);
    all.chunks[1].count = 0;
    mimo_nodes *nodes = cut(paired(desc_of(MIMO_SCHEDULE_1F1B, 2, 4)), all.chunks, NULL);
    cr_assert_eq(nodes->chunks[1].has, MIMO_CHUNK_FINAL_NORM | MIMO_CHUNK_HEAD);
    mimo_nodes_destroy(nodes);
}

Test(node_schedules, nodes_stay_in_their_step)
{
    mimo_nodes *nodes = of_1f1b(2, 4, NULL);
    move_node(nodes, 1, 7, 6);
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT,
          "schedule: f.post_process of step 0 behind a node of step 1 (stage 1, F0, node 7)");
    move_node(nodes, 1, 6, 7);
    nodes->stages[1].nodes[6].step = 1;
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT,
          "schedule: f.post_process belongs to step 0 (stage 1, FB1/0, node 6)");
    mimo_nodes_destroy(nodes);
}

Test(node_schedules, whole_schedules_say_where)
{
    mimo_nodes *nodes = of_1f1b(2, 4, NULL);
    move_node(nodes, 0, place_of(nodes, 0, "b.mlp0.dw", 0), place_of(nodes, 0, "b.mlp0.bwd", 0));
    FAILS(mimo_nodes_check(nodes), MIMO_ERR_ARGUMENT,
          "schedule: b.mlp0.dw before b.mlp0.bwd (stage 0, FB2/0, node 18)");
    mimo_nodes_destroy(nodes);
}

/* A schedule that nobody checked: stage 0 wants a gradient before it gives what stage 1 wants. */
Test(node_schedules, stages_that_wait_for_ever)
{
    static const char *const lists[] = {"F0 B0 F1 B1", "F0 F1 B0 B1"};
    model all;
    mimo_nodes *nodes = NULL;
    mimo_schedule *schedule = written_out(desc_of(MIMO_SCHEDULE_1F1B, 2, 2), lists);
    FAILS(mimo_nodes_create(&nodes, schedule, model_of(&all, 2, 1, MIMO_LAYER_MIXTURE), NULL),
          MIMO_ERR_ARGUMENT,
          "schedule: stuck: stage 0 waits at b.post_process.bwd (stage 0, B0, node 7)");
    mimo_schedule_destroy(schedule);
}

/* -------------------------------------------- hash ------------------------------------------- */

static uint64_t hash_with(const mimo_nodes_desc *desc, int64_t pp, uint32_t parts)
{
    model all;
    mimo_nodes *nodes =
        cut(paired(desc_of(MIMO_SCHEDULE_1F1B, pp, 4)), model_of(&all, pp, 1, parts), desc);
    uint64_t hash = mimo_nodes_hash(nodes);
    mimo_nodes_destroy(nodes);
    return hash;
}

/* The number is what ranks of other builds have. */
Test(node_schedules, hash)
{
    mimo_node_costs costs = MIMO_NODE_COSTS_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    uint64_t hash = hash_with(NULL, 2, MIMO_LAYER_MIXTURE);
    cr_assert_eq(hash, UINT64_C(0xe33d1d2a3567af8b), "%#lx", (unsigned long)hash);
    costs.of[MIMO_NODE_MLP][MIMO_NODE_FORWARD] = 9;
    desc.costs = &costs;
    cr_assert_eq(hash_with(&desc, 2, MIMO_LAYER_MIXTURE), hash);
    cr_assert_neq(hash_with(&desc, 2, MIMO_LAYER_SHARED), hash);
    cr_assert_neq(hash_with(&desc, 3, MIMO_LAYER_MIXTURE), hash);
    desc.early = true;
    cr_assert_neq(hash_with(&desc, 2, MIMO_LAYER_MIXTURE), hash);
    desc.early = false;
    desc.lanes[MIMO_NODE_LANE_EXCHANGES]++;
    cr_assert_neq(hash_with(&desc, 2, MIMO_LAYER_MIXTURE), hash);
}
