#include "dispatch_bed.h"

#include <math.h>
#include <stdlib.h>

#include "guarded.h"
#include "pair_values.h"
#include "same_bits.h"
#include "test_memory.h"

enum { MAX_TOKENS = 21, OPAQUE_WIDTH = 5, KINDS = 4 };

/* ---------------------------------------- its life ------------------------------------------ */

bool dispatch_case_fits(const dispatch_case *its, int ranks)
{
    return ranks % its->etp == 0 && its->top_k <= ranks / its->etp * its->held;
}

dispatch_bed dispatch_bed_new(mimo_comm *comm, const dispatch_case *its)
{
    int ranks = mimo_comm_size(comm);
    dispatch_bed bed = {.its = its, .ids = test_room_new(0)};
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = ranks / its->etp * its->held;
    desc.top_k = its->top_k;
    desc.etp = its->etp;
    desc.max_tokens = MAX_TOKENS;
    desc.hidden = its->hidden > OPAQUE_WIDTH ? its->hidden : OPAQUE_WIDTH;
    desc.alignment = its->alignment;
    desc.narrow_sums = its->narrow;
    desc.transport = its->transport;
    desc.row_bytes = desc.hidden * (int64_t)sizeof(double);
    desc.tensors = KINDS;
    bed.plain = plain_route_create(ranks, its->etp, desc.experts, its->top_k, its->alignment);
    MPI_EXPECT_OK(mimo_dispatch_create(&bed.dispatch, comm, &desc));
    MPI_EXPECT_OK(mimo_route_create(&bed.route, bed.dispatch));
    return bed;
}

void dispatch_bed_free(dispatch_bed *bed)
{
    mimo_route_destroy(bed->route);
    mimo_dispatch_destroy(bed->dispatch);
    plain_route_destroy(bed->plain);
    test_room_free(&bed->ids);
}

static int rank_of(const dispatch_bed *bed)
{
    return mpi_test_rank() % (int)bed->plain->ranks;
}

static void expect_ends(const dispatch_bed *bed)
{
    int64_t held = bed->its->held;
    const int32_t *got;
    int32_t *expected = calloc((size_t)held, sizeof *expected);
    plain_route_ends(expected, bed->plain, rank_of(bed));
    MPI_EXPECT_OK(mimo_route_ends(&got, bed->route));
    void *place = (void *)(uintptr_t)got, *host = test_host_of(place, held * 4);
    if (host != place)
        test_place_pull(host, place, held * 4);
    MPI_EXPECT_BITS(bits_of(host, expected, held * 4, 4, 0), "ends of the experts");
    test_host_free(host);
    free(expected);
}

static void push_ids(dispatch_bed *bed)
{
    int64_t bytes = bed->tokens * bed->its->top_k * (int64_t)sizeof(int32_t);
    test_room_free(&bed->ids);
    bed->ids = test_room_new(bytes);
    if (bytes > 0)
        memcpy(bed->ids.host, bed->plain->ids[rank_of(bed)], (size_t)bytes);
    test_push(&bed->ids);
}

void dispatch_bed_set(dispatch_bed *bed, uint64_t seed)
{
    int rank = rank_of(bed);
    const plain_draw draw = {seed, MAX_TOKENS, seed % 2 == 0};
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    plain_route_draw(bed->plain, &draw);
    free(plain_route_tile(&bed->rows, bed->plain, rank));
    bed->tokens = bed->plain->tokens[rank];
    bed->rows += bed->its->spare > 0 ? bed->its->spare : 0;
    push_ids(bed);
    desc.ids = bed->ids.place;
    desc.memory = test_memory();
    desc.tokens = bed->tokens;
    desc.capacity = bed->its->spare < 0 ? -1 : bed->rows;
    MPI_EXPECT_OK(mimo_route_set(bed->route, &desc, test_stream()));
    MPI_EXPECT_OK(mimo_route_read(&counts, bed->route));
    MPI_EXPECT(counts.ranks == bed->plain->ranks && counts.overflows == 0, "%d ranks, %d overflows",
               (int)counts.ranks, (int)counts.overflows);
    for (int64_t other = 0; other < counts.ranks; other++) {
        int64_t rows;
        free(plain_route_tile(&rows, bed->plain, other));
        MPI_EXPECT(counts.rows[other] == rows, "rank %d needs %d rows, not %d", (int)other,
                   (int)rows, (int)counts.rows[other]);
    }
    expect_ends(bed);
}

