/* The fixed order of additions: which parts a rank owns, what a store and a runtime refuse, sums
 * that become gradients. (Products, trees and fixed point: test_nn_ordered.c.) */
#include <stdbool.h>
#include <string.h>

#include "train/nn/ops/nn_fixed.h"
#include "nn_gradient_check.h"
#include "same_bits.h"

enum { PARTS = 8, SEQ = 32 };

/* Every element of k is in one piece of one part, and the pieces of a part ascend. */
static void expect_partition(int64_t k, int64_t parts, bool folded)
{
    int owner[SEQ];
    memset(owner, -1, sizeof owner);
    for (int64_t part = 0; part < parts; part++) {
        int64_t last = -1;
        for (int piece = 0; piece < 2; piece++) {
            nn_piece p = nn_order_piece(k, parts, folded, part, piece);
            for (int64_t i = p.first; i < p.first + p.count; i++) {
                cr_assert(i > last && i < k && owner[i] < 0, "%d of %d parts, element %d",
                          (int)part, (int)parts, (int)i);
                owner[i] = (int)part;
                last = i;
            }
        }
    }
    for (int64_t i = 0; i < k; i++)
        cr_assert(owner[i] >= 0, "element %d of %d is in no part", (int)i, (int)k);
}

Test(nn_order, parts_cover_k_once)
{
    for (int64_t parts = 1; parts <= PARTS; parts *= 2) {
        expect_partition(SEQ, parts, false);
        expect_partition(SEQ, parts, true);
    }
    expect_partition(7, 1, true); /* one pair is the whole of it, also where that is odd */
}

/* The positions of pair `pair` of C of the whole sequence, in the order of its chain. */
static int list_pair(int64_t *out, int64_t pairs, int64_t pair)
{
    int count = 0;
    for (int piece = 0; piece < 2; piece++) {
        nn_piece p = nn_order_piece(SEQ, pairs, true, pair, piece);
        for (int64_t i = 0; i < p.count; i++)
            out[count++] = p.first + i;
    }
    return count;
}

static int64_t zigzag(int64_t i, int64_t rank, int64_t ranks)
{
    int64_t chunk = SEQ / (2 * ranks);
    return i < chunk ? rank * chunk + i : (2 * ranks - 1 - rank) * chunk + i - chunk;
}

/* The pairs of a cp rank, cut out of its own rows, are pairs [cC/cp, (c+1)C/cp) of the sequence: a
 * subtree. */
Test(nn_order, pairs_of_a_cp_rank_are_a_subtree)
{
    int64_t whole[SEQ], own[SEQ];
    for (int64_t pairs = 1; pairs <= PARTS; pairs *= 2)
        for (int64_t ranks = 1; ranks <= pairs; ranks *= 2)
            for (int64_t rank = 0; rank < ranks; rank++)
                for (int64_t i = 0; i < pairs / ranks; i++) {
                    int count = list_pair(whole, pairs, rank * pairs / ranks + i), n = 0;
                    for (int piece = 0; piece < 2; piece++) {
                        nn_piece p = nn_order_piece(SEQ / ranks, pairs / ranks, true, i, piece);
                        for (int64_t j = p.first; j < p.first + p.count; j++)
                            own[n++] = ranks == 1 ? j : zigzag(j, rank, ranks);
                    }
                    cr_assert_eq(n, count, "C %d, cp %d, rank %d, pair %d: %d positions, not %d",
                                 (int)pairs, (int)ranks, (int)rank, (int)i, n, count);
                    EXPECT_BITS(bits_of(own, whole, n * (int64_t)sizeof *own, sizeof *own, 0),
                                "C %d, cp %d, rank %d, pair %d", (int)pairs, (int)ranks, (int)rank,
                                (int)i);
                }
}

/* Sums over cp of docs/concepts.md, "The same bits", by C = 4 and S = 16: pair 1 is tokens 2 3 and
 * 12 13; rank 1 of cp = 2 has tokens 4 to 11. */
