/* Partitions: goldens, random cases of every letter and dtype against a slow reference, every
 * error. The adjoint under sp needs ranks: mpi_test_partition.c. */
#include <inttypes.h>
#include <stdio.h>

#include <criterion/criterion.h>

#include <mimo/partition.h>

#include "expect_failure.h"
#include "guarded.h"
#include "slow_partition.h"
#include "cases_ran.h"
#include "same_bits.h"

typedef mimo_partition_coords place;

static mimo_partition *partition_of(const mimo_partition_rule *rule, place at)
{
    mimo_partition *partition = NULL;
    SUCCEEDS(mimo_partition_create(&partition, rule, &at));
    return partition;
}

static mimo_partition_rule sbhd(bool sp, bool strict)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = sp;
    rule.strict = strict;
    return rule;
}

static mimo_partition_rule thd(const int32_t *cu, const int32_t *cu_padded, int64_t n, bool sp)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.format = MIMO_THD;
    rule.sp = sp;
    rule.sequences = n;
    rule.cu = cu;
    rule.cu_padded = cu_padded;
    return rule;
}

/* ----------------------------------------- goldens ------------------------------------------ */

static void expect_index(const mimo_partition_rule *rule, place at, mimo_content content,
                         int64_t seq, const int64_t *expected, int64_t count)
{
    mimo_partition *partition = partition_of(rule, at);
    int64_t rows, index[64];
    SUCCEEDS(mimo_partition_rows(&rows, partition, content, seq));
    cr_assert_eq(rows, count, "%" PRId64 " rows, not %" PRId64, rows, count);
    SUCCEEDS(mimo_partition_index(index, partition, content, seq));
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(index[i], expected[i], "row %" PRId64 " is %" PRId64 ", not %" PRId64, i,
                     index[i], expected[i]);
    mimo_partition_destroy(partition);
}

Test(partition, golden_zigzag)
{
    const int64_t first[] = {0, 1, 6, 7}, second[] = {2, 3, 4, 5};
    mimo_partition_rule rule = sbhd(false, false);
    expect_index(&rule, (place){sizeof(place), 0, 2, 0, 1}, MIMO_EMBEDDINGS, 8, first, 4);
    expect_index(&rule, (place){sizeof(place), 1, 2, 0, 1}, MIMO_LABELS, 8, second, 4);
}

Test(partition, golden_sp_cuts_embeddings_only)
{
    const int64_t late[] = {6, 7}, all[] = {0, 1, 6, 7};
    mimo_partition_rule rule = sbhd(true, false);
    expect_index(&rule, (place){sizeof(place), 0, 2, 1, 2}, MIMO_EMBEDDINGS, 8, late, 2);
    expect_index(&rule, (place){sizeof(place), 0, 2, 1, 2}, MIMO_LABELS, 8, all, 4);
}

Test(partition, golden_packed)
{
    const int32_t cu[] = {0, 8, 16};
    const int64_t first[] = {0, 1, 6, 7, 8, 9, 14, 15}, second[] = {2, 3, 4, 5, 10, 11, 12, 13};
    mimo_partition_rule rule = thd(cu, NULL, 2, false);
    expect_index(&rule, (place){sizeof(place), 0, 2, 0, 1}, MIMO_EMBEDDINGS, 16, first, 8);
    expect_index(&rule, (place){sizeof(place), 1, 2, 0, 1}, MIMO_LABELS, 16, second, 8);
}

Test(partition, golden_empty_sequences_and_sentinels)
{
    const int32_t cu[] = {0, 0, 4, 4, 8, 8, 8};
    const int64_t first[] = {0, 3, 4, 7}, second[] = {1, 2, 5, 6};
    mimo_partition_rule rule = thd(cu, NULL, 6, false);
    expect_index(&rule, (place){sizeof(place), 0, 2, 0, 1}, MIMO_EMBEDDINGS, 8, first, 4);
    expect_index(&rule, (place){sizeof(place), 1, 2, 0, 1}, MIMO_EMBEDDINGS, 8, second, 4);
    const int32_t nothing[] = {0};
    rule = thd(nothing, NULL, 0, false);
    expect_index(&rule, (place){sizeof(place), 1, 2, 0, 1}, MIMO_EMBEDDINGS, 0, NULL, 0);
}

/* Lengths 3 and 5 are padded to 4 and 8. The padded lengths are split. */
Test(partition, golden_padded_lengths_drive_the_split)
{
    const int32_t cu[] = {0, 3, 8}, padded[] = {0, 4, 12};
    const int64_t first[] = {0, 3, 4, 5, 10, 11}, second[] = {1, 2, 6, 7, 8, 9};
    mimo_partition_rule rule = thd(cu, padded, 2, false);
    expect_index(&rule, (place){sizeof(place), 0, 2, 0, 1}, MIMO_EMBEDDINGS, 12, first, 6);
    expect_index(&rule, (place){sizeof(place), 1, 2, 0, 1}, MIMO_EMBEDDINGS, 12, second, 6);
}

