/*
 * Private: products of the fixed order, in f32 alone. A thread has some elements of a tile of the
 * output, and goes along k with them: one __fmaf_rn for each k, ascending. So neither the tile's
 * size nor the number of blocks has an effect on the bits.
 *
 * A block goes through the steps of its chains, DEPTH elements of k each. While it computes one
 * step from shared memory, the next one is on its way through registers, also across the ends of
 * chains. Parts of a tree meet on a small stack of each thread. Sums in fixed point are kept in
 * registers until the block's chains are done; then they are added to what other blocks added.
 *
 * A kernel has tiles of a type of its own, which says where their rows end, what their right
 * factors and their sums are, and whether each is one chain of one product.
 */
#ifndef MIMO_NN_NN_CUDA_ORDERED_CUH
#define MIMO_NN_NN_CUDA_ORDERED_CUH

#include "train/nn/cuda/nn_cuda_fixed.cuh"
#include "train/nn/ops/nn_order.h"

constexpr int DEPTH = 16, FOUR = 4, PAD = 4, WARP_ROWS = 4, WARP_COLUMNS = 8;
constexpr int MOST_PENDING = 6; /* log2(NN_MOST_PARTS) subtrees wait for their right one */
static_assert(NN_MOST_PARTS == 1 << MOST_PENDING, "the stack of a tree");

enum end_of_chain { END_STORE, END_TREE, END_FIXED };

/* The left or the right factor: `outer` counts rows of a, or columns of b. */
struct operand {
    const float *data;
    int64_t stride, step, part; /* part: from the second factors of a part to the next ones */
    bool along_k;               /* k is the dimension whose elements lie side by side */
    bool wide;                  /* groups of four elements lie on 16 bytes */
};

struct factors {
    operand a, b;
    float alpha;
    int k;
};

struct work {
    float *c;
    int64_t *sums;
    int64_t stride, step;
    int m, n;
    factors first, then; /* then.k is 0 where there are none */
    int parts, piece;    /* piece: k of a piece of a part */
    bool folded;         /* a part has two pieces */
    bool goes_on;        /* chains begin with c */
    bool wide;           /* four elements of c lie on 16 bytes */
    bool sliced;         /* blocks may share the chains of a tile */
    int tiles_n;
    int64_t outputs, slices; /* matrices of the output; blocks that share the chains of one tile */
    int64_t chains;          /* of one output */
};

/* Threads, and the elements of the tile that each has: groups of four rows and four columns. */
template <int ROWS, int COLUMNS, int WARPS_M, int WARPS_N> struct shape {
    static constexpr int rows = ROWS, columns = COLUMNS;
    static constexpr int m = ROWS * WARP_ROWS * WARPS_M, n = COLUMNS * WARP_COLUMNS * WARPS_N;
    static constexpr int threads = NN_WARP * WARPS_M * WARPS_N, warps_n = WARPS_N;
};

/* A step of a chain: k elements [done, done + DEPTH) of a piece, as many as there are. */
struct cursor {
    int64_t chain;
    int piece, done, count;
    const float *a, *b; /* at k = 0 of the piece */
};

/* A tile of the output of a product, or of a batch of them. */
struct tile {
    static constexpr bool one_chain = false;
    int m, n; /* its first row and column */
    int64_t output, slice;

    __device__ int m_end(const work &w) const /* the first row that is not there */
    {
        return w.m;
    }
    __device__ operand b_of(const work &w, int piece) const
    {
        return piece == 2 ? w.then.b : w.first.b;
    }
    __device__ int then_k(const work &w) const
    {
        return w.then.k;
    }
    __device__ int64_t *sums_of(const work &w) const
    {
        return w.sums + output * w.step;
    }
};

static __device__ inline operand a_of(const work &w, int piece)
{
    return piece == 2 ? w.then.a : w.first.a;
}

template <typename Tile> static __device__ int piece_count(const work &w, const Tile &t, int piece)
{
    if (piece == 2)
        return t.then_k(w);
    return piece == 0 || w.folded ? w.piece : 0;
}

static __device__ inline const float *at_k(const operand &x, int64_t offset, int64_t k)
{
    return x.data + offset + (x.along_k ? k : k * x.stride);
}

