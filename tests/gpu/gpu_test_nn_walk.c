/* A walk of nodes in a CUDA graph: forwards beside backwards of a stack with mixtures, in the fixed
 * order, whose exchanges have streams of their own. Replays with other rows, which choose other
 * experts, give the bits of walks without a graph. */
#include <string.h>

#include "gpu_calls.h"
#include "nn_test_memory.h"
#include "stack_bed.h"
#include "train/nn/params/nn_initial.h"
#include "train/pipeline/stack_walk.h"

enum {
    BLOCKS = 3,
    MICRO = 3, /* micro-batches: the steps are F, FB, FB, B */
    SETS = 2,  /* of rows */
    REPLAYS = 20,
    CTAS = 8, /* ranks may share a device */
    ELEMENTS = TOKENS * H,
    CHOSEN = TOKENS * CHOICES
};

typedef struct walk_results {
    float y[MICRO][ELEMENTS], dx[MICRO][ELEMENTS];
    int32_t ids[MICRO][CHOSEN]; /* of the last block */
    int64_t sums[MOST_GRADS];
} walk_results;

typedef struct walk_bed {
    layer_bed on;
    shape sizes;
    nn_sequence sequence;
    nn_stack stack;
    nn_stack_saved saved[MICRO];
    nn_room rooms[MICRO];
    float *x[MICRO], *y[MICRO], *dy[MICRO]; /* rooms of the test */
    mimo_nodes *nodes;
    stage_streams streams;
    stack_walk walk;
} walk_bed;

static const nn_block_kind *const kinds[BLOCKS] = {&nn_block_mixed, &nn_block_dense,
                                                   &nn_block_mixed};

/* ------------------------------------------ the nodes ---------------------------------------- */

static mimo_status find(stack_pass *out, void *context, const mimo_node *node)
{
    walk_bed *it = context;
    *out = (stack_pass){&it->stack, &it->saved[node->micro_batch]};
    return MIMO_OK;
}

static mimo_status begin_forward(walk_bed *it, int64_t m)
{
    nn_stack_saved *saved = &it->saved[m];
    mimo_status status =
        nn_runtime_copy(&it->on.runtime, saved->x[0], it->x[m], ELEMENTS * (int64_t)sizeof(float));
    return status == MIMO_OK ? nn_stack_begin(&it->stack, saved, &it->sequence) : status;
}

/* The gradient takes the place of the result. */
static mimo_status begin_backward(walk_bed *it, int64_t m)
{
    float *end = it->saved[m].x[BLOCKS];
    int64_t bytes = ELEMENTS * (int64_t)sizeof *end;
    mimo_status status = nn_runtime_copy(&it->on.runtime, it->y[m], end, bytes);
    return status == MIMO_OK ? nn_runtime_copy(&it->on.runtime, end, it->dy[m], bytes) : status;
}

static mimo_status other(void *context, const mimo_node *node)
{
    walk_bed *it = context;
    bool forward = node->pass == MIMO_NODE_FORWARD;
    if (node->part == MIMO_NODE_PRE_PROCESS && forward)
        return begin_forward(it, node->micro_batch);
    if (node->part == MIMO_NODE_POST_PROCESS && !forward)
        return begin_backward(it, node->micro_batch);
    return MIMO_OK;
}

static mimo_nodes *cut(void)
{
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    mimo_node_layer layers[BLOCKS];
    const mimo_node_chunk chunk = {.layers = layers, .count = BLOCKS};
    mimo_schedule *schedule = NULL;
    mimo_nodes *nodes = NULL;
    sizes.micro_batches = MICRO;
    sizes.overlap = true;
    for (int i = 0; i < BLOCKS; i++)
        layers[i] = stack_walk_layer(kinds[i], NN_RECOMPUTE_NONE);
    MPI_EXPECT_OK(mimo_schedule_create(&schedule, &sizes));
    MPI_EXPECT_OK(mimo_nodes_create(&nodes, schedule, &chunk, NULL));
    mimo_schedule_destroy(schedule);
    return nodes;
}

/* -------------------------------------------- life ------------------------------------------- */

/* Ranks that share a device need room for the kernels of all. */
static void narrow_dispatch(layer_bed *on)
{
    mimo_dispatch_desc sizes = *nn_dispatch_sizes(on->dispatch);
    sizes.ctas = CTAS;
    nn_dispatch_destroy(on->dispatch);
    MPI_EXPECT_OK(nn_dispatch_create(&on->dispatch, &on->runtime, on->group, &sizes));
}

static void open_stack_of(walk_bed *it)
{
    static const stack_case blocks = {.order = NN_ORDER_FIXED, .shared = F};
    const nn_sequence_desc sequence = {
        .causal = true, .rows = S, .batch = B, .runtime = &it->on.runtime, .pairs = 1};
    it->sizes = (shape){1, mpi_test_size(), 1};
    it->on.shape = &it->sizes;
    open_grids(&it->on, mpi_test_comm());
    open_store(&it->on, blocks.order);
    narrow_dispatch(&it->on);
    MPI_EXPECT_OK(nn_sequence_init(&it->sequence, &sequence));
    open_stack(&it->stack, &it->on, &blocks, kinds, 0, BLOCKS);
    MPI_EXPECT_OK(nn_params_seal(it->on.params));
}

