/*
 * What the strings of a gradient bucket mean on its module's grid: along which dimensions its
 * gradient is summed, and along which dimensions ranks hold different elements. Pure.
 */
#ifndef MIMO_GRADIENT_BUCKET_RULES_H
#define MIMO_GRADIENT_BUCKET_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/gradient.h>

#include "grid/grid_types.h"

/* The dimensions that a rule tells apart, in the usual order of grids. A mask is a set of them.
 * Along all others ranks hold copies. */
enum { MIMO_RULE_DIMS = 4, MIMO_RULE_MASKS = 1 << MIMO_RULE_DIMS };
extern const char *const mimo_rule_dims[MIMO_RULE_DIMS]; /* "tp", "cp", "pp", "dp" */

/* Each mask holds only dimensions that are larger than 1 on the grid. */
typedef struct mimo_bucket_rule {
    unsigned data;    /* ranks hold different samples or tokens */
    unsigned partial; /* ranks hold a part of each element's gradient */
    unsigned shard;   /* ranks hold different elements */
    unsigned copies;  /* ranks hold the same elements with the same gradient */
} mimo_bucket_rule;

/* data | partial: the dimensions that finalize sums over. */
unsigned mimo_rule_sum(const mimo_bucket_rule *rule);

/* "encoder" or "LLM". */
const char *mimo_module_name(mimo_side module);

/* Check that the grid says what its dimensions mean (mimo_grid_check_meaning), and that the encoder
 * has cp 1. */
mimo_status mimo_rule_check_grid(const mimo_grid *grid, mimo_side module);

/* Read a bucket. MIMO_ERR_GRID: an unknown or repeated dim, a dim both sharded and partial, a data
 * dim or one of copies in either string. */
mimo_status mimo_bucket_rule_of(mimo_bucket_rule *out, const mimo_grid *grid,
                                const mimo_gradient_bucket *bucket);

/* Write a mask into text[16] as grids read it, "tp,cp"; "" where it is empty. Returns `text`. */
char *mimo_rule_text(unsigned mask, char text[16]);

/* Write the dimensions of the grid along which ranks hold the same elements, "tp,x". */
char *mimo_rule_same_text(char text[MIMO_GRID_TEXT], const mimo_bucket_rule *rule,
                          const mimo_grid *grid);

/* Product of the sizes of a mask's dimensions. */
int64_t mimo_rule_ranks(unsigned mask, const mimo_grid *grid);

/* Ranks that differ only along dimensions outside `mask` hold the same elements. Their
 * representative has coordinate 0 along all these dimensions. True where `rank` is one; false
 * outside the grid. */
bool mimo_rule_is_representative(unsigned mask, const mimo_grid *grid, int64_t rank);

/* The representative of the ranks that hold the same elements as `rank`; -1 outside the grid. */
int64_t mimo_rule_representative(unsigned mask, const mimo_grid *grid, int64_t rank);

/* Whether a rank of the LLM counts its tokens. Each token counts once: ranks along tp hold copies,
 * and only the last pipeline stage computes the loss. */
bool mimo_rule_counts_tokens(const mimo_grid *llm, int64_t rank);

#endif
