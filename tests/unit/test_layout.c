/* Layouts: boxes by hand, then against a list of every row, then every error. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "layout/layout_types.h"
#include "expect_failure.h"
#include "reference_layout.h"

static void expect_boxes(const layout_case *layout, int64_t batch, int64_t seq, int64_t rank,
                         const mimo_box *expected, int64_t count)
{
    mimo_grid *grid;
    mimo_layout *made = layout_of(layout, batch, seq, &grid);
    mimo_box boxes[4];
    int64_t found = -1;
    SUCCEEDS(mimo_layout_boxes(&found, boxes, 4, made, rank));
    cr_assert_eq(found, count, "%s rank %" PRId64 ": %" PRId64 " boxes", layout->grid, rank, found);
    for (int64_t i = 0; i < count; i++)
        cr_assert(memcmp(&boxes[i], &expected[i], sizeof boxes[i]) == 0,
                  "%s rank %" PRId64 " box %" PRId64 ": samples %" PRId64 "+%" PRId64
                  " positions %" PRId64 "+%" PRId64 " row %" PRId64 " +%" PRId64 " +%" PRId64,
                  layout->grid, rank, i, boxes[i].b0, boxes[i].nb, boxes[i].s0, boxes[i].ns,
                  boxes[i].row0, boxes[i].row_b, boxes[i].row_s);
    mimo_layout_destroy(made);
    mimo_grid_destroy(grid);
}

/* ------------------------------------------ goldens ----------------------------------------- */

/* tp=2,cp=2,dp=2, rank = tp + 2cp + 4dp. S = 8: cp 0 has 0,1,6,7 and cp 1 has 2,3,4,5. */
Test(layout, zigzag_boxes)
{
    const layout_case sbh = LAYOUT("tp=2,cp=2,dp=2", 0, MIMO_ROWS_SBH, true, false, false);
    expect_boxes(&sbh, 4, 8, 0, (mimo_box[]){{0, 2, 0, 2, 0, 1, 2}, {0, 2, 6, 2, 4, 1, 2}}, 2);
    expect_boxes(&sbh, 4, 8, 3, (mimo_box[]){{0, 2, 2, 4, 0, 1, 2}}, 1);
    expect_boxes(&sbh, 4, 8, 5, (mimo_box[]){{2, 2, 0, 2, 0, 1, 2}, {2, 2, 6, 2, 4, 1, 2}}, 2);

    const layout_case bsh = LAYOUT("tp=2,cp=2,dp=2", 0, MIMO_ROWS_BSH, true, false, false);
    expect_boxes(&bsh, 4, 8, 0, (mimo_box[]){{0, 2, 0, 2, 0, 4, 1}, {0, 2, 6, 2, 2, 4, 1}}, 2);
}

/* cp 4, S = 24: cp 0 has 0,1,2,21,22,23. Cut over tp 3 these are two rows each: 0,1 2,21 22,23. */
Test(layout, sequence_parallel_cuts_the_shard)
{
    const layout_case sp = LAYOUT("tp=3,cp=4", 0, MIMO_ROWS_SBH, true, true, false);
    expect_boxes(&sp, 1, 24, 0, (mimo_box[]){{0, 1, 0, 2, 0, 1, 1}}, 1);
    expect_boxes(&sp, 1, 24, 1, (mimo_box[]){{0, 1, 2, 1, 0, 1, 1}, {0, 1, 21, 1, 1, 1, 1}}, 2);
    expect_boxes(&sp, 1, 24, 2, (mimo_box[]){{0, 1, 22, 2, 0, 1, 1}}, 1);
    /* The chunks of cp 3 touch: 9..14. */
    expect_boxes(&sp, 1, 24, 10, (mimo_box[]){{0, 1, 11, 2, 0, 1, 1}}, 1);
}

Test(layout, whole_sequences)
{
    const layout_case whole = LAYOUT("tp=2,dp=4", 0, MIMO_ROWS_SBH, false, false, false);
    expect_boxes(&whole, 8, 5, 3, (mimo_box[]){{2, 2, 0, 5, 0, 1, 2}}, 1);
    const layout_case cp1 = LAYOUT("tp=2,dp=4", 0, MIMO_ROWS_BSH, true, false, false);
    expect_boxes(&cp1, 8, 5, 3, (mimo_box[]){{2, 2, 0, 5, 0, 5, 1}}, 1);
}

