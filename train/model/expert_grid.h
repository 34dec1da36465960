/*
 * Which ranks share the experts: a view of the LLM's grid, with dimensions etp, ep and edp. Along
 * etp each rank has a part of an expert, along ep other experts, along edp copies for other tokens.
 * Over stages it has pp as well, as the LLM's grid has it: each stage has mixtures of its own.
 */
#ifndef TRAIN_EXPERT_GRID_H
#define TRAIN_EXPERT_GRID_H

#include <mimo/mimo.h>

#include "train/nn/params/nn_params.h"

typedef struct expert_grid {
    mimo_grid *view;         /* the LLM's grid owns it; NULL: there are no experts */
    mimo_comm *group;        /* of the ranks that share experts, along "etp,ep"; the view owns it */
    mimo_comm *stage;        /* of all ranks of this stage; where there is one, the LLM's own */
    nn_expert_coords coords; /* of this rank */
} expert_grid;

/** Add the view that a text such as "etp=2,ep=2" describes, before the LLM's grid is connected. edp
 *  is what is left of a stage's ranks. Local. MIMO_ERR_GRID: another dimension; ranks that leave a
 *  rest; stages that pp, anywhere among etp, ep and edp, does not enumerate as the LLM's grid. */
mimo_status expert_grid_add(expert_grid *out, mimo_grid *llm, const char *spec, int rank);

/** Make the groups, and tell the gradients of the view; then find this rank's groups. The first one
 *  is collective, the second local. Where there are no experts they do nothing. */
mimo_status expert_grid_connect(const expert_grid *experts, mimo_gradient *gradient);
mimo_status expert_grid_find_groups(expert_grid *experts);

/** edp: the groups that have copies of all experts. 1 where there are no experts. */
int64_t expert_grid_copies(const expert_grid *experts);

#endif
