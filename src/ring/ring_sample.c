#include "ring/ring_sample.h"

#include <time.h>

#include "core/check.h"
#include "core/memory.h"

static const mimo_ring_head *head_of(const mimo_ring_memory *memory)
{
    return (const mimo_ring_head *)memory->base;
}

/* The ranks that a ring of this many bytes has room for. The head says so too, but its owner could
 * change that while it is read. */
static int32_t ranks_of(const mimo_ring_memory *memory)
{
    const size_t none = mimo_ring_parts_of(0).bytes, each = mimo_ring_parts_of(1).bytes - none;
    size_t ranks = memory->bytes >= none ? (memory->bytes - none) / each : 0;
    return ranks <= INT32_MAX / 2 ? (int32_t)ranks : 0;
}

static mimo_ring_parts parts_of(const mimo_ring_memory *memory)
{
    return mimo_ring_parts_of(ranks_of(memory));
}

static mimo_status check_head(const mimo_ring_memory *memory)
{
    const mimo_ring_head *head = head_of(memory);
    MIMO_CHECK(memory->bytes >= sizeof *head &&
                   __atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) == MIMO_RING_MAGIC,
               MIMO_ERR_IO, "%zu bytes that are no ring", memory->bytes);
    MIMO_CHECK(head->version == MIMO_RING_VERSION && head->slots == MIMO_RING_SLOTS, MIMO_ERR_IO,
               "a ring of version %d with %d slots; this library reads version %d with %d",
               (int)head->version, (int)head->slots, MIMO_RING_VERSION, MIMO_RING_SLOTS);
    MIMO_CHECK(ranks_of(memory) > 0 && head->size == ranks_of(memory) && head->rank >= 0 &&
                   head->rank < head->size,
               MIMO_ERR_IO, "a ring of rank %d of %d in %zu bytes", (int)head->rank,
               (int)head->size, memory->bytes);
    return MIMO_OK;
}

/* -------------------------------------- times ------------------------------------- */

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Hosts share no monotonic clock. What stands between theirs is as good as their real ones. */
static int64_t now_of(const mimo_ring_head *head, const mimo_ring_identity *self)
{
    bool same = memcmp(head->owner.boot, self->boot, sizeof self->boot) == 0;
    if (same)
        return read_clock(CLOCK_MONOTONIC);
    return read_clock(CLOCK_REALTIME) - head->real + head->monotonic;
}

/* -------------------------------------- slots ------------------------------------- */

static const int32_t *list_of(const mimo_ring_memory *memory, const mimo_ring_slot *slot, int *size)
{
    const mimo_ring_parts parts = parts_of(memory);
    uint64_t at = mimo_ring_load(&slot->members), ranks = mimo_ring_load(&slot->size);
    bool all = at == MIMO_RING_ALL;
    bool inside = ranks <= parts.lists_most && at <= parts.lists_most - ranks;
    *size = all || inside ? (int)ranks : 0;
    if (all && ranks > (uint64_t)ranks_of(memory))
        *size = 0;
    return all || !inside ? NULL : (const int32_t *)(memory->base + parts.lists) + at;
}

static void read_words(mimo_ring_seen *out, const mimo_ring_slot *slot)
{
    out->comm = mimo_ring_load(&slot->comm);
    out->thread = mimo_ring_load(&slot->thread);
    out->moved = mimo_ring_load(&slot->moved);
    out->steps = mimo_ring_load(&slot->steps);
    out->looked = (int64_t)mimo_ring_load(&slot->looked);
    out->flight = (int64_t)mimo_ring_load(&slot->flight);
    out->flight_since = (int64_t)mimo_ring_load(&slot->flight_since);
    out->flight_arrived = (int64_t)mimo_ring_load(&slot->flight_arrived);
    out->owner = (int)mimo_ring_load(&slot->owner);
    out->inside = mimo_ring_load(&slot->inside) > 0;
}

