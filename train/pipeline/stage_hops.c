#include "train/pipeline/stage_hops.h"

#include "train/device/gpu_device.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static int64_t elements_of(const stage_hops *hops)
{
    return hops->desc.rows * hops->desc.width;
}

static const nn_runtime *runtime_of(const stage_hops *hops)
{
    return stage_streams_runtime(hops->desc.streams);
}

static mimo_stream compute_of(const stage_hops *hops)
{
    return stage_stream_of(hops->desc.streams, STREAM_COMPUTE);
}

static mimo_stream stream_for(const stage_hops *hops, hop_way way, bool sends)
{
    static const stage_stream streams[HOP_WAYS][2] = {
        {STREAM_ACTIVATIONS_IN, STREAM_ACTIVATIONS_OUT},
        {STREAM_GRADIENTS_IN, STREAM_GRADIENTS_OUT}};
    return stage_stream_of(hops->desc.streams, streams[way][sends]);
}

/* A message as one sequence position of `rows` samples; of the end that has none, an empty view. */
static mimo_tensor view_rows(const stage_hops *hops, const void *rows)
{
    mimo_tensor view = mimo_tensor_3d((void *)rows, NN_DTYPE, "sbh", 1, rows ? hops->desc.rows : 0,
                                      hops->desc.width);
    view.memory = runtime_of(hops)->memory;
    return view;
}

/* What one end of a message tells the bridge of its way. */
typedef struct hop_call {
    mimo_tensor to, from;
    mimo_move_desc move;
} hop_call;

static void describe_call(hop_call *out, const stage_hops *hops, hop_way way, bool sends,
                          const void *rows)
{
    out->to = view_rows(hops, sends ? NULL : rows);
    out->from = view_rows(hops, sends ? rows : NULL);
    out->move = (mimo_move_desc)MIMO_MOVE_DESC_INIT;
    out->move.to = &out->to;
    out->move.from = &out->from;
    out->move.n = 1;
    out->move.stream = stream_for(hops, way, sends);
}

/* --------------------------------------------- life ------------------------------------------- */

/* NCCL connects two ranks at their first message, and the host of one waits for that of the other
 * then. In a list that could be for ever, so it happens here. Tiles to come are aligned as the
 * address, which nobody reads. */
static mimo_status connect_ends(const stage_hops *hops, mimo_bridge *bridge, hop_way way,
                                bool sends)
{
    hop_call call;
    describe_call(&call, hops, way, sends, (const void *)(uintptr_t)256);
    return call.move.stream ? mimo_bridge_prepare(bridge, false, &call.move) : MIMO_OK;
}

static mimo_status create_way(hop_pair *pair, const stage_hops *hops, hop_way way, bool ahead)
{
    static const char *const names[HOP_WAYS] = {"activations", "gradients"};
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    bool back = way == HOP_GRADIENTS;
    desc.src = hops->ends[back];
    desc.dst = hops->ends[!back];
    desc.batch = hops->desc.rows;
    desc.name = names[way];
    desc.ctas = STREAM_CTAS;
    if (compute_of(hops))
        TRY(gpu_apart_create(&pair->apart[way], pair->comm, STREAM_CTAS));
    TRY(mimo_bridge_create(&pair->ways[way], pair->apart[way] ? pair->apart[way] : pair->comm,
                           &desc));
    return connect_ends(hops, pair->ways[way], way, ahead != back);
}

/* Join this rank with its neighbour at a boundary: boundary b lies between stage b and the one
 * behind it. -1: this rank has none at this time. */
static mimo_status join_pair(stage_hops *out, int64_t boundary)
{
    int64_t stages = mimo_grid_dim_size(out->desc.grid, "pp"), line, stage;
    TRY(mimo_grid_group_of(&line, &stage, out->desc.grid, "pp", mimo_comm_rank(out->desc.world)));
    bool paired = boundary >= 0, ahead = boundary == stage;
    hop_pair *pair = ahead ? &out->behind : &out->before;
    mimo_comm *none = NULL;
    TRY(mimo_comm_split(paired ? &pair->comm : &none, out->desc.world,
                        paired ? (int)(line * stages + boundary) : -1, ahead ? 0 : 1));
    for (int way = 0; paired && way < HOP_WAYS; way++)
        TRY(create_way(pair, out, (hop_way)way, ahead));
    return MIMO_OK;
}

/* The boundary at which this rank joins in a round: those of even numbers, those of odd ones, and
 * in the last round that between the last stage and the first one. So each rank is in one pair at a
 * time. */
static mimo_status find_boundary(int64_t *out, const stage_hops *hops, int64_t round)
{
    int64_t stages = mimo_grid_dim_size(hops->desc.grid, "pp"), stage;
    TRY(mimo_grid_coord(&stage, hops->desc.grid, mimo_comm_rank(hops->desc.world), "pp"));
    int64_t boundary = stage % 2 == round ? stage : stage - 1;
    if (round == 2)
        boundary = stage == 0 || stage == stages - 1 ? stages - 1 : -1;
    *out = round < 2 && boundary + 1 == stages ? -1 : boundary;
    return MIMO_OK;
}

static mimo_status create_ends(stage_hops *out)
{
    for (int way = 0; way < HOP_WAYS; way++)
        TRY(nn_mark_init(&out->tiles[way].filled, runtime_of(out)));
    TRY(mimo_grid_create_text(&out->ends[0], "dp=1", 0));
    return mimo_grid_create_text(&out->ends[1], "dp=1", 1);
}

