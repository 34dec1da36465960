/* Calls on devices whose tensors lie elsewhere each time: what they ask of CUDA after the first
 * one, graphs that live through them, and graphs that are captured before any call. */
#include "cuda_counter.h" /* first: it asks for RTLD_NEXT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "gpu_calls.h"
#include "kept_widths.h"
#include "random_calls.h"
#include "tile_arena.h"

/* ------------------------------------------ cases ------------------------------------------- */

enum { SPREAD = 1 << 12, MOST = 12 };

/* By `way`: p2p; zero-copy of a few blocks of rows; of the many blocks of many tensors, whose list
 * lies in device memory; of many bytes, which move in bulk; and `collective`. Backward adds
 * contributions where there is no partition. */
enum { P2P, FEW_BLOCKS, MANY_BLOCKS, IN_BULK, COLLECTIVE, WAYS };

static bed_case case_of(int way, bool partition)
{
    static char src[32], dst[32];
    bed_case c = {.src = {.grid = src}, .dst = {.grid = dst, .partition = partition}};
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", mpi_test_size());
    c.src_letters = c.dst_letters = "sbh";
    c.executor = way == P2P          ? EXECUTOR_P2P
                 : way == COLLECTIVE ? EXECUTOR_COLLECTIVE
                                     : EXECUTOR_ZERO_COPY;
    c.buffer = c.executor == EXECUTOR_ZERO_COPY;
    c.dtype = MIMO_F32;
    c.hidden = way == IN_BULK ? 256 : 8;
    c.batch = 2 * mpi_test_size();
    c.seq = (way == IN_BULK ? 32 : 4) * mpi_test_size();
    c.given = true;
    c.ctas = way == IN_BULK ? 2 : 0; /* so that a thread block has much to move */
    c.sums = way != COLLECTIVE;
    return c;
}

/* The same between two groups of ranks: half of them only send in a forward, the others in a
 * backward. */
static bed_case apart_case_of(int way)
{
    static char src[32], dst[32];
    bed_case c = case_of(way, true);
    int half = mpi_test_size() / 2;
    snprintf(src, sizeof src, "dp=%d", half);
    snprintf(dst, sizeof dst, "cp=%d,dp=1", mpi_test_size() - half);
    c.src.grid = src;
    c.dst.grid = dst;
    c.dst.offset = half;
    return c;
}

/* One pass of a case, with memory for the tiles of its tensors. */
typedef struct passage {
    bool backward;
    int n;
    arena from[MOST], to[MOST];
} passage;

static passage passage_new(const bridge_bed *bed, bool backward, int way)
{
    passage made = {.backward = backward, .n = way == MANY_BLOCKS ? MOST : 1};
    for (int i = 0; i < made.n; i++) {
        made.from[i] = arena_new(bed, backward ? MIMO_DST : MIMO_SRC, false, SPREAD);
        made.to[i] = arena_new(bed, backward ? MIMO_SRC : MIMO_DST, bed->c.buffer, SPREAD);
    }
    return made;
}

static void passage_free(passage *it)
{
    for (int i = 0; i < it->n; i++) {
        arena_free(&it->from[i]);
        arena_free(&it->to[i]);
    }
}

static test_tile source_at(const passage *it, int i, int64_t turn)
{
    return tile_at(&it->from[i], 16 * (37 * turn + 5 * i + mpi_test_rank()));
}

static test_tile target_at(const passage *it, int i, int64_t turn)
{
    return tile_at(&it->to[i], 16 * (11 * turn + 3 * i));
}

/* The tensors of a call. Narrower ones stand for other shapes: `hidden` > 0. */
static void view(const passage *it, int64_t turn, int64_t hidden, mimo_tensor *to,
                 mimo_tensor *from)
{
    for (int i = 0; i < it->n; i++) {
        to[i] = target_at(it, i, turn).view;
        from[i] = source_at(it, i, turn).view;
        if (hidden > 0)
            to[i].shape[2] = from[i].shape[2] = hidden;
    }
}

static void move_narrow(const bridge_bed *bed, const passage *it, int64_t turn, int64_t hidden)
{
    mimo_tensor to[MOST], from[MOST];
    view(it, turn, hidden, to, from);
    MPI_EXPECT_OK((it->backward ? mimo_bridge_backward : mimo_bridge_forward)(
        bed->bridge, to, from, it->n, test_stream()));
}

static void move(const bridge_bed *bed, const passage *it, int64_t turn)
{
    move_narrow(bed, it, turn, 0);
}

