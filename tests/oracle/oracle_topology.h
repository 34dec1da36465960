/* What a run is told, and the trainer's topology that this describes. Its bridge knows nothing of
 * cp and sp: each of the LLM's ranks gets all image rows of its sentences. */
#ifndef ORACLE_ORACLE_TOPOLOGY_H
#define ORACLE_ORACLE_TOPOLOGY_H

#include <mimo/mimo.h>

#include "train/device/compute_device.h"
#include "train/model/topology.h"
#include "train/pipeline/schedule_choice.h"
#include "executors.h"

typedef struct oracle_spec {
    const char *encoder, *llm; /* "tp=2,dp=4" */
    bool sp;
    executor_id executor;
    int adapters;            /* rank of adapters; 0: there is one, on the head */
    const char *adapted;     /* of which layers (ref_model.h); NULL: of all */
    int64_t shards, pairs;   /* V and C of the fixed order of additions; 0: the fast order */
    int64_t experts, top_k;  /* of the mixtures in blocks 1, 3, ... of the LLM; 0: there are none */
    const char *expert_grid; /* "etp=2,ep=4" (expert_grid.h) */
    schedule_choice schedule;
} oracle_spec;

typedef struct oracle_topology {
    const oracle_spec *spec;   /* borrowed */
    rank_topology ranks;       /* its world has tensors in the memory of the computation */
    mimo_comm *host;           /* borrowed: all ranks, for host memory */
    const nn_runtime *runtime; /* borrowed: where the computation runs */
    int adapters;              /* of the spec, as the next three */
    const char *adapted;
    int64_t shards, pairs;
    int64_t experts, top_k;
    bool zero_copy;  /* tiles of the bridge lie in a buffer */
    int64_t tp_size; /* of the LLM */
    schedule_choice schedule;
    bool sample_major; /* image rows in the LLM's tile: groups of micro-batches need that */
} oracle_topology;

/* An error where there is no such topology of `world`, or a grid has several ranks along a
 * dimension that its model is not split over: those ranks would have no samples, and others would
 * wait for them. Local, and the same on every rank. */
mimo_status oracle_spec_check(const oracle_spec *spec, mimo_comm *world);

/* Collective. The caller zeroes *out before and destroys it after, whatever the result. */
mimo_status oracle_topology_create(oracle_topology *out, mimo_comm *host,
                                   const compute_device *device, const oracle_spec *spec);
void oracle_topology_destroy(oracle_topology *topology);

#endif
