/* Communicators of MPI that the library has released. It frees them once it knows that all ranks
 * have. */
#ifndef MIMO_TESTS_RELEASED_COMMS_H
#define MIMO_TESTS_RELEASED_COMMS_H

#include <mpi.h>

#include "comm/mpi/mpi_closing.h"

/* Free them all. Collective over MPI_COMM_WORLD: the last ranks' words are still under way. */
static inline void free_released_comms(void)
{
    enum { ROUNDS = 1000 };
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        mimo_mpi_close_rest();
    }
}

/* The lowest number that MPI has left on all ranks. Collective. */
static inline int next_comm_number(void)
{
    MPI_Comm probe;
    free_released_comms();
    MPI_Comm_dup(MPI_COMM_WORLD, &probe);
    int number = (int)MPI_Comm_c2f(probe);
    MPI_Comm_free(&probe);
    return number;
}

#endif
