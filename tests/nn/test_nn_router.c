/* Routers: choices, weights and gradients by hand, and against finite differences; the balance; the
 * bias; ids that a replay gives; what is refused. */
#include <math.h>
#include <string.h>

#include "core/check.h"
#include "device/device.h"
#include "nn_gradient_check.h"

enum { E = 4, K = 2, MOST = 12 };

typedef struct router_pair {
    nn_params *params;
    nn_router layer;
    nn_router_saved saved;
    nn_room room;
    nn_row_range rows;
} router_pair;

static nn_router_desc desc_of(nn_router_scores scores)
{
    return (nn_router_desc){.name = "router",
                            .hidden = E,
                            .experts = E,
                            .top_k = K,
                            .scores = scores,
                            .std = 0.5,
                            .max_rows = MOST,
                            .max_batch = MOST};
}

static void make_router(router_pair *p, const nn_router_desc *desc)
{
    SUCCEEDS(nn_router_init(&p->layer, p->params, NULL, desc));
    SUCCEEDS(nn_params_seal(p->params));
    NN_TEST_PLACE(p->room, nn_router_saved_take(&p->saved, &p->layer, &p->room));
}

/* One whose logits are its input: W is the identity. */
static void make_plain(router_pair *p, const nn_router_desc *desc)
{
    nn_real w[E * E] = {0};
    make_router(p, desc);
    for (int e = 0; e < E; e++)
        w[e * E + e] = 1;
    SUCCEEDS(nn_params_write(p->params, 0, NN_VALUE, w));
}

static void open_plain(router_pair *p, const nn_router_desc *desc)
{
    p->params = nn_test_store(0, 1);
    make_plain(p, desc);
}

static void close_router(router_pair *p)
{
    nn_test_free_rooms();
    nn_router_release(&p->layer);
    nn_room_release(&p->room);
    nn_params_destroy(p->params);
}

/* Rows of one sample each, or of `batch` samples. */
static void choose(router_pair *p, const nn_real *logits, int64_t rows, int64_t batch)
{
    p->rows = (nn_row_range){0, rows, batch, NULL};
    SUCCEEDS(nn_router_forward(&p->layer, &p->saved, nn_test_sent(logits, rows * E), &p->rows));
}

static void read_ids(int32_t *to, const int32_t *ids, int64_t count)
{
    SUCCEEDS(nn_runtime_read(nn_test_runtime(), to, ids, count * (int64_t)sizeof *to));
}

static void backward(router_pair *p, nn_real *d_logits, const nn_real *d_weights)
{
    nn_real *dx = nn_test_room(p->rows.count * E);
    SUCCEEDS(nn_router_backward_input(&p->layer, &p->saved, dx,
                                      nn_test_sent(d_weights, p->rows.count * p->layer.top_k)));
    nn_test_read(d_logits, dx, p->rows.count * E);
}

static void expect_near(const nn_real *got, const double *expected, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        cr_assert_float_eq((double)got[i], expected[i], 1e-6, "%s[%lld] is %.9g, not %.9g", what,
                           (long long)i, (double)got[i], expected[i]);
}

/* ------------------------------------------ by hand ------------------------------------------ */

typedef struct golden {
    nn_router_scores scores;
    double scale, bias[E];
    nn_real logits[E];
    int32_t ids[K];
    double weights[K], d_weights[K], d_logits[E];
} golden;

static const golden goldens[] = {
    {NN_SCORES_CHOSEN, 1, {0}, {2, 1, 2, 0}, {0, 2}, {.5, .5}, {1, 3}, {-.5, 0, .5, 0}},
    {NN_SCORES_ALL,
     1,
     {0},
     {2, 1, 2, 0},
     {0, 2},
     {.399486, .399486},
     {1, 3},
     {-.238871, -.234839, .560102, -.086392}},
    {NN_SCORES_CHOSEN, 1, {0}, {0, 0, 0, 0}, {0, 1}, {.5, .5}, {0}, {0}},
    {NN_SCORES_CHOSEN, 1, {0}, {0, -0.0F, 0, -0.0F}, {0, 1}, {.5, .5}, {0}, {0}},
    {NN_SCORES_CHOSEN, 1, {0}, {1, 3, -1, 3}, {1, 3}, {.5, .5}, {2, 2}, {0}},
    {NN_SCORES_SIGMOID, 1, {0, .5, 0, 0}, {2, 1, 2, 0}, {1, 0}, {.453551, .546449}, {0}, {0}},
    {NN_SCORES_SIGMOID, 2, {0, .5, 0, 0}, {2, 1, 2, 0}, {1, 0}, {.907102, 1.092898}, {0}, {0}},
};

