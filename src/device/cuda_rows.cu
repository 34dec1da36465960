/* Row copies on the device: one kernel, told by a `Place` where each row comes from and goes to. */
#include <algorithm>

#include "device/cuda_kernels.h"
#include "device/cuda_launch.cuh"

namespace
{

constexpr int kThreads = 128;      // of a block
constexpr int kInFlight = 4;       // words of a thread: it loads them all before its first store
constexpr int64_t kSpread = 128;   // thread blocks, about a chip of them
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

// How the rows of a place are dealt out: a thread block takes up to kInFlight << log_width words of
// kThreads >> log_width rows, and no other; `across` blocks run over the rows, `along` over the
// words of each.
struct Share {
    int64_t rows, words;
    uint32_t across, along;
    int log_width;
};

// The part of block `index` among across * along.
template <class Word, class Place>
__device__ void move_share(const Place &place, const Share &share, uint32_t index)
{
    const uint32_t y = index < share.across ? 0 : index / share.across;
    const uint32_t x = index - y * share.across, width = 1u << share.log_width;
    const int64_t row =
        (int64_t)x * (kThreads >> share.log_width) + (threadIdx.x >> share.log_width);
    const int64_t first = ((int64_t)y * kInFlight << share.log_width) + (threadIdx.x & (width - 1));
    if (row >= share.rows)
        return;
    char *target;
    const char *source;
    place(row, target, source);
    Word held[kInFlight];
#pragma unroll
    for (uint32_t u = 0; u < kInFlight; u++)
        if (first + u * width < share.words)
            held[u] = read_word<Place, Word>(source, first + u * width);
#pragma unroll
    for (uint32_t u = 0; u < kInFlight; u++)
        if (first + u * width < share.words)
            reinterpret_cast<Word *>(target)[first + u * width] = held[u];
}

template <class Word, class Place>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ Place place, const Share share)
{
    await_stream();
    move_share<Word>(place, share, blockIdx.x);
}

int64_t pieces_of(int64_t total, int64_t piece)
{
    return (total + piece - 1) / piece;
}

// As wide as rows ask for; and wider, with fewer words a thread, where that leaves multiprocessors
// idle. A grid can have more thread blocks than any device has memory for.
Share share_of(int64_t rows, int64_t words)
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

// The widest word that all these addresses and sizes are multiples of.
int64_t widest(uintptr_t bits)
{
    int64_t bytes = 16;
    while (bits % (uintptr_t)bytes != 0)
        bytes /= 2;
    return bytes;
}

// Calls with(word), a word of so many bytes, for its type.
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

