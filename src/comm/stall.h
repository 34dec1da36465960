/* A wait that lasts long says so, in a line of the log: after MIMO_STALL_MS, and each time that it
 * has lasted twice as long. */
#ifndef MIMO_COMM_STALL_H
#define MIMO_COMM_STALL_H

#include "comm/comm_backend.h"

/* What a wait has said so far. It begins as zeros. */
typedef struct mimo_stall {
    int64_t warn_at, tell_at; /* nanoseconds of waiting at which the next line, or notice, is due */
} mimo_stall;

/* To be called after each mimo_check_termination that found no end. `clock` is its clock. */
void mimo_stall_look(mimo_stall *stall, mimo_comm *comm, const mimo_wait_clock *clock,
                     const char *call);

#endif
