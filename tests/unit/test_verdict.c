/* Who waits for whom, of ranks that are rings in this process. Each row of the table is a
 * situation, what the verdict says of it, and which ranks it names. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/memory.h"
#include "ring/ring_verdict.h"
#include "ring/ring_writer.h"
#include "expect_failure.h"

enum { MOST = 8, WORLD = 100, TWIN = 200 }; /* communicators: of all ranks, and a second one */

static const int64_t SECOND = 1000000000;

typedef struct bed {
    int size;
    mimo_ring_identity owners[MOST];
    mimo_ring_life lives[MOST];
    mimo_ring *rings[MOST];
    int world[MOST], twin[MOST]; /* slots */
    mimo_ring_sample *before[MOST];
    mimo_ring_verdict verdict;
} bed;

static mimo_ring_life life_in(void *context, const mimo_ring_identity *process)
{
    const bed *it = context;
    int rank = process->pid - 1000;
    return rank >= 0 && rank < MOST ? it->lives[rank] : MIMO_RING_UNKNOWN;
}

static void begin(bed *it, int size)
{
    memset(it, 0, sizeof *it);
    it->size = size;
    for (int r = 0; r < size; r++) {
        mimo_ring_identify(&it->owners[r]);
        it->owners[r].pid = 1000 + r;
        it->lives[r] = MIMO_RING_RUNNING;
        SUCCEEDS(mimo_ring_create(&it->rings[r], &it->owners[r], r, size, NULL));
        it->world[r] = mimo_ring_take_slot(it->rings[r], WORLD, NULL, size);
        it->twin[r] = mimo_ring_take_slot(it->rings[r], TWIN, NULL, size);
    }
    for (int r = 0; r < size; r++)
        mimo_ring_join(it->rings[r], it->owners);
}

static mimo_ring_sample *sample_of(const bed *it, int rank)
{
    mimo_ring_sample *sample;
    SUCCEEDS(mimo_ring_sample_take(&sample, &it->rings[rank]->memory, &it->owners[0]));
    return sample;
}

static void look_before(bed *it)
{
    for (int r = 0; r < it->size; r++)
        it->before[r] = sample_of(it, r);
}

/* Judge by the rings of all ranks except those in `unread`. */
static void judge_without(bed *it, int unread)
{
    mimo_ring_looked rings[MOST];
    int count = 0;
    for (int r = 0; r < it->size; r++)
        if (!(unread & 1 << r))
            rings[count++] = (mimo_ring_looked){sample_of(it, r), it->before[r]};
    const mimo_ring_world world = {rings, count, &it->owners[0], life_in, it};
    SUCCEEDS(mimo_ring_judge(&it->verdict, &world, "\n"));
    for (int i = 0; i < count; i++)
        mimo_ring_sample_release((mimo_ring_sample *)rings[i].now);
}

static void end(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        mimo_ring_sample_release(it->before[r]);
        mimo_ring_destroy(it->rings[r], false);
    }
}

/* ------------------------------- what ranks have done ------------------------------- */

static mimo_ring_call call_named(mimo_ring *ring, uint64_t comm, uint64_t number,
                                 const char *object, const char *verb)
{
    return (mimo_ring_call){.comm = comm,
                            .number = number,
                            .begun = ring->head->monotonic,
                            .object = mimo_ring_name(ring, object),
                            .verb = mimo_ring_name(ring, verb),
                            .micro_batch = -1,
                            .state = MIMO_RING_BEGUN};
}

static mimo_ring_slot *slot_of(bed *it, int rank, uint64_t comm)
{
    int slot = comm == WORLD ? it->world[rank] : it->twin[rank];
    return &it->rings[rank]->slots[slot];
}

/* The rank has begun call `number`, and is inside of it. */
static void enter(bed *it, int rank, uint64_t comm, uint64_t number, const char *object,
                  const char *verb)
{
    mimo_ring *ring = it->rings[rank];
    mimo_ring_slot *slot = slot_of(it, rank, comm);
    const mimo_ring_call call = call_named(ring, comm, number, object, verb);
    mimo_ring_line_write(&slot->open, &call);
    mimo_ring_store(&slot->calls, number + 1);
    mimo_ring_store(&ring->slots[0].inside, 1);
}