template <class Place>
cudaError_t launch_widest(const Place &place, uintptr_t ends, int64_t rows, int64_t row_bytes,
                          cudaStream_t stream)
{
    const int64_t bytes = widest(ends | (uintptr_t)row_bytes);
    const Share share = share_of(rows, row_bytes / bytes);
    return with_word(bytes, [&](auto word) {
        return launch_early(move_rows<decltype(word), Place>, share.across * share.along, kThreads,
                            0, stream, place, share);
    });
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

// A copy of strided rows, in bytes.
struct Copy {
    Strided place;
    int64_t rows, row_bytes;
    bool one_run; // on either side
    uintptr_t ends;
};

Copy copy_of(const mimo_rows &to_rows, const mimo_rows &from_rows)
{
    mimo_rows to = lengthen(to_rows), from = lengthen(from_rows); // strides are bytes now
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

// Bytes of the widest word that a copy can go by.
int64_t word_of(const Copy &copy)
{
    return widest(copy.ends | (uintptr_t)copy.row_bytes);
}

// Make `it` one copy of its rows and the next one's, where these are a run as long as each of its
// rows, by words as wide, and as far from the last one as that is from the one before: two runs
// always are. False: it stays as it was.
bool extend(Copy *it, const Copy &next)
{
    Strided &place = it->place;
    if (place.n_inner != 1 || next.rows != 1 || next.row_bytes != it->row_bytes ||
        word_of(next) != word_of(*it))
        return false;
    if (it->rows == 1) {
        place.to_outer = next.place.to - place.to;
        place.from_outer = next.place.from - place.from;
    }
    if (next.place.to != place.to + it->rows * place.to_outer ||
        next.place.from != place.from + it->rows * place.from_outer)
        return false;
    it->rows++;
    it->one_run = false;
    it->ends |= next.ends;
    return true;
}

// A copy in a launch of several, and the thread blocks of those before it.
struct Part {
    uint32_t first;
    Strided place;
    Share share;
};

template <int kMost> struct Batch {
    int count = 0;
    Part part[kMost];
};

template <class Word, int kMost>
__global__ void __launch_bounds__(kThreads) move_batch(const __grid_constant__ Batch<kMost> batch)
{
    int low = 0, high = batch.count; // the last part that begins here or before
    while (low + 1 < high) {
        int middle = (low + high) / 2;
        if (batch.part[middle].first <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const Part &part = batch.part[low];
    await_stream();
    move_share<Word>(part.place, part.share, blockIdx.x - part.first);
}

// Copies of one word size, to be launched together in their order.
struct Collected {
    int64_t word = 0;    // bytes
    uint64_t blocks = 0; // of all parts
    Batch<kMostPerLaunch> batch;
};

template <int kMost>
cudaError_t launch(const Collected &all, const Batch<kMost> &batch, cudaStream_t stream)
{
    return with_word(all.word, [&](auto word) {
        return launch_early(move_batch<decltype(word), kMost>, (unsigned)all.blocks, kThreads, 0,
                            stream, batch);
    });
}

// What a launch carries takes the host time (3 KiB 0.5 to 2 us), so a few copies go by themselves.
cudaError_t launch_all(Collected *all, cudaStream_t stream)
{
    Batch<kFewPerLaunch> few;
    cudaError_t code = cudaSuccess;
    few.count = all->batch.count;
    if (few.count > kFewPerLaunch) {
        code = launch(*all, all->batch, stream);
    } else if (few.count > 0) {
        std::copy_n(all->batch.part, few.count, few.part);
        code = launch(*all, few, stream);
    }
    all->batch.count = 0;
    all->blocks = 0;
    return code;
}

cudaError_t collect(Collected *all, const Copy &copy, cudaStream_t stream)
{
    const int64_t word = word_of(copy);
    const Share share = share_of(copy.rows, copy.row_bytes / word);
    const uint64_t blocks = (uint64_t)share.across * share.along;
    if (all->batch.count == kMostPerLaunch || all->word != word ||
        all->blocks + blocks > INT32_MAX) {
        cudaError_t code = launch_all(all, stream);
        if (code != cudaSuccess)
            return code;
    }
    all->word = word;
    all->batch.part[all->batch.count++] = {(uint32_t)all->blocks, copy.place, share};
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
        return cudaMemcpyAsync(copy.place.to, copy.place.from, (size_t)copy.row_bytes,
                               cudaMemcpyDeviceToDevice, stream);
    return launch_widest(copy.place, copy.ends, copy.rows, copy.row_bytes, stream);
}

} // namespace

cudaError_t mimo_cuda_copy_rows(const mimo_rows *to, const mimo_rows *from, cudaStream_t stream)
{
    return is_empty(*to) ? cudaSuccess : move(copy_of(*to, *from), stream);
}

// What is one copy after all goes without a list.
cudaError_t mimo_cuda_copy_list(const mimo_row_copy *list, int64_t count, cudaStream_t stream)
{
    Collected all;
    Copy held = {};
    cudaError_t code = cudaSuccess;
    for (int64_t i = 0; i < count && code == cudaSuccess; i++) {
        if (is_empty(list[i].to))
            continue;
        const Copy next = copy_of(list[i].to, list[i].from);
        if (held.rows > 0 && extend(&held, next))
            continue;
        if (held.rows > 0)
            code = collect(&all, held, stream);
        held = next;
    }
    if (code != cudaSuccess || held.rows == 0)
        return code;
    if (all.word == 0)
        return move(held, stream);
    code = collect(&all, held, stream);
    return code == cudaSuccess ? launch_all(&all, stream) : code;
}

cudaError_t mimo_cuda_fill_rows(const mimo_rows *to_rows, const mimo_rows *from_rows,
                                const mimo_stretches *stretches, cudaStream_t stream)
{
    mimo_rows to = lengthen(*to_rows), from = lengthen(*from_rows); // strides are bytes now
    if (is_empty(to))
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