/* ------------------------------------------- rows ------------------------------------------- */

/* The tensors of a call: token rows of three widths and dtypes, and values of pairs. */
typedef struct row_kind {
    const char *letters[2];
    mimo_dtype dtype;
    int64_t width;
} row_kind;

static row_kind kind_of(const dispatch_bed *bed, int i)
{
    const row_kind kinds[KINDS] = {{{"th", "th"}, bed->its->dtype, bed->its->hidden},
                                   {{"th", "th"}, MIMO_I64, 1},
                                   {{"tk", "t"}, MIMO_F32, bed->its->top_k},
                                   {{"th", "th"}, MIMO_F8, OPAQUE_WIDTH}};
    return kinds[i];
}

static uint64_t seed_of(uint64_t seed, int kind, int64_t rank)
{
    return seed * 1000 + (uint64_t)kind * 100 + (uint64_t)rank;
}

/* What a tile must hold: bytes of the sources, zeros, poison behind the last expert. */
static unsigned char *expected_tile(const dispatch_bed *bed, int i, uint64_t seed)
{
    int64_t count;
    const row_kind kind = kind_of(bed, i);
    int64_t size = (int64_t)mimo_dtype_size(kind.dtype), pairs = i == 2;
    int64_t width = pairs ? 1 : kind.width;
    plain_row *rows = plain_route_tile(&count, bed->plain, rank_of(bed));
    unsigned char *tile = malloc((size_t)(bed->rows * width * size) + 1);
    memset(tile, GUARD_POISON, (size_t)(bed->rows * width * size) + 1);
    for (int64_t row = 0; row < count; row++)
        for (int64_t c = 0; c < width; c++) {
            unsigned char element[8] = {0};
            int64_t first = rows[row].token * kind.width + (pairs ? rows[row].choice : c);
            if (rows[row].rank >= 0)
                element_of_seed(element, seed_of(seed, i, rows[row].rank), first, size);
            memcpy(tile + (row * width + c) * size, element, (size_t)size);
        }
    free(rows);
    return tile;
}

static test_tile expert_tile(const dispatch_bed *bed, const row_kind *kind, bool shared)
{
    return (shared ? test_shared_tile_new : test_tile_new)(kind->letters[1], kind->dtype, bed->rows,
                                                           kind->width, 1);
}

void dispatch_bed_move_rows(const dispatch_bed *bed, uint64_t seed)
{
    test_tile from[KINDS], to[KINDS];
    mimo_tensor from_views[KINDS], to_views[KINDS];
    for (int i = 0; i < KINDS; i++) {
        const row_kind kind = kind_of(bed, i);
        from[i] = test_tile_new(kind.letters[0], kind.dtype, bed->tokens, kind.width, 1);
        /* Some tensors of a call may lie in a buffer, and others not. */
        to[i] = expert_tile(bed, &kind,
                            bed->its->shared &&
                                (i != 1 || bed->its->transport == MIMO_TRANSPORT_ZERO_COPY));
        fill_elements(from[i].room.host, seed_of(seed, i, rank_of(bed)), bed->tokens * kind.width,
                      (int64_t)mimo_dtype_size(kind.dtype));
        test_push(&from[i].room);
        from_views[i] = from[i].view;
        to_views[i] = to[i].view;
    }
    MPI_EXPECT_OK(mimo_dispatch_rows(bed->route, to_views, from_views, KINDS, test_stream()));
    for (int i = 0; i < KINDS; i++) {
        const row_kind kind = kind_of(bed, i);
        unsigned char *expected = expected_tile(bed, i, seed);
        test_pull(&to[i].room);
        MPI_EXPECT_BITS(bits_of(to[i].room.host, expected, to[i].room.bytes,
                                (int64_t)mimo_dtype_size(kind.dtype), i == 2 ? 1 : kind.width),
                        "seed %d, tensor %d", (int)seed, i);
        free(expected);
    }
    for (int i = KINDS; i-- > 0;) {
        test_tile_free(&to[i]);
        test_tile_free(&from[i]);
    }
}

/* ------------------------------------------- sums ------------------------------------------- */

