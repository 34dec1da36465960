/* What the environment says of a launch, and how many ranks MPI knows of: who is refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi_launcher.h"
#include "expect_failure.h"

enum { MOST_VARIABLES = 3 };

typedef struct launch {
    const char *set[MOST_VARIABLES]; /* "NAME=value" */
    int world;                       /* ranks that MPI knows of */
    const char *words;               /* of the refusal; NULL: it is taken */
} launch;

static const launch launches[] = {
    {{NULL}, 1, NULL},
    /* Each launcher, and MPI knows nothing of it. */
    {{"OMPI_COMM_WORLD_SIZE=8"}, 1, "mpirun of Open MPI started 8 processes"},
    {{"MV2_COMM_WORLD_SIZE=8"}, 1, "(MV2_COMM_WORLD_SIZE=8), and MPI knows of 1: start them"},
    {{"PMI_SIZE=2"}, 1, "(PMI_SIZE=2), and MPI knows of 1: start them"},
    {{"PALS_LOCAL_SIZE=12"}, 1, "(PALS_LOCAL_SIZE=12)"},
    {{"FLUX_JOB_SIZE=8"}, 1, "flux run started 8 processes (FLUX_JOB_SIZE=8)"},
    {{"JSM_NAMESPACE_SIZE=6"}, 1, "jsrun started 6 processes (JSM_NAMESPACE_SIZE=6)"},
    {{"SLURM_STEP_NUM_TASKS=4"}, 1, "srun started 4 processes (SLURM_STEP_NUM_TASKS=4)"},
    {{"WORLD_SIZE=4", "RANK=0"}, 1, "torchrun started 4 processes (WORLD_SIZE=4)"},
    {{"SLURM_STEP_NUM_TASKS=4"}, 1, "(mpirun -n 4), or set MIMO_ALONE=1"},
    /* MPI knows of them. */
    {{"OMPI_COMM_WORLD_SIZE=8"}, 8, NULL},
    {{"SLURM_STEP_NUM_TASKS=4", "WORLD_SIZE=4", "RANK=0"}, 4, NULL},
    {{"SLURM_STEP_NUM_TASKS=4"}, 2, NULL},
    /* One process was launched. */
    {{"OMPI_COMM_WORLD_SIZE=1"}, 1, NULL},
    {{"PMI_SIZE=1"}, 1, NULL},
    {{"SLURM_STEP_NUM_TASKS=1"}, 1, NULL},
    {{"WORLD_SIZE=1", "RANK=0"}, 1, NULL},
    /* Launches inside of launches: a launcher of MPI that started one wanted one. */
    {{"SLURM_STEP_NUM_TASKS=8", "OMPI_COMM_WORLD_SIZE=1"}, 1, NULL},
    {{"SLURM_STEP_NUM_TASKS=8", "PMI_SIZE=1"}, 1, NULL},
    {{"JSM_NAMESPACE_SIZE=8", "MV2_COMM_WORLD_SIZE=1"}, 1, NULL},
    {{"PMI_SIZE=1", "OMPI_COMM_WORLD_SIZE=8"}, 1, "(OMPI_COMM_WORLD_SIZE=8)"},
    {{"WORLD_SIZE=4", "RANK=2", "PMI_SIZE=1"}, 1, "(WORLD_SIZE=4)"}, /* srun -n 1 torchrun */
    {{"SLURM_STEP_NUM_TASKS=2", "WORLD_SIZE=8", "RANK=0"}, 1, "(WORLD_SIZE=8)"},
    {{"SLURM_STEP_NUM_TASKS=8", "WORLD_SIZE=1", "RANK=0"}, 1, "(SLURM_STEP_NUM_TASKS=8)"},
    /* Of an allocation, or of a script: a lone program has them too. */
    {{"SLURM_NTASKS=8", "SLURM_NPROCS=8"}, 1, NULL},
    {{"OMPI_UNIVERSE_SIZE=8", "OMPI_COMM_WORLD_SIZE=1"}, 1, NULL},
    {{"WORLD_SIZE=8"}, 1, NULL},
    {{"RANK=3"}, 1, NULL},
    /* No numbers of processes. */
    {{"PMI_SIZE="}, 1, NULL},
    {{"SLURM_STEP_NUM_TASKS=4x"}, 1, NULL},
    {{"OMPI_COMM_WORLD_SIZE=-4"}, 1, NULL},
    {{"PMI_SIZE=0", "SLURM_STEP_NUM_TASKS=4"}, 1, "(SLURM_STEP_NUM_TASKS=4)"},
    /* Who means it says so. */
    {{"SLURM_STEP_NUM_TASKS=4", "MIMO_ALONE=1"}, 1, NULL},
    {{"SLURM_STEP_NUM_TASKS=4", "MIMO_ALONE=0"}, 1, "(SLURM_STEP_NUM_TASKS=4)"},
    {{"MIMO_ALONE=2"}, 2, NULL}, /* an error of one rank alone would leave the other one waiting */
};
enum { LAUNCHES = sizeof launches / sizeof launches[0] };

static mimo_status verdict_of(const launch *it)
{
    clearenv();
    for (int i = 0; i < MOST_VARIABLES && it->set[i]; i++)
        putenv((char *)it->set[i]);
    return mimo_mpi_check_world(it->world, "create");
}

Test(launcher, processes_that_mpi_does_not_know)
{
    for (int i = 0; i < LAUNCHES; i++) {
        const launch *it = &launches[i];
        mimo_status expected = it->words ? MIMO_ERR_STATE : MIMO_OK, status = verdict_of(it);
        cr_expect_eq(status, expected, "launch %d: %s", i, mimo_status_name(status));
        cr_expect(!it->words || strstr(mimo_last_error(), it->words), "launch %d: '%s' lacks '%s'",
                  i, mimo_last_error(), it->words);
    }
}

Test(launcher, alone_is_0_or_1)
{
    const launch two = {.set = {"MIMO_ALONE=2"}, .world = 1};
    const launch word = {.set = {"MIMO_ALONE=yes"}, .world = 1};
    FAILS(verdict_of(&two), MIMO_ERR_ARGUMENT, "environment MIMO_ALONE=2 is neither 0 nor 1");
    FAILS(verdict_of(&word), MIMO_ERR_ARGUMENT, "environment MIMO_ALONE='yes' is not a whole");
}
