/* Programs of the zero-copy kernels on one device, against the host's copies of the same rows. Rows
 * that stay move by words of every width, in bulk, and by the device's list of copies. Their source
 * comes from a kernel that lets the programs begin early. Then ranks push to each other. */
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl_push_program.h"
#include "early_copy.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "mpi_test.h"
#include "placed_rows.h"
#include "test_memory.h"
#include "same_bits.h"
#include "core/checked.h"

enum { MOST_COPIES = 64 };

/* Rows of one tile that go to another tile of the same size. Nothing else there may be written. */
typedef struct copies {
    int64_t count;
    mimo_row_copy list[MOST_COPIES]; /* offsets; the bases are added later */
    int64_t bytes;                   /* of either tile */
} copies;

static mimo_row_copy at(const mimo_row_copy *copy, char *to, char *from)
{
    mimo_row_copy placed = *copy;
    placed.to.base = to + (intptr_t)copy->to.base;
    placed.from.base = from + (intptr_t)copy->from.base;
    return placed;
}

/* Fill `to` by a kernel that lets the next one begin before it ends. */
static void fill_late(const test_room *to, const test_room *from)
{
    EXPECT_CUDA(cudaMemsetAsync(to->place, 0, (size_t)to->bytes, test_stream()));
    EXPECT_CUDA(early_copy(to->place, from->place, (size_t)to->bytes, test_stream()));
}

/* The same rows by the device's own list of copies. Afterwards `to` is as it was. */
static void check_list(const copies *c, const mimo_row_copy *placed, const test_room *to,
                       const char *expected)
{
    char *before = malloc((size_t)c->bytes);
    memcpy(before, to->host, (size_t)c->bytes);
    MPI_EXPECT_OK(mimo_device_cuda.copy_list(placed, c->count, test_stream()));
    test_pull(to);
    MPI_EXPECT_BITS(bits_of(to->host, expected, c->bytes, 1, 0),
                    "a list of %d copies, rows of %d bytes", (int)c->count,
                    (int)c->list[0].to.row_bytes);
    memcpy(to->host, before, (size_t)c->bytes);
    test_push(to);
    free(before);
}

/* The copies as a program takes them: from one base to the other, behind `unused` bases. */
static void place_behind_bases(mimo_placed_copy *out, const copies *c, int unused)
{
    for (int64_t i = 0; i < c->count; i++) {
        const mimo_row_copy *copy = &c->list[i];
        out[i] = (mimo_placed_copy){{copy->to, {unused, (intptr_t)copy->to.base}},
                                    {copy->from, {unused + 1, (intptr_t)copy->from.base}}};
    }
}

static mimo_program_pool *pool(void)
{
    static mimo_program_pool made;
    if (!made.stream)
        MPI_EXPECT(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking) == cudaSuccess,
                   "%s", "cudaStreamCreate");
    return &made;
}

/* A program runs any number of times, wherever the tiles lie: first into another tile, then twice
 * into the right one. The number of bases decides in which arguments they travel. */
