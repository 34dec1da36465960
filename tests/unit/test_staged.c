/*
 * Staged messages over virtual ranks: the programs of all ranks of a call, run by workers that a
 * random schedule moves one step at a time, in the way of the kernels: a worker takes a piece
 * before it has done with the one before, and sets its flag a step later. Every byte is compared
 * with rows that were copied one after the other. Of each rank only some workers run at a time, at
 * least one of either kind. A call whose workers all wait is a failure, so this is also the test
 * that nobody waits for ever.
 */
#include "comm/staged/staged_program.h"
#include "cases_ran.h"
#include "expect_failure.h"
#include "guarded.h"
#include "same_bits.h"

enum {
    MOST_RANKS = 5,
    MOST_CTAS = 6,
    MOST_WORKERS = MOST_CTAS * MIMO_STAGED_WARPS,
    MOST_ROWS = 4, /* of a message */
    TILE = 1 << 18,
    CALLS = 3, /* of a case: they share the FIFOs */
};

/* ------------------------------------------- ranks ------------------------------------------ */

/* A virtual rank, and its part of a call. */
typedef struct virtual_rank {
    mimo_comm comm;
    mimo_buffer fifos;
    char *data[MOST_RANKS];
    mimo_flags *flags[MOST_RANKS];
    char *from, *to, *wanted; /* tiles: sent, received, and what should be received */
    int64_t from_used, to_used;
    char *bases[2]; /* from, to: not quite where the tiles begin */
    int64_t alignments[2];
    int64_t skew[2];
    mimo_message sends[MOST_RANKS], receives[MOST_RANKS];
    mimo_placed_rows sent[MOST_RANKS][MOST_ROWS], received[MOST_RANKS][MOST_ROWS];
    mimo_placed_copy copies[MOST_ROWS];
    mimo_messages messages;
    mimo_staged_program program;
} virtual_rank;

typedef struct virtual_world {
    int size;
    uint64_t random;
    int64_t fifo_bytes, piece;
    bool even; /* all rows are long, and multiples of 16 bytes */
    virtual_rank ranks[MOST_RANKS];
    int64_t pieces;  /* that moved through FIFOs */
    int64_t in_bulk; /* programs that move rows in bulk */
} virtual_world;

static bool reaches(const virtual_world *world, int a, int b)
{
    return world->size < 4 || (a < 3) == (b < 3); /* the ranks from 3 on are on another host */
}

static void open_world(virtual_world *world)
{
    static const int64_t sizes[] = {40 << 10, 100 << 10, 1 << 20, 4 << 20};
    world->fifo_bytes = sizes[random_below(&world->random, 4)];
    world->even = random_below(&world->random, 2);
    world->piece = random_below(&world->random, 2) ? MIMO_STAGED_BULK : MIMO_STAGED_PIECE;
    size_t page = (size_t)world->size * sizeof(mimo_flags);
    for (int r = 0; r < world->size; r++) {
        virtual_rank *rank = &world->ranks[r];
        rank->comm = (mimo_comm){.rank = r, .size = world->size};
        rank->data[r] = aligned_alloc(MIMO_BUFFER_ALIGNMENT, (size_t)world->fifo_bytes);
        memset(rank->data[r], 0, (size_t)world->fifo_bytes);
        rank->flags[r] = calloc(1, page);
        rank->from = guarded_new(TILE);
        rank->to = guarded_new(TILE);
        rank->wanted = guarded_new(TILE);
        fill_elements(rank->from, world->random + (uint64_t)r, TILE, 1);
    }
    for (int r = 0; r < world->size; r++) {
        virtual_rank *rank = &world->ranks[r];
        for (int peer = 0; peer < world->size; peer++)
            if (peer != r && reaches(world, r, peer)) {
                rank->data[peer] = world->ranks[peer].data[peer];
                rank->flags[peer] = world->ranks[peer].flags[peer];
            }
        rank->fifos = (mimo_buffer){.comm = &rank->comm,
                                    .bytes = world->fifo_bytes,
                                    .piece = world->piece,
                                    .data = rank->data,
                                    .flags = rank->flags};
    }
}

static void close_world(virtual_world *world)
{
    for (int r = 0; r < world->size; r++) {
        virtual_rank *rank = &world->ranks[r];
        free(rank->data[r]);
        free(rank->flags[r]);
        guarded_free(rank->from);
        guarded_free(rank->to);
        guarded_free(rank->wanted);
    }
}

/* ------------------------------------------- calls ------------------------------------------ */

