/* The FIFOs of a communicator: a buffer that messages are staged through (comm/staged), for all
 * objects that were made from the communicator. The first user makes it, the last one releases it.
 */
#ifndef MIMO_COMM_FIFOS_H
#define MIMO_COMM_FIFOS_H

#include "comm/comm_backend.h"

enum { MIMO_FIFO_BYTES = 32 << 20 }; /* where the caller does not say */

typedef struct mimo_fifo_user {
    mimo_comm *comm; /* NULL: it uses none */
} mimo_fifo_user;

/* Begin to use the FIFOs; a user that does so already goes on. Collective, blocking; all ranks
 * return, also where one fails. Where the backend stages nothing, no rank wants memory for it, or
 * no other rank is within reach, there are none, which is no error. Rank 0 logs the bytes, and
 * where some rank is out of reach. MIMO_ERR_MEMORY, MIMO_ERR_DEVICE, MIMO_ERR_COMM. */
mimo_status mimo_fifos_use(mimo_fifo_user *user, mimo_comm *comm);

/* End to use them. Collective in effect. */
void mimo_fifos_leave(mimo_fifo_user *user);

/* The buffer; NULL: there is none. */
mimo_buffer *mimo_fifos_of(const mimo_fifo_user *user);

#endif