static void run_behind(const copies *c, int ctas, int unused)
{
    mimo_push_program program = {0};
    mimo_row_copy placed[MOST_COPIES];
    mimo_placed_copy behind[MOST_COPIES];
    char *bases[MIMO_PUSH_MOST_BASES] = {NULL};
    int64_t alignments[MIMO_PUSH_MOST_BASES];
    const mimo_push_context place = {pool(), 0, NULL, {NULL, NULL}};
    mimo_flags *page[1];
    mimo_buffer buffer = {.flags = page};
    const mimo_messages messages = {.alignments = alignments,
                                    .base_count = unused + 2,
                                    .pushes = {.buffer = &buffer, .ctas = ctas},
                                    .copies = behind,
                                    .copy_count = c->count};
    test_room flags = test_room_new(sizeof **page), to = test_room_new(c->bytes),
              from = test_room_new(c->bytes), source = test_room_new(c->bytes),
              other = test_room_new(c->bytes);
    char *expected = malloc((size_t)c->bytes), *before = malloc((size_t)c->bytes);
    for (int i = 0; i < unused + 2; i++)
        alignments[i] = MIMO_MOST_ALIGNMENT;
    memset(flags.host, 0, sizeof **page);
    test_push(&flags);
    page[0] = flags.place;
    fill_elements(source.host, 5, c->bytes, 1);
    fill_elements(to.host, 6, c->bytes, 1);
    memcpy(expected, to.host, (size_t)c->bytes);
    memcpy(before, to.host, (size_t)c->bytes);
    test_push(&to);
    test_push(&source);
    for (int64_t i = 0; i < c->count; i++) {
        const mimo_row_copy on_host = at(&c->list[i], expected, source.host);
        MPI_EXPECT_OK(mimo_device_host.copy_rows(&on_host.to, &on_host.from, NULL));
        placed[i] = at(&c->list[i], to.place, from.place);
    }
    if (ctas == 0) {
        fill_late(&from, &source);
        check_list(c, placed, &to, expected);
    }
    place_behind_bases(behind, c, unused);
    MPI_EXPECT_OK(mimo_push_program_make(&program, &place, &messages));
    for (int turn = 0; turn < 3; turn++) {
        bases[unused] = turn == 0 ? other.place : to.place;
        bases[unused + 1] = turn == 0 ? source.place : from.place;
        fill_late(&from, &source);
        mimo_push_program_bind(&program, bases, 0);
        MPI_EXPECT_OK(mimo_push_program_run(&program, test_stream()));
        if (turn == 0) {
            test_pull(&to);
            MPI_EXPECT_BITS(bits_of(to.host, before, c->bytes, 1, 0), "%s",
                            "the tile is not bound");
        }
    }
    test_pull(&to);
    MPI_EXPECT_BITS(bits_of(to.host, expected, c->bytes, 1, 0),
                    "%d copies, rows of %d bytes, %d thread blocks", (int)c->count,
                    (int)c->list[0].to.row_bytes, ctas);
    mimo_push_program_release(&program);
    free(expected);
    free(before);
    test_room_free(&flags);
    test_room_free(&to);
    test_room_free(&from);
    test_room_free(&source);
    test_room_free(&other);
}

static void run(const copies *c, int ctas)
{
    run_behind(c, ctas, 0);
}

/* Two blocks in a tile of n x m rows: one transposed, one with gaps. `shift` moves the tiles'
 * ends. */
static copies two_blocks(int64_t n, int64_t m, int64_t row_bytes, int64_t shift)
{
    copies c = {.count = 2, .bytes = 2 * n * m * row_bytes + 64};
    void *to = (void *)(intptr_t)shift, *from = (void *)(intptr_t)(2 * shift);
    c.list[0] = (mimo_row_copy){{to, row_bytes, 0, n, 1, m, n}, {from, row_bytes, 0, n, m, m, 1}};
    c.list[1] = (mimo_row_copy){{to, row_bytes, n * m, n, m, m / 2, 2},
                                {from, row_bytes, n * m, n, m, m / 2, 1}};
    return c;
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

/* Counts without small divisors: segments are found by multiplication, and groups end early. */
MPI_TEST(push, odd_counts)
{
    static const int64_t rows[] = {1, 3, 16, 48, 112, 2064};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const int64_t most = (16 << 20) / rows[r];
        copies wide = two_blocks(3, mimo_smaller(100003, most / 3), rows[r], 0);
        copies tall = two_blocks(mimo_smaller(50021, most / 7), 7, rows[r], 0);
        copies lone = two_blocks(1, 2, rows[r], 0);
        run(&wide, 0);
        run(&tall, 0);
        run(&tall, 2);
        run(&lone, 0);
    }
}

/* Counts of blocks around the limits of what a launch carries, and counts beyond. */
MPI_TEST(push, many_blocks)
{
    static const int counts[] = {5, 8, 9, 24, 25, 32, 33, MOST_COPIES};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
        for (int64_t row_bytes = 16; row_bytes <= 4096; row_bytes = 4 * row_bytes - 4) {
            copies c = {.count = counts[n], .bytes = counts[n] * 7 * row_bytes};
            for (int64_t i = 0; i < c.count; i++) {
                const mimo_rows to = {NULL, row_bytes, 7 * i, 1, 1, 1 + i % 7, 1};
                const mimo_rows from = {NULL, row_bytes, 7 * (c.count - 1 - i), 1, 1, 1 + i % 7, 1};
                c.list[i] = (mimo_row_copy){to, from};
            }
            run_behind(&c, 0, 0);
            run_behind(&c, 0, 7);
            run_behind(&c, 0, 31);
            run_behind(&c, 0, 32);
            run_behind(&c, 0, MIMO_PUSH_MOST_BASES - 2);
        }
}

