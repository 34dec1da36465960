#include "core/fastest.h"

#include <stdbool.h>

static uint64_t best_of(mimo_fastest_times times)
{
    uint64_t best = times[0];
    for (int i = 1; i < MIMO_FASTEST_REPEATS; i++)
        best = times[i] < best ? times[i] : best;
    return best;
}

static bool is_clearly_faster(mimo_fastest_times challenger, mimo_fastest_times kept)
{
    int wins = 0;
    for (int i = 0; i < MIMO_FASTEST_REPEATS; i++)
        wins += challenger[i] < kept[i];
    return wins >= MIMO_FASTEST_WINS &&
           100 * best_of(challenger) < (100 - MIMO_FASTEST_MARGIN) * best_of(kept);
}

int mimo_fastest_of(const mimo_fastest_times *candidates, int count)
{
    int kept = 0;
    for (int c = 1; c < count; c++)
        if (candidates[c] && is_clearly_faster(candidates[c], candidates[kept]))
            kept = c;
    return kept;
}
