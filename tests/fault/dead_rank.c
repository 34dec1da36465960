#include "dead_rank.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/termination.h"
#include "core/check.h"

enum { MILLISECOND = 1000000 };

void dead_rank_end(const char *how)
{
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    _exit(0);
}

void dead_rank_say(int rank, const char *what, mimo_status status, int64_t begin)
{
    char line[2048];
    int length = snprintf(line, sizeof line, "rank %d %s %s %" PRId64 " ms: %s\n", rank, what,
                          mimo_status_name(status), (mimo_now() - begin) / MILLISECOND,
                          status == MIMO_OK ? "" : mimo_last_error());
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

mimo_status dead_rank_leave_out(MPI_Comm *out, int dead)
{
    MPI_Group world, left;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_excl(world, 1, &dead, &left);
    MIMO_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, left, 1, out) == MPI_SUCCESS, MIMO_ERR_COMM,
               "no communicator of the ranks that are left");
    return MIMO_OK;
}