Test(nn_order, golden_pairs)
{
    nn_piece first = nn_order_piece(16, 4, true, 1, 0), second = nn_order_piece(16, 4, true, 1, 1);
    cr_assert(first.first == 2 && first.count == 2 && second.first == 12 && second.count == 2);
    int64_t positions[] = {4, 5, 6, 7, 8, 9, 10, 11};
    SUCCEEDS(nn_order_check_positions(positions, 8, 1, 2, 4));
    FAILS(nn_order_check_positions(positions, 8, 0, 2, 4), MIMO_ERR_UNSUPPORTED,
          "row 0 of cp rank 0 of 2 has position 4, the zigzag partition has 0");
}

Test(nn_order, refuses)
{
    int64_t positions[12];
    for (int64_t i = 0; i < 12; i++)
        positions[i] = i;
    SUCCEEDS(nn_order_check_parts("V", 8));
    FAILS(nn_order_check_parts("V", 6), MIMO_ERR_ARGUMENT, "V is 6, must be a power of two");
    FAILS(nn_order_check_parts("V", 0), MIMO_ERR_ARGUMENT, "V is 0");
    FAILS(nn_order_check_parts("V", 2 * NN_MOST_PARTS), MIMO_ERR_ARGUMENT, "up to 64");
    FAILS(nn_order_check_ranks("tp", 3, 8), MIMO_ERR_UNSUPPORTED, "tp=3 is no power of two");
    FAILS(nn_order_check_ranks("cp", 4, 2), MIMO_ERR_UNSUPPORTED, "cp=4 is more than the 2 parts");
    SUCCEEDS(nn_order_check_positions(positions, 12, 0, 1, 2));
    FAILS(nn_order_check_positions(positions, 12, 0, 1, 4), MIMO_ERR_SHAPE,
          "12 positions does not divide into 4 pairs");
    SUCCEEDS(nn_order_check_positions(positions, 11, 0, 1, 1));
}

static nn_runtime fixed_runtime(void)
{
    nn_runtime runtime = {0};
    nn_runtime_desc desc = {.memory = nn_test_runtime()->memory,
                            .stream = nn_test_runtime()->stream,
                            .order = NN_ORDER_FIXED};
    SUCCEEDS(nn_runtime_init(&runtime, &desc));
    return runtime;
}

Test(nn_order, runtime_refuses_bf16)
{
    nn_runtime runtime = {0};
    nn_runtime_desc desc = {nn_test_runtime()->memory, nn_test_runtime()->stream, NN_PRECISION_BF16,
                            NN_ORDER_FIXED, 0};
    FAILS(nn_runtime_init(&runtime, &desc), MIMO_ERR_UNSUPPORTED,
          "the fixed order of additions needs products of full precision");
}

enum { ROWS = 8, COLUMNS = 16, COUNT = ROWS * COLUMNS };

static nn_params *fixed_store(const nn_runtime *runtime)
{
    nn_params *params = NULL;
    nn_params_desc desc = {.name = "store", .tp_size = 1, .runtime = runtime, .shards = PARTS};
    int index;
    SUCCEEDS(nn_params_create(&params, &desc));
    nn_param_desc weight = {.name = "weight",
                            .ndim = 2,
                            .shape = {ROWS, COLUMNS},
                            .rule = NN_SHARDED,
                            .init = NN_INIT_NORMAL,
                            .std = 1};
    SUCCEEDS(nn_params_add(params, &weight, &index));
    weight.name = "other";
    weight.shape[0] = 12;
    FAILS(nn_params_add(params, &weight, &index), MIMO_ERR_ARGUMENT, "12 is not divisible by 8");
    SUCCEEDS(nn_params_seal(params));
    return params;
}

