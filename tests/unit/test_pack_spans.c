/* Spans in packs: under the partition that cuts the whole, each rank has the rows that it has under
 * the one that cuts each sequence, at the same local places. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <mimo/partition.h>
#include <mimo/plan.h>

#include "expect_failure.h"
#include "guarded.h"

enum { MOST_SEQUENCES = 6, MOST_ROWS = 512, MOST_SPANS = 600, CASES = 400 };

typedef struct pack_case {
    int64_t cp, tp; /* tp > 1: sp */
    int64_t sequences, rows, count;
    int32_t cu[MOST_SEQUENCES + 1];
    mimo_span spans[MOST_SPANS];
} pack_case;

/* Sequences that 2 cp divides, some of them empty; T that cp * tp divides. */
static pack_case draw_case(uint64_t *random)
{
    pack_case drawn = {.cp = 1 + random_below(random, 4), .tp = 1 + random_below(random, 2)};
    int64_t unit = 2 * drawn.cp * drawn.tp, row = 0;
    drawn.sequences = random_below(random, MOST_SEQUENCES + 1);
    for (int64_t i = 0; i < drawn.sequences; i++)
        drawn.cu[i + 1] = drawn.cu[i] + (int32_t)(unit * random_below(random, 4));
    drawn.rows = drawn.cu[drawn.sequences];
    for (int64_t p = random_below(random, 9); p < drawn.rows; p += random_below(random, 9)) {
        int64_t length = 1 + random_below(random, 30);
        length = length < drawn.rows - p ? length : drawn.rows - p;
        drawn.spans[drawn.count++] = (mimo_span){2, row, p, length};
        row += length;
        p += length;
    }
    return drawn;
}

/* Which row of the modality lies at each position; -1: none does. */
static void mark_rows(int64_t marks[MOST_ROWS], const mimo_span *spans, int64_t count)
{
    for (int64_t p = 0; p < MOST_ROWS; p++)
        marks[p] = -1;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < spans[i].length; j++) {
            cr_assert_eq(marks[spans[i].position + j], -1, "two rows at a position");
            marks[spans[i].position + j] = spans[i].row + j;
        }
}

static void read_index(int64_t index[MOST_ROWS], const pack_case *drawn, bool packed, int64_t cp,
                       int64_t tp)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords at = MIMO_PARTITION_COORDS_INIT;
    mimo_partition *partition;
    rule.sp = drawn->tp > 1;
    rule.format = packed ? MIMO_THD : MIMO_SBHD;
    rule.sequences = drawn->sequences;
    rule.cu = drawn->cu;
    at.cp_rank = cp, at.cp_size = drawn->cp, at.tp_rank = tp, at.tp_size = drawn->tp;
    SUCCEEDS(mimo_partition_create(&partition, &rule, &at));
    SUCCEEDS(mimo_partition_index(index, partition, MIMO_EMBEDDINGS, drawn->rows));
    mimo_partition_destroy(partition);
}

static void check_case(const pack_case *drawn)
{
    mimo_span cut[MOST_SPANS];
    int64_t count, counted, in_pack[MOST_ROWS], in_whole[MOST_ROWS];
    int64_t packed[MOST_ROWS], whole[MOST_ROWS];
    const mimo_packed_spans pack = {drawn->spans, drawn->count, drawn->cu, drawn->sequences};
    SUCCEEDS(mimo_spans_pack(&count, cut, MOST_SPANS, &pack, drawn->cp));
    cr_assert_leq(count, MOST_SPANS);
    SUCCEEDS(mimo_spans_pack(&counted, NULL, 0, &pack, drawn->cp));
    cr_assert_eq(counted, count);
    for (int64_t i = 0, row = 0; i < count; i++) {
        cr_assert(cut[i].sample == 2 && cut[i].row == row, "span %" PRId64 " is out of order", i);
        row += cut[i].length;
    }
    mark_rows(in_pack, drawn->spans, drawn->count);
    mark_rows(in_whole, cut, count);
    for (int64_t cp = 0; cp < drawn->cp; cp++)
        for (int64_t tp = 0; tp < drawn->tp; tp++) {
            read_index(packed, drawn, true, cp, tp);
            read_index(whole, drawn, false, cp, tp);
            for (int64_t i = 0; i < drawn->rows / (drawn->cp * drawn->tp); i++)
                cr_assert_eq(in_pack[packed[i]], in_whole[whole[i]],
                             "cp %" PRId64 " of %" PRId64 ", local row %" PRId64, cp, drawn->cp, i);
        }
}