/* To the first step of a piece. Chain q of an output is part q % parts of matrix q / parts. */
template <typename Tile>
static __device__ void begin_piece(cursor &c, const work &w, const Tile &t, int piece)
{
    operand a = a_of(w, piece), b = t.b_of(w, piece);
    c.piece = piece;
    c.done = 0;
    c.count = piece_count(w, t, piece);
    if constexpr (Tile::one_chain) {
        c.a = a.data;
        c.b = b.data;
    } else {
        int64_t matrix = t.output + (w.parts == 1 ? c.chain : c.chain / w.parts);
        int part = w.parts == 1 ? 0 : (int)(c.chain % w.parts);
        int64_t k =
            piece == 2 ? 0 : (int64_t)w.piece * (piece == 0 ? part : 2 * w.parts - 1 - part);
        c.a = at_k(a, matrix * a.step + part * a.part, k);
        c.b = at_k(b, matrix * b.step + part * b.part, k);
    }
}

/* To the next step. A chain has one step at least, which may be empty. False at the end. */
template <typename Tile> static __device__ bool advance(cursor &c, const work &w, const Tile &t)
{
    c.done += DEPTH;
    if (c.done < c.count)
        return true;
    for (int piece = c.piece + 1; piece <= 2; piece++)
        if (piece_count(w, t, piece) > 0) {
            begin_piece(c, w, t, piece);
            return true;
        }
    if constexpr (!Tile::one_chain) {
        c.chain += w.slices;
        if (c.chain < w.chains) {
            begin_piece(c, w, t, 0);
            return true;
        }
    }
    return false;
}

/* Where group g of a thread lies in a step's part of a factor: OUTER x DEPTH elements, in groups of
 * four along the dimension whose elements lie side by side. */
template <int OUTER> static __device__ void place(int group, bool along_k, int &outer, int &k)
{
    if (along_k) {
        outer = group / (DEPTH / FOUR);
        k = group % (DEPTH / FOUR) * FOUR;
    } else {
        k = group / (OUTER / FOUR);
        outer = group % (OUTER / FOUR) * FOUR;
    }
}

/* Elements beyond the ends become 0. Those beyond `outers` are in elements that are not stored;
 * those beyond `ks` are not read. */
template <int OUTER, int THREADS, int GROUPS>
static __device__ void fetch(float (&values)[GROUPS][FOUR], const operand &x, const float *from,
                             int first, int outers, int ks)
{
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int outer, k;
        place<OUTER>((int)threadIdx.x + g * THREADS, x.along_k, outer, k);
        int64_t o = (int64_t)first + outer;
        bool inside = o < outers && k < ks;
        int64_t side = x.along_k ? ks - k : outers - o; /* elements side by side */
        const float *at = from + (x.along_k ? o * x.stride + k : k * x.stride + o);
        if (inside && x.wide && side >= FOUR) {
            float4 four = *(const float4 *)at;
            values[g][0] = four.x, values[g][1] = four.y;
            values[g][2] = four.z, values[g][3] = four.w;
        } else {
#pragma unroll
            for (int e = 0; e < FOUR; e++)
                values[g][e] = inside && e < side ? at[e] : 0;
        }
    }
}

template <int OUTER, int THREADS, int GROUPS>
static __device__ void keep(float (*to)[OUTER + PAD], const float (&values)[GROUPS][FOUR],
                            bool along_k, float alpha)
{
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int outer, k;
        place<OUTER>((int)threadIdx.x + g * THREADS, along_k, outer, k);
        if (along_k) {
#pragma unroll
            for (int e = 0; e < FOUR; e++)
                to[k + e][outer] = alpha * values[g][e];
        } else {
            *(float4 *)&to[k][outer] = make_float4(alpha * values[g][0], alpha * values[g][1],
                                                   alpha * values[g][2], alpha * values[g][3]);
        }
    }
}

template <typename S> struct buffers {
    float a[2][DEPTH][S::m + PAD], b[2][DEPTH][S::n + PAD];
};

