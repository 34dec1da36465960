/*
 * Products in blocks. Every element of the output is in one tile, whose kernel goes along k with
 * the elements in registers. How the product is cut into tiles and blocks has no effect on the
 * bits: a chain stops and goes on with the same float.
 *
 *   segment   a stretch of k from one pair of factors; a chain has up to three
 *   job       some chains of one output: all of them, or as many as fit the room for packed factors
 *   block     columns of the output whose right factors are packed, for all segments of the job
 *   strip     up to NN_TILE_MOST_ROWS rows of the output
 *
 * A tile goes through all segments of the job before the next tile. So the parts of a tree meet on
 * a small stack, and sums in fixed point stay in the cache for a whole batch.
 */
#include "train/nn/host/nn_host_ordered.h"

#include <string.h>

#include "core/check.h"
#include "core/checked.h"
#include "train/nn/host/nn_host_ordered_kernels.h"
#include "train/nn/ops/nn_fixed.h"

#ifdef NN_REAL_F64

const char *nn_host_ordered_name(int kind)
{
    (void)kind;
    return NULL;
}

mimo_status nn_host_matmul_ordered_by(int kind, const nn_product *product)
{
    (void)kind, (void)product;
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "fixed order: needs layers in f32");
}

mimo_status nn_host_matmul_ordered(const nn_product *product)
{
    return nn_host_matmul_ordered_by(0, product);
}

#else

static const nn_ordered_kernels *const kinds[NN_HOST_ORDERED_KINDS] = {
#ifdef __x86_64__
    &nn_ordered_kernels_avx512,
    &nn_ordered_kernels_avx2,
#endif
    &nn_ordered_kernels_plain,
};

enum {
    MOST_K = 4096,        /* of a job whose factors are packed as a whole */
    PACKED_B = 32 * 4096, /* elements: one column of tiles of MOST_K */
    SHORT_K = 512,        /* of a job whose chains c itself keeps */
    MOST_SEGMENTS = 256,
    GAP = 16, /* elements between rows of a packed left factor, so that they lie in other sets */
    PACKED_A = NN_TILE_MOST_ROWS * (MOST_K + GAP * MOST_SEGMENTS),
    MOST_DEPTH = 7, /* log2(NN_MOST_PARTS) + 1 */
    TILE = NN_TILE_MOST_ROWS * NN_TILE_MOST_COLUMNS,
    ALIGNMENT = 64,
};
_Static_assert(NN_MOST_PARTS == 1 << (MOST_DEPTH - 1), "the stack of a tree");

static _Thread_local _Alignas(ALIGNMENT) float packed_a[PACKED_A];
static _Thread_local _Alignas(ALIGNMENT) float packed_b[PACKED_B];

typedef enum end_of_chain { END_STORE, END_TREE, END_FIXED } end_of_chain;

typedef struct segment {
    nn_matrix a, b; /* of this stretch alone */
    float alpha;
    int64_t before; /* k of the segments before it in the job */
    bool begins, ends;
} segment;

typedef struct job {
    const nn_ordered_kernels *kernels;
    end_of_chain end;
    float *c;
    int64_t *sums;
    int64_t stride, rows, columns;
    bool goes_on; /* the first segment goes on with the old elements of c */
    int64_t k;    /* of all segments */
    int count;
    segment segments[MOST_SEGMENTS];
} job;

/* Columns [first, first + count) of the output, which lie in panels of a tile's width. */
typedef struct block {
    int64_t first, count, width;
    bool packed; /* all segments; otherwise a tile packs its own, a piece at a time */
} block;

typedef struct tile {
    int64_t row, rows, column, columns, width; /* width: whole vectors */
} tile;

/* Rows [first, first + count) of x, or columns. */
static nn_matrix rows_of(const nn_matrix *x, int64_t first, int64_t count)
{
    nn_matrix part = *x;
    part.data += first * (x->transposed ? 1 : x->stride);
    part.rows = count;
    return part;
}

static nn_matrix columns_of(const nn_matrix *x, int64_t first, int64_t count)
{
    nn_matrix part = *x;
    part.data += first * (x->transposed ? x->stride : 1);
    part.columns = count;
    return part;
}

/* Right factors: to[l * width + j] = b[l, j], and 0 in columns that b does not have. */
static void pack_b(const job *j, float *to, int64_t width, const nn_matrix *b)
{
    if (b->transposed) {
        j->kernels->transpose(to, width, b, b->columns);
        return;
    }
    for (int64_t l = 0; l < b->rows; l++, to += width) {
        memcpy(to, b->data + l * b->stride, (size_t)b->columns * sizeof *to);
        for (int64_t i = b->columns; i < width; i++)
            to[i] = 0;
    }
}