Test(nn_router, golden_choices)
{
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        const golden *g = &goldens[i];
        router_pair p = {0};
        nn_router_desc desc = desc_of(g->scores);
        desc.scale = g->scale;
        desc.bias_rate = g->scores == NN_SCORES_SIGMOID ? 1e-3 : 0;
        open_plain(&p, &desc);
        nn_real bias[E], weights[K], d_weights[K], d_logits[E];
        for (int e = 0; e < E; e++)
            bias[e] = (nn_real)g->bias[e];
        if (p.layer.bias >= 0)
            SUCCEEDS(nn_params_write(p.params, p.layer.bias, NN_VALUE, bias));
        choose(&p, g->logits, 1, 1);
        int32_t ids[K];
        read_ids(ids, p.saved.ids, K);
        cr_assert(ids[0] == g->ids[0] && ids[1] == g->ids[1], "golden %zu: ids %d %d", i, ids[0],
                  ids[1]);
        nn_test_read(weights, p.saved.weights, K);
        expect_near(weights, g->weights, K, "weights");
        for (int j = 0; j < K; j++)
            d_weights[j] = (nn_real)g->d_weights[j];
        backward(&p, d_logits, d_weights);
        expect_near(d_logits, g->d_logits, E, "d_logits");
        close_router(&p);
    }
}

Test(nn_router, nan_is_loud)
{
    static const nn_real logits[2 * E] = {2, (nn_real)NAN, 3, 0, 0, 1, 2, 3};
    for (int scores = NN_SCORES_CHOSEN; scores <= NN_SCORES_SIGMOID; scores++) {
        router_pair p = {0};
        nn_router_desc desc = desc_of((nn_router_scores)scores);
        open_plain(&p, &desc);
        choose(&p, logits, 1, 1);
        int32_t ids[K];
        nn_real weights[K];
        read_ids(ids, p.saved.ids, K);
        nn_test_read(weights, p.saved.weights, K);
        cr_assert(ids[0] == 0 && ids[1] == 1, "ids %d %d", ids[0], ids[1]);
        cr_assert(isnan((double)weights[0]) && isnan((double)weights[1]), "rule %d", scores);
        close_router(&p);
    }
}

/* Three choices of expert 0, three of 1, one of 2 and one of 3. */
static const nn_real crowded[4 * E] = {2, 1, 2, 0, 0, 0, 0, 0, 1, 3, -1, 3, 3, 1, 0, 0};

Test(nn_router, bias_moves_to_equal_counts)
{
    static const double moved[] = {-1e-3, -1e-3, 1e-3, 1e-3};
    static const int64_t counts[] = {3, 3, 1, 1};
    static const nn_real zeros[4 * K] = {0};
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_SIGMOID);
    desc.bias_rate = 1e-3;
    open_plain(&p, &desc);
    choose(&p, crowded, 4, 1); /* a forward alone does not count */
    nn_real dx[4 * E], bias[E];
    int64_t loads[E];
    choose(&p, crowded, 4, 1);
    backward(&p, dx, zeros);
    SUCCEEDS(nn_router_backward_params(&p.layer, &p.saved));
    SUCCEEDS(nn_router_adjust(&p.layer, NULL, loads));
    SUCCEEDS(nn_params_read(p.params, p.layer.bias, NN_VALUE, bias));
    expect_near(bias, moved, E, "bias");
    cr_assert_eq(memcmp(loads, counts, sizeof counts), 0);
    SUCCEEDS(nn_router_adjust(&p.layer, NULL, loads)); /* nothing was counted since: no move */
    SUCCEEDS(nn_params_read(p.params, p.layer.bias, NN_VALUE, bias));
    expect_near(bias, moved, E, "bias");
    cr_assert(nn_params_at(p.params, p.layer.bias)->frozen);
    close_router(&p);
}

