#include "train/model/expert_grid.h"

#include <inttypes.h>
#include <string.h>

#include "train/support/train_support.h"

/* etp, ep and edp, and where there are stages pp among them. */
enum { EXPERT_DIMS = 3, MOST_DIMS = EXPERT_DIMS + 1, GRID_TEXT = 256 };

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

static mimo_status read_dims(mimo_dim dims[EXPERT_DIMS], const char *spec, const mimo_grid *llm)
{
    mimo_grid *grid;
    int64_t stages = mimo_grid_dim_size(llm, "pp"), ranks = mimo_grid_size(llm) / stages;
    TRY(mimo_grid_create_text(&grid, spec, 0));
    int64_t etp = mimo_grid_dim_size(grid, "etp"), ep = mimo_grid_dim_size(grid, "ep");
    mimo_status status = check_dims(grid, spec);
    mimo_grid_destroy(grid);
    TRY(status);
    CHECK(ranks % (etp * ep) == 0, MIMO_ERR_GRID,
          "--expert-grid %s: %" PRId64 " ranks share experts, and the LLM's %" PRId64
          "%s leave a rest",
          spec, etp * ep, ranks, stages > 1 ? " of a stage" : "");
    dims[0] = (mimo_dim){"etp", etp};
    dims[1] = (mimo_dim){"ep", ep};
    dims[2] = (mimo_dim){"edp", ranks / (etp * ep)};
    return MIMO_OK;
}

/* Of one stage, one behind the other. */
static int64_t ranks_in_a_row(const mimo_grid *llm)
{
    int64_t ranks = 1;
    for (int i = 0; i < mimo_grid_find(llm, "pp"); i++)
        ranks *= mimo_grid_dim(llm, i).size;
    return ranks;
}

/* A view has pp where the LLM's grid has it: behind as many ranks. */
static mimo_status insert_stages(mimo_dim dims[MOST_DIMS], const char *spec, const mimo_grid *llm)
{
    char text[GRID_TEXT];
    int64_t wanted = ranks_in_a_row(llm), ranks = 1;
    int at = 0;
    while (at < EXPERT_DIMS && ranks < wanted)
        ranks *= dims[at++].size;
    CHECK(ranks == wanted, MIMO_ERR_GRID,
          "--expert-grid %s: a stage of --llm %s has %" PRId64
          " ranks in a row, and etp and ep make groups of %" PRId64 " and %" PRId64
          ": give pp first or last",
          spec, mimo_grid_text(text, sizeof text, llm), wanted, dims[0].size,
          dims[0].size * dims[1].size);
    memmove(&dims[at + 1], &dims[at], (size_t)(EXPERT_DIMS - at) * sizeof *dims);
    dims[at] = (mimo_dim){"pp", mimo_grid_dim_size(llm, "pp")};
    return MIMO_OK;
}

static mimo_status find_coords(nn_expert_coords *out, const mimo_grid *view, int rank)
{
    int64_t etp, ep;
    TRY(mimo_grid_coord(&etp, view, rank, "etp"));
    TRY(mimo_grid_coord(&ep, view, rank, "ep"));
    *out = (nn_expert_coords){(int)etp, (int)mimo_grid_dim_size(view, "etp"), (int)ep,
                              (int)mimo_grid_dim_size(view, "ep")};
    return MIMO_OK;
}

mimo_status expert_grid_add(expert_grid *out, mimo_grid *llm, const char *spec, int rank)
{
    mimo_dim dims[MOST_DIMS];
    bool staged = mimo_grid_dim_size(llm, "pp") > 1;
    TRY(read_dims(dims, spec, llm));
    if (staged)
        TRY(insert_stages(dims, spec, llm));
    TRY(mimo_grid_create_view(&out->view, llm, NN_EXPERT_GRID, dims,
                              staged ? MOST_DIMS : EXPERT_DIMS));
    return find_coords(&out->coords, out->view, rank);
}

static bool is_staged(const expert_grid *experts)
{
    return mimo_grid_find(experts->view, "pp") >= 0;
}

mimo_status expert_grid_connect(const expert_grid *experts, mimo_gradient *gradient)
{
    if (!experts->view)
        return MIMO_OK;
    TRY(mimo_grid_create_group(experts->view, "etp,ep"));
    if (is_staged(experts))
        TRY(mimo_grid_create_group(experts->view, "etp,ep,edp"));
    return mimo_gradient_add_grid(gradient, NN_EXPERT_GRID, experts->view, "edp", "ep");
}

mimo_status expert_grid_find_groups(expert_grid *experts)
{
    if (!experts->view)
        return MIMO_OK;
    TRY(mimo_grid_group(&experts->group, experts->view, "etp,ep"));
    if (is_staged(experts))
        return mimo_grid_group(&experts->stage, experts->view, "etp,ep,edp");
    experts->stage = mimo_grid_comm(experts->view);
    return MIMO_OK;
}

int64_t expert_grid_copies(const expert_grid *experts)
{
    return experts->view ? mimo_grid_dim_size(experts->view, "edp") : 1;
}
