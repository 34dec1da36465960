/* Batches of items: any lane of a side has any parts of any samples. Every rank gives all of
 * them. */
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "cases_ran.h"
#include "guarded.h"
#include "item_lists.h"
#include "reference_grid.h"

enum { CASES = 24, MOST_SAMPLES = 8, MOST_SPANS = 2 * MOST_SAMPLES };

/* A case, and what it points to. */
typedef struct item_case {
    bed_case c;
    char src[64], dst[64];
    mimo_span spans[MOST_SPANS];
    item_lists lists[2];
} item_case;

static int64_t draw_spans(uint64_t *random, int64_t batch, int64_t seq, mimo_span *spans)
{
    int64_t count = 0;
    for (int64_t b = 0; b < batch; b++) {
        int64_t row = 0, position = random_below(random, seq);
        for (int i = 0; i < 2 && position < seq; i++) {
            int64_t length = 1 + random_below(random, seq - position);
            if (random_below(random, 4) > 0) {
                spans[count++] = (mimo_span){b, row, position, length};
                row += length;
            }
            position += length;
        }
    }
    return count;
}

/* Other spans and other lanes, for a case whose grids, batch and seq are set. */
static void draw_batch(item_case *it, uint64_t *random)
{
    bed_case *c = &it->c;
    int64_t count = draw_spans(random, c->batch, c->seq, it->spans);
    layout_case *sides[] = {&c->src, &c->dst};
    c->src.kind = MIMO_RAGGED_ITEMS;
    for (int side = 0; side < 2; side++) {
        draw_item_lists(&it->lists[side], random, it->spans, count, c->batch,
                        ref_size(sides[side]->grid, "dp"));
        sides[side]->items = it->lists[side].items;
        sides[side]->first_item = it->lists[side].first;
    }
    c->dst.spans = it->spans;
    c->dst.span_count = count;
}

/* Positions under cp and sp, items, or all rows of a sample. */
static void draw_case(item_case *it, uint64_t *random, mimo_ragged kind)
{
    static const char *const placed[] = {"sbh", "bsh"}, *const flat[] = {"th", "bh"};
    bed_case *c = &it->c;
    bed_draw_grid(random, it->src, &c->src.offset);
    bed_draw_grid(random, it->dst, &c->dst.offset);
    c->src.grid = it->src;
    c->dst.grid = it->dst;
    c->src_letters = flat[random_below(random, 2)];
    c->dst_letters = kind == MIMO_RAGGED_PLACED ? placed[random_below(random, 2)]
                                                : flat[random_below(random, 2)];
    c->dst.kind = kind;
    c->dst.partition = kind == MIMO_RAGGED_PLACED && random_below(random, 2);
    c->dst.sp = c->dst.partition && random_below(random, 2);
    c->dst.all_stages = random_below(random, 2);
    c->batch = random_below(random, MOST_SAMPLES + 1);
    c->seq = 1 + random_below(random, 3);
    if (c->dst.partition)
        c->seq *= 2 * ref_size(c->dst.grid, "cp") * (c->dst.sp ? ref_size(c->dst.grid, "tp") : 1);
    c->dtype = (mimo_dtype)random_below(random, MIMO_F8);
    draw_batch(it, random);
}

static void move_both_ways(bridge_bed *bed, uint64_t seed)
{
    bed_move(bed, false, seed);
    bed_move(bed, true, seed + 1);
}

/* Whole calls, sums of contributions, and chunks. Tags go along in every fourth case. */
BED_TEST(items, on_any_lane)
{
    int64_t ran = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed * 7000 + (uint64_t)mpi_test_size();
        item_case it = {.c = {.executor = EXECUTOR_ROUTED, .buffer = buffer}};
        draw_case(&it, &random, (mimo_ragged)(1 + seed % 3));
        setenv("MIMO_CHECK", seed % 4 == 0 ? "samples" : "", 1);
        bridge_bed bed = bed_create(&it.c);
        setenv("MIMO_CHECK", "", 1);
        for (uint64_t round = 0; bed.bridge && round < 3; round++) {
            bed.c.sums = round > 0;
            bed.c.chunks = round < 2 ? 0 : 1 + (int)seed % 4;
            move_both_ways(&bed, 10 * round);
        }
        bed_destroy(&bed);
        ran += it.c.dst.span_count > 0;
    }
    MPI_CASES_RAN(ran, CASES, CASES / 2, "batches of items that move rows");
}

/* ------------------------------------ micro-batches ------------------------------- */

enum { COUNT = 6 };

/* On 4 ranks: encoder lanes, and an LLM that holds positions, or tiles of items or samples. */
static void set_small_case(item_case *it, uint64_t *random, mimo_ragged kind, bool buffer)
{
    it->c = (bed_case){.src = {.grid = "tp=2,dp=2"},
                       .dst = {.grid = "cp=2,dp=2", .kind = kind},
                       .src_letters = "th",
                       .dst_letters = kind == MIMO_RAGGED_PLACED ? "sbh" : "th",
                       .executor = EXECUTOR_ROUTED,
                       .buffer = buffer,
                       .batch = 3 + random_below(random, 4),
                       .seq = 4,
                       .sums = true};
    it->c.src.order = MIMO_ROWS_BSH;
    it->c.dst.order = kind == MIMO_RAGGED_PLACED ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    it->c.dst.partial = true;
    draw_batch(it, random);
}

