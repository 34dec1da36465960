/*
 * Gradients of experts that lie under a view of their own, against a dense layer without ranks:
 * router, experts and their adapters. Ranks have the tokens of their group {etp, ep} alone and a
 * part of each expert, so that sums along the wrong dimensions show. All is in whole numbers, and
 * compared bit by bit. What a rank gets of others' tokens goes by plain MPI.
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi_test.h"
#include "whole_experts.h"

typedef struct topology {
    int tp, cp, dp, etp, ep, edp;
} topology;

static const topology topologies[] = {
    {1, 1, 1, 1, 1, 1}, {2, 1, 1, 2, 1, 1}, {2, 1, 1, 1, 1, 2}, {1, 1, 2, 1, 2, 1},
    {1, 2, 1, 1, 2, 1}, {1, 1, 4, 1, 2, 2}, {2, 2, 1, 1, 4, 1}, {2, 2, 1, 2, 2, 1},
    {1, 3, 2, 1, 3, 2}, {2, 2, 2, 2, 4, 1}, {2, 2, 2, 2, 2, 2}, {4, 1, 2, 1, 8, 1},
    {4, 1, 2, 2, 1, 4}, {2, 2, 2, 4, 1, 2}, {2, 2, 2, 1, 1, 8}, {2, 2, 2, 1, 2, 4},
    {2, 2, 2, 8, 1, 1},
};

static int ranks_of(const topology *g)
{
    return g->tp * g->cp * g->dp;
}

/* ----------------------------------------- parameters ---------------------------------------- */

typedef enum cut { WHOLE, ROWS, COLUMNS } cut; /* along etp */

/* A parameter of the layer: where it lies in whole_values, and its rule. */
typedef struct kind {
    const char *name;
    size_t offset, stride; /* of expert 0, and from expert to expert; in bytes */
    int rows, columns;
    cut cut;
    const char *grid, *shard, *partial;
} kind;

