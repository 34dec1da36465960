#include "comm/host/host_push.h"

#include <string.h>

#include "comm/peer_order.h"
#include "comm/recorder.h"
#include "core/memory.h"
#include "core/mutation.h"

struct mimo_host_push {
    mimo_host_push *next; /* in flight */
    mimo_buffer *buffer;  /* of the flags */
    bool idle;
    bool refused; /* by this rank or by a peer */
    uint64_t signature;
    char *const *bases; /* the exchange's */
    int count, pusher_count;
    mimo_push *list;        /* list[count] */
    mimo_placed_copy *rows; /* of all of them */
    int *pushers;           /* pushers[pusher_count] */
    uint64_t *writing;  /* writing[count]: the number of this call; 0 once the rows are written */
    uint64_t *awaiting; /* awaiting[pusher_count]: the same; 0 once the rows have arrived */
    bool *ready_sent;   /* ready_sent[pusher_count]: READY is set, or not needed */
    int remaining;      /* how many of writing and awaiting are not 0 */
};

/* ----------------------------------------- flags ------------------------------------------ */

/* Flags lie in memory of several processes, and on devices kernels write them. So their fields are
 * plain integers, and each access is atomic. */

static mimo_flags *own_flags(const mimo_buffer *buffer, int peer)
{
    return &buffer->flags[buffer->comm->rank][peer];
}

static mimo_flags *peer_flags(const mimo_buffer *buffer, int peer)
{
    return &buffer->flags[peer][buffer->comm->rank];
}

static uint64_t load(const uint64_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

/* ----------------------------------------- making ----------------------------------------- */

static void copy_pushes(mimo_host_push *push, const mimo_pushes *pushes)
{
    int rank = pushes->buffer->comm->rank;
    int first = mimo_first_peer(rank, pushes->list, pushes->count, sizeof *pushes->list);
    mimo_placed_copy *rows = push->rows;
    for (int i = 0; i < pushes->count; i++) {
        push->list[i] = pushes->list[(first + i) % pushes->count];
        memcpy(rows, push->list[i].rows, (size_t)push->list[i].count * sizeof *rows);
        push->list[i].rows = rows;
        rows += push->list[i].count;
    }
    push->count = pushes->count;
}

static mimo_status fill(mimo_host_push *push, const mimo_pushes *pushes)
{
    int64_t rows = 0;
    for (int i = 0; i < pushes->count; i++)
        rows += pushes->list[i].count;
    push->buffer = pushes->buffer;
    push->idle = pushes->idle;
    push->pusher_count = pushes->pusher_count;
    MIMO_TRY(mimo_reserve(&push->list, pushes->count, sizeof *push->list));
    MIMO_TRY(mimo_reserve(&push->rows, rows, sizeof *push->rows));
    MIMO_TRY(mimo_reserve(&push->writing, pushes->count, sizeof *push->writing));
    MIMO_TRY(mimo_reserve(&push->awaiting, pushes->pusher_count, sizeof *push->awaiting));
    MIMO_TRY(mimo_reserve(&push->ready_sent, pushes->pusher_count, sizeof *push->ready_sent));
    MIMO_TRY(mimo_duplicate(&push->pushers, pushes->pushers, pushes->pusher_count,
                            sizeof *push->pushers));
    copy_pushes(push, pushes);
    return MIMO_OK;
}

mimo_status mimo_host_push_create(mimo_host_push **out, const mimo_pushes *pushes)
{
    mimo_host_push *push;
    *out = NULL;
    if (pushes->count == 0 && pushes->pusher_count == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&push, 1, sizeof *push));
    mimo_status status = fill(push, pushes);
    if (status == MIMO_OK)
        *out = push;
    else
        mimo_host_push_destroy(push);
    return status;
}

void mimo_host_push_destroy(mimo_host_push *push)
{
    if (!push)
        return;
    mimo_release(push->list);
    mimo_release(push->rows);
    mimo_release(push->pushers);
    mimo_release(push->writing);
    mimo_release(push->awaiting);
    mimo_release(push->ready_sent);
    mimo_release(push);
}

void mimo_host_push_bind(mimo_host_push *push, char *const *bases, uint64_t signature)
{
    push->bases = bases;
    push->signature = signature;
}

/* ---------------------------------------- progress ---------------------------------------- */

/* Set READY for a pusher, once the rows of its earlier calls have arrived: READY of this call
 * replaces that of the call before. */
static void send_ready(mimo_host_push *push, int i)
{
    int peer = push->pushers[i];
    uint64_t call = push->awaiting[i];
    if (!push->idle && mimo_done_calls(load(&own_flags(push->buffer, peer)->done)) + 1 < call)
        return;
    push->ready_sent[i] = true;
    if (!push->idle)
        __atomic_store_n(&peer_flags(push->buffer, peer)->ready,
                         mimo_ready_value(call, push->signature), __ATOMIC_RELEASE);
}

