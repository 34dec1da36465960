/* Forward and backward of layers in a CUDA graph. Capture fails where a call waits for the device
 * or allocates memory. A replay gives the same bits as the calls. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "nn_gradient_check.h"
#include "same_bits.h"
#include "test_memory.h"

enum { S = 70, B = 2, HIDDEN = 48, HEADS = 4, INNER = 96, V = 40, N = S * B, REPLAYS = 100 };

typedef struct model {
    nn_runtime runtime;
    nn_params *params;
    nn_sequence sequence;
    nn_block block;
    nn_norm norm;
    nn_linear head;
    nn_block_saved block_saved;
    nn_norm_saved norm_saved;
    nn_linear_saved head_saved;
    nn_room room;                         /* of the three */
    nn_real *x, *y, *normed, *logits, *d; /* rooms */
} model;

#define CUDA_OK(call) cr_assert_eq((call), cudaSuccess, "%s", #call)

static mimo_status place(model *m)
{
    mimo_status status = nn_block_saved_take(&m->block_saved, &m->block, &m->room);
    if (status == MIMO_OK)
        status = nn_norm_saved_take(&m->norm_saved, &m->norm, &m->room);
    return status == MIMO_OK ? nn_linear_saved_take(&m->head_saved, &m->head, &m->room) : status;
}

static void make(model *m, nn_precision precision)
{
    nn_runtime_desc runtime = {test_memory(), test_stream(), precision, NN_ORDER_FAST, 0};
    memset(m, 0, sizeof *m);
    SUCCEEDS(nn_runtime_init(&m->runtime, &runtime));
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_rank = 0,
                            .tp_size = 1,
                            .seed = 7,
                            .runtime = &m->runtime};
    nn_sequence_desc sequence = {NULL, true, S, B, NULL, &m->runtime, 0};
    nn_block_desc block = {.name = "block",
                           .hidden = HIDDEN,
                           .heads = HEADS,
                           .inner = INNER,
                           .max_rows = S,
                           .max_batch = B,
                           .max_parts = 0,
                           .std = 0.3,
                           .out_std = 0.3};
    nn_linear_desc head = {.name = "head",
                           .in = HIDDEN,
                           .out = V,
                           .split = NN_SPLIT_COLUMNS,
                           .bias = true,
                           .std = 0.3};
    SUCCEEDS(nn_params_create(&m->params, &store));
    SUCCEEDS(nn_sequence_init(&m->sequence, &sequence));
    SUCCEEDS(nn_block_init(&m->block, m->params, NULL, &block));
    SUCCEEDS(nn_norm_init(&m->norm, m->params, "norm", HIDDEN, N, NN_REPLICATED));
    SUCCEEDS(nn_linear_init(&m->head, m->params, NULL, &head));
    SUCCEEDS(nn_params_seal(m->params));
    NN_TEST_PLACE(m->room, place(m));
    m->x = nn_test_room(N * HIDDEN);
    m->y = nn_test_room(N * HIDDEN);
    m->normed = nn_test_room(N * HIDDEN);
    m->logits = nn_test_room(N * V);
    m->d = nn_test_room(N * HIDDEN);
}

static void discard(model *m)
{
    nn_linear_release(&m->head);
    nn_norm_release(&m->norm);
    nn_block_release(&m->block);
    nn_room_release(&m->room);
    nn_sequence_release(&m->sequence);
    nn_params_destroy(m->params);
    nn_runtime_release(&m->runtime);
    nn_test_free_rooms();
}

/* The gradient of half the sum of the squares of the logits. */
static void enqueue(void *context)
{
    model *m = context;
    SUCCEEDS(nn_params_zero_grad(m->params));
    SUCCEEDS(nn_block_forward(&m->block, &m->block_saved, m->y, m->x, &m->sequence));
    SUCCEEDS(nn_norm_forward(&m->norm, &m->norm_saved, m->normed, m->y, N));
    SUCCEEDS(nn_linear_forward(&m->head, &m->head_saved, m->logits, m->normed, N, 1));
    SUCCEEDS(nn_linear_backward(&m->head, &m->head_saved, m->d, m->logits));
    SUCCEEDS(nn_norm_backward_input(&m->norm, &m->norm_saved, m->y, m->d, NULL));
    SUCCEEDS(nn_block_backward_input(&m->block, &m->block_saved, m->d, m->y));
    SUCCEEDS(nn_block_backward_params(&m->block, &m->block_saved));
}

