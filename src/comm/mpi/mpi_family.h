/* What the communicators of one family share under MPI: the family itself, and the first
 * communicator's handle. Farewells travel on that handle as ordinary messages. */
#ifndef MIMO_COMM_MPI_FAMILY_H
#define MIMO_COMM_MPI_FAMILY_H

#include <mpi.h>

#include "comm/comm_backend.h"

typedef struct mimo_mpi_family {
    mimo_family base;
    int users;       /* communicators; an atomic */
    MPI_Comm handle; /* MPI_COMM_NULL until it is made */
    bool owned;
    int rank, size;
    mimo_farewell first;     /* received before this rank gave up itself */
    mimo_farewell mine;      /* this rank's own */
    MPI_Request *sends;      /* [size], of `mine` */
    char *farewells;         /* [size], whether each rank's has come: see mpi_family.c */
    mimo_farewell elsewhere; /* of a rank that gave up a different call */
} mimo_mpi_family;

/* Make one, with one user. Local. */
mimo_status mimo_mpi_family_create(mimo_mpi_family **out, int rank, int size,
                                   const mimo_comm_desc *desc);
/* Drop one user. The last one frees the handle, unless the family has ended: then MPI may still use
 * it for operations that can't be cancelled. */
void mimo_mpi_family_drop(mimo_mpi_family *family);

/* The backend's slots `end`, for a communicator of these ranks, and `receive_farewell`. */
void mimo_mpi_family_end(mimo_mpi_family *family, MPI_Comm ranks, const mimo_farewell *mine,
                         int64_t patience, char *text, size_t capacity);
bool mimo_mpi_family_receive(mimo_mpi_family *family, mimo_farewell *out);

#endif
