/* Buffers in host memory: which ranks reach which memory, what creation refuses, and that calls
 * into one buffer do not disturb each other. mpi_test_zero_copy.c has what holds for buffers
 * anywhere. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "bridge_bed.h"
#include "comm/fifos.h"
#include "comm/host/host_buffer.h"
#include "core/memory.h"

/* ------------------------------------- creation ------------------------------------- */

/* Every rank writes its number into all memory within reach. Then each finds in its own memory the
 * numbers of the ranks that reach it. */
static void expect_shared(const mimo_buffer *buffer, int hosts)
{
    int rank = mpi_test_rank(), size = mpi_test_size();
    for (int peer = 0; peer < size; peer++) {
        bool near = peer % hosts == rank % hosts;
        MPI_EXPECT((buffer->data[peer] != NULL) == near, "rank %d: %p", peer,
                   (void *)buffer->data[peer]);
        MPI_EXPECT((buffer->flags[peer] != NULL) == near, "rank %d's flags", peer);
        if (near)
            buffer->data[peer][rank] = (char)(rank + 1);
        const mimo_flags none = {0};
        MPI_EXPECT(memcmp(&buffer->flags[rank][peer], &none, sizeof none) == 0, "flags not 0");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const char *mine = mimo_buffer_data(buffer);
    for (int peer = rank % hosts; peer < size; peer += hosts)
        MPI_EXPECT(mine[peer] == peer + 1, "rank %d wrote %d", peer, mine[peer]);
    MPI_Barrier(MPI_COMM_WORLD);
}

MPI_TEST(buffer, memory_of_all)
{
    static const int64_t bytes[] = {64, 4096, 4097, 1 << 20};
    for (int i = 0; i < 4; i++) {
        mimo_buffer *buffer = NULL;
        MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), bytes[i]));
        MPI_EXPECT(mimo_buffer_reach(buffer) == mpi_test_size(), "%d", mimo_buffer_reach(buffer));
        expect_shared(buffer, 1);
        mimo_buffer_destroy(buffer);
    }
}

/* More than there is, and more than can be mapped. */
static void expect_refusal(int64_t bytes, const char *words)
{
    mimo_buffer *buffer = NULL;
    MPI_FAILS(mimo_buffer_create(&buffer, mpi_test_comm(), bytes), MIMO_ERR_MEMORY, words,
              "of memory that the ranks of a host share");
    MPI_EXPECT(!buffer, "a buffer in spite of the error");
}

/* All shared memory of the host; 0: it has no limit. */
static int64_t shared_memory(void)
{
    struct statvfs room;
    return statvfs("/dev/shm", &room) == 0 ? (int64_t)(room.f_blocks * room.f_frsize) : 0;
}

/* If one rank gets no memory, all ranks get the error. The next creation works. */
MPI_TEST(buffer, no_memory)
{
    mimo_comm *comm = mpi_test_comm();
    mimo_buffer *buffer = NULL;
    char memory[64];
    int rank = mpi_test_rank();
    MPI_EXPECT_STATUS(mimo_buffer_borrow(&buffer, comm, memory, 64), MIMO_ERR_UNSUPPORTED);
    expect_refusal(INT64_C(1) << 60, "can't map ");
    if (shared_memory() > 0)
        expect_refusal(shared_memory(), "can't take ");
    for (int n = 1, failed = 1; failed; n++) {
        if (rank == 1)
            mimo_fail_allocation(n);
        mimo_status status = mimo_buffer_create(&buffer, comm, 8);
        failed = rank == 1 && mimo_fail_allocation(0) == 0;
        MPI_Bcast(&failed, 1, MPI_INT, 1, MPI_COMM_WORLD);
        MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "allocation %d: %s", n,
                   mimo_last_error());
        MPI_EXPECT(failed || n > 4, "only %d allocations", n - 1);
    }
    mimo_buffer_destroy(buffer);
}

/* ------------------------------------ out of reach ---------------------------------- */

typedef struct lines {
    char text[256], warning[256]; /* of the last line, and of the last warning */
    int count, warnings;
} lines;

