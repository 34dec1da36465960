/* MPI operators and types of each dtype. MPI 3.1 has no 16-bit floats: they travel as uint16_t,
 * with operators of our own that combine them in f32. */
#ifndef MIMO_COMM_MPI_OPERATORS_H
#define MIMO_COMM_MPI_OPERATORS_H

#include <mpi.h>

#include <mimo/comm.h>

/* MPI's operators do not work on nested types, so a reduction of more elements becomes several. */
enum { MIMO_MPI_ELEMENTS_PER_SUM = 1 << 28 };

/* How many, and the elements of the i-th. */
static inline int64_t mimo_mpi_sums(int64_t count)
{
    return (count + MIMO_MPI_ELEMENTS_PER_SUM - 1) / MIMO_MPI_ELEMENTS_PER_SUM;
}

static inline int mimo_mpi_sum_length(int64_t count, int64_t i)
{
    int64_t left = count - i * MIMO_MPI_ELEMENTS_PER_SUM;
    return (int)(left < MIMO_MPI_ELEMENTS_PER_SUM ? left : MIMO_MPI_ELEMENTS_PER_SUM);
}

typedef struct mimo_mpi_operators {
    MPI_Op f16_sum, f16_max, bf16_sum, bf16_max;
} mimo_mpi_operators;

/* Create the four operators; release those that were created. */
mimo_status mimo_mpi_operators_create(mimo_mpi_operators *out);
void mimo_mpi_operators_release(mimo_mpi_operators *operators);

/* Type and operator of a dtype that can be combined. */
void mimo_mpi_operators_pick(const mimo_mpi_operators *operators, mimo_dtype dtype, mimo_reduce op,
                             MPI_Datatype *type, MPI_Op *mpi_op);

#endif
