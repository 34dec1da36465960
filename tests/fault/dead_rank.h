/* What the programs of test_dead_ranks.py have in common: how a rank ends, what the others print of
 * it, and how they go on. */
#ifndef MIMO_TESTS_DEAD_RANK_H
#define MIMO_TESTS_DEAD_RANK_H

#include <mimo/status.h>
#include <mpi.h>
#include <stdint.h>

/* End this process at once: "kill" (SIGKILL) or "exit". */
void dead_rank_end(const char *how);

/* One line, in one piece: what a call gave, and the time since `begin` of mimo_now(). */
void dead_rank_say(int rank, const char *what, mimo_status status, int64_t begin);

/* The ranks of MPI_COMM_WORLD without the dead one, which take part. */
mimo_status dead_rank_leave_out(MPI_Comm *out, int dead);

#endif
