/* Messages that are staged through FIFOs, on real GPUs. What the programs of all ranks do together
 * is tested without one (../unit/test_staged.c). */
#include <stdio.h>

#include "bridge_bed.h"
#include "comm/buffer_state.h"
#include "cases_ran.h"
#include "flag_litmus.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "meeting.h"
#include "same_bits.h"
#include "test_memory.h"

/* Forward and backward, twice, so that the second calls find entries that are in use. */
static void move_both_ways(const bed_case *c)
{
    bridge_bed bed = bed_create(c);
    for (uint64_t round = 0; bed.bridge && round < 2; round++) {
        bed_move(&bed, false, round);
        bed_move(&bed, true, round);
    }
    bed_destroy(&bed);
}

/* Grids, orders, dtypes, rows of odd lengths, sums, chunks and limits of thread blocks. */
MPI_TEST(staged, random_cases)
{
    enum { CASES = 30 };
    static const mimo_dtype dtypes[] = {MIMO_BF16, MIMO_F32, MIMO_F64};
    static const int64_t widths[] = {1, 3, 8, 64, 250};
    static const int ctas[] = {0, 1, 2, 9};
    uint64_t random = 11;
    for (int i = 0; i < CASES; i++) {
        char src[64], dst[64];
        bed_case c = {.executor = EXECUTOR_STAGED, .given = true};
        bed_draw_grid(&random, src, &c.src.offset);
        bed_draw_grid(&random, dst, &c.dst.offset);
        c.src.grid = src;
        c.dst.grid = dst;
        c.dst.partition = random_below(&random, 2);
        c.src_letters = random_below(&random, 2) ? "sbh" : "bsh";
        c.dst_letters = random_below(&random, 2) ? "sbh" : "bsh";
        c.dtype = dtypes[random_below(&random, 3)];
        c.hidden = widths[random_below(&random, 5)];
        c.batch = 24;
        c.seq = 48;
        c.ctas = ctas[random_below(&random, 4)];
        c.sums = random_below(&random, 2);
        c.chunks = (int)random_below(&random, 3);
        move_both_ways(&c);
    }
}

/* ------------------------------------ FIFOs of other sizes ---------------------------------- */

enum { HIDDEN = 512 };

/* Every rank has samples of its own, and takes a part of every sample. */
typedef struct crossing {
    mimo_bridge *bridge;
    test_tile from, to;
} crossing;

static crossing crossing_of(mimo_comm *comm, executor_id executor, int64_t seq, int64_t hidden)
{
    static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    crossing it = {.bridge = NULL};
    int size = mpi_test_size();
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid_of("dp=%d", size), mpi_test_grid_of("cp=%d", size));
    desc.partition = &zigzag;
    desc.executor = executor_of(executor);
    desc.batch = size;
    MPI_EXPECT_OK(mimo_bridge_create(&it.bridge, comm, &desc));
    it.from = test_tile_new("sbh", MIMO_F32, seq * size, 1, hidden);
    it.to = test_tile_new("sbh", MIMO_F32, seq, size, hidden);
    return it;
}

static crossing crossing_new(mimo_comm *comm, executor_id executor, int64_t seq)
{
    return crossing_of(comm, executor, seq, HIDDEN);
}

static void crossing_free(crossing *it)
{
    mimo_bridge_destroy(it->bridge);
    test_tile_free(&it->from);
    test_tile_free(&it->to);
}

/* What a forward brings, in host memory of the caller. */
static char *cross(mimo_comm *comm, executor_id executor, int64_t seq)
{
    crossing it = crossing_new(comm, executor, seq);
    char *host = malloc((size_t)it.from.room.bytes);
    fill_elements(host, (uint64_t)mpi_test_rank(), it.from.room.bytes, 1);
    EXPECT_CUDA(
        cudaMemcpy(it.from.view.data, host, (size_t)it.from.room.bytes, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++)
        MPI_EXPECT_OK(mimo_bridge_forward(it.bridge, &it.to.view, &it.from.view, 1, test_stream()));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    EXPECT_CUDA(
        cudaMemcpy(host, it.to.view.data, (size_t)it.to.room.bytes, cudaMemcpyDeviceToHost));
    crossing_free(&it);
    return host;
}

static void compare(mimo_comm *comm, int64_t seq)
{
    int64_t bytes = seq * mpi_test_size() * HIDDEN * 4;
    char *sent = cross(comm, EXECUTOR_P2P, seq), *staged = cross(comm, EXECUTOR_STAGED, seq);
    MPI_EXPECT_BITS(bits_of(staged, sent, bytes, 4, HIDDEN), "%d rows a rank", (int)seq);
    free(sent);
    free(staged);
}

/* Many more pieces than entries; less memory than FIFOs can use; none. */
MPI_TEST(staged, few_entries)
{
    static const int64_t bytes[] = {1 << 20, 100 << 10, 20 << 10, 1 << 10, 0};
    for (int i = 0; i < 5; i++) {
        mimo_comm *comm = NULL;
        mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
        desc.staging_bytes = bytes[i];
        MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
        compare(comm, 256);
        mimo_comm_destroy(comm);
    }
}

/* 64 MiB to each peer, twice what FIFOs hold. */
MPI_TEST(staged, long_messages)
{
    compare(mpi_test_comm(), 32768 / mpi_test_size());
}

MPI_TEST(staged, wrong_bytes)
{
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    desc.staging_bytes = -7;
    MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT, "staging_bytes -7");
    MPI_EXPECT(!comm, "a communicator in spite of the error");
}