mimo_status stage_hops_create(stage_hops *out, const stage_hops_desc *desc)
{
    out->desc = *desc;
    if (mimo_grid_dim_size(desc->grid, "pp") == 1)
        return MIMO_OK;
    TRY(mimo_comm_agree(desc->world, create_ends(out)));
    for (int64_t round = 0; round < (desc->ring ? 3 : 2); round++) {
        int64_t boundary;
        TRY(find_boundary(&boundary, out, round));
        TRY(mimo_comm_agree(desc->world, join_pair(out, boundary)));
    }
    return MIMO_OK;
}

static void release_tiles(const stage_hops *hops, hop_tiles *tiles)
{
    nn_runtime_free(runtime_of(hops), tiles->rows);
    memory_release(tiles->sent);
    tiles->rows = NULL;
    tiles->sent = NULL;
    tiles->count = tiles->next = 0;
}

static void release_pair(hop_pair *pair)
{
    for (int way = 0; way < HOP_WAYS; way++) {
        mimo_bridge_destroy(pair->ways[way]);
        mimo_comm_destroy(pair->apart[way]);
    }
    mimo_comm_destroy(pair->comm);
    *pair = (hop_pair){0};
}

/* As they were made, one pair at a time: NCCL's communicators end at both ends together, and round
 * a ring every rank would wait for the next one. */
static void release_pairs(stage_hops *hops)
{
    int64_t boundary, stage;
    for (int64_t round = 0; hops->ends[0] && round < 3; round++) {
        if (find_boundary(&boundary, hops, round) != MIMO_OK || boundary < 0 ||
            mimo_grid_coord(&stage, hops->desc.grid, mimo_comm_rank(hops->desc.world), "pp") !=
                MIMO_OK)
            continue;
        release_pair(boundary == stage ? &hops->behind : &hops->before);
    }
}

void stage_hops_destroy(stage_hops *hops)
{
    (void)stage_hops_finish(hops);
    release_pairs(hops);
    for (int way = 0; way < HOP_WAYS; way++) {
        release_tiles(hops, &hops->tiles[way]);
        nn_mark_release(&hops->tiles[way].filled);
    }
    mimo_grid_destroy(hops->ends[0]);
    mimo_grid_destroy(hops->ends[1]);
    *hops = (stage_hops){0};
}

void stage_hops_abort(stage_hops *hops, const char *sentence)
{
    for (int way = 0; way < HOP_WAYS; way++) {
        if (hops->before.apart[way])
            (void)mimo_comm_abort(hops->before.apart[way], sentence);
        if (hops->behind.apart[way])
            (void)mimo_comm_abort(hops->behind.apart[way], sentence);
    }
}

mimo_status stage_hops_reserve(stage_hops *hops, hop_way way, int64_t count)
{
    hop_tiles *tiles = &hops->tiles[way];
    int64_t elements;
    if (count <= tiles->count)
        return MIMO_OK;
    TRY(size_mul(&elements, count, elements_of(hops)));
    release_tiles(hops, tiles);
    TRY(nn_runtime_reserve(runtime_of(hops), &tiles->rows, elements, sizeof *tiles->rows));
    TRY(memory_reserve(&tiles->sent, count, sizeof *tiles->sent));
    tiles->count = count;
    return MIMO_OK;
}

/* ------------------------------------------- messages ----------------------------------------- */

static mimo_status begin(mimo_op **out, stage_hops *hops, mimo_bridge *bridge, const hop_call *call)
{
    hops->calls++;
    return mimo_bridge_forward_start_chunked(out, bridge, &call->move);
}

mimo_status stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows)
{
    hop_tiles *tiles = &hops->tiles[way];
    const hop_pair *pair = way == HOP_ACTIVATIONS ? &hops->behind : &hops->before;
    int64_t elements = elements_of(hops), next = tiles->next;
    nn_real *tile = tiles->rows + next * elements;
    hop_call call;
    describe_call(&call, hops, way, true, tile);
    /* Its rows are gone: see `count`. */
    TRY(stage_streams_end(hops->desc.streams, &tiles->sent[next], 1));
    TRY(nn_runtime_copy(runtime_of(hops), tile, rows, elements * (int64_t)sizeof *rows));
    TRY(nn_mark_set(&tiles->filled, compute_of(hops)));
    TRY(nn_mark_await(&tiles->filled, call.move.stream));
    tiles->next = (next + 1) % tiles->count;
    return begin(&tiles->sent[next], hops, pair->ways[way], &call);
}

mimo_status stage_hops_receive(stage_hops *hops, hop_way way, nn_real *rows, const nn_mark *free)
{
    const hop_pair *pair = way == HOP_ACTIVATIONS ? &hops->before : &hops->behind;
    mimo_op *op = NULL;
    hop_call call;
    describe_call(&call, hops, way, false, rows);
    TRY(nn_mark_await(free, call.move.stream));
    TRY(begin(&op, hops, pair->ways[way], &call));
    return stage_streams_end(hops->desc.streams, &op, 1);
}

mimo_status stage_hops_finish(stage_hops *hops)
{
    mimo_status status = MIMO_OK;
    for (int way = 0; way < HOP_WAYS; way++)
        for (int64_t i = 0; i < hops->tiles[way].count; i++) {
            mimo_status ended = stage_streams_end(hops->desc.streams, &hops->tiles[way].sent[i], 1);
            status = status == MIMO_OK ? ended : status;
        }
    return status;
}
