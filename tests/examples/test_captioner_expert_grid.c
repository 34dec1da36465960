/* The captioner's view for experts: where an LLM has stages, each one shares its own. */
#include <string.h>

#include "train/model/expert_grid.h"
#include "expect_failure.h"

static mimo_grid *read(const char *spec)
{
    mimo_grid *grid;
    SUCCEEDS(mimo_grid_create_text(&grid, spec, 0));
    return grid;
}

/* The view, and the coords of rank 5 of 8. */
static void expect_view(const char *llm, const char *spec, const char *view,
                        nn_expert_coords coords)
{
    char text[64];
    mimo_grid *grid = read(llm);
    expert_grid experts = {0};
    SUCCEEDS(expert_grid_add(&experts, grid, spec, 5));
    cr_assert_str_eq(mimo_grid_text(text, sizeof text, experts.view), view);
    cr_assert_eq(experts.coords.etp_rank, coords.etp_rank, "%s: etp %d", view,
                 experts.coords.etp_rank);
    cr_assert_eq(experts.coords.etp_size, coords.etp_size);
    cr_assert_eq(experts.coords.ep_rank, coords.ep_rank, "%s: ep %d", view, experts.coords.ep_rank);
    cr_assert_eq(experts.coords.ep_size, coords.ep_size);
    mimo_grid_destroy(grid);
}

Test(expert_grid, views)
{
    expect_view("tp=2,cp=2,dp=2", "etp=2,ep=2", "etp=2,ep=2,edp=2", (nn_expert_coords){1, 2, 0, 2});
    expect_view("tp=2,dp=4,pp=1", "ep=4", "etp=1,ep=4,edp=2", (nn_expert_coords){0, 1, 1, 4});
    expect_view("tp=2,cp=1,dp=2,pp=2", "etp=2", "etp=2,ep=1,edp=2,pp=2",
                (nn_expert_coords){1, 2, 0, 1});
    expect_view("tp=2,cp=1,dp=2,pp=2", "ep=4", "etp=1,ep=4,pp=2,edp=1",
                (nn_expert_coords){0, 1, 1, 4});
    expect_view("pp=2,tp=2,dp=2", "etp=2,ep=2", "pp=2,etp=2,ep=2,edp=1",
                (nn_expert_coords){0, 2, 1, 2});
    expect_view("tp=2,pp=2,dp=2", "etp=2,ep=2", "etp=2,pp=2,ep=2,edp=1",
                (nn_expert_coords){1, 2, 1, 2});
    expect_view("dp=1,pp=8", "ep=1", "pp=8,etp=1,ep=1,edp=1", (nn_expert_coords){0, 1, 0, 1});
}

static void expect_refused(const char *llm, const char *spec, const char *sentence)
{
    mimo_grid *grid = read(llm);
    expert_grid experts = {0};
    cr_assert_neq(expert_grid_add(&experts, grid, spec, 0), MIMO_OK);
    cr_assert_not_null(strstr(mimo_last_error(), sentence), "%s", mimo_last_error());
    mimo_grid_destroy(grid);
}

Test(expert_grid, refusals)
{
    expect_refused("tp=2,dp=2,pp=2", "ep=8",
                   "--expert-grid ep=8: 8 ranks share experts, and the LLM's 4 of a stage leave a "
                   "rest");
    expect_refused("tp=2,dp=2", "ep=8",
                   "--expert-grid ep=8: 8 ranks share experts, and the LLM's 4 leave a rest");
    expect_refused("tp=2,pp=2,dp=2", "ep=4",
                   "--expert-grid ep=4: a stage of --llm tp=2,pp=2,dp=2 has 2 ranks in a row, and "
                   "etp and ep make groups of 1 and 4: give pp first or last");
    expect_refused("tp=2,pp=2,dp=2", "ep=2,pp=2", "--expert-grid ep=2,pp=2 names pp");
}