/* 7 samples on 3 ranks: 3, 2, 2; 2 samples on 3 ranks: 1, 1, 0. */
Test(layout, uneven_batch)
{
    const layout_case three = LAYOUT("dp=3", 0, MIMO_ROWS_SBH, false, false, false);
    expect_boxes(&three, 7, 4, 0, (mimo_box[]){{0, 3, 0, 4, 0, 1, 3}}, 1);
    expect_boxes(&three, 7, 4, 1, (mimo_box[]){{3, 2, 0, 4, 0, 1, 2}}, 1);
    expect_boxes(&three, 7, 4, 2, (mimo_box[]){{5, 2, 0, 4, 0, 1, 2}}, 1);
    expect_boxes(&three, 2, 4, 2, NULL, 0);
    expect_boxes(&three, 7, 0, 0, NULL, 0);
}

Test(layout, ranks_without_rows)
{
    const layout_case piped = LAYOUT("tp=2,pp=2,dp=2", 4, MIMO_ROWS_SBH, false, false, false);
    expect_boxes(&piped, 2, 3, 4, (mimo_box[]){{0, 1, 0, 3, 0, 1, 1}}, 1);
    expect_boxes(&piped, 2, 3, 6, NULL, 0); /* pp 1 */
    expect_boxes(&piped, 2, 3, 3, NULL, 0);
    expect_boxes(&piped, 2, 3, 12, NULL, 0);
    expect_boxes(&piped, 2, 3, -1, NULL, 0);
}

/* ----------------------------------------- reference ---------------------------------------- */

static void check_rank(const layout_case *layout, const mimo_layout *made,
                       const reference_layout *reference, int64_t rank)
{
    const reference_tile none = {0, NULL, NULL, 0};
    const reference_tile *tile = rank < reference->end ? &reference->tiles[rank] : &none;
    enum { ROOM = 16 };
    mimo_box boxes[ROOM], only[1], found;
    mimo_cell cell;
    int64_t count, again, rows, covered = 0, needed = 0;
    SUCCEEDS(mimo_layout_rows(&rows, made, rank));
    cr_assert_eq(rows, tile->rows, "%s rank %" PRId64 ": %" PRId64 " rows, and should be %" PRId64,
                 layout->grid, rank, rows, tile->rows);
    SUCCEEDS(mimo_layout_boxes(&count, boxes, ROOM, made, rank));
    SUCCEEDS(mimo_layout_boxes(&again, only, 1, made, rank));
    cr_assert_eq(again, count);
    for (int64_t i = 0; i < count; i++) {
        const mimo_box *box = &boxes[i];
        cr_assert(i == 0 || layout->kind || box->row0 > boxes[i - 1].row0,
                  "boxes ascend in local row");
        covered += box->nb * box->ns;
        for (int64_t b = box->b0; b < box->b0 + box->nb; b++)
            for (int64_t s = box->s0; s < box->s0 + box->ns; s++) {
                int64_t row = box->row0 + (b - box->b0) * box->row_b + (s - box->s0) * box->row_s;
                cr_assert(row >= 0 && row < tile->rows && tile->b[row] == b && tile->s[row] == s,
                          "%s rank %" PRId64 ": (%" PRId64 ", %" PRId64 ") is not row %" PRId64,
                          layout->grid, rank, b, s, row);
                mimo_layout_find(made, b, s, &cell, &found);
                cr_assert(memcmp(&found, box, sizeof found) == 0,
                          "%s: (%" PRId64 ", %" PRId64 ") is found elsewhere", layout->grid, b, s);
            }
    }
    for (int64_t row = 0; row < tile->rows; row++)
        needed += tile->b[row] >= 0;
    cr_assert_eq(covered, needed);
}

static void check_layout(const layout_case *layout, int64_t batch, int64_t seq)
{
    mimo_grid *grid;
    mimo_layout *made = layout_of(layout, batch, seq, &grid);
    reference_layout reference = reference_of(layout, batch, seq);
    for (int64_t rank = 0; rank < reference.end + 2; rank++)
        check_rank(layout, made, &reference, rank);
    reference_release(&reference);
    mimo_layout_destroy(made);
    mimo_grid_destroy(grid);
}

/* Sequences of 8, 0, 4 and 12 positions, and one value that must not be read. */
static const int32_t packed_cu[] = {0, 8, 8, 12, 24, 24};
#define PACKED(spec, tp_too)                                                               \
    {                                                                                      \
        .grid = (spec), .partition = true, .sp = (tp_too), .cu = packed_cu, .sequences = 5 \
    }

