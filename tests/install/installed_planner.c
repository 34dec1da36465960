/* A user's program that needs no MPI: how many rows all ranks receive, by their plans. */
#include <stdio.h>

#include <mimo/mimo.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", mimo_last_error());
    return 1;
}

int main(void)
{
    int64_t rows = 0;
    mimo_grid *encoder, *llm;
    mimo_layout *from, *to;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    if (mimo_grid_create_text(&encoder, "tp=2,dp=4", 0) ||
        mimo_grid_create_text(&llm, "tp=4,dp=2", 0))
        return fail();
    desc.batch = 8;
    desc.seq = 4;
    desc.grid = encoder;
    if (mimo_layout_create(&from, &desc))
        return fail();
    desc.grid = llm;
    if (mimo_layout_create(&to, &desc))
        return fail();
    for (int rank = 0; rank < 8; rank++) {
        mimo_plan *plan;
        if (mimo_plan_create(&plan, from, to, rank))
            return fail();
        rows += mimo_plan_rows(plan, MIMO_RECV);
        mimo_plan_destroy(plan);
    }
    printf("%lld rows are received\n", (long long)rows);
    mimo_layout_destroy(to);
    mimo_layout_destroy(from);
    mimo_grid_destroy(llm);
    mimo_grid_destroy(encoder);
    return rows == 8 * 8 ? 0 : 1;
}
