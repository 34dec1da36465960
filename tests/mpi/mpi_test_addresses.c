/* Calls whose tensors lie elsewhere each time. Nothing is made anew and nothing grows; rows arrive
 * with the same bits; only alignment, shape and buffer decide which prepared call serves. */
#include <stdlib.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "bridge_bed.h"
#include "cases_ran.h"
#include "core/memory.h"
#include "exchange_counter.h"
#include "guarded.h"
#include "kept_widths.h"
#include "reference_grid.h"
#include "tile_arena.h"

/* ----------------------------------------- counters ----------------------------------------- */

/* What lives in MPI, and messages that were started. */
static struct {
    int64_t types, requests, started;
} mpi;

static int made(int64_t *alive, int code)
{
    *alive += code == MPI_SUCCESS;
    return code;
}

int MPI_Type_contiguous(int count, MPI_Datatype of, MPI_Datatype *out)
{
    return made(&mpi.types, PMPI_Type_contiguous(count, of, out));
}

int MPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype of,
                            MPI_Datatype *out)
{
    return made(&mpi.types, PMPI_Type_create_hvector(count, length, stride, of, out));
}

int MPI_Type_create_struct(int count, const int lengths[], const MPI_Aint offsets[],
                           const MPI_Datatype of[], MPI_Datatype *out)
{
    return made(&mpi.types, PMPI_Type_create_struct(count, lengths, offsets, of, out));
}

int MPI_Type_create_resized(MPI_Datatype of, MPI_Aint lower, MPI_Aint extent, MPI_Datatype *out)
{
    return made(&mpi.types, PMPI_Type_create_resized(of, lower, extent, out));
}

int MPI_Type_free(MPI_Datatype *type)
{
    mpi.types--;
    return PMPI_Type_free(type);
}

int MPI_Send_init(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                  MPI_Request *out)
{
    return made(&mpi.requests, PMPI_Send_init(from, count, type, to, tag, comm, out));
}

int MPI_Recv_init(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                  MPI_Request *out)
{
    return made(&mpi.requests, PMPI_Recv_init(to, count, type, from, tag, comm, out));
}

int MPI_Request_free(MPI_Request *request)
{
    mpi.requests--;
    return PMPI_Request_free(request);
}

int MPI_Startall(int count, MPI_Request requests[])
{
    mpi.started += count;
    return PMPI_Startall(count, requests);
}

/* Allocations of the library's own objects, by its hook for those that fail. */
enum { PLENTY = 1 << 30 };

static void count_allocations(void)
{
    (void)mimo_fail_allocation(PLENTY);
}

static int64_t allocations(void)
{
    return PLENTY - mimo_fail_allocation(0);
}

/* ------------------------------------------ cases ------------------------------------------- */

static bed_case case_of(bool buffer)
{
    static char src[32], dst[32];
    bed_case c = {.src = {.grid = src}, .dst = {.grid = dst, .partition = true}};
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", mpi_test_size());
    c.src_letters = c.dst_letters = "sbh";
    c.executor = EXECUTOR_P2P;
    c.buffer = buffer;
    c.dtype = MIMO_F32;
    c.hidden = 4; /* rows of 16 bytes */
    c.batch = mpi_test_size();
    c.given = true;
    c.seq = 4 * mpi_test_size();
    return c;
}

/* ---------------------------------------- small calls --------------------------------------- */

/* Two tensors, so that a message has rows behind several bases. */
static void call_two(const bridge_bed *bed, const test_tile to[2], const test_tile from[2])
{
    const mimo_tensor targets[] = {to[0].view, to[1].view};
    const mimo_tensor sources[] = {from[0].view, from[1].view};
    MPI_EXPECT_OK(mimo_bridge_forward(bed->bridge, targets, sources, 2, test_stream()));
}

/* Each call has its four tiles at other offsets than the call before. In a buffer they are the same
 * on all ranks. One call in fifty is looked at. */
