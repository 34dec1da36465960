#include <stdio.h>

#include "nn/nn_support.h"

mimo_status nn_check_size(const char *layer, const char *what, int64_t size)
{
    MIMO_CHECK(size >= 1 && size <= INT_MAX, MIMO_ERR_ARGUMENT,
               "%s: %s is %" PRId64 ", must be 1 to %d", layer, what, size, INT_MAX);
    return MIMO_OK;
}

mimo_status nn_check_divides(const char *layer, const char *what, int64_t size, int64_t parts)
{
    MIMO_CHECK(size % parts == 0, MIMO_ERR_ARGUMENT,
               "%s: %s %" PRId64 " is not divisible by %" PRId64, layer, what, size, parts);
    return MIMO_OK;
}

mimo_status nn_check_tp(const char *layer, const nn_params *params, const mimo_comm *tp)
{
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", layer);
    int rank = nn_params_tp_rank(params), size = nn_params_tp_size(params);
    MIMO_CHECK(nn_comm_size(tp) == size && nn_comm_rank(tp) == rank, MIMO_ERR_ARGUMENT,
               "%s: tp communicator is rank %d of %d, the store is rank %d of %d", layer,
               nn_comm_rank(tp), nn_comm_size(tp), rank, size);
    return MIMO_OK;
}

mimo_status nn_check_forward(const char *layer, const nn_params *params, int64_t rows, int64_t most)
{
    MIMO_CHECK(params && nn_params_sealed(params), MIMO_ERR_STATE,
               "%s: forward before the parameter store is sealed", layer);
    MIMO_CHECK(rows >= 0 && rows <= most, MIMO_ERR_SHAPE,
               "%s: %" PRId64 " rows, must be 0 to %" PRId64, layer, rows, most);
    return MIMO_OK;
}

mimo_status nn_join(char *name, const char *layer, const char *part)
{
    int length = snprintf(name, NN_NAME_CAPACITY, "%s.%s", layer ? layer : "", part);
    MIMO_CHECK(layer && *layer && length < NN_NAME_CAPACITY, MIMO_ERR_ARGUMENT,
               "layer name \"%s\" is missing or longer than %d bytes with \".%s\"",
               layer ? layer : "", NN_NAME_CAPACITY - 1, part);
    return MIMO_OK;
}