/* Rows of that many bytes in these loops, strided at random, behind `base` from *used on. */
static mimo_placed_rows draw_rows(virtual_world *world, int base, int64_t *used,
                                  const mimo_rows *like)
{
    uint64_t *random = &world->random;
    mimo_rows rows = *like;
    bool swapped = random_below(random, 2) == 0;
    int64_t near = 1 + random_below(random, 2) * random_below(random, 2);
    int64_t gap = random_below(random, 2) * random_below(random, 3);
    int64_t n = swapped ? rows.n_outer : rows.n_inner;
    int64_t far = n * near + gap;
    rows.base = NULL;
    rows.first = random_below(random, 3);
    rows.inner = swapped ? far : near;
    rows.outer = swapped ? near : far;
    mimo_placed_rows placed = {rows,
                               {base, *used + (random_below(random, 3) == 0 && !world->even)}};
    int64_t last = rows.first + (rows.n_outer - 1) * rows.outer + (rows.n_inner - 1) * rows.inner;
    *used = placed.at.offset + (last + 1) * rows.row_bytes;
    *used = (*used + 15) / 16 * 16;
    return placed;
}

/* Rows of both ends. False where a tile has no space left. */
static bool draw_both(virtual_world *world, virtual_rank *sender, virtual_rank *receiver,
                      mimo_placed_rows *sent, mimo_placed_rows *received)
{
    static const int64_t bytes[] = {1, 2, 6, 8, 16, 48, 256, 512, 4096, 20000};
    mimo_rows like = {.row_bytes = bytes[world->even ? 7 + random_below(&world->random, 3)
                                                     : random_below(&world->random, 10)],
                      .n_outer = 1 + random_below(&world->random, 5),
                      .n_inner = 1 + random_below(&world->random, 9)};
    int64_t from = sender->from_used, to = receiver->to_used;
    *sent = draw_rows(world, 0, &from, &like);
    *received = draw_rows(world, 1, &to, &like);
    if (from > TILE - 16 || to > TILE - 16)
        return false;
    sender->from_used = from;
    receiver->to_used = to;
    for (int64_t i = 0; i < like.n_outer; i++)
        for (int64_t j = 0; j < like.n_inner; j++) {
            const mimo_rows *a = &sent->rows, *b = &received->rows;
            memcpy(receiver->wanted + receiver->skew[1] + received->at.offset +
                       (b->first + i * b->outer + j * b->inner) * like.row_bytes,
                   sender->bases[0] + sent->at.offset +
                       (a->first + i * a->outer + j * a->inner) * like.row_bytes,
                   (size_t)like.row_bytes);
        }
    return true;
}

static void draw_message(virtual_world *world, int from, int to)
{
    virtual_rank *sender = &world->ranks[from], *receiver = &world->ranks[to];
    mimo_message *sent = &sender->sends[sender->messages.send_count];
    mimo_message *received = &receiver->receives[receiver->messages.receive_count];
    *sent = (mimo_message){to, 0, sender->sent[to]};
    *received = (mimo_message){from, 0, receiver->received[from]};
    int64_t count = random_below(&world->random, MOST_ROWS + 1);
    for (int64_t i = 0; i < count; i++)
        if (draw_both(world, sender, receiver, &sender->sent[to][sent->count],
                      &receiver->received[from][received->count])) {
            sent->count++;
            received->count++;
        }
    sender->messages.send_count += sent->count > 0;
    receiver->messages.receive_count += received->count > 0;
}

static void draw_copies(virtual_world *world, virtual_rank *rank)
{
    int64_t count = random_below(&world->random, MOST_ROWS + 1);
    for (int64_t i = 0; i < count; i++) {
        mimo_placed_copy *copy = &rank->copies[rank->messages.copy_count];
        rank->messages.copy_count += draw_both(world, rank, rank, &copy->from, &copy->to);
    }
}

/* What moves in bulk fits the kernel of warps. */
static void check_kernel(virtual_world *world, const mimo_staged_head *head, int64_t ctas,
                         bool bulk)
{
    uint32_t workers = head->workers[0] + head->workers[1];
    world->in_bulk += head->warps > 0;
    if (head->warps == 0)
        return;
    cr_assert(bulk && head->warps <= MIMO_STAGED_WARPS && workers <= ctas * head->warps);
    cr_assert(head->entry_bytes <= MIMO_STAGED_BULK && head->to.width == 4 &&
              head->from.width == 4 && head->stay_piece << 4 <= MIMO_STAGED_BULK);
}

