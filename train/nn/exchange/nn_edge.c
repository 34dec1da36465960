#include "train/nn/exchange/nn_edge.h"

#include <string.h>

#include "core/check.h"
#include "core/checked.h"

static mimo_status reserve(nn_edge *edge)
{
    int64_t elements;
    MIMO_CHECK(edge->max_rows >= 1, MIMO_ERR_ARGUMENT,
               "edge: %lld rows at most, must be at least 1 where rows are split over tp",
               (long long)edge->max_rows);
    MIMO_TRY(mimo_mul(&elements, edge->max_rows, edge->width));
    return nn_runtime_reserve(edge->tp.runtime, &edge->leaving, elements, sizeof(nn_real));
}

mimo_status nn_edge_init(nn_edge *edge, const nn_edge *desc)
{
    nn_edge made = *desc;
    made.leaving = NULL;
    if (nn_exchange_size(&made.tp) == 1)
        made.kind = NN_EDGE_NONE;
    mimo_status status = made.kind == NN_EDGE_ROWS ? reserve(&made) : MIMO_OK;
    if (status != MIMO_OK) {
        nn_edge_release(&made);
        return status;
    }
    *edge = made;
    return MIMO_OK;
}

void nn_edge_release(nn_edge *edge)
{
    nn_runtime_free(edge->tp.runtime, edge->leaving);
    memset(edge, 0, sizeof *edge);
}

int64_t nn_edge_factor(const nn_edge *edge)
{
    return edge->kind == NN_EDGE_ROWS ? nn_exchange_size(&edge->tp) : 1;
}

mimo_status nn_edge_take(const nn_edge *edge, nn_room *room, nn_real **entered)
{
    *entered = NULL;
    if (edge->kind != NN_EDGE_ROWS)
        return MIMO_OK;
    return nn_room_take(room, entered, edge->max_rows * edge->width, sizeof **entered);
}

mimo_status nn_edge_enter(const nn_edge *edge, nn_real *entered, const nn_real **inside,
                          const nn_real *outside, int64_t rows)
{
    *inside = outside;
    if (edge->kind != NN_EDGE_ROWS)
        return MIMO_OK;
    *inside = entered;
    return nn_exchange_gather(&edge->tp, entered, outside,
                              rows * edge->width * (int64_t)sizeof *outside);
}

nn_real *nn_edge_target(const nn_edge *edge, nn_real *outside)
{
    return edge->kind == NN_EDGE_ROWS ? edge->leaving : outside;
}

mimo_status nn_edge_leave(const nn_edge *edge, nn_real *outside, int64_t rows)
{
    int64_t count = rows * edge->width;
    switch (edge->kind) {
    case NN_EDGE_WHOLE:
        return nn_exchange_sum(&edge->tp, outside, count);
    case NN_EDGE_ROWS:
        return nn_exchange_sum_scatter(&edge->tp, outside, edge->leaving, count);
    default:
        return MIMO_OK;
    }
}
