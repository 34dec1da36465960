/*
 * The lanes of a walk through nodes (<mimo/schedule.h>) as streams of a device: what computes runs
 * on the runtime's stream, exchanges run on streams of their own. A node waits at the marks of the
 * nodes that it needs (mimo_nodes_waits), and at no others. So a product and an exchange that do
 * not need each other run at once.
 *
 * Exchanges run one at a time and in the order of the list, as those of one dispatch do. Routes
 * have a stream apart only for the host: it waits for a route's ends, and not for the rows that
 * were begun behind it.
 *
 * Each exchange needs something that is computed in its own step, and nothing computed needs an
 * exchange of another step. So the streams of exchanges leave the runtime's and come back to it
 * within each step, and no stream waits for a mark of another step. A graph can capture one step,
 * or several, where what their nodes call can be captured.
 *
 * Hops and calls between modules are the caller's, on the runtime's stream.
 *
 * On the host, and where streams have no lane for exchanges, all of this is nothing.
 */
#ifndef TRAIN_NODE_LANES_H
#define TRAIN_NODE_LANES_H

#include <mimo/schedule.h>

#include "train/nn/exchange/nn_dispatch.h"
#include "train/pipeline/stage_streams.h"

typedef struct node_lanes {
    const mimo_nodes *nodes; /* borrowed, as all that follows */
    int64_t stage, count;    /* count: of the stage's nodes */
    const mimo_node *list;
    const stage_streams *streams;
    nn_dispatch *dispatch; /* whose moves are the exchanges; NULL: the caller's */
    nn_mark *marks;        /* [count]: behind a node that another lane waits for; NULL: no lanes */
    nn_mark computed;      /* behind all that was computed so far */
    int64_t last;          /* the last exchange of the step; -1: none */
} node_lanes;

/** Which stream a node runs on. Pure. */
stage_stream node_lanes_stream(const mimo_node *node);

/** `streams` NULL: the host. Makes all marks: a walk makes nothing. Local. The caller zeroes *out
 *  before and calls node_lanes_close after, whatever the result. Errors: MIMO_ERR_MEMORY,
 *  MIMO_ERR_DEVICE. */
mimo_status node_lanes_open(node_lanes *out, const mimo_nodes *nodes, int64_t stage,
                            const stage_streams *streams, nn_dispatch *dispatch);
void node_lanes_close(node_lanes *lanes);

/** Whether nodes run on several streams. Otherwise nothing below is due. */
bool node_lanes_apart(const node_lanes *lanes);

/* Around the nodes of a step, also where it fails. Behind its end, what is computed comes after all
 * of its exchanges, and moves that are no nodes are on the runtime's stream. */
void node_lanes_begin(node_lanes *lanes);
mimo_status node_lanes_end(node_lanes *lanes);

/** What the stream of node i is given from now on waits for all that the node needs; `serial`: for
 *  all that the step has done so far. */
mimo_status node_lanes_enter(node_lanes *lanes, int64_t i, bool serial);

/** Node i was given to its stream. */
mimo_status node_lanes_leave(node_lanes *lanes, int64_t i);

#endif
