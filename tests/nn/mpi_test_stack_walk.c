/* A schedule of one stage with two chunks, walked by nodes: parts of a forward and of a backward
 * take turns, moves are in flight, gradients of weights come late. Outputs and all gradients have
 * the bits of plain forwards and backwards. */
#include <stdlib.h>
#include <string.h>

#include "stack_bed.h"
#include "train/nn/params/nn_initial.h"
#include "train/pipeline/stack_walk.h"

enum { CHUNKS = 2, MOST_BLOCKS = 3, MOST_MICRO = 3 };

/* Blocks of the two chunks, and how they run. */
typedef struct walk_case {
    int64_t counts[CHUNKS], micro;
    stack_case blocks;
    bool early, halves; /* halves: attention and MLPs are blocks of their own */
    int64_t in_flight;  /* the most moves at once */
} walk_case;

typedef struct walk_results {
    float y[MOST_MICRO][TOKENS * H], dx[MOST_MICRO][TOKENS * H], grads[MOST_GRADS];
} walk_results;

typedef struct walk_bed {
    layer_bed on;
    const walk_case *is;
    nn_sequence sequence;
    nn_stack stacks[CHUNKS];
    nn_stack_saved saved[MOST_MICRO][CHUNKS];
    nn_room rooms[MOST_MICRO][CHUNKS];
    float between[MOST_MICRO][TOKENS * H]; /* what one chunk gives to the other */
    walk_results *out;
    stack_walk walk;
    int64_t in_flight;
    mimo_status other; /* what PRE_PROCESS of backward returns: a planted failure */
} walk_bed;

static void open_chunk(walk_bed *it, int chunk, int64_t first)
{
    static const nn_block_kind *const whole[] = {&nn_block_mixed, &nn_block_dense, &nn_block_mixed};
    static const nn_block_kind *const halves[] = {&nn_block_attention, &nn_block_mixed,
                                                  &nn_block_mlp};
    const walk_case *c = it->is;
    open_stack(&it->stacks[chunk], &it->on, &c->blocks, c->halves ? halves : whole, first,
               c->counts[chunk]);
}

