#include "dispatch/route/sum_order.h"

/*
 * Claim: behind a term, an open gap is closed where it is not smaller than the gap that follows.
 * Why: two gaps beside each other lie in nodes that have the term between them, so the node of one
 * contains that of the other, and the larger gap is the inner node. Equal gaps are those of terms
 * of one place. These are added from the left.
 */
void mimo_sum_order(uint8_t *adds, int64_t count)
{
    int open[MIMO_SUM_OPEN], depth = 0;
    for (int64_t i = 0; i < count; i++) {
        int next = i + 1 < count ? adds[i] : 0;
        adds[i] = 0;
        for (; depth > 0 && open[depth - 1] >= next; depth--)
            adds[i]++;
        open[depth++] = next;
    }
}
