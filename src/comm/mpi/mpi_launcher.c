#include "comm/mpi/mpi_launcher.h"

#include <inttypes.h>
#include <stdlib.h>

#include <mimo/env.h>

#include "comm/mpi/mpi_types.h"

/* Who sets a variable, and so what its number means. */
typedef enum origin {
    LAUNCH,     /* a launcher: that number of processes works together */
    MPI_LAUNCH, /* a launcher of MPI, likewise. 1: one process was wanted, inside a larger launch */
    ALLOCATION, /* a scheduler, for a whole job: a lone program of the job has the variable too */
} origin;

typedef struct variable {
    const char *name;
    origin origin;
    const char *by;
    const char *beside; /* It counts where this one is set as well. NULL: it always counts. */
} variable;

/* The launcher that is usually the innermost comes first: srun starts torchrun, which starts the
 * processes. PMIx has no variable with their number, so each launcher of PMIx is here with its own.
 * Scripts export WORLD_SIZE for all that they start. RANK is set by launchers alone. */
static const variable variables[] = {
    {"WORLD_SIZE", LAUNCH, "torchrun", "RANK"},
    {"OMPI_COMM_WORLD_SIZE", MPI_LAUNCH, "mpirun of Open MPI", NULL},
    {"MV2_COMM_WORLD_SIZE", MPI_LAUNCH, "mpirun_rsh of MVAPICH2", NULL},
    {"PMI_SIZE", MPI_LAUNCH, "a launcher with PMI", NULL},
    {"PALS_LOCAL_SIZE", LAUNCH, "mpiexec of PALS", NULL}, /* those on this host */
    {"FLUX_JOB_SIZE", LAUNCH, "flux run", NULL},
    {"JSM_NAMESPACE_SIZE", LAUNCH, "jsrun", NULL},
    {"SLURM_STEP_NUM_TASKS", LAUNCH, "srun", NULL},
    {"SLURM_NTASKS", ALLOCATION, "sbatch", NULL},
    {"SLURM_NPROCS", ALLOCATION, "sbatch", NULL},
    {"OMPI_UNIVERSE_SIZE", ALLOCATION, "mpirun of Open MPI", NULL},
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

/* The number of processes that a variable speaks of; 0: it says nothing. */
static long count_of(const variable *it)
{
    const char *text = getenv(it->name);
    char *end;
    if (!text || it->origin == ALLOCATION || (it->beside && !getenv(it->beside)))
        return 0;
    long count = strtol(text, &end, 10);
    return end == text || *end ? 0 : count;
}

/* The variable of a launch with more processes than this one; NULL: there is none. */
static const variable *find_launch(void)
{
    for (const variable *it = variables; it < variables + VARIABLES; it++) {
        long count = count_of(it);
        if (count > 1)
            return it;
        if (count == 1 && it->origin == MPI_LAUNCH)
            return NULL;
    }
    return NULL;
}

static mimo_status is_meant_alone(bool *out)
{
    int64_t alone;
    MIMO_TRY(mimo_env_get(&alone, MIMO_ENV_ALONE));
    MIMO_CHECK(alone == 0 || alone == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_ALONE=%" PRId64 " is neither 0 nor 1", alone);
    *out = alone;
    return MIMO_OK;
}

mimo_status mimo_mpi_check_world(int world, const char *call)
{
    bool alone;
    if (world > 1)
        return MIMO_OK;
    MIMO_TRY(is_meant_alone(&alone));
    const variable *launch = alone ? NULL : find_launch();
    MIMO_CHECK(!launch, MIMO_ERR_STATE,
               "%s: %s started %ld processes (%s=%ld), and MPI knows of 1: start them with the "
               "launcher of this MPI (mpirun -n %ld), or set MIMO_ALONE=1 where each of them works "
               "alone. CUDA memory needs no MPI: <mimo/nccl.h> takes a bootstrap of your own",
               call, launch->by, count_of(launch), launch->name, count_of(launch),
               count_of(launch));
    return MIMO_OK;
}

/* Who passes MPI_COMM_SELF wants one rank. MPI_Comm_spawn adds ranks to a world of one. */
mimo_status mimo_mpi_check_launcher(MPI_Comm mpi, const char *call)
{
    int size, world, same;
    MIMO_TRY_MPI(MPI_Comm_size(mpi, &size));
    MIMO_TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &world));
    MIMO_TRY_MPI(MPI_Comm_compare(mpi, MPI_COMM_SELF, &same));
    return size > 1 || same == MPI_IDENT ? MIMO_OK : mimo_mpi_check_world(world, call);
}
