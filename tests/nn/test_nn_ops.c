/* Every operation of the tested memory's table against the host's, on the same numbers. Products of
 * matrices have tests of their own. Sizes are odd, and larger than a thread block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/nn/layers/nn_lookup_uses.h"
#include "train/nn/ops/nn_ops.h"
#include "nn_gradient_check.h"
#include "same_bits.h"

#ifdef NN_REAL_F64
static const double tolerance = 1e-12;
#else
static const double tolerance = 1e-5;
#endif

enum { ROWS = 150, MOST = ROWS * 301 };
static const int64_t widths[] = {1, 31, 96, 301};
enum { WIDTHS = 4 };

/* One array in both memories. */
typedef struct pair {
    nn_real *host, *room;
    int64_t n;
} pair;

enum { MOST_PAIRS = 32 };
static nn_real *arrays[MOST_PAIRS];
static int array_count;

static pair make(const char *name, int64_t n)
{
    pair p = {calloc((size_t)n, sizeof(nn_real)), NULL, n};
    cr_assert(array_count < MOST_PAIRS);
    arrays[array_count++] = p.host;
    nn_test_fill(p.host, n, name);
    p.room = nn_test_sent(p.host, n);
    return p;
}

static void free_pairs(void)
{
    while (array_count > 0)
        free(arrays[--array_count]);
    nn_test_free_rooms();
}

static double largest(const nn_real *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Compares the room with the host's array. The bound is relative to the array's largest element,
 * or, with `each`, to each element. */
static void compare(const char *what, pair p, bool each)
{
    nn_real *got = calloc((size_t)p.n, sizeof *got);
    double most = largest(p.host, p.n);
    nn_test_read(got, p.room, p.n);
    for (int64_t i = 0; i < p.n; i++) {
        double expected = (double)p.host[i], scale = each ? fabs(expected) : most;
        cr_assert(fabs((double)got[i] - expected) <= tolerance * scale,
                  "%s: element %lld of %lld is %.17g, on the host %.17g", what, (long long)i,
                  (long long)p.n, (double)got[i], expected);
    }
    free(got);
}

static void compare_f64(const char *what, const double *host, const double *room, int64_t n)
{
    double *got = calloc((size_t)n, sizeof *got);
    SUCCEEDS(nn_runtime_read(nn_test_runtime(), got, room, n * (int64_t)sizeof *got));
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs(got[i] - host[i]) <= tolerance * (1 + fabs(host[i])),
                  "%s: element %lld is %.17g, on the host %.17g", what, (long long)i, got[i],
                  host[i]);
    free(got);
}

/* The same call in both memories. `host` and `here` are the runtimes. */
#define BOTH(op, host_arguments, room_arguments) \
    do {                                         \
        SUCCEEDS(host->ops->op host_arguments);  \
        SUCCEEDS(here->ops->op room_arguments);  \
    } while (0)

Test(nn_ops, elements)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    const nn_rows all = {.most = MOST};
    pair a = make("a", MOST), b = make("b", MOST), gate = make("gate", MOST), d = make("d", MOST);
    BOTH(add, (host, a.host, b.host, MOST), (here, a.room, b.room, MOST));
    BOTH(gelu, (host, b.host, gate.host, a.host, all, 1),
         (here, b.room, gate.room, a.room, all, 1));
    BOTH(gelu_backward, (host, d.host, a.host, gate.host, all, 1),
         (here, d.room, a.room, gate.room, all, 1));
    compare("gelu", b, false);
    compare("gelu backward", d, false);
    compare("gate", gate, true);
    compare("add", a, true);
    free_pairs();
}

/* By fewer threads than words, in words of both sizes, and not beyond the end. */
Test(nn_ops, narrow_copy)
{
    static const int64_t counts[] = {0, 1, 37, 8 * 1024, MOST - 4, MOST - 5};
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        pair from = make("from", MOST), to = make("to", MOST);
        int64_t n = counts[i], shift = i % 2 == 0 ? 4 : 1;
        BOTH(copy_narrow, (host, to.host + shift, from.host, n, 2),
             (here, to.room + shift, from.room, n, 2));
        compare("copy", to, true);
        free_pairs();
    }
}

Test(nn_ops, bias_and_its_gradient)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    for (int w = 0; w < WIDTHS; w++) {
        int64_t width = widths[w];
        pair y = make("y", ROWS * width), bias = make("bias", width), sums = make("sums", width);
        BOTH(add_bias, (host, y.host, bias.host, ROWS, width),
             (here, y.room, bias.room, ROWS, width));
        BOTH(add_columns, (host, sums.host, y.host, ROWS, width),
             (here, sums.room, y.room, ROWS, width));
        BOTH(add_columns, (host, sums.host, y.host, 0, width), (here, sums.room, y.room, 0, width));
        compare("sums of columns", sums, false);
        compare("bias", y, false);
        free_pairs();
    }
}