#define OF_EXPERT(field) offsetof(whole_values, expert[0].field), sizeof(whole_expert)
static const kind kinds[] = {
    {"router", offsetof(whole_values, router_w), sizeof(double[WIDTH]), 1, WIDTH, WHOLE, NULL, "",
     "tp"},
    {"router.bias", offsetof(whole_values, router_b), sizeof(double), 1, 1, WHOLE, NULL, "", "tp"},
    {"fc1", OF_EXPERT(w1), INNER, WIDTH, ROWS, "experts", "etp,ep", ""},
    {"fc1.bias", OF_EXPERT(b1), INNER, 1, ROWS, "experts", "etp,ep", ""},
    {"fc2", OF_EXPERT(w2), WIDTH, INNER, COLUMNS, "experts", "etp,ep", ""},
    {"fc2.bias", OF_EXPERT(b2), WIDTH, 1, WHOLE, "experts", "ep", ""},
    {"fc1.lora_A", OF_EXPERT(lora_a1), LOW, WIDTH, WHOLE, "experts", "ep", "etp"},
    {"fc1.lora_B", OF_EXPERT(lora_b1), INNER, LOW, ROWS, "experts", "etp,ep", ""},
    {"fc2.lora_A", OF_EXPERT(lora_a2), LOW, INNER, COLUMNS, "experts", "ep,etp", ""},
    {"fc2.lora_B", OF_EXPERT(lora_b2), WIDTH, LOW, WHOLE, "experts", "ep", "etp"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
/* Beside them: its sum, over dp, is no sum of experts. */
static const kind of_encoder = {.name = "encoder", .shard = "", .partial = ""};

/* The part of the experts that a rank has: some of them, and some of their inner width. */
typedef struct part {
    bool inside; /* the rank is one of the topology's */
    int t, d;    /* along etp and edp */
    int first_expert, experts, first_inner, inner;
} part;

static part part_of(const topology *g, int rank)
{
    int experts = EXPERTS / g->ep, inner = INNER / g->etp, t = rank % g->etp;
    return (part){
        rank < ranks_of(g), t,    rank / (g->etp * g->ep), rank / g->etp % g->ep * experts, experts,
        t * inner,          inner};
}

/* Copy this rank's elements of a parameter out of `values`; their number. */
static int take(double *to, const kind *k, const whole_values *values, const part *mine)
{
    bool router = !k->grid;
    int first = router ? 0 : mine->first_expert, experts = router ? EXPERTS : mine->experts;
    int row = k->cut == ROWS ? mine->first_inner : 0, rows = k->cut == ROWS ? mine->inner : k->rows;
    int column = k->cut == COLUMNS ? mine->first_inner : 0;
    int columns = k->cut == COLUMNS ? mine->inner : k->columns, count = 0;
    for (int e = first; e < first + experts; e++) {
        const char *at = (const char *)values + k->offset + k->stride * (size_t)e;
        for (int r = row; r < row + rows; r++)
            for (int c = column; c < column + columns; c++)
                to[count++] = ((const double *)(const void *)at)[r * k->columns + c];
    }
    return count;
}

/* ------------------------------------- the layer on ranks ------------------------------------ */

/* What is exchanged: each rank adds its part, and all get the sums. */
typedef struct exchanged {
    double y[TOKENS][WIDTH], dx[TOKENS][WIDTH], dw[TOKENS][CHOICES];
} exchanged;

/* The rank that has each token, and the number of those whose count this rank adds: all tokens of
 * its place along cp and dp. The ranks along tp cut them evenly; a last place has none. */
static int own_tokens(int owner[TOKENS], const topology *g, int rank)
{
    int place[TOKENS], places = g->cp * g->dp, count[8] = {0}, seen[8] = {0};
    for (int t = 0; t < TOKENS; t++) {
        place[t] = (int)(element_byte(5, t, 0) % (places > 2 ? places - 1 : places));
        count[place[t]]++;
    }
    for (int t = 0; t < TOKENS; t++) {
        int each = (count[place[t]] + g->tp - 1) / g->tp;
        owner[t] = place[t] * g->tp + seen[place[t]]++ / each;
    }
    return rank < ranks_of(g) ? count[rank / g->tp] : 0;
}

/* What forward and backward of one pair have in common. */
typedef struct pair {
    const whole_expert *e;
    whole_expert *grad;
    const double *x, *dy;
    double w, low1[LOW], z[INNER], h[INNER], low2[LOW];
    int first, last; /* of the inner width */
    bool adds_bias;
} pair;

static void pair_forward(double y[WIDTH], pair *p)
{
    for (int r = 0; r < LOW; r++)
        p->low1[r] = whole_dot(p->e->lora_a1[r], p->x, WIDTH);
    for (int f = p->first; f < p->last; f++) {
        p->z[f] = whole_dot(p->e->w1[f], p->x, WIDTH) + p->e->b1[f] +
                  whole_dot(p->e->lora_b1[f], p->low1, LOW);
        p->h[f] = p->w * (p->z[f] * p->z[f] + p->z[f]);
    }
    for (int r = 0; r < LOW; r++)
        p->low2[r] = whole_dot(&p->e->lora_a2[r][p->first], &p->h[p->first], p->last - p->first);
    for (int i = 0; i < WIDTH; i++)
        y[i] += whole_dot(&p->e->w2[i][p->first], &p->h[p->first], p->last - p->first) +
                whole_dot(p->e->lora_b2[i], p->low2, LOW) + (p->adds_bias ? p->w * p->e->b2[i] : 0);
}

/* The second product: gradients of its parameters, and the one of h. */
static void second_backward(double dh[INNER], double *dw, const pair *p)
{
    double low[LOW] = {0};
    for (int i = 0; i < WIDTH; i++) {
        p->grad->b2[i] += p->w * p->dy[i];
        *dw += p->adds_bias ? p->e->b2[i] * p->dy[i] : 0;
        for (int r = 0; r < LOW; r++) {
            p->grad->lora_b2[i][r] += p->dy[i] * p->low2[r];
            low[r] += p->dy[i] * p->e->lora_b2[i][r];
        }
    }
    for (int f = p->first; f < p->last; f++) {
        dh[f] = 0;
        for (int i = 0; i < WIDTH; i++) {
            p->grad->w2[i][f] += p->dy[i] * p->h[f];
            dh[f] += p->dy[i] * p->e->w2[i][f];
        }
        for (int r = 0; r < LOW; r++) {
            p->grad->lora_a2[r][f] += low[r] * p->h[f];
            dh[f] += low[r] * p->e->lora_a2[r][f];
        }
    }
}

static void pair_backward(double dx[WIDTH], double *dw, const pair *p)
{
    double dh[INNER], low[LOW] = {0};
    second_backward(dh, dw, p);
    for (int f = p->first; f < p->last; f++) {
        double dz = dh[f] * p->w * (2 * p->z[f] + 1);
        *dw += dh[f] * (p->z[f] * p->z[f] + p->z[f]);
        p->grad->b1[f] += dz;
        for (int i = 0; i < WIDTH; i++) {
            p->grad->w1[f][i] += dz * p->x[i];
            dx[i] += dz * p->e->w1[f][i];
        }
        for (int r = 0; r < LOW; r++) {
            p->grad->lora_b1[f][r] += dz * p->low1[r];
            low[r] += dz * p->e->lora_b1[f][r];
        }
    }
    for (int r = 0; r < LOW; r++)
        for (int i = 0; i < WIDTH; i++) {
            p->grad->lora_a1[r][i] += low[r] * p->x[i];
            dx[i] += low[r] * p->e->lora_a1[r][i];
        }
}

/* This rank's experts over the tokens of its group, forward and backward. */
static void run_experts(exchanged *sums, whole_values *grad, const whole_layer *layer,
                        const topology *g, const int owner[TOKENS])
{
    part mine = part_of(g, mpi_test_rank());
    for (int t = 0; mine.inside && t < TOKENS; t++)
        for (int j = 0; part_of(g, owner[t]).d == mine.d && j < CHOICES; j++) {
            int e = layer->choice[t][j];
            pair p = {.e = &layer->at.expert[e], .grad = &grad->expert[e], .x = layer->at.x[t]};
            p.dy = layer->g[t];
            p.w = whole_weight(layer, t, j);
            p.first = mine.first_inner;
            p.last = mine.first_inner + mine.inner;
            p.adds_bias = mine.t == 0;
            if (e < mine.first_expert || e >= mine.first_expert + mine.experts)
                continue;
            pair_forward(sums->y[t], &p);
            pair_backward(sums->dx[t], &sums->dw[t][j], &p);
        }
    MPI_Allreduce(MPI_IN_PLACE, sums, sizeof *sums / sizeof(double), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
}

/* The router of this rank's own tokens. */
static void run_router(whole_values *grad, const exchanged *sums, const whole_layer *layer,
                       const int owner[TOKENS])
{
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; owner[t] == mpi_test_rank() && j < CHOICES; j++) {
            int e = layer->choice[t][j];
            grad->router_b[e] += sums->dw[t][j];
            for (int i = 0; i < WIDTH; i++) {
                grad->router_w[e][i] += sums->dw[t][j] * layer->at.x[t][i];
                grad->x[t][i] += sums->dw[t][j] * layer->at.router_w[e][i];
            }
        }
}

/* --------------------------------------- the comparison -------------------------------------- */

/* The layer, its exact gradients, and the output of each token. */
typedef struct reference {
    whole_layer layer;
    whole_values grad;
} reference;

static reference *reference_new(void)
{
    reference *made = calloc(1, sizeof *made);
    whole_layer_fill(&made->layer, 2024);
    for (int i = mpi_test_rank(); i < VALUES; i += mpi_test_size())
        ((double *)&made->grad)[i] = whole_gradient_of(&made->layer, i);
    MPI_Allreduce(MPI_IN_PLACE, &made->grad, VALUES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return made;
}

/* A rule that is not the right one, for one kind of parameter. */
typedef struct wrong_rule {
    const char *what, *kind;
    topology on;
    bool llm;         /* the experts lie under the grid of the LLM */
    const char *data; /* of the experts' grid */
    const char *shard, *partial;
} wrong_rule;

/* A step on a topology: the grids and what this rank computed. */
typedef struct step {
    const topology *g;
    const wrong_rule *wrong; /* NULL: the rules are right */
    mimo_grid *encoder, *llm;
    mimo_gradient *gradient;
    whole_values grad;
    exchanged sums;
} step;

static void begin(step *it)
{
    const topology *g = it->g;
    char text[80];
    mimo_grid *view;
    const mimo_dim dims[] = {{"etp", g->etp}, {"ep", g->ep}, {"edp", g->edp}};
    snprintf(text, sizeof text, "dp=%d", ranks_of(g));
    MPI_EXPECT_OK(mimo_grid_create_text(&it->encoder, text, 0));
    snprintf(text, sizeof text, "tp=%d,cp=%d,dp=%d", g->tp, g->cp, g->dp);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->llm, text, 0));
    MPI_EXPECT_OK(mimo_grid_create_view(&view, it->llm, "experts", dims, 3));
    MPI_EXPECT_OK(mimo_gradient_create(&it->gradient, mpi_test_comm(), it->encoder, it->llm));
    MPI_EXPECT_OK(mimo_gradient_add_grid(
        it->gradient, "experts", it->wrong && it->wrong->llm ? it->llm : view,
        it->wrong ? it->wrong->data : "edp", it->wrong ? "" : "ep"));
}

static void run(step *it, const whole_layer *layer)
{
    int owner[TOKENS];
    int64_t n = -1;
    int mine = own_tokens(owner, it->g, mpi_test_rank());
    memset(&it->grad, 0, sizeof it->grad);
    memset(&it->sums, 0, sizeof it->sums);
    run_experts(&it->sums, &it->grad, layer, it->g, owner);
    run_router(&it->grad, &it->sums, layer, owner);
    MPI_EXPECT_OK(mimo_gradient_add(it->gradient, 0, mine));
    MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, it->gradient));
    MPI_EXPECT(n == TOKENS, "N is %" PRId64, n);
}

