/* Row copies on the device: one kernel. A `Mapping` gives the source and the target of each row. */
#include <algorithm>

#include "device/cuda_kernels.h"
#include "device/cuda_launch.cuh"
#include "device/cuda_search.cuh"

namespace
{

constexpr int kThreads = 128;      // of a block
constexpr int kInFlight = 4;       // words of a thread: it loads them all before its first store
constexpr int64_t kSpread = 128;   // thread blocks that occupy about a whole device
constexpr int kMostPerLaunch = 32; // copies: a kernel's arguments have 4 KiB
constexpr int kFewPerLaunch = 8;

// Row r of two loops with a stride on either side, in bytes.
struct Strided {
    static constexpr bool kHasGaps = false;
    char *to;
    const char *from;
    int64_t n_inner;
    int64_t to_outer, to_inner, from_outer, from_inner;

    __device__ void operator()(int64_t row, char *&target, const char *&source) const
    {
        int64_t i = n_inner == 1 ? row : row / n_inner, j = row - i * n_inner;
        target = to + i * to_outer + j * to_inner;
        source = from + i * from_outer + j * from_inner;
    }
};

// Row r of two loops. It comes from the stretch that holds its iteration of the inner loop, if any.
struct Filled {
    static constexpr bool kHasGaps = true;
    Strided rows; // with the inner loop of the stretches' `from`
    mimo_stretches stretches;

    __device__ void operator()(int64_t row, char *&target, const char *&source) const
    {
        int64_t i = row / rows.n_inner, j = row - i * rows.n_inner;
        const int last =
            last_at_most(stretches.count, j, [&](int k) { return stretches.at[k].to; });
        const mimo_stretch &stretch = stretches.at[last];
        target = rows.to + i * rows.to_outer + j * rows.to_inner;
        source = nullptr;
        if (stretches.count == 0 || j < stretch.to || j - stretch.to >= stretch.length)
            return;
        int64_t from = stretch.from + (j - stretch.to);
        source = rows.from + i * rows.from_outer + from * rows.from_inner;
    }
};

// Packed row n, and where it lies in the tile.
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

// A word of a row; zero where the row has no source.
template <class Mapping, class Word> __device__ Word read_word(const char *source, int64_t w)
{
    if (Mapping::kHasGaps && !source)
        return Word{};
    return reinterpret_cast<const Word *>(source)[w];
}

// How rows are divided among thread blocks. Each block takes up to kInFlight << log_width words of
// kThreads >> log_width rows. `across` blocks run over the rows, `along` blocks over the words of
// each row.
struct Geometry {
    int64_t rows, words;
    uint32_t across, along;
    int log_width;
};

// Move what block `index` of across * along takes.
template <class Word, class Mapping>
__device__ void move_for_block(const Mapping &mapping, const Geometry &geometry, uint32_t index)
{
    const uint32_t y = index < geometry.across ? 0 : index / geometry.across;
    const uint32_t x = index - y * geometry.across, width = 1u << geometry.log_width;
    const int64_t row =
        (int64_t)x * (kThreads >> geometry.log_width) + (threadIdx.x >> geometry.log_width);
    const int64_t first =
        ((int64_t)y * kInFlight << geometry.log_width) + (threadIdx.x & (width - 1));
    if (row >= geometry.rows)
        return;
    char *target;
    const char *source;
    mapping(row, target, source);
    Word words[kInFlight];
#pragma unroll
    for (uint32_t u = 0; u < kInFlight; u++)
        if (first + u * width < geometry.words)
            words[u] = read_word<Mapping, Word>(source, first + u * width);
#pragma unroll
    for (uint32_t u = 0; u < kInFlight; u++)
        if (first + u * width < geometry.words)
            reinterpret_cast<Word *>(target)[first + u * width] = words[u];
}

template <class Word, class Mapping>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ Mapping mapping, const Geometry geometry)
{
    await_stream();
    move_for_block<Word>(mapping, geometry, blockIdx.x);
}

int64_t pieces_of(int64_t total, int64_t piece)
{
    return (total + piece - 1) / piece;
}

// As wide as rows need. Wider, with fewer words a thread, where the launch would leave
// multiprocessors idle. (A grid can have more thread blocks than any device has memory for.)
Geometry geometry_of(int64_t rows, int64_t words)
{
    int log_width = 0;
    int64_t across, along;
    while ((1 << log_width) < kThreads && (int64_t)(kInFlight << log_width) < words)
        log_width++;
    while (log_width < 5 && (1 << log_width) < words) // a warp reads neighbours of a short row
        log_width++;
    for (;; log_width++) {
        across = pieces_of(rows, kThreads >> log_width);
        along = pieces_of(words, (int64_t)kInFlight << log_width);
        bool narrow = (1 << log_width) < kThreads && (1 << log_width) < words;
        if (!narrow || across * along >= kSpread)
            break;
    }
    return {rows, words, (uint32_t)across, (uint32_t)along, log_width};
}