/* Where a layer would use the rows of the pack, every document but the first stands too late. */
Test(partition, positions_begin_in_each_sequence)
{
    const int32_t cu[] = {0, 3, 3, 8}, padded[] = {0, 4, 4, 12};
    const int64_t expected[2][6] = {{0, 3, 0, 1, 6, 7}, {1, 2, 2, 3, 4, 5}};
    mimo_partition_rule rule = thd(cu, padded, 3, false);
    for (int64_t cp = 0; cp < 2; cp++) {
        mimo_partition *partition = partition_of(&rule, (place){sizeof(place), cp, 2, 0, 1});
        int64_t position[6];
        SUCCEEDS(mimo_partition_positions(position, partition, MIMO_LABELS, 12));
        EXPECT_BITS(bits_of(position, expected[cp], sizeof position, 8, 0), "packed, cp");
        FAILS(mimo_partition_positions(position, partition, MIMO_LABELS, 8), MIMO_ERR_SHAPE,
              "packed sequences have 12");
        mimo_partition_destroy(partition);
    }
    const int64_t zigzag[] = {2, 3, 4, 5};
    int64_t position[4];
    rule = sbhd(false, false);
    mimo_partition *partition = partition_of(&rule, (place){sizeof(place), 1, 2, 0, 1});
    SUCCEEDS(mimo_partition_positions(position, partition, MIMO_EMBEDDINGS, 8));
    EXPECT_BITS(bits_of(position, zigzag, sizeof position, 8, 0), "one sequence");
    FAILS(mimo_partition_positions(position, NULL, MIMO_EMBEDDINGS, 8), MIMO_ERR_ARGUMENT, "NULL");
    mimo_partition_destroy(partition);
}

Test(partition, cp_1_takes_any_length)
{
    const int64_t all[] = {0, 1, 2, 3, 4, 5, 6};
    const int32_t cu[] = {0, 3, 7};
    mimo_partition_rule rule = sbhd(false, true), packed = thd(cu, NULL, 2, false);
    expect_index(&rule, (place){sizeof(place), 0, 1, 0, 1}, MIMO_EMBEDDINGS, 7, all, 7);
    expect_index(&packed, (place){sizeof(place), 0, 1, 0, 1}, MIMO_EMBEDDINGS, 7, all, 7);
}

/* The formula of a packed row, as docs/concepts.md has it. One sequence equals zigzag. */
Test(partition, packed_formula_and_one_sequence)
{
    for (int64_t cp = 1; cp <= 8; cp++)
        for (int64_t c = 0; c < cp; c++) {
            const int32_t seq = (int32_t)(6 * cp), cu[] = {0, seq};
            int64_t zigzag[64], packed[64];
            mimo_partition_rule whole = sbhd(false, false), one = thd(cu, NULL, 1, false);
            mimo_partition *a = partition_of(&whole, (place){sizeof(place), c, cp, 0, 1});
            mimo_partition *b = partition_of(&one, (place){sizeof(place), c, cp, 0, 1});
            SUCCEEDS(mimo_partition_index(zigzag, a, MIMO_LABELS, seq));
            SUCCEEDS(mimo_partition_index(packed, b, MIMO_LABELS, seq));
            for (int64_t i = 0; i < 6; i++) {
                int64_t row = i + 3 * (i < 3 ? c : 2 * (cp - 1) - c);
                cr_assert(zigzag[i] == row && packed[i] == row,
                          "cp %" PRId64 ", rank %" PRId64 ", row %" PRId64 ": %" PRId64
                          " and %" PRId64 ", not %" PRId64,
                          cp, c, i, zigzag[i], packed[i], row);
            }
            mimo_partition_destroy(a);
            mimo_partition_destroy(b);
        }
}

/* -------------------------------------- random cases ---------------------------------------- */

enum { MAX_SEQUENCES = 40, MAX_ROWS = 1 << 10 }; /* more runs than one call of a device takes */

typedef struct random_case {
    place at;
    bool sp, packed;
    int64_t sequences;
    int32_t cu[MAX_SEQUENCES + 1];
    mimo_content content;
    int64_t rows, global[MAX_ROWS]; /* the reference's answer */
} random_case;

static random_case draw_case(uint64_t *state, bool packed, bool sp)
{
    random_case it;
    memset(&it, 0, sizeof it);
    it.at.size = sizeof it.at;
    it.at.cp_size = 1 + random_below(state, 8);
    it.at.cp_rank = random_below(state, it.at.cp_size);
    it.at.tp_size = 1 + random_below(state, 4);
    it.at.tp_rank = random_below(state, it.at.tp_size);
    it.sp = sp;
    it.packed = packed;
    it.content = random_below(state, 2) ? MIMO_EMBEDDINGS : MIMO_LABELS;
    it.sequences = packed ? random_below(state, MAX_SEQUENCES + 1) : 1;
    int64_t multiple = 2 * it.at.cp_size * (sp ? it.at.tp_size : 1);
    for (int64_t i = 0; i < it.sequences; i++)
        it.cu[i + 1] = it.cu[i] + (int32_t)(multiple * random_below(state, 4));
    int64_t tp = sp && it.content == MIMO_EMBEDDINGS ? it.at.tp_size : 1;
    slow_place slow = {it.cu,         it.sequences, it.at.cp_size,
                       it.at.cp_rank, tp,           tp > 1 ? it.at.tp_rank : 0};
    it.rows = slow_rows(it.global, &slow);
    return it;
}