static void note(void *context, mimo_log_level level, const char *text)
{
    lines *all = context;
    snprintf(all->text, sizeof all->text, "%s", text);
    all->count++;
    if (level != MIMO_LOG_WARNING)
        return;
    snprintf(all->warning, sizeof all->warning, "%s", text);
    all->warnings++;
}

/* The warnings of a creation, the last line of which is a warning if there is one. */
static lines create_and_read(mimo_buffer **out)
{
    lines read = {.count = 0};
    mimo_log_set(note, &read);
    MPI_EXPECT_OK(mimo_buffer_create(out, mpi_test_comm(), 64));
    mimo_log_set(NULL, NULL);
    return read;
}

/* Where not all ranks are within reach rank 0 says so, and only there. It says so once, until the
 * reach changes. */
MPI_TEST(buffer, out_of_reach)
{
    int size = mpi_test_size(), last = size;
    for (int hosts = 1; hosts <= 3; hosts++) {
        char expected[64];
        mimo_buffer *buffer, *another;
        int reach = (size - mpi_test_rank() % hosts + hosts - 1) / hosts;
        snprintf(expected, sizeof expected, "of %d ranks out of %d", reach, size);
        mimo_split_hosts(hosts);
        lines read = create_and_read(&buffer);
        MPI_EXPECT(mimo_buffer_reach(buffer) == reach, "%d", mimo_buffer_reach(buffer));
        if (mpi_test_rank() == 0 && reach < size && reach != last)
            MPI_EXPECT(strstr(read.text, expected) && read.warnings == 1, "%s", read.text);
        else
            MPI_EXPECT(read.warnings == 0, "%s", read.text);
        expect_shared(buffer, hosts);
        read = create_and_read(&another);
        MPI_EXPECT(read.warnings == 0, "said again: %s", read.text);
        mimo_buffer_destroy(another);
        mimo_buffer_destroy(buffer);
        last = reach;
    }
    mimo_split_hosts(1);
}

static int64_t few_bytes(const mimo_comm *comm)
{
    return 64 * comm->size;
}

/* A bridge that was told to stage its messages says on rank 0 that some are sent. */
static void create_staged(mimo_comm *comm, int hosts)
{
    lines read = {.warnings = 0};
    mimo_grid *dp = mpi_test_grid_of("dp=%d", comm->size);
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc = mpi_test_bridge_desc(dp, dp);
    desc.executor = (mimo_executor){MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_STAGED};
    mimo_log_set(note, &read);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    mimo_log_set(NULL, NULL);
    MPI_EXPECT(read.warnings == (comm->rank == 0 && hosts > 1), "%s", read.warning);
    MPI_EXPECT(read.warnings == 0 || strstr(read.warning, "bridge 1: staged was chosen, and rank 0 "
                                                          "reaches no memory of rank"),
               "%s", read.warning);
    mimo_bridge_destroy(bridge);
}

/* Messages to ranks out of reach are not staged, and rank 0 says so where FIFOs open, and how much
 * memory they take. A buffer of the same reach says it no second time. On the host nothing is
 * staged: only the FIFOs are made. */
MPI_TEST(buffer, fifos_out_of_reach)
{
    int size = mpi_test_size();
    for (int hosts = 1; hosts <= 2; hosts++) {
        char expected[64];
        mimo_fifo_user user = {NULL};
        mimo_buffer *buffer = NULL;
        lines read = {.count = 0};
        mimo_comm *comm = mpi_test_comm_new();
        const mimo_comm_backend *real = comm->backend;
        mimo_comm_backend staging = *real;
        staging.fifo_bytes = staging.fifo_piece = few_bytes;
        comm->backend = &staging;
        mimo_split_hosts(hosts);
        mimo_log_set(note, &read);
        MPI_EXPECT_OK(mimo_fifos_use(&user, comm));
        int opened = read.warnings;
        bool says_bytes = strstr(read.text, "ranks that share memory can be staged, through ");
        MPI_EXPECT(says_bytes == (mpi_test_rank() == 0), "%s", read.text);
        MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 64));
        mimo_log_set(NULL, NULL);
        int reach = mimo_buffer_reach(buffer);
        snprintf(expected, sizeof expected, "of %d ranks out of %d", reach, size);
        MPI_EXPECT(mimo_fifos_of(&user) != NULL && (reach < size) == (hosts > 1), "reach %d",
                   reach);
        MPI_EXPECT(opened == (mpi_test_rank() == 0 && hosts > 1) && read.warnings == opened,
                   "%d warnings, then %d: %s", opened, read.warnings, read.text);
        MPI_EXPECT(read.warnings == 0 || strstr(read.warning, expected), "%s", read.warning);
        create_staged(comm, hosts);
        mimo_buffer_destroy(buffer);
        mimo_fifos_leave(&user);
        comm->backend = real;
        mimo_comm_destroy(comm);
    }
    mimo_split_hosts(1);
}

