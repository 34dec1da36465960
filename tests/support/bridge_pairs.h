/* The pairs of grids for the bridge's tests: every executor takes them. */
#ifndef MIMO_TESTS_BRIDGE_PAIRS_H
#define MIMO_TESTS_BRIDGE_PAIRS_H

#include "mpi_test.h"
#include "reference_grid.h"

typedef struct grids {
    const char *src, *dst;
} grids;

/* Fan-in, fan-out and equal, with every cp, on 1, 2, 3, 4, 6 and 8 ranks. */
static const grids bridge_pairs[] = {
    {"tp=1,dp=1", "tp=1,cp=1,dp=1"},       {"tp=1,dp=2", "tp=1,cp=2,dp=1"},
    {"tp=2,dp=1", "tp=1,cp=2,dp=1"},       {"tp=2,dp=1", "tp=1,cp=1,dp=2"},
    {"tp=1,dp=2", "tp=2,cp=1,dp=1"},       {"tp=1,dp=2", "tp=1,cp=1,dp=2"},
    {"tp=1,dp=3", "tp=1,cp=3,dp=1"},       {"tp=3,dp=1", "tp=1,cp=1,dp=3"},
    {"tp=1,dp=3", "tp=3,cp=1,dp=1"},       {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
    {"tp=1,dp=4", "tp=1,cp=4,dp=1"},       {"tp=2,dp=2", "tp=1,cp=4,dp=1"},
    {"tp=2,dp=2", "tp=1,cp=2,pp=1,dp=2"},  {"tp=4,dp=1", "tp=1,cp=2,dp=2"},
    {"tp=4,dp=1", "tp=2,cp=2,dp=1"},       {"tp=4,dp=1", "tp=1,cp=1,dp=4"},
    {"tp=1,dp=4", "tp=2,cp=1,dp=2"},       {"tp=1,dp=4", "tp=4,dp=1"},
    {"dp=4,tp=1", "tp=2,gtp=1,cp=2,dp=1"}, {"tp=1,dp=6", "tp=1,cp=3,dp=2"},
    {"tp=1,dp=6", "tp=1,cp=2,dp=3"},       {"tp=2,dp=3", "tp=1,cp=2,dp=3"},
    {"tp=6,dp=1", "tp=1,cp=3,dp=2"},       {"tp=3,dp=2", "tp=1,cp=1,dp=6"},
    {"tp=2,dp=4", "tp=2,cp=2,dp=2"},       {"tp=4,dp=2", "tp=1,cp=2,dp=4"},
    {"tp=1,dp=8", "tp=2,cp=4,dp=1"},       {"tp=1,dp=8", "tp=2,cp=2,dp=2"},
    {"tp=2,dp=4", "tp=1,cp=8,dp=1"},       {"tp=8,dp=1", "tp=1,cp=4,dp=2"},
    {"tp=8,dp=1", "tp=2,cp=2,dp=2"},       {"tp=2,dp=4", "tp=2,cp=1,dp=4"},
    {"tp=4,dp=2", "tp=2,cp=2,dp=2"},
};

/* Loops over the pairs with as many ranks as this launch. */
#define FOR_EACH_PAIR(pair)                                                            \
    for (size_t pair = 0; pair < sizeof bridge_pairs / sizeof bridge_pairs[0]; pair++) \
        if (ref_ranks(bridge_pairs[pair].src) == mpi_test_size())

#endif
