/* Whole batches between devices, by the public calls: a set, rows with weights, and a combine with
 * the gradients of weights; in CUDA graphs that are replayed with other ids, with tiles that are
 * too small, and where ranks call different things. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/float16.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "plain_route.h"
#include "same_bits.h"
#include "test_memory.h"

enum { N = 12, H = 16 }; /* most tokens of a rank, and elements of a row */

typedef struct batch_case {
    int64_t etp, held, top_k, alignment, capacity;
    bool shared, narrow;
} batch_case;

typedef struct batch {
    const batch_case *its;
    plain_route *plain;
    int32_t *row; /* [ranks, N, top_k]: of each pair, in the tiles of its expert's ranks */
    mimo_dispatch *dispatch;
    mimo_route *route;
    test_room ids;
    test_tile tokens[2], tiles[2]; /* rows and weights, as they are moved */
    test_tile given[2], sums[2];   /* what experts give back, and what becomes of it */
    mimo_stream stream;
    uint64_t seed;
    bool last_apart; /* no token of the last rank has an expert, and none goes there */
} batch;

enum { ROWS, WEIGHTS };

static int ranks_of(const batch *it)
{
    return (int)it->plain->ranks;
}

/* ------------------------------------------ its life ---------------------------------------- */

static void open_dispatch(batch *it, int ctas)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    const batch_case *its = it->its;
    desc.experts = it->plain->experts;
    desc.top_k = its->top_k;
    desc.etp = its->etp;
    desc.max_tokens = N;
    desc.hidden = H;
    desc.alignment = its->alignment;
    desc.narrow_sums = its->narrow;
    desc.buffers_only = its->shared;
    desc.ctas = ctas;
    desc.name = "layer 3";
    MPI_EXPECT_OK(mimo_dispatch_create(&it->dispatch, mpi_test_comm(), &desc));
    MPI_EXPECT_OK(mimo_route_create(&it->route, it->dispatch));
}

/* Of a dispatch with this number of thread blocks; 0: as many as it likes. */
static batch open_lane(const batch_case *its, int ctas)
{
    int ranks = mpi_test_size();
    batch it = {.its = its, .stream = test_stream()};
    int64_t rows = its->capacity, k = its->top_k;
    it.plain = plain_route_create(ranks, its->etp, ranks / its->etp * its->held, k, its->alignment);
    it.row = malloc((size_t)(ranks * N * k) * sizeof *it.row);
    open_dispatch(&it, ctas);
    it.ids = test_room_new(N * k * (int64_t)sizeof(int32_t));
    it.tokens[ROWS] = test_tile_new("th", MIMO_BF16, N, H, 1);
    it.tokens[WEIGHTS] = test_tile_new("tk", MIMO_F32, N, k, 1);
    it.tiles[ROWS] =
        (its->shared ? test_shared_tile_new : test_tile_new)("th", MIMO_BF16, rows, H, 1);
    it.tiles[WEIGHTS] = test_tile_new("t", MIMO_F32, rows, 1, 1);
    it.given[ROWS] = test_tile_new("th", MIMO_BF16, rows, H, 1);
    it.given[WEIGHTS] = test_tile_new("t", MIMO_F32, rows, 1, 1);
    it.sums[ROWS] = test_tile_new("th", MIMO_BF16, N, H, 1);
    it.sums[WEIGHTS] = test_tile_new("tk", MIMO_F32, N, k, 1);
    return it;
}

static batch open_batch(const batch_case *its)
{
    return open_lane(its, 0);
}

static void close_batch(batch *it)
{
    mimo_route_destroy(it->route);
    mimo_dispatch_destroy(it->dispatch);
    for (int i = 2; i-- > 0;) {
        test_tile_free(&it->sums[i]);
        test_tile_free(&it->given[i]);
        test_tile_free(&it->tiles[i]);
        test_tile_free(&it->tokens[i]);
    }
    test_room_free(&it->ids);
    free(it->row);
    plain_route_destroy(it->plain);
}

/* ------------------------------------------- calls ------------------------------------------ */

static mimo_status set(const batch *it)
{
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = it->ids.place;
    desc.memory = MIMO_MEMORY_CUDA;
    desc.tokens = N;
    desc.capacity = it->its->capacity;
    return mimo_route_set(it->route, &desc, it->stream);
}