static mimo_partition *partition_of_case(const random_case *it)
{
    mimo_partition_rule rule =
        it->packed ? thd(it->cu, NULL, it->sequences, it->sp) : sbhd(it->sp, false);
    return partition_of(&rule, it->at);
}

Test(partition, random_index_maps)
{
    uint64_t state = 1;
    int64_t with_rows = 0;
    for (int i = 0; i < 4000; i++) {
        random_case it = draw_case(&state, i & 1, i & 2);
        mimo_partition *partition = partition_of_case(&it);
        int64_t rows, *index = guarded_new(it.rows * 8);
        SUCCEEDS(mimo_partition_rows(&rows, partition, it.content, it.cu[it.sequences]));
        cr_assert_eq(rows, it.rows);
        SUCCEEDS(mimo_partition_index(index, partition, it.content, it.cu[it.sequences]));
        EXPECT_BITS(bits_of(index, it.global, rows * 8, 8, 0), "case %d", i);
        EXPECT_BITS(bits_of_guards(index, rows * 8), "a guard band of case %d", i);
        guarded_free(index);
        mimo_partition_destroy(partition);
        with_rows += rows > 0;
    }
    CASES_RAN(with_rows, 4000, 3000, "random maps of rows");
}

/* A tensor of the letters with random sizes. Its sequence has `rows` rows. */
static mimo_tensor draw_view(uint64_t state, const char *letters, mimo_dtype dtype, int64_t rows)
{
    mimo_tensor view = mimo_tensor_3d(NULL, dtype, letters, 1, 1, 1);
    for (int i = 0; letters[i]; i++)
        view.shape[i] = letters[i] == 's' || letters[i] == 't' ? rows : 1 + random_below(&state, 4);
    return view;
}

/* Element (o, row, r) of a view whose sequence dimension is the letter s or t. */
typedef struct walk {
    int64_t outer, rows, inner;
} walk;

static walk walk_of(const mimo_tensor *view)
{
    walk w = {1, 1, 1};
    bool before = true;
    for (int i = 0; view->letters[i]; i++) {
        if (view->letters[i] == 's' || view->letters[i] == 't') {
            w.rows = view->shape[i];
            before = false;
        } else {
            *(before ? &w.outer : &w.inner) *= view->shape[i];
        }
    }
    return w;
}

static void expect_shard(const mimo_tensor *shard, const mimo_tensor *full, const random_case *it,
                         uint64_t seed)
{
    int64_t size = (int64_t)mimo_dtype_size(full->dtype);
    walk w = walk_of(full);
    bit_report report = {.element = size, .columns = w.inner};
    for (int64_t o = 0; o < w.outer; o++)
        for (int64_t j = 0; j < it->rows; j++)
            for (int64_t r = 0; r < w.inner; r++) {
                int64_t at = (o * it->rows + j) * w.inner + r;
                int64_t from = (o * w.rows + it->global[j]) * w.inner + r;
                unsigned char expected[8];
                element_of_seed(expected, seed, from, size);
                bits_note(&report, at, (const char *)shard->data + at * size, expected);
            }
    EXPECT_BITS(report, "shard, %s", full->letters);
}

/* The full tensor has the shard's rows where this rank owns them. Everything outside is zero
 * bytes. */
static void expect_adjoint(const mimo_tensor *full, const random_case *it, uint64_t seed)
{
    int64_t size = (int64_t)mimo_dtype_size(full->dtype);
    walk w = walk_of(full);
    bit_report report = {.element = size, .columns = w.inner};
    for (int64_t o = 0; o < w.outer; o++)
        for (int64_t g = 0, j = 0; g < w.rows; g++) {
            bool mine = j < it->rows && it->global[j] == g;
            for (int64_t r = 0; r < w.inner; r++) {
                int64_t at = (o * w.rows + g) * w.inner + r;
                unsigned char expected[8] = {0};
                if (mine)
                    element_of_seed(expected, seed, (o * it->rows + j) * w.inner + r, size);
                bits_note(&report, at, (const char *)full->data + at * size, expected);
            }
            j += mine;
        }
    EXPECT_BITS(report, "full tensor, %s", full->letters);
}

/* Shards, and its adjoint where one process can compute it. True where both moved rows. */
static bool check_moves(uint64_t seed, const char *letters, mimo_dtype dtype, const random_case *it)
{
    int64_t full_count, full_bytes, shard_count, shard_bytes;
    mimo_partition *partition = partition_of_case(it);
    mimo_tensor full = draw_view(seed, letters, dtype, it->cu[it->sequences]);
    mimo_tensor shard = draw_view(seed, letters, dtype, it->rows);
    SUCCEEDS(mimo_tensor_extent(&full_count, &full_bytes, &full));
    SUCCEEDS(mimo_tensor_extent(&shard_count, &shard_bytes, &shard));
    full.data = guarded_new(full_bytes);
    shard.data = guarded_new(shard_bytes);
    fill_elements(full.data, seed, full_count, (int64_t)mimo_dtype_size(dtype));
    SUCCEEDS(mimo_partition_shard(partition, it->content, &shard, &full, NULL));
    expect_shard(&shard, &full, it, seed);
    bool alone = !it->sp || it->at.tp_size == 1 || it->content == MIMO_LABELS;
    if (alone) {
        fill_elements(shard.data, seed + 1, shard_count, (int64_t)mimo_dtype_size(dtype));
        memset(full.data, GUARD_POISON, (size_t)full_bytes);
        SUCCEEDS(mimo_partition_adjoint(partition, it->content, &full, &shard, NULL, NULL));
        expect_adjoint(&full, it, seed + 1);
    }
    EXPECT_BITS(bits_of_guards(full.data, full_bytes), "a guard band of the full tensor");
    EXPECT_BITS(bits_of_guards(shard.data, shard_bytes), "a guard band of the shard");
    guarded_free(full.data);
    guarded_free(shard.data);
    mimo_partition_destroy(partition);
    return alone && shard_count > 0;
}

