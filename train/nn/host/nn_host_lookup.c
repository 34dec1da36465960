/* Lookups in a table of entries, and their gradient. */
#include <string.h>

#include "core/mutation.h"
#include "train/nn/host/nn_host.h"

mimo_status nn_host_lookup(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup)
{
    (void)runtime;
    int64_t width = lookup->width;
    for (int64_t i = 0; i < lookup->n; i++)
        for (int64_t j = 0; j < lookup->repeat; j++)
            memcpy(y + (i * lookup->repeat + j) * width, lookup->table + lookup->ids[i] * width,
                   (size_t)width * sizeof *y);
    return MIMO_OK;
}

static void add_row(nn_real *to, const nn_real *from, int64_t width)
{
    for (int64_t j = 0; j < width; j++)
        to[j] += from[j];
}

mimo_status nn_host_lookup_add(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup)
{
    (void)runtime;
    int64_t width = lookup->width;
    for (int64_t i = 0; i < lookup->n; i++)
        for (int64_t j = 0; j < lookup->repeat; j++)
            add_row(y + (i * lookup->repeat + j) * width, lookup->table + lookup->ids[i] * width,
                    width);
    return MIMO_OK;
}

mimo_status nn_host_lookup_backward(const nn_runtime *runtime, nn_real *grad, const nn_real *dy,
                                    const nn_lookup *lookup, const nn_uses *uses)
{
    (void)runtime;
    int64_t width = lookup->width;
    for (int64_t k = 0; k < uses->count; k++)
        for (int64_t u = uses->begin[k]; u < uses->begin[k + 1]; u++) {
            if (u + 1 < uses->begin[k + 1] && MIMO_MUTATED("last-use-only"))
                continue;
            for (int64_t j = 0; j < lookup->repeat; j++)
                add_row(grad + uses->entry[k] * width,
                        dy + (uses->order[u] * lookup->repeat + j) * width, width);
        }
    return MIMO_OK;
}
