/* Who waits for whom on devices. Where all ranks of an object make the same launches, and number
 * them alike, the kernels of one launch wait for each other. So a rank that has not begun a launch
 * which others run is waited for. Of other objects each rank is told by itself. */
#include <inttypes.h>

#include "ring/ring_judgement.h"

static const mimo_ring_launched *launched_of(const mimo_ring_looked *ring,
                                             const mimo_ring_launched *like)
{
    return ring->now->closed ? NULL : mimo_ring_find_launched(ring->now, like);
}

/* A kernel that runs in both looks, in the same launch. */
static bool runs(const mimo_ring_looked *ring, const mimo_ring_launched *it)
{
    const mimo_ring_launched *then =
        ring->before ? mimo_ring_find_launched(ring->before, it) : NULL;
    if (!it || mimo_ring_kernel_of(it) != MIMO_RING_KERNEL_RUNS)
        return false;
    return !ring->before || (then && then->begun == it->begun && then->ended == it->ended);
}

/* ----------------------------------- ranks behind --------------------------------- */

/* An object, and the ranks that can be compared: world->rings[first] is the first one that has it.
 */
typedef struct object {
    const mimo_ring_launched *like;
    uint64_t family;
    int first;
    uint64_t newest; /* launch that a kernel runs; 0: none does */
} object;

/* What a ring holds of the object; NULL: nothing, or it is another family's. */
static const mimo_ring_launched *part_of(const mimo_ring_judgement *it, const object *of, int i)
{
    const mimo_ring_looked *ring = &it->world->rings[i];
    return mimo_ring_family_of(ring->now) == of->family ? launched_of(ring, of->like) : NULL;
}

static uint64_t newest_launch(const mimo_ring_judgement *it, const object *of)
{
    uint64_t newest = 0;
    for (int i = of->first; i < it->world->count; i++) {
        const mimo_ring_launched *part = part_of(it, of, i);
        if (part && part->begun > newest && runs(&it->world->rings[i], part))
            newest = part->begun;
    }
    return newest;
}

/* Ranks that have not begun the newest launch; `run`: those whose kernel is in an earlier one.
 * These are waited for only where no other rank is behind. Returns the first; -1: there is none. */
static int list_behind(mimo_ring_judgement *it, const object *of, bool run, int *count)
{
    int first = -1;
    *count = 0;
    for (int i = of->first; i < it->world->count; i++) {
        const mimo_ring_launched *part = part_of(it, of, i);
        if (!part || part->begun >= of->newest ||
            (mimo_ring_kernel_of(part) == MIMO_RING_KERNEL_RUNS) != run)
            continue;
        first = first < 0 ? i : first;
        it->ranks[(*count)++] = it->world->rings[i].now->rank;
    }
    return first;
}

static void append_own_launch(mimo_ring_judgement *it, const mimo_ring_launched *part)
{
    const uint64_t more = part->enqueued - part->ended;
    mimo_ring_kernel kernel = mimo_ring_kernel_of(part);
    if (kernel == MIMO_RING_KERNEL_RUNS)
        mimo_ring_append(&it->text, "launch %" PRIu64 " runs there still", part->begun);
    else if (part->ended == 0)
        mimo_ring_append(&it->text, "none has begun there");
    else
        mimo_ring_append(&it->text, "launch %" PRIu64 " has ended there", part->ended);
    if (kernel == MIMO_RING_KERNEL_ENQUEUED)
        mimo_ring_append(&it->text, ", and %" PRIu64 "%s enqueued", more,
                         more == 1 ? " more is" : " more are");
    else if (kernel != MIMO_RING_KERNEL_RUNS && part->captured == 0)
        mimo_ring_append(&it->text, ", and none is enqueued");
}

static void append_runners(mimo_ring_judgement *it, const object *of)
{
    int count = 0;
    for (int i = of->first; i < it->world->count; i++) {
        const mimo_ring_launched *part = part_of(it, of, i);
        if (part && part->begun == of->newest && runs(&it->world->rings[i], part))
            it->ranks[count++] = it->world->rings[i].now->rank;
    }
    mimo_ring_append(&it->text, "; ");
    mimo_ring_append_list(it, count);
    mimo_ring_append(&it->text, count > 1 ? " run it" : " runs it");
}

static void tell_behind(mimo_ring_judgement *it, const object *of, int first, int count)
{
    const mimo_ring_sample *ring = it->world->rings[first].now;
    mimo_ring_begin_sentence(it);
    mimo_ring_append_list(it, count);
    mimo_ring_note_ranks(it, count);
    if (count == 1)
        mimo_ring_append_process(it, &ring->owner,
                                 it->world->life(it->world->context, &ring->owner));
    mimo_ring_append(&it->text,
                     " %s not begun launch %" PRIu64 " of %s on %s: ", count > 1 ? "have" : "has",
                     of->newest, of->like->title, count > 1 ? "their devices" : "its device");
    if (count > 1)
        mimo_ring_append(&it->text, "of rank %d ", ring->rank);
    append_own_launch(it, part_of(it, of, first));
    append_runners(it, of);
}

