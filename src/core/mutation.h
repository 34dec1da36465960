/*
 * Bugs on purpose, which the tests must catch. `if (MIMO_MUTATED("no-cp-sum"))` is `if (false)`,
 * except in the copy of the library that is built with MIMO_MUTATIONS for tests/oracle. Their table
 * is tests/oracle/mutations.c.
 */
#ifndef MIMO_CORE_MUTATION_H
#define MIMO_CORE_MUTATION_H

#include <stdbool.h>

#ifdef MIMO_MUTATIONS
/* True where the bug of this name is switched on. */
bool mimo_mutated(const char *name);
#define MIMO_MUTATED(name) mimo_mutated(name)
#else
#define MIMO_MUTATED(name) false
#endif

#endif