void mimo_host_push_start(mimo_host_pushes_in_flight *flight, mimo_host_push *push)
{
    mimo_host_push **last = &flight->first;
    push->refused = false;
    for (int i = 0; i < push->pusher_count; i++) {
        push->awaiting[i] = ++own_flags(push->buffer, push->pushers[i])->receives;
        push->ready_sent[i] = false;
        send_ready(push, i);
    }
    for (int i = 0; i < push->count; i++)
        push->writing[i] = ++own_flags(push->buffer, push->list[i].peer)->sends;
    push->remaining = push->count + push->pusher_count;
    while (*last)
        last = &(*last)->next;
    push->next = NULL;
    *last = push;
}

/* Note a refusal; only the first one of a buffer is kept. */
static void note(mimo_host_push *push, int peer, uint64_t mine, uint64_t other)
{
    mimo_refusal *noted = &push->buffer->noted;
    push->refused = true;
    if (!noted->noted)
        *noted = (mimo_refusal){mine, other, peer - push->buffer->comm->rank, 1};
}

/* Refuse a peer whose READY belongs to a different call: it gets no rows, and its DONE says so. */
static bool refuses(mimo_host_push *push, int peer, uint64_t call, uint64_t ready)
{
    uint64_t mine = mimo_ready_value(call, push->signature);
    if (push->idle || ready == mine)
        return false;
    note(push, peer, mine, ready);
    __atomic_fetch_or(&peer_flags(push->buffer, peer)->done, MIMO_PUSH_REFUSED, __ATOMIC_RELAXED);
    return true;
}

/* Write a peer's rows once its READY allows it. Earlier calls are earlier in flight and were
 * allowed before, so the peer's DONE grows in the order of the calls. */
static mimo_status write_rows(mimo_host_push *push, int i)
{
    const mimo_push *rows = &push->list[i];
    uint64_t ready = load(&own_flags(push->buffer, rows->peer)->ready);
    if (!push->idle && mimo_ready_call(ready) < push->writing[i])
        return MIMO_OK;
    int64_t count = rows->count;
    if (MIMO_MUTATED("push-all-but-last"))
        count--;
    if (refuses(push, rows->peer, push->writing[i], ready))
        count = 0;
    for (int64_t n = 0; n < count; n++) {
        const mimo_rows to = mimo_rows_at(&rows->rows[n].to, push->bases);
        const mimo_rows from = mimo_rows_at(&rows->rows[n].from, push->bases);
        MIMO_TRY(mimo_device_host.copy_rows(&to, &from, NULL));
        mimo_record_bytes(push->buffer->comm, mimo_rows_bytes(&from));
    }
    __atomic_fetch_add(&peer_flags(push->buffer, rows->peer)->done, MIMO_PUSH_UNIT,
                       __ATOMIC_RELEASE);
    push->writing[i] = 0;
    push->remaining--;
    return MIMO_OK;
}

/* See whether a pusher's rows have arrived. */
static void await_rows(mimo_host_push *push, int i)
{
    int peer = push->pushers[i];
    if (!push->ready_sent[i])
        send_ready(push, i);
    uint64_t done = load(&own_flags(push->buffer, peer)->done);
    if (mimo_done_calls(done) < push->awaiting[i])
        return;
    if (done & MIMO_PUSH_REFUSED)
        note(push, peer, mimo_ready_value(push->awaiting[i], push->signature), 0);
    push->awaiting[i] = 0;
    push->remaining--;
}

static mimo_status progress(mimo_host_push *push)
{
    for (int i = 0; i < push->count; i++)
        if (push->writing[i] > 0)
            MIMO_TRY(write_rows(push, i));
    for (int i = 0; i < push->pusher_count; i++)
        if (push->awaiting[i] > 0)
            await_rows(push, i);
    return MIMO_OK;
}

mimo_status mimo_host_push_progress(mimo_host_pushes_in_flight *flight)
{
    for (mimo_host_push **link = &flight->first; *link;) {
        MIMO_TRY(progress(*link));
        if (mimo_host_push_is_complete(*link))
            *link = (*link)->next;
        else
            link = &(*link)->next;
    }
    return MIMO_OK;
}

bool mimo_host_push_is_complete(const mimo_host_push *push)
{
    return push->remaining == 0;
}

mimo_status mimo_host_push_status(const mimo_host_push *push)
{
    return push->refused ? mimo_buffer_check(push->buffer) : MIMO_OK;
}

mimo_status mimo_host_push_check(const mimo_host_push *push)
{
    return mimo_buffer_check(push->buffer);
}

void mimo_host_push_remove(mimo_host_pushes_in_flight *flight, mimo_host_push *push)
{
    mimo_host_push **link = &flight->first;
    while (*link && *link != push)
        link = &(*link)->next;
    if (*link)
        *link = push->next;
}
