/* In the fixed order of additions a mixture of experts has the same bits on every number of ranks:
 * outputs, gradients of the input, and sums of the gradients of all parameters, for every ep and tp
 * and for one and two micro-batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "nn/nn.h"
#include "nn/params/nn_initial.h"

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
    float y[TOKENS * H], dx[TOKENS * H];
    int64_t sums[MOST * LARGEST];
} results;

typedef struct layer_bed {
    const shape *shape;
    mimo_comm *tp, *group; /* NULL tp: one rank */
    nn_runtime runtime;
    nn_params *params;
    nn_moe moe;
    nn_moe_saved saved;
    nn_room room;
    int tp_rank;
    int64_t first, rows; /* this rank's tokens, of all micro-batches */
} layer_bed;

/* Ranks in the order tp, dp; rank x along ep is rank x of each group of ep. */
static void open_comms(layer_bed *it, mimo_comm *comm)
{
    const shape *s = it->shape;
    int rank = mimo_comm_rank(comm);
    it->tp_rank = rank % s->tp;
    MPI_EXPECT_OK(mimo_comm_split(&it->tp, comm, rank / s->tp, rank));
    MPI_EXPECT_OK(mimo_comm_split(&it->group, comm, rank / s->ep, rank));
    it->rows = TOKENS / (mimo_comm_size(comm) / s->tp);
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
    const nn_mixture mixture = {.experts = EXPERTS,
                                .top_k = CHOICES,
                                .inner = F,
                                .shared = F,
                                .scores = NN_SCORES_ALL,
                                .balance = 0.1,
                                .group = it->group};
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
    nn_room_release(&it->room);
    nn_params_destroy(it->params);
    nn_runtime_release(&it->runtime);
    mimo_comm_destroy(it->group);
    mimo_comm_destroy(it->tp);
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
        MPI_EXPECT_OK(nn_moe_forward(&it->moe, &it->saved, to->y + first * H, x, rows, rows));
        MPI_EXPECT_OK(nn_moe_backward_input(&it->moe, &it->saved, to->dx + first * H, dy));
        MPI_EXPECT_OK(nn_moe_backward_params(&it->moe, &it->saved));
    }
}

/* The names of all parameters, in the order of one rank. */
static int number_of(const nn_params *whole, const char *name)
{
    int at = nn_params_find(whole, name);
    MPI_EXPECT(at >= 0 && at < MOST, "no parameter %s", name);
    return at;
}

/* This rank's sums, at their places in the whole. Copies count once. */
static void collect(results *to, const layer_bed *it, const nn_params *whole)
{
    for (int i = 0; i < nn_params_count(it->params); i++) {
        const nn_param *param = nn_params_at(it->params, i);
        int64_t *sums = to->sums + (ptrdiff_t)number_of(whole, param->name) * LARGEST;
        if (param->rule == NN_REPLICATED && it->tp_rank > 0)
            continue;
        for (int64_t r = 0; r < nn_placement_runs(&param->placement); r++) {
            nn_run run = nn_placement_run(&param->placement, param->rank, r);
            memcpy(sums + run.global, param->sums + run.local, (size_t)run.count * sizeof *sums);
        }
    }
}

static void step(results *to, layer_bed *it, mimo_comm *comm)
{
    open_comms(it, comm);
    open_layer(it);
    run(to, it);
}

static void expect_same_bits(const shape *s, const results *whole, const layer_bed *one)
{
    results *got = calloc(1, sizeof *got);
    layer_bed it = {.shape = s};
    step(got, &it, mpi_test_comm());
    collect(got, &it, one->params);
    int64_t first = it.first * H * 4, bytes = it.rows * H * 4;
    MPI_EXPECT(memcmp((char *)got->y + first, (const char *)whole->y + first, (size_t)bytes) == 0,
               "y under tp=%d, ep=%d, %d micro-batches", s->tp, s->ep, s->micro);
    MPI_EXPECT(memcmp((char *)got->dx + first, (const char *)whole->dx + first, (size_t)bytes) == 0,
               "dx under tp=%d, ep=%d, %d micro-batches", s->tp, s->ep, s->micro);
    MPI_Allreduce(MPI_IN_PLACE, got->sums, MOST * LARGEST, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_EXPECT(memcmp(got->sums, whole->sums, sizeof got->sums) == 0,
               "sums under tp=%d, ep=%d, %d micro-batches", s->tp, s->ep, s->micro);
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
    collect(whole, &one, one.params);
    for (int tp = 1; tp <= 2 && tp <= size; tp++)
        for (int ep = 1; ep <= size; ep *= 2)
            for (int micro = 1; micro <= 2; micro++)
                expect_same_bits(&(shape){tp, ep, micro}, whole, &one);
    close_bed(&one);
    mimo_comm_destroy(self);
    free(whole);
}
