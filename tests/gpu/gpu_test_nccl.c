/* The NCCL backend itself: creation and its mistakes, borrowed communicators, shared groups, calls
 * that only enqueue, and concurrent streams. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executors.h"
#include "bridge_bed.h"
#include "core/float16.h"
#include "gpu_calls.h"
#include "test_memory.h"
#include "same_bits.h"

static int own_device(void)
{
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    return device;
}

/* The sum of the ranks' numbers 1, 2, ... over a communicator. */
static void expect_sum(mimo_comm *comm)
{
    test_tile one = test_tile_new("t", MIMO_F32, 1000, 1, 1);
    float *at = one.room.host;
    int size = mimo_comm_size(comm);
    for (int i = 0; i < 1000; i++)
        at[i] = (float)(mimo_comm_rank(comm) + 1);
    test_push(&one.room);
    MPI_EXPECT_OK(
        mimo_comm_allreduce(comm, one.view.data, 1000, MIMO_F32, MIMO_SUM, test_stream()));
    test_pull(&one.room);
    for (int i = 0; i < 1000; i += 333)
        MPI_EXPECT(at[i] == (float)(size * (size + 1) / 2), "[%d] is %g over %d ranks", i,
                   (double)at[i], size);
    test_tile_free(&one);
}

/* ---------------------------------------- creation ----------------------------------------- */

static int refuses(void *context, void *to, const void *from, size_t bytes)
{
    (void)context, (void)to, (void)from, (void)bytes;
    return 5;
}

/* A mistake of the last rank is the same error on all. */
MPI_TEST(nccl, wrong_creation)
{
    int rank = mpi_test_rank(), last = mpi_test_size() - 1;
    mimo_comm *comm = NULL;
    int device = own_device();
    const mimo_nccl_desc good = MIMO_NCCL_DESC_INIT;
    mimo_nccl_desc desc = good;
    char words[64];
    snprintf(words, sizeof words, "rank %d: ", last);
    desc.device = rank == last ? 99 : device;
    MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT, words, "device 99 is not one of");
    desc = good;
    MPI_FAILS(gpu_comm_create(&comm, rank == last ? NULL : &desc), MIMO_ERR_ARGUMENT,
              "desc is NULL");
    desc.max_ctas = rank == last ? -7 : MIMO_NCCL_DEFAULT;
    MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT, "max_ctas -7");
    desc = good;
    desc.size = rank == last ? 3 : desc.size;
    MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT, words);
    if (last > 0) {
        desc = good;
        desc.min_ctas = rank == last ? 2 : 1;
        MPI_EXPECT_STATUS(gpu_comm_create(&comm, &desc), MIMO_ERR_MISMATCH);
        snprintf(words, sizeof words, "rank %d gave another NCCL descriptor", last);
        MPI_EXPECT_SENTENCE(words);
        MPI_EXPECT_SENTENCE("min_ctas is 2 there, and 1 on rank 0");
        desc = good;
        mimo_comm_desc common = MIMO_COMM_DESC_INIT;
        common.checks = rank == last ? MIMO_CHECK_CALLS : 0;
        desc.common = &common;
        MPI_EXPECT_STATUS(gpu_comm_create(&comm, &desc), MIMO_ERR_MISMATCH);
        snprintf(words, sizeof words, "rank %d has another MIMO_AGREE or MIMO_CHECK=calls", last);
        MPI_EXPECT_SENTENCE(words);
        desc = good;
        desc.device = rank < 2 ? 0 : device;
        /* Otherwise ranks may share a GPU, or lie on two pretended hosts. */
        if (!getenv("NCCL_MULTI_RANK_GPU_ENABLE") && !getenv("NCCL_HOSTID")) {
            MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT,
                      "ranks 0 and 1 both use GPU");
        }
    }
    MPI_EXPECT(!comm, "a failed call made an object");
    MPI_EXPECT_OK(gpu_comm_create(&comm, &good));
    if (comm) {
        int chosen = -1;
        MPI_EXPECT_OK(mimo_nccl_device(&chosen, comm));
        MPI_EXPECT(chosen == device, "the default device is %d, not %d", chosen, device);
        expect_sum(comm);
    }
    mimo_comm_destroy(comm);
}

