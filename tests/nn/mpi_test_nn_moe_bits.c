/* In the fixed order of additions a mixture of experts has the same bits on every number of ranks:
 * outputs, gradients of the input, those of all parameters after the step, and their norm, for
 * every ep and tp and for one and two micro-batches. And in either order two micro-batches whose
 * parts run in turn, with moves in flight, have the bits of one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "stack_bed.h"
#include "train/nn/params/nn_initial.h"
#include "walk_by_parts.h"

/* What a step gives: of each token, and of each parameter of the whole layer. */
typedef struct results {
    float y[TOKENS * H], dx[TOKENS * H], grads[MOST * LARGEST];
    double norm;
} results;

static void open_layer(layer_bed *it)
{
    open_store(it, NN_ORDER_FIXED);
    const nn_mixture mixture = {
        .dispatch = it->dispatch, .inner = F, .shared = F, .scores = NN_SCORES_ALL, .balance = 0.1};
    const nn_moe_desc desc = {.name = "moe",
                              .mixture = &mixture,
                              .hidden = H,
                              .max_rows = TOKENS,
                              .max_batch = TOKENS,
                              .std = 0.5,
                              .out_std = 0.5};
    MPI_EXPECT_OK(nn_moe_init(&it->moe, it->params, it->tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(it->params));
    MPI_EXPECT_OK(nn_moe_saved_take(&it->saved, &it->moe, &it->room));
    MPI_EXPECT_OK(nn_room_reserve(&it->room, &it->runtime));
    MPI_EXPECT_OK(nn_moe_saved_take(&it->saved, &it->moe, &it->room));
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

/* ------------------------------------------- parts ------------------------------------------- */

enum { BLOCKS = 3, IN_TURN = 2 };

/* A stack with mixtures, and two micro-batches. */
typedef struct parts_bed {
    layer_bed on;
    nn_sequence sequence;
    nn_stack stack;
    nn_stack_saved saved[IN_TURN];
    nn_room rooms[IN_TURN];
} parts_bed;

typedef struct parts_results {
    float y[IN_TURN][TOKENS * H], dx[IN_TURN][TOKENS * H], grads[MOST_GRADS];
} parts_results;

static void open_parts(parts_bed *it, const stack_case *c)
{
    static const nn_block_kind *const kinds[BLOCKS] = {&nn_block_mixed, &nn_block_dense,
                                                       &nn_block_mixed};
    open_grids(&it->on, mpi_test_comm());
    open_store(&it->on, c->order);
    const nn_sequence_desc sequence = {NULL, true, S, B, NULL, &it->on.runtime, 1};
    MPI_EXPECT_OK(nn_sequence_init(&it->sequence, &sequence));
    open_stack(&it->stack, &it->on, c, kinds, 0, BLOCKS);
    MPI_EXPECT_OK(nn_params_seal(it->on.params));
    for (int m = 0; m < IN_TURN; m++)
        place_stack(&it->saved[m], &it->rooms[m], &it->stack, &it->on.runtime);
}

static void close_parts(parts_bed *it)
{
    for (int m = 0; m < IN_TURN; m++)
        release_stack(&it->saved[m], &it->rooms[m]);
    nn_stack_release(&it->stack);
    nn_sequence_release(&it->sequence);
    close_bed(&it->on);
}

static int64_t elements_of(const parts_bed *it, const stack_case *c)
{
    return TOKENS * H / (c->sp ? it->on.shape->tp : 1);
}

static part_walk begin_forward(parts_bed *it, int m)
{
    const layer_bed *on = &it->on;
    int64_t first = on->first * H + (m + 1) * TOKENS * H; /* other rows on each dp rank */
    for (int64_t i = 0; i < TOKENS * H; i++)
        it->saved[m].x[0][i] = (float)nn_normal(1, "x", first + i);
    MPI_EXPECT_OK(nn_stack_begin(&it->stack, &it->saved[m], &it->sequence));
    return (part_walk){&it->stack, &it->saved[m], true, NULL};
}

/* The output is read, and the gradient comes in its place. */
static part_walk begin_backward(parts_results *out, parts_bed *it, const stack_case *c, int m)
{
    float *last = it->saved[m].x[BLOCKS];
    memcpy(out->y[m], last, (size_t)elements_of(it, c) * sizeof *last);
    for (int64_t i = 0; i < TOKENS * H; i++)
        last[i] = (float)nn_normal(2, "dy", (m + 1) * TOKENS * H + i);
    return (part_walk){&it->stack, &it->saved[m], false, NULL};
}

static void read_results(parts_results *out, const parts_bed *it, const stack_case *c)
{
    for (int m = 0; m < IN_TURN; m++)
        memcpy(out->dx[m], it->saved[m].x[0], (size_t)elements_of(it, c) * sizeof *out->dx[m]);
    read_grads(out->grads, it->on.params);
}

static void backward_of(parts_bed *it, int m)
{
    MPI_EXPECT_OK(nn_stack_backward_input(&it->stack, &it->saved[m]));
    MPI_EXPECT_OK(nn_stack_backward_params(&it->stack, &it->saved[m]));
}

static void run_one_by_one(parts_results *out, parts_bed *it, const stack_case *c)
{
    for (int m = 0; m < IN_TURN; m++) {
        begin_forward(it, m);
        MPI_EXPECT_OK(nn_stack_forward(&it->stack, &it->saved[m], &it->sequence));
        begin_backward(out, it, c, m);
        backward_of(it, m);
    }
}

/* Both forward in turn, and both backward. */
static void run_side_by_side(parts_results *out, parts_bed *it, const stack_case *c)
{
    part_walk a = begin_forward(it, 0), b = begin_forward(it, 1);
    MPI_EXPECT_OK(walk_in_turn(&a, &b));
    a = begin_backward(out, it, c, 0), b = begin_backward(out, it, c, 1);
    MPI_EXPECT_OK(walk_in_turn(&a, &b));
    for (int m = 0; m < IN_TURN; m++)
        MPI_EXPECT_OK(nn_stack_backward_params(&it->stack, &it->saved[m]));
}

/* Forward of the second one beside backward of the first one. */
static void run_one_behind(parts_results *out, parts_bed *it, const stack_case *c)
{
    begin_forward(it, 0);
    MPI_EXPECT_OK(nn_stack_forward(&it->stack, &it->saved[0], &it->sequence));
    part_walk a = begin_backward(out, it, c, 0), b = begin_forward(it, 1);
    MPI_EXPECT_OK(walk_in_turn(&a, &b));
    MPI_EXPECT_OK(nn_stack_backward_params(&it->stack, &it->saved[0]));
    begin_backward(out, it, c, 1);
    backward_of(it, 1);
}

static void expect_in_turn(const shape *s, const stack_case *c)
{
    static void (*const orders[])(parts_results *, parts_bed *, const stack_case *) = {
        run_one_by_one, run_side_by_side, run_one_behind};
    parts_results *got[3];
    parts_bed it = {.on = {.shape = s}};
    open_parts(&it, c);
    for (int i = 0; i < 3; i++) {
        got[i] = calloc(1, sizeof *got[i]);
        MPI_EXPECT_OK(nn_params_zero_grad(it.on.params));
        orders[i](got[i], &it, c);
        read_results(got[i], &it, c);
        MPI_EXPECT(memcmp(got[i], got[0], sizeof *got[i]) == 0,
                   "%s: tp=%d, ep=%d, order %d, shared %d, adapters %d, sp %d, recompute %d",
                   i == 1 ? "side by side" : "one behind", s->tp, s->ep, (int)c->order,
                   (int)c->shared, c->adapted, c->sp, (int)c->recompute);
    }
    close_parts(&it);
    for (int i = 0; i < 3; i++)
        free(got[i]);
}

MPI_TEST(nn_moe_bits, parts_in_turn)
{
    static const stack_case cases[] = {
        {NN_ORDER_FAST, F, true, false, NN_RECOMPUTE_NONE, 0},
        {NN_ORDER_FAST, 0, false, false, NN_RECOMPUTE_NONE, 0},
        {NN_ORDER_FAST, F, true, false, NN_RECOMPUTE_SEND_ROWS, IN_TURN},
        {NN_ORDER_FAST, F, false, true, NN_RECOMPUTE_KEEP_ROWS, IN_TURN},
        {NN_ORDER_FAST, F, false, true, NN_RECOMPUTE_NONE, 0},
        {NN_ORDER_FIXED, 0, false, false, NN_RECOMPUTE_KEEP_ROWS, IN_TURN},
    };
    int size = mpi_test_size();
    for (int tp = 1; tp <= 2 && tp <= size; tp++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (!cases[i].sp || tp > 1)
                expect_in_turn(&(shape){tp, size, 1}, &cases[i]);
}
