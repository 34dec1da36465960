/* The life of bridges and dispatches on two ranks, to be run under valgrind: created (also
 * wrongly), used in every way, destroyed. Other tests check what moves where. */
#include <stdio.h>
#include <stdlib.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

#include "executors.h"

#define MUST(call)                                                 \
    do {                                                           \
        if ((call) != MIMO_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, mimo_last_error()); \
            MPI_Abort(MPI_COMM_WORLD, 1);                          \
        }                                                          \
    } while (0)

enum { SEQ = 8, HIDDEN = 3, SAMPLES = 4 };

typedef struct life {
    mimo_comm *comm;
    mimo_grid *encoder, *llm;
    mimo_bridge *bridge;
    mimo_tensor src, dst;    /* exactly as large as needed */
    mimo_buffer *buffers[2]; /* the buffers of src and dst, where the executor is zero-copy */
} life;

/* A tile's memory: its own, or the buffer's. */
static void *room(life *it, mimo_side side, int64_t rows, bool shared)
{
    size_t bytes = (size_t)(rows * HIDDEN) * sizeof(float);
    float *data = NULL;
    if (shared) {
        MUST(mimo_buffer_create(&it->buffers[side], it->comm, (int64_t)bytes));
        data = mimo_buffer_data(it->buffers[side]);
    } else {
        data = malloc(bytes);
    }
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int64_t i = 0; i < rows * HIDDEN; i++)
        data[i] = (float)i;
    return data;
}

static void release_room(life *it, mimo_side side, const mimo_tensor *tile)
{
    if (!it->buffers[side])
        free(tile->data);
    mimo_buffer_destroy(it->buffers[side]);
    it->buffers[side] = NULL;
}

static void move_both_ways(life *it)
{
    mimo_op *op;
    MUST(mimo_bridge_forward(it->bridge, &it->dst, &it->src, 1, NULL));
    MUST(mimo_bridge_backward(it->bridge, &it->src, &it->dst, 1, NULL));
    MUST(mimo_bridge_forward_start(&op, it->bridge, &it->dst, &it->src, 1, NULL));
    MUST(mimo_op_wait(&op));
    MUST(mimo_bridge_self_test(it->bridge, 1));
}

