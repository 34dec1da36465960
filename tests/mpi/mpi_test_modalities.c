/* Two modalities share one tile with text. Each has its own number of rows in each sample and a
 * bridge of its own. */
#include <string.h>

#include "bridge_bed.h"
#include "guarded.h"

enum { MODALITIES = 2, BATCH = 4, SEQ = 16, TEXT_BYTE = 0x77 };

typedef struct scene {
    bridge_bed bed[MODALITIES];
    mimo_span spans[MODALITIES][BATCH * SEQ];
    int64_t count[MODALITIES];
} scene;

/* Runs of positions go to a modality or to text. */
static void deal_sample(scene *x, int64_t sample, uint64_t *random)
{
    int64_t rows[MODALITIES] = {0}, position = 0;
    while (position < SEQ) {
        int64_t length = 1 + random_below(random, 5), m = random_below(random, MODALITIES + 1);
        length = length < SEQ - position ? length : SEQ - position;
        if (m < MODALITIES) {
            x->spans[m][x->count[m]++] = (mimo_span){sample, rows[m], position, length};
            rows[m] += length;
        }
        position += length;
    }
}

typedef struct scene_case {
    struct {
        const char *grid;
        int64_t offset;
    } src[MODALITIES];
    bool cut; /* the tile is a zigzag shard; otherwise both cp ranks contribute to all rows */
    const char *letters;
    mimo_dtype dtype;
    bool buffer;
} scene_case;

static void create(scene *out, const scene_case *it, uint64_t seed)
{
    uint64_t random = seed;
    memset(out->count, 0, sizeof out->count);
    for (int64_t sample = 0; sample < BATCH; sample++)
        deal_sample(out, sample, &random);
    for (int m = 0; m < MODALITIES; m++) {
        bed_case c = {.dst = {.grid = "cp=2,dp=2", .partition = it->cut},
                      .src_letters = "th",
                      .dst_letters = it->letters,
                      .executor = EXECUTOR_P2P,
                      .dtype = it->dtype,
                      .batch = BATCH,
                      .seq = SEQ,
                      .buffer = it->buffer,
                      .sums = !it->cut};
        c.src.grid = it->src[m].grid;
        c.src.offset = it->src[m].offset;
        c.src.kind = MIMO_RAGGED_PACKED;
        c.dst.kind = MIMO_RAGGED_PLACED;
        c.src.spans = c.dst.spans = out->spans[m];
        c.src.span_count = c.dst.span_count = out->count[m];
        out->bed[m] = bed_create(&c);
    }
}

/* ------------------------------------ the shared tile --------------------------------------- */

/* The modality of a row; MODALITIES: text. */
static int owner_of(const scene *x, int64_t row)
{
    int m = 0;
    while (m < MODALITIES && x->bed[m].dst.tiles[mpi_test_rank()].b[row] < 0)
        m++;
    return m;
}

static int64_t row_bytes_of(const scene *x)
{
    return bed_hidden(&x->bed[0].c) * (int64_t)mimo_dtype_size(x->bed[0].c.dtype);
}

/* The rows of modality m only. */
static void copy_rows(const scene *x, int m, const test_tile *to, const test_tile *from)
{
    int64_t bytes = row_bytes_of(x);
    for (int64_t row = 0; row * bytes < to->room.bytes; row++)
        if (owner_of(x, row) == m)
            memcpy((char *)to->room.host + row * bytes, (char *)from->room.host + row * bytes,
                   (size_t)bytes);
}

static void write_text(const scene *x, const test_tile *tile)
{
    int64_t bytes = row_bytes_of(x);
    for (int64_t row = 0; row * bytes < tile->room.bytes; row++)
        if (owner_of(x, row) == MODALITIES)
            memset((char *)tile->room.host + row * bytes, TEXT_BYTE, (size_t)bytes);
}

/* The gradient of each row, seeded by its modality; text has one as well. */
static void fill_gradient(const scene *x, const test_tile *tile, uint64_t seed)
{
    for (int m = 0; m < MODALITIES; m++) {
        test_tile alone = bed_tile_new(&x->bed[m], MIMO_DST);
        bed_fill(&x->bed[m], &alone, true, seed + (uint64_t)m);
        copy_rows(x, m, tile, &alone);
        test_tile_free(&alone);
    }
    write_text(x, tile);
    test_push(&tile->room);
}

/* Text is unchanged. Each modality's rows are those that its bridge alone would leave: forward's
 * targets, or backward's sources. */
