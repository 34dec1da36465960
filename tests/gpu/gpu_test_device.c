/* The device table of CUDA memory against the host's. The same call on the same bytes gives the
 * same bytes, and those around stay. Every alignment of both ends, every small row size, both
 * loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/float16.h"
#include "device/device.h"
#include "early_copy.h"
#include "gpu_calls.h"
#include "guarded.h"
#include "mpi_test.h"
#include "reference_grid.h"
#include "test_memory.h"
#include "same_bits.h"

static const mimo_device *const host = &mimo_device_host;
static const mimo_device *const cuda = &mimo_device_cuda;

/* Memory on the device, and what the host's table makes of the same bytes. */
typedef struct twin {
    test_room room;
    char *expected;
} twin;

static void twin_push(const twin *it)
{
    memcpy(it->expected, it->room.host, (size_t)it->room.bytes);
    test_push(&it->room);
}

/* `bytes` bytes that differ from one another, and from those of other seeds. */
static twin twin_new(int64_t bytes, uint64_t seed)
{
    twin it = {test_room_new(bytes), malloc((size_t)bytes)};
    fill_elements(it.room.host, seed, bytes, 1);
    twin_push(&it);
    return it;
}

static bit_report twin_bits(const twin *it)
{
    test_pull(&it->room);
    return bits_of(it->room.host, it->expected, it->room.bytes, 1, 0);
}

static void twin_free(twin *it)
{
    test_room_free(&it->room);
    free(it->expected);
}

/* -------------------------------------- strided rows --------------------------------------- */

enum { OFFSETS = 18, TILE_ROWS = 40, SMALL_ROW = 40 };

/* Two loops over rows of both ends, within TILE_ROWS rows. */
typedef struct loops {
    int64_t n_outer, n_inner;
    struct {
        int64_t first, outer, inner;
    } to, from;
} loops;

static const loops loop_cases[] = {
    {3, 5, {1, 7, 1}, {0, 1, 3}},  /* gaps, and another order of rows */
    {4, 2, {0, 2, 1}, {2, 2, 1}},  /* one run on both sides */
    {4, 2, {3, 5, 1}, {0, 2, 1}},  /* runs with gaps between them */
    {5, 4, {0, 1, 5}, {1, 4, 1}},  /* transposed */
    {1, 6, {2, 9, 2}, {0, 1, 1}},  /* the inner loop only */
    {6, 1, {0, 3, 1}, {5, 1, 7}},  /* the outer loop only */
    {1, 1, {39, 1, 1}, {0, 1, 1}}, /* one row */
    {0, 3, {0, 1, 1}, {0, 1, 1}},  /* no row */
    {3, 0, {0, 1, 1}, {0, 1, 1}},
};
enum { LOOP_CASES = sizeof loop_cases / sizeof loop_cases[0] };

static mimo_rows rows_to(const loops *l, void *base, int64_t row_bytes)
{
    return (mimo_rows){base,        row_bytes,  l->to.first, l->n_outer,
                       l->to.outer, l->n_inner, l->to.inner};
}

static mimo_rows rows_from(const loops *l, void *base, int64_t row_bytes)
{
    return (mimo_rows){base,          row_bytes,  l->from.first, l->n_outer,
                       l->from.outer, l->n_inner, l->from.inner};
}

/* One copy of one case, between addresses of all alignments. */
static void check_copy(const twin *to, const twin *from, const loops *l, int64_t row_bytes,
                       const int64_t offset[2])
{
    char *to_place = (char *)to->room.place + offset[0];
    char *from_place = (char *)from->room.place + offset[1];
    mimo_rows rows[2][2] = {
        {rows_to(l, to->expected + offset[0], row_bytes),
         rows_from(l, from->expected + offset[1], row_bytes)},
        {rows_to(l, to_place, row_bytes), rows_from(l, from_place, row_bytes)},
    };
    fill_elements(to->room.host, 7, to->room.bytes, 1);
    twin_push(to);
    MPI_EXPECT_OK(host->copy_rows(&rows[0][0], &rows[0][1], NULL));
    MPI_EXPECT_OK(cuda->copy_rows(&rows[1][0], &rows[1][1], test_stream()));
    MPI_EXPECT_BITS(twin_bits(to), "copy of %d x %d rows of %d bytes, to + %d, from + %d",
                    (int)l->n_outer, (int)l->n_inner, (int)row_bytes, (int)offset[0],
                    (int)offset[1]);
}

