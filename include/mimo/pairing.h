/*
 * How two grids over the same ranks stand to each other: fan, gather groups and slices of the
 * gather-narrow-sum method (docs/concepts.md has it under that name). Pure, local, thread-safe.
 *
 *             FAN_IN, src dp > dst dp        FAN_OUT, dst dp > src dp        EQUAL
 *   k         src dp / dst dp                dst dp / src dp                 1
 *   groups    d < dst dp, t < src tp:        d < src dp, t < dst tp,         none
 *             src(dp = d*k + j, tp = t)      c < dst cp:
 *                                            dst(dp = d*k + j, tp = t, cp = c),   j < k
 *   forward   all-gather along the batch     narrow, slot = dst dp mod k     copy
 *   backward  SUM over dst cp, then          SUM over dst cp, then           SUM over dst cp,
 *             narrow, slot = src dp mod k    all-gather along the batch      then copy
 *
 * A slot's slice of B samples is [slot * (B/k), (slot + 1) * (B/k)).
 */
#ifndef MIMO_PAIRING_H
#define MIMO_PAIRING_H

#include <mimo/grid.h>

MIMO_BEGIN_DECLS

/** How the dp sizes stand to each other: which side has more. */
typedef enum mimo_fan {
    MIMO_FAN_EQUAL = 0,
    MIMO_FAN_IN = 1,
    MIMO_FAN_OUT = 2,
} mimo_fan;

typedef struct mimo_pairing {
    size_t size; /* set by the initializer */
    mimo_fan fan;
    int64_t scale;      /* k; 1 where EQUAL */
    int64_t groups;     /* number of gather groups; 0 where EQUAL */
    int64_t group_size; /* k, or 0 where EQUAL */
} mimo_pairing;

#define MIMO_PAIRING_INIT                             \
    {                                                 \
        sizeof(mimo_pairing), MIMO_FAN_EQUAL, 0, 0, 0 \
    }

MIMO_API void mimo_pairing_init(mimo_pairing *out, size_t size);

/** "equal", "fan_in" or "fan_out". Never NULL. */
MIMO_API const char *mimo_fan_name(mimo_fan fan);

/**
 * Check the rules of the `collective` algorithm and say how the grids pair up, in *out (from
 * MIMO_PAIRING_INIT).
 *
 * Errors, all MIMO_ERR_GRID with the numbers: a grid without tp or dp; sizes or offsets differ; src
 * cp or pp > 1; dst pp > 1; another dimension > 1; dp sizes do not divide one another; placement
 * (the sentence names the first rank whose src dp and dst dp coordinates do not belong together,
 * with both).
 */
MIMO_API mimo_status mimo_pairing_of(mimo_pairing *out, const mimo_grid *src, const mimo_grid *dst);

/** The ranks of gather group `index` in slot order, into ranks[group_size]. Groups are listed as
 *  the loops of the table run, the first loop outermost. Errors: as mimo_pairing_of;
 * MIMO_ERR_ARGUMENT (index). */
MIMO_API mimo_status mimo_pairing_group(int64_t *ranks, const mimo_grid *src, const mimo_grid *dst,
                                        int64_t index);

/** The gather group of `rank` and its slot there. EQUAL gives index -1 and slot 0. Either output
 *  may be NULL. Errors: as mimo_pairing_of; MIMO_ERR_GRID (rank outside the grids). */
MIMO_API mimo_status mimo_pairing_slot(int64_t *index, int64_t *slot, const mimo_grid *src,
                                       const mimo_grid *dst, int64_t rank);

/** The samples [*first, *first + *count) of a global batch that `rank` has in `grid`: those of its
 *  dp coordinate. In the encoder's grid it loads them, in the LLM's grid it holds them. Errors:
 *  MIMO_ERR_GRID (rank outside the grid), MIMO_ERR_SHAPE (the grid's dp does not divide the batch).
 */
MIMO_API mimo_status mimo_pairing_samples(int64_t *first, int64_t *count, const mimo_grid *grid,
                                          int64_t rank, int64_t batch);

MIMO_END_DECLS

#endif
