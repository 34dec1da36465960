/* Items of random sizes on random lanes: empty lanes, empty samples, samples in one piece. */
#ifndef MIMO_TESTS_ITEM_LISTS_H
#define MIMO_TESTS_ITEM_LISTS_H

#include <stdint.h>
#include <string.h>

#include <mimo/plan.h>

#include "core/hash.h"

enum { ITEM_LISTS_MOST = 256, ITEM_LANES_MOST = 64 };

typedef struct item_lists {
    int64_t count;
    mimo_item items[ITEM_LISTS_MOST];
    int64_t first[ITEM_LANES_MOST + 1];
} item_lists;

/* A number below `end`. */
static inline int64_t item_draw(uint64_t *random, int64_t end)
{
    *random = mimo_hash_int(*random, 1);
    return (int64_t)(*random % (uint64_t)end);
}

/* Rows of a sample in `spans`. */
static inline int64_t rows_in_spans(const mimo_span *spans, int64_t count, int64_t sample)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++)
        rows += spans[i].sample == sample ? spans[i].length : 0;
    return rows;
}

/* Cut the rows of all samples into pieces, and give each piece a lane: of some seeds only low lanes
 * have any. */
static inline void draw_item_lists(item_lists *out, uint64_t *random, const mimo_span *spans,
                                   int64_t count, int64_t batch, int64_t lanes)
{
    mimo_item pieces[ITEM_LISTS_MOST];
    int64_t lane[ITEM_LISTS_MOST], used = 1 + item_draw(random, lanes);
    memset(out, 0, sizeof *out);
    for (int64_t b = 0; b < batch; b++) {
        int64_t rows = rows_in_spans(spans, count, b), row = 0;
        while (row < rows) {
            bool whole = item_draw(random, 3) == 0 || out->count > ITEM_LISTS_MOST - 2 * batch;
            int64_t length = whole ? rows - row : 1 + item_draw(random, rows - row);
            int64_t at = item_draw(random, out->count + 1); /* a random order in the tiles */
            pieces[out->count] = pieces[at];
            lane[out->count] = lane[at];
            pieces[at] = (mimo_item){b, row, length};
            lane[at] = item_draw(random, used);
            out->count++;
            row += length;
        }
    }
    int64_t next = 0;
    for (int64_t l = 0; l < lanes; l++) {
        for (int64_t i = 0; i < out->count; i++)
            if (lane[i] == l)
                out->items[next++] = pieces[i];
        out->first[l + 1] = next;
    }
}

#endif
