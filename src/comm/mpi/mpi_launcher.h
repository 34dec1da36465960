/* Who started this process: mpirun, or a launcher that MPI knows nothing of. */
#ifndef MIMO_COMM_MPI_LAUNCHER_H
#define MIMO_COMM_MPI_LAUNCHER_H

#include <mpi.h>

#include "core/check.h"

/* MIMO_ERR_STATE where `mpi` has one rank because torchrun, or a launcher with its environment,
 * started several processes and MPI knows of this one alone. Local. `mpi` is valid, `call` is the
 * name of the call. */
mimo_status mimo_mpi_check_launcher(MPI_Comm mpi, const char *call);

#endif
