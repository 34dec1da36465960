/* Mixtures of experts on ranks equal a plain loop without ranks: outputs, gradients of the input
 * and of every parameter after the step, loads of the experts. On every topology two micro-batches
 * are in flight, in parts, of unequal numbers of rows, some of none; and some rows are masked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi_test.h"
#include "train/nn/nn.h"
#include "train/nn/params/nn_initial.h"
#include "nn_test_memory.h"
#include "whole_moe.h"

typedef struct topology {
    int tp, cp, dp, etp, ep;
} topology;

static const topology topologies[] = {
    {1, 1, 1, 1, 1}, {2, 1, 1, 2, 1}, {2, 1, 1, 1, 1}, {2, 1, 1, 1, 2}, {1, 1, 2, 1, 2},
    {1, 2, 1, 1, 2}, {1, 1, 4, 1, 2}, {2, 2, 1, 1, 4}, {2, 2, 1, 2, 2}, {1, 3, 2, 1, 3},
    {2, 2, 2, 2, 4}, {2, 2, 2, 2, 2}, {4, 1, 2, 1, 8}, {4, 1, 2, 2, 1}, {2, 2, 2, 4, 1},
};

/* A layer of its own kind. */
typedef struct variant {
    nn_router_scores scores;
    double scale, balance, bias_rate;
    bool shared, masked;
    const nn_lora_selection *adapters;
} variant;

/* The last ones are on some experts alone: several ranks have none. */
#define ADAPTER                               \
    {                                         \
        .rank = LOW, .alpha = 3, .b_std = 0.5 \
    }
static const char *const targets[] = {"experts.3.down", "experts.5.up", "experts.16.up",
                                      "experts.16.down", "shared.down"};
static const nn_lora_selection everywhere = {ADAPTER, NULL, 0}, somewhere = {ADAPTER, targets, 5};

static const variant variants[] = {
    {NN_SCORES_CHOSEN, 1, 0.3, 0, false, false, NULL},
    {NN_SCORES_ALL, 1.5, 0, 0, true, true, &everywhere},
    {NN_SCORES_SIGMOID, 2, 0.2, 1e-3, true, true, &somewhere},
};
enum { VARIANTS = sizeof variants / sizeof variants[0], MICRO = 2 };

static int ranks_of(const topology *g)
{
    return g->tp * g->cp * g->dp;
}

/* ----------------------------------------- the whole ----------------------------------------- */

/* An adapter of zeros adds nothing, and has no gradient. */
static void clear_unchosen(whole_mlp *mlp, const variant *v, const char *name)
{
    char part[40];
    snprintf(part, sizeof part, "%s.up", name);
    if (!nn_lora_for(v->adapters, part)) {
        memset(mlp->up_a, 0, sizeof mlp->up_a);
        memset(mlp->up_b, 0, sizeof mlp->up_b);
    }
    snprintf(part, sizeof part, "%s.down", name);
    if (!nn_lora_for(v->adapters, part)) {
        memset(mlp->down_a, 0, sizeof mlp->down_a);
        memset(mlp->down_b, 0, sizeof mlp->down_b);
    }
}

static void clear_adapters(whole_values *at, const variant *v)
{
    char name[20];
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "experts.%d", e);
        clear_unchosen(&at->expert[e], v, name);
    }
    clear_unchosen(&at->shared, v, "shared");
}

static whole_moe *whole_new(const variant *v, bool sp)
{
    whole_moe *moe = calloc(1, sizeof *moe);
    double *values = (double *)&moe->at;
    for (size_t i = 0; i < sizeof moe->at / sizeof *values; i++)
        values[i] = 0.5 * nn_normal(5, "values", (int64_t)i);
    clear_adapters(&moe->at, v);
    for (int i = 0; i < TOKENS * H; i++)
        moe->g[i] = nn_normal(6, "g", i);
    for (int e = 0; e < EXPERTS; e++)
        moe->bias[e] = v->bias_rate > 0 ? 0.1 * nn_normal(7, "bias", e) : 0;
    moe->rule = v->scores == NN_SCORES_CHOSEN ? WHOLE_CHOSEN
                : v->scores == NN_SCORES_ALL  ? WHOLE_ALL
                                              : WHOLE_SIGMOID;
    moe->scale = v->scale;
    moe->balance = v->balance;
    moe->adapter_scale = v->adapters ? v->adapters->adapter.alpha / LOW : 0;
    moe->has_shared = v->shared;
    moe->samples = sp ? B : 5;
    for (int i = 0; i < TOKENS && v->masked; i++) /* a whole sample, and some ends of others */
        moe->masked[i] = i % B == 2 || i / B >= S - i % 3;
    whole_begin(moe);
    return moe;
}

