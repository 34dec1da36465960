/* Messages and pushes of a phase, made on one of two ranks without any communication. */
#include "bridge/routed/routed_messages.h"
#include "comm/buffer_state.h"
#include "expect_failure.h"

/* Two ranks with a sample each. Both read both samples. */
static mimo_plan *plan_of_rank_0(void)
{
    mimo_grid *grid[2];
    mimo_layout *layout[2];
    mimo_plan *plan;
    for (int side = 0; side < 2; side++) {
        mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
        SUCCEEDS(mimo_grid_create_text(&grid[side], side == 0 ? "dp=2" : "tp=2", 0));
        desc.grid = grid[side];
        desc.batch = 2;
        desc.seq = 1;
        SUCCEEDS(mimo_layout_create(&layout[side], &desc));
    }
    SUCCEEDS(mimo_plan_create(&plan, layout[0], layout[1], 0));
    for (int side = 0; side < 2; side++) {
        mimo_layout_destroy(layout[side]);
        mimo_grid_destroy(grid[side]);
    }
    return plan;
}

/* A tensor in a buffer that no other rank reaches is sent. A tensor in another buffer is pushed in
 * the same phase. Only this buffer has flags that the ranks share. */
Test(messages, flags_of_a_buffer_within_reach)
{
    char here[2][64], there[64];
    char *alone[] = {here[0], NULL}, *shared[] = {here[1], there};
    mimo_comm comm = {.rank = 0, .size = 2};
    mimo_buffer near = {.comm = &comm, .bytes = 64, .data = alone};
    mimo_buffer wide = {.comm = &comm, .bytes = 64, .data = shared};
    mimo_plan *plan = plan_of_rank_0();
    char from[8];
    const mimo_transfer list[] = {
        {.plan = plan, .from = {0, 0}, .to = {1, 0}, .buffer = &near, .row_bytes = 8, .bytes = 16},
        {.plan = plan, .from = {0, 0}, .to = {2, 8}, .buffer = &wide, .row_bytes = 8, .bytes = 16}};
    char *const bases[] = {from, here[0], here[1] + 16};
    mimo_message_maker maker = {0};
    SUCCEEDS(mimo_messages_make(&maker, &(mimo_transfers){list, 2}));
    cr_assert(maker.made.send_count == 1 && maker.made.sends[0].count == 1);
    cr_assert(maker.made.receive_count == 1 && maker.made.receives[0].count == 1);
    cr_assert(maker.made.pushes.count == 1 && maker.made.pushes.pusher_count == 1);
    /* 24 bytes behind the beginning of this rank's part, so 24 behind that of the peer's */
    cr_assert_eq(mimo_rows_at(&maker.made.pushes.list[0].rows[0].to, bases).base, there + 24);
    cr_assert_eq(maker.made.pushes.buffer, &wide, "the flags are out of the peer's reach");
    mimo_messages_release(&maker);
    mimo_plan_destroy(plan);
}
