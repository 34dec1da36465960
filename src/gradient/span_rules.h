/*
 * What a span's strings mean on its module's grid: along which dimensions its gradient is summed,
 * and along which ranks hold other elements. Pure.
 */
#ifndef MIMO_GRADIENT_SPAN_RULES_H
#define MIMO_GRADIENT_SPAN_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/gradient.h>

/* The dimensions that may be larger than 1, in the grid's usual order; a set of them is a mask. */
enum { MIMO_RULE_DIMS = 4, MIMO_RULE_MASKS = 1 << MIMO_RULE_DIMS };
extern const char *const mimo_rule_dims[MIMO_RULE_DIMS]; /* "tp", "cp", "pp", "dp" */

/* Each mask holds only dimensions that are larger than 1 on the grid. */
typedef struct mimo_span_rule {
    unsigned data;    /* ranks hold other samples or tokens */
    unsigned partial; /* ranks hold a part of each element's gradient */
    unsigned shard;   /* ranks hold other elements */
    unsigned copies;  /* ranks hold the same elements with the same gradient */
} mimo_span_rule;

/* data | partial: the dimensions that finalize sums over. */
unsigned mimo_rule_sum(const mimo_span_rule *rule);

/* data | partial | copies: the dimensions along which ranks hold the same elements. */
unsigned mimo_rule_same(const mimo_span_rule *rule);

/* "encoder" or "LLM". */
const char *mimo_module_name(mimo_side module);

/* Check that only tp, cp, pp and dp, and on the encoder no cp, are larger than 1. */
mimo_status mimo_rule_check_grid(const mimo_grid *grid, mimo_side module);

/* Read a span. MIMO_ERR_GRID: an unknown or repeated dim, one both sharded and partial, a data dim
 * in either. */
mimo_status mimo_span_rule_of(mimo_span_rule *out, const mimo_grid *grid,
                              const mimo_gradient_span *span);

/* "tp,cp" of a mask into text[16], the form that grids take; "" for none. Returns `text`. */
char *mimo_rule_text(unsigned mask, char text[16]);

/* Product of the sizes of a mask's dimensions. */
int64_t mimo_rule_ranks(unsigned mask, const mimo_grid *grid);

/* True where `rank` is inside the grid at coordinate 0 along every dimension outside `mask`: of all
 * ranks that hold the same thing, the one that speaks for it. */
bool mimo_rule_speaks(unsigned mask, const mimo_grid *grid, int64_t rank);

/* The rank that speaks for the same thing as `rank` does; -1 where that is outside the grid. */
int64_t mimo_rule_speaker(unsigned mask, const mimo_grid *grid, int64_t rank);

#endif