/* Beside adapters all else is frozen: loads are counted, and the bias of the base stays. */
Test(nn_router, bias_stays_where_the_router_is_frozen)
{
    static const int64_t counts[] = {3, 3, 1, 1};
    static const nn_real zeros[4 * K] = {0}, none[E] = {0};
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_SIGMOID);
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_size = 1,
                            .frozen = true,
                            .runtime = nn_test_runtime()};
    nn_real dx[4 * E], bias[E];
    int64_t loads[E];
    desc.bias_rate = 1e-3;
    SUCCEEDS(nn_params_create(&p.params, &store));
    make_plain(&p, &desc);
    choose(&p, crowded, 4, 1);
    backward(&p, dx, zeros);
    SUCCEEDS(nn_router_backward_params(&p.layer, &p.saved));
    SUCCEEDS(nn_router_adjust(&p.layer, NULL, loads));
    SUCCEEDS(nn_params_read(p.params, p.layer.bias, NN_VALUE, bias));
    cr_assert_eq(memcmp(loads, counts, sizeof counts), 0);
    cr_assert_eq(memcmp(bias, none, sizeof none), 0);
    close_router(&p);
}

/* ------------------------------------------ balance ------------------------------------------ */

static double balance_loss(router_pair *p)
{
    double loss = -1;
    SUCCEEDS(nn_router_balance_loss(&loss, &p->layer, &p->saved));
    return loss;
}

Test(nn_router, golden_balance)
{
    static const double first[] = {.181187, .066655, -.218299, -.029544};
    static const double halves[] = {.261495, -.050764, -.137991, -.072740};
    /* Rows are s * batch + b: with two samples, of tokens {0, 1} and {2, 3}. */
    static const int order[] = {0, 2, 1, 3};
    static const nn_real zeros[4 * K] = {0};
    nn_real rows[4 * E], d_logits[4 * E];
    for (int i = 0; i < 4; i++)
        memcpy(rows + (ptrdiff_t)i * E, crowded + (ptrdiff_t)order[i] * E, sizeof(nn_real[E]));
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_CHOSEN);
    desc.balance = 1;
    open_plain(&p, &desc);
    choose(&p, crowded, 4, 1);
    cr_assert_float_eq(balance_loss(&p), 4.492984, 1e-6, "one sequence: %.9g", balance_loss(&p));
    backward(&p, d_logits, zeros);
    expect_near(d_logits, first, E, "one sequence");
    choose(&p, rows, 4, 2);
    cr_assert_float_eq(balance_loss(&p), 4.870520, 1e-6, "two: %.9g", balance_loss(&p));
    backward(&p, d_logits, zeros);
    expect_near(d_logits, halves, E, "two sequences");
    close_router(&p);
}

/* Two rows more, of padding, one of them no number: they get no expert, and loss, gradients and
 * loads are those of the four tokens. */
Test(nn_router, masked_rows_count_nowhere)
{
    static const double first[] = {.181187, .066655, -.218299, -.029544};
    static const int64_t counts[] = {3, 3, 1, 1};
    static const uint8_t masked[6] = {0, 1, 0, 0, 1, 0};
    static const int tokens[] = {0, 2, 3, 5};
    const nn_real zeros[6 * K] = {0}, none[E] = {0};
    nn_real rows[6 * E] = {0}, d_logits[6 * E], weights[6 * K];
    int32_t ids[6 * K];
    int64_t loads[E];
    for (int i = 0; i < 4; i++)
        memcpy(rows + (ptrdiff_t)tokens[i] * E, crowded + (ptrdiff_t)i * E, sizeof(nn_real[E]));
    rows[E] = (nn_real)NAN;
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_CHOSEN);
    desc.balance = 1;
    open_plain(&p, &desc);
    uint8_t *sent = (uint8_t *)nn_test_room(2);
    SUCCEEDS(nn_runtime_write(nn_test_runtime(), sent, masked, sizeof masked));
    p.rows = (nn_row_range){0, 6, 1, sent};
    SUCCEEDS(nn_router_forward(&p.layer, &p.saved, nn_test_sent(rows, 6 * E), &p.rows));
    read_ids(ids, p.saved.ids, 6 * K);
    nn_test_read(weights, p.saved.weights, 6 * K);
    for (int i = 0; i < 6 * K; i++)
        cr_assert((ids[i] < 0) == masked[i / K] && (weights[i] > 0) == !masked[i / K],
                  "row %d: expert %d, weight %g", i / K, (int)ids[i], (double)weights[i]);
    cr_assert_float_eq(balance_loss(&p), 4.492984, 1e-6, "%.9g", balance_loss(&p));
    backward(&p, d_logits, zeros);
    expect_near(d_logits, first, E, "token 0");
    for (int i = 0; i < 6; i++)
        cr_assert(!masked[i] || memcmp(d_logits + (ptrdiff_t)i * E, none, sizeof none) == 0,
                  "row %d", i);
    SUCCEEDS(nn_router_backward_params(&p.layer, &p.saved));
    SUCCEEDS(nn_router_adjust(&p.layer, NULL, loads));
    cr_assert_eq(memcmp(loads, counts, sizeof counts), 0);
    close_router(&p);
}

