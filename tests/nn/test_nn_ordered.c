/* Products of the fixed order, bit for bit: against loops of fma, one element at a time, in every
 * form that nn_product has; by every kind of code that this processor runs; and the other sums of
 * the fixed order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cases_ran.h"
#include "core/hash.h"
#include "train/nn/host/nn_host_ordered.h"
#include "train/nn/layers/nn_lookup_uses.h"
#include "train/nn/ops/nn_fixed.h"
#include "train/nn/ops/nn_ops.h"
#include "nn_gradient_check.h"
#include "same_bits.h"
#include "test_memory.h"

enum { MOST = 1000 * 1000 + 4096, MOST_CHECKED = 60000, SAMPLES = 48 };

/* Elements between rows, beyond the width, and between matrices; an offset of the first. */
typedef struct gaps {
    int64_t row, matrix, first;
} gaps;

typedef struct shape {
    int64_t m, n, k, count;
    bool ta, tb;
    float alpha, beta;
    gaps a, b, c;
    int64_t parts;
    bool folded;
    int64_t then; /* k of the second factors; 0: none */
    bool sums;
    bool shared; /* one output for the whole batch */
} shape;

/* What a product reads and writes, on the host. `given` is the output before it. */
static float a_data[MOST], b_data[MOST], a2_data[MOST], b2_data[MOST];
static float c_given[MOST], c_got[MOST], c_first[MOST];
static int64_t s_given[MOST], s_got[MOST], s_first[MOST];

static const nn_runtime *runtime(void)
{
    static nn_runtime made;
    nn_runtime_desc desc = {test_memory(), test_stream(), NN_PRECISION_FULL, NN_ORDER_FIXED, 0};
    if (!made.ops)
        SUCCEEDS(nn_runtime_init(&made, &desc));
    return &made;
}

/* ------------------------------------------------------------- the reference */

/* fma in integers and doubles: the product is exact in f64; the sum is rounded to odd there, so
 * that the second rounding, to f32, is the only one that counts. Finite numbers of normal size. */
static float soft_fma(float a, float b, float c)
{
    double product = (double)a * (double)b, sum = product + (double)c;
    double back = sum - product;
    double error = (product - (sum - back)) + ((double)c - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0 && bits % 2 == 0)
        bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    memcpy(&sum, &bits, sizeof bits);
    return (float)sum;
}

static float at(const nn_matrix *x, int64_t matrix, int64_t i, int64_t j)
{
    return x->data[matrix * x->step + (x->transposed ? j * x->stride + i : i * x->stride + j)];
}

static float one_chain(const nn_product *p, int64_t matrix, int64_t part, int64_t i, int64_t j)
{
    int64_t parts = p->parts > 0 ? p->parts : 1;
    float sum = p->beta != 0 && !p->sums ? p->c[matrix * p->step + i * p->stride + j] : 0;
    for (int piece = 0; piece < 2; piece++) {
        nn_piece k = nn_order_piece(p->a.columns, parts, p->folded, part, piece);
        for (int64_t l = k.first; l < k.first + k.count; l++)
            sum = fmaf(p->alpha * at(&p->a, matrix, i, l), at(&p->b, matrix, l, j), sum);
    }
    if (!p->then)
        return sum;
    nn_matrix a = p->then->a, b = p->then->b;
    a.data += part * p->then->a_part;
    b.data += part * p->then->b_part;
    for (int64_t l = 0; l < a.columns; l++)
        sum = fmaf(p->then->alpha * at(&a, matrix, i, l), at(&b, matrix, l, j), sum);
    return sum;
}

static float one_tree(const nn_product *p, int64_t matrix, int64_t i, int64_t j, int64_t first,
                      int64_t count)
{
    if (count == 1)
        return one_chain(p, matrix, first, i, j);
    return one_tree(p, matrix, i, j, first, count / 2) +
           one_tree(p, matrix, i, j, first + count / 2, count / 2);
}

static int64_t one_sum(const nn_product *p, int64_t matrix, int64_t i, int64_t j)
{
    int64_t sum = p->sums[matrix * p->step + i * p->stride + j];
    bool shared = p->step == 0;
    for (int64_t q = shared ? 0 : matrix; q < (shared ? p->count : matrix + 1); q++)
        for (int64_t part = 0; part < (p->parts > 0 ? p->parts : 1); part++)
            sum = nn_fixed_sum(sum, (double)one_chain(p, q, part, i, j));
    return sum;
}

/* ------------------------------------------------------------- one product */

static nn_matrix matrix_of(const float *data, int64_t rows, int64_t columns, bool transposed,
                           gaps gap)
{
    int64_t lines = transposed ? columns : rows, line = transposed ? rows : columns;
    int64_t stride = line + gap.row;
    return (nn_matrix){data + gap.first, rows, columns, stride, lines * stride + gap.matrix,
                       transposed};
}

static int64_t extent(const nn_matrix *x, int64_t count)
{
    int64_t lines = x->transposed ? x->columns : x->rows;
    return count == 0 ? 0 : (count - 1) * x->step + lines * x->stride;
}

/* The product of a shape over the host's arrays; `then` is its room for the second factors. */
static nn_product product_of(const shape *s, nn_factors *then)
{
    int64_t parts = s->parts > 0 ? s->parts : 1;
    nn_product p = {.c = s->sums ? NULL : c_given + s->c.first,
                    .sums = s->sums ? s_given + s->c.first : NULL,
                    .stride = s->n + s->c.row,
                    .alpha = s->alpha,
                    .beta = s->beta,
                    .a = matrix_of(a_data, s->m, s->k, s->ta, s->a),
                    .b = matrix_of(b_data, s->k, s->n, s->tb, s->b),
                    .count = s->count,
                    .parts = s->parts,
                    .folded = s->folded};
    p.step = s->shared ? 0 : s->m * p.stride + s->c.matrix;
    if (s->then > 0) {
        *then = (nn_factors){.alpha = s->alpha * 0.5f,
                             .a = matrix_of(a2_data, s->m, s->then, s->ta, s->a),
                             .b = matrix_of(b2_data, s->then, s->n, s->tb, s->b)};
        then->a_part = then->a.step, then->b_part = then->b.step;
        then->a.step *= parts, then->b.step *= parts;
        p.then = then;
        cr_assert(extent(&then->a, s->count) + (parts - 1) * then->a_part < MOST &&
                  extent(&then->b, s->count) + (parts - 1) * then->b_part < MOST);
    }
    cr_assert(extent(&p.a, s->count) < MOST && extent(&p.b, s->count) < MOST &&
              s->c.first + (s->count - 1) * p.step + s->m * p.stride < MOST);
    return p;
}