static void move_small(const bridge_bed *bed, const arena sources[2], const arena targets[2],
                       int64_t turn)
{
    test_tile to[2], from[2];
    bool looks = turn % 50 == 0;
    int64_t own = bed->c.buffer ? 0 : mpi_test_rank();
    for (int i = 0; i < 2; i++) {
        from[i] = tile_at(&sources[i], 16 * (37 * turn + 5 * i + mpi_test_rank()));
        to[i] = tile_at(&targets[i], 16 * (11 * turn + 3 * i + own));
        if (looks) {
            poison(&to[i]);
            bed_fill(bed, &from[i], false, (uint64_t)(2 * turn + i));
        }
    }
    if (looks) /* a peer must not write before this rank's poison is there */
        test_pull(&to[1].room);
    call_two(bed, to, from);
    for (int i = 0; i < 2 && looks; i++) {
        bed_check_target(bed, &to[i], false, (uint64_t)(2 * turn + i));
        check_guards(&to[i]);
    }
}

BED_TEST(addresses, of_small_calls)
{
    enum { CALLS = 10000, SPREAD = 1 << 12 };
    bed_case c = case_of(buffer);
    bridge_bed bed = bed_create(&c);
    count_exchanges(bed.bridge->mover.comm);
    arena sources[2], targets[2];
    for (int i = 0; i < 2; i++) {
        sources[i] = arena_new(&bed, MIMO_SRC, false, SPREAD);
        targets[i] = arena_new(&bed, MIMO_DST, buffer, SPREAD);
    }
    mpi.requests = 0; /* communicators that were released free some */
    move_small(&bed, sources, targets, 0);
    int64_t types = mpi.types, requests = mpi.requests, started = mpi.started;
    count_allocations();
    for (int64_t turn = 1; turn < CALLS; turn++)
        move_small(&bed, sources, targets, turn);
    int64_t took = allocations();
    MPI_EXPECT(exchange_counter.created == 1, "%d exchanges were made", exchange_counter.created);
    MPI_EXPECT(took == 0, "%d allocations", (int)took);
    MPI_EXPECT(mpi.types == types && mpi.requests == requests,
               "%d types and %d requests, after the first call %d and %d", (int)mpi.types,
               (int)mpi.requests, (int)types, (int)requests);
    MPI_EXPECT(mpi.started - started == requests * (CALLS - 1), "%d messages of %d requests",
               (int)(mpi.started - started), (int)requests);
    for (int i = 0; i < 2; i++) {
        arena_free(&sources[i]);
        arena_free(&targets[i]);
    }
    bed_destroy(&bed);
}

/* ------------------------------------------ shapes ------------------------------------------ */

/* 64 shapes in turn, forward and backward. Only the first turn makes anything. */
BED_TEST(addresses, of_many_shapes)
{
    enum { SHAPES = 64, TURNS = 4, SPREAD = 1 << 10 };
    bed_case c = case_of(buffer);
    c.hidden = SHAPES;
    bridge_bed bed = bed_create(&c);
    count_exchanges(bed.bridge->mover.comm);
    int64_t took = 0;
    for (int turn = 0; turn < TURNS; turn++)
        for (int shape = 0; shape < 2 * SHAPES; shape++) {
            bool backward = shape % 2;
            bed.c.hidden = 1 + shape / 2;
            arena from = arena_new(&bed, backward ? MIMO_DST : MIMO_SRC, false, SPREAD);
            arena to = arena_new(&bed, backward ? MIMO_SRC : MIMO_DST, buffer, SPREAD);
            const test_tile source = tile_at(&from, 16 * (turn + shape + mpi_test_rank()));
            const test_tile target = tile_at(&to, 16 * (3 * turn + shape));
            uint64_t seed = (uint64_t)(turn * SHAPES + shape);
            bed_fill(&bed, &source, backward, seed);
            count_allocations();
            MPI_EXPECT_OK(bed_call(&bed, backward, &target, &source));
            int64_t these = allocations();
            took += turn > 0 ? these : 0;
            bed_check_target(&bed, &target, backward, seed);
            arena_free(&from);
            arena_free(&to);
        }
    MPI_EXPECT(exchange_counter.created == 2 * SHAPES, "%d exchanges for %d shapes",
               exchange_counter.created, SHAPES);
    MPI_EXPECT(took == 0, "%d allocations after the first turn", (int)took);
    bed_destroy(&bed);
}

/* ----------------------------------------- alignment ---------------------------------------- */

/* A base at an odd address after one that is a multiple of 16: its rows must not move in words of
 * 16 bytes. A call serves the addresses of its own alignment alone, whichever they are. */
