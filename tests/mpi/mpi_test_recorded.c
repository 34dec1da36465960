/* What a bridge asks of its backend, recorded by a table before the real one, as results do not
 * show it: the limit of thread blocks, which has no effect on the host, that it is reserved, and
 * that exchanges learn what was reserved; and the number of phases of backward, with the bytes of
 * each. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/routed/call_types.h"
#include "bridge_bed.h"
#include "core/float16.h"
#include "reference_grid.h"

enum { RANKS = 4, MOST = 8 };

/* The bytes and rows that one exchange was asked to move. */
typedef struct asked {
    int ctas;
    int64_t reserved;
    int sends, pushes;
    int64_t bytes[RANKS]; /* from here to each rank, sent or pushed */
} asked;

static struct {
    const mimo_comm_backend *real;
    int count; /* exchanges in the order of preparation; those past MOST are only counted */
    asked list[MOST];
} record;

static void write_down(asked *out, const mimo_messages *messages)
{
    const mimo_pushes *pushes = &messages->pushes;
    *out = (asked){.ctas = pushes->ctas,
                   .reserved = pushes->reserved,
                   .sends = messages->send_count,
                   .pushes = pushes->count};
    for (int i = 0; i < messages->send_count; i++)
        for (int64_t j = 0; j < messages->sends[i].count; j++)
            out->bytes[messages->sends[i].peer] +=
                mimo_rows_bytes(&messages->sends[i].rows[j].rows);
    for (int i = 0; i < pushes->count; i++)
        for (int64_t j = 0; j < pushes->list[i].count; j++)
            out->bytes[pushes->list[i].peer] += mimo_rows_bytes(&pushes->list[i].rows[j].to.rows);
}

static mimo_status recording_create(mimo_exchange **out, mimo_comm *comm,
                                    const mimo_messages *messages)
{
    if (record.count < MOST)
        write_down(&record.list[record.count], messages);
    record.count++;
    return record.real->exchange_create(out, comm, messages);
}

/* From here on the bridge uses `table`, which the caller owns. Its communicator is its own, so
 * other objects' calls are not recorded. */
static void record_bridge(mimo_bridge *bridge, mimo_comm_backend *table)
{
    record.real = bridge->mover.comm->backend;
    record.count = 0;
    *table = *record.real;
    table->exchange_create = recording_create;
    bridge->mover.comm->backend = table;
}

/* --------------------------------------- thread blocks -------------------------------------- */

static void set_environment(const char *value)
{
    if (value)
        setenv("MIMO_CTAS", value, 1);
    else
        unsetenv("MIMO_CTAS");
}

/* Forward and backward, whole calls and chunks. */
static void move_all_ways(bridge_bed *bed, uint64_t seed)
{
    for (bed->c.chunks = 0; bed->c.chunks < 3; bed->c.chunks += 2) {
        bed_move(bed, false, seed);
        bed_move(bed, true, seed);
    }
}

static void expect_ctas(int wanted)
{
    bool pushed = false;
    for (int i = 0; i < record.count && i < MOST; i++) {
        MPI_EXPECT(record.list[i].ctas == wanted, "exchange %d: %d thread blocks, not %d", i,
                   record.list[i].ctas, wanted);
        pushed = pushed || record.list[i].pushes > 0;
    }
    MPI_EXPECT(pushed && record.count <= MOST, "%d exchanges, none of which pushes", record.count);
}

/* The descriptor's limit comes before the environment's. The environment counts as it was at the
 * creation. Both reach everything that pushes rows: forward and backward, whole calls and
 * chunks. */
