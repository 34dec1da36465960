/* The bugs that the checks must catch. Each is a place in the sources of the library, or of src/nn,
 * that asks MIMO_MUTATED (src/core/mutation.h); only the test copy that mimo-oracle links has them
 * at all. */
#ifndef ORACLE_MUTATIONS_H
#define ORACLE_MUTATIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "oracle_topology.h"
#include "phases.h"

typedef struct oracle_mutation {
    const char *name, *sentence;
    oracle_phase phase; /* the first that fails */
    oracle_spec spec;   /* on this topology */
    bool in_bridge;     /* mimo_bridge_self_test sees it too, there */
} oracle_mutation;

/* NULL where there is none. */
const oracle_mutation *mutation_find(const char *name);

/* A line each: name, phase, topology, sentence, "self-test" where that sees it; separated by
 * tabs. */
void mutation_list(FILE *stream);

/* From here on mimo_mutated says yes to this one alone; NULL: to none. */
void mutation_switch_on(const oracle_mutation *mutation);
/* It was asked since then, in this process, and did. */
bool mutation_reached(void);

#endif