BED_TEST(addresses, alignments)
{
    static const int64_t offsets[] = {0, 16, 8, 24, 4, 12, 2, 6, 1, 3, 48, 5, 40};
    static const int classes[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5};
    enum { COUNT = sizeof offsets / sizeof *offsets, SPREAD = 64 };
    for (int end = 0; end < 2; end++) {
        bed_case c = case_of(buffer);
        bridge_bed bed = bed_create(&c);
        count_exchanges(bed.bridge->mover.comm);
        arena from = arena_new(&bed, MIMO_SRC, false, SPREAD);
        arena to = arena_new(&bed, MIMO_DST, buffer, SPREAD);
        int64_t first = -(intptr_t)(end ? to.room.place : from.room.place) & 15;
        for (int i = 0; i < COUNT; i++) {
            const test_tile source = tile_at(&from, end ? 0 : first + offsets[i]);
            const test_tile target = tile_at(&to, end ? first + offsets[i] : 0);
            poison(&target);
            bed_fill(&bed, &source, false, (uint64_t)i);
            test_pull(&target.room);
            MPI_Barrier(MPI_COMM_WORLD); /* the guards of a peer's tile are poisoned as well */
            MPI_EXPECT_OK(bed_call(&bed, false, &target, &source));
            bed_check_target(&bed, &target, false, (uint64_t)i);
            check_guards(&target);
            MPI_EXPECT(exchange_counter.created == classes[i], "offset %d: %d exchanges, not %d",
                       (int)offsets[i], exchange_counter.created, classes[i]);
        }
        arena_free(&from);
        arena_free(&to);
        bed_destroy(&bed);
    }
}

/* Rank 0 gives the rows and rank 1 takes them; backward, the other way round. The target of the
 * rank that only sends is empty. In a buffer it shows where the other rank's target lies, so its
 * alignment counts as well. Anywhere else it decides nothing. */
static void move_from_senders(const bridge_bed *bed, bool backward)
{
    static const int64_t offsets[] = {0, 8, 0, 64, 8, 68, 4, 2};
    static const int classes[] = {1, 2, 2, 2, 2, 3, 3, 4};
    enum { COUNT = sizeof offsets / sizeof *offsets, SPREAD = 128 };
    bool sends = mpi_test_rank() == backward, buffer = bed->c.buffer;
    arena from = arena_new(bed, backward ? MIMO_DST : MIMO_SRC, false, SPREAD);
    arena to = arena_new(bed, backward ? MIMO_SRC : MIMO_DST, buffer, SPREAD);
    int64_t first = -(intptr_t)to.room.place & 15;
    int before = exchange_counter.created;
    for (int i = 0; i < COUNT; i++) {
        const test_tile source = tile_at(&from, 0), target = tile_at(&to, first + offsets[i]);
        int wanted = sends && !buffer ? 1 : classes[i];
        poison(&target);
        bed_fill(bed, &source, backward, (uint64_t)i);
        test_pull(&target.room);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_EXPECT_OK(bed_call(bed, backward, &target, &source));
        bed_check_target(bed, &target, backward, (uint64_t)i);
        check_guards(&target);
        MPI_EXPECT(exchange_counter.created - before == wanted, "offset %d: %d exchanges, not %d",
                   (int)offsets[i], exchange_counter.created - before, wanted);
    }
    arena_free(&from);
    arena_free(&to);
}

static bed_case senders_apart(bool buffer)
{
    bed_case c = case_of(buffer);
    c.src.grid = c.dst.grid = "dp=1";
    c.dst.offset = 1;
    return c;
}

BED_TEST(addresses, of_senders)
{
    const bed_case c = senders_apart(buffer);
    bridge_bed bed = bed_create(&c);
    count_exchanges(bed.bridge->mover.comm);
    watch_widths(bed.bridge->mover.comm);
    move_from_senders(&bed, false);
    move_from_senders(&bed, true);
    bed_destroy(&bed);
}

/* ------------------------------------------- swaps ------------------------------------------ */