static void set_input(model *m, const char *name)
{
    static nn_real x[N * HIDDEN];
    nn_test_fill(x, N * HIDDEN, name);
    nn_test_write(m->x, x, N * HIDDEN);
}

enum { MOST = 3 * HIDDEN * HIDDEN + N * HIDDEN };

/* The gradients of the input and of the largest parameter. */
static void read_gradients(const model *m, nn_real *to)
{
    int largest = nn_params_find(m->params, "block.attention.qkv.weight");
    SUCCEEDS(nn_params_read(m->params, largest, NN_GRAD, to));
    nn_test_read(to + 3 * HIDDEN * HIDDEN, m->d, N * HIDDEN);
}

/* What a call enqueues, as a graph. */
static cudaGraphExec_t capture(void (*call)(void *context), void *context)
{
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    call(context);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&ready, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    return ready;
}

static void check_replays(nn_precision precision)
{
    static nn_real first[MOST], called[MOST], replayed[MOST];
    model m;
    make(&m, precision);
    set_input(&m, "first");
    enqueue(&m); /* rooms grow in this call */
    read_gradients(&m, first);
    cudaGraphExec_t graph = capture(enqueue, &m);
    set_input(&m, "second");
    enqueue(&m);
    read_gradients(&m, called);
    cr_assert(memcmp(first, called, sizeof called) != 0, "the input plays no part");
    for (int i = 0; i < REPLAYS; i++) {
        set_input(&m, i % 2 ? "first" : "second");
        CUDA_OK(cudaGraphLaunch(graph, test_stream()));
        read_gradients(&m, replayed);
        EXPECT_BITS(bits_of(replayed, i % 2 ? first : called, sizeof replayed, sizeof *replayed, 0),
                    "replay %d", i);
    }
    CUDA_OK(cudaGraphExecDestroy(graph));
    discard(&m);
}

Test(nn_graph, replays_give_the_bits_of_the_calls)
{
    check_replays(NN_PRECISION_FULL);
#ifndef NN_REAL_F64
    check_replays(NN_PRECISION_BF16);
#endif
}

#ifndef NN_REAL_F64

/* ------------------------------------------ experts ------------------------------------------ */

/* Experts in the fixed order, whose rows end where only the device knows. */
enum { EXPERTS = 5, TILE = 90, WIDTH = 24, INSIDE = 40, MOST_SUMS = 8 * EXPERTS * WIDTH * INSIDE };

typedef struct experts_bed {
    nn_runtime runtime;
    nn_params *params;
    nn_experts layer;
    nn_experts_saved saved;
    nn_room room;
    int32_t *ends;
    nn_real *x, *weights, *y, *dy, *dx, *dw; /* rooms */
} experts_bed;

static void make_experts(experts_bed *it)
{
    static const nn_lora_selection adapters = {{.rank = 3, .alpha = 2, .b_std = 0.5}, NULL, 0};
    const nn_runtime_desc runtime = {
        .memory = test_memory(), .stream = test_stream(), .order = NN_ORDER_FIXED};
    nn_experts_desc desc = {.name = "mlp",
                            .hidden = WIDTH,
                            .inner = INSIDE,
                            .experts = EXPERTS,
                            .max_rows = TILE,
                            .std = 0.3,
                            .out_std = 0.3,
                            .adapters = &adapters};
    memset(it, 0, sizeof *it);
    SUCCEEDS(nn_runtime_init(&it->runtime, &runtime));
    nn_params_desc store = {
        .name = "test", .module = MIMO_DST, .tp_size = 1, .seed = 7, .runtime = &it->runtime};
    SUCCEEDS(nn_params_create(&it->params, &store));
    SUCCEEDS(nn_experts_init(&it->layer, it->params, &desc));
    SUCCEEDS(nn_params_seal(it->params));
    NN_TEST_PLACE(it->room, nn_experts_saved_take(&it->saved, &it->layer, &it->room));
    SUCCEEDS(nn_runtime_reserve(&it->runtime, &it->ends, EXPERTS, sizeof *it->ends));
    nn_real **const rooms[] = {&it->x, &it->y, &it->dy, &it->dx};
    for (int i = 0; i < 4; i++)
        *rooms[i] = nn_test_room(TILE * WIDTH);
    it->weights = nn_test_room(TILE);
    it->dw = nn_test_room(TILE);
}