/* No peer writes before all ranks have poisoned their targets. */
static void fill(const bridge_bed *bed, const passage *it, int64_t turn, uint64_t seed)
{
    for (int i = 0; i < it->n; i++) {
        const test_tile from = source_at(it, i, turn), to = target_at(it, i, turn);
        poison(&to);
        bed_fill(bed, &from, it->backward, seed + (uint64_t)i);
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check(const bridge_bed *bed, const passage *it, int64_t turn, uint64_t seed)
{
    for (int i = 0; i < it->n; i++) {
        const test_tile to = target_at(it, i, turn);
        bed_check_target(bed, &to, it->backward, seed + (uint64_t)i);
        check_guards(&to);
    }
}

static void move_and_check(const bridge_bed *bed, const passage *it, int64_t turn)
{
    fill(bed, it, turn, (uint64_t)(100 * turn));
    move(bed, it, turn);
    check(bed, it, turn, (uint64_t)(100 * turn));
}

/* -------------------------------------- what calls ask for ---------------------------------- */

static void count_calls(int way, bool partition)
{
    enum { CALLS = 10000, LOOKS = 1000 };
    bed_case c = case_of(way, partition);
    bridge_bed bed = bed_create(&c);
    passage there = passage_new(&bed, false, way), back = passage_new(&bed, true, way);
    for (int64_t turn = 0; turn < CALLS; turn++) {
        if (turn % LOOKS == 0) {
            move_and_check(&bed, &there, turn);
            move_and_check(&bed, &back, turn);
            begin_count();
        }
        move(&bed, &there, turn);
        move(&bed, &back, turn);
        if (turn % LOOKS == LOOKS - 1)
            end_count(&c, "calls at fresh addresses");
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    passage_free(&there);
    passage_free(&back);
    bed_destroy(&bed);
}

MPI_TEST(fresh, p2p_asks_for_nothing)
{
    count_calls(P2P, true);
    count_calls(P2P, false);
}

MPI_TEST(fresh, zero_copy_asks_for_nothing)
{
    for (int way = FEW_BLOCKS; way <= IN_BULK; way++)
        count_calls(way, true);
    count_calls(FEW_BLOCKS, false);
}

/* 64 shapes in turn, forward and backward. */
static void count_shapes(int way)
{
    enum { SHAPES = 64, TURNS = 3 };
    bed_case c = case_of(way, true);
    c.hidden = SHAPES;
    bridge_bed bed = bed_create(&c);
    passage there = passage_new(&bed, false, way), back = passage_new(&bed, true, way);
    move(&bed, &there, 0); /* the largest one: staging grows to what it needs */
    move(&bed, &back, 0);
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn == 1)
            begin_count();
        for (int shape = 1; shape <= SHAPES; shape++) {
            move_narrow(&bed, &there, turn * SHAPES + shape, shape);
            move_narrow(&bed, &back, turn * SHAPES + shape, shape);
        }
    }
    end_count(&c, "shapes in turn");
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    passage_free(&there);
    passage_free(&back);
    bed_destroy(&bed);
}

MPI_TEST(fresh, shapes_in_turn)
{
    count_shapes(P2P);
    count_shapes(FEW_BLOCKS);
    count_shapes(MANY_BLOCKS);
}

/* ----------------------------------------- alignment ---------------------------------------- */

/* An odd base after an aligned one of the same shape: neither the bulk kernel nor wide words. */
MPI_TEST(fresh, odd_after_even)
{
    static const int64_t offsets[] = {0, 16, 8, 4, 2, 1, 3, 32};
    for (int way = P2P; way <= IN_BULK; way++) {
        bed_case c = case_of(way, true);
        bridge_bed bed = bed_create(&c);
        passage it = passage_new(&bed, false, way);
        for (size_t i = 0; i < 2 * sizeof offsets / sizeof *offsets; i++) {
            const test_tile from = tile_at(&it.from[0], i % 2 ? 0 : offsets[i / 2]);
            const test_tile to = tile_at(&it.to[0], i % 2 ? offsets[i / 2] : 0);
            poison(&to);
            bed_fill(&bed, &from, false, i);
            EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_EXPECT_OK(bed_call(&bed, false, &to, &from));
            bed_check_target(&bed, &to, false, i);
            check_guards(&to);
        }
        passage_free(&it);
        bed_destroy(&bed);
    }
}

static int64_t draw_offset(uint64_t *random)
{
    static const int64_t offsets[] = {0, 64, 68, 8, 2};
    return offsets[random_below(random, sizeof offsets / sizeof *offsets)];
}

/* All ranks draw the same. */
static void move_apart(const bridge_bed *bed, const passage *it, uint64_t *random)
{
    test_tile from[MOST], to[MOST];
    mimo_tensor sources[MOST], targets[MOST];
    uint64_t seed = next_random(random) >> 8;
    bool moves_sources = random_below(random, 2);
    for (int i = 0; i < it->n; i++) {
        from[i] = tile_at(&it->from[i], moves_sources ? draw_offset(random) : 0);
        to[i] = tile_at(&it->to[i], draw_offset(random));
        sources[i] = from[i].view;
        targets[i] = to[i].view;
        poison(&to[i]);
        bed_fill(bed, &from[i], it->backward, seed + (uint64_t)i);
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK((it->backward ? mimo_bridge_backward : mimo_bridge_forward)(
        bed->bridge, targets, sources, it->n, test_stream()));
    for (int i = 0; i < it->n; i++) {
        bed_check_target(bed, &to[i], it->backward, seed + (uint64_t)i);
        check_guards(&to[i]);
    }
}

/* A rank that only sends has an empty target, and writes in words that its offset decides. */
MPI_TEST(fresh, senders_apart)
{
    enum { TURNS = 40 };
    uint64_t random = 29;
    for (int way = P2P; way <= IN_BULK; way++) {
        const bed_case c = apart_case_of(way);
        bridge_bed bed = bed_create(&c);
        watch_widths(bed.bridge->mover.comm);
        passage there = passage_new(&bed, false, way), back = passage_new(&bed, true, way);
        for (int turn = 0; turn < TURNS; turn++)
            move_apart(&bed, turn % 2 ? &back : &there, &random);
        passage_free(&there);
        passage_free(&back);
        bed_destroy(&bed);
    }
}

/* --------------------------------------- many tensors --------------------------------------- */

/* More tensors than bases travel with a launch. Targets change their addresses more often than
 * sources, and some addresses come back. */
MPI_TEST(fresh, many_tensors)
{
    enum { TENSORS = 150, TURNS = 6 };
    const bed_case cases[] = {case_of(P2P, true), case_of(FEW_BLOCKS, true), apart_case_of(P2P),
                              apart_case_of(FEW_BLOCKS)};
    for (size_t w = 0; w < sizeof cases / sizeof *cases; w++) {
        test_tile from[TENSORS], to[TENSORS];
        mimo_tensor sources[TENSORS], targets[TENSORS];
        bridge_bed bed = bed_create(&cases[w]);
        for (int i = 0; i < TENSORS; i++) {
            from[i] = bed_tile_new(&bed, MIMO_SRC);
            to[i] = bed_target_new(&bed, MIMO_DST);
        }
        for (int turn = 0; turn < TURNS; turn++) {
            int n = turn % 2 ? TENSORS : 100; /* of 100 tensors each base travels */
            for (int i = 0; i < n; i++) {
                int other = (i + turn / 4) % n;
                bed_fill(&bed, &from[other], false, (uint64_t)(turn * TENSORS + i));
                sources[i] = from[other].view;
                targets[i] = to[n - 1 - (i + turn / 2) % n].view;
            }
            MPI_EXPECT_OK(mimo_bridge_forward(bed.bridge, targets, sources, n, test_stream()));
            for (int i = 0; i < n; i++)
                bed_check_target(&bed, &to[n - 1 - (i + turn / 2) % n], false,
                                 (uint64_t)(turn * TENSORS + i));
        }
        bed_destroy(&bed);
    }
}

/* ------------------------------------------ graphs ------------------------------------------ */

static void prepare(const bridge_bed *bed, const passage *it, int64_t turn)
{
    mimo_tensor to[MOST], from[MOST];
    mimo_move_desc desc = MIMO_MOVE_DESC_INIT;
    view(it, turn, 0, to, from);
    desc.to = to;
    desc.from = from;
    desc.n = it->n;
    desc.stream = test_stream();
    MPI_EXPECT_OK(mimo_bridge_prepare(bed->bridge, it->backward, &desc));
}

static cudaGraphExec_t capture(const bridge_bed *bed, const passage *there, const passage *back)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    move(bed, there, 0);
    move(bed, back, 0);
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    if (graph) {
        EXPECT_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
        EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    return made;
}

/* A replay moves the tensors that were captured. */
static void replay(const bridge_bed *bed, cudaGraphExec_t graph, const passage *const both[2],
                   uint64_t seed)
{
    fill(bed, both[0], 0, seed);
    fill(bed, both[1], 0, seed + MOST);
    EXPECT_CUDA(cudaGraphLaunch(graph, test_stream()));
    check(bed, both[0], 0, seed);
    check(bed, both[1], 0, seed + MOST);
}

/* No call comes before the capture: the calls are prepared. Replays alternate with calls at other
 * addresses, and with more shapes than a bridge keeps. */
static void graph_among_calls(int way, bool partition)
{
    enum { ROUNDS = 6, SHAPES = 150 };
    bed_case c = case_of(way, partition);
    c.hidden = way == MANY_BLOCKS ? 16 : way == IN_BULK ? 256 : SHAPES + 2;
    bridge_bed bed = bed_create(&c);
    passage there = passage_new(&bed, false, way), back = passage_new(&bed, true, way);
    const passage *const both[] = {&there, &back};
    prepare(&bed, &there, 1);
    prepare(&bed, &back, 1);
    cudaGraphExec_t graph = capture(&bed, &there, &back);
    for (int64_t round = 1; graph && round <= ROUNDS; round++) {
        replay(&bed, graph, both, (uint64_t)(100 * round));
        for (int64_t turn = 0; turn < 20; turn++)
            move(&bed, both[turn % 2], 20 * round + turn);
        move_and_check(&bed, &there, 1000 + round);
        move_and_check(&bed, &back, 1000 + round);
        for (int shape = 0; round == ROUNDS / 2 && shape < SHAPES; shape++)
            move_narrow(&bed, &there, shape, 1 + shape % c.hidden);
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    if (graph)
        EXPECT_CUDA(cudaGraphExecDestroy(graph));
    passage_free(&there);
    passage_free(&back);
    bed_destroy(&bed);
}

/* A program that lies in device memory is made and copied while the stream is captured. Zero-copy
 * without contributions takes nothing else for the first time. */
MPI_TEST(fresh, graphs_of_first_calls)
{
    static const int ways[] = {FEW_BLOCKS, MANY_BLOCKS, IN_BULK};
    test_needs_reach(mpi_test_size());
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        bed_case c = case_of(ways[w], true);
        bridge_bed bed = bed_create(&c);
        passage there = passage_new(&bed, false, ways[w]), back = passage_new(&bed, true, ways[w]);
        const passage *const both[] = {&there, &back};
        cudaGraphExec_t graph = capture(&bed, &there, &back);
        for (uint64_t round = 0; graph && round < 3; round++)
            replay(&bed, graph, both, 100 * round);
        if (graph)
            EXPECT_CUDA(cudaGraphExecDestroy(graph));
        passage_free(&there);
        passage_free(&back);
        bed_destroy(&bed);
    }
}

MPI_TEST(fresh, prepared_graphs)
{
    for (int way = 0; way < WAYS; way++) {
        graph_among_calls(way, true);
        graph_among_calls(way, false);
    }
}

/* -------------------------------------- in any order ---------------------------------------- */

static cudaGraphExec_t capture_call(const random_calls *it, int i)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    random_calls_make(it, i);
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    MPI_EXPECT(graph != NULL, "%s: call %d was not captured", it->text, i);
    if (graph) {
        EXPECT_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
        EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    return made;
}

static void replay_call(const random_calls *it, int i, cudaGraphExec_t graph)
{
    random_calls_poison(it, i);
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_CUDA(cudaGraphLaunch(graph, test_stream()));
    random_calls_check(it, i);
}

/* Some calls are captured before larger ones are prepared, the others when all are. No call was
 * made before. Every graph is replayed when all are there, and again after eager calls. */
static void graphs_in_any_order(const random_calls *it, uint64_t *seed)
{
    int order[RANDOM_CALLS];
    bool all = true;
    cudaGraphExec_t graphs[RANDOM_CALLS] = {NULL};
    random_calls_order(seed, order);
    for (int i = 0; i < RANDOM_CALLS; i++) {
        random_calls_prepare(it, order[i]);
        if (random_below(seed, 2))
            graphs[order[i]] = capture_call(it, order[i]);
    }
    for (int i = 0; i < RANDOM_CALLS; i++) {
        if (!graphs[i])
            graphs[i] = capture_call(it, i);
        all = all && graphs[i];
    }
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    for (int round = 0; all && round < 2; round++) {
        random_calls_order(seed, order);
        for (int i = 0; i < RANDOM_CALLS; i++)
            replay_call(it, order[i], graphs[order[i]]);
        for (int i = 0; i < RANDOM_CALLS; i++)
            random_calls_make(it, order[i]);
    }
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    for (int i = 0; i < RANDOM_CALLS; i++)
        if (graphs[i])
            EXPECT_CUDA(cudaGraphExecDestroy(graphs[i]));
}

MPI_TEST(fresh, graphs_in_any_order)
{
    enum { CASES = 50 };
    uint64_t seed = 17;
    for (int i = 0; i < CASES; i++) {
        random_calls it = random_calls_new(&seed);
        graphs_in_any_order(&it, &seed);
        random_calls_free(&it);
    }
}
