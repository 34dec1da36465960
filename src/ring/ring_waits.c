#include "ring/ring_waits.h"

#include "core/check.h"
#include "core/memory.h"

/* -------------------------------------- waits ------------------------------------- */

/* Whether a look before shows the same wait. */
static bool lasted(const mimo_ring_looked *it, const mimo_ring_seen *owner)
{
    if (!it->before)
        return true;
    const mimo_ring_seen *then = mimo_ring_find_slot(it->before, owner->slot);
    return then && then->comm == owner->comm && then->wait.slot == owner->wait.slot &&
           then->wait.calls == owner->wait.calls && then->wait.since == owner->wait.since;
}

static bool is_waiting(const mimo_ring_looked *it, const mimo_ring_seen *owner)
{
    return !it->now->closed && owner->inside && owner->wait.slot >= 0 && lasted(it, owner);
}

static mimo_ring_group *find_group(mimo_ring_waits *waits, uint64_t family, uint64_t comm,
                                   uint64_t calls)
{
    for (int i = 0; i < waits->count; i++) {
        mimo_ring_group *group = &waits->groups[i];
        if (group->family == family && group->comm == comm && group->calls == calls)
            return group;
    }
    return NULL;
}

static mimo_status add_waiter(mimo_ring_group *group, const mimo_ring_looked *ring, uint64_t thread)
{
    int count = group->waiter_count;
    if ((count & (count - 1)) == 0) { /* it grows by powers of two */
        MIMO_TRY(
            mimo_regrow(&group->waiters, count, count ? 2 * count : 1, sizeof *group->waiters));
        MIMO_TRY(
            mimo_regrow(&group->threads, count, count ? 2 * count : 1, sizeof *group->threads));
    }
    group->waiters[count] = ring;
    group->threads[count] = thread;
    group->waiter_count++;
    return MIMO_OK;
}

uint64_t mimo_ring_family_of(const mimo_ring_sample *ring)
{
    return ring->family ? ring->family : ring->owner.nonce;
}

bool mimo_ring_is_open(const mimo_ring_seen *comm)
{
    return comm->open.state >= MIMO_RING_BEGUN && comm->open.state <= MIMO_RING_MOVING;
}

/* How many calls of the communicator a rank must have begun to be in this one. Operations count
 * more than once, so their own number is asked where they have one. */
static uint64_t calls_for(const mimo_ring_seen *where, const mimo_ring_wait *wait)
{
    if (wait->any)
        return where->calls;
    return mimo_ring_is_open(where) ? where->open.number + 1 : wait->calls;
}

static mimo_status add_wait(mimo_ring_waits *waits, const mimo_ring_looked *it,
                            const mimo_ring_seen *where, const mimo_ring_wait *wait)
{
    uint64_t family = mimo_ring_family_of(it->now), calls = calls_for(where, wait);
    mimo_ring_group *group = find_group(waits, family, where->comm, calls);
    if (!group) {
        MIMO_TRY(mimo_regrow(&waits->groups, waits->count, waits->count + 1, sizeof *group));
        group = &waits->groups[waits->count++];
        *group = (mimo_ring_group){.family = family,
                                   .comm = where->comm,
                                   .calls = calls,
                                   .ring = it->now,
                                   .where = where,
                                   .words = wait->words,
                                   .any = wait->any != 0};
    }
    return add_waiter(group, it, wait->thread);
}

/* A wait for the work on a stream is one for each communicator: which of them the work belongs to
 * is not known. */
static mimo_status add_waits(mimo_ring_waits *waits, const mimo_ring_looked *it)
{
    for (int i = 0; i < it->now->count; i++) {
        const mimo_ring_seen *owner = &it->now->seen[i];
        if (!is_waiting(it, owner))
            continue;
        for (int s = 1; s < it->now->count; s++) {
            const mimo_ring_seen *where = &it->now->seen[s];
            if (owner->wait.any ? where->calls > 0 && where->size > 1
                                : where->slot == owner->wait.slot)
                MIMO_TRY(add_wait(waits, it, where, &owner->wait));
        }
    }
    return MIMO_OK;
}

/* ------------------------------------ blockers ------------------------------------ */

static const mimo_ring_sample *ring_of(const mimo_ring_world *world, uint64_t family, int rank)
{
    for (int i = 0; i < world->count; i++) {
        const mimo_ring_sample *ring = world->rings[i].now;
        if (ring->rank == rank && mimo_ring_family_of(ring) == family)
            return ring;
    }
    return NULL;
}

static const mimo_ring_seen *owner_of(const mimo_ring_sample *ring, const mimo_ring_seen *comm)
{
    const mimo_ring_seen *owner = comm ? mimo_ring_find_slot(ring, comm->owner) : NULL;
    return owner ? owner : mimo_ring_find_slot(ring, 0);
}

static bool is_down(mimo_ring_life life)
{
    return life == MIMO_RING_GONE || life == MIMO_RING_STOPPED;
}

/* A rank that looks again and again, without a wait, moves its part on. */
static bool looks_often(const mimo_ring_sample *ring, const mimo_ring_seen *comm,
                        const mimo_ring_seen *owner)
{
    int64_t last = owner->looked > comm->open.begun ? owner->looked : comm->open.begun;
    return ring->taken - last < MIMO_RING_LEFT_AFTER;
}

/* Whether a rank that has begun the call holds it up. */
static bool has_left(const mimo_ring_sample *ring, const mimo_ring_seen *comm, uint64_t calls)
{
    const mimo_ring_seen *owner = owner_of(ring, comm);
    return mimo_ring_is_open(comm) && comm->open.number + 1 == calls && owner && !owner->inside &&
           !looks_often(ring, comm, owner);
}