/* Plans of all ranks hold for spans that do not ascend in their positions. */
static void check_plans(const pack_case *drawn)
{
    char text[64];
    mimo_span cut[MOST_SPANS];
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *src, *dst;
    const mimo_packed_spans pack = {drawn->spans, drawn->count, drawn->cu, drawn->sequences};
    mimo_grid *grid;
    snprintf(text, sizeof text, "tp=%" PRId64 ",cp=%" PRId64 ",dp=2", drawn->tp, drawn->cp);
    rule.sp = drawn->tp > 1;
    SUCCEEDS(mimo_grid_create_text(&grid, text, 0));
    desc.grid = grid;
    desc.batch = 4;
    desc.seq = drawn->rows;
    desc.ragged = MIMO_RAGGED_PACKED;
    desc.spans = drawn->spans;
    desc.span_count = drawn->count;
    SUCCEEDS(mimo_layout_create(&src, &desc));
    SUCCEEDS(mimo_spans_pack(&desc.span_count, cut, MOST_SPANS, &pack, drawn->cp));
    desc.ragged = MIMO_RAGGED_PLACED;
    desc.spans = cut;
    desc.partition = &rule;
    SUCCEEDS(mimo_layout_create(&dst, &desc));
    SUCCEEDS(mimo_plan_check(src, dst));
    SUCCEEDS(mimo_plan_check(dst, src));
    mimo_layout_destroy(src);
    mimo_layout_destroy(dst);
    mimo_grid_destroy(grid);
}

Test(pack_spans, random)
{
    uint64_t random = 20261128;
    int64_t with_spans = 0;
    for (int i = 0; i < CASES; i++) {
        pack_case drawn = draw_case(&random);
        check_case(&drawn);
        check_plans(&drawn);
        with_spans += drawn.count > 0 && drawn.cp > 1 && drawn.sequences > 1;
    }
    cr_assert_gt(with_spans, CASES / 3);
}

/* Documents of 8 and 8 tokens on two cp ranks, and an image at the positions 5 to 9. Rank 1 has
 * position 5, rank 0 the others: in the last two of its first four rows, then in the next two. */
Test(pack_spans, golden)
{
    const int32_t cu[] = {0, 8, 16};
    const mimo_span span = {0, 0, 5, 5};
    const mimo_span expected[] = {{0, 0, 7, 1}, {0, 1, 2, 2}, {0, 3, 12, 2}};
    const mimo_packed_spans pack = {&span, 1, cu, 2};
    mimo_span cut[4];
    int64_t count;
    SUCCEEDS(mimo_spans_pack(&count, cut, 4, &pack, 2));
    cr_assert_eq(count, 3);
    cr_assert(memcmp(cut, expected, sizeof expected) == 0);
    SUCCEEDS(mimo_spans_pack(&count, cut, 4, &pack, 1));
    cr_assert(count == 1 && memcmp(cut, &span, sizeof span) == 0, "without cp nothing is cut");
}

Test(pack_spans, mistakes)
{
    const int32_t cu[] = {0, 8, 16}, odd[] = {0, 6, 16}, falls[] = {0, 8, 4};
    const mimo_span spans[] = {{0, 0, 5, 5}, {0, 5, 9, 1}};
    int64_t count = 7;
#define PACK(count, spans, n, cu, sequences, cp) \
    mimo_spans_pack(count, NULL, 0, &(mimo_packed_spans){spans, n, cu, sequences}, cp)
    FAILS(PACK(NULL, spans, 1, cu, 2, 2), MIMO_ERR_ARGUMENT, "count is NULL");
    FAILS(PACK(&count, NULL, 1, cu, 2, 2), MIMO_ERR_ARGUMENT, "1 of them, NULL");
    FAILS(mimo_spans_pack(&count, NULL, 0, NULL, 2), MIMO_ERR_ARGUMENT, "pack is NULL");
    FAILS(PACK(&count, spans, 1, NULL, 2, 2), MIMO_ERR_ARGUMENT, "cu is NULL");
    FAILS(PACK(&count, spans, 1, cu, 2, 0), MIMO_ERR_ARGUMENT, "cp 0");
    FAILS(mimo_spans_pack(&count, NULL, 1, &(mimo_packed_spans){spans, 1, cu, 2}, 2),
          MIMO_ERR_ARGUMENT, "room for 1");
    FAILS(PACK(&count, spans, 1, odd, 2, 2), MIMO_ERR_SHAPE, "sequence 0", "6 rows", "4");
    FAILS(PACK(&count, spans, 1, falls, 2, 2), MIMO_ERR_SHAPE, "decreases at sequence 1");
    FAILS(PACK(&count, spans, 2, cu, 2, 2), MIMO_ERR_SHAPE, "span 1", "behind position 10");
    FAILS(PACK(&count, spans, 1, cu, 1, 2), MIMO_ERR_SHAPE, "span 0", "the 8 of the pack");
#undef PACK
    cr_assert_eq(count, 7, "a failed call wrote");
}
