/* What a ring holds at one moment, read while its owner goes on. Nothing that is read is trusted:
 * a place outside of its table counts as nothing. */
#ifndef MIMO_RING_RING_SAMPLE_H
#define MIMO_RING_RING_SAMPLE_H

#include <mimo/status.h>

#include "ring/ring_memory.h"

/* A communicator. */
typedef struct mimo_ring_seen {
    uint64_t comm, calls, thread, moved, steps;
    int64_t looked;
    int64_t flight, flight_since, flight_arrived; /* of the thread that waits (mimo_ring_slot) */
    const int32_t *ranks; /* ranks[size] in the family, in the ring's memory; NULL: all */
    int size;             /* 0: not known */
    int slot, owner;      /* its own number, and that of the slot whose `inside` counts */
    bool inside;          /* a thread is inside of a call that this slot owns */
    const char *title;
    mimo_ring_call open;
    mimo_ring_wait wait; /* its slot is -1 where no thread waits */
} mimo_ring_seen;

/* What became of the last launch of an object's kernels. */
typedef enum mimo_ring_kernel {
    MIMO_RING_KERNEL_NONE,     /* there was none */
    MIMO_RING_KERNEL_ENQUEUED, /* it is enqueued, and waits for other work of its stream */
    MIMO_RING_KERNEL_RUNS,
    MIMO_RING_KERNEL_DONE, /* with graphs, whose replays the host does not count, one may wait */
} mimo_ring_kernel;

/* Launches of an object on a device. */
typedef struct mimo_ring_launched {
    uint64_t comm, enqueued, captured, begun, ended;
    bool alike;
    const char *title;
} mimo_ring_launched;

typedef struct mimo_ring_sample {
    mimo_ring_identity owner;
    int rank, size;
    uint64_t family; /* 0: not known */
    bool parallel, closed;
    int end;                           /* a mimo_status */
    int64_t taken;                     /* when it was read, on the owner's monotonic clock */
    mimo_ring_call last;               /* the newest call that has ended; state NONE: none */
    uint64_t ended;                    /* calls so far */
    const mimo_ring_identity *members; /* members[size], in the ring's memory */
    mimo_ring_seen *seen;              /* seen[count]; the family's own is the first */
    int count;
    mimo_ring_launched launched[MIMO_RING_LAUNCHES];
    int launched_count;
    int torn; /* lines that could not be read */
    char names[MIMO_RING_NAMES + 1];
} mimo_ring_sample;

/* Read a ring; the memory stays the caller's, and lives as long as the sample. `self` is the
 * process that reads. MIMO_ERR_IO: it is no ring of this version. */
mimo_status mimo_ring_sample_take(mimo_ring_sample **out, const mimo_ring_memory *memory,
                                  const mimo_ring_identity *self);
void mimo_ring_sample_release(mimo_ring_sample *sample);

/* The communicator of that id, or NULL. */
const mimo_ring_seen *mimo_ring_find_comm(const mimo_ring_sample *sample, uint64_t comm);
/* The one in that slot, or NULL. */
const mimo_ring_seen *mimo_ring_find_slot(const mimo_ring_sample *sample, int slot);

/* The rank in the family of a communicator's rank; -1: it is not known. */
int mimo_ring_member(const mimo_ring_sample *sample, const mimo_ring_seen *comm, int i);

/* The name at a place: "" for 0, and for a place outside of the table. */
const char *mimo_ring_name_at(const mimo_ring_sample *sample, uint64_t place);

/* The state of launches, and of the same object in another sample; NULL: it has none there. */
mimo_ring_kernel mimo_ring_kernel_of(const mimo_ring_launched *it);
/* "none", "enqueued", "runs", "done". */
const char *mimo_ring_kernel_text(mimo_ring_kernel kernel);
const mimo_ring_launched *mimo_ring_find_launched(const mimo_ring_sample *sample,
                                                  const mimo_ring_launched *like);

/* The last calls that have ended, oldest first, into calls[MIMO_RING_CALLS]. Returns their number.
 * Calls that are being overwritten are left out. */
int mimo_ring_read_calls(mimo_ring_call *calls, const mimo_ring_memory *memory);

#endif
