#include "comm/mpi/mpi_launcher.h"

#include <stdbool.h>
#include <stdlib.h>

#include "comm/mpi/mpi_types.h"

/* The number of processes that the environment of torch.distributed names; 1: none. */
static long launched(void)
{
    const char *size = getenv("WORLD_SIZE");
    bool torch = getenv("TORCHELASTIC_RUN_ID") || (getenv("RANK") && getenv("MASTER_ADDR"));
    char *end;
    if (!size || !torch)
        return 1;
    long count = strtol(size, &end, 10);
    return end == size || *end ? 1 : count;
}

/* MPI starts a process that mpirun did not start as a world of its own. Who passes MPI_COMM_SELF
 * wants one rank. */
mimo_status mimo_mpi_check_launcher(MPI_Comm mpi, const char *call)
{
    int size, world, same;
    long count = launched();
    MIMO_TRY_MPI(MPI_Comm_size(mpi, &size));
    MIMO_TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &world));
    MIMO_TRY_MPI(MPI_Comm_compare(mpi, MPI_COMM_SELF, &same));
    MIMO_CHECK(count <= 1 || size > 1 || world > 1 || same == MPI_IDENT, MIMO_ERR_STATE,
               "%s: the launcher started %ld processes (WORLD_SIZE=%ld), and MPI knows of 1: start "
               "them with mpirun -n %ld, or use CUDA memory and <mimo/nccl.h> with a bootstrap of "
               "your own",
               call, count, count, count);
    return MIMO_OK;
}