/* Mistakes that a rank finds before it exchanges anything with another one. */
MPI_TEST(nccl, wrong_bootstrap)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap good = MIMO_BOOTSTRAP_INIT, bad = MIMO_BOOTSTRAP_INIT;
    mimo_comm *comm = NULL;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    MPI_EXPECT_OK(mimo_bootstrap_from_mpi(&good, &world));
    MPI_FAILS(mimo_comm_create_nccl(NULL, &good, &desc), MIMO_ERR_ARGUMENT, "out is NULL");
    MPI_FAILS(mimo_comm_create_nccl(&comm, NULL, &desc), MIMO_ERR_ARGUMENT, "bootstrap is NULL");
    bad = good;
    bad.allgather = NULL;
    MPI_EXPECT_STATUS(mimo_comm_create_nccl(&comm, &bad, &desc), MIMO_ERR_ARGUMENT);
    bad = good;
    bad.rank = good.ranks;
    MPI_EXPECT_STATUS(mimo_comm_create_nccl(&comm, &bad, &desc), MIMO_ERR_ARGUMENT);
    bad.rank = -1;
    MPI_FAILS(mimo_comm_create_nccl(&comm, &bad, &desc), MIMO_ERR_ARGUMENT, "rank -1 of");
    bad.rank = bad.ranks = 0;
    MPI_EXPECT_STATUS(mimo_comm_create_nccl(&comm, &bad, &desc), MIMO_ERR_ARGUMENT);
    bad = good;
    bad.allgather = refuses;
    MPI_FAILS(mimo_comm_create_nccl(&comm, &bad, &desc), MIMO_ERR_COMM, "allgather gave 5");
    MPI_EXPECT(!comm, "a failed call made an object");
}

/* MPI's allgather; its call number `refused` gives 5 on every rank, and moves nothing. */
typedef struct failing_bootstrap {
    mimo_bootstrap good;
    int calls, refused;
} failing_bootstrap;

static int refuses_one(void *context, void *to, const void *from, size_t bytes)
{
    failing_bootstrap *it = context;
    if (++it->calls == it->refused)
        return 5;
    return it->good.allgather(it->good.context, to, from, bytes);
}

/* Threads or open files of this process. */
static int count_entries(const char *folder)
{
    int count = 0;
    DIR *opened = opendir(folder);
    while (opened && readdir(opened))
        count++;
    if (opened)
        closedir(opened);
    return count;
}

static void fail_creation(int refused)
{
    enum { CALLS = 4 }; /* of a creation that succeeds */
    MPI_Comm world = MPI_COMM_WORLD;
    failing_bootstrap it = {.good = MIMO_BOOTSTRAP_INIT, .refused = refused};
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    mimo_comm *comm = NULL;
    int device = own_device();
    MPI_EXPECT_OK(mimo_bootstrap_from_mpi(&it.good, &world));
    mimo_bootstrap bad = it.good;
    bad.allgather = refuses_one;
    bad.context = &it;
    mimo_status status = mimo_comm_create_nccl(&comm, &bad, &desc);
    MPI_EXPECT(status == (refused <= CALLS ? MIMO_ERR_COMM : MIMO_OK), "call %d refused: %s",
               refused, mimo_status_name(status));
    if (refused <= CALLS)
        MPI_EXPECT_SENTENCE("allgather gave 5");
    else if (comm)
        expect_sum(comm);
    MPI_EXPECT(it.calls == (refused < CALLS ? refused : CALLS), "%d calls", it.calls);
    MPI_EXPECT((comm != NULL) == (refused > CALLS), "call %d refused: an object", refused);
    MPI_EXPECT(own_device() == device, "device %d is current, not %d", own_device(), device);
    mimo_comm_destroy(comm);
}

/* A bootstrap that fails at its k-th call. Nothing is left: neither threads nor files, where there
 * is one rank. (With more, NCCL keeps a thread for an identifier that nobody uses.) */
MPI_TEST(nccl, bootstrap_fails_later)
{
    enum { ROUNDS = 4, SUCCEEDS = 5 };
    int threads = 0, files = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int refused = 1; refused <= SUCCEEDS; refused++)
            fail_creation(refused);
        if (round == 0) { /* what CUDA and NCCL make once is there now */
            threads = count_entries("/proc/self/task");
            files = count_entries("/proc/self/fd");
        }
    }
    if (mpi_test_size() > 1)
        return;
    MPI_EXPECT(count_entries("/proc/self/task") <= threads, "%d threads, then %d", threads,
               count_entries("/proc/self/task"));
    MPI_EXPECT(count_entries("/proc/self/fd") <= files, "%d files, then %d", files,
               count_entries("/proc/self/fd"));
}

