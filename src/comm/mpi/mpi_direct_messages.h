/* The messages of an exchange that is not guarded: MPI sends and receives rows where they lie. */
#ifndef MIMO_COMM_MPI_DIRECT_MESSAGES_H
#define MIMO_COMM_MPI_DIRECT_MESSAGES_H

#include <mpi.h>

#include "comm/mpi/mpi_guarded_messages.h"

typedef struct mimo_mpi_direct_messages mimo_mpi_direct_messages;

/* Prepare the messages; the list is read during the call only. Messages bear the tag. Local. */
mimo_status mimo_mpi_direct_messages_create(mimo_mpi_direct_messages **out, MPI_Comm comm, int tag,
                                            const mimo_mpi_message_list *from);
/* `may_call`: this thread may call MPI now. Otherwise what MPI has of them stays there. */
void mimo_mpi_direct_messages_destroy(mimo_mpi_direct_messages *messages, bool may_call);

int mimo_mpi_direct_messages_count(const mimo_mpi_direct_messages *messages);

/* Make the requests for rows behind these bases. Local. After an error, to be called again. */
mimo_status mimo_mpi_direct_messages_bind(mimo_mpi_direct_messages *messages, char *const *bases);

/* Start them all. The MPI requests in `request`, which has that count, belong to the messages. */
mimo_status mimo_mpi_direct_messages_start(const mimo_mpi_direct_messages *messages,
                                           mimo_request *request);

#endif