Test(layout, every_row_is_where_the_formulas_say)
{
    static const layout_case cases[] = {
        LAYOUT("tp=2,cp=2,dp=2", 0, MIMO_ROWS_SBH, true, false, false),
        LAYOUT("tp=2,cp=2,dp=2", 0, MIMO_ROWS_BSH, true, true, false),
        LAYOUT("tp=3,cp=2,dp=7", 5, MIMO_ROWS_SBH, true, true, false),
        LAYOUT("dp=3,tp=2,cp=3", 1, MIMO_ROWS_BSH, true, true, false),
        LAYOUT("dp=2,pp=3,cp=6,tp=1", 0, MIMO_ROWS_SBH, true, false, false),
        LAYOUT("cp=3,ep=2:copies,dp=3", 2, MIMO_ROWS_SBH, false, false, true),
        LAYOUT("tp=4,dp=6", 0, MIMO_ROWS_BSH, true, true, false),
        LAYOUT("x=1", 0, MIMO_ROWS_BSH, false, false, false),
    };
    static const int64_t batches[] = {0, 1, 5, 6, 13}, seqs[] = {0, 36, 72};
    const layout_case packed[] = {PACKED("cp=2,dp=2", false), PACKED("tp=2,cp=2", true),
                                  PACKED("dp=3,tp=4", true)};
    for (size_t c = 0; c < sizeof packed / sizeof packed[0]; c++)
        for (size_t i = 0; i < 5; i++)
            check_layout(&packed[c], batches[i], 24);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t i = 0; i < 15; i++) {
            layout_case c_staged = cases[c], c_ragged = cases[c];
            c_staged.all_stages = true;
            c_ragged.ragged = 17 + i;
            check_layout(&cases[c], batches[i % 5], seqs[i / 5]);
            check_layout(&c_staged, batches[i % 5], seqs[i / 5]);
            check_layout(&c_ragged, batches[i % 5], seqs[i / 5]);
        }
}

/* ------------------------------------------ errors ------------------------------------------ */

static mimo_status attempt(const char *spec, mimo_partition_rule rule, int64_t batch, int64_t seq)
{
    mimo_grid *grid;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *made = NULL;
    SUCCEEDS(mimo_grid_create_text(&grid, spec, 0));
    desc.grid = grid;
    desc.batch = batch;
    desc.seq = seq;
    desc.partition = &rule;
    mimo_status status = mimo_layout_create(&made, &desc);
    cr_assert((status == MIMO_OK) == (made != NULL), "a failed call leaves its output");
    mimo_layout_destroy(made);
    mimo_grid_destroy(grid);
    return status;
}

/* A typo, or a mesh with other names: taken for copies, they would mix up samples. */
Test(layout, dimensions_without_a_meaning)
{
    const mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    FAILS(attempt("pd=4", rule, 4, 8), MIMO_ERR_GRID, "layout: the grid pd=4 has pd = 4",
          "none of tp, cp, pp and dp", "pd=4:copies");
    FAILS(attempt("cp=2,dp_shard=3", rule, 6, 8), MIMO_ERR_GRID, "dp_shard = 3");
    SUCCEEDS(attempt("pd=1,cp=2,x=2:copies,dp=2", rule, 4, 8));
}

Test(layout, sequence_does_not_divide)
{
    mimo_partition_rule plain = MIMO_PARTITION_RULE_INIT;
    mimo_partition_rule sp = plain, strict = plain, thd = plain;
    const int32_t cu[] = {0, 8, 12};
    sp.sp = true;
    strict.sp = strict.strict = true;
    thd.format = MIMO_THD;
    thd.sequences = 2;
    thd.cu = cu;
    FAILS(attempt("cp=3,dp=2", plain, 2, 10), MIMO_ERR_SHAPE, "10", "6");
    FAILS(attempt("tp=4,cp=2", sp, 2, 12), MIMO_ERR_SHAPE, "12", "6", "4");
    SUCCEEDS(attempt("tp=2,cp=2", sp, 2, 12));
    FAILS(attempt("tp=2,cp=2", strict, 2, 12), MIMO_ERR_SHAPE, "12", "8");
    SUCCEEDS(attempt("tp=2,cp=2", thd, 2, 12));
    FAILS(attempt("tp=2,cp=2", thd, 2, 16), MIMO_ERR_SHAPE, "16", "12");
    FAILS(attempt("tp=2,cp=4", thd, 2, 12), MIMO_ERR_SHAPE, "sequence 1", "4");
}