static const float *sent(const float *from, int64_t n)
{
    return nn_test_sent(from, n > 0 ? n : 1);
}

/* The elements of the output that a test looks at. */
static int64_t output_extent(const nn_product *p, const shape *s)
{
    return s->c.first + (s->count - 1) * p->step + s->m * p->stride;
}

/* Run it in the tested memory, into c_got or s_got. */
static void run_there(const shape *s, const nn_product *host)
{
    nn_product p = *host;
    nn_factors then = {0};
    int64_t n = output_extent(host, s), words = s->sums ? 2 * n : n;
    float *room = nn_test_sent(s->sums ? (const float *)(const void *)s_given : c_given, words);
    p.c = s->sums ? NULL : room + s->c.first;
    p.sums = s->sums ? (int64_t *)(void *)room + s->c.first : NULL;
    p.a.data = sent(a_data, s->a.first + extent(&host->a, s->count)) + s->a.first;
    p.b.data = sent(b_data, s->b.first + extent(&host->b, s->count)) + s->b.first;
    if (host->then) {
        int64_t more = s->parts > 0 ? s->parts - 1 : 0;
        then = *host->then;
        then.a.data = sent(a2_data, s->a.first + extent(&then.a, s->count) + more * then.a_part);
        then.b.data = sent(b2_data, s->b.first + extent(&then.b, s->count) + more * then.b_part);
        then.a.data += s->a.first, then.b.data += s->b.first;
        p.then = &then;
    }
    SUCCEEDS(runtime()->ops->matmul(runtime(), &p));
    nn_test_read(s->sums ? (float *)(void *)s_got : c_got, room, words);
    nn_test_free_rooms();
}

static void run_shape(const shape *s)
{
    nn_factors then;
    nn_product p = product_of(s, &then);
    run_there(s, &p);
}

static void run_kind(int kind, const shape *s, const nn_product *host)
{
    nn_product p = *host;
    size_t n = (size_t)output_extent(host, s);
    memcpy(c_got, c_given, n * sizeof *c_got);
    memcpy(s_got, s_given, n * sizeof *s_got);
    p.c = s->sums ? NULL : c_got + s->c.first;
    p.sums = s->sums ? s_got + s->c.first : NULL;
    SUCCEEDS(nn_host_matmul_ordered_by(kind, &p));
}

static const char *text_of(const shape *s)
{
    static char text[256];
    snprintf(text, sizeof text,
             "%d x %d x %d, %d times, transposed %d %d, alpha %g, beta %g, %d parts, folded %d, "
             "then %d, sums %d, shared %d",
             (int)s->m, (int)s->n, (int)s->k, (int)s->count, s->ta, s->tb, (double)s->alpha,
             (double)s->beta, (int)s->parts, s->folded, (int)s->then, s->sums, s->shared);
    return text;
}

/* NaN is NaN, whatever its bits. */
static bool same(float got, float expected)
{
    return memcmp(&got, &expected, sizeof got) == 0 || (isnan(got) && isnan(expected));
}

static void check_element(const char *who, const shape *s, const nn_product *p, int64_t matrix,
                          int64_t i, int64_t j)
{
    int64_t where = s->c.first + matrix * p->step + i * p->stride + j;
    if (s->sums) {
        int64_t expected = one_sum(p, matrix, i, j);
        cr_assert(s_got[where] == expected, "%s, %s: (%d, %d) of %d is %lld, not %lld", who,
                  text_of(s), (int)i, (int)j, (int)matrix, (long long)s_got[where],
                  (long long)expected);
        return;
    }
    float expected = one_tree(p, matrix, i, j, 0, s->parts > 0 ? s->parts : 1);
    cr_assert(same(c_got[where], expected), "%s, %s: (%d, %d) of %d is %a, not %a", who, text_of(s),
              (int)i, (int)j, (int)matrix, (double)c_got[where], (double)expected);
}

static int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*seed >> 33) % (uint64_t)n);
}

/* All elements where they are few, otherwise the corners and some between them. */
static void check_elements(const char *who, const shape *s, const nn_product *p)
{
    int64_t matrices = s->shared ? 1 : s->count, each = s->m * s->n, all = matrices * each;
    int64_t work = all * (s->k + 1) * (s->shared ? s->count : 1);
    uint64_t seed = (uint64_t)work;
    for (int64_t e = 0; e < all; e++) {
        if (work > MOST_CHECKED) {
            if (e == SAMPLES)
                break;
            int64_t i = e < 16 ? s->m - 1 - e % 8 : below(&seed, s->m);
            int64_t j = e < 16 ? s->n - 1 - (e / 8) * 5 : below(&seed, s->n);
            check_element(who, s, p, below(&seed, matrices), i < 0 ? 0 : i, j < 0 ? 0 : j);
        } else {
            check_element(who, s, p, e / each, e % each / s->n, e % s->n);
        }
    }
}

static bool is_output(const shape *s, const nn_product *p, int64_t where)
{
    where -= s->c.first;
    if (where < 0)
        return false;
    int64_t in = p->step > 0 ? where % p->step : where;
    return in / p->stride < s->m && in % p->stride < s->n;
}

/* What lies between rows is as it was, and all kinds agree in all elements. */
static void check_rest(const char *who, const shape *s, const nn_product *p, bool first)
{
    int64_t n = output_extent(p, s);
    for (int64_t i = 0; i < n; i++) {
        bool output = is_output(s, p, i);
        if (!output || !first) {
            bool right = s->sums ? s_got[i] == (output ? s_first : s_given)[i]
                                 : same(c_got[i], (output ? c_first : c_given)[i]);
            cr_assert(right, "%s, %s: element %d", who, text_of(s), (int)i);
        }
    }
    if (s->sums)
        memcpy(s_first, s_got, (size_t)n * sizeof *s_first);
    else
        memcpy(c_first, c_got, (size_t)n * sizeof *c_first);
}

/* `most` is the work up to which slow code runs. */
static void check_shape(const shape *s, int64_t most)
{
    nn_factors then;
    nn_product p = product_of(s, &then);
    run_there(s, &p);
    check_elements("the runtime", s, &p);
    check_rest("the runtime", s, &p, true);
    for (int kind = 0; kind < NN_HOST_ORDERED_KINDS; kind++) {
        const char *name = nn_host_ordered_name(kind);
        bool slow = kind == NN_HOST_ORDERED_KINDS - 1;
        if (!name || (slow && s->count * s->m * s->n * s->k > most))
            continue;
        run_kind(kind, s, &p);
        check_rest(name, s, &p, false);
    }
}

