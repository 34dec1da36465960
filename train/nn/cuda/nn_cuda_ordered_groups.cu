/*
 * Products and sums of groups of rows in the fixed order, for groups whose ends only the device
 * knows. A launch is for the most tiles that the rows can need. A block searches the ends for its
 * group, and leaves at once where there is none for it.
 *
 * Slots of a product: tiles have S::m rows, and group g has the slots from
 *
 *   begin(g) / S::m + g    on, rounded down
 *
 * Claim: its tiles have a slot each, and all slots are below rows / S::m + count.
 * Why: the next group begins at the slot (begin + rows of g) / S::m + g + 1. A sum of two numbers,
 * divided and rounded down, is at least the sum of both so divided. So g has at least
 * (rows of g) / S::m + 1 slots, which is enough for the rounded-up number of its tiles.
 */
#include "core/check.h"
#include "train/nn/cuda/nn_cuda.h"

#ifdef NN_REAL_F64

mimo_status nn_cuda_multiply_groups_ordered(const nn_runtime *, const nn_group_product *)
{
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "fixed order: needs layers in f32");
}

mimo_status nn_cuda_sum_groups_ordered(const nn_runtime *, const nn_group_sums *)
{
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "fixed order: needs layers in f32");
}

#else

#include "train/nn/cuda/nn_cuda_ordered.cuh"

/* ----------------------------------------- products ------------------------------------------ */

struct group_work {
    work all; /* m: the rows of all groups */
    nn_groups groups;
    const float *const *b, *const *then; /* then NULL: no group has second factors */
};

/* Rows count from the first one of all groups. */
struct group_tile {
    static constexpr bool one_chain = true;
    static constexpr int64_t output = 0, slice = 0;
    int m, n, end;
    const float *b, *then; /* then NULL: this group has none */

    __device__ int m_end(const work &) const
    {
        return end;
    }
    __device__ operand b_of(const work &w, int piece) const
    {
        operand x = piece == 2 ? w.then.b : w.first.b;
        x.data = piece == 2 ? then : b;
        x.wide = x.wide && (uintptr_t)x.data % 16 == 0;
        return x;
    }
    __device__ int then_k(const work &w) const
    {
        return then ? w.then.k : 0;
    }
};

template <typename S> static __device__ int64_t first_slot(const nn_groups &groups, int64_t g)
{
    return nn_group_begin(&groups, g) / S::m + g;
}

