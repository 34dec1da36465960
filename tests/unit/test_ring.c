/* Rings: what a reader beside the writer sees, and what a writer leaves that was killed. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/hash.h"
#include "ring/ring_process.h"
#include "ring/ring_sample.h"
#include "ring/ring_writer.h"
#include "own_folder.h"

/* A call whose every field follows from its number, so that one of two calls shows. */
static mimo_ring_call call_of(uint64_t number)
{
    uint64_t words[MIMO_RING_WORDS];
    mimo_ring_call call;
    for (uint64_t i = 0; i < MIMO_RING_WORDS; i++)
        words[i] = mimo_mix64(number * MIMO_RING_WORDS + i + 1);
    memcpy(&call, words, sizeof call);
    call.number = number;
    return call;
}

static bool is_whole(const mimo_ring_call *call)
{
    const mimo_ring_call expected = call_of(call->number);
    return memcmp(call, &expected, sizeof expected) == 0;
}

static mimo_ring *make(mimo_ring_identity *owner, int rank, int size, const char *folder)
{
    mimo_ring *ring;
    mimo_ring_identify(owner);
    SUCCEEDS(mimo_ring_create(&ring, owner, rank, size, folder));
    return ring;
}

static mimo_ring_sample *look(const mimo_ring_memory *memory)
{
    mimo_ring_sample *sample;
    mimo_ring_identity self;
    mimo_ring_identify(&self);
    SUCCEEDS(mimo_ring_sample_take(&sample, memory, &self));
    return sample;
}

/* -------------------------------------- lines -------------------------------------- */

enum { WRITES = 1000000 };

/* Words that are all the same: nothing but the writes takes time. */
static mimo_ring_call line_of(uint64_t number)
{
    mimo_ring_call call;
    for (uint64_t *word = (uint64_t *)&call; word < (uint64_t *)(&call + 1); word++)
        *word = number;
    return call;
}

static bool is_one_line(const mimo_ring_call *call)
{
    const mimo_ring_call expected = line_of(call->number);
    return memcmp(call, &expected, sizeof expected) == 0;
}

typedef struct litmus {
    mimo_ring_line line;
    int done;
    int64_t reads, torn, wrong, back;
} litmus;

