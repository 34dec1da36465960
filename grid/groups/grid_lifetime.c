/* The lifetime of a grid: its users, and its end. The last of its users and of the caller releases
 * it. */
#include "core/check.h"
#include "device/profile.h"
#include "grid/grid_types.h"

/* True where that was the last holder; then the grid and its views are released. */
static bool release_holder(mimo_grid *base)
{
    if (__atomic_sub_fetch(&base->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return false;
    while (base->next_view) {
        mimo_grid *view = base->next_view;
        base->next_view = view->next_view;
        mimo_grid_release_value(view);
    }
    mimo_grid_release_value(base);
    return true;
}

static void retain(const mimo_grid *base, mimo_grid_user user)
{
    mimo_grid *counted = (mimo_grid *)base;
    __atomic_add_fetch(&counted->users[user], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&counted->holders, 1, __ATOMIC_RELAXED);
}

static void release(const mimo_grid *base, mimo_grid_user user)
{
    mimo_grid *counted = (mimo_grid *)base;
    __atomic_sub_fetch(&counted->users[user], 1, __ATOMIC_RELAXED);
    (void)release_holder(counted);
}

void mimo_grids_retain(const mimo_grid *src, const mimo_grid *dst, mimo_grid_user user)
{
    retain(mimo_grid_base(src), user);
    if (mimo_grid_base(dst) != mimo_grid_base(src))
        retain(mimo_grid_base(dst), user);
}

void mimo_grids_release(const mimo_grid *src, const mimo_grid *dst, mimo_grid_user user)
{
    const mimo_grid *first = mimo_grid_base(src), *second = mimo_grid_base(dst);
    release(first, user);
    if (second != first)
        release(second, user);
}

void mimo_grid_destroy(mimo_grid *grid)
{
    MIMO_RANGE();
    char text[MIMO_GRID_TEXT];
    if (!grid || grid->base)
        return;
    int bridges = __atomic_load_n(&grid->users[MIMO_GRID_BRIDGE], __ATOMIC_RELAXED);
    int gradients = __atomic_load_n(&grid->users[MIMO_GRID_GRADIENT], __ATOMIC_RELAXED);
    mimo_grid_text(text, sizeof text, grid);
    mimo_grid_release_groups(grid);
    if (!release_holder(grid))
        mimo_fail(MIMO_ERR_STATE,
                  "grid %s was destroyed while bridges (%d) or gradient objects (%d) use it: the "
                  "last of them releases it",
                  text, bridges, gradients);
}