/* A creation that a rank refuses leaves no thread of NCCL behind, with any number of ranks. */
MPI_TEST(nccl, refusals_leave_nothing)
{
    enum { WARM_UP = 1, ROUNDS = 6 };
    const int last = mpi_test_size() - 1;
    int threads = 0, files = 0;
    for (int round = 0; round < ROUNDS; round++) {
        mimo_comm *comm = NULL;
        mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
        desc.max_ctas = mpi_test_rank() == last ? -7 : MIMO_NCCL_DEFAULT;
        MPI_EXPECT_STATUS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT);
        threads = round < WARM_UP ? count_entries("/proc/self/task") : threads;
        files = round < WARM_UP ? count_entries("/proc/self/fd") : files;
    }
    MPI_EXPECT(count_entries("/proc/self/task") <= threads, "%d threads, then %d", threads,
               count_entries("/proc/self/task"));
    MPI_EXPECT(count_entries("/proc/self/fd") <= files, "%d files, then %d", files,
               count_entries("/proc/self/fd"));
}

/* Other settings of NCCL, nonblocking creation among them. */
MPI_TEST(nccl, settings)
{
    for (int blocking = 0; blocking < 2; blocking++) {
        mimo_comm *comm = NULL, *half = NULL;
        mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
        desc.min_ctas = 1;
        desc.max_ctas = 4;
        desc.blocking = blocking;
        desc.split_share = 1;
        MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
        if (!comm)
            return;
        expect_sum(comm);
        MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
        if (half)
            expect_sum(half);
        mimo_comm_destroy(half);
        mimo_comm_destroy(comm);
    }
}

/* With nonblocking creation NCCL may still work when its calls return. Buffers reach as many ranks,
 * and rows arrive. */
MPI_TEST(nccl, nonblocking_zero_copy)
{
    mimo_comm *comm = NULL;
    mimo_buffer *buffer = NULL, *blocking = NULL;
    mimo_bridge *bridge = NULL;
    mimo_nccl_desc polled = MIMO_NCCL_DESC_INIT;
    polled.blocking = 0;
    MPI_EXPECT_OK(gpu_comm_create(&comm, &polled));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 1 << 20));
    MPI_EXPECT_OK(mimo_buffer_create(&blocking, mpi_test_comm(), 1 << 20));
    if (buffer && blocking)
        MPI_EXPECT(mimo_buffer_reach(buffer) == mimo_buffer_reach(blocking), "%d ranks, not %d",
                   mimo_buffer_reach(buffer), mimo_buffer_reach(blocking));
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("dp=%d", mpi_test_size()),
                                                 mpi_test_grid_of("tp=%d,dp=1", mpi_test_size()));
    desc.executor = executor_of(EXECUTOR_ZERO_COPY);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    if (bridge)
        MPI_EXPECT_OK(mimo_bridge_self_test(bridge, 1));
    mimo_bridge_destroy(bridge);
    mimo_buffer_destroy(blocking);
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
}

static ncclComm_t raw_communicator(void)
{
    ncclUniqueId id;
    ncclComm_t raw = NULL;
    if (mpi_test_rank() == 0)
        EXPECT_NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    EXPECT_NCCL(ncclCommInitRank(&raw, mpi_test_size(), id, mpi_test_rank()));
    return raw;
}

