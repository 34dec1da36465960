/* Buffers in host memory that the ranks of a host share. */
#ifndef MIMO_COMM_HOST_BUFFER_H
#define MIMO_COMM_HOST_BUFFER_H

#include "comm/buffer_state.h"

/* As buffer_open and buffer_close in comm_backend.h. Opening gives MIMO_ERR_MEMORY where a host has
 * too little shared memory, MIMO_ERR_UNSUPPORTED where it has none, MIMO_ERR_COMM. Closing is
 * local. keep_own: this rank's memory stays mapped, because a message may still be received into
 * it. */
mimo_status mimo_host_buffer_open(mimo_buffer *buffer);
void mimo_host_buffer_close(mimo_buffer *buffer, bool keep_own);

/* In the copy of the library that tests link: from now on the ranks behave as if they were on
 * `hosts` hosts. Rank r is on host r mod `hosts`, and ranks of different hosts can't reach each
 * other. */
#ifdef MIMO_TEST_HOOKS
void mimo_split_hosts(int hosts);
#endif

#endif
