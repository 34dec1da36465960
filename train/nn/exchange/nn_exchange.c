#include "train/nn/exchange/nn_exchange.h"

#include <string.h>

#include "core/check.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/ops/nn_ops.h"

static void count_call(const nn_exchange *exchange, nn_exchange_kind kind, int64_t bytes)
{
    if (!exchange->counts)
        return;
    exchange->counts->calls[kind]++;
    exchange->counts->bytes[kind] += bytes;
}

/* This rank receives `each` bytes from every other rank. */
static void count_received(const nn_exchange *exchange, nn_exchange_kind kind, int64_t each)
{
    if (exchange->counts)
        exchange->counts->received[kind] += (nn_exchange_size(exchange) - 1) * each;
}

static mimo_status reduce(const nn_exchange *exchange, void *data, int64_t count, mimo_dtype dtype,
                          mimo_reduce op)
{
    int64_t ranks = nn_exchange_size(exchange), size = (int64_t)mimo_dtype_size(dtype);
    nn_exchange_kind kind = op == MIMO_SUM ? NN_EXCHANGE_SUM : NN_EXCHANGE_MAX;
    if (ranks == 1)
        return MIMO_OK;
    count_call(exchange, kind, count * size);
    count_received(exchange, kind, 2 * ((count + ranks - 1) / ranks) * size);
    return mimo_comm_allreduce(exchange->comm, data, count, dtype, op, exchange->runtime->stream);
}

/* ------------------------------------ the fixed order ------------------------------------- */

/* Below it one all-gather of everything takes less time than two steps. */
enum { SMALL_BYTES = 4096 };

/* to[i] = the tree over the ranks' parts[r * count + i]. */
static mimo_status add_ranks(const nn_exchange *exchange, nn_real *to, nn_real *parts,
                             int64_t count)
{
    const nn_runtime *runtime = exchange->runtime;
    return runtime->ops->tree(runtime, to, parts, nn_exchange_size(exchange), count);
}

/* Everything to every rank. `room` [size, count] */
static mimo_status sum_small(const nn_exchange *exchange, nn_real *data, nn_real *room,
                             int64_t count)
{
    count_received(exchange, NN_EXCHANGE_SUM, count * (int64_t)sizeof *data);
    MIMO_TRY(mimo_comm_allgather(exchange->comm, room, data, count * (int64_t)sizeof *data,
                                 exchange->runtime->stream));
    return add_ranks(exchange, data, room, count);
}

/* `to` [count] is the tree over the ranks of this rank's part of their `from` [size * count].
 * `room` is as large as that. */
static mimo_status sum_parts(const nn_exchange *exchange, nn_real *to, const nn_real *from,
                             nn_real *room, int64_t count)
{
    MIMO_TRY(mimo_comm_alltoall(exchange->comm, room, from, count * (int64_t)sizeof *from,
                                exchange->runtime->stream));
    return add_ranks(exchange, to, room, count);
}

/* Pieces of equal size: the last ranks' are filled up with what the memory holds. */
static mimo_status sum_large(const nn_exchange *exchange, nn_real *data, int64_t count)
{
    const nn_runtime *runtime = exchange->runtime;
    int64_t ranks = nn_exchange_size(exchange), piece = (count + ranks - 1) / ranks;
    int64_t padded = ranks * piece, bytes = count * (int64_t)sizeof *data;
    nn_real *sent, *room;
    MIMO_TRY(nn_runtime_workspace(runtime, &sent, 2 * padded * (int64_t)sizeof *data));
    room = sent + padded;
    MIMO_TRY(runtime->device->copy(sent, data, bytes, runtime->stream));
    nn_real *own = sent + nn_exchange_rank(exchange) * piece;
    count_received(exchange, NN_EXCHANGE_SUM, 2 * piece * (int64_t)sizeof *own);
    MIMO_TRY(sum_parts(exchange, own, sent, room, piece));
    MIMO_TRY(mimo_comm_allgather(exchange->comm, sent, own, piece * (int64_t)sizeof *own,
                                 runtime->stream));
    return runtime->device->copy(data, sent, bytes, runtime->stream);
}

