/* How rows travel between ranks. */
#ifndef MIMO_TRANSPORT_H
#define MIMO_TRANSPORT_H

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/** How rows that go from one rank to another travel. The collective algorithm of bridges has no
 *  choice: AUTO alone. */
typedef enum mimo_transport {
    /* Of each call: zero-copy where its destinations lie in a mimo_buffer. Other messages of a
     * bridge are staged where that is faster: where the rows of all tensors of the call have at
     * least 128 bytes and are multiples of 16. Otherwise, and where MIMO_STAGED=0: p2p. */
    MIMO_TRANSPORT_AUTO = 0,
    MIMO_TRANSPORT_P2P = 1,       /* at most one message to each peer in a call */
    MIMO_TRANSPORT_ZERO_COPY = 2, /* straight into the destination; one that is in no buffer is an
                                     error. Rows to ranks out of reach are sent, and a warning says
                                     so (<mimo/buffer.h>) */
    /* Experimental (<mimo/status.h>). On a device, in pieces through memory of the library that
     * ranks share (mimo_nccl_desc.staging_bytes), so that a rank copies one piece out while the
     * next arrives. Between ranks that share none, and on the host: p2p. Where some of a device's
     * ranks share none, creation warns on rank 0, as zero-copy does. */
    MIMO_TRANSPORT_STAGED = 3,
} mimo_transport;

MIMO_END_DECLS

#endif
