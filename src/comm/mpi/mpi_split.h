/*
 * Groups of a split. MPI_Comm_split waits inside MPI, where no deadline ends it. So it is called
 * only where it must be: a group of one rank is made without the others, and all ranks in the
 * parent's order are a duplicate, which MPI makes while the library waits.
 */
#ifndef MIMO_COMM_MPI_SPLIT_H
#define MIMO_COMM_MPI_SPLIT_H

#include <mpi.h>

#include "comm/comm_backend.h"

/* What this rank's colour and key come to. */
typedef struct mimo_mpi_group {
    int color, key;
    int rank, size; /* in the group; size 0: in none */
    enum {
        MIMO_MPI_LONE,  /* no group has more than one rank */
        MIMO_MPI_WHOLE, /* one group: all ranks of the parent, in its order */
        MIMO_MPI_PARTS,
    } kind; /* of the split, the same on all ranks */
} mimo_mpi_group;

/* Collective over the parent; the status is the same on all ranks. */
mimo_status mimo_mpi_group_find(mimo_mpi_group *out, mimo_comm *parent, int color, int key);

/* The handle of the group, or MPI_COMM_NULL; not for MIMO_MPI_WHOLE. With MIMO_MPI_PARTS it is
 * collective over the parent, and blocking. It allocates nothing before MPI is called. */
mimo_status mimo_mpi_group_split(MPI_Comm *out, MPI_Comm parent, const mimo_mpi_group *group);

#endif