/* Numbers in (-1, 1) whose last bits count. */
static void fill(float *x, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((int64_t)(mimo_hash_int(key, i) >> 39) - (1 << 24)) * 0x1p-24f;
}

static void fill_all(void)
{
    fill(a_data, MOST, 1);
    fill(b_data, MOST, 2);
    fill(c_given, MOST, 3);
    memcpy(a2_data, b_data + 100, (MOST - 100) * sizeof *a2_data);
    memcpy(b2_data, a_data + 100, (MOST - 100) * sizeof *b2_data);
    for (int64_t i = 0; i < MOST; i++)
        s_given[i] = (int64_t)rint((double)c_given[i] * 0x1p45);
}

/* ------------------------------------------------------------- tests of products */

Test(nn_ordered, kinds_of_this_processor)
{
    int ran = 0;
    for (int kind = 0; kind < NN_HOST_ORDERED_KINDS; kind++) {
        const char *name = nn_host_ordered_name(kind);
        fprintf(stderr, "kind %d: %s\n", kind, name ? name : "not on this processor");
        ran += name != NULL;
    }
    cr_assert(ran >= 1);
}

Test(nn_ordered, fma_in_software)
{
    fill_all();
    float sum = 0, soft = 0;
    for (int i = 0; i < 200000; i++) {
        float a = a_data[i], b = b_data[i], c = i % 3 ? sum : ldexpf(c_given[i], i % 60 - 30);
        float got = soft_fma(a, b, c), expected = fmaf(a, b, c);
        cr_assert(same(got, expected), "fma(%a, %a, %a) is %a, not %a", (double)a, (double)b,
                  (double)c, (double)got, (double)expected);
        sum = fmaf(a, b, sum);
        soft = soft_fma(a, b, soft);
    }
    cr_assert(same(sum, soft));
}

static const int64_t sizes[] = {1, 3, 5, 7, 8, 31, 33, 200, 300, 1000};
enum { SIZES = 10 };

Test(nn_ordered, sizes)
{
    fill_all();
    int number = 0;
    for (int m = 0; m < SIZES; m++)
        for (int n = 0; n < SIZES; n++)
            for (int k = 0; k < SIZES; k++, number++) {
                shape s = {.m = sizes[m], .n = sizes[n], .k = sizes[k], .count = 1};
                /* Every seventh of the large ones: the rest has the same sizes in other places. */
                if (s.m * s.n * s.k > 3000000 && number % 7 != 0)
                    continue;
                s.ta = number % 2, s.tb = number / 2 % 2;
                s.alpha = number % 3 == 0 ? 0.35f : 1, s.beta = (float)(number % 5 == 0);
                check_shape(&s, 300000);
            }
}

static shape random_shape(uint64_t *seed)
{
    static const float alphas[] = {1, 1, 1, 0.3f, -2, 0};
    int64_t parts = (int64_t)1 << below(seed, 7);
    shape s = {.m = 1 + below(seed, 40),
               .n = 1 + below(seed, 70),
               .k = below(seed, 50),
               .count = 1 + below(seed, 4),
               .ta = below(seed, 2),
               .tb = below(seed, 2),
               .alpha = alphas[below(seed, 6)],
               .beta = (float)below(seed, 2),
               .a = {below(seed, 3) * below(seed, 9), below(seed, 5), below(seed, 5)},
               .b = {below(seed, 3) * below(seed, 9), below(seed, 5), below(seed, 5)},
               .c = {below(seed, 3) * below(seed, 9), below(seed, 5), below(seed, 5)}};
    if (below(seed, 3) == 0) { /* rows of whole 16 bytes */
        s.m = (s.m + 3) / 4 * 4, s.n = (s.n + 3) / 4 * 4, s.k = (s.k + 3) / 4 * 4;
        s.a = s.b = s.c = (gaps){0};
    }
    s.sums = below(seed, 3) == 0;
    s.shared = s.sums && below(seed, 2);
    if (s.sums || below(seed, 2))
        s.beta = 0;
    if (s.beta == 0 && below(seed, 2)) {
        s.folded = below(seed, 3) == 0;
        s.parts = parts;
        s.k = 2 * parts * below(seed, parts > 8 ? 3 : 9);
    }
    if (!s.folded && below(seed, 3) == 0)
        s.then = 1 + below(seed, 9);
    return s;
}

enum { RANDOM_SHAPES = 700, LEAST_SHAPES = 660 };

static void check_random_shapes(uint64_t seed)
{
    int ran = 0, with[4] = {0};
    for (int i = 0; i < RANDOM_SHAPES; i++) {
        shape s = random_shape(&seed);
        if (s.m * s.n * s.count * (s.k + s.then * (s.parts + 1)) > 600000)
            continue;
        check_shape(&s, 1 << 20);
        ran++;
        with[0] += s.parts > 1, with[1] += s.folded, with[2] += s.then > 0, with[3] += s.sums;
    }
    fprintf(stderr, "%d with parts, %d folded, %d with more factors, %d into sums\n", with[0],
            with[1], with[2], with[3]);
    CASES_RAN(ran, RANDOM_SHAPES, LEAST_SHAPES, "products");
}

Test(nn_ordered, forms)
{
    fill_all();
    check_random_shapes(1);
}

/* Infinities, NaN, zeros of both signs, the smallest and the largest numbers among the rest. */
Test(nn_ordered, strange_numbers)
{
    static const float strange[] = {INFINITY,  -INFINITY,       NAN,   -0.0f, 0,
                                    0x1p-149f, 0x1.fffffep127f, -0.0f, -0.0f, 0x1p-130f,
                                    0x1p20f,   -0x1p-75f};
    fill_all();
    float *arrays[] = {a_data, b_data, a2_data, b2_data, c_given};
    uint64_t seed = 2;
    for (size_t x = 0; x < sizeof arrays / sizeof *arrays; x++)
        for (int64_t i = below(&seed, 30); i < MOST; i += 1 + below(&seed, 60))
            arrays[x][i] = strange[below(&seed, 12)];
    check_random_shapes(3);
}