/* A bed of the same bridge with another micro-batch. */
static bridge_bed bed_beside(const bridge_bed *bed, const item_case *it)
{
    bridge_bed beside = *bed;
    beside.c = it->c;
    beside.src = reference_of(&it->c.src, it->c.batch, it->c.seq);
    beside.dst = reference_of(&it->c.dst, it->c.batch, it->c.seq);
    return beside;
}

/* Micro-batches with items beside one that gathers spans, all given at once, in any order. */
BED_TEST(items, beside_other_micro_batches)
{
    uint64_t random = 11;
    item_case *all = calloc(COUNT, sizeof *all);
    bridge_bed bed, at[COUNT];
    bed_given given[COUNT];
    mimo_batch_desc descs[COUNT];
    set_small_case(&all[0], &random, MIMO_RAGGED_PLACED, buffer);
    bed = bed_create(&all[0].c);
    for (int i = 0; i < COUNT; i++) {
        set_small_case(&all[i], &random, (mimo_ragged)(1 + i % 3), buffer);
        if (i == 4) {
            all[i].c.src.kind = MIMO_RAGGED_PACKED;
            all[i].c.src.spans = all[i].spans;
            all[i].c.src.span_count = all[i].c.dst.span_count;
        }
        at[i] = bed_beside(&bed, &all[i]);
        descs[i] = bed_describe(&at[i], &given[i]);
    }
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, descs, COUNT));
    for (uint64_t round = 0; bed.bridge && round < 3 * COUNT; round++) {
        int i = (int)(round * 5 % COUNT);
        MPI_EXPECT_OK(mimo_bridge_select(bed.bridge, i));
        move_both_ways(&at[i], round);
    }
    for (int i = 0; i < COUNT; i++) {
        reference_release(&at[i].src);
        reference_release(&at[i].dst);
        free(given[i].spans);
    }
    bed_destroy(&bed);
    free(all);
}

/* Two tensors of one call, as an encoder's features of two depths: they share a plan. */
BED_TEST(items, two_tensors)
{
    uint64_t random = 5;
    item_case it;
    set_small_case(&it, &random, MIMO_RAGGED_PLACED, buffer);
    it.c.sums = false;
    bridge_bed bed = bed_create(&it.c);
    for (int backward = 0; bed.bridge && backward < 2; backward++) {
        test_tile from[2], to[2];
        mimo_tensor sources[2], targets[2];
        for (int i = 0; i < 2; i++) {
            from[i] = bed_tile_new(&bed, backward ? MIMO_DST : MIMO_SRC);
            to[i] = bed_target_new(&bed, backward ? MIMO_SRC : MIMO_DST);
            bed_fill(&bed, &from[i], backward, (uint64_t)i);
            sources[i] = from[i].view;
            targets[i] = to[i].view;
        }
        MPI_EXPECT_OK((backward ? mimo_bridge_backward : mimo_bridge_forward)(
            bed.bridge, targets, sources, 2, test_stream()));
        for (int i = 0; i < 2; i++) {
            bed_check_target(&bed, &to[i], backward, (uint64_t)i);
            test_tile_free(&from[i]);
            test_tile_free(&to[i]);
        }
    }
    bed_destroy(&bed);
}

/* --------------------------------------- errors ----------------------------------- */

/* An update of two samples of 3 and 2 rows on 2 src lanes. */
typedef struct small_update {
    mimo_item src[3];
    int64_t first[3];
    mimo_span spans[2];
    mimo_batch_items items;
    mimo_batch_desc desc;
} small_update;

static small_update *small_update_of(small_update *it)
{
    *it = (small_update){.src = {{1, 0, 2}, {0, 1, 2}, {0, 0, 1}},
                         .first = {0, 2, 3},
                         .spans = {{0, 0, 1, 3}, {1, 0, 0, 2}},
                         .items = MIMO_BATCH_ITEMS_INIT,
                         .desc = MIMO_BATCH_DESC_INIT};
    it->items.src = it->src;
    it->items.src_first = it->first;
    it->desc.batch = 2;
    it->desc.ragged = true;
    it->desc.spans = it->spans;
    it->desc.span_count = 2;
    it->desc.items = &it->items;
    return it;
}

#define REFUSED(status, sentence)                                                 \
    do {                                                                          \
        MPI_EXPECT_STATUS(mimo_bridge_update(bed.bridge, &it.desc, 1), (status)); \
        MPI_EXPECT_SENTENCE(sentence);                                            \
        small_update_of(&it);                                                     \
    } while (0)

