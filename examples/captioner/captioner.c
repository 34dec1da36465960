/*
 * captioner: a vision transformer and a causal LLM, on the same ranks under different grids, learn
 * to name emoji together. Start with training_run.c for the order of things, bridged_model.c for
 * how activations and gradients cross the bridge, train_step.c for the gradient rules, and
 * survival.c for a run that goes on where ranks die.
 *
 *   mpirun -n 8 captioner --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mimo/log.h>
#include <mimo/mpi.h>

#include "train/device/blas_kernels.h"
#include "train/support/train_support.h"
#include "train/support/visible_text.h"
#include "captioner/survival/survival.h"
#include "captioner/training/caption_data.h"
#include "captioner/training/options.h"
#include "captioner/training/options_compare.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static mimo_status act(const struct options *options, survival *run)
{
    if (options->asked != OPTION_ASKED_NOTHING)
        return mimo_comm_rank(run->world) == 0
                   ? option_answer(stdout, options_table(), options->asked)
                   : MIMO_OK;
    return options->prepare ? caption_data_prepare(run->world, options)
                            : survival_run(run, options);
}

/* After a deadline, where the transport fails, and where ranks have parted in any other way. */
static bool lost_a_rank(mimo_status status, const survival *run)
{
    bool parted = run->world && mimo_comm_state(run->world) != MIMO_OK;
    return status == MIMO_ERR_TIMEOUT || status == MIMO_ERR_COMM || (status != MIMO_OK && parted);
}

/* Every rank fails together, with one status; one of them says why. Where a rank is missing, which
 * may be that one, each says what it knows. Nobody aborts: mpirun would drown the sentence in its
 * own. */
static int report(mimo_status status, const survival *run)
{
    if (status == MIMO_OK)
        return 0;
    char shown[VISIBLE_SENTENCE];
    visible_text(shown, sizeof shown, mimo_last_error()); /* mimo_comm_state has another one */
    if (run->lead || lost_a_rank(status, run))
        fprintf(stderr, "captioner: %s\n", shown);
    return status == MIMO_ERR_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* Which ranks a wait is for. The rank that knows need not be the lead: the lead may be the one that
 * is missing, or no part of the communicator. */
static bool names_silent_ranks(const char *text)
{
    return strstr(text, " has waited ") && strstr(text, "; no sign of ");
}

/* What the library says while it works: the lead prints all of it. */
static void print_warning(void *context, mimo_log_level level, const char *text)
{
    const survival *run = context;
    char shown[VISIBLE_SENTENCE];
    if (level == MIMO_LOG_WARNING && (run->lead || names_silent_ranks(text)))
        fprintf(stderr, "captioner: warning: %s\n", visible_text(shown, sizeof shown, text));
}

int main(int argc, char **argv)
{
    survival run = {0};
    struct options options;
    blas_kernels_choose(argv);
    signal(SIGXFSZ, SIG_IGN); /* a file past its size limit is an error of its write */
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return EXIT_FAILED;
    mimo_status status = mimo_comm_create_mpi(&run.world, MPI_COMM_WORLD, NULL);
    run.lead = !run.world || mimo_comm_rank(run.world) == 0;
    mimo_log_set(print_warning, &run);
    if (status == MIMO_OK)
        status = mimo_comm_agree(run.world, options_parse(&options, argc, argv));
    if (status == MIMO_OK)
        status = options_compare(&options, run.world);
    if (status == MIMO_OK)
        status = act(&options, &run);
    int code = report(status, &run);
    bool left = run.lost || lost_a_rank(status, &run);
    mimo_comm_destroy(run.world);
    if (left) { /* MPI_Finalize would wait for it ("Deadlines" in <mimo/comm.h>) */
        fflush(NULL);
        _exit(code);
    }
    MPI_Finalize();
    return code;
}
