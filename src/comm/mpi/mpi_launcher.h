/* Who started this process: a launcher of MPI, or one that MPI knows nothing of. To MPI such a
 * process is a world of its own, and several of them would each work alone. */
#ifndef MIMO_COMM_MPI_LAUNCHER_H
#define MIMO_COMM_MPI_LAUNCHER_H

#include <mpi.h>

#include "core/check.h"

/* MIMO_ERR_STATE where `mpi` has one rank because a launcher started several processes and MPI
 * knows of this one alone. Local. `mpi` is valid, `call` is the name of the call. */
mimo_status mimo_mpi_check_launcher(MPI_Comm mpi, const char *call);

/* The same of MPI_COMM_WORLD, which has `world` ranks. Calls no MPI. Also MIMO_ERR_ARGUMENT: the
 * world has one rank, and MIMO_ALONE is wrong. */
mimo_status mimo_mpi_check_world(int world, const char *call);

#endif
