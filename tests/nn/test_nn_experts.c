/* Experts: against finite differences, with adapters on all, on some and on none; as a plain sum;
 * the parts of etp ranks add up to the whole; experts by their number; what is refused. */
#include <math.h>
#include <string.h>

#include "core/check.h"
#include "train/nn/params/nn_initial.h"
#include "nn_gradient_check.h"

enum { H = 5, F = 6, EXPERTS = 4, ROWS = 9 };

/* Experts 0 to 3 have 4, none, 2 and 3 rows. */
static const int32_t ends[EXPERTS] = {4, 4, 6, 9};

typedef struct experts_pair {
    nn_params *params;
    nn_experts layer;
    nn_experts_saved saved;
    nn_room room;
    const int32_t *ends; /* borrowed */
} experts_pair;

/* Zeros hide mistakes. */
static void set_biases(nn_params *params)
{
    nn_real bias[F];
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        for (int64_t j = 0; j < param->count && param->ndim == 1; j++)
            bias[j] = (nn_real)nn_normal(5, param->name, param->start + j);
        if (param->ndim == 1 && param->held)
            SUCCEEDS(nn_params_write(params, i, NN_VALUE, bias));
    }
}

static void fill(nn_real x[ROWS * H], nn_real w[ROWS], nn_real dy[ROWS * H])
{
    nn_test_fill(x, ROWS * H, "x");
    nn_test_fill(w, ROWS, "w");
    nn_test_fill(dy, ROWS * H, "dy");
}

static void open_experts_on(experts_pair *p, const nn_runtime *runtime,
                            const nn_expert_coords *coords, const nn_lora_selection *adapters,
                            bool frozen)
{
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_size = 1,
                            .experts = *coords,
                            .seed = 7,
                            .frozen = frozen,
                            .runtime = runtime};
    nn_experts_desc desc = {.name = "mlp",
                            .hidden = H,
                            .inner = F,
                            .experts = EXPERTS,
                            .max_rows = ROWS,
                            .std = 0.4,
                            .out_std = 0.4,
                            .adapters = adapters};
    SUCCEEDS(nn_params_create(&p->params, &store));
    SUCCEEDS(nn_experts_init(&p->layer, p->params, &desc));
    SUCCEEDS(nn_params_seal(p->params));
    set_biases(p->params);
    NN_TEST_PLACE(p->room, nn_experts_saved_take(&p->saved, &p->layer, &p->room));
}

static void open_experts(experts_pair *p, const nn_expert_coords *coords, const int32_t *row_ends,
                         const nn_lora_selection *adapters, bool frozen)
{
    open_experts_on(p, nn_test_runtime(), coords, adapters, frozen);
    p->ends = row_ends;
}

static void close_experts(experts_pair *p)
{
    nn_experts_release(&p->layer);
    nn_room_release(&p->room);
    nn_params_destroy(p->params);
}

static const nn_lora_selection adapters = {{.rank = 2, .alpha = 3, .b_std = 0.5}, NULL, 0};
static const nn_expert_coords alone = {0};

/* Adapters on some of the linear layers of the experts. */
enum { LINEARS = 2 * EXPERTS };
typedef struct some_adapters {
    nn_lora_selection choice;
    const char *targets[LINEARS];
} some_adapters;

/* Bit 2 e of `mask` stands for up of expert e, bit 2 e + 1 for down. */
static const nn_lora_selection *choose(some_adapters *to, unsigned mask)
{
    static const char *const names[LINEARS] = {"experts.0.up",   "experts.0.down", "experts.1.up",
                                               "experts.1.down", "experts.2.up",   "experts.2.down",
                                               "experts.3.up",   "experts.3.down"};
    to->choice = (nn_lora_selection){.adapter = adapters.adapter, .targets = to->targets};
    for (int i = 0; i < LINEARS; i++)
        if (mask >> i & 1)
            to->targets[to->choice.n_targets++] = names[i];
    return &to->choice;
}

