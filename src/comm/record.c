/* What calls and waits write into the family's ring. */
#include <string.h>
#include <time.h>

#include "comm/recorder.h"
#include "comm/waiter.h"
#include "core/letters.h"

static mimo_ring *ring_of(const mimo_comm *comm)
{
    const mimo_recorder *recorder = comm->family->recorder;
    return recorder ? recorder->ring : NULL;
}

/* Where threads use different communicators at once, one that found no slot has no place of its own
 * to write to. */
static bool has_place(const mimo_comm *comm, const mimo_owner *owner)
{
    return ring_of(comm) && (owner->slot > 0 || !comm->family->parallel);
}

/* A few milliseconds behind, for a tenth of the time that the exact one takes. */
static int64_t coarse_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* -------------------------------------- names ------------------------------------- */

/* "mimo_comm_agree" is "agree". */
static const char *short_name(const char *call)
{
    static const char *const prefixes[] = {"mimo_comm_", "mimo_"};
    for (int i = 0; i < 2; i++)
        if (strncmp(call, prefixes[i], strlen(prefixes[i])) == 0)
            return call + strlen(prefixes[i]);
    return call;
}

/* The names of public calls are constants, so their addresses are known again. */
static uint32_t verb_of(mimo_ring *ring, mimo_comm *comm, const char *call)
{
    enum { VERBS = sizeof comm->verbs / sizeof comm->verbs[0] };
    if (!call)
        return 0;
    int at = (int)((uintptr_t)call / 4 % VERBS);
    if (comm->verbs[at].text != call) {
        comm->verbs[at].name = mimo_ring_name(ring, short_name(call));
        comm->verbs[at].text = call;
    }
    return comm->verbs[at].name;
}

/* ------------------------------------- records ------------------------------------ */

static void begin(mimo_ring_call *call, const mimo_comm *comm, uint64_t number)
{
    call->comm = comm->id;
    call->number = number;
    call->begun = mimo_now();
    call->agreed = call->moving = call->ended = 0;
    call->thread = (uint64_t)(uintptr_t)mimo_this_thread();
    call->state = MIMO_RING_BEGUN;
    call->status = MIMO_OK;
}

static void end(mimo_ring *ring, const mimo_comm *comm, mimo_ring_call *call)
{
    if (call->status == MIMO_OK)
        call->status = mimo_family_status(comm->family);
    call->ended = mimo_now();
    call->state = call->status == MIMO_OK ? MIMO_RING_ENDED : MIMO_RING_FAILED;
    if (comm->slot > 0)
        mimo_ring_show(ring, comm->slot, call);
    if (comm->family->parallel)
        mimo_ring_keep(ring, call);
    else
        mimo_ring_keep_alone(ring, call);
}

static void end_recorded(mimo_ring *ring, mimo_owner *owner)
{
    if (owner->recorded)
        end(ring, owner->recorded, &owner->record);
    owner->recorded = NULL;
}

static void begin_scope_record(mimo_ring *ring, mimo_comm *comm, uint64_t number)
{
    mimo_owner *owner = mimo_owner_of(comm);
    end_recorded(ring, owner);
    begin(&owner->record, comm, number);
    owner->record.object =
        owner->object ? owner->object : (uint32_t)mimo_ring_load(&ring->slots[comm->slot].title);
    owner->record.verb = verb_of(ring, comm, owner->call);
    owner->record.micro_batch = -1;
    owner->record.bytes = -1;
    owner->object = 0;
    owner->recorded = comm;
    mimo_ring_show(ring, comm->slot, &owner->record);
}

static void begin_own(mimo_ring *ring, mimo_record *own, mimo_comm *comm, uint64_t number)
{
    begin(&own->call, comm, number);
    own->call.object = (uint32_t)mimo_ring_load(&ring->slots[own->of->slot].title);
    own->call.verb = verb_of(ring, comm, own->verb);
    own->call.micro_batch = own->micro_batch;
    own->call.chunks = own->chunks;
    own->call.bytes = own->bytes;
    own->comm = comm;
    mimo_ring_show(ring, comm->slot, &own->call);
}