static void leave(bed *it, int rank)
{
    mimo_ring_store(&it->rings[rank]->slots[0].inside, 0);
}

/* It has ended it `seconds` ago, and is outside. */
static void finish(bed *it, int rank, uint64_t comm, uint64_t number, const char *verb,
                   int64_t seconds)
{
    mimo_ring *ring = it->rings[rank];
    mimo_ring_call call = call_named(ring, comm, number, NULL, verb);
    call.state = MIMO_RING_ENDED;
    call.ended = ring->head->monotonic - seconds * SECOND;
    mimo_ring_line_write(&slot_of(it, rank, comm)->open, &call);
    mimo_ring_store(&slot_of(it, rank, comm)->calls, number + 1);
    mimo_ring_keep(ring, &call);
    leave(it, rank);
}

/* The thread `thread` waits in what it is in. */
static void wait_as(bed *it, int rank, uint64_t comm, int owner, uint64_t thread)
{
    mimo_ring *ring = it->rings[rank];
    mimo_ring_slot *slot = slot_of(it, rank, comm);
    mimo_ring_wait wait = {.slot = (int32_t)(slot - ring->slots),
                           .calls = mimo_ring_load(&slot->calls),
                           .since = ring->head->monotonic,
                           .thread = thread};
    snprintf(wait.words, sizeof wait.words, "the call in words");
    mimo_ring_store(&ring->slots[owner].inside, 1);
    mimo_ring_store(&ring->slots[owner].thread, thread);
    mimo_ring_line_write(&ring->slots[owner].wait, &wait);
}

static void wait_in(bed *it, int rank, uint64_t comm)
{
    wait_as(it, rank, comm, 0, 7);
}

static void begun_before(bed *it, int rank, uint64_t comm, int64_t nanoseconds)
{
    mimo_ring_call call;
    cr_assert_neq(mimo_ring_line_read(&call, &slot_of(it, rank, comm)->open), 0);
    call.begun -= nanoseconds;
    mimo_ring_line_write(&slot_of(it, rank, comm)->open, &call);
}

static void wait_barrier(bed *it, int rank, uint64_t number)
{
    enter(it, rank, WORLD, number, NULL, "barrier");
    wait_in(it, rank, WORLD);
}

/* ------------------------------------- situations ----------------------------------- */

static void nobody(bed *it)
{
    for (int r = 0; r < it->size; r++)
        finish(it, r, WORLD, 3, "allreduce", 1);
}

static void one_late(bed *it)
{
    for (int r = 0; r < it->size; r++)
        if (r == 2)
            finish(it, r, WORLD, 811, "allreduce", 41);
        else
            wait_barrier(it, r, 812);
}

static void two_late(bed *it)
{
    one_late(it);
    leave(it, 3);
    finish(it, 3, WORLD, 811, "allreduce", 40);
}

/* One waits alone. */
static void one_waits(bed *it)
{
    for (int r = 0; r < it->size; r++)
        finish(it, r, WORLD, 811, "allreduce", 41);
    wait_barrier(it, 0, 812);
}

/* Rings of two hosts, copied together: nothing is known of processes there. */
static void two_hosts(bed *it)
{
    one_late(it);
    it->lives[2] = MIMO_RING_ELSEWHERE;
    snprintf(it->rings[2]->head->owner.host, sizeof it->owners[2].host, "b");
}

static void one_gone(bed *it)
{
    one_late(it);
    it->lives[2] = MIMO_RING_GONE;
}

static void gone_inside(bed *it)
{
    for (int r = 0; r < it->size; r++)
        wait_barrier(it, r, 5);
    it->lives[1] = MIMO_RING_GONE;
}

static void one_stopped(bed *it)
{
    one_late(it);
    it->lives[2] = MIMO_RING_STOPPED;
}

static void stopped_inside(bed *it)
{
    gone_inside(it);
    it->lives[1] = MIMO_RING_STOPPED;
}

static void other_order(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        enter(it, r, r < 2 ? WORLD : TWIN, 40, r < 2 ? "bridge 'image'" : "bridge 'audio'",
              "forward");
        wait_in(it, r, r < 2 ? WORLD : TWIN);
    }
}

