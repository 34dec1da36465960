/* The bugs that the checks must catch. Each one is in the sources of the library or of src/nn, at a
 * point that asks MIMO_MUTATED (src/core/mutation.h). Only the test copy that mimo-oracle links
 * contains these points. */
#ifndef ORACLE_MUTATIONS_H
#define ORACLE_MUTATIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "oracle_topology.h"
#include "phases.h"

typedef struct oracle_mutation {
    const char *name, *sentence;
    oracle_phase phase; /* the first phase that fails */
    oracle_spec spec;   /* the topology on which it does */
    bool in_bridge;     /* mimo_bridge_self_test finds it as well, on that topology */
} oracle_mutation;

/* NULL where there is none. */
const oracle_mutation *mutation_find(const char *name);

/* One line each: name, phase, topology, sentence, and "self-test" where that finds it; separated by
 * tabs. */
void mutation_list(FILE *stream);

/* From here on mimo_mutated is true for this one only; NULL: for none. */
void mutation_switch_on(const oracle_mutation *mutation);
/* Whether mimo_mutated has been true in this process since then. */
bool mutation_reached(void);

#endif