/* A borrowed communicator can be used and split, but is not destroyed. */
MPI_TEST(nccl, borrowed)
{
    mimo_comm *comm = NULL, *half = NULL;
    ncclComm_t raw = raw_communicator();
    MPI_EXPECT_STATUS(mimo_comm_borrow_nccl(NULL, raw, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_comm_borrow_nccl(&comm, NULL, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT(!comm, "a failed call made an object");
    for (int again = 0; again < 2; again++) {
        MPI_EXPECT_OK(mimo_comm_borrow_nccl(&comm, raw, NULL));
        MPI_EXPECT(mimo_comm_rank(comm) == mpi_test_rank() &&
                       mimo_comm_size(comm) == mpi_test_size(),
                   "rank %d of %d", mimo_comm_rank(comm), mimo_comm_size(comm));
        expect_sum(comm);
        MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
        expect_sum(half);
        mimo_comm_destroy(half);
        mimo_comm_destroy(comm);
    }
    test_tile one = test_tile_new("t", MIMO_F32, 1, 1, 1);
    *(float *)one.room.host = 1;
    test_push(&one.room);
    EXPECT_NCCL(
        ncclAllReduce(one.view.data, one.view.data, 1, ncclFloat32, ncclSum, raw, test_stream()));
    test_pull(&one.room);
    MPI_EXPECT(*(float *)one.room.host == (float)mpi_test_size(), "the caller's own sum is %g",
               (double)*(float *)one.room.host);
    EXPECT_NCCL(ncclCommDestroy(raw));
}

/* ----------------------------------------- sharing ----------------------------------------- */

static void expect_report(const mimo_comm *comm, int communicators, int shared)
{
    mimo_nccl_report report = MIMO_NCCL_REPORT_INIT;
    MPI_EXPECT_OK(mimo_nccl_report_of(&report, comm));
    MPI_EXPECT(report.communicators == communicators && report.shared == shared &&
                   report.device_bytes >= 0,
               "%d communicators, %d shared, %lld bytes; not %d and %d", report.communicators,
               report.shared, (long long)report.device_bytes, communicators, shared);
}

/* On 4 ranks: equal groups share one NCCL communicator, groups of one rank have none. */
MPI_TEST(nccl, sharing)
{
    mimo_comm *comm = mpi_test_comm(), *all, *half[2], *other, *lone, *turned;
    mimo_nccl_report report = MIMO_NCCL_REPORT_INIT;
    int rank = mpi_test_rank();
    expect_report(comm, 1, 0);
    MPI_EXPECT_OK(mimo_comm_split(&lone, comm, rank, 0));
    expect_report(comm, 1, 0);
    expect_sum(lone);
    MPI_EXPECT_OK(mimo_comm_split(&all, comm, 0, rank));
    expect_report(comm, 1, 1); /* the same ranks in the same order: the parent's own */
    MPI_EXPECT_OK(mimo_comm_split(&turned, comm, 0, -rank));
    expect_report(comm, 2, 1); /* another order of ranks is another group */
    MPI_EXPECT_OK(mimo_comm_split(&half[0], comm, rank / 2, rank));
    expect_report(comm, 3, 1);
    MPI_EXPECT_OK(mimo_comm_split(&half[1], all, rank / 2 + 7, 0));
    expect_report(half[1], 3, 2); /* one report for all that come from one creation */
    MPI_EXPECT_OK(mimo_comm_split(&other, comm, rank == 0 ? -1 : 0, rank));
    expect_report(comm, rank == 0 ? 3 : 4, 2);
    mimo_comm *const groups[] = {all, turned, half[0], half[1], other};
    for (int i = 0; i < 5; i++)
        if (groups[i])
            expect_sum(groups[i]);
    mimo_comm_destroy(half[0]);
    expect_report(comm, rank == 0 ? 3 : 4, 2); /* half[1] still holds it */
    expect_sum(half[1]);
    mimo_comm_destroy(half[1]);
    mimo_comm_destroy(other);
    mimo_comm_destroy(turned);
    mimo_comm_destroy(all);
    mimo_comm_destroy(lone);
    expect_report(comm, 1, 2);
    MPI_EXPECT_STATUS(mimo_nccl_report_of(NULL, comm), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_nccl_report_of(&report, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_OK(mimo_comm_create_mpi(&other, MPI_COMM_WORLD, NULL));
    MPI_FAILS(mimo_nccl_report_of(&report, other), MIMO_ERR_ARGUMENT, "backend 'mpi'");
    mimo_comm_destroy(other);
}

static bed_case four_ranks(executor_id executor)
{
    bed_case c = {.src = {.grid = "tp=1,dp=4"}, .dst = {.grid = "tp=1,cp=2,dp=2"}};
    c.src_letters = c.dst_letters = "sbh";
    c.executor = executor;
    c.dtype = MIMO_F32;
    c.given = true;
    c.batch = 8;
    c.seq = 16;
    return c;
}

/* A second bridge between the same grids needs no communicator of its own. */
MPI_TEST(nccl, bridges_share)
{
    mimo_nccl_report first = MIMO_NCCL_REPORT_INIT, second = MIMO_NCCL_REPORT_INIT;
    bridge_bed bed[2];
    bed_case c = four_ranks(EXECUTOR_COLLECTIVE);
    bed[0] = bed_create(&c);
    MPI_EXPECT_OK(mimo_nccl_report_of(&first, mpi_test_comm()));
    bed[1] = bed_create(&c);
    MPI_EXPECT_OK(mimo_nccl_report_of(&second, mpi_test_comm()));
    MPI_EXPECT(first.communicators == second.communicators, "%d communicators, then %d",
               first.communicators, second.communicators);
    MPI_EXPECT(second.shared > first.shared, "%d shared, then %d", first.shared, second.shared);
    for (int i = 0; i < 2; i++)
        bed_move(&bed[i], false, (uint64_t)i);
    for (int i = 0; i < 2; i++)
        bed_destroy(&bed[i]);
}

/* ----------------------------------------- buffers ----------------------------------------- */

/* Two tiles, one in memory of its own and one in a buffer. */
typedef struct twins {
    char *place[2];
    mimo_tensor view[2];
} twins;

enum { TWIN_SEQ = 1024, TWIN_HIDDEN = 2048 }; /* 4 MiB for each of the other ranks */

static int64_t twin_bytes(void)
{
    return (int64_t)mpi_test_size() * TWIN_SEQ * TWIN_HIDDEN * 2;
}

static twins twins_new(const mimo_buffer *buffer, int64_t offset, int64_t seq, int64_t batch)
{
    twins made;
    EXPECT_CUDA(cudaMalloc((void **)&made.place[0], (size_t)twin_bytes()));
    made.place[1] = (char *)mimo_buffer_data(buffer) + offset;
    for (int i = 0; i < 2; i++) {
        made.view[i] = mimo_tensor_3d(made.place[i], MIMO_BF16, "sbh", seq, batch, TWIN_HIDDEN);
        made.view[i].memory = MIMO_MEMORY_CUDA;
    }
    return made;
}

static void twins_fill(const twins *it, uint16_t *numbers)
{
    for (int64_t i = 0; i < twin_bytes() / 2; i++)
        numbers[i] = (uint16_t)(i * 7 + mpi_test_rank());
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(
            cudaMemcpy(it->place[i], numbers, (size_t)twin_bytes(), cudaMemcpyHostToDevice));
}

/* Forward by messages into a zeroed target. Bit 0 of `way`: from a buffer; bit 1: into one. */
static void forward_of(mimo_bridge *bridge, const twins *to, const twins *from, int way,
                       uint16_t *result)
{
    size_t bytes = (size_t)twin_bytes();
    EXPECT_CUDA(cudaMemset(to->place[way / 2], 0, bytes));
    EXPECT_CUDA(cudaDeviceSynchronize());
    MPI_EXPECT_OK(
        mimo_bridge_forward(bridge, &to->view[way / 2], &from->view[way % 2], 1, test_stream()));
    MPI_EXPECT_OK(mimo_comm_synchronize(mpi_test_comm(), test_stream()));
    EXPECT_CUDA(cudaMemcpy(result, to->place[way / 2], bytes, cudaMemcpyDeviceToHost));
}

/* Every rank has a sample of its own, and takes a part of every sample. */
static mimo_bridge_desc twin_desc(void)
{
    static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    int size = mpi_test_size();
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("tp=1,dp=%d", size),
                                                 mpi_test_grid_of("tp=1,cp=%d,dp=1", size));
    desc.partition = &zigzag;
    desc.batch = size;
    return desc;
}

/* Tiles in buffers as ends of messages. NCCL waits for ever on large messages of which one end
 * alone is in memory that it has registered. */
MPI_TEST(nccl, messages_of_buffers)
{
    int size = mpi_test_size();
    mimo_bridge_desc desc = twin_desc();
    mimo_bridge *bridge = NULL;
    mimo_buffer *buffer = NULL;
    uint16_t *result[2] = {malloc((size_t)twin_bytes()), malloc((size_t)twin_bytes())};
    desc.executor = executor_of(EXECUTOR_P2P);
    MPI_EXPECT_OK(mimo_comm_set_deadline(mpi_test_comm(), 20000));
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), 2 * twin_bytes()));
    twins from = twins_new(buffer, 0, size * TWIN_SEQ, 1);
    twins to = twins_new(buffer, twin_bytes(), TWIN_SEQ, size);
    twins_fill(&from, result[0]);
    forward_of(bridge, &to, &from, 0, result[0]);
    for (int way = 1; way < 4; way++) { /* 1: from a buffer, 2: into one, 3: both */
        forward_of(bridge, &to, &from, way, result[1]);
        MPI_EXPECT_BITS(bits_of(result[1], result[0], twin_bytes(), 2, TWIN_HIDDEN), "way %d", way);
    }
    for (int i = 0; i < 2; i++)
        free(result[i]);
    EXPECT_CUDA(cudaFree(from.place[0]));
    EXPECT_CUDA(cudaFree(to.place[0]));
    mimo_buffer_destroy(buffer);
    mimo_bridge_destroy(bridge);
}

/* Zero-copy into memory that the caller allocates and keeps gives the same bits as messages. */
MPI_TEST(nccl, registered_memory)
{
    int size = mpi_test_size();
    mimo_bridge_desc desc = twin_desc();
    mimo_bridge *bridge[2];
    mimo_buffer *buffer = NULL;
    void *given = NULL;
    uint16_t *result[2] = {malloc((size_t)twin_bytes()), malloc((size_t)twin_bytes())};
    EXPECT_NCCL(ncclMemAlloc(&given, (size_t)(2 * twin_bytes())));
    int64_t other = twin_bytes() + (mpi_test_rank() == size - 1) * 4096;
    MPI_EXPECT_STATUS(
        mimo_buffer_borrow(&buffer, mpi_test_comm(), (char *)given + 16, twin_bytes()),
        MIMO_ERR_ARGUMENT);
    if (size > 1)
        MPI_EXPECT_STATUS(mimo_buffer_borrow(&buffer, mpi_test_comm(), given, other),
                          MIMO_ERR_ARGUMENT);
    MPI_EXPECT_OK(mimo_buffer_borrow(&buffer, mpi_test_comm(), given, 2 * twin_bytes()));
    MPI_EXPECT(mimo_buffer_data(buffer) == given, "%p", mimo_buffer_data(buffer));
    twins from = twins_new(buffer, 0, size * TWIN_SEQ, 1);
    twins to = twins_new(buffer, twin_bytes(), TWIN_SEQ, size);
    twins_fill(&from, result[0]);
    for (int i = 0; i < 2; i++) { /* first into plain memory, then into the caller's */
        desc.executor = executor_of(i == 0 ? EXECUTOR_P2P : EXECUTOR_ZERO_COPY);
        MPI_EXPECT_OK(mimo_bridge_create(&bridge[i], mpi_test_comm(), &desc));
        forward_of(bridge[i], &to, &from, 2 * i, result[i]);
    }
    MPI_EXPECT_BITS(bits_of(result[1], result[0], twin_bytes(), 2, TWIN_HIDDEN),
                    "in the caller's memory");
    for (int i = 0; i < 2; i++) {
        mimo_bridge_destroy(bridge[i]);
        free(result[i]);
    }
    mimo_buffer_destroy(buffer);
    EXPECT_CUDA(cudaMemset(given, 0, (size_t)(2 * twin_bytes())));
    EXPECT_CUDA(cudaFree(from.place[0]));
    EXPECT_CUDA(cudaFree(to.place[0]));
    EXPECT_NCCL(ncclMemFree(given));
}

/* ----------------------------------------- streams ----------------------------------------- */

/* Work of a stream that waits until the host opens the gate, or for ten seconds. */
typedef struct gate {
    atomic_bool open, late;
} gate;

static void wait_at_gate(void *context)
{
    gate *it = context;
    const struct timespec moment = {0, 1000000};
    for (int i = 0; i < 10000 && !it->open; i++)
        nanosleep(&moment, NULL);
    if (!it->open)
        it->late = true;
}

/* While the stream is held back every call returns at once, so it can only have enqueued. */
static void check_enqueues(executor_id executor, bool partition)
{
    bed_case c = four_ranks(executor);
    gate held = {false, false};
    cudaStream_t stream = test_stream();
    c.dst.partition = partition;
    bridge_bed bed = bed_create(&c);
    test_tile features = bed_tile_new(&bed, MIMO_SRC), crossed = bed_tile_new(&bed, MIMO_DST);
    test_tile gradient = bed_tile_new(&bed, MIMO_DST), back = bed_tile_new(&bed, MIMO_SRC);
    for (int round = 0; bed.bridge && round < 2; round++) {
        bed_fill(&bed, &features, false, (uint64_t)round);
        bed_fill(&bed, &gradient, true, (uint64_t)round);
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        if (round == 1) /* a first call prepares, which may block */
            EXPECT_CUDA(cudaLaunchHostFunc(stream, wait_at_gate, &held));
        MPI_EXPECT_OK(mimo_bridge_forward(bed.bridge, &crossed.view, &features.view, 1, stream));
        MPI_EXPECT_OK(mimo_bridge_backward(bed.bridge, &back.view, &gradient.view, 1, stream));
        if (round == 1)
            MPI_EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady, "the stream has ended");
        (void)cudaGetLastError(); /* "not ready" is kept as an error */
        held.open = true;
        bed_check_target(&bed, &crossed, false, (uint64_t)round);
        bed_check_target(&bed, &back, true, (uint64_t)round);
        held.open = false;
    }
    MPI_EXPECT(!held.late, "executor %d: a call waited for the stream", (int)executor);
    bed_destroy(&bed);
}

