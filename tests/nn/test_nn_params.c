/* The store: initial values on any topology, order and buckets, refusals; AdamW. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/nn/params/nn_initial.h"
#include "nn_gradient_check.h"
#include "same_bits.h"

enum { ROWS = 8, COLUMNS = 12 };

static int add(nn_params *params, const char *name, nn_rule rule, int shard_dim)
{
    int index = -1;
    nn_param_desc desc = {.name = name,
                          .ndim = 2,
                          .shape = {ROWS, COLUMNS},
                          .rule = rule,
                          .shard_dim = shard_dim,
                          .decay = true,
                          .init = NN_INIT_NORMAL,
                          .std = 0.5};
    SUCCEEDS(nn_params_add(params, &desc, &index));
    return index;
}

/* Every element of a shard is the element of the whole, at its global index. */
static void compare_shard(const nn_params *part, int index, const nn_params *whole)
{
    nn_real mine[ROWS * COLUMNS], all[ROWS * COLUMNS];
    const nn_param *p = nn_params_at(part, index);
    int64_t row0 = p->placement.cut == 0 ? p->start : 0;
    int64_t column0 = p->placement.cut == 1 ? p->start : 0;
    SUCCEEDS(nn_params_read(part, index, NN_VALUE, mine));
    SUCCEEDS(nn_params_read(whole, nn_params_find(whole, p->name), NN_VALUE, all));
    for (int64_t r = 0; r < p->local[0]; r++)
        for (int64_t c = 0; c < p->local[1]; c++)
            cr_assert_eq(mine[r * p->local[1] + c], all[(row0 + r) * COLUMNS + column0 + c],
                         "%s, tp %d of %d, row %lld, column %lld", p->name, nn_params_tp_rank(part),
                         nn_params_tp_size(part), (long long)r, (long long)c);
}

Test(nn_params, initial_values_do_not_depend_on_the_topology)
{
    nn_params *whole = nn_test_store(0, 1);
    add(whole, "by_rows", NN_SHARDED, 0);
    add(whole, "by_columns", NN_SHARDED, 1);
    add(whole, "replicated", NN_REPLICATED, 0);
    SUCCEEDS(nn_params_seal(whole));
    for (int size = 2; size <= 4; size += 2)
        for (int rank = 0; rank < size; rank++) {
            nn_params *part = nn_test_store(rank, size);
            add(part, "replicated", NN_REPLICATED, 0); /* parameters may be added in any order */
            add(part, "by_columns", NN_SHARDED, 1);
            add(part, "by_rows", NN_SHARDED, 0);
            SUCCEEDS(nn_params_seal(part));
            for (int i = 0; i < 3; i++) {
                cr_assert_eq(nn_params_at(part, i)->count, i == 0 ? 96 : 96 / size);
                compare_shard(part, i, whole);
            }
            nn_params_destroy(part);
        }
    nn_params_destroy(whole);
}

/* All parts of a parameter are written and read back, and no two parts are mixed up. */
Test(nn_params, parts_are_written_and_read)
{
    static const nn_part parts[] = {NN_VALUE, NN_GRAD, NN_MOMENT_M, NN_MOMENT_V};
    static const char *const names[] = {"value", "grad", "m", "v"};
    nn_params *params = nn_test_store(0, 1);
    nn_real sent[ROWS * COLUMNS], got[ROWS * COLUMNS];
    add(params, "first", NN_REPLICATED, 0);
    int index = add(params, "second", NN_REPLICATED, 0);
    FAILS(nn_params_read(params, index, NN_VALUE, got), MIMO_ERR_STATE, "not sealed");
    SUCCEEDS(nn_params_seal(params));
    for (int p = 0; p < 4; p++) {
        nn_test_fill(sent, ROWS * COLUMNS, names[p]);
        SUCCEEDS(nn_params_write(params, index, parts[p], sent));
    }
    for (int p = 0; p < 4; p++) {
        nn_test_fill(sent, ROWS * COLUMNS, names[p]);
        SUCCEEDS(nn_params_read(params, index, parts[p], got));
        EXPECT_BITS(bits_of(got, sent, sizeof got, sizeof *got, COLUMNS), "%s", names[p]);
    }
    FAILS(nn_params_read(params, 2, NN_VALUE, got), MIMO_ERR_ARGUMENT,
          "parameter 2 of a store of 2");
    FAILS(nn_params_write(params, 0, (nn_part)4, got), MIMO_ERR_ARGUMENT, "no part 4");
    nn_params_destroy(params);
}

Test(nn_params, normal_numbers_are_normal_and_keyed)
{
    enum { COUNT = 20000 };
    double sum = 0, squares = 0, neighbours = 0, previous = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double x = nn_normal(1, "a", i);
        sum += x;
        squares += x * x;
        neighbours += x * previous;
        previous = x;
    }
    cr_assert(fabs(sum / COUNT) < 0.03, "mean %g", sum / COUNT);
    cr_assert(fabs(squares / COUNT - 1) < 0.04, "variance %g", squares / COUNT);
    cr_assert(fabs(neighbours / COUNT) < 0.03, "neighbours %g", neighbours / COUNT);
    cr_assert_neq(nn_normal(1, "a", 0), nn_normal(2, "a", 0));
    cr_assert_neq(nn_normal(1, "a", 0), nn_normal(1, "b", 0));
}

