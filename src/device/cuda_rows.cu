/* Row copies on the device: one kernel, told by a `Place` where each row comes from and goes to. */
#include <algorithm>

#include "device/cuda_kernels.h"

namespace
{

constexpr int kThreads = 256; // of a block
constexpr int kInFlight = 4;  // loads of a thread before its first store
constexpr int64_t kMostPieces = 4096;

// Row r of two loops with a stride on either side, in bytes.
struct Strided {
    static constexpr bool kHasGaps = false;
    char *to;
    const char *from;
    int64_t n_inner;
    int64_t to_outer, to_inner, from_outer, from_inner;

    __device__ void operator()(int64_t row, char *&target, const char *&source) const
    {
        int64_t i = row / n_inner, j = row - i * n_inner;
        target = to + i * to_outer + j * to_inner;
        source = from + i * from_outer + j * from_inner;
    }
};

// Row r of two loops; it comes from where its turn of the inner loop has a stretch, if any.
struct Filled {
    static constexpr bool kHasGaps = true;
    Strided rows; // with the inner loop of the stretches' `from`
    mimo_stretches stretches;

    __device__ void operator()(int64_t row, char *&target, const char *&source) const
    {
        int64_t i = row / rows.n_inner, j = row - i * rows.n_inner;
        int low = 0, high = stretches.count; // the first stretch that begins past j
        while (low < high) {
            int middle = (low + high) / 2;
            if (stretches.at[middle].to <= j)
                low = middle + 1;
            else
                high = middle;
        }
        target = rows.to + i * rows.to_outer + j * rows.to_inner;
        source = nullptr;
        if (low == 0 || j - stretches.at[low - 1].to >= stretches.at[low - 1].length)
            return;
        int64_t turn = stretches.at[low - 1].from + (j - stretches.at[low - 1].to);
        source = rows.from + i * rows.from_outer + turn * rows.from_inner;
    }
};

// Packed row n and its place in the tile.
struct Mapped {
    static constexpr bool kHasGaps = false;
    char *tile, *packed;
    mimo_row_map map;
    bool gather;

    __device__ void operator()(int64_t n, char *&target, const char *&source) const
    {
        int64_t position = map.position[n];
        int64_t b = position / map.seq, s = position - b * map.seq;
        int64_t sample = n / map.length, token = n - sample * map.length;
        char *in_tile = tile + (b * map.tile_b + s * map.tile_s) * map.row_bytes;
        char *in_packed = packed + (sample * map.packed_b + token * map.packed_s) * map.row_bytes;
        target = gather ? in_packed : in_tile;
        source = gather ? in_tile : in_packed;
    }
};

// A word of a row; of no row, zero.
template <class Place, class Word> __device__ Word read_word(const char *source, int64_t w)
{
    if (Place::kHasGaps && !source)
        return Word{};
    return reinterpret_cast<const Word *>(source)[w];
}

// threadIdx.y and blockIdx.x run over rows, threadIdx.x and blockIdx.y over the words of a row.
template <class Word, class Place>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ Place place, int64_t rows, int64_t words)
{
    const int64_t width = blockDim.x, piece = width * kInFlight;
    const int64_t row_step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < rows;
         row += row_step) {
        char *target;
        const char *source;
        place(row, target, source);
        for (int64_t w = blockIdx.y * piece + threadIdx.x; w < words; w += gridDim.y * piece) {
            Word held[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; u++)
                if (w + u * width < words)
                    held[u] = read_word<Place, Word>(source, w + u * width);
#pragma unroll
            for (int u = 0; u < kInFlight; u++)
                if (w + u * width < words)
                    reinterpret_cast<Word *>(target)[w + u * width] = held[u];
        }
    }
}

int64_t pieces_of(int64_t total, int64_t piece)
{
    return (total + piece - 1) / piece;
}

template <class Word, class Place>
cudaError_t launch(const Place &place, int64_t rows, int64_t row_bytes, cudaStream_t stream)
{
    int64_t words = row_bytes / (int64_t)sizeof(Word);
    unsigned width = 1;
    while (width < kThreads && (int64_t)width * kInFlight < words)
        width *= 2;
    while (width < 32 && width < words) // a warp reads neighbours, even where rows are short
        width *= 2;
    dim3 block(width, kThreads / width);
    int64_t across = std::min(pieces_of(rows, block.y), (int64_t)INT32_MAX);
    int64_t along = std::min(pieces_of(words, (int64_t)width * kInFlight), kMostPieces);
    move_rows<Word>
        <<<dim3((unsigned)across, (unsigned)along), block, 0, stream>>>(place, rows, words);
    return cudaGetLastError();
}