/* A line of a strip is short: a call of memcpy would take longer than the copy. */
static inline void copy_line(float *to, const float *from, int64_t n)
{
    enum { FOUR = 4 };
    int64_t i = 0;
    if (n < FOUR || n > 4 * FOUR) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (; i + FOUR < n; i += FOUR)
        memcpy(to + i, from + i, FOUR * sizeof *to);
    memcpy(to + n - FOUR, from + n - FOUR, FOUR * sizeof *to);
}

/* Left factors times alpha. `run` gets their place. The next ones belong to what it returns. */
static float *pack_a(float *to, nn_tile_run *run, float alpha, const nn_matrix *a)
{
    int64_t lines = a->transposed ? a->columns : a->rows;
    int64_t line = a->transposed ? a->rows : a->columns;
    int64_t stride = a->transposed ? line : line + GAP;
    for (int64_t i = 0; i < lines; i++)
        if (alpha == 1)
            copy_line(to + i * stride, a->data + i * a->stride, line);
        else
            for (int64_t l = 0; l < line; l++)
                to[i * stride + l] = alpha * a->data[i * a->stride + l];
    run->a = to;
    run->row = a->transposed ? 1 : stride;
    run->step = a->transposed ? stride : 1;
    return to + lines * stride;
}

static void leave_a(nn_tile_run *run, const nn_matrix *a)
{
    run->a = a->data;
    run->row = a->transposed ? 1 : a->stride;
    run->step = a->transposed ? a->stride : 1;
}

/* Whether a copy of a strip is worth it: the strip is read once for each panel of the block, and
 * its lines would push each other out of the cache. */
static bool worth_packing(const job *j, const nn_matrix *a, const block *b)
{
    if (b->count < 4 * b->width)
        return false;
    return a->transposed ? j->k > 256 : a->stride % 1024 == 0;
}

static void run_kernel(const job *j, const tile *t, float *at, int64_t stride,
                       const nn_tile_run *run)
{
    int64_t index = 2 * (t->rows - 1) + t->width / j->kernels->vector - 1;
    nn_tile_kernel *kernel = run->row == 1 ? j->kernels->by_row[index] : j->kernels->by_step[index];
    kernel(at, stride, run);
}

/* A segment that is not packed as a whole, piece by piece. */
static __attribute__((noinline)) void run_pieces(const job *j, const tile *t, float *at,
                                                 int64_t stride, const segment *s, bool fresh)
{
    int64_t l = 0;
    do {
        int64_t k = mimo_smaller(s->a.columns - l, MOST_K);
        nn_matrix a = rows_of(&s->a, t->row, t->rows), b = columns_of(&s->b, t->column, t->columns);
        a = columns_of(&a, l, k);
        b = rows_of(&b, l, k);
        nn_tile_run run = {.b = packed_b, .b_step = t->width, .k = k, .fresh = fresh && l == 0};
        pack_a(packed_a, &run, s->alpha, &a);
        pack_b(j, packed_b, t->width, &b);
        run_kernel(j, t, at, stride, &run);
        l += k;
    } while (l < s->a.columns);
}

static void copy_rows(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                      const tile *t)
{
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, (size_t)t->columns * sizeof *to);
}

/* A chain ended on top of the stack, the `number`-th of the tile, from 1. Merge what is complete:
 * two equal subtrees. */
static int64_t merge(const job *j, const tile *t, float (*stack)[TILE], int64_t depth,
                     int64_t number)
{
    for (; number % 2 == 0; number /= 2, depth--)
        j->kernels->add(stack[depth - 2], stack[depth - 1], t->rows * t->width);
    return depth;
}

static void run_segment(const job *j, const tile *t, float *at, int64_t stride, int index,
                        const nn_tile_run *runs)
{
    const segment *s = &j->segments[index];
    if (runs)
        run_kernel(j, t, at, stride, &runs[index]);
    else
        run_pieces(j, t, at, stride, s, s->begins && !j->goes_on);
}

/* All chains of a tile. Each is on the stack when it ends; the top is at depth - 1. */
static void run_chains(const job *j, const tile *t, const nn_tile_run *runs)
{
    _Alignas(ALIGNMENT) float stack[MOST_DEPTH + 1][TILE];
    int64_t depth = 0, chains = 0;
    for (int s = 0; s < j->count; s++) {
        run_segment(j, t, stack[depth], t->width, s, runs);
        if (!j->segments[s].ends)
            continue;
        if (j->end == END_FIXED)
            j->kernels->add_fixed(j->sums + t->row * j->stride + t->column, j->stride, stack[depth],
                                  t->width, t->rows, t->columns);
        else
            depth = merge(j, t, stack, depth + 1, ++chains);
    }
    if (j->end == END_TREE)
        copy_rows(j->c + t->row * j->stride + t->column, j->stride, stack[0], t->width, t);
}