// The largest word size that divides all these addresses and sizes.
int64_t widest(uintptr_t bits)
{
    int64_t bytes = 16;
    while (bits % (uintptr_t)bytes != 0)
        bytes /= 2;
    return bytes;
}

// Calls with(word), where the type of `word` has `bytes` bytes.
template <class With> cudaError_t with_word(int64_t bytes, With with)
{
    switch (bytes) {
    case 16:
        return with(uint4{});
    case 8:
        return with(uint2{});
    case 4:
        return with(uint32_t{});
    case 2:
        return with(uint16_t{});
    default:
        return with(uint8_t{});
    }
}

template <class Mapping>
cudaError_t launch_widest(const Mapping &mapping, uintptr_t ends, int64_t rows, int64_t row_bytes,
                          cudaStream_t stream)
{
    const int64_t bytes = widest(ends | (uintptr_t)row_bytes);
    const Geometry geometry = geometry_of(rows, row_bytes / bytes);
    return with_word(bytes, [&](auto word) {
        return launch_early(move_rows<decltype(word), Mapping>, geometry.across * geometry.along,
                            kThreads, 0, stream, mapping, geometry);
    });
}

cudaError_t move_mapped(const Mapped &mapping, cudaStream_t stream)
{
    const mimo_row_map &map = mapping.map;
    if (map.rows == 0 || map.row_bytes == 0)
        return cudaSuccess;
    uintptr_t ends = (uintptr_t)mapping.tile | (uintptr_t)mapping.packed;
    return launch_widest(mapping, ends, map.rows, map.row_bytes, stream);
}

// Strides in bytes, and `base` at the first row.
mimo_rows in_bytes(mimo_rows rows)
{
    rows.base = (char *)rows.base + rows.first * rows.row_bytes;
    rows.first = 0;
    rows.outer *= rows.row_bytes;
    rows.inner *= rows.row_bytes;
    return rows;
}

// A copy of strided rows, in bytes.
struct Copy {
    Strided mapping;
    int64_t rows, row_bytes;
    bool one_run; // on either side
    uintptr_t ends;
};

Copy copy_of(const mimo_rows &to_rows, const mimo_rows &from_rows)
{
    mimo_rows to = in_bytes(to_rows), from = in_bytes(from_rows);
    int64_t row_bytes = to.row_bytes, n_inner = to.n_inner, n_outer = to.n_outer;
    if (n_inner == 1 || (to.inner == row_bytes && from.inner == row_bytes)) {
        row_bytes *= n_inner;
        n_inner = 1;
    }
    bool one_run =
        n_inner == 1 && (n_outer == 1 || (to.outer == row_bytes && from.outer == row_bytes));
    if (one_run) {
        row_bytes *= n_outer;
        n_outer = 1;
    }
    Copy copy = {{(char *)to.base, (const char *)from.base, n_inner, to.outer, to.inner, from.outer,
                  from.inner},
                 n_outer * n_inner,
                 row_bytes,
                 one_run,
                 (uintptr_t)to.base | (uintptr_t)from.base};
    // A longer row may be a multiple of more than its strides are.
    copy.ends |= (uintptr_t)(n_outer > 1 ? to.outer | from.outer : 0);
    copy.ends |= (uintptr_t)(n_inner > 1 ? to.inner | from.inner : 0);
    return copy;
}

// Bytes of the widest word that a copy can use.
int64_t word_of(const Copy &copy)
{
    return widest(copy.ends | (uintptr_t)copy.row_bytes);
}

// Append the rows of `next` to `it`, so that one copy does both. `next` must be one run as long as
// each row of `it`, use words as wide, and lie at the distance that the rows of `it` have. Two
// single runs always have such a distance. Returns false, and leaves `it`, otherwise.
bool extend(Copy *it, const Copy &next)
{
    Strided &mapping = it->mapping;
    if (mapping.n_inner != 1 || next.rows != 1 || next.row_bytes != it->row_bytes ||
        word_of(next) != word_of(*it))
        return false;
    if (it->rows == 1) {
        mapping.to_outer = next.mapping.to - mapping.to;
        mapping.from_outer = next.mapping.from - mapping.from;
    }
    if (next.mapping.to != mapping.to + it->rows * mapping.to_outer ||
        next.mapping.from != mapping.from + it->rows * mapping.from_outer)
        return false;
    it->rows++;
    it->one_run = false;
    it->ends |= next.ends;
    return true;
}

// A copy in a launch of several. `first`: the number of thread blocks before its own.
struct BatchedCopy {
    uint32_t first;
    Strided mapping;
    Geometry geometry;
};

template <int kMost> struct Batch {
    int count = 0;
    BatchedCopy copy[kMost];
};

template <class Word, int kMost>
__global__ void __launch_bounds__(kThreads) move_batch(const __grid_constant__ Batch<kMost> batch)
{
    const BatchedCopy &copy = batch.copy[last_at_most(batch.count, blockIdx.x,
                                                      [&](int k) { return batch.copy[k].first; })];
    await_stream();
    move_for_block<Word>(copy.mapping, copy.geometry, blockIdx.x - copy.first);
}

