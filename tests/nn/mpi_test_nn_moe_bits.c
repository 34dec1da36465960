/* In the fixed order of additions a mixture of experts has the same bits on every number of ranks:
 * outputs, gradients of the input, those of all parameters after the step, and their norm, for
 * every ep and tp and for one and two micro-batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "train/nn/nn.h"
#include "train/nn/params/nn_initial.h"

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

/* What a step gives: of each token, and of each parameter of the whole layer. */
typedef struct results {
    float y[TOKENS * H], dx[TOKENS * H], grads[MOST * LARGEST];
    double norm;
} results;

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

static void open_grids(layer_bed *it, mimo_comm *world)
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

static void open_layer(layer_bed *it)
{
    const shape *s = it->shape;
    const nn_runtime_desc runtime = {.order = NN_ORDER_FIXED};
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
    const nn_mixture mixture = {
        .dispatch = it->dispatch, .inner = F, .shared = F, .scores = NN_SCORES_ALL, .balance = 0.1};
    const nn_moe_desc desc = {.name = "moe",
                              .mixture = &mixture,
                              .hidden = H,
                              .max_rows = TOKENS,
                              .max_batch = TOKENS,
                              .std = 0.5,
                              .out_std = 0.5};
    MPI_EXPECT_OK(nn_params_create(&it->params, &store));
    MPI_EXPECT_OK(nn_moe_init(&it->moe, it->params, it->tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(it->params));
    MPI_EXPECT_OK(nn_moe_saved_place(&it->saved, &it->moe, &it->room));
    MPI_EXPECT_OK(nn_room_reserve(&it->room, &it->runtime));
    MPI_EXPECT_OK(nn_moe_saved_place(&it->saved, &it->moe, &it->room));
}

static void close_bed(layer_bed *it)
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

/* Each token is a sample of its own, so that the balance of one knows no other. */
static void run(results *to, layer_bed *it)
{
    int64_t rows = it->rows / it->shape->micro;
    float x[TOKENS * H], dy[TOKENS * H];
    for (int64_t first = it->first; first < it->first + it->rows; first += rows) {
        for (int64_t i = 0; i < rows * H; i++) {
            x[i] = (float)nn_normal(1, "x", first * H + i);
            dy[i] = (float)nn_normal(1, "dy", first * H + i);
        }
        MPI_EXPECT_OK(nn_moe_forward(&it->moe, &it->saved, to->y + first * H,
                                     &(nn_moe_input){x, rows, rows, NULL}));
        MPI_EXPECT_OK(nn_moe_backward_input(&it->moe, &it->saved, to->dx + first * H, dy));
        MPI_EXPECT_OK(nn_moe_backward_params(&it->moe, &it->saved));
    }
}

static void finish(results *to, layer_bed *it)
{
    int64_t n = 0;
    nn_gradients gradients = {.gradient = it->gradient, .world = it->world, .n = 1};
    gradients.stores[0] = it->params;
    gradients.tp[0] = it->tp;
    gradients.experts[0] = it->group;
    MPI_EXPECT_OK(mimo_gradient_add(it->gradient, 0, it->rows));
    MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, it->gradient));
    MPI_EXPECT_OK(nn_gradients_finish(&to->norm, &gradients, n));
}

static void step(results *to, layer_bed *it, mimo_comm *world)
{
    open_grids(it, world);
    open_layer(it);
    run(to, it);
    finish(to, it);
}

/* This rank's gradients, to or from their places in the whole. */
static void move_grads(float *whole, const layer_bed *it, bool out)
{
    for (int i = 0; i < nn_params_count(it->params); i++, whole += LARGEST) {
        const nn_param *param = nn_params_at(it->params, i);
        for (int64_t r = 0; param->held && r < nn_placement_runs(&param->placement); r++) {
            nn_run run = nn_placement_run(&param->placement, param->rank, r);
            size_t bytes = (size_t)run.count * sizeof *whole;
            if (out)
                memcpy(whole + run.global, param->grad + run.local, bytes);
            else
                MPI_EXPECT(memcmp(whole + run.global, param->grad + run.local, bytes) == 0,
                           "the gradient of %s under tp=%d, ep=%d, %d micro-batches", param->name,
                           it->shape->tp, it->shape->ep, it->shape->micro);
        }
    }
}

static void expect_same_bits(const shape *s, results *whole)
{
    results *got = calloc(1, sizeof *got);
    layer_bed it = {.shape = s};
    step(got, &it, mpi_test_comm());
    int64_t first = it.first * H * 4, bytes = it.rows * H * 4;
    MPI_EXPECT(memcmp((char *)got->y + first, (const char *)whole->y + first, (size_t)bytes) == 0,
               "y under tp=%d, ep=%d, %d micro-batches", s->tp, s->ep, s->micro);
    MPI_EXPECT(memcmp((char *)got->dx + first, (const char *)whole->dx + first, (size_t)bytes) == 0,
               "dx under tp=%d, ep=%d, %d micro-batches", s->tp, s->ep, s->micro);
    move_grads(whole->grads, &it, false);
    MPI_EXPECT(got->norm == whole->norm, "norm %.17g, not %.17g, under tp=%d, ep=%d", got->norm,
               whole->norm, s->tp, s->ep);
    close_bed(&it);
    free(got);
}

MPI_TEST(nn_moe_bits, do_not_depend_on_ranks)
{
    static const shape alone = {1, 1, 1};
    results *whole = calloc(1, sizeof *whole);
    layer_bed one = {.shape = &alone};
    mimo_comm *self = NULL;
    int size = mpi_test_size();
    MPI_EXPECT_OK(mimo_comm_split(&self, mpi_test_comm(), mpi_test_rank(), 0));
    step(whole, &one, self);
    move_grads(whole->grads, &one, true);
    for (int tp = 1; tp <= 2 && tp <= size; tp++)
        for (int ep = 1; ep <= size; ep *= 2)
            for (int micro = 1; micro <= 2; micro++)
                expect_same_bits(&(shape){tp, ep, micro}, whole);
    close_bed(&one);
    mimo_comm_destroy(self);
    free(whole);
}