static mimo_status move_rows(const batch *it)
{
    const mimo_tensor to[] = {it->tiles[WEIGHTS].view, it->tiles[ROWS].view};
    const mimo_tensor from[] = {it->tokens[WEIGHTS].view, it->tokens[ROWS].view};
    return mimo_dispatch_rows(it->route, to, from, 2, it->stream);
}

static mimo_status combine(const batch *it)
{
    const mimo_tensor to[] = {it->sums[WEIGHTS].view, it->sums[ROWS].view};
    const mimo_tensor from[] = {it->given[WEIGHTS].view, it->given[ROWS].view};
    return mimo_dispatch_combine(it->route, to, from, 2, it->stream);
}

/* ------------------------------------------- data ------------------------------------------- */

/* What an expert's rank gives for a row of its tile; column H: the gradient of its weight. */
static float given(uint64_t seed, int64_t rank, int64_t row, int64_t column)
{
    int64_t index = (rank * 4096 + row) * (H + 1) + column;
    float value = (float)(plain_random(seed, index, 1 << 20) - (1 << 19)) / 1e5f;
    return column < H ? mimo_bf16_to(mimo_bf16_from(value)) : value;
}

/* The random ids of a seed, padded to N tokens; they are the same on all ranks. */
static int32_t id_of(const batch *it, int rank, int32_t drawn)
{
    if (!it->last_apart || drawn < 0)
        return drawn;
    return rank == ranks_of(it) - 1 ? -1 : drawn % (int32_t)(it->plain->experts - it->its->held);
}

static void draw_ids(batch *it, uint64_t seed)
{
    const plain_draw draw = {seed, N, true};
    int64_t pairs = N * it->its->top_k;
    int32_t *ids = malloc((size_t)pairs * sizeof *ids);
    plain_route_draw(it->plain, &draw);
    for (int rank = 0; rank < ranks_of(it); rank++) {
        int64_t had = it->plain->tokens[rank] * it->its->top_k;
        for (int64_t i = 0; i < pairs; i++)
            ids[i] = i < had ? id_of(it, rank, it->plain->ids[rank][i]) : -1;
        plain_route_set(it->plain, rank, N, ids);
    }
    free(ids);
}

static void find_rows(batch *it)
{
    memset(it->row, 0xff, (size_t)(ranks_of(it) * N * it->its->top_k) * sizeof *it->row);
    for (int rank = 0; rank < ranks_of(it); rank += (int)it->its->etp) {
        int64_t count;
        plain_row *rows = plain_route_tile(&count, it->plain, rank);
        for (int64_t row = 0; row < count; row++)
            if (rows[row].rank >= 0)
                it->row[(rows[row].rank * N + rows[row].token) * it->its->top_k +
                        rows[row].choice] = (int32_t)row;
        free(rows);
    }
}

static void fill_given(batch *it)
{
    uint16_t *rows = it->given[ROWS].room.host;
    float *values = it->given[WEIGHTS].room.host;
    for (int64_t row = 0; row < it->its->capacity; row++) {
        for (int64_t c = 0; c < H; c++)
            rows[row * H + c] = mimo_bf16_from(given(it->seed, mpi_test_rank(), row, c));
        values[row] = given(it->seed, mpi_test_rank(), row, H);
    }
}

static uint64_t seed_of(const batch *it, int64_t rank, int tensor)
{
    return it->seed * 64 + (uint64_t)rank * 2 + (uint64_t)tensor;
}

/* New ids and new values, at the same places. */
static void prepare(batch *it, uint64_t seed)
{
    int rank = mpi_test_rank();
    it->seed = seed;
    draw_ids(it, seed);
    find_rows(it);
    memcpy(it->ids.host, it->plain->ids[rank], (size_t)it->ids.bytes);
    fill_elements(it->tokens[ROWS].room.host, seed_of(it, rank, ROWS), (int64_t)N * H, 2);
    fill_elements(it->tokens[WEIGHTS].room.host, seed_of(it, rank, WEIGHTS), N * it->its->top_k, 4);
    fill_given(it);
    test_push(&it->ids);
    for (int i = 0; i < 2; i++) {
        test_push(&it->tokens[i].room);
        test_push(&it->given[i].room);
    }
}