/* An operation that agrees again is in the same call still. */
void mimo_record_begin(mimo_comm *comm, uint64_t number, mimo_record *own)
{
    mimo_ring *ring = ring_of(comm);
    if (!ring || comm->slot <= 0)
        return;
    mimo_record_count(comm);
    if (own && !own->comm)
        begin_own(ring, own, comm, number);
    else if (!own && mimo_owner_of(comm)->thread == mimo_this_thread())
        begin_scope_record(ring, comm, number);
}

void mimo_record_agreed(mimo_comm *comm, mimo_status status)
{
    mimo_ring *ring = ring_of(comm);
    mimo_owner *owner = ring ? mimo_owner_of(comm) : NULL;
    if (!owner || owner->recorded != comm)
        return;
    owner->record.status = (int32_t)status;
    owner->record.state = MIMO_RING_AGREED;
}

void mimo_record_moving(mimo_comm *comm)
{
    mimo_ring *ring = ring_of(comm);
    mimo_owner *owner = ring ? mimo_owner_of(comm) : NULL;
    if (!owner || owner->recorded != comm)
        return;
    owner->record.state = MIMO_RING_MOVING;
    owner->record.agreed = owner->record.moving = coarse_now();
    mimo_ring_show(ring, comm->slot, &owner->record);
}

/* Where operations agree on the parent, that was a call of the parent, and this is another one. */
void mimo_record_op_moves(mimo_record *own, mimo_comm *comm)
{
    mimo_ring *ring = ring_of(comm);
    if (!ring || comm->slot <= 0)
        return;
    if (own->comm && own->comm != comm)
        mimo_record_op_ended(own, MIMO_OK);
    if (!own->comm)
        begin_own(ring, own, comm, comm->calls);
    own->call.agreed = own->call.moving = coarse_now();
    own->call.state = MIMO_RING_MOVING;
    mimo_ring_show(ring, comm->slot, &own->call);
}

void mimo_record_op_ended(mimo_record *own, mimo_status status)
{
    mimo_comm *comm = own->comm;
    if (!comm)
        return;
    own->call.status = (int32_t)status;
    end(ring_of(comm), comm, &own->call);
    own->comm = NULL;
}

void mimo_record_object(mimo_comm *comm, const char *name)
{
    mimo_ring *ring = ring_of(comm);
    if (ring)
        mimo_owner_of(comm)->object = mimo_ring_name(ring, name);
}

/* -------------------------------------- scopes ------------------------------------ */

void mimo_record_enter(mimo_comm *comm, mimo_owner *owner, const char *call)
{
    if (!has_place(comm, owner))
        return;
    mimo_ring_slot *slot = &ring_of(comm)->slots[owner->slot];
    owner->call = call;
    mimo_ring_store(&slot->thread, (uint64_t)(uintptr_t)owner->thread);
    mimo_ring_store(&slot->inside, 1);
}

static void clear_wait(mimo_ring *ring, mimo_owner *owner)
{
    const mimo_ring_wait none = {.slot = -1};
    mimo_ring_line_write(&ring->slots[owner->slot].wait, &none);
    mimo_ring_store(&ring->slots[owner->slot].flight, 0);
    owner->waiter = NULL;
}

void mimo_record_leave(mimo_comm *comm, mimo_owner *owner)
{
    mimo_ring *ring = ring_of(comm);
    if (!has_place(comm, owner))
        return;
    end_recorded(ring, owner);
    if (owner->waiter)
        clear_wait(ring, owner);
    owner->object = 0;
    mimo_ring_store(&ring->slots[owner->slot].inside, 0);
}

/* -------------------------------------- counts ------------------------------------ */

void mimo_record_count(const mimo_comm *comm)
{
    mimo_ring *ring = ring_of(comm);
    if (ring && comm->slot > 0)
        mimo_ring_store(&ring->slots[comm->slot].calls, comm->calls);
}

