/*
 * The memory of a ring, which other processes read. A family has one on each rank:
 *
 *     head      who writes it, of which family, since when
 *     launches  kernels of objects on a device, whose device writes here as well
 *     names     texts, each ends with 0; a place is an offset. Place 0 is "no name", and
 *               MIMO_RING_FULL stands for all that found no room
 *     slots     one for each communicator, and slot 0 for the family
 *     calls     the last calls that have ended, oldest overwritten
 *     lists     ranks of communicators that are not all ranks
 *     members   who runs the ranks of the family (mimo_ring_identity each)
 *
 * All words that change are atomics; what is more than a word lies in lines. A reader trusts no
 * offset.
 */
#ifndef MIMO_RING_RING_LAYOUT_H
#define MIMO_RING_RING_LAYOUT_H

#include <stddef.h>

#include "ring/ring_launches.h"
#include "ring/ring_line.h"

enum {
    MIMO_RING_CALLS = 2048,
    MIMO_RING_SLOTS = 256,
    MIMO_RING_NAMES = 8192, /* bytes */
    MIMO_RING_VERSION = 2,
    MIMO_RING_FULL = 1, /* the place of the text that says so */
};

/* "mimoring" as a word: a ring of a machine with another order of bytes is refused. */
#define MIMO_RING_MAGIC UINT64_C(0x676e69726f6d696d)

/* A process, as others find it. All zero: nothing is known. */
typedef struct mimo_ring_identity {
    char host[64];
    uint64_t boot[2]; /* the id of the host's boot */
    uint64_t pids;    /* the pid namespace: the number of its inode; 0: not known */
    uint64_t start;   /* of the process, as /proc says it, in ticks since the boot */
    uint64_t nonce;   /* of this ring */
    uint64_t place;   /* the same for all that may run on the same processors; 0: not known */
    int32_t pid;
    int32_t fd; /* where the process has the ring open; -1: nowhere */
    int32_t has_ring;
    int32_t reserved;
} mimo_ring_identity;

typedef struct mimo_ring_head {
    uint64_t magic;
    uint64_t bytes; /* of the whole ring */
    int32_t version, slots;
    int32_t rank, size;      /* of the family */
    uint64_t family;         /* the same on all its ranks; 0: the ranks did not exchange one */
    int64_t monotonic, real; /* both clocks at one moment, nanoseconds */
    mimo_ring_identity owner;
    uint64_t parallel;   /* threads may use different communicators at once */
    uint64_t end;        /* a mimo_status: what the family ended with */
    uint64_t closed;     /* the communicators were released */
    uint64_t next;       /* calls that have ended so far */
    uint64_t lost;       /* of these, not recorded: see mimo_ring_line_claim */
    uint64_t names_used; /* bytes */
    uint64_t lists_used; /* ranks */
    uint64_t lists_most;
} mimo_ring_head;

/* A communicator. */
typedef struct mimo_ring_slot {
    mimo_ring_line open;  /* mimo_ring_call: the call that is open, or was the last */
    mimo_ring_line wait;  /* mimo_ring_wait of the thread that is inside */
    uint64_t generation;  /* odd: in use. It changes whenever another communicator takes the slot */
    uint64_t comm;        /* its id */
    uint64_t title;       /* a name */
    uint64_t members;     /* where its list begins, or MIMO_RING_ALL */
    uint64_t size, owner; /* ranks; the slot whose `inside` and `wait` count for it */
    uint64_t calls;       /* that this rank has begun */
    uint64_t inside;      /* calls that a thread is inside of */
    uint64_t thread;      /* that was inside last */
    uint64_t looked;      /* when the thread that waits has looked last, nanoseconds */
    uint64_t moved;       /* bytes of tensors that have moved */
    uint64_t steps;       /* requests that have ended */
    /* Of the thread that waits, when it looked last: bytes of tensors that are in messages, which
     * show no part of themselves, and since when these are the same messages (nanoseconds). */
    uint64_t flight, flight_since;
    uint64_t flight_ended;   /* requests of its communicator that had ended then */
    uint64_t flight_arrived; /* of these messages, those that have left or arrived */
} mimo_ring_slot;

_Static_assert(sizeof(mimo_ring_slot) == 384, "a slot is three lines");

#define MIMO_RING_ALL UINT64_MAX

_Static_assert(sizeof(mimo_ring_launches) * MIMO_RING_LAUNCHES == 4096, "launches fill a page");

/* Where the parts lie, in bytes. */
typedef struct mimo_ring_parts {
    size_t launches, names, slots, calls, lists, members, bytes;
    uint64_t lists_most;
} mimo_ring_parts;

static inline mimo_ring_parts mimo_ring_parts_of(int32_t size)
{
    mimo_ring_parts it;
    uint64_t ranks = (uint64_t)size;
    it.launches = 4096; /* a page, so that a device can be given it alone */
    it.names = it.launches + MIMO_RING_LAUNCHES * sizeof(mimo_ring_launches);
    it.slots = it.names + MIMO_RING_NAMES;
    it.calls = it.slots + MIMO_RING_SLOTS * sizeof(mimo_ring_slot);
    it.lists = it.calls + MIMO_RING_CALLS * sizeof(mimo_ring_line);
    it.lists_most = 8192 + 16 * ranks;
    it.members = it.lists + it.lists_most * sizeof(int32_t);
    it.bytes = it.members + ranks * sizeof(mimo_ring_identity);
    return it;
}

_Static_assert(sizeof(mimo_ring_head) <= 4096, "the head is a page");
_Static_assert(sizeof(mimo_ring_identity) == 128, "what creation exchanges");

#endif
