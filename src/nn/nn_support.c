#include "nn/nn_support.h"

#include "device/device.h"

mimo_status nn_check_memory(const char *layer, const nn_runtime *runtime, const mimo_comm *comm)
{
    MIMO_CHECK(!comm || mimo_comm_memory(comm) == runtime->memory, MIMO_ERR_ARGUMENT,
               "%s: the communicator moves tensors in %s, the layers' lie in %s", layer,
               mimo_memory_text(mimo_comm_memory(comm)), mimo_memory_text(runtime->memory));
    return MIMO_OK;
}

mimo_status nn_check_tp(const char *layer, const nn_params *params, const mimo_comm *tp)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", layer);
    int rank = nn_params_tp_rank(params), size = nn_params_tp_size(params);
    MIMO_CHECK(nn_comm_size(tp) == size && nn_comm_rank(tp) == rank, MIMO_ERR_ARGUMENT,
               "%s: tp communicator is rank %d of %d, the store is rank %d of %d", layer,
               nn_comm_rank(tp), nn_comm_size(tp), rank, size);
    return nn_check_memory(layer, nn_params_runtime(params), tp);
}

mimo_status nn_check_forward(const char *layer, const nn_params *params, int64_t rows, int64_t most)
{
    MIMO_CHECK(params && nn_params_sealed(params), MIMO_ERR_STATE,
               "%s: forward before the parameter store is sealed", layer);
    MIMO_CHECK(rows >= 0 && rows <= most, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " rows, must be 0 to %" PRId64, layer, rows, most);
    return MIMO_OK;
}
