#include "fault_bed.h"

#include <stdio.h>
#include <string.h>

#include "core/check.h"

/* ------------------------------------- tensors ------------------------------------ */

static float value_of(int sample, int position, int h)
{
    return (float)(1000 * sample + 10 * position + h);
}

mimo_tensor fault_full_view(fault_bed *bed)
{
    return mimo_tensor_3d(bed->full, MIMO_F32, "sbh", FAULT_SEQ, 1, FAULT_H);
}

mimo_tensor fault_shard_view(float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H])
{
    return mimo_tensor_3d(shard, MIMO_F32, "sbh", FAULT_ROWS, FAULT_BATCH, FAULT_H);
}

/* Prints the first wrong element of a tensor, and returns 1 where `got` is wrong. With `tensor`
 * NULL it prints nothing, as the tensor is only filled. */
static int compare(const fault_bed *bed, const char *tensor, int wrong, int at, float got,
                   float expected)
{
    if (got == expected)
        return 0;
    if (tensor && wrong == 0)
        fprintf(stderr, "rank %d: %s: row %d, column %d is %g, not %g\n", bed->rank, tensor,
                at / FAULT_H, at % FAULT_H, (double)got, (double)expected);
    return 1;
}

/* Write the right values, and count the elements that differed. */
static int visit_full(fault_bed *bed, const char *tensor)
{
    int wrong = 0;
    for (int i = 0; i < FAULT_SEQ * FAULT_H; i++) {
        float *at = &bed->full[i / FAULT_H][i % FAULT_H];
        float value = value_of(bed->rank / 2, i / FAULT_H, i % FAULT_H);
        wrong += compare(bed, tensor, wrong, i, *at, value);
        *at = value;
    }
    return wrong;
}

static int visit_shard(const fault_bed *bed, float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H],
                       const char *tensor)
{
    static const int first[] = {0, 6, 2, 4}; /* zigzag over cp, each half cut over tp */
    int wrong = 0;
    for (int i = 0; i < FAULT_ROWS * FAULT_BATCH * FAULT_H; i++) {
        int row = i / (FAULT_BATCH * FAULT_H), sample = i / FAULT_H % FAULT_BATCH;
        float *at = &shard[row][sample][i % FAULT_H];
        float value = value_of(sample, first[bed->rank] + row, i % FAULT_H);
        wrong += compare(bed, tensor, wrong, i, *at, value);
        *at = value;
    }
    return wrong;
}

void fault_fill_full(fault_bed *bed)
{
    (void)visit_full(bed, NULL);
}

void fault_fill_shard(const fault_bed *bed, float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H])
{
    (void)visit_shard(bed, shard, NULL);
}

int fault_wrong_full(fault_bed *bed)
{
    return visit_full(bed, "full");
}

int fault_wrong_shard(const fault_bed *bed, float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H])
{
    return visit_shard(bed, shard, "shard");
}

/* ------------------------------------- experts ------------------------------------ */

/* A token has an expert on either side of ep. So each tile has a row of each token; those of tokens
 * 0 come first on ranks 0 and 1, and last on the others. */
static const int32_t chosen[FAULT_TOKENS][FAULT_TOP_K] = {{0, 3}, {2, 1}};

static int64_t tokens_of(const fault_bed *bed)
{
    return bed->rank == FAULT_WITHOUT_TOKENS ? 0 : FAULT_TOKENS;
}

/* Which token row `row` of a tile is, as rank * FAULT_TOKENS + token. */
static int token_at(const fault_bed *bed, int row)
{
    static const int ranks[] = {0, 1, 3};
    bool second = bed->rank / 2 == 0 ? row >= FAULT_TILE / 2 : row < FAULT_TILE / 2;
    return ranks[row % (FAULT_TILE / 2)] * FAULT_TOKENS + second;
}

static float token_value(int token, int h)
{
    return (float)(100 * token + h + 1);
}

static int visit_tile(fault_bed *bed, const char *tensor)
{
    int wrong = 0;
    for (int i = 0; i < FAULT_TILE * FAULT_H; i++) {
        float *at = &bed->tile[i / FAULT_H][i % FAULT_H];
        float value = token_value(token_at(bed, i / FAULT_H), i % FAULT_H);
        wrong += compare(bed, tensor, wrong, i, *at, value);
        *at = value;
    }
    return wrong;
}

