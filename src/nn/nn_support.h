/* Private: what every layer needs of communicators and the store. */
#ifndef MIMO_NN_NN_SUPPORT_H
#define MIMO_NN_NN_SUPPORT_H

#include <inttypes.h>
#include <limits.h>

#include <mimo/comm.h>

#include "core/check.h"
#include "core/memory.h"
#include "nn/nn_params.h"
#include "nn/nn_sizes.h"

static inline int nn_comm_size(const mimo_comm *comm)
{
    return comm ? mimo_comm_size(comm) : 1;
}

static inline int nn_comm_rank(const mimo_comm *comm)
{
    return comm ? mimo_comm_rank(comm) : 0;
}

/* Sum over the ranks, in place; nothing to do on one. */
static inline mimo_status nn_allreduce(mimo_comm *comm, nn_real *data, int64_t count)
{
    if (nn_comm_size(comm) == 1)
        return MIMO_OK;
    return mimo_comm_allreduce(comm, data, count, NN_DTYPE, MIMO_SUM, NULL);
}

static inline nn_real *nn_value(const nn_params *params, int index)
{
    return nn_params_at(params, index)->value;
}

static inline nn_real *nn_grad(const nn_params *params, int index)
{
    return nn_params_at(params, index)->grad;
}

/* The communicator is the store's tp: same size, same rank. */
mimo_status nn_check_tp(const char *layer, const nn_params *params, const mimo_comm *tp);
/* The store is sealed and 0 <= rows <= most. */
mimo_status nn_check_forward(const char *layer, const nn_params *params, int64_t rows,
                             int64_t most);

#endif