Test(partition, random_moves_of_every_letter_and_dtype)
{
    static const char *const whole[] = {"sbh", "bsh", "bs", "sb", "pbs", "s", "bhs"};
    static const char *const packed[] = {"th", "t", "pt", "bth"};
    uint64_t state = 2;
    int64_t drawn = 0, both = 0;
    for (int i = 0; i < 40; i++)
        for (mimo_dtype dtype = MIMO_F32; dtype <= MIMO_F8; dtype++) {
            for (size_t l = 0; l < sizeof whole / sizeof whole[0]; l++) {
                random_case it = draw_case(&state, false, i & 1);
                both += check_moves(next_random(&state), whole[l], dtype, &it);
                drawn++;
            }
            for (size_t l = 0; l < sizeof packed / sizeof packed[0]; l++) {
                random_case it = draw_case(&state, true, i & 1);
                both += check_moves(next_random(&state), packed[l], dtype, &it);
                drawn++;
            }
        }
    CASES_RAN(both, drawn, 1800, "random moves of rows, there and back");
}

/* In whole numbers: <shard(x), y> = <x, adjoint(y)>. */
Test(partition, shard_and_adjoint_are_adjoint)
{
    enum { B = 3, H = 2 };
    uint64_t state = 3;
    for (int i = 0; i < 200; i++) {
        random_case it = draw_case(&state, false, false);
        int64_t seq = it.cu[1], n = seq * B * H, m = it.rows * B * H, left = 0, right = 0;
        int64_t *x = guarded_new(n * 8), *shard = guarded_new(m * 8);
        int64_t *y = guarded_new(m * 8), *adjoint = guarded_new(n * 8);
        for (int64_t k = 0; k < n; k++)
            x[k] = random_below(&state, 2001) - 1000;
        for (int64_t k = 0; k < m; k++)
            y[k] = random_below(&state, 2001) - 1000;
        mimo_partition *partition = partition_of_case(&it);
        mimo_tensor full = mimo_tensor_3d(x, MIMO_I64, "bsh", B, seq, H);
        mimo_tensor part = mimo_tensor_3d(shard, MIMO_I64, "bsh", B, it.rows, H);
        SUCCEEDS(mimo_partition_shard(partition, it.content, &part, &full, NULL));
        full.data = adjoint;
        part.data = y;
        SUCCEEDS(mimo_partition_adjoint(partition, it.content, &full, &part, NULL, NULL));
        for (int64_t k = 0; k < m; k++)
            left += shard[k] * y[k];
        for (int64_t k = 0; k < n; k++)
            right += x[k] * adjoint[k];
        cr_assert_eq(left, right, "%" PRId64 " and %" PRId64, left, right);
        guarded_free(x), guarded_free(y), guarded_free(shard), guarded_free(adjoint);
        mimo_partition_destroy(partition);
    }
}

/* ------------------------------------------ errors ------------------------------------------ */

static mimo_status create(const mimo_partition_rule *rule, place at)
{
    mimo_partition *partition = NULL;
    mimo_status status = mimo_partition_create(&partition, rule, &at);
    cr_assert_eq(partition == NULL, status != MIMO_OK, "a failed call made an object");
    mimo_partition_destroy(partition);
    return status;
}

Test(partition, errors_of_creation)
{
    mimo_partition *partition;
    mimo_partition_rule rule = sbhd(false, false);
    place at = {sizeof(place), 0, 1, 0, 1};
    FAILS(mimo_partition_create(NULL, &rule, &at), MIMO_ERR_ARGUMENT, "out is NULL");
    FAILS(mimo_partition_create(&partition, NULL, &at), MIMO_ERR_ARGUMENT, "rule is NULL");
    FAILS(mimo_partition_create(&partition, &rule, NULL), MIMO_ERR_ARGUMENT, "coords is NULL");
    FAILS(create(&rule, (place){sizeof(place), 2, 2, 0, 1}), MIMO_ERR_ARGUMENT, "cp rank 2",
          "size 2");
    FAILS(create(&rule, (place){sizeof(place), -1, 2, 0, 1}), MIMO_ERR_ARGUMENT, "cp rank -1");
    FAILS(create(&rule, (place){sizeof(place), 0, 0, 0, 1}), MIMO_ERR_ARGUMENT, "cp size 0");
    cr_assert_eq(create(&rule, (place){sizeof(place), 0, 1, 7, 0}), MIMO_OK,
                 "tp is not used without sp");
    rule.sp = true;
    FAILS(create(&rule, (place){sizeof(place), 0, 1, 0, 0}), MIMO_ERR_ARGUMENT, "tp size 0");
    FAILS(create(&rule, (place){sizeof(place), 0, 1, 3, 3}), MIMO_ERR_ARGUMENT, "tp rank 3",
          "size 3");
    FAILS(create(&rule, (place){0, 0, 2, 0, 1}), MIMO_ERR_ARGUMENT, "partition coordinates",
          "size is 0");
    FAILS(create(&rule, (place){12345, 0, 2, 0, 1}), MIMO_ERR_ARGUMENT, "size is 12345");
    rule.format = (mimo_sequence_format)9;
    FAILS(create(&rule, at), MIMO_ERR_ARGUMENT, "format 9");
    rule.size = 0;
    FAILS(create(&rule, at), MIMO_ERR_ARGUMENT, "size is 0");
}