static void end(step *it)
{
    mimo_gradient_destroy(it->gradient);
    mimo_grid_destroy(it->encoder);
    mimo_grid_destroy(it->llm);
}

static mimo_gradient_bucket bucket_of(const kind *k, const wrong_rule *wrong, double *grad)
{
    mimo_gradient_bucket bucket = MIMO_GRADIENT_BUCKET_INIT;
    bucket.name = k->name;
    bucket.module = MIMO_DST;
    bucket.dtype = MIMO_F64;
    bucket.grid = k->grid;
    bucket.shard = wrong ? wrong->shard : k->shard;
    bucket.partial = wrong ? wrong->partial : k->partial;
    bucket.grad = grad;
    return bucket;
}

/* How far all ranks' elements of a gradient are from the wanted ones, as a part of these. */
static double relative_error(const double *got, const double *wanted, int64_t count)
{
    double squares[2] = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        squares[0] += pow(got[i] - wanted[i] / TOKENS, 2);
        squares[1] += pow(wanted[i] / TOKENS, 2);
    }
    MPI_Allreduce(MPI_IN_PLACE, squares, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sqrt(squares[0] / squares[1]);
}

/* ------------------------------------------ the tests ---------------------------------------- */

static void expect_same(const char *what, const topology *g, const double *got,
                        const double *wanted, int64_t count, double scale)
{
    for (int64_t i = 0; i < count; i++)
        if (got[i] != wanted[i] * scale) {
            MPI_EXPECT(false, "%s under etp=%d,ep=%d,edp=%d: element %d is %.17g, not %.17g", what,
                       g->etp, g->ep, g->edp, (int)i, got[i], wanted[i] * scale);
            return;
        }
}