/* ----------------------------- several ranks on one device -------------------------------- */

/* Programs of several ranks, each on a stream of one device, in few thread blocks so that all run
 * at once. Each pushes rows to every other rank and copies rows, with the same flags as between
 * devices. */
enum { MOST_RANKS = 4, TEAM_ROWS = 48, TEAM_CALLS = 10 };

typedef struct team {
    int ranks;
    int64_t row_bytes;
    mimo_buffer buffer; /* flag pages only */
    mimo_flags *pages[MOST_RANKS];
    test_room from[MOST_RANKS], to[MOST_RANKS];
    mimo_push_program program[MOST_RANKS];
    cudaStream_t stream[MOST_RANKS];
    mimo_push_note *notes; /* of each rank */
    int odd;               /* the rank that makes a different call; -1: none */
} team;

/* Reader `reader` takes every ranks-th row of a rank's tile, from row `reader` on. They go to the
 * writer's part of the reader's tile, one after the other. */
static mimo_placed_copy rows_between(const team *x, int writer, int reader)
{
    const int64_t share = TEAM_ROWS / x->ranks;
    const mimo_rows from = {x->from[writer].place, x->row_bytes, reader, 1, 1, share, x->ranks};
    const mimo_rows to = {x->to[reader].place, x->row_bytes, writer * share, 1, 1, share, 1};
    return placed_copy(&(mimo_row_copy){to, from});
}

static void make_team_program(team *x, int rank, bool idle, int ctas)
{
    const mimo_push_context place = {pool(), rank, &x->notes[rank], {NULL, NULL}};
    mimo_placed_copy rows[MOST_RANKS];
    mimo_push pushes[MOST_RANKS];
    int peers[MOST_RANKS], count = 0;
    for (int peer = 0; peer < x->ranks; peer++) {
        rows[peer] = rows_between(x, rank, peer);
        if (peer == rank)
            continue;
        peers[count] = peer;
        pushes[count++] = (mimo_push){peer, 1, &rows[peer]};
    }
    const mimo_messages messages = {.alignments = no_base_alignment,
                                    .base_count = 1,
                                    .pushes = {.buffer = &x->buffer,
                                               .list = pushes,
                                               .count = count,
                                               .pushers = peers,
                                               .pusher_count = count,
                                               .idle = idle,
                                               .ctas = ctas},
                                    .copies = &rows[rank],
                                    .copy_count = 1};
    MPI_EXPECT_OK(mimo_push_program_make(&x->program[rank], &place, &messages));
    mimo_push_program_bind(&x->program[rank], no_base, 0xabc000 + (rank == x->odd));
    MPI_EXPECT(x->program[rank].ctas <= ctas, "%d thread blocks, %d were asked for",
               x->program[rank].ctas, ctas);
}

static mimo_push_note *notes_new(int count)
{
    void *notes = NULL;
    const size_t bytes = (size_t)count * sizeof(mimo_push_note);
    MPI_EXPECT(cudaHostAlloc(&notes, bytes, cudaHostAllocMapped) == cudaSuccess, "notes");
    memset(notes, 0, bytes);
    return notes;
}

static void open_team(team *x, int ranks, int64_t row_bytes, bool idle, int ctas)
{
    void *pages = NULL;
    const int64_t bytes = ranks * ranks * (int64_t)sizeof(mimo_flags);
    *x = (team){.ranks = ranks, .row_bytes = row_bytes, .odd = -1};
    MPI_EXPECT_OK(mimo_device_cuda.reserve(&pages, bytes));
    MPI_EXPECT(cudaMemset(pages, 0, (size_t)bytes) == cudaSuccess, "cudaMemset");
    x->notes = notes_new(ranks);
    x->buffer.flags = x->pages;
    for (int rank = 0; rank < ranks; rank++) {
        x->pages[rank] = (mimo_flags *)pages + ranks * (int64_t)rank;
        x->from[rank] = test_room_new(TEAM_ROWS * row_bytes);
        x->to[rank] = test_room_new(TEAM_ROWS * row_bytes);
        MPI_EXPECT(cudaStreamCreateWithFlags(&x->stream[rank], cudaStreamNonBlocking) ==
                       cudaSuccess,
                   "cudaStreamCreate");
    }
    for (int rank = 0; rank < ranks; rank++)
        make_team_program(x, rank, idle, ctas);
    MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
}