/* Tokens as they are sent, or four times as much: what two pairs on two ranks each give back. */
static int visit_tokens(fault_bed *bed, const char *tensor, float scale)
{
    int wrong = 0;
    for (int i = 0; i < (int)tokens_of(bed) * FAULT_H; i++) {
        float *at = &bed->tokens[i / FAULT_H][i % FAULT_H];
        float value = scale * token_value(bed->rank * FAULT_TOKENS + i / FAULT_H, i % FAULT_H);
        wrong += compare(bed, tensor, wrong, i, *at, value);
        *at = value;
    }
    return wrong;
}

int fault_wrong_tile(fault_bed *bed)
{
    return visit_tile(bed, "tile");
}

int fault_wrong_tokens(fault_bed *bed)
{
    return visit_tokens(bed, "tokens", 4);
}

static mimo_status create_dispatch(mimo_dispatch **out, const fault_bed *bed)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = 4;
    desc.top_k = FAULT_TOP_K;
    desc.etp = 2;
    desc.max_tokens = FAULT_TOKENS;
    desc.hidden = FAULT_H;
    if (bed->executor == EXECUTOR_ZERO_COPY)
        desc.transport = MIMO_TRANSPORT_ZERO_COPY;
    return mimo_dispatch_create(out, bed->comm, &desc);
}

static mimo_status set_route(fault_bed *bed)
{
    mimo_op *op;
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = chosen;
    desc.tokens = tokens_of(bed);
    desc.capacity = FAULT_TILE;
    MIMO_TRY(mimo_route_set_start(&op, bed->route, &desc, NULL));
    return mimo_op_wait(&op);
}

static mimo_status create_route(fault_bed *bed)
{
    MIMO_TRY(create_dispatch(&bed->dispatch, bed));
    MIMO_TRY(mimo_route_create(&bed->route, bed->dispatch));
    return set_route(bed);
}

/* ------------------------------------- the bed ------------------------------------ */

mimo_status fault_create_bridge(fault_bed *bed)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    rule.sp = true;
    desc.src = bed->src;
    desc.dst = bed->dst;
    desc.partition = &rule;
    desc.executor = executor_of(bed->executor);
    return mimo_bridge_create(&bed->bridge, bed->comm, &desc);
}

mimo_status fault_create_fastest(fault_bed *bed, int64_t hidden)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    desc.src = bed->src;
    desc.dst = bed->dst;
    sizes.batch = FAULT_BATCH;
    sizes.seq = FAULT_SEQ;
    sizes.hidden = hidden;
    sizes.in_buffer = true;
    return mimo_bridge_create_fastest(&bed->bridge, bed->comm, &desc, &sizes);
}

mimo_status fault_create_gradient(fault_bed *bed)
{
    return mimo_gradient_create(&bed->gradient, bed->comm, bed->src, bed->dst);
}

static mimo_status create_partition(fault_bed *bed)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    const mimo_partition_coords place = {sizeof(mimo_partition_coords), bed->rank / 2, 2,
                                         bed->rank % 2, 2};
    rule.sp = true;
    MIMO_TRY(mimo_comm_split(&bed->tp, bed->comm, bed->rank / 2, bed->rank));
    return mimo_partition_create(&bed->partition, &rule, &place);
}

mimo_status fault_bed_begin(fault_bed *out, mimo_comm *comm, executor_id executor)
{
    memset(out, 0, sizeof *out);
    out->comm = comm;
    out->rank = mimo_comm_rank(comm);
    out->executor = executor;
    MIMO_TRY(mimo_grid_create_text(&out->src, "tp=2,dp=2", 0));
    return mimo_grid_create_text(&out->dst, "tp=2,cp=2,dp=1", 0);
}

mimo_status fault_bed_create(fault_bed *bed, unsigned what)
{
    MIMO_TRY(mimo_grid_connect(bed->src, bed->comm));
    if (what & FAULT_BRIDGE)
        MIMO_TRY(fault_create_bridge(bed));
    if (what & FAULT_GRADIENT)
        MIMO_TRY(fault_create_gradient(bed));
    if (what & FAULT_DISPATCH)
        MIMO_TRY(create_route(bed));
    return what & FAULT_PARTITION ? create_partition(bed) : MIMO_OK;
}

void fault_bed_end(fault_bed *bed)
{
    mimo_dispatch_destroy(bed->dispatch);
    mimo_route_destroy(bed->route);
    mimo_partition_destroy(bed->partition);
    mimo_gradient_destroy(bed->gradient);
    mimo_comm_destroy(bed->tp);
    mimo_bridge_destroy(bed->bridge);
    mimo_grid_destroy(bed->dst);
    mimo_grid_destroy(bed->src);
    memset(bed, 0, sizeof *bed);
}

/* -------------------------------------- calls ------------------------------------- */

mimo_status fault_forward(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    fault_fill_full(bed);
    return mimo_bridge_forward(bed->bridge, &to, &from, 1, NULL);
}