/* Long chains and trees, beyond what is packed at a time. */
Test(nn_ordered, long_chains)
{
#define ONE_SUM .sums = true, .shared = true
    static const shape shapes[] = {
        {.m = 5, .n = 40, .k = 9000, .count = 1, .alpha = 1, .beta = 1},
        {.m = 13, .n = 35, .k = 9001, .count = 1, .ta = true, .tb = true, .alpha = 0.5f},
        {.m = 13, .n = 35, .k = 9000, .count = 1, .tb = true, .alpha = 1, .then = 7},
        {.m = 7, .n = 33, .k = 9216, .count = 1, .tb = true, .alpha = 1, .parts = 8},
        {.m = 7, .n = 33, .k = 9216, .count = 1, .ta = true, .alpha = 2, .parts = 2, .then = 5},
        {.m = 9, .n = 17, .k = 8192, .count = 2, .alpha = 1, .parts = 4, .folded = true},
        {.m = 9, .n = 17, .k = 8200, .count = 2, .alpha = 1, ONE_SUM},
        {.m = 9, .n = 17, .k = 700, .count = 9, .ta = true, .alpha = 1, ONE_SUM},
        {.m = 50, .n = 600, .k = 400, .count = 1, .tb = true, .alpha = 1},
        {.m = 50, .n = 600, .k = 400, .count = 1, .ta = true, .alpha = 1, .parts = 4},
        {.m = 40, .n = 20, .k = 2, .count = 300, .alpha = 1, ONE_SUM},
        {.m = 300, .n = 200, .k = 48, .count = 4, .ta = true, .alpha = 1, ONE_SUM},
        {.m = 8, .n = 8, .k = 0, .count = 2, .alpha = 1, .parts = 4},
        {.m = 8, .n = 8, .k = 0, .count = 2, .alpha = 1, .beta = 1},
        {.m = 4, .n = 8, .k = 6, .count = 0, .alpha = 1},
    };
    fill_all();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1 << 24);
}

/* Any rows and any columns of a product alone have the bits that they have in the whole. */
Test(nn_ordered, cuts)
{
    enum { M = 67, N = 101, K = 65, CUTS = 60 };
    static float whole[M * N];
    fill_all();
    shape s = {.m = M, .n = N, .k = K, .count = 1, .tb = true, .alpha = 1};
    run_shape(&s);
    memcpy(whole, c_got, sizeof whole);
    uint64_t seed = 4;
    for (int cut = 0; cut < CUTS; cut++) {
        int64_t i0 = below(&seed, M), j0 = below(&seed, N);
        shape part = s;
        part.m = 1 + below(&seed, M - i0), part.n = 1 + below(&seed, N - j0);
        part.a.first = i0 * K, part.b.first = j0 * K;
        run_shape(&part);
        for (int64_t i = 0; i < part.m; i++)
            EXPECT_BITS(bits_of(c_got + i * part.n, whole + (i0 + i) * N + j0,
                                part.n * (int64_t)sizeof *whole, sizeof *whole, 0),
                        "rows from %d, columns from %d: row %d of %d x %d", (int)i0, (int)j0,
                        (int)i, (int)part.m, (int)part.n);
    }
}

/* docs/concepts.md, "The same bits": a chain, its parts of two, and their tree. */
Test(nn_ordered, goldens_of_chains)
{
    fill_all();
    for (int k = 0; k < 16; k++) {
        a_data[k] = (float)(k % 7 + 1) / 10;
        b_data[k] = (float)(5 * k % 11 - 5) / 3;
    }
    static const struct {
        int64_t parts;
        uint32_t bits;
    } goldens[] = {{1, 0x3fbfffff}, {8, 0x3fbfffff}};
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        shape s = {.m = 1, .n = 1, .k = 16, .count = 1, .alpha = 1, .parts = goldens[i].parts};
        run_shape(&s);
        EXPECT_BITS(bits_of(c_got, &goldens[i].bits, 4, 4, 0), "%d parts", (int)s.parts);
    }
    shape s = {.m = 1, .n = 1, .k = 2, .count = 8, .alpha = 1};
    static const uint32_t leaves[] = {0xbe2aaaab, 0x3ebbbbbc, 0x3e888888, 0x3f199999,
                                      0xbe888889, 0xbf333333, 0x3f955555, 0x3e6eeef0};
    run_shape(&s);
    EXPECT_BITS(bits_of(c_got, leaves, sizeof leaves, 4, 0), "leaves");
    /* Steps of half a unit in the last place: lost in a chain, not in a tree. */
    static const float halves[] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f}, ones[] = {1, 1, 1, 1};
    memcpy(a_data, halves, sizeof halves);
    memcpy(b_data, ones, sizeof ones);
    for (int parts = 1; parts <= 4; parts *= 4) {
        s = (shape){.m = 1, .n = 1, .k = 4, .count = 1, .alpha = 1, .parts = parts};
        run_shape(&s);
        uint32_t expected = parts == 1 ? 0x3f800000 : 0x3f800001;
        EXPECT_BITS(bits_of(c_got, &expected, 4, 4, 0), "%d halves in parts", parts);
    }
}

/* ------------------------------------------------------------- fixed point */

static const struct {
    float x;
    int64_t fixed;
} fixes[] = {
    {0.1f, 109951164416},
    {-2.5e-7f, -274878},
    {5e-13f, 1},
    {4e-13f, 0},
    {-0.0f, 0},
    {0x1p-41f, 0}, /* ties to even */
    {0x1.8p-40f, 2},
    {2047.5f, 2251250057871360},
    {-2048, -2251799813685248},
    {2048.5f, 2252349569499136},
    {4194303.75f, 4611685743549480960},
    {4194304.0f, NN_FIXED_BROKEN}, /* 2^62 */
    {-4194304.0f, NN_FIXED_BROKEN},
    {1e30f, NN_FIXED_BROKEN},
    {INFINITY, NN_FIXED_BROKEN},
    {-INFINITY, NN_FIXED_BROKEN},
    {NAN, NN_FIXED_BROKEN},
};
enum { FIXES = sizeof fixes / sizeof *fixes };

/* As one element among plain ones, so that groups are added by either way. */
Test(nn_ordered, goldens_of_fixed_point)
{
    enum { N = 37 };
    static const float plain[4] = {0.25f, -1, 3, 1e-3f};
    const nn_runtime *here = runtime();
    for (int f = 0; f < FIXES; f++) {
        float x[N];
        int64_t expected[N], got[N], *sums = nn_test_place(here, N, sizeof *sums);
        for (int j = 0; j < N; j++) {
            x[j] = j == (5 * f) % N ? fixes[f].x : plain[j % 4];
            expected[j] = j == (5 * f) % N ? fixes[f].fixed : nn_fixed_sum(0, (double)x[j]);
        }
        SUCCEEDS(here->ops->add_columns_fixed(here, sums, nn_test_sent(x, N), 1, N));
        SUCCEEDS(nn_runtime_read(here, got, sums, sizeof got));
        EXPECT_BITS(bits_of(got, expected, sizeof got, sizeof *got, 0), "columns, golden %d", f);
        memcpy(b_data, x, sizeof x);
        memset(s_given, 0, sizeof got);
        a_data[0] = 1;
        shape s = {.m = 1, .n = N, .k = 1, .count = 1, .alpha = 1, .sums = true};
        check_shape(&s, 1 << 20);
        EXPECT_BITS(bits_of(s_got, expected, sizeof got, sizeof *got, 0), "product, golden %d", f);
    }
}

