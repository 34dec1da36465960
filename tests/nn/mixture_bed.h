/* A store and a dispatch for mixtures of experts on real ranks: grids of any tp and ep. */
#ifndef MIMO_TESTS_MIXTURE_BED_H
#define MIMO_TESTS_MIXTURE_BED_H

#include <stdio.h>

#include "mpi_test.h"
#include "train/nn/nn.h"
#include "test_memory.h"

enum {
    TOKENS = 48,
    H = 16,
    F = 8,
    EXPERTS = 16,
    CHOICES = 3,
    V = 2,
    MOST = 100,
    LARGEST = EXPERTS * H
};

typedef struct shape {
    int tp, ep, micro;
} shape;

typedef struct layer_bed {
    const shape *shape;
    mimo_grid *encoder, *llm, *view;
    mimo_comm *world, *tp, *group;
    mimo_gradient *gradient;
    nn_runtime runtime;
    nn_params *params;
    nn_dispatch *dispatch;
    nn_moe moe;
    nn_moe_saved saved;
    nn_room room;
    int tp_rank;
    int64_t first, rows; /* this rank's tokens, of all micro-batches */
} layer_bed;

static inline void open_grids(layer_bed *it, mimo_comm *world)
{
    const shape *s = it->shape;
    char text[40];
    int rank = mimo_comm_rank(world), size = mimo_comm_size(world);
    const mimo_dim dims[] = {{"etp", 1}, {"ep", s->ep}, {"edp", size / s->ep}};
    it->world = world;
    snprintf(text, sizeof text, "dp=%d", size);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->encoder, text, 0));
    snprintf(text, sizeof text, "tp=%d,dp=%d", s->tp, size / s->tp);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->llm, text, 0));
    MPI_EXPECT_OK(mimo_grid_create_view(&it->view, it->llm, NN_EXPERT_GRID, dims, 3));
    MPI_EXPECT_OK(mimo_grid_connect(it->llm, world));
    MPI_EXPECT_OK(mimo_grid_create_group(it->llm, "tp"));
    MPI_EXPECT_OK(mimo_grid_create_group(it->view, "etp,ep"));
    MPI_EXPECT_OK(mimo_grid_group(&it->tp, it->llm, "tp"));
    MPI_EXPECT_OK(mimo_grid_group(&it->group, it->view, "etp,ep"));
    MPI_EXPECT_OK(mimo_gradient_create(&it->gradient, world, it->encoder, it->llm));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it->gradient, NN_EXPERT_GRID, it->view, "edp", "ep"));
    it->tp_rank = rank % s->tp;
    it->rows = TOKENS / (size / s->tp);
    it->first = rank / s->tp * it->rows;
}

static inline void open_store(layer_bed *it, nn_order order)
{
    const shape *s = it->shape;
    const nn_runtime_desc runtime = {
        .memory = test_memory(), .stream = test_stream(), .order = order};
    MPI_EXPECT_OK(nn_runtime_init(&it->runtime, &runtime));
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = it->tp_rank,
                            .tp_size = s->tp,
                            .experts = {0, 1, mimo_comm_rank(it->group), s->ep},
                            .seed = 7,
                            .runtime = &it->runtime,
                            .shards = V,
                            .pairs = 1};
    mimo_dispatch_desc sizes = MIMO_DISPATCH_DESC_INIT;
    sizes.experts = EXPERTS, sizes.top_k = CHOICES;
    sizes.max_tokens = nn_moe_own_rows(TOKENS, s->tp), sizes.hidden = H;
    MPI_EXPECT_OK(nn_dispatch_create(&it->dispatch, &it->runtime, it->group, &sizes));
    MPI_EXPECT_OK(nn_params_create(&it->params, &store));
}

static inline void close_bed(layer_bed *it)
{
    nn_moe_release(&it->moe);
    nn_dispatch_destroy(it->dispatch);
    nn_room_release(&it->room);
    nn_params_destroy(it->params);
    nn_runtime_release(&it->runtime);
    mimo_gradient_destroy(it->gradient);
    mimo_grid_destroy(it->encoder);
    mimo_grid_destroy(it->llm);
}

#endif
