/* Every allocation fails in turn: the call says so, leaves its outputs alone and leaks nothing, and
 * the same call succeeds afterwards. */
#include "core/memory.h"
#include "expect_failure.h"
#include "node_bed.h"

typedef mimo_status action(mimo_schedule **schedule);

static mimo_schedule_desc beside_an_encoder(void)
{
    return with_encoder(with_chunks(desc_of(MIMO_SCHEDULE_INTERLEAVED, 2, 4), 2), 2, 0);
}

static mimo_status create(mimo_schedule **schedule)
{
    mimo_schedule_desc desc = beside_an_encoder();
    return mimo_schedule_create(schedule, &desc);
}

static mimo_status create_csv(mimo_schedule **schedule)
{
    mimo_schedule_desc desc = with_encoder(desc_of(MIMO_SCHEDULE_1F1B, 2, 1), 1, 0);
    return mimo_schedule_create_csv(schedule, &desc, "0F0,0B0\n1F0,1B0\n");
}

static mimo_status sum_up(mimo_schedule **schedule)
{
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    mimo_status status = mimo_schedule_report_of(&report, *schedule, NULL);
    cr_assert_eq(report.time > 0, status == MIMO_OK);
    return status;
}

static mimo_status count_memory(mimo_schedule **schedule)
{
    mimo_schedule_memory memory = MIMO_SCHEDULE_MEMORY_INIT;
    mimo_status status = mimo_schedule_memory_of(&memory, *schedule, 0);
    cr_assert_eq(memory.chunks_alive > 0, status == MIMO_OK);
    return status;
}

static mimo_status take_times(mimo_schedule **schedule)
{
    int64_t begin[64] = {-7}, end[64] = {-7};
    mimo_status status = mimo_schedule_times(begin, end, *schedule, 0, NULL);
    cr_assert_eq(end[0] != -7, status == MIMO_OK);
    return status;
}

static mimo_status draw(mimo_schedule **schedule)
{
    return mimo_schedule_text(NULL, NULL, 0, *schedule, MIMO_SCHEDULE_SVG);
}

static mimo_status trace(mimo_schedule **schedule)
{
    return mimo_schedule_text(NULL, NULL, 0, *schedule, MIMO_SCHEDULE_TRACE);
}

static mimo_status cut_steps(mimo_schedule **schedule)
{
    bed_chunk bed;
    const mimo_node_chunk *layers = filled(&bed, 1, MIMO_LAYER_MIXTURE);
    const mimo_node_chunk chunks[] = {*layers, *layers, *layers, *layers};
    mimo_nodes *nodes = NULL;
    mimo_status status = mimo_nodes_create(&nodes, *schedule, chunks, NULL);
    cr_assert_eq(nodes != NULL, status == MIMO_OK);
    mimo_nodes_destroy(nodes);
    return status;
}

static mimo_status cut_one_step(mimo_schedule **schedule)
{
    bed_chunk bed;
    const mimo_node_chunk *layers = filled(&bed, 1, MIMO_LAYER_MIXTURE);
    mimo_nodes *nodes = NULL;
    (void)schedule;
    mimo_status status = mimo_nodes_create_step(&nodes, layers, layers, NULL);
    cr_assert_eq(nodes != NULL, status == MIMO_OK);
    mimo_nodes_destroy(nodes);
    return status;
}

/* How many allocations were made to fail. */
static int fail_in_turn(action *act, mimo_schedule **schedule)
{
    const mimo_schedule *before = *schedule;
    int n = 0;
    for (;;) {
        mimo_fail_allocation(++n);
        mimo_status status = act(schedule);
        if (mimo_fail_allocation(0) != 0) { /* none was left to fail */
            SUCCEEDS(status);
            return n - 1;
        }
        cr_assert_eq(status, MIMO_ERR_MEMORY, "allocation %d", n);
        cr_assert_eq(*schedule, before);
    }
}

Test(schedule_memory, every_allocation_fails)
{
    mimo_schedule *schedule = NULL, *read = NULL;
    cr_assert(fail_in_turn(create, &schedule) > 20);
    cr_assert(fail_in_turn(create_csv, &read) > 20);
    action *const others[] = {sum_up, count_memory, take_times, draw, trace};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_assert(fail_in_turn(others[i], &schedule) > 0, "action %zu", i);
    cr_assert(fail_in_turn(cut_steps, &schedule) > 50);
    cr_assert(fail_in_turn(cut_one_step, &schedule) > 20);
    mimo_schedule_destroy(schedule);
    mimo_schedule_destroy(read);
}

/* What is asked of nodes fails as a whole, and leaves them as they are. */
static mimo_status sum_nodes_up(mimo_nodes *nodes)
{
    mimo_nodes_report report = MIMO_NODES_REPORT_INIT;
    mimo_status status = mimo_nodes_report_of(&report, nodes);
    cr_assert_eq(report.time > 0, status == MIMO_OK);
    return status;
}

static mimo_status draw_nodes(mimo_nodes *nodes)
{
    return mimo_nodes_text(NULL, NULL, 0, nodes, MIMO_SCHEDULE_SVG);
}

static mimo_status prove_nodes(mimo_nodes *nodes)
{
    return mimo_nodes_check(nodes);
}

Test(schedule_memory, every_allocation_of_nodes_fails)
{
    mimo_status (*const actions[])(mimo_nodes *) = {sum_nodes_up, draw_nodes, prove_nodes};
    mimo_nodes *nodes = step_of_layers(1, 1, MIMO_LAYER_MIXTURE, NULL);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        int64_t n = 0, left = 0;
        while (left == 0) {
            mimo_fail_allocation(++n);
            mimo_status status = actions[i](nodes);
            left = mimo_fail_allocation(0);
            cr_assert_eq(status, left == 0 ? MIMO_ERR_MEMORY : MIMO_OK, "action %zu, %ld", i,
                         (long)n);
        }
        cr_assert(n > 4, "action %zu", i);
    }
    mimo_nodes_destroy(nodes);
}