Test(nn_ops, bf16)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    pair x = make("x", MOST), back = make("back", MOST);
    uint16_t *half = calloc(MOST, sizeof *half), *got = calloc(MOST, sizeof *got);
    uint16_t *room = nn_test_place(here, MOST, sizeof *room);
    BOTH(to_bf16, (host, half, x.host, MOST), (here, room, x.room, MOST));
    BOTH(from_bf16, (host, back.host, half, MOST), (here, back.room, room, MOST));
    SUCCEEDS(nn_runtime_read(here, got, room, MOST * (int64_t)sizeof *got));
    EXPECT_BITS(bits_of(got, half, MOST * (int64_t)sizeof *got, sizeof *got, 0), "bf16");
    compare("from bf16", back, true);
    free(half), free(got);
    free_pairs();
}

static void check_norm(int64_t width, bool in_place)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    int64_t n = ROWS * width;
    pair x = make("x", n), y = make("y", n), dy = make("dy", n), dx = make("dx", n);
    pair scale = make("scale", width), shift = make("shift", width);
    pair d_scale = make("d_scale", width), d_shift = make("d_shift", width);
    pair mean = make("mean", ROWS), rstd = make("rstd", ROWS);
    nn_norm_rows h = {x.host, ROWS, width, scale.host, shift.host, mean.host, rstd.host};
    nn_norm_rows r = {x.room, ROWS, width, scale.room, shift.room, mean.room, rstd.room};
    nn_norm_gradients hg = {
        .dy = dy.host, .dx = dx.host, .d_scale = d_scale.host, .d_shift = d_shift.host};
    nn_norm_gradients rg = {
        .dy = dy.room, .dx = dx.room, .d_scale = d_scale.room, .d_shift = d_shift.room};
    if (in_place) { /* dx is dy, and dx is added to */
        hg.dx = dy.host, hg.residual = dx.host;
        rg.dx = dy.room, rg.residual = dx.room;
    }
    BOTH(norm, (host, y.host, &h), (here, y.room, &r));
    BOTH(norm_backward, (host, &h, &hg), (here, &r, &rg));
    compare("norm: y", y, false);
    compare("norm: mean", mean, false);
    compare("norm: rstd", rstd, true);
    compare("norm: dx", dx, false);
    compare("norm: dy", dy, false);
    compare("norm: d_scale", d_scale, false);
    compare("norm: d_shift", d_shift, false);
    free_pairs();
}

/* With one element a row, x is its own mean. y is the shift, and dx is rounding error. */
Test(nn_ops, norm)
{
    for (int w = 1; w < WIDTHS; w++)
        for (int in_place = 0; in_place < 2; in_place++)
            check_norm(widths[w], in_place == 1);
}

static void check_softmax(int64_t queries, int64_t width, bool masked)
{
    enum { PANELS = 6 };
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    int64_t rows = PANELS * queries, n = rows * width;
    pair scores = make("scores", n), d = make("d", n), mask = make("mask", queries * width);
    for (int64_t i = 0; i < mask.n; i++) /* every row sees the first key */
        mask.host[i] = (nn_real)(i % width == 0 || mask.host[i] > 0);
    nn_test_write(mask.room, mask.host, mask.n);
    nn_scores h = {scores.host, masked ? mask.host : NULL, PANELS, queries, width};
    nn_scores r = {scores.room, masked ? mask.room : NULL, PANELS, queries, width};
    BOTH(softmax, (host, &h), (here, &r));
    BOTH(softmax_backward, (host, d.host, scores.host, rows, width),
         (here, d.room, scores.room, rows, width));
    compare("softmax backward", d, false);
    compare("softmax", scores, true); /* zeros exact */
    free_pairs();
}

/* A device has rows of these widths in registers, in numbers of each size, and wider ones not. */
Test(nn_ops, softmax)
{
    static const int64_t wide[] = {129, 256, 1000, 1500};
    for (int masked = 0; masked < 2; masked++) {
        for (int w = 0; w < WIDTHS; w++)
            check_softmax(ROWS / 6, widths[w], masked == 1);
        for (size_t w = 0; w < sizeof wide / sizeof *wide; w++)
            check_softmax(3, wide[w], masked == 1);
    }
}

static void check_lookup(int64_t width, int64_t repeat)
{
    enum { N = 60, ENTRIES = 40 };
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    int64_t ids[N], slot[ENTRIES], numbers[4 * N + 1];
    for (int64_t i = 0; i < N; i++) /* one entry has half of the uses, many have none */
        ids[i] = i % 2 ? 7 : i * i % ENTRIES;
    memset(slot, 0xff, sizeof slot);
    int64_t used = nn_uses_fill(numbers, slot, ids, N);
    int64_t *room = nn_test_place(here, 4 * N + 1, sizeof *room);
    SUCCEEDS(nn_runtime_write(here, room, numbers, sizeof numbers));
    nn_uses h_uses = nn_uses_at(numbers, N, used), r_uses = nn_uses_at(room, N, used);
    pair table = make("table", ENTRIES * width), grad = make("grad", ENTRIES * width);
    pair y = make("y", N * repeat * width), sum = make("sum", N * repeat * width);
    nn_lookup h = {table.host, numbers, N, repeat, width}, r = {table.room, room, N, repeat, width};
    BOTH(lookup, (host, y.host, &h), (here, y.room, &r));
    BOTH(lookup_add, (host, sum.host, &h), (here, sum.room, &r));
    BOTH(lookup_backward, (host, grad.host, sum.host, &h, &h_uses),
         (here, grad.room, sum.room, &r, &r_uses));
    compare("lookup backward", grad, false);
    compare("lookup", y, true);
    compare("lookup add", sum, true);
    free_pairs();
}