/* Whether the group lacks a rank, and why. */
static bool lacks(mimo_ring_blocker *it, const mimo_ring_group *group)
{
    const mimo_ring_seen *comm = it->ring ? mimo_ring_find_comm(it->ring, group->comm) : NULL;
    if (!it->ring)
        it->lack = it->life == MIMO_RING_GONE ? MIMO_RING_BEHIND : MIMO_RING_UNREAD;
    else if (!comm || comm->calls < group->calls)
        it->lack = MIMO_RING_BEHIND;
    else if (is_down(it->life))
        it->lack = MIMO_RING_DOWN;
    else if (has_left(it->ring, comm, group->calls))
        it->lack = MIMO_RING_LEFT;
    else
        return false;
    return true;
}

static mimo_status find_blockers(mimo_ring_group *group, const mimo_ring_world *world)
{
    const mimo_ring_sample *ring = group->ring;
    MIMO_TRY(mimo_reserve(&group->blockers, group->where->size, sizeof *group->blockers));
    for (int i = 0; i < group->where->size; i++) {
        int rank = mimo_ring_member(ring, group->where, i);
        if (rank < 0)
            continue;
        mimo_ring_blocker it = {.rank = rank, .process = &ring->members[rank]};
        it.ring = ring_of(world, group->family, rank);
        if (it.ring)
            it.process = &it.ring->owner;
        it.life = world->life(world->context, it.process);
        if (!lacks(&it, group))
            continue;
        group->unread += it.lack == MIMO_RING_UNREAD;
        group->blockers[group->blocker_count++] = it;
    }
    return MIMO_OK;
}

/* Ranks that have not begun a call explain it; of the others it is not known that they hold it up.
 * Where none is behind, those count that are down, and then those that have left. */
static void keep_strongest(mimo_ring_group *group)
{
    static const mimo_ring_lack order[] = {MIMO_RING_BEHIND, MIMO_RING_DOWN, MIMO_RING_LEFT,
                                           MIMO_RING_UNREAD};
    int kept = 0;
    for (size_t o = 0; o < sizeof order / sizeof order[0] && kept == 0; o++)
        for (int i = 0; i < group->blocker_count; i++)
            if (group->blockers[i].lack == order[o])
                group->blockers[kept++] = group->blockers[i];
    group->blocker_count = kept;
}

/* -------------------------------------- chains ------------------------------------ */

uint64_t mimo_ring_thread_of(const mimo_ring_sample *ring, uint64_t comm)
{
    const mimo_ring_seen *seen = mimo_ring_find_comm(ring, comm);
    const mimo_ring_seen *owner = seen ? owner_of(ring, seen) : NULL;
    return owner ? owner->thread : 0;
}

bool mimo_ring_keeps(const mimo_ring_group *group, const mimo_ring_blocker *blocker, uint64_t comm)
{
    if (!blocker->ring || is_down(blocker->life))
        return false;
    uint64_t thread = mimo_ring_thread_of(blocker->ring, comm);
    for (int i = 0; i < group->waiter_count; i++)
        if (mimo_ring_same_process(&group->waiters[i]->now->owner, blocker->process) &&
            (thread == 0 || group->threads[i] == thread))
            return true;
    return false;
}

/* Mark the blockers that wait themselves. */
static void mark_waiting(mimo_ring_waits *waits, mimo_ring_group *group)
{
    for (int b = 0; b < group->blocker_count; b++)
        for (int i = 0; i < waits->count; i++)
            if (mimo_ring_keeps(&waits->groups[i], &group->blockers[b], group->comm))
                group->blockers[b].waits = true;
}

static bool leads_to_end(const mimo_ring_waits *waits, const mimo_ring_group *group)
{
    if (group->blocker_count == 0)
        return true;
    for (int b = 0; b < group->blocker_count; b++) {
        if (!group->blockers[b].waits)
            return true;
        for (int i = 0; i < waits->count; i++)
            if (waits->groups[i].ends &&
                mimo_ring_keeps(&waits->groups[i], &group->blockers[b], group->comm))
                return true;
    }
    return false;
}

/* What is left without an end stands in a circle, or waits for one. */
static void find_ends(mimo_ring_waits *waits)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < waits->count; i++) {
            mimo_ring_group *group = &waits->groups[i];
            if (!group->ends && leads_to_end(waits, group))
                changed = group->ends = true;
        }
    }
}

/* ------------------------------------- all of it ----------------------------------- */

mimo_status mimo_ring_waits_find(mimo_ring_waits *out, const mimo_ring_world *world)
{
    *out = (mimo_ring_waits){NULL, 0};
    for (int i = 0; i < world->count; i++)
        MIMO_TRY(add_waits(out, &world->rings[i]));
    for (int i = 0; i < out->count; i++) {
        MIMO_TRY(find_blockers(&out->groups[i], world));
        keep_strongest(&out->groups[i]);
    }
    for (int i = 0; i < out->count; i++)
        mark_waiting(out, &out->groups[i]);
    find_ends(out);
    return MIMO_OK;
}

void mimo_ring_waits_release(mimo_ring_waits *waits)
{
    for (int i = 0; i < waits->count; i++) {
        mimo_release(waits->groups[i].waiters);
        mimo_release(waits->groups[i].threads);
        mimo_release(waits->groups[i].blockers);
    }
    mimo_release(waits->groups);
    *waits = (mimo_ring_waits){NULL, 0};
}
