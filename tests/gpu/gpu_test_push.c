/* Programs of the kernels of zero-copy on one device: rows that stay, by words of every width and
 * in bulk, and by the device's list of copies, against the host's copies of the same rows; and two
 * ranks that push to each other. */
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "comm/nccl/nccl_push_program.h"
#include "guarded.h"
#include "mpi_test.h"
#include "test_memory.h"

enum { MOST_COPIES = 64 };

/* Rows of one tile that go to another one of the same size, which must not be written elsewhere. */
typedef struct copies {
    int64_t count;
    mimo_row_copy list[MOST_COPIES]; /* by offsets: bases are added */
    int64_t bytes;                   /* of either tile */
} copies;

static mimo_row_copy at(const mimo_row_copy *copy, char *to, char *from)
{
    mimo_row_copy placed = *copy;
    placed.to.base = to + (intptr_t)copy->to.base;
    placed.from.base = from + (intptr_t)copy->from.base;
    return placed;
}

/* The same rows by the device's own copies; `to` is afterwards as it was. */
static void check_list(const copies *c, const mimo_row_copy *placed, const test_room *to,
                       const char *expected)
{
    char *before = malloc((size_t)c->bytes);
    memcpy(before, to->host, (size_t)c->bytes);
    MPI_EXPECT_OK(mimo_device_cuda.copy_list(placed, c->count, test_stream()));
    test_pull(to);
    MPI_EXPECT(memcmp(to->host, expected, (size_t)c->bytes) == 0,
               "a list of %d copies, rows of %d bytes", (int)c->count,
               (int)c->list[0].to.row_bytes);
    memcpy(to->host, before, (size_t)c->bytes);
    test_push(to);
    free(before);
}

static void run(const copies *c, int ctas)
{
    mimo_push_program program = {0};
    mimo_row_copy placed[MOST_COPIES];
    const mimo_push_place place = {&mimo_device_cuda, 0, NULL};
    mimo_messages messages = {.copies = placed, .copy_count = c->count};
    test_room to = test_room_new(c->bytes), from = test_room_new(c->bytes);
    char *expected = malloc((size_t)c->bytes);
    fill_elements(from.host, 5, c->bytes, 1);
    fill_elements(to.host, 6, c->bytes, 1);
    memcpy(expected, to.host, (size_t)c->bytes);
    test_push(&to);
    test_push(&from);
    for (int64_t i = 0; i < c->count; i++) {
        const mimo_row_copy on_host = at(&c->list[i], expected, from.host);
        MPI_EXPECT_OK(mimo_device_host.copy_rows(&on_host.to, &on_host.from, NULL));
        placed[i] = at(&c->list[i], to.place, from.place);
    }
    if (ctas == 0)
        check_list(c, placed, &to, expected);
    messages.pushes.ctas = ctas;
    MPI_EXPECT_OK(mimo_push_program_make(&program, &place, &messages));
    for (int turn = 0; turn < 2; turn++) /* a program runs any number of times */
        MPI_EXPECT_OK(mimo_push_program_run(&program, test_stream()));
    test_pull(&to);
    MPI_EXPECT(memcmp(to.host, expected, (size_t)c->bytes) == 0,
               "%d copies, rows of %d bytes, %d thread blocks", (int)c->count,
               (int)c->list[0].to.row_bytes, ctas);
    mimo_push_program_release(&program, &mimo_device_cuda);
    free(expected);
    test_room_free(&to);
    test_room_free(&from);
}

/* Two blocks in a tile of n x m rows: one turned, one with gaps; `shift` moves the tiles' ends. */
static copies two_blocks(int64_t n, int64_t m, int64_t row_bytes, int64_t shift)
{
    copies c = {.count = 2, .bytes = 2 * n * m * row_bytes + 64};
    void *to = (void *)(intptr_t)shift, *from = (void *)(intptr_t)(2 * shift);
    c.list[0] = (mimo_row_copy){{to, row_bytes, 0, n, 1, m, n}, {from, row_bytes, 0, n, m, m, 1}};
    c.list[1] = (mimo_row_copy){{to, row_bytes, n * m, n, m, m / 2, 2},
                                {from, row_bytes, n * m, n, m, m / 2, 1}};
    return c;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

MPI_TEST(push, copies)
{
    static const int64_t rows[] = {1,    2,    6,    16,   48,    80,    2048,  2064,
                                   4097, 8192, 8196, 8200, 40000, 65536, 131088};
    static const int64_t shifts[] = {0, 16, 8, 4, 2, 1};
    static const int ctas[] = {0, 1, 7};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t s = 0; s < sizeof shifts / sizeof shifts[0]; s++)
            for (size_t i = 0; i < sizeof ctas / sizeof ctas[0]; i++) {
                copies c = two_blocks(5, 12, rows[r], shifts[s]);
                run(&c, ctas[i]);
            }
    copies many_rows = two_blocks(300, 40, 16, 0), long_rows = two_blocks(2, 2, 9 << 20, 0);
    run(&many_rows, 0);
    run(&long_rows, 0);
}

