/* Tiles: tensor views read as rows of samples and positions. Pure. */
#ifndef MIMO_LAYOUT_TILE_H
#define MIMO_LAYOUT_TILE_H

#include <stdbool.h>

#include <mimo/plan.h>

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
    int64_t seq; /* S of the full sequence; 1 where it is unknown: then rows move as samples do */
} mimo_tile_pair;

/* The tile of a side. */
static inline const mimo_tile *mimo_tile_of(const mimo_tile_pair *pair, mimo_side side)
{
    return side == MIMO_SRC ? &pair->src : &pair->dst;
}

/* Room for a view's words in a sentence. */
enum { MIMO_VIEW_TEXT = 128 };

/* "bh" and "th": samples follow each other, and where they end is not said. */
bool mimo_tile_is_flat(const mimo_tensor *view);

/* The checks of one view: letters that a tile can have, the memory, data where there are rows.
 * `name` begins the sentence ("src"). */
mimo_status mimo_tile_check_view(const mimo_tensor *view, mimo_memory memory, const char *name);

/* A checked view as a tile; flat ones have flat_seq positions a sample. MIMO_ERR_OVERFLOW. */
mimo_status mimo_tile_read(mimo_tile *out, const mimo_tensor *view, int64_t flat_seq);

/* Of a call that adds gradients: MIMO_ERR_ARGUMENT where a tile of the pair does not lie at a
 * multiple of its element size. */
mimo_status mimo_tile_check_addresses(const mimo_tensor *src, const mimo_tensor *dst);

/* MIMO_ERR_ARGUMENT where the views share memory. */
mimo_status mimo_tile_check_apart(const mimo_tensor *a, const mimo_tensor *b);

/* A tile like `tile`, in other memory and with `seq` positions: staging in the same row order. */
mimo_tile mimo_tile_like(const mimo_tile *tile, void *data, int64_t seq);

/* The order of a tile's rows. */
static inline mimo_row_order mimo_tile_order(const mimo_tile *tile)
{
    return tile->view.letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
}

/* Bytes of a tile's rows. */
int64_t mimo_tile_bytes(const mimo_tile *tile);

/* Samples [first, first + count) of a tile, all positions. The inner loop runs along samples where
 * `along_samples`: both sides of a copy choose alike, so that their loops match. */
mimo_rows mimo_tile_rows(const mimo_tile *tile, int64_t first, int64_t count, bool along_samples);

#endif
