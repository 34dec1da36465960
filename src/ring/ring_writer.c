#include "ring/ring_writer.h"

#include <string.h>
#include <time.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/letters.h"
#include "core/memory.h"

/* -------------------------------------- life -------------------------------------- */

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void place_parts(mimo_ring *ring, int size)
{
    const mimo_ring_parts parts = mimo_ring_parts_of(size);
    char *base = ring->memory.base;
    ring->head = (mimo_ring_head *)base;
    ring->launches = (mimo_ring_launches *)(base + parts.launches);
    ring->names = base + parts.names;
    ring->slots = (mimo_ring_slot *)(base + parts.slots);
    ring->calls = (mimo_ring_line *)(base + parts.calls);
    ring->lists = (int32_t *)(base + parts.lists);
    ring->members = (mimo_ring_identity *)(base + parts.members);
}

/* The magic comes last: who reads it, may read the rest. */
static void begin(mimo_ring *ring, const mimo_ring_identity *owner, int rank, int size)
{
    static const char full[] = "(the table of names is full)";
    const mimo_ring_parts parts = mimo_ring_parts_of(size);
    mimo_ring_head *head = ring->head;
    memcpy(ring->names + MIMO_RING_FULL, full, sizeof full);
    *head = (mimo_ring_head){.bytes = parts.bytes,
                             .version = MIMO_RING_VERSION,
                             .slots = MIMO_RING_SLOTS,
                             .rank = rank,
                             .size = size,
                             .monotonic = read_clock(CLOCK_MONOTONIC),
                             .real = read_clock(CLOCK_REALTIME),
                             .owner = *owner,
                             .names_used = MIMO_RING_FULL + sizeof full,
                             .lists_most = parts.lists_most};
    ring->members[rank] = *owner;
    __atomic_store_n(&head->magic, MIMO_RING_MAGIC, __ATOMIC_RELEASE);
}

static mimo_status take_memory(mimo_ring *ring, const mimo_ring_identity *owner, int rank, int size,
                               const char *folder)
{
    const size_t bytes = mimo_ring_parts_of(size).bytes;
    if (folder)
        return mimo_ring_memory_make_file(&ring->memory, bytes, folder, owner, rank);
    return mimo_ring_memory_make(&ring->memory, bytes);
}

mimo_status mimo_ring_create(mimo_ring **out, mimo_ring_identity *owner, int rank, int size,
                             const char *folder)
{
    mimo_ring *ring;
    MIMO_TRY(mimo_reserve(&ring, 1, sizeof *ring));
    mimo_status status = take_memory(ring, owner, rank, size, folder);
    if (status != MIMO_OK) {
        mimo_release(ring);
        return status;
    }
    owner->fd = ring->memory.fd;
    owner->has_ring = 1;
    (void)pthread_mutex_init(&ring->lock, NULL);
    place_parts(ring, size);
    begin(ring, owner, rank, size);
    (void)mimo_ring_take_slot(ring, 0, NULL, size); /* the family's */
    *out = ring;
    return MIMO_OK;
}

void mimo_ring_destroy(mimo_ring *ring, bool stays)
{
    if (!ring)
        return;
    if (stays)
        mimo_ring_memory_keep(&ring->memory);
    mimo_ring_store(&ring->head->closed, 1);
    pthread_mutex_destroy(&ring->lock);
    mimo_ring_memory_release(&ring->memory);
    mimo_release(ring);
}

void mimo_ring_join(mimo_ring *ring, const mimo_ring_identity *members)
{
    if (!ring)
        return;
    size_t bytes = (size_t)ring->head->size * sizeof *members;
    memcpy(ring->members, members, bytes);
    uint64_t family = mimo_hash_bytes(MIMO_HASH_START, members, bytes);
    __atomic_store_n(&ring->head->family, family, __ATOMIC_RELEASE);
}

/* -------------------------------------- names ------------------------------------- */

/* The place of a text that is there; 0: it is not. */
static uint32_t find_name(const mimo_ring *ring, const char *text)
{
    uint64_t used = mimo_ring_load(&ring->head->names_used);
    for (uint64_t at = MIMO_RING_FULL; at < used; at += strlen(ring->names + at) + 1)
        if (strcmp(ring->names + at, text) == 0)
            return (uint32_t)at;
    return 0;
}

/* Readers look at a place only where they got it from a call or a slot, which come later. */
static uint32_t add_name(mimo_ring *ring, const char *text)
{
    uint64_t at = mimo_ring_load(&ring->head->names_used), bytes = strlen(text) + 1;
    if (at + bytes > MIMO_RING_NAMES)
        return MIMO_RING_FULL;
    memcpy(ring->names + at, text, bytes);
    __atomic_store_n(&ring->head->names_used, at + bytes, __ATOMIC_RELEASE);
    return (uint32_t)at;
}

