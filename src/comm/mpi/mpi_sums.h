/* MPI operators and types per dtype: MPI 3.1 has no 16-bit floats, so their words get operators of
 * our own that add in f32. */
#ifndef MIMO_COMM_MPI_SUMS_H
#define MIMO_COMM_MPI_SUMS_H

#include <mpi.h>

#include <mimo/comm.h>

typedef struct mimo_mpi_sums {
    MPI_Op f16_sum, f16_max, bf16_sum, bf16_max;
} mimo_mpi_sums;

/* The four operators; release frees what was created. */
mimo_status mimo_mpi_sums_create(mimo_mpi_sums *out);
void mimo_mpi_sums_release(mimo_mpi_sums *sums);

/* Type and operator for a dtype that can be combined. */
void mimo_mpi_sums_pick(const mimo_mpi_sums *sums, mimo_dtype dtype, mimo_reduce op,
                        MPI_Datatype *type, MPI_Op *mpi_op);

#endif
