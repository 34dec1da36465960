/* Tiles: tensor views read as rows of samples and positions. Pure. */
#ifndef MIMO_BRIDGE_TILE_H
#define MIMO_BRIDGE_TILE_H

#include <mimo/pairing.h>
#include <mimo/partition.h>
#include <mimo/tensor.h>

#include "core/rows.h"

/* Row (sample b, position s) of a tile is local row b * row_b + s * row_s. */
typedef struct mimo_tile {
    mimo_tensor view;
    int64_t batch, seq; /* local samples and positions */
    int64_t row_b, row_s;
    int64_t row_bytes;
} mimo_tile;

typedef struct mimo_tile_pair {
    mimo_tile src, dst;
    int64_t seq; /* S of the full sequence; 1 where both are flat and rows move as samples do */
} mimo_tile_pair;

/* What a pair of tiles must fit. */
typedef struct mimo_tile_rules {
    mimo_pairing pairing;
    mimo_memory memory;
    const mimo_partition *partition; /* NULL: dst holds full sequences */
    int64_t cuts;                    /* ranks that share one sequence: cp, times tp under sp */
} mimo_tile_rules;

/* Read and check both views of one tensor's move. MIMO_ERR_SHAPE prints both views and what is
 * needed. MIMO_ERR_OVERFLOW: a size, that of the dst tile with full sequences included, does not
 * fit 64 bits; the other functions here need no check of their own. */
mimo_status mimo_tile_pair_of(mimo_tile_pair *out, const mimo_tile_rules *rules,
                              const mimo_tensor *src, const mimo_tensor *dst);

/* A tile like `tile`, in other memory and with `seq` positions: staging in the same row order. */
mimo_tile mimo_tile_like(const mimo_tile *tile, void *data, int64_t seq);

/* Bytes of a tile's rows. */
int64_t mimo_tile_bytes(const mimo_tile *tile);

/* Samples [first, first + count) of a tile, all positions. The inner loop runs along samples where
 * `along_samples`: both sides of a copy choose alike, so that their loops match. */
mimo_rows mimo_tile_rows(const mimo_tile *tile, int64_t first, int64_t count, bool along_samples);

#endif
