#include "captioner/training/lane_loads.h"

void lane_loads_add(lane_rows *sums, const lane_rows *step)
{
    sums->lanes = step->lanes;
    sums->all += step->all;
    sums->loaded += step->loaded;
    sums->encoded += step->encoded;
    sums->moved += step->moved;
}

struct train_log_balance lane_loads_balance(const lane_rows *rows)
{
    double all = (double)rows->all, mean = all / (double)rows->lanes;
    return (struct train_log_balance){.loaded = (double)rows->loaded / mean,
                                      .encoded = (double)rows->encoded / mean,
                                      .moved = (double)rows->moved / all};
}

void lane_loads_print(const lane_rows *rows, FILE *stream)
{
    const struct train_log_balance balance = lane_loads_balance(rows);
    if (rows->all == 0)
        return;
    fprintf(stream,
            "balance: the longest lane of the encoder had %.2f times the mean if each had encoded "
            "what it loads, and %.2f as dealt out; %.0f%% of the pictures moved\n",
            balance.loaded, balance.encoded, 100 * balance.moved);
}