/* The gradients of all values: each rank takes some of the differences. */
static void whole_gradients(whole_values *grad, whole_moe *moe)
{
    double *values = (double *)&moe->at, *sums = (double *)grad;
    int count = (int)(sizeof *grad / sizeof *sums);
    memset(grad, 0, sizeof *grad);
    for (int i = mpi_test_rank(); i < count; i += mpi_test_size())
        sums[i] = whole_gradient(moe, &values[i]);
    MPI_Allreduce(MPI_IN_PLACE, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Where a parameter of the layer stands in the whole. */
static double *whole_of(whole_values *at, const char *name)
{
    static const struct part {
        const char *name;
        size_t offset;
    } parts[] = {{"up.weight", offsetof(whole_mlp, up)},
                 {"up.bias", offsetof(whole_mlp, up_bias)},
                 {"down.weight", offsetof(whole_mlp, down)},
                 {"down.bias", offsetof(whole_mlp, down_bias)},
                 {"up.lora_A.weight", offsetof(whole_mlp, up_a)},
                 {"up.lora_B.weight", offsetof(whole_mlp, up_b)},
                 {"down.lora_A.weight", offsetof(whole_mlp, down_a)},
                 {"down.lora_B.weight", offsetof(whole_mlp, down_b)}};
    int expert, length = 0;
    if (strcmp(name, "moe.router.weight") == 0)
        return at->router;
    whole_mlp *mlp = &at->shared;
    if (sscanf(name, "moe.experts.%d.%n", &expert, &length) == 1)
        mlp = &at->expert[expert];
    else
        length = (int)strlen("moe.shared.");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(name + length, parts[i].name) == 0)
            return (double *)(void *)((char *)mlp + parts[i].offset);
    return NULL;
}

/* ----------------------------------------- on ranks ------------------------------------------ */

/* One layer on a topology. */
typedef struct layer_bed {
    const topology *g;
    const variant *v;
    bool sp;
    mimo_grid *encoder, *llm, *view;
    mimo_comm *tp, *cp, *group;
    mimo_gradient *gradient;
    nn_params *params;
    nn_dispatch *dispatch;
    nn_moe moe;
    nn_moe_saved saved[MICRO];
    nn_room room;
    int tp_rank, cp_rank, dp_rank, dp_size;
} layer_bed;

static int coordinate(const mimo_grid *grid, const char *dim)
{
    int64_t at = -1;
    MPI_EXPECT_OK(mimo_grid_coord(&at, grid, mpi_test_rank(), dim));
    return (int)at;
}

static void open_grids(layer_bed *it)
{
    const topology *g = it->g;
    char text[80];
    const mimo_dim dims[] = {
        {"etp", g->etp}, {"ep", g->ep}, {"edp", ranks_of(g) / (g->etp * g->ep)}};
    snprintf(text, sizeof text, "dp=%d", ranks_of(g));
    MPI_EXPECT_OK(mimo_grid_create_text(&it->encoder, text, 0));
    snprintf(text, sizeof text, "tp=%d,cp=%d,dp=%d", g->tp, g->cp, g->dp);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->llm, text, 0));
    MPI_EXPECT_OK(mimo_grid_create_view(&it->view, it->llm, NN_EXPERT_GRID, dims, 3));
    MPI_EXPECT_OK(mimo_grid_connect(it->llm, mpi_test_comm()));
    MPI_EXPECT_OK(mimo_grid_create_group(it->llm, "tp"));
    MPI_EXPECT_OK(mimo_grid_create_group(it->llm, "cp"));
    MPI_EXPECT_OK(mimo_grid_create_group(it->view, "etp,ep"));
    MPI_EXPECT_OK(mimo_grid_group(&it->tp, it->llm, "tp"));
    MPI_EXPECT_OK(mimo_grid_group(&it->cp, it->llm, "cp"));
    MPI_EXPECT_OK(mimo_grid_group(&it->group, it->view, "etp,ep"));
    MPI_EXPECT_OK(mimo_gradient_create(&it->gradient, mpi_test_comm(), it->encoder, it->llm));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it->gradient, NN_EXPERT_GRID, it->view, "edp", "ep"));
    it->tp_rank = coordinate(it->llm, "tp");
    it->cp_rank = coordinate(it->llm, "cp");
    it->dp_rank = coordinate(it->llm, "dp");
}

