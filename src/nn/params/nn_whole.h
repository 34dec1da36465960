/*
 * Parameters whole and in slices. What files hold does not know of tp, so a run can go on on
 * another topology, and an adapter can go to any.
 *
 * Whole tensors lie in host memory, row-major, in f32 or f64 as the layers compute.
 */
#ifndef MIMO_NN_NN_WHOLE_H
#define MIMO_NN_NN_WHOLE_H

#include "nn/params/nn_params.h"

/** One array of a parameter. */
typedef struct nn_param_part {
    nn_params *params;
    int index;
    nn_part part;
    mimo_comm *tp; /* the store's; NULL: one rank */
    mimo_comm *pp; /* the same over its stages, in their order */
} nn_param_part;

/** Room for nn_whole_gather: as many elements each as the largest whole tensor has. */
typedef struct nn_whole_rooms {
    nn_real *whole;    /* host memory: the result */
    nn_real *slices;   /* host memory: the slices in tp order */
    nn_real *gathered; /* the same in the runtime's memory; over stages also the whole */
} nn_whole_rooms;

/** rooms->whole from every tp rank's slice, on all stages. Collective over tp and pp, blocking.
 *  Errors: those of nn_params_read, MIMO_ERR_COMM. */
mimo_status nn_whole_gather(const nn_whole_rooms *rooms, const nn_param_part *from);

/** This rank's slice `local` of a whole tensor. Of another stage's there is none. Local. */
void nn_whole_slice(nn_real *local, const nn_real *whole, const nn_params *params, int index);

/**
 * Set the value of a parameter from a whole tensor that one rank alone has, such as a file that
 * only it can read: a slice to each rank, or the whole to all. `whole` is NULL on the other ranks.
 * Collective over tp, blocking. On a stage that does not hold the parameter nothing is set.
 * Initial values need none of this: they come from a generator.
 *
 * Errors, on all ranks: MIMO_ERR_ARGUMENT (no such parameter; `root` is no rank; `whole` is NULL on
 * the root, or not NULL elsewhere), MIMO_ERR_STATE (the store is not sealed, adapters are
 * merged), MIMO_ERR_MEMORY, MIMO_ERR_COMM.
 */
mimo_status nn_params_distribute(const nn_param_part *to, const nn_real *whole, int root);

#endif
