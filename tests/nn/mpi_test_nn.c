/* The layers on real ranks, in f64 and in either memory. Any tp x cp x dp split of a block, a head
 * and the loss equals one rank: forward, backward, and trained by the gradient rules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "train/nn/params/nn_initial.h"
#include "train/nn/params/nn_whole.h"
#include "block_model.h"
#include "same_bits.h"
#include "test_memory.h"

enum { S = 48, B = 4, HIDDEN = 16, HEADS = 8, INNER = 32, V = 24, N = S * B };

static const double tolerance = 1e-11;

typedef struct team {
    mimo_comm *tp, *cp, *data; /* NULL: one rank; data: cp x dp */
    int tp_rank, tp_size, cp_rank, cp_size, dp_size;
    int64_t rows, batch;  /* S_local, this rank's samples */
    int64_t sample;       /* the first of this rank's samples */
    int64_t positions[S]; /* zigzag */
} team;

/* The results of one micro-batch: this rank's rows; of logits and d_logits, this rank's columns. */
typedef struct results {
    double y[N * HIDDEN], dx[N * HIDDEN], logits[N * V], d_logits[N * V], losses[N];
    int64_t ids[N], labels[N];
    double sum;
    int64_t tokens;
} results;

static void set_positions(team *t)
{
    t->rows = S / t->cp_size;
    if (t->cp_size == 1)
        for (int64_t i = 0; i < S; i++)
            t->positions[i] = i;
    int64_t chunk = t->rows / 2;
    for (int64_t i = 0; i < t->rows && t->cp_size > 1; i++)
        t->positions[i] = i < chunk ? t->cp_rank * chunk + i
                                    : (2 * t->cp_size - 1 - t->cp_rank) * chunk + (i - chunk);
}

static team make_alone(void)
{
    team t = {.tp_size = 1, .cp_size = 1, .dp_size = 1, .batch = B};
    set_positions(&t);
    return t;
}

/* Ranks in the order tp, cp, dp. */
static team make_team(mimo_comm *comm, int tp, int cp)
{
    int rank = mimo_comm_rank(comm), dp_rank = rank / (tp * cp);
    team t = {.tp_size = tp, .cp_size = cp, .dp_size = mimo_comm_size(comm) / (tp * cp)};
    t.tp_rank = rank % tp;
    t.cp_rank = rank / tp % cp;
    t.batch = B / t.dp_size;
    t.sample = dp_rank * t.batch;
    MPI_EXPECT_OK(mimo_comm_split(&t.tp, comm, rank / tp, t.tp_rank));
    MPI_EXPECT_OK(mimo_comm_split(&t.cp, comm, dp_rank * tp + t.tp_rank, t.cp_rank));
    MPI_EXPECT_OK(mimo_comm_split(&t.data, comm, t.tp_rank, rank));
    set_positions(&t);
    return t;
}

static void discard_team(team *t)
{
    mimo_comm_destroy(t->data);
    mimo_comm_destroy(t->cp);
    mimo_comm_destroy(t->tp);
}

/* Sum a number in host memory over the ranks of a communicator. */
static void sum_over(mimo_comm *comm, void *number, mimo_dtype dtype)
{
    const nn_runtime *runtime = nn_test_runtime();
    int64_t bytes = (int64_t)mimo_dtype_size(dtype);
    void *room = NULL;
    if (!comm)
        return;
    MPI_EXPECT_OK(nn_runtime_reserve(runtime, &room, 1, (size_t)bytes));
    MPI_EXPECT_OK(nn_runtime_write(runtime, room, number, bytes));
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, room, 1, dtype, MIMO_SUM, runtime->stream));
    MPI_EXPECT_OK(nn_runtime_read(runtime, number, room, bytes));
    nn_runtime_free(runtime, room);
}

/* One array of a parameter. The caller frees it. */
static double *read_param(const nn_params *params, int index, nn_part part)
{
    double *numbers = calloc((size_t)nn_params_at(params, index)->count, sizeof *numbers);
    MPI_EXPECT_OK(nn_params_read(params, index, part, numbers));
    return numbers;
}

/* The row of the whole tile [S, B] that is this rank's row i. */
static int64_t global_row(const team *t, int64_t i)
{
    return t->positions[i / t->batch] * B + t->sample + i % t->batch;
}