/* y, and the gradients of the tokens: what experts and router give to them. */
static void expect_tokens(const step *it, const reference *ref)
{
    double y[WIDTH], dx[TOKENS][WIDTH];
    memcpy(dx, it->grad.x, sizeof dx);
    MPI_Allreduce(MPI_IN_PLACE, dx, TOKENS * WIDTH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int t = 0; t < TOKENS; t++) {
        whole_output(y, &ref->layer, t);
        expect_same("y", it->g, it->sums.y[t], y, WIDTH, 1);
        for (int i = 0; i < WIDTH; i++)
            dx[t][i] += it->sums.dx[t][i];
        expect_same("dx", it->g, dx[t], ref->grad.x[t], WIDTH, 1);
    }
}

static void expect_dense(const topology *g, const reference *ref)
{
    static step it;
    static double got[KINDS][VALUES], wanted[VALUES];
    mimo_gradient_bucket list[KINDS + 1];
    part mine = part_of(g, mpi_test_rank());
    double norm = -1, squares = pow(ranks_of(g) / (double)TOKENS, 2), encoder = 1;
    it = (step){.g = g};
    begin(&it);
    run(&it, &ref->layer);
    expect_tokens(&it, ref);
    for (int k = 0; k < KINDS; k++) {
        list[k] = bucket_of(&kinds[k], NULL, got[k]);
        list[k].count = mine.inside ? take(got[k], &kinds[k], &it.grad, &mine) : 0;
    }
    list[KINDS] = bucket_of(&of_encoder, NULL, &encoder);
    list[KINDS].module = MIMO_SRC;
    list[KINDS].count = mine.inside;
    MPI_EXPECT_OK(mimo_gradient_finalize(it.gradient, list, KINDS + 1, NULL));
    MPI_EXPECT_OK(mimo_gradient_norm(&norm, it.gradient, list, KINDS + 1, NULL));
    MPI_EXPECT(!mine.inside || encoder == ranks_of(g) / (double)TOKENS, "the encoder has %g",
               encoder);
    for (int k = 0; mine.inside && k < KINDS; k++) {
        take(wanted, &kinds[k], &ref->grad, &mine);
        expect_same(kinds[k].name, g, got[k], wanted, list[k].count, 1.0 / TOKENS);
    }
    for (size_t i = 0; i < offsetof(whole_values, x) / sizeof(double); i++)
        squares += pow(((const double *)&ref->grad)[i] / TOKENS, 2);
    MPI_EXPECT(fabs(norm - sqrt(squares)) <= 1e-14 * norm, "norm %.17g, not %.17g", norm,
               sqrt(squares));
    end(&it);
}