/* Coordinates of an older header end before tp, which then has one rank. */
Test(partition, shorter_coordinates)
{
    int64_t rows;
    mimo_partition *partition;
    const mimo_partition_rule rule = sbhd(true, false);
    const place at = {offsetof(place, tp_rank), 1, 2, 77, 77};
    SUCCEEDS(mimo_partition_create(&partition, &rule, &at));
    SUCCEEDS(mimo_partition_rows(&rows, partition, MIMO_EMBEDDINGS, 8));
    cr_assert_eq(rows, 4);
    mimo_partition_destroy(partition);
}

Test(partition, errors_of_packed_lengths)
{
    const place cp2 = {sizeof(place), 0, 2, 0, 1}, cp1 = {sizeof(place), 0, 1, 0, 1};
    const int32_t late[] = {4, 8}, falling[] = {0, 8, 4}, odd[] = {0, 8, 14}, good[] = {0, 8, 16};
    const int32_t tight[] = {0, 8, 12}, falling_pad[] = {0, 12, 8};
    mimo_partition_rule rule = thd(late, NULL, 1, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "cu[0] is 4");
    rule = thd(falling, NULL, 2, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "sequence 1", "8, then 4");
    rule = thd(odd, NULL, 2, false);
    SUCCEEDS(create(&rule, cp1));
    FAILS(create(&rule, cp2), MIMO_ERR_SHAPE, "sequence 1 of cu", "6 rows", "= 4");
    rule = thd(good, odd, 2, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "sequence 1", "8 rows", "only 6");
    rule = thd(good, tight, 2, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "sequence 1", "8 rows", "only 4");
    rule = thd(good, falling_pad, 2, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "cu_padded", "12, then 8");
    rule = thd(good, late, 0, false);
    FAILS(create(&rule, cp1), MIMO_ERR_SHAPE, "cu_padded[0] is 4");
    rule = thd(odd, (const int32_t[]){0, 8, 18}, 2, false);
    FAILS(create(&rule, cp2), MIMO_ERR_SHAPE, "sequence 1 of cu_padded", "10 rows", "= 4");
    rule = thd(good, NULL, 2, true);
    FAILS(create(&rule, (place){sizeof(place), 0, 2, 0, 3}), MIMO_ERR_SHAPE, "16 rows", "leave 8",
          "tp 3");
    rule.strict = true;
    rule.sequences = 1;
    FAILS(create(&rule, (place){sizeof(place), 0, 2, 0, 4}), MIMO_ERR_SHAPE, "8 rows", "16",
          "strict");
    rule.strict = false;
    SUCCEEDS(create(&rule, (place){sizeof(place), 0, 2, 0, 4}));
    rule = thd(NULL, NULL, 3, false);
    FAILS(create(&rule, cp1), MIMO_ERR_ARGUMENT, "3 sequences", "cu is NULL");
    rule = thd(good, NULL, -1, false);
    FAILS(create(&rule, cp1), MIMO_ERR_ARGUMENT, "-1 sequences");
}

