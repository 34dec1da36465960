/* Host bytes of every rank to all ranks: in one call, or begun and waited for. */
#include <stdio.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/memory.h"
#include "device/profile.h"

enum { NAME_TEXT = MIMO_CALL_TEXT - 64 }; /* bytes of a name that stand in sentences */

struct mimo_host_gather {
    mimo_comm *comm;
    mimo_request *request; /* NULL: there is nothing to gather */
    char call[MIMO_CALL_TEXT];
};

static mimo_status check(mimo_comm *comm, const void *to, const void *from, int bytes)
{
    MIMO_CHECK(bytes >= 0, MIMO_ERR_ARGUMENT, "host_allgather: %d bytes", bytes);
    MIMO_CHECK((to && from) || bytes == 0, MIMO_ERR_ARGUMENT,
               "host_allgather: %s is NULL, %d bytes a rank", to ? "from" : "to", bytes);
    return comm->backend->host_allgather_prepare(comm, bytes);
}

/* Whose gather it is, and what it gathers. */
static uint64_t describe(mimo_host_gather *own, const char *name, int bytes)
{
    uint64_t hash = mimo_hash_int(mimo_signature_start(MIMO_CALL_COMM_HOST_ALLGATHER), bytes);
    snprintf(own->call, sizeof own->call, "%.*s%shost_allgather of %d bytes a rank", NAME_TEXT,
             name ? name : "", name ? " " : "", bytes);
    return name ? mimo_hash_bytes(hash, name, strlen(name)) : hash;
}

/* Agree, and begin. `local`: of what came before. */
static mimo_status begin(mimo_host_gather *own, void *to, const void *from, int bytes,
                         const char *name, mimo_status local)
{
    mimo_comm *comm = own->comm;
    uint64_t signature = describe(own, name, bytes);
    if (local == MIMO_OK)
        local = check(comm, to, from, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_CALL, local, signature, own->call));
    if (bytes == 0)
        return MIMO_OK;
    return comm->backend->host_allgather_start(&own->request, comm, to, from, bytes);
}

mimo_status mimo_comm_host_allgather(mimo_comm *comm, void *to, const void *from, int bytes)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "host_allgather: comm is NULL");
    MIMO_ENTER(comm, "host_allgather");
    mimo_host_gather own = {.comm = comm};
    MIMO_TRY(begin(&own, to, from, bytes, NULL, MIMO_OK));
    return mimo_wait(comm, &own.request, own.call);
}

mimo_status mimo_comm_host_allgather_start(mimo_host_gather **out, mimo_comm *comm, void *to,
                                           const void *from, int bytes, const char *name)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "host_allgather_start: comm is NULL");
    MIMO_ENTER(comm, "host_allgather_start");
    mimo_host_gather *made = NULL, none = {.comm = comm};
    mimo_status local = out ? mimo_reserve(&made, 1, sizeof *made)
                            : mimo_fail(MIMO_ERR_ARGUMENT, "host_allgather_start: out is NULL");
    if (local == MIMO_OK)
        made->comm = comm;
    mimo_status status = begin(local == MIMO_OK ? made : &none, to, from, bytes, name, local);
    if (status == MIMO_OK) {
        mimo_comm_retain(comm);
        *out = made;
    } else {
        mimo_release(made);
    }
    return status;
}

mimo_status mimo_comm_host_allgather_wait(mimo_host_gather **gather)
{
    MIMO_RANGE();
    MIMO_CHECK(gather, MIMO_ERR_ARGUMENT, "host_allgather_wait: NULL");
    mimo_host_gather *own = *gather;
    if (!own)
        return MIMO_OK;
    MIMO_ENTER(own->comm, "host_allgather_wait");
    *gather = NULL;
    mimo_status status = mimo_wait(own->comm, &own->request, own->call);
    mimo_comm_release(own->comm);
    mimo_release(own);
    return status;
}
