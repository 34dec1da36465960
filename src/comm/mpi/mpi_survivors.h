/* Messages of the ranks that are left of a communicator of MPI, and the group that they make. They
 * travel on the communicator that ended, which MPI_Comm_create_group starts from as well: point to
 * point it still works between those that are left. */
#ifndef MIMO_COMM_MPI_SURVIVORS_H
#define MIMO_COMM_MPI_SURVIVORS_H

#include <mpi.h>

#include "comm/survivors_agree.h"

/* What this rank has sent. It lives as long as its communicator. */
typedef struct mimo_mpi_survivor_mail mimo_mpi_survivor_mail;

mimo_status mimo_mpi_survivor_mail_create(mimo_mpi_survivor_mail **out, MPI_Comm handle);
/* What MPI may still read is left to it. NULL is fine. */
void mimo_mpi_survivor_mail_release(mimo_mpi_survivor_mail *mail, bool may_call_mpi);

mimo_survivors_carrier mimo_mpi_survivor_carrier(mimo_mpi_survivor_mail *mail);

/* A handle of those that go on. Collective over them, and it blocks inside MPI. */
mimo_status mimo_mpi_survivor_group(MPI_Comm *out, MPI_Comm ended,
                                    const mimo_survivors_terms *terms);

#endif
