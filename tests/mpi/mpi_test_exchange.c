/* The backend's exchange: random messages between all ranks, with differently laid out rows at the
 * two ends, started again and again; pushes in flight; and one exchange past 2^31 bytes. */
#include <stdlib.h>
#include <string.h>

#include "comm/buffer_state.h"
#include "free_memory.h"
#include "guarded.h"
#include "mpi_test.h"
#include "placed_rows.h"
#include "reference_grid.h"
#include "test_memory.h"
#include "cases_ran.h"
#include "same_bits.h"

enum {
    RANKS = 8,
    PIECES = 3,
    PIECE_ROWS = 12,
    ROW = 9,
    HALF = RANKS * PIECES * PIECE_ROWS * 2 * ROW, /* a multiple of 16 */
    ROOM = 2 * HALF,
    BASES = 2 * PIECES /* of this rank's sends, then of its receives: one for each piece */
};

/* One end of all messages: their pieces, each with rows in a tile of PIECE_ROWS * 2 rows. In each
 * start a piece lies in the other half of the room than in the start before. */
typedef struct end {
    mimo_placed_rows rows[RANKS][PIECES];
    mimo_message messages[RANKS];
    int count;
    test_room room;
    unsigned char *expected;
} end;

static uint64_t pair_seed(uint64_t seed, int from, int to)
{
    return ref_word(seed, from, to, 0);
}

/* The rows of piece `piece` between two ranks. The pair decides their number, this end their
 * strides. */
static mimo_rows piece_of(uint64_t pair, int piece, bool sender)
{
    uint64_t shape = ref_word(pair, piece, 0, 0), lie = ref_word(pair, piece, 1, sender);
    mimo_rows rows = {NULL, 1 + (int64_t)(shape % ROW),    0, 1 + (int64_t)(shape / 16 % 3),
                      0,    1 + (int64_t)(shape / 64 % 4), 0};
    int64_t gap = 1 + (int64_t)(lie % 2);
    rows.outer = lie / 2 % 2 ? gap : gap * rows.n_inner;
    rows.inner = lie / 2 % 2 ? gap * rows.n_outer : gap;
    rows.first = gap - 1;
    return rows;
}

/* This rank's end of its messages to or from all others. A pair may have no message. */
static void list_end(end *out, uint64_t seed, bool sender)
{
    int rank = mpi_test_rank();
    out->count = 0;
    out->room = test_room_new(ROOM);
    out->expected = guarded_new(ROOM);
    for (int peer = 0; peer < mpi_test_size(); peer++) {
        uint64_t pair = sender ? pair_seed(seed, rank, peer) : pair_seed(seed, peer, rank);
        int pieces = (int)(pair % (PIECES + 1));
        if (peer == rank || pieces == 0)
            continue;
        for (int p = 0; p < pieces; p++)
            out->rows[peer][p] = (mimo_placed_rows){
                piece_of(pair, p, sender),
                {sender ? p : PIECES + p, (peer * PIECES + p) * PIECE_ROWS * 2 * ROW}};
        out->messages[out->count++] = (mimo_message){peer, pieces, out->rows[peer]};
    }
}

static int64_t half_of(int piece, int start)
{
    return (piece + start + mpi_test_rank()) % 2 * (int64_t)HALF;
}

static void set_bases(char **bases, const end *out, const end *in, int start)
{
    for (int p = 0; p < PIECES; p++) {
        bases[p] = (char *)out->room.place + half_of(p, start);
        bases[PIECES + p] = (char *)in->room.place + half_of(p, start);
    }
}

/* Write the rows of an end into an image of its room. */
static void draw(const end *e, unsigned char *image, uint64_t seed, bool sender, int start)
{
    int rank = mpi_test_rank();
    for (int m = 0; m < e->count; m++)
        for (int p = 0; p < (int)e->messages[m].count; p++) {
            const mimo_rows *r = &e->messages[m].rows[p].rows;
            int64_t tile = half_of(p, start) + e->messages[m].rows[p].at.offset;
            int peer = e->messages[m].peer;
            uint64_t pair = sender ? pair_seed(seed, rank, peer) : pair_seed(seed, peer, rank);
            for (int64_t i = 0; i < r->n_outer; i++)
                for (int64_t j = 0; j < r->n_inner; j++)
                    for (int64_t b = 0; b < r->row_bytes; b++)
                        image[tile + b + (r->first + i * r->outer + j * r->inner) * r->row_bytes] =
                            (unsigned char)ref_word(pair, p, i * 8 + j, b);
        }
}

