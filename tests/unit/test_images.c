/* The images that lanes have loaded, as items of their samples, and items by lane. */
#include <inttypes.h>
#include <string.h>

#include <criterion/criterion.h>

#include <mimo/plan.h>

#include "expect_failure.h"
#include "guarded.h"

enum { MOST = 64, LANES = 3 };

static mimo_item rows[MOST], patches[MOST];
static mimo_span spans[MOST];
static const mimo_image_lists lists = {rows, patches, spans};

static bool item_is(const mimo_item *item, int64_t sample, int64_t row, int64_t count)
{
    return item->sample == sample && item->row == row && item->rows == count;
}

/* Two lanes of 2 and 1 samples. Sample 0: images of 4 and 8 patches, in one span of 3 rows; sample
 * 1: none; sample 2: an image in two spans. merge = 4. */
static const int64_t of_first[] = {4, 8}, of_second[] = {12};
static const mimo_span in_first[] = {{0, -1, 5, 3}}, in_second[] = {{0, -1, 0, 1}, {0, -1, 7, 2}};
static const mimo_lane_images two_lanes[] = {{2, 16, of_first, 2, in_first, 1},
                                             {1, 16, of_second, 1, in_second, 2}};

Test(images, take_the_next_rows_of_their_sample)
{
    SUCCEEDS(mimo_images_find(&lists, two_lanes, 2, 4, true));
    cr_expect(item_is(&rows[0], 0, 0, 1) && item_is(&rows[1], 0, 1, 2) &&
              item_is(&rows[2], 2, 0, 3));
    cr_expect(item_is(&patches[0], 0, 0, 4) && item_is(&patches[1], 0, 4, 8) &&
              item_is(&patches[2], 2, 0, 12));
    cr_expect(spans[0].sample == 0 && spans[0].row == 0 && spans[0].position == 5 &&
              spans[0].length == 3);
    cr_expect(spans[1].sample == 2 && spans[1].row == 0 && spans[1].length == 1);
    cr_expect(spans[2].sample == 2 && spans[2].row == 1 && spans[2].position == 7);
}

/* Equal sums hide that images and runs are shifted: 3 and 5 rows, where 5 and 3 ids stand. */
Test(images, lie_in_one_run_each)
{
    static const int64_t swapped[] = {3, 5}, fitting[] = {2, 3, 3};
    static const mimo_span runs[] = {{0, 0, 4, 5}, {0, 0, 12, 3}};
    const mimo_lane_images lane = {1, 16, swapped, 2, runs, 2};
    FAILS(
        mimo_images_find(&lists, &lane, 1, 1, false), MIMO_ERR_SHAPE,
        "image 1 of lane 0 has 5 rows, and the run of special ids at position 4 of sample 0 has 2 "
        "left for it");
    cr_expect_eq(mimo_images_find(&lists, &lane, 1, 1, true), MIMO_OK);
    FAILS(
        mimo_images_find(&lists, two_lanes, 2, 4, false), MIMO_ERR_SHAPE,
        "image 0 of lane 1 has 3 rows, and the run of special ids at position 0 of sample 2 has 1");
    cr_expect_eq(
        mimo_images_find(&lists, &(mimo_lane_images){1, 16, fitting, 3, runs, 2}, 1, 1, false),
        MIMO_OK);
}

Test(images, of_no_lane_and_no_sample)
{
    const mimo_lane_images empty = {0, 0, NULL, 0, NULL, 0};
    cr_expect_eq(mimo_images_find(&lists, NULL, 0, 1, true), MIMO_OK);
    cr_expect_eq(mimo_images_find(&lists, &empty, 1, 1, true), MIMO_OK);
}

/* One lane that differs from the good ones in a field. */
#define WRONG(status, words, ...)                                          \
    do {                                                                   \
        mimo_lane_images wrong[] = {two_lanes[0], two_lanes[1]};           \
        __VA_ARGS__;                                                       \
        FAILS(mimo_images_find(&lists, wrong, 2, 4, true), status, words); \
    } while (0)

