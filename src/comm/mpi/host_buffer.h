/* Buffers in host memory that the ranks of a host share. */
#ifndef MIMO_COMM_HOST_BUFFER_H
#define MIMO_COMM_HOST_BUFFER_H

#include "comm/buffer_state.h"

/* The backend's slots, as comm_backend.h says; closing is local. Of opening: MIMO_ERR_MEMORY where
 * a host lacks room, MIMO_ERR_UNSUPPORTED where it shares no memory at all, MIMO_ERR_COMM. */
mimo_status mimo_host_buffer_open(mimo_buffer *buffer);
void mimo_host_buffer_close(mimo_buffer *buffer);

/* In the copy of the library that tests link: ranks whose numbers leave different rests when
 * divided by `parts` can't reach each other from now on, as if they were on different hosts; 1
 * calls that off. */
#ifdef MIMO_TEST_HOOKS
void mimo_split_hosts(int parts);
#endif

#endif