static mimo_status place(layer_bed *it)
{
    mimo_status status = MIMO_OK;
    for (int m = 0; m < MICRO && status == MIMO_OK; m++)
        status = nn_moe_saved_take(&it->saved[m], &it->moe, &it->room);
    return status;
}

static void open_store(layer_bed *it)
{
    nn_params_desc store = {
        .name = "llm",
        .module = MIMO_DST,
        .tp_rank = it->tp_rank,
        .tp_size = it->g->tp,
        .experts = {coordinate(it->view, "etp"), it->g->etp, coordinate(it->view, "ep"), it->g->ep},
        .seed = 7,
        .runtime = nn_test_runtime()};
    MPI_EXPECT_OK(nn_params_create(&it->params, &store));
}

static nn_mixture mixture_of(const layer_bed *it)
{
    return (nn_mixture){.dispatch = it->dispatch,
                        .inner = F,
                        .shared = it->v->shared ? SHARED : 0,
                        .scores = it->v->scores,
                        .scale = it->v->scale,
                        .balance = it->v->balance,
                        .bias_rate = it->v->bias_rate,
                        .cp = it->cp};
}

/* For more tokens than a layer has, so that one which does not cut its rows shows. */
static void open_dispatch(layer_bed *it)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = EXPERTS;
    desc.top_k = CHOICES;
    desc.etp = it->g->etp;
    desc.max_tokens = TOKENS;
    desc.hidden = H;
    MPI_EXPECT_OK(nn_dispatch_create(&it->dispatch, nn_test_runtime(), it->group, &desc));
}

static nn_moe_desc desc_of(const layer_bed *it, const nn_mixture *mixture)
{
    return (nn_moe_desc){.name = "moe",
                         .mixture = mixture,
                         .hidden = H,
                         .max_rows = TOKENS / it->g->cp,
                         .max_batch = B,
                         .std = 0.1,
                         .out_std = 0.1,
                         .sp = it->sp,
                         .adapters = it->v->adapters};
}

/* Set this rank's parts to those of the whole. */
static void set_values(layer_bed *it, whole_moe *whole)
{
    for (int i = 0; i < nn_params_count(it->params); i++) {
        const nn_param *param = nn_params_at(it->params, i);
        const double *from = whole_of(&whole->at, param->name);
        if (!param->held)
            continue;
        double *value = calloc((size_t)param->count, sizeof *value);
        for (int64_t r = 0; r < nn_placement_runs(&param->placement) && from; r++) {
            nn_run run = nn_placement_run(&param->placement, param->rank, r);
            memcpy(value + run.local, from + run.global, (size_t)run.count * sizeof *value);
        }
        if (!from)
            memcpy(value, whole->bias, sizeof whole->bias); /* the router's */
        MPI_EXPECT_OK(nn_params_write(it->params, i, NN_VALUE, value));
        free(value);
    }
}