static void open_walk(walk_bed *it)
{
    const nn_sequence_desc sequence = {NULL, true, S, B, NULL, &it->on.runtime, 1};
    open_grids(&it->on, mpi_test_comm());
    open_store(&it->on, it->is->blocks.order);
    MPI_EXPECT_OK(nn_sequence_init(&it->sequence, &sequence));
    open_chunk(it, 0, 0);
    open_chunk(it, 1, it->is->counts[0]);
    MPI_EXPECT_OK(nn_params_seal(it->on.params));
    for (int m = 0; m < it->is->micro; m++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            place_stack(&it->saved[m][chunk], &it->rooms[m][chunk], &it->stacks[chunk],
                        &it->on.runtime);
}

static void close_walk(walk_bed *it)
{
    for (int m = 0; m < it->is->micro; m++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            release_stack(&it->saved[m][chunk], &it->rooms[m][chunk]);
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        nn_stack_release(&it->stacks[chunk]);
    nn_sequence_release(&it->sequence);
    close_bed(&it->on);
}

/* --------------------------------------- beside the blocks ----------------------------------- */

static size_t bytes_of(const walk_bed *it)
{
    return TOKENS * H * sizeof(float) / (size_t)(it->is->blocks.sp ? it->on.shape->tp : 1);
}

static float *end_of(const walk_bed *it, int64_t m, int64_t chunk)
{
    return it->saved[m][chunk].x[it->stacks[chunk].count];
}

static void begin_chunk(walk_bed *it, int64_t m, int64_t chunk)
{
    float *x = it->saved[m][chunk].x[0];
    int64_t first = it->on.first * H + (m + 1) * TOKENS * H; /* other rows on each dp rank */
    for (int64_t i = 0; chunk == 0 && i < TOKENS * H; i++)
        x[i] = (float)nn_normal(1, "x", first + i);
    if (chunk > 0)
        memcpy(x, it->between[m], bytes_of(it));
    MPI_EXPECT_OK(nn_stack_begin(&it->stacks[chunk], &it->saved[m][chunk], &it->sequence));
}

static void end_chunk(walk_bed *it, int64_t m, int64_t chunk)
{
    memcpy(chunk == 0 ? it->between[m] : it->out->y[m], end_of(it, m, chunk), bytes_of(it));
}

static void begin_back(walk_bed *it, int64_t m, int64_t chunk)
{
    float *dy = end_of(it, m, chunk);
    for (int64_t i = 0; chunk > 0 && i < TOKENS * H; i++)
        dy[i] = (float)nn_normal(2, "dy", (m + 1) * TOKENS * H + i);
    if (chunk == 0)
        memcpy(dy, it->between[m], bytes_of(it));
}

static void end_back(walk_bed *it, int64_t m, int64_t chunk)
{
    memcpy(chunk > 0 ? it->between[m] : it->out->dx[m], it->saved[m][chunk].x[0], bytes_of(it));
}

static mimo_status find(stack_pass *out, void *context, const mimo_node *node)
{
    walk_bed *it = context;
    int64_t moving = it->walk.behind - it->walk.first;
    it->in_flight = moving > it->in_flight ? moving : it->in_flight;
    *out = (stack_pass){&it->stacks[node->chunk], &it->saved[node->micro_batch][node->chunk]};
    return MIMO_OK;
}

static mimo_status other(void *context, const mimo_node *node)
{
    walk_bed *it = context;
    bool forward = node->pass == MIMO_NODE_FORWARD;
    int64_t m = node->micro_batch, chunk = node->chunk;
    if (node->part == MIMO_NODE_PRE_PROCESS && forward)
        begin_chunk(it, m, chunk);
    if (node->part == MIMO_NODE_SEND_RECV && forward)
        end_chunk(it, m, chunk);
    if (node->part == MIMO_NODE_POST_PROCESS && !forward)
        begin_back(it, m, chunk);
    if (node->part == MIMO_NODE_SEND_RECV && !forward)
        end_back(it, m, chunk);
    if (node->part == MIMO_NODE_PRE_PROCESS && !forward && it->other != MIMO_OK)
        return mimo_fail(it->other, "planted");
    return MIMO_OK;
}

/* --------------------------------------------- walks ----------------------------------------- */

static void plainly(walk_bed *it)
{
    for (int64_t m = 0; m < it->is->micro; m++) {
        for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
            begin_chunk(it, m, chunk);
            MPI_EXPECT_OK(
                nn_stack_forward(&it->stacks[chunk], &it->saved[m][chunk], &it->sequence));
            end_chunk(it, m, chunk);
        }
        for (int64_t chunk = CHUNKS; chunk-- > 0;) {
            begin_back(it, m, chunk);
            MPI_EXPECT_OK(nn_stack_backward_input(&it->stacks[chunk], &it->saved[m][chunk]));
            MPI_EXPECT_OK(nn_stack_backward_params(&it->stacks[chunk], &it->saved[m][chunk]));
            end_back(it, m, chunk);
        }
    }
}

static mimo_nodes *cut(walk_bed *it)
{
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    mimo_node_layer layers[CHUNKS][MOST_BLOCKS];
    mimo_node_chunk chunks[CHUNKS] = {{0}};
    mimo_schedule *schedule = NULL;
    mimo_nodes *nodes = NULL;
    sizes.kind = MIMO_SCHEDULE_INTERLEAVED;
    sizes.chunks = CHUNKS;
    sizes.micro_batches = it->is->micro;
    sizes.overlap = true;
    desc.early = it->is->early;
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        for (int64_t i = 0; i < it->is->counts[chunk]; i++)
            layers[chunk][i] =
                stack_walk_layer(it->stacks[chunk].kinds[i], it->is->blocks.recompute);
        chunks[chunk].layers = layers[chunk];
        chunks[chunk].count = it->is->counts[chunk];
    }
    MPI_EXPECT_OK(mimo_schedule_create(&schedule, &sizes));
    MPI_EXPECT_OK(mimo_nodes_create(&nodes, schedule, chunks, &desc));
    mimo_schedule_destroy(schedule);
    return nodes;
}