/* Rank 0 waits in the first for rank 1, which waits in the second for rank 2, which is late. */
static void chain(bed *it)
{
    for (int r = 0; r < it->size; r++)
        finish(it, r, WORLD, 1, "split", 9);
    wait_barrier(it, 0, 2);
    wait_barrier(it, 3, 2);
    enter(it, 1, TWIN, 0, NULL, "allgather");
    wait_in(it, 1, TWIN);
    enter(it, 3, TWIN, 0, NULL, "allgather");
    wait_barrier(it, 3, 2);
    enter(it, 0, TWIN, 0, NULL, "allgather");
    wait_barrier(it, 0, 2);
}

static void other_calls(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        enter(it, r, WORLD, 7, NULL, r == 1 ? "broadcast" : "allreduce");
        wait_in(it, r, WORLD);
    }
}

static void other_micro_batch(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        mimo_ring_call call = call_named(it->rings[r], WORLD, 7, "bridge 1", "forward");
        enter(it, r, WORLD, 7, "bridge 1", "forward");
        call.micro_batch = r == 3 ? 2 : 1;
        mimo_ring_line_write(&slot_of(it, r, WORLD)->open, &call);
        wait_in(it, r, WORLD);
    }
}

/* An operation that rank 1 has begun and does not wait for. */
static void one_left(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        enter(it, r, WORLD, 9, "bridge 'image'", "forward");
        wait_in(it, r, WORLD);
    }
    mimo_ring_store(&slot_of(it, 0, WORLD)->calls, 11); /* which has agreed, and moves */
    leave(it, 1);
    begun_before(it, 1, WORLD, 2 * SECOND);
}

/* The same rank a moment later: it may look again. */
static void one_polls(bed *it)
{
    one_left(it);
    begun_before(it, 1, WORLD, -3 * SECOND / 2);
}

/* Two threads a rank: the first uses the one communicator, the second the other one. Rank 0 waits
 * in the first, and rank 1 in the second. That is no circle: in each the other thread is late. */
static void two_threads(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        mimo_ring_store(&slot_of(it, r, WORLD)->owner, (uint64_t)it->world[r]);
        mimo_ring_store(&slot_of(it, r, TWIN)->owner, (uint64_t)it->twin[r]);
        finish(it, r, WORLD, 0, "barrier", 1);
        finish(it, r, TWIN, 0, "barrier", 1);
        mimo_ring_store(&slot_of(it, r, WORLD)->thread, 71);
        mimo_ring_store(&slot_of(it, r, TWIN)->thread, 72);
    }
    enter(it, 0, WORLD, 1, NULL, "barrier");
    wait_as(it, 0, WORLD, it->world[0], 71);
    enter(it, 1, TWIN, 1, NULL, "barrier");
    wait_as(it, 1, TWIN, it->twin[1], 72);
    leave(it, 0);
    leave(it, 1);
}

/* On a device calls only enqueue: the host waits for a stream, and counters tell who is behind. */
static void on_a_stream(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        finish(it, r, WORLD, r == 3 ? 4 : 5, "forward", 20);
        mimo_ring_wait wait = {.slot = 0, .any = 1, .since = 1, .thread = 7};
        snprintf(wait.words, sizeof wait.words, "the work on a stream");
        mimo_ring_store(&it->rings[r]->slots[0].inside, r != 3);
        mimo_ring_line_write(&it->rings[r]->slots[0].wait, &wait);
    }
}

static void in_data(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        enter(it, r, WORLD, 9, "bridge 'image'", "forward");
        wait_in(it, r, WORLD);
    }
}

static void in_data_that_moves(bed *it)
{
    in_data(it);
    look_before(it);
    mimo_ring_store(&slot_of(it, 1, WORLD)->moved, 12 << 20);
}

/* Rank 1 does not wait: it copies rows into memory of the others. */
static void one_copies(bed *it)
{
    in_data(it);
    mimo_ring_line_write(&it->rings[1]->slots[0].wait, &(mimo_ring_wait){.slot = -1});
    look_before(it);
    mimo_ring_store(&slot_of(it, 1, WORLD)->moved, 3 << 20);
}

static void in_one_message(bed *it, int64_t bytes, int64_t seconds)
{
    in_data(it);
    look_before(it);
    for (int r = 0; r < it->size; r++) {
        mimo_ring_store(&it->rings[r]->slots[0].flight, (uint64_t)bytes);
        mimo_ring_store(&it->rings[r]->slots[0].flight_since,
                        (uint64_t)(it->rings[r]->head->monotonic - seconds * SECOND));
    }
}