static void open_bed(layer_bed *it, whole_moe *whole)
{
    open_grids(it);
    open_store(it);
    open_dispatch(it);
    const nn_mixture mixture = mixture_of(it);
    const nn_moe_desc desc = desc_of(it, &mixture);
    MPI_EXPECT_OK(nn_moe_init(&it->moe, it->params, it->tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(it->params));
    NN_TEST_PLACE(it->room, place(it));
    set_values(it, whole);
}

static void close_bed(layer_bed *it)
{
    nn_test_free_rooms();
    nn_moe_release(&it->moe);
    nn_dispatch_destroy(it->dispatch);
    nn_room_release(&it->room);
    nn_params_destroy(it->params);
    mimo_gradient_destroy(it->gradient);
    mimo_grid_destroy(it->encoder);
    mimo_grid_destroy(it->llm);
}

/* ---------------------------------------- a micro-batch -------------------------------------- */

/* The rows of a micro-batch as this rank passes them: their tokens in the whole. */
typedef struct tile {
    int token[TOKENS];
    int64_t rows, batch;
    nn_real *x, *y, *dx, *dy; /* in the tested memory */
    uint8_t *masked;          /* likewise: of the rows of all tp ranks; NULL: none is */
} tile;

static uint8_t *send_bytes(const uint8_t *bytes, int64_t count)
{
    uint8_t *room = (uint8_t *)nn_test_room(TOKENS);
    MPI_EXPECT_OK(nn_runtime_write(nn_test_runtime(), room, bytes, count));
    return room;
}

/* Samples go to dp ranks and to micro-batches in turn, positions to cp ranks in equal parts. Under
 * sequence parallelism tp ranks have equal parts of the rows. */
static tile tile_of(const layer_bed *it, const whole_moe *whole, int micro)
{
    tile t = {.batch = 0};
    uint8_t masked[TOKENS];
    int each = S / it->g->cp, mine[B], all[TOKENS], rows = 0;
    for (int b = 0; b < whole->samples; b++)
        if (b % it->g->dp == it->dp_rank && b / it->g->dp % MICRO == micro)
            mine[t.batch++] = b;
    for (int s = 0; s < each; s++)
        for (int b = 0; b < t.batch; b++)
            all[rows++] = whole_token(it->cp_rank * each + s, mine[b]);
    for (int i = 0; i < rows; i++)
        masked[i] = whole->masked[all[i]];
    if (it->v->masked)
        t.masked = send_bytes(masked, rows);
    int parts = it->sp ? it->g->tp : 1, first = it->sp ? rows / parts * it->tp_rank : 0;
    t.rows = rows / parts;
    t.batch = t.batch > 0 ? t.batch : 1;
    for (int64_t i = 0; i < t.rows; i++)
        t.token[i] = all[first + i];
    return t;
}

static nn_moe_input input_of(const tile *t)
{
    return (nn_moe_input){t->x, t->rows, t->batch, t->masked};
}

static nn_real *sent_rows(const tile *t, const double *of_tokens)
{
    double rows[TOKENS * H];
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(rows + i * H, of_tokens + (ptrdiff_t)t->token[i] * H, sizeof(double[H]));
    return nn_test_sent(rows, t->rows * H);
}

static void expect_near(const char *what, const layer_bed *it, double got, double wanted, int64_t i)
{
    const topology *g = it->g;
    MPI_EXPECT(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted)),
               "tp=%d,cp=%d,dp=%d etp=%d,ep=%d sp=%d scores %d: %s[%d] is %.15g, not %.15g", g->tp,
               g->cp, g->dp, g->etp, g->ep, it->sp, (int)it->v->scores, what, (int)i, got, wanted);
}

static void expect_rows(const layer_bed *it, const tile *t, const whole_moe *whole,
                        const whole_values *grad)
{
    double y[TOKENS * H], dx[TOKENS * H], wanted[H];
    nn_test_read(y, t->y, t->rows * H);
    nn_test_read(dx, t->dx, t->rows * H);
    for (int64_t i = 0; i < t->rows; i++) {
        whole_output(wanted, whole, t->token[i]);
        for (int h = 0; h < H; h++) {
            expect_near("y", it, y[i * H + h], wanted[h], t->token[i] * H + h);
            expect_near("dx", it, dx[i * H + h], grad->x[t->token[i] * H + h], t->token[i] * H + h);
        }
    }
}

/* ------------------------------------------- a step ------------------------------------------ */