/* The next tp and cp sizes that divide the ranks and the model; false at the end. */
static bool next_split(const mimo_comm *comm, int *tp, int *cp)
{
    int size = mimo_comm_size(comm);
    while (*tp <= size) {
        if (++*cp > size) {
            *cp = 0;
            ++*tp;
            continue;
        }
        bool divides = size % (*tp * *cp) == 0 && HEADS % *tp == 0 && S % (2 * *cp) == 0;
        if (divides && B % (size / (*tp * *cp)) == 0)
            return true;
    }
    return false;
}

/* Set values by global index, those of biases and norms included. */
static void set_parameters(nn_params *params)
{
    for (int p = 0; p < nn_params_count(params); p++) {
        const nn_param *param = nn_params_at(params, p);
        double *value = calloc((size_t)param->count, sizeof *value);
        for (int64_t i = 0; i < param->local[0]; i++)
            for (int64_t j = 0; j < param->local[1]; j++) {
                int64_t row = i + (param->placement.cut == 0 ? param->start : 0);
                int64_t column = j + (param->placement.cut == 1 ? param->start : 0);
                value[i * param->local[1] + j] =
                    0.4 * nn_normal(5, param->name, row * param->placement.shape[1] + column);
            }
        MPI_EXPECT_OK(nn_params_write(params, p, NN_VALUE, value));
        free(value);
    }
}

/* A model, with adapters on every linear layer where there are some to choose. */
static void make_model(model *m, const team *t, bool causal, const nn_lora_selection *adapters)
{
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = t->tp_rank,
                            .tp_size = t->tp_size,
                            .seed = 11,
                            .runtime = nn_test_runtime()};
    model_parts parts = {
        .tp = t->tp,
        .sequence = {t->cp, causal, t->rows, t->batch, t->positions, nn_test_runtime(), 0},
        .block = {.name = "block",
                  .hidden = HIDDEN,
                  .heads = HEADS,
                  .inner = INNER,
                  .max_rows = t->rows,
                  .max_batch = t->batch,
                  .max_parts = t->cp_size,
                  .std = 0.1,
                  .out_std = 0.1,
                  .adapters = adapters},
        .head = {.name = "head",
                 .in = HIDDEN,
                 .out = V,
                 .split = NN_SPLIT_COLUMNS,
                 .bias = true,
                 .std = 0.1,
                 .max_rows = t->rows * t->batch,
                 .lora = nn_lora_for(adapters, "head")}};
    MPI_EXPECT_OK(nn_params_create(&parts.params, &store));
    model_make(m, &parts);
    set_parameters(m->params);
}

/* Micro-batch `micro`: forward, loss, backward. */
static void run(model *m, const team *t, results *r, int micro)
{
    static double x[N * HIDDEN];
    int64_t n = t->rows * t->batch, local = V / t->tp_size;
    for (int64_t i = 0; i < n; i++) {
        int64_t global = global_row(t, i);
        r->labels[i] = (global + micro) % 3 == 1 ? NN_IGNORE : (global * 7 + micro) % V;
        for (int k = 0; k < HIDDEN; k++)
            x[i * HIDDEN + k] = nn_normal((uint64_t)micro, "x", global * HIDDEN + k);
    }
    double *y = nn_test_room(n * HIDDEN), *dx = nn_test_room(n * HIDDEN);
    double *dy = nn_test_room(n * HIDDEN);
    double *logits = nn_test_room(n * local), *d_logits = nn_test_room(n * local);
    MPI_EXPECT_OK(
        nn_block_forward(&m->block, &m->block_saved, y, nn_test_sent(x, n * HIDDEN), &m->sequence));
    MPI_EXPECT_OK(nn_linear_forward(&m->head, &m->head_saved, logits, y, n, 1));
    MPI_EXPECT_OK(nn_loss_forward(&m->loss, &m->loss_saved, logits, r->labels, n));
    MPI_EXPECT_OK(nn_loss_read(&m->loss, &r->sum, &r->tokens));
    MPI_EXPECT_OK(nn_loss_argmax(&m->loss, logits, n, r->ids));
    MPI_EXPECT_OK(nn_loss_read_rows(&m->loss, &m->loss_saved, r->losses));
    MPI_EXPECT_OK(nn_loss_backward_input(&m->loss, &m->loss_saved, d_logits));
    MPI_EXPECT_OK(nn_linear_backward(&m->head, &m->head_saved, dy, d_logits));
    MPI_EXPECT_OK(nn_block_backward_input(&m->block, &m->block_saved, dx, dy));
    MPI_EXPECT_OK(nn_block_backward_params(&m->block, &m->block_saved));
    nn_test_read(r->y, y, n * HIDDEN);
    nn_test_read(r->dx, dx, n * HIDDEN);
    nn_test_read(r->logits, logits, n * local);
    nn_test_read(r->d_logits, d_logits, n * local);
    nn_test_free_rooms();
}

