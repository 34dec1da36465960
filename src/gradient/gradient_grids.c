/* The grids of a gradient object: those of the two modules, and those that were added. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/calls.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "gradient/gradient_state.h"

int mimo_gradient_find_grid(const mimo_gradient *gradient, const char *name)
{
    for (int i = 0; i < gradient->grid_count; i++)
        if (strcmp(gradient->grids[i].name, name) == 0)
            return i;
    return -1;
}

/* A set that holds for all buckets of a grid. Unlike a bucket it names only what the grid has: a
 * mistyped name would change all of them. */
static mimo_status read_set(mimo_dim_set *out, const mimo_grid *grid, const char *name,
                            const char *dims, const char *what)
{
    *out = 0;
    if (*dims && mimo_dim_set_read(out, grid, dims) != MIMO_OK)
        return mimo_fail_prefix(MIMO_ERR_GRID, "gradient grid '%s', %s: ", name, what);
    for (int i = 0; i < grid->ndims; i++)
        MIMO_CHECK(!(*out & grid->bits[i]) || !grid->copies[i], MIMO_ERR_GRID,
                   "gradient grid '%s', %s: ranks along '%s' hold copies, as the grid says", name,
                   what, grid->dims[i].name);
    return MIMO_OK;
}

/* No dimension is in both, also where its size is 1. */
static mimo_status check_disjoint(const mimo_gradient_grid *added)
{
    for (int i = 0; i < added->grid->ndims; i++) {
        const char *dim = added->grid->dims[i].name;
        MIMO_CHECK(!mimo_dim_set_has(added->data, dim) || !mimo_dim_set_has(added->shard, dim),
                   MIMO_ERR_GRID, "gradient grid '%s': '%s' is in both data and shard", added->name,
                   dim);
    }
    return MIMO_OK;
}

static mimo_status check_added(const mimo_gradient *gradient, const mimo_gradient_grid *added)
{
    mimo_dim_set set;
    MIMO_CHECK(added->name && added->grid, MIMO_ERR_ARGUMENT, "mimo_gradient_add_grid: %s is NULL",
               added->name ? "grid" : "name");
    MIMO_CHECK(*added->name, MIMO_ERR_GRID, "a grid of a gradient object has an empty name");
    MIMO_CHECK(mimo_gradient_find_grid(gradient, added->name) < 0, MIMO_ERR_EXISTS,
               "the gradient object has a grid '%s' already", added->name);
    MIMO_TRY(mimo_grid_check_world(added->grid, gradient->comm->size));
    MIMO_TRY(read_set(&set, added->grid, added->name, added->data, "data"));
    MIMO_TRY(read_set(&set, added->grid, added->name, added->shard, "shard"));
    return check_disjoint(added);
}

/* Make the copies that the object owns, and room for them. *own is released after an error. */
static mimo_status prepare_added(mimo_gradient_grid *own, mimo_gradient *gradient,
                                 const mimo_gradient_grid *added)
{
    char *text;
    MIMO_TRY(check_added(gradient, added));
    own->grid = added->grid;
    MIMO_TRY(mimo_copy_string(&text, added->name));
    own->name = text;
    MIMO_TRY(mimo_copy_string(&text, added->data));
    own->data = text;
    MIMO_TRY(mimo_copy_string(&text, added->shard));
    own->shard = text;
    return mimo_regrow(&gradient->grids, gradient->grid_count, gradient->grid_count + 1,
                       sizeof *gradient->grids);
}

static void release_texts(mimo_gradient_grid *own)
{
    mimo_release((char *)own->name);
    mimo_release((char *)own->data);
    mimo_release((char *)own->shard);
}

static mimo_status agree_on_added(mimo_comm *comm, mimo_status local,
                                  const mimo_gradient_grid *added)
{
    char text[MIMO_CALL_TEXT] = "gradient add grid", grid[MIMO_GRID_TEXT];
    uint64_t hash = mimo_signature_start(MIMO_CALL_GRADIENT_ADD_GRID);
    if (local == MIMO_OK) {
        hash = mimo_grid_hash(hash, added->grid);
        hash = mimo_hash_bytes(hash, added->name, strlen(added->name) + 1);
        hash = mimo_hash_bytes(hash, added->data, strlen(added->data) + 1);
        hash = mimo_hash_bytes(hash, added->shard, strlen(added->shard) + 1);
        snprintf(text, sizeof text, "gradient add grid '%s' data '%s' shard '%s' %s", added->name,
                 added->data, added->shard, mimo_grid_text(grid, sizeof grid, added->grid));
    }
    return mimo_agree_as(comm, MIMO_AGREE_CREATE, local, hash, text);
}

mimo_status mimo_gradient_add_grid(mimo_gradient *gradient, const char *name, const mimo_grid *grid,
                                   const char *data, const char *shard)
{
    MIMO_RANGE();
    const mimo_gradient_grid added = {grid, name, data ? data : "", shard ? shard : ""};
    mimo_gradient_grid own = {0};
    MIMO_CHECK(gradient, MIMO_ERR_ARGUMENT, "mimo_gradient_add_grid: gradient is NULL");
    MIMO_ENTER(gradient->comm, "mimo_gradient_add_grid");
    mimo_status status = prepare_added(&own, gradient, &added);
    status = agree_on_added(gradient->comm, status, &added);
    if (status != MIMO_OK) {
        release_texts(&own);
        return status;
    }
    if (MIMO_MUTATED("no-edp-sum"))
        ((char *)own.data)[0] = '\0';
    gradient->grids[gradient->grid_count++] = own;
    mimo_grids_retain(grid, grid, MIMO_GRID_GRADIENT);
    return MIMO_OK;
}

void mimo_gradient_release_grids(mimo_gradient *gradient)
{
    for (int i = MIMO_DST + 1; i < gradient->grid_count; i++) {
        mimo_gradient_grid *own = &gradient->grids[i];
        mimo_grids_release(own->grid, own->grid, MIMO_GRID_GRADIENT);
        release_texts(own);
    }
    mimo_grids_release(gradient->grids[MIMO_SRC].grid, gradient->grids[MIMO_DST].grid,
                       MIMO_GRID_GRADIENT);
    mimo_release(gradient->grids);
}
