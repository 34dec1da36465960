/* Several micro-batches given by one update: of every kind, in any order, in flight together. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "bridge_bed.h"
#include "exchange_counter.h"
#include "guarded.h"

enum { COUNT = 6, MOST_SPANS = 16, SAMPLES = 4, POSITIONS = 8 };

/* Micro-batches of one bridge. */
typedef struct micro_batches {
    bridge_bed bed;       /* owns bridge and grids */
    bridge_bed at[COUNT]; /* borrow these */
    mimo_span spans[COUNT][MOST_SPANS];
    bed_given given[COUNT];
    mimo_batch_desc descs[COUNT];
} micro_batches;

/* One span a sample, somewhere. */
static int64_t draw_spans(uint64_t *random, mimo_span *spans)
{
    int64_t count = 0;
    for (int64_t b = 0; b < SAMPLES; b++) {
        int64_t position = random_below(random, POSITIONS);
        int64_t length = random_below(random, POSITIONS - position + 1);
        if (length > 0)
            spans[count++] = (mimo_span){b, 0, position, length};
    }
    return count;
}

typedef enum batch_kind { RAGGED, EVEN, ROWS } batch_kind;

/* Each kind comes twice, with other numbers. */
static bed_case case_of(int i, uint64_t *random, mimo_span *spans, bool buffer)
{
    static const char *const letters[][2] = {{"th", "sbh"}, {"sbh", "bsh"}, {"th", "bh"}};
    batch_kind kind = (batch_kind)(i / 2);
    bed_case c = {.src = {.grid = "dp=4"},
                  .dst = {.grid = "cp=2,dp=2"},
                  .executor = EXECUTOR_ROUTED,
                  .buffer = buffer};
    c.src_letters = letters[kind][0];
    c.dst_letters = letters[kind][1];
    c.batch = kind == RAGGED ? SAMPLES : 5 + 3 * i;
    c.seq = kind == ROWS ? 1 : POSITIONS;
    c.given = kind == EVEN;
    c.rows = kind == ROWS;
    if (kind == RAGGED) {
        c.src.kind = MIMO_RAGGED_PACKED;
        c.dst.kind = MIMO_RAGGED_PLACED;
        c.src.spans = c.dst.spans = spans;
        c.src.span_count = c.dst.span_count = draw_spans(random, spans);
    }
    if (kind == ROWS) {
        c.src.ragged = next_random(random) | 1;
        c.dst.ragged = next_random(random) | 1;
    }
    return c;
}

static void begin(micro_batches *out, bool buffer)
{
    uint64_t random = 11;
    bed_case c = case_of(2 * EVEN, &random, NULL, buffer);
    c.given = false;
    out->bed = bed_create(&c);
    for (int i = 0; i < COUNT; i++) {
        bridge_bed *at = &out->at[i];
        *at = out->bed;
        at->c = case_of(i, &random, out->spans[i], buffer);
        at->c.src.order = at->c.src_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
        at->c.dst.order = at->c.dst_letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
        at->c.dst.partial = at->c.sums = true;
        at->src = reference_of(&at->c.src, at->c.batch, at->c.seq);
        at->dst = reference_of(&at->c.dst, at->c.batch, at->c.seq);
        out->descs[i] = bed_describe(at, &out->given[i]);
    }
}

static void end(micro_batches *it)
{
    for (int i = 0; i < COUNT; i++) {
        reference_release(&it->at[i].src);
        reference_release(&it->at[i].dst);
        free(it->given[i].spans);
    }
    bed_destroy(&it->bed);
}

/* ------------------------------------- in turn ------------------------------------ */

/* Move by the selected micro-batch. Then by `alone`, which was given this one alone. */
static void compare(const bridge_bed *at, const bridge_bed *alone, bool backward, uint64_t seed)
{
    test_tile from = bed_tile_new(at, backward ? MIMO_DST : MIMO_SRC);
    test_tile to = bed_target_new(at, backward ? MIMO_SRC : MIMO_DST);
    test_tile expected = bed_target_new(alone, backward ? MIMO_SRC : MIMO_DST);
    bed_fill(at, &from, backward, seed);
    MPI_EXPECT_OK(bed_call(at, backward, &to, &from));
    bed_check_target(at, &to, backward, seed);
    MPI_EXPECT_OK(bed_call(alone, backward, &expected, &from));
    test_pull(&expected.room);
    MPI_EXPECT_BITS(bed_bits(at, &to, &expected), "%s: given alone or with others",
                    bed_text(&at->c));
    test_tile_free(&from);
    test_tile_free(&to);
    test_tile_free(&expected);
}