static void in_a_large_message(bed *it)
{
    in_one_message(it, 1 << 30, 12);
}

/* Of its messages, two more have arrived since the first look. */
static void in_several_messages(bed *it)
{
    in_data(it);
    mimo_ring_store(&it->rings[1]->slots[0].flight, 1 << 30);
    mimo_ring_store(&it->rings[1]->slots[0].flight_arrived, 1);
    look_before(it);
    mimo_ring_store(&it->rings[1]->slots[0].flight_arrived, 3);
}

static void in_a_message_for_long(bed *it)
{
    in_one_message(it, 1 << 30, 30);
}

static void in_data_that_stands(bed *it)
{
    in_data(it);
    look_before(it);
}

/* All wait in both looks, but never in one call for long. */
static void healthy(bed *it)
{
    for (int r = 0; r < it->size; r++)
        wait_barrier(it, r, 5);
    look_before(it);
    for (int r = 0; r < it->size; r++)
        wait_barrier(it, r, 900);
}

static void created_by_some(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        enter(it, r, TWIN, 0, NULL, "allgather");
        wait_in(it, r, TWIN);
    }
    mimo_ring_give_slot(it->rings[0], it->twin[0]);
    leave(it, 0);
}

static void one_elsewhere(bed *it)
{
    one_late(it);
    it->lives[2] = MIMO_RING_ELSEWHERE;
}

static void one_off(bed *it)
{
    one_late(it);
    it->owners[2].has_ring = 0;
    for (int r = 0; r < it->size; r++)
        mimo_ring_join(it->rings[r], it->owners);
}

/* ------------------------------------- on devices ----------------------------------- */

/* What ranks launch for one object: by `enqueued` of the host, or by graphs where that is 0. */
static void launch(bed *it, int rank, const char *title, uint64_t enqueued, uint64_t begun,
                   uint64_t ended)
{
    mimo_ring_launches *launches = mimo_ring_take_launches(it->rings[rank], WORLD, title);
    cr_assert_not_null(launches);
    mimo_ring_store(&launches->alike, strncmp(title, "dispatch", 8) == 0);
    mimo_ring_store(&launches->captured, enqueued == 0);
    mimo_ring_store(&launches->enqueued, enqueued);
    mimo_ring_store(&launches->begun, begun);
    mimo_ring_store(&launches->ended, ended);
}

static void wait_for_stream(bed *it, int rank)
{
    const mimo_ring_wait wait = {
        .slot = 0, .any = 1, .since = 1, .thread = 7, .words = "the work on a stream"};
    finish(it, rank, WORLD, 5, "forward", 2);
    mimo_ring_store(&it->rings[rank]->slots[0].inside, 1);
    mimo_ring_line_write(&it->rings[rank]->slots[0].wait, &wait);
}

/* All hosts have made the same calls and wait for their streams. On rank 3 other work stands before
 * the kernel that the others are in. */
static void device_behind(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        wait_for_stream(it, r);
        launch(it, r, "dispatch 'layer 3'", 13, r == 3 ? 11 : 12, 11);
    }
}

/* Replays of a graph: the hosts are outside of the library. Ranks 1 and 2 wait in launch 12 for
 * rank 0, which waits in launch 11 for rank 3. */
static void replays(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        finish(it, r, WORLD, 5, "rows", 9);
        launch(it, r, "dispatch 1", 0, r == 3 ? 10 : r == 0 ? 11 : 12, r == 3 || r == 0 ? 10 : 11);
    }
    look_before(it);
}

/* Nobody is behind, and the kernels are other ones in the second look. */
static void replays_that_go_on(bed *it)
{
    replays(it);
    for (int r = 0; r < it->size; r++) {
        mimo_ring_store(&it->rings[r]->launches[0].begun, 15);
        mimo_ring_store(&it->rings[r]->launches[0].ended, r == 3 ? 15 : 14);
    }
}

static void device_never_began(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        wait_for_stream(it, r);
        launch(it, r, "dispatch 1", r > 1 ? 2 : 1, r == 1 ? 0 : 1, 0);
    }
}

