/* MPI datatypes for strided rows, of any size: counts past 2^31 bytes become nested types. */
#ifndef MIMO_COMM_MPI_TYPES_H
#define MIMO_COMM_MPI_TYPES_H

#include <mpi.h>

#include "core/rows.h"
#include "core/check.h"

/* A return code of MPI as a status, with MPI's text. */
mimo_status mimo_mpi_status(int code, const char *call);

#define MIMO_TRY_MPI(call) MIMO_TRY(mimo_mpi_status((call), #call))

/* `bytes` contiguous bytes as one committed type. The caller frees it. */
mimo_status mimo_mpi_bytes_type(MPI_Datatype *out, int64_t bytes);

/* The rows (i, j), in that order, as one committed type; its address is that of the tile's row
 * `first`. Its extent is `step` rows: consecutive elements of the type lie `step` rows apart. */
mimo_status mimo_mpi_rows_type(MPI_Datatype *out, const mimo_rows *rows, int64_t step);

#endif
