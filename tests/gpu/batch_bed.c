#include "batch_bed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/float16.h"
#include "guarded.h"
#include "same_bits.h"

static int ranks_of(const batch *it)
{
    return (int)it->plain->ranks;
}

/* ------------------------------------------ its life ---------------------------------------- */

static void open_dispatch(batch *it, mimo_comm *comm, int ctas)
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
    MPI_EXPECT_OK(mimo_dispatch_create(&it->dispatch, comm, &desc));
    MPI_EXPECT_OK(mimo_route_create(&it->route, it->dispatch));
}

batch batch_open(mimo_comm *comm, const batch_case *its, int ctas)
{
    int ranks = mpi_test_size();
    batch it = {.its = its, .stream = test_stream()};
    int64_t rows = its->capacity, k = its->top_k;
    it.plain = plain_route_create(ranks, its->etp, ranks / its->etp * its->held, k, its->alignment);
    it.row = malloc((size_t)(ranks * N * k) * sizeof *it.row);
    open_dispatch(&it, comm, ctas);
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

void batch_close(batch *it)
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

mimo_status batch_set(const batch *it)
{
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = it->ids.place;
    desc.memory = MIMO_MEMORY_CUDA;
    desc.tokens = N;
    desc.capacity = it->its->capacity;
    return mimo_route_set(it->route, &desc, it->stream);
}

mimo_status batch_rows(const batch *it)
{
    const mimo_tensor to[] = {it->tiles[WEIGHTS].view, it->tiles[ROWS].view};
    const mimo_tensor from[] = {it->tokens[WEIGHTS].view, it->tokens[ROWS].view};
    return mimo_dispatch_rows(it->route, to, from, 2, it->stream);
}

mimo_status batch_combine(const batch *it)
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

void batch_prepare(batch *it, uint64_t seed)
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

void batch_expect_rows(const batch *it)
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

int batch_expect_all(const batch *it)
{
    for (int i = 0; i < 2; i++) {
        test_pull(&it->tiles[i].room);
        test_pull(&it->sums[i].room);
    }
    batch_expect_rows(it);
    expect_gradients(it);
    return expect_sums(it);
}