static void open_walk(walk_bed *it)
{
    const stage_streams_desc streams = {.runtime = &it->on.runtime, .exchanges = true};
    open_stack_of(it);
    const stack_walk_work work = {it, find, other, &it->streams, it->on.dispatch};
    for (int m = 0; m < MICRO; m++) {
        place_stack(&it->saved[m], &it->rooms[m], &it->stack, &it->on.runtime);
        it->x[m] = nn_test_room(ELEMENTS);
        it->y[m] = nn_test_room(ELEMENTS);
        it->dy[m] = nn_test_room(ELEMENTS);
    }
    it->nodes = cut();
    MPI_EXPECT_OK(stage_streams_create(&it->streams, &streams));
    MPI_EXPECT_OK(stack_walk_open(&it->walk, it->nodes, 0, &work));
    MPI_EXPECT(node_lanes_apart(&it->walk.lanes), "exchanges have no stream of their own");
}

static void close_walk(walk_bed *it)
{
    stack_walk_close(&it->walk);
    stage_streams_destroy(&it->streams);
    mimo_nodes_destroy(it->nodes);
    for (int m = 0; m < MICRO; m++)
        release_stack(&it->saved[m], &it->rooms[m]);
    nn_stack_release(&it->stack);
    nn_sequence_release(&it->sequence);
    nn_test_free_rooms();
    close_bed(&it->on);
}

/* ------------------------------------------- a walk ------------------------------------------ */

static void set_room(float *room, const char *name, int set, int m)
{
    static float numbers[ELEMENTS];
    int64_t stream = 1 + set + SETS * (m + (int64_t)MICRO * mpi_test_rank());
    for (int64_t i = 0; i < ELEMENTS; i++)
        numbers[i] = (float)nn_normal((uint64_t)stream, name, i);
    nn_test_write(room, numbers, ELEMENTS);
}

/* The rows of a set; and nothing is left of what a walk before gave. */
static void set_rows(walk_bed *it, int set)
{
    for (int m = 0; m < MICRO; m++) {
        set_room(it->x[m], "x", set, m);
        set_room(it->dy[m], "dy", set, m);
        set_room(it->y[m], "stale", set, m);
        set_room(it->saved[m].x[0], "stale", set, m);
    }
}

/* Enqueues alone. */
static void walk_once(walk_bed *it)
{
    MPI_EXPECT_OK(nn_params_zero_grad(it->on.params));
    for (int64_t at = 0; at < it->walk.count;)
        MPI_EXPECT_OK(stack_walk_step(&at, &it->walk));
}

static void read_sums(int64_t *to, const walk_bed *it)
{
    int64_t used = 0;
    for (int i = 0; i < nn_params_count(it->on.params); i++) {
        const nn_param *param = nn_params_at(it->on.params, i);
        int64_t count = param->held && param->sums ? param->count : 0;
        MPI_EXPECT(used + count <= MOST_GRADS, "%d elements", (int)used);
        MPI_EXPECT_OK(
            nn_runtime_read(&it->on.runtime, to + used, param->sums, count * (int64_t)sizeof *to));
        used += count;
    }
}

static void read_results(walk_results *to, const walk_bed *it)
{
    for (int m = 0; m < MICRO; m++) {
        const nn_block_saved *last = it->saved[m].blocks[BLOCKS - 1];
        nn_test_read(to->y[m], it->y[m], ELEMENTS);
        nn_test_read(to->dx[m], it->saved[m].x[0], ELEMENTS);
        MPI_EXPECT_OK(nn_runtime_read(&it->on.runtime, to->ids[m], last->moe.router.ids,
                                      CHOSEN * (int64_t)sizeof(int32_t)));
    }
    read_sums(to->sums, it);
    MPI_EXPECT_OK(nn_dispatch_check(it->on.dispatch));
}

/* ------------------------------------------- a graph ----------------------------------------- */

/* Threads of NCCL may call what a capture of all threads forbids. */
static cudaGraphExec_t capture(walk_bed *it, bool serial)
{
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    it->walk.serial = serial;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    walk_once(it);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return ready;
}

static void expect_replays(walk_bed *it, const walk_results *called, bool serial)
{
    static walk_results got;
    cudaGraphExec_t graph = capture(it, serial);
    for (int i = 0; i < REPLAYS; i++) {
        set_rows(it, i % SETS);
        EXPECT_CUDA(cudaGraphLaunch(graph, test_stream()));
        read_results(&got, it);
        MPI_EXPECT(memcmp(&got, &called[i % SETS], sizeof got) == 0, "replay %d, serial %d", i,
                   serial);
    }
    EXPECT_CUDA(cudaGraphExecDestroy(graph));
}

MPI_TEST(nn_walk, replays_give_the_bits_of_the_calls)
{
    static walk_results called[SETS], again;
    static walk_bed it;
    memset(&it, 0, sizeof it);
    open_walk(&it);
    for (int set = 0; set < SETS; set++) { /* rooms of products grow in these */
        set_rows(&it, set);
        walk_once(&it);
        read_results(&called[set], &it);
    }
    MPI_EXPECT(memcmp(called[0].ids, called[1].ids, sizeof called->ids) != 0,
               "both sets of rows choose the same experts");
    expect_replays(&it, called, false);
    expect_replays(&it, called, true);
    it.walk.serial = false;
    set_rows(&it, 0);
    walk_once(&it); /* marks of a graph are not those of a walk behind it */
    read_results(&again, &it);
    MPI_EXPECT(memcmp(&again, &called[0], sizeof again) == 0, "behind the graphs");
    close_walk(&it);
}