Test(partition, errors_of_division)
{
    const int32_t cu[] = {0, 8, 16};
    mimo_partition_rule plain = sbhd(true, false), strict = sbhd(true, true),
                        packed = thd(cu, NULL, 2, false);
    mimo_partition *p = partition_of(&plain, (place){sizeof(place), 0, 2, 0, 4});
    mimo_partition *s = partition_of(&strict, (place){sizeof(place), 0, 2, 0, 4});
    mimo_partition *t = partition_of(&packed, (place){sizeof(place), 0, 2, 0, 1});
    int64_t rows = -7, index[16] = {-7};
    FAILS(mimo_partition_rows(&rows, p, MIMO_EMBEDDINGS, 10), MIMO_ERR_SHAPE, "10 rows", "= 4");
    FAILS(mimo_partition_rows(&rows, p, MIMO_EMBEDDINGS, 12), MIMO_ERR_SHAPE, "12 rows", "leave 6",
          "tp 4");
    FAILS(mimo_partition_rows(&rows, p, MIMO_EMBEDDINGS, -8), MIMO_ERR_SHAPE, "-8");
    FAILS(mimo_partition_rows(&rows, s, MIMO_EMBEDDINGS, 8), MIMO_ERR_SHAPE, "8 rows", "16",
          "strict");
    FAILS(mimo_partition_rows(&rows, s, MIMO_LABELS, 8), MIMO_ERR_SHAPE, "strict");
    FAILS(mimo_partition_rows(&rows, t, MIMO_LABELS, 8), MIMO_ERR_SHAPE, "8 rows", "have 16");
    FAILS(mimo_partition_rows(&rows, t, (mimo_content)5, 16), MIMO_ERR_ARGUMENT, "content 5");
    FAILS(mimo_partition_rows(&rows, NULL, MIMO_LABELS, 16), MIMO_ERR_ARGUMENT, "partition");
    FAILS(mimo_partition_rows(NULL, t, MIMO_LABELS, 16), MIMO_ERR_ARGUMENT, "rows is NULL");
    FAILS(mimo_partition_index(index, p, MIMO_EMBEDDINGS, 12), MIMO_ERR_SHAPE, "leave 6");
    FAILS(mimo_partition_index(NULL, t, MIMO_LABELS, 16), MIMO_ERR_ARGUMENT, "NULL for 8 rows");
    FAILS(mimo_partition_index(index, NULL, MIMO_LABELS, 16), MIMO_ERR_ARGUMENT, "NULL");
    cr_assert(rows == -7 && index[0] == -7, "a failed call wrote its output");
    SUCCEEDS(mimo_partition_rows(&rows, p, MIMO_LABELS, 12));
    cr_assert_eq(rows, 6, "labels are not cut by sp");
    mimo_partition_destroy(p);
    mimo_partition_destroy(s);
    mimo_partition_destroy(t);
}

Test(partition, errors_of_views)
{
    float full[8 * 3 * 2], shard[4 * 3 * 2];
    mimo_partition_rule rule = sbhd(false, false);
    mimo_partition *p = partition_of(&rule, (place){sizeof(place), 1, 2, 0, 1});
    const mimo_tensor from = mimo_tensor_3d(full, MIMO_F32, "sbh", 8, 3, 2);
    const mimo_tensor good = mimo_tensor_3d(shard, MIMO_F32, "sbh", 4, 3, 2);
    mimo_tensor to = good, other = from;
#define SHARD(to, from) mimo_partition_shard(p, MIMO_EMBEDDINGS, &(to), &(from), NULL)
    memset(shard, GUARD_POISON, sizeof shard);
    to.shape[0] = 5;
    FAILS(SHARD(to, from), MIMO_ERR_SHAPE, "f32 sbh[8,3,2]", "f32 sbh[5,3,2]", "has 5",
          "must have 4");
    to = good, to.shape[1] = 2;
    FAILS(SHARD(to, from), MIMO_ERR_SHAPE, "sbh[8,3,2]", "sbh[4,2,2]", "another dimension");
    to = good, to.dtype = MIMO_I32;
    FAILS(SHARD(to, from), MIMO_ERR_SHAPE, "f32 sbh", "i32 sbh", "dtypes");
    to = good, memcpy(to.letters, "bsh", 3);
    FAILS(SHARD(to, from), MIMO_ERR_SHAPE, "sbh[8,3,2]", "bsh[4,3,2]", "letters");
    to = good, to.memory = MIMO_MEMORY_CUDA;
    FAILS(SHARD(to, from), MIMO_ERR_SHAPE, "memory");
    to = good, other.memory = to.memory = (mimo_memory)3;
    FAILS(SHARD(to, other), MIMO_ERR_ARGUMENT, "kind 3");
    to = good, to.data = NULL;
    FAILS(SHARD(to, from), MIMO_ERR_ARGUMENT, "shard's data is NULL", "96 bytes");
    other = from, other.data = NULL;
    FAILS(SHARD(good, other), MIMO_ERR_ARGUMENT, "full tensor's data is NULL", "192 bytes");
    to = good, to.data = full + 47;
    FAILS(SHARD(to, from), MIMO_ERR_ARGUMENT, "192 bytes", "96 bytes", "overlap");
    other = from, other.data = shard + 23;
    FAILS(SHARD(good, other), MIMO_ERR_ARGUMENT, "overlap");
    to = good, other = from, to.dtype = other.dtype = (mimo_dtype)77;
    FAILS(SHARD(to, other), MIMO_ERR_ARGUMENT, "dtype 77");
    other = from, other.shape[0] = 10;
    FAILS(SHARD(good, other), MIMO_ERR_SHAPE, "sbh[10,3,2]", "10 rows", "= 4");
    to = mimo_tensor_2d(shard, MIMO_F32, "th", 4, 6);
    other = mimo_tensor_2d(full, MIMO_F32, "th", 8, 6);
    FAILS(SHARD(to, other), MIMO_ERR_SHAPE, "th[8,6]", "'s'");
    /* A dense attention mask has the sequence twice, so one map can't split it. */
    to = mimo_tensor_3d(shard, MIMO_F32, "bss", 1, 4, 4);
    other = mimo_tensor_3d(full, MIMO_F32, "bss", 1, 4, 4);
    FAILS(SHARD(to, other), MIMO_ERR_SHAPE, "bss[1,4,4]", "'s' twice");
    FAILS(mimo_partition_shard(NULL, MIMO_LABELS, &good, &from, NULL), MIMO_ERR_ARGUMENT, "NULL");
    FAILS(mimo_partition_shard(p, MIMO_LABELS, NULL, &from, NULL), MIMO_ERR_ARGUMENT, "view");
    FAILS(mimo_partition_adjoint(p, MIMO_LABELS, &good, &from, NULL, NULL), MIMO_ERR_SHAPE,
          "full f32 sbh[4,3,2]", "shard f32 sbh[8,3,2]", "must have 2");
    FAILS(mimo_partition_adjoint(NULL, MIMO_LABELS, &from, &good, NULL, NULL), MIMO_ERR_ARGUMENT,
          "partition is NULL");
    EXPECT_BITS(bits_of_poison(shard, 0, sizeof shard), "written by a failed call");
    mimo_partition_destroy(p);
    rule.sp = true;
    p = partition_of(&rule, (place){sizeof(place), 1, 2, 0, 2});
    FAILS(mimo_partition_adjoint(p, MIMO_EMBEDDINGS, &from, &good, NULL, NULL), MIMO_ERR_ARGUMENT,
          "tp 2", "communicator");
    mimo_partition_destroy(p);
    mimo_partition_destroy(NULL);
}