MPI_TEST(recorded, limit_of_thread_blocks)
{
    static const struct {
        int ctas;
        const char *environment;
        int wanted;
    } cases[] = {{0, NULL, 0}, {5, NULL, 5}, {0, "7", 7}, {5, "7", 5}, {0, "0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bed_case c = bed_fan_in;
        mimo_comm_backend table;
        c.ctas = cases[i].ctas;
        set_environment(cases[i].environment);
        bridge_bed bed = bed_create(&c);
        set_environment("3");
        record_bridge(bed.bridge, &table);
        move_all_ways(&bed, i);
        expect_ctas(cases[i].wanted);
        bed_destroy(&bed);
        set_environment(NULL);
    }
}

/* -------------------------------------- reserved blocks ------------------------------------- */

/* What bridges reserve. */
static struct {
    mimo_comm_backend table;
    const mimo_comm_backend *real;
    int most;     /* of a lane; a limit above is cut, as where ranks share a device */
    int blocks;   /* in all */
    bool refuses; /* on this rank */
} reserved;

static mimo_status reserve(mimo_comm *comm, mimo_lane *lane, int blocks)
{
    (void)comm;
    MIMO_CHECK(!reserved.refuses, MIMO_ERR_ARGUMENT, "%d thread blocks are too many", blocks);
    blocks = blocks < reserved.most ? blocks : reserved.most;
    *lane = (mimo_lane){.kind = MIMO_LANE_RESERVED, .blocks = blocks};
    reserved.blocks += blocks;
    return MIMO_OK;
}

static void give_back(mimo_comm *comm, mimo_lane *lane)
{
    (void)comm;
    reserved.blocks -= (int)lane->blocks;
    *lane = (mimo_lane){.kind = MIMO_LANE_OUT};
}

static mimo_status create_reserving(mimo_bridge **out, executor_id executor, int ctas)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_grid *grid = mpi_test_grid("tp=1,dp=4", 0);
    desc.src = desc.dst = grid;
    desc.executor = executor_of(executor);
    desc.ctas = ctas;
    mimo_status status = mimo_bridge_create(out, mpi_test_comm(), &desc);
    return status;
}

static void begin_reserving(int most)
{
    mimo_comm *comm = mpi_test_comm();
    reserved.most = most;
    reserved.real = comm->backend;
    reserved.table = *reserved.real;
    reserved.table.reserve_blocks = reserve;
    reserved.table.release_blocks = give_back;
    comm->backend = &reserved.table;
}

static void end_reserving(void)
{
    mpi_test_comm()->backend = reserved.real;
    MPI_EXPECT(reserved.blocks == 0, "%d thread blocks stay reserved", reserved.blocks);
}

/* A limit of the bridge's own is reserved while the bridge lives, where its calls may wait for
 * others on a device; that of the environment is not. Where one rank has no room, no rank has a
 * bridge. */
MPI_TEST(recorded, limit_is_reserved)
{
    static const struct {
        executor_id executor;
        int ctas;
        const char *environment;
        int wanted;
    } cases[] = {{EXECUTOR_ZERO_COPY, 5, "7", 5},
                 {EXECUTOR_ZERO_COPY, 1, NULL, 2},
                 {EXECUTOR_ZERO_COPY, 0, "7", 0},
                 {EXECUTOR_P2P, 5, NULL, 0}};
    mimo_bridge *bridge;
    begin_reserving(INT_MAX);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_environment(cases[i].environment);
        MPI_EXPECT_OK(create_reserving(&bridge, cases[i].executor, cases[i].ctas));
        MPI_EXPECT(reserved.blocks == cases[i].wanted, "case %d: %d thread blocks, not %d", (int)i,
                   reserved.blocks, cases[i].wanted);
        mimo_bridge_destroy(bridge);
        set_environment(NULL);
    }
    reserved.refuses = mpi_test_rank() == RANKS - 1;
    MPI_EXPECT_STATUS(create_reserving(&bridge, EXECUTOR_ZERO_COPY, 5), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("rank 3: bridge: 5 thread blocks are too many");
    reserved.refuses = false;
    end_reserving();
}

/* A limit may be cut where it is reserved. Kernels of every exchange that pushes rows have the
 * thread blocks of the lane, not those of the limit. */
MPI_TEST(recorded, exchanges_learn_what_is_reserved)
{
    enum { MOST_OF_LANE = 3 };
    static const struct {
        int ctas, wanted;
    } cases[] = {{5, MOST_OF_LANE}, {2, 2}, {0, 0}};
    begin_reserving(MOST_OF_LANE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bed_case c = bed_fan_in;
        mimo_comm_backend table;
        c.ctas = cases[i].ctas;
        bridge_bed bed = bed_create(&c);
        record_bridge(bed.bridge, &table);
        move_all_ways(&bed, i);
        expect_ctas(cases[i].ctas);
        for (int e = 0; e < record.count && e < MOST; e++)
            MPI_EXPECT(record.list[e].reserved == cases[i].wanted,
                       "case %d, exchange %d: %d thread blocks of a lane, not %d", (int)i, e,
                       (int)record.list[e].reserved, cases[i].wanted);
        bed_destroy(&bed);
    }
    end_reserving();
}

/* ------------------------------------------ phases ------------------------------------------ */

typedef struct phases_case {
    const char *src, *dst;
    int64_t batch, seq;
    bool cut, ragged;
    int phase_count;
    int64_t rows[MIMO_PHASES]; /* received by the busiest rank in each phase */
} phases_case;

/* Three rows of each sample. */
static const mimo_span some_rows[] = {{0, 0, 2, 3}, {1, 0, 0, 3}, {2, 0, 5, 3}, {3, 0, 4, 3}};

