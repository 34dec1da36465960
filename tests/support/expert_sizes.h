/* The sizes of experts' memory for a case of a test. */
#ifndef MIMO_TESTS_EXPERT_SIZES_H
#define MIMO_TESTS_EXPERT_SIZES_H

#include "comm/expert_memory.h"

/* `its` points to a struct that names ranks, etp and so on as mimo_expert_sizes does. What follows
 * are further members of that: `.tensors = 1, .sums = 1`. */
#define EXPERT_SIZES(its, most_tokens, ...)             \
    ((mimo_expert_sizes){.ranks = (its)->ranks,         \
                         .etp = (its)->etp,             \
                         .experts = (its)->experts,     \
                         .top_k = (its)->top_k,         \
                         .alignment = (its)->alignment, \
                         .max_tokens = (most_tokens),   \
                         __VA_ARGS__})

#endif
