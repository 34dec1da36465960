#include "comm/nccl/nccl_same_host.h"

#include <stdlib.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/places.h"
#include "core/hash.h"
#include "core/memory.h"

uint64_t mimo_nccl_host_hash(void)
{
    const char *given = getenv("NCCL_HOSTID");
    return given ? mimo_hash_bytes(MIMO_HASH_START, given, strlen(given)) : mimo_host_hash();
}

/* The first rank on this rank's host, and whether all ranks are on that host. */
static mimo_status find_host(int *first, bool *all, mimo_comm *comm)
{
    uint64_t own = mimo_nccl_host_hash(), *hosts = NULL;
    mimo_request *request;
    mimo_status status = mimo_reserve(&hosts, comm->size, sizeof *hosts);
    MIMO_TRY_GOTO(status, done, mimo_comm_agree(comm, status));
    MIMO_TRY_GOTO(status, done,
                  mimo_nccl_host_allgather_start(&request, comm, hosts, &own, (int)sizeof own));
    MIMO_TRY_GOTO(status, done, mimo_wait(comm, &request, "buffer create"));
    *first = comm->rank;
    *all = true;
    for (int i = comm->size - 1; i >= 0; i--) {
        *all = *all && hosts[i] == own;
        *first = hosts[i] == own ? i : *first;
    }
done:
    mimo_release(hosts);
    return status;
}

static mimo_status split_by_host(nccl_comm **out, nccl_comm *comm)
{
    int first;
    bool all;
    mimo_comm *made = &comm->base;
    MIMO_TRY(find_host(&first, &all, &comm->base));
    if (!all)
        MIMO_TRY(mimo_comm_split(&made, &comm->base, first, comm->base.rank));
    *out = (nccl_comm *)made;
    return MIMO_OK;
}

mimo_status mimo_nccl_connect_same_host(nccl_comm *comm)
{
    nccl_comm *near;
    if (comm->same_host)
        return MIMO_OK;
    MIMO_TRY(split_by_host(&near, comm));
    mimo_status status = mimo_nccl_shared_comm_make(&comm->windows, comm, near, NCCL_WINDOWS);
    if (status == MIMO_OK)
        comm->same_host = near;
    else if (near != comm)
        mimo_comm_destroy(&near->base);
    return status;
}

int mimo_nccl_same_host_rank(const nccl_comm *comm, int index)
{
    int rank = 0;
    while (comm->ranks[rank] != comm->same_host->ranks[index])
        rank++;
    return rank;
}