static bool near(double a, double b)
{
    return fabs(a - b) <= tolerance * (1 + fabs(b));
}

/* Columns [first, first + width) of rows that are `whole` wide. */
typedef struct columns {
    int64_t first, width, whole;
} columns;

/* This rank's rows hold these columns of the whole rows, at this rank's positions. */
static void compare_rows(const char *what, const team *t, const double *mine, const double *whole,
                         columns part)
{
    for (int64_t i = 0; i < t->rows * t->batch; i++) {
        int64_t global = global_row(t, i);
        for (int64_t k = 0; k < part.width; k++) {
            double expected = whole[global * part.whole + part.first + k];
            MPI_EXPECT(near(mine[i * part.width + k], expected),
                       "tp %d cp %d: %s at row %lld, column %lld is %.15g, one rank %.15g",
                       t->tp_size, t->cp_size, what, (long long)global, (long long)(part.first + k),
                       mine[i * part.width + k], expected);
        }
    }
}

static void compare_results(const team *t, results *mine, const results *whole)
{
    int64_t local = V / t->tp_size;
    columns hidden = {0, HIDDEN, HIDDEN}, one = {0, 1, 1};
    columns vocabulary = {t->tp_rank * local, local, V};
    compare_rows("y", t, mine->y, whole->y, hidden);
    compare_rows("dx", t, mine->dx, whole->dx, hidden);
    compare_rows("logits", t, mine->logits, whole->logits, vocabulary);
    compare_rows("d_logits", t, mine->d_logits, whole->d_logits, vocabulary);
    compare_rows("losses", t, mine->losses, whole->losses, one);
    for (int64_t i = 0; i < t->rows * t->batch; i++) {
        int64_t global = global_row(t, i);
        MPI_EXPECT(mine->ids[i] == whole->ids[global], "argmax of row %lld is %lld, one rank %lld",
                   (long long)global, (long long)mine->ids[i], (long long)whole->ids[global]);
    }
    sum_over(t->data, &mine->sum, MIMO_F64);
    sum_over(t->data, &mine->tokens, MIMO_I64);
    MPI_EXPECT(near(mine->sum, whole->sum), "loss %.15g, one rank %.15g", mine->sum, whole->sum);
    MPI_EXPECT(mine->tokens == whole->tokens, "%lld tokens, one rank %lld", (long long)mine->tokens,
               (long long)whole->tokens);
}

/* Compare a parameter: `mine` is this rank's part, `whole` all of it. */
static void compare_parameter(const team *t, const nn_param *p, const double *mine,
                              const double *whole, double bound)
{
    int64_t row0 = p->placement.cut == 0 ? p->start : 0;
    int64_t column0 = p->placement.cut == 1 ? p->start : 0;
    for (int64_t r = 0; r < p->local[0]; r++)
        for (int64_t c = 0; c < p->local[1]; c++) {
            double expected = whole[(row0 + r) * p->placement.shape[1] + column0 + c];
            double got = mine[r * p->local[1] + c];
            MPI_EXPECT(fabs(got - expected) <= bound * (1 + fabs(expected)),
                       "tp %d cp %d: %s[%lld][%lld] is %.15g, one rank %.15g", t->tp_size,
                       t->cp_size, p->name, (long long)(row0 + r), (long long)(column0 + c), got,
                       expected);
        }
}

/* Gradients are summed over cp x dp, and partial ones over tp, as mimo_gradient_finalize does, and
 * over nothing else. */
static void compare_gradients(const team *t, const nn_params *mine, const nn_params *whole)
{
    for (int i = 0; i < nn_params_count(mine); i++) {
        const nn_param *p = nn_params_at(mine, i);
        MPI_EXPECT_OK(
            mimo_comm_allreduce(t->data, p->grad, p->count, MIMO_F64, MIMO_SUM, test_stream()));
        if (p->rule == NN_PARTIAL)
            MPI_EXPECT_OK(
                mimo_comm_allreduce(t->tp, p->grad, p->count, MIMO_F64, MIMO_SUM, test_stream()));
        double *grad = read_param(mine, i, NN_GRAD), *expected = read_param(whole, i, NN_GRAD);
        compare_parameter(t, p, grad, expected, 10 * tolerance);
        free(grad), free(expected);
    }
}

