/* Parameters whole and in slices: what a checkpoint holds does not know about tp, so a run can
 * resume on another topology. */
#ifndef CAPTIONER_WHOLE_TENSOR_H
#define CAPTIONER_WHOLE_TENSOR_H

#include "nn/nn_params.h"

/** A parameter's store, and which of its arrays. */
typedef struct param_part {
    nn_params *params;
    int index;
    nn_part part;
    mimo_comm *tp; /* of its module; NULL: one rank */
} param_part;

/** Room for gather_whole: `largest` elements each, the largest whole tensor's. */
typedef struct whole_rooms {
    nn_real *whole;    /* host memory: the result */
    nn_real *slices;   /* host memory: the slices in tp order */
    nn_real *gathered; /* the same where the store's layers compute */
} whole_rooms;

/** rooms->whole [shape] from every tp rank's slice. Collective over tp. */
mimo_status gather_whole(const whole_rooms *rooms, const param_part *from);

/** This rank's slice of a whole tensor. Local. */
void slice_whole(nn_real *local, const nn_real *whole, const nn_param *param, int tp_rank);

#endif
