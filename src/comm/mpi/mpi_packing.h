/* Rows of a guarded call, one after the other without gaps, in memory of the library. */
#ifndef MIMO_COMM_MPI_PACKING_H
#define MIMO_COMM_MPI_PACKING_H

#include "core/check.h"
#include "core/rows.h"

/* Copy all of rows[count] to `packed`; copy them back from `packed`. */
mimo_status mimo_mpi_pack(char *packed, const mimo_rows *rows, int64_t count);
mimo_status mimo_mpi_unpack(const mimo_rows *rows, int64_t count, char *packed);

/* Bytes of all rows[count]. */
int64_t mimo_mpi_packed_bytes(const mimo_rows *rows, int64_t count);

#endif
