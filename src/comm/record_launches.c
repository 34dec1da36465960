/* What is said of kernels in the family's ring. The device writes the rest. */
#include "comm/recorder.h"

static mimo_ring *ring_of(const mimo_family *family)
{
    return family->recorder ? family->recorder->ring : NULL;
}

void *mimo_recorder_launches(const mimo_family *family)
{
    const mimo_ring *ring = ring_of(family);
    return ring && !ring->memory.path ? ring->launches : NULL;
}

mimo_ring_launches *mimo_recorder_take_launches(const mimo_comm *comm)
{
    return mimo_ring_take_launches(ring_of(comm->family), comm->id, "a buffer");
}

void mimo_recorder_give_launches(const mimo_comm *comm, mimo_ring_launches *launches)
{
    mimo_ring_give_launches(ring_of(comm->family), launches);
}

void mimo_recorder_name_launches(const mimo_comm *comm, mimo_ring_launches *launches,
                                 const char *title, bool alike)
{
    if (!launches)
        return;
    mimo_ring_store(&launches->title, mimo_ring_name(ring_of(comm->family), title));
    mimo_ring_store(&launches->alike, alike);
}

/* Threads take turns in a communicator. */
void mimo_recorder_count_launch(mimo_ring_launches *launches, bool captured)
{
    if (!launches)
        return;
    uint64_t *count = captured ? &launches->captured : &launches->enqueued;
    mimo_ring_store(count, mimo_ring_load(count) + 1);
}