static void check_shared(const scene *x, const test_tile *tile, bool backward, uint64_t seed)
{
    const unsigned char text = TEXT_BYTE, *bytes = tile->room.host;
    bit_report report = {.element = 1, .columns = row_bytes_of(x)};
    test_pull(&tile->room);
    for (int64_t at = 0; at < tile->room.bytes; at++)
        if (owner_of(x, at / report.columns) == MODALITIES)
            bits_note(&report, at, &bytes[at], &text);
    MPI_EXPECT_BITS(report, "%s: text, byte by byte", bed_text(&x->bed[0].c));
    for (int m = 0; m < MODALITIES; m++) {
        test_tile alone = bed_tile_new(&x->bed[m], MIMO_DST);
        copy_rows(x, m, &alone, tile);
        test_push(&alone.room);
        (backward ? bed_check_source : bed_check_target)(&x->bed[m], &alone, backward,
                                                         seed + (uint64_t)m);
        test_tile_free(&alone);
    }
}

/* ----------------------------------------- calls -------------------------------------------- */

/* Both calls in flight. Every other rank ends them in another order. */
static void move_both(const scene *x, bool backward, const mimo_tensor *to[MODALITIES],
                      const mimo_tensor *from[MODALITIES])
{
    mimo_op *ops[MODALITIES] = {NULL};
    for (int m = 0; m < MODALITIES; m++)
        MPI_EXPECT_OK((backward ? mimo_bridge_backward_start : mimo_bridge_forward_start)(
            &ops[m], x->bed[m].bridge, to[m], from[m], 1, test_stream()));
    for (int m = 0; m < MODALITIES; m++)
        MPI_EXPECT_OK(mimo_op_wait(&ops[(m + mpi_test_rank()) % MODALITIES]));
}

static void forward(const scene *x, uint64_t seed)
{
    test_tile from[MODALITIES], to = bed_target_new(&x->bed[0], MIMO_DST);
    for (int m = 0; m < MODALITIES; m++) {
        from[m] = bed_tile_new(&x->bed[m], MIMO_SRC);
        bed_fill(&x->bed[m], &from[m], false, seed + (uint64_t)m);
    }
    write_text(x, &to);
    test_push(&to.room);
    move_both(x, false, (const mimo_tensor *[]){&to.view, &to.view},
              (const mimo_tensor *[]){&from[0].view, &from[1].view});
    check_shared(x, &to, false, seed);
    for (int m = 0; m < MODALITIES; m++) {
        bed_check_source(&x->bed[m], &from[m], false, seed + (uint64_t)m);
        test_tile_free(&from[m]);
    }
    test_tile_free(&to);
}

static void backward(const scene *x, uint64_t seed)
{
    test_tile to[MODALITIES], from = bed_tile_new(&x->bed[0], MIMO_DST);
    for (int m = 0; m < MODALITIES; m++)
        to[m] = bed_target_new(&x->bed[m], MIMO_SRC);
    fill_gradient(x, &from, seed);
    move_both(x, true, (const mimo_tensor *[]){&to[0].view, &to[1].view},
              (const mimo_tensor *[]){&from.view, &from.view});
    check_shared(x, &from, true, seed);
    for (int m = 0; m < MODALITIES; m++) {
        bed_check_target(&x->bed[m], &to[m], true, seed + (uint64_t)m);
        test_tile_free(&to[m]);
    }
    test_tile_free(&from);
}

/* Images and audio go to their positions in each sample, between each other and text. Then each
 * modality gets its rows of one gradient. */
BED_TEST(modalities, two_in_one_tile)
{
    static const scene_case cases[] = {
        {{{"dp=4", 0}, {"dp=4", 0}}, true, "sbh", MIMO_F32, false},
        {{{"tp=2,dp=2", 0}, {"dp=2", 2}}, true, "bsh", MIMO_BF16, false},
        {{{"dp=3", 0}, {"tp=3", 1}}, true, "sbh", MIMO_BF16, false},
        {{{"dp=2", 1}, {"tp=2,dp=2", 0}}, false, "sbh", MIMO_F32, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            scene x;
            scene_case it = cases[i];
            it.buffer = buffer;
            create(&x, &it, seed);
            MPI_EXPECT(x.count[0] > 0 && x.count[1] > 0, "seed %d: one modality", (int)seed);
            forward(&x, 10 * seed);
            backward(&x, 10 * seed);
            for (int m = 0; m < MODALITIES; m++)
                bed_destroy(&x.bed[m]);
        }
}
