/*
 * Ranks of which one dies, and another one while the others recover, for test_survivors.py:
 *
 *   survivor_ranks LEAST SECOND HOW MOMENT
 *
 * Rank 2 kills itself, and all others wait for it until their deadline. Rank SECOND (-1: none) ends
 * by HOW ("kill": SIGKILL, "stop": SIGSTOP) at the MOMENT of the recovery: "call", before it calls,
 * or "KIND:N", before its N-th message of that kind (1: HERE, 2: PROPOSE, 3: ACCEPT, 4: COMMIT,
 * 5: READY), or "settle", when the new communicator exists. The others try until they go on, and
 * recover again what has ended meanwhile. Each prints the status of each attempt, and at its end
 * where it is. The lowest rank that goes on wakes the one that is stopped.
 */
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mimo/mpi.h>
#include <mimo/survivors.h>

#include "comm/survivors_rule.h"
#include "comm/termination.h"
#include "core/check.h"
#include "dead_rank.h"

enum { VICTIM = 2, DEADLINE = 300, LIMIT = 2000, MOST = 16, SURVIVOR_TAG = 80 };

static const char *moment, *how; /* of the end of this rank; NULL: it lives */

static void end_here(void)
{
    moment = NULL;
    raise(strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
}

static void come_to(const char *here)
{
    if (moment && strcmp(moment, here) == 0)
        end_here();
}

/* MPI's profiling interface: where messages begin. */
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int sent[MIMO_SURVIVORS_READY + 1];
    const mimo_survivors_message *message = data;
    char here[32];
    if (tag == SURVIVOR_TAG) {
        snprintf(here, sizeof here, "%d:%d", (int)message->kind, ++sent[message->kind]);
        come_to(here);
    }
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Iallgather(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                   MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
    come_to("settle");
    return PMPI_Iallgather(from, count, type, to, to_count, to_type, comm, request);
}

/* Attempts until the call gives something else than MIMO_ERR_TIMEOUT. */
static mimo_status recover(mimo_comm **comm, int rank, int least, int *ranks)
{
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    mimo_comm *made;
    mimo_status status;
    desc.least = least;
    desc.timeout_ms = LIMIT;
    desc.ranks = ranks;
    int attempts = 0;
    do {
        int64_t begin = mimo_now();
        status = mimo_comm_survivors(&made, *comm, &desc);
        dead_rank_say(rank, "attempt", status, begin);
    } while (status == MIMO_ERR_TIMEOUT && ++attempts < 4);
    MIMO_TRY(status);
    mimo_comm_destroy(*comm);
    *comm = made;
    return MIMO_OK;
}

/* What the ranks that go on are in the world. */
static mimo_status say_place(mimo_comm *comm, int rank)
{
    int all[MOST];
    char text[256];
    MIMO_TRY(mimo_comm_host_allgather(comm, all, &rank, sizeof rank));
    int used = snprintf(text, sizeof text, "rank %d on with", rank);
    for (int i = 0; i < mimo_comm_size(comm); i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %d", all[i]);
    used += snprintf(text + used, sizeof text - (size_t)used, " generation %" PRId64 "\n",
                     mimo_comm_generation(comm));
    return write(STDOUT_FILENO, text, (size_t)used) == used ? MIMO_OK : MIMO_ERR_IO;
}

static mimo_status go_on(mimo_comm **comm, int rank, int least)
{
    int ranks[MOST];
    mimo_status status;
    do {
        MIMO_TRY(recover(comm, rank, least, ranks));
        status = mimo_comm_set_deadline(*comm, DEADLINE);
        if (status == MIMO_OK)
            status = say_place(*comm, rank);
    } while (status == MIMO_ERR_TIMEOUT);
    return status;
}

/* The one that is stopped wakes, and finds the others there while it learns that it is out. */
static void wake(int process, bool first)
{
    int64_t begin = mimo_now();
    if (first)
        (void)kill(process, SIGCONT);
    while (kill(process, 0) == 0 && mimo_now() - begin < INT64_C(1000000) * LIMIT)
        usleep(1000);
}

static int live(char *const *arguments, int rank, int size, const int *processes)
{
    mimo_comm *comm;
    int least = atoi(arguments[0]), second = atoi(arguments[1]);
    if (mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL) != MIMO_OK ||
        mimo_comm_set_deadline(comm, DEADLINE) != MIMO_OK)
        return 1;
    if (rank == VICTIM)
        raise(SIGKILL);
    if (mimo_comm_barrier(comm) != MIMO_ERR_TIMEOUT)
        return 1;
    if (rank == second) {
        how = arguments[2];
        moment = arguments[3];
    }
    come_to("call");
    mimo_status status = go_on(&comm, rank, least);
    if (status == MIMO_OK && second >= 0 && second < size)
        wake(processes[second], mimo_comm_rank(comm) == 0);
    mimo_comm_destroy(comm);
    return status == MIMO_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    int rank, size, processes[MOST], own = (int)getpid();
    if (argc != 5)
        return 2;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > MOST)
        return 2;
    MPI_Allgather(&own, 1, MPI_INT, processes, 1, MPI_INT, MPI_COMM_WORLD);
    int result = live(argv + 1, rank, size, processes);
    _exit(result);
}
