/* Communicators that are forgotten or aborted by another thread, while work waits in the device. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/buffer_state.h"
#include "comm_life.h"

int mpi_test_level(void)
{
    return MPI_THREAD_MULTIPLE; /* of the tests' own calls: the library calls no MPI here */
}

/* A kernel waits for the late rank, and its communicator is forgotten before what was made from
 * it. */
MPI_TEST(ends, forgotten_while_data_waits)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, 0), *split = NULL;
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_OK(mimo_comm_split(&split, comm, 0, 0));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 4096));
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() != LATE)
        MPI_EXPECT_OK(add_up(comm, &tile));
    mimo_comm_forget(comm);
    MPI_EXPECT_STATUS(add_up(split, &tile), MIMO_ERR_ABORTED);
    MPI_EXPECT_STATUS(mimo_comm_state(split), MIMO_ERR_ABORTED);
    mimo_comm_destroy(split);
    mimo_buffer_destroy(buffer);
    expect_life(&tile);
}

/* A peer writes into a buffer that its owner has forgotten and destroyed. The owner's device gives
 * the memory to nobody meanwhile. */
MPI_TEST(ends, peers_write_what_is_forgotten)
{
    enum { BYTES = 8 << 20, BLOCKS = 8, WRITES = 20 };
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, 0);
    mimo_buffer *buffer = NULL;
    void *blocks[BLOCKS] = {NULL};
    static unsigned char seen[BYTES];
    bool owner = mpi_test_rank() != LATE;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, BYTES));
    void *peer = buffer ? buffer->data[0] : NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    if (owner) {
        mimo_comm_forget(comm);
        mimo_buffer_destroy(buffer);
        for (int i = 0; i < BLOCKS; i++) {
            EXPECT_CUDA(cudaMalloc(&blocks[i], BYTES));
            EXPECT_CUDA(cudaMemset(blocks[i], i, BYTES));
        }
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < WRITES && !owner && peer; i++)
        EXPECT_CUDA(cudaMemsetAsync(peer, 0xee, BYTES, test_stream()));
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < BLOCKS && owner; i++) {
        EXPECT_CUDA(cudaMemcpy(seen, blocks[i], BYTES, cudaMemcpyDeviceToHost));
        for (int at = 0; at < BYTES; at++)
            if (seen[at] != i) {
                MPI_EXPECT(false, "block %d holds %#x at byte %d", i, seen[at], at);
                break;
            }
        EXPECT_CUDA(cudaFree(blocks[i]));
    }
    if (!owner) {
        mimo_comm_forget(comm);
        mimo_buffer_destroy(buffer);
    }
    expect_life(&tile);
}

static void *abort_it(void *comm)
{
    MPI_EXPECT_OK(mimo_comm_abort(comm, "the watchdog barks"));
    return NULL;
}

static bool is_inside(const mimo_comm *comm)
{
    return __atomic_load_n(&comm->family->inside, __ATOMIC_ACQUIRE) > 0;
}

static void *abort_once_inside(void *comm)
{
    while (!is_inside(comm))
        sched_yield();
    return abort_it(comm);
}

static void one_abort(bool inside)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, 0);
    pthread_t watchdog;
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_OK(add_up(comm, &tile));
        pthread_create(&watchdog, NULL, inside ? abort_once_inside : abort_it, comm);
        if (inside) {
            MPI_FAILS(mimo_comm_synchronize(comm, test_stream()), MIMO_ERR_ABORTED,
                      "aborted here: the watchdog barks");
        }
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        pthread_join(watchdog, NULL);
        MPI_EXPECT_STATUS(mimo_comm_state(comm), MIMO_ERR_ABORTED);
    } else {
        mimo_comm_forget(comm);
        comm = NULL;
    }
    mimo_comm_destroy(comm);
    expect_life(&tile);
    test_tile_free(&tile);
}

/* The thread that waits inside the library aborts NCCL itself. */
MPI_TEST(ends, abort_inside)
{
    one_abort(true);
}

/* No thread is inside, so the thread that asks aborts NCCL. */
MPI_TEST(ends, abort_outside)
{
    one_abort(false);
}

/* Calls and aborts at any time: no call of NCCL meets the abort. */
MPI_TEST(ends, abort_at_any_time)
{
    enum { ROUNDS = 10 };
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    for (int round = 0; round < ROUNDS; round++) {
        mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, 0);
        pthread_t watchdog;
        mimo_status status = MIMO_OK;
        pthread_create(&watchdog, NULL, abort_it, comm);
        while (status == MIMO_OK) {
            status = add_up(comm, &tile);
            if (status == MIMO_OK)
                status = mimo_comm_synchronize(comm, test_stream());
        }
        MPI_EXPECT(status == MIMO_ERR_ABORTED, "%s", mimo_last_error());
        pthread_join(watchdog, NULL);
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        mimo_comm_destroy(comm);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    expect_life(&tile);
}

typedef struct turn {
    mimo_comm *comm;
    const test_tile *tile;
    int device;
} turn;

static void *take_turn(void *of)
{
    const turn *mine = of;
    EXPECT_CUDA(cudaSetDevice(mine->device));
    MPI_EXPECT_OK(add_up(mine->comm, mine->tile));
    MPI_EXPECT_OK(mimo_comm_barrier(mine->comm));
    MPI_EXPECT_OK(mimo_comm_synchronize(mine->comm, test_stream()));
    return NULL;
}

MPI_TEST(ends, another_thread)
{
    enum { TURNS = 4 };
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    turn mine = {warm_comm(&tile, MIMO_NCCL_DEFAULT, 0), &tile, 0};
    EXPECT_CUDA(cudaGetDevice(&mine.device));
    for (int i = 0; i < TURNS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, take_turn, &mine);
        pthread_join(thread, NULL);
        (void)take_turn(&mine);
    }
    mimo_comm_destroy(mine.comm);
    expect_life(&tile);
}

/* In the child CUDA itself would fail, so nothing there may reach it. */
MPI_TEST(ends, forked_child)
{
    test_tile tile = test_tile_new("t", MIMO_F32, COUNT, 1, 1);
    mimo_comm *comm = warm_comm(&tile, MIMO_NCCL_DEFAULT, 0);
    mimo_buffer *buffer = NULL;
    int device = -1, number = -1;
    mimo_nccl_report report = MIMO_NCCL_REPORT_INIT;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 4096));
    EXPECT_CUDA(cudaGetDevice(&device));
    pid_t child = fork();
    if (child == 0) {
        bool refused = add_up(comm, &tile) == MIMO_ERR_STATE &&
                       mimo_comm_synchronize(comm, NULL) == MIMO_ERR_STATE &&
                       mimo_comm_abort(comm, "the child") == MIMO_ERR_STATE;
        refused = refused && mimo_nccl_device(&number, comm) == MIMO_OK && number == device &&
                  mimo_nccl_report_of(&report, comm) == MIMO_OK; /* memory answers these */
        mimo_buffer_destroy(buffer);
        mimo_comm_forget(comm);
        mimo_comm_destroy(comm);
        _exit(!refused);
    }
    int status = -1;
    MPI_EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "the child ended with %#x", status);
    MPI_EXPECT_OK(add_up(comm, &tile));
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, test_stream()));
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
}
