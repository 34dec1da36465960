/* Parameters whole and in slices: what a checkpoint holds does not know about tp, so a run can
 * resume on another topology. */
#ifndef CAPTIONER_WHOLE_TENSOR_H
#define CAPTIONER_WHOLE_TENSOR_H

#include "nn/nn_params.h"

/** whole [param->shape] from every tp rank's slice at `local`. Collective over tp (NULL: one rank).
 *  `room` holds as many elements as `whole`. */
mimo_status gather_whole(nn_real *whole, nn_real *room, const nn_real *local, const nn_param *param,
                         mimo_comm *tp);

/** This rank's slice of a whole tensor. Local. */
void slice_whole(nn_real *local, const nn_real *whole, const nn_param *param);

#endif