static void close_team(team *x)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        mimo_push_program_release(&x->program[rank]);
        test_room_free(&x->from[rank]);
        test_room_free(&x->to[rank]);
        cudaStreamDestroy(x->stream[rank]);
    }
    mimo_device_cuda.release(x->pages[0]);
    cudaFreeHost(x->notes);
}

static void check_team(const team *x, int turn)
{
    const int64_t row = x->row_bytes, share = TEAM_ROWS / x->ranks;
    for (int rank = 0; rank < x->ranks; rank++) {
        bit_report report = {.element = 1, .columns = row};
        test_pull(&x->to[rank]);
        for (int64_t i = 0; i < TEAM_ROWS * row; i++) {
            const char *got = x->to[rank].host, *sent = x->from[i / row / share].host;
            int64_t sent_row = rank + i / row % share * x->ranks;
            bits_note(&report, i, got + i, sent + sent_row * row + i % row);
        }
        MPI_EXPECT_BITS(report, "call %d, rank %d of %d, byte by byte", turn, rank, x->ranks);
    }
}

static void run_team(int ranks, int64_t row_bytes, bool idle, int ctas)
{
    team x;
    open_team(&x, ranks, row_bytes, idle, ctas);
    for (int turn = 0; turn < TEAM_CALLS; turn++) {
        for (int rank = 0; rank < ranks; rank++) {
            fill_elements(x.from[rank].host, (uint64_t)(turn * ranks + rank), x.from[rank].bytes,
                          1);
            test_push(&x.from[rank]);
        }
        MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
        for (int i = 0; i < ranks; i++) { /* any rank may be first */
            int rank = (turn + i) % ranks;
            MPI_EXPECT_OK(mimo_push_program_run(&x.program[rank], x.stream[rank]));
        }
        MPI_EXPECT(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
        check_team(&x, turn);
    }
    close_team(&x);
}

static void run_teams(int ranks)
{
    static const int64_t rows[] = {6, 16, 48, 2048, 4097, 40960, 1 << 20};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int way = 0; way < 4; way++) /* idle targets; one thread block, in bulk */
            run_team(ranks, rows[i], way % 2, way / 2 ? 1 : 8);
}

MPI_TEST(push, two_ranks)
{
    run_teams(2);
}

MPI_TEST(push, four_ranks)
{
    run_teams(4);
}

/* The others never set READY. Rank 0 ends when the host aborts, and has not touched their rows. */
static void abort_team(int ranks, int64_t row_bytes, int ctas)
{
    team x;
    open_team(&x, ranks, row_bytes, false, ctas);
    MPI_EXPECT_OK(mimo_push_program_run(&x.program[0], x.stream[0]));
    MPI_EXPECT(cudaStreamQuery(x.stream[0]) == cudaErrorNotReady, "it did not wait");
    x.notes[0].abort = 1;
    MPI_EXPECT(cudaStreamSynchronize(x.stream[0]) == cudaSuccess, "it did not end");
    for (int peer = 1; peer < ranks; peer++) {
        test_pull(&x.to[peer]);
        MPI_EXPECT_BITS(bits_of_poison(x.to[peer].host, 0, x.to[peer].bytes),
                        "rows of %d bytes, written to rank %d", (int)row_bytes, peer);
    }
    close_team(&x);
}

MPI_TEST(push, aborted)
{
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        abort_team(ranks, 6, 8);
        abort_team(ranks, 4096, 8);
        abort_team(ranks, 4096, 1);
    }
}

