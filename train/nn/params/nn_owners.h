/*
 * Who speaks for each tensor of a store, in files and hashes. A tensor is whole, or has a part for
 * each rank that cuts it. Of the ranks that hold a part one speaks for it. Copies lie along every
 * dimension that does not shard the tensor, and the rank with coordinate 0 along all of these
 * speaks: the rule by which mimo_gradient_norm counts elements. The grid is the module's, for
 * experts the view of <mimo/grid.h>.
 *
 *   8 ranks              cut over tp or etp    whole
 *   tp=2,cp=2,dp=2       0, 1                  0
 *   etp=2,ep=4,edp=1     0 to 7                0, 2, 4, 6    (of each expert some)
 *   etp=2,ep=2,edp=2     0 to 3                0, 2
 *
 * With pipeline stages those of the stage that holds the tensor speak.
 */
#ifndef MIMO_NN_NN_OWNERS_H
#define MIMO_NN_NN_OWNERS_H

#include "train/nn/params/nn_params.h"

typedef struct nn_owners_desc {
    nn_params *params;        /* all its layers are there */
    mimo_comm *comm;          /* of all ranks that have a part of the module; NULL: one rank */
    const mimo_grid *grid;    /* the module's; rank r of it is rank r of comm */
    const mimo_grid *experts; /* the view NN_EXPERT_GRID of it; NULL: the module has no experts */
} nn_owners_desc;

typedef struct nn_owners {
    nn_params *params; /* borrowed, as the communicator */
    mimo_comm *comm;
    int64_t most; /* parts that a tensor has at most */
    int *ranks;   /* [tensors, most]: of each part the rank that speaks for it */
} nn_owners;

/** Collective over the communicator, blocking. The grids are read during the call. Errors, the same
 *  on every rank: MIMO_ERR_MISMATCH (two ranks speak for a part, or none does: the store's
 *  coordinates are not those of the grids), MIMO_ERR_ARGUMENT (experts without a view),
 *  MIMO_ERR_GRID, MIMO_ERR_MEMORY, MIMO_ERR_COMM. Release accepts a zeroed struct. */
mimo_status nn_owners_init(nn_owners *out, const nn_owners_desc *desc);
void nn_owners_release(nn_owners *owners);

/** The rank that speaks for part `part` of a tensor, and whether it is this one for its own. */
int nn_owners_rank(const nn_owners *owners, int index, int64_t part);
bool nn_owners_speak(const nn_owners *owners, int index);

#endif