#ifdef NN_REAL_F64

/* The weights lie behind the rows, so that their gradients are checked as well. */
static mimo_status forward_case(void *layer, nn_real *y, const nn_real *x)
{
    experts_pair *p = layer;
    const nn_expert_rows rows = {x, x + ROWS * H, p->ends};
    return nn_experts_forward(&p->layer, &p->saved, y, &rows);
}

static mimo_status backward_case(void *layer, nn_real *dx, nn_real *dy)
{
    experts_pair *p = layer;
    MIMO_TRY(nn_experts_backward_input(&p->layer, &p->saved, dx, dx + ROWS * H, dy));
    return nn_experts_backward_params(&p->layer, &p->saved);
}

static void check_gradients(const nn_lora_selection *choice)
{
    experts_pair p = {0};
    open_experts(&p, &alone, ends, choice, false);
    nn_case c = {.name = "experts",
                 .layer = &p,
                 .params = p.params,
                 .inputs = ROWS * (H + 1),
                 .outputs = ROWS * H,
                 .forward = forward_case,
                 .backward = backward_case};
    nn_check_gradients(&c);
    close_experts(&p);
}

Test(nn_experts, gradients)
{
    check_gradients(NULL);
    check_gradients(&adapters);
}

/* Each linear layer by itself, and random choices. */
Test(nn_experts, gradients_of_some)
{
    some_adapters some;
    for (int i = 0; i < 2 * LINEARS; i++) {
        unsigned random = (unsigned)(128 + 127 * nn_uniform(3, "subset", i));
        check_gradients(choose(&some, i < LINEARS ? 1U << i : random));
    }
}
#endif

/* ------------------------------------- parts of etp ranks ------------------------------------ */

/* The results of one rank, and of a plain loop. */
typedef struct results {
    nn_real y[ROWS * H], dx[ROWS * H], dw[ROWS];
} results;

static void run(results *to, experts_pair *p, const nn_real *x, const nn_real *w, const nn_real *dy,
                int64_t rows)
{
    nn_real *y = nn_test_room(ROWS * H), *dx = nn_test_room(ROWS * H), *dw = nn_test_room(ROWS);
    const nn_expert_rows brought = {nn_test_sent(x, rows * H), nn_test_sent(w, rows), p->ends};
    SUCCEEDS(nn_experts_forward(&p->layer, &p->saved, y, &brought));
    SUCCEEDS(nn_experts_backward_input(&p->layer, &p->saved, dx, dw, nn_test_sent(dy, rows * H)));
    SUCCEEDS(nn_experts_backward_params(&p->layer, &p->saved));
    nn_test_read(to->y, y, rows * H);
    nn_test_read(to->dx, dx, rows * H);
    nn_test_read(to->dw, dw, rows);
}

static void add_to(nn_real *sum, const nn_real *part, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += part[i];
}

static void expect_near(const nn_real *got, const nn_real *expected, int64_t n, const char *what)
{
    const double tolerance = NN_DTYPE == MIMO_F64 ? 1e-13 : 1e-5;
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs((double)(got[i] - expected[i])) <= tolerance * (1 + fabs((double)got[i])),
                  "%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                  (double)expected[i]);
}

/* Gradients of a rank's parameters, with their places in the whole tensor. */
static void collect(const experts_pair *part, const experts_pair *whole, nn_real *sums, int index)
{
    const nn_param *param = nn_params_at(part->params, index);
    int at = nn_params_find(whole->params, param->name);
    cr_assert_geq(at, 0, "%s", param->name);
    nn_real grad[F * H];
    SUCCEEDS(nn_params_read(part->params, index, NN_GRAD, grad));
    bool copy = param->rule == NN_EXPERT_REPLICATED && param->rank > 0;
    for (int64_t i = 0; i < nn_placement_runs(&param->placement) && !copy; i++) {
        nn_run piece = nn_placement_run(&param->placement, param->rank, i);
        add_to(sums + (ptrdiff_t)at * F * H + piece.global, grad + piece.local, piece.count);
    }
}