/* Rows and columns of a thread's elements in the tile: group i / 4 of four, i % 4 in it. */
template <typename S> static __device__ int row_of(int i)
{
    int warp = (int)threadIdx.x / NN_WARP, lane = (int)threadIdx.x % NN_WARP;
    int first = warp / S::warps_n * (S::rows * WARP_ROWS) + lane / WARP_COLUMNS * FOUR;
    return first + i / FOUR * (FOUR * WARP_ROWS) + i % FOUR;
}

template <typename S> static __device__ int column_of(int j)
{
    int warp = (int)threadIdx.x / NN_WARP, lane = (int)threadIdx.x % NN_WARP;
    int first = warp % S::warps_n * (S::columns * WARP_COLUMNS) + lane % WARP_COLUMNS * FOUR;
    return first + j / FOUR * (FOUR * WARP_COLUMNS) + j % FOUR;
}

template <int COUNT>
static __device__ void read_fours(float (&to)[COUNT], const float *from, int distance)
{
#pragma unroll
    for (int g = 0; g < COUNT / FOUR; g++) {
        float4 four = *(const float4 *)(from + g * distance);
        to[4 * g] = four.x, to[4 * g + 1] = four.y, to[4 * g + 2] = four.z, to[4 * g + 3] = four.w;
    }
}

template <typename S>
static __device__ void one_k(float (&chain)[S::rows][S::columns], const float *a, const float *b)
{
    float left[S::rows], right[S::columns];
    read_fours(left, a, FOUR * WARP_ROWS);
    read_fours(right, b, FOUR * WARP_COLUMNS);
#pragma unroll
    for (int i = 0; i < S::rows; i++)
#pragma unroll
        for (int j = 0; j < S::columns; j++)
            chain[i][j] = __fmaf_rn(left[i], right[j], chain[i][j]);
}

template <typename S>
static __device__ void one_step(float (&chain)[S::rows][S::columns], const float (*a)[S::m + PAD],
                                const float (*b)[S::n + PAD], int ks)
{
    const float *left = &a[0][row_of<S>(0)], *right = &b[0][column_of<S>(0)];
    if (ks >= DEPTH) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            one_k<S>(chain, left + k * (S::m + PAD), right + k * (S::n + PAD));
        return;
    }
    for (int k = 0; k < ks; k++) /* a step of zeros would change -0 */
        one_k<S>(chain, left + k * (S::m + PAD), right + k * (S::n + PAD));
}

/* Only the chain of a product that is stored may go on from c. */
template <typename S, end_of_chain END, typename Tile>
static __device__ void begin_chain(float (&chain)[S::rows][S::columns], const work &w,
                                   const Tile &t)
{
#pragma unroll
    for (int i = 0; i < S::rows; i++)
#pragma unroll
        for (int j = 0; j < S::columns; j++) {
            int row = t.m + row_of<S>(i), column = t.n + column_of<S>(j);
            bool goes_on = END == END_STORE && w.goes_on && row < t.m_end(w) && column < w.n;
            chain[i][j] = goes_on ? w.c[t.output * w.step + row * w.stride + column] : 0;
        }
}

template <typename S, typename Tile>
static __device__ void store(const float (&chain)[S::rows][S::columns], const work &w,
                             const Tile &t)
{
#pragma unroll
    for (int i = 0; i < S::rows; i++) {
        int row = t.m + row_of<S>(i);
        float *to = w.c + t.output * w.step + row * w.stride;
#pragma unroll
        for (int j = 0; j < S::columns && row < t.m_end(w); j += FOUR) {
            int column = t.n + column_of<S>(j);
            if (w.wide && column + FOUR <= w.n) {
                *(float4 *)(to + column) =
                    make_float4(chain[i][j], chain[i][j + 1], chain[i][j + 2], chain[i][j + 3]);
                continue;
            }
#pragma unroll
            for (int e = 0; e < FOUR; e++)
                if (column + e < w.n)
                    to[column + e] = chain[i][j + e];
        }
    }
}

/* What becomes of the chains of a tile, which end one after the other. */
template <typename S, end_of_chain END> struct ending {
    __device__ ending()
    {
    }
    __device__ void take(float (&)[S::rows][S::columns], const work &, int64_t)
    {
    }
    template <typename Tile>
    __device__ void finish(const float (&chain)[S::rows][S::columns], const work &w, const Tile &t)
    {
        store<S>(chain, w, t);
    }
};

