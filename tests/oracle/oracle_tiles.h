/*
 * The tiles on both sides of the bridge, and the calls that move them. A call moves the rows in one
 * tensor, or in two tensors that divide a row's columns unequally. With two, messages hold several
 * tensors.
 *
 * A call moves the samples of a group of G micro-batches. In the dst tile those of a micro-batch
 * lie together where the topology says that rows are sample-major: a group's forward is in chunks
 * of a micro-batch each.
 */
#ifndef ORACLE_ORACLE_TILES_H
#define ORACLE_ORACLE_TILES_H

#include "train/nn/nn.h"

#include "oracle_topology.h"

enum { ORACLE_TENSORS = 2 };

typedef struct oracle_tiles_desc {
    int64_t tokens, hidden; /* P, H; 4 divides H */
    int64_t samples[2];     /* of a call, by mimo_side; zero-copy: the same on all ranks */
    int64_t group;          /* G; it divides samples[MIMO_DST]; above 1: rows are sample-major */
    bool consumes;          /* image rows come to this rank: it is of the first stage */
    int tensors;            /* of a call: 1 or 2 */
} oracle_tiles_desc;

typedef struct oracle_tiles {
    oracle_tiles_desc desc;
    mimo_bridge *bridge;              /* borrowed */
    const nn_runtime *runtime;        /* borrowed: all of it lies in the memory of this runtime */
    bool sample_major;                /* of the topology */
    nn_real *tile[2];                 /* [P, samples, H]; sample-major dst: [samples, P, H] */
    nn_real *part[2][ORACLE_TENSORS]; /* likewise, of this width; one tensor: the tile itself */
    int64_t width[ORACLE_TENSORS];
    nn_real *room; /* two rooms for all parts; zero-copy: the buffer's memory, otherwise our own */
    int turn;      /* which of them has the parts */
    mimo_buffer *buffer; /* NULL: not zero-copy */
} oracle_tiles;

/* Collective. The caller zeroes *out before and destroys it after, whatever the result. */
mimo_status oracle_tiles_create(oracle_tiles *out, const oracle_topology *topology,
                                const oracle_tiles_desc *desc);
void oracle_tiles_destroy(oracle_tiles *tiles);

/* Begin to move rows from the src tile to the dst tile, or gradients back. *op is NULL where
 * nothing is left to wait for. Collective over the bridge's ranks. */
mimo_status oracle_tiles_start(mimo_op **op, oracle_tiles *tiles, bool backward);
/* After the wait for micro-batch i of a group in a forward: its rows are in the dst tile, at
 * oracle_tiles_part(tiles, i). Local. */
mimo_status oracle_tiles_take(const oracle_tiles *tiles, int64_t i);
nn_real *oracle_tiles_part(const oracle_tiles *tiles, int64_t i);
/* Before a backward: the gradients of the micro-batches from i on, which the last group may not
 * have, are zeros. Local. */
mimo_status oracle_tiles_give_none(const oracle_tiles *tiles, int64_t i);
/* After the wait of a backward: what came is in the src tile. Local. */
mimo_status oracle_tiles_take_back(const oracle_tiles *tiles);

#endif