static bool was_told(const mimo_ring_judgement *it, const object *of)
{
    object before = *of;
    for (before.first = 0; before.first < of->first; before.first++)
        if (part_of(it, &before, before.first))
            return true;
    return false;
}

void mimo_ring_tell_devices(mimo_ring_judgement *it)
{
    for (int i = 0; i < it->world->count; i++) {
        const mimo_ring_sample *ring = it->world->rings[i].now;
        for (int l = 0; l < ring->launched_count; l++) {
            object of = {&ring->launched[l], mimo_ring_family_of(ring), i, 0};
            int count;
            if (!of.like->alike || ring->closed || was_told(it, &of))
                continue;
            of.newest = newest_launch(it, &of);
            int first = list_behind(it, &of, false, &count);
            if (first < 0)
                first = list_behind(it, &of, true, &count);
            if (of.newest > 0 && first >= 0)
                tell_behind(it, &of, first, count);
        }
    }
}

/* ------------------------------- those that wait -------------------------------- */

/* Whether a ring's kernel of an object is in the same state, in the same launch. */
static bool is_alike(const mimo_ring_looked *ring, const mimo_ring_launched *like)
{
    const mimo_ring_launched *part = launched_of(ring, like);
    return part && mimo_ring_kernel_of(part) == mimo_ring_kernel_of(like) &&
           part->begun == like->begun;
}

/* Those of a group's waiters, from one on. */
static int list_alike(mimo_ring_judgement *it, const mimo_ring_group *group,
                      const mimo_ring_launched *like, int from)
{
    int count = 0;
    for (int i = from; i < group->waiter_count; i++)
        if (is_alike(group->waiters[i], like))
            it->ranks[count++] = group->waiters[i]->now->rank;
    return count;
}

/* A waiter before this one is in the same state, and was told with it. */
static bool was_listed(const mimo_ring_group *group, const mimo_ring_launched *like, int before)
{
    for (int i = 0; i < before; i++)
        if (is_alike(group->waiters[i], like))
            return true;
    return false;
}

static void append_kernel(mimo_ring_judgement *it, const mimo_ring_group *group,
                          const mimo_ring_launched *like, int waiter)
{
    const bool is_running = mimo_ring_kernel_of(like) == MIMO_RING_KERNEL_RUNS;
    int count = list_alike(it, group, like, waiter);
    mimo_ring_append(&it->text, "; ");
    mimo_ring_append_list(it, count);
    if (is_running)
        mimo_ring_append(&it->text, " %s launch %" PRIu64 " of %s", count > 1 ? "run" : "runs",
                         like->begun, like->title);
    else
        mimo_ring_append(&it->text,
                         " %s enqueued launch %" PRIu64 " of %s, which waits for other work there",
                         count > 1 ? "have" : "has", like->begun + 1, like->title);
}

static bool has_gone_on(const mimo_ring_looked *ring)
{
    for (int l = 0; ring->before && l < ring->now->launched_count; l++) {
        const mimo_ring_launched *now = &ring->now->launched[l];
        const mimo_ring_launched *then = mimo_ring_find_launched(ring->before, now);
        if (then && (then->begun != now->begun || then->ended != now->ended))
            return true;
    }
    return false;
}

bool mimo_ring_append_kernels(mimo_ring_judgement *it, const mimo_ring_group *group)
{
    bool went_on = false;
    int known = 0, open = 0;
    for (int i = 0; i < group->waiter_count; i++) {
        const mimo_ring_sample *ring = group->waiters[i]->now;
        went_on = went_on || has_gone_on(group->waiters[i]);
        known += ring->launched_count > 0;
        for (int l = 0; l < ring->launched_count; l++) {
            const mimo_ring_launched *like = &ring->launched[l];
            mimo_ring_kernel kernel = mimo_ring_kernel_of(like);
            if (kernel != MIMO_RING_KERNEL_RUNS && kernel != MIMO_RING_KERNEL_ENQUEUED)
                continue;
            open++;
            if (!was_listed(group, like, i))
                append_kernel(it, group, like, i);
        }
    }
    bool all_ended = known == group->waiter_count && open == 0;
    if (all_ended)
        mimo_ring_append(&it->text, "; all kernels of this library have ended there");
    else if (went_on)
        mimo_ring_append(&it->text, "; kernels go on");
    return all_ended || went_on;
}
