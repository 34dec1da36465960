#include "train/nn/params/nn_sizes.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "core/check.h"

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

mimo_status nn_join(char *name, const char *layer, const char *part)
{
    int length = snprintf(name, NN_NAME_CAPACITY, "%s.%s", layer ? layer : "", part);
    MIMO_CHECK(layer && *layer && length < NN_NAME_CAPACITY, MIMO_ERR_ARGUMENT,
               "layer name \"%s\" is missing or longer than %d bytes with \".%s\"",
               layer ? layer : "", NN_NAME_CAPACITY - 1, part);
    return MIMO_OK;
}
