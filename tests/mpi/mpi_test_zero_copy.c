/* Destinations in buffers: where they may lie, and the errors of ranks that do not agree. That rows
 * arrive in them is tested in mpi_test_routed*.c. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "guarded.h"
#include "reference_grid.h"

MPI_TEST(zero_copy, buffers)
{
    static const int64_t most[] = {0, 64, 4096, 4097, 1 << 20};
    mimo_comm *comm = mpi_test_comm();
    int rank = mpi_test_rank(), size = mpi_test_size();
    for (int i = 0; i < 5; i++) {
        mimo_buffer *buffer = NULL;
        MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, rank == i % size ? most[i] : most[i] / 3));
        if (!buffer)
            return;
        MPI_EXPECT(mimo_buffer_size(buffer) == most[i], "%d bytes", (int)mimo_buffer_size(buffer));
        MPI_EXPECT((uintptr_t)mimo_buffer_data(buffer) % 4096 == 0, "%p", mimo_buffer_data(buffer));
        int reach = mimo_buffer_reach(buffer);
        MPI_EXPECT(reach > 0 && reach <= size, "reaches %d ranks", reach);
        mimo_buffer_destroy(buffer);
    }
    mimo_buffer_destroy(NULL);
}

/* If one rank passes wrong arguments all ranks get the error. The next creation works. */
MPI_TEST(zero_copy, wrong_buffers)
{
    mimo_comm *comm = mpi_test_comm();
    mimo_buffer *buffer = NULL;
    int rank = mpi_test_rank();
    MPI_EXPECT_STATUS(mimo_buffer_create(&buffer, NULL, 8), MIMO_ERR_ARGUMENT);
    MPI_FAILS(mimo_buffer_create(&buffer, comm, rank == 1 ? -3 : 8), MIMO_ERR_ARGUMENT,
              "rank 1: buffer create: -3 bytes");
    MPI_FAILS(mimo_buffer_create(rank == 2 ? NULL : &buffer, comm, 8), MIMO_ERR_ARGUMENT,
              "rank 2: buffer create: out is NULL");
    MPI_EXPECT(!buffer, "a buffer in spite of the error");
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 8));
    mimo_buffer_destroy(buffer);
}

/* Forward into `to`, on rank 2 `more` bytes behind it. */
static mimo_status forward_to(const bridge_bed *bed, mimo_tensor to, const test_tile *from,
                              int64_t more)
{
    if (mpi_test_rank() == 2)
        to.data = (char *)to.data + more;
    return mimo_bridge_forward(bed->bridge, &to, &from->view, 1, test_stream());
}

/* Two tensors, of which the second one lies elsewhere on rank 2. The sentence says which. */
static void misplace_second(const bridge_bed *bed, const test_tile *to, const test_tile *from)
{
    char words[96];
    test_tile second = bed_target_new(bed, MIMO_DST); /* in the same buffer */
    mimo_tensor views[2] = {to->view, second.view}, sources[2] = {from->view, from->view};
    int place = (int)((char *)second.view.data - (char *)to->view.data) + 64;
    views[1].data = (char *)views[1].data + (mpi_test_rank() == 2 ? 8 : 0);
    MPI_EXPECT_STATUS(mimo_bridge_forward(bed->bridge, views, sources, 2, test_stream()),
                      MIMO_ERR_MISMATCH);
    for (int more = 0; more < 16; more += 8) {
        snprintf(words, sizeof words,
                 "tensor 1: f32 sbh[4,2,3] from f32 sbh[8,1,3] at byte %d of buffer 1",
                 place + more);
        MPI_EXPECT_SENTENCE(words);
    }
    test_tile_free(&second);
}

/* Rank 2 has the same offset in another buffer. */
static void use_other_buffer(const bridge_bed *bed, const test_tile *to, const test_tile *from)
{
    mimo_buffer *other = NULL, *shared = test_shared_buffer();
    MPI_EXPECT_OK(mimo_buffer_create(&other, mpi_test_comm(), mimo_buffer_size(shared)));
    mimo_tensor there = to->view;
    if (mpi_test_rank() == 2)
        there.data = (char *)mimo_buffer_data(other) +
                     ((char *)to->view.data - (char *)mimo_buffer_data(shared));
    MPI_FAILS(forward_to(bed, there, from, 0), MIMO_ERR_MISMATCH, "at byte 64 of buffer 1",
              "at byte 64 of buffer 2");
    mimo_buffer_destroy(other);
}

