/* The ring of a family: its life, its communicators, the rings of other ranks. */
#include "comm/recorder.h"

#include <mimo/env.h>

#include "comm/places.h"
#include "core/check.h"
#include "core/logging.h"
#include "core/memory.h"

/* How many of the ranks behind it on its host a rank keeps open, so that a ring that its owner has
 * left is found. All are mapped. */
enum { KEPT_OPEN = 16 };

static mimo_ring *ring_of(const mimo_family *family)
{
    return family->recorder ? family->recorder->ring : NULL;
}

/* -------------------------------------- life -------------------------------------- */

/* A file where one is asked for; memory where that fails; nothing where neither is to be had. */
static mimo_status make_ring(mimo_recorder *it, const mimo_family *family)
{
    mimo_status status = MIMO_ERR_IO;
    if (family->ring_ways == MIMO_RING_FILE) {
        status = mimo_ring_create(&it->ring, &it->self, it->rank, it->size, family->ring_folder);
        if (status == MIMO_ERR_IO)
            mimo_log(MIMO_LOG_WARNING, "%s: the ring lies in memory instead", mimo_last_error());
    }
    if (status == MIMO_ERR_IO) {
        status = mimo_ring_create(&it->ring, &it->self, it->rank, it->size, NULL);
        if (status == MIMO_ERR_IO)
            mimo_log(MIMO_LOG_WARNING, "%s: calls are not recorded", mimo_last_error());
    }
    return status == MIMO_ERR_IO ? MIMO_OK : status;
}

mimo_status mimo_recorder_begin(mimo_family *family, int rank, int size)
{
    mimo_recorder *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->rank = rank;
    made->size = size;
    mimo_ring_identify(&made->self);
    made->self.place = mimo_place_hash();
    mimo_status status = MIMO_OK;
    if (family->ring_ways != MIMO_RING_OFF)
        status = make_ring(made, family);
    family->ring_folder = NULL;
    if (status == MIMO_OK)
        family->recorder = made;
    else
        mimo_release(made);
    return status;
}

void mimo_recorder_end(mimo_family *family, bool stays)
{
    mimo_recorder *it = family->recorder;
    if (!it)
        return;
    family->recorder = NULL;
    for (int i = 0; i < it->peer_count; i++)
        mimo_ring_memory_release(&it->peers[i].memory);
    mimo_release(it->peers);
    mimo_release(it->members);
    if (it->let_go && !it->let_go(family, mimo_recorder_launches(family)))
        it->ring = NULL; /* it stays for good, as other memory does that the device may write */
    mimo_ring_destroy(it->ring, stays);
    mimo_release(it);
}

/* ------------------------------------- others ------------------------------------- */

void mimo_recorder_identity(mimo_ring_identity *out, const mimo_family *family)
{
    *out = family->recorder->self;
}

mimo_ring_life mimo_recorder_life(const mimo_family *family, int rank)
{
    const mimo_recorder *it = family->recorder;
    return it && it->members ? mimo_ring_life_of(&it->members[rank], &it->self) : MIMO_RING_UNKNOWN;
}

/* Whether another rank has a ring that this process may find. */
static bool is_near(const mimo_recorder *it, const mimo_ring_identity *other)
{
    const mimo_ring_identity *self = &it->self;
    return other->has_ring && other->pids == self->pids && other->boot[0] == self->boot[0] &&
           other->boot[1] == self->boot[1] && strcmp(other->host, self->host) == 0;
}

/* One that can't be read (another user's, a process that is not dumpable) stays out: verdicts say
 * so. The first ones behind this rank stay open. */
static void map_peer(mimo_recorder *it, const mimo_ring_identity *all, int rank)
{
    mimo_peer_ring *peer = &it->peers[it->peer_count];
    if (mimo_ring_memory_map(&peer->memory, all[rank].pid, all[rank].fd) != MIMO_OK)
        return;
    peer->rank = rank;
    if (it->peer_count >= KEPT_OPEN)
        mimo_ring_memory_close(&peer->memory);
    it->peer_count++;
}

mimo_status mimo_recorder_meet(mimo_family *family, const mimo_ring_identity *all)
{
    mimo_recorder *it = family->recorder;
    int near = 0;
    mimo_ring_join(it->ring, all);
    mimo_release(it->members); /* of those that go on after an end, the processes were known */
    it->members = NULL;
    MIMO_TRY(mimo_duplicate(&it->members, all, it->size, sizeof *all));
    for (int r = 0; r < it->size; r++)
        near += r != it->rank && is_near(it, &all[r]);
    MIMO_TRY(mimo_reserve(&it->peers, near, sizeof *it->peers));
    for (int i = 1; i < it->size; i++) {
        int rank = (it->rank + i) % it->size;
        if (is_near(it, &all[rank]))
            map_peer(it, all, rank);
    }
    return MIMO_OK;
}

/* ---------------------------------- communicators --------------------------------- */

void mimo_recorder_add(mimo_comm *comm, const int *ranks)
{
    mimo_ring *ring = ring_of(comm->family);
    int slot = mimo_ring_take_slot(ring, comm->id, ranks, comm->size);
    if (slot <= 0)
        return;
    comm->slot = comm->owner.slot = slot;
    mimo_recorder_share(comm);
}

void mimo_recorder_share(const mimo_comm *comm)
{
    mimo_ring *ring = ring_of(comm->family);
    if (ring && comm->slot > 0)
        mimo_ring_store(&ring->slots[comm->slot].owner,
                        (uint64_t)mimo_owner_of((mimo_comm *)comm)->slot);
}

void mimo_recorder_remove(mimo_comm *comm)
{
    mimo_ring *ring = ring_of(comm->family);
    if (!ring || comm->slot <= 0)
        return;
    mimo_owner *owner = mimo_owner_of(comm);
    if (owner->recorded == comm)
        owner->recorded = NULL;
    mimo_ring_give_slot(ring, comm->slot);
    comm->slot = 0;
}

void mimo_recorder_title(const mimo_comm *comm, const char *title)
{
    mimo_ring *ring = ring_of(comm->family);
    if (ring && comm->slot > 0)
        mimo_ring_store(&ring->slots[comm->slot].title, mimo_ring_name(ring, title));
}