/* Sample 0 has rows at 1, 2 and at 5 to 7, sample 2 at 0 to 3; sample 1 has none. */
static const mimo_span three_spans[] = {{0, 0, 1, 2}, {0, 2, 5, 3}, {2, 0, 0, 4}};

Test(layout, ragged_rows)
{
    layout_case packed = {.grid = "tp=2,dp=2", .kind = MIMO_RAGGED_PACKED};
    layout_case placed = {.grid = "cp=2,dp=2", .partition = true, .kind = MIMO_RAGGED_PLACED};
    packed.spans = placed.spans = three_spans;
    packed.span_count = placed.span_count = 3;
    expect_boxes(&packed, 3, 8, 1, (mimo_box[]){{0, 1, 0, 5, 0, 5, 1}}, 1);
    expect_boxes(&packed, 3, 8, 2, (mimo_box[]){{2, 1, 0, 4, 0, 4, 1}}, 1);
    /* cp 0 has positions 0, 1, 6, 7 and samples 0, 1. Rows are (s, b) with 2 samples. */
    expect_boxes(&placed, 3, 8, 0, (mimo_box[]){{0, 1, 0, 1, 2, 1, 2}, {0, 1, 3, 2, 4, 1, 2}}, 2);
    expect_boxes(&placed, 3, 8, 3, (mimo_box[]){{2, 1, 2, 2, 0, 1, 1}}, 1);
    check_layout(&packed, 3, 8);
    check_layout(&placed, 3, 8);
}

/* Lane 0 has rows 2 to 4 of sample 0 and all of sample 2, lane 1 nothing, lane 2 the rest. */
static const mimo_item three_items[] = {{0, 2, 3}, {2, 0, 4}, {0, 0, 2}};
static const int64_t three_firsts[] = {0, 2, 2, 3};

Test(layout, items)
{
    layout_case items = {.grid = "tp=2,dp=3", .kind = MIMO_RAGGED_ITEMS};
    items.items = three_items;
    items.first_item = three_firsts;
    expect_boxes(&items, 3, 8, 1, (mimo_box[]){{0, 1, 2, 3, 0, 3, 1}, {2, 1, 0, 4, 3, 4, 1}}, 2);
    expect_boxes(&items, 3, 8, 3, NULL, 0);
    expect_boxes(&items, 3, 8, 4, (mimo_box[]){{0, 1, 0, 2, 0, 2, 1}}, 1);
    check_layout(&items, 3, 8);
}

/* Create a layout of 3 samples of 8 positions. */
static mimo_status create_on(const char *grid, mimo_layout_desc desc)
{
    mimo_grid *made_grid;
    mimo_layout *made = NULL;
    SUCCEEDS(mimo_grid_create_text(&made_grid, grid, 0));
    desc.grid = made_grid;
    desc.batch = 3;
    desc.seq = 8;
    mimo_status status = mimo_layout_create(&made, &desc);
    cr_assert((status == MIMO_OK) == (made != NULL), "a failed call leaves its output");
    mimo_layout_destroy(made);
    mimo_grid_destroy(made_grid);
    return status;
}

static mimo_layout_desc items_desc(const mimo_item *items, const int64_t first[4])
{
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    desc.ragged = MIMO_RAGGED_ITEMS;
    desc.items = items;
    desc.first_item = first;
    return desc;
}

static mimo_status items_attempt(const mimo_item *items, const int64_t first[4],
                                 mimo_partition_rule *rule)
{
    mimo_layout_desc desc = items_desc(items, first);
    desc.partition = rule;
    return create_on("cp=2,dp=3", desc);
}

#define ITEMS(...)      \
    (const mimo_item[]) \
    {                   \
        __VA_ARGS__     \
    }
#define FIRSTS(...)   \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