static void *write_lines(void *context)
{
    litmus *it = context;
    for (uint64_t i = 1; i <= WRITES; i++) {
        const mimo_ring_call call = line_of(i);
        mimo_ring_line_write(&it->line, &call);
    }
    __atomic_store_n(&it->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *read_lines(void *context)
{
    litmus *it = context;
    uint64_t last = 0;
    int64_t reads = 0, torn = 0, wrong = 0, back = 0;
    while (!__atomic_load_n(&it->done, __ATOMIC_ACQUIRE)) {
        mimo_ring_call call;
        if (mimo_ring_line_read(&call, &it->line) == 0) {
            torn++;
            continue;
        }
        reads++;
        wrong += !is_one_line(&call);
        back += call.number < last;
        last = call.number;
    }
    __atomic_add_fetch(&it->reads, reads, __ATOMIC_RELAXED);
    __atomic_add_fetch(&it->torn, torn, __ATOMIC_RELAXED);
    __atomic_add_fetch(&it->wrong, wrong, __ATOMIC_RELAXED);
    __atomic_add_fetch(&it->back, back, __ATOMIC_RELAXED);
    return NULL;
}

OWN_FOLDER(ring, "ring", .timeout = 60);

/* Claim: a reader never has parts of two writes, nor an older one than before. */
Test(ring, a_reader_beside_the_writer_has_whole_lines)
{
    static litmus it;
    pthread_t writer, readers[2];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&readers[i], NULL, read_lines, &it), 0);
    cr_assert_eq(pthread_create(&writer, NULL, write_lines, &it), 0);
    pthread_join(writer, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    cr_assert_eq(it.wrong, 0, "%ld of %ld reads had parts of two writes", (long)it.wrong,
                 (long)it.reads);
    cr_assert_eq(it.back, 0, "%ld of %ld reads went back", (long)it.back, (long)it.reads);
    mimo_ring_call call;
    cr_assert_eq(mimo_ring_line_read(&call, &it.line), WRITES);
    cr_assert_eq(call.number, WRITES);
}

/* The writer has died in the middle of a write, or a slow thread has not ended it. */
Test(ring, a_torn_line_is_not_read_and_not_claimed)
{
    mimo_ring_line line = {0};
    const mimo_ring_call call = call_of(1);
    mimo_ring_call read = call_of(7);
    cr_assert_eq(mimo_ring_line_read(&read, &line), 0, "nothing was written");
    cr_assert(mimo_ring_line_claim(&line, 1, &call));
    cr_assert_eq(mimo_ring_line_read(&read, &line), 1);
    cr_assert(is_whole(&read) && read.number == 1);
    line.before = 2049;
    cr_assert_eq(mimo_ring_line_read(&read, &line), 0, "torn");
    cr_assert_eq(read.number, 1, "a torn line is read into nothing");
    cr_assert_not(mimo_ring_line_claim(&line, 4097, &call), "a line that another thread writes");
}

/* ------------------------------------- the ring ------------------------------------ */

Test(ring, keeps_the_last_calls)
{
    static mimo_ring_call calls[MIMO_RING_CALLS];
    mimo_ring_identity owner;
    mimo_ring *ring = make(&owner, 2, 4, NULL);
    for (uint64_t i = 1; i <= 3; i++) {
        const mimo_ring_call call = call_of(i);
        mimo_ring_keep(ring, &call);
    }
    cr_assert_eq(mimo_ring_read_calls(calls, &ring->memory), 3);
    for (uint64_t i = 4; i <= MIMO_RING_CALLS + 10; i++) {
        const mimo_ring_call call = call_of(i);
        mimo_ring_keep(ring, &call);
    }
    cr_assert_eq(mimo_ring_read_calls(calls, &ring->memory), MIMO_RING_CALLS);
    for (uint64_t i = 0; i < MIMO_RING_CALLS; i++)
        cr_assert(calls[i].number == i + 11 && is_whole(&calls[i]), "call %lu at %lu",
                  (unsigned long)calls[i].number, (unsigned long)i);
    mimo_ring_sample *sample = look(&ring->memory);
    cr_assert_eq(sample->last.number, MIMO_RING_CALLS + 10);
    cr_assert(sample->rank == 2 && sample->size == 4 && sample->ended == MIMO_RING_CALLS + 10);
    mimo_ring_sample_release(sample);
    mimo_ring_destroy(ring, false);
}

Test(ring, names_have_one_place_until_the_table_is_full)
{
    mimo_ring_identity owner;
    mimo_ring *ring = make(&owner, 0, 1, NULL);
    char text[120];
    uint32_t first = mimo_ring_name(ring, "forward"), place = 0;
    cr_assert_eq(mimo_ring_name(ring, "forward"), first);
    cr_assert_eq(mimo_ring_name(ring, ""), 0);
    cr_assert_eq(mimo_ring_name(ring, NULL), 0);
    for (int i = 0; place != MIMO_RING_FULL; i++) {
        cr_assert_lt(i, 1000, "8 KiB are never full");
        snprintf(text, sizeof text, "bridge '%d of a name that takes some bytes'", i);
        place = mimo_ring_name(ring, text);
    }
    cr_assert_eq(mimo_ring_name(ring, "forward"), first, "what is there stays");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    mimo_ring_sample *sample = look(&ring->memory);
    cr_assert_str_eq(mimo_ring_name_at(sample, first), "forward");
    cr_assert_str_eq(mimo_ring_name_at(sample, MIMO_RING_FULL), "(the table of names is full)");
    cr_assert_str_eq(mimo_ring_name_at(sample, MIMO_RING_NAMES), "", "outside of the table");
    mimo_ring_sample_release(sample);
    mimo_ring_destroy(ring, false);
}

Test(ring, slots_are_taken_and_given_back)
{
    mimo_ring_identity owner;
    mimo_ring *ring = make(&owner, 0, 4, NULL);
    const int some[2] = {1, 3}, same[2] = {1, 3}, wrong[1] = {99};
    int a = mimo_ring_take_slot(ring, 11, some, 2), b = mimo_ring_take_slot(ring, 12, same, 2);
    int c = mimo_ring_take_slot(ring, 13, NULL, 4), d = mimo_ring_take_slot(ring, 14, wrong, 1);
    cr_assert(a > 0 && b > a && c > b && d > c);
    cr_assert_eq(ring->head->lists_used, 3, "equal lists are one");
    mimo_ring_sample *sample = look(&ring->memory);
    const mimo_ring_seen *seen = mimo_ring_find_comm(sample, 12);
    cr_assert(seen && seen->size == 2 && mimo_ring_member(sample, seen, 1) == 3);
    seen = mimo_ring_find_comm(sample, 13);
    cr_assert(seen && seen->size == 4 && mimo_ring_member(sample, seen, 3) == 3);
    seen = mimo_ring_find_comm(sample, 14);
    cr_assert(seen && mimo_ring_member(sample, seen, 0) == -1, "a rank that the family lacks");
    mimo_ring_sample_release(sample);
    mimo_ring_give_slot(ring, b);
    sample = look(&ring->memory);
    cr_assert_null(mimo_ring_find_comm(sample, 12));
    mimo_ring_sample_release(sample);
    cr_assert_eq(mimo_ring_take_slot(ring, 15, NULL, 4), b);
    int taken = 5;
    while (mimo_ring_take_slot(ring, (uint64_t)taken + 100, NULL, 4) >= 0)
        taken++;
    cr_assert_eq(taken, MIMO_RING_SLOTS);
    mimo_ring_destroy(ring, false);
}

Test(ring, launches_are_taken_and_given_back)
{
    mimo_ring_identity owner;
    mimo_ring *ring = make(&owner, 0, 4, NULL);
    mimo_ring_launches *first = mimo_ring_take_launches(ring, 11, "dispatch 1");
    mimo_ring_launches *second = mimo_ring_take_launches(ring, 11, "buffer 1");
    cr_assert(first && second && first != second);
    cr_assert_eq((uintptr_t)first % 4096, 0, "a device is given pages");
    mimo_ring_store(&first->begun, 3);
    mimo_ring_store(&first->ended, 2);
    mimo_ring_store(&second->enqueued, 1);
    mimo_ring_sample *sample = look(&ring->memory);
    cr_assert_eq(sample->launched_count, 2);
    const mimo_ring_launched *at = &sample->launched[0];
    cr_assert(at->comm == 11 && at->begun == 3 && at->ended == 2 && !at->alike);
    cr_assert_str_eq(at->title, "dispatch 1");
    cr_assert_str_eq(mimo_ring_kernel_text(mimo_ring_kernel_of(at)), "runs");
    cr_assert_eq(mimo_ring_kernel_of(&sample->launched[1]), MIMO_RING_KERNEL_ENQUEUED);
    mimo_ring_sample_release(sample);
    mimo_ring_give_launches(ring, first);
    cr_assert_eq(mimo_ring_take_launches(ring, 12, "dispatch 2"), first);
    cr_assert_eq(first->begun, 0, "it begins anew");
    int taken = 2;
    while (mimo_ring_take_launches(ring, 13, "buffer 2"))
        taken++;
    cr_assert_eq(taken, MIMO_RING_LAUNCHES);
    cr_assert_null(mimo_ring_take_launches(NULL, 13, "buffer 2"), "there is no ring");
    mimo_ring_give_launches(ring, NULL);
    mimo_ring_destroy(ring, false);
}

/* What each state follows from. */
Test(ring, states_of_launches)
{
    static const struct {
        uint64_t enqueued, captured, begun, ended;
        mimo_ring_kernel kernel;
    } list[] = {
        {0, 0, 0, 0, MIMO_RING_KERNEL_NONE}, {2, 0, 1, 1, MIMO_RING_KERNEL_ENQUEUED},
        {2, 0, 2, 1, MIMO_RING_KERNEL_RUNS}, {2, 0, 2, 2, MIMO_RING_KERNEL_DONE},
        {0, 1, 0, 0, MIMO_RING_KERNEL_NONE}, {0, 1, 5, 4, MIMO_RING_KERNEL_RUNS},
        {9, 1, 5, 5, MIMO_RING_KERNEL_DONE}, /* how many replays are enqueued nobody counts */
        {1, 0, 1, 2, MIMO_RING_KERNEL_DONE}, /* read while both changed */
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const mimo_ring_launched it = {.enqueued = list[i].enqueued,
                                       .captured = list[i].captured,
                                       .begun = list[i].begun,
                                       .ended = list[i].ended};
        cr_assert_eq(mimo_ring_kernel_of(&it), list[i].kernel, "%zu", i);
    }
}

/* ----------------------------------- its memory ------------------------------------ */

Test(ring, others_read_it_and_cannot_write)
{
    mimo_ring_identity owner;
    mimo_ring_memory other;
    char link[64], target[128] = "";
    mimo_ring *ring = make(&owner, 0, 1, NULL);
    const mimo_ring_call call = call_of(5);
    mimo_ring_keep(ring, &call);
    snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)owner.pid, (int)owner.fd);
    cr_assert_gt(readlink(link, target, sizeof target - 1), 0);
    cr_assert_not_null(strstr(target, "memfd:mimo-ring"), "%s", target);
    SUCCEEDS(mimo_ring_memory_map(&other, owner.pid, owner.fd));
    int fd = open(link, O_RDWR);
    cr_assert(fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    cr_assert(fd < 0 || ftruncate(fd, 0) != 0);
    if (fd >= 0)
        close(fd);
    mimo_ring_destroy(ring, false);
    mimo_ring_sample *sample = look(&other); /* it outlives its owner */
    cr_assert(sample->closed && sample->last.number == 5);
    mimo_ring_sample_release(sample);
    mimo_ring_memory_release(&other);
}