Test(nn_params, arenas_hold_one_rule_after_the_other)
{
    nn_params *params = nn_test_store(0, 2);
    const mimo_gradient_bucket *buckets;
    int n;
    FAILS(nn_params_buckets(params, &buckets, &n), MIMO_ERR_STATE, "not sealed");
    int a = add(params, "a", NN_SHARDED, 0), b = add(params, "b", NN_REPLICATED, 0);
    int c = add(params, "c", NN_PARTIAL, 0), d = add(params, "d", NN_SHARDED, 1);
    SUCCEEDS(nn_params_seal(params));
    SUCCEEDS(nn_params_buckets(params, &buckets, &n));
    cr_assert_eq(n, 3);
    static const char *const names[] = {"test.replicated", "test.sharded", "test.partial"};
    static const int64_t counts[] = {96, 96, 96};
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(buckets[i].name, names[i]);
        cr_assert_eq(buckets[i].count, counts[i]);
        cr_assert_eq(buckets[i].dtype, NN_DTYPE);
        cr_assert_eq(buckets[i].module, MIMO_DST);
        cr_assert_str_eq(buckets[i].shard, i == 1 ? "tp" : "");
        cr_assert_str_eq(buckets[i].partial, i == 2 ? "tp" : "");
    }
    cr_assert_eq(buckets[0].grad, (void *)nn_params_at(params, b)->grad);
    cr_assert_eq(buckets[1].grad, (void *)nn_params_at(params, a)->grad);
    cr_assert_eq(nn_params_at(params, d)->grad, nn_params_at(params, a)->grad + 48);
    cr_assert_eq(buckets[2].grad, (void *)nn_params_at(params, c)->grad);
    nn_real before[48], after[48], grad[96] = {[95] = 1};
    SUCCEEDS(nn_params_read(params, a, NN_VALUE, before));
    SUCCEEDS(nn_params_write(params, b, NN_GRAD, grad));
    SUCCEEDS(nn_params_zero_grad(params));
    SUCCEEDS(nn_params_read(params, a, NN_VALUE, after));
    SUCCEEDS(nn_params_read(params, b, NN_GRAD, grad));
    cr_assert_eq(grad[95], 0);
    EXPECT_BITS(bits_of(after, before, sizeof before, sizeof *before, 0), "values");
    nn_params_destroy(params);
}

/* Every stage lists all, and holds its own: the same buckets on each, also where they are empty. */
Test(nn_params, stages_have_the_same_buckets)
{
    for (int stage = 0; stage < 3; stage++) {
        nn_params *params = NULL;
        const mimo_gradient_bucket *buckets;
        int n;
        nn_params_desc store = {.name = "test",
                                .module = MIMO_DST,
                                .tp_size = 2,
                                .pp_rank = stage,
                                .pp_size = 3,
                                .runtime = nn_test_runtime()};
        SUCCEEDS(nn_params_create(&params, &store));
        int a = add(params, "a", NN_SHARDED, 0), b = add(params, "b", NN_REPLICATED, 0);
        SUCCEEDS(nn_params_set_stage(params, 2));
        int c = add(params, "c", NN_SHARDED, 1);
        SUCCEEDS(nn_params_seal(params));
        SUCCEEDS(nn_params_buckets(params, &buckets, &n));
        cr_assert_eq(n, 2, "no bucket of a rule that no stage has");
        cr_assert_str_eq(buckets[0].shard, "pp");
        cr_assert_str_eq(buckets[1].shard, "tp,pp");
        cr_assert_eq(buckets[0].count, stage == 0 ? 96 : 0);
        cr_assert_eq(buckets[1].count, stage == 1 ? 0 : 48);
        cr_assert_eq(nn_params_at(params, a)->held, stage == 0);
        cr_assert_eq(nn_params_at(params, b)->value != NULL, stage == 0);
        cr_assert_eq(nn_params_at(params, c)->count, stage == 2 ? 48 : 0);
        cr_assert(nn_params_trainable(params));
        nn_params_destroy(params);
    }
}