Test(images, that_do_not_fit)
{
    static const int64_t odd[] = {4, 6}, none[] = {4, 0}, long_one[] = {4, 12};
    static const mimo_span late[] = {{1, 0, 5, 3}}, wide[] = {{0, 0, 5, 4}},
                           outside[] = {{2, 0, 5, 3}}, empty[] = {{0, 0, 5, 0}};
    WRONG(MIMO_ERR_SHAPE, "image 1 of lane 0 has 6 patches, no multiple of merge=4",
          wrong[0].patches = odd);
    WRONG(MIMO_ERR_SHAPE, "image 1 of lane 0 has 0 patches", wrong[0].patches = none);
    WRONG(MIMO_ERR_SHAPE, "sample 0 of lane 0: 3 special ids, its images have 4 rows",
          wrong[0].patches = long_one);
    WRONG(MIMO_ERR_SHAPE, "sample 0 of lane 0: 4 special ids, its images have 3 rows",
          wrong[0].spans = wide);
    WRONG(MIMO_ERR_SHAPE, "sample 2 of lane 1: 3 special ids, its images have 0 rows",
          wrong[1].images = 0);
    WRONG(MIMO_ERR_SHAPE, "lane 0 has 2 images more than its special ids take",
          wrong[0].span_count = 0);
    cr_expect_eq(
        mimo_images_find(&lists, &(mimo_lane_images){2, 16, of_first, 2, late, 1}, 1, 4, true),
        MIMO_OK);
    WRONG(MIMO_ERR_SHAPE, "span 0 of lane 0 is one of sample 2 of 2, or out of order",
          wrong[0].spans = outside, wrong[0].images = 0);
    WRONG(MIMO_ERR_SHAPE, "sample 0 has a span of 0 rows", wrong[0].spans = empty);
    WRONG(MIMO_ERR_SHAPE,
          "lane 0 has 1 samples of 16 positions, and of 2 samples it takes 1 of 24 positions",
          wrong[0].samples = 1, wrong[1].seq = 24);
    WRONG(MIMO_ERR_SHAPE, "lane 0 has 1 samples of 16 positions, and of 3 samples it takes 2",
          wrong[0].samples = 1, wrong[1].samples = 2);
}

Test(images, that_are_no_numbers)
{
    static const int64_t large[] = {INT64_MAX / 2, INT64_MAX / 2, INT64_MAX / 2};
    static const mimo_span full[] = {
        {0, 0, 0, INT64_MAX / 2}, {0, 0, 0, INT64_MAX / 2}, {0, 0, 0, INT64_MAX / 2}};
    WRONG(MIMO_ERR_ARGUMENT, "lane 1 has -1 samples", wrong[1].samples = -1);
    WRONG(MIMO_ERR_ARGUMENT, "lane 1 has 1 samples of 16 positions, -1 images",
          wrong[1].images = -1);
    WRONG(MIMO_ERR_ARGUMENT, "1 images and -1 spans", wrong[1].span_count = -1);
    WRONG(MIMO_ERR_ARGUMENT, "samples of -1 positions", wrong[0].seq = -1);
    WRONG(MIMO_ERR_ARGUMENT, "lane 0: patches is NULL", wrong[0].patches = NULL);
    WRONG(MIMO_ERR_ARGUMENT, "lane 0: spans is NULL", wrong[0].spans = NULL);
    FAILS(mimo_images_find(NULL, two_lanes, 2, 4, true), MIMO_ERR_ARGUMENT, "images: out is NULL");
    FAILS(mimo_images_find(&lists, NULL, 2, 4, true), MIMO_ERR_ARGUMENT, "images: lanes is NULL");
    FAILS(mimo_images_find(&lists, two_lanes, 2, 0, true), MIMO_ERR_ARGUMENT, "2 lanes, merge=0");
    FAILS(mimo_images_find(&lists, two_lanes, -1, 4, true), MIMO_ERR_ARGUMENT, "-1 lanes, merge=4");
    FAILS(mimo_images_find(&lists, &(mimo_lane_images){1, 8, large, 3, full, 3}, 1, 1, true),
          MIMO_ERR_OVERFLOW, "");
    WRONG(MIMO_ERR_OVERFLOW, "", wrong[0].samples = wrong[1].samples = INT64_MAX);
}

/* ------------------------------------------- spans ------------------------------------------ */

enum { IMAGE = 7 };

static void expect_spans(const mimo_tensor *ids)
{
    static const mimo_span expected[] = {{0, 0, 0, 2}, {0, 2, 4, 1}, {2, 0, 2, 3}};
    int64_t count = -1;
    memset(spans, 0, sizeof spans);
    SUCCEEDS(mimo_spans_find(&count, spans, MOST, ids, IMAGE));
    cr_assert_eq(count, 3);
    cr_expect_arr_eq(spans, expected, sizeof expected);
    memset(spans, 0, sizeof spans);
    SUCCEEDS(mimo_spans_find(&count, spans, 1, ids, IMAGE));
    cr_expect(count == 3 && spans[0].length == 2 && spans[1].length == 0, "it wrote too many");
}