/* The one chain of a tile, in place where the tile has whole vectors. */
static void run_chain(const job *j, const tile *t, const nn_tile_run *runs)
{
    _Alignas(ALIGNMENT) float room[TILE];
    float *c = j->c + t->row * j->stride + t->column;
    bool whole = t->columns == t->width;
    float *at = whole ? c : room;
    int64_t stride = whole ? j->stride : t->width;
    if (!whole)
        memset(room, 0, (size_t)(t->rows * t->width) * sizeof *room);
    if (!whole && j->goes_on)
        copy_rows(room, stride, c, j->stride, t);
    for (int s = 0; s < j->count; s++)
        run_segment(j, t, at, stride, s, runs);
    if (!whole)
        copy_rows(c, j->stride, room, stride, t);
}

static void run_tile(const job *j, const tile *t, const nn_tile_run *runs)
{
    if (j->end == END_STORE)
        run_chain(j, t, runs);
    else
        run_chains(j, t, runs);
}

static int64_t whole_vectors(const job *j, int64_t columns)
{
    int64_t vector = j->kernels->vector;
    return (columns + vector - 1) / vector * vector;
}

/* Panel by panel, each with the rows of all segments. */
static void pack_block(const job *j, const block *b)
{
    float *to = packed_b;
    for (int64_t at = 0; at < b->count; at += b->width) {
        int64_t columns = mimo_smaller(b->width, b->count - at), width = whole_vectors(j, columns);
        for (int s = 0; s < j->count; s++) {
            nn_matrix from = columns_of(&j->segments[s].b, b->first + at, columns);
            pack_b(j, to, width, &from);
            to += from.rows * width;
        }
    }
}

/* The tiles of a strip of a packed block. */
static void run_strip(const job *j, const block *b, tile t)
{
    nn_tile_run runs[MOST_SEGMENTS];
    float *to = packed_a;
    for (int s = 0; s < j->count; s++) {
        const segment *from = &j->segments[s];
        nn_matrix a = rows_of(&from->a, t.row, t.rows);
        if (from->alpha != 1 || worth_packing(j, &a, b))
            to = pack_a(to, &runs[s], from->alpha, &a);
        else
            leave_a(&runs[s], &a);
        runs[s].k = a.columns;
        runs[s].fresh = from->begins && !j->goes_on;
    }
    for (int64_t at = 0; at < b->count; at += b->width) {
        t.column = b->first + at;
        t.columns = mimo_smaller(b->width, b->count - at);
        t.width = whole_vectors(j, t.columns);
        for (int s = 0; s < j->count; s++) {
            runs[s].b = packed_b + at * j->k + j->segments[s].before * t.width;
            runs[s].b_step = t.width;
        }
        run_tile(j, &t, runs);
    }
}

static void run_block(const job *j, const block *b)
{
    if (b->packed)
        pack_block(j, b);
    int64_t strips = (j->rows + j->kernels->rows - 1) / j->kernels->rows;
    tile t = {.row = 0};
    for (; strips > 0; strips--, t.row += t.rows) { /* equal ones, so that none is thin */
        t.rows = (j->rows - t.row + strips - 1) / strips;
        t.column = b->first, t.columns = b->count, t.width = whole_vectors(j, b->count);
        if (b->packed)
            run_strip(j, b, t);
        else
            run_tile(j, &t, NULL);
    }
}

static void run_job(const job *j)
{
    int64_t width = 2 * j->kernels->vector;
    block b = {.width = width, .packed = j->k <= MOST_K};
    int64_t panels = b.packed && j->k > 0 ? PACKED_B / (j->k * width) : 1;
    int64_t most = (panels > 0 ? panels : 1) * width;
    for (; b.first < j->columns; b.first += b.count) {
        b.count = mimo_smaller(j->columns - b.first, j->k > 0 ? most : width);
        run_block(j, &b);
    }
}

static void add_segment(job *j, const nn_matrix *a, const nn_matrix *b, float alpha, nn_piece k)
{
    segment *s = &j->segments[j->count++];
    *s = (segment){.a = columns_of(a, k.first, k.count),
                   .b = rows_of(b, k.first, k.count),
                   .alpha = alpha,
                   .before = j->k};
    j->k += k.count;
}