MPI_TEST(zero_copy, places_that_do_not_fit)
{
    test_agree_on_data();
    bridge_bed bed = bed_create(&bed_fan_in);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST),
              elsewhere = bed_tile_new(&bed, MIMO_DST);
    bed_fill(&bed, &from, false, 1);
    mimo_tensor wrong = mpi_test_rank() == 1 ? elsewhere.view : to.view;
    MPI_FAILS(forward_to(&bed, wrong, &from, 0), MIMO_ERR_ARGUMENT,
              "rank 1: bridge 1: zero-copy: tensor 0, f32 sbh[4,2,3], is to be written at ",
              "in no buffer");
    MPI_FAILS(forward_to(&bed, to.view, &from, 8), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 forward", "at byte 64 of buffer 1", "at byte 72 of buffer 1");
    misplace_second(&bed, &to, &from);
    use_other_buffer(&bed, &to, &from);
    MPI_EXPECT_STATUS(forward_to(&bed, to.view, &from, 2 << 20), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_OK(forward_to(&bed, to.view, &from, 0));
    bed_check_target(&bed, &to, false, 1);
    bed_destroy(&bed);
}

/* With the routed executor, each destination may lie in a buffer or anywhere. */
MPI_TEST(zero_copy, some_destinations)
{
    enum { TENSORS = 3 };
    bed_case c = bed_fan_in;
    test_tile from[TENSORS], to[TENSORS];
    mimo_tensor from_views[TENSORS], to_views[TENSORS];
    c.buffer = false;
    c.executor = EXECUTOR_ROUTED;
    bridge_bed bed = bed_create(&c);
    for (int first = 0; first < 2; first++) {
        for (int i = 0; i < TENSORS; i++) {
            bed.c.buffer = (first + i) % 2;
            from[i] = bed_tile_new(&bed, MIMO_SRC);
            to[i] = bed_target_new(&bed, MIMO_DST);
            bed_fill(&bed, &from[i], false, (uint64_t)i);
            from_views[i] = from[i].view;
            to_views[i] = to[i].view;
        }
        MPI_EXPECT_OK(
            mimo_bridge_forward(bed.bridge, to_views, from_views, TENSORS, test_stream()));
        for (int i = 0; i < TENSORS; i++) {
            bed_check_target(&bed, &to[i], false, (uint64_t)i);
            test_tile_free(&from[i]);
            test_tile_free(&to[i]);
        }
    }
    bed_destroy(&bed);
}

/* A caller that lets no rank begin before all have read may say that destinations are idle. */
MPI_TEST(zero_copy, idle_destinations)
{
    bed_case c = bed_fan_in;
    c.idle = true;
    bridge_bed bed = bed_create(&c);
    test_tile src = bed_tile_new(&bed, MIMO_SRC), dst = bed_tile_new(&bed, MIMO_DST);
    test_tile src_to = bed_target_new(&bed, MIMO_SRC), dst_to = bed_target_new(&bed, MIMO_DST);
    for (uint64_t seed = 0; bed.bridge && seed < 20; seed++) {
        bool backward = seed % 3 == 2;
        const test_tile *from = backward ? &dst : &src, *to = backward ? &src_to : &dst_to;
        bed_fill(&bed, from, backward, seed);
        MPI_EXPECT_OK(bed_call(&bed, backward, to, from));
        bed_check_target(&bed, to, backward, seed);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    bed_destroy(&bed);
}

/* ------------------------------- calls without a comparison ------------------------------- */

/* One rank calls with other rows, or with another offset in the buffer, and no agreement comes
 * first. */
enum { ODD = 1, WORDS = 16 };

typedef struct odd_call {
    int64_t more_words; /* of a row */
    int64_t more_bytes; /* added to the offset of the other ranks */
} odd_call;

/* Every rank has a sample, and takes a part of every sample. */
static bed_case across_all_ranks(int64_t hidden)
{
    static char src[16], dst[16];
    int size = mpi_test_size();
    snprintf(src, sizeof src, "dp=%d", size);
    snprintf(dst, sizeof dst, "cp=%d", size);
    return (bed_case){.src = {.grid = src},
                      .dst = {.grid = dst, .partition = true},
                      .src_letters = "sbh",
                      .dst_letters = "sbh",
                      .buffer = true,
                      .batch = size,
                      .seq = 4 * size,
                      .hidden = hidden};
}

/* Nothing is written outside of the tile at `skip` of the room. A row in it is poison where exactly
 * one of its two ranks is the odd one. Otherwise it holds its source's row. */
static void check_what_arrived(const bridge_bed *bed, const test_room *to, int64_t skip)
{
    const reference_tile *rows = &bed->dst.tiles[mpi_test_rank()];
    int64_t row_bytes = 4 * bed->c.hidden, end = skip + rows->rows * row_bytes;
    bit_report report = {.element = 4, .columns = bed->c.hidden};
    const char *host = to->host;
    test_pull(to);
    for (int64_t row = 0; row < rows->rows; row++)
        for (int64_t h = 0; h < bed->c.hidden; h++) {
            int64_t at = skip + row * row_bytes + 4 * h;
            char expected[8];
            bool apart = (rows->b[row] == ODD) != (mpi_test_rank() == ODD);
            memset(expected, GUARD_POISON, sizeof expected);
            if (!apart)
                ref_store(expected, ref_word(1, rows->b[row], rows->s[row], h), 4);
            bits_note(&report, row * bed->c.hidden + h, host + at, expected);
        }
    MPI_EXPECT_BITS(report, "the tile at %d", (int)skip);
    MPI_EXPECT_BITS(bits_of_poison(host, 0, skip), "before the tile at %d", (int)skip);
    MPI_EXPECT_BITS(bits_of_poison(host, end, to->bytes - end), "behind the tile at %d", (int)skip);
}

static mimo_status call_and_wait(const bridge_bed *bed, const mimo_tensor *to,
                                 const test_tile *from)
{
    mimo_status status = mimo_bridge_forward(bed->bridge, to, &from->view, 1, test_stream());
    return status == MIMO_OK ? mimo_comm_synchronize(mpi_test_comm(), test_stream()) : status;
}

/* On a device and without the agreement, a call with a given batch compares nothing. */
static bridge_bed create_told(int64_t hidden)
{
    bed_case c = across_all_ranks(hidden);
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = c.batch;
    bridge_bed made = bed_create(&c);
    MPI_EXPECT_OK(mimo_bridge_update(made.bridge, &batch, 1));
    return made;
}

/* On a device a call ends before its rows have moved, so the wait returns the result. */
static void disagree(const bridge_bed *bed, const odd_call *odd)
{
    int64_t hidden = bed->c.hidden, size = mpi_test_size();
    int64_t skip = mpi_test_rank() == ODD ? odd->more_bytes : 0;
    test_tile from = bed_tile_new(bed, MIMO_SRC);
    test_room to = test_shared_room_new(16 * size * hidden + odd->more_bytes);
    mimo_tensor view = test_view(&to, MIMO_F32, "sbh", 4, size, hidden);
    view.data = (char *)view.data + skip;
    bed_fill(bed, &from, false, 1);
    for (int turn = 0; turn < 2; turn++) { /* the second call does not begin */
        MPI_FAILS(call_and_wait(bed, &view, &from), MIMO_ERR_MISMATCH,
                  "zero-copy: ", " with rows for ", "MIMO_CHECK=calls");
        check_what_arrived(bed, &to, skip);
    }
    test_tile_free(&from);
    test_room_free(&to);
}

MPI_TEST(zero_copy, ranks_that_disagree)
{
    static const odd_call odd[] = {{4, 0}, {-4, 0}, {0, 64}, {0, 8}};
    test_needs_reach(mpi_test_size()); /* messages of other sizes wait for ever */
    setenv("MIMO_AGREE", "0", 1);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        bridge_bed bed = create_told(WORDS + (mpi_test_rank() == ODD ? odd[i].more_words : 0));
        disagree(&bed, &odd[i]);
        bed_destroy(&bed);
        test_shared_end(); /* can't be used any more; a later call makes another one */
        bed = create_told(WORDS);
        bed_move(&bed, false, i);
        bed_destroy(&bed);
    }
}

/* Ranks 0 and 1 only write, to ranks 2 and 3, which only receive. Rank 3's offset differs. */
MPI_TEST(zero_copy, receivers_that_disagree)
{
    bed_case c = {.src = {.grid = "dp=2"},
                  .dst = {.grid = "dp=2", .offset = 2},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .buffer = true,
                  .given = true,
                  .batch = 2,
                  .seq = 4};
    int rank = mpi_test_rank();
    setenv("MIMO_AGREE", "0", 1);
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC);
    test_room to = test_shared_room_new(256);
    mimo_tensor view = test_view(&to, MIMO_F32, "sbh", 4, rank < 2 ? 0 : 1, 3);
    view.data = (char *)view.data + (rank == 3 ? 64 : 0);
    bed_fill(&bed, &from, false, 1);
    MPI_EXPECT_STATUS(call_and_wait(&bed, &view, &from), rank % 2 ? MIMO_ERR_MISMATCH : MIMO_OK);
    if (rank % 2)
        MPI_EXPECT_SENTENCE(rank == 1 ? "zero-copy: no rows were written to rank 3: call 1"
                                      : "zero-copy: rank 1 wrote no rows here: its call 1");
    if (rank == 3) {
        test_pull(&to);
        MPI_EXPECT_BITS(bits_of_poison(to.host, 0, to.bytes), "rows that rank 1 did not write");
    }
    bed_destroy(&bed);
}