// Copies of one word size, which are launched together in their order.
struct PendingCopies {
    int64_t word = 0;    // bytes
    uint64_t blocks = 0; // of all copies
    Batch<kMostPerLaunch> batch;
};

template <int kMost>
cudaError_t launch(const PendingCopies &all, const Batch<kMost> &batch, cudaStream_t stream)
{
    return with_word(all.word, [&](auto word) {
        return launch_early(move_batch<decltype(word), kMost>, (unsigned)all.blocks, kThreads, 0,
                            stream, batch);
    });
}

// The host needs time for the arguments of a launch (0.5 to 2 us for 3 KiB), so a few copies go in
// a smaller batch.
cudaError_t launch_all(PendingCopies *all, cudaStream_t stream)
{
    Batch<kFewPerLaunch> few;
    cudaError_t code = cudaSuccess;
    few.count = all->batch.count;
    if (few.count > kFewPerLaunch) {
        code = launch(*all, all->batch, stream);
    } else if (few.count > 0) {
        std::copy_n(all->batch.copy, few.count, few.copy);
        code = launch(*all, few, stream);
    }
    all->batch.count = 0;
    all->blocks = 0;
    return code;
}

cudaError_t add_copy(PendingCopies *all, const Copy &copy, cudaStream_t stream)
{
    const int64_t word = word_of(copy);
    const Geometry geometry = geometry_of(copy.rows, copy.row_bytes / word);
    const uint64_t blocks = (uint64_t)geometry.across * geometry.along;
    if (all->batch.count == kMostPerLaunch || all->word != word ||
        all->blocks + blocks > INT32_MAX) {
        cudaError_t code = launch_all(all, stream);
        if (code != cudaSuccess)
            return code;
    }
    all->word = word;
    all->batch.copy[all->batch.count++] = {(uint32_t)all->blocks, copy.mapping, geometry};
    all->blocks += blocks;
    return cudaSuccess;
}

bool is_empty(const mimo_rows &rows)
{
    return rows.row_bytes == 0 || rows.n_inner == 0 || rows.n_outer == 0;
}

cudaError_t move(const Copy &copy, cudaStream_t stream)
{
    if (copy.one_run)
        return cudaMemcpyAsync(copy.mapping.to, copy.mapping.from, (size_t)copy.row_bytes,
                               cudaMemcpyDeviceToDevice, stream);
    return launch_widest(copy.mapping, copy.ends, copy.rows, copy.row_bytes, stream);
}

template <class Word> cudaError_t load_copies()
{
    return load_kernels(move_rows<Word, Strided>, move_batch<Word, kFewPerLaunch>,
                        move_batch<Word, kMostPerLaunch>);
}

} // namespace

cudaError_t mimo_cuda_copy_rows(const mimo_rows *to, const mimo_rows *from, cudaStream_t stream)
{
    return is_empty(*to) ? cudaSuccess : move(copy_of(*to, *from), stream);
}

// A list that turns out to be one copy is moved without a batch.
cudaError_t mimo_cuda_copy_list(const mimo_row_copy *list, int64_t count, cudaStream_t stream)
{
    PendingCopies all;
    Copy current = {};
    cudaError_t code = cudaSuccess;
    for (int64_t i = 0; i < count && code == cudaSuccess; i++) {
        if (is_empty(list[i].to))
            continue;
        const Copy next = copy_of(list[i].to, list[i].from);
        if (current.rows > 0 && extend(&current, next))
            continue;
        if (current.rows > 0)
            code = add_copy(&all, current, stream);
        current = next;
    }
    if (code != cudaSuccess || current.rows == 0)
        return code;
    if (all.word == 0)
        return move(current, stream);
    code = add_copy(&all, current, stream);
    return code == cudaSuccess ? launch_all(&all, stream) : code;
}

cudaError_t mimo_cuda_load_copies(void)
{
    cudaError_t code = cudaSuccess;
    for (int64_t bytes = 1; bytes <= 16 && code == cudaSuccess; bytes *= 2)
        code = with_word(bytes, [](auto word) { return load_copies<decltype(word)>(); });
    return code;
}

cudaError_t mimo_cuda_fill_rows(const mimo_rows *to_rows, const mimo_rows *from_rows,
                                const mimo_stretches *stretches, cudaStream_t stream)
{
    mimo_rows to = in_bytes(*to_rows), from = in_bytes(*from_rows);
    if (is_empty(to))
        return cudaSuccess;
    Filled mapping = {{(char *)to.base, (const char *)from.base, to.n_inner, to.outer, to.inner,
                       from.outer, from.inner},
                      *stretches};
    uintptr_t ends = (uintptr_t)to.base | (uintptr_t)from.base;
    return launch_widest(mapping, ends, to.n_outer * to.n_inner, to.row_bytes, stream);
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