/* ------------------------------------------ results ----------------------------------------- */

static void expect_tiles(const batch *it)
{
    int64_t count, k = it->its->top_k;
    plain_row *rows = plain_route_tile(&count, it->plain, mpi_test_rank());
    bit_report report = {.element = 2, .columns = H}, weights = {.element = 4, .columns = 1};
    for (int64_t row = 0; row < count && row < it->its->capacity; row++) {
        const plain_row *pair = &rows[row];
        unsigned char element[8] = {0};
        for (int64_t c = 0; c < H; c++) {
            if (pair->rank >= 0)
                element_of_seed(element, seed_of(it, pair->rank, ROWS), pair->token * H + c, 2);
            bits_note(&report, row * H + c, (char *)it->tiles[ROWS].room.host + (row * H + c) * 2,
                      element);
        }
        memset(element, 0, sizeof element);
        if (pair->rank >= 0)
            element_of_seed(element, seed_of(it, pair->rank, WEIGHTS),
                            pair->token * k + pair->choice, 4);
        bits_note(&weights, row, (char *)it->tiles[WEIGHTS].room.host + row * 4, element);
    }
    MPI_EXPECT_BITS(report, "seed %d, rows", (int)it->seed);
    MPI_EXPECT_BITS(weights, "seed %d, weights", (int)it->seed);
    free(rows);
}

typedef struct column {
    const batch *it;
    int64_t at;
} column;

static double value_of(const void *context, const plain_row *pair, int64_t t)
{
    const column *from = context;
    const batch *it = from->it;
    int64_t at = (pair->rank * N + pair->token) * it->its->top_k + pair->choice;
    int64_t x =
        it->plain->ids[pair->rank][pair->token * it->its->top_k + pair->choice] / it->its->held;
    return given(it->seed, x * it->its->etp + t, it->row[at], from->at);
}

static double to_bf16(double value)
{
    return (double)mimo_bf16_to(mimo_bf16_from((float)value));
}

static bool is_lost(const batch *it, int64_t pair)
{
    return it->row[mpi_test_rank() * N * it->its->top_k + pair] >= it->its->capacity;
}

static bool loses(const batch *it, int64_t token)
{
    bool lost = false;
    for (int64_t j = 0; j < it->its->top_k; j++)
        lost = lost || is_lost(it, token * it->its->top_k + j);
    return lost;
}

/* Returns how many tokens lost a pair. */
static int expect_sums(const batch *it)
{
    int lost = 0;
    const uint16_t *got = it->sums[ROWS].room.host;
    bit_report report = {.element = 2, .columns = H};
    for (int64_t token = 0; token < N; token++) {
        lost += loses(it, token);
        for (int64_t c = 0; c < H; c++) {
            const column at = {it, c};
            const plain_sum sum = {false, it->its->narrow ? to_bf16 : NULL, to_bf16, value_of, &at};
            const uint16_t *here = &got[token * H + c];
            if (loses(it, token)) {
                MPI_EXPECT(isnan(mimo_bf16_to(*here)), "seed %d, token %d: %g where a pair is lost",
                           (int)it->seed, (int)token, (double)mimo_bf16_to(*here));
                continue;
            }
            uint16_t expected =
                mimo_bf16_from((float)plain_route_sum(&sum, it->plain, mpi_test_rank(), token));
            bits_note(&report, token * H + c, here, &expected);
        }
    }
    MPI_EXPECT_BITS(report, "seed %d, sums", (int)it->seed);
    return lost;
}

static float add_parts(const column *at, const plain_row *pair, int64_t lo, int64_t hi)
{
    if (hi - lo == 1)
        return (float)value_of(at, pair, lo);
    int64_t middle = lo + (hi - lo) / 2;
    volatile float sum = add_parts(at, pair, lo, middle) + add_parts(at, pair, middle, hi);
    return sum;
}