/* The last group that has this slot, or one before it. */
template <typename S> static __device__ int64_t group_of(const nn_groups &groups, int64_t slot)
{
    int64_t low = 0, high = groups.count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (first_slot<S>(groups, middle) <= slot)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* False where no rows are left for the slot, or its group has no product. */
template <typename S>
static __device__ bool take_slot(group_tile &t, const group_work &w, int64_t slot)
{
    int64_t g = group_of<S>(w.groups, slot), end = nn_group_end(&w.groups, g);
    int64_t row = nn_group_begin(&w.groups, g) + (slot - first_slot<S>(w.groups, g)) * S::m;
    if (row >= end || !w.b[g])
        return false;
    t.m = (int)row;
    t.end = (int)end;
    t.b = w.b[g];
    t.then = w.then ? w.then[g] : nullptr;
    return true;
}

template <typename S>
static __global__ void __launch_bounds__(S::threads, blocks_at_once<S>)
    ordered_groups(const __grid_constant__ group_work w)
{
    __shared__ __align__(16) buffers<S> room;
    group_tile t;
    if (!take_slot<S>(t, w, blockIdx.x / w.all.tiles_n))
        return;
    t.n = (int)(blockIdx.x % w.all.tiles_n) * S::n;
    run_tile<S, END_STORE>(room, w.all, t);
}

template <typename S> static int64_t columns_of(const work &w)
{
    return (w.n + S::n - 1) / S::n;
}

template <typename S> static int64_t slots_of(const group_work &w)
{
    return (w.groups.rows / S::m + w.groups.count) * columns_of<S>(w.all);
}

template <typename S> static mimo_status launch_product(const nn_runtime *runtime, group_work w)
{
    w.all.tiles_n = (int)columns_of<S>(w.all);
    ordered_groups<S>
        <<<(unsigned)slots_of<S>(w), S::threads, 0, (cudaStream_t)runtime->stream>>>(w);
    return nn_cuda_launched("product of groups in the fixed order");
}

static factors group_factors_of(const nn_group_factors *it, int64_t rows, int64_t columns)
{
    nn_matrix a = {it->a, rows, it->k, it->k, 0, false};
    nn_matrix b = {NULL, it->k, columns, it->transposed ? it->k : columns, 0, it->transposed};
    return factors_of(it->alpha, &a, &b, 0, 0, 0);
}

static group_work group_work_of(const nn_group_product *p)
{
    group_work w = {};
    w.groups = p->groups;
    w.b = p->first.b;
    w.all.c = p->c;
    w.all.stride = p->columns;
    w.all.m = (int)p->groups.rows;
    w.all.n = (int)p->columns;
    w.all.parts = 1;
    w.all.piece = (int)p->first.k;
    w.all.first = group_factors_of(&p->first, p->groups.rows, p->columns);
    if (p->then) {
        w.then = p->then->b;
        w.all.then = group_factors_of(p->then, p->groups.rows, p->columns);
    }
    w.all.goes_on = p->beta != 0;
    w.all.wide = lies_on_16(p->c, p->columns, 0);
    w.all.outputs = w.all.chains = w.all.slices = 1;
    return w;
}

mimo_status nn_cuda_multiply_groups_ordered(const nn_runtime *runtime,
                                            const nn_group_product *product)
{
    const group_work w = group_work_of(product);
    if (w.all.m == 0 || w.all.n == 0)
        return MIMO_OK;
    return launch_best<large_shape>(
        w.all, [&](auto shape) { return slots_of<decltype(shape)>(w); },
        [&](auto shape, int) { return launch_product<decltype(shape)>(runtime, w); });
}

/* ------------------------------------------- sums -------------------------------------------- */

struct sum_work {
    work each; /* dy^T x of one group: k are its rows */
    nn_groups groups;
    void *const *to;
};

/* A tile of a group's sum, and the rows whose products a block adds to it. */
struct sum_tile {
    int m, n;
    int64_t begin, end;
    int64_t *sums;

    __device__ int m_end(const work &w) const
    {
        return w.m;
    }
    __device__ int64_t *sums_of(const work &) const
    {
        return sums;
    }
};

template <typename S> struct row_fours : step_fours<S> {
    __device__ void fetch_rows(const work &w, const sum_tile &t, int64_t row)
    {
        const operand &a = w.first.a, &b = w.first.b;
        int ks = (int)(t.end - row < DEPTH ? t.end - row : DEPTH);
        fetch<S::m, S::threads>(this->a, a, a.data + row * a.stride, t.m, w.m, ks);
        fetch<S::n, S::threads>(this->b, b, b.data + row * b.stride, t.n, w.n, ks);
    }
    __device__ void keep_rows(buffers<S> &to, int buffer, const work &w)
    {
        keep<S::m, S::threads>(to.a[buffer], this->a, false, w.first.alpha);
        keep<S::n, S::threads>(to.b[buffer], this->b, false, 1);
    }
};

/* Each row is a chain of one product. The sizes of all that a thread adds of it are at most the
 * product of two sums, which is there before the first of them. */
template <typename S> struct row_ending : ending<S, END_FIXED> {
    __device__ void add_row(const float *a, const float *b)
    {
        float left[S::rows], right[S::columns], left_size = 0, right_size = 0;
        read_fours(left, a, FOUR * WARP_ROWS);
        read_fours(right, b, FOUR * WARP_COLUMNS);
#pragma unroll
        for (int i = 0; i < S::rows; i++)
            left_size += fabsf(left[i]);
#pragma unroll
        for (int j = 0; j < S::columns; j++)
            right_size += fabsf(right[j]);
        this->sizes += left_size * right_size;
        bool whole = this->sizes < this->far_below;
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++) {
                float product = __fmul_rn(left[i], right[j]);
                this->sums[i][j] = whole ? this->sums[i][j] + __float2ll_rn(product * 0x1p40f)
                                         : nn_fixed_sum_float(this->sums[i][j], product);
            }
    }
    __device__ void add_rows(const buffers<S> &room, int buffer, int rows)
    {
        const float *a = &room.a[buffer][0][row_of<S>(0)];
        const float *b = &room.b[buffer][0][column_of<S>(0)];
        for (int k = 0; k < rows; k++)
            add_row(a + k * (S::m + PAD), b + k * (S::n + PAD));
    }
};

/* What a thread adds fills its registers, so steps are fetched one after the other: other blocks
 * compute meanwhile. */
template <typename S>
static __device__ void run_rows(buffers<S> &room, const work &w, const sum_tile &t)
{
    row_ending<S> end;
    int buffer = 0;
    for (int64_t row = t.begin; row < t.end; row += DEPTH, buffer ^= 1) {
        row_fours<S> step;
        step.fetch_rows(w, t, row);
        step.keep_rows(room, buffer, w);
        __syncthreads(); /* the step before the last is read by all */
        end.add_rows(room, buffer, (int)(t.end - row < DEPTH ? t.end - row : DEPTH));
    }
    __syncthreads(); /* all is read */
    end.add_to(w, t);
}

