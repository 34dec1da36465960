/* MPI operators and types of each dtype. MPI 3.1 has no 16-bit floats: they travel as uint16_t,
 * with operators of our own that combine them in f32. */
#ifndef MIMO_COMM_MPI_OPERATORS_H
#define MIMO_COMM_MPI_OPERATORS_H

#include <mpi.h>

#include <mimo/comm.h>

typedef struct mimo_mpi_operators {
    MPI_Op f16_sum, f16_max, bf16_sum, bf16_max;
} mimo_mpi_operators;

/* Create the four operators; release those that were created. */
mimo_status mimo_mpi_operators_create(mimo_mpi_operators *out);
void mimo_mpi_operators_release(mimo_mpi_operators *operators);

/* Type and operator of a dtype that can be combined. */
void mimo_mpi_operators_pick(const mimo_mpi_operators *operators, mimo_dtype dtype, mimo_reduce op,
                             MPI_Datatype *type, MPI_Op *mpi_op);

/* MPI's operators do not work on nested types. So a reduction of more elements than this, which an
 * int can count, becomes several. */
int64_t mimo_mpi_elements_per_sum(void);
/* How many reductions `count` elements become, and the elements of the i-th. */
int64_t mimo_mpi_sums(int64_t count);
int mimo_mpi_sum_length(int64_t count, int64_t i);

#ifdef MIMO_TEST_HOOKS
/* From now on a reduction takes at most this number of elements; 0: as many as without this. */
void mimo_mpi_split_sums(int elements);
#endif

#endif