mimo_status fault_backward(fault_bed *bed)
{
    mimo_tensor to = fault_full_view(bed), from = fault_shard_view(bed->shard);
    fault_fill_shard(bed, bed->shard);
    return mimo_bridge_backward(bed->bridge, &to, &from, 1, NULL);
}

static mimo_status forward_in_chunks(fault_bed *bed)
{
    mimo_op *op = NULL;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    move.from = &from;
    move.to = &to;
    move.n = 1;
    move.chunks = FAULT_BATCH;
    fault_fill_full(bed);
    MIMO_TRY(mimo_bridge_forward_start_chunked(&op, bed->bridge, &move));
    mimo_status first = mimo_op_wait_chunk(op, 0, NULL), status = mimo_op_wait(&op);
    MIMO_CHECK(first == status || first == MIMO_OK, MIMO_ERR_INTERNAL, "chunk 0 gave %s",
               mimo_status_name(first));
    return status;
}

mimo_status fault_adjoint(fault_bed *bed)
{
    mimo_tensor from = fault_shard_view(bed->shard);
    mimo_tensor to = mimo_tensor_3d(bed->joined, MIMO_F32, "sbh", FAULT_SEQ, FAULT_BATCH, FAULT_H);
    fault_fill_shard(bed, bed->shard);
    return mimo_partition_adjoint(bed->partition, MIMO_EMBEDDINGS, &to, &from, bed->tp, NULL);
}

static mimo_gradient_bucket bucket_of(fault_bed *bed)
{
    return (mimo_gradient_bucket){sizeof(mimo_gradient_bucket),
                                  "weights",
                                  bed->weights,
                                  FAULT_H,
                                  MIMO_F32,
                                  MIMO_DST,
                                  "",
                                  "tp",
                                  NULL};
}

static mimo_status count(fault_bed *bed)
{
    mimo_gradient_reset(bed->gradient);
    MIMO_TRY(mimo_gradient_add(bed->gradient, 1.0, 2));
    return mimo_gradient_count(NULL, NULL, bed->gradient);
}

static mimo_status finalize(fault_bed *bed)
{
    const mimo_gradient_bucket bucket = bucket_of(bed);
    for (int i = 0; i < FAULT_H; i++)
        bed->weights[i] = 1;
    return mimo_gradient_finalize(bed->gradient, &bucket, 1, NULL);
}

/* A name that no earlier call took. */
static mimo_status add_grid(fault_bed *bed)
{
    char name[32];
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "grid %d", i);
        mimo_status status = mimo_gradient_add_grid(bed->gradient, name, bed->src, "dp", "tp");
        if (status != MIMO_ERR_EXISTS)
            return status;
    }
}

static mimo_status prepare_gradients(fault_bed *bed)
{
    const mimo_gradient_bucket bucket = bucket_of(bed);
    return mimo_gradient_prepare(bed->gradient, &bucket, 1);
}

static mimo_status norm(fault_bed *bed)
{
    double length;
    const mimo_gradient_bucket bucket = bucket_of(bed);
    return mimo_gradient_norm(&length, bed->gradient, &bucket, 1, NULL);
}

mimo_status fault_gradient_step(fault_bed *bed)
{
    MIMO_TRY(count(bed));
    MIMO_TRY(finalize(bed));
    return norm(bed);
}

static mimo_status barrier(fault_bed *bed)
{
    return mimo_comm_barrier(bed->comm);
}

static mimo_status agree(fault_bed *bed)
{
    return mimo_comm_agree(bed->comm, MIMO_OK);
}

static mimo_status agree_named(fault_bed *bed)
{
    return mimo_comm_agree_named(bed->comm, MIMO_OK, "load");
}

static mimo_status allreduce(fault_bed *bed)
{
    return mimo_comm_allreduce(bed->comm, bed->weights, FAULT_H, MIMO_F32, MIMO_SUM, NULL);
}

static mimo_status allgather(fault_bed *bed)
{
    return mimo_comm_allgather(bed->comm, bed->joined, bed->weights, sizeof bed->weights, NULL);
}

static mimo_status reduce_scatter(fault_bed *bed)
{
    return mimo_comm_reduce_scatter(bed->comm, bed->weights, bed->joined, FAULT_H, MIMO_F32,
                                    MIMO_SUM, NULL);
}

static mimo_status alltoall(fault_bed *bed)
{
    const float *half = &bed->joined[FAULT_SEQ / 2][0][0];
    return mimo_comm_alltoall(bed->comm, bed->joined, half, sizeof bed->weights, NULL);
}

