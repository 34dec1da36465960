/* Tables of steps, and the encoder's steps between whatever is accepted. Input: stages, chunks,
 * micro-batches, group and limit (a byte each), a byte of flags, the table. */
#include <inttypes.h>

#include <mimo/schedule.h>

#include "fuzz_input.h"

static char *text_of(const mimo_schedule *schedule, mimo_schedule_format format)
{
    int64_t length;
    FUZZ_EXPECT(mimo_schedule_text(&length, NULL, 0, schedule, format) == MIMO_OK, "no length");
    char *text = calloc((size_t)length + 1, 1);
    FUZZ_EXPECT(text, "out of memory");
    FUZZ_EXPECT(mimo_schedule_text(NULL, text, length + 1, schedule, format) == MIMO_OK, "no text");
    return text;
}

/* What a schedule prints as a table is a table of the same schedule. */
static void print_and_read(const mimo_schedule *schedule, const mimo_schedule_desc *desc)
{
    mimo_schedule *again = NULL;
    char *table = text_of(schedule, MIMO_SCHEDULE_CSV);
    FUZZ_EXPECT(mimo_schedule_create_csv(&again, desc, table) == MIMO_OK, "refused: %s", table);
    FUZZ_EXPECT(mimo_schedule_hash(again) == mimo_schedule_hash(schedule), "another: %s", table);
    mimo_schedule_destroy(again);
    free(table);
}

/* No schedule is faster than the steps of its busiest stage, and L bounds what a stage holds. */
static void sum_up(const mimo_schedule *schedule, const mimo_schedule_desc *desc)
{
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    FUZZ_EXPECT(mimo_schedule_report_of(&report, schedule, NULL) == MIMO_OK, "no report");
    FUZZ_EXPECT(report.time >= report.lower_bound && report.idle >= 0, "time %" PRId64,
                report.time);
    FUZZ_EXPECT(desc->encoder_alive == 0 ||
                    report.encoder_alive <= desc->encoder_alive * desc->encoder_group,
                "%" PRId64 " alive", report.encoder_alive);
}

/* Whatever order of steps is accepted has an order of nodes, which proves itself. Exchanges take
 * time at most as if nothing hid them. */
static void cut(const mimo_schedule *schedule, const mimo_schedule_desc *desc)
{
    enum { MOST_CHUNKS = 9 * 4 };
    static const mimo_node_layer layer = {.parts = MIMO_LAYER_SHARED};
    mimo_node_chunk chunks[MOST_CHUNKS];
    mimo_nodes *nodes = NULL;
    mimo_nodes_report report = MIMO_NODES_REPORT_INIT;
    for (int64_t n = 0; n < desc->stages * desc->chunks; n++)
        chunks[n] = (mimo_node_chunk){&layer, 1, 0, 0};
    FUZZ_EXPECT(mimo_nodes_create(&nodes, schedule, chunks, NULL) == MIMO_OK, "%s",
                mimo_last_error());
    FUZZ_EXPECT(mimo_nodes_check(nodes) == MIMO_OK, "its own check refuses it");
    FUZZ_EXPECT(mimo_nodes_report_of(&report, nodes) == MIMO_OK, "no report of nodes");
    FUZZ_EXPECT(report.local <= report.time && report.time <= report.serial, "nodes take %" PRId64,
                report.time);
    mimo_nodes_destroy(nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    mimo_schedule *schedule = NULL;
    mimo_schedule_desc desc = MIMO_SCHEDULE_DESC_INIT;
    desc.stages = fuzz_number(&input, 0, 9);
    desc.chunks = fuzz_number(&input, 0, 4);
    desc.micro_batches = fuzz_number(&input, 0, 30);
    desc.encoder_group = fuzz_number(&input, 0, 9);
    desc.encoder_alive = fuzz_number(&input, 0, 9);
    uint8_t flags = fuzz_byte(&input);
    desc.kind = flags & 1 ? MIMO_SCHEDULE_FORWARD : MIMO_SCHEDULE_1F1B;
    desc.encoder_frozen = flags & 2;
    char *table = calloc(input.size + 1, 1);
    FUZZ_EXPECT(table, "out of memory");
    memcpy(table, input.data, input.size);
    if (mimo_schedule_create_csv(&schedule, &desc, table) == MIMO_OK) {
        FUZZ_EXPECT(mimo_schedule_check(schedule) == MIMO_OK, "its own check refuses it");
        print_and_read(schedule, &desc);
        sum_up(schedule, &desc);
        cut(schedule, &desc);
        free(text_of(schedule, MIMO_SCHEDULE_SVG));
        free(text_of(schedule, MIMO_SCHEDULE_TRACE));
    } else {
        FUZZ_EXPECT(!schedule && *mimo_last_error(), "a failure without a sentence");
    }
    mimo_schedule_destroy(schedule);
    free(table);
    return 0;
}