Test(images, spans_of_ids)
{
    int64_t wide[] = {7, 7, 0, 1, 7, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7};
    int32_t narrow[15];
    for (int i = 0; i < 15; i++)
        narrow[i] = (int32_t)wide[i];
    mimo_tensor ids = mimo_tensor_2d(wide, MIMO_I64, "bs", 3, 5);
    expect_spans(&ids);
    ids = mimo_tensor_2d(narrow, MIMO_I32, "bs", 3, 5);
    expect_spans(&ids);
    ids = mimo_tensor_2d(NULL, MIMO_I64, "bs", 3, 0);
    int64_t count = -1;
    cr_expect(mimo_spans_find(&count, NULL, 0, &ids, IMAGE) == MIMO_OK && count == 0);
}

Test(images, no_ids)
{
    int64_t data[4] = {0}, count = -1;
    mimo_tensor ids = mimo_tensor_2d(data, MIMO_I64, "bs", 2, 2), wrong = ids;
    FAILS(mimo_spans_find(NULL, spans, 1, &ids, 0), MIMO_ERR_ARGUMENT, "spans: count is NULL");
    FAILS(mimo_spans_find(&count, spans, 1, NULL, 0), MIMO_ERR_ARGUMENT, "spans: ids is NULL");
    FAILS(mimo_spans_find(&count, spans, -1, &ids, 0), MIMO_ERR_ARGUMENT, "spans: room for -1");
    FAILS(mimo_spans_find(&count, NULL, 1, &ids, 0), MIMO_ERR_ARGUMENT, "room for 1, NULL");
    wrong.dtype = MIMO_F32;
    FAILS(mimo_spans_find(&count, spans, 1, &wrong, 0), MIMO_ERR_ARGUMENT, "ids are f32");
    wrong = mimo_tensor_2d(data, MIMO_I64, "th", 2, 2);
    FAILS(mimo_spans_find(&count, spans, 1, &wrong, 0), MIMO_ERR_ARGUMENT, "ids are 'th'");
    wrong = ids;
    wrong.shape[1] = -2;
    FAILS(mimo_spans_find(&count, spans, 1, &wrong, 0), MIMO_ERR_ARGUMENT, "shape [2,-2]");
    wrong = ids;
    wrong.data = NULL;
    FAILS(mimo_spans_find(&count, spans, 1, &wrong, 0), MIMO_ERR_ARGUMENT, "spans: ids are NULL");
    cr_expect_eq(count, -1);
}

/* ------------------------------------------- lanes ------------------------------------------ */

/* Every item once, on its lane, in the order of the list. */
Test(images, by_lane)
{
    mimo_item dealt[MOST];
    int64_t lane[MOST], first[LANES + 1], count = 40;
    uint64_t random = 3;
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (mimo_item){i, 2 * i, 3 * i};
        lane[i] = random_below(&random, LANES);
    }
    SUCCEEDS(mimo_items_deal(dealt, first, rows, lane, count, LANES));
    cr_expect(first[0] == 0 && first[LANES] == count);
    for (int64_t d = 0, seen = 0; d < LANES; d++)
        for (int64_t i = 0; i < count; i++)
            if (lane[i] == d) {
                cr_expect(seen >= first[d] && seen < first[d + 1]);
                cr_expect(item_is(&dealt[seen++], i, 2 * i, 3 * i), "item %" PRId64, i);
            }
    cr_expect_eq(mimo_items_deal(NULL, first, NULL, NULL, 0, LANES), MIMO_OK);
    cr_expect_eq(first[LANES], 0);
}

Test(images, on_no_lane)
{
    mimo_item dealt[2];
    int64_t lane[] = {0, 3}, first[LANES + 1];
    FAILS(mimo_items_deal(dealt, first, rows, lane, 2, LANES), MIMO_ERR_ARGUMENT,
          "item 1 is on lane 3 of 3");
    lane[1] = -1;
    FAILS(mimo_items_deal(dealt, first, rows, lane, 2, LANES), MIMO_ERR_ARGUMENT,
          "item 1 is on lane -1 of 3");
    FAILS(mimo_items_deal(dealt, first, rows, lane, -1, LANES), MIMO_ERR_ARGUMENT, "-1 of them");
    FAILS(mimo_items_deal(dealt, first, rows, lane, 2, 0), MIMO_ERR_ARGUMENT, "on 0 lanes");
    FAILS(mimo_items_deal(dealt, NULL, rows, lane, 2, LANES), MIMO_ERR_ARGUMENT,
          "an array is NULL");
    FAILS(mimo_items_deal(dealt, first, NULL, lane, 2, LANES), MIMO_ERR_ARGUMENT,
          "an array is NULL");
}