MPI_TEST(nn, every_split_equals_one_rank)
{
    mimo_comm *comm = mpi_test_comm();
    results *mine = calloc(1, sizeof *mine), *whole = calloc(1, sizeof *whole);
    team alone = make_alone();
    const nn_lora_selection choice = {.adapter = {.rank = 3, .alpha = 6, .b_std = 0.1}};
    for (int kind = 0; kind < 3; kind++) {
        const nn_lora_selection *adapters = kind == 2 ? &choice : NULL;
        bool causal = kind > 0;
        model one;
        int splits = 0;
        make_model(&one, &alone, causal, adapters);
        run(&one, &alone, whole, 0);
        run(&one, &alone, whole, 1); /* gradients add up over micro-batches */
        for (int tp = 1, cp = 0; next_split(comm, &tp, &cp); splits++) {
            model split;
            team t = make_team(comm, tp, cp);
            make_model(&split, &t, causal, adapters);
            run(&split, &t, mine, 0);
            run(&split, &t, mine, 1);
            compare_results(&t, mine, whole);
            compare_gradients(&t, split.params, one.params);
            model_release(&split);
            discard_team(&t);
        }
        model_release(&one);
        MPI_EXPECT(splits > 0, "no split of %d ranks was tried", mimo_comm_size(comm));
    }
    free(mine), free(whole);
}

/* The numbers of one optimizer step. */
typedef struct progress {
    double loss, norm;
    int64_t tokens;
} progress;

enum { STEPS = 3, MICRO_BATCHES = 2 };

static const nn_adamw adamw = {0.02, 0.9, 0.95, 1e-6, 0.1, 0.5};

/* Without the library: divide the sums by the count, and take the norm. */
static progress step_alone(model *m, const team *t, results *r, int step)
{
    progress p = {0};
    MPI_EXPECT_OK(nn_params_zero_grad(m->params));
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        run(m, t, r, step * MICRO_BATCHES + micro);
        p.loss += r->sum;
        p.tokens += r->tokens;
    }
    for (int i = 0; i < nn_params_count(m->params); i++) {
        double *grad = read_param(m->params, i, NN_GRAD);
        for (int64_t j = 0; j < nn_params_at(m->params, i)->count; j++) {
            grad[j] /= (double)p.tokens;
            p.norm += grad[j] * grad[j];
        }
        MPI_EXPECT_OK(nn_params_write(m->params, i, NN_GRAD, grad));
        free(grad);
    }
    p.loss /= (double)p.tokens;
    p.norm = sqrt(p.norm);
    MPI_EXPECT_OK(nn_adamw_step(&adamw, m->params, p.norm));
    return p;
}

/* By the library's gradient rules. */
static progress step_together(model *m, const team *t, mimo_gradient *gradient, results *r,
                              int step)
{
    progress p = {0};
    const mimo_gradient_bucket *buckets = NULL;
    int n = 0;
    MPI_EXPECT_OK(nn_params_zero_grad(m->params));
    mimo_gradient_reset(gradient);
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        run(m, t, r, step * MICRO_BATCHES + micro);
        MPI_EXPECT_OK(mimo_gradient_add(gradient, r->sum, r->tokens));
    }
    MPI_EXPECT_OK(nn_params_buckets(m->params, &buckets, &n));
    MPI_EXPECT_OK(mimo_gradient_count(&p.tokens, &p.loss, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, buckets, n, test_stream()));
    MPI_EXPECT_OK(mimo_gradient_norm(&p.norm, gradient, buckets, n, test_stream()));
    MPI_EXPECT_OK(nn_adamw_step(&adamw, m->params, p.norm));
    return p;
}

static mimo_gradient *make_gradient(mimo_comm *comm, const team *t)
{
    mimo_gradient *gradient = NULL;
    mimo_grid *encoder = mpi_test_grid_of("tp=1,dp=%d", mimo_comm_size(comm));
    mimo_grid *llm = mpi_test_grid_of("tp=%d,cp=%d,dp=%d", t->tp_size, t->cp_size, t->dp_size);
    MPI_EXPECT_OK(mimo_gradient_create(&gradient, comm, encoder, llm));
    return gradient;
}