static mimo_exchange *new_exchange(mimo_comm *comm, const mimo_messages *messages,
                                   char *const *bases)
{
    mimo_exchange *exchange = NULL;
    MPI_EXPECT_OK(comm->backend->exchange_create(&exchange, comm, messages));
    MPI_EXPECT_OK(comm->backend->exchange_bind(exchange, bases, 0));
    return exchange;
}

static void run(mimo_comm *comm, mimo_exchange *exchange)
{
    mimo_request *request = NULL;
    MPI_EXPECT_OK(comm->backend->exchange_start(&request, comm, exchange, test_stream()));
    MPI_EXPECT_OK(mimo_wait(comm, &request, "exchange"));
}

MPI_TEST(exchange, random_messages)
{
    enum { SEEDS = 20 };
    mimo_comm *comm = mpi_test_comm();
    int64_t sent = 0, peers = mpi_test_size() - 1;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        end out, in;
        char *bases[BASES];
        int64_t alignments[BASES];
        list_end(&out, seed, true);
        list_end(&in, seed, false);
        set_bases(bases, &out, &in, 0);
        for (int i = 0; i < BASES; i++)
            alignments[i] = MIMO_LEAST_ALIGNMENT; /* they move by a half */
        const mimo_messages messages = {.alignments = alignments,
                                        .base_count = BASES,
                                        .receives = in.messages,
                                        .sends = out.messages,
                                        .receive_count = in.count,
                                        .send_count = out.count,
                                        .guarded = ref_word(seed, mpi_test_rank(), 0, 0) % 2};
        mimo_exchange *exchange = new_exchange(comm, &messages, bases);
        for (int start = 0; start < 4; start++) {
            int lie = start / 2; /* every other start finds them where they were */
            set_bases(bases, &out, &in, lie);
            MPI_EXPECT_OK(comm->backend->exchange_bind(exchange, bases, 0));
            memset(out.room.host, GUARD_POISON, ROOM);
            memset(in.room.host, GUARD_POISON, ROOM);
            memset(in.expected, GUARD_POISON, ROOM);
            draw(&out, out.room.host, seed, true, lie);
            draw(&in, in.expected, seed, false, lie);
            test_push(&out.room);
            test_push(&in.room);
            run(comm, exchange);
            test_pull(&in.room);
            MPI_EXPECT_BITS(bits_of(in.room.host, in.expected, ROOM, 1, 0), "seed %d, start %d",
                            (int)seed, start);
        }
        sent += out.count;
        comm->backend->exchange_destroy(exchange);
        test_room_free(&in.room);
        guarded_free(in.expected);
        test_room_free(&out.room);
        guarded_free(out.expected);
    }
    MPI_CASES_RAN(sent, SEEDS * peers, SEEDS / 2 * peers, "random messages of a rank");
}

/* Two exchanges in flight at once: messages between two ranks keep the order of the starts. */
MPI_TEST(exchange, two_in_flight)
{
    mimo_comm *comm = mpi_test_comm();
    int rank = mpi_test_rank(), size = mpi_test_size(), next = (rank + 1) % size,
        last = (rank + size - 1) % size;
    test_room out = test_room_new(2 * sizeof(int64_t)), in = test_room_new(2 * sizeof(int64_t));
    int64_t *sent = out.host, *received = in.host;
    mimo_exchange *exchange[2];
    mimo_request *request[2];
    for (int i = 0; i < 2; i++) {
        const mimo_placed_rows from =
            placed_rows(&(mimo_rows){(int64_t *)out.place + i, 8, 0, 1, 1, 1, 1});
        const mimo_placed_rows to =
            placed_rows(&(mimo_rows){(int64_t *)in.place + i, 8, 0, 1, 1, 1, 1});
        sent[i] = rank + 100 * i;
        mimo_message send = {next, 1, &from}, receive = {last, 1, &to};
        const mimo_messages messages = {.alignments = no_base_alignment,
                                        .base_count = 1,
                                        .receives = &receive,
                                        .sends = &send,
                                        .receive_count = 1,
                                        .send_count = 1,
                                        .guarded = rank % 2 == 0};
        exchange[i] = new_exchange(comm, &messages, no_base);
    }
    test_push(&out);
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(comm->backend->exchange_start(&request[i], comm, exchange[i], test_stream()));
    for (int i = 1; i >= 0; i--)
        MPI_EXPECT_OK(mimo_wait(comm, &request[i], "exchange"));
    test_pull(&in);
    MPI_EXPECT(received[0] == last && received[1] == last + 100, "%d and %d", (int)received[0],
               (int)received[1]);
    for (int i = 0; i < 2; i++)
        comm->backend->exchange_destroy(exchange[i]);
}