static void expect_gradients(const batch *it)
{
    int64_t k = it->its->top_k;
    const float *got = it->sums[WEIGHTS].room.host;
    bit_report report = {.element = 4, .columns = k};
    for (int64_t i = 0; i < N * k; i++) {
        const column at = {it, H};
        const plain_row pair = {0, mpi_test_rank(), i / k, i % k};
        bool none = it->plain->ids[mpi_test_rank()][i] < 0;
        if (is_lost(it, i)) {
            MPI_EXPECT(isnan(got[i]), "seed %d, pair %d: %g, and it is lost", (int)it->seed, (int)i,
                       (double)got[i]);
            continue;
        }
        float expected = none ? 0 : add_parts(&at, &pair, 0, it->its->etp);
        bits_note(&report, i, &got[i], &expected);
    }
    MPI_EXPECT_BITS(report, "seed %d, gradients of weights", (int)it->seed);
}

static int expect_all(const batch *it)
{
    for (int i = 0; i < 2; i++) {
        test_pull(&it->tiles[i].room);
        test_pull(&it->sums[i].room);
    }
    expect_tiles(it);
    expect_gradients(it);
    return expect_sums(it);
}

/* ------------------------------------------- tests ------------------------------------------ */

static bool fits(const batch_case *its)
{
    int ranks = mpi_test_size();
    return ranks % its->etp == 0 && its->top_k <= ranks / its->etp * its->held;
}

/* etp, held, top_k, alignment, capacity, shared, narrow. The largest tile has all pairs of 8 ranks;
 * the last two are often too small. */
static const batch_case cases[] = {
    {1, 8, 4, 1, 400, true, false}, {1, 8, 8, 8, 840, false, true}, {2, 6, 3, 4, 320, true, false},
    {1, 8, 4, 1, 25, true, false},  {1, 8, 4, 4, 32, false, false},
};

enum { CASES = sizeof cases / sizeof *cases };

/* Every call of a batch in one graph, and 1,000 launches of it with other ids. */
static void replay(const batch_case *its, int replays)
{
    batch it = open_batch(its);
    cudaStream_t stream = test_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int lost = 0;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MPI_EXPECT_OK(set(&it));
    MPI_EXPECT_OK(move_rows(&it));
    MPI_EXPECT_OK(combine(&it));
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int turn = 1; turn <= replays; turn++) {
        prepare(&it, (uint64_t)turn);
        EXPECT_CUDA(cudaGraphLaunch(exec, stream));
        lost += expect_all(&it);
    }
    MPI_EXPECT((lost > 0) == (its->capacity < 300), "%d tokens lost a pair", lost);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    close_batch(&it);
}

MPI_TEST(batches, replayed)
{
    int ran = 0;
    for (int i = 0; i < CASES; i++)
        if (fits(&cases[i])) {
            replay(&cases[i], i == 0 ? 1000 : 50);
            ran++;
        }
    MPI_EXPECT(ran >= 4, "%d cases", ran);
}

/* The same calls without a graph; two routes are in use, and neither minds the other. */
MPI_TEST(batches, two_routes)
{
    batch it = open_batch(&cases[0]);
    mimo_route *routes[2] = {it.route, NULL};
    MPI_EXPECT_OK(mimo_route_create(&routes[1], it.dispatch));
    for (uint64_t turn = 1; turn <= 5; turn++) {
        it.route = routes[1];
        prepare(&it, 100 + turn);
        MPI_EXPECT_OK(set(&it));
        EXPECT_CUDA(cudaStreamSynchronize(test_stream())); /* the ids have been read */
        it.route = routes[0];
        prepare(&it, turn);
        MPI_EXPECT_OK(set(&it));
        MPI_EXPECT_OK(move_rows(&it));
        MPI_EXPECT_OK(combine(&it));
        expect_all(&it);
        it.route = routes[1];
        prepare(&it, 100 + turn);
        MPI_EXPECT_OK(move_rows(&it));
        MPI_EXPECT_OK(combine(&it));
        expect_all(&it);
    }
    it.route = routes[0];
    mimo_route_destroy(routes[1]);
    close_batch(&it);
}

/* A rank that gets no rows and sends none may be calls ahead of the others. It has asked nothing of
 * theirs, so they do not mind what it calls now. */
MPI_TEST(batches, one_rank_ahead)
{
    batch it = open_batch(&cases[0]);
    it.last_apart = true;
    for (uint64_t turn = 1; turn <= 5; turn++) {
        prepare(&it, turn);
        MPI_EXPECT_OK(set(&it));
        EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
        if (mpi_test_rank() < mpi_test_size() - 1)
            usleep(100000);
        MPI_EXPECT_OK(move_rows(&it));
        MPI_EXPECT_OK(combine(&it));
        expect_all(&it);
    }
    close_batch(&it);
}