enum { MOST_PARAMS = EXPERTS * 8 };

/* What the combine adds over t, and mimo_gradient over etp. */
static void check_parts(const nn_lora_selection *choice)
{
    static nn_real sums[MOST_PARAMS * F * H], grad[F * H];
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H];
    results whole, part, sum = {0};
    experts_pair one = {0};
    fill(x, w, dy);
    open_experts(&one, &alone, ends, choice, false);
    run(&whole, &one, x, w, dy, ROWS);
    memset(sums, 0, sizeof sums);
    for (int t = 0; t < 3; t++) {
        experts_pair p = {0};
        open_experts(&p, &(nn_expert_coords){.etp_rank = t, .etp_size = 3}, ends, choice, false);
        run(&part, &p, x, w, dy, ROWS);
        add_to(sum.y, part.y, ROWS * H);
        add_to(sum.dx, part.dx, ROWS * H);
        add_to(sum.dw, part.dw, ROWS);
        for (int i = 0; i < nn_params_count(p.params); i++)
            collect(&p, &one, sums, i);
        close_experts(&p);
    }
    expect_near(sum.y, whole.y, ROWS * H, "y");
    expect_near(sum.dx, whole.dx, ROWS * H, "dx");
    expect_near(sum.dw, whole.dw, ROWS, "dw");
    for (int i = 0; i < nn_params_count(one.params); i++) {
        SUCCEEDS(nn_params_read(one.params, i, NN_GRAD, grad));
        expect_near(sums + (ptrdiff_t)i * F * H, grad, nn_params_at(one.params, i)->count,
                    nn_params_at(one.params, i)->name);
    }
    nn_test_free_rooms();
    close_experts(&one);
}

Test(nn_experts, parts_add_up)
{
    some_adapters some;
    check_parts(&adapters);
    check_parts(choose(&some, 0xb4)); /* 1 up; 2 up and down; 3 down */
}

/* A rank along ep has experts 2 and 3 as the whole has them: values and results. */
static void check_numbers(const nn_lora_selection *choice)
{
    static const int32_t own_ends[] = {2, 5};
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H], value[F * H], other[F * H];
    int expert;
    results whole, part;
    experts_pair one = {0}, half = {0};
    fill(x, w, dy);
    open_experts(&one, &alone, ends, choice, false);
    open_experts(&half, &(nn_expert_coords){.ep_rank = 1, .ep_size = 2}, own_ends, choice, false);
    cr_assert_eq(nn_params_count(half.params), nn_params_count(one.params));
    for (int i = 0; i < nn_params_count(one.params); i++) {
        const nn_param *param = nn_params_at(half.params, i);
        cr_assert_str_eq(param->name, nn_params_at(one.params, i)->name);
        cr_assert_eq(sscanf(param->name, "mlp.experts.%d.", &expert), 1);
        cr_assert_eq(param->held, expert >= 2, "%s", param->name);
        if (!param->held) {
            FAILS(nn_params_read(half.params, i, NN_VALUE, value), MIMO_ERR_STATE,
                  "is of an expert of other ranks");
            continue;
        }
        SUCCEEDS(nn_params_read(half.params, i, NN_VALUE, value));
        SUCCEEDS(nn_params_read(one.params, i, NN_VALUE, other));
        cr_assert_eq(memcmp(value, other, (size_t)param->count * sizeof *value), 0, "%s",
                     param->name);
    }
    run(&whole, &one, x, w, dy, ROWS);
    run(&part, &half, x + ends[1] * H, w + ends[1], dy + ends[1] * H, 5);
    expect_near(part.y, whole.y + ends[1] * H, 5 * H, "y");
    expect_near(part.dx, whole.dx + ends[1] * H, 5 * H, "dx");
    expect_near(part.dw, whole.dw + ends[1], 5, "dw");
    nn_test_free_rooms();
    close_experts(&half);
    close_experts(&one);
}