Test(ring, what_is_no_ring_is_refused)
{
    mimo_ring_identity owner, self;
    mimo_ring_sample *sample;
    mimo_ring *ring = make(&owner, 0, 1, NULL);
    mimo_ring_identify(&self);
    const mimo_ring_head good = *ring->head;
    mimo_ring_head bad[] = {good, good, good, good};
    bad[0].magic++;
    bad[1].version++;
    bad[2].size = 1 << 20; /* more than the memory holds */
    bad[3].rank = 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *ring->head = bad[i];
        cr_assert_eq(mimo_ring_sample_take(&sample, &ring->memory, &self), MIMO_ERR_IO, "%zu", i);
    }
    *ring->head = good;
    mimo_ring_destroy(ring, false);
}

Test(ring, what_may_not_be_mapped_is_refused)
{
    mimo_ring_memory memory = {.fd = 77};
    int open_memfd = memfd_create("mimo-ring", 0);
    put_file(path, "", 0);
    cr_assert_geq(open_memfd, 0);
    FAILS(mimo_ring_memory_map_file(&memory, path), MIMO_ERR_IO, "has 0 bytes: no ring");
    FAILS(mimo_ring_memory_map_file(&memory, "/tmp"), MIMO_ERR_IO, "/tmp is no file");
    cr_assert_eq(ftruncate(open_memfd, 1 << 20), 0);
    FAILS(mimo_ring_memory_map(&memory, (int32_t)getpid(), open_memfd), MIMO_ERR_IO,
          "a memfd that may shrink");
    cr_assert_eq(memory.fd, 77, "a failed call wrote its output");
    close(open_memfd);
}

