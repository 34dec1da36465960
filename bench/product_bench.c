/*
 * What the fixed order of products costs: the products of the captioner's default size, and some of
 * larger models, in the fixed order (train/nn/ops/nn_order.h) and in the fast one, by OpenBLAS or
 * cuBLAS. The captioner's are those of one of two cp ranks: 16 samples of 48 of their 96 tokens,
 * and 16 pictures of 16 patches.
 *
 *   product_bench [--device cuda] [--repeats 15] [--only NAME]
 *
 * The two take turns, so both meet the same moods of the machine. A time is the median of its
 * repeats. `parts` are those of a sum over tp, `samples` those of a gradient of weights: the fast
 * order has one product in place of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_support.h"
#include "train/device/blas_kernels.h"
#include "train/nn/nn.h"
#include "train/nn/ops/nn_ops.h"

enum { FAST, FIXED, ORDERS, MOST_REPEATS = 1000, HOST = 1, DEVICE = 2, BOTH = 3 };

typedef struct settings {
    mimo_memory memory;
    int64_t repeats;
    const char *only;
} settings;

/* [m, k] times [k, n], `count` times. With samples, k is that of one sample. */
typedef struct shape {
    const char *name;
    int64_t m, n, k, count, parts, samples;
    bool ta, tb;
    int where;
} shape;

static const shape shapes[] = {
    {"qkv", 768, 384, 128, 1, 0, 0, false, true, BOTH},
    {"up", 768, 512, 128, 1, 0, 0, false, true, BOTH},
    {"down", 768, 128, 512, 1, 8, 0, false, true, BOTH},
    {"out", 768, 128, 128, 1, 8, 0, false, true, BOTH},
    {"logits", 768, 288, 128, 1, 0, 0, false, true, BOTH},
    {"patches", 256, 128, 192, 1, 0, 0, false, true, BOTH},
    {"up, 48 rows", 48, 512, 128, 1, 0, 0, false, true, BOTH},
    {"up, 1 row", 1, 512, 128, 1, 0, 0, false, true, BOTH},
    {"down to input", 768, 512, 128, 1, 0, 0, false, false, BOTH},
    {"up to input", 768, 128, 512, 1, 8, 0, false, false, BOTH},
    {"logits to input", 768, 128, 288, 1, 8, 0, false, false, BOTH},
    {"up to weights", 512, 128, 48, 1, 0, 16, true, false, BOTH},
    {"down to weights", 128, 512, 48, 1, 0, 16, true, false, BOTH},
    {"out to weights", 128, 128, 48, 1, 0, 16, true, false, BOTH},
    {"logits to weights", 288, 128, 48, 1, 0, 16, true, false, BOTH},
    {"patches to weights", 128, 192, 16, 1, 0, 16, true, false, BOTH},
    {"scores", 48, 96, 16, 128, 0, 0, false, true, BOTH},
    {"context", 48, 16, 96, 128, 0, 0, false, false, BOTH},
    {"to values", 96, 16, 48, 128, 0, 0, true, false, BOTH},
    {"patches' scores", 16, 16, 16, 128, 0, 0, false, true, BOTH},
    {"patches' context", 16, 16, 16, 128, 0, 0, false, false, BOTH},
    {"scores, dh 32", 48, 96, 32, 64, 0, 0, false, true, BOTH},
    {"context, dh 32", 48, 32, 96, 64, 0, 0, false, false, BOTH},
    {"adapter A", 768, 8, 128, 1, 0, 0, false, true, BOTH},
    {"adapter B", 768, 512, 8, 1, 0, 0, false, true, BOTH},
    {"1024 up", 1024, 4096, 1024, 1, 0, 0, false, true, BOTH},
    {"1024 down", 1024, 1024, 4096, 1, 8, 0, false, true, BOTH},
    {"1024 to input", 1024, 1024, 4096, 1, 8, 0, false, false, BOTH},
    {"1024 to weights", 4096, 1024, 128, 1, 0, 8, true, false, BOTH},
    {"3072 up", 3072, 4096, 1024, 1, 0, 0, false, true, DEVICE},
    {"3072 qkv", 3072, 3072, 1024, 1, 0, 0, false, true, DEVICE},
    {"3072 out", 3072, 1024, 1024, 1, 8, 0, false, true, DEVICE},
    {"3072 down", 3072, 1024, 4096, 1, 8, 0, false, true, DEVICE},
    {"3072 up to input", 3072, 1024, 4096, 1, 8, 0, false, false, DEVICE},
    {"3072 to weights", 4096, 1024, 48, 1, 0, 64, true, false, DEVICE},
    {"scores, dh 128", 48, 48, 128, 512, 0, 0, false, true, DEVICE},
    {"context, dh 128", 48, 128, 48, 512, 0, 0, false, false, DEVICE},
    {"1024^3", 1024, 1024, 1024, 1, 0, 0, false, false, BOTH},
    {"4096^3", 4096, 4096, 4096, 1, 0, 0, false, false, DEVICE},
};

typedef struct subject {
    nn_runtime runtime;
    nn_product product;
    double times[MOST_REPEATS]; /* us of one product */
} subject;

#define OPTION_INTO settings

static const option_row known[] = {
    OPTION_CHOICE("device", memory, "cpu|cuda", "Where tensors live (default cpu)", .letter = 'd'),
    OPTION_INT("repeats", "N", repeats, 1, MOST_REPEATS,
               "Timed repeats of each product (default 15)", .letter = 'r'),
    OPTION_TEXT("only", "NAME", only, "The product of this name alone", .letter = 'o'),
};

