/*
 * Parameters whole and in slices. What files hold does not know of any grid, so a run can go on on
 * another topology, and an adapter can go to any.
 *
 * Whole tensors lie in host memory, row-major, in f32 or f64 as the layers compute.
 */
#ifndef MIMO_NN_NN_WHOLE_H
#define MIMO_NN_NN_WHOLE_H

#include "train/nn/params/nn_owners.h"

/** One array of a parameter. */
typedef struct nn_param_part {
    const nn_owners *owners; /* of its store */
    int index;
    nn_part part;
} nn_param_part;

/** Room for nn_whole_gather: as many elements each as the largest whole tensor has. */
typedef struct nn_whole_rooms {
    nn_real *whole;    /* host memory: the result */
    nn_real *slices;   /* host memory: the parts of a tensor that is cut, in their order */
    nn_real *gathered; /* the same in the runtime's memory */
} nn_whole_rooms;

/** rooms->whole, on all ranks, from those that speak for the parts. Collective over the owners'
 *  communicator, blocking. Errors: those of nn_params_read, except that other ranks may hold it;
 *  MIMO_ERR_COMM. */
mimo_status nn_whole_gather(const nn_whole_rooms *rooms, const nn_param_part *from);

/** The whole tensor of the slices of all its parts, which lie one after the other. Pure. */
void nn_whole_join(nn_real *whole, const nn_real *slices, const nn_placement *placement);

/** This rank's slice `local` of a whole tensor. Of one that it does not hold there is none. Local.
 */
void nn_whole_slice(nn_real *local, const nn_real *whole, const nn_params *params, int index);

/**
 * Set the value of a parameter from a whole tensor that one rank alone has, such as a file that
 * only it can read: on each rank that holds a part of it, that part. `whole` is NULL on the ranks
 * beside the root. Collective over the owners' communicator, blocking. Initial values need none of
 * this: they come from a generator.
 *
 * Errors, on all ranks: MIMO_ERR_ARGUMENT (no such parameter; `root` is no rank; `whole` is NULL on
 * the root, or not NULL elsewhere), MIMO_ERR_STATE (the store is not sealed, adapters are
 * merged), MIMO_ERR_MEMORY, MIMO_ERR_COMM.
 */
mimo_status nn_params_distribute(const nn_param_part *to, const nn_real *whole, int root);

#endif