static mimo_status broadcast(fault_bed *bed)
{
    return mimo_comm_broadcast(bed->comm, bed->weights, sizeof bed->weights, 1, NULL);
}

static mimo_status host_allgather(fault_bed *bed)
{
    int all[FAULT_RANKS];
    return mimo_comm_host_allgather(bed->comm, all, &bed->rank, sizeof bed->rank);
}

static mimo_status started_gather(fault_bed *bed)
{
    int all[FAULT_RANKS];
    mimo_host_gather *gather = NULL;
    MIMO_TRY(mimo_comm_host_allgather_start(&gather, bed->comm, all, &bed->rank, sizeof bed->rank,
                                            "loads"));
    return mimo_comm_host_allgather_wait(&gather);
}

static mimo_status split(fault_bed *bed)
{
    mimo_comm *half = NULL;
    mimo_status status = mimo_comm_split(&half, bed->comm, bed->rank % 2, 0);
    mimo_comm_destroy(half);
    return status;
}

static mimo_status group(fault_bed *bed)
{
    return mimo_grid_create_group(bed->src, "dp");
}

/* Connects dst, the grid that fault_bed_create does not connect. */
static mimo_status connect(fault_bed *bed)
{
    return mimo_grid_connect(bed->dst, bed->comm);
}

static mimo_status another_buffer(fault_bed *bed)
{
    mimo_buffer *buffer = NULL;
    mimo_status status = mimo_buffer_create(&buffer, bed->comm, sizeof bed->full);
    mimo_buffer_destroy(buffer);
    return status;
}

/* Over MPI memory that is there already can't be shared. The ranks agree on that error as on any
 * other. */
static mimo_status borrow_memory(fault_bed *bed)
{
    mimo_buffer *buffer = NULL;
    mimo_status status = mimo_buffer_borrow(&buffer, bed->comm, bed->full, sizeof bed->full);
    mimo_buffer_destroy(buffer);
    return status == MIMO_ERR_UNSUPPORTED ? MIMO_OK : status;
}

/* Two micro-batches, of which the calls that follow move the first. Rank 0 knows the other one. */
static mimo_status update(fault_bed *bed)
{
    static const mimo_span span = {0, 0, 2, 3};
    mimo_batch_desc batches[] = {MIMO_BATCH_DESC_INIT, MIMO_BATCH_DESC_INIT};
    batches[0].batch = batches[1].batch = FAULT_BATCH;
    batches[1].ragged = true;
    batches[1].spans = &span;
    batches[1].span_count = bed->rank == 0;
    return mimo_bridge_update(bed->bridge, batches, 2);
}

static mimo_status update_all(fault_bed *bed)
{
    mimo_update_desc update = MIMO_UPDATE_DESC_INIT;
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = FAULT_BATCH;
    update.bridge = bed->bridge;
    update.descs = &batch;
    update.n = 1;
    return mimo_bridge_update_all(&update, 1);
}

static mimo_status prepare_backward(fault_bed *bed)
{
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    mimo_tensor to = fault_full_view(bed), from = fault_shard_view(bed->shard);
    move.to = &to;
    move.from = &from;
    move.n = 1;
    return mimo_bridge_prepare(bed->bridge, true, &move);
}

static mimo_status self_test(fault_bed *bed)
{
    return mimo_bridge_self_test(bed->bridge, 1);
}

/* Create an object beside the bed's own, and destroy it. */
static mimo_status create_beside(fault_bed *bed, fault_act create)
{
    mimo_bridge *first = bed->bridge;
    bed->bridge = NULL;
    mimo_status status = create(bed);
    mimo_bridge_destroy(bed->bridge);
    bed->bridge = first;
    return status;
}

static mimo_status another_bridge(fault_bed *bed)
{
    return create_beside(bed, fault_create_bridge);
}

static mimo_status create_fastest(fault_bed *bed)
{
    return fault_create_fastest(bed, FAULT_H);
}

static mimo_status fastest_bridge(fault_bed *bed)
{
    return create_beside(bed, create_fastest);
}

static mimo_status another_gradient(fault_bed *bed)
{
    mimo_gradient *first = bed->gradient, *second;
    bed->gradient = NULL;
    mimo_status status = fault_create_gradient(bed);
    second = bed->gradient;
    bed->gradient = first;
    mimo_gradient_destroy(second);
    return status;
}

static mimo_status another_dispatch(fault_bed *bed)
{
    mimo_dispatch *dispatch = NULL;
    mimo_status status = create_dispatch(&dispatch, bed);
    mimo_dispatch_destroy(dispatch);
    return status;
}