MPI_TEST(nccl, calls_only_enqueue)
{
    for (int partition = 0; partition < 2; partition++) {
        check_enqueues(EXECUTOR_COLLECTIVE, partition);
        check_enqueues(EXECUTOR_P2P, partition);
        check_enqueues(EXECUTOR_STAGED, partition);
    }
}

/* One round fills what is kept; in the other one the stream is held back. */
MPI_TEST(nccl, blocks_only_enqueue)
{
    enum { COUNT = 1000 };
    mimo_comm *comm = mpi_test_comm();
    gate held = {false, false};
    cudaStream_t stream = test_stream();
    int rank = mpi_test_rank(), size = mpi_test_size();
    test_room from = test_room_new((int64_t)2 * COUNT * size), to = test_room_new(2 * COUNT);
    test_room swapped = test_room_new((int64_t)2 * COUNT * size);
    uint16_t *given = from.host, *sums = to.host, *all = swapped.host;
    for (int i = 0; i < COUNT * size; i++)
        given[i] = mimo_bf16_from((float)(i % 16));
    for (int round = 0; round < 2; round++) {
        test_push(&from);
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        if (round == 1)
            EXPECT_CUDA(cudaLaunchHostFunc(stream, wait_at_gate, &held));
        MPI_EXPECT_OK(mimo_comm_reduce_scatter(comm, to.place, from.place, COUNT, MIMO_BF16,
                                               MIMO_SUM, stream));
        MPI_EXPECT_OK(mimo_comm_alltoall(comm, swapped.place, from.place, 2 * COUNT, stream));
        if (round == 1)
            MPI_EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady, "the stream has ended");
        (void)cudaGetLastError(); /* "not ready" is kept as an error */
        held.open = true;
        test_pull(&to);
        test_pull(&swapped);
        for (int i = 0; i < COUNT; i++) {
            int mine = (rank * COUNT + i) % 16;
            MPI_EXPECT(mimo_bf16_to(sums[i]) == (float)(size * mine), "sum [%d]", i);
            for (int r = 0; r < size; r++)
                MPI_EXPECT(mimo_bf16_to(all[r * COUNT + i]) == (float)mine, "from %d [%d]", r, i);
        }
        held.open = false;
    }
    MPI_EXPECT(!held.late, "a call waited for the stream");
}