static void shuffle(uint64_t *random, int order[COUNT])
{
    for (int i = 0; i < COUNT; i++) {
        int j = (int)random_below(random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

/* n micro-batches given at once move as n single updates do, in any order. The second time nothing
 * is made ready again: each keeps its prepared calls. */
BED_TEST(micro_batches, told_at_once)
{
    micro_batches it;
    uint64_t random = 3;
    int order[COUNT], made = 0;
    begin(&it, buffer);
    bridge_bed other = bed_create(&it.bed.c);
    MPI_EXPECT_OK(mimo_bridge_update(it.bed.bridge, it.descs, COUNT));
    count_exchanges(it.bed.bridge->mover.comm);
    setenv("MIMO_AGREE", "0", 1);
    for (int round = 0; round < 3; round++) {
        shuffle(&random, order);
        for (int k = 0; k < COUNT; k++) {
            bridge_bed alone = it.at[order[k]];
            alone.bridge = other.bridge;
            MPI_EXPECT_OK(mimo_bridge_select(it.bed.bridge, order[k]));
            MPI_EXPECT_OK(mimo_bridge_update(other.bridge, &it.descs[order[k]], 1));
            compare(&it.at[order[k]], &alone, false, (uint64_t)round);
            compare(&it.at[order[k]], &alone, true, (uint64_t)round);
        }
        MPI_EXPECT(round == 0 || exchange_counter.created == made,
                   "round %d: %d exchanges after %d", round, exchange_counter.created, made);
        made = exchange_counter.created;
    }
    MPI_EXPECT(made >= 2 * COUNT, "%d exchanges", made);
    setenv("MIMO_AGREE", "1", 1);
    it.bed.bridge->mover.comm->backend = exchange_counter.real;
    bed_destroy(&other);
    end(&it);
}

/* Operations of all micro-batches, begun one after the other and waited for at last. Each keeps the
 * one that was selected when it began. */
BED_TEST(micro_batches, in_flight)
{
    micro_batches it;
    mimo_op *ops[COUNT] = {NULL};
    test_tile from[COUNT], to[COUNT];
    begin(&it, buffer);
    MPI_EXPECT_OK(mimo_bridge_update(it.bed.bridge, it.descs, COUNT));
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < COUNT; i++) {
            MPI_EXPECT_OK(mimo_bridge_select(it.bed.bridge, i));
            from[i] = bed_tile_new(&it.at[i], way ? MIMO_DST : MIMO_SRC);
            to[i] = bed_target_new(&it.at[i], way ? MIMO_SRC : MIMO_DST);
            bed_fill(&it.at[i], &from[i], way, (uint64_t)i);
        }
        for (int i = COUNT - 1; i >= 0; i--) {
            MPI_EXPECT_OK(mimo_bridge_select(it.bed.bridge, i));
            MPI_EXPECT_OK((way ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
                &ops[i], it.bed.bridge, &to[i].view, &from[i].view, 1, test_stream()));
        }
        for (int i = 0; i < COUNT; i++)
            MPI_EXPECT_OK(mimo_op_wait(&ops[i]));
        for (int i = 0; i < COUNT; i++) {
            bed_check_target(&it.at[i], &to[i], way, (uint64_t)i);
            test_tile_free(&from[i]);
            test_tile_free(&to[i]);
        }
    }
    end(&it);
}

/* ------------------------------------- mistakes ----------------------------------- */

enum { WRONG = 2 };

static void wrong_selections(micro_batches *it)
{
    mimo_bridge *bridge = it->bed.bridge;
    MPI_FAILS(mimo_bridge_select(NULL, 0), MIMO_ERR_ARGUMENT, "bridge select: bridge is NULL");
    MPI_FAILS(mimo_bridge_select(bridge, 1), MIMO_ERR_ARGUMENT,
              "bridge 1: select: no micro-batch 1 of 1");
    MPI_EXPECT_OK(mimo_bridge_select(bridge, 0));
    MPI_EXPECT_OK(mimo_bridge_update(bridge, it->descs, COUNT));
    MPI_FAILS(mimo_bridge_select(bridge, -1), MIMO_ERR_ARGUMENT, "no micro-batch -1 of 6");
    MPI_FAILS(mimo_bridge_select(bridge, COUNT), MIMO_ERR_ARGUMENT, "no micro-batch 6 of 6");
}

/* One rank selects another micro-batch of the same tiles. */
static void other_selection(mimo_bridge *bridge)
{
    mimo_batch_desc descs[] = {MIMO_BATCH_DESC_INIT, MIMO_BATCH_DESC_INIT};
    int rank = mpi_test_rank();
    descs[0].batch = descs[1].batch = 4;
    MPI_EXPECT_OK(mimo_bridge_update(bridge, descs, 2));
    MPI_EXPECT_OK(mimo_bridge_select(bridge, rank == WRONG));
    test_tile from = test_tile_new("sbh", MIMO_F32, 8, 1, 3);
    test_tile to = test_tile_new("sbh", MIMO_F32, 8, 2, 3);
    MPI_FAILS(mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream()),
              MIMO_ERR_MISMATCH, "rank 2 called bridge 1 forward of 1 in micro-batch 1");
    MPI_EXPECT_SENTENCE("rank 0 called bridge 1 forward of 1 in micro-batch 0");
    MPI_EXPECT_OK(mimo_bridge_select(bridge, 1));
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream()));
    test_tile_free(&from);
    test_tile_free(&to);
}