static void device_slow(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        wait_for_stream(it, r);
        launch(it, r, "dispatch 1", 2, r == 1 ? 1 : 2, r == 1 ? 0 : 1);
    }
}

static void all_run(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        wait_for_stream(it, r);
        launch(it, r, "dispatch 1", 12, 12, 11);
    }
}

/* Of a buffer, ranks make different launches. */
static void not_alike(bed *it)
{
    for (int r = 0; r < it->size; r++)
        wait_for_stream(it, r);
    launch(it, 0, "buffer 1", 7, 7, 6);
    launch(it, 1, "buffer 1", 7, 7, 6);
    launch(it, 2, "buffer 1", 4, 3, 3);
    launch(it, 3, "buffer 1", 2, 2, 2);
}

static void devices_done(bed *it)
{
    for (int r = 0; r < it->size; r++) {
        wait_for_stream(it, r);
        launch(it, r, "buffer 1", 7, 7, 7);
    }
}

static void devices_go_on(bed *it)
{
    all_run(it);
    look_before(it);
    for (int r = 0; r < it->size; r++) {
        mimo_ring_store(&it->rings[r]->launches[0].ended, 12);
        mimo_ring_store(&it->rings[r]->launches[0].begun, 13);
    }
}

typedef struct situation {
    const char *name;
    void (*play)(bed *it);
    int unread; /* ranks whose rings can't be read, as bits */
    bool waits, stands;
    int count, first; /* ranks that are named */
    const char *says; /* parts, separated by | */
} situation;