static mimo_tensor tokens_view(fault_bed *bed)
{
    return mimo_tensor_2d(bed->tokens, MIMO_F32, "th", tokens_of(bed), FAULT_H);
}

static mimo_tensor tile_view(fault_bed *bed)
{
    return mimo_tensor_2d(bed->tile, MIMO_F32, "th", FAULT_TILE, FAULT_H);
}

static mimo_status move_to_experts(fault_bed *bed)
{
    mimo_tensor to = tile_view(bed), from = tokens_view(bed);
    (void)visit_tokens(bed, NULL, 1);
    return mimo_dispatch_rows(bed->route, &to, &from, 1, NULL);
}

static mimo_status combine(fault_bed *bed)
{
    mimo_tensor to = tokens_view(bed), from = tile_view(bed);
    (void)visit_tile(bed, NULL);
    return mimo_dispatch_combine(bed->route, &to, &from, 1, NULL);
}

const fault_call fault_calls[] = {
    {"barrier", barrier, "barrier: ", 0},
    {"agree", agree, "agree: ", 0},
    {"named agree", agree_named, "load: ", 0},
    {"allreduce", allreduce, "allreduce SUM f32[3]: ", 0},
    {"allgather", allgather, "allgather of 12 bytes a rank: ", 0},
    {"reduce_scatter", reduce_scatter, "reduce_scatter SUM f32[3] a rank: ", 0},
    {"alltoall", alltoall, "alltoall of 12 bytes a rank: ", 0},
    {"broadcast", broadcast, "broadcast of 12 bytes from rank 1: ", 0},
    {"host allgather", host_allgather, "host_allgather of 4 bytes a rank: ", 0},
    {"started gather", started_gather, "loads host_allgather of 4 bytes a rank: ", 0},
    {"split", split, "comm split: ", 0},
    {"group", group, "create_group 'dp' of grid tp=2,dp=2: ", 0},
    {"connect", connect, "connect grid tp=2,cp=2,dp=1 at offset 0: ", 0},
    {"buffer", another_buffer, "buffer create: ", 0},
    {"borrow", borrow_memory, "buffer borrow: ", 0},
    {"forward", fault_forward,
     "bridge 1 forward of 1: f32 sbh[2,2,3] from f32 sbh[8,1,3]: ", FAULT_BRIDGE},
    {"backward", fault_backward,
     "bridge 1 backward of 1: f32 sbh[8,1,3] from f32 sbh[2,2,3]: ", FAULT_BRIDGE},
    {"chunks", forward_in_chunks,
     "bridge 1 forward of 1 in 2 chunks: f32 sbh[2,2,3] from f32 sbh[8,1,3]: ", FAULT_BRIDGE},
    {"update", update, "bridge 1 update to 2 micro-batches: ", FAULT_BRIDGE},
    {"update all", update_all, "bridge 1 update to a batch of 2: ", FAULT_BRIDGE},
    {"prepare", prepare_backward,
     "bridge 1 prepare of backward of 1: f32 sbh[8,1,3] from f32 sbh[2,2,3]: ", FAULT_BRIDGE},
    {"self-test", self_test, "bridge 1 self-test with seed 1: ", FAULT_BRIDGE},
    {"create", another_bridge, "bridge create src tp=2,dp=2", 0},
    {"fastest", fastest_bridge, "bridge create by measurement: ", 0},
    {"gradient", another_gradient, "gradient create", 0},
    {"add grid", add_grid, "gradient add grid 'grid ", FAULT_GRADIENT},
    {"prepare gradients", prepare_gradients, "gradient prepare of 1 buckets: ", FAULT_GRADIENT},
    {"count", count, "gradient count: ", FAULT_GRADIENT},
    {"step", fault_gradient_step, "gradient count: ", FAULT_GRADIENT},
    {"adjoint", fault_adjoint, "partition adjoint of f32 sbh[2,2,3]: ", FAULT_PARTITION},
    {"dispatch", another_dispatch, "dispatch create of 4 experts, top_k 2, etp=2, ", 0},
    {"route", set_route, "dispatch 1 set of route 1: ", FAULT_DISPATCH},
    {"rows", move_to_experts, "dispatch 1 rows of 1 by route 1: f32 th[6,3] from f32 th[",
     FAULT_DISPATCH},
    {"combine", combine, "dispatch 1 combine of 1 by route 1: f32 th[", FAULT_DISPATCH},
    {NULL, NULL, NULL, 0},
};

const fault_call *fault_find_call(const char *name)
{
    const fault_call *call = fault_calls;
    while (call->name && strcmp(call->name, name) != 0)
        call++;
    return call->name ? call : NULL;
}
