/* A slow reference for tests: coordinates, shards and values by plain loops over the formulas of
 * docs/concepts.md. Shares no code with the library. */
#ifndef MIMO_TESTS_REFERENCE_GRID_H
#define MIMO_TESTS_REFERENCE_GRID_H

#include <stdbool.h>
#include <stdint.h>

/* The size of a dimension in "tp=2,cp=2,dp=2"; 1 where it is absent. */
int64_t ref_size(const char *spec, const char *dim);

/* Coordinate of rank - offset along a dimension; 0 where it is absent. */
int64_t ref_coord(const char *spec, const char *dim, int64_t rank);

/* Ranks in the grid. */
int64_t ref_ranks(const char *spec);

/* Global position of local row i of a rank's zigzag shard, which sp cuts along tp as well. */
int64_t ref_position(const char *spec, int64_t rank, int64_t seq, bool sp, int64_t i);

/* An injective 64-bit value of a global element, with a seed. */
uint64_t ref_word(uint64_t seed, int64_t sample, int64_t position, int64_t element);

/* The low `bytes` of a word, changed so that every float type reads a finite number that is not -0.
 * Adding zeros to it gives the same bits. */
void ref_store(void *to, uint64_t word, int64_t bytes);

#endif