Test(ring, a_file_is_private_new_and_removed)
{
    char link[128], expected[256];
    struct stat about;
    mimo_ring_identity owner, second;
    mimo_ring_memory memory;
    mimo_ring *ring = make(&owner, 3, 8, folder), *again = make(&second, 3, 8, folder);
    snprintf(expected, sizeof expected, "%s/%s-%d-3.ring", folder, owner.host, (int)owner.pid);
    cr_assert_str_eq(ring->memory.path, expected);
    cr_assert_not_null(strstr(again->memory.path, "-3-2.ring"), "%s", again->memory.path);
    cr_assert_eq(stat(expected, &about), 0);
    cr_assert_eq(about.st_mode & 0777, 0600, "mode %o", (unsigned)about.st_mode);
    SUCCEEDS(mimo_ring_memory_map_file(&memory, expected));
    mimo_ring_memory_release(&memory);
    snprintf(link, sizeof link, "%s/link", folder);
    cr_assert_eq(symlink(expected, link), 0);
    cr_assert_eq(mimo_ring_memory_map_file(&memory, link), MIMO_ERR_IO, "a link was followed");
    cr_assert_eq(unlink(link), 0);
    mimo_ring_destroy(again, false);
    mimo_ring_destroy(ring, false);
    FAILS(mimo_ring_create(&ring, &owner, 0, 1, "/nowhere"), MIMO_ERR_IO, "/nowhere");
}