static mimo_status by_nodes(walk_bed *it)
{
    const stack_walk_work work = {it, find, other, NULL, NULL};
    mimo_nodes *nodes = cut(it);
    mimo_status status = MIMO_OK;
    MPI_EXPECT_OK(stack_walk_open(&it->walk, nodes, 0, &work));
    for (int64_t at = 0; status == MIMO_OK && at < it->walk.count;)
        status = stack_walk_step(&at, &it->walk);
    stack_walk_close(&it->walk);
    mimo_nodes_destroy(nodes);
    return status;
}

static void expect_same(const shape *s, const walk_case *c)
{
    walk_results *plain = calloc(1, sizeof *plain), *got = calloc(1, sizeof *got);
    walk_bed *it = calloc(1, sizeof *it);
    it->on.shape = s;
    it->is = c;
    it->out = plain;
    open_walk(it);
    plainly(it);
    read_grads(it->out->grads, it->on.params);
    MPI_EXPECT_OK(nn_params_zero_grad(it->on.params));
    it->out = got;
    MPI_EXPECT_OK(by_nodes(it));
    read_grads(it->out->grads, it->on.params);
    MPI_EXPECT(
        memcmp(plain, got, sizeof *got) == 0,
        "layers %d and %d, %d micro-batches: tp=%d, ep=%d, order %d, shared %d, adapters %d, "
        "recompute %d",
        (int)c->counts[0], (int)c->counts[1], (int)c->micro, s->tp, s->ep, (int)c->blocks.order,
        (int)c->blocks.shared, c->blocks.adapted, (int)c->blocks.recompute);
    MPI_EXPECT(it->in_flight == c->in_flight,
               "layers %d and %d, %d micro-batches, recompute %d: %d moves in flight, not %d",
               (int)c->counts[0], (int)c->counts[1], (int)c->micro, (int)c->blocks.recompute,
               (int)it->in_flight, (int)c->in_flight);
    close_walk(it);
    free(plain);
    free(got);
    free(it);
}

