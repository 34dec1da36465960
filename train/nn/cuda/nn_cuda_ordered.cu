/* Products of the fixed order, and batches of them. */
#include "core/check.h"
#include "train/nn/cuda/nn_cuda.h"

#ifdef NN_REAL_F64

mimo_status nn_cuda_matmul_ordered(const nn_runtime *, const nn_product *)
{
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "fixed order: needs layers in f32");
}

#else

#include "train/nn/cuda/nn_cuda_ordered.cuh"

template <typename S, end_of_chain END>
static __global__ void __launch_bounds__(S::threads, blocks_at_once<S>)
    ordered(const __grid_constant__ work w)
{
    __shared__ __align__(16) buffers<S> room;
    tile t;
    t.m = (int)(blockIdx.x / w.tiles_n) * S::m;
    t.n = (int)(blockIdx.x % w.tiles_n) * S::n;
    for (int64_t z = blockIdx.z; z < w.outputs * w.slices; z += gridDim.z) {
        t.output = z / w.slices;
        t.slice = z % w.slices;
        run_tile<S, END>(room, w, t);
    }
}

template <typename S> static int64_t tiles_of(const work &w)
{
    int64_t m = (w.m + S::m - 1) / S::m, n = (w.n + S::n - 1) / S::n;
    return m * n;
}

template <typename S, end_of_chain END>
static mimo_status launch(const nn_runtime *runtime, work w, int units)
{
    constexpr int64_t most_z = 65535;
    int64_t blocks = tiles_of<S>(w) * w.outputs;
    w.tiles_n = (w.n + S::n - 1) / S::n;
    w.slices = slices_of<S>(w, blocks, units);
    int64_t z = w.outputs * w.slices;
    dim3 grid((unsigned)tiles_of<S>(w), 1, (unsigned)(z < most_z ? z : most_z));
    ordered<S, END><<<grid, S::threads, 0, (cudaStream_t)runtime->stream>>>(w);
    return nn_cuda_launched("product in the fixed order");
}

static work work_of(const nn_product *p)
{
    work w = {};
    int64_t k = p->a.columns, parts = p->parts > 0 ? p->parts : 1;
    w.c = p->c;
    w.sums = p->sums;
    w.stride = p->stride;
    w.step = p->step;
    w.m = (int)p->a.rows;
    w.n = (int)p->b.columns;
    w.parts = (int)parts;
    w.folded = p->folded && parts > 1;
    w.piece = (int)(w.folded ? k / (2 * parts) : k / parts);
    w.first = factors_of(p->alpha, &p->a, &p->b, 0, 0, parts > 1 ? w.piece : 0);
    if (p->then)
        w.then = factors_of(p->then->alpha, &p->then->a, &p->then->b, p->then->a_part,
                            p->then->b_part, 0);
    w.sliced = p->sums != NULL;
    w.goes_on = p->beta != 0 && !p->sums;
    w.wide = !p->sums && lies_on_16(p->c, p->stride, p->step);
    bool shared = p->sums && p->step == 0;
    w.outputs = shared ? 1 : p->count;
    w.chains = shared ? parts * p->count : parts;
    w.slices = 1;
    return w;
}

template <typename LARGE, end_of_chain END>
static mimo_status launch_tiles(const nn_runtime *runtime, const work &w)
{
    return launch_best<LARGE>(
        w, [&](auto shape) { return tiles_of<decltype(shape)>(w) * w.outputs; },
        [&](auto shape, int units) { return launch<decltype(shape), END>(runtime, w, units); });
}

mimo_status nn_cuda_matmul_ordered(const nn_runtime *runtime, const nn_product *product)
{
    work w = work_of(product);
    if (product->count == 0 || w.m == 0 || w.n == 0)
        return MIMO_OK;
    if (w.sums)
        return launch_tiles<long_shape, END_FIXED>(runtime, w);
    if (w.parts > 1)
        return launch_tiles<long_shape, END_TREE>(runtime, w);
    return launch_tiles<large_shape, END_STORE>(runtime, w);
}

#endif