enum { WORDS = 4, IN_FLIGHT = 2 };

/* Exchange i moves four words of its own: it pushes the first one to the same offset of the next
 * rank's buffer, sends the second one to the next rank, and keeps two. */
static mimo_exchange *every_way(const mimo_buffer *buffer, const test_room *out,
                                const test_room *in, int i)
{
    mimo_comm *comm = mpi_test_comm();
    int next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
    int64_t *from = (int64_t *)out->place + (ptrdiff_t)i * WORDS;
    int64_t place = (char *)in->place - (char *)mimo_buffer_data(buffer);
    int64_t *there = (int64_t *)(void *)(buffer->data[next] + place) + (ptrdiff_t)i * WORDS;
    int64_t *here = (int64_t *)in->place + (ptrdiff_t)i * WORDS;
    const mimo_placed_rows sent = placed_rows(&(mimo_rows){from, 8, 1, 1, 1, 1, 1});
    const mimo_placed_rows received = placed_rows(&(mimo_rows){here, 8, 1, 1, 1, 1, 1});
    const mimo_placed_copy pushed =
        placed_copy(&(mimo_row_copy){{there, 8, 0, 1, 1, 1, 1}, {from, 8, 0, 1, 1, 1, 1}});
    const mimo_placed_copy kept =
        placed_copy(&(mimo_row_copy){{here, 8, 2, 1, 1, 2, 1}, {from, 8, 2, 1, 1, 2, 1}});
    const mimo_message send = {next, 1, &sent}, receive = {last, 1, &received};
    const mimo_push push = {next, 1, &pushed};
    const mimo_messages messages = {.alignments = no_base_alignment,
                                    .base_count = 1,
                                    .receives = &receive,
                                    .sends = &send,
                                    .receive_count = 1,
                                    .send_count = 1,
                                    .pushes = {.buffer = test_shared_buffer(),
                                               .list = &push,
                                               .count = 1,
                                               .pushers = &last,
                                               .pusher_count = 1},
                                    .copies = &kept,
                                    .copy_count = 1,
                                    .guarded = comm->rank % 2 == 0};
    return new_exchange(comm, &messages, no_base);
}

/* Exchanges that push, send and keep, several in flight, again and again. They end in the reverse
 * of the order in which they began. */
