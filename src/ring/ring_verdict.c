#include "ring/ring_verdict.h"

#include <inttypes.h>

#include "core/check.h"
#include "core/memory.h"
#include "ring/ring_judgement.h"

typedef mimo_ring_judgement judgement;

/* -------------------------------------- words ------------------------------------- */

static void append_waiters(judgement *it, const mimo_ring_group *group)
{
    for (int i = 0; i < group->waiter_count; i++)
        it->ranks[i] = group->waiters[i]->now->rank;
    mimo_ring_append_list(it, group->waiter_count);
}

/* The call of a group, as the first of its ranks has it. */
static void append_call(judgement *it, const mimo_ring_group *group)
{
    if (group->any)
        mimo_ring_append(&it->text, "%s", group->words);
    else if (mimo_ring_is_open(group->where))
        mimo_ring_append_call(&it->text, group->ring, &group->where->open);
    else
        mimo_ring_append(&it->text, "call %" PRIu64 ", %s", group->calls - 1, group->words);
}

/* The call that a rank has not begun: with a wait for a stream that is one of any communicator. */
static void append_missing_call(judgement *it, const mimo_ring_group *group)
{
    if (!group->any) {
        append_call(it, group);
        return;
    }
    mimo_ring_append(&it->text, "call %" PRIu64 " of %s", group->calls - 1,
                     group->where->title[0] ? group->where->title : "the communicator");
}

/* Calls of another communicator have other numbers. */
static void append_own_call(judgement *it, const mimo_ring_group *group,
                            const mimo_ring_sample *ring, const mimo_ring_call *call)
{
    mimo_ring_append_call(&it->text, ring, call);
    if (call->comm != group->comm)
        mimo_ring_append(&it->text, " of another communicator");
}

/* What a rank is in, or has been in last. */
static void append_past(judgement *it, const mimo_ring_group *group, const mimo_ring_blocker *of)
{
    const mimo_ring_sample *ring = of->ring;
    if (!ring) {
        mimo_ring_append(&it->text, "its ring can't be read");
        return;
    }
    uint64_t thread = mimo_ring_thread_of(ring, group->comm);
    for (int i = 1; i < ring->count; i++) {
        const mimo_ring_seen *comm = &ring->seen[i];
        const mimo_ring_seen *owner = mimo_ring_find_slot(ring, comm->owner);
        if (!mimo_ring_is_open(comm) || !owner || !owner->inside ||
            (thread != 0 && owner->thread != thread))
            continue;
        mimo_ring_append(&it->text, "it is in ");
        append_own_call(it, group, ring, &comm->open);
        mimo_ring_append(&it->text, ", for ");
        mimo_ring_append_time(&it->text, ring->taken - comm->open.begun);
        return;
    }
    if (ring->last.state == MIMO_RING_NONE) {
        mimo_ring_append(&it->text, "it has ended no call yet");
        return;
    }
    mimo_ring_append(&it->text, "its last one, ");
    append_own_call(it, group, ring, &ring->last);
    mimo_ring_append(&it->text, ", ended ");
    mimo_ring_append_time(&it->text, ring->taken - ring->last.ended);
    mimo_ring_append(&it->text, " ago");
}

/* ---------------------------------- ranks that lack -------------------------------- */

/* Whether two ranks stand in one sentence. Each rank that is down has one of its own. */
static bool alike(const mimo_ring_blocker *a, const mimo_ring_blocker *b)
{
    return a->lack == b->lack && a->life == b->life && a->life == MIMO_RING_RUNNING;
}

/* Roots that stand in one sentence with blocker `first`, into it->ranks. */
static int collect_alike(judgement *it, const mimo_ring_group *group, int first)
{
    int count = 0;
    for (int i = first; i < group->blocker_count; i++) {
        const mimo_ring_blocker *other = &group->blockers[i];
        if (!other->waits && (i == first || alike(&group->blockers[first], other)))
            it->ranks[count++] = other->rank;
    }
    return count;
}

static bool was_told(const mimo_ring_group *group, int i)
{
    for (int before = 0; before < i; before++)
        if (!group->blockers[before].waits && alike(&group->blockers[before], &group->blockers[i]))
            return true;
    return false;
}

static const char *predicate(const mimo_ring_blocker *of, int count)
{
    if (of->lack == MIMO_RING_DOWN)
        return of->life == MIMO_RING_GONE ? " is gone in " : " is stopped in ";
    if (of->lack == MIMO_RING_LEFT)
        return count > 1 ? " have begun and then left " : " has begun and then left ";
    if (of->life == MIMO_RING_GONE)
        return " is gone, and has not begun ";
    return count > 1 ? " have not begun " : " has not begun ";
}