/* Subtrees wait for their right ones. The last chain becomes the whole tree. */
template <typename S> struct ending<S, END_TREE> {
    float pending[MOST_PENDING][S::rows][S::columns];
    int depth;

    __device__ ending() : depth(0)
    {
    }
    /* The chain is number `number` of w.parts, from 1. */
    __device__ void take(float (&chain)[S::rows][S::columns], const work &w, int64_t number)
    {
        for (int64_t subtrees = number; subtrees % 2 == 0; subtrees /= 2) {
            depth--;
#pragma unroll
            for (int i = 0; i < S::rows; i++)
#pragma unroll
                for (int j = 0; j < S::columns; j++)
                    chain[i][j] = pending[depth][i][j] + chain[i][j];
        }
        if (number == w.parts)
            return;
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++)
                pending[depth][i][j] = chain[i][j];
        depth++;
    }
    template <typename Tile>
    __device__ void finish(const float (&chain)[S::rows][S::columns], const work &w, const Tile &t)
    {
        store<S>(chain, w, t);
    }
};

/* As long as the sizes of all that a thread has added stay far below the range, no sum can have
 * left it. From there on each is looked at. NaN is never far below. */
template <typename S> struct ending<S, END_FIXED> {
    static constexpr float far_below = 0x1p20f;
    int64_t sums[S::rows][S::columns];
    float sizes;

    __device__ ending() : sizes(0)
    {
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++)
                sums[i][j] = 0;
    }
    __device__ void take(float (&chain)[S::rows][S::columns], const work &, int64_t)
    {
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++)
                sizes += fabsf(chain[i][j]);
        bool whole = sizes < far_below;
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++)
                sums[i][j] = whole ? sums[i][j] + __float2ll_rn(chain[i][j] * 0x1p40f)
                                   : nn_fixed_sum_float(sums[i][j], chain[i][j]);
    }
    template <typename Tile>
    __device__ void finish(const float (&)[S::rows][S::columns], const work &w, const Tile &t)
    {
        add_to(w, t);
    }
    template <typename Tile> __device__ void add_to(const work &w, const Tile &t)
    {
        int64_t *to = t.sums_of(w);
#pragma unroll
        for (int i = 0; i < S::rows; i++)
#pragma unroll
            for (int j = 0; j < S::columns; j++) {
                int row = t.m + row_of<S>(i), column = t.n + column_of<S>(j);
                if (row < t.m_end(w) && column < w.n)
                    nn_fixed_add(to + row * w.stride + column, sums[i][j]);
            }
    }
};

/* The fours of a step of both factors, on their way from global to shared memory. */
template <typename S> struct step_fours {
    float a[S::m * DEPTH / FOUR / S::threads][FOUR], b[S::n * DEPTH / FOUR / S::threads][FOUR];

    template <typename Tile>
    __device__ void fetch_step(const work &w, const cursor &c, const Tile &t)
    {
        operand left = a_of(w, c.piece), right = t.b_of(w, c.piece);
        int ks = c.count - c.done;
        fetch<S::m, S::threads>(a, left, at_k(left, c.a - left.data, c.done), t.m, t.m_end(w), ks);
        fetch<S::n, S::threads>(b, right, at_k(right, c.b - right.data, c.done), t.n, w.n, ks);
    }
    __device__ void keep_step(buffers<S> &to, int buffer, const work &w, const cursor &c)
    {
        float alpha = c.piece == 2 ? w.then.alpha : w.first.alpha;
        keep<S::m, S::threads>(to.a[buffer], a, a_of(w, c.piece).along_k, alpha);
        keep<S::n, S::threads>(to.b[buffer], b, c.piece == 2 ? w.then.b.along_k : w.first.b.along_k,
                               1);
    }
};