static void train_together(mimo_comm *comm, const team *t, const progress *expected,
                           const nn_params *trained)
{
    model m;
    mimo_gradient *gradient = make_gradient(comm, t);
    results *r = calloc(1, sizeof *r);
    make_model(&m, t, true, NULL);
    for (int step = 0; step < STEPS; step++) {
        progress p = step_together(&m, t, gradient, r, step);
        MPI_EXPECT(near(p.loss, expected[step].loss) && near(p.norm, expected[step].norm) &&
                       p.tokens == expected[step].tokens,
                   "tp %d cp %d, step %d: loss %.15g norm %.15g, one rank %.15g %.15g", t->tp_size,
                   t->cp_size, step, p.loss, p.norm, expected[step].loss, expected[step].norm);
    }
    for (int i = 0; i < nn_params_count(m.params); i++) {
        double *value = read_param(m.params, i, NN_VALUE);
        double *alone = read_param(trained, i, NN_VALUE);
        compare_parameter(t, nn_params_at(m.params, i), value, alone, 100 * tolerance);
        free(value), free(alone);
    }
    free(r);
    model_release(&m);
    mimo_gradient_destroy(gradient);
}

MPI_TEST(nn, every_split_trains_like_one_rank)
{
    mimo_comm *comm = mpi_test_comm();
    results *r = calloc(1, sizeof *r);
    progress expected[STEPS];
    team alone = make_alone();
    model one;
    int splits = 0;
    make_model(&one, &alone, true, NULL);
    for (int step = 0; step < STEPS; step++)
        expected[step] = step_alone(&one, &alone, r, step);
    for (int tp = 1, cp = 0; next_split(comm, &tp, &cp); splits++) {
        team t = make_team(comm, tp, cp);
        train_together(comm, &t, expected, one.params);
        discard_team(&t);
    }
    MPI_EXPECT(splits > 0, "no split of %d ranks was tried", mimo_comm_size(comm));
    model_release(&one);
    free(r);
}

/* ------------------------------------------ adapters ------------------------------------------ */

enum { G_ROWS = 2, G_RANK = 2, G_MOST = 8 };

/* A layer of integers that are exact, and what all its ranks have together. Scale 2. */
typedef struct golden {
    nn_split split;
    int64_t in, out;
    double x[G_MOST], w[G_MOST], a[G_MOST], b[G_MOST], bias[4], dy[G_MOST];
    double y[G_MOST], dx[G_MOST], da[G_MOST], db[G_MOST];
} golden;

static const golden goldens[] = {
    {.split = NN_SPLIT_COLUMNS,
     .in = 2,
     .out = 4,
     .x = {1, 2, 3, -1},
     .w = {1, 0, 0, 1, 1, 1, 2, -1},
     .a = {1, 2, 0, 1},
     .b = {1, 0, 0, 1, 1, -1, 2, 1},
     .dy = {1, 0, 2, -1, 0, 1, 1, 1},
     .y = {11, 6, 9, 24, 5, -3, 6, 9},
     .dx = {3, 1, 9, 15},
     .da = {20, -2, 0, -14},
     .db = {10, 4, 2, -2, 22, 6, -8, -6}},
    {.split = NN_SPLIT_ROWS,
     .in = 4,
     .out = 2,
     .x = {1, 2, 0, -1, 3, -1, 1, 2},
     .w = {1, 0, 2, -1, 0, 1, 1, 1},
     .a = {1, 0, 1, 2, 0, 1, -1, 1},
     .b = {1, 2, 0, -1},
     .bias = {1, -1},
     .dy = {1, -1, 2, 1},
     .y = {5, -2, 20, 1},
     .dx = {3, 5, -3, 8, 6, 7, 3, 13},
     .da = {14, 0, 4, 6, 24, 6, 6, 6},
     .db = {30, 2, 18, -2}},
};

/* This rank's columns of a whole matrix [G_ROWS, part.whole]. */
static void take_columns(double *to, const double *whole, columns part)
{
    for (int64_t i = 0; i < G_ROWS; i++)
        memcpy(to + i * part.width, whole + i * part.whole + part.first,
               (size_t)part.width * sizeof *to);
}