#ifdef NN_REAL_F64

/* ------------------------------------ finite differences ------------------------------------- */

enum { ROWS = 6 };

static mimo_status forward_case(void *layer, nn_real *y, const nn_real *x)
{
    router_pair *p = layer;
    p->rows = (nn_row_range){0, ROWS, 2, NULL};
    const nn_runtime *runtime = nn_test_runtime();
    MIMO_TRY(nn_router_forward(&p->layer, &p->saved, x, &p->rows));
    return runtime->device->copy(y, p->saved.weights, ROWS * p->layer.top_k * (int64_t)sizeof *y,
                                 runtime->stream);
}

static mimo_status backward_case(void *layer, nn_real *dx, nn_real *dy)
{
    router_pair *p = layer;
    MIMO_TRY(nn_router_backward_input(&p->layer, &p->saved, dx, dy));
    return nn_router_backward_params(&p->layer, &p->saved);
}

static void check_gradients(const nn_router_desc *desc)
{
    router_pair p = {.params = nn_test_store(0, 1)};
    make_router(&p, desc);
    nn_case c = {.name = "router",
                 .layer = &p,
                 .params = p.params,
                 .inputs = ROWS * E,
                 .outputs = ROWS * desc->top_k,
                 .forward = forward_case,
                 .backward = backward_case};
    nn_check_gradients(&c);
    close_router(&p);
}

Test(nn_router, gradients_of_every_rule)
{
    for (int scores = NN_SCORES_CHOSEN; scores <= NN_SCORES_SIGMOID; scores++)
        for (int64_t k = 1; k <= E; k++) {
            nn_router_desc desc = desc_of((nn_router_scores)scores);
            desc.top_k = k;
            desc.scale = 1.5;
            check_gradients(&desc);
        }
}

/* Ids that differ from those chosen, one twice in a row, and rows without. */
static mimo_status other_ids(void *context, int32_t *ids, const char *layer,
                             const nn_row_range *rows)
{
    static const int32_t forced[ROWS * K] = {3, 1, 2, 2, -1, 0, -1, -1, 0, 3, 1, 0};
    (void)context;
    cr_assert_str_eq(layer, "router");
    memcpy(ids, forced + rows->first * K, (size_t)rows->count * K * sizeof *ids);
    return MIMO_OK;
}

Test(nn_router, gradients_of_a_replay)
{
    const nn_replay replay = {other_ids, NULL};
    for (int scores = NN_SCORES_CHOSEN; scores <= NN_SCORES_SIGMOID; scores++) {
        nn_router_desc desc = desc_of((nn_router_scores)scores);
        desc.replay = &replay;
        check_gradients(&desc);
    }
}

static double balance_at(router_pair *p, nn_real *x, int64_t i, double change)
{
    nn_real kept = x[i];
    x[i] += change;
    choose(p, x, ROWS, 2);
    x[i] = kept;
    return balance_loss(p);
}

Test(nn_router, gradients_of_the_balance)
{
    static const nn_real zeros[ROWS * K] = {0};
    for (int scores = NN_SCORES_CHOSEN; scores <= NN_SCORES_SIGMOID; scores++) {
        router_pair p = {0};
        nn_router_desc desc = desc_of((nn_router_scores)scores);
        desc.balance = 0.25;
        open_plain(&p, &desc);
        nn_real x[ROWS * E], dx[ROWS * E];
        nn_test_fill(x, ROWS * E, "x");
        choose(&p, x, ROWS, 2);
        backward(&p, dx, zeros);
        for (int i = 0; i < ROWS * E; i++) {
            double slope = (balance_at(&p, x, i, 1e-5) - balance_at(&p, x, i, -1e-5)) / 2e-5;
            cr_assert_float_eq(dx[i], slope, 1e-9, "rule %d, x[%d]: %.12g, not %.12g", scores, i,
                               dx[i], slope);
        }
        close_router(&p);
    }
}
#endif

/* The same ids as those chosen give the same weights; the choice is there beside those forced. */
static mimo_status swapped_ids(void *context, int32_t *ids, const char *layer,
                               const nn_row_range *rows)
{
    (void)context, (void)layer, (void)rows;
    ids[0] = 2;
    ids[1] = *(const int32_t *)context;
    return MIMO_OK;
}