/* A line that says that rows are sent though zero-copy was chosen. */
static void note_fallback(void *context, mimo_log_level level, const char *text)
{
    if (strstr(text, "zero-copy was chosen"))
        note(context, level, text);
}

/* In one call, some rows are pushed and some are sent. The first one says so, on rank 0. */
MPI_TEST(buffer, rows_by_both_ways)
{
    static const char *const pairs[][2] = {{"dp=4", "cp=2,dp=2"},
                                           {"dp=4", "cp=4,dp=1"},
                                           {"tp=4,dp=1", "cp=2,dp=2"},
                                           {"tp=2,dp=2", "cp=4,dp=1"},
                                           {"dp=3", "dp=2"}};
    for (int i = 0; i < 5 * 2 * 2; i++) {
        bed_case c = {.src = {.grid = pairs[i / 4][0]},
                      .dst = {.grid = pairs[i / 4][1], .partition = i % 2},
                      .src_letters = "sbh",
                      .dst_letters = "bsh",
                      .buffer = true,
                      .sums = i % 2 == 0,
                      .batch = 5,
                      .seq = 8};
        lines read = {.warnings = 0};
        mimo_split_hosts(2 + i / 2 % 2);
        bridge_bed bed = bed_create(&c);
        mimo_log_set(note_fallback, &read);
        for (uint64_t seed = 0; bed.bridge && seed < 3; seed++) {
            bed_move(&bed, false, seed);
            bed_move(&bed, true, seed);
        }
        if (bed.bridge)
            MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 1));
        mimo_log_set(NULL, NULL);
        MPI_EXPECT(read.warnings == (mpi_test_rank() == 0), "%d: %s", read.warnings, read.warning);
        if (mpi_test_rank() == 0)
            MPI_EXPECT(strstr(read.warning,
                              ": zero-copy was chosen, and rank 0 reaches no memory of "
                              "rank") &&
                           strstr(read.warning, ": rows to and from ranks out of reach are sent"),
                       "%s", read.warning);
        bed_destroy(&bed);
        test_shared_end();
    }
    mimo_split_hosts(1);
}

/* ------------------------------------- addresses ------------------------------------ */

/* What a bridge has prepared for an address ends with the buffer there. As a rule the next buffer
 * begins at the same address on this rank. But peers that come within reach shift each other. */
MPI_TEST(buffer, made_anew)
{
    bed_case c = bed_fan_in;
    c.dst.grid = "cp=4,dp=1"; /* rows between any two ranks */
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC);
    for (int hosts = 3; hosts > 0; hosts--) {
        mimo_split_hosts(hosts);
        test_tile to = bed_target_new(&bed, MIMO_DST);
        bed_fill(&bed, &from, false, (uint64_t)hosts);
        MPI_EXPECT_OK(bed_call(&bed, false, &to, &from));
        bed_check_target(&bed, &to, false, (uint64_t)hosts);
        test_tile_free(&to);
        test_shared_end();
    }
    bed_destroy(&bed);
}

/* --------------------------------------- order -------------------------------------- */

/* Ranks 0 and 1 send all that ranks 2 and 3 receive. A sender waits until it may write, except
 * where the caller has said that it always may. */
