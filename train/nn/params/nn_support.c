#include "train/nn/params/nn_support.h"

mimo_status nn_check_tp(const char *layer, const nn_params *params, mimo_comm *tp)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", layer);
    int rank = nn_params_tp_rank(params), size = nn_params_tp_size(params);
    MIMO_CHECK(nn_comm_size(tp) == size && nn_comm_rank(tp) == rank, MIMO_ERR_ARGUMENT,
               "%s: tp communicator is rank %d of %d, the store is rank %d of %d", layer,
               nn_comm_rank(tp), nn_comm_size(tp), rank, size);
    nn_exchange exchange = {.comm = tp, .runtime = nn_params_runtime(params)};
    return nn_exchange_check(&exchange, layer);
}

mimo_status nn_check_forward(const char *layer, const nn_params *params, int64_t rows, int64_t most)
{
    MIMO_CHECK(params && nn_params_sealed(params), MIMO_ERR_STATE,
               "%s: forward before the parameter store is sealed", layer);
    MIMO_CHECK(rows >= 0 && rows <= most, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " rows, must be 0 to %" PRId64, layer, rows, most);
    return MIMO_OK;
}