/* Two tensors of a call change places, at either end or at both. */
BED_TEST(addresses, that_swap)
{
    enum { TURNS = 12 };
    bed_case c = case_of(buffer);
    bridge_bed bed = bed_create(&c);
    count_exchanges(bed.bridge->mover.comm);
    test_tile from[2], to[2];
    for (int i = 0; i < 2; i++) {
        from[i] = bed_tile_new(&bed, MIMO_SRC);
        to[i] = bed_target_new(&bed, MIMO_DST);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        int source = turn % 2, target = turn / 2 % 2;
        const test_tile sources[] = {from[source], from[1 - source]};
        const test_tile targets[] = {to[target], to[1 - target]};
        for (int i = 0; i < 2; i++)
            bed_fill(&bed, &sources[i], false, (uint64_t)(2 * turn + i));
        call_two(&bed, targets, sources);
        for (int i = 0; i < 2; i++)
            bed_check_target(&bed, &targets[i], false, (uint64_t)(2 * turn + i));
    }
    /* Two tiles in a buffer may be aligned differently. */
    MPI_EXPECT(exchange_counter.created <= 1 + buffer, "%d exchanges", exchange_counter.created);
    bed_destroy(&bed);
}

/* ------------------------------------------ random ------------------------------------------ */

enum { MOST_TENSORS = 2, RANDOM_SPREAD = 256 };

/* What one random call moves. All ranks draw the same, except where their sources lie. */
typedef struct random_call {
    bool backward;
    int n, chunks;
    int64_t hidden[MOST_TENSORS], from[MOST_TENSORS], to[MOST_TENSORS]; /* by tensor; offsets */
    uint64_t seed;
} random_call;

/* Most alignments are equal, so that calls meet what earlier ones have prepared. Elements that are
 * added lie at multiples of their size. */
static int64_t draw_offset(uint64_t *state, const bed_case *c)
{
    int64_t least = c->sums ? 4 : 1;
    int64_t odd = random_below(state, 6) > 0 ? 0 : least << random_below(state, 2);
    return 16 * random_below(state, RANDOM_SPREAD / 16) + odd;
}

static random_call draw_call(uint64_t *state, const bed_case *c)
{
    static const int64_t widths[] = {3, 8};
    random_call call = {.backward = random_below(state, 2),
                        .n = 1 + (int)random_below(state, MOST_TENSORS),
                        .chunks = 1 + (int)random_below(state, 2),
                        .seed = next_random(state) >> 8};
    for (int i = 0; i < call.n; i++) {
        call.hidden[i] = widths[random_below(state, sizeof widths / sizeof *widths)];
        call.from[i] = draw_offset(state, c);
        call.to[i] = draw_offset(state, c);
    }
    return call;
}

static void run_random(const bridge_bed *bed, const random_call *call)
{
    bridge_bed beds[MOST_TENSORS];
    arena from[MOST_TENSORS], to[MOST_TENSORS];
    test_tile source[MOST_TENSORS], target[MOST_TENSORS];
    mimo_tensor sources[MOST_TENSORS], targets[MOST_TENSORS];
    mimo_side give = call->backward ? MIMO_DST : MIMO_SRC;
    mimo_side take = call->backward ? MIMO_SRC : MIMO_DST;
    mimo_op *op = NULL;
    for (int i = 0; i < call->n; i++) {
        beds[i] = *bed;
        beds[i].c.hidden = call->hidden[i];
        from[i] = arena_new(&beds[i], give, false, RANDOM_SPREAD);
        to[i] = arena_new(&beds[i], take, bed->c.buffer, RANDOM_SPREAD);
        int64_t step = 16 * (int64_t)mpi_test_rank();
        source[i] = tile_at(&from[i], call->from[i] + step);
        target[i] = tile_at(&to[i], call->to[i] + (bed->c.buffer ? 0 : step));
        bed_fill(&beds[i], &source[i], call->backward, call->seed + (uint64_t)i);
        sources[i] = source[i].view;
        targets[i] = target[i].view;
    }
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = targets;
    move.from = sources;
    move.n = call->n;
    move.chunks = call->chunks;
    move.stream = test_stream();
    MPI_EXPECT_OK((call->backward ? mimo_bridge_backward_start_chunked
                                  : mimo_bridge_forward_start_chunked)(&op, bed->bridge, &move));
    MPI_EXPECT_OK(mimo_op_wait(&op));
    for (int i = 0; i < call->n; i++) {
        bed_check_target(&beds[i], &target[i], call->backward, call->seed + (uint64_t)i);
        check_guards(&target[i]);
        arena_free(&from[i]);
        arena_free(&to[i]);
    }
}