static void discard_experts(experts_bed *it)
{
    nn_runtime_free(&it->runtime, it->ends);
    nn_experts_release(&it->layer);
    nn_room_release(&it->room);
    nn_params_destroy(it->params);
    nn_runtime_release(&it->runtime);
    nn_test_free_rooms();
}

static void enqueue_experts(void *context)
{
    experts_bed *it = context;
    const nn_expert_rows rows = {it->x, it->weights, it->ends};
    SUCCEEDS(nn_params_zero_grad(it->params));
    SUCCEEDS(nn_experts_forward(&it->layer, &it->saved, it->y, &rows));
    SUCCEEDS(nn_experts_backward_input(&it->layer, &it->saved, it->dx, it->dw, it->dy));
    SUCCEEDS(nn_experts_backward_params(&it->layer, &it->saved));
}

/* One micro-batch or the other: its rows and where they end, the second one behind the tile. */
static void set_rows(experts_bed *it, bool second)
{
    static const int32_t ends[2][EXPERTS] = {{30, 30, 41, 80, 85}, {0, 64, 66, 66, TILE + 9}};
    nn_real numbers[TILE * WIDTH];
    nn_real *const rooms[] = {it->x, it->dy, it->y, it->dx};
    SUCCEEDS(nn_runtime_write(&it->runtime, it->ends, ends[second], sizeof ends[second]));
    for (int i = 0; i < 4; i++) {
        nn_test_fill(numbers, TILE * WIDTH, i < 2 ? second ? "second" : "first" : "stale");
        nn_test_write(rooms[i], numbers, TILE * WIDTH);
    }
    nn_test_fill(numbers, TILE, "weights");
    nn_test_write(it->weights, numbers, TILE);
}

typedef struct experts_results {
    nn_real y[TILE * WIDTH], dx[TILE * WIDTH], dw[TILE];
    int64_t sums[MOST_SUMS];
} experts_results;

static void read_experts(experts_results *to, const experts_bed *it)
{
    int64_t at = 0;
    nn_test_read(to->y, it->y, TILE * WIDTH);
    nn_test_read(to->dx, it->dx, TILE * WIDTH);
    nn_test_read(to->dw, it->dw, TILE);
    for (int i = 0; i < nn_params_count(it->params); i++) {
        const nn_param *param = nn_params_at(it->params, i);
        cr_assert(at + param->count <= MOST_SUMS);
        SUCCEEDS(nn_runtime_read(&it->runtime, to->sums + at, param->sums,
                                 param->count * (int64_t)sizeof *param->sums));
        at += param->count;
    }
}

Test(nn_graph, experts_end_where_the_device_says)
{
    static experts_results called[2], replayed;
    experts_bed it;
    make_experts(&it);
    for (int second = 0; second < 2; second++) {
        set_rows(&it, second);
        enqueue_experts(&it);
        read_experts(&called[second], &it);
    }
    cr_assert(memcmp(&called[0], &called[1], sizeof called[0]) != 0, "the rows play no part");
    cudaGraphExec_t ready = capture(enqueue_experts, &it);
    for (int i = 0; i < REPLAYS; i++) {
        set_rows(&it, i % 2);
        CUDA_OK(cudaGraphLaunch(ready, test_stream()));
        read_experts(&replayed, &it);
        EXPECT_BITS(bits_of(&replayed, &called[i % 2], sizeof replayed, 4, 0), "replay %d", i);
    }
    CUDA_OK(cudaGraphExecDestroy(ready));
    discard_experts(&it);
}
#endif