/* Sums become gradients once, and are no gradient before that. */
Test(nn_order, settled_gradients)
{
    nn_runtime runtime = fixed_runtime();
    nn_params *params = fixed_store(&runtime);
    const nn_param *weight = nn_params_at(params, 0);
    int64_t sums[COUNT];
    nn_real grad[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        sums[i] = nn_fixed_sum(0, 0.25 * (double)(i - 3));
    SUCCEEDS(nn_runtime_write(&runtime, weight->sums, sums, sizeof sums));
    FAILS(nn_params_read(params, 0, NN_GRAD, grad), MIMO_ERR_STATE, "still a sum in fixed point");
    nn_adamw rule = NN_ADAMW_INIT;
    FAILS(nn_adamw_step(&rule, params, 1), MIMO_ERR_STATE,
          "optimizer: gradients are still sums in fixed point");
    cr_assert_eq(nn_params_steps(params), 0);
    SUCCEEDS(nn_params_settle(params, 5));
    SUCCEEDS(nn_params_read(params, 0, NN_GRAD, grad));
    for (int64_t i = 0; i < COUNT; i++)
        cr_assert_eq(grad[i], (nn_real)(0.25 * (double)(i - 3) * (1.0 / 5)), "element %d", (int)i);
    FAILS(nn_params_settle(params, 5), MIMO_ERR_STATE, "settled already");
    SUCCEEDS(nn_params_zero_grad(params));
    SUCCEEDS(nn_params_settle(params, 0));
    SUCCEEDS(nn_params_read(params, 0, NN_GRAD, grad));
    cr_assert_eq(grad[COUNT - 1], 0);
    nn_params_destroy(params);
    nn_runtime_release(&runtime);
}

Test(nn_order, stores_refuse_a_tp_that_is_no_subtree)
{
    nn_runtime runtime = fixed_runtime();
    nn_params *params = NULL;
    nn_params_desc desc = {.name = "store", .tp_size = 3, .runtime = &runtime, .shards = PARTS};
    FAILS(nn_params_create(&params, &desc), MIMO_ERR_UNSUPPORTED, "tp=3 is no power of two");
    desc.tp_size = 16;
    FAILS(nn_params_create(&params, &desc), MIMO_ERR_UNSUPPORTED, "tp=16 is more than the 8");
    desc.tp_size = 2;
    desc.shards = 12;
    FAILS(nn_params_create(&params, &desc), MIMO_ERR_ARGUMENT, "V is 12");
    desc.shards = PARTS;
    desc.pairs = 3;
    FAILS(nn_params_create(&params, &desc), MIMO_ERR_ARGUMENT, "C / cp is 3");
    nn_runtime_release(&runtime);
}

Test(nn_order, linear_refuses_rows_that_are_no_samples)
{
    nn_runtime runtime = fixed_runtime();
    nn_params *params = NULL;
    nn_params_desc store = {
        .name = "store", .tp_size = 1, .runtime = &runtime, .shards = PARTS, .pairs = 2};
    nn_linear_desc desc = {.name = "up", .in = 8, .out = 8, .max_rows = 24};
    nn_linear layer;
    nn_linear_saved saved = {0}; /* it needs no room */
    SUCCEEDS(nn_params_create(&params, &store));
    SUCCEEDS(nn_linear_init(&layer, params, NULL, &desc));
    SUCCEEDS(nn_params_seal(params));
    nn_real *room = nn_test_room(24 * 8);
    SUCCEEDS(nn_linear_forward(&layer, &saved, room, room, 24, 3));
    FAILS(nn_linear_forward(&layer, &saved, room, room, 24, 5), MIMO_ERR_SHAPE,
          "24 rows are not those of 5 samples in 4 chunks each");
    FAILS(nn_linear_forward(&layer, &saved, room, room, 24, 4), MIMO_ERR_SHAPE, "in 4 chunks each");
    nn_linear_release(&layer);
    nn_params_destroy(params);
    nn_test_free_rooms();
    nn_runtime_release(&runtime);
}
