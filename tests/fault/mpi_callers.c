#include "mpi_callers.h"

#include <mpi.h>
#include <stdbool.h>

static _Thread_local bool forbidden;
static int wrong;

void mpi_callers_forbid(void)
{
    forbidden = true;
}

int mpi_callers_wrong(void)
{
    return __atomic_load_n(&wrong, __ATOMIC_ACQUIRE);
}

static void count(void)
{
    if (forbidden)
        __atomic_fetch_add(&wrong, 1, __ATOMIC_ACQ_REL);
}

/* One function: its name, its parameters, and its arguments. */
#define REPLACE(name, parameters, arguments) \
    int MPI_##name parameters                \
    {                                        \
        count();                             \
        return PMPI_##name arguments;        \
    }

REPLACE(Isend,
        (const void *data, int count_, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count_, type, to, tag, comm, request))
REPLACE(Iallreduce,
        (const void *from, void *to, int count_, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        (from, to, count_, type, op, comm, request))
REPLACE(Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))
REPLACE(Testall, (int count_, MPI_Request requests[], int *flag, MPI_Status statuses[]),
        (count_, requests, flag, statuses))
REPLACE(Improbe,
        (int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
        (from, tag, comm, flag, message, status))
REPLACE(Cancel, (MPI_Request * request), (request))
REPLACE(Startall, (int count_, MPI_Request requests[]), (count_, requests))
REPLACE(Request_free, (MPI_Request * request), (request))
REPLACE(Type_free, (MPI_Datatype * type), (type))
REPLACE(Op_free, (MPI_Op * op), (op))
REPLACE(Comm_free, (MPI_Comm * comm), (comm))
REPLACE(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *out), (comm, color, key, out))
REPLACE(Comm_idup, (MPI_Comm comm, MPI_Comm *out, MPI_Request *request), (comm, out, request))