/* What every rank gives wrong. */
static void wrong_everywhere(const bridge_bed *its)
{
    bridge_bed bed = *its;
    small_update it;
    small_update_of(&it)->src[2] = (mimo_item){0, 0, 2};
    REFUSED(MIMO_ERR_SHAPE, "update: src items: row 1 of sample 0 is in items of lanes 1 and 0");
    it.src[2].row = 3;
    REFUSED(MIMO_ERR_SHAPE, "src items: row 0 of sample 0 is in no item");
    it.spans[0].length = 4;
    REFUSED(MIMO_ERR_SHAPE, "update: sample 0 has 3 rows in items and 4 in spans");
    it.spans[1].sample = 2;
    REFUSED(MIMO_ERR_SHAPE, "span 1 has 2 rows of sample 2 of 2");
    it.desc.ragged = false;
    it.desc.span_count = 0;
    REFUSED(MIMO_ERR_ARGUMENT, "items, and the batch is not ragged");
    it.items.src_first = NULL;
    REFUSED(MIMO_ERR_ARGUMENT, "src_first is NULL");
    it.items.src = NULL;
    REFUSED(MIMO_ERR_ARGUMENT, "3 src items, NULL");
    it.items.dst_packed = true;
    REFUSED(MIMO_ERR_ARGUMENT, "2 spans, and dst tiles have no positions");
    it.items.dst_packed = true;
    it.items.dst_first = it.first;
    REFUSED(MIMO_ERR_ARGUMENT, "dst tiles hold items, or all rows of their samples");
    it.items.dst_packed = true;
    it.desc.span_count = 0;
    REFUSED(MIMO_ERR_UNSUPPORTED, "dst tiles hold all rows of their samples, and the bridge has a");
}

/* Each rank's own are right. */
static void different_on_one_rank(const bridge_bed *its)
{
    bridge_bed bed = *its;
    small_update it;
    small_update_of(&it);
    if (mpi_test_rank() == 2)
        it.first[1] = 1;
    REFUSED(MIMO_ERR_MISMATCH, "items whose hash is");
    if (mpi_test_rank() == 1)
        it.spans[0].position = 0;
    REFUSED(MIMO_ERR_MISMATCH, "items whose hash is");
    if (mpi_test_rank() == 3)
        it.desc.items = NULL;
    REFUSED(MIMO_ERR_MISMATCH, "update to a ragged batch of 2 with 2 spans");
    if (mpi_test_rank() == 3)
        it.src[0].rows = 1;
    REFUSED(MIMO_ERR_SHAPE,
            "rank 3: bridge 1: update: sample 1 has 1 rows in items and 2 in spans");
}

static void wrong_tiles(const bridge_bed *bed)
{
    small_update it;
    MPI_EXPECT_OK(mimo_bridge_update(bed->bridge, &small_update_of(&it)->desc, 1));
    int64_t first, count;
    bool lane_0 = mpi_test_rank() < 2;
    MPI_EXPECT_STATUS(mimo_bridge_samples(&first, &count, bed->bridge, MIMO_SRC, 2),
                      MIMO_ERR_SHAPE);
    test_tile source = test_tile_new("th", MIMO_F32, lane_0 ? 4 : 2, 3, 1);
    test_tile target =
        (bed->c.buffer ? test_shared_tile_new : test_tile_new)("sbh", MIMO_F32, 2, 1, 3);
    MPI_FAILS(mimo_bridge_forward(bed->bridge, &target.view, &source.view, 1, test_stream()),
              MIMO_ERR_SHAPE, "src tile is f32 th[2,3]; the items of this rank's lane have 1 rows");
    test_tile_free(&source);
    test_tile_free(&target);
}

/* Both sides hold items, of a bridge without partition. */
static void wrong_on_the_other_side(const bridge_bed *its)
{
    bridge_bed bed = *its;
    small_update it;
    const mimo_item fewer[] = {{0, 0, 3}, {1, 0, 1}};
    const int64_t first[] = {0, 1, 2};
    int64_t spans;
    small_update_of(&it)->items.dst = fewer;
    it.items.dst_first = first;
    it.desc.span_count = 0;
    REFUSED(MIMO_ERR_SHAPE, "sample 1 has 2 rows in src items and 1 in dst items");
    it.items.dst = fewer + 1;
    it.items.dst_first = (const int64_t[]){0, 1, 1};
    it.desc.span_count = 0;
    REFUSED(MIMO_ERR_SHAPE, "update: sample 0 has 3 rows in src items and 0 in dst items");
    it.items.dst = it.src;
    it.items.dst_first = it.first;
    it.desc.span_count = 0;
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, &it.desc, 1));
    MPI_FAILS(mimo_bridge_spans(&spans, NULL, 0, bed.bridge), MIMO_ERR_STATE,
              "spans: micro-batch 0 has dst tiles without positions");
}

BED_TEST(items, that_are_wrong)
{
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "tp=2,dp=2", "cp=2,dp=2", "th", "sbh");
    c.dst.partition = true;
    c.buffer = buffer;
    test_agree_on_data();
    bridge_bed bed = bed_create(&c);
    wrong_everywhere(&bed);
    different_on_one_rank(&bed);
    wrong_tiles(&bed);
    bed_destroy(&bed);
    c.dst.partition = false;
    bed = bed_create(&c);
    wrong_on_the_other_side(&bed);
    bed_destroy(&bed);
}
