#include "moves_bed.h"

#include <math.h>
#include <stdlib.h>

#include "comm/expert_token.h"
#include "core/float16.h"
#include "delay.h"
#include "expert_sizes.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "pair_values.h"

enum { SPARE_ROWS = 3, LATE_US = 3000, MOST_WAIT_MS = 20000 };

/* ------------------------------------------ memory ------------------------------------------ */

static void *take(int64_t bytes)
{
    void *memory = NULL;
    EXPECT_CUDA(cudaMalloc(&memory, (size_t)bytes + 256));
    EXPECT_CUDA(cudaMemset(memory, 0, (size_t)bytes + 256));
    return memory;
}

/* It is there on return: cudaMemcpy alone may return earlier, and no stream here waits for it. */
static void upload(void *to, const void *from, int64_t bytes)
{
    EXPECT_CUDA(cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

static mimo_expert_shape shape_of(const moves_case *its)
{
    mimo_expert_shape shape;
    const mimo_expert_sizes sizes = EXPERT_SIZES(its, its->max_tokens, .tensors = 4, .sums = 4,
                                                 .return_bytes = its->return_bytes);
    MPI_EXPECT_OK(mimo_expert_shape_read(&shape, &sizes));
    return shape;
}

static void open_rank(moves_bed *bed, int r)
{
    moves_rank *rank = &bed->ranks[r];
    int64_t bytes;
    mimo_expert_group *group = &rank->moves.group;
    group->shape = bed->shape;
    group->rank = r;
    MPI_EXPECT_OK(mimo_expert_layout_of(&group->at, &bed->shape));
    MPI_EXPECT_OK(mimo_route_tables_bytes(&bytes, &bed->shape));
    rank->memory = take(group->at.bytes);
    rank->tables = take(bytes);
    rank->page = take(bed->its.ranks * (int64_t)sizeof(mimo_flags));
    MPI_EXPECT_OK(mimo_route_tables_place(&rank->moves.tables, &bed->shape, rank->tables));
    group->memory = bed->memories;
    group->flags = bed->pages;
    group->counters = take(sizeof *group->counters);
    group->signature = 7;
    EXPECT_CUDA(cudaHostGetDevicePointer((void **)&group->note, bed->note, 0));
    rank->moves.fill = bed->its.fill;
    rank->moves.gated = bed->its.gated;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
}

moves_bed *moves_bed_new(const moves_case *its)
{
    moves_bed *bed = calloc(1, sizeof *bed);
    char *memories[MOVES_MOST_RANKS];
    mimo_flags *pages[MOVES_MOST_RANKS];
    int device, multiprocessors = 0;
    bed->its = *its;
    bed->shape = shape_of(its);
    bed->plain = plain_route_create(its->ranks, its->etp, its->experts, its->top_k, its->alignment);
    bed->memories = take(sizeof memories);
    bed->pages = take(sizeof pages);
    EXPECT_CUDA(cudaHostAlloc((void **)&bed->note, sizeof *bed->note, cudaHostAllocMapped));
    memset((void *)bed->note, 0, sizeof *bed->note);
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    bed->blocks = (multiprocessors - 4) / (int)its->ranks;
    for (int r = 0; r < its->ranks; r++) {
        open_rank(bed, r);
        memories[r] = bed->ranks[r].memory;
        pages[r] = bed->ranks[r].page;
    }
    upload(bed->memories, memories, its->ranks * (int64_t)sizeof memories[0]);
    upload(bed->pages, pages, its->ranks * (int64_t)sizeof pages[0]);
    return bed;
}

void moves_bed_free(moves_bed *bed)
{
    for (int r = 0; r < bed->its.ranks; r++) {
        EXPECT_CUDA(cudaFree(bed->ranks[r].memory));
        EXPECT_CUDA(cudaFree(bed->ranks[r].page));
        EXPECT_CUDA(cudaFree(bed->ranks[r].tables));
        EXPECT_CUDA(cudaFree(bed->ranks[r].moves.group.counters));
        EXPECT_CUDA(cudaStreamDestroy(bed->ranks[r].stream));
    }
    EXPECT_CUDA(cudaFree(bed->memories));
    EXPECT_CUDA(cudaFree(bed->pages));
    EXPECT_CUDA(cudaFreeHost((void *)bed->note));
    plain_route_destroy(bed->plain);
    free(bed);
}

/* ------------------------------------------ routes ------------------------------------------ */

/* The same tables in host memory, of one rank. */
typedef struct host_tables {
    mimo_route_tables at;
    char *memory;
    int64_t bytes;
} host_tables;

static host_tables host_tables_new(const moves_bed *bed)
{
    host_tables tables;
    MPI_EXPECT_OK(mimo_route_tables_bytes(&tables.bytes, &bed->shape));
    tables.memory = calloc(1, (size_t)tables.bytes);
    MPI_EXPECT_OK(mimo_route_tables_place(&tables.at, &bed->shape, tables.memory));
    return tables;
}

static int64_t pair_at(const moves_bed *bed, int64_t rank, int64_t token, int64_t choice)
{
    return (rank * bed->its.max_tokens + token) * bed->its.top_k + choice;
}

static int64_t held_by(const moves_bed *bed)
{
    return bed->its.experts / (bed->its.ranks / bed->its.etp);
}

/* The rows of all pairs, and where experts end in the tile of each x. */
static int32_t *place_pairs(const moves_bed *bed, int32_t *needed)
{
    int64_t pairs = bed->its.ranks * bed->its.max_tokens * bed->its.top_k;
    int32_t *row = malloc((size_t)pairs * sizeof *row + 1);
    memset(row, 0xff, (size_t)pairs * sizeof *row);
    for (int64_t x = 0; x < bed->its.ranks / bed->its.etp; x++) {
        int64_t count;
        plain_row *tile = plain_route_tile(&count, bed->plain, x * bed->its.etp);
        for (int64_t n = 0; n < count; n++)
            if (tile[n].rank >= 0)
                row[pair_at(bed, tile[n].rank, tile[n].token, tile[n].choice)] = (int32_t)n;
        needed[x] = (int32_t)count;
        free(tile);
    }
    return row;
}

static bool is_lost_row(const moves_bed *bed, int64_t x, int32_t row)
{
    for (int64_t t = 0; t < bed->its.etp; t++)
        if (row >= bed->ranks[x * bed->its.etp + t].capacity)
            return true;
    return false;
}

static bool is_lost(const moves_bed *bed, const int32_t *row, int64_t rank, int64_t token,
                    int64_t only_x)
{
    for (int64_t j = 0; j < bed->its.top_k; j++) {
        int32_t id = bed->plain->ids[rank][token * bed->its.top_k + j];
        int64_t x = id / held_by(bed);
        if (id >= 0 && (only_x < 0 || x == only_x) &&
            is_lost_row(bed, x, row[pair_at(bed, rank, token, j)]))
            return true;
    }
    return false;
}

static void fill_token(const moves_bed *bed, host_tables *out, const int32_t *row, int64_t rank,
                       const int64_t at[2])
{
    const int64_t source = at[0], token = at[1], k = bed->its.top_k, x = rank / bed->its.etp;
    const int words = bed->shape.words;
    const int most = words == 1 ? MIMO_PROGRAM_LEAVES_1 : MIMO_PROGRAM_LEAVES_2;
    uint16_t ids[MIMO_EXPERT_MOST_TOP_K];
    mimo_token read;
    int64_t index = source * bed->its.max_tokens + token;
    for (int64_t j = 0; j < k; j++) {
        int32_t id = bed->plain->ids[source][token * k + j];
        ids[j] = id < 0 ? MIMO_TOKEN_NONE : (uint16_t)id;
        bool own = source == rank, here = id >= 0 && id / held_by(bed) == x;
        out->at.row[index * k + j] = own || here ? row[pair_at(bed, source, token, j)] : -1;
        if (own)
            out->at.x[token * k + j] = id < 0 ? MIMO_TOKEN_NONE : (uint16_t)(id / held_by(bed));
    }
    mimo_token_read(&read, ids, (int)k, most);
    mimo_partial_program(out->at.partial + index * words, &read, &bed->shape, (int)x,
                         is_lost(bed, row, source, token, x), most);
    if (source == rank)
        mimo_total_program(out->at.total + token * words, &read, &bed->shape,
                           is_lost(bed, row, source, token, -1), most);
}

/* Where the rows of pairs end, expert by expert. */
static void fill_ends(const moves_bed *bed, host_tables *out, int64_t rank)
{
    int64_t first = rank / bed->its.etp * held_by(bed), start = 0;
    plain_route_ends(out->at.ends, bed->plain, rank);
    for (int64_t l = 0; l < held_by(bed); start = out->at.ends[l++]) {
        int64_t rows = 0;
        for (int64_t s = 0; s < bed->its.ranks; s++)
            for (int64_t i = 0; i < bed->plain->tokens[s] * bed->its.top_k; i++)
                rows += bed->plain->ids[s][i] == first + l;
        out->at.filled[l] = (int32_t)(start + rows);
    }
}

static void write_tables(moves_bed *bed, const int32_t *row, int64_t rank)
{
    host_tables tables = host_tables_new(bed);
    for (int64_t s = 0; s < bed->its.ranks; s++) {
        tables.at.tokens[s] = (int32_t)bed->plain->tokens[s];
        tables.at.capacity[s] = bed->ranks[s].capacity;
        for (int64_t i = 0; i < bed->plain->tokens[s]; i++)
            fill_token(bed, &tables, row, rank, (const int64_t[]){s, i});
    }
    fill_ends(bed, &tables, rank);
    mimo_shared_program(tables.at.shared, &bed->shape);
    upload(bed->ranks[rank].tables, tables.memory, tables.bytes);
    free(tables.memory);
}

static void set_tables(moves_bed *bed)
{
    int32_t needed[MOVES_MOST_RANKS];
    int32_t *row = place_pairs(bed, needed);
    for (int64_t r = 0; r < bed->its.ranks; r++) {
        int64_t rows = needed[r / bed->its.etp] + SPARE_ROWS;
        if (bed->its.missing > 0 && r % 2 == 1)
            rows -= bed->its.missing + SPARE_ROWS;
        bed->ranks[r].capacity = rows < 0 ? 0 : (int32_t)rows;
    }
    for (int64_t r = 0; r < bed->its.ranks; r++)
        write_tables(bed, row, r);
    free(row);
}

void moves_bed_draw(moves_bed *bed, uint64_t seed)
{
    const plain_draw draw = {seed, bed->its.max_tokens, seed % 2 == 0};
    plain_route_draw(bed->plain, &draw);
    set_tables(bed);
}

void moves_bed_set(moves_bed *bed, const int64_t *tokens, int32_t *const *ids)
{
    for (int64_t r = 0; r < bed->its.ranks; r++)
        plain_route_set(bed->plain, r, tokens[r], ids[r]);
    set_tables(bed);
}

void moves_bed_draw_even(moves_bed *bed, uint64_t seed, int64_t tokens)
{
    int64_t k = bed->its.top_k;
    int32_t *ids = calloc((size_t)(tokens * k) + 1, sizeof *ids);
    for (int64_t r = 0; r < bed->its.ranks; r++) {
        for (int64_t i = 0; i < tokens * k; i++) {
            int64_t turn = 0, before;
            do {
                ids[i] = (int32_t)plain_random(seed + (uint64_t)r * 7919, i * 64 + turn++,
                                               bed->its.experts);
                for (before = i - i % k; before < i && ids[before] != ids[i]; before++)
                    ;
            } while (before < i);
        }
        plain_route_set(bed->plain, r, tokens, ids);
    }
    free(ids);
    set_tables(bed);
}

/* ------------------------------------------ tensors ----------------------------------------- */

/* By pair, the rows of tokens are single values. */
static int64_t element_of(const moves_kind *kind)
{
    return (int64_t)mimo_dtype_size(kind->dtype);
}

static int64_t row_bytes(const moves_kind *kind)
{
    return kind->width * element_of(kind);
}

static int64_t most_rows(const moves_bed *bed)
{
    return bed->its.ranks * bed->its.max_tokens * bed->its.top_k +
           held_by(bed) * (bed->its.alignment - 1) + SPARE_ROWS + 1;
}

moves_tensors *moves_tensors_new(moves_bed *bed, const moves_kind *kinds, int count)
{
    moves_tensors *it = calloc(1, sizeof *it);
    it->count = count;
    for (int i = 0; i < count; i++) {
        const int64_t bytes = row_bytes(&kinds[i]), ranks = bed->its.ranks;
        const int64_t tokens = bed->its.max_tokens * (kinds[i].by_pair ? bed->its.top_k : 1);
        it->kinds[i] = kinds[i];
        it->there[i] = take((int64_t)sizeof(char *) * ranks);
        for (int64_t r = 0; r < ranks; r++) {
            it->tokens[i][r] = take((tokens + 1) * bytes);
            it->experts[i][r] = take(most_rows(bed) * bytes);
            if (kinds[i].flat)
                it->flat[i][r] = take(ranks * bed->its.max_tokens * bytes);
        }
        upload(it->there[i], kinds[i].flat ? it->flat[i] : it->experts[i],
               (int64_t)sizeof(char *) * ranks);
    }
    return it;
}

void moves_tensors_free(moves_bed *bed, moves_tensors *tensors)
{
    for (int i = 0; i < tensors->count; i++) {
        for (int64_t r = 0; r < bed->its.ranks; r++) {
            EXPECT_CUDA(cudaFree(tensors->tokens[i][r]));
            EXPECT_CUDA(cudaFree(tensors->experts[i][r]));
            EXPECT_CUDA(cudaFree(tensors->flat[i][r]));
        }
        EXPECT_CUDA(cudaFree(tensors->there[i]));
    }
    free(tensors);
}

/* ------------------------------------------- calls ------------------------------------------ */

static mimo_moves_call call_of(const moves_bed *bed, const moves_tensors *tensors, int64_t rank,
                               bool combine)
{
    mimo_moves_call call = {.moves = bed->ranks[rank].moves, .count = tensors->count};
    for (int i = 0; i < tensors->count; i++) {
        const moves_kind *kind = &tensors->kinds[i];
        char *tokens = tensors->tokens[i][rank], *experts = tensors->experts[i][rank];
        call.tensors[i] = (mimo_moves_tensor){.from = combine ? experts : tokens,
                                              .to = combine ? tokens : experts,
                                              .row_bytes = row_bytes(kind),
                                              .by_pair = kind->by_pair,
                                              .dtype = kind->dtype,
                                              .narrow = kind->narrow,
                                              .there = tensors->there[i],
                                              .flat = kind->flat};
    }
    return call;
}

void moves_enqueue_on(moves_bed *bed, const moves_tensors *tensors, bool combine,
                      moves_launch launch, int64_t rank)
{
    const mimo_moves_call call = call_of(bed, tensors, rank, combine);
    EXPECT_CUDA(launch(&call, bed->blocks, bed->ranks[rank].stream));
}

void moves_enqueue(moves_bed *bed, const moves_tensors *tensors, bool combine, moves_launch launch)
{
    for (int64_t r = 0; r < bed->its.ranks; r++)
        moves_enqueue_on(bed, tensors, combine, launch, r);
}

/* A call that does not end is aborted. */
void moves_wait(moves_bed *bed)
{
    for (int64_t r = 0; r < bed->its.ranks; r++)
        for (int ms = 0; cudaStreamQuery(bed->ranks[r].stream) == cudaErrorNotReady; ms++) {
            delay_host(1000);
            if (ms != MOST_WAIT_MS)
                continue;
            bed->note->abort = 1;
            bed->hung = true;
            MPI_EXPECT(false, "rank %d waits for ever", (int)r);
        }
    EXPECT_CUDA(cudaDeviceSynchronize());
}

/* ------------------------------------------- data ------------------------------------------- */

static uint64_t seed_of(uint64_t seed, int i, int64_t rank)
{
    return seed * 1000 + (uint64_t)i * 100 + (uint64_t)rank;
}

/* What a tile of experts reads from, of combine: values of its pairs, NaN in all other rows. */
static char *expert_side(const moves_bed *bed, const moves_kind *kind, int i, const int64_t at[2])
{
    int64_t count, capacity = bed->ranks[at[0]].capacity, t = at[0] % bed->its.etp;
    plain_row *rows = plain_route_tile(&count, bed->plain, at[0]);
    char *data = calloc((size_t)(most_rows(bed) * row_bytes(kind)) + 1, 1);
    for (int64_t row = 0; row < most_rows(bed); row++)
        for (int64_t c = 0; c < kind->width; c++) {
            const pair_column it = {seed_of((uint64_t)at[1], i, 0), c, kind->dtype};
            bool pair = row < count && row < capacity && rows[row].rank >= 0;
            pair_put(data, kind->dtype, row * kind->width + c,
                     pair ? pair_value(&it, &rows[row], t) : NAN);
        }
    free(rows);
    return data;
}

static int64_t token_elements(const moves_bed *bed, const moves_kind *kind, int64_t rank)
{
    return bed->plain->tokens[rank] * (kind->by_pair ? bed->its.top_k : kind->width);
}

static char *token_side(const moves_bed *bed, const moves_kind *kind, int i, const int64_t at[2])
{
    int64_t elements = token_elements(bed, kind, at[0]);
    char *data = calloc((size_t)(elements * element_of(kind)) + 1, 1);
    fill_elements(data, seed_of((uint64_t)at[1], i, at[0]), elements, element_of(kind));
    return data;
}

/* Write what a call reads of a tensor. */
static void fill_tensor(moves_bed *bed, const moves_tensors *tensors, int i, const int64_t at[2],
                        bool combine)
{
    const moves_kind *kind = &tensors->kinds[i];
    int64_t tokens = token_elements(bed, kind, at[0]) * element_of(kind);
    char *data = (combine ? expert_side : token_side)(bed, kind, i, at);
    upload(combine ? tensors->experts[i][at[0]] : tensors->tokens[i][at[0]], data,
           combine ? most_rows(bed) * row_bytes(kind) : tokens);
    free(data);
}

/* Poison what it writes, on the rank's stream. */
static void poison_tensor(moves_bed *bed, const moves_tensors *tensors, int i, int64_t rank,
                          bool combine)
{
    const moves_kind *kind = &tensors->kinds[i];
    int64_t tokens = token_elements(bed, kind, rank) * element_of(kind) + row_bytes(kind);
    char *to = combine ? tensors->tokens[i][rank] : tensors->experts[i][rank];
    EXPECT_CUDA(cudaMemsetAsync(to, GUARD_POISON,
                                (size_t)(combine ? tokens : most_rows(bed) * row_bytes(kind)),
                                bed->ranks[rank].stream));
}

/* What peers write for the call: until it has begun, it is the rank's own. */
static void poison_returns(moves_bed *bed, int64_t rank)
{
    const mimo_expert_layout *at = &bed->ranks[rank].moves.group.at;
    EXPECT_CUDA(cudaMemsetAsync(bed->ranks[rank].memory + at->pairs, GUARD_POISON,
                                (size_t)(at->bytes - at->pairs), bed->ranks[rank].stream));
}

void moves_fill(moves_bed *bed, const moves_tensors *tensors, bool combine, uint64_t seed)
{
    for (int64_t r = 0; r < bed->its.ranks; r++)
        for (int i = 0; i < tensors->count; i++)
            fill_tensor(bed, tensors, i, (const int64_t[]){r, (int64_t)seed}, combine);
    for (int64_t r = 0; r < bed->its.ranks; r++) {
        if (r == bed->its.late)
            EXPECT_CUDA(delay_stream(LATE_US, bed->ranks[r].stream));
        for (int i = 0; i < tensors->count; i++)
            poison_tensor(bed, tensors, i, r, combine);
        poison_returns(bed, r);
    }
}

/* ---------------------------------------- comparisons --------------------------------------- */

static char *download(const void *from, int64_t bytes)
{
    char *data = malloc((size_t)bytes + 1);
    EXPECT_CUDA(cudaMemcpy(data, from, (size_t)bytes, cudaMemcpyDeviceToHost));
    return data;
}

/* A row of a tile as `rows` must leave it. */
static void expected_row(char *out, const moves_bed *bed, const moves_kind *kind,
                         const plain_row *row, uint64_t seed)
{
    const int64_t size = element_of(kind), per_token = kind->by_pair ? bed->its.top_k : kind->width;
    memset(out, 0, (size_t)row_bytes(kind));
    for (int64_t c = 0; row->rank >= 0 && c < kind->width; c++) {
        int64_t at = row->token * per_token + (kind->by_pair ? row->choice : c);
        unsigned char element[8] = {0};
        element_of_seed(element, seed + (uint64_t)row->rank, at, size);
        memcpy(out + c * size, element, (size_t)size);
    }
}

static void compare_tile(bit_report *report, const moves_bed *bed, const moves_tensors *tensors,
                         int i, const int64_t at[2])
{
    const moves_kind *kind = &tensors->kinds[i];
    int64_t count, bytes = row_bytes(kind), capacity = bed->ranks[at[0]].capacity;
    plain_row *rows = plain_route_tile(&count, bed->plain, at[0]);
    char *expected = malloc((size_t)bytes + 1);
    char *got = download(tensors->experts[i][at[0]], most_rows(bed) * bytes);
    for (int64_t row = 0; row < most_rows(bed); row++) {
        if (row < count && row < capacity)
            expected_row(expected, bed, kind, &rows[row], seed_of((uint64_t)at[1], i, 0));
        else
            memset(expected, GUARD_POISON, (size_t)bytes);
        for (int64_t c = 0; c < kind->width; c++)
            bits_note(report, row * kind->width + c, got + row * bytes + c * element_of(kind),
                      expected + c * element_of(kind));
    }
    free(rows);
    free(expected);
    free(got);
}

static void note_value(bit_report *report, const moves_kind *kind, int64_t at, const char *got,
                       double value)
{
    char expected[8];
    double seen = kind->dtype == MIMO_F64   ? *(const double *)(const void *)got
                  : kind->dtype == MIMO_F32 ? (double)*(const float *)(const void *)got
                  : kind->dtype == MIMO_BF16
                      ? (double)mimo_bf16_to(*(const uint16_t *)(const void *)got)
                      : (double)mimo_f16_to(*(const uint16_t *)(const void *)got);
    pair_put(expected, kind->dtype, 0, value);
    bits_note(report, at, isnan(value) && isnan(seen) ? expected : got, expected);
}

/* The parts of a value [lo, hi), halved. */
static double add_parts(const pair_column *it, const plain_row *pair, int64_t lo, int64_t hi)
{
    if (hi - lo == 1)
        return pair_value(it, pair, lo);
    int64_t middle = lo + (hi - lo) / 2;
    double a = add_parts(it, pair, lo, middle), b = add_parts(it, pair, middle, hi);
    volatile float narrow = (float)a + (float)b;
    return it->dtype == MIMO_F64 ? a + b : (double)narrow;
}

static void compare_pairs(bit_report *report, const moves_bed *bed, const moves_tensors *tensors,
                          int i, const int64_t at[2])
{
    const moves_kind *kind = &tensors->kinds[i];
    int64_t k = bed->its.top_k, size = element_of(kind);
    int64_t pairs = bed->plain->tokens[at[0]] * k;
    int32_t needed[MOVES_MOST_RANKS], *row = place_pairs(bed, needed);
    char *got = download(tensors->tokens[i][at[0]], pairs * size);
    for (int64_t n = 0; n < pairs; n++) {
        const pair_column it = {seed_of((uint64_t)at[1], i, 0), 0, kind->dtype};
        const plain_row pair = {0, at[0], n / k, n % k};
        int32_t id = bed->plain->ids[at[0]][n];
        bool lost = id >= 0 &&
                    is_lost_row(bed, id / held_by(bed), row[at[0] * bed->its.max_tokens * k + n]);
        double value = lost ? NAN : id < 0 ? 0 : add_parts(&it, &pair, 0, bed->its.etp);
        note_value(report, kind, n, got + n * size, value);
    }
    free(got);
    free(row);
}

static void compare_sums(bit_report *report, const moves_bed *bed, const moves_tensors *tensors,
                         int i, const int64_t at[2])
{
    const moves_kind *kind = &tensors->kinds[i];
    int64_t tokens = bed->plain->tokens[at[0]], bytes = row_bytes(kind), size = element_of(kind);
    plain_rounding round = pair_rounding(kind->dtype);
    int32_t needed[MOVES_MOST_RANKS], *row = place_pairs(bed, needed);
    char *got = download(tensors->tokens[i][at[0]], (tokens + 1) * bytes);
    int64_t step = tokens * kind->width > 100000 ? tokens * kind->width / 20000 : 1;
    for (int64_t n = 0; n < tokens * kind->width; n += step) {
        const pair_column it = {seed_of((uint64_t)at[1], i, 0), n % kind->width, kind->dtype};
        const plain_sum sum = {kind->dtype == MIMO_F64, kind->narrow ? round : NULL, round,
                               pair_value, &it};
        bool lost = is_lost(bed, row, at[0], n / kind->width, -1);
        double value = lost ? NAN : plain_route_sum(&sum, bed->plain, at[0], n / kind->width);
        note_value(report, kind, n, got + n * size, value);
    }
    for (int64_t c = 0; c < bytes; c++)
        if ((unsigned char)got[tokens * bytes + c] != GUARD_POISON)
            report->wrong++;
    free(got);
    free(row);
}

bit_report moves_compare(moves_bed *bed, const moves_tensors *tensors, bool combine, uint64_t seed)
{
    bit_report first = {0};
    for (int64_t r = 0; r < bed->its.ranks; r++)
        for (int i = 0; i < tensors->count; i++) {
            const moves_kind *kind = &tensors->kinds[i];
            const int64_t at[] = {r, (int64_t)seed};
            bit_report report = {.element = element_of(kind), .columns = kind->width};
            if (!combine)
                compare_tile(&report, bed, tensors, i, at);
            else if (kind->by_pair)
                compare_pairs(&report, bed, tensors, i, at);
            else
                compare_sums(&report, bed, tensors, i, at);
            if (first.wrong == 0)
                first = report;
        }
    return first;
}
