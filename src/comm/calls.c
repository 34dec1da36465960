#include "comm/calls.h"

#include "core/forks.h"

mimo_status mimo_check_process(const mimo_family *family, const char *call)
{
    MIMO_CHECK(family->forks == mimo_forks(), MIMO_ERR_STATE,
               "%s: this process was forked from the one that made the communicator, which alone "
               "may use it",
               call);
    return MIMO_OK;
}

mimo_status mimo_check_open(const mimo_family *family, const char *call)
{
    return family->backend->check_open ? family->backend->check_open(family, call) : MIMO_OK;
}

static mimo_status check_transport(const mimo_family *family, const char *call)
{
    MIMO_TRY(mimo_check_open(family, call));
    return family->backend->check_thread ? family->backend->check_thread(family, call) : MIMO_OK;
}

static void enter(mimo_call_scope *out, mimo_comm *comm, bool may_end)
{
    mimo_family *family = comm->family;
    *out = (mimo_call_scope){comm, may_end, mimo_device_enter(comm)};
    mimo_family_retain(family);
    mimo_comm_retain(comm);
    __atomic_fetch_add(&family->inside, 1, __ATOMIC_SEQ_CST);
    if (may_end) {
        __atomic_store_n(&family->caller, mimo_this_thread(), __ATOMIC_RELAXED);
        mimo_family_end_asked(family);
    }
}

/* Calls on a forgotten family fail without the transport, so any thread may make them. */
mimo_status mimo_call_enter(mimo_call_scope *out, mimo_comm *comm, const char *call)
{
    const mimo_family *family = comm->family;
    bool forgotten = mimo_family_is_forgotten(family);
    MIMO_TRY(mimo_check_process(family, call));
    if (!forgotten)
        MIMO_TRY(check_transport(family, call));
    enter(out, comm, !forgotten);
    return MIMO_OK;
}

bool mimo_release_enter(mimo_call_scope *out, mimo_comm *comm)
{
    const mimo_family *family = comm->family;
    const char *call = "destroy";
    if (mimo_check_process(family, call) != MIMO_OK)
        return false;
    enter(out, comm, !mimo_family_is_forgotten(family) && check_transport(family, call) == MIMO_OK);
    return true;
}

void mimo_call_leave(mimo_call_scope *scope)
{
    if (!scope->comm)
        return;
    mimo_family *family = scope->comm->family;
    mimo_comm_release(scope->comm);
    if (__atomic_sub_fetch(&family->inside, 1, __ATOMIC_SEQ_CST) == 0 && scope->may_end)
        mimo_family_end_asked(family);
    mimo_family_release(family);
    mimo_device_leave(&scope->visit);
}