/* Under every topology: edp > 1 with ep = 1 among them, and a place without tokens. */
MPI_TEST(expert_gradients, as_dense)
{
    reference *ref = reference_new();
    setenv("MIMO_CHECK", "replicas", 1);
    for (size_t i = 0; i < sizeof topologies / sizeof topologies[0]; i++)
        expect_dense(&topologies[i], ref);
    unsetenv("MIMO_CHECK");
    free(ref);
}

static const wrong_rule wrongs[] = {
    {"A not over etp", "fc1.lora_A", {2, 1, 1, 2, 1, 1}, false, "edp", "ep", ""},
    {"B not over etp", "fc2.lora_B", {2, 2, 1, 2, 2, 1}, false, "edp", "ep", ""},
    {"W not over edp", "fc1", {2, 1, 1, 1, 1, 2}, false, "", "etp,ep", ""},
    {"W not over edp", "fc2", {1, 1, 4, 1, 2, 2}, false, "", "etp,ep", ""},
    {"a bias over etp too", "fc2.bias", {2, 2, 2, 2, 4, 1}, false, "edp", "ep", "etp"},
    {"over dp in place of edp", "fc1", {1, 1, 4, 1, 2, 2}, true, "dp", "tp", ""},
    {"over dp and cp in place of edp", "fc1", {2, 2, 2, 2, 4, 1}, true, "cp,dp", "tp", ""},
    {"the router not over tp", "router", {4, 1, 2, 2, 1, 4}, false, "edp", "", ""},
};

/* The numbers tell a wrong rule from the right one: none hides in the data. */
static double error_of_wrong(const wrong_rule *w, const reference *ref)
{
    static step it;
    static double got[VALUES], wanted[VALUES];
    part mine = part_of(&w->on, mpi_test_rank());
    const kind *k = kinds;
    while (strcmp(k->name, w->kind) != 0)
        k++;
    it = (step){.g = &w->on, .wrong = w};
    begin(&it);
    run(&it, &ref->layer);
    mimo_gradient_bucket bucket = bucket_of(k, w, got);
    bucket.count = mine.inside ? take(got, k, &it.grad, &mine) : 0;
    take(wanted, k, &ref->grad, &mine);
    MPI_EXPECT_OK(mimo_gradient_finalize(it.gradient, &bucket, 1, NULL));
    end(&it);
    return relative_error(got, wanted, bucket.count);
}

MPI_TEST(expert_gradients, wrong_rules)
{
    reference *ref = reference_new();
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        double error = error_of_wrong(&wrongs[i], ref);
        MPI_EXPECT(error > 0.4, "%s (%s): off by %g of the gradient alone", wrongs[i].what,
                   wrongs[i].kind, error);
        if (mpi_test_rank() == 0)
            printf("%s (%s): off by %.2f of the gradient\n", wrongs[i].what, wrongs[i].kind, error);
    }
    free(ref);
}
