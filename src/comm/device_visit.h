/*
 * The calling thread's current device. A public call that has a communicator, or an object made
 * from one, works on the communicator's device, and leaves the caller's current device as it was:
 *
 *   MIMO_ON_DEVICE_OF(comm);
 *
 * at its beginning. The end of the block, on success and on error, goes back. Where the device is
 * the current one already, nothing is set.
 */
#ifndef MIMO_COMM_DEVICE_VISIT_H
#define MIMO_COMM_DEVICE_VISIT_H

#include "comm/comm_backend.h"

typedef struct mimo_device_visit {
    const mimo_device *device;
    int before; /* the device to go back to; -1: none */
} mimo_device_visit;

/* A visit that remembers the current device, and goes nowhere yet. */
static inline mimo_device_visit mimo_device_stay(const mimo_device *device)
{
    return (mimo_device_visit){device, device->current ? device->current() : -1};
}

/* NULL is fine: the call is going to refuse it. */
static inline mimo_device_visit mimo_device_enter(const mimo_comm *comm)
{
    mimo_device_visit visit = {NULL, -1};
    if (!comm)
        return visit;
    visit = mimo_device_stay(comm->device);
    if (visit.before == comm->device_number)
        visit.before = -1;
    else if (visit.before >= 0)
        visit.device->set_current(comm->device_number);
    return visit;
}

static inline void mimo_device_leave(const mimo_device_visit *visit)
{
    if (visit->before >= 0 && visit->device->current() != visit->before)
        visit->device->set_current(visit->before);
}

#define MIMO_DEVICE_VISIT(begun)                                                               \
    __attribute__((cleanup(mimo_device_leave), unused)) const mimo_device_visit device_visit = \
        (begun)

#define MIMO_ON_DEVICE_OF(comm) MIMO_DEVICE_VISIT(mimo_device_enter(comm))

#endif