/* The case of a random bridge: shards, contributions that are added in one phase or two, and ranks
 * of which half give rows and the others take them. */
enum { SHARDS, CONTRIBUTIONS, SENDERS, WAYS };

static bed_case random_case(int way, bool buffer)
{
    static char src[32], dst[32];
    bed_case c = case_of(buffer);
    int size = mpi_test_size(), half = (size + 1) / 2;
    c.dst.partition = way != CONTRIBUTIONS;
    c.sums = way == CONTRIBUTIONS;
    c.src_letters = way == CONTRIBUTIONS ? "bsh" : "sbh";
    if (way == CONTRIBUTIONS) { /* one dp rank of many copies: two phases where cp > 2 */
        snprintf(src, sizeof src, "tp=%d,dp=1", size);
        c.src.grid = src;
    } else if (way == SENDERS) {
        c.dst.offset = size / 2 > 0 ? half : 0;
        snprintf(src, sizeof src, "dp=%d", half);
        snprintf(dst, sizeof dst, "cp=%d,dp=1", size - (int)c.dst.offset);
        c.src.grid = src;
        c.dst.grid = dst;
    }
    return c;
}

/* Random shapes, tensors, chunks and addresses on one bridge. */
BED_TEST(addresses, at_random)
{
    enum { CALLS = 60, CALLS_OF_SENDERS = 200, ALL = 2 * CALLS + CALLS_OF_SENDERS };
    (void)widths_looked_at();
    int64_t ran = 0, met = 0;
    for (int way = 0; way < WAYS; way++) {
        const bed_case c = random_case(way, buffer);
        uint64_t state = 77 + (uint64_t)way;
        bridge_bed bed = bed_create(&c);
        count_exchanges(bed.bridge->mover.comm);
        watch_widths(bed.bridge->mover.comm);
        for (int i = 0; i < (way == SENDERS ? CALLS_OF_SENDERS : CALLS); i++, ran++) {
            const random_call call = draw_call(&state, &c);
            int before = exchange_counter.created;
            run_random(&bed, &call);
            met += exchange_counter.created == before;
        }
        bed_destroy(&bed);
    }
    MPI_EXPECT(widths_looked_at() > CALLS / 4, "kept calls met few addresses");
    MPI_CASES_RAN(met, ran, 2 * ALL / 5, "calls at random addresses of known shapes");
}

/* -------------------------------------- too many bases -------------------------------------- */

/* A backend that has few bases: larger calls serve their own addresses alone, and are right. Two
 * sets of sources meet two sets of targets. `sets`: how many of these differ in what decides. */
static void move_past_the_most_bases(const bed_case *c, int sets)
{
    enum { TURNS = 8 };
    bridge_bed bed = bed_create(c);
    count_exchanges(bed.bridge->mover.comm);
    exchange_counter.table.most_bases = 4;
    watch_widths(bed.bridge->mover.comm);
    test_tile from[3], to[3];
    for (int i = 0; i < 3; i++) {
        from[i] = bed_tile_new(&bed, MIMO_SRC);
        to[i] = bed_target_new(&bed, MIMO_DST);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const test_tile *sources = &from[turn % 2], *targets = &to[turn / 2 % 2];
        for (int i = 0; i < 2; i++)
            bed_fill(&bed, &sources[i], false, (uint64_t)(2 * turn + i));
        call_two(&bed, targets, sources);
        for (int i = 0; i < 2; i++)
            bed_check_target(&bed, &targets[i], false, (uint64_t)(2 * turn + i));
    }
    MPI_EXPECT(exchange_counter.created == sets, "%d exchanges for %d sets of addresses",
               exchange_counter.created, sets);
    bed_destroy(&bed);
}

BED_TEST(addresses, past_the_most_bases)
{
    const bed_case every_rank = case_of(buffer), senders = senders_apart(buffer);
    bool sends = mpi_test_rank() == 0;
    move_past_the_most_bases(&every_rank, 4);
    move_past_the_most_bases(&senders, sends && buffer ? 4 : 2);
}