static const situation situations[] = {
    {"nobody waits", nobody, 0, false, false, 0, 0, "nobody waits"},
    {"one late", one_late, 0, true, true, 1, 2,
     "rank 2 (pid 1002, running) has not begun call 812, barrier: its last one, call 811, "
     "allreduce, ended 41 s ago; ranks 0, 1, 3 wait in it"},
    {"two late", two_late, 0, true, true, 2, 2,
     "ranks 2, 3 have not begun call 812, barrier: of rank 2 its last one, call 811, allreduce, "
     "ended 41 s ago; ranks 0, 1 wait in it"},
    {"one waits", one_waits, 0, true, true, 3, 1,
     "ranks 1-3 have not begun call 812, barrier: of rank 1 its last one, call 811, allreduce, "
     "ended 41 s ago; rank 0 waits in it"},
    {"two hosts", two_hosts, 0, true, true, 1, 2,
     "rank 2 (host b, pid 1002, on another host) has not begun call 812, barrier: its last one, "
     "call 811|ranks 0, 1, 3 wait in it"},
    {"one gone", one_gone, 0, true, true, 1, 2,
     "rank 2 (pid 1002, gone) is gone, and has not begun call 812, barrier: its last one, call 811|"
     "ranks 0, 1, 3 wait in it"},
    {"gone, no ring", one_gone, 4, true, true, 1, 2,
     "rank 2 (pid 1002, gone) is gone, and has not begun call 812, barrier: its ring can't be "
     "read"},
    {"gone inside", gone_inside, 0, true, true, 1, 1,
     "rank 1 (pid 1001, gone) is gone in call 5, barrier"},
    {"stopped", one_stopped, 0, true, true, 1, 2,
     "rank 2 (pid 1002, stopped) has not begun call 812, barrier"},
    {"stopped inside", stopped_inside, 0, true, true, 1, 1,
     "rank 1 (pid 1001, stopped) is stopped in call 5, barrier"},
    {"other order", other_order, 0, true, true, 0, 0,
     "ranks 0, 1 are in call 40, bridge 'image' forward; ranks 2, 3 are in call 40, bridge 'audio' "
     "forward: other order"},
    {"chain", chain, 0, true, true, 1, 2,
     "rank 2 (pid 1002, running) has not begun call 0, allgather: its last one, call 1, split of "
     "another communicator|"
     "rank 1 waits in it"},
    {"other calls", other_calls, 0, true, true, 0, 0,
     "ranks 0, 2, 3 are in call 7, allreduce; rank 1 is in call 7, broadcast: other calls"},
    {"other micro-batch", other_micro_batch, 0, true, true, 0, 0,
     "ranks 0-2 are in call 7, bridge 1 forward in micro-batch 1; rank 3 is in call 7, bridge 1 "
     "forward in micro-batch 2: other calls"},
    {"one left", one_left, 0, true, true, 1, 1,
     "rank 1 (pid 1001, running) has begun and then left call 9, bridge 'image' forward|"
     "ranks 0, 2, 3 wait in it"},
    {"one polls", one_polls, 0, true, true, 0, 0,
     "ranks 0, 2, 3 are in call 9, bridge 'image' forward, which all others have begun"},
    {"two threads", two_threads, 0, true, true, 3, 1,
     "ranks 1-3 have not begun call 1, barrier|rank 0 waits in it|ranks 0, 2, 3 have not begun"},
    {"on a stream", on_a_stream, 0, true, true, 1, 3,
     "rank 3 (pid 1003, running) has not begun call 5 of the communicator: its last one, call 4, "
     "forward, ended 20 s ago; ranks 0-2 wait for work on a stream"},
    {"in data", in_data, 0, true, true, 0, 0,
     "all ranks 0-3 are in call 9, bridge 'image' forward"},
    {"in data that moves", in_data_that_moves, 0, true, false, 0, 0,
     "all ranks 0-3 are in call 9, bridge 'image' forward, and data moves (12 MiB in "},
    {"in data of a rank that copies", one_copies, 0, true, false, 0, 0,
     "ranks 0, 2, 3 are in call 9, bridge 'image' forward, which all others have begun, and data "
     "moves (3 MiB in "},
    {"in a large message", in_a_large_message, 0, true, false, 0, 0,
     "all ranks 0-3 are in call 9, bridge 'image' forward; messages of up to 1024 MiB have been on "
     "their way for 12 s, which show no part of themselves and take 17 s at 64 MB/s"},
    {"in several messages", in_several_messages, 0, true, false, 0, 0,
     "all ranks 0-3 are in call 9, bridge 'image' forward, and data moves (2 messages in "},
    {"in a message for long", in_a_message_for_long, 0, true, true, 0, 0,
     "have been on their way for 30 s, which show no part of themselves and take 17 s at 64 MB/s"},
    {"in data that stands", in_data_that_stands, 0, true, true, 0, 0, "and no data has moved in "},
    {"healthy", healthy, 0, false, false, 0, 0, "nobody waits"},
    {"created by some", created_by_some, 0, true, true, 1, 0,
     "rank 0 (pid 1000, running) has not begun call 0, allgather"},
    {"unread", one_late, 4, true, true, 0, 0,
     "ranks 0, 1, 3 wait in call 812, barrier; not readable from here: rank 2 (its ring may not "
     "be read"},
    {"ring off", one_off, 4, true, true, 0, 0, "rank 2 (its ring is off)"},
    {"a device behind", device_behind, 0, true, true, 1, 3,
     "rank 3 (pid 1003, running) has not begun launch 12 of dispatch 'layer 3' on its device: "
     "launch 11 has ended there, and 2 more are enqueued; ranks 0-2 run it|"
     "all ranks 0-3 are in the work on a stream; ranks 0-2 run launch 12 of dispatch 'layer 3'; "
     "rank 3 has enqueued launch 12 of dispatch 'layer 3', which waits for other work there"},
    {"replays", replays, 0, true, true, 1, 3,
     "rank 3 (pid 1003, running) has not begun launch 12 of dispatch 1 on its device: launch 10 "
     "has ended there; ranks 1, 2 run it"},
    {"replays that go on", replays_that_go_on, 0, false, false, 0, 0, "nobody waits"},
    {"a device that never began", device_never_began, 0, true, true, 1, 1,
     "rank 1 (pid 1001, running) has not begun launch 1 of dispatch 1 on its device: none has "
     "begun there, and 1 more is enqueued; ranks 0, 2, 3 run it"},
    {"a slow device", device_slow, 0, true, true, 1, 1,
     "rank 1 (pid 1001, running) has not begun launch 2 of dispatch 1 on its device: launch 1 "
     "runs there still; ranks 0, 2, 3 run it"},
    {"all devices run", all_run, 0, true, true, 0, 0,
     "all ranks 0-3 are in the work on a stream; ranks 0-3 run launch 12 of dispatch 1"},
    {"launches that are not alike", not_alike, 0, true, true, 0, 0,
     "; ranks 0, 1 run launch 7 of buffer 1; rank 2 has enqueued launch 4 of buffer 1, which waits "
     "for other work there"},
    {"devices that are done", devices_done, 0, true, false, 0, 0,
     "all ranks 0-3 are in the work on a stream; all kernels of this library have ended there"},
    {"devices that go on", devices_go_on, 0, true, false, 0, 0,
     "; ranks 0-3 run launch 13 of dispatch 1; kernels go on"},
    {"on another host", one_elsewhere, 4, true, true, 0, 0, "rank 2 (on another host)"},
};