Test(nn_ops, lookups)
{
    for (int w = 0; w < WIDTHS; w++) {
        check_lookup(widths[w], 1);
        check_lookup(widths[w], 3);
    }
}

/* The numbers of the loss in one memory. */
typedef struct token_rooms {
    double *maxima, *sums, *losses, *choices, *total;
    int64_t *labels;
} token_rooms;

static token_rooms make_token_rooms(const nn_runtime *where, const int64_t *labels)
{
    token_rooms t = {.maxima = nn_test_place(where, ROWS, sizeof(double)),
                     .sums = nn_test_place(where, 2 * ROWS, sizeof(double)),
                     .losses = nn_test_place(where, ROWS, sizeof(double)),
                     .choices = nn_test_place(where, 2 * ROWS, sizeof(double)),
                     .total = nn_test_place(where, 1, sizeof(double)),
                     .labels = nn_test_place(where, ROWS, sizeof(int64_t))};
    SUCCEEDS(nn_runtime_write(where, t.labels, labels, ROWS * (int64_t)sizeof *labels));
    return t;
}

/* This rank has the ids [width, 2 width) of 3 width, so a third of the labels is here. */
static void check_tokens(int64_t width)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    int64_t labels[ROWS];
    for (int64_t i = 0; i < ROWS; i++)
        labels[i] = i % 5 == 2 ? NN_IGNORE : i * 7 % (3 * width);
    token_rooms h = make_token_rooms(host, labels), r = make_token_rooms(here, labels);
    pair logits = make("logits", ROWS * width);
    logits.host[2 * width] = (nn_real)NAN; /* an ignored row is not even read */
    nn_test_write(logits.room, logits.host, logits.n);
    nn_token_rows ht = {logits.host, h.labels, ROWS, width, width, h.maxima, h.sums, NULL};
    nn_token_rows rt = {logits.room, r.labels, ROWS, width, width, r.maxima, r.sums, NULL};
    for (int twice = 0; twice < 2; twice++) { /* the total adds up */
        BOTH(token_maxima, (host, &ht), (here, &rt));
        BOTH(token_sums, (host, &ht), (here, &rt));
        BOTH(token_losses, (host, h.losses, h.total, &ht), (here, r.losses, r.total, &rt));
    }
    compare_f64("maxima", h.maxima, r.maxima, ROWS);
    compare_f64("sums", h.sums, r.sums, 2 * ROWS);
    compare_f64("losses", h.losses, r.losses, ROWS);
    compare_f64("total", h.total, r.total, 1);
    BOTH(token_gradients, (host, logits.host, &ht), (here, logits.room, &rt)); /* in place */
    compare("gradients", logits, false);
    BOTH(row_largest, (host, h.choices, &ht), (here, r.choices, &rt));
    /* Choose among the same values. Those in the second half are larger than any here. */
    for (int64_t i = ROWS / 2; i < ROWS; i++)
        h.choices[i] = 2;
    SUCCEEDS(nn_runtime_write(here, r.choices, h.choices, ROWS * (int64_t)sizeof(double)));
    nn_test_write(logits.room, logits.host, logits.n);
    BOTH(row_argmax, (host, h.choices + ROWS, h.choices, &ht, 3 * width),
         (here, r.choices + ROWS, r.choices, &rt, 3 * width));
    compare_f64("choices", h.choices, r.choices, 2 * ROWS);
    free_pairs();
}

Test(nn_ops, tokens)
{
    for (int w = 0; w < WIDTHS; w++)
        check_tokens(widths[w]);
}

Test(nn_ops, adamw)
{
    const nn_runtime *host = nn_runtime_or_host(NULL), *here = nn_test_runtime();
    pair value = make("value", MOST), grad = make("grad", MOST);
    pair m = make("m", MOST), v = make("v", MOST);
    for (int64_t i = 0; i < MOST; i++)
        v.host[i] *= v.host[i];
    nn_test_write(v.room, v.host, MOST);
    nn_moments h = {value.host, m.host, v.host, grad.host, MOST};
    nn_moments r = {value.room, m.room, v.room, grad.room, MOST};
    nn_adamw_factors factors = {.gradient = (nn_real)0.7,
                                .beta1 = (nn_real)0.9,
                                .beta2 = (nn_real)0.95,
                                .rest1 = (nn_real)0.1,
                                .rest2 = (nn_real)0.05,
                                .root = (nn_real)2.5,
                                .epsilon = (nn_real)1e-6,
                                .rate = (nn_real)0.02,
                                .decay = (nn_real)0.001};
    BOTH(adamw, (host, &h, &factors), (here, &r, &factors));
    compare("adamw: value", value, false);
    compare("adamw: m", m, false);
    compare("adamw: v", v, true);
    free_pairs();
}
