/*
 * The counter-based generator of the initial weights, written again from its documented rule, and a
 * hash for synthetic data.
 *
 *   mix(x)        the finaliser of splitmix64
 *   int(h, v)     mix(h + 0x9e3779b97f4a7c15 + v)
 *   bytes(h, s)   FNV-1a over the bytes of s from h, then int(., length of s)
 *   key           bytes(int(0xcbf29ce484222325, seed), name)
 *   uniform(i)    (upper 53 bits of int(key, i), plus 1) / 2^53, in (0, 1]
 *   normal(i)     sqrt(-2 ln uniform(2i)) cos(2 pi uniform(2i + 1))
 */
#ifndef REF_RANDOM_H
#define REF_RANDOM_H

#include <stdint.h>

uint64_t ref_key(uint64_t seed, const char *name);
/* A uniform 64-bit word, keyed by (key, index). */
uint64_t ref_bits(uint64_t key, int64_t index);
/* A uniform number in (-1, 1], keyed by (key, index): 2 uniform(i) - 1. */
double ref_uniform(uint64_t key, int64_t index);
/* A standard normal number, keyed by (key, index). */
double ref_normal(uint64_t key, int64_t index);

#endif
