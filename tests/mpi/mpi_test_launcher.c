/* Who started the processes: where another launcher did, MPI knows of each process alone, and the
 * calls of <mimo/mpi.h> say so. */
#include <stdlib.h>
#include <string.h>

#include <mimo/mimo.h>

#include "mpi_test.h"

typedef struct setting {
    const char *name, *value;
} setting;

enum { MOST_SETTINGS = 4 };

static void set_all(const setting *settings, bool on)
{
    for (int i = 0; i < MOST_SETTINGS && settings[i].name; i++)
        on ? setenv(settings[i].name, settings[i].value, 1) : unsetenv(settings[i].name);
}

/* The calls of <mimo/mpi.h> with an environment: refused with these words, or taken (NULL). */
static void calls(const setting *settings, MPI_Comm mpi, const char *words)
{
    mimo_status expected = words ? MIMO_ERR_STATE : MIMO_OK;
    mimo_comm *made = NULL, *borrowed = NULL;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    bootstrap.rank = -7;
    set_all(settings, true);
    MPI_EXPECT_STATUS(mimo_comm_create_mpi(&made, mpi, NULL), expected);
    if (words) {
        MPI_EXPECT_SENTENCE("mimo_comm_create_mpi: ");
        MPI_EXPECT_SENTENCE(words);
    }
    MPI_EXPECT_STATUS(mimo_comm_borrow_mpi(&borrowed, mpi, NULL), expected);
    MPI_EXPECT_STATUS(mimo_bootstrap_from_mpi(&bootstrap, &mpi), expected);
    MPI_EXPECT((made == NULL) == (words != NULL), "outputs of a refused call");
    MPI_EXPECT((borrowed == NULL) == (words != NULL), "outputs of a refused call");
    MPI_EXPECT((bootstrap.rank == -7) == (words != NULL), "outputs of a refused call");
    mimo_comm_destroy(borrowed);
    mimo_comm_destroy(made);
    set_all(settings, false);
}

static const setting torchrun[MOST_SETTINGS] = {
    {"WORLD_SIZE", "4"}, {"RANK", "2"}, {"TORCHELASTIC_RUN_ID", "none"}};
static const setting env_method[MOST_SETTINGS] = {{"WORLD_SIZE", "16"}, {"RANK", "0"}};
static const setting srun[MOST_SETTINGS] = {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}};

/* One process, as each is under torchrun or srun. tests/unit/test_launcher.c has all launchers. */
MPI_TEST(launcher, is_not_mpirun)
{
    const setting alone[MOST_SETTINGS] = {{"SLURM_STEP_NUM_TASKS", "8"}, {"MIMO_ALONE", "1"}};
    const setting wrong[MOST_SETTINGS] = {{"OMPI_COMM_WORLD_SIZE", "8"}};
    const setting none[MOST_SETTINGS] = {{NULL, NULL}};
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    calls(none, MPI_COMM_WORLD, NULL);
    calls(torchrun, MPI_COMM_WORLD, "started 4 processes (WORLD_SIZE=4), and MPI knows of 1");
    calls(env_method, MPI_COMM_WORLD, "started 16 processes");
    calls(torchrun, copy, "started 4 processes");
    calls(torchrun, MPI_COMM_SELF, NULL); /* one rank is what the caller asks for */
    calls(srun, MPI_COMM_WORLD, NULL);    /* mpirun -n 1, in a task of srun */
    calls(wrong, MPI_COMM_WORLD, "mpirun of Open MPI started 8 processes");
    unsetenv("OMPI_COMM_WORLD_SIZE"); /* no mpirun from here on */
    calls(srun, MPI_COMM_WORLD, "srun started 8 processes (SLURM_STEP_NUM_TASKS=8)");
    calls(srun, MPI_COMM_SELF, NULL);
    calls(alone, MPI_COMM_WORLD, NULL);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    MPI_Comm_free(&copy);
}

/* mpirun started these ranks, whatever the environment says. */
MPI_TEST(launcher, is_mpirun)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, mpi_test_rank(), 0, &part);
    calls(torchrun, MPI_COMM_WORLD, NULL);
    calls(torchrun, MPI_COMM_SELF, NULL);
    calls(srun, part, NULL);
    MPI_Comm_free(&part);
}

/* Tests of a launch run in its processes: what one sets, the next one does not see. */
MPI_TEST(launcher, variables_are_changed)
{
    int64_t deadline = 0;
    setenv("MIMO_AGREE", "0", 1);
    setenv("MIMO_DEADLINE_MS", "77", 1);
    MPI_EXPECT_OK(mimo_env_get(&deadline, MIMO_ENV_DEADLINE));
    MPI_EXPECT(deadline == 77, "the deadline is %d", (int)deadline);
}

MPI_TEST(launcher, variables_are_as_before)
{
    int64_t agree = 0, deadline = -1;
    MPI_EXPECT_OK(mimo_env_get(&agree, MIMO_ENV_AGREE));
    MPI_EXPECT_OK(mimo_env_get(&deadline, MIMO_ENV_DEADLINE));
    MPI_EXPECT(agree == 1, "MIMO_AGREE is %d", (int)agree);
    MPI_EXPECT(deadline == 0, "the deadline is %d", (int)deadline);
}