/* Counts that nothing divides: segments are found by multiplication, and groups end early. */
MPI_TEST(push, odd_counts)
{
    static const int64_t rows[] = {1, 3, 16, 48, 112, 2064};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const int64_t most = (16 << 20) / rows[r];
        copies wide = two_blocks(3, least(100003, most / 3), rows[r], 0);
        copies tall = two_blocks(least(50021, most / 7), 7, rows[r], 0);
        copies lone = two_blocks(1, 2, rows[r], 0);
        run(&wide, 0);
        run(&tall, 0);
        run(&tall, 2);
        run(&lone, 0);
    }
}

/* More blocks than travel with a launch. */
MPI_TEST(push, many_blocks)
{
    for (int64_t row_bytes = 16; row_bytes <= 4096; row_bytes = 4 * row_bytes - 4) {
        copies c = {.count = MOST_COPIES, .bytes = MOST_COPIES * 7 * row_bytes};
        for (int64_t i = 0; i < c.count; i++) {
            const mimo_rows to = {NULL, row_bytes, 7 * i, 1, 1, 1 + i % 7, 1};
            const mimo_rows from = {NULL, row_bytes, 7 * (c.count - 1 - i), 1, 1, 1 + i % 7, 1};
            c.list[i] = (mimo_row_copy){to, from};
        }
        run(&c, 0);
    }
}

/* ------------------------------- two ranks on one device ---------------------------------- */

/* Two ranks' programs on two streams of one device, in few thread blocks so that both run at once:
 * each pushes rows to the other and copies rows, by the same flags as between devices. */
typedef struct pair {
    mimo_buffer buffer; /* pages of flags alone */
    mimo_flags *pages[2];
    test_room from[2], to[2];
    mimo_row_copy push[2], stay[2];
    mimo_push_program program[2];
    cudaStream_t stream[2];
    volatile uint32_t *abort;
    int64_t row_bytes;
} pair;

enum { PAIR_ROWS = 48, PAIR_CALLS = 20, PAIR_CTAS = 8 };

static void make_pair_program(pair *x, int rank, bool idle)
{
    const int peer = 1 - rank;
    const mimo_push_place place = {&mimo_device_cuda, rank, (const uint32_t *)x->abort};
    const mimo_push push = {peer, 1, &x->push[rank]};
    const mimo_messages messages = {.pushes = {.buffer = &x->buffer,
                                               .list = &push,
                                               .count = 1,
                                               .pushers = &peer,
                                               .pusher_count = 1,
                                               .idle = idle,
                                               .ctas = PAIR_CTAS},
                                    .copies = &x->stay[rank],
                                    .copy_count = 1};
    MPI_EXPECT_OK(mimo_push_program_make(&x->program[rank], &place, &messages));
}

/* Even rows go to the peer's first half, turned into one run; odd rows stay, in the second half. */
static void set_rows(pair *x, int rank)
{
    const mimo_rows even = {x->from[rank].place, x->row_bytes, 0, 1, 1, PAIR_ROWS / 2, 2};
    mimo_rows odd = even, first = even, second = even;
    odd.first = 1;
    first.base = x->to[1 - rank].place;
    first.inner = 1;
    second = first;
    second.base = x->to[rank].place;
    second.first = PAIR_ROWS / 2;
    x->push[rank] = (mimo_row_copy){first, even};
    x->stay[rank] = (mimo_row_copy){second, odd};
}