/* Gradients of full sequences add all ranks of cp: in f32, rounded once. In steps, 256 + 1 + 1 + 1
 * of bf16 would be 256 or 258. */
MPI_TEST(nccl, sums_over_cp)
{
    enum { SEQ = 8, BATCH = 4, HIDDEN = 5 };
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid("tp=1,dp=4", 0), mpi_test_grid("tp=1,cp=4,dp=1", 0));
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    test_tile encoder = test_tile_new("sbh", MIMO_BF16, SEQ, BATCH / 4, HIDDEN);
    test_tile language = test_tile_new("sbh", MIMO_BF16, SEQ, BATCH, HIDDEN);
    uint16_t *mine = language.room.host, *sums = encoder.room.host;
    for (int i = 0; i < SEQ * BATCH * HIDDEN; i++)
        mine[i] = mimo_bf16_from(i % 4 == mpi_test_rank() ? 256 : 1);
    test_push(&language.room);
    MPI_EXPECT_OK(mimo_bridge_backward(bridge, &encoder.view, &language.view, 1, test_stream()));
    test_pull(&encoder.room);
    for (int i = 0; i < SEQ * BATCH / 4 * HIDDEN; i++)
        MPI_EXPECT(mimo_bf16_to(sums[i]) == 260, "[%d] is %g, not 260", i,
                   (double)mimo_bf16_to(sums[i]));
    mimo_bridge_destroy(bridge);
}

