/* Programs of the kernels of zero-copy, as far as one device runs them: rows that stay, by words of
 * every width and in bulk, against the host's copies of the same rows. */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl_push_program.h"
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
