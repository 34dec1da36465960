/* Structs that begin with their size: initial values for other languages, older and newer callers;
 * texts that a caller's memory takes; log lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <mimo/mimo.h>

#include "core/descriptor.h"
#include "core/logging.h"
#include "expect_failure.h"

/* The function writes what the macro says, of a shorter struct its first bytes, and never more. */
#define SAME(type, ...)                                                               \
    do {                                                                              \
        type given[2], expected = __VA_ARGS__;                                        \
        memset(given, 0x5a, sizeof given);                                            \
        type##_init(given, sizeof given[0]);                                          \
        cr_assert_arr_eq(given, &expected, sizeof expected, "%s", #type);             \
        cr_assert_eq(((unsigned char *)&given[1])[0], 0x5a, "%s: too much", #type);   \
        type##_init(given, sizeof(size_t));                                           \
        cr_assert_eq(given[0].size, sizeof(size_t), "%s: the size of a part", #type); \
        type##_init(given, sizeof given);                                             \
        cr_assert_eq(given[0].size, sizeof expected, "%s: of a newer caller", #type); \
    } while (0)

/* Padding is not compared: a struct with padding is set to zeros first. */
#define SAME_FIELD(type, field, ...)                                 \
    do {                                                             \
        type given, expected = __VA_ARGS__;                          \
        memset(&given, 0x5a, sizeof given);                          \
        type##_init(&given, sizeof given);                           \
        cr_assert_eq(given.field, expected.field, #type "." #field); \
        cr_assert_eq(given.size, sizeof given, #type ".size");       \
    } while (0)

Test(descriptors, initial_values)
{
    SAME(mimo_comm_desc, MIMO_COMM_DESC_INIT);
    SAME(mimo_survivors_desc, MIMO_SURVIVORS_DESC_INIT);
    SAME(mimo_verdict, MIMO_VERDICT_INIT);
    SAME(mimo_bootstrap, MIMO_BOOTSTRAP_INIT);
    SAME(mimo_partition_coords, MIMO_PARTITION_COORDS_INIT);
    SAME_FIELD(mimo_pairing, fan, MIMO_PAIRING_INIT);
    SAME_FIELD(mimo_bridge_desc, batch, MIMO_BRIDGE_DESC_INIT);
    SAME_FIELD(mimo_bridge_sizes, dtype, MIMO_BRIDGE_SIZES_INIT);
    SAME_FIELD(mimo_batch_desc, batch, MIMO_BATCH_DESC_INIT);
    SAME_FIELD(mimo_move_desc, chunks, MIMO_MOVE_DESC_INIT);
    SAME_FIELD(mimo_layout_desc, cp_copies, MIMO_LAYOUT_DESC_INIT);
    SAME_FIELD(mimo_alignment_desc, memory, MIMO_ALIGNMENT_DESC_INIT);
    SAME_FIELD(mimo_partition_rule, format, MIMO_PARTITION_RULE_INIT);
    SAME_FIELD(mimo_dispatch_desc, alignment, MIMO_DISPATCH_DESC_INIT);
    SAME(mimo_dispatch_counts, MIMO_DISPATCH_COUNTS_INIT);
    SAME(mimo_route_counts, MIMO_ROUTE_COUNTS_INIT);
    SAME_FIELD(mimo_route_desc, memory, MIMO_ROUTE_DESC_INIT);
    SAME(mimo_routing, MIMO_ROUTING_INIT);
    SAME(mimo_step_costs, MIMO_STEP_COSTS_INIT);
    SAME_FIELD(mimo_schedule_desc, stages, MIMO_SCHEDULE_DESC_INIT);
    SAME_FIELD(mimo_balance_desc, slack_permille, MIMO_BALANCE_DESC_INIT);
    SAME(mimo_batch_items, MIMO_BATCH_ITEMS_INIT);
    SAME(mimo_balance_report, MIMO_BALANCE_REPORT_INIT);
    SAME(mimo_schedule_memory, MIMO_SCHEDULE_MEMORY_INIT);
    SAME(mimo_schedule_report, MIMO_SCHEDULE_REPORT_INIT);
    mimo_gradient_bucket bucket;
    mimo_gradient_bucket_init(&bucket, sizeof bucket);
    cr_assert(bucket.size == sizeof bucket && *bucket.shard == '\0' && *bucket.partial == '\0');
}

typedef struct first_version {
    size_t size;
    int64_t a;
} first_version;

typedef struct second_version {
    size_t size;
    int64_t a, b;
} second_version;

Test(descriptors, that_are_filled)
{
    const second_version own = {sizeof own, 1, 2};
    first_version old[2] = {{sizeof old[0], -1}, {77, 77}};
    SUCCEEDS(mimo_write_descriptor(old, &own, sizeof own, "it"));
    cr_assert(old[0].size == sizeof old[0] && old[0].a == 1 && old[1].size == 77);

    const first_version less = {sizeof less, 5};
    second_version newer = {sizeof newer, -1, -2};
    SUCCEEDS(mimo_write_descriptor(&newer, &less, sizeof less, "it"));
    cr_assert(newer.size == sizeof newer && newer.a == 5 && newer.b == -2);

    newer.size = 0;
    FAILS(mimo_write_descriptor(&newer, &own, sizeof own, "it"), MIMO_ERR_ARGUMENT,
          "it: the size of the struct to fill is 0", "_INIT");
    newer.size = sizeof newer - 4;
    FAILS(mimo_write_descriptor(&newer, &own, sizeof own, "it"), MIMO_ERR_ARGUMENT,
          "it: the descriptor's size is 20, which is no multiple of 8", "_INIT");
    cr_assert(newer.a == 5 && newer.b == -2, "written by a refused call");
}

/* Half of a pointer would be taken, and the other half would be the default's. */
Test(descriptors, that_end_inside_a_field)
{
    mimo_grid *grid;
    mimo_layout *layout;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    SUCCEEDS(mimo_grid_create_text(&grid, "dp=2", 0));
    desc.grid = grid;
    desc.size = offsetof(mimo_layout_desc, grid) + sizeof(void *) / 2;
    FAILS(mimo_layout_create(&layout, &desc), MIMO_ERR_ARGUMENT,
          "layout: the descriptor's size is 12, which is no multiple of 8", "_INIT");
    mimo_grid_destroy(grid);
}

/* The whole text, a part of it, its length alone, and no memory at all. */
Test(descriptors, texts)
{
    char whole[512], part[10];
    int64_t length = -1, again = -1;
    mimo_grid *grid;
    mimo_layout *layout;
    mimo_plan *plan;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    SUCCEEDS(mimo_grid_create_text(&grid, "dp=2", 0));
    desc.grid = grid;
    desc.batch = desc.seq = 2;
    SUCCEEDS(mimo_layout_create(&layout, &desc));
    SUCCEEDS(mimo_plan_create(&plan, layout, layout, 1));
    SUCCEEDS(mimo_plan_text(&length, whole, sizeof whole, plan));
    cr_assert_eq(length, (int64_t)strlen(whole));
    cr_assert(strncmp(whole, "rank 1 classes 1", 16) == 0, "%s", whole);
    SUCCEEDS(mimo_plan_text(&again, part, sizeof part, plan));
    cr_assert(again == length && strlen(part) == 9 && strncmp(part, whole, 9) == 0, "%s", part);
    SUCCEEDS(mimo_plan_text(&again, NULL, 0, plan));
    cr_assert_eq(again, length);
    SUCCEEDS(mimo_plan_text(NULL, whole, sizeof whole, plan));
    FAILS(mimo_plan_text(&length, NULL, 4, plan), MIMO_ERR_ARGUMENT, "text of 4 bytes at");
    FAILS(mimo_plan_text(&length, whole, -1, plan), MIMO_ERR_ARGUMENT, "text of -1 bytes at");
    FAILS(mimo_plan_text(&again, whole, 8, NULL), MIMO_ERR_ARGUMENT, "plan is NULL");
    mimo_plan_destroy(plan);
    mimo_layout_destroy(layout);
    mimo_grid_destroy(grid);
}

static void keep(void *context, mimo_log_level level, const char *text)
{
    snprintf(context, 64, "%d %s", (int)level, text);
}

Test(descriptors, log_lines)
{
    char line[64] = "";
    mimo_log(MIMO_LOG_INFO, "to nobody");
    mimo_log_set(keep, line);
    mimo_log(MIMO_LOG_WARNING, "%d ranks", 3);
    cr_assert_str_eq(line, "1 3 ranks");
    mimo_log_set(NULL, NULL);
    mimo_log(MIMO_LOG_WARNING, "to nobody");
    cr_assert_str_eq(line, "1 3 ranks");
}

/* What a warning, an info line and a warning that nobody asks for leave on stderr under this
 * MIMO_LOG. */
static void log_both(char *text, int size, const char *levels)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    cr_assert(file && before >= 0);
    levels ? setenv("MIMO_LOG", levels, 1) : unsetenv("MIMO_LOG");
    dup2(fileno(file), STDERR_FILENO);
    mimo_log(MIMO_LOG_WARNING, "rank %d is late", 3);
    mimo_log(MIMO_LOG_INFO, "p2p was chosen");
    mimo_log_unasked("%d is sent", 3);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    text[fread(text, 1, (size_t)size - 1, file)] = '\0';
    (void)fclose(file);
}

#define LATE "mimo-bridge: warning: rank 3 is late\n"
#define CHOSEN "mimo-bridge: p2p was chosen\n"
#define SENT "mimo-bridge: warning: 3 is sent\n"

Test(descriptors, log_lines_on_stderr)
{
    static const char *const rows[][2] = {{NULL, SENT},        {"", ""},
                                          {"warn", LATE SENT}, {"info", CHOSEN},
                                          {"no", ""},          {"warn,info", LATE CHOSEN SENT}};
    char text[256], line[64] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        log_both(text, sizeof text, rows[i][0]);
        cr_assert_str_eq(text, rows[i][1], "MIMO_LOG=%s wrote: %s", rows[i][0], text);
    }
    mimo_log_set(keep, line);
    log_both(text, sizeof text, "warn");
    cr_assert_str_eq(text, "", "beside the function: %s", text);
    mimo_log_set(NULL, NULL);
}