/* Sums that come near the end of the range, pass it, and then go back. */
Test(nn_ordered, range_of_fixed_point)
{
    enum { N = 24, ROWS = 40 };
    const nn_runtime *here = runtime();
    float x[ROWS * N];
    int64_t sums[N], got[N], *room = nn_test_place(here, N, sizeof *room);
    for (int j = 0; j < N; j++) {
        sums[j] = (j % 2 ? -1 : 1) * (((int64_t)1 << 62) - ((int64_t)(j + 1) << 42));
        for (int i = 0; i < ROWS; i++)
            x[i * N + j] = (float)(j % 2 ? -1 : 1) * (i < 30 ? 0.5f : 0);
    }
    SUCCEEDS(nn_runtime_write(here, room, sums, sizeof sums));
    SUCCEEDS(here->ops->add_columns_fixed(here, room, nn_test_sent(x, ROWS * N), ROWS, N));
    int broken = 0;
    for (int j = 0; j < N; j++) {
        for (int i = 0; i < ROWS; i++)
            sums[j] = nn_fixed_sum(sums[j], (double)x[i * N + j]);
        broken += sums[j] == NN_FIXED_BROKEN;
    }
    cr_assert(broken > 2 && broken < N, "%d broken", broken);
    SUCCEEDS(nn_runtime_read(here, got, room, sizeof got));
    EXPECT_BITS(bits_of(got, sums, sizeof got, sizeof *got, 0), "sums near the end");
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)(i % N % 2 ? 1e6 : -1e6);
    SUCCEEDS(here->ops->add_columns_fixed(here, room, nn_test_sent(x, 3 * N), 3, N));
    SUCCEEDS(nn_runtime_read(here, got, room, sizeof got));
    for (int j = 0; j < N; j++)
        cr_assert((got[j] == NN_FIXED_BROKEN) == (sums[j] == NN_FIXED_BROKEN),
                  "sum %d is %lld, was %lld", j, (long long)got[j], (long long)sums[j]);
    nn_test_free_rooms();
}

/* ------------------------------------------------------------- the other sums */

static int64_t *sent_sums(const int64_t *sums, int64_t n)
{
    int64_t *room = nn_test_place(runtime(), n > 0 ? n : 1, sizeof *room);
    SUCCEEDS(nn_runtime_write(runtime(), room, sums, n * (int64_t)sizeof *sums));
    return room;
}

static float tree_of(const float *parts, int64_t count, int64_t n)
{
    return count == 1 ? parts[0]
                      : tree_of(parts, count / 2, n) + tree_of(parts + count / 2 * n, count / 2, n);
}

Test(nn_ordered, tree)
{
    enum { N = 301, MOST_COUNT = 64 };
    static float parts[MOST_COUNT * N], expected[N], got[N];
    fill(parts, MOST_COUNT * N, 5);
    parts[3] = -0.0f, parts[N + 3] = -0.0f, parts[2 * N + 4] = INFINITY;
    for (int64_t count = 1; count <= MOST_COUNT; count *= 2)
        for (int in_place = 0; in_place < 2; in_place++) {
            nn_real *room = nn_test_sent(parts, count * N);
            nn_real *to = in_place ? room : nn_test_room(N);
            for (int64_t i = 0; i < N; i++)
                expected[i] = tree_of(parts + i, count, N);
            SUCCEEDS(runtime()->ops->tree(runtime(), to, room, count, N));
            nn_test_read(got, to, N);
            EXPECT_BITS(bits_of(got, expected, sizeof got, sizeof *got, 0), "%d parts, in place %d",
                        (int)count, in_place);
            nn_test_free_rooms();
        }
}

/* docs/concepts.md, "The same bits": eight leaves of which a tree and a chain have other sums. */
Test(nn_ordered, golden_of_a_tree)
{
    static const uint32_t leaves[] = {0xbe2aaaab, 0x3ebbbbbc, 0x3e888888, 0x3f199999,
                                      0xbe888889, 0xbf333333, 0x3f955555, 0x3e6eeef0};
    const uint32_t tree = 0x3fbfffff, in_order = 0x3fc00000;
    float parts[8], got, sum = 0;
    memcpy(parts, leaves, sizeof parts);
    for (int p = 0; p < 8; p++)
        sum += parts[p];
    EXPECT_BITS(bits_of(&sum, &in_order, 4, 4, 0), "left to right");
    nn_real *room = nn_test_sent(parts, 8);
    SUCCEEDS(runtime()->ops->tree(runtime(), room, room, 8, 1));
    nn_test_read(&got, room, 1);
    EXPECT_BITS(bits_of(&got, &tree, 4, 4, 0), "tree");
    nn_test_free_rooms();
}

Test(nn_ordered, columns_in_fixed_point)
{
    static const int64_t widths[] = {1, 7, 32, 33, 129}, heights[] = {0, 1, 63, 64, 65, 500};
    fill_all();
    for (int w = 0; w < 5; w++)
        for (int h = 0; h < 6; h++) {
            int64_t width = widths[w], rows = heights[h];
            memcpy(s_got, s_given, (size_t)width * sizeof *s_got);
            for (int64_t i = 0; i < rows * width; i++)
                s_got[i % width] = nn_fixed_sum(s_got[i % width], (double)a_data[i]);
            int64_t *room = sent_sums(s_given, width);
            SUCCEEDS(runtime()->ops->add_columns_fixed(runtime(), room, sent(a_data, rows * width),
                                                       rows, width));
            SUCCEEDS(nn_runtime_read(runtime(), s_first, room, width * (int64_t)sizeof *s_first));
            EXPECT_BITS(bits_of(s_first, s_got, width * 8, 8, 0), "%d rows of %d", (int)rows,
                        (int)width);
            nn_test_free_rooms();
        }
}