Test(nn_experts, numbers_are_global)
{
    some_adapters some;
    check_numbers(NULL);
    check_numbers(choose(&some, 0x98)); /* 1 down; 2 up; 3 down */
    check_numbers(choose(&some, 0x04)); /* of the other rank alone */
}

/* A rank with frozen experts has the buckets of all ranks, without an element, and steps like
 * them. */
Test(nn_experts, adapters_of_another_rank)
{
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H];
    const mimo_gradient_bucket *buckets;
    int n;
    results before, after;
    some_adapters some;
    experts_pair p = {0};
    nn_adamw rule = NN_ADAMW_INIT;
    fill(x, w, dy);
    static const int32_t own_ends[] = {2, 5};
    open_experts(&p, &(nn_expert_coords){.ep_size = 2}, own_ends, choose(&some, 0x03), true);
    int64_t bytes = p.room.bytes;
    close_experts(&p);
    p = (experts_pair){0};
    open_experts(&p, &(nn_expert_coords){.ep_rank = 1, .ep_size = 2}, own_ends, &some.choice, true);
    cr_assert_eq(p.room.bytes, bytes, "a buffer holds the saved states of all ranks");
    run(&before, &p, x, w, dy, 5);
    SUCCEEDS(nn_params_buckets(p.params, &buckets, &n));
    cr_assert_eq(n, 2, "%d buckets", n);
    for (int i = 0; i < n; i++)
        cr_assert_eq(buckets[i].count, 0, "%s", buckets[i].name);
    SUCCEEDS(nn_adamw_step(&rule, p.params, 1));
    SUCCEEDS(nn_experts_visit(&p.layer, nn_lora_merge));
    run(&after, &p, x, w, dy, 5);
    SUCCEEDS(nn_experts_visit(&p.layer, nn_lora_unmerge));
    expect_near(after.y, before.y, 5 * H, "y");
    cr_assert(nn_params_trainable(p.params), "other ranks have adapters");
    nn_test_free_rooms();
    close_experts(&p);
}

/* ------------------------------------------ the sum ------------------------------------------ */

static double value_of(const experts_pair *p, int expert, const char *part, int64_t i)
{
    nn_real value[F * H];
    char name[64];
    snprintf(name, sizeof name, "mlp.experts.%d.%s", expert, part);
    SUCCEEDS(nn_params_read(p->params, nn_params_find(p->params, name), NN_VALUE, value));
    return (double)value[i];
}

static double plain_output(const experts_pair *p, int e, const nn_real *x, double w, int64_t column)
{
    double sum = value_of(p, e, "down.bias", column);
    for (int64_t f = 0; f < F; f++) {
        double u = value_of(p, e, "up.bias", f);
        for (int64_t h = 0; h < H; h++)
            u += value_of(p, e, "up.weight", f * H + h) * (double)x[h];
        double gelu = 0.5 * u * (1 + tanh(0.7978845608028654 * (u + 0.044715 * u * u * u)));
        sum += value_of(p, e, "down.weight", column * F + f) * gelu;
    }
    return w * sum;
}

Test(nn_experts, are_the_plain_sum)
{
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H];
    results got;
    experts_pair p = {0};
    fill(x, w, dy);
    open_experts(&p, &alone, ends, NULL, false);
    run(&got, &p, x, w, dy, ROWS);
    for (int64_t row = 0, e = 0; row < ROWS; row++) {
        while (row >= ends[e])
            e++;
        for (int64_t h = 0; h < H; h++) {
            double expected = plain_output(&p, (int)e, x + row * H, (double)w[row], h);
            cr_assert_float_eq((double)got.y[row * H + h], expected,
                               NN_DTYPE == MIMO_F64 ? 1e-13 : 1e-5, "row %lld: %.9g, not %.9g",
                               (long long)row, (double)got.y[row * H + h], expected);
        }
    }
    nn_test_free_rooms();
    close_experts(&p);
}