/* Calls that only enqueue reuse the previous call's sentence while it is right. */
MPI_TEST(nccl, words_of_calls)
{
    bed_case c = {.src = {.grid = "dp=1"}, .dst = {.grid = "cp=1,dp=1", .partition = true}};
    c.src_letters = c.dst_letters = "sbh";
    c.executor = EXECUTOR_P2P;
    c.batch = 1;
    c.seq = 4;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_tile_new(&bed, MIMO_DST);
    mimo_bridge *bridge = bed.bridge;
    for (int turn = 0; bridge && turn < 2; turn++) {
        MPI_EXPECT_OK(mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream()));
        MPI_FAILS(mimo_bridge_backward(bridge, NULL, &to.view, 1, test_stream()), MIMO_ERR_ARGUMENT,
                  "bridge 1 backward of 1: to is NULL");
        MPI_FAILS(mimo_bridge_forward(bridge, &to.view, &from.view, -turn, test_stream()),
                  MIMO_ERR_ARGUMENT,
                  turn ? "bridge 1 forward of -1: -1 tensors" : "bridge 1 forward of 0: 0 tensors");
    }
    bed_destroy(&bed);
}

/* Operations of one bridge on three streams, each with its own tiles. None waits for another. */
static void check_streams(executor_id executor)
{
    enum { STREAMS = 3, FLIGHTS = 9 };
    bed_case c = four_ranks(executor);
    cudaStream_t streams[STREAMS];
    test_tile from[FLIGHTS], to[FLIGHTS];
    bridge_bed bed = bed_create(&c);
    for (int i = 0; i < STREAMS; i++)
        EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < FLIGHTS; i++) {
        from[i] = bed_tile_new(&bed, i % 2 ? MIMO_DST : MIMO_SRC);
        to[i] = bed_tile_new(&bed, i % 2 ? MIMO_SRC : MIMO_DST);
    }
    for (uint64_t round = 0; bed.bridge && round < 4; round++) {
        mimo_op *ops[FLIGHTS];
        for (int i = 0; i < FLIGHTS; i++)
            bed_fill(&bed, &from[i], i % 2, round * FLIGHTS + (uint64_t)i);
        EXPECT_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < FLIGHTS; i++)
            MPI_EXPECT_OK((i % 2 ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
                &ops[i], bed.bridge, &to[i].view, &from[i].view, 1, streams[i % STREAMS]));
        for (int i = 0; i < FLIGHTS; i++)
            MPI_EXPECT_OK(mimo_op_wait(&ops[FLIGHTS - 1 - i]));
        EXPECT_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < FLIGHTS; i++)
            bed_check_target(&bed, &to[i], i % 2, round * FLIGHTS + (uint64_t)i);
    }
    for (int i = 0; i < STREAMS; i++)
        EXPECT_CUDA(cudaStreamDestroy(streams[i]));
    bed_destroy(&bed);
}

