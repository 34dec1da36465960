#include "comm/calls.h"

#include "comm/recorder.h"

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

/* The thread that made the family may call the transport: it did. */
static mimo_status check_transport(const mimo_family *family, const char *call)
{
    MIMO_TRY(mimo_check_open(family, call));
    if (!family->backend->check_thread || family->maker == mimo_this_thread())
        return MIMO_OK;
    return family->backend->check_thread(family, call);
}

/* ---------------------------------------- owners ----------------------------------------- */

/* NULL: another thread is inside. A thread that finds itself is in a call already, since no other
 * one writes its address. */
static mimo_owner *own(mimo_comm *comm)
{
    mimo_owner *owner = mimo_owner_of(comm);
    const void *none = NULL, *thread = mimo_this_thread();
    if (__atomic_load_n(&owner->thread, __ATOMIC_RELAXED) != thread &&
        !__atomic_compare_exchange_n(&owner->thread, &none, thread, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return NULL;
    owner->calls++;
    return owner;
}

static void disown(mimo_owner *owner)
{
    if (owner && --owner->calls == 0)
        __atomic_store_n(&owner->thread, NULL, __ATOMIC_RELEASE);
}

static mimo_status occupied(const mimo_comm *comm, const char *call, const char *consequence)
{
    return mimo_fail(
        MIMO_ERR_STATE,
        "%s: another thread of this rank is inside a call of the same %s, and one at a "
        "time may be. %s",
        call, comm->family->parallel ? "communicator" : "family of communicators", consequence);
}

/* ---------------------------------------- scopes ----------------------------------------- */

static void enter(mimo_call_scope *out, mimo_comm *comm, mimo_owner *owner, bool may_end,
                  const char *call)
{
    mimo_family *family = comm->family;
    if (owner && owner->calls == 1)
        mimo_record_enter(comm, owner, call);
    *out = (mimo_call_scope){comm, owner, may_end, mimo_device_enter(comm)};
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
    mimo_owner *owner = NULL;
    bool forgotten = mimo_family_is_forgotten(family);
    MIMO_TRY(mimo_check_process(family, call));
    if (!forgotten) {
        MIMO_TRY(check_transport(family, call));
        owner = own(comm);
        if (!owner)
            return occupied(comm, call,
                            "This call did not begin, and the other ranks still wait for it");
    }
    enter(out, comm, owner, !forgotten, call);
    return MIMO_OK;
}

bool mimo_release_enter(mimo_call_scope *out, mimo_comm *comm)
{
    const mimo_family *family = comm->family;
    const char *call = "destroy";
    bool forgotten = mimo_family_is_forgotten(family);
    if (mimo_check_process(family, call) != MIMO_OK)
        return false;
    mimo_owner *owner = forgotten ? NULL : own(comm);
    if (!forgotten && !owner) {
        (void)occupied(comm, call, "Nothing was released");
        return false;
    }
    enter(out, comm, owner, !forgotten && check_transport(family, call) == MIMO_OK, call);
    return true;
}

void mimo_call_leave(mimo_call_scope *scope)
{
    if (!scope->comm)
        return;
    mimo_family *family = scope->comm->family;
    mimo_owner *owner = scope->owner;
    if (owner && owner->calls == 1)
        mimo_record_leave(scope->comm, owner);
    if (owner == &scope->comm->owner) { /* which may be gone after the release */
        disown(owner);
        owner = NULL;
    }
    mimo_comm_release(scope->comm);
    if (__atomic_sub_fetch(&family->inside, 1, __ATOMIC_SEQ_CST) == 0 && scope->may_end)
        mimo_family_end_asked(family);
    disown(owner);
    mimo_family_release(family);
    mimo_device_leave(&scope->visit);
}