Test(ring, a_file_stays_where_it_is_to)
{
    char file[256];
    mimo_ring_identity owner;
    mimo_ring_memory memory;
    mimo_ring *ring = make(&owner, 0, 1, folder);
    const mimo_ring_call call = call_of(3);
    mimo_ring_keep(ring, &call);
    snprintf(file, sizeof file, "%s", ring->memory.path);
    mimo_ring_destroy(ring, true);
    SUCCEEDS(mimo_ring_memory_map_file(&memory, file));
    mimo_ring_sample *sample = look(&memory);
    cr_assert(sample->closed && sample->last.number == 3);
    mimo_ring_sample_release(sample);
    mimo_ring_memory_release(&memory);
    cr_assert_eq(unlink(file), 0, "who reads a file has removed it");
}

/* A folder that all may write to: another user can lay a link there, by the name that comes next.
 */
Test(ring, what_lies_in_a_sticky_folder_is_left_alone)
{
    char other[128], planted[256];
    struct stat about;
    mimo_ring_identity owner;
    cr_assert_eq(chmod(folder, 01777), 0);
    mimo_ring_identify(&owner);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(planted, sizeof planted, "%s/%s-%d-0.ring", folder, owner.host, (int)owner.pid);
    cr_assert_eq(symlink(other, planted), 0);
    mimo_ring *ring = make(&owner, 0, 1, folder);
    cr_assert_not_null(strstr(ring->memory.path, "-0-2.ring"), "%s", ring->memory.path);
    cr_assert_neq(stat(other, &about), 0, "the link was followed");
    mimo_ring_destroy(ring, false);
    cr_assert_eq(unlink(planted), 0, "the link was removed");
}

