/*
 * Pushes in host memory: the rows of an exchange that this rank writes into its peers' buffers, and
 * the rows that its peers write here. Nothing here waits: mimo_host_push_progress moves each push
 * as far as the flags of its peers allow.
 */
#ifndef MIMO_COMM_HOST_PUSH_H
#define MIMO_COMM_HOST_PUSH_H

#include "comm/buffer_state.h"

typedef struct mimo_host_push mimo_host_push;

/* The pushes that a communicator has in flight, in the order in which they were started. The order
 * is the same on all ranks, and the numbers of the calls follow it. */
typedef struct mimo_host_pushes_in_flight {
    mimo_host_push *first;
} mimo_host_pushes_in_flight;

/* Copies the lists. *out is NULL where this rank pushes no rows and no peer pushes rows to it. */
mimo_status mimo_host_push_create(mimo_host_push **out, const mimo_pushes *pushes);
void mimo_host_push_destroy(mimo_host_push *push);

/* Say where the rows of the next starts lie, and their signature. The push reads `bases` until it
 * is complete. */
void mimo_host_push_bind(mimo_host_push *push, char *const *bases, uint64_t signature);

/* Whether it may be started: MIMO_ERR_MISMATCH where an earlier call with these flags was
 * refused. */
mimo_status mimo_host_push_check(const mimo_host_push *push);

/* Start: tell the ranks that push rows here that they may write. */
void mimo_host_push_start(mimo_host_pushes_in_flight *flight, mimo_host_push *push);

/* Make progress on all pushes in flight. Those that complete leave the list. */
mimo_status mimo_host_push_progress(mimo_host_pushes_in_flight *flight);

/* This rank's rows are written, and its peers' rows have arrived. */
bool mimo_host_push_is_complete(const mimo_host_push *push);

/* The status of a complete push: MIMO_ERR_MISMATCH where ranks called differently and refused
 * rows. */
mimo_status mimo_host_push_status(const mimo_host_push *push);

/* Remove a push that is given up. Its peers may still write: <mimo/buffer.h> says until when. */
void mimo_host_push_remove(mimo_host_pushes_in_flight *flight, mimo_host_push *push);

#endif