static void tell_root(judgement *it, const mimo_ring_group *group, int i)
{
    const mimo_ring_blocker *root = &group->blockers[i];
    mimo_ring_begin_sentence(it);
    int count = collect_alike(it, group, i);
    mimo_ring_append_list(it, count);
    if (count == 1)
        mimo_ring_append_process(it, root->process, root->life);
    mimo_ring_append(&it->text, "%s", predicate(root, count));
    append_missing_call(it, group);
    mimo_ring_append(&it->text, ": ");
    if (count > 1)
        mimo_ring_append(&it->text, "of rank %d ", root->rank);
    append_past(it, group, root);
    mimo_ring_append(&it->text, "; ");
    append_waiters(it, group);
    mimo_ring_append(&it->text, group->waiter_count > 1 ? " wait " : " waits ");
    mimo_ring_append(&it->text, group->any ? "for work on a stream" : "in it");
}

static const char *why_unread(const mimo_ring_blocker *of)
{
    if (of->life != MIMO_RING_RUNNING && of->life != MIMO_RING_STOPPED)
        return mimo_ring_life_text(of->life);
    return of->process->has_ring ? "its ring may not be read: another user's process, or one that "
                                   "is not dumpable"
                                 : "its ring is off";
}

static void tell_unread(judgement *it, const mimo_ring_group *group)
{
    mimo_ring_begin_sentence(it);
    append_waiters(it, group);
    mimo_ring_append(&it->text, group->waiter_count > 1 ? " wait in " : " waits in ");
    append_call(it, group);
    for (int i = 0; i < group->blocker_count; i++)
        it->ranks[i] = group->blockers[i].rank;
    mimo_ring_append(&it->text, "; not readable from here: ");
    mimo_ring_append_list(it, group->blocker_count);
    mimo_ring_append(&it->text, " (%s)", why_unread(&group->blockers[0]));
}

static void note_roots(judgement *it, const mimo_ring_group *group)
{
    int count = 0;
    for (int i = 0; i < group->blocker_count; i++)
        if (!group->blockers[i].waits)
            it->ranks[count++] = group->blockers[i].rank;
    mimo_ring_note_ranks(it, count);
}

static void tell_roots(judgement *it, const mimo_ring_group *group)
{
    if (group->blocker_count == 0)
        return;
    if (group->blockers[0].lack == MIMO_RING_UNREAD) {
        tell_unread(it, group);
        return;
    }
    for (int i = 0; i < group->blocker_count; i++)
        if (!group->blockers[i].waits && !was_told(group, i))
            tell_root(it, group, i);
    note_roots(it, group);
}

/* ------------------------------------ other order ---------------------------------- */

static bool same_text(const mimo_ring_sample *a, uint32_t x, const mimo_ring_sample *b, uint32_t y)
{
    return strcmp(mimo_ring_name_at(a, x), mimo_ring_name_at(b, y)) == 0;
}

static bool same_call(const mimo_ring_sample *a, const mimo_ring_call *x, const mimo_ring_sample *b,
                      const mimo_ring_call *y)
{
    return same_text(a, x->verb, b, y->verb) && same_text(a, x->object, b, y->object) &&
           x->micro_batch == y->micro_batch;
}

static const mimo_ring_seen *comm_of(const mimo_ring_group *group, int waiter)
{
    return mimo_ring_find_comm(group->waiters[waiter]->now, group->comm);
}

/* The first waiter whose call of this number is another one than that of waiter `first`; -1. */
static int other_call(const mimo_ring_group *group, int first)
{
    const mimo_ring_seen *own = comm_of(group, first);
    for (int i = first + 1; own && mimo_ring_is_open(own) && i < group->waiter_count; i++) {
        const mimo_ring_seen *other = comm_of(group, i);
        if (other && mimo_ring_is_open(other) &&
            !same_call(group->waiters[first]->now, &own->open, group->waiters[i]->now,
                       &other->open))
            return i;
    }
    return -1;
}

/* All have begun the same number of calls, and the calls differ: without an agreement nobody
 * notices. */
static bool tell_mixed(judgement *it, const mimo_ring_group *group)
{
    int other = group->any ? -1 : other_call(group, 0);
    if (other < 0)
        return false;
    const int shown[2] = {0, other};
    mimo_ring_begin_sentence(it);
    for (int s = 0; s < 2; s++) {
        const mimo_ring_looked *first = group->waiters[shown[s]];
        const mimo_ring_call *call = &comm_of(group, shown[s])->open;
        int count = 0;
        for (int i = 0; i < group->waiter_count; i++)
            if (comm_of(group, i) &&
                same_call(first->now, call, group->waiters[i]->now, &comm_of(group, i)->open))
                it->ranks[count++] = group->waiters[i]->now->rank;
        mimo_ring_append_list(it, count);
        mimo_ring_append(&it->text, count > 1 ? " are in " : " is in ");
        mimo_ring_append_call(&it->text, first->now, call);
        mimo_ring_append(&it->text, s == 0 ? "; " : ": other calls");
    }
    return true;
}