/* ----------------------------------------- by choice ---------------------------------------- */

/* Pieces that this rank has sent through the FIFOs of a communicator. */
static uint64_t pieces_sent(const mimo_comm *comm)
{
    uint64_t sum = 0;
    for (int peer = 0; comm->fifos && peer < comm->size; peer++) {
        mimo_flags flags;
        EXPECT_CUDA(cudaMemcpy(&flags, &comm->fifos->flags[comm->rank][peer], sizeof flags,
                               cudaMemcpyDeviceToHost));
        sum += peer == comm->rank ? 0 : flags.sends;
    }
    return sum;
}

/* A forward by transport AUTO of rows of this length, in floats. Returns the pieces it staged. */
static uint64_t staged_by_choice(mimo_comm *comm, int64_t hidden)
{
    crossing it = crossing_of(comm, EXECUTOR_ROUTED, 16, hidden);
    uint64_t before = pieces_sent(comm);
    EXPECT_CUDA(cudaMemset(it.from.view.data, mpi_test_rank() + 1, (size_t)it.from.room.bytes));
    EXPECT_CUDA(cudaDeviceSynchronize());
    MPI_EXPECT_OK(mimo_bridge_forward(it.bridge, &it.to.view, &it.from.view, 1, test_stream()));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    uint64_t sent = pieces_sent(comm) - before;
    crossing_free(&it);
    return sent;
}

/* Transport AUTO stages rows of at least 128 bytes that are multiples of 16, unless it must not. */
MPI_TEST(staged, chosen_by_the_length_of_rows)
{
    static const struct {
        int64_t hidden;
        bool staged;
    } rows[] = {{32, true}, {31, false}, {28, false}, {33, false}, {36, true}, {512, true}};
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    test_needs_reach(2);
    MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
    crossing kept = crossing_new(comm, EXECUTOR_ROUTED, 16); /* so that the FIFOs stay */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t sent = staged_by_choice(comm, rows[i].hidden);
        MPI_EXPECT((sent > 0) == rows[i].staged, "rows of %d bytes: %d pieces were staged",
                   (int)rows[i].hidden * 4, (int)sent);
    }
    crossing_free(&kept);
    MPI_EXPECT(!comm->fifos, "FIFOs without a bridge");
    setenv("MIMO_STAGED", "0", 1);
    kept = crossing_new(comm, EXECUTOR_ROUTED, 16);
    MPI_EXPECT(!comm->fifos, "FIFOs in spite of MIMO_STAGED=0");
    unsetenv("MIMO_STAGED");
    crossing_free(&kept);
    mimo_comm_destroy(comm);
}

/* ------------------------------------------ waits ------------------------------------------- */

/* The last rank does not call: the others wait inside their GPUs, until the deadline ends that. */
static void wait_for_last(int64_t seq)
{
    enum { DEADLINE = 500 };
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    bool late = mpi_test_rank() == mpi_test_size() - 1;
    MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
    crossing it = crossing_new(comm, EXECUTOR_STAGED, seq);
    MPI_EXPECT_OK(mimo_bridge_forward(it.bridge, &it.to.view, &it.from.view, 1, test_stream()));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    if (!late) {
        MPI_EXPECT_OK(mimo_bridge_forward(it.bridge, &it.to.view, &it.from.view, 1, test_stream()));
        MPI_EXPECT_STATUS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_TIMEOUT);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream())); /* the kernel has ended */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    crossing_free(&it);
    mimo_comm_destroy(comm);
}

MPI_TEST(staged, late_peer)
{
    wait_for_last(64);
}

/* Enough rows to move in bulk, where the device can. */
MPI_TEST(staged, late_peer_of_many_rows)
{
    wait_for_last(4096);
}

/* Thread blocks that need all multiprocessors but the one that the gate of a call may be on. What
 * would wait for an idle device happens in room_new. */
typedef struct room_beside {
    meeting *at;
    cudaStream_t stream;
} room_beside;

static void expect_room(const room_beside *it, const char *beside)
{
    meeting got = {0};
    EXPECT_CUDA(cudaMemsetAsync(it->at, 0, sizeof got, it->stream));
    EXPECT_CUDA(meet(it->at, 1, it->stream));
    EXPECT_CUDA(cudaMemcpyAsync(&got, it->at, sizeof got, cudaMemcpyDeviceToHost, it->stream));
    EXPECT_CUDA(cudaStreamSynchronize(it->stream));
    MPI_EXPECT(got.missed == 0, "beside %s, %d thread blocks found no multiprocessor", beside,
               got.missed);
}

