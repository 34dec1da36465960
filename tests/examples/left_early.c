/* Ranks that have ended before the others' last meeting: those whose digit is in LEFT_EARLY pass a
 * barrier alone. A captioner that is linked with it has one barrier of its own: its farewell. */
#include <stdlib.h>
#include <string.h>

#include <mimo/comm.h>

mimo_status __real_mimo_comm_barrier(mimo_comm *comm);
mimo_status __wrap_mimo_comm_barrier(mimo_comm *comm);

mimo_status __wrap_mimo_comm_barrier(mimo_comm *comm)
{
    const char *early = getenv("LEFT_EARLY"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    return early && rank && strchr(early, *rank) ? MIMO_OK : __real_mimo_comm_barrier(comm);
}