/* b_src and b_dst are B / dp of each side, cp is that of dst. The busiest rank receives, in
 * samples:
 *
 *   two phases    (cp-1)/cp b_dst of shards, then (cp-1)/cp b_src of sums
 *   one phase     (cp-1) b_src of contributions */
static const phases_case phases_cases[] = {
    {"tp=4,dp=1", "cp=4,dp=1", 4, 8, false, false, 2, {24, 24}}, /* src dp 1 < 3; one: 96 */
    {"tp=2,dp=2", "cp=4,dp=1", 4, 8, false, false, 2, {24, 12}}, /* 2 < 3; one: 48 */
    {"tp=2,dp=2", "cp=4,dp=1", 6, 16, false, false, 2, {72, 36}},
    /* 1 < 2. A rank reads four samples of sums. It holds only half of each of two of them. */
    {"tp=4,dp=1", "cp=2,dp=2", 4, 8, false, false, 2, {8, 24}},
    {"tp=1,dp=3", "cp=4,dp=1", 3, 8, false, false, 1, {24}},   /* 3 = 3 */
    {"tp=2,dp=2", "cp=2,dp=2", 4, 8, false, false, 1, {16}},   /* 2 = 2 */
    {"tp=1,dp=4", "cp=4,dp=1", 4, 8, false, false, 1, {24}},   /* 4 > 3 */
    {"tp=4,dp=1", "cp=4,dp=1", 4, 12, false, false, 1, {144}}, /* 8 does not divide S */
    {"tp=4,dp=1", "cp=4,dp=1", 4, 8, true, false, 1, {24}},    /* shards: nothing to add */
    {"tp=4,dp=1", "cp=4,dp=1", 4, 8, false, true, 1, {36}},    /* spans can't be cut in shards */
    {"tp=4,dp=1", "tp=4,dp=1", 4, 8, false, false, 1, {0}},
};

static bed_case bed_of(const phases_case *it, bool buffer)
{
    bed_case c = bed_case_of(EXECUTOR_P2P, it->src, it->dst, "sbh", "bsh");
    c.dst.partition = it->cut;
    c.buffer = buffer;
    c.sums = true;
    c.batch = it->batch;
    c.seq = it->seq;
    if (it->ragged) {
        c.src.kind = MIMO_RAGGED_PACKED;
        c.dst.kind = MIMO_RAGGED_PLACED;
        c.src.spans = c.dst.spans = some_rows;
        c.src.span_count = c.dst.span_count = sizeof some_rows / sizeof *some_rows;
        c.src_letters = "th";
    }
    return c;
}

/* The bytes that the busiest rank receives in an exchange. Collective. */
static int64_t busiest_bytes(const asked *exchange)
{
    int64_t received[RANKS], most = 0;
    MPI_Allreduce(exchange->bytes, received, RANKS, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int rank = 0; rank < RANKS; rank++)
        most = received[rank] > most ? received[rank] : most;
    return most;
}

/* Gathered contributions come into staging as messages. Sums go straight into a buffer. */
static void expect_ways(const bridge_bed *bed)
{
    const asked *first = &record.list[0], *second = &record.list[1];
    MPI_EXPECT(first->pushes == 0 && (bed->c.buffer ? second->sends : second->pushes) == 0,
               "%s: messages to %d and %d ranks, pushes to %d and %d", bed_text(&bed->c),
               first->sends, second->sends, first->pushes, second->pushes);
}

static void expect_rounds(const phases_case *it, const bridge_bed *bed)
{
    int64_t row_bytes = bed_hidden(&bed->c) * (int64_t)mimo_dtype_size(bed->c.dtype);
    MPI_EXPECT(record.count == it->phase_count, "%s: %d phases, not %d", bed_text(&bed->c),
               record.count, it->phase_count);
    for (int r = 0; r < MIMO_PHASES; r++) {
        int64_t bytes = busiest_bytes(&record.list[r]);
        MPI_EXPECT(bytes == it->rows[r] * row_bytes,
                   "%s: phase %d brings a rank %d bytes, not %d rows of %d", bed_text(&bed->c), r,
                   (int)bytes, (int)it->rows[r], (int)row_bytes);
    }
    if (it->phase_count > 1)
        expect_ways(bed);
}

BED_TEST(recorded, rounds_of_backward)
{
    for (size_t i = 0; i < sizeof phases_cases / sizeof *phases_cases; i++) {
        const phases_case *it = &phases_cases[i];
        bed_case c = bed_of(it, buffer);
        mimo_comm_backend table;
        bridge_bed bed = bed_create(&c);
        record_bridge(bed.bridge, &table);
        bed_move(&bed, false, i);
        MPI_EXPECT(record.count == 1, "%s: forward in %d phases", bed_text(&c), record.count);
        record.count = 0;
        memset(record.list, 0, sizeof record.list);
        bed_move(&bed, true, i);
        expect_rounds(it, &bed);
        bed_destroy(&bed);
    }
}

