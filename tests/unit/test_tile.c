/* Tiles whose sizes do not fit 64 bits are refused with the numbers. No other tiles are. */
#include <criterion/criterion.h>

#include "bridge/collective/collective_types.h"
#include "expect_failure.h"

enum { H = 4 };

static const int64_t HUGE_SIZE = INT64_C(1) << 61;

static mimo_tile_rules fan_in_by(int64_t scale)
{
    mimo_tile_rules rules = {
        .pairing = {sizeof(mimo_pairing), scale > 1 ? MIMO_FAN_IN : MIMO_FAN_EQUAL, scale,
                    scale > 1, scale},
        .memory = MIMO_MEMORY_HOST,
        .cuts = 1,
    };
    return rules;
}

/* A partition over two cp ranks. */
static mimo_partition *partition_over_two(mimo_tile_rules *rules)
{
    mimo_partition *partition = NULL;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords place = {sizeof(mimo_partition_coords), 0, 2, 0, 1};
    SUCCEEDS(mimo_partition_create(&partition, &rule, &place));
    rules->partition = partition;
    rules->cuts = 2;
    return partition;
}

Test(tile, sizes_of_a_pair)
{
    float a[24], b[48];
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(2);
    mimo_tensor src = mimo_tensor_3d(a, MIMO_F32, "sbh", 2, 3, H);
    mimo_tensor dst = mimo_tensor_3d(b, MIMO_F32, "bsh", 6, 2, H);
    SUCCEEDS(mimo_tile_pair_of(&pair, &rules, &src, &dst));
    cr_assert(pair.seq == 2 && pair.src.batch == 3 && pair.dst.batch == 6);
    cr_assert(mimo_tile_bytes(&pair.src) == sizeof a && mimo_tile_bytes(&pair.dst) == sizeof b);
    cr_assert(pair.src.row_b == 1 && pair.src.row_s == 3);
    cr_assert(pair.dst.row_b == 2 && pair.dst.row_s == 1);
}

Test(tile, words_of_a_misfit)
{
    float a[24], b[48];
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(2);
    mimo_tensor src = mimo_tensor_3d(a, MIMO_F32, "sbh", 2, 3, H);
    mimo_tensor dst = mimo_tensor_3d(b, MIMO_F32, "sbh", 2, 5, H);
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_SHAPE,
          "dst tile is f32 sbh[2,5,4]; fan_in by 2 from src tile f32 sbh[2,3,4] needs f32 "
          "sbh[2,6,4]");
    rules.pairing.fan = MIMO_FAN_EQUAL;
    rules.pairing.scale = 1;
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_SHAPE,
          "dst tile is f32 sbh[2,5,4]; as src and dst dp are equal, src tile f32 sbh[2,3,4] needs "
          "f32 sbh[2,3,4]");
}

/* Empty views may have sizes whose products with the other side's sizes do not fit 64 bits. */
Test(tile, batches_that_overflow)
{
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(4);
    mimo_tensor src = mimo_tensor_3d(NULL, MIMO_F32, "sbh", 0, HUGE_SIZE, H);
    mimo_tensor dst = mimo_tensor_3d(NULL, MIMO_F32, "sbh", 0, HUGE_SIZE, H);
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_OVERFLOW,
          "dst tile f32 sbh[0,2305843009213693952,4]", "2305843009213693952 * 4 does not fit");
}

Test(tile, rows_that_overflow)
{
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(4);
    mimo_tensor src = mimo_tensor_3d(NULL, MIMO_F32, "sbh", HUGE_SIZE, 1, 0);
    mimo_tensor dst = mimo_tensor_2d(NULL, MIMO_F32, "th", 4, 0);
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_OVERFLOW,
          "src tile f32 sbh[2305843009213693952,1,0]", "4 * 2305843009213693952 does not fit");
}

Test(tile, bytes_of_a_row_that_overflow)
{
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(1);
    mimo_tensor src = mimo_tensor_3d(NULL, MIMO_F64, "sbh", 0, 1, HUGE_SIZE);
    mimo_tensor dst = mimo_tensor_3d(NULL, MIMO_F64, "sbh", 0, 1, HUGE_SIZE);
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_OVERFLOW,
          "src tile f64 sbh[0,1,2305843009213693952]", "2305843009213693952 * 8 does not fit");
}

/* The shard fits. The full sequences that are staged for it do not. */
Test(tile, staging_that_overflows)
{
    float a, b;
    mimo_tile_pair pair;
    mimo_tile_rules rules = fan_in_by(4);
    mimo_partition *partition = partition_over_two(&rules);
    mimo_tensor flat = mimo_tensor_2d(&a, MIMO_F8, "th", HUGE_SIZE, 1);
    mimo_tensor dst = mimo_tensor_3d(&b, MIMO_F8, "sbh", 2 * HUGE_SIZE, 1, 1);
    FAILS(mimo_tile_pair_of(&pair, &rules, &flat, &dst), MIMO_ERR_OVERFLOW,
          "dst tile f8 sbh[4611686018427387904,1,1]", "4611686018427387904 * 2 does not fit");
    mimo_tensor src = mimo_tensor_3d(&a, MIMO_F8, "sbh", HUGE_SIZE, 1, 1);
    dst = mimo_tensor_3d(&b, MIMO_F8, "sbh", HUGE_SIZE / 2, 4, 1);
    FAILS(mimo_tile_pair_of(&pair, &rules, &src, &dst), MIMO_ERR_OVERFLOW,
          "dst tile f8 sbh[1152921504606846976,4,1]", "4 * 2305843009213693952 does not fit");
    mimo_partition_destroy(partition);
}

/* A tile without rows may begin inside another tile. All ranks pass the same offset, also those
 * without rows. */
Test(tile, overlap)
{
    float a[24];
    mimo_tensor whole = mimo_tensor_3d(a, MIMO_F32, "sbh", 2, 3, H);
    mimo_tensor part = mimo_tensor_3d(a + H, MIMO_F32, "sbh", 2, 1, H);
    mimo_tensor none = mimo_tensor_3d(a + H, MIMO_F32, "sbh", 2, 0, H);
    FAILS(mimo_tile_check_apart(&whole, &part), MIMO_ERR_ARGUMENT, "overlap");
    FAILS(mimo_tile_check_apart(&part, &whole), MIMO_ERR_ARGUMENT, "overlap");
    SUCCEEDS(mimo_tile_check_apart(&whole, &none));
    SUCCEEDS(mimo_tile_check_apart(&none, &whole));
}