static int64_t tile_bytes(int64_t row_bytes)
{
    return TILE_ROWS * row_bytes + OFFSETS;
}

/* All loops at a few alignments, and all alignments with the loops in turn. */
static void check_copies(int64_t row_bytes)
{
    twin to = twin_new(tile_bytes(row_bytes), 7), from = twin_new(tile_bytes(row_bytes), 8);
    int64_t turn = row_bytes;
    for (int i = 0; i < LOOP_CASES; i++)
        for (int64_t both = 0; both < OFFSETS; both = 2 * both + 1)
            check_copy(&to, &from, &loop_cases[i], row_bytes, (int64_t[]){both, both});
    for (int64_t a = 0; a < OFFSETS; a++)
        for (int64_t b = 0; b<OFFSETS; b += row_bytes> SMALL_ROW ? 5 : 1)
            check_copy(&to, &from, &loop_cases[turn++ % LOOP_CASES], row_bytes, (int64_t[]){a, b});
    MPI_EXPECT_BITS(twin_bits(&from), "a source of %d-byte rows changed", (int)row_bytes);
    twin_free(&to);
    twin_free(&from);
}

MPI_TEST(device, copy_rows)
{
    for (int64_t row_bytes = 0; row_bytes <= SMALL_ROW; row_bytes++)
        check_copies(row_bytes);
}

MPI_TEST(device, copy_long_rows)
{
    static const int64_t sizes[] = {4096, 4097, 4098, 4100, 4104, 4112, 4144, 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_copies(sizes[i]);
}

/* A row longer than one launch's grid covers at once. */
MPI_TEST(device, copy_a_huge_row)
{
    const int64_t row_bytes = (INT64_C(6) << 20) + 5;
    const loops two = {1, 2, {0, 1, 2}, {1, 1, 1}};
    twin to = twin_new(3 * row_bytes, 7), from = twin_new(3 * row_bytes, 8);
    check_copy(&to, &from, &two, row_bytes, (int64_t[]){0, 0});
    twin_free(&to);
    twin_free(&from);
}

/* -------------------------------------- lists of copies ------------------------------------ */

enum { LIST = 40, SLOT = 3 * 4096 };

/* Copies in groups by row size, between slots of SLOT bytes. The slots go up or down, evenly or
 * not. The first copy of some groups takes two slots, and some copies are empty. No target slot
 * occurs twice. */
static int64_t list_copies(mimo_row_copy *list, uint64_t seed, char *to, char *from)
{
    static const int64_t sizes[] = {1, 2, 12, 16, 48, 4096};
    int64_t count = 0, slot = 0;
    while (slot < LIST) {
        uint64_t kind = ref_word(seed, slot, 0, 0);
        int64_t bytes = sizes[kind % 6], copies = 1 + (int64_t)(kind / 8 % 6);
        int64_t step = (int64_t)(kind / 64 % 4), source = (int64_t)(kind / 256 % LIST);
        bool down = kind >> 20 & 1, uneven = kind >> 21 & 1;
        bool pair = !down && kind >> 22 & 1;
        int64_t odd = INT64_C(1) << (kind >> 23) % 5;
        if (copies > LIST - slot)
            copies = LIST - slot;
        pair = pair && copies > 1;
        for (int64_t k = 0; k < copies; k++) {
            int64_t rows = ref_word(seed, slot, k, 1) % 16 == 0 ? 0 : pair && k == 0 ? 2 : 1;
            int64_t target = slot + (down ? copies - 1 - k : k), shift = uneven && k == 2 ? odd : 0;
            list[count++] = (mimo_row_copy){
                {to + target * SLOT + shift, bytes, 0, rows, SLOT / bytes, 1, 1},
                {from + (source + k * step) * SLOT, bytes, 0, rows, step * (SLOT / bytes), 1, 1}};
            k += rows == 2;
        }
        slot += copies;
    }
    return count;
}

MPI_TEST(device, copy_list)
{
    enum { SEEDS = 300 };
    twin to = twin_new((int64_t)LIST * SLOT, 7), from = twin_new((int64_t)2 * LIST * SLOT, 8);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        mimo_row_copy here[LIST], there[LIST];
        int64_t count = list_copies(here, seed, to.expected, from.expected);
        list_copies(there, seed, to.room.place, from.room.place);
        count -= (int64_t)(seed % LIST) < count ? (int64_t)(seed % LIST) : 0;
        fill_elements(to.room.host, seed, to.room.bytes, 1);
        twin_push(&to);
        MPI_EXPECT_OK(host->copy_list(here, count, NULL));
        MPI_EXPECT_OK(cuda->copy_list(there, count, test_stream()));
        MPI_EXPECT_BITS(twin_bits(&to), "seed %d, %d copies", (int)seed, (int)count);
    }
    MPI_EXPECT_BITS(twin_bits(&from), "a source changed");
    twin_free(&to);
    twin_free(&from);
}