static void open_pair(pair *x, int64_t row_bytes, bool idle)
{
    void *pages = NULL, *word = NULL;
    const int64_t bytes = 4 * (int64_t)sizeof(mimo_flags);
    *x = (pair){.row_bytes = row_bytes};
    MPI_EXPECT_OK(mimo_device_cuda.reserve(&pages, bytes));
    MPI_EXPECT(cudaMemset(pages, 0, (size_t)bytes) == cudaSuccess, "cudaMemset");
    MPI_EXPECT(cudaHostAlloc(&word, sizeof *x->abort, cudaHostAllocMapped) == cudaSuccess, "abort");
    x->abort = word;
    *x->abort = 0;
    x->buffer.flags = x->pages;
    for (int rank = 0; rank < 2; rank++) {
        x->pages[rank] = (mimo_flags *)pages + 2 * (int64_t)rank;
        x->from[rank] = test_room_new(PAIR_ROWS * row_bytes);
        x->to[rank] = test_room_new(PAIR_ROWS * row_bytes);
        MPI_EXPECT(cudaStreamCreateWithFlags(&x->stream[rank], cudaStreamNonBlocking) ==
                       cudaSuccess,
                   "cudaStreamCreate");
    }
    for (int rank = 0; rank < 2; rank++) {
        set_rows(x, rank);
        make_pair_program(x, rank, idle);
    }
    MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
}

static void close_pair(pair *x)
{
    for (int rank = 0; rank < 2; rank++) {
        mimo_push_program_release(&x->program[rank], &mimo_device_cuda);
        test_room_free(&x->from[rank]);
        test_room_free(&x->to[rank]);
        cudaStreamDestroy(x->stream[rank]);
    }
    mimo_device_cuda.release(x->pages[0]);
    cudaFreeHost((void *)x->abort);
}

static void check_pair(const pair *x, uint64_t turn)
{
    const size_t row = (size_t)x->row_bytes;
    for (int rank = 0; rank < 2; rank++) {
        int64_t wrong = 0;
        test_pull(&x->to[rank]);
        for (size_t i = 0; i < PAIR_ROWS / 2; i++) {
            const char *got = x->to[rank].host, *peer = x->from[1 - rank].host;
            const char *own = x->from[rank].host;
            wrong += memcmp(got + i * row, peer + 2 * i * row, row) != 0;
            wrong += memcmp(got + (PAIR_ROWS / 2 + i) * row, own + (2 * i + 1) * row, row) != 0;
        }
        MPI_EXPECT(wrong == 0, "call %d, rank %d: %d rows of %d bytes are wrong", (int)turn, rank,
                   (int)wrong, (int)row);
    }
}

static void run_pair(int64_t row_bytes, bool idle)
{
    pair x;
    open_pair(&x, row_bytes, idle);
    for (uint64_t turn = 0; turn < PAIR_CALLS; turn++) {
        for (int rank = 0; rank < 2; rank++) {
            fill_elements(x.from[rank].host, 7 * turn + (uint64_t)rank, x.from[rank].bytes, 1);
            test_push(&x.from[rank]);
        }
        MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
        for (int i = 0; i < 2; i++) { /* either may be first */
            int rank = (int)(turn + (uint64_t)i) % 2;
            MPI_EXPECT_OK(mimo_push_program_run(&x.program[rank], x.stream[rank]));
        }
        MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
        check_pair(&x, turn);
    }
    close_pair(&x);
}

MPI_TEST(push, two_ranks)
{
    static const int64_t rows[] = {6, 16, 48, 2048, 4097, 40960, 1 << 20};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int idle = 0; idle < 2; idle++)
            run_pair(rows[i], idle);
}

/* Rank 1 never says READY: rank 0 ends when it is told to, and has not touched rank 1's rows. */
static void abort_pair(int64_t row_bytes)
{
    pair x;
    open_pair(&x, row_bytes, false);
    MPI_EXPECT_OK(mimo_push_program_run(&x.program[0], x.stream[0]));
    MPI_EXPECT(cudaStreamQuery(x.stream[0]) == cudaErrorNotReady, "it did not wait");
    *x.abort = 1;
    MPI_EXPECT(cudaStreamSynchronize(x.stream[0]) == cudaSuccess, "it did not end");
    test_pull(&x.to[1]);
    MPI_EXPECT(guarded_poison(x.to[1].host, 0, x.to[1].bytes), "rows of %d bytes were written",
               (int)row_bytes);
    close_pair(&x);
}

MPI_TEST(push, aborted)
{
    abort_pair(6);
    abort_pair(4096);
}