MPI_TEST(stack_walk, has_the_bits_of_plain_passes)
{
    enum { TWO = 2 };
    static const walk_case cases[] = {
        {{2, 1}, 3, {NN_ORDER_FAST, F, true, false, NN_RECOMPUTE_NONE, 0}, false, false, 2},
        {{1, 2}, 2, {NN_ORDER_FAST, 0, false, true, NN_RECOMPUTE_NONE, 0}, false, false, 2},
        {{1, 1}, 3, {NN_ORDER_FIXED, 0, false, false, NN_RECOMPUTE_NONE, 0}, true, false, 1},
        {{0, 2}, 2, {NN_ORDER_FAST, F, false, false, NN_RECOMPUTE_NONE, 0}, false, false, 1},
        {{3, 0}, 1, {NN_ORDER_FIXED, F, false, false, NN_RECOMPUTE_NONE, 0}, false, false, 1},
        {{1, 2}, 3, {NN_ORDER_FAST, 0, true, true, NN_RECOMPUTE_NONE, 0}, true, true, 1},
        {{2, 1}, 3, {NN_ORDER_FAST, F, true, false, NN_RECOMPUTE_KEEP_ROWS, TWO}, false, false, 2},
        {{1, 2}, 2, {NN_ORDER_FAST, F, false, true, NN_RECOMPUTE_SEND_ROWS, TWO}, false, false, 3},
        {{1, 1}, 3, {NN_ORDER_FIXED, 0, false, false, NN_RECOMPUTE_SEND_ROWS, TWO}, true, false, 2},
        {{0, 2}, 2, {NN_ORDER_FAST, F, false, false, NN_RECOMPUTE_KEEP_ROWS, TWO}, false, false, 1},
        {{2, 0},
         1,
         {NN_ORDER_FIXED, F, false, false, NN_RECOMPUTE_KEEP_ROWS, TWO},
         false,
         false,
         1},
        {{1, 2}, 3, {NN_ORDER_FAST, 0, true, false, NN_RECOMPUTE_SEND_ROWS, TWO}, false, true, 2},
    };
    int size = mpi_test_size();
    for (int tp = 1; tp <= 2 && tp <= size; tp++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (!cases[i].blocks.sp || tp > 1)
                expect_same(&(shape){tp, size, 1}, &cases[i]);
}

/* On two dp ranks, with results of its own. */
static walk_bed *new_walk(const walk_case *c)
{
    static const shape s = {1, 2, 1};
    walk_bed *it = calloc(1, sizeof *it);
    it->on.shape = &s;
    it->is = c;
    it->out = calloc(1, sizeof *it->out);
    open_walk(it);
    return it;
}

static void free_walk(walk_bed *it)
{
    close_walk(it);
    free(it->out);
    free(it);
}

/* A node that fails says which one it was, and its states can begin again. */
MPI_TEST(stack_walk, says_which_node_failed)
{
    static const walk_case c = {.counts = {1, 1}, .micro = 2};
    walk_bed *it = new_walk(&c);
    it->other = MIMO_ERR_STATE;
    mimo_status status = by_nodes(it);
    MPI_EXPECT(status == MIMO_ERR_STATE && strstr(mimo_last_error(), "node ") &&
                   strstr(mimo_last_error(), ": planted"),
               "%s: %s", mimo_status_name(status), mimo_last_error());
    it->other = MIMO_OK;
    MPI_EXPECT_OK(by_nodes(it));
    free_walk(it);
}

static int64_t rows_moved(const walk_bed *it)
{
    const nn_exchange_counts *counts = &nn_params_exchanged(it->on.params)->experts;
    return counts->calls[NN_EXCHANGE_ROWS] + counts->calls[NN_EXCHANGE_COMBINE];
}

/* For measures: rows that stay are in no exchange, and no rank waits for another one. Afterwards
 * they move as before. */
MPI_TEST(stack_walk, rows_stay_local)
{
    static const walk_case c = {.counts = {1, 2}, .micro = 2};
    walk_bed *it = new_walk(&c);
    mimo_status status = nn_dispatch_set_local(it->on.dispatch, true);
    MPI_EXPECT(status == MIMO_ERR_STATE && strstr(mimo_last_error(), "never set"), "%s: %s",
               mimo_status_name(status), mimo_last_error());
    MPI_EXPECT_OK(by_nodes(it));
    int64_t moved = rows_moved(it);
    MPI_EXPECT_OK(nn_dispatch_set_local(it->on.dispatch, true));
    for (int i = 0; i < 1 + mpi_test_rank(); i++) /* as often as a rank likes */
        MPI_EXPECT_OK(by_nodes(it));
    MPI_EXPECT(moved > 0 && rows_moved(it) == moved, "%d moves, %d before", (int)rows_moved(it),
               (int)moved);
    MPI_EXPECT_OK(nn_dispatch_set_local(it->on.dispatch, false));
    MPI_EXPECT_OK(by_nodes(it));
    MPI_EXPECT(rows_moved(it) == 2 * moved, "%d moves", (int)rows_moved(it));
    free_walk(it);
}

MPI_TEST(stack_walk, refuses)
{
    stack_walk walk = {.count = 3};
    int64_t at = 3;
    mimo_status status = stack_walk_step(&at, &walk);
    MPI_EXPECT(status == MIMO_ERR_ARGUMENT && strstr(mimo_last_error(), "no node 3 of 3"), "%s: %s",
               mimo_status_name(status), mimo_last_error());
    stack_walk_close(&walk);
}
