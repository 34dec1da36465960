/* The bugs that the checks must catch. Each one is in the sources of the library or of train/nn, at
 * a point that asks MIMO_MUTATED (src/core/mutation.h). Only the test copy that mimo-oracle links
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

/* A bug of the fixed order of additions. No reference in f64 sees it: with it, a run on `spec`
 * differs from one on one rank. */
typedef struct oracle_order_mutation {
    const char *name, *sentence;
    const char *quantity; /* the first of loss, grads, norm and params that differs in step 1 */
    oracle_spec spec;
} oracle_order_mutation;

/* Whether there is one of that name: in either list, or one that unit tests see. */
bool mutation_exists(const char *name);

/* One line each: name, phase or quantity, topology, sentence, and "self-test" where that finds it;
 * separated by tabs. */
void mutation_list(FILE *stream);
void mutation_list_of_order(FILE *stream);

/* From here on mimo_mutated is true for this one only; NULL: for none. */
void mutation_switch_on(const char *name);
/* Whether mimo_mutated has been true in this process since then. */
bool mutation_reached(void);

#endif