/* What a slot holds. The calls are read last: then the call that a thread waits in counts. */
static bool read_slot(mimo_ring_seen *out, mimo_ring_sample *sample, const mimo_ring_memory *memory,
                      int number)
{
    const mimo_ring_slot *slots = (const void *)(memory->base + parts_of(memory).slots);
    const mimo_ring_slot *slot = &slots[number];
    uint64_t generation = __atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE);
    if (generation % 2 == 0)
        return false;
    *out = (mimo_ring_seen){.slot = number};
    read_words(out, slot);
    out->ranks = list_of(memory, slot, &out->size);
    out->title = mimo_ring_name_at(sample, mimo_ring_load(&slot->title));
    sample->torn += mimo_ring_line_read(&out->open, &slot->open) == 0;
    if (mimo_ring_line_read(&out->wait, &slot->wait) == 0) {
        sample->torn++;
        out->wait.slot = -1;
    }
    out->wait.words[MIMO_RING_WORDS_TEXT - 1] = '\0';
    if (!out->inside)
        out->wait.slot = -1;
    out->calls = mimo_ring_load(&slot->calls);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return mimo_ring_load(&slot->generation) == generation;
}

static int count_used(const mimo_ring_memory *memory)
{
    const mimo_ring_slot *slots = (const void *)(memory->base + parts_of(memory).slots);
    int used = 0;
    for (int i = 0; i < MIMO_RING_SLOTS; i++)
        used += mimo_ring_load(&slots[i].generation) % 2 == 1;
    return used;
}

/* A slot that changes hands meanwhile is read again. */
static void read_slots(mimo_ring_sample *sample, const mimo_ring_memory *memory, int room)
{
    for (int i = 0; i < MIMO_RING_SLOTS && sample->count < room; i++) {
        bool is_read = false;
        for (int attempt = 0; attempt < MIMO_RING_TRIES && !is_read; attempt++)
            is_read = read_slot(&sample->seen[sample->count], sample, memory, i);
        sample->count += is_read;
    }
}

/* ------------------------------------- launches ----------------------------------- */

/* Ends are read before begins, and these before what the host has enqueued: who moves on meanwhile
 * is not taken for one that is further behind. */
static bool read_launched(mimo_ring_launched *out, const mimo_ring_sample *sample,
                          const mimo_ring_launches *from)
{
    uint64_t generation = __atomic_load_n(&from->generation, __ATOMIC_ACQUIRE);
    if (generation % 2 == 0)
        return false;
    out->ended = __atomic_load_n(&from->ended, __ATOMIC_ACQUIRE);
    out->begun = __atomic_load_n(&from->begun, __ATOMIC_ACQUIRE);
    out->enqueued = mimo_ring_load(&from->enqueued);
    out->captured = mimo_ring_load(&from->captured);
    out->comm = mimo_ring_load(&from->comm);
    out->alike = mimo_ring_load(&from->alike) != 0;
    out->title = mimo_ring_name_at(sample, mimo_ring_load(&from->title));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return mimo_ring_load(&from->generation) == generation;
}

static void read_launches(mimo_ring_sample *sample, const mimo_ring_memory *memory)
{
    const mimo_ring_launches *all = (const void *)(memory->base + parts_of(memory).launches);
    for (int i = 0; i < MIMO_RING_LAUNCHES; i++)
        sample->launched_count +=
            read_launched(&sample->launched[sample->launched_count], sample, &all[i]);
}

mimo_ring_kernel mimo_ring_kernel_of(const mimo_ring_launched *it)
{
    if (it->begun > it->ended)
        return MIMO_RING_KERNEL_RUNS;
    if (it->captured == 0 && it->enqueued > it->ended)
        return MIMO_RING_KERNEL_ENQUEUED;
    return it->ended > 0 ? MIMO_RING_KERNEL_DONE : MIMO_RING_KERNEL_NONE;
}

const char *mimo_ring_kernel_text(mimo_ring_kernel kernel)
{
    static const char *const texts[] = {
        [MIMO_RING_KERNEL_NONE] = "none",
        [MIMO_RING_KERNEL_ENQUEUED] = "enqueued",
        [MIMO_RING_KERNEL_RUNS] = "runs",
        [MIMO_RING_KERNEL_DONE] = "done",
    };
    return texts[kernel];
}

const mimo_ring_launched *mimo_ring_find_launched(const mimo_ring_sample *sample,
                                                  const mimo_ring_launched *like)
{
    for (int i = 0; i < sample->launched_count; i++)
        if (sample->launched[i].comm == like->comm &&
            strcmp(sample->launched[i].title, like->title) == 0)
            return &sample->launched[i];
    return NULL;
}

