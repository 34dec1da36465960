/* The messages of a guarded exchange. They travel from and to the memory of a request, where rows
 * are packed; MPI has nothing else. */
#ifndef MIMO_COMM_MPI_GUARDED_MESSAGES_H
#define MIMO_COMM_MPI_GUARDED_MESSAGES_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

typedef struct mimo_mpi_guarded_messages mimo_mpi_guarded_messages;

/* The messages of an exchange in the order in which they start: receives first, then sends. */
typedef struct mimo_mpi_message_list {
    int receives, sends;
    mimo_message *list; /* list[receives + sends] */
} mimo_mpi_message_list;

/* Prepare the messages; the list is read during the call only. Messages bear the tag. Local. */
mimo_status mimo_mpi_guarded_messages_create(mimo_mpi_guarded_messages **out, MPI_Comm comm,
                                             int tag, const mimo_mpi_message_list *from);
/* Without a call of MPI, what MPI holds of them stays. */
void mimo_mpi_guarded_messages_destroy(mimo_mpi_guarded_messages *messages, bool may_call);

/* The number of messages, and the bytes of all their rows. */
int mimo_mpi_guarded_messages_count(const mimo_mpi_guarded_messages *messages);
int64_t mimo_mpi_guarded_messages_bytes(const mimo_mpi_guarded_messages *messages);

/* Take rows behind these bases from now on. */
void mimo_mpi_guarded_messages_bind(mimo_mpi_guarded_messages *messages, char *const *bases);

/* Start them all in a request of that count and with that memory. Its test writes the rows once all
 * have arrived. */
mimo_status mimo_mpi_guarded_messages_start(const mimo_mpi_guarded_messages *messages,
                                            mimo_request *request);

#endif
