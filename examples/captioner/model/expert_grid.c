#include "captioner/model/expert_grid.h"

#include <inttypes.h>
#include <string.h>

#include "captioner/support/captioner_support.h"

enum { DIMS = 3 };

static mimo_status check_dims(const mimo_grid *grid, const char *spec)
{
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        const char *name = mimo_grid_dim(grid, i).name;
        CHECK(strcmp(name, "etp") == 0 || strcmp(name, "ep") == 0, MIMO_ERR_GRID,
              "--expert-grid %s names %s: it has etp and ep, and edp is what they leave of the "
              "LLM's ranks",
              spec, name);
    }
    return MIMO_OK;
}

static mimo_status read_dims(mimo_dim dims[DIMS], const char *spec, int64_t ranks)
{
    mimo_grid *grid;
    TRY(mimo_grid_create_text(&grid, spec, 0));
    int64_t etp = mimo_grid_dim_size(grid, "etp"), ep = mimo_grid_dim_size(grid, "ep");
    mimo_status status = check_dims(grid, spec);
    mimo_grid_destroy(grid);
    TRY(status);
    CHECK(ranks % (etp * ep) == 0, MIMO_ERR_GRID,
          "--expert-grid %s: %" PRId64 " ranks share experts, and the LLM's %" PRId64
          " leave a rest",
          spec, etp * ep, ranks);
    dims[0] = (mimo_dim){"etp", etp};
    dims[1] = (mimo_dim){"ep", ep};
    dims[2] = (mimo_dim){"edp", ranks / (etp * ep)};
    return MIMO_OK;
}

static mimo_status find_place(nn_expert_place *out, const mimo_grid *view, int rank)
{
    int64_t etp, ep;
    TRY(mimo_grid_coord(&etp, view, rank, "etp"));
    TRY(mimo_grid_coord(&ep, view, rank, "ep"));
    *out = (nn_expert_place){(int)etp, (int)mimo_grid_dim_size(view, "etp"), (int)ep,
                             (int)mimo_grid_dim_size(view, "ep")};
    return MIMO_OK;
}

mimo_status expert_grid_add(expert_grid *out, mimo_grid *llm, const char *spec, int rank)
{
    mimo_dim dims[DIMS];
    CHECK(mimo_grid_dim_size(llm, "pp") == 1, MIMO_ERR_UNSUPPORTED,
          "--experts: an LLM with pp=%" PRId64 " has no mixtures of experts",
          mimo_grid_dim_size(llm, "pp"));
    TRY(read_dims(dims, spec, mimo_grid_size(llm)));
    TRY(mimo_grid_create_view(&out->view, llm, NN_EXPERT_GRID, dims, DIMS));
    return find_place(&out->place, out->view, rank);
}

mimo_status expert_grid_connect(const expert_grid *experts, mimo_gradient *gradient)
{
    if (!experts->view)
        return MIMO_OK;
    TRY(mimo_grid_create_group(experts->view, "etp,ep"));
    return mimo_gradient_add_grid(gradient, NN_EXPERT_GRID, experts->view, "edp", "ep");
}

mimo_status expert_grid_find_group(expert_grid *experts)
{
    return experts->view ? mimo_grid_group(&experts->group, experts->view, "etp,ep") : MIMO_OK;
}
