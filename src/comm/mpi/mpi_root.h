/* What the communicators of one family share under MPI: the first one's handle, on which farewells
 * travel as plain messages, beside the family itself. */
#ifndef MIMO_COMM_MPI_ROOT_H
#define MIMO_COMM_MPI_ROOT_H

#include <mpi.h>

#include "comm/comm_backend.h"

typedef struct mimo_mpi_root {
    mimo_family family;
    int users;       /* communicators; an atomic */
    MPI_Comm handle; /* MPI_COMM_NULL until it is made */
    bool owned;
    int rank, size;
    mimo_farewell first; /* heard before this rank gave up itself */
    mimo_farewell mine;
    MPI_Request *sends;      /* [size], of `mine` */
    char *signs;             /* [size], of each rank: see mpi_root.c */
    mimo_farewell elsewhere; /* of a rank that gave up another call than this one */
} mimo_mpi_root;

/* One user. Local. */
mimo_status mimo_mpi_root_create(mimo_mpi_root **out, int rank, int size);
/* Give one user up; the last one frees the handle, unless the family has ended: MPI can't call
 * off everything that was in flight then. */
void mimo_mpi_root_drop(mimo_mpi_root *root);

/* The backend's slots, for a communicator of these ranks. */
void mimo_mpi_root_end(mimo_mpi_root *root, MPI_Comm ranks, const mimo_farewell *mine,
                       int64_t patience, char *signs, size_t room);
bool mimo_mpi_root_hear(mimo_mpi_root *root, mimo_farewell *out);

#endif