MPI_TEST(exchange, pushes_in_flight)
{
    mimo_comm *comm = mpi_test_comm();
    int64_t bytes = IN_FLIGHT * WORDS * (int64_t)sizeof(int64_t);
    test_room out = test_room_new(bytes), in = test_shared_room_new(bytes);
    int64_t last = (comm->rank + comm->size - 1) % comm->size;
    mimo_exchange *exchange[IN_FLIGHT];
    test_needs_reach(comm->size);
    for (int i = 0; i < IN_FLIGHT; i++)
        exchange[i] = every_way(test_shared_buffer(), &out, &in, i);
    for (int64_t round = 0; round < 50; round++) {
        mimo_request *request[IN_FLIGHT];
        for (int64_t w = 0; w < IN_FLIGHT * WORDS; w++)
            ((int64_t *)out.host)[w] = 1000 * round + 100 * w + comm->rank;
        test_push(&out);
        for (int i = 0; i < IN_FLIGHT; i++)
            MPI_EXPECT_OK(
                comm->backend->exchange_start(&request[i], comm, exchange[i], test_stream()));
        for (int i = IN_FLIGHT - 1; i >= 0; i--)
            MPI_EXPECT_OK(mimo_wait(comm, &request[i], "push"));
        test_pull(&in);
        for (int64_t w = 0; w < IN_FLIGHT * WORDS; w++) {
            int64_t got = ((int64_t *)in.host)[w], from = w % WORDS < 2 ? last : comm->rank;
            MPI_EXPECT(got == 1000 * round + 100 * w + from, "round %d, word %d is %d", (int)round,
                       (int)w, (int)got);
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        comm->backend->exchange_destroy(exchange[i]);
}

/* In this exchange every even rank pushes words to the buffer of the rank above it. */
static mimo_exchange *pushed_up(mimo_buffer *buffer, int64_t *from, int64_t first, int64_t words)
{
    mimo_comm *comm = mpi_test_comm();
    int peer = comm->rank ^ 1;
    bool paired = peer < comm->size, above = comm->rank % 2 == 1;
    int64_t *to = (int64_t *)(void *)buffer->data[paired ? peer : comm->rank];
    const mimo_placed_copy rows = placed_copy(&(mimo_row_copy){
        {to + first, 8 * words, 0, 1, 1, 1, 1}, {from + first, 8 * words, 0, 1, 1, 1, 1}});
    const mimo_push push = {peer, 1, &rows};
    const mimo_messages messages = {.alignments = no_base_alignment,
                                    .base_count = 1,
                                    .pushes = {.buffer = buffer,
                                               .list = &push,
                                               .count = paired && !above,
                                               .pushers = &peer,
                                               .pusher_count = paired && above}};
    return new_exchange(comm, &messages, no_base);
}

/* Of two calls in flight the first one's rows are written first, so they are all here when it ends.
 * If the second call's single word counted for the first call, the last of its many words would be
 * missing. */
MPI_TEST(exchange, pushes_in_order)
{
    enum { MANY = 1 << 21, ROUNDS = 5 };
    mimo_comm *comm = mpi_test_comm();
    mimo_buffer *buffer = NULL;
    mimo_exchange *exchange[2];
    int64_t bytes = (MANY + 1) * (int64_t)sizeof(int64_t);
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, bytes));
    int64_t *from = calloc(MANY + 1, sizeof *from), *to = mimo_buffer_data(buffer);
    exchange[0] = pushed_up(buffer, from, 0, MANY);
    exchange[1] = pushed_up(buffer, from, MANY, 1);
    for (int64_t round = 1; round <= ROUNDS; round++) {
        mimo_request *request[2];
        from[MANY - 1] = from[MANY] = round;
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(comm->backend->exchange_start(&request[i], comm, exchange[i], NULL));
        MPI_Barrier(MPI_COMM_WORLD); /* all ranks are ready for both calls */
        for (int i = 0; i < 2; i++) {
            MPI_EXPECT_OK(mimo_wait(comm, &request[i], "push"));
            MPI_EXPECT(comm->rank % 2 == 0 || to[MANY - 1 + i] == round,
                       "round %d, call %d ended with %d", (int)round, i, (int)to[MANY - 1 + i]);
        }
    }
    for (int i = 0; i < 2; i++)
        comm->backend->exchange_destroy(exchange[i]);
    mimo_buffer_destroy(buffer);
    free(from);
}

/* Two tensors of 1.1 GiB in one message. The receiver's rows have gaps and are guarded, so the
 * message needs staging of its own size. */
MPI_TEST(exchange, past_2_31_bytes)
{
    enum { TENSORS = 2, ROWS = 11 };
    int64_t row = INT64_C(100) << 20, bytes = ROWS * row;
    mimo_comm *comm = mpi_test_comm();
    int rank = mpi_test_rank();
    skip_unless_free(2 * TENSORS * bytes * 3);
    unsigned char *room[TENSORS];
    mimo_placed_rows rows[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        room[t] = malloc((size_t)(2 * bytes));
        rows[t] = placed_rows(&(mimo_rows){room[t], row, 0, ROWS, 1 + rank, 1, 1});
        for (int64_t i = 0; rank == 0 && i < bytes; i += 4099)
            room[t][i] = (unsigned char)ref_word(3, t, i / row, i % row);
    }
    mimo_message message = {1 - rank, TENSORS, rows};
    const mimo_messages messages = {.alignments = no_base_alignment,
                                    .base_count = 1,
                                    .receives = &message,
                                    .sends = &message,
                                    .receive_count = rank,
                                    .send_count = 1 - rank,
                                    .guarded = rank == 1};
    mimo_exchange *exchange = new_exchange(comm, &messages, no_base);
    run(comm, exchange);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < bytes; i += 4099)
            MPI_EXPECT(room[t][i / row * row * (1 + rank) + i % row] ==
                           (unsigned char)ref_word(3, t, i / row, i % row),
                       "tensor %d, byte %lld", t, (long long)i);
    comm->backend->exchange_destroy(exchange);
    for (int t = 0; t < TENSORS; t++)
        free(room[t]);
}
