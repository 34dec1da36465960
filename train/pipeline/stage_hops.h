/*
 * Hops between the stages of a pipeline: activations to the stage behind, gradients to the stage
 * before. Each pair of neighbours that hold the same samples and the same part of the model has a
 * communicator with two bridges, one for each way. A bridge over more ranks would make all of them
 * agree at each hop.
 *
 * Messages of one way arrive in the order in which they were sent. A send copies the rows into a
 * tile of its own and waits for nobody, as long as there are tiles for all messages that the other
 * stage may not have begun to receive: the caller says how many these are. A receive waits for its
 * rows.
 *
 * On a device it is the streams that wait, not the host. Both ends of a way give their messages to
 * a stream in one order, but the two ways mix otherwise at either end. A communicator keeps one
 * order of all that it moves, so there each way has one of its own.
 */
#ifndef TRAIN_STAGE_HOPS_H
#define TRAIN_STAGE_HOPS_H

#include <mimo/mimo.h>

#include "train/pipeline/stage_streams.h"
#include "train/nn/nn.h"

typedef enum hop_way {
    HOP_ACTIVATIONS, /* to the stage behind */
    HOP_GRADIENTS,   /* to the stage before */
} hop_way;
enum { HOP_WAYS = 2 };

typedef struct stage_hops_desc {
    mimo_comm *world;      /* borrowed */
    const mimo_grid *grid; /* of the stages: its dimension "pp"; connected to the world; borrowed */
    int64_t rows, width;   /* of a message */
    bool ring;             /* the first stage is behind the last one: stages have several chunks */
    const stage_streams *streams; /* borrowed; NULL: the host */
} stage_hops_desc;

/* Tiles of messages on their way to a neighbour. */
typedef struct hop_tiles {
    nn_real *rows;  /* [count][rows * width] */
    mimo_op **sent; /* [count] NULL: free */
    int64_t count, next;
    nn_mark filled; /* the tile of the last message */
} hop_tiles;

/* The communicator with a neighbour, and the bridges of both ways; NULL where there is none. */
typedef struct hop_pair {
    mimo_comm *comm;
    mimo_comm *apart[HOP_WAYS]; /* of each way on a device; NULL on the host: `comm` */
    mimo_bridge *ways[HOP_WAYS];
} hop_pair;

typedef struct stage_hops {
    stage_hops_desc desc;
    mimo_grid *ends[2]; /* of a pair: the stage before, and the one behind */
    hop_pair before, behind;
    hop_tiles tiles[HOP_WAYS];
    int64_t calls; /* sends and receives so far */
} stage_hops;

/** Collective over the world. The caller zeroes *out before and calls stage_hops_destroy after,
 *  whatever the result. Where there is one stage, it makes nothing. */
mimo_status stage_hops_create(stage_hops *out, const stage_hops_desc *desc);
void stage_hops_destroy(stage_hops *hops);

/** Have tiles for at least `count` messages on a way. No message is on its way. Local. */
mimo_status stage_hops_reserve(stage_hops *hops, hop_way way, int64_t count);

/** Send rows [rows, width] to the neighbour on that way. Local. */
mimo_status stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows);

/** Receive the next ones from the neighbour on the other side, once `free` is reached. What is
 *  computed from now on has them. On the host it blocks until they are here. */
mimo_status stage_hops_receive(stage_hops *hops, hop_way way, nn_real *rows, const nn_mark *free);

/** Wait for all that was sent: what is computed from now on comes after it. Returns the first
 *  error; all handles are released. */
mimo_status stage_hops_finish(stage_hops *hops);

/** End the communicators that are not of the world's family, as mimo_comm_abort does. */
void stage_hops_abort(stage_hops *hops, const char *sentence);

#endif
