/*
 * Every public call that can reach the transport is a scope: MIMO_ENTER begins it, and it ends
 * where the function does. Calls inside calls are counted as well. A scope
 *   - refuses a process that was forked, a transport that has ended, and a thread that may not call
 *     it, or that would meet another thread in what it uses
 *   - works on the communicator's device, and leaves the caller's current device as it was
 *   - keeps the communicator and its family alive, also where this call or another thread gives the
 *     last of them back
 *   - ends the family where another thread has asked for that: at its beginning, or at its end once
 *     no thread is inside
 */
#ifndef MIMO_COMM_CALLS_H
#define MIMO_COMM_CALLS_H

#include "comm/device_visit.h"
#include "core/check.h"

typedef struct mimo_call_scope {
    mimo_comm *comm;   /* NULL: not entered */
    mimo_owner *owner; /* which this thread has meanwhile; NULL: none is needed */
    bool may_end;      /* this thread may call the transport */
    mimo_device_visit visit;
} mimo_call_scope;

/* MIMO_ERR_STATE in a child of the process that made the family. */
mimo_status mimo_check_process(const mimo_family *family, const char *call);

/* MIMO_ERR_STATE once the transport has ended for good. */
mimo_status mimo_check_open(const mimo_family *family, const char *call);

/* Begin a call: MIMO_ERR_STATE, and no scope, where this process or this thread may not. */
mimo_status mimo_call_enter(mimo_call_scope *out, mimo_comm *comm, const char *call);

/* Begin the release of an object. Any thread may, but without the transport it leaves what the
 * transport holds. False, and everything stays as it is, in a forked child, and where another
 * thread is inside a call (then with a sentence). */
bool mimo_release_enter(mimo_call_scope *out, mimo_comm *comm);

/* End either. */
void mimo_call_leave(mimo_call_scope *scope);

#define MIMO_CALL_SCOPE(name) \
    __attribute__((cleanup(mimo_call_leave))) mimo_call_scope name = {NULL, NULL, false, {NULL, -1}}

#define MIMO_ENTER(comm, call)     \
    MIMO_CALL_SCOPE(mimo_entered); \
    MIMO_TRY(mimo_call_enter(&mimo_entered, (comm), (call)))

#endif