/* ------------------------------------- order of a stream ----------------------------------- */

enum { STEPS = 3, LINKS = STEPS * 32, LINK = 1 << 18 }; /* a step begins with a kernel */

/* Link i reads what link i - 1 has written. A link is a kernel of the library, a copy of one run,
 * or a kernel that lets the next one begin before it writes. */
static void add_link(const mimo_device *device, char *base, int64_t i, mimo_stream stream)
{
    char *from = base + i * LINK, *to = from + LINK;
    const mimo_rows whole[2] = {{to, LINK, 0, 1, 1, 1, 1}, {from, LINK, 0, 1, 1, 1, 1}};
    for (int64_t odd = 0; odd < 2 && i % 4 < 2; odd++) {
        const mimo_rows rows[2] = {{to, LINK / 4, odd, 2, 2, 1, 1},
                                   {from, LINK / 4, 1 - odd, 2, 2, 1, 1}};
        MPI_EXPECT_OK(device->copy_rows(&rows[0], &rows[1], stream));
    }
    if (i % 4 == 3 && device == cuda)
        EXPECT_CUDA(early_copy(to, from, LINK, stream));
    else if (i % 4 >= 2)
        MPI_EXPECT_OK(device->copy_rows(&whole[0], &whole[1], stream));
}

/* Kernels may start before the work before them on the stream has ended, but must read its results
 * only afterwards. On streams of all kinds, and where the default stream waits for others. */
MPI_TEST(device, order_of_streams)
{
    cudaStream_t blocking;
    EXPECT_CUDA(cudaStreamCreate(&blocking));
    mimo_stream kinds[][STEPS] = {{test_stream(), test_stream(), test_stream()},
                                  {cudaStreamPerThread, cudaStreamPerThread, cudaStreamPerThread},
                                  {blocking, NULL, blocking}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        twin chain = twin_new((int64_t)(LINKS + 1) * LINK, kind);
        EXPECT_CUDA(cudaDeviceSynchronize());
        for (int64_t i = 0; i < LINKS; i++)
            add_link(cuda, chain.room.place, i, kinds[kind][i * STEPS / LINKS]);
        for (int64_t i = 0; i < LINKS; i++)
            add_link(host, chain.expected, i, NULL);
        EXPECT_CUDA(cudaDeviceSynchronize());
        MPI_EXPECT_BITS(twin_bits(&chain), "streams of kind %d", (int)kind);
        twin_free(&chain);
    }
    EXPECT_CUDA(cudaStreamDestroy(blocking));
}

