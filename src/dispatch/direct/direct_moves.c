/* Moves between devices: which tensors a kernel takes, and where their tiles lie. */
#include <inttypes.h>

#include "comm/comm_backend.h"
#include "core/check.h"
#include "core/dtype_kind.h"
#include "dispatch/direct/direct_types.h"
#include "dispatch/dispatch_op_types.h"
#include "dispatch/dispatch_views.h"

/* -------------------------------------- checks -------------------------------------- */

static const mimo_expert_memory *memory_of(const mimo_op *op)
{
    return &mimo_direct_of(mimo_route_of(op)->dispatch)->memory;
}

/* Whether partial sums travel in the dtype of the rows: in f32 they are wider than f16 and bf16. */
static bool is_narrow(const mimo_op *op, mimo_dtype dtype)
{
    const mimo_dispatch *dispatch = mimo_route_of(op)->dispatch;
    return dispatch->desc.narrow_sums || mimo_dtype_kind_of(dtype) != MIMO_DTYPE_HALF;
}

static int64_t sum_bytes(const mimo_op *op, const mimo_tile_pair *pair)
{
    return pair->src.row_bytes * (is_narrow(op, pair->src.view.dtype) ? 1 : 2);
}

/* Rows have to fit the memory that ranks share. */
static mimo_status check_width(const mimo_op *op, int i)
{
    const mimo_tile_pair *pair = &op->tensors.pairs[i];
    const mimo_expert_shape *shape = &memory_of(op)->shape;
    bool combines = op->call.backward, straight = !combines && mimo_dispatch_target(op, i);
    int64_t bytes = combines ? sum_bytes(op, pair) : pair->src.row_bytes;
    int64_t most = combines ? shape->return_bytes : shape->flat_bytes;
    MIMO_CHECK(straight || combines || most > 0, MIMO_ERR_ARGUMENT,
               "tensor %d is to be written at %p, which is in no buffer of the communicator that "
               "the dispatch was made from (buffers_only)",
               i, pair->dst.view.data);
    MIMO_CHECK(straight || bytes <= most, MIMO_ERR_SHAPE,
               "tensor %d: %s of %" PRId64 " bytes, room for %" PRId64 " (row_bytes)", i,
               combines ? "partial sums" : "rows", bytes, most);
    return MIMO_OK;
}

/* How many tensors go by token and by pair. */
static mimo_status check_count(const mimo_op *op)
{
    int pairs = 0, tokens = 0, most = memory_of(op)->shape.sums;
    for (int i = 0; i < op->call.n; i++)
        ++*(mimo_dispatch_by_pair(&op->tensors.pairs[i]) ? &pairs : &tokens);
    MIMO_CHECK(tokens <= most && pairs <= most, MIMO_ERR_SHAPE,
               "%d tensors by token and %d by pair, room for %d of each (tensors)", tokens, pairs,
               most);
    return MIMO_OK;
}

/* One kernel adds all sums of a call. */
static mimo_status check_dtypes(const mimo_op *op)
{
    const mimo_tile_pair *first = NULL;
    for (int i = 0; i < op->call.n && op->call.backward; i++) {
        const mimo_tile_pair *pair = &op->tensors.pairs[i];
        if (mimo_dispatch_by_pair(pair))
            continue;
        first = first ? first : pair;
        MIMO_CHECK(pair->src.view.dtype == first->src.view.dtype, MIMO_ERR_UNSUPPORTED,
                   "tensors of %s and %s in one combine; on a device they have one dtype",
                   mimo_dtype_name(first->src.view.dtype), mimo_dtype_name(pair->src.view.dtype));
    }
    return MIMO_OK;
}

mimo_status mimo_direct_move_prepare(mimo_op *op)
{
    MIMO_TRY(check_count(op));
    MIMO_TRY(check_dtypes(op));
    for (int i = 0; i < op->call.n; i++)
        if (!mimo_dispatch_by_pair(&op->tensors.pairs[i]))
            MIMO_TRY(check_width(op, i));
    return MIMO_OK;
}

/* --------------------------------------- moves -------------------------------------- */

static mimo_expert_tensor tensor_of(const mimo_op *op, int i)
{
    const mimo_tile_pair *pair = &op->tensors.pairs[i];
    mimo_buffer *buffer = mimo_dispatch_by_pair(pair) ? NULL : mimo_dispatch_target(op, i);
    char *tile = pair->dst.view.data, *tokens = pair->src.view.data;
    return (mimo_expert_tensor){.from = op->call.backward ? tile : tokens,
                                .to = op->call.backward ? tokens : tile,
                                .row_bytes = pair->src.row_bytes,
                                .by_pair = mimo_dispatch_by_pair(pair),
                                .dtype = pair->src.view.dtype,
                                .narrow = is_narrow(op, pair->src.view.dtype),
                                .buffer = buffer,
                                .offset = buffer ? tile - (char *)mimo_buffer_data(buffer) : 0};
}

/* Tensors by token come first. */
static int list_tensors(mimo_expert_tensor *list, const mimo_op *op)
{
    int count = 0;
    for (int by_pair = 0; by_pair <= 1; by_pair++)
        for (int i = 0; i < op->call.n; i++)
            if (mimo_dispatch_by_pair(&op->tensors.pairs[i]) == by_pair)
                list[count++] = tensor_of(op, i);
    return count;
}

static mimo_status move(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_comm *comm = op->mover->comm;
    mimo_direct *direct = mimo_direct_of(mimo_route_of(op)->dispatch);
    mimo_expert_tensor tensors[MIMO_EXPERT_MOST_TENSORS];
    const mimo_expert_move it = {.call = {.memory = &direct->memory,
                                          .tables = mimo_direct_route_of(mimo_route_of(op))->tables,
                                          .signature = op->claim.signature,
                                          .ctas = mimo_route_of(op)->dispatch->desc.ctas},
                                 .count = list_tensors(tensors, op),
                                 .tensors = tensors};
    direct->stream = op->call.stream;
    return (op->call.backward ? comm->backend->combine_start
                              : comm->backend->rows_start)(comm, &it, op->call.stream);
}

const mimo_mover_step mimo_direct_move_steps[] = {move, NULL};