static nn_matrix matrix_at(const nn_matrix *x, int64_t offset, int64_t matrix)
{
    nn_matrix one = *x;
    one.data += offset + matrix * x->step;
    return one;
}

static int64_t parts_of(const nn_product *p)
{
    return p->parts > 0 ? p->parts : 1;
}

static void add_chain(job *j, const nn_product *p, int64_t matrix, int64_t part)
{
    int first = j->count;
    nn_matrix a = matrix_at(&p->a, 0, matrix), b = matrix_at(&p->b, 0, matrix);
    for (int piece = 0; piece < 2; piece++) {
        nn_piece k = nn_order_piece(a.columns, parts_of(p), p->folded, part, piece);
        if (piece == 0 || k.count > 0)
            add_segment(j, &a, &b, p->alpha, k);
    }
    if (p->then) {
        a = matrix_at(&p->then->a, part * p->then->a_part, matrix);
        b = matrix_at(&p->then->b, part * p->then->b_part, matrix);
        add_segment(j, &a, &b, p->then->alpha, (nn_piece){0, a.columns});
    }
    j->segments[first].begins = true;
    j->segments[j->count - 1].ends = true;
}

/* One chain for each element: c itself keeps it between jobs of SHORT_K. */
static void store(job *j, const nn_product *p, int64_t matrix)
{
    add_chain(j, p, matrix, 0);
    if (j->k <= SHORT_K) {
        run_job(j);
        return;
    }
    segment whole[3];
    int count = j->count;
    memcpy(whole, j->segments, (size_t)count * sizeof *whole);
    for (int s = 0; s < count; s++)
        for (int64_t l = 0; l < whole[s].a.columns; l += SHORT_K) {
            j->count = 0, j->k = 0;
            add_segment(j, &whole[s].a, &whole[s].b, whole[s].alpha,
                        (nn_piece){l, mimo_smaller(SHORT_K, whole[s].a.columns - l)});
            j->segments[0].begins = j->segments[0].ends = true;
            run_job(j);
            j->goes_on = true;
        }
}

static void add_up(job *j, const nn_product *p, int64_t matrix)
{
    for (int64_t part = 0; part < parts_of(p); part++)
        add_chain(j, p, matrix, part);
    run_job(j);
}

/* As many chains at a time as fit a job. */
static void add_to_sums(job *j, const nn_product *p, int64_t first, int64_t count)
{
    int64_t parts = parts_of(p), longest = p->a.columns / parts;
    if (p->then)
        longest += p->then->a.columns;
    for (int64_t chain = first * parts; chain < (first + count) * parts; chain++) {
        if (j->count + 3 > MOST_SEGMENTS || (j->count > 0 && j->k + longest > SHORT_K)) {
            run_job(j);
            j->count = 0, j->k = 0;
        }
        add_chain(j, p, chain / parts, chain % parts);
    }
    run_job(j);
}

static void init_job(job *j, const nn_ordered_kernels *kernels, const nn_product *p, int64_t matrix)
{
    j->kernels = kernels;
    j->end = p->sums ? END_FIXED : parts_of(p) > 1 ? END_TREE : END_STORE;
    j->c = p->sums ? NULL : p->c + matrix * p->step;
    j->sums = p->sums ? p->sums + matrix * p->step : NULL;
    j->stride = p->stride;
    j->rows = p->a.rows;
    j->columns = p->b.columns;
    j->goes_on = !p->sums && p->beta != 0;
    j->k = 0;
    j->count = 0;
}

const char *nn_host_ordered_name(int kind)
{
    if (kind >= NN_HOST_ORDERED_KINDS || !kinds[kind] || !kinds[kind]->runs())
        return NULL;
    return kinds[kind]->name;
}

mimo_status nn_host_matmul_ordered_by(int kind, const nn_product *product)
{
    static _Thread_local job j;
    bool shared = product->sums && product->step == 0;
    for (int64_t m = 0; m < (shared ? 1 : product->count); m++) {
        init_job(&j, kinds[kind], product, m);
        if (j.end == END_FIXED)
            add_to_sums(&j, product, m, shared ? product->count : 1);
        else if (j.end == END_TREE)
            add_up(&j, product, m);
        else
            store(&j, product, m);
    }
    return MIMO_OK;
}

mimo_status nn_host_matmul_ordered(const nn_product *product)
{
    int kind = 0;
    while (!nn_host_ordered_name(kind))
        kind++;
    return nn_host_matmul_ordered_by(kind, product);
}

#endif