/* ------------------------------------ zeros and fills -------------------------------------- */

MPI_TEST(device, zero_rows)
{
    for (int64_t row_bytes = 0; row_bytes <= SMALL_ROW; row_bytes++) {
        twin to = twin_new(tile_bytes(row_bytes), 9);
        for (int64_t offset = 0; offset < OFFSETS; offset++)
            for (int i = 0; i < LOOP_CASES; i++) {
                const loops *l = &loop_cases[i];
                mimo_rows here = rows_to(l, to.expected + offset, row_bytes);
                mimo_rows there = rows_to(l, (char *)to.room.place + offset, row_bytes);
                fill_elements(to.room.host, 9, to.room.bytes, 1);
                twin_push(&to);
                MPI_EXPECT_OK(host->zero_rows(&here, NULL));
                MPI_EXPECT_OK(cuda->zero_rows(&there, test_stream()));
                MPI_EXPECT_BITS(twin_bits(&to), "zeros of %d x %d rows of %d bytes at + %d",
                                (int)l->n_outer, (int)l->n_inner, (int)row_bytes, (int)offset);
            }
        twin_free(&to);
    }
}

/* Outer iterations, positions of the target, strides of both ends, and the stretches: within
 * TILE_ROWS rows. */
typedef struct fills {
    loops rows; /* of from, only outer and inner; the stretches give the rest */
    mimo_stretches stretches;
} fills;

static const fills fill_cases[] = {
    {{3, 9, {2, 12, 1}, {1, 9, 1}}, {2, {{1, 5, 2}, {6, 0, 3}}}}, /* zeros at both ends */
    {{1, 12, {0, 1, 3}, {3, 1, 2}}, {3, {{0, 9, 2}, {2, 0, 1}, {11, 3, 1}}}}, /* none at the ends */
    {{4, 9, {0, 1, 4}, {0, 9, 1}}, {1, {{0, 0, 9}}}},                         /* a plain copy */
    {{2, 8, {1, 10, 1}, {0, 1, 1}}, {0, {{0}}}},                              /* all zeros */
    {{1, 1, {39, 1, 1}, {39, 1, 1}}, {1, {{0, 0, 1}}}},
    {{0, 3, {0, 1, 1}, {0, 1, 1}}, {1, {{0, 0, 1}}}},
    {{2, 0, {0, 1, 1}, {0, 1, 1}}, {0, {{0}}}},
};
enum { FILL_CASES = sizeof fill_cases / sizeof fill_cases[0] };

static void check_fill(const twin *to, const twin *from, const fills *f, int64_t row_bytes,
                       const int64_t offset[2])
{
    char *to_place = (char *)to->room.place + offset[0];
    char *from_place = (char *)from->room.place + offset[1];
    mimo_rows here[2] = {rows_to(&f->rows, to->expected + offset[0], row_bytes),
                         rows_from(&f->rows, from->expected + offset[1], row_bytes)};
    mimo_rows there[2] = {rows_to(&f->rows, to_place, row_bytes),
                          rows_from(&f->rows, from_place, row_bytes)};
    fill_elements(to->room.host, 7, to->room.bytes, 1);
    twin_push(to);
    MPI_EXPECT_OK(host->fill_rows(&here[0], &here[1], &f->stretches, NULL));
    MPI_EXPECT_OK(cuda->fill_rows(&there[0], &there[1], &f->stretches, test_stream()));
    MPI_EXPECT_BITS(twin_bits(to), "%d stretches in %d x %d rows of %d bytes, to + %d, from + %d",
                    f->stretches.count, (int)f->rows.n_outer, (int)f->rows.n_inner, (int)row_bytes,
                    (int)offset[0], (int)offset[1]);
}