Test(ring, a_folder_without_room_is_refused)
{
    mimo_ring_identity owner;
    mimo_ring_memory memory = {.fd = 77};
    mimo_ring_identify(&owner);
    const struct rlimit before = limit_files(65536);
    mimo_status status = mimo_ring_memory_make_file(&memory, 1 << 20, folder, &owner, 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    FAILS(status, MIMO_ERR_IO, "a ring of 1048576 bytes: posix_fallocate: ");
    cr_assert_eq(memory.fd, 77, "a failed call wrote its output");
}

/* --------------------------------- kill -9 at any time ------------------------------ */

enum { KILLS = 200 };

/* Calls without an end: each is shown as open, and then kept. */
static void call_for_ever(mimo_ring *ring)
{
    for (uint64_t i = 1;; i++) {
        const mimo_ring_call call = call_of(i);
        mimo_ring_show(ring, 0, &call);
        (i % 2 ? mimo_ring_keep : mimo_ring_keep_alone)(ring, &call);
    }
}

static void check_remains(const mimo_ring_memory *memory, int *without)
{
    static mimo_ring_call calls[MIMO_RING_CALLS];
    mimo_ring_sample *sample = look(memory);
    int count = mimo_ring_read_calls(calls, memory);
    cr_assert(count >= (int)(sample->ended < MIMO_RING_CALLS ? sample->ended : MIMO_RING_CALLS) - 1,
              "%d of %lu calls", count, (unsigned long)sample->ended);
    for (int i = 0; i < count; i++)
        cr_assert(is_whole(&calls[i]), "call %d of %d is torn", i, count);
    uint64_t last = count > 0 ? calls[count - 1].number : 0;
    const mimo_ring_call *open = &sample->seen[0].open;
    if (sample->torn > 0 || open->number == 0) {
        ++*without;
    } else {
        cr_assert(is_whole(open));
        cr_assert(open->number - last <= 1, "it was in call %lu, and the last of the ring is %lu",
                  (unsigned long)open->number, (unsigned long)last);
    }
    mimo_ring_sample_release(sample);
}

/* A busy machine may take longer than the moment of a kill to begin with a process. */
static void await_call(const mimo_ring *ring)
{
    static const struct timespec nap = {0, 50000};
    for (bool begun = false; !begun;) {
        mimo_ring_sample *sample = look(&ring->memory);
        begun = sample->ended > 0;
        mimo_ring_sample_release(sample);
        if (!begun)
            (void)nanosleep(&nap, NULL);
    }
}

/* Claim: the last call of the ring is the one that the dead process was in, or the one before. A
 * few are killed wherever they are, perhaps before their first call. */
Test(ring, a_killed_writer_leaves_whole_calls)
{
    char file[256];
    int without = 0;
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        mimo_ring_identity owner;
        mimo_ring_memory memory;
        const struct timespec moment = {
            0, (long)(mimo_mix64((uint64_t)kill_number + 1) % 4000000)}; /* up to 4 ms */
        mimo_ring *ring = make(&owner, 0, 1, folder);
        snprintf(file, sizeof file, "%s", ring->memory.path);
        pid_t child = fork();
        if (child == 0)
            call_for_ever(ring);
        if (kill_number % 8 > 0)
            await_call(ring);
        (void)nanosleep(&moment, NULL);
        cr_assert_eq(kill(child, SIGKILL), 0);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        SUCCEEDS(mimo_ring_memory_map_file(&memory, file));
        check_remains(&memory, &without);
        mimo_ring_memory_release(&memory);
        mimo_ring_destroy(ring, false);
    }
    cr_assert_lt(without, KILLS / 2, "%d kills in the middle of a line", without);
}

/* ------------------------------------- processes ----------------------------------- */

Test(ring, lives_of_processes)
{
    mimo_ring_identity self, child, other;
    char letter;
    mimo_ring_identify(&self);
    cr_assert(self.boot[0] != 0 && self.pids != 0 && self.start != 0 && self.host[0]);
    cr_assert_eq(mimo_ring_life_of(&self, &self), MIMO_RING_RUNNING);
    child = self;
    child.pid = (int32_t)fork();
    if (child.pid == 0)
        for (;;)
            pause();
    child.start = mimo_ring_start_of(child.pid, &letter);
    cr_assert_eq(mimo_ring_life_of(&child, &self), MIMO_RING_RUNNING);
    cr_assert_eq(kill(child.pid, SIGSTOP), 0);
    int status;
    cr_assert_eq(waitpid(child.pid, &status, WUNTRACED), child.pid);
    cr_assert_eq(mimo_ring_life_of(&child, &self), MIMO_RING_STOPPED);
    other = child;
    other.start++; /* its number was another process's before */
    cr_assert_eq(mimo_ring_life_of(&other, &self), MIMO_RING_GONE);
    cr_assert_eq(kill(child.pid, SIGKILL), 0);
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(mimo_ring_life_of(&child, &self), MIMO_RING_GONE, "a zombie");
    cr_assert_eq(waitpid(child.pid, &status, 0), child.pid);
    cr_assert_eq(mimo_ring_life_of(&child, &self), MIMO_RING_GONE);
    other = self;
    other.pids++;
    cr_assert_eq(mimo_ring_life_of(&other, &self), MIMO_RING_HIDDEN);
    other.boot[0]++;
    cr_assert_eq(mimo_ring_life_of(&other, &self), MIMO_RING_ELSEWHERE);
    memset(&other, 0, sizeof other);
    cr_assert_eq(mimo_ring_life_of(&other, &self), MIMO_RING_UNKNOWN);
}