static nn_real *filled(const nn_runtime *runtime, int64_t n)
{
    nn_real *room, *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (nn_real)((double)(i * 2654435761u % 1000003) / 1000003 - 0.5);
    must(nn_runtime_reserve(runtime, &room, n, sizeof *room));
    must(nn_runtime_write(runtime, room, values, n * (int64_t)sizeof *values));
    free(values);
    return room;
}

static nn_matrix matrix_of(const nn_real *data, int64_t rows, int64_t columns, bool transposed)
{
    return (nn_matrix){data,           rows,      columns, transposed ? rows : columns,
                       rows * columns, transposed};
}

static nn_product product_of(const shape *s, int order, const nn_real *a, const nn_real *b, void *c)
{
    int64_t samples = s->samples > 0 ? s->samples : 1;
    int64_t k = order == FAST ? s->k * samples : s->k;
    nn_product p = {.c = c,
                    .stride = s->n,
                    .step = s->m * s->n,
                    .alpha = 1,
                    .a = matrix_of(a, s->m, k, s->ta),
                    .b = matrix_of(b, k, s->n, s->tb),
                    .count = s->count};
    if (order == FAST) {
        p.beta = s->samples > 0 ? 1 : 0;
        return p;
    }
    p.parts = s->parts;
    if (s->samples > 0) {
        p.c = NULL, p.sums = c;
        p.step = 0, p.count = samples;
    }
    return p;
}

/* us, when all that was enqueued is done. On the host those of this thread alone, as others use the
 * machine: OPENBLAS_NUM_THREADS must be 1. */
static double now(const subject *x)
{
    nn_real last;
    struct timespec time;
    must(nn_runtime_read(&x->runtime, &last, x->product.a.data, sizeof last));
    clock_gettime(x->runtime.memory == MIMO_MEMORY_CUDA ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID,
                  &time);
    return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static double time_of(const subject *x, int64_t calls)
{
    double start = now(x);
    for (int64_t i = 0; i < calls; i++)
        must(x->runtime.ops->matmul(&x->runtime, &x->product));
    return (now(x) - start) / (double)calls;
}

static void measure(subject subjects[ORDERS], const settings *set, const shape *s)
{
    int64_t samples = s->samples > 0 ? s->samples : 1;
    int64_t terms = s->m * s->n * s->k * s->count * samples;
    nn_runtime *runtime = &subjects[FAST].runtime;
    nn_real *a = filled(runtime, s->m * s->k * s->count * samples);
    nn_real *b = filled(runtime, s->k * s->n * s->count * samples);
    nn_real *c[ORDERS];
    for (int order = 0; order < ORDERS; order++) { /* sums have 8 bytes, and begin with 0 */
        must(nn_runtime_reserve(runtime, &c[order], s->m * s->n * s->count, sizeof(int64_t)));
        subjects[order].product = product_of(s, order, a, b, c[order]);
    }
    double rate = set->memory == MIMO_MEMORY_CUDA ? 1e7 : 5e4; /* terms in a us */
    int64_t calls = 1 + (int64_t)(2000 * rate / (double)terms);
    calls = calls < 200 ? calls : 200;
    for (int64_t repeat = -2; repeat < set->repeats; repeat++)
        for (int order = 0; order < ORDERS; order++) {
            double time = time_of(&subjects[order], calls);
            if (repeat >= 0) /* the first two warm up */
                subjects[order].times[repeat] = time;
        }
    double fast = bench_median(subjects[FAST].times, set->repeats);
    double fixed = bench_median(subjects[FIXED].times, set->repeats);
    printf("%-16s %5" PRId64 " %5" PRId64 " %5" PRId64 " %5" PRId64 " %5" PRId64 " %7" PRId64
           " %10.1f %10.1f %9.1f %9.1f %6.2f\n",
           s->name, s->m, s->n, s->k, s->count, s->parts, s->samples, fast, fixed,
           2e-3 * (double)terms / fast, 2e-3 * (double)terms / fixed, fixed / fast);
    nn_runtime_free(runtime, a);
    nn_runtime_free(runtime, b);
    for (int order = 0; order < ORDERS; order++)
        nn_runtime_free(runtime, c[order]);
}

int main(int argc, char **argv)
{
    static const option_table table = {.program = "product_bench",
                                       .about =
                                           "Times products in the fixed order beside fast ones.",
                                       OPTION_ROWS(known)};
    static subject subjects[ORDERS];
    settings set = {MIMO_MEMORY_HOST, 15, NULL};
    int found = 0;
    blas_kernels_choose(argv);
    bench_options(&set, &table, argc, argv);
    for (int order = 0; order < ORDERS; order++) {
        nn_runtime_desc desc = {.memory = set.memory,
                                .order = order == FIXED ? NN_ORDER_FIXED : NN_ORDER_FAST};
        must(nn_runtime_init(&subjects[order].runtime, &desc));
    }
    bool device = set.memory == MIMO_MEMORY_CUDA;
    printf("products by %s and in the fixed order on the %s; medians of %" PRId64 "\n",
           device ? "cuBLAS" : "OpenBLAS", device ? "GPU" : "host", set.repeats);
    printf("%-16s %5s %5s %5s %5s %5s %7s %10s %10s %9s %9s %6s\n", "", "m", "n", "k", "times",
           "parts", "samples", "fast, us", "fixed, us", "GFLOP/s", "GFLOP/s", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if ((shapes[i].where & (device ? DEVICE : HOST)) &&
            (!set.only || strcmp(set.only, shapes[i].name) == 0)) {
            measure(subjects, &set, &shapes[i]);
            found++;
        }
    for (int order = 0; order < ORDERS; order++)
        nn_runtime_release(&subjects[order].runtime);
    if (found == 0)
        fprintf(stderr, "product_bench: no product is named %s here\n", set.only);
    return found > 0 ? 0 : 2;
}
