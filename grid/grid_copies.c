/* What dimensions mean: tp, cp, pp and dp have a meaning of their own, and the caller may say of
 * others that ranks along them hold copies. */
#include "core/checked.h"
#include "grid/dim_set.h"

bool mimo_dim_is_known(const char *name)
{
    return mimo_dim_set_has(MIMO_KNOWN_DIMS, name);
}

mimo_status mimo_grid_check_meaning(const mimo_grid *grid, const char *what)
{
    char text[MIMO_GRID_TEXT];
    for (int i = 0; i < grid->ndims; i++) {
        const mimo_dim *dim = &grid->dims[i];
        MIMO_CHECK(dim->size == 1 || mimo_dim_is_known(dim->name) || grid->copies[i], MIMO_ERR_GRID,
                   "%s grid %s has %s = %" PRId64 ", which is none of tp, cp, pp and dp: give it "
                   "the name of what it does, or say that ranks along it hold copies "
                   "(mimo_grid_set_copies, or %s=%" PRId64 ":copies)",
                   what, mimo_grid_text(text, sizeof text, grid), dim->name, dim->size, dim->name,
                   dim->size);
    }
    return MIMO_OK;
}

static mimo_status check_mark(const mimo_grid *grid, int i)
{
    MIMO_CHECK(!mimo_dim_is_known(grid->dims[i].name), MIMO_ERR_GRID,
               "dimension '%s' of a grid can't be said to mean copies: tp, cp, pp and dp have "
               "meanings of their own",
               grid->dims[i].name);
    return MIMO_OK;
}

mimo_status mimo_grid_mark_copies(mimo_grid *grid, int i)
{
    MIMO_TRY(check_mark(grid, i));
    grid->copies[i] = true;
    return MIMO_OK;
}

/* Objects that use a grid, and ranks that compared it, keep what it meant then. */
static mimo_status check_unused(const mimo_grid *grid)
{
    char text[MIMO_GRID_TEXT];
    const mimo_grid *base = mimo_grid_base(grid);
    int users = 0;
    for (int user = 0; user < MIMO_GRID_USERS; user++)
        users += __atomic_load_n(&base->users[user], __ATOMIC_RELAXED);
    MIMO_CHECK(!base->comm && users == 0, MIMO_ERR_STATE,
               "mimo_grid_set_copies: grid %s is %s (bridges and gradient objects: %d), and what "
               "its dimensions mean is fixed",
               mimo_grid_text(text, sizeof text, grid), base->comm ? "connected" : "in use", users);
    return MIMO_OK;
}

mimo_status mimo_grid_set_copies(mimo_grid *grid, const char *dims)
{
    MIMO_CHECK(grid && dims, MIMO_ERR_ARGUMENT, "mimo_grid_set_copies: %s is NULL",
               grid ? "dims" : "grid");
    mimo_dim_set set;
    MIMO_TRY(check_unused(grid));
    if (*dims)
        MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    for (int i = 0; i < grid->ndims; i++)
        if (mimo_dim_set_has(dims, grid->dims[i].name))
            MIMO_TRY(check_mark(grid, i));
    for (int i = 0; i < grid->ndims; i++)
        grid->copies[i] = mimo_dim_set_has(dims, grid->dims[i].name);
    return MIMO_OK;
}