/* Groups that stand in a circle. */
static void tell_circle(judgement *it)
{
    bool found = false;
    for (int i = 0; i < it->waits->count; i++) {
        const mimo_ring_group *group = &it->waits->groups[i];
        if (group->ends)
            continue;
        if (found)
            mimo_ring_append(&it->text, "; ");
        else
            mimo_ring_begin_sentence(it);
        found = true;
        append_waiters(it, group);
        mimo_ring_append(&it->text, group->waiter_count > 1 ? " are in " : " is in ");
        append_call(it, group);
    }
    if (found)
        mimo_ring_append(&it->text, ": other order");
}

/* ------------------------------------ data moves ----------------------------------- */

static uint64_t moved_by(const mimo_ring_sample *ring, uint64_t *steps)
{
    uint64_t bytes = 0;
    for (int i = 0; i < ring->count; i++) {
        bytes += ring->seen[i].moved;
        *steps += ring->seen[i].steps;
    }
    return bytes;
}

static void append_bytes(mimo_ring_text *to, uint64_t bytes)
{
    if (bytes >= 1 << 20)
        mimo_ring_append(to, "%" PRIu64 " MiB", bytes >> 20);
    else
        mimo_ring_append(to, "%" PRIu64 " bytes", bytes);
}

/* What moved between two looks at the ranks of a family, also those that do not wait: they may be
 * copying. */
typedef struct movement {
    int64_t bytes, steps;
    int64_t arrived; /* messages of requests that have not ended */
    int64_t between; /* nanoseconds; 0: there was one look */
} movement;

static int64_t arrived_at(const mimo_ring_sample *ring)
{
    int64_t arrived = 0;
    for (int i = 0; i < ring->count; i++)
        arrived += ring->seen[i].flight > 0 ? ring->seen[i].flight_arrived : 0;
    return arrived;
}

static movement movement_of(const judgement *it, uint64_t family)
{
    movement sum = {0, 0, 0, 0};
    for (int i = 0; i < it->world->count; i++) {
        const mimo_ring_looked *ring = &it->world->rings[i];
        uint64_t now = 0, then = 0;
        if (!ring->before || mimo_ring_family_of(ring->now) != family)
            continue;
        sum.bytes += (int64_t)(moved_by(ring->now, &now) - moved_by(ring->before, &then));
        sum.steps += (int64_t)(now - then); /* below 0 where a communicator was released */
        sum.arrived += arrived_at(ring->now) - arrived_at(ring->before);
        sum.between = ring->now->taken - ring->before->taken;
    }
    return sum;
}

/* Messages of a rank that waits, which move as a whole. */
typedef struct flight {
    int64_t bytes, longest; /* nanoseconds for the largest of them on a slow way */
    int64_t since;          /* nanoseconds, of those that are the longest on their way */
} flight;

static flight flight_of(const mimo_ring_group *group)
{
    flight all = {0, 0, 0};
    for (int i = 0; i < group->waiter_count; i++) {
        const mimo_ring_sample *ring = group->waiters[i]->now;
        for (int s = 0; s < ring->count; s++) {
            const mimo_ring_seen *seen = &ring->seen[s];
            if (seen->flight <= 0 || seen->flight > INT64_MAX / MIMO_RING_SLOW_BYTE / 2)
                continue;
            int64_t slow = seen->flight * MIMO_RING_SLOW_BYTE;
            int64_t since = ring->taken - seen->flight_since;
            all.bytes = seen->flight > all.bytes ? seen->flight : all.bytes;
            all.longest = slow > all.longest ? slow : all.longest;
            all.since = since > all.since ? since : all.since;
        }
    }
    return all;
}

/* True: they may move. */
static bool tell_flight(judgement *it, const flight *all)
{
    mimo_ring_append(&it->text, "; messages of up to ");
    append_bytes(&it->text, (uint64_t)all->bytes);
    mimo_ring_append(&it->text, " have been on their way for ");
    mimo_ring_append_time(&it->text, all->since);
    mimo_ring_append(&it->text, ", which show no part of themselves and take ");
    mimo_ring_append_time(&it->text, all->longest);
    mimo_ring_append(&it->text, " at 64 MB/s");
    return all->since <= all->longest;
}

