/* What a plan is made of: for the planner, the chunks, the checker and the printer. */
#ifndef MIMO_PLAN_PLAN_TYPES_H
#define MIMO_PLAN_PLAN_TYPES_H

#include "plan/plan_chunk.h"

enum { MIMO_BLOCK_KINDS = 3 };

/* Blocks of one kind: list[count], in memory for `capacity`. */
typedef struct mimo_blocks {
    mimo_block *list;
    int64_t count, capacity;
    int64_t rows;
} mimo_blocks;

struct mimo_plan {
    int64_t rank, classes;
    mimo_blocks blocks[MIMO_BLOCK_KINDS]; /* by mimo_block_kind */
};

/* The rows that two overlapping boxes share. The caller fills in the peer and the class. */
mimo_block mimo_block_of(const mimo_box *src, const mimo_box *dst);

mimo_status mimo_blocks_append(mimo_blocks *blocks, const mimo_block *block);

/* Sort into the order in which sender and receiver list the blocks between them. */
void mimo_blocks_sort(mimo_blocks *blocks);

/* The plans of ranks [first, first + ranks), which cover the ranks of both layouts. */
typedef struct mimo_plan_set {
    int64_t first, ranks;
    mimo_plan **plans;
    const mimo_chunk *chunk; /* the only one that they move; NULL: they move everything */
} mimo_plan_set;

/* mimo_plan_check, on plans that exist already. */
mimo_status mimo_plan_check_set(const mimo_layout *src, const mimo_layout *dst,
                                const mimo_plan_set *set);

#endif