Test(nn_ordered, entries_in_fixed_point)
{
    enum { ENTRIES = 11, N = 70, REPEAT = 3, WIDTH = 37 };
    int64_t ids[N], slot[ENTRIES], numbers[4 * N + 1];
    fill_all();
    memcpy(s_got, s_given, sizeof *s_got * ENTRIES * WIDTH);
    for (int i = 0; i < N; i++)
        ids[i] = i * i % ENTRIES;
    memset(slot, -1, sizeof slot);
    for (int64_t i = 0; i < (int64_t)N * REPEAT * WIDTH; i++) {
        int64_t *sum = &s_got[ids[i / (REPEAT * WIDTH)] * WIDTH + i % WIDTH];
        *sum = nn_fixed_sum(*sum, (double)a_data[i]);
    }
    int64_t count = nn_uses_fill(numbers, slot, ids, N), *there = sent_sums(numbers, 4 * N + 1);
    nn_uses uses = nn_uses_at(there, N, count);
    nn_lookup lookup = {.n = N, .repeat = REPEAT, .width = WIDTH};
    int64_t *room = sent_sums(s_given, ENTRIES * WIDTH);
    SUCCEEDS(runtime()->ops->lookup_backward_fixed(
        runtime(), room, sent(a_data, N * REPEAT * WIDTH), &lookup, &uses));
    SUCCEEDS(nn_runtime_read(runtime(), s_first, room, (int64_t)sizeof *s_first * ENTRIES * WIDTH));
    EXPECT_BITS(bits_of(s_first, s_got, 8 * ENTRIES * WIDTH, 8, WIDTH), "entries");
    nn_test_free_rooms();
}

/* Sizes at and around the ends of what a launch writes. */
Test(nn_ordered, settle)
{
    static const int64_t counts[] = {0, 1, 2, 3, 1023, 1024, 1025, 2048, 2049, 5000, 100001};
    const double factor = 0x1p-40 / 24;
    fill_all();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t n = counts[i];
        int64_t *room = sent_sums(s_given, n);
        SUCCEEDS(runtime()->ops->settle(runtime(), room, n, factor));
        for (int64_t j = 0; j < n; j++)
            c_first[j] = (float)((double)s_given[j] * factor);
        nn_test_read(c_got, (float *)(void *)room, n);
        EXPECT_BITS(bits_of(c_got, c_first, n * 4, 4, 0), "%d sums", (int)n);
        nn_test_free_rooms();
    }
}

Test(nn_ordered, largest_sum)
{
    static const int64_t counts[] = {0, 1, 300, 100000};
    double got;
    fill_all();
    s_given[90000] = NN_FIXED_BROKEN;
    s_given[250] = -((int64_t)1 << 61) - 12345;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t n = counts[i];
        double expected = 0;
        for (int64_t j = 0; j < n; j++)
            expected = fmax(expected, fabs((double)s_given[j]));
        int64_t *room = sent_sums(s_given, n);
        double *most = nn_test_place(runtime(), 1, sizeof *most);
        SUCCEEDS(runtime()->ops->fixed_largest(runtime(), most, room, n));
        SUCCEEDS(nn_runtime_read(runtime(), &got, most, sizeof got));
        cr_assert(got == expected, "of %d: %a, not %a", (int)n, got, expected);
        nn_test_free_rooms();
    }
}

static double squares_of(const nn_matrix *x)
{
    double *sum = nn_test_place(runtime(), 1, sizeof *sum), got;
    SUCCEEDS(runtime()->ops->block_squares(runtime(), sum, x, 1));
    SUCCEEDS(nn_runtime_read(runtime(), &got, sum, sizeof got));
    return got;
}

/* The sizes of a block decide the order: a stride between its rows has no effect on the bits. */
Test(nn_ordered, squares_of_a_block)
{
    static const int64_t shapes[][3] = {{1, 1, 1},       {1, 7, 7},    {3, 9, 9},
                                        {5, 300, 300},   {40, 33, 50}, {70, 129, 200},
                                        {200, 130, 130}, {0, 4, 4}};
    static nn_real packed[26000];
    fill_all();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int64_t rows = shapes[s][0], columns = shapes[s][1], stride = shapes[s][2];
        double expected = 0;
        for (int64_t i = 0; i < rows * columns; i++) {
            packed[i] = a_data[i / columns * stride + i % columns];
            expected += (double)packed[i] * (double)packed[i];
        }
        nn_matrix x = {sent(a_data, rows * stride), rows, columns, stride, 0, false};
        nn_matrix close = {sent(packed, rows * columns), rows, columns, columns, 0, false};
        double got = squares_of(&x), again = squares_of(&close);
        cr_assert(fabs(got - expected) <= 1e-12 * expected, "%d x %d: %a, not %a", (int)rows,
                  (int)columns, got, expected);
        cr_assert(got == again, "%d x %d: %a with a stride, %a without", (int)rows, (int)columns,
                  got, again);
        nn_test_free_rooms();
    }
}

/* Of every token the f32 term of the fast order, in fixed point. */
Test(nn_ordered, gradients_of_a_norm)
{
    enum { ROWS = 70, WIDTH = 130, N = ROWS * WIDTH };
    static float x[N], dy[N];
    float mean[ROWS], rstd[ROWS];
    int64_t got[2 * WIDTH], zeros[2 * WIDTH] = {0};
    fill_all();
    for (int i = 0; i < N; i++) {
        x[i] = a_data[i] - 0.25f;
        dy[i] = b_data[i];
    }
    float *x_room = nn_test_sent(x, N), *dy_room = nn_test_sent(dy, N), *y = nn_test_room(N);
    float *scale = nn_test_sent(b_data, WIDTH), *moments = nn_test_room(2 * ROWS);
    int64_t *sums = sent_sums(zeros, 2 * WIDTH);
    nn_norm_rows rows = {x_room, ROWS, WIDTH, scale, scale, moments, moments + ROWS};
    nn_norm_gradients gradients = {
        .dy = dy_room, .dx = y, .scale_sums = sums, .shift_sums = sums + WIDTH};
    SUCCEEDS(runtime()->ops->norm(runtime(), y, &rows));
    SUCCEEDS(runtime()->ops->norm_backward(runtime(), &rows, &gradients));
    nn_test_read(mean, moments, ROWS);
    nn_test_read(rstd, moments + ROWS, ROWS);
    SUCCEEDS(nn_runtime_read(runtime(), got, sums, sizeof got));
    for (int j = 0; j < WIDTH; j++) {
        int64_t scale_sum = 0, shift_sum = 0;
        for (int i = 0; i < ROWS; i++) {
            float normal = (x[i * WIDTH + j] - mean[i]) * rstd[i];
            scale_sum += nn_fixed_sum(0, (double)(dy[i * WIDTH + j] * normal));
            shift_sum += nn_fixed_sum(0, (double)dy[i * WIDTH + j]);
        }
        cr_assert(got[j] == scale_sum && got[WIDTH + j] == shift_sum, "column %d", j);
    }
    nn_test_free_rooms();
}