static void expect_balance(const layer_bed *it, const whole_moe *whole)
{
    double sum = 0, wanted = 0, part;
    for (int m = 0; m < MICRO; m++) {
        MPI_EXPECT_OK(nn_router_balance_loss(&part, &it->moe.router, &it->saved[m].router));
        sum += part;
    }
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int token = 0; token < TOKENS; token++)
        wanted += token % B < whole->samples ? whole_balance(whole, token) : 0;
    expect_near("balance", it, sum, wanted, 0);
}

static void set_route(layer_bed *it, nn_moe_saved *saved)
{
    mimo_op *route;
    MPI_EXPECT_OK(nn_moe_route_start(&route, &it->moe, saved));
    MPI_EXPECT_OK(mimo_op_wait(&route));
}

/* Both forward, with two moves in flight at a time and work of the other one meanwhile. */
static void forward_parts(layer_bed *it, const nn_moe_input in[MICRO], tile tiles[MICRO])
{
    const nn_moe *moe = &it->moe;
    nn_moe_saved *a = &it->saved[0], *b = &it->saved[1];
    mimo_op *of_a, *of_b;
    MPI_EXPECT_OK(nn_moe_before(moe, a, &in[0]));
    set_route(it, a);
    MPI_EXPECT_OK(nn_moe_dispatch_start(&of_a, moe, a));
    MPI_EXPECT_OK(nn_moe_before(moe, b, &in[1]));
    set_route(it, b);
    MPI_EXPECT_OK(nn_moe_dispatch_start(&of_b, moe, b));
    MPI_EXPECT_OK(mimo_op_wait(&of_a));
    MPI_EXPECT_OK(nn_moe_experts(moe, a));
    MPI_EXPECT_OK(nn_moe_combine_start(&of_a, moe, a, tiles[0].y));
    MPI_EXPECT_OK(nn_moe_shared(moe, b, tiles[1].y));
    MPI_EXPECT_OK(mimo_op_wait(&of_b));
    MPI_EXPECT_OK(nn_moe_experts(moe, b));
    MPI_EXPECT_OK(nn_moe_combine_start(&of_b, moe, b, tiles[1].y));
    MPI_EXPECT_OK(nn_moe_shared(moe, a, tiles[0].y));
    MPI_EXPECT_OK(mimo_op_wait(&of_a));
    MPI_EXPECT_OK(mimo_op_wait(&of_b));
    MPI_EXPECT_OK(nn_moe_behind(moe, a, tiles[0].y));
    MPI_EXPECT_OK(nn_moe_behind(moe, b, tiles[1].y));
}

/* The same backward, the second one first. */
static void backward_parts(layer_bed *it, tile tiles[MICRO])
{
    const nn_moe *moe = &it->moe;
    nn_moe_saved *a = &it->saved[0], *b = &it->saved[1];
    mimo_op *of_a, *of_b;
    MPI_EXPECT_OK(nn_moe_backward_combine_start(&of_b, moe, b, tiles[1].dy));
    MPI_EXPECT_OK(nn_moe_backward_combine_start(&of_a, moe, a, tiles[0].dy));
    MPI_EXPECT_OK(nn_moe_backward_shared(moe, a, tiles[0].dx, tiles[0].dy));
    MPI_EXPECT_OK(mimo_op_wait(&of_b));
    MPI_EXPECT_OK(nn_moe_backward_experts(moe, b));
    MPI_EXPECT_OK(nn_moe_backward_dispatch_start(&of_b, moe, b, tiles[1].dx));
    MPI_EXPECT_OK(mimo_op_wait(&of_a));
    MPI_EXPECT_OK(nn_moe_backward_experts(moe, a));
    MPI_EXPECT_OK(nn_moe_backward_dispatch_start(&of_a, moe, a, tiles[0].dx));
    MPI_EXPECT_OK(nn_moe_backward_shared(moe, b, tiles[1].dx, tiles[1].dy));
    MPI_EXPECT_OK(mimo_op_wait(&of_a));
    MPI_EXPECT_OK(mimo_op_wait(&of_b));
    MPI_EXPECT_OK(nn_moe_backward_before(moe, b, tiles[1].dx));
    MPI_EXPECT_OK(nn_moe_backward_before(moe, a, tiles[0].dx));
}