static mimo_status sum_fixed(const nn_exchange *exchange, nn_real *data, int64_t count)
{
    int64_t bytes = count * (int64_t)sizeof *data;
    nn_real *room;
    if (nn_exchange_size(exchange) == 1 || count == 0)
        return MIMO_OK;
    count_call(exchange, NN_EXCHANGE_SUM, bytes);
    if (bytes > SMALL_BYTES)
        return sum_large(exchange, data, count);
    MIMO_TRY(nn_runtime_workspace(exchange->runtime, &room, nn_exchange_size(exchange) * bytes));
    return sum_small(exchange, data, room, count);
}

/* ---------------------------------------- the calls ---------------------------------------- */

mimo_status nn_exchange_sum(const nn_exchange *exchange, nn_real *data, int64_t count)
{
    if (exchange->runtime->order == NN_ORDER_FIXED)
        return sum_fixed(exchange, data, count);
    return reduce(exchange, data, count, NN_DTYPE, MIMO_SUM);
}

mimo_status nn_exchange_sum_i64(const nn_exchange *exchange, int64_t *data, int64_t count)
{
    return reduce(exchange, data, count, MIMO_I64, MIMO_SUM);
}

mimo_status nn_exchange_sum_f64(const nn_exchange *exchange, double *data, int64_t count)
{
    return reduce(exchange, data, count, MIMO_F64, MIMO_SUM);
}

mimo_status nn_exchange_max_f64(const nn_exchange *exchange, double *data, int64_t count)
{
    return reduce(exchange, data, count, MIMO_F64, MIMO_MAX);
}

mimo_status nn_exchange_gather(const nn_exchange *exchange, void *to, const void *own,
                               int64_t bytes)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    count_call(exchange, NN_EXCHANGE_GATHER, nn_exchange_size(exchange) * bytes);
    count_received(exchange, NN_EXCHANGE_GATHER, bytes);
    return mimo_comm_allgather(exchange->comm, to, own, bytes, exchange->runtime->stream);
}

mimo_status nn_exchange_sum_scatter(const nn_exchange *exchange, nn_real *to, const nn_real *from,
                                    int64_t count)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    count_call(exchange, NN_EXCHANGE_SUM_SCATTER,
               nn_exchange_size(exchange) * count * (int64_t)sizeof *from);
    count_received(exchange, NN_EXCHANGE_SUM_SCATTER, count * (int64_t)sizeof *from);
    if (exchange->runtime->order == NN_ORDER_FIXED) {
        nn_real *room;
        int64_t bytes = nn_exchange_size(exchange) * count * (int64_t)sizeof *room;
        MIMO_TRY(nn_runtime_workspace(exchange->runtime, &room, bytes));
        return sum_parts(exchange, to, from, room, count);
    }
    return mimo_comm_reduce_scatter(exchange->comm, to, from, count, NN_DTYPE, MIMO_SUM,
                                    exchange->runtime->stream);
}

mimo_status nn_exchange_broadcast(const nn_exchange *exchange, void *data, int64_t bytes, int root)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    return mimo_comm_broadcast(exchange->comm, data, bytes, root, exchange->runtime->stream);
}

mimo_status nn_exchange_host_gather(const nn_exchange *exchange, void *to, const void *own,
                                    int bytes)
{
    if (nn_exchange_size(exchange) > 1)
        return mimo_comm_host_allgather(exchange->comm, to, own, bytes);
    memcpy(to, own, (size_t)bytes);
    return MIMO_OK;
}

mimo_status nn_plain_zeros(const nn_runtime *runtime, nn_real *x, int64_t n)
{
    bool cleared = runtime->order == NN_ORDER_FIXED && !MIMO_MUTATED("minus-zero");
    return cleared ? runtime->ops->plain_zeros(runtime, x, n) : MIMO_OK;
}

mimo_status nn_exchange_agree(const nn_exchange *exchange, mimo_status status)
{
    return exchange->comm ? mimo_comm_agree(exchange->comm, status) : status;
}

mimo_status nn_exchange_check(const nn_exchange *exchange, const char *layer)
{
    mimo_comm *comm = exchange->comm;
    mimo_memory memory = exchange->runtime->memory;
    MIMO_CHECK(!comm || mimo_comm_memory(comm) == memory, MIMO_ERR_ARGUMENT,
               "%s: the communicator moves tensors in %s, the layers' lie in %s", layer,
               mimo_memory_text(mimo_comm_memory(comm)), mimo_memory_text(memory));
    return MIMO_OK;
}
