#include "nn/nn_exchange.h"

#include "core/check.h"
#include "device/device.h"

static void count_call(const nn_exchange *exchange, nn_exchange_kind kind, int64_t bytes)
{
    if (!exchange->counts)
        return;
    exchange->counts->calls[kind]++;
    exchange->counts->bytes[kind] += bytes;
}

static mimo_status reduce(const nn_exchange *exchange, void *data, int64_t count, mimo_dtype dtype,
                          mimo_reduce op)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    count_call(exchange, op == MIMO_SUM ? NN_EXCHANGE_SUM : NN_EXCHANGE_MAX,
               count * (int64_t)mimo_dtype_size(dtype));
    return mimo_comm_allreduce(exchange->comm, data, count, dtype, op, exchange->runtime->stream);
}

mimo_status nn_exchange_sum(const nn_exchange *exchange, nn_real *data, int64_t count)
{
    return reduce(exchange, data, count, NN_DTYPE, MIMO_SUM);
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
    return mimo_comm_allgather(exchange->comm, to, own, bytes, exchange->runtime->stream);
}

mimo_status nn_exchange_sum_scatter(const nn_exchange *exchange, nn_real *to, const nn_real *from,
                                    int64_t count)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    count_call(exchange, NN_EXCHANGE_SUM_SCATTER,
               nn_exchange_size(exchange) * count * (int64_t)sizeof *from);
    return mimo_comm_reduce_scatter(exchange->comm, to, from, count, NN_DTYPE, MIMO_SUM,
                                    exchange->runtime->stream);
}

mimo_status nn_exchange_broadcast(const nn_exchange *exchange, void *data, int64_t bytes, int root)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    return mimo_comm_broadcast(exchange->comm, data, bytes, root, exchange->runtime->stream);
}

mimo_status nn_exchange_scatter(const nn_exchange *exchange, void *to, const void *from,
                                int64_t bytes, int root)
{
    if (nn_exchange_size(exchange) == 1)
        return MIMO_OK;
    return mimo_comm_scatter(exchange->comm, to, from, bytes, root, exchange->runtime->stream);
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