MPI_TEST(nccl, several_streams)
{
    check_streams(EXECUTOR_COLLECTIVE);
    check_streams(EXECUTOR_P2P);
    check_streams(EXECUTOR_STAGED);
}

/* Calls into one buffer, each on a stream that is destroyed as soon as its call has ended. */
MPI_TEST(nccl, streams_that_end)
{
    enum { STREAMS = 3 };
    char src[32], dst[32];
    cudaStream_t streams[STREAMS];
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", mpi_test_size());
    bed_case c = four_ranks(EXECUTOR_ZERO_COPY);
    c.src.grid = src;
    c.dst.grid = dst;
    c.dst.partition = c.buffer = true;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    for (int i = 0; i < STREAMS; i++) /* all before the calls, so that handles differ */
        EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; bed.bridge && i < STREAMS; i++) {
        bed_fill(&bed, &from, false, (uint64_t)i);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        MPI_EXPECT_OK(mimo_bridge_forward(bed.bridge, &to.view, &from.view, 1, streams[i]));
        MPI_EXPECT_OK(mimo_comm_synchronize(mpi_test_comm(), streams[i]));
        EXPECT_CUDA(cudaStreamDestroy(streams[i]));
        bed_check_target(&bed, &to, false, (uint64_t)i);
        MPI_Barrier(MPI_COMM_WORLD); /* the next call may write what this rank has read */
    }
    bed_destroy(&bed);
}