/* Element 1 is wrong, on one rank alone. */
static void wrong_elements(mimo_bridge *bridge)
{
    const mimo_span span = {9, 0, 0, 1};
    mimo_batch_desc descs[3], good[3];
    bool wrong = mpi_test_rank() == WRONG;
    for (int i = 0; i < 3; i++)
        good[i] = (mimo_batch_desc){sizeof *good, 4, false, NULL, 0, 1, 2, NULL};
#define WITH(field, value, status, words)                                 \
    do {                                                                  \
        memcpy(descs, good, sizeof descs);                                \
        if (wrong)                                                        \
            descs[1].field = (value);                                     \
        MPI_FAILS(mimo_bridge_update(bridge, descs, 3), (status), words); \
    } while (0)
    WITH(batch, -2, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: update, micro-batch 1: a batch of -2");
    WITH(size, 16, MIMO_ERR_ARGUMENT,
         "update, micro-batch 1: batch: its size is 16, that of the first");
    WITH(src_rows, 3, MIMO_ERR_SHAPE,
         "update, micro-batch 1: the src tiles of all dp ranks hold 6 rows, the dst tiles 4");
    WITH(batch, 5, MIMO_ERR_MISMATCH,
         "rank 2 called bridge 1 update to 3 micro-batches, 1 to a batch of 5");
    good[1] = (mimo_batch_desc){sizeof *good, 4, true, NULL, 0, -1, -1, NULL};
    WITH(span_count, -1, MIMO_ERR_ARGUMENT, "update, micro-batch 1: -1 spans");
    good[1].spans = &span;
    WITH(span_count, 1, MIMO_ERR_SHAPE, "update, micro-batch 1: rank 2 gives sample 9 of 4");
#undef WITH
    MPI_FAILS(mimo_bridge_update(bridge, good, wrong ? 2 : 3), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 update to 2 micro-batches");
    MPI_FAILS(mimo_bridge_update(bridge, wrong ? NULL : good, 3), MIMO_ERR_ARGUMENT,
              "rank 2: bridge 1: update: 3 micro-batches, NULL");
    MPI_FAILS(mimo_bridge_update(bridge, good, wrong ? -1 : 3), MIMO_ERR_ARGUMENT,
              "update: -1 micro-batches");
}

MPI_TEST(micro_batches, mistakes)
{
    micro_batches it;
    test_agree_on_data();
    begin(&it, false);
    wrong_selections(&it);
    MPI_EXPECT_OK(mimo_bridge_select(it.bed.bridge, 4));
    wrong_elements(it.bed.bridge);
    bed_move(&it.at[4], false, 1); /* the last update and its selection are still in force */
    other_selection(it.bed.bridge);
    MPI_EXPECT_OK(mimo_bridge_update(it.bed.bridge, NULL, 0));
    MPI_FAILS(mimo_bridge_select(it.bed.bridge, 1), MIMO_ERR_ARGUMENT, "no micro-batch 1 of 1");
    end(&it);
}

/* A program with an older header: its elements have no rows, and lie closer together. */
MPI_TEST(micro_batches, older_descriptors)
{
    enum { OLD = offsetof(mimo_batch_desc, src_rows) };
    union {
        char bytes[2 * OLD];
        mimo_batch_desc first;
    } descs;
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=2", "cp=2", "sbh", "sbh");
    c.batch = 4;
    c.seq = 2;
    mimo_tensor tile;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    bridge_bed bed = bed_create(&c);
    for (int i = 0; i < 2; i++) {
        mimo_batch_desc desc;
        mimo_batch_desc_init(&desc, OLD);
        desc.batch = 4 + 2 * i;
        memcpy(descs.bytes + (size_t)i * OLD, &desc, OLD);
    }
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, &descs.first, 2));
    MPI_EXPECT_OK(mimo_bridge_select(bed.bridge, 1));
    sizes.batch = -1;
    sizes.seq = 2;
    sizes.hidden = 3;
    MPI_EXPECT_OK(mimo_bridge_tile(&tile, bed.bridge, MIMO_SRC, &sizes));
    MPI_EXPECT(tile.shape[1] == 3, "%d samples", (int)tile.shape[1]);
    MPI_EXPECT_OK(mimo_bridge_select(bed.bridge, 0));
    bed_move(&bed, false, 1);
    bed_destroy(&bed);
}