Test(layout, every_row_is_in_one_item)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    SUCCEEDS(items_attempt(three_items, three_firsts, NULL));
    FAILS(items_attempt(three_items, three_firsts, &rule), MIMO_ERR_UNSUPPORTED,
          "packed or items without one");
    FAILS(items_attempt(ITEMS({2, 0, 6}, {2, 5, 3}), FIRSTS(0, 0, 1, 2), NULL), MIMO_ERR_SHAPE,
          "row 5 of sample 2 is in items of lanes 1 and 2");
    FAILS(items_attempt(ITEMS({2, 0, 4}, {2, 0, 4}), FIRSTS(0, 1, 1, 2), NULL), MIMO_ERR_SHAPE,
          "row 0 of sample 2 is in items of lanes 0 and 2");
    FAILS(items_attempt(ITEMS({2, 0, 5}, {2, 6, 3}), FIRSTS(0, 1, 1, 2), NULL), MIMO_ERR_SHAPE,
          "row 5 of sample 2 is in no item");
    FAILS(items_attempt(ITEMS({1, 0, 5}, {2, 6, 3}), FIRSTS(0, 1, 1, 2), NULL), MIMO_ERR_SHAPE,
          "row 0 of sample 2 is in no item");
    FAILS(items_attempt(ITEMS({1, 0, 5}, {3, 0, 3}), FIRSTS(0, 0, 0, 2), NULL), MIMO_ERR_SHAPE,
          "item 1 of lane 2 has 3 rows from row 0 of sample 3, one of 3");
    FAILS(items_attempt(ITEMS({1, 0, 0}), FIRSTS(0, 1, 1, 1), NULL), MIMO_ERR_SHAPE,
          "item 0 of lane 0 has 0 rows");
    FAILS(items_attempt(ITEMS({1, INT64_MAX, 1}), FIRSTS(0, 1, 1, 1), NULL), MIMO_ERR_SHAPE,
          "item 0 of lane 0 has 1 rows");
    FAILS(items_attempt(three_items, NULL, NULL), MIMO_ERR_ARGUMENT, "first_item is NULL");
    FAILS(items_attempt(NULL, three_firsts, NULL), MIMO_ERR_ARGUMENT, "3 items, NULL");
    FAILS(items_attempt(three_items, FIRSTS(1, 2, 2, 3), NULL), MIMO_ERR_ARGUMENT,
          "first_item[0] is 1");
    FAILS(items_attempt(three_items, FIRSTS(0, 2, 1, 3), NULL), MIMO_ERR_ARGUMENT,
          "items of lane 1 are 2 to 0");
}

Test(layout, items_have_no_spans)
{
    const mimo_span span = {0, 0, 0, 1};
    mimo_layout_desc desc = items_desc(three_items, three_firsts);
    desc.spans = &span;
    desc.span_count = 1;
    FAILS(create_on("cp=2,dp=3", desc), MIMO_ERR_ARGUMENT,
          "1 spans, and the rows are those of items");
}

static mimo_status ragged_attempt(mimo_ragged kind, const mimo_span *spans, int64_t count,
                                  const mimo_partition_rule *rule)
{
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    desc.partition = rule;
    desc.ragged = kind;
    desc.spans = spans;
    desc.span_count = count;
    return create_on("cp=2,dp=2", desc);
}

Test(layout, wrong_spans)
{
    const mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    const mimo_ragged placed = MIMO_RAGGED_PLACED;
#define SPANS(...) \
    (const mimo_span[]){__VA_ARGS__}, sizeof((mimo_span[]){__VA_ARGS__}) / sizeof(mimo_span)
    SUCCEEDS(ragged_attempt(placed, three_spans, 3, &rule));
    FAILS(ragged_attempt(MIMO_RAGGED_PACKED, three_spans, 3, &rule), MIMO_ERR_UNSUPPORTED,
          "packed");
    FAILS(ragged_attempt((mimo_ragged)5, three_spans, 3, NULL), MIMO_ERR_ARGUMENT, "5");
    FAILS(ragged_attempt(placed, NULL, 3, NULL), MIMO_ERR_ARGUMENT, "3 spans, NULL");
    FAILS(ragged_attempt(placed, SPANS({3, 0, 0, 1}), NULL), MIMO_ERR_SHAPE, "sample 3", "of 3");
    FAILS(ragged_attempt(placed, SPANS({1, 0, 0, 1}, {0, 0, 0, 1}), NULL), MIMO_ERR_SHAPE,
          "span 1");
    FAILS(ragged_attempt(placed, SPANS({1, 0, 5, 4}), NULL), MIMO_ERR_SHAPE, "4 rows", "5", "8");
    FAILS(ragged_attempt(placed, SPANS({1, 2, 0, 1}), NULL), MIMO_ERR_SHAPE, "row 2", "row 0");
    FAILS(ragged_attempt(placed, SPANS({1, 0, 0, 3}, {1, 3, 2, 1}), NULL), MIMO_ERR_SHAPE,
          "spans of sample 1 overlap", "rows from 3 on", "position 2");
    FAILS(ragged_attempt(placed, SPANS({1, 0, 5, 3}, {1, 3, 0, 2}, {1, 5, 1, 1}), NULL),
          MIMO_ERR_SHAPE, "spans of sample 1 overlap", "rows from 5 on", "position 1");
}

