/*
 * A run that outlives its ranks. Where one dies, the others notice it by the deadline of their
 * communicator. They agree on who is left, and begin another generation of the run in the same
 * processes: on the grids of --survive, from the newest state that is left. What is younger is
 * computed again.
 *
 * A rank that was only stopped, and wakes when the others have gone on, finds its family ended and
 * itself outside. Before the next generation reads anything, its rank 0 removes the unfinished
 * files of those that led earlier ones, and puts another file in the place of the log. So what such
 * a rank had begun to write goes nowhere. If it was stopped behind the last step, it may yet begin
 * pictures under --out: the rank that renames last has the picture that stays.
 *
 * Ranks meet once more when all is written. So nobody ends while another one may have to go on, and
 * who misses a rank in that meeting has nothing left to do.
 */
#ifndef CAPTIONER_SURVIVAL_H
#define CAPTIONER_SURVIVAL_H

#include <mimo/comm.h>

#include "captioner/training/options.h"

typedef struct survival {
    mimo_comm *world; /* of all ranks; of those that are left where some were lost */
    bool lead;        /* this is its rank 0 */
    bool lost;        /* ranks were lost, or may be without the launcher's notice: MPI_Finalize
                         would wait for them */
} survival;

/** training_run, over the generations that it takes. Collective over run->world, which is replaced
 *  where ranks are lost; the caller destroys the last one. Errors beside those of training_run:
 *  MIMO_ERR_ARGUMENT (--survive without a deadline; its text), MIMO_ERR_NOT_FOUND (no grids for
 *  those that are left), MIMO_ERR_ABORTED (this rank is not among them), MIMO_ERR_STATE (too few
 *  are left; the deadline is too short). */
mimo_status survival_run(survival *run, const struct options *options);

#endif