static void call_late(bool idle)
{
    bed_case c = {.src = {.grid = "dp=2"},
                  .dst = {.grid = "dp=2", .offset = 2},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .buffer = true,
                  .idle = idle,
                  .given = true,
                  .batch = 4,
                  .seq = 8};
    mimo_op *op = NULL;
    bool done = false, sends = mpi_test_rank() < 2;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    for (uint64_t seed = 0; seed < 3; seed++) {
        bed_fill(&bed, &from, false, seed);
        MPI_Barrier(MPI_COMM_WORLD);
        if (sends)
            MPI_EXPECT_OK(
                mimo_bridge_forward_start(&op, bed.bridge, &to.view, &from.view, 1, test_stream()));
        for (int tests = 0; sends && tests < 100; tests++)
            MPI_EXPECT_OK(mimo_op_test(&done, op));
        MPI_EXPECT(!sends || done == idle, "call %d has%s ended", (int)seed, done ? "" : " not");
        MPI_Barrier(MPI_COMM_WORLD);
        if (!sends)
            MPI_EXPECT_OK(
                mimo_bridge_forward_start(&op, bed.bridge, &to.view, &from.view, 1, test_stream()));
        MPI_EXPECT_OK(mimo_op_wait(&op));
        bed_check_target(&bed, &to, false, seed);
    }
    bed_destroy(&bed);
}

MPI_TEST(buffer, late_receivers)
{
    setenv("MIMO_AGREE", "0", 1);
    call_late(false);
    call_late(true);
    setenv("MIMO_AGREE", "1", 1);
}

/* Two bridges into one buffer. On half of the ranks their calls begin in the opposite order. */
static void overtake(bool waits_differ)
{
    enum { BRIDGES = 2 };
    bed_case c = bed_fan_in;
    bridge_bed beds[BRIDGES];
    test_tile from[BRIDGES], to[BRIDGES];
    mimo_op *ops[BRIDGES];
    int rank = mpi_test_rank();
    c.given = true;
    for (int i = 0; i < BRIDGES; i++) {
        beds[i] = bed_create(&c);
        from[i] = bed_tile_new(&beds[i], MIMO_SRC);
        to[i] = bed_target_new(&beds[i], MIMO_DST);
    }
    for (uint64_t round = 0; round < 30; round++) {
        for (int i = 0; i < BRIDGES; i++)
            bed_fill(&beds[i], &from[i], false, 2 * round + (uint64_t)i);
        for (int n = 0; n < BRIDGES; n++) {
            int i = n ^ (rank % 2);
            MPI_EXPECT_OK(mimo_bridge_forward_start(&ops[i], beds[i].bridge, &to[i].view,
                                                    &from[i].view, 1, test_stream()));
            if (rank % 2 == 0 && round % 3 == 0)
                usleep(2000);
        }
        for (int n = 0; n < BRIDGES; n++) {
            int i = n ^ (waits_differ ? rank / 2 % 2 : 0);
            MPI_EXPECT_OK(mimo_op_wait(&ops[i]));
            bed_check_target(&beds[i], &to[i], false, 2 * round + (uint64_t)i);
        }
    }
    for (int i = 0; i < BRIDGES; i++)
        bed_destroy(&beds[i]);
}

MPI_TEST(buffer, bridges_that_overtake)
{
    overtake(false);
    overtake(true);
    setenv("MIMO_AGREE", "0", 1);
    overtake(true);
    setenv("MIMO_AGREE", "1", 1);
}

/* A row that was sent, not pushed, may come when its call and its buffer are gone: MPI then wrote
 * into memory that was not mapped any more. */
MPI_TEST(buffer, memory_of_an_ended_family_stays_mapped)
{
    enum { BYTES = 4096 };
    mimo_comm *comm = mpi_test_comm_new();
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, BYTES));
    void *data = mimo_buffer_data(buffer);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_comm_abort(comm, "it is late"));
    mimo_buffer_destroy(buffer);
    MPI_EXPECT(msync(data, BYTES, MS_ASYNC) == 0, "it is not mapped any more");
    mimo_comm_destroy(comm);
}
