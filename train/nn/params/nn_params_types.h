/* What a store is made of. nn_params.c describes parameters, nn_params_arena.c has their arrays. */
#ifndef MIMO_NN_NN_PARAMS_TYPES_H
#define MIMO_NN_NN_PARAMS_TYPES_H

#include "train/nn/ops/nn_ops.h"
#include "train/nn/params/nn_params.h"

struct nn_params {
    char *name;
    mimo_side module;
    int tp_rank, tp_size;
    int pp_rank, pp_size;
    int stage; /* of the parameters that are added next */
    nn_expert_coords experts;
    uint64_t seed;
    const nn_runtime *runtime;
    int n;
    nn_param *list;
    nn_real *arena; /* value [total] | m | v | grad [trained] each; NULL before seal */
    int64_t *sums;  /* the fixed order: [trained], and no grad in the arena; settled: grad */
    int64_t total, trained;
    int64_t shards, pairs;
    bool settled;
    bool frozen, blank;
    nn_params_counts exchanged;
    mimo_gradient_bucket buckets[NN_RULES];
    char *bucket_names[NN_RULES];
    int n_buckets;
    int64_t steps;
    int merged; /* adapters in their weights */
};

static inline bool nn_rule_is_expert(nn_rule rule)
{
    return rule >= NN_EXPERT_REPLICATED;
}

static inline bool nn_rule_is_sharded(nn_rule rule)
{
    return rule == NN_SHARDED || rule == NN_EXPERT_SHARDED;
}

/* A bucket of a rule's parameters, without its gradients. */
mimo_gradient_bucket nn_rule_bucket(const nn_params *params, nn_rule rule);

/* Whether parameters have this array, on whatever rank: the errors of nn_params_read that all ranks
 * have alike. */
mimo_status nn_params_check_part(const nn_params *params, int index, nn_part part);

static inline bool nn_params_fixed(const nn_params *params)
{
    return params->runtime->order == NN_ORDER_FIXED;
}

#endif