static void sleep_a_while(void *microseconds)
{
    usleep(*(useconds_t *)microseconds);
}

/* Two dispatches on two streams. On each rank another one comes late, so each kernel that runs
 * waits for one of the peer that has not begun. Both fit the device, so both end. */
MPI_TEST(batches, lanes_in_opposite_orders)
{
    static const batch_case unshared = {1, 8, 4, 1, 400, false, false};
    enum { TURNS = 50, CTAS = 20 };
    static useconds_t late = 2000;
    cudaStream_t stream;
    batch lanes[2] = {open_lane(&unshared, CTAS), open_lane(&unshared, CTAS)};
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    lanes[1].stream = stream;
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        for (int i = 0; i < 2; i++)
            prepare(&lanes[i], turn * 2 + (uint64_t)i);
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(set(&lanes[i]));
        EXPECT_CUDA(cudaLaunchHostFunc(lanes[(mpi_test_rank() + (int)turn) % 2].stream,
                                       sleep_a_while, &late));
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(move_rows(&lanes[i]));
        for (int i = 0; i < 2; i++)
            MPI_EXPECT_OK(combine(&lanes[i]));
        EXPECT_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 2; i++)
            expect_all(&lanes[i]);
    }
    close_batch(&lanes[1]);
    close_batch(&lanes[0]);
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

/* One rank moves by another route. No rank waits for ever, and all learn of it. */
MPI_TEST(batches, different_calls)
{
    batch it = open_batch(&cases[0]);
    mimo_route *routes[2] = {it.route, NULL};
    MPI_EXPECT_OK(mimo_route_create(&routes[1], it.dispatch));
    prepare(&it, 1);
    for (int i = 0; i < 2; i++) {
        it.route = routes[i];
        MPI_EXPECT_OK(set(&it));
    }
    it.route = routes[mpi_test_rank() == 0];
    MPI_EXPECT_OK(move_rows(&it));
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    MPI_FAILS(combine(&it), MIMO_ERR_MISMATCH, "was not the same call there as here");
    MPI_EXPECT_STATUS(set(&it), MIMO_ERR_MISMATCH);
    it.route = routes[0];
    mimo_route_destroy(routes[1]);
    close_batch(&it);
}

/* ------------------------------------------ refusals ---------------------------------------- */

/* Of this rank's arguments: all ranks bring the same here, so none waits. */
MPI_TEST(batches, refused)
{
    batch it = open_batch(&cases[0]);
    test_tile plain = test_tile_new("th", MIMO_BF16, it.its->capacity, H, 1);
    test_tile wide = test_tile_new("th", MIMO_F64, it.its->capacity, H, 1);
    test_tile wide_tokens = test_tile_new("th", MIMO_F64, N, H, 1);
    prepare(&it, 1);
    MPI_EXPECT_STATUS(move_rows(&it), MIMO_ERR_STATE);
    MPI_EXPECT_OK(set(&it));
    MPI_FAILS(mimo_dispatch_rows(it.route, &plain.view, &it.tokens[ROWS].view, 1, test_stream()),
              MIMO_ERR_ARGUMENT,
              "which is in no buffer of the communicator that the dispatch was made from");
    MPI_FAILS(mimo_dispatch_combine(it.route, &wide_tokens.view, &wide.view, 1, test_stream()),
              MIMO_ERR_SHAPE, "tensor 0: partial sums of 128 bytes, room for 64 (row_bytes)");
    const mimo_tensor two[] = {it.tokens[ROWS].view, it.tokens[ROWS].view};
    const mimo_tensor tiles[] = {it.tiles[ROWS].view, plain.view};
    MPI_FAILS(mimo_dispatch_rows(it.route, tiles, two, 2, test_stream()), MIMO_ERR_SHAPE,
              "2 tensors by token and 0 by pair, room for 1 of each (tensors)");
    MPI_EXPECT_OK(move_rows(&it));
    MPI_EXPECT_OK(combine(&it));
    expect_all(&it);
    test_tile_free(&wide_tokens);
    test_tile_free(&wide);
    test_tile_free(&plain);
    close_batch(&it);
}
