/* Images of many samples, as loaders give them: their rows, cost and home. */
#ifndef MIMO_TESTS_BALANCE_ITEMS_H
#define MIMO_TESTS_BALANCE_ITEMS_H

#include <math.h>
#include <stdint.h>

#include <mimo/balance.h>

#include "core/hash.h"

enum { BALANCE_MOST_ITEMS = 1 << 17 };

typedef enum image_kind {
    IMAGES_NATIVE, /* 1 to 4 a sample, 64 to 8192 rows each */
    IMAGES_FRAMES, /* 0, 1, 16 or 64 frames of 256 rows a sample */
    IMAGES_EQUAL,  /* 0 to 3 of 576 rows a sample */
    IMAGE_KINDS,
} image_kind;

typedef struct balance_items {
    int64_t count, lanes;
    int64_t rows[BALANCE_MOST_ITEMS], cost[BALANCE_MOST_ITEMS], home[BALANCE_MOST_ITEMS];
} balance_items;

/* Forward of a block of an encoder whose hidden size is 1152. */
static inline int64_t image_cost(int64_t rows)
{
    return rows * (rows + 6 * INT64_C(1152));
}

/* A number below `end`, of a seed and a counter. */
static inline int64_t balance_draw(uint64_t seed, int64_t counter, int64_t end)
{
    return (int64_t)(mimo_hash_int(mimo_mix64(seed), counter) % (uint64_t)end);
}

static inline int64_t images_of(image_kind kind, uint64_t seed, int64_t sample)
{
    static const int64_t frames[] = {0, 1, 16, 64};
    if (kind == IMAGES_NATIVE)
        return 1 + balance_draw(seed, sample, 4);
    int64_t n = balance_draw(seed, sample, 4);
    return kind == IMAGES_FRAMES ? frames[n] : n;
}

/* Sizes whose logarithms are even. */
static inline int64_t native_rows(uint64_t seed, int64_t image)
{
    double x = (double)balance_draw(seed, image, 1 << 20) / (1 << 20);
    return (int64_t)(64 * exp2(7 * x));
}

static inline void draw_images(balance_items *out, image_kind kind, int64_t lanes,
                               int64_t samples_a_lane, uint64_t seed)
{
    out->count = 0;
    out->lanes = lanes;
    for (int64_t sample = 0; sample < lanes * samples_a_lane; sample++)
        for (int64_t i = images_of(kind, seed, sample); i > 0; i--) {
            int64_t image = out->count++;
            out->rows[image] = kind == IMAGES_NATIVE   ? native_rows(seed + 1, image)
                               : kind == IMAGES_FRAMES ? 256
                                                       : 576;
            out->cost[image] = image_cost(out->rows[image]);
            out->home[image] = sample / samples_a_lane;
        }
}

static inline mimo_balance_desc desc_of_items(const balance_items *items)
{
    mimo_balance_desc desc = MIMO_BALANCE_DESC_INIT;
    desc.items = items->count;
    desc.lanes = items->lanes;
    desc.cost = items->cost;
    desc.rows = items->rows;
    desc.home = items->home;
    return desc;
}

#endif