/* All cases at a few alignments, and all alignments with the cases in turn. */
static void check_fills(int64_t row_bytes)
{
    twin to = twin_new(tile_bytes(row_bytes), 7), from = twin_new(tile_bytes(row_bytes), 8);
    int64_t turn = row_bytes;
    for (int i = 0; i < FILL_CASES; i++)
        for (int64_t both = 0; both < OFFSETS; both = 2 * both + 1)
            check_fill(&to, &from, &fill_cases[i], row_bytes, (int64_t[]){both, both});
    for (int64_t a = 0; a < OFFSETS; a++)
        for (int64_t b = 0; b<OFFSETS; b += row_bytes> SMALL_ROW ? 5 : 1)
            check_fill(&to, &from, &fill_cases[turn++ % FILL_CASES], row_bytes, (int64_t[]){a, b});
    MPI_EXPECT_BITS(twin_bits(&from), "a source of %d-byte rows changed", (int)row_bytes);
    twin_free(&to);
    twin_free(&from);
}

MPI_TEST(device, fill_rows)
{
    static const int64_t sizes[] = {4096, 4098, 4112, 12345};
    for (int64_t row_bytes = 0; row_bytes <= SMALL_ROW; row_bytes++)
        check_fills(row_bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_fills(sizes[i]);
}

/* The most stretches that a call takes, each of one row; every other row is zero. */
MPI_TEST(device, fill_by_most_stretches)
{
    fills most = {{1, 2 * MIMO_STRETCHES, {0, 1, 1}, {0, 1, 1}}, {MIMO_STRETCHES, {{0}}}};
    int64_t bytes = 2 * MIMO_STRETCHES * 16;
    twin to = twin_new(bytes, 7), from = twin_new(bytes, 8);
    for (int i = 0; i < MIMO_STRETCHES; i++)
        most.stretches.at[i] = (mimo_stretch){2 * i + 1, MIMO_STRETCHES - 1 - i, 1};
    check_fill(&to, &from, &most, 16, (int64_t[]){0, 0});
    twin_free(&to);
    twin_free(&from);
}

/* --------------------------------------- mapped rows --------------------------------------- */

enum { BATCH = 4, SEQ = 12, POSITIONS = BATCH * SEQ };

/* Distinct positions in a random order, on the device and in `here`. */
static test_room positions_new(const int64_t **here, uint64_t seed)
{
    test_room room = test_room_new(POSITIONS * sizeof(int64_t));
    int64_t *position = room.host;
    for (int64_t i = 0; i < POSITIONS; i++) {
        int64_t other = random_below(&seed, i + 1);
        position[i] = position[other];
        position[other] = i;
    }
    test_push(&room);
    *here = position;
    return room;
}

/* Tiles of either order, packed rows of either order. */
static mimo_row_map map_of(const int64_t *position, int64_t rows, int64_t row_bytes, int variant)
{
    bool by_position = variant % 2, turned = variant / 2 % 2 && rows % 3 == 0;
    return (mimo_row_map){
        .position = position,
        .rows = rows,
        .row_bytes = row_bytes,
        .seq = SEQ,
        .tile_b = by_position ? 1 : SEQ,
        .tile_s = by_position ? BATCH : 1,
        .length = turned && rows > 0 ? rows / 3 : rows + (rows == 0),
        .packed_b = 1,
        .packed_s = turned ? 3 : 1,
    };
}

typedef struct mapped {
    twin tile, packed;
    test_room positions;
    const int64_t *position;
} mapped;

static void check_mapped(const mapped *it, int64_t rows, int64_t row_bytes, int variant,
                         const int64_t offset[2])
{
    mimo_row_map here = map_of(it->position, rows, row_bytes, variant), there = here;
    bool gather = variant / 4 % 2;
    const twin *to = gather ? &it->packed : &it->tile, *from = gather ? &it->tile : &it->packed;
    there.position = it->positions.place;
    fill_elements(to->room.host, 7, to->room.bytes, 1);
    twin_push(to);
    MPI_EXPECT_OK((gather ? host->gather_rows : host->scatter_rows)(
        to->expected + offset[0], from->expected + offset[1], &here, NULL));
    MPI_EXPECT_OK((gather ? cuda->gather_rows : cuda->scatter_rows)(
        (char *)to->room.place + offset[0], (char *)from->room.place + offset[1], &there,
        test_stream()));
    MPI_EXPECT_BITS(twin_bits(to), "%s of %d rows of %d bytes, variant %d, to + %d, from + %d",
                    gather ? "gather" : "scatter", (int)rows, (int)row_bytes, variant,
                    (int)offset[0], (int)offset[1]);
}

static void check_maps(int64_t row_bytes)
{
    enum { VARIANTS = 8 };
    static const int64_t counts[] = {0, 1, 7, 33, POSITIONS};
    mapped it = {.tile = twin_new(POSITIONS * row_bytes + OFFSETS, 3),
                 .packed = twin_new(POSITIONS * row_bytes + OFFSETS, 4)};
    it.positions = positions_new(&it.position, (uint64_t)row_bytes);
    int turn = 0;
    for (int c = 0; c < 5; c++)
        for (int variant = 0; variant < VARIANTS; variant++)
            check_mapped(&it, counts[c], row_bytes, variant, (int64_t[]){c, variant});
    for (int64_t a = 0; a < OFFSETS; a++)
        for (int64_t b = 0; b<OFFSETS; b += row_bytes> SMALL_ROW ? 5 : 1)
            check_mapped(&it, 33, row_bytes, turn++ % VARIANTS, (int64_t[]){a, b});
    twin_free(&it.tile);
    twin_free(&it.packed);
    test_room_free(&it.positions);
}

MPI_TEST(device, mapped_rows)
{
    static const int64_t sizes[] = {4096, 4098, 4112, 12345};
    for (int64_t row_bytes = 0; row_bytes <= SMALL_ROW; row_bytes++)
        check_maps(row_bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_maps(sizes[i]);
}

/* --------------------------------------- arithmetic ---------------------------------------- */

/* The last count is larger than the threads of one launch. */
static const int64_t counts[] = {0, 1, 2, 31, 255, 256, 257, 4099, 1100003};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Finite numbers of both signs and many sizes. Whole numbers have any bits. */
static void fill_numbers(void *data, int64_t count, mimo_dtype dtype, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = next_random(&seed);
        double x =
            ((double)(word >> 11) / 4503599627370496.0 - 1.0) * (double)(INT64_C(1) << (word & 7));
        switch (dtype) {
        case MIMO_F32:
            ((float *)data)[i] = (float)x;
            break;
        case MIMO_F64:
            ((double *)data)[i] = x;
            break;
        case MIMO_F16:
            ((uint16_t *)data)[i] = mimo_f16_from((float)x);
            break;
        case MIMO_BF16:
            ((uint16_t *)data)[i] = mimo_bf16_from((float)x);
            break;
        case MIMO_I32:
            ((uint32_t *)data)[i] = (uint32_t)word;
            break;
        default:
            ((uint64_t *)data)[i] = word;
        }
    }
}

static twin twin_of_numbers(int64_t count, mimo_dtype dtype, uint64_t seed)
{
    twin it = twin_new(count * (int64_t)mimo_dtype_size(dtype), seed);
    fill_numbers(it.room.host, count, dtype, seed);
    twin_push(&it);
    return it;
}

static bool is_float(mimo_dtype dtype)
{
    return dtype == MIMO_F32 || dtype == MIMO_F64 || dtype == MIMO_F16 || dtype == MIMO_BF16;
}

/* `skip` elements at the beginning are left out, for other alignments. */
static void check_scale(mimo_dtype dtype, int64_t count, double factor, int64_t skip)
{
    twin data = twin_of_numbers(count + skip, dtype, 11);
    int64_t bytes = skip * (int64_t)mimo_dtype_size(dtype);
    char *place = (char *)data.room.place + bytes;
    MPI_EXPECT_OK(host->scale(data.expected + bytes, count, dtype, factor, NULL));
    MPI_EXPECT_OK(cuda->scale(place, count, dtype, factor, test_stream()));
    MPI_EXPECT_BITS(twin_bits(&data), "%d %s times %g", (int)count, mimo_dtype_name(dtype), factor);
    twin_free(&data);
}

MPI_TEST(device, scale)
{
    static const double factors[] = {1.0 / 3, 2, 1e-6, 0};
    twin data = twin_new(64, 1);
    for (mimo_dtype dtype = MIMO_F32; dtype <= MIMO_F8; dtype++)
        for (int c = 0; c < COUNTS && is_float(dtype); c++)
            for (int f = 0; f < 4; f++)
                check_scale(dtype, counts[c], factors[f], c % 3);
    MPI_EXPECT_STATUS(cuda->scale(data.room.place, 4, MIMO_I32, 2, test_stream()),
                      MIMO_ERR_UNSUPPORTED);
    MPI_EXPECT_STATUS(cuda->scale(data.room.place, 4, MIMO_F8, 2, test_stream()),
                      MIMO_ERR_UNSUPPORTED);
    MPI_EXPECT_BITS(twin_bits(&data), "a refused call wrote");
    twin_free(&data);
}

/* `shape`, with other pointers. The first `skip` elements of both rooms stay as they are. */
static void check_add(const mimo_addends *shape, int64_t skip)
{
    mimo_addends on_host = *shape, on_device = *shape;
    int64_t bytes = skip * (int64_t)mimo_dtype_size(shape->dtype);
    twin data = twin_of_numbers(shape->step + skip, shape->dtype, 21);
    twin parts = twin_of_numbers(shape->n * shape->step + skip, shape->dtype, 22);
    on_host.data = data.expected + bytes;
    on_host.terms = parts.expected + bytes;
    on_device.data = (char *)data.room.place + bytes;
    on_device.terms = (char *)parts.room.place + bytes;
    MPI_EXPECT_OK(host->accumulate(&on_host, NULL));
    MPI_EXPECT_OK(cuda->accumulate(&on_device, test_stream()));
    MPI_EXPECT_BITS(twin_bits(&data), "%d parts of %d x %d %s", (int)shape->n,
                    (int)shape->stretches, (int)shape->count, mimo_dtype_name(shape->dtype));
    twin_free(&data);
    twin_free(&parts);
}

MPI_TEST(device, add_parts)
{
    for (mimo_dtype dtype = MIMO_F32; dtype < MIMO_F8; dtype++)
        for (int c = 0; c < COUNTS; c++)
            for (int64_t n = 0; n < 4; n++) {
                int64_t count = counts[c];
                mimo_addends shape = {.n = n, .step = count, .stretches = 1, .count = count};
                shape.dtype = dtype;
                check_add(&shape, (c + n) % 3);
            }
}

/* Fewer and more stretches than there are rows of thread blocks. */
MPI_TEST(device, add_parts_in_stretches)
{
    static const int64_t shapes[][2] = {{3, 5}, {7, 1}, {300, 1000}, {5000, 3}, {20000, 70}};
    for (mimo_dtype dtype = MIMO_F32; dtype < MIMO_F8; dtype++)
        for (int i = 0; i < 5; i++) {
            int64_t stretches = shapes[i][0], count = shapes[i][1], pitch = count + i % 3;
            mimo_addends shape = {.n = 2, .step = stretches * pitch, .stretches = stretches};
            shape.pitch = pitch;
            shape.count = count;
            shape.dtype = dtype;
            check_add(&shape, i % 2);
        }
}

static void check_squares(mimo_dtype dtype, int64_t count, int64_t skip)
{
    int64_t bytes = skip * (int64_t)mimo_dtype_size(dtype);
    twin data = twin_of_numbers(count + skip, dtype, 31);
    char *place = (char *)data.room.place + bytes;
    double expected = -1, got = -2, again = -3;
    MPI_EXPECT_OK(host->sum_squares(&expected, data.expected + bytes, count, dtype, NULL));
    MPI_EXPECT_OK(cuda->sum_squares(&got, place, count, dtype, test_stream()));
    MPI_EXPECT_OK(cuda->sum_squares(&again, place, count, dtype, test_stream()));
    MPI_EXPECT(fabs(got - expected) <= 1e-12 * expected, "%d %s: %.17g, on the host %.17g",
               (int)count, mimo_dtype_name(dtype), got, expected);
    MPI_EXPECT(memcmp(&got, &again, sizeof got) == 0, "%.17g, then %.17g", got, again);
    MPI_EXPECT_BITS(twin_bits(&data), "the sum of squares wrote");
    twin_free(&data);
}

MPI_TEST(device, sum_squares)
{
    for (mimo_dtype dtype = MIMO_F32; dtype <= MIMO_F8; dtype++)
        for (int c = 0; c < COUNTS && is_float(dtype); c++)
            check_squares(dtype, counts[c], c % 3);
    double sum = -1;
    twin data = twin_new(64, 1);
    MPI_EXPECT_STATUS(cuda->sum_squares(&sum, data.room.place, 4, MIMO_I64, test_stream()),
                      MIMO_ERR_UNSUPPORTED);
    MPI_EXPECT(sum == -1, "a refused call wrote");
    twin_free(&data);
}

/* ------------------------------------- rooms, copies --------------------------------------- */

/* Uploaded memory may be overwritten at once. Downloaded bytes are there at once. */
MPI_TEST(device, there_and_back)
{
    static const int64_t sizes[] = {0, 1, 17, 4096, 65537, (INT64_C(8) << 20) + 3};
    for (int i = 0; i < 6; i++)
        for (int64_t offset = 0; offset < OFFSETS; offset += 5) {
            int64_t bytes = sizes[i];
            char *from = malloc((size_t)bytes + 1), *to = guarded_new(bytes);
            void *room = NULL, *other = NULL;
            MPI_EXPECT_OK(cuda->reserve(&room, bytes + offset));
            MPI_EXPECT_OK(cuda->reserve(&other, bytes + offset));
            MPI_EXPECT((uintptr_t)room % 16 == 0, "a room at %p", room);
            fill_elements(from, 5, bytes, 1);
            MPI_EXPECT_OK(cuda->upload((char *)room + offset, from, bytes, test_stream()));
            memset(from, 0, (size_t)bytes);
            MPI_EXPECT_OK(
                cuda->copy((char *)other + offset, (char *)room + offset, bytes, test_stream()));
            MPI_EXPECT_OK(cuda->download(to, (char *)other + offset, bytes, test_stream()));
            fill_elements(from, 5, bytes, 1);
            MPI_EXPECT_BITS(bits_of(to, from, bytes, 1, 0), "%d bytes at + %d", (int)bytes,
                            (int)offset);
            MPI_EXPECT_BITS(bits_of_guards(to, bytes), "a guard band of %d bytes at + %d",
                            (int)bytes, (int)offset);
            cuda->release(room);
            cuda->release(other);
            free(from);
            guarded_free(to);
        }
    cuda->release(NULL);
}

/* Asks for more memory than any device has, and then for less. */
MPI_TEST(device, no_memory)
{
    void *room = NULL;
    MPI_FAILS(cuda->reserve(&room, INT64_C(1) << 50), MIMO_ERR_MEMORY, "1125899906842624 bytes");
    MPI_EXPECT(!room, "a failed call wrote its output");
    MPI_EXPECT_OK(cuda->reserve(&room, 1000));
    twin after = twin_of_numbers(100, MIMO_F32, 1);
    MPI_EXPECT_OK(host->scale(after.expected, 100, MIMO_F32, 3, NULL));
    MPI_EXPECT_OK(cuda->scale(after.room.place, 100, MIMO_F32, 3, test_stream()));
    MPI_EXPECT_BITS(twin_bits(&after), "a call after the failed one");
    twin_free(&after);
    cuda->release(room);
}