static void write_whole(nn_params *params, int index, const double *whole)
{
    double mine[G_MOST];
    const nn_param *param = nn_params_at(params, index);
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, nn_params_tp_rank(params), i);
        memcpy(mine + run.local, whole + run.global, (size_t)run.count * sizeof *mine);
    }
    MPI_EXPECT_OK(nn_params_write(params, index, NN_VALUE, mine));
}

static void expect_exactly(const char *what, const double *room, const double *whole, columns part)
{
    double mine[G_MOST], expected[G_MOST];
    nn_test_read(mine, room, G_ROWS * part.width);
    take_columns(expected, whole, part);
    for (int64_t i = 0; i < G_ROWS * part.width; i++)
        MPI_EXPECT(mine[i] == expected[i], "%s[%d] is %g, must be %g", what, (int)i, mine[i],
                   expected[i]);
}

static void check_golden(const golden *g, const team *t)
{
    bool by_columns = g->split == NN_SPLIT_COLUMNS;
    int64_t in = by_columns ? g->in : g->in / 2, out = by_columns ? g->out / 2 : g->out;
    const columns of_x = {by_columns ? 0 : t->tp_rank * in, in, g->in};
    const columns of_y = {by_columns ? t->tp_rank * out : 0, out, g->out};
    const nn_lora_desc adapter = {.rank = G_RANK, .alpha = 2 * G_RANK};
    nn_linear_desc desc = {.name = "up",
                           .in = g->in,
                           .out = g->out,
                           .split = g->split,
                           .bias = true,
                           .max_rows = G_ROWS,
                           .lora = &adapter};
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_rank = t->tp_rank,
                            .tp_size = 2,
                            .runtime = nn_test_runtime()};
    nn_params *params = NULL;
    nn_linear layer;
    nn_linear_saved saved;
    nn_room room = {0};
    double x[G_MOST], dy[G_MOST];
    double *y_room = nn_test_room(G_MOST), *dx_room = nn_test_room(G_MOST);
    MPI_EXPECT_OK(nn_params_create(&params, &store));
    MPI_EXPECT_OK(nn_linear_init(&layer, params, t->tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(params));
    NN_TEST_PLACE(room, nn_linear_saved_take(&saved, &layer, &room));
    write_whole(params, layer.weight, g->w);
    write_whole(params, layer.bias, g->bias);
    write_whole(params, layer.lora.a, g->a);
    write_whole(params, layer.lora.b, g->b);
    take_columns(x, g->x, of_x);
    take_columns(dy, g->dy, of_y);
    MPI_EXPECT_OK(
        nn_linear_forward(&layer, &saved, y_room, nn_test_sent(x, G_ROWS * in), G_ROWS, 1));
    MPI_EXPECT_OK(nn_linear_backward(&layer, &saved, dx_room, nn_test_sent(dy, G_ROWS * out)));
    expect_exactly("y", y_room, g->y, of_y);
    expect_exactly("dx", dx_room, g->dx, of_x);
    const int factors[] = {layer.lora.a, layer.lora.b};
    const double *const whole[] = {g->da, g->db};
    for (int i = 0; i < 2; i++) {
        const nn_param *param = nn_params_at(params, factors[i]);
        if (param->rule == NN_PARTIAL)
            MPI_EXPECT_OK(mimo_comm_allreduce(t->tp, param->grad, param->count, MIMO_F64, MIMO_SUM,
                                              test_stream()));
        double *grad = read_param(params, factors[i], NN_GRAD);
        compare_parameter(t, param, grad, whole[i], 0);
        free(grad);
    }
    nn_linear_release(&layer);
    nn_room_release(&room);
    nn_params_destroy(params);
    nn_test_free_rooms();
}

MPI_TEST(nn, adapters_on_two_ranks)
{
    team t = make_team(mpi_test_comm(), 2, 1);
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        check_golden(&goldens[i], &t);
    discard_team(&t);
}

