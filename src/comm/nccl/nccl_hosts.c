#include "comm/nccl/nccl_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_split.h"
#include "core/hash.h"
#include "core/memory.h"

uint64_t mimo_nccl_host(void)
{
    char name[256] = "", boot[64] = "";
    const char *given = getenv("NCCL_HOSTID");
    if (given)
        return mimo_hash_bytes(MIMO_HASH_START, given, strlen(given));
    (void)gethostname(name, sizeof name - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        boot[fread(boot, 1, sizeof boot - 1, file)] = '\0';
        (void)fclose(file);
    }
    uint64_t hash = mimo_hash_bytes(MIMO_HASH_START, name, strlen(name));
    return mimo_hash_bytes(hash, boot, strlen(boot));
}

/* The first rank of this rank's host, and whether that is the host of all. */
static mimo_status find_host(int *first, bool *all, mimo_comm *comm)
{
    uint64_t own = mimo_nccl_host(), *hosts = NULL;
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

static mimo_status find_neighbours(nccl_comm **out, nccl_comm *comm)
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

/* Memory is taken first, and agreed on, so that no rank is missing from what NCCL does. */
static mimo_status make_windows(nccl_team **out, nccl_comm *comm, nccl_comm *near)
{
    nccl_team *made = NULL;
    mimo_status status = MIMO_OK;
    if (near->team)
        status = mimo_nccl_team_reserve(&made, near);
    status = mimo_comm_agree(&comm->base, status);
    if (status == MIMO_OK && made)
        status = mimo_nccl_team_open(made, near);
    status = mimo_comm_agree(&comm->base, status);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_nccl_team_drop(comm->root, made);
    return status;
}

mimo_status mimo_nccl_meet_neighbours(nccl_comm *comm)
{
    nccl_comm *near;
    if (comm->on_host)
        return MIMO_OK;
    MIMO_TRY(find_neighbours(&near, comm));
    mimo_status status = make_windows(&comm->windows, comm, near);
    if (status == MIMO_OK)
        comm->on_host = near;
    else if (near != comm)
        mimo_comm_destroy(&near->base);
    return status;
}

int mimo_nccl_rank_of(const nccl_comm *neighbours, int index, const nccl_comm *comm)
{
    int rank = 0;
    while (comm->ranks[rank] != neighbours->ranks[index])
        rank++;
    return rank;
}