/* Both in flight, part by part, and the gradients of their parameters at the end. */
static void run_parts(layer_bed *it, const whole_moe *whole, tile tiles[MICRO])
{
    for (int m = 0; m < MICRO; m++) {
        tile *t = &tiles[m];
        *t = tile_of(it, whole, m);
        t->x = sent_rows(t, whole->at.x);
        t->dy = sent_rows(t, whole->g);
        t->y = nn_test_room(TOKENS * H);
        t->dx = nn_test_room(TOKENS * H);
    }
    const nn_moe_input in[MICRO] = {input_of(&tiles[0]), input_of(&tiles[1])};
    forward_parts(it, in, tiles);
    expect_balance(it, whole);
    backward_parts(it, tiles);
    for (int m = 0; m < MICRO; m++)
        MPI_EXPECT_OK(nn_moe_backward_params(&it->moe, &it->saved[m]));
}

/* The count of all tokens, on one tp rank as on any other. */
static int64_t finish_step(layer_bed *it, double *norm)
{
    int64_t mine = 0, n = 0;
    for (int m = 0; m < MICRO; m++)
        mine += it->saved[m].kept.rows * (it->sp ? it->g->tp : 1);
    nn_gradients step = {.gradient = it->gradient, .world = mpi_test_comm(), .n = 1};
    step.stores[0] = it->params;
    step.tp[0] = it->tp;
    MPI_EXPECT_OK(mimo_gradient_add(it->gradient, 0, mine));
    MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, it->gradient));
    MPI_EXPECT_OK(nn_gradients_finish(norm, &step, n));
    return n;
}

static void expect_gradients(const layer_bed *it, whole_values *grad, int64_t n)
{
    for (int i = 0; i < nn_params_count(it->params); i++) {
        const nn_param *param = nn_params_at(it->params, i);
        const double *wanted = param->held ? whole_of(grad, param->name) : NULL;
        double *got = calloc((size_t)param->count, sizeof *got);
        if (wanted) /* not the router's bias */
            MPI_EXPECT_OK(nn_params_read(it->params, i, NN_GRAD, got));
        for (int64_t r = 0; r < nn_placement_runs(&param->placement) && wanted; r++) {
            nn_run run = nn_placement_run(&param->placement, param->rank, r);
            for (int64_t j = 0; j < run.count; j++)
                expect_near(param->name, it, got[run.local + j] * (double)n, wanted[run.global + j],
                            run.global + j);
        }
        free(got);
    }
}

static double norm_of(const layer_bed *it, whole_values *grad)
{
    double squares = 0, *values = (double *)grad;
    int shared = (int)((double *)&grad->shared - values), x = (int)(grad->x - values);
    for (int i = 0; i < x; i++)
        if (i < shared || it->v->shared)
            squares += values[i] * values[i];
    return sqrt(squares);
}

static void expect_loads(layer_bed *it, const whole_moe *whole)
{
    int64_t loads[EXPERTS];
    MPI_EXPECT_OK(nn_router_adjust(&it->moe.router, mpi_test_comm(), loads));
    for (int e = 0; e < EXPERTS; e++) {
        int count = 0;
        for (int b = 0; b < B; b++)
            count += whole->count[b][e];
        MPI_EXPECT(loads[e] == count, "expert %d has %d tokens, not %d", e, (int)loads[e], count);
    }
}

static void expect_whole(const topology *g, const variant *v, bool sp, whole_moe *whole,
                         whole_values *grad)
{
    layer_bed it = {.g = g, .v = v, .sp = sp};
    tile tiles[MICRO];
    double norm = -1;
    open_bed(&it, whole);
    run_parts(&it, whole, tiles);
    for (int m = 0; m < MICRO; m++)
        expect_rows(&it, &tiles[m], whole, grad);
    int64_t n = finish_step(&it, &norm);
    MPI_EXPECT(n == whole->samples * S, "N is %d", (int)n);
    expect_gradients(&it, grad, n);
    expect_near("norm", &it, norm * (double)n, norm_of(&it, grad), 0);
    expect_loads(&it, whole);
    close_bed(&it);
}