/* A layer that tp does not cut sees all rows, or under sp a tp-th of them. */
MPI_TEST(nn, rules_of_uncut_layers)
{
    int size = mpi_test_size();
    team t = make_team(mpi_test_comm(), size, 1);
    for (int sp = 0; sp < 2; sp++) {
        const nn_lora_desc adapter = {.rank = 2, .alpha = 2};
        nn_linear_desc desc = {.name = "project",
                               .in = 4,
                               .out = 4,
                               .bias = true,
                               .max_rows = size,
                               .sp = sp == 1,
                               .lora = &adapter};
        nn_params_desc store = {
            .name = "test", .module = MIMO_DST, .tp_rank = t.tp_rank, .tp_size = size};
        nn_params *params = NULL;
        nn_linear layer;
        MPI_EXPECT_OK(nn_params_create(&params, &store));
        MPI_EXPECT_OK(nn_linear_init(&layer, params, t.tp, &desc));
        MPI_EXPECT(nn_params_count(params) == 4, "%d parameters", nn_params_count(params));
        for (int i = 0; i < nn_params_count(params); i++) {
            const nn_param *param = nn_params_at(params, i);
            nn_rule expected = sp ? NN_PARTIAL : NN_REPLICATED;
            MPI_EXPECT(param->rule == expected, "sp %d: %s has rule %d", sp, param->name,
                       (int)param->rule);
        }
        nn_linear_release(&layer);
        nn_params_destroy(params);
    }
    discard_team(&t);
}

/* What is frozen has a value alone; a factor also has a gradient and two moments. */
static void check_sizes(const nn_params *params, int64_t base, int64_t factors)
{
    int64_t frozen = 0, trained = 0;
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        int arrays = 0;
        for (int part = NN_VALUE; part <= NN_MOMENT_V; part++)
            arrays += nn_param_array(param, (nn_part)part) != NULL;
        MPI_EXPECT(arrays == (param->adapter ? 4 : 1), "%s has %d arrays", param->name, arrays);
        *(param->adapter ? &trained : &frozen) += param->count;
    }
    MPI_EXPECT(trained == factors, "%lld elements of factors, must be %lld", (long long)trained,
               (long long)factors);
    MPI_EXPECT(mpi_test_size() > 1 || frozen == base, "%lld frozen elements, must be %lld",
               (long long)frozen, (long long)base);
}

/* Four blocks of width 128 with adapters of rank 8 on their linear layers. */
MPI_TEST(nn, sizes_of_adapters)
{
    enum { BLOCKS = 4, BASE = 198272, CUT = 1536 * 8, UNCUT = 512 * 8 };
    int size = mpi_test_size(), n = 0;
    team t = make_team(mpi_test_comm(), size, 1);
    const nn_lora_selection adapters = {.adapter = {.rank = 8, .alpha = 16}};
    nn_params_desc store = {.name = "llm",
                            .module = MIMO_DST,
                            .tp_rank = t.tp_rank,
                            .tp_size = size,
                            .frozen = true,
                            .runtime = nn_test_runtime()};
    nn_block_desc desc = {.hidden = 128,
                          .heads = 8,
                          .inner = 512,
                          .max_rows = 1,
                          .max_batch = 1,
                          .std = 0.1,
                          .out_std = 0.1,
                          .adapters = &adapters};
    static const char *const names[BLOCKS] = {"block0", "block1", "block2", "block3"};
    const mimo_gradient_bucket *buckets = NULL;
    nn_block blocks[BLOCKS];
    nn_params *params = NULL;
    MPI_EXPECT_OK(nn_params_create(&params, &store));
    for (int i = 0; i < BLOCKS; i++) {
        desc.name = names[i];
        MPI_EXPECT_OK(nn_block_init(&blocks[i], params, t.tp, &desc));
    }
    MPI_EXPECT_OK(nn_params_seal(params));
    check_sizes(params, BLOCKS * BASE, BLOCKS * (CUT / size + UNCUT));
    MPI_EXPECT_OK(nn_params_buckets(params, &buckets, &n));
    MPI_EXPECT(n == 2, "%d buckets", n);
    for (int i = 0; i < n; i++) {
        int64_t expected = BLOCKS * (strstr(buckets[i].name, "sharded") ? CUT / size : UNCUT);
        MPI_EXPECT(buckets[i].count == expected, "%s has %lld elements, must be %lld",
                   buckets[i].name, (long long)buckets[i].count, (long long)expected);
    }
    for (int i = 0; i < BLOCKS; i++)
        nn_block_release(&blocks[i]);
    nn_params_destroy(params);
    discard_team(&t);
}