static void draw_call(virtual_world *world)
{
    for (int r = 0; r < world->size; r++) {
        virtual_rank *rank = &world->ranks[r];
        for (int base = 0; base < 2; base++)
            rank->skew[base] = !world->even && random_below(&world->random, 3) == 0
                                   ? 1 << random_below(&world->random, 4)
                                   : 0;
        memset(rank->to, GUARD_POISON, TILE);
        memset(rank->wanted, GUARD_POISON, TILE);
        rank->bases[0] = rank->from + rank->skew[0];
        rank->bases[1] = rank->to + rank->skew[1];
        rank->from_used = rank->to_used = 0;
        for (int base = 0; base < 2; base++)
            rank->alignments[base] = mimo_alignment_of(rank->bases[base]);
        rank->messages = (mimo_messages){.alignments = rank->alignments,
                                         .base_count = 2,
                                         .receives = rank->receives,
                                         .sends = rank->sends,
                                         .fifos = &rank->fifos,
                                         .copies = rank->copies};
    }
    for (int from = 0; from < world->size; from++)
        for (int to = 0; to < world->size; to++)
            if (from == to)
                draw_copies(world, &world->ranks[from]);
            else if (reaches(world, from, to) && random_below(&world->random, 4) > 0)
                draw_message(world, from, to);
    for (int r = 0; r < world->size; r++) {
        virtual_rank *rank = &world->ranks[r];
        int64_t ctas = 1 + random_below(&world->random, MOST_CTAS);
        bool bulk = random_below(&world->random, 2);
        rank->program = (mimo_staged_program){0};
        SUCCEEDS(mimo_staged_program_make(&rank->program, &rank->messages, true, ctas, bulk));
        check_kernel(world, &rank->program.head, ctas, bulk);
    }
}

/* ------------------------------------------ workers ----------------------------------------- */

enum { NONE = MIMO_STAGED_LISTS };

/* A piece of a list. */
typedef struct job {
    int list;
    uint32_t index;
} job;

typedef struct worker {
    virtual_rank *rank;
    uint32_t *counters; /* of the rank's lists */
    int list;
    bool first; /* worker 0 */
    job has, taken;
    uint64_t *flag, value; /* a flag that it owes, or NULL */
    bool done;
} worker;

/* Take the next piece of the worker's list, or of the rows that stay. */
static job take(worker *it)
{
    while (it->list != NONE) {
        const job next = {it->list, it->counters[it->list]++};
        if (next.index < it->rank->program.head.pieces[it->list])
            return next;
        it->list = it->list == MIMO_STAGED_STAY ? NONE : MIMO_STAGED_STAY;
    }
    return (job){NONE, 0};
}

static void pay(worker *it)
{
    if (it->flag)
        *it->flag = it->value;
    it->flag = NULL;
}

/* As a device does, which takes aligned words alone. */
static void copy_word(char *to, const char *from, uint32_t width)
{
    uintptr_t ends = (uintptr_t)to | (uintptr_t)from;
    cr_assert(ends % (1u << width) == 0, "a word of %u bytes is not aligned", 1u << width);
    memcpy(to, from, (size_t)1 << width);
}

static void stay(worker *it)
{
    const mimo_staged_program *program = &it->rank->program;
    const mimo_staged_head *head = &program->head;
    uint32_t begin = it->has.index * head->stay_piece, end = begin + head->stay_piece;
    for (uint32_t w = begin; w < end && w < head->stay_words; w++)
        copy_word(mimo_staged_word(program->blocks, &head->to, it->rank->bases, w),
                  mimo_staged_word(program->blocks, &head->from, it->rank->bases, w),
                  head->to.width);
}

/* Send or receive the worker's piece; false where it has to wait. */
static bool pass(worker *it)
{
    const mimo_staged_program *program = &it->rank->program;
    const mimo_staged_head *head = &program->head;
    const int list = it->has.list;
    const mimo_staged_message *messages = program->messages + head->first[list];
    const mimo_staged_piece piece = mimo_staged_find(messages, head->count[list], it->has.index);
    const mimo_staged_message *message = &messages[piece.message];
    bool sends = list == MIMO_STAGED_SEND;
    uint64_t n = *message->fifo.before + piece.number, entry = n % head->entries;
    cr_assert(piece.number < message->pieces);
    const uint64_t *left =
        piece.number < head->entries ? message->fifo.returned : message->fifo.emptied + entry;
    if (sends && n >= head->entries && *left < n + 1 - head->entries)
        return false;
    if (!sends && message->fifo.filled[entry] < n + 1)
        return false;
    cr_assert(sends || message->fifo.filled[entry] == n + 1, "the entry has another piece");
    uint32_t bytes = mimo_staged_piece_bytes(message, piece.number), width = message->rows.width;
    char *at = message->fifo.entries + entry * head->entry_bytes;
    cr_assert(bytes <= head->entry_bytes && bytes % (1u << width) == 0);
    for (uint32_t w = 0; w < bytes >> width; w++, at += (size_t)1 << width) {
        char *row = mimo_staged_word(program->blocks, &message->rows, it->rank->bases,
                                     (piece.number * message->piece >> width) + w);
        if (sends)
            copy_word(at, row, width);
        else
            copy_word(row, at, width);
    }
    if (sends || piece.number + head->entries < message->pieces)
        it->flag = (sends ? message->fifo.filled : message->fifo.emptied) + entry;
    it->value = n + 1;
    return true;
}