/* Part `part` of `parts` of the rows of group g. False where there is nothing to add. */
static __device__ bool take_part(sum_tile &t, const sum_work &w, int64_t g, int64_t part,
                                 int64_t parts)
{
    int64_t begin = nn_group_begin(&w.groups, g), rows = nn_group_end(&w.groups, g) - begin;
    t.begin = begin + rows * part / parts;
    t.end = begin + rows * (part + 1) / parts;
    t.sums = (int64_t *)w.to[g];
    return t.sums && t.begin < t.end;
}

template <typename S>
static __global__ void __launch_bounds__(S::threads, blocks_at_once<S>)
    ordered_sums(const __grid_constant__ sum_work w)
{
    __shared__ __align__(16) buffers<S> room;
    sum_tile t;
    t.m = (int)(blockIdx.x / w.each.tiles_n) * S::m;
    t.n = (int)(blockIdx.x % w.each.tiles_n) * S::n;
    for (int64_t z = blockIdx.z; z < w.groups.count * w.each.slices; z += gridDim.z)
        if (take_part(t, w, z / w.each.slices, z % w.each.slices, w.each.slices))
            run_rows<S>(room, w.each, t);
}

template <typename S> static int64_t tiles_of(const sum_work &w)
{
    return (w.each.m + S::m - 1) / S::m * columns_of<S>(w.each);
}

constexpr int64_t MOST_Z = 65535;

template <typename S>
static mimo_status launch_sums(const nn_runtime *runtime, sum_work w, int units)
{
    w.each.tiles_n = (int)columns_of<S>(w.each);
    w.each.slices = slices_of<S>(w.each, tiles_of<S>(w) * w.groups.count, units);
    int64_t z = w.groups.count * w.each.slices;
    dim3 grid((unsigned)tiles_of<S>(w), 1, (unsigned)(z < MOST_Z ? z : MOST_Z));
    ordered_sums<S><<<grid, S::threads, 0, (cudaStream_t)runtime->stream>>>(w);
    return nn_cuda_launched("sums of groups in the fixed order");
}

static sum_work sum_work_of(const nn_group_sums *it)
{
    const nn_matrix a = {it->dy, it->out, it->groups.rows, it->out, 0, true};
    const nn_matrix b = {it->x, it->groups.rows, it->in, it->in, 0, false};
    sum_work w = {};
    w.groups = it->groups;
    w.to = it->to;
    w.each.m = (int)it->out;
    w.each.n = (int)it->in;
    w.each.stride = it->in;
    w.each.first = factors_of(it->scale, &a, &b, 0, 0, 0);
    w.each.sliced = true;
    w.each.chains = it->groups.rows;
    return w;
}

/* ------------------------------------- sums of one column ------------------------------------- */

/* x is one column, or ones. A block has 32 columns of dy and a part of the rows. */
static __global__ void ordered_columns(const __grid_constant__ sum_work w)
{
    const int64_t j = (int64_t)blockIdx.x * NN_WARP + threadIdx.x, width = w.each.m;
    const float *dy = w.each.first.a.data, *x = w.each.first.b.data;
    sum_tile t;
    for (int64_t g = blockIdx.z; g < w.groups.count; g += gridDim.z) {
        if (!take_part(t, w, g, blockIdx.y, gridDim.y))
            continue; /* all threads of the block */
        int64_t sum = nn_fix_slices(t.begin, t.end, [=](int64_t i) {
            float term = j < width ? w.each.first.alpha * dy[i * width + j] : 0;
            return x ? __fmul_rn(term, x[i]) : term;
        });
        if (threadIdx.y == 0 && j < width)
            nn_fixed_add(&t.sums[j], sum);
    }
}

static mimo_status launch_columns(const nn_runtime *runtime, const sum_work &w)
{
    const int64_t count = w.groups.count, each = w.groups.rows / count / NN_CHUNK_ROWS + 1;
    dim3 grid((unsigned)((w.each.m + NN_WARP - 1) / NN_WARP),
              (unsigned)(each < NN_MOST_CHUNKS ? each : NN_MOST_CHUNKS),
              (unsigned)(count < MOST_Z ? count : MOST_Z));
    ordered_columns<<<grid, dim3(NN_WARP, NN_SLICES), 0, (cudaStream_t)runtime->stream>>>(w);
    return nn_cuda_launched("sums of columns of groups in the fixed order");
}

mimo_status nn_cuda_sum_groups_ordered(const nn_runtime *runtime, const nn_group_sums *sums)
{
    const sum_work w = sum_work_of(sums);
    if (w.groups.rows == 0 || w.each.m == 0 || w.each.n == 0)
        return MIMO_OK;
    if (w.each.n == 1)
        return launch_columns(runtime, w);
    return launch_best<long_shape>(
        w.each, [&](auto shape) { return tiles_of<decltype(shape)>(w) * w.groups.count; },
        [&](auto shape, int units) { return launch_sums<decltype(shape)>(runtime, w, units); });
}

#endif