Test(nn_router, replay_takes_other_ids)
{
    int32_t second = 3, ids[K], chosen[K];
    const nn_replay replay = {swapped_ids, &second};
    static const nn_real logits[E] = {2, 1, 2, 0};
    const double expected[] = {1 / (1 + exp(-2)), 1 / (1 + exp(2))};
    nn_real weights[K];
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_CHOSEN);
    desc.replay = &replay;
    open_plain(&p, &desc);
    choose(&p, logits, 1, 1);
    read_ids(ids, p.saved.ids, K);
    read_ids(chosen, p.saved.chosen, K);
    cr_assert(ids[0] == 2 && ids[1] == 3 && chosen[0] == 0 && chosen[1] == 2);
    nn_test_read(weights, p.saved.weights, K);
    expect_near(weights, expected, K, "weights");
    second = E;
    FAILS(nn_router_forward(&p.layer, &p.saved, nn_test_sent(logits, E), &p.rows),
          MIMO_ERR_ARGUMENT, "replay gave row 0 expert 4 of 4");
    second = -2;
    FAILS(nn_router_forward(&p.layer, &p.saved, nn_test_sent(logits, E), &p.rows),
          MIMO_ERR_ARGUMENT, "expert -2 of 4");
    close_router(&p);
}

Test(nn_router, replay_keeps_ids)
{
    int32_t second = 3, ids[K];
    nn_replay replay = {NULL, &second};
    static const nn_real logits[E] = {2, 1, 2, 0};
    router_pair p = {0};
    nn_router_desc desc = desc_of(NN_SCORES_CHOSEN);
    desc.replay = &replay;
    open_plain(&p, &desc);
    p.rows = (nn_row_range){.count = 1, .batch = 1};
    FAILS(nn_router_forward(&p.layer, &p.saved, nn_test_sent(logits, E), &p.rows), MIMO_ERR_STATE,
          "replay keeps the ids of 0 rows, and a forward has 1");
    replay.ids = swapped_ids;
    choose(&p, logits, 1, 1);
    second = 1; /* nobody asks */
    replay.ids = NULL;
    choose(&p, logits, 1, 1);
    read_ids(ids, p.saved.ids, K);
    cr_assert(ids[0] == 2 && ids[1] == 3, "experts %d and %d", (int)ids[0], (int)ids[1]);
    close_router(&p);
}

/* ------------------------------------------ refusals ----------------------------------------- */

static void refuse(const nn_router_desc *desc, const char *words)
{
    nn_params *params = nn_test_store(0, 1);
    nn_router layer = {0};
    FAILS(nn_router_init(&layer, params, NULL, desc), MIMO_ERR_ARGUMENT, words);
    nn_params_destroy(params);
}

Test(nn_router, refuses)
{
    nn_router_desc desc = desc_of(NN_SCORES_CHOSEN);
    desc.top_k = 5;
    refuse(&desc, "top_k 5 of 4 experts");
    desc.top_k = 0;
    refuse(&desc, "top_k is 0");
    desc = desc_of(NN_SCORES_CHOSEN);
    desc.bias_rate = 1e-3;
    refuse(&desc, "bias_rate 0.001");
    desc = desc_of(NN_SCORES_CHOSEN);
    desc.balance = -1;
    refuse(&desc, "balance is -1");
    desc = desc_of(NN_SCORES_CHOSEN);
    desc.scale = (double)INFINITY;
    refuse(&desc, "scale is inf");
    desc = desc_of((nn_router_scores)3);
    refuse(&desc, "unknown rule of scores 3");
    desc = desc_of(NN_SCORES_CHOSEN);
    router_pair p = {0};
    open_plain(&p, &desc);
    double loss;
    p.rows = (nn_row_range){0, MOST + 1, 1, NULL};
    FAILS(nn_router_forward(&p.layer, &p.saved, NULL, &p.rows), MIMO_ERR_SHAPE, "13 rows");
    p.rows = (nn_row_range){0, 1, MOST + 1, NULL};
    FAILS(nn_router_forward(&p.layer, &p.saved, NULL, &p.rows), MIMO_ERR_SHAPE, "13 samples");
    FAILS(nn_router_backward_input(&p.layer, &p.saved, NULL, NULL), MIMO_ERR_STATE,
          "backward before forward");
    FAILS(nn_router_balance_loss(&loss, &p.layer, &p.saved), MIMO_ERR_STATE, "before forward");
    choose(&p, crowded, 0, 1);
    SUCCEEDS(nn_router_balance_loss(&loss, &p.layer, &p.saved));
    cr_assert_eq(loss, 0);
    close_router(&p);
}