static void set_returned(const virtual_rank *rank)
{
    const mimo_staged_head *head = &rank->program.head;
    for (int i = 0; i < head->count[MIMO_STAGED_RECEIVE]; i++) {
        const mimo_fifo *fifo = &rank->program.messages[head->first[MIMO_STAGED_RECEIVE] + i].fifo;
        *fifo->returned = *fifo->before;
    }
}

/* One step; false where the worker waits. */
static bool step(worker *it)
{
    if (it->first) {
        set_returned(it->rank);
        it->first = false;
        return true;
    }
    pay(it);
    if (it->taken.list == NONE)
        it->taken = take(it);
    if (it->has.list == MIMO_STAGED_STAY)
        stay(it);
    else if (it->has.list != NONE && !pass(it))
        return false;
    it->has = it->taken;
    it->taken = (job){NONE, 0};
    it->done = it->has.list == NONE && it->list == NONE;
    if (it->done)
        pay(it);
    return true;
}

typedef struct crew {
    worker list[MOST_RANKS * (MOST_WORKERS + 1)];
    uint32_t counters[MOST_RANKS][MIMO_STAGED_LISTS];
    int count;
    int running; /* workers of each rank that run: the first ones that are not done */
} crew;

static void hire(crew *all, virtual_world *world)
{
    for (int r = 0; r < world->size; r++) {
        const mimo_staged_head *head = &world->ranks[r].program.head;
        uint32_t began[2] = {0, 0}, count = head->workers[0] + head->workers[1];
        for (uint32_t w = 0; w < count; w++) {
            int list = mimo_staged_list_of(head, w);
            began[list]++;
            all->list[all->count++] = (worker){.rank = &world->ranks[r],
                                               .counters = all->counters[r],
                                               .list = list,
                                               .first = w == 0,
                                               .has = {NONE, 0},
                                               .taken = {NONE, 0}};
        }
        cr_assert(began[0] == head->workers[0] && began[1] == head->workers[1]);
    }
}

static bool runs(const crew *all, int i)
{
    int before = 0;
    for (int k = i - 1; k >= 0 && all->list[k].rank == all->list[i].rank; k--)
        before += !all->list[k].done;
    return !all->list[i].done && before < all->running;
}

static void run_call(virtual_world *world)
{
    crew all = {.running = 2 + (int)random_below(&world->random, MOST_WORKERS - 1)};
    hire(&all, world);
    for (int left = all.count, stuck = 0; left > 0;) {
        int i = (int)random_below(&world->random, all.count);
        if (!runs(&all, i))
            continue;
        stuck = step(&all.list[i]) ? 0 : stuck + 1;
        left -= all.list[i].done;
        cr_assert(stuck < 4000, "all of %d workers wait", left);
    }
    for (int r = 0; r < world->size; r++) {
        const mimo_staged_program *program = &world->ranks[r].program;
        for (int i = 0; i < program->message_count; i++) {
            *program->messages[i].fifo.before += program->messages[i].pieces;
            world->pieces += program->messages[i].pieces;
        }
    }
}

static void check_call(const virtual_world *world, int seed)
{
    for (int r = 0; r < world->size; r++) {
        const virtual_rank *rank = &world->ranks[r];
        if (rank->messages.send_count == 0 && rank->messages.receive_count == 0)
            continue; /* its copies are left to others */
        EXPECT_BITS(bits_of(rank->to, rank->wanted, TILE, 1, 0), "seed %d: rank %d of %d", seed, r,
                    world->size);
    }
}

Test(staged, random_messages)
{
    int64_t pieces = 0, in_bulk = 0;
    for (int seed = 1; seed <= 200; seed++) {
        virtual_world world = {.size = 2 + seed % (MOST_RANKS - 1), .random = (uint64_t)seed};
        open_world(&world);
        for (int call = 0; call < CALLS; call++) {
            draw_call(&world);
            run_call(&world);
            check_call(&world, seed);
            for (int r = 0; r < world.size; r++)
                mimo_staged_program_release(&world.ranks[r].program);
        }
        close_world(&world);
        pieces += world.pieces;
        in_bulk += world.in_bulk;
    }
    cr_assert(in_bulk > 50, "%d programs move rows in bulk", (int)in_bulk);
    CASES_RAN(pieces, pieces, 15000, "pieces");
}