/* -------------------------------------- calls ------------------------------------- */

static const mimo_ring_line *line_of(const mimo_ring_memory *memory, uint64_t number)
{
    const mimo_ring_line *lines = (const void *)(memory->base + parts_of(memory).calls);
    return &lines[(number - 1) % MIMO_RING_CALLS];
}

/* The newest one that can be read: the owner may be writing the next, or have died there. */
static void read_last(mimo_ring_sample *sample, const mimo_ring_memory *memory)
{
    sample->ended = mimo_ring_load(&head_of(memory)->next);
    sample->last.state = MIMO_RING_NONE;
    for (uint64_t back = 0; back < MIMO_RING_TRIES && back < sample->ended; back++) {
        mimo_ring_call call;
        if (mimo_ring_line_read(&call, line_of(memory, sample->ended - back)) != 0) {
            sample->last = call;
            return;
        }
    }
}

int mimo_ring_read_calls(mimo_ring_call *calls, const mimo_ring_memory *memory)
{
    int count = 0;
    if (check_head(memory) != MIMO_OK)
        return 0;
    uint64_t next = mimo_ring_load(&head_of(memory)->next);
    uint64_t first = next > MIMO_RING_CALLS ? next - MIMO_RING_CALLS : 0;
    for (uint64_t i = first; i < next; i++)
        count += mimo_ring_line_read(&calls[count], line_of(memory, i + 1)) == i + 1;
    return count;
}

/* ------------------------------------- samples ------------------------------------ */

static void read_head(mimo_ring_sample *sample, const mimo_ring_memory *memory)
{
    const mimo_ring_head *head = head_of(memory);
    sample->owner = head->owner;
    sample->owner.host[sizeof sample->owner.host - 1] = '\0';
    sample->rank = head->rank;
    sample->size = ranks_of(memory);
    sample->family = __atomic_load_n(&head->family, __ATOMIC_ACQUIRE);
    sample->parallel = mimo_ring_load(&head->parallel) != 0;
    sample->end = (int)mimo_ring_load(&head->end);
    sample->closed = mimo_ring_load(&head->closed) != 0;
    sample->members = (const void *)(memory->base + parts_of(memory).members);
}

mimo_status mimo_ring_sample_take(mimo_ring_sample **out, const mimo_ring_memory *memory,
                                  const mimo_ring_identity *self)
{
    mimo_ring_sample *sample;
    MIMO_TRY(check_head(memory));
    int room = count_used(memory);
    MIMO_TRY(mimo_reserve(&sample, 1, sizeof *sample));
    mimo_status status = mimo_reserve(&sample->seen, room, sizeof *sample->seen);
    if (status != MIMO_OK) {
        mimo_release(sample);
        return status;
    }
    read_head(sample, memory);
    read_slots(sample, memory, room);
    read_launches(sample, memory);
    read_last(sample, memory);
    memcpy(sample->names, memory->base + parts_of(memory).names, MIMO_RING_NAMES);
    sample->taken = now_of(head_of(memory), self);
    *out = sample;
    return MIMO_OK;
}

void mimo_ring_sample_release(mimo_ring_sample *sample)
{
    if (!sample)
        return;
    mimo_release(sample->seen);
    mimo_release(sample);
}

const mimo_ring_seen *mimo_ring_find_comm(const mimo_ring_sample *sample, uint64_t comm)
{
    for (int i = 1; i < sample->count; i++) /* the family's slot is no communicator */
        if (sample->seen[i].comm == comm)
            return &sample->seen[i];
    return NULL;
}

const mimo_ring_seen *mimo_ring_find_slot(const mimo_ring_sample *sample, int slot)
{
    for (int i = 0; i < sample->count; i++)
        if (sample->seen[i].slot == slot)
            return &sample->seen[i];
    return NULL;
}

int mimo_ring_member(const mimo_ring_sample *sample, const mimo_ring_seen *comm, int i)
{
    int rank = comm->ranks ? comm->ranks[i] : i;
    return rank >= 0 && rank < sample->size ? rank : -1;
}

const char *mimo_ring_name_at(const mimo_ring_sample *sample, uint64_t place)
{
    return place < MIMO_RING_NAMES ? sample->names + place : "";
}