/* ------------------------------------------ padding ----------------------------------------- */

Test(partition, pad)
{
    const int32_t lengths[] = {3, 0, 8, 9}, expected[] = {0, 4, 4, 12, 24};
    const int32_t negative[] = {4, -2}, huge[] = {INT32_MAX, 1};
    int32_t cu[5];
    SUCCEEDS(mimo_partition_pad(cu, lengths, 4, 4));
    EXPECT_BITS(bits_of(cu, expected, sizeof cu, sizeof *cu, 0), "padded lengths");
    SUCCEEDS(mimo_partition_pad(cu, NULL, 0, 4));
    memset(cu, GUARD_POISON, sizeof cu);
    FAILS(mimo_partition_pad(cu, negative, 2, 4), MIMO_ERR_ARGUMENT, "sequence 1", "-2");
    FAILS(mimo_partition_pad(cu, lengths, 2, 0), MIMO_ERR_ARGUMENT, "multiple 0");
    FAILS(mimo_partition_pad(cu, lengths, -2, 4), MIMO_ERR_ARGUMENT, "-2 sequences");
    FAILS(mimo_partition_pad(cu, huge, 2, 1), MIMO_ERR_OVERFLOW, "2147483648", "sequence 1");
    FAILS(mimo_partition_pad(cu, huge, 1, 4), MIMO_ERR_OVERFLOW, "2147483648", "sequence 0");
    FAILS(mimo_partition_pad(cu, NULL, 2, 4), MIMO_ERR_ARGUMENT, "lengths is NULL");
    FAILS(mimo_partition_pad(NULL, lengths, 2, 4), MIMO_ERR_ARGUMENT, "cu_padded is NULL");
    EXPECT_BITS(bits_of_poison(cu, 0, sizeof cu), "written by a failed call");
}

Test(padding, rows_go_to_their_padded_places)
{
    const int32_t lengths[] = {3, 0, 4, 1};
    const int32_t cu[] = {0, 3, 3, 7, 8};
    const int64_t tokens[] = {11, 12, 13, 21, 22, 23, 24, 31};
    const int64_t expected[] = {11, 12, 13, -100, 21, 22, 23, 24, 31, -100, -100, -100};
    int32_t padded[5];
    int64_t out[12];
    memset(out, 0x5a, sizeof out);
    SUCCEEDS(mimo_partition_pad(padded, lengths, 4, 4));
    mimo_tensor to = mimo_tensor_2d(out, MIMO_I64, "t", 12, 1);
    mimo_tensor from = mimo_tensor_2d((void *)tokens, MIMO_I64, "t", 8, 1);
    SUCCEEDS(mimo_partition_pad_rows(&to, &from, cu, padded, 4, -100));
    EXPECT_BITS(bits_of(out, expected, sizeof expected, sizeof *out, 0), "padded rows");

    char odd_out[sizeof out + 1], odd_tokens[sizeof tokens + 1];
    memcpy(odd_tokens + 1, tokens, sizeof tokens);
    mimo_tensor odd_to = to, odd_from = from;
    odd_to.data = odd_out + 1;
    odd_from.data = odd_tokens + 1;
    SUCCEEDS(mimo_partition_pad_rows(&odd_to, &odd_from, cu, padded, 4, -100));
    EXPECT_BITS(bits_of(odd_out + 1, expected, sizeof expected, 8, 0), "at odd addresses");

    mimo_tensor narrow = mimo_tensor_2d(out, MIMO_I64, "t", 11, 1);
    FAILS(mimo_partition_pad_rows(&narrow, &from, cu, padded, 4, 0), MIMO_ERR_SHAPE,
          "to is i64 t[11], the lengths need t[12]");
    mimo_tensor other = mimo_tensor_2d(out, MIMO_I32, "t", 12, 1);
    cr_assert_eq(mimo_partition_pad_rows(&other, &from, cu, padded, 4, 0), MIMO_ERR_SHAPE);
    FAILS(mimo_partition_pad_rows(&to, &from, padded, cu, 4, 0), MIMO_ERR_SHAPE,
          "sequence 0 has rows 0 to 4 and padded rows 0 to 3");
    padded[0] = 1;
    FAILS(mimo_partition_pad_rows(&to, &from, cu, padded, 4, 0), MIMO_ERR_SHAPE,
          "begin at 0 and 1");
}