template <typename S, end_of_chain END, typename Tile>
static __device__ void run_tile(buffers<S> &room, const work &w, const Tile &t)
{
    float chain[S::rows][S::columns];
    ending<S, END> end;
    step_fours<S> coming;
    cursor c;
    int64_t number = 0;
    int buffer = 0;
    c.chain = t.slice;
    begin_piece(c, w, t, 0);
    coming.fetch_step(w, c, t);
    coming.keep_step(room, buffer, w, c);
    begin_chain<S, END>(chain, w, t);
    __syncthreads();
    for (bool more = true; more; buffer ^= 1) {
        int ks = c.count - c.done;
        int64_t now = c.chain;
        more = advance(c, w, t); /* from here on, c is the next step */
        if (more)
            coming.fetch_step(w, c, t);
        one_step<S>(chain, room.a[buffer], room.b[buffer], ks);
        if (!more || c.chain != now) {
            end.take(chain, w, ++number);
            if (more)
                begin_chain<S, END>(chain, w, t);
        }
        if (more)
            coming.keep_step(room, buffer ^ 1, w, c);
        __syncthreads(); /* the step is read, the next one is there */
    }
    end.finish(chain, w, t);
}

/* How many share a multiprocessor, and so its registers: as measured on an H200. */
template <typename S> static constexpr int blocks_at_once = S::threads == NN_THREADS / 2 ? 3 : 2;

using small_shape = shape<4, 4, 2, 1>;  /* 32 x 32, 64 threads */
using middle_shape = shape<4, 4, 4, 2>; /* 64 x 64, 256 threads */
using large_shape = shape<8, 8, 4, 2>;  /* 128 x 128, 256 threads */
using long_shape = shape<8, 4, 2, 2>;   /* 64 x 64, 128 threads: room for trees and sums */

/* How long tiles of this shape take on `units` multiprocessors, in some unit; `speed` is how fast
 * the shape computes. Slices of chains fill what `blocks` leave. */
template <typename S> static double cost_of(const work &w, int64_t blocks, int units, double speed)
{
    int64_t most = 1;
    if (w.sliced && blocks < units)
        most = w.chains;
    int64_t slices = blocks > 0 ? units / blocks : 1;
    slices = slices < 1 ? 1 : slices < most ? slices : most;
    int64_t rounds = (blocks * slices + units - 1) / units;
    return (double)rounds * S::m * S::n / (double)slices / speed;
}

template <typename S> static int64_t slices_of(const work &w, int64_t blocks, int units)
{
    int64_t slices = w.sliced ? (2 * units + blocks - 1) / blocks : 1;
    return slices < w.chains ? slices : w.chains;
}

static inline int multiprocessors()
{
    int device = 0, units = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
    return units;
}

/* Call launch(shape, units) with the shape whose blocks(shape) cost least. */
template <typename LARGE, typename Blocks, typename Launch>
static mimo_status launch_best(const work &w, Blocks blocks, Launch launch)
{
    const small_shape small_one{};
    const middle_shape middle_one{};
    const LARGE large_one{};
    int units = multiprocessors();
    double small = cost_of<small_shape>(w, blocks(small_one), units, 0.35);
    double middle = cost_of<middle_shape>(w, blocks(middle_one), units, 0.65);
    double large = cost_of<LARGE>(w, blocks(large_one), units, 1);
    if (large <= middle && large <= small)
        return launch(large_one, units);
    return middle <= small ? launch(middle_one, units) : launch(small_one, units);
}

static inline bool lies_on_16(const void *data, int64_t a, int64_t b)
{
    return (uintptr_t)data % 16 == 0 && a % FOUR == 0 && b % FOUR == 0;
}

/* `along_k` says that k is the dimension whose elements lie side by side; pieces begin at multiples
 * of `piece`. */
static inline operand operand_of(const nn_matrix *x, int64_t part, bool along_k, int64_t piece)
{
    bool wide = lies_on_16(x->data, x->stride, x->step) && part % FOUR == 0;
    return operand{x->data, x->stride, x->step,
                   part,    along_k,   wide && (!along_k || piece % FOUR == 0)};
}

static inline factors factors_of(float alpha, const nn_matrix *a, const nn_matrix *b,
                                 int64_t a_part, int64_t b_part, int64_t piece)
{
    return factors{operand_of(a, a_part, !a->transposed, piece),
                   operand_of(b, b_part, b->transposed, piece), alpha, (int)a->columns};
}

#endif
