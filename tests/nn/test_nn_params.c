/* The store: initial values on any topology, order and spans, refusals; AdamW. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn_gradient_check.h"

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
    NN_OK(nn_params_add(params, &desc, &index));
    return index;
}

/* Every element of every shard is the element of the whole, at its global index. */
Test(nn_params, initial_values_do_not_depend_on_the_topology)
{
    nn_params *whole = nn_test_store(0, 1);
    add(whole, "by_rows", NN_SHARDED, 0);
    add(whole, "by_columns", NN_SHARDED, 1);
    add(whole, "replicated", NN_REPLICATED, 0);
    NN_OK(nn_params_seal(whole));
    for (int size = 2; size <= 4; size += 2)
        for (int rank = 0; rank < size; rank++) {
            nn_params *part = nn_test_store(rank, size);
            add(part, "replicated", NN_REPLICATED, 0); /* the order of adding plays no part */
            add(part, "by_columns", NN_SHARDED, 1);
            add(part, "by_rows", NN_SHARDED, 0);
            NN_OK(nn_params_seal(part));
            for (int i = 0; i < 3; i++) {
                const nn_param *p = nn_params_at(part, i);
                const nn_param *w = nn_params_at(whole, nn_params_find(whole, p->name));
                int64_t row0 = p->shard_dim == 0 ? p->start : 0;
                int64_t column0 = p->shard_dim == 1 ? p->start : 0;
                cr_assert_eq(p->count, i == 0 ? 96 : 96 / size);
                for (int64_t r = 0; r < p->local[0]; r++)
                    for (int64_t c = 0; c < p->local[1]; c++)
                        cr_assert_eq(p->value[r * p->local[1] + c],
                                     w->value[(row0 + r) * COLUMNS + column0 + c],
                                     "%s, tp %d of %d, row %lld, column %lld", p->name, rank, size,
                                     (long long)r, (long long)c);
            }
            nn_params_destroy(part);
        }
    nn_params_destroy(whole);
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
    const mimo_gradient_span *spans;
    int n;
    NN_FAILS(nn_params_spans(params, &spans, &n), MIMO_ERR_STATE, "not sealed");
    int a = add(params, "a", NN_SHARDED, 0), b = add(params, "b", NN_REPLICATED, 0);
    int c = add(params, "c", NN_PARTIAL, 0), d = add(params, "d", NN_SHARDED, 1);
    NN_OK(nn_params_seal(params));
    NN_OK(nn_params_spans(params, &spans, &n));
    cr_assert_eq(n, 3);
    static const char *const names[] = {"test.replicated", "test.sharded", "test.partial"};
    static const int64_t counts[] = {96, 96, 96};
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(spans[i].name, names[i]);
        cr_assert_eq(spans[i].count, counts[i]);
        cr_assert_eq(spans[i].dtype, NN_DTYPE);
        cr_assert_eq(spans[i].module, MIMO_DST);
        cr_assert_str_eq(spans[i].shard, i == 1 ? "tp" : "");
        cr_assert_str_eq(spans[i].partial, i == 2 ? "tp" : "");
    }
    cr_assert_eq(spans[0].grad, (void *)nn_params_at(params, b)->grad);
    cr_assert_eq(spans[1].grad, (void *)nn_params_at(params, a)->grad);
    cr_assert_eq(nn_params_at(params, d)->grad, nn_params_at(params, a)->grad + 48);
    cr_assert_eq(spans[2].grad, (void *)nn_params_at(params, c)->grad);
    for (int i = 0; i < 96; i++)
        nn_params_at(params, b)->grad[i] = 1;
    nn_real first = nn_params_at(params, a)->value[0];
    NN_OK(nn_params_zero_grad(params));
    cr_assert(nn_params_at(params, b)->grad[95] == 0 && nn_params_at(params, a)->value[0] == first);
    nn_params_destroy(params);
}

