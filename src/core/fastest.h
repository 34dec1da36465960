/* The fastest of several candidates, by times that were measured in interleaved repeats. */
#ifndef MIMO_CORE_FASTEST_H
#define MIMO_CORE_FASTEST_H

#include <stdint.h>

/* The fewest repeats that a candidate must be ahead in, of MIMO_FASTEST_REPEATS, and the percentage
 * by which its best time must be lower. */
enum { MIMO_FASTEST_REPEATS = 15, MIMO_FASTEST_WINS = 10, MIMO_FASTEST_MARGIN = 3 };

/* Times of one candidate, one a repeat. NULL: it was not measured, and is not chosen. */
typedef const uint64_t *mimo_fastest_times;

/*
 * The index of the candidate to use. Candidate 0 was measured, and is kept unless another one is
 * clearly faster. A challenger is clearly faster than the one kept so far where both hold:
 *
 *   - its best time is lower by more than MIMO_FASTEST_MARGIN percent. A disturbance only makes a
 *     repeat slower, so the best time is the least disturbed one;
 *   - it was ahead in at least MIMO_FASTEST_WINS repeats. Where all repeats are disturbed, the best
 *     time is luck. Of two equally fast ones, one is ahead that often in one of seven trials.
 */
int mimo_fastest_of(const mimo_fastest_times *candidates, int count);

#endif
