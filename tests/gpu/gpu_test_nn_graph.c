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
static void enqueue(model *m)
{
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

static cudaGraphExec_t capture(model *m)
{
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    enqueue(m);
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
    cudaGraphExec_t graph = capture(&m);
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
