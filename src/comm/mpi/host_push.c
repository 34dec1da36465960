#include "comm/mpi/host_push.h"

#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"

struct mimo_host_push {
    mimo_host_push *next; /* in flight */
    mimo_buffer *buffer;  /* of the flags */
    bool idle;
    bool refused; /* by this rank or by a peer */
    uint64_t signature;
    int count, pusher_count;
    mimo_push *list;     /* list[count] */
    mimo_row_copy *rows; /* of all of them */
    int *pushers;        /* pushers[pusher_count] */
    /* By list and by pushers: the number of this call; 0 once that peer's rows are written, or
     * here. */
    uint64_t *serving, *awaiting;
    bool *asked; /* by pushers: READY is said, or need not be */
    int left;    /* how many are not 0 */
};

/* ----------------------------------------- flags ------------------------------------------ */

/* Flags lie in memory of several processes, and on devices kernels write them: so they are plain
 * words, and atomic where they are used. */

static mimo_flags *own_flags(const mimo_buffer *buffer, int peer)
{
    return &buffer->flags[buffer->comm->rank][peer];
}

static mimo_flags *peer_flags(const mimo_buffer *buffer, int peer)
{
    return &buffer->flags[peer][buffer->comm->rank];
}

static uint64_t seen(const uint64_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

/* ----------------------------------------- making ----------------------------------------- */

/* Peers from the first one above this rank on, and around: so no rank is everybody's first. */
static void copy_pushes(mimo_host_push *push, const mimo_pushes *pushes)
{
    int above = 0;
    mimo_row_copy *rows = push->rows;
    while (above < pushes->count && pushes->list[above].peer < pushes->buffer->comm->rank)
        above++;
    for (int i = 0; i < pushes->count; i++) {
        push->list[i] = pushes->list[(above + i) % pushes->count];
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
    push->signature = pushes->signature;
    push->pusher_count = pushes->pusher_count;
    MIMO_TRY(mimo_reserve(&push->list, pushes->count, sizeof *push->list));
    MIMO_TRY(mimo_reserve(&push->rows, rows, sizeof *push->rows));
    MIMO_TRY(mimo_reserve(&push->serving, pushes->count, sizeof *push->serving));
    MIMO_TRY(mimo_reserve(&push->awaiting, pushes->pusher_count, sizeof *push->awaiting));
    MIMO_TRY(mimo_reserve(&push->asked, pushes->pusher_count, sizeof *push->asked));
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
    mimo_release(push->serving);
    mimo_release(push->awaiting);
    mimo_release(push->asked);
    mimo_release(push);
}

/* ----------------------------------------- moving ----------------------------------------- */

/* Say READY, once the rows of earlier calls of that peer are here: it replaces theirs. */
static void ask(mimo_host_push *push, int i)
{
    int peer = push->pushers[i];
    uint64_t call = push->awaiting[i];
    if (!push->idle && mimo_done_calls(seen(&own_flags(push->buffer, peer)->done)) + 1 < call)
        return;
    push->asked[i] = true;
    if (!push->idle)
        __atomic_store_n(&peer_flags(push->buffer, peer)->ready,
                         mimo_ready_word(call, push->signature), __ATOMIC_RELEASE);
}

void mimo_host_push_start(mimo_host_flight *flight, mimo_host_push *push)
{
    mimo_host_push **last = &flight->first;
    push->refused = false;
    for (int i = 0; i < push->pusher_count; i++) {
        push->awaiting[i] = ++own_flags(push->buffer, push->pushers[i])->asked;
        push->asked[i] = false;
        ask(push, i);
    }
    for (int i = 0; i < push->count; i++)
        push->serving[i] = ++own_flags(push->buffer, push->list[i].peer)->served;
    push->left = push->count + push->pusher_count;
    while (*last)
        last = &(*last)->next;
    push->next = NULL;
    *last = push;
}

/* The first one is noted. */
static void note(mimo_host_push *push, int peer, uint64_t mine, uint64_t other)
{
    mimo_refusal *noted = &push->buffer->noted;
    push->refused = true;
    if (!noted->met)
        *noted = (mimo_refusal){mine, other, peer - push->buffer->comm->rank, 1};
}

/* A peer that asks by another call than this one gets nothing, and is told so. */
static bool refuses(mimo_host_push *push, int peer, uint64_t call, uint64_t word)
{
    uint64_t mine = mimo_ready_word(call, push->signature);
    if (push->idle || word == mine)
        return false;
    note(push, peer, mine, word);
    __atomic_fetch_or(&peer_flags(push->buffer, peer)->done, MIMO_PUSH_REFUSED, __ATOMIC_RELAXED);
    return true;
}

/* Write a peer's rows once it has asked for them. It has asked for those of earlier calls before,
 * and they are earlier in flight: so its done grows in the order of the calls. */
static mimo_status serve(mimo_host_push *push, int i)
{
    const mimo_push *rows = &push->list[i];
    uint64_t word = seen(&own_flags(push->buffer, rows->peer)->ready);
    if (!push->idle && mimo_ready_call(word) < push->serving[i])
        return MIMO_OK;
    int64_t count = rows->count - MIMO_MUTATED("push-all-but-last");
    if (refuses(push, rows->peer, push->serving[i], word))
        count = 0;
    for (int64_t n = 0; n < count; n++)
        MIMO_TRY(mimo_device_host.copy_rows(&rows->rows[n].to, &rows->rows[n].from, NULL));
    __atomic_fetch_add(&peer_flags(push->buffer, rows->peer)->done, MIMO_PUSH_UNIT,
                       __ATOMIC_RELEASE);
    push->serving[i] = 0;
    push->left--;
    return MIMO_OK;
}

static void look_for(mimo_host_push *push, int i)
{
    int peer = push->pushers[i];
    if (!push->asked[i])
        ask(push, i);
    uint64_t done = seen(&own_flags(push->buffer, peer)->done);
    if (mimo_done_calls(done) < push->awaiting[i])
        return;
    if (done & MIMO_PUSH_REFUSED)
        note(push, peer, mimo_ready_word(push->awaiting[i], push->signature), 0);
    push->awaiting[i] = 0;
    push->left--;
}

static mimo_status move(mimo_host_push *push)
{
    for (int i = 0; i < push->count; i++)
        if (push->serving[i] > 0)
            MIMO_TRY(serve(push, i));
    for (int i = 0; i < push->pusher_count; i++)
        if (push->awaiting[i] > 0)
            look_for(push, i);
    return MIMO_OK;
}

mimo_status mimo_host_push_move(mimo_host_flight *flight)
{
    for (mimo_host_push **at = &flight->first; *at;) {
        MIMO_TRY(move(*at));
        if (mimo_host_push_is_over(*at))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    return MIMO_OK;
}

bool mimo_host_push_is_over(const mimo_host_push *push)
{
    return push->left == 0;
}

mimo_status mimo_host_push_outcome(const mimo_host_push *push)
{
    return push->refused ? mimo_buffer_check(push->buffer) : MIMO_OK;
}

mimo_status mimo_host_push_check(const mimo_host_push *push)
{
    return mimo_buffer_check(push->buffer);
}

void mimo_host_push_leave(mimo_host_flight *flight, mimo_host_push *push)
{
    mimo_host_push **at = &flight->first;
    while (*at && *at != push)
        at = &(*at)->next;
    if (*at)
        *at = push->next;
}