void mimo_record_bytes(const mimo_comm *comm, int64_t bytes)
{
    mimo_ring *ring = ring_of(comm);
    if (!ring || comm->slot <= 0 || bytes <= 0)
        return;
    uint64_t *moved = &ring->slots[comm->slot].moved;
    mimo_ring_store(moved, mimo_ring_load(moved) + (uint64_t)bytes);
}

void mimo_record_step(const mimo_comm *comm, int64_t bytes)
{
    mimo_ring *ring = ring_of(comm);
    if (!ring || comm->slot <= 0)
        return;
    mimo_ring_store(&ring->slots[comm->slot].steps, comm->ended);
    mimo_record_bytes(comm, bytes);
}

/* -------------------------------------- waits ------------------------------------- */

static mimo_owner *waiting_owner(const mimo_waiter *waiter)
{
    mimo_comm *comm = waiter->comm;
    if (!comm || !ring_of(comm) || comm->slot <= 0)
        return NULL;
    mimo_owner *owner = mimo_owner_of(comm);
    return owner->thread == mimo_this_thread() ? owner : NULL;
}

/* Where an operation agrees on the parent, its own communicator has no open call. Then it waits for
 * that of the parent. */
static int slot_waited_for(const mimo_ring *ring, const mimo_comm *comm)
{
    mimo_ring_call open = {.state = MIMO_RING_NONE};
    const mimo_comm *parent = comm->used_with;
    if (!parent || parent->slot <= 0)
        return comm->slot;
    (void)mimo_ring_line_read(&open, &ring->slots[comm->slot].open);
    bool is_open = open.state >= MIMO_RING_BEGUN && open.state <= MIMO_RING_MOVING;
    return is_open ? comm->slot : parent->slot;
}

/* Messages that the transport moves as a whole: of these nothing shows before the last byte. */
static void record_flight(mimo_ring_slot *slot, const mimo_waiter *waiter)
{
    const mimo_comm *comm = waiter->comm;
    uint64_t bytes = (uint64_t)mimo_bytes_moving(comm, waiter->request);
    if (mimo_ring_load(&slot->flight) == bytes &&
        mimo_ring_load(&slot->flight_ended) == comm->ended &&
        mimo_ring_load(&slot->flight_arrived) == (uint64_t)waiter->arrived)
        return;
    mimo_ring_store(&slot->flight, bytes);
    mimo_ring_store(&slot->flight_arrived, (uint64_t)waiter->arrived);
    mimo_ring_store(&slot->flight_ended, comm->ended);
    mimo_ring_store(&slot->flight_since, (uint64_t)waiter->clock.last_check);
}

void mimo_record_wait(const mimo_waiter *waiter)
{
    mimo_owner *owner = waiting_owner(waiter);
    if (!owner)
        return;
    mimo_ring *ring = ring_of(waiter->comm);
    mimo_ring_slot *slots = ring->slots;
    mimo_ring_store(&slots[owner->slot].looked, (uint64_t)waiter->clock.last_check);
    record_flight(&slots[owner->slot], waiter);
    if (owner->waiter == waiter)
        return;
    owner->waiter = waiter;
    int slot = slot_waited_for(ring, waiter->comm);
    mimo_ring_wait wait = {.slot = slot,
                           .any = waiter->any,
                           .calls = mimo_ring_load(&slots[slot].calls),
                           .since = mimo_now(),
                           .thread = (uint64_t)(uintptr_t)owner->thread};
    mimo_copy_text(wait.words, sizeof wait.words, waiter->call ? waiter->call : "");
    mimo_ring_line_write(&slots[owner->slot].wait, &wait);
}

void mimo_record_wait_over(const mimo_waiter *waiter)
{
    mimo_owner *owner = waiting_owner(waiter);
    if (owner && owner->waiter == waiter)
        clear_wait(ring_of(waiter->comm), owner);
}