/* The grids and a store, without a layer. */
static void open_empty(layer_bed *it)
{
    open_grids(it);
    open_store(it);
}

static void expect_refused(layer_bed *it, const nn_moe_desc *desc, const char *words)
{
    nn_moe layer = {0};
    MPI_FAILS(nn_moe_init(&layer, it->params, it->tp, desc), MIMO_ERR_ARGUMENT, words);
}

/* On two ranks that each have half of the experts. */
MPI_TEST(nn_moe, refuses)
{
    static const topology on = {1, 1, 2, 1, 2};
    layer_bed it = {.g = &on, .v = &variants[0]};
    open_empty(&it);
    mimo_dispatch_desc sizes = MIMO_DISPATCH_DESC_INIT;
    nn_mixture mixture = mixture_of(&it);
    nn_moe_desc desc = desc_of(&it, &mixture);
    expect_refused(&it, &desc, "moe: no dispatch");
    sizes.experts = EXPERTS, sizes.max_tokens = 1, sizes.hidden = H;
    MPI_FAILS(nn_dispatch_create(&it.dispatch, nn_test_runtime(), NULL, &sizes), MIMO_ERR_ARGUMENT,
              "no group of ranks");
    MPI_EXPECT_OK(nn_dispatch_create(&it.dispatch, nn_test_runtime(), it.tp, &sizes));
    mixture = mixture_of(&it);
    expect_refused(&it, &desc, "the dispatch is rank 0 of 1 with etp=1, the store has rank 0 of");
    nn_dispatch_destroy(it.dispatch);
    MPI_EXPECT_OK(nn_dispatch_create(&it.dispatch, nn_test_runtime(), it.group, &sizes));
    mixture = mixture_of(&it);
    expect_refused(&it, &desc, "up to 1 rows of 4 elements for a rank, the layer 48 of 4");
    nn_dispatch_destroy(it.dispatch);
    open_dispatch(&it);
    mixture = mixture_of(&it);
    mixture.capacity = -1;
    expect_refused(&it, &desc, "capacity -1");
    close_bed(&it);
}

/* A tile that is too small is an error on both ranks, with the rows that it needs. */
MPI_TEST(nn_moe, rows_past_the_capacity)
{
    static const topology on = {1, 1, 2, 1, 2};
    layer_bed it = {.g = &on, .v = &variants[0]};
    open_empty(&it);
    open_dispatch(&it);
    nn_mixture mixture = mixture_of(&it);
    nn_moe_desc desc = desc_of(&it, &mixture);
    mixture.capacity = 2;
    MPI_EXPECT_OK(nn_moe_init(&it.moe, it.params, it.tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(it.params));
    NN_TEST_PLACE(it.room, place(&it));
    nn_real *x = nn_test_room(TOKENS * H), *y = nn_test_room(TOKENS * H); /* all choose 0, 1, 2 */
    const nn_moe_input four = {x, 4, 1, NULL};
    MPI_FAILS(nn_moe_forward(&it.moe, &it.saved[0], y, &four), MIMO_ERR_SHAPE,
              "rank 0 needs 24 rows for its experts, its tile has 2");
    MPI_EXPECT_STATUS(nn_moe_backward_input(&it.moe, &it.saved[0], x, y), MIMO_ERR_STATE);
    close_bed(&it);
}

MPI_TEST(nn_moe, equals_a_plain_loop)
{
    int ran = 0;
    whole_values *grad = calloc(1, sizeof *grad);
    setenv("MIMO_CHECK", "replicas", 1);
    for (int v = 0; v < VARIANTS; v++)
        for (int sp = 0; sp < 2; sp++) {
            whole_moe *whole = whole_new(&variants[v], sp);
            whole_gradients(grad, whole);
            for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++) {
                const topology *g = &topologies[i];
                if (ranks_of(g) != mpi_test_size() || (sp && g->tp == 1))
                    continue;
                expect_whole(g, &variants[v], sp, whole, grad);
                ran++;
            }
            free(whole);
        }
    unsetenv("MIMO_CHECK");
    MPI_EXPECT(ran >= VARIANTS, "%d ran", ran);
    free(grad);
}