/* -------------------------------------- the fixed order -------------------------------------- */

#ifndef NN_REAL_F64

/* Results of a tile, and the gradients of all parameters, one after the other. */
typedef struct fixed_results {
    nn_real y[ROWS * H], dx[ROWS * H], dw[ROWS], grads[EXPERTS * 8 * F * H];
} fixed_results;

static void read_grads(nn_real *to, experts_pair *p)
{
    SUCCEEDS(nn_params_settle(p->params, 1));
    for (int i = 0; i < nn_params_count(p->params); i++, to += F * H)
        SUCCEEDS(nn_params_read(p->params, i, NN_GRAD, to));
}

/* The tile of the rows [first, ROWS): those behind the last end are no numbers. */
static void run_fixed(fixed_results *to, const nn_lora_selection *choice, const int32_t *row_ends,
                      int64_t first)
{
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H], stale[ROWS * H];
    int32_t *there;
    nn_runtime runtime = {0};
    experts_pair p = {0};
    const nn_runtime_desc fixed = {.memory = nn_test_runtime()->memory,
                                   .stream = nn_test_runtime()->stream,
                                   .order = NN_ORDER_FIXED};
    nn_test_fill(x, ROWS * H, "x");
    nn_test_fill(w, ROWS, "w");
    nn_test_fill(dy, ROWS * H, "dy");
    nn_test_fill(stale, ROWS * H, "stale");
    for (int64_t i = row_ends[EXPERTS - 1] + first; i < ROWS; i++)
        for (int64_t h = 0; h < H; h++)
            x[i * H + h] = dy[i * H + h] = w[i] = NAN;
    SUCCEEDS(nn_runtime_init(&runtime, &fixed));
    SUCCEEDS(nn_runtime_reserve(&runtime, &there, EXPERTS, sizeof *there));
    SUCCEEDS(nn_runtime_write(&runtime, there, row_ends, EXPERTS * (int64_t)sizeof *there));
    open_experts_on(&p, &runtime, &alone, choice, false);
    nn_real *y = nn_test_sent(stale, ROWS * H), *dx = nn_test_sent(stale, ROWS * H);
    nn_real *d_weights = nn_test_room(ROWS), *x_room = nn_test_room(ROWS * H),
            *w_room = nn_test_room(ROWS), *dy_room = nn_test_room(ROWS * H);
    nn_test_write(x_room, x + first * H, (ROWS - first) * H);
    nn_test_write(dy_room, dy + first * H, (ROWS - first) * H);
    nn_test_write(w_room, w + first, ROWS - first);
    SUCCEEDS(nn_experts_forward(&p.layer, &p.saved, y, &(nn_expert_rows){x_room, w_room, there}));
    SUCCEEDS(nn_experts_backward_input(&p.layer, &p.saved, dx, d_weights, dy_room));
    SUCCEEDS(nn_experts_backward_params(&p.layer, &p.saved));
    nn_test_read(to->y, y, ROWS * H);
    nn_test_read(to->dx, dx, ROWS * H);
    nn_test_read(to->dw, d_weights, ROWS);
    read_grads(to->grads, &p);
    nn_test_free_rooms();
    close_experts(&p);
    nn_runtime_free(&runtime, there);
    nn_runtime_release(&runtime);
}

static void expect_same(const nn_real *got, const nn_real *expected, int64_t n, int expert,
                        const char *what)
{
    cr_assert(memcmp(got, expected, (size_t)n * sizeof *got) == 0, "%s of expert %d", what, expert);
}

