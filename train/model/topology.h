/*
 * Who is who: the two grids over the same ranks, the communicators that the layers need, and the
 * bridge between the modules. Everything that the rest of the program wants to know about ranks is
 * a field here, taken from coordinates (never from the index of a group in a list).
 */
#ifndef TRAIN_TOPOLOGY_H
#define TRAIN_TOPOLOGY_H

#include <mimo/mimo.h>

#include "train/model/expert_grid.h"

typedef struct rank_topology {
    mimo_comm *world;   /* borrowed */
    mimo_grid *encoder; /* dims tp, dp */
    mimo_grid *llm;     /* dims tp, cp, dp, pp */

    /* Groups that this rank belongs to, owned by the grids; NULL where the dimension has size 1. */
    mimo_comm *encoder_tp, *llm_tp, *llm_cp_group, *llm_pp;
    expert_grid experts; /* zeros: there are none */
    bool sp; /* sequence parallelism over the LLM's tp: only where that is larger than 1 */
    int64_t encoder_dp_rank, encoder_dp;
    int64_t llm_tp_rank, llm_cp_rank, llm_cp, llm_dp_rank, llm_dp;
    int stage, stages; /* of the LLM's pp */

    /* The bridge has the LLM's partition: a rank of the first stage receives the image rows of its
     * own cp share alone (under sp of its tp-th of that), each at its position. `partition` splits
     * the ids and labels in the same way. */
    mimo_bridge *bridge;
    mimo_partition *partition;
    mimo_gradient *gradient;
} rank_topology;

/** The grids as mimo_grid_create_text reads them ("tp=2,dp=4"). */
typedef struct topology_desc {
    const char *encoder, *llm;
    bool sp;
    const char *experts; /* which ranks share the LLM's experts, "etp=2,ep=2"; NULL: it has none */
    const mimo_bridge_desc *bridge; /* another bridge than that above, between the same grids: its
                                       src and dst are not read; NULL: that one; not kept */
} topology_desc;

/** Whether `ranks` ranks make such a topology: the errors of topology_create that its grids have.
 *  Pure. */
mimo_status topology_check(int64_t ranks, const topology_desc *desc);

/** The same, and what it found: the grids of rank 0 and their sizes, without any communicator. The
 *  caller zeroes *out before and calls topology_destroy after, whatever the result. Pure. */
mimo_status topology_sketch(rank_topology *out, int64_t ranks, const topology_desc *desc);

/** Build everything for `world`. Collective. The caller zeroes *out before and calls
 *  topology_destroy after, whatever the result. */
mimo_status topology_create(rank_topology *out, mimo_comm *world, const topology_desc *desc);

/** Release in the opposite order. Collective in effect. */
void topology_destroy(rank_topology *topology);

/** This rank's samples of `batch` samples, by role: the encoder loads pictures of one slice, the
 *  LLM the names of another, on every stage. */
mimo_status topology_samples(const rank_topology *topology, mimo_side side, int64_t batch,
                             int64_t *first, int64_t *count);

#endif