/* The expert side: what the experts of this rank give, NaN in rows that are no pair's. */
static void fill_expert_side(const dispatch_bed *bed, uint64_t seed, void *rows_data, void *values)
{
    int64_t count, hidden = bed->its->hidden, t = rank_of(bed) % bed->its->etp;
    plain_row *rows = plain_route_tile(&count, bed->plain, rank_of(bed));
    for (int64_t row = 0; row < bed->rows; row++)
        for (int64_t c = 0; c <= hidden; c++) {
            const pair_column it = {seed, c, c < hidden ? bed->its->dtype : MIMO_F32};
            bool pair = row < count && rows[row].rank >= 0;
            double value = pair ? pair_value(&it, &rows[row], t) : NAN;
            if (c < hidden)
                pair_put(rows_data, it.dtype, row * hidden + c, value);
            else
                pair_put(values, it.dtype, row, value);
        }
    free(rows);
}

static void expect_sums(const dispatch_bed *bed, uint64_t seed, const void *got)
{
    mimo_dtype dtype = bed->its->dtype;
    int64_t hidden = bed->its->hidden, size = (int64_t)mimo_dtype_size(dtype);
    plain_rounding round = pair_rounding(dtype);
    bit_report report = {.element = size, .columns = hidden};
    for (int64_t i = 0; i < bed->tokens; i++)
        for (int64_t c = 0; c < hidden; c++) {
            char expected[8];
            const pair_column it = {seed, c, dtype};
            const plain_sum sum = {dtype == MIMO_F64, bed->its->narrow ? round : NULL, round,
                                   pair_value, &it};
            pair_put(expected, dtype, 0, plain_route_sum(&sum, bed->plain, rank_of(bed), i));
            bits_note(&report, i * hidden + c, (const char *)got + (i * hidden + c) * size,
                      expected);
        }
    MPI_EXPECT_BITS(report, "seed %d, sums of %s", (int)seed, mimo_dtype_name(dtype));
}

/* The parts of a value [lo, hi), halved. */
static float add_parts(const pair_column *it, const plain_row *pair, int64_t lo, int64_t hi)
{
    if (hi - lo == 1)
        return (float)pair_value(it, pair, lo);
    int64_t middle = lo + (hi - lo) / 2;
    volatile float sum = add_parts(it, pair, lo, middle) + add_parts(it, pair, middle, hi);
    return sum;
}

static void expect_values(const dispatch_bed *bed, uint64_t seed, const float *got)
{
    int64_t top_k = bed->its->top_k;
    bit_report report = {.element = 4, .columns = top_k};
    for (int64_t i = 0; i < bed->tokens * top_k; i++) {
        const pair_column it = {seed, bed->its->hidden, MIMO_F32};
        const plain_row pair = {0, rank_of(bed), i / top_k, i % top_k};
        bool none = bed->plain->ids[rank_of(bed)][i] < 0;
        float expected = none ? 0 : add_parts(&it, &pair, 0, bed->its->etp);
        bits_note(&report, i, &got[i], &expected);
    }
    MPI_EXPECT_BITS(report, "seed %d, values of pairs", (int)seed);
}

void dispatch_bed_combine(const dispatch_bed *bed, uint64_t seed)
{
    int64_t hidden = bed->its->hidden, top_k = bed->its->top_k;
    mimo_dtype dtype = bed->its->dtype;
    test_tile from[] = {test_tile_new("th", dtype, bed->rows, hidden, 1),
                        test_tile_new("t", MIMO_F32, bed->rows, 1, 1)};
    test_tile to[] = {test_tile_new("th", dtype, bed->tokens, hidden, 1),
                      test_tile_new("tk", MIMO_F32, bed->tokens, top_k, 1)};
    const mimo_tensor from_views[] = {from[0].view, from[1].view};
    const mimo_tensor to_views[] = {to[0].view, to[1].view};
    fill_expert_side(bed, seed, from[0].room.host, from[1].room.host);
    for (int i = 0; i < 2; i++)
        test_push(&from[i].room);
    MPI_EXPECT_OK(mimo_dispatch_combine(bed->route, to_views, from_views, 2, test_stream()));
    for (int i = 0; i < 2; i++)
        test_pull(&to[i].room);
    expect_sums(bed, seed, to[0].room.host);
    expect_values(bed, seed, to[1].room.host);
    for (int i = 0; i < 2; i++) {
        test_tile_free(&from[i]);
        test_tile_free(&to[i]);
    }
}