/* Bits of an expert depend on its own rows alone. Nothing is written behind the last end. */
static void check_fixed(const nn_lora_selection *choice)
{
    static const int32_t all[EXPERTS] = {3, 3, 5, 8};
    static fixed_results whole, one;
    const int64_t each = nn_lora_for(choice, "experts.0.up") ? 8 : 0; /* parameters of an expert */
    nn_real stale[ROWS * H];
    nn_test_fill(stale, ROWS * H, "stale");
    run_fixed(&whole, choice, all, 0);
    expect_same(whole.y + all[3] * H, stale + all[3] * H, (ROWS - all[3]) * H, -1, "rows behind");
    expect_same(whole.dx + all[3] * H, stale + all[3] * H, (ROWS - all[3]) * H, -1, "dx behind");
    for (int e = 0; e < EXPERTS; e++) {
        int32_t first = e > 0 ? all[e - 1] : 0, rows = all[e] - first;
        const int32_t own[EXPERTS] = {e > 0 ? 0 : rows, e > 1 ? 0 : rows, e > 2 ? 0 : rows, rows};
        run_fixed(&one, choice, own, first);
        expect_same(one.y, whole.y + first * H, rows * H, e, "y");
        expect_same(one.dx, whole.dx + first * H, rows * H, e, "dx");
        expect_same(one.dw, whole.dw + first, rows, e, "weights' gradient");
        if (each > 0)
            expect_same(one.grads + e * each * F * H, whole.grads + e * each * F * H, each * F * H,
                        e, "gradients");
    }
}

Test(nn_experts, fixed_order_of_each_alone)
{
    some_adapters some;
    check_fixed(&adapters);
    check_fixed(choose(&some, 0xb4)); /* 1 up; 2 up and down; 3 down */
}
#endif

/* ------------------------------------------ buckets ------------------------------------------ */

Test(nn_experts, buckets_name_their_grid)
{
    static const char *const expected[][3] = {{"test.expert_replicated", "ep", ""},
                                              {"test.expert_sharded", "etp,ep", ""},
                                              {"test.expert_partial", "ep", "etp"}};
    const mimo_gradient_bucket *buckets;
    int n;
    experts_pair p = {0};
    open_experts(&p, &alone, ends, &adapters, false);
    SUCCEEDS(nn_params_buckets(p.params, &buckets, &n));
    cr_assert_eq(n, 3);
    for (int i = 0; i < n; i++) {
        cr_assert_str_eq(buckets[i].name, expected[i][0]);
        cr_assert_str_eq(buckets[i].shard, expected[i][1]);
        cr_assert_str_eq(buckets[i].partial, expected[i][2]);
        cr_assert_str_eq(buckets[i].grid, "experts");
    }
    close_experts(&p);
}

/* `refusal`: of the adapter that backward meets first. */
static void check_merged(const nn_lora_selection *choice, const char *refusal)
{
    nn_real x[ROWS * H], w[ROWS], dy[ROWS * H], *y = nn_test_room(ROWS * H), after[ROWS * H];
    results before;
    experts_pair p = {0};
    fill(x, w, dy);
    open_experts(&p, &alone, ends, choice, true);
    run(&before, &p, x, w, dy, ROWS);
    const nn_expert_rows rows = {nn_test_sent(x, ROWS * H), nn_test_sent(w, ROWS), p.ends};
    SUCCEEDS(nn_experts_visit(&p.layer, nn_lora_merge));
    SUCCEEDS(nn_experts_forward(&p.layer, &p.saved, y, &rows));
    nn_test_read(after, y, ROWS * H);
    expect_near(after, before.y, ROWS * H, "y");
    FAILS(nn_experts_backward_input(&p.layer, &p.saved, y, y, y), MIMO_ERR_STATE, refusal);
    SUCCEEDS(nn_experts_visit(&p.layer, nn_lora_unmerge));
    nn_test_free_rooms();
    close_experts(&p);
}

Test(nn_experts, merged_adapters_give_the_same)
{
    some_adapters some;
    check_merged(&adapters, "mlp.experts.0.down: the adapter is merged");
    check_merged(choose(&some, 0x90), "mlp.experts.3.down: the adapter is merged");
    check_merged(choose(&some, 0x04), "mlp.experts.1.up: the adapter is merged");
}