/* The last token of a sequence has no next one: what follows in the pack is another document. */
Test(padding, labels_are_shifted_within_their_sequences)
{
    const int32_t cu[] = {0, 3, 3, 4, 8};
    const int64_t tokens[] = {11, 12, 13, 21, 31, 32, 33, -100};
    const int64_t expected[] = {12, 13, -100, -100, 32, 33, -100, -100};
    int64_t out[8];
    mimo_tensor to = mimo_tensor_2d(out, MIMO_I64, "t", 8, 1);
    mimo_tensor from = mimo_tensor_2d((void *)tokens, MIMO_I64, "t", 8, 1);
    SUCCEEDS(mimo_partition_shift_labels(&to, &from, cu, 4, -100));
    EXPECT_BITS(bits_of(out, expected, sizeof expected, sizeof *out, 0), "shifted");
    memcpy(out, tokens, sizeof out);
    SUCCEEDS(mimo_partition_shift_labels(&to, &to, cu, 4, -100));
    EXPECT_BITS(bits_of(out, expected, sizeof expected, sizeof *out, 0), "in place");
    const int32_t other[] = {0, 3, 2, 8};
    mimo_tensor narrow = mimo_tensor_2d(out, MIMO_I32, "t", 8, 1);
    FAILS(mimo_partition_shift_labels(&to, &from, NULL, 4, 0), MIMO_ERR_ARGUMENT, "cu is NULL");
    FAILS(mimo_partition_shift_labels(&to, &from, cu, -1, 0), MIMO_ERR_ARGUMENT, "-1 sequences");
    FAILS(mimo_partition_shift_labels(&to, &from, other, 3, 0), MIMO_ERR_SHAPE, "decreases");
    FAILS(mimo_partition_shift_labels(&to, &from, cu, 3, 0), MIMO_ERR_SHAPE, "to is i64 t[8]");
    FAILS(mimo_partition_shift_labels(&narrow, &from, cu, 4, 0), MIMO_ERR_SHAPE, "i32", "i64");
    FAILS(mimo_partition_shift_labels(&narrow, &narrow, cu, 4, INT64_C(1) << 31), MIMO_ERR_ARGUMENT,
          "does not fit i32");
    EXPECT_BITS(bits_of(out, expected, sizeof expected, sizeof *out, 0), "a failed call wrote");
}

Test(padding, arguments_that_are_missing)
{
    const int32_t cu[] = {0, 1}, padded[] = {0, 2};
    int64_t out[] = {7, 7}, token = 5;
    const mimo_tensor to = mimo_tensor_2d(out, MIMO_I64, "t", 2, 1);
    const mimo_tensor from = mimo_tensor_2d(&token, MIMO_I64, "t", 1, 1);
    mimo_tensor bad = from;
#define PAD(to, from, cu, padded, n) mimo_partition_pad_rows(to, from, cu, padded, n, 0)
    FAILS(PAD(NULL, &from, cu, padded, 1), MIMO_ERR_ARGUMENT, "pad_rows: to is NULL");
    FAILS(PAD(&to, NULL, cu, padded, 1), MIMO_ERR_ARGUMENT, "pad_rows: from is NULL");
    FAILS(PAD(&to, &from, NULL, padded, 1), MIMO_ERR_ARGUMENT, "pad_rows: cu is NULL");
    FAILS(PAD(&to, &from, cu, NULL, 1), MIMO_ERR_ARGUMENT, "pad_rows: cu_padded is NULL");
    FAILS(PAD(&to, &from, cu, padded, -1), MIMO_ERR_ARGUMENT, "-1 sequences");
    bad.data = NULL;
    FAILS(PAD(&to, &bad, cu, padded, 1), MIMO_ERR_ARGUMENT, "from i64 t[1]", "or NULL");
    bad = from, bad.memory = MIMO_MEMORY_CUDA;
    FAILS(PAD(&to, &bad, cu, padded, 1), MIMO_ERR_ARGUMENT, "from i64 t[1]", "not in host memory");
#undef PAD
    cr_assert(out[0] == 7 && out[1] == 7, "a failed call wrote");
}

Test(padding, fills_that_an_i32_holds)
{
    const int32_t cu[] = {0, 0}, padded[] = {0, 1};
    int32_t out = 7;
    mimo_tensor to = mimo_tensor_2d(&out, MIMO_I32, "t", 1, 1);
    mimo_tensor from = mimo_tensor_2d(NULL, MIMO_I32, "t", 0, 1);
    for (int64_t edge = 0; edge < 2; edge++) {
        int64_t fill = edge ? INT32_MAX : INT32_MIN, past = edge ? fill + 1 : fill - 1;
        SUCCEEDS(mimo_partition_pad_rows(&to, &from, cu, padded, 1, fill));
        cr_assert_eq(out, fill);
        FAILS(mimo_partition_pad_rows(&to, &from, cu, padded, 1, past), MIMO_ERR_ARGUMENT,
              "does not fit i32");
        cr_assert_eq(out, fill, "a failed call wrote");
    }
}