Test(nn_params, refuses)
{
    nn_params *params = NULL;
    nn_params_desc store = {"test", MIMO_DST, 3, 3, 7, NULL};
    NN_FAILS(nn_params_create(&params, &store), MIMO_ERR_ARGUMENT, "tp rank 3 of 3");
    params = nn_test_store(0, 5);
    nn_param_desc desc = {.name = "w", .ndim = 2, .shape = {8, 10}, .rule = NN_SHARDED};
    int index = -7;
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "8 is not divisible by 5");
    desc.shard_dim = 2;
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "shard dimension 2 of 2");
    desc.shard_dim = 1;
    desc.ndim = 3;
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "3 dimensions");
    desc.ndim = 2;
    desc.shape[0] = 0;
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_ARGUMENT, "shape[0] is 0");
    desc.shape[0] = 8;
    cr_assert_eq(index, -7, "outputs stay untouched");
    NN_OK(nn_params_add(params, &desc, &index));
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_EXISTS, "\"w\"");
    NN_OK(nn_params_seal(params));
    NN_FAILS(nn_params_seal(params), MIMO_ERR_STATE, "sealed already");
    desc.name = "u";
    NN_FAILS(nn_params_add(params, &desc, &index), MIMO_ERR_STATE, "sealed");
    cr_assert_eq(nn_params_find(params, "u"), -1);
    nn_params_destroy(params);
}

typedef struct element {
    double value, m, v;
} element;

/* One element by the textbook. */
static void reference_step(element *e, const nn_adamw *rule, double g, bool decay, int t)
{
    e->m = rule->beta1 * e->m + (1 - rule->beta1) * g;
    e->v = rule->beta2 * e->v + (1 - rule->beta2) * g * g;
    double m_hat = e->m / (1 - pow(rule->beta1, t)), v_hat = e->v / (1 - pow(rule->beta2, t));
    e->value -=
        rule->lr * (m_hat / (sqrt(v_hat) + rule->epsilon) + (decay ? rule->decay : 0) * e->value);
}

Test(nn_adamw, equals_the_textbook_over_several_steps)
{
    enum { N = 6, STEPS = 7 };
    nn_params *params = nn_test_store(0, 1);
    nn_adamw rule = NN_ADAMW_INIT;
    rule.lr = 0.05;
    rule.decay = 0.3;
    rule.clip = 1.5;
    element expected[2][N] = {{{0}}};
    for (int i = 0; i < 2; i++) {
        nn_param_desc desc = {.name = i ? "decays" : "stays",
                              .ndim = 1,
                              .shape = {N},
                              .decay = i == 1,
                              .init = NN_INIT_NORMAL,
                              .std = 1};
        int index;
        NN_OK(nn_params_add(params, &desc, &index));
    }
    NN_OK(nn_params_seal(params));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < N; j++)
            expected[i][j].value = (double)nn_params_at(params, i)->value[j];
    for (int t = 1; t <= STEPS; t++) {
        double norm = t % 2 ? 4.0 : 0.5; /* clipped, and not */
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < N; j++) {
                double g = nn_normal(3, i ? "g1" : "g0", t * N + j);
                nn_params_at(params, i)->grad[j] = (nn_real)g;
                reference_step(&expected[i][j], &rule, g * (t % 2 ? 1.5 / 4.0 : 1), i == 1, t);
            }
        NN_OK(nn_adamw_step(&rule, params, norm));
        cr_assert_eq(nn_params_steps(params), t);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < N; j++)
                cr_assert_float_eq((double)nn_params_at(params, i)->value[j], expected[i][j].value,
                                   1e-12, "step %d, parameter %d[%d]", t, i, j);
    }
    nn_params_destroy(params);
}

Test(nn_adamw, refuses)
{
    nn_params *params = nn_test_store(0, 1);
    nn_adamw rule = NN_ADAMW_INIT;
    NN_FAILS(nn_adamw_step(&rule, params, 1), MIMO_ERR_STATE, "not sealed");
    add(params, "w", NN_REPLICATED, 0);
    NN_OK(nn_params_seal(params));
    nn_real before = nn_params_at(params, 0)->value[0];
    nn_params_at(params, 0)->grad[0] = 1;
    NN_FAILS(nn_adamw_step(&rule, params, NAN), MIMO_ERR_ARGUMENT, "nan");
    NN_FAILS(nn_adamw_step(&rule, params, -1), MIMO_ERR_ARGUMENT, "-1");
    cr_assert(nn_params_at(params, 0)->value[0] == before && nn_params_steps(params) == 0);
    nn_params_destroy(params);
}
