/*
 * The writer of a ring: the process whose calls it holds. All functions of a NULL ring do nothing.
 *
 * Threads: one at a time writes a slot. Any threads may end calls, name things, take slots and give
 * them back at the same time.
 */
#ifndef MIMO_RING_RING_WRITER_H
#define MIMO_RING_RING_WRITER_H

#include <pthread.h>

#include "ring/ring_memory.h"

typedef struct mimo_ring {
    mimo_ring_memory memory;
    mimo_ring_head *head;
    mimo_ring_launches *launches;
    char *names;
    mimo_ring_slot *slots;
    mimo_ring_line *calls;
    int32_t *lists;
    mimo_ring_identity *members;
    pthread_mutex_t lock; /* of names, slots and lists */
} mimo_ring;

/* Of rank `rank` of `size`. `folder`: a file there; NULL: memory. `owner` says who this process is,
 * and gets where the ring is found. */
mimo_status mimo_ring_create(mimo_ring **out, mimo_ring_identity *owner, int rank, int size,
                             const char *folder);

/* The end of the family. `stays`: a file is not removed. NULL is fine. */
void mimo_ring_destroy(mimo_ring *ring, bool stays);

/* Who runs all ranks: members[size]. Their hash is the family's id. */
void mimo_ring_join(mimo_ring *ring, const mimo_ring_identity *members);

/* The place of a name; the same for the same text. A text that is longer than MIMO_RING_LONGEST
 * bytes is cut. Where the table is full, all new names are MIMO_RING_FULL. */
enum { MIMO_RING_LONGEST = 95 };
uint32_t mimo_ring_name(mimo_ring *ring, const char *text);

/* A slot for a communicator; -1: all are taken, and its calls can't be seen before they have ended.
 * `ranks`[size] are its ranks in the family; NULL: all of them, in their order. */
int mimo_ring_take_slot(mimo_ring *ring, uint64_t comm, const int *ranks, int size);
void mimo_ring_give_slot(mimo_ring *ring, int slot);

/* Launches of an object on a device, of a communicator, under that title; NULL: all are taken, and
 * nothing is said of its kernels. */
mimo_ring_launches *mimo_ring_take_launches(mimo_ring *ring, uint64_t comm, const char *title);
void mimo_ring_give_launches(mimo_ring *ring, mimo_ring_launches *launches); /* NULL is fine */

/* The call of a slot as it is now. */
static inline void mimo_ring_show(mimo_ring *ring, int slot, const mimo_ring_call *call)
{
    mimo_ring_line_write(&ring->slots[slot].open, call);
}

/* mimo_ring_keep where no other thread ends calls: it takes no locked instruction. */
static inline void mimo_ring_keep_alone(mimo_ring *ring, const mimo_ring_call *call)
{
    uint64_t number = mimo_ring_load(&ring->head->next) + 1;
    mimo_ring_line *line = &ring->calls[(number - 1) % MIMO_RING_CALLS];
    mimo_ring_store(&ring->head->next, number);
    mimo_ring_store(&line->before, number);
    mimo_ring_line_fill(line, number, call);
}

/* A call has ended: it joins the last ones. */
static inline void mimo_ring_keep(mimo_ring *ring, const mimo_ring_call *call)
{
    uint64_t number = __atomic_add_fetch(&ring->head->next, 1, __ATOMIC_RELAXED);
    if (!mimo_ring_line_claim(&ring->calls[(number - 1) % MIMO_RING_CALLS], number, call))
        __atomic_add_fetch(&ring->head->lost, 1, __ATOMIC_RELAXED);
}

#endif