/* Exponentials are summed in fixed point, and losses are multiples of 2^-24. A row without a label
 * adds nothing. */
Test(nn_ordered, losses_of_tokens)
{
    enum { ROWS = 3, WIDTH = 290 };
    static float logits[ROWS * WIDTH];
    const int64_t labels[ROWS] = {7, NN_IGNORE, 289};
    int64_t got_exps[ROWS], *exps = nn_test_place(runtime(), ROWS, sizeof *exps);
    double got[4 * ROWS + 1], *rooms = nn_test_place(runtime(), 4 * ROWS + 1, sizeof *rooms);
    fill_all();
    for (int i = 0; i < ROWS * WIDTH; i++)
        logits[i] = 8 * a_data[i];
    nn_token_rows tokens = {.logits = nn_test_sent(logits, ROWS * WIDTH),
                            .labels = sent_sums(labels, ROWS),
                            .rows = ROWS,
                            .width = WIDTH,
                            .maxima = rooms,
                            .sums = rooms + ROWS,
                            .exps = exps};
    SUCCEEDS(runtime()->ops->token_maxima(runtime(), &tokens));
    SUCCEEDS(runtime()->ops->token_sums(runtime(), &tokens));
    SUCCEEDS(nn_runtime_read(runtime(), got_exps, exps, sizeof got_exps));
    SUCCEEDS(runtime()->ops->token_losses(runtime(), rooms + 3 * ROWS, rooms + 4 * ROWS, &tokens));
    SUCCEEDS(nn_runtime_read(runtime(), got, rooms, sizeof got));
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, loss = got[3 * ROWS + i];
        for (int j = 0; j < WIDTH; j++)
            sum += exp((double)logits[i * WIDTH + j] - got[i]);
        bool counts = labels[i] != NN_IGNORE;
        cr_assert(fabs((double)got_exps[i] / NN_FIXED_ONE - (counts ? sum : 0)) < 1e-5 * sum,
                  "row %d", i);
        cr_assert(loss * NN_LOSS_ONE == rint(loss * NN_LOSS_ONE), "loss %d is %a", i, loss);
        double wanted = counts ? log(sum) + got[i] - (double)logits[i * WIDTH + labels[i]] : 0;
        cr_assert(fabs(loss - wanted) < 1e-5, "loss %d is %g, not %g", i, loss, wanted);
    }
    cr_assert(got[4 * ROWS] == got[3 * ROWS] + got[3 * ROWS + 1] + got[3 * ROWS + 2]);
    nn_test_free_rooms();
}

/* Rooms for rows of logits with their maxima. No label is among the ids, so the gradients with
 * `sums` of 1 are the exponentials themselves, in f32. */
static nn_token_rows send_rows(const float *logits, int64_t rows, int64_t width)
{
    nn_token_rows tokens = {.rows = rows, .width = width, .first = 1};
    tokens.logits = sent(logits, rows * width);
    tokens.labels = nn_test_place(runtime(), rows, sizeof *tokens.labels); /* before the first id */
    tokens.exps = nn_test_place(runtime(), rows, sizeof *tokens.exps);
    tokens.maxima = nn_test_place(runtime(), rows, sizeof *tokens.maxima);
    tokens.sums = nn_test_place(runtime(), 2 * rows, sizeof *tokens.sums);
    SUCCEEDS(runtime()->ops->token_maxima(runtime(), &tokens));
    return tokens;
}

static void read_exps(int64_t *exps, float *terms, const nn_token_rows *tokens)
{
    double ones[16];
    float *d = nn_test_room(tokens->rows * tokens->width);
    SUCCEEDS(runtime()->ops->token_sums(runtime(), tokens));
    SUCCEEDS(nn_runtime_read(runtime(), exps, tokens->exps, tokens->rows * (int64_t)sizeof *exps));
    cr_assert(tokens->rows <= 16);
    for (int64_t i = 0; i < tokens->rows; i++)
        ones[i] = 1;
    SUCCEEDS(nn_runtime_write(runtime(), tokens->sums, ones, tokens->rows * (int64_t)sizeof *ones));
    SUCCEEDS(runtime()->ops->token_gradients(runtime(), d, tokens));
    nn_test_read(terms, d, tokens->rows * tokens->width);
}

/* Each exponential becomes a multiple of 2^-40 before it is added. A sum in f64 that is fixed at
 * its end has other bits in some rows, and any cut of the ids adds up to the same ones. */
Test(nn_ordered, exponentials_one_by_one)
{
    enum { ROWS = 12, WIDTH = 290, CUT = 97 };
    static float logits[ROWS * WIDTH], terms[ROWS * WIDTH];
    int64_t whole[ROWS], part[ROWS];
    int of_a_float_sum = 0;
    fill_all();
    for (int i = 0; i < ROWS * WIDTH; i++) /* spread over 1 to 34 */
        logits[i] = (float)(1 + 3 * (i / WIDTH)) * a_data[i] / 2;
    nn_token_rows rows = send_rows(logits, ROWS, WIDTH);
    read_exps(whole, terms, &rows);
    for (int i = 0; i < ROWS; i++) {
        int64_t expected = 0;
        double sum = 0;
        for (int j = 0; j < WIDTH; j++) {
            expected = nn_fixed_sum(expected, (double)terms[i * WIDTH + j]);
            sum += (double)terms[i * WIDTH + j];
        }
        cr_assert(whole[i] == expected, "row %d: %lld, not %lld", i, (long long)whole[i],
                  (long long)expected);
        of_a_float_sum += nn_fixed_sum(0, sum) != expected;
    }
    cr_assert(of_a_float_sum > ROWS / 2, "%d of %d rows tell the rules apart", of_a_float_sum,
              (int)ROWS);
    for (int i = 0; i < ROWS; i++) { /* as two ranks of tp */
        nn_token_rows own = rows;
        own.rows = 1, own.maxima += i;
        int64_t sum = 0;
        for (int side = 0; side < 2; side++) {
            own.width = side ? WIDTH - CUT : CUT;
            own.logits = rows.logits + i * WIDTH + side * CUT;
            SUCCEEDS(runtime()->ops->token_sums(runtime(), &own));
            SUCCEEDS(nn_runtime_read(runtime(), part, own.exps, sizeof *part));
            sum += part[0];
        }
        cr_assert(sum == whole[i], "row %d: %lld in parts, %lld", i, (long long)sum,
                  (long long)whole[i]);
    }
    nn_test_free_rooms();
}

