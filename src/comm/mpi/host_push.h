/*
 * Pushes in host memory: the rows of an exchange that this rank writes into its peers' buffers, and
 * those that its peers write here. Nothing waits: a push in flight moves on whenever it is asked
 * to, as far as the flags of its peers let it.
 */
#ifndef MIMO_COMM_HOST_PUSH_H
#define MIMO_COMM_HOST_PUSH_H

#include "comm/buffer_state.h"

typedef struct mimo_host_push mimo_host_push;

/* What a communicator has in flight, in the order of the starts, which is the same on all ranks:
 * the numbers of the calls follow it. */
typedef struct mimo_host_flight {
    mimo_host_push *first;
} mimo_host_flight;

/* Copies the lists. *out is NULL where this rank pushes nothing and nobody pushes rows to it: then
 * there are no flags to mind either. */
mimo_status mimo_host_push_create(mimo_host_push **out, const mimo_pushes *pushes);
void mimo_host_push_destroy(mimo_host_push *push);

/* Whether it may be started: MIMO_ERR_MISMATCH where a call by the same flags was refused. */
mimo_status mimo_host_push_check(const mimo_host_push *push);

/* Tell those that write here that they may. */
void mimo_host_push_start(mimo_host_flight *flight, mimo_host_push *push);

/* Move on all that is in flight; what is over leaves it. */
mimo_status mimo_host_push_move(mimo_host_flight *flight);

/* This rank's rows are written, and those of its peers are here. */
bool mimo_host_push_is_over(const mimo_host_push *push);

/* Of one that is over: MIMO_ERR_MISMATCH where ranks called differently, and rows were refused. */
mimo_status mimo_host_push_outcome(const mimo_host_push *push);

/* Take one out that is not to go on. Its peers may still write: <mimo/buffer.h> says
 * until when. */
void mimo_host_push_leave(mimo_host_flight *flight, mimo_host_push *push);

#endif