/* Move every rank's rows of a call, with the launches in any order. */
static void call_team(team *x, uint64_t seed)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        fill_elements(x->from[rank].host, seed + (uint64_t)rank, x->from[rank].bytes, 1);
        test_push(&x->from[rank]);
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    for (int rank = 0; rank < x->ranks; rank++)
        MPI_EXPECT_OK(mimo_push_program_run(&x->program[rank], x->stream[rank]));
    EXPECT_CUDA(cudaDeviceSynchronize());
}

/* Rows between the odd rank and the others have stayed poison; all other rows have arrived. */
static void check_refused_rows(const team *x)
{
    const int64_t row = x->row_bytes, share = TEAM_ROWS / x->ranks;
    for (int rank = 0; rank < x->ranks; rank++) {
        bit_report report = {.element = 1, .columns = row};
        test_pull(&x->to[rank]);
        for (int64_t i = 0; i < TEAM_ROWS * row; i++) {
            const char poison = (char)GUARD_POISON, *got = x->to[rank].host;
            int writer = (int)(i / row / share);
            int64_t sent_row = rank + i / row % share * x->ranks;
            const char *sent = (char *)x->from[writer].host + sent_row * row + i % row;
            bool apart = (writer == x->odd) != (rank == x->odd);
            bits_note(&report, i, got + i, apart ? &poison : sent);
        }
        MPI_EXPECT_BITS(report, "rank %d of %d, byte by byte", rank, x->ranks);
    }
}

/* After a refusal: flags are marked where rows are missing, counters are as after any call, blocks
 * have given back their own lines, and each host has a note. */
static void check_refused_flags(const team *x, int odd, uint64_t calls)
{
    mimo_flags pages[MOST_RANKS * MOST_RANKS];
    size_t bytes = (size_t)(x->ranks * x->ranks) * sizeof *pages;
    EXPECT_CUDA(cudaMemcpy(pages, x->pages[0], bytes, cudaMemcpyDeviceToHost));
    for (int rank = 0; rank < x->ranks; rank++)
        for (int peer = 0; peer < x->ranks; peer++) {
            const mimo_flags *line = &pages[rank * x->ranks + peer];
            bool apart = (peer == odd) != (rank == odd);
            uint64_t done = calls * MIMO_PUSH_UNIT + (apart ? MIMO_PUSH_REFUSED : 0);
            if (peer == rank)
                MPI_EXPECT(line->ready == 0 && line->done == 0 && line->receives == 0,
                           "rank %d: the own line is not 0", rank);
            else
                MPI_EXPECT(line->done == done && line->receives == calls && line->sends == calls,
                           "rank %d of %d: done by %d is %llx, %d asked, %d served", rank, x->ranks,
                           peer, (unsigned long long)line->done, (int)line->receives,
                           (int)line->sends);
        }
    for (int rank = 0; rank < x->ranks; rank++) {
        const mimo_push_note *note = &x->notes[rank];
        int peer = rank + (int)note->refusal.distance;
        MPI_EXPECT(note->abort == 1 && note->refusal.noted == 1, "rank %d: nothing is noted", rank);
        MPI_EXPECT((peer == odd) != (rank == odd), "rank %d notes rank %d", rank, peer);
        MPI_EXPECT(mimo_ready_call(note->refusal.mine) == 1, "rank %d notes call %d", rank,
                   (int)mimo_ready_call(note->refusal.mine));
    }
}

/* One rank's call differs from the others'. Afterwards all make the same call, and rows move with
 * the same counters. */
static void refuse_in_team(int ranks, int64_t row_bytes, int ctas)
{
    team x;
    open_team(&x, ranks, row_bytes, false, ctas);
    for (uint64_t call = 1; call <= 2; call++) {
        x.odd = call == 1 ? ranks - 1 : -1;
        for (int rank = 0; rank < ranks; rank++) {
            mimo_push_program_release(&x.program[rank]);
            x.program[rank] = (mimo_push_program){0};
            make_team_program(&x, rank, false, ctas);
            x.notes[rank].abort = 0; /* a host would destroy the buffer instead */
        }
        call_team(&x, 40 * call);
        check_refused_rows(&x);
        check_refused_flags(&x, ranks - 1, call);
    }
    close_team(&x);
}