/* A wrong shape on one rank is an error on both, and the call leaves nothing behind. */
static void move_wrongly(life *it)
{
    mimo_tensor wrong = it->dst;
    wrong.shape[2] += mimo_comm_rank(it->comm);
    if (mimo_bridge_forward(it->bridge, &wrong, &it->src, 1, NULL) == MIMO_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void live(life *it, executor_id executor, bool cut)
{
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    int64_t rows = cut ? SEQ / 2 : SEQ, samples = SAMPLES / 2;
    bool shared = executor == EXECUTOR_ZERO_COPY;
    desc.src = it->encoder;
    desc.dst = it->llm;
    desc.executor = executor_of(executor);
    desc.partition = cut ? &zigzag : NULL;
    MUST(mimo_bridge_create(&it->bridge, it->comm, &desc));
    void *encoder = room(it, MIMO_SRC, SEQ * samples, shared);
    void *llm = room(it, MIMO_DST, rows * SAMPLES, shared);
    it->src = mimo_tensor_3d(encoder, MIMO_F32, "sbh", SEQ, samples, HIDDEN);
    it->dst = mimo_tensor_3d(llm, MIMO_F32, "bsh", SAMPLES, rows, HIDDEN);
    move_both_ways(it);
    move_wrongly(it);
    move_both_ways(it);
    mimo_bridge_destroy(it->bridge);
    release_room(it, MIMO_SRC, &it->src);
    release_room(it, MIMO_DST, &it->dst);
}

/* Create bridges on grids that collective refuses. */
static void create_wrongly(life *it)
{
    mimo_bridge *bridge;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = it->llm;
    desc.dst = it->encoder;
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    if (mimo_bridge_create(&bridge, it->comm, &desc) == MIMO_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Everything except the operation is destroyed first. */
static void end_in_flight(life *it, executor_id executor)
{
    mimo_op *op;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    float from[SEQ * SAMPLES / 2 * HIDDEN] = {0}, to[SEQ * SAMPLES * HIDDEN];
    desc.src = it->encoder;
    desc.dst = it->llm;
    desc.executor = executor_of(executor);
    MUST(mimo_bridge_create(&it->bridge, it->comm, &desc));
    it->src = mimo_tensor_3d(from, MIMO_F32, "sbh", SEQ, SAMPLES / 2, HIDDEN);
    it->dst = mimo_tensor_3d(to, MIMO_F32, "bsh", SAMPLES, SEQ, HIDDEN);
    MUST(mimo_bridge_forward_start(&op, it->bridge, &it->dst, &it->src, 1, NULL));
    mimo_grid_destroy(it->encoder);
    mimo_comm_destroy(it->comm);
    mimo_bridge_destroy(it->bridge);
    mimo_grid_destroy(it->llm);
    MUST(mimo_op_wait(&op));
}

/* Routes of a rank whose tokens are fewer, one of which has no expert; then tiles too small. */
static void set_route(const life *it, mimo_route *route, int64_t capacity)
{
    static const int64_t ids[SAMPLES][2] = {{0, 3}, {1, 1}, {-1, -1}, {2, 0}};
    mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
    choice.ids = ids;
    choice.id_dtype = MIMO_I64;
    choice.tokens = SAMPLES - mimo_comm_rank(it->comm);
    choice.capacity = capacity;
    if ((mimo_route_set(route, &choice, NULL) == MIMO_OK) != (capacity != 1))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void move_to_experts(life *it, bool shared)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    mimo_dispatch *dispatch;
    mimo_route *route;
    int rank = mimo_comm_rank(it->comm);
    desc.experts = 4;
    desc.top_k = 2;
    desc.max_tokens = SAMPLES;
    desc.hidden = HIDDEN;
    desc.transport = shared ? MIMO_TRANSPORT_ZERO_COPY : MIMO_TRANSPORT_P2P;
    MUST(mimo_dispatch_create(&dispatch, it->comm, &desc));
    MUST(mimo_route_create(&route, dispatch));
    set_route(it, route, 1);
    set_route(it, route, -1);
    MUST(mimo_route_read(&counts, route));
    it->src = mimo_tensor_2d(room(it, MIMO_SRC, SAMPLES - rank, false), MIMO_F32, "th",
                             SAMPLES - rank, HIDDEN);
    it->dst = mimo_tensor_2d(room(it, MIMO_DST, counts.rows[rank], shared), MIMO_F32, "th",
                             counts.rows[rank], HIDDEN);
    for (int i = 0; i < 2; i++) {
        MUST(mimo_dispatch_rows(route, &it->dst, &it->src, 1, NULL));
        MUST(mimo_dispatch_combine(route, &it->src, &it->dst, 1, NULL));
    }
    mimo_dispatch_destroy(dispatch);
    mimo_route_destroy(route);
    release_room(it, MIMO_SRC, &it->src);
    release_room(it, MIMO_DST, &it->dst);
}

static void begin(life *it)
{
    MUST(mimo_comm_create_mpi(&it->comm, MPI_COMM_WORLD, NULL));
    MUST(mimo_grid_create_text(&it->encoder, "tp=1,dp=2", 0));
    MUST(mimo_grid_create_text(&it->llm, "tp=1,cp=2,dp=1", 0));
}

int main(int argc, char **argv)
{
    life it = {0};
    MPI_Init(&argc, &argv);
    begin(&it);
    create_wrongly(&it);
    for (int cut = 0; cut < 2; cut++) {
        live(&it, EXECUTOR_COLLECTIVE, cut);
        live(&it, EXECUTOR_P2P, cut);
        live(&it, EXECUTOR_ZERO_COPY, cut);
        move_to_experts(&it, cut);
    }
    mimo_grid_destroy(it.encoder);
    mimo_grid_destroy(it.llm);
    mimo_comm_destroy(it.comm);
    for (int i = 0; i < 2; i++) {
        begin(&it);
        end_in_flight(&it, i == 0 ? EXECUTOR_COLLECTIVE : EXECUTOR_P2P);
    }
    return MPI_Finalize();
}