/* One expert's z is missing, and those of the others are there. */
Test(nn_experts, one_was_merged_in_the_forward)
{
    nn_real *room = nn_test_room(ROWS * H), *dw = nn_test_room(ROWS);
    experts_pair p = {0};
    open_experts(&p, &alone, ends, &adapters, true);
    nn_expert_linear *up = &p.layer.list[2].up;
    const nn_expert_rows rows = {nn_test_room(ROWS * H), nn_test_room(ROWS), p.ends};
    SUCCEEDS(nn_lora_merge(&up->lora, up->weight));
    SUCCEEDS(nn_experts_forward(&p.layer, &p.saved, room, &rows));
    SUCCEEDS(nn_lora_unmerge(&up->lora, up->weight));
    nn_real *dx = nn_test_room(ROWS * H);
    FAILS(nn_experts_backward_input(&p.layer, &p.saved, dx, dw, room), MIMO_ERR_STATE,
          "mlp.experts.2.up: the adapter was merged in the last forward");
    SUCCEEDS(nn_experts_forward(&p.layer, &p.saved, room, &rows));
    SUCCEEDS(nn_experts_backward_input(&p.layer, &p.saved, dx, dw, room));
    nn_test_free_rooms();
    close_experts(&p);
}

static void refuse(const nn_expert_coords *coords, nn_experts_desc desc, const char *words)
{
    nn_params *params = NULL;
    nn_experts layer = {0};
    nn_params_desc store = {
        .name = "test", .tp_size = 1, .experts = *coords, .runtime = nn_test_runtime()};
    SUCCEEDS(nn_params_create(&params, &store));
    FAILS(nn_experts_init(&layer, params, &desc), MIMO_ERR_ARGUMENT, words);
    nn_params_destroy(params);
}

Test(nn_experts, a_mixed_block_needs_a_mixture)
{
    nn_params *params = nn_test_store(0, 1);
    nn_block block = {0};
    nn_block_desc desc = {
        .name = "block", .hidden = H, .heads = 1, .inner = F, .max_rows = 1, .max_batch = 1};
    FAILS(nn_block_mixed.init(&block, params, NULL, &desc), MIMO_ERR_ARGUMENT,
          "block: no mixture of experts");
    nn_params_destroy(params);
}

Test(nn_experts, refuses)
{
    const nn_experts_desc desc = {
        .name = "mlp", .hidden = H, .inner = F, .experts = EXPERTS, .max_rows = ROWS};
    nn_experts_desc none = desc;
    none.max_rows = 0;
    refuse(&alone, none, "max_rows is 0");
    refuse(&(nn_expert_coords){.etp_size = 4}, desc, "inner 6 is not divisible by 4");
    refuse(&(nn_expert_coords){.ep_size = 3}, desc, "experts 4 is not divisible by 3");
    nn_params *params = NULL;
    nn_params_desc store = {.name = "test", .tp_size = 1, .experts = {2, 2, 0, 0}};
    FAILS(nn_params_create(&params, &store), MIMO_ERR_ARGUMENT, "rank 2 of etp=2, rank 0 of ep");
    store.experts = (nn_expert_coords){0, 1, -1, 2};
    FAILS(nn_params_create(&params, &store), MIMO_ERR_ARGUMENT, "rank -1 of ep=2");
    experts_pair p = {0};
    static const int32_t many[EXPERTS] = {4, 4, 6, ROWS + 1};
    open_experts(&p, &alone, many, NULL, false);
    const nn_expert_rows rows = {NULL, NULL, p.ends};
    FAILS(nn_experts_forward(&p.layer, &p.saved, NULL, &rows), MIMO_ERR_SHAPE, "10 rows");
    FAILS(nn_experts_backward_input(&p.layer, &p.saved, NULL, NULL, NULL), MIMO_ERR_STATE,
          "before forward");
    FAILS(nn_experts_backward_params(&p.layer, &p.saved), MIMO_ERR_STATE, "before the input's");
    close_experts(&p);
}