Test(layout, samples_of_each_coordinate)
{
    static const int64_t samples[] = {1, 0, 4}, short_of[] = {1, 0, 3}, negative[] = {6, -1, 0};
    mimo_grid *grid;
    mimo_layout *made = NULL;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_box box;
    int64_t count, rows;
    SUCCEEDS(mimo_grid_create_text(&grid, "dp=3", 0));
    desc.grid = grid;
    desc.batch = 5;
    desc.seq = 2;
    desc.samples = short_of;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_SHAPE, "4 samples", "5");
    desc.samples = negative;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_SHAPE, "coordinate 1", "-1");
    desc.samples = samples;
    SUCCEEDS(mimo_layout_create(&made, &desc));
    SUCCEEDS(mimo_layout_boxes(&count, &box, 1, made, 2));
    cr_assert(count == 1 && box.b0 == 1 && box.nb == 4 && box.row_s == 4);
    SUCCEEDS(mimo_layout_rows(&rows, made, 1));
    cr_assert_eq(rows, 0);
    mimo_layout_destroy(made);
    mimo_grid_destroy(grid);
}

Test(layout, wrong_descriptors)
{
    mimo_partition_rule plain = MIMO_PARTITION_RULE_INIT;
    mimo_grid *grid;
    SUCCEEDS(mimo_grid_create_text(&grid, "tp=2,dp=2", 0));
    mimo_layout_desc good = MIMO_LAYOUT_DESC_INIT;
    good.grid = grid;
    good.batch = 4;
    good.seq = 8;
    mimo_layout *made = NULL;
    mimo_layout_desc desc = good;
    FAILS(mimo_layout_create(NULL, &good), MIMO_ERR_ARGUMENT, "out");
    FAILS(mimo_layout_create(&made, NULL), MIMO_ERR_ARGUMENT, "desc");
    desc.size = sizeof desc + 8;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_ARGUMENT, "size");
    desc = good;
    desc.grid = NULL;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_ARGUMENT, "grid");
    desc = good;
    desc.order = (mimo_row_order)7;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_ARGUMENT, "7");
    desc = good;
    desc.cp_copies = (mimo_copies)9;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_ARGUMENT, "9");
    FAILS(attempt("dp=2", plain, -3, 8), MIMO_ERR_ARGUMENT, "-3", "8");
    FAILS(attempt("dp=2", plain, 3, -8), MIMO_ERR_ARGUMENT, "3", "-8");
    FAILS(attempt("dp=2", plain, INT64_MAX / 2, 3), MIMO_ERR_OVERFLOW, "4611686018427387903", "3");
    FAILS(attempt("dp=8", plain, INT64_MAX / 8, 4), MIMO_ERR_OVERFLOW, "8 ranks");
    desc = good; /* no position, but the ends of the samples would need a count of batch + 1 */
    desc.batch = INT64_MAX;
    desc.seq = 0;
    desc.ragged = MIMO_RAGGED_PACKED;
    FAILS(mimo_layout_create(&made, &desc), MIMO_ERR_OVERFLOW, "9223372036854775807 + 1");
    cr_assert_null(made);
    mimo_grid_destroy(grid);
}

Test(layout, wrong_questions)
{
    const layout_case two = LAYOUT("dp=2", 0, MIMO_ROWS_SBH, false, false, false);
    mimo_grid *grid;
    mimo_layout *made = layout_of(&two, 2, 2, &grid);
    mimo_box box;
    int64_t count;
    FAILS(mimo_layout_boxes(&count, &box, 1, NULL, 0), MIMO_ERR_ARGUMENT, "layout");
    FAILS(mimo_layout_boxes(&count, NULL, 1, made, 0), MIMO_ERR_ARGUMENT, "boxes");
    FAILS(mimo_layout_boxes(NULL, &box, 1, made, 0), MIMO_ERR_ARGUMENT, "count");
    FAILS(mimo_layout_boxes(&count, &box, -2, made, 0), MIMO_ERR_ARGUMENT, "-2");
    FAILS(mimo_layout_rows(&count, NULL, 0), MIMO_ERR_ARGUMENT, "layout");
    FAILS(mimo_layout_rows(NULL, made, 0), MIMO_ERR_ARGUMENT, "rows");
    mimo_layout_destroy(made);
    mimo_layout_destroy(NULL);
    mimo_grid_destroy(grid);
}