/* Where logits are equal everywhere the lowest id wins; it lies on the first rank. */
MPI_TEST(nn, argmax_of_equals)
{
    mimo_comm *comm = mpi_test_comm();
    int size = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    nn_loss loss;
    nn_real logits[2][3] = {{0}};
    int64_t ids[2] = {-1, -1};
    logits[1][2] = rank > 0 ? 1 : 0; /* row 1: the last column of every rank but the first */
    MPI_EXPECT_OK(nn_loss_init(&loss, nn_test_runtime(), comm, 3 * size, 2));
    MPI_EXPECT_OK(nn_loss_argmax(&loss, nn_test_sent(logits[0], 6), 2, ids));
    nn_test_free_rooms();
    MPI_EXPECT(ids[0] == 0, "row 0: %lld", (long long)ids[0]);
    MPI_EXPECT(ids[1] == (size > 1 ? 5 : 0), "row 1: %lld", (long long)ids[1]);
    nn_loss_release(&loss);
}

/* A value that one rank alone has reaches all: whole, in slices of rows, or of columns. */
MPI_TEST(nn, distributed_values)
{
    enum { ROWS = 16, COLUMNS = 24 };
    mimo_comm *comm = mpi_test_comm();
    int size = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    nn_real whole[ROWS * COLUMNS], got[ROWS * COLUMNS];
    mimo_grid *grid = mpi_test_grid_of("tp=%d", size);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        whole[i] = i + 1;
    for (int cut = -1; cut < 2; cut++)
        for (int root = 0; root < size; root++) {
            nn_params_desc store = {.name = "test",
                                    .module = MIMO_DST,
                                    .tp_rank = rank,
                                    .tp_size = size,
                                    .runtime = nn_test_runtime()};
            nn_param_desc desc = {.name = "w",
                                  .ndim = 2,
                                  .shape = {ROWS, COLUMNS},
                                  .rule = cut < 0 ? NN_REPLICATED : NN_SHARDED,
                                  .shard_dim = cut};
            nn_owners_desc who = {.comm = comm, .grid = grid};
            nn_owners owners = {0};
            nn_param_part to = {.owners = &owners, .part = NN_VALUE};
            MPI_EXPECT_OK(nn_params_create(&who.params, &store));
            MPI_EXPECT_OK(nn_params_add(who.params, &desc, &to.index));
            MPI_EXPECT_OK(nn_params_seal(who.params));
            MPI_EXPECT_OK(nn_owners_init(&owners, &who));
            MPI_EXPECT_OK(nn_params_distribute(&to, rank == root ? whole : NULL, root));
            MPI_EXPECT_OK(nn_params_read(who.params, to.index, NN_VALUE, got));
            const nn_placement *placement = &nn_params_at(who.params, to.index)->placement;
            for (int64_t i = 0; i < nn_placement_runs(placement); i++) {
                nn_run run = nn_placement_run(placement, rank, i);
                MPI_EXPECT_BITS(bits_of(got + run.local, whole + run.global,
                                        run.count * (int64_t)sizeof *got, sizeof *got, 0),
                                "cut %d, root %d, run %d", cut, root, (int)i);
            }
            MPI_EXPECT_STATUS(nn_params_distribute(&to, whole, root),
                              size > 1 ? MIMO_ERR_ARGUMENT : MIMO_OK);
            MPI_FAILS(nn_params_distribute(&to, NULL, size), MIMO_ERR_ARGUMENT, "root");
            nn_owners_release(&owners);
            nn_params_destroy(who.params);
        }
}

/* A mistake on one rank is an error on all ranks, and no rank waits. */
MPI_TEST(nn, refuses_on_all_ranks)
{
    mimo_comm *comm = mpi_test_comm();
    int size = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    nn_sequence sequence = {0};
    int64_t positions[2] = {2 * rank, rank == size - 1 ? -4 : 2 * rank + 1};
    nn_sequence_desc desc = {comm, true, 2, 1, positions, nn_test_runtime(), 0};
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT, "positions[1] is -4");
    positions[1] = 2 * rank + 1;
    positions[0] = rank == 1 ? 0 : 2 * rank;
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT, "position 0 appears twice");
    desc.positions = NULL;
    MPI_FAILS(nn_sequence_init(&sequence, &desc), MIMO_ERR_ARGUMENT, "no positions are given");
    nn_loss loss;
    MPI_FAILS(nn_loss_init(&loss, nn_test_runtime(), comm, 2 * size + 1, 1), MIMO_ERR_ARGUMENT,
              "is not divisible by");
}