static room_beside room_new(void)
{
    room_beside it;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&it.stream, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaMalloc((void **)&it.at, sizeof *it.at));
    expect_room(&it, "nothing");
    return it;
}

static void room_free(room_beside *it)
{
    EXPECT_CUDA(cudaFree(it->at));
    EXPECT_CUDA(cudaStreamDestroy(it->stream));
}

/* Rows of rank 0 go to rank 1. */
typedef struct one_way {
    mimo_comm *comm;
    mimo_bridge *bridge;
    test_tile tile;
} one_way;

/* A message takes three quarters of the FIFO, so the second one waits for the receiver. */
static one_way one_way_new(void)
{
    enum { FIFO = 8 << 20, ROWS = FIFO / 4 * 3 / (HIDDEN * 4) };
    mimo_nccl_desc comm = MIMO_NCCL_DESC_INIT;
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid("dp=1", 0), mpi_test_grid("dp=1", 1));
    one_way it = {.comm = NULL};
    comm.staging_bytes = FIFO;
    MPI_EXPECT_OK(gpu_comm_create(&it.comm, &comm));
    desc.executor = executor_of(EXECUTOR_STAGED);
    desc.batch = ROWS;
    desc.ctas = 16;
    MPI_EXPECT_OK(mimo_bridge_create(&it.bridge, it.comm, &desc));
    it.tile = test_tile_new("sbh", MIMO_F32, 1, ROWS, HIDDEN);
    return it;
}

static void one_way_free(one_way *it)
{
    mimo_bridge_destroy(it->bridge);
    test_tile_free(&it->tile);
    mimo_comm_destroy(it->comm);
}

static void call_one_way(const one_way *it)
{
    mimo_tensor none = it->tile.view;
    bool sends = mpi_test_rank() == 0;
    none.data = NULL;
    none.shape[1] = 0;
    MPI_EXPECT_OK(mimo_bridge_forward(it->bridge, sends ? &none : &it->tile.view,
                                      sends ? &it->tile.view : &none, 1, test_stream()));
}

/* The receiver is late for a call, then the sender: the other one's call waits on the device. */
MPI_TEST(staged, waits_hold_no_multiprocessors)
{
    test_needs_reach(2);
    one_way it = one_way_new();
    room_beside room = room_new();
    call_one_way(&it);
    MPI_EXPECT_OK(mimo_comm_synchronize(it.comm, test_stream()));
    for (int late = 1; late >= 0; late--) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (mpi_test_rank() != late) {
            call_one_way(&it);
            expect_room(&room, late == 1 ? "a send that waits" : "a receive that waits");
            MPI_EXPECT(cudaStreamQuery(test_stream()) == cudaErrorNotReady, "nothing waited");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (mpi_test_rank() == late)
            call_one_way(&it);
        MPI_EXPECT_OK(mimo_comm_synchronize(it.comm, test_stream()));
    }
    room_free(&room);
    one_way_free(&it);
}

/* ------------------------------------------- order ------------------------------------------ */

/* Fill the FIFOs of this rank's peer, and empty the own ones. Returns the number of words that came
 * after their flag. */
static unsigned long long exchange_payloads(mimo_comm *comm, mimo_buffer *buffer, uint64_t flags)
{
    unsigned long long *wrong, got = 0;
    litmus_fifo *own = (litmus_fifo *)(void *)buffer->data[mpi_test_rank()];
    litmus_fifo *peer = (litmus_fifo *)(void *)buffer->data[1 - mpi_test_rank()];
    EXPECT_CUDA(cudaMalloc((void **)&wrong, sizeof *wrong));
    EXPECT_CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    EXPECT_CUDA(cudaMemset(own, 0, LITMUS_FIFOS * sizeof *own));
    EXPECT_CUDA(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_CUDA(flag_litmus(own, peer, flags, wrong, test_stream()));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    EXPECT_CUDA(cudaMemcpy(&got, wrong, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT_CUDA(cudaFree(wrong));
    return got;
}

/* Ten million flags behind bulk copies, each of which must find its payload. */
MPI_TEST(staged, flags_follow_rows)
{
    enum { FLAGS = 10000000 / (2 * LITMUS_FIFOS) + 1 }; /* of each FIFO; two ranks */
    mimo_comm *comm = NULL;
    mimo_buffer *buffer = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    int device, major = 0;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, (int64_t)(LITMUS_FIFOS * sizeof(litmus_fifo))));
    bool can = major >= 9 && mimo_buffer_reach(buffer) == 2;
    if (can) {
        unsigned long long wrong = exchange_payloads(comm, buffer, FLAGS);
        MPI_EXPECT(wrong == 0, "%llu words came after their flag", wrong);
    }
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
    if (!can)
        mpi_test_skip("two Hopper GPUs within reach");
}