uint32_t mimo_ring_name(mimo_ring *ring, const char *text)
{
    char own[MIMO_RING_LONGEST + 1];
    if (!ring || !text || !text[0])
        return 0;
    mimo_copy_text(own, sizeof own, text);
    pthread_mutex_lock(&ring->lock);
    uint32_t place = find_name(ring, own);
    if (place == 0)
        place = add_name(ring, own);
    pthread_mutex_unlock(&ring->lock);
    return place;
}

/* -------------------------------------- slots ------------------------------------- */

/* Where the list lies, if an earlier communicator has the same. */
static uint64_t find_list(const mimo_ring *ring, const int *ranks, int size)
{
    uint64_t used = ring->head->lists_used;
    for (uint64_t at = 0; at + (uint64_t)size <= used; at++)
        if (memcmp(ring->lists + at, ranks, (size_t)size * sizeof *ranks) == 0)
            return at;
    return MIMO_RING_ALL;
}

/* The ranks of a communicator. Where the lists are full, none are known: the size is 0 then. */
static void list_ranks(mimo_ring *ring, mimo_ring_slot *slot, const int *ranks, int size)
{
    uint64_t at = ranks ? find_list(ring, ranks, size) : MIMO_RING_ALL;
    if (ranks && at == MIMO_RING_ALL) {
        at = ring->head->lists_used;
        if (at + (uint64_t)size > ring->head->lists_most) {
            mimo_ring_store(&slot->size, 0);
            return;
        }
        memcpy(ring->lists + at, ranks, (size_t)size * sizeof *ranks);
        __atomic_store_n(&ring->head->lists_used, at + (uint64_t)size, __ATOMIC_RELEASE);
    }
    mimo_ring_store(&slot->members, at);
    mimo_ring_store(&slot->size, (uint64_t)size);
}

static int find_free(const mimo_ring *ring)
{
    for (int i = 0; i < MIMO_RING_SLOTS; i++)
        if (mimo_ring_load(&ring->slots[i].generation) % 2 == 0)
            return i;
    return -1;
}

int mimo_ring_take_slot(mimo_ring *ring, uint64_t comm, const int *ranks, int size)
{
    const mimo_ring_call no_call = {.state = MIMO_RING_NONE};
    const mimo_ring_wait no_wait = {.slot = -1};
    if (!ring)
        return -1;
    pthread_mutex_lock(&ring->lock);
    int found = find_free(ring);
    if (found >= 0) {
        mimo_ring_slot *slot = &ring->slots[found];
        mimo_ring_line_write(&slot->open, &no_call);
        mimo_ring_line_write(&slot->wait, &no_wait);
        uint64_t *const zeros[] = {&slot->title,  &slot->calls, &slot->inside, &slot->thread,
                                   &slot->looked, &slot->moved, &slot->steps,  &slot->flight};
        for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
            mimo_ring_store(zeros[i], 0);
        mimo_ring_store(&slot->comm, comm);
        mimo_ring_store(&slot->owner, 0);
        list_ranks(ring, slot, ranks, size);
        __atomic_add_fetch(&slot->generation, 1, __ATOMIC_ACQ_REL);
    }
    pthread_mutex_unlock(&ring->lock);
    return found;
}

void mimo_ring_give_slot(mimo_ring *ring, int slot)
{
    if (!ring || slot <= 0)
        return;
    pthread_mutex_lock(&ring->lock);
    __atomic_add_fetch(&ring->slots[slot].generation, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&ring->lock);
}

/* ------------------------------------- launches ------------------------------------- */

mimo_ring_launches *mimo_ring_take_launches(mimo_ring *ring, uint64_t comm, const char *title)
{
    mimo_ring_launches *found = NULL;
    uint32_t name = mimo_ring_name(ring, title);
    if (!ring)
        return NULL;
    pthread_mutex_lock(&ring->lock);
    for (int i = 0; i < MIMO_RING_LAUNCHES && !found; i++)
        if (mimo_ring_load(&ring->launches[i].generation) % 2 == 0)
            found = &ring->launches[i];
    if (found) {
        uint64_t *const zeros[] = {&found->begun, &found->ended, &found->enqueued, &found->captured,
                                   &found->alike};
        for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
            mimo_ring_store(zeros[i], 0);
        mimo_ring_store(&found->comm, comm);
        mimo_ring_store(&found->title, name);
        __atomic_add_fetch(&found->generation, 1, __ATOMIC_ACQ_REL);
    }
    pthread_mutex_unlock(&ring->lock);
    return found;
}

void mimo_ring_give_launches(mimo_ring *ring, mimo_ring_launches *launches)
{
    if (!ring || !launches)
        return;
    pthread_mutex_lock(&ring->lock);
    __atomic_add_fetch(&launches->generation, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&ring->lock);
}