/* Whether data moves, or may: where nothing says that it does not. */
static bool tell_moves(judgement *it, const mimo_ring_group *group)
{
    const movement moved = movement_of(it, group->family);
    const flight flying = flight_of(group);
    if (moved.bytes > 0 || moved.steps > 0 || moved.arrived > 0) {
        mimo_ring_append(&it->text, ", and data moves (");
        if (moved.bytes == 0 && moved.arrived > 0)
            mimo_ring_append(&it->text, "%" PRId64 " messages", moved.arrived);
        else
            append_bytes(&it->text, moved.bytes > 0 ? (uint64_t)moved.bytes : 0);
        mimo_ring_append(&it->text, " in ");
        mimo_ring_append_time(&it->text, moved.between);
        mimo_ring_append(&it->text, ")");
        return true;
    }
    if (flying.bytes > 0)
        return tell_flight(it, &flying);
    if (moved.between > 0) {
        mimo_ring_append(&it->text, ", and no data has moved in ");
        mimo_ring_append_time(&it->text, moved.between);
    }
    return false;
}

/* All that can be read are in the call. Returns whether data moves. */
static bool tell_all_in(judgement *it, const mimo_ring_group *group)
{
    mimo_ring_begin_sentence(it);
    bool all = group->waiter_count == group->where->size;
    if (all)
        mimo_ring_append(&it->text, "all ");
    append_waiters(it, group);
    mimo_ring_append(&it->text, group->waiter_count > 1 ? " are in " : " is in ");
    append_call(it, group);
    if (!all)
        mimo_ring_append(&it->text, ", which all others have begun");
    return group->any ? mimo_ring_append_kernels(it, group) : tell_moves(it, group);
}

/* ------------------------------------- all of it ----------------------------------- */

/* A wait for a stream counts for each communicator: those that lack nobody say nothing. */
static bool says_nothing(const mimo_ring_waits *waits, const mimo_ring_group *group)
{
    if (!group->any || group->blocker_count > 0)
        return false;
    for (const mimo_ring_group *other = waits->groups; other < waits->groups + waits->count;
         other++)
        if (other != group && (other->blocker_count > 0 || !other->any || other < group))
            return true;
    return false;
}

/* Ranks that wait for ranks that wait: told behind the roots. */
static void tell_chain(judgement *it, const mimo_ring_group *group)
{
    int count = 0;
    mimo_ring_begin_sentence(it);
    append_waiters(it, group);
    mimo_ring_append(&it->text, group->waiter_count > 1 ? " wait in " : " waits in ");
    append_call(it, group);
    for (int i = 0; i < group->blocker_count; i++)
        it->ranks[count++] = group->blockers[i].rank;
    mimo_ring_append(&it->text, " for ");
    mimo_ring_append_list(it, count);
}

static bool has_root(const mimo_ring_group *group)
{
    for (int i = 0; i < group->blocker_count; i++)
        if (!group->blockers[i].waits)
            return true;
    return false;
}

static void judge(judgement *it)
{
    const mimo_ring_waits *waits = it->waits;
    for (int i = 0; i < waits->count; i++)
        if (has_root(&waits->groups[i]))
            tell_roots(it, &waits->groups[i]);
    tell_circle(it);
    if (it->out->count == 0)
        mimo_ring_tell_devices(it);
    it->out->stands = it->text.used > 0;
    for (int i = 0; i < waits->count; i++) {
        const mimo_ring_group *group = &waits->groups[i];
        if (group->blocker_count == 0 && !says_nothing(waits, group))
            it->out->stands |= tell_mixed(it, group) || !tell_all_in(it, group);
    }
    for (int i = 0; i < waits->count; i++)
        if (waits->groups[i].ends && waits->groups[i].blocker_count > 0 &&
            !has_root(&waits->groups[i]))
            tell_chain(it, &waits->groups[i]);
    it->out->waits = waits->count > 0 || it->out->stands;
    if (!it->out->waits)
        mimo_ring_append(&it->text, "nobody waits");
}

static int most_ranks(const mimo_ring_waits *waits, const mimo_ring_world *world)
{
    int most = world->count > 0 ? world->count : 1;
    for (int i = 0; i < waits->count; i++) {
        const mimo_ring_group *group = &waits->groups[i];
        most = group->waiter_count > most ? group->waiter_count : most;
        most = group->blocker_count > most ? group->blocker_count : most;
    }
    return most;
}

mimo_status mimo_ring_judge(mimo_ring_verdict *out, const mimo_ring_world *world,
                            const char *separator)
{
    mimo_ring_waits waits;
    judgement it = {.out = out, .separator = separator, .world = world, .waits = &waits};
    memset(out, 0, sizeof *out);
    it.text = (mimo_ring_text){out->text, sizeof out->text, 0};
    mimo_status status = mimo_ring_waits_find(&waits, world);
    if (status == MIMO_OK)
        status = mimo_reserve(&it.ranks, most_ranks(&waits, world), sizeof *it.ranks);
    if (status == MIMO_OK)
        judge(&it);
    mimo_release(it.ranks);
    mimo_ring_waits_release(&waits);
    return status;
}
