/* What the programs of test_dead_ranks.py share: how a rank ends, what the others print, and how
 * they go on. */
#ifndef MIMO_TESTS_DEAD_RANK_H
#define MIMO_TESTS_DEAD_RANK_H

#include <mimo/status.h>
#include <mpi.h>
#include <stdint.h>

/* End this process at once: "kill" (SIGKILL) or "exit". */
void dead_rank_end(const char *how);

/* Print one line at once: the status of a call, and the time since `begin` of mimo_now(). */
void dead_rank_say(int rank, const char *what, mimo_status status, int64_t begin);

/* The ranks of MPI_COMM_WORLD without the dead one; all of these take part. */
mimo_status dead_rank_leave_out(MPI_Comm *out, int dead);

#endif