MPI_TEST(push, refused)
{
    static const int64_t rows[] = {6, 48, 4096, 1 << 18};
    for (int ranks = 2; ranks <= 4; ranks += 2)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            refuse_in_team(ranks, rows[i], 8);
            refuse_in_team(ranks, rows[i], 1);
        }
}

/* --------------------------------- more targets than a warp ------------------------------- */

enum { TARGETS = 70, TARGET_ROWS = 5, TARGET_CALLS = 2 };

/* Rank 0 pushes to many ranks, which all have set READY before. Target t gets the t-th run of its
 * rows. */
static void push_to_many(int64_t row_bytes, int ctas)
{
    enum { RANKS = TARGETS + 1 };
    const int64_t bytes = (int64_t)RANKS * RANKS * (int64_t)sizeof(mimo_flags);
    test_room pages = test_room_new(bytes);
    test_room from = test_room_new(TARGETS * TARGET_ROWS * row_bytes);
    test_room to = test_room_new(from.bytes);
    mimo_flags *here = (mimo_flags *)(void *)pages.host, *there = (mimo_flags *)(void *)pages.place;
    mimo_flags *places[RANKS];
    mimo_buffer buffer = {.flags = places};
    mimo_placed_copy rows[TARGETS];
    mimo_push pushes[TARGETS];
    memset(pages.host, 0, (size_t)bytes);
    for (int64_t i = 0; i < RANKS; i++)
        places[i] = there + i * RANKS;
    for (int64_t t = 0; t < TARGETS; t++) {
        const mimo_rows run = {NULL, row_bytes, t * TARGET_ROWS, 1, 1, TARGET_ROWS, 1};
        rows[t] = (mimo_placed_copy){{run, {0, 0}}, {run, {1, 0}}};
        pushes[t] = (mimo_push){(int)t + 1, 1, &rows[t]};
    }
    fill_elements(from.host, 8, from.bytes, 1);
    test_push(&from);
    mimo_push_program program = {0};
    mimo_push_note *note = notes_new(1);
    const mimo_push_context place = {pool(), 0, note, {NULL, NULL}};
    char *const bases[] = {to.place, from.place};
    const int64_t alignments[] = {MIMO_MOST_ALIGNMENT, MIMO_MOST_ALIGNMENT};
    const mimo_messages messages = {
        .alignments = alignments,
        .base_count = 2,
        .pushes = {.buffer = &buffer, .list = pushes, .count = TARGETS, .ctas = ctas}};
    MPI_EXPECT_OK(mimo_push_program_make(&program, &place, &messages));
    mimo_push_program_bind(&program, bases, 0);
    for (uint64_t call = 1; call <= TARGET_CALLS; call++) {
        for (int64_t t = 1; t < RANKS; t++)
            here[t].ready = mimo_ready_value(call, 0);
        test_push(&pages);
        MPI_EXPECT_OK(mimo_push_program_run(&program, test_stream()));
        test_pull(&pages);
    }
    test_pull(&to);
    MPI_EXPECT_BITS(bits_of(to.host, from.host, to.bytes, 1, row_bytes),
                    "%d targets, %d thread blocks", TARGETS, ctas);
    for (int64_t t = 1; t < RANKS; t++)
        MPI_EXPECT(here[t].sends == TARGET_CALLS &&
                       here[t * RANKS].done == (uint64_t)TARGET_CALLS * MIMO_PUSH_UNIT,
                   "target %d: %d calls served, %d of %d said", (int)t, (int)here[t].sends,
                   (int)here[t * RANKS].done, TARGET_CALLS * MIMO_PUSH_UNIT);
    MPI_EXPECT(here[0].ready == 0 && here[0].done == 0 && here[0].receives == 0,
               "the own line is left at %d, %d, %d", (int)here[0].ready, (int)here[0].done,
               (int)here[0].receives);
    mimo_push_program_release(&program);
    cudaFreeHost(note);
    test_room_free(&pages);
    test_room_free(&from);
    test_room_free(&to);
}

MPI_TEST(push, many_targets)
{
    static const int64_t rows[] = {6, 2048, 200000};
    static const int ctas[] = {0, 1, 7};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof ctas / sizeof *ctas; i++)
            push_to_many(rows[r], ctas[i]);
}
