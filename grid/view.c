/* Views: further factorisations of a grid's ranks. */
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "grid/dim_set.h"

/*
 * Claim: dimensions of one name in both grids give the same groups in both, alone and in every set
 * of such dimensions, where each has the same size and, above size 1, the same stride.
 *
 * Why, for one dimension: with size 1 every group is one rank, whatever the stride. Otherwise the
 * first group is
 *   offset + j * stride, 0 <= j < size
 * so equal groups need equal size and stride. And these make the coordinate the same function of
 * the rank in both grids:
 *   (rank - offset) / stride mod size
 *
 * Why, for a set: the group of a rank is what changing its coordinates in the set reaches, j *
 * stride for each. These are the same ranks in both grids. Inside a group the faster dimension
 * comes first. Above size 1 the faster one has the smaller stride, so the order is the same in
 * both. Groups are listed by first rank.
 */
static mimo_status check_shared(const mimo_grid *base, const mimo_grid *view, const char *name)
{
    char base_text[MIMO_GRID_TEXT], view_text[MIMO_GRID_TEXT];
    for (int i = 0; i < view->ndims; i++) {
        int b = mimo_grid_find(base, view->dims[i].name);
        if (b < 0)
            continue;
        int64_t size = view->dims[i].size, base_size = base->dims[b].size;
        int64_t stride = view->strides[i], base_stride = base->strides[b];
        MIMO_CHECK(size == base_size && (size == 1 || stride == base_stride), MIMO_ERR_GRID,
                   "view '%s' (%s) and its base (%s) share dimension '%s' but not its groups: size "
                   "%" PRId64 " stride %" PRId64 " in the view, size %" PRId64 " stride %" PRId64
                   " in the base",
                   name, mimo_grid_text(view_text, sizeof view_text, view),
                   mimo_grid_text(base_text, sizeof base_text, base), view->dims[i].name, size,
                   stride, base_size, base_stride);
    }
    return MIMO_OK;
}

static mimo_status check_view(const mimo_grid *base, const mimo_grid *view, const char *name)
{
    char base_text[MIMO_GRID_TEXT], view_text[MIMO_GRID_TEXT];
    MIMO_CHECK(view->size == base->size, MIMO_ERR_GRID,
               "view '%s' (%s) has %" PRId64 " ranks and its base (%s) has %" PRId64, name,
               mimo_grid_text(view_text, sizeof view_text, view), view->size,
               mimo_grid_text(base_text, sizeof base_text, base), base->size);
    return check_shared(base, view, name);
}

static mimo_grid *find_view(const mimo_grid *base, const char *name)
{
    mimo_grid *view = base->next_view;
    while (view && strcmp(view->view_name, name) != 0)
        view = view->next_view;
    return view;
}

mimo_status mimo_grid_create_view(mimo_grid **out, mimo_grid *base, const char *name,
                                  const mimo_dim *dims, int ndims)
{
    MIMO_CHECK(out && base && name, MIMO_ERR_ARGUMENT, "mimo_grid_create_view: %s is NULL",
               !out ? "out" : (base ? "name" : "base"));
    MIMO_CHECK(*name, MIMO_ERR_GRID, "a view needs a name, and got an empty one");
    MIMO_CHECK(!base->base, MIMO_ERR_GRID,
               "view '%s' cannot be added to '%s', which is itself a view", name, base->view_name);
    MIMO_CHECK(!find_view(base, name), MIMO_ERR_EXISTS, "the grid has a view '%s' already", name);

    mimo_grid *view;
    mimo_status status;
    MIMO_TRY(mimo_grid_create(&view, dims, ndims, base->offset));
    MIMO_TRY_GOTO(status, fail, check_view(base, view, name));
    MIMO_TRY_GOTO(status, fail, mimo_copy_string(&view->view_name, name));
    view->base = base;
    view->next_view = base->next_view;
    base->next_view = view;
    *out = view;
    return MIMO_OK;
fail:
    mimo_grid_release_value(view);
    return status;
}

mimo_status mimo_grid_view(mimo_grid **out, mimo_grid *base, const char *name)
{
    MIMO_CHECK(out && base && name, MIMO_ERR_ARGUMENT, "mimo_grid_view: %s is NULL",
               !out ? "out" : (base ? "name" : "base"));
    mimo_grid *view = find_view(base, name);
    MIMO_CHECK(view, MIMO_ERR_NOT_FOUND, "the grid has no view '%s'", name);
    *out = view;
    return MIMO_OK;
}

const mimo_grid *mimo_grid_owner(const mimo_grid *grid, const char *dims)
{
    if (!grid->base)
        return grid;
    for (int i = 0; i < grid->ndims; i++) {
        const char *name = grid->dims[i].name;
        if (mimo_dim_set_has(dims, name) && mimo_grid_find(grid->base, name) < 0)
            return grid;
    }
    return grid->base;
}
