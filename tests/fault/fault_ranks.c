/*
 * Four ranks of which one dies, for test_dead_ranks.py:
 *
 *   fault_ranks CALL MOMENT END EXECUTOR
 *
 * CALL is one of fault_calls. Rank 2 ends by END ("kill": SIGKILL, "exit") at the MOMENT "before"
 * the call, or amid its "data", when the ranks have agreed. In a creation of shared memory it ends
 * when it has made the "name", or when it has taken the "memory"; in a "split" when all ranks are
 * known to have come. With END "sleep" it does nothing for longer than the others wait, and then
 * goes on. The others print the status and the time of each call, and release everything. Then they
 * go on by themselves on a new communicator, say so, and leave without MPI_Finalize, which could
 * wait for the dead rank. With END "cut" no rank ends: rank 2 cuts its host's link (on_hosts.sh),
 * and goes on. No new communicator is made, for its ranks could not reach each other.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "comm/termination.h"
#include "core/check.h"
#include "dead_rank.h"
#include "fault_bed.h"

enum { VICTIM = 2, DEADLINE = 1000 };

static const char *moment; /* of the end of this rank; NULL: it lives */
static const char *end_by; /* how it ends then */

/* The link to the ranks of other hosts. Nothing tells the two ends that it is cut. */
static void cut_link(void)
{
    struct ifreq link = {.ifr_name = "data"};
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    if (ioctl(any, SIOCGIFFLAGS, &link) != 0)
        _exit(1);
    link.ifr_flags = (short)(link.ifr_flags & ~IFF_UP);
    if (ioctl(any, SIOCSIFFLAGS, &link) != 0)
        _exit(1);
    (void)close(any);
}

static void end_here(const char *how)
{
    if (strcmp(how, "sleep") == 0)
        sleep(3 * DEADLINE / 1000);
    else if (strcmp(how, "cut") == 0)
        cut_link();
    else
        dead_rank_end(how);
}

static void come_to(const char *here)
{
    if (moment && strcmp(moment, here) == 0)
        end_here(end_by);
}

/* MPI's profiling interface: the calls by which a backend begins to move tensors. */
int MPI_Startall(int count, MPI_Request *requests)
{
    come_to("data");
    return PMPI_Startall(count, requests);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    come_to("data");
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* The calls that make a communicator of a group. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    come_to("split");
    return PMPI_Comm_split(comm, color, key, out);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request)
{
    come_to("split");
    return PMPI_Comm_idup(comm, out, request);
}

/* The calls by which shared memory is named and taken. */
int shm_open(const char *name, int flags, mode_t mode)
{
    int (*next)(const char *, int, mode_t);
    *(void **)&next = dlsym(RTLD_NEXT, "shm_open");
    int file = next(name, flags, mode);
    if (flags & O_CREAT)
        come_to("name");
    return file;
}

int posix_fallocate(int file, off_t offset, off_t bytes)
{
    int error = fallocate(file, 0, offset, bytes);
    come_to("memory");
    return error == 0 ? 0 : errno;
}

/* The names of shared memory objects contain it. */
static void say_process(int rank)
{
    char line[64];
    int length = snprintf(line, sizeof line, "rank %d process %ld\n", rank, (long)getpid());
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

static mimo_status timed(fault_bed *bed, const char *what, fault_act act)
{
    int64_t begin = mimo_now();
    mimo_status status = act(bed);
    dead_rank_say(bed->rank, what, status, begin);
    return status;
}

static mimo_status barrier_of(fault_bed *bed)
{
    return mimo_comm_barrier(bed->comm);
}

/* The three ranks that are left go on. */
static mimo_status go_on(fault_bed *bed)
{
    int sum = bed->rank;
    MPI_Comm mpi;
    mimo_comm *comm;
    MIMO_TRY(dead_rank_leave_out(&mpi, VICTIM));
    MIMO_TRY(mimo_comm_create_mpi(&comm, mpi, NULL));
    mimo_status status = mimo_comm_allreduce(comm, &sum, 1, MIMO_I32, MIMO_SUM, NULL);
    mimo_comm_destroy(comm);
    return status == MIMO_OK && sum != 4 ? mimo_fail(MIMO_ERR_INTERNAL, "%d", sum) : status;
}

static int live(const char *const *arguments, int rank)
{
    fault_bed bed;
    mimo_comm *comm;
    const fault_call *call = fault_find_call(arguments[0]);
    bool collective = strcmp(arguments[3], "collective") == 0;
    if (!call || mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL) != MIMO_OK ||
        fault_bed_begin(&bed, comm, collective ? EXECUTOR_COLLECTIVE : EXECUTOR_ROUTED) !=
            MIMO_OK ||
        fault_bed_create(&bed, FAULT_ALL) != MIMO_OK ||
        mimo_comm_set_deadline(comm, DEADLINE) != MIMO_OK)
        return 1;
    MPI_Barrier(MPI_COMM_WORLD);
    say_process(bed.rank);
    if (bed.rank == VICTIM) {
        moment = arguments[1];
        end_by = arguments[2];
    }
    come_to("before");
    (void)timed(&bed, "call", call->act);
    (void)timed(&bed, "next", barrier_of);
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
    bed.rank = rank;
    if (rank != VICTIM && strcmp(arguments[2], "cut") != 0)
        (void)timed(&bed, "new", go_on);
    return 0;
}

int main(int argc, char **argv)
{
    int rank;
    if (argc != 5)
        return 2;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int result = live((const char *const *)argv + 1, rank);
    _exit(result);
}