Test(nn_params, refuses)
{
    nn_params *params = NULL;
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_rank = 3,
                            .tp_size = 3,
                            .seed = 7,
                            .runtime = nn_test_runtime()};
    FAILS(nn_params_create(&params, &store), MIMO_ERR_ARGUMENT, "tp rank 3 of 3");
    store.tp_rank = 0;
    store.pp_rank = 1;
    FAILS(nn_params_create(&params, &store), MIMO_ERR_ARGUMENT, "stage 1 of 1");
    params = nn_test_store(0, 5);
    nn_param_desc desc = {.name = "w", .ndim = 2, .shape = {8, 10}, .rule = NN_SHARDED};
    int index = -7;
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "8 is not divisible by 5");
    desc.shard_dim = 2;
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "shard dimension 2 of 2");
    desc.shard_dim = 1;
    desc.ndim = 3;
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "3 dimensions");
    desc.ndim = 2;
    desc.shape[0] = 0;
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "shape[0] is 0");
    desc.shape[0] = 8;
    cr_assert_eq(index, -7, "outputs stay untouched");
    SUCCEEDS(nn_params_add(params, &desc, &index));
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_EXISTS, "\"w\"");
    SUCCEEDS(nn_params_seal(params));
    FAILS(nn_params_seal(params), MIMO_ERR_STATE, "sealed already");
    desc.name = "u";
    FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_STATE, "sealed");
    cr_assert_eq(nn_params_find(params, "u"), -1);
    nn_params_destroy(params);
}

typedef struct element {
    double value, m, v;
} element;

/* One element, by the textbook formula. */
static void reference_step(element *e, const nn_adamw *rule, double g, bool decay, int t)
{
    e->m = rule->beta1 * e->m + (1 - rule->beta1) * g;
    e->v = rule->beta2 * e->v + (1 - rule->beta2) * g * g;
    double m_hat = e->m / (1 - pow(rule->beta1, t)), v_hat = e->v / (1 - pow(rule->beta2, t));
    e->value -=
        rule->lr * (m_hat / (sqrt(v_hat) + rule->epsilon) + (decay ? rule->decay : 0) * e->value);
}

enum { N = 6, STEPS = 7 };

/* Two parameters, of which the second decays. */
static nn_params *make_two(void)
{
    nn_params *params = nn_test_store(0, 1);
    for (int i = 0; i < 2; i++) {
        nn_param_desc desc = {.name = i ? "decays" : "stays",
                              .ndim = 1,
                              .shape = {N},
                              .decay = i == 1,
                              .init = NN_INIT_NORMAL,
                              .std = 1};
        int index;
        SUCCEEDS(nn_params_add(params, &desc, &index));
    }
    SUCCEEDS(nn_params_seal(params));
    return params;
}

static void compare_elements(const nn_params *params, int index, const element *expected, int t)
{
    nn_real value[N];
    SUCCEEDS(nn_params_read(params, index, NN_VALUE, value));
    for (int j = 0; j < N; j++)
        cr_assert_float_eq((double)value[j], expected[j].value, 1e-12, "step %d, parameter %d[%d]",
                           t, index, j);
}

Test(nn_adamw, equals_the_textbook_over_several_steps)
{
    nn_params *params = make_two();
    nn_adamw rule = NN_ADAMW_INIT;
    rule.lr = 0.05;
    rule.decay = 0.3;
    rule.clip = 1.5;
    element expected[2][N] = {{{0}}};
    nn_real numbers[N];
    for (int i = 0; i < 2; i++) {
        SUCCEEDS(nn_params_read(params, i, NN_VALUE, numbers));
        for (int j = 0; j < N; j++)
            expected[i][j].value = (double)numbers[j];
    }
    for (int t = 1; t <= STEPS; t++) {
        double norm = t % 2 ? 4.0 : 0.5; /* clipped in one step, not in the next */
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < N; j++) {
                double g = nn_normal(3, i ? "g1" : "g0", t * N + j);
                numbers[j] = (nn_real)g;
                reference_step(&expected[i][j], &rule, g * (t % 2 ? 1.5 / 4.0 : 1), i == 1, t);
            }
            SUCCEEDS(nn_params_write(params, i, NN_GRAD, numbers));
        }
        SUCCEEDS(nn_adamw_step(&rule, params, norm));
        cr_assert_eq(nn_params_steps(params), t);
        for (int i = 0; i < 2; i++)
            compare_elements(params, i, expected[i], t);
    }
    nn_params_destroy(params);
}

Test(nn_adamw, refuses)
{
    nn_params *params = nn_test_store(0, 1);
    nn_adamw rule = NN_ADAMW_INIT;
    FAILS(nn_adamw_step(&rule, params, 1), MIMO_ERR_STATE, "not sealed");
    add(params, "w", NN_REPLICATED, 0);
    SUCCEEDS(nn_params_seal(params));
    nn_real before[ROWS * COLUMNS], after[ROWS * COLUMNS], grad[ROWS * COLUMNS] = {1};
    SUCCEEDS(nn_params_read(params, 0, NN_VALUE, before));
    SUCCEEDS(nn_params_write(params, 0, NN_GRAD, grad));
    FAILS(nn_adamw_step(&rule, params, NAN), MIMO_ERR_ARGUMENT, "nan");
    FAILS(nn_adamw_step(&rule, params, -1), MIMO_ERR_ARGUMENT, "-1");
    SUCCEEDS(nn_params_read(params, 0, NN_VALUE, after));
    EXPECT_BITS(bits_of(after, before, sizeof before, sizeof *before, COLUMNS), "values");
    cr_assert_eq(nn_params_steps(params), 0);
    nn_params_destroy(params);
}
