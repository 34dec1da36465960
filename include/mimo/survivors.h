/*
 * Going on without the ranks that are gone: after a communicator's family has ended
 * (MIMO_ERR_TIMEOUT, MIMO_ERR_COMM, MIMO_ERR_ABORTED), those that are left agree who they are, and
 * get a communicator.
 *
 *     mimo_status status = step(comm);              a call gave MIMO_ERR_TIMEOUT: a rank has died
 *     destroy_bridges_and_grids();                  what was made from comm, not comm itself
 *     do
 *         status = mimo_comm_survivors(&left, comm, NULL);
 *     while (status == MIMO_ERR_TIMEOUT);           another one died meanwhile
 *     mimo_comm_destroy(comm);
 *     comm = left;                                  make grids and bridges anew, load, go on
 *
 * After MIMO_ERR_COMM a family on MPI lives on: mimo_comm_abort ends it, on all ranks.
 *
 * The processes stay. Nothing of the ended family is used again, and its objects are destroyed as
 * after any end.
 */
#ifndef MIMO_SURVIVORS_H
#define MIMO_SURVIVORS_H

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

typedef struct mimo_survivors_desc {
    size_t size;    /* set by the initializer */
    int least;      /* how many ranks have to be left; 0: more than half. Where ranks give different
                       numbers the largest counts */
    int timeout_ms; /* of an attempt, milliseconds; 0: twice the deadline, at least 10 seconds.
                       Half of it is for ranks that come late. Best the same on every rank */
    const mimo_comm_desc *common;    /* of the new family; NULL: as the ended one's */
    const mimo_bootstrap *bootstrap; /* NCCL: of the ranks that are left. Not read on MPI */
    int *ranks; /* ranks[size of `ended`], or NULL. On success rank i of the new communicator
                   was rank ranks[i] of the ended one; the rest is not written */
} mimo_survivors_desc;

#define MIMO_SURVIVORS_DESC_INIT                            \
    {                                                       \
        sizeof(mimo_survivors_desc), 0, 0, NULL, NULL, NULL \
    }

MIMO_API void mimo_survivors_desc_init(mimo_survivors_desc *out, size_t size);

/**
 * Make a communicator of the ranks of `ended` that are left. They have the order that they had.
 * `ended` is any communicator of a family that has ended on this rank; `desc` may be NULL.
 * Collective over the ranks that are left, and it waits for those that come late: up to half of
 * timeout_ms, unless this host sees that they are gone. All calls end within four times timeout_ms.
 * The new communicator has a family of its own, on which the deadline and all else is as it was.
 *
 * One decision is taken. A rank takes part in one at a time, and more than half have to. So two
 * groups of ranks that can't hear each other never both go on, except where `least` allows that. A
 * rank that is not among them (it was stopped, or came late) gets MIMO_ERR_ABORTED with their list
 * when it calls this: it can only end.
 *
 * A rank that dies meanwhile: the attempt ends with MIMO_ERR_TIMEOUT on all others, and the next
 * one does without it. Where it dies after the decision, this call succeeds, and the first call on
 * the new communicator fails as its family has ended: then call this with that communicator.
 *
 * On MPI the ranks agree by messages on the ended communicator, and MPI_Comm_create_group makes the
 * new one. That waits inside MPI, as MPI_Comm_split does ("Deadlines" in <mimo/comm.h>): where a
 * rank is killed (or stopped) between its last message and the end of MPI_Comm_create_group (some
 * 0.3 ms with 8 ranks of a host, longer where others use its cores), the others stay there. Only
 * who started them can end them. mpirun ends all ranks when one dies, unless it was started with
 * --enable-recovery. A rank that has no memory for the new communicator gets MIMO_ERR_MEMORY alone,
 * and is missing there.
 *
 * On NCCL the library knows nothing of who is left: `bootstrap` is over these ranks, in their old
 * order, and its allgather has the time limit. The rest is mimo_comm_create_nccl, with the settings
 * of the ended communicator.
 *
 * Errors: MIMO_ERR_TIMEOUT (who gave no sign or is gone: try again), MIMO_ERR_STATE (the family
 * lives, or was forgotten; fewer than `least` are left, and all others are gone), MIMO_ERR_ABORTED
 * (the others went on without this rank; `interrupted` ended the wait), MIMO_ERR_ARGUMENT (this
 * rank alone; least outside [0, ranks], timeout_ms outside [0, MIMO_DEADLINE_MOST], no bootstrap on
 * NCCL), MIMO_ERR_MISMATCH (NCCL: the bootstrap has another order),
 * MIMO_ERR_COMM.
 */
MIMO_API mimo_status mimo_comm_survivors(mimo_comm **out, mimo_comm *ended,
                                         const mimo_survivors_desc *desc);

/** By which decision the communicator's family was made: 0 where it was created otherwise; after a
 *  recovery a number that is larger than all before, the same on all of its ranks. Files that a
 *  rank writes under a name with it do not meet those of a rank that was left out. Local. */
MIMO_API int64_t mimo_comm_generation(const mimo_comm *comm);

#endif

MIMO_END_DECLS

#endif