// The widest word that both ends and the row size are multiples of.
template <class Place>
cudaError_t launch_widest(const Place &place, uintptr_t ends, int64_t rows, int64_t row_bytes,
                          cudaStream_t stream)
{
    uintptr_t bits = ends | (uintptr_t)row_bytes;
    if (bits % 16 == 0)
        return launch<uint4>(place, rows, row_bytes, stream);
    if (bits % 8 == 0)
        return launch<uint2>(place, rows, row_bytes, stream);
    if (bits % 4 == 0)
        return launch<uint32_t>(place, rows, row_bytes, stream);
    if (bits % 2 == 0)
        return launch<uint16_t>(place, rows, row_bytes, stream);
    return launch<uint8_t>(place, rows, row_bytes, stream);
}

cudaError_t move_mapped(const Mapped &place, cudaStream_t stream)
{
    const mimo_row_map &map = place.map;
    if (map.rows == 0 || map.row_bytes == 0)
        return cudaSuccess;
    uintptr_t ends = (uintptr_t)place.tile | (uintptr_t)place.packed;
    return launch_widest(place, ends, map.rows, map.row_bytes, stream);
}

// Rows whose inner loop is contiguous are the words of one longer row.
mimo_rows lengthen(mimo_rows rows)
{
    rows.base = (char *)rows.base + rows.first * rows.row_bytes;
    rows.first = 0;
    rows.outer *= rows.row_bytes;
    rows.inner *= rows.row_bytes;
    return rows;
}

} // namespace

cudaError_t mimo_cuda_copy_rows(const mimo_rows *to_rows, const mimo_rows *from_rows,
                                cudaStream_t stream)
{
    mimo_rows to = lengthen(*to_rows), from = lengthen(*from_rows); // strides are bytes now
    int64_t row_bytes = to.row_bytes, n_inner = to.n_inner, n_outer = to.n_outer;
    if (row_bytes == 0 || n_inner == 0 || n_outer == 0)
        return cudaSuccess;
    if (n_inner == 1 || (to.inner == row_bytes && from.inner == row_bytes)) {
        row_bytes *= n_inner;
        n_inner = 1;
    }
    if (n_inner == 1 && (n_outer == 1 || (to.outer == row_bytes && from.outer == row_bytes)))
        return cudaMemcpyAsync(to.base, from.base, (size_t)(row_bytes * n_outer),
                               cudaMemcpyDeviceToDevice, stream);
    Strided place = {
        (char *)to.base, (const char *)from.base, n_inner, to.outer, to.inner, from.outer,
        from.inner};
    uintptr_t ends = (uintptr_t)to.base | (uintptr_t)from.base;
    // A longer row may be a multiple of more than its strides are.
    ends |= (uintptr_t)(n_outer > 1 ? to.outer | from.outer : 0);
    ends |= (uintptr_t)(n_inner > 1 ? to.inner | from.inner : 0);
    return launch_widest(place, ends, n_outer * n_inner, row_bytes, stream);
}

cudaError_t mimo_cuda_fill_rows(const mimo_rows *to_rows, const mimo_rows *from_rows,
                                const mimo_stretches *stretches, cudaStream_t stream)
{
    mimo_rows to = lengthen(*to_rows), from = lengthen(*from_rows); // strides are bytes now
    if (to.row_bytes == 0 || to.n_inner == 0 || to.n_outer == 0)
        return cudaSuccess;
    Filled place = {{(char *)to.base, (const char *)from.base, to.n_inner, to.outer, to.inner,
                     from.outer, from.inner},
                    *stretches};
    uintptr_t ends = (uintptr_t)to.base | (uintptr_t)from.base;
    return launch_widest(place, ends, to.n_outer * to.n_inner, to.row_bytes, stream);
}

cudaError_t mimo_cuda_gather_rows(void *packed, const void *tile, const mimo_row_map *map,
                                  cudaStream_t stream)
{
    return move_mapped(Mapped{(char *)const_cast<void *>(tile), (char *)packed, *map, true},
                       stream);
}

cudaError_t mimo_cuda_scatter_rows(void *tile, const void *packed, const mimo_row_map *map,
                                   cudaStream_t stream)
{
    return move_mapped(Mapped{(char *)tile, (char *)const_cast<void *>(packed), *map, false},
                       stream);
}