/* ------------------------------------------- bits ------------------------------------------- */

/* A contribution. The sum depends on the order of the classes. In element 0 the classes 0 and 2
 * cancel, after class 1 was rounded to their precision. The other elements have many magnitudes. */
static float term_of(int64_t contribution, const reference_tile *rows, int64_t row, int64_t h)
{
    uint64_t word = ref_word((uint64_t)contribution, rows->b[row], rows->s[row], h);
    if (h == 0 && contribution % 2 == 0)
        return contribution == 0 ? 0x1p45f : -0x1p45f;
    return (float)((int64_t)(word >> 40) - (1 << 23)) * (float)(1 << (word & 15));
}

static float rounded(float x, mimo_dtype dtype)
{
    return dtype == MIMO_BF16 ? mimo_bf16_to(mimo_bf16_from(x)) : x;
}

static void store(void *to, float x, mimo_dtype dtype)
{
    uint16_t word = mimo_bf16_from(x);
    memcpy(to, dtype == MIMO_BF16 ? (void *)&word : (void *)&x, mimo_dtype_size(dtype));
}

/* What a source's row holds at an element. For a target: the sum over the classes, in order. */
static void element_of(void *to, const bridge_bed *bed, const reference_tile *rows, int64_t at,
                       bool target)
{
    int64_t row = at / bed_hidden(&bed->c), h = at % bed_hidden(&bed->c);
    float sum = rounded(term_of(target ? 0 : rows->contribution, rows, row, h), bed->c.dtype);
    for (int64_t contribution = 1; target && contribution < bed->dst.classes; contribution++)
        sum += rounded(term_of(contribution, rows, row, h), bed->c.dtype);
    store(to, sum, bed->c.dtype);
}

static void fill_terms(const bridge_bed *bed, const test_tile *tile)
{
    const reference_tile *rows = &bed->dst.tiles[mpi_test_rank()];
    int64_t bytes = (int64_t)mimo_dtype_size(bed->c.dtype);
    for (int64_t at = 0; at < rows->rows * bed_hidden(&bed->c); at++)
        element_of((char *)tile->room.host + at * bytes, bed, rows, at, false);
    test_push(&tile->room);
}

static void check_sums(const bridge_bed *bed, const test_tile *tile)
{
    const reference_tile *rows = &bed->src.tiles[mpi_test_rank()];
    int64_t bytes = (int64_t)mimo_dtype_size(bed->c.dtype);
    bit_report report = {.element = bytes, .columns = bed_hidden(&bed->c)};
    test_pull(&tile->room);
    for (int64_t at = 0; at < rows->rows * bed_hidden(&bed->c); at++) {
        char expected[sizeof(float)];
        element_of(expected, bed, rows, at, true);
        bits_note(&report, at, (char *)tile->room.host + at * bytes, expected);
    }
    MPI_EXPECT_BITS(report, "sums of %s", bed_text(&bed->c));
}

/* Backward of terms, in `phases` phases. */
static void sum_in_phases(const bed_case *c, int phases)
{
    mimo_comm_backend table;
    bridge_bed bed = bed_create(c);
    if (phases == 1) /* as where no shards can be made of a tile */
        mimo_routed_of(bed.bridge)->shards = 1;
    record_bridge(bed.bridge, &table);
    test_tile from = bed_tile_new(&bed, MIMO_DST), to = bed_target_new(&bed, MIMO_SRC);
    fill_terms(&bed, &from);
    MPI_EXPECT_OK(bed_call(&bed, true, &to, &from));
    MPI_EXPECT(record.count == phases, "%s: %d phases, not %d", bed_text(c), record.count, phases);
    check_sums(&bed, &to);
    bed_destroy(&bed);
}

/* Sums are rounded, so their bits show in which order the contributions were added, and how often a
 * sum of 16 bits was rounded. One phase, two phases and the sum made here give the same bits. */
BED_TEST(recorded, two_rounds_or_one)
{
    static const mimo_dtype dtypes[] = {MIMO_F32, MIMO_BF16};
    for (size_t i = 0; phases_cases[i].phase_count > 1; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            bed_case c = bed_of(&phases_cases[i], buffer);
            c.dtype = dtypes[d];
            sum_in_phases(&c, 2);
            sum_in_phases(&c, 1);
        }
}