/* exp(-36.75) is a little below 2^-53. */
Test(nn_ordered, golden_of_exponentials)
{
    const float logits[2][3] = {{0, -36.75f, -36.75f}, {-36.75f, -36.75f, 0}};
    const double exps[3] = {1, 0x1p-53, 0x1p-53};
    float terms[6];
    int64_t got[2];
    double forward = 0, back = 0;
    int64_t fixed = 0, fixed_back = 0;
    for (int i = 0; i < 3; i++) {
        forward += exps[i], back += exps[2 - i];
        fixed = nn_fixed_sum(fixed, exps[i]), fixed_back = nn_fixed_sum(fixed_back, exps[2 - i]);
    }
    cr_assert(forward == 1 && back == 1 + 0x1p-52, "f64: %a and %a", forward, back);
    cr_assert(fixed == (int64_t)1 << 40 && fixed_back == fixed);
    nn_token_rows rows = send_rows(logits[0], 2, 3);
    read_exps(got, terms, &rows);
    cr_assert(terms[1] > 0x1.8p-54f && terms[1] < 0x1p-53f, "%a", (double)terms[1]);
    cr_assert(got[0] == fixed && got[1] == fixed, "%lld and %lld", (long long)got[0],
              (long long)got[1]);
    nn_test_free_rooms();
}

/* The losses of a large batch, 4 * 10^8 in all, have the same sum however it is cut into calls. */
Test(nn_ordered, losses_add_exactly)
{
    enum { ROWS = 200000, WIDTH = 3, CUTS = 3 };
    static const int64_t cuts[CUTS][4] = {
        {0, ROWS, ROWS, ROWS}, {0, 7, 70001, ROWS}, {0, 123457, 199999, ROWS}};
    static float logits[WIDTH * ROWS];
    int64_t *labels = nn_test_place(runtime(), ROWS, sizeof *labels);
    int64_t *exps = nn_test_place(runtime(), ROWS, sizeof *exps);
    double *rooms = nn_test_place(runtime(), 4 * ROWS + CUTS, sizeof *rooms), total[CUTS];
    fill_all();
    for (int64_t i = 0; i < ROWS; i++) { /* the label, 0, is far less likely than the other ids */
        logits[WIDTH * i + 1] = 2000 + 5 * a_data[i];
        logits[WIDTH * i + 2] = 2000;
    }
    const float *sent_logits = nn_test_sent(logits, WIDTH * ROWS);
    for (int c = 0; c < CUTS; c++) {
        for (int part = 0; part < 3; part++) {
            int64_t first = cuts[c][part];
            nn_token_rows tokens = {.logits = sent_logits + WIDTH * first,
                                    .labels = labels,
                                    .rows = cuts[c][part + 1] - first,
                                    .width = WIDTH,
                                    .maxima = rooms,
                                    .sums = rooms + ROWS,
                                    .exps = exps};
            double *of_cut = rooms + 4 * ROWS + c;
            SUCCEEDS(runtime()->ops->token_maxima(runtime(), &tokens));
            SUCCEEDS(runtime()->ops->token_sums(runtime(), &tokens));
            SUCCEEDS(runtime()->ops->token_losses(runtime(), rooms + 3 * ROWS, of_cut, &tokens));
        }
    }
    SUCCEEDS(nn_runtime_read(runtime(), total, rooms + 4 * ROWS, sizeof total));
    cr_assert(total[0] > 0x1p28 && total[0] == total[1] && total[0] == total[2],
              "sums %a, %a and %a", total[0], total[1], total[2]);
    nn_test_free_rooms();
}

/* Two ranks of tp have half of the ids each, and NaN among them. The sums over both are NaN, not
 * that of two broken sums in fixed point, which is 0. */
Test(nn_ordered, losses_that_are_no_number)
{
    enum { WIDTH = 4, RANKS = 2 };
    const float logits[RANKS * WIDTH] = {1, NAN, 2, 3, 4, 5, NAN, 6};
    const int64_t label = 2;
    int64_t *exps = nn_test_place(runtime(), 1, sizeof *exps), fixed = 0, each;
    double *rooms = nn_test_place(runtime(), 5, sizeof *rooms), sums[2] = {0, 0}, got[2];
    nn_token_rows tokens = {
        .labels = sent_sums(&label, 1), .rows = 1, .width = WIDTH, .exps = exps};
    tokens.maxima = rooms, tokens.sums = rooms + 1;
    const double most = 6;
    SUCCEEDS(nn_runtime_write(runtime(), rooms, &most, sizeof most));
    for (int rank = 0; rank < RANKS; rank++) {
        tokens.logits = nn_test_sent(logits + rank * WIDTH, WIDTH);
        tokens.first = rank * WIDTH;
        SUCCEEDS(runtime()->ops->token_sums(runtime(), &tokens));
        SUCCEEDS(nn_runtime_read(runtime(), &each, exps, sizeof each));
        SUCCEEDS(nn_runtime_read(runtime(), got, tokens.sums, sizeof got));
        cr_assert(each == NN_FIXED_BROKEN, "rank %d: %lld", rank, (long long)each);
        fixed = (int64_t)((uint64_t)fixed + (uint64_t)each);
        sums[1] += got[1];
    }
    SUCCEEDS(nn_runtime_write(runtime(), exps, &fixed, sizeof fixed));
    SUCCEEDS(nn_runtime_write(runtime(), tokens.sums, sums, sizeof sums));
    SUCCEEDS(runtime()->ops->token_losses(runtime(), rooms + 3, rooms + 4, &tokens));
    SUCCEEDS(nn_runtime_read(runtime(), got, tokens.sums, sizeof got));
    cr_assert(isnan(got[0]) && isnan(got[1]), "sums %g and %g", got[0], got[1]);
    SUCCEEDS(nn_runtime_read(runtime(), got, rooms + 3, sizeof got));
    cr_assert(isnan(got[0]) && isnan(got[1]), "loss %g, of all %g", got[0], got[1]);
    nn_test_free_rooms();
}

Test(nn_ordered, plain_zeros)
{
    static const float given[] = {-0.0f, 0, 1, -1, -0x1p-149f, -INFINITY, -0.0f};
    static const float expected[] = {0, 0, 1, -1, -0x1p-149f, -INFINITY, 0};
    float got[7];
    nn_real *room = nn_test_sent(given, 7);
    SUCCEEDS(runtime()->ops->plain_zeros(runtime(), room, 7));
    nn_test_read(got, room, 7);
    EXPECT_BITS(bits_of(got, expected, sizeof got, 4, 0), "zeros");
    nn_test_free_rooms();
}