static void expect_parts(const situation *of, const char *text)
{
    char parts[512];
    snprintf(parts, sizeof parts, "%s", of->says);
    for (char *part = strtok(parts, "|"); part; part = strtok(NULL, "|"))
        cr_expect(strstr(text, part), "%s: '%s' is not in '%s'", of->name, part, text);
}

Test(verdict, names_whom_others_wait_for, .timeout = 60)
{
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        const situation *of = &situations[i];
        bed it;
        begin(&it, 4);
        of->play(&it);
        judge_without(&it, of->unread);
        expect_parts(of, it.verdict.text);
        cr_expect(it.verdict.waits == of->waits && it.verdict.stands == of->stands,
                  "%s: %d %d '%s'", of->name, it.verdict.waits, it.verdict.stands, it.verdict.text);
        cr_expect(it.verdict.count == of->count && it.verdict.ranks[0] == of->first,
                  "%s: %d ranks, the first is %d: '%s'", of->name, it.verdict.count,
                  it.verdict.ranks[0], it.verdict.text);
        end(&it);
    }
}

/* Ranks of another family have numbers and counters of their own. */
Test(verdict, families_stand_apart, .timeout = 60)
{
    bed a, b;
    mimo_ring_looked rings[2 * MOST];
    begin(&a, 4);
    begin(&b, 4);
    nobody(&a);
    one_late(&b);
    for (int r = 0; r < 4; r++) {
        rings[r] = (mimo_ring_looked){sample_of(&a, r), NULL};
        rings[4 + r] = (mimo_ring_looked){sample_of(&b, r), NULL};
    }
    const mimo_ring_world world = {rings, 8, &a.owners[0], life_in, &b};
    SUCCEEDS(mimo_ring_judge(&b.verdict, &world, "\n"));
    expect_parts(&situations[1], b.verdict.text);
    cr_assert_null(strchr(b.verdict.text, '\n'), "%s", b.verdict.text);
    for (int i = 0; i < 8; i++)
        mimo_ring_sample_release((mimo_ring_sample *)rings[i].now);
    end(&a);
    end(&b);
}

/* ---------------------------------- rings of others --------------------------------- */

/* A word of the ring that a reader may not trust: of the launches, the names, the slots, the last
 * calls, the lists or the members. */
static void spoil(mimo_ring *ring, uint64_t random)
{
    const mimo_ring_parts parts = mimo_ring_parts_of(4);
    size_t words = (parts.bytes - parts.launches) / sizeof(uint64_t);
    size_t near = (parts.slots - parts.launches + 4 * sizeof(mimo_ring_slot)) / sizeof(uint64_t);
    size_t at = random % 3 ? random / 7 % near : random / 7 % words;
    uint64_t value = mimo_mix64(random) >> (random % 64); /* small numbers as well */
    mimo_ring_store((uint64_t *)(ring->memory.base + parts.launches) + at, value);
}

/* Claim: whatever a ring holds, reading it and judging by it stays inside of its memory. (The
 * sanitizers see that.) */
Test(verdict, random_words_do_no_harm, .timeout = 60)
{
    enum { ROUNDS = 300, SPOILT = 30 };
    uint64_t random = 1;
    int judged = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const situation *of = &situations[(size_t)round % (sizeof situations / sizeof *situations)];
        bed it;
        begin(&it, 4);
        of->play(&it);
        for (int i = 0; i < SPOILT; i++, random = mimo_mix64(random + 1))
            spoil(it.rings[i % 4], random);
        judge_without(&it, of->unread);
        judged += it.verdict.text[0] != '\0';
        cr_assert_lt(strlen(it.verdict.text), sizeof it.verdict.text);
        end(&it);
    }
    cr_assert_gt(judged, ROUNDS / 2, "%d of %d verdicts", judged, ROUNDS);
}
