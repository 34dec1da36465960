/* What only routed takes: any ratio of dp, uneven batches, ranks without a role, cp of the encoder,
 * every pipeline stage, packed sequences, shards on both sides. Chosen cases, then random ones.
 * Destinations in a buffer or elsewhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "cases_ran.h"
#include "guarded.h"
#include "reference_grid.h"

/* Deprecated functions work as before. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* A number that S must be a multiple of. */
static int64_t divisor(const layout_case *layout)
{
    int64_t cp = ref_size(layout->grid, "cp"), tp = ref_size(layout->grid, "tp");
    return layout->partition ? 2 * cp * (layout->sp ? tp : 1) : 1;
}

/* Forward and backward three times with different data, then in chunks. */
static void check_case(const bed_case *c)
{
    bridge_bed bed = bed_create(c);
    for (uint64_t round = 0; bed.bridge && round < 3; round++) {
        bed.c.sums = round > 0;
        bed.c.chunks = round < 2 ? 0 : 1 + (int)(c->batch + c->seq) % 5;
        bed_move(&bed, false, 10 + round);
        bed_move(&bed, true, 20 + round);
    }
    bed_destroy(&bed);
}

/* ------------------------------------- chosen ------------------------------------- */

typedef struct chosen {
    const char *src;
    int64_t src_offset;
    const char *dst;
    int64_t dst_offset;
    int64_t batch;
    int cut; /* 1: the dst tile is a shard; 2: along tp as well; 4: the src tile is a shard */
    bool all_stages;
} chosen;

static const chosen chosen_cases[] = {
    {"dp=3", 0, "tp=1,dp=2", 0, 6, 0, false}, /* neither divides the other */
    {"dp=2", 0, "dp=3", 0, 6, 0, false},
    {"dp=3", 0, "cp=3,dp=1", 0, 5, 1, false}, /* 2, 2 and 1 samples */
    {"dp=4", 0, "cp=2,dp=2", 0, 7, 1, false},
    {"dp=4", 0, "cp=2,dp=2", 0, 2, 0, false},      /* two ranks without samples */
    {"tp=2,dp=2", 0, "dp=2,tp=2", 0, 4, 0, false}, /* dp innermost */
    {"cp=2,dp=2", 0, "cp=4,dp=1", 0, 4, 1, false}, /* encoder cp: copies */
    {"cp=2,dp=2", 0, "cp=4,dp=1", 0, 4, 5, false}, /* encoder cp: shards */
    {"tp=2,cp=2", 0, "tp=2,cp=2", 0, 3, 6, false}, /* shards on both sides */
    {"dp=2", 0, "cp=2", 2, 4, 1, false},           /* disjoint */
    {"dp=3", 0, "cp=2,dp=1", 2, 5, 0, false},      /* overlapping */
    {"dp=2", 1, "cp=2", 1, 3, 0, false},           /* ranks 0 and 3 in neither */
    {"dp=4", 0, "cp=2,pp=2", 0, 4, 1, false},      /* the first stage alone consumes */
    {"dp=4", 0, "cp=2,pp=2", 0, 4, 1, true},       /* both do: two contributions */
    {"dp=4", 0, "pp=2,cp=2", 0, 5, 0, true},       /* four contributions */
    {"tp=1,dp=6", 0, "tp=1,cp=1,dp=4", 1, 12, 0, false},
    {"dp=4", 0, "cp=3,dp=2", 0, 12, 1, false},
    {"dp=4", 2, "tp=2,cp=3", 0, 5, 2, false},
    {"tp=2,dp=3", 1, "dp=2,cp=2,pp=2", 0, 7, 1, true},
    {"dp=6", 0, "tp=2,cp=2,dp=2", 0, 11, 2, false},
    {"dp=1", 0, "dp=1", 0, 3, 0, false},
};

BED_TEST(routed_general, chosen_pairs)
{
    test_agree_on_data();
    for (size_t i = 0; i < sizeof chosen_cases / sizeof chosen_cases[0]; i++) {
        const chosen *it = &chosen_cases[i];
        bed_case c = {.src = {.grid = it->src, .offset = it->src_offset},
                      .dst = {.grid = it->dst, .offset = it->dst_offset},
                      .executor = EXECUTOR_ROUTED,
                      .buffer = buffer,
                      .batch = it->batch};
        c.src.partition = it->cut & 4;
        c.dst.partition = it->cut & 3;
        c.dst.sp = it->cut & 2;
        c.dst.all_stages = it->all_stages;
        c.src_letters = i % 2 ? "bsh" : "sbh";
        c.dst_letters = i / 2 % 2 ? "bsh" : "sbh";
        c.seq = 24;
        int64_t src_end = it->src_offset + ref_ranks(it->src);
        int64_t dst_end = it->dst_offset + ref_ranks(it->dst);
        if (src_end <= mpi_test_size() && dst_end <= mpi_test_size())
            check_case(&c);
    }
}

/* ------------------------------------- random ------------------------------------- */

/* Cases with long sequences are dropped, as they take long. */
enum { MOST_POSITIONS = 96, PAIRS = 120, PAIRS_AT_LEAST = 90, BATCHES = 60, BATCHES_AT_LEAST = 40 };

static void draw_side(uint64_t *random, layout_case *side, char text[64])
{
    bed_draw_grid(random, text, &side->offset);
    side->grid = text;
    side->partition = random_below(random, 2);
    side->sp = side->partition && random_below(random, 2);
    side->ragged = random_below(random, 2) ? next_random(random) | 1 : 0;
}

/* T = seq positions in up to 4 sequences. */
static void draw_packing(uint64_t *random, layout_case *side, int64_t seq, int32_t cu[5])
{
    int64_t unit = 2 * ref_size(side->grid, "cp"), left = seq / unit;
    if (!side->partition || random_below(random, 2))
        return;
    cu[0] = 0;
    for (int i = 0; i < 4; i++) {
        int64_t units = i == 3 ? left : random_below(random, left + 1);
        cu[i + 1] = cu[i] + (int32_t)(units * unit);
        left -= units;
    }
    side->cu = cu;
    side->sequences = 4;
}

/* Flat letters where the length of sequences is known without them. */
static void draw_letters(uint64_t *random, bed_case *c)
{
    static const char *const letters[] = {"sbh", "bsh", "th", "bh"};
    bool packed = c->src.cu || c->dst.cu;
    c->src_letters = letters[random_below(random, 4)];
    c->dst_letters = letters[random_below(random, packed || c->src_letters[1] != 'h' ? 4 : 2)];
}

static int64_t least_common(int64_t a, int64_t b)
{
    int64_t multiple = a;
    while (multiple % b != 0)
        multiple += a;
    return multiple;
}

BED_TEST(routed_general, random_pairs)
{
    int64_t ran = 0;
    test_agree_on_data();
    for (uint64_t seed = 1; seed <= PAIRS; seed++) {
        uint64_t random = seed * 1000 + (uint64_t)mpi_test_size();
        char src_text[64], dst_text[64];
        int32_t src_cu[5], dst_cu[5];
        bed_case c = {.executor = EXECUTOR_P2P, .buffer = buffer};
        draw_side(&random, &c.src, src_text);
        draw_side(&random, &c.dst, dst_text);
        c.dst.all_stages = random_below(&random, 2);
        c.batch = random_below(&random, 9);
        c.seq = least_common(divisor(&c.src), divisor(&c.dst)) * (1 + random_below(&random, 2));
        draw_packing(&random, &c.src, c.seq, src_cu);
        draw_packing(&random, &c.dst, c.seq, dst_cu);
        draw_letters(&random, &c);
        c.dtype = (mimo_dtype)random_below(&random, MIMO_F8);
        c.given = !c.src.ragged && !c.dst.ragged && random_below(&random, 2);
        if (c.seq > MOST_POSITIONS)
            continue;
        check_case(&c);
        ran += c.batch > 0;
    }
    MPI_CASES_RAN(ran, PAIRS, PAIRS_AT_LEAST, "random pairs that move rows");
}

/* -------------------------------------- mixed ------------------------------------- */

enum { MIXED = 3 };

/* The same bridge, for tiles of other letters. */
static bridge_bed with_letters(const bridge_bed *bed, const char *src, const char *dst)
{
    bridge_bed other = *bed;
    other.c.src_letters = src;
    other.c.dst_letters = dst;
    other.c.src.order = src[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    other.c.dst.order = dst[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    other.src = reference_of(&other.c.src, bed->c.batch, bed->c.seq);
    other.dst = reference_of(&other.c.dst, bed->c.batch, bed->c.seq);
    return other;
}

/* Tensors of one call, each with letters of its own. At least one tile determines S, and at least
 * one pair is flat. */
static void move_mixed(uint64_t *random, const bridge_bed *bed, bool backward)
{
    static const char *const letters[] = {"sbh", "bsh", "th", "bh"};
    int64_t shaped = random_below(random, MIXED), flat = (shaped + 1) % MIXED;
    bridge_bed beds[MIXED];
    test_tile from[MIXED], to[MIXED];
    mimo_tensor from_views[MIXED], to_views[MIXED];
    for (int i = 0; i < MIXED; i++) {
        const char *src =
            letters[i == flat ? 2 + random_below(random, 2) : random_below(random, 4)];
        int64_t known = i == shaped && src[1] == 'h' ? 2 : 4; /* dst determines S here */
        const char *dst =
            letters[i == flat ? 2 + random_below(random, 2) : random_below(random, known)];
        beds[i] = with_letters(bed, src, dst);
        from[i] = bed_tile_new(&beds[i], backward ? MIMO_DST : MIMO_SRC);
        to[i] = bed_target_new(&beds[i], backward ? MIMO_SRC : MIMO_DST);
        bed_fill(&beds[i], &from[i], backward, (uint64_t)i);
        from_views[i] = from[i].view;
        to_views[i] = to[i].view;
    }
    mimo_status status = (backward ? mimo_bridge_backward : mimo_bridge_forward)(
        bed->bridge, to_views, from_views, MIXED, test_stream());
    MPI_EXPECT(status == MIMO_OK, "%s: %s", bed_text(&bed->c), mimo_last_error());
    for (int i = 0; i < MIXED; i++) {
        bed_check_target(&beds[i], &to[i], backward, (uint64_t)i);
        test_tile_free(&from[i]);
        test_tile_free(&to[i]);
        reference_release(&beds[i].src);
        reference_release(&beds[i].dst);
    }
}

/* A case that collective takes, with a flat pair beside it. */
static bed_case paired_case(uint64_t *random)
{
    bed_case c = {.src = {.grid = random_below(random, 2) ? "tp=2,dp=2" : "tp=1,dp=4"},
                  .dst = {.grid = random_below(random, 2) ? "tp=1,cp=2,dp=2" : "tp=1,cp=1,dp=4"},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .executor = EXECUTOR_COLLECTIVE,
                  .batch = 4,
                  .seq = 1 + random_below(random, 5)};
    return c;
}

/* Have the ranks agree, where they agree only when asked. */
static void set_checks(bool samples)
{
    bool calls = test_memory() != MIMO_MEMORY_HOST;
    setenv("MIMO_CHECK", samples ? (calls ? "samples,calls" : "samples") : (calls ? "calls" : ""),
           1);
}

/* A flat pair beside tiles that determine S, in any order. Every other bridge checks its samples
 * (MIMO_CHECK=samples), with a pair of tags that has the first pair's letters. */
BED_TEST(routed_general, flat_beside_shaped)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed * 500 + (uint64_t)mpi_test_size();
        char src_text[64], dst_text[64];
        bed_case c = {.executor = EXECUTOR_P2P, .src_letters = "sbh", .dst_letters = "sbh"};
        draw_side(&random, &c.src, src_text);
        draw_side(&random, &c.dst, dst_text);
        c.batch = random_below(&random, 9);
        c.seq = least_common(divisor(&c.src), divisor(&c.dst)) * (1 + random_below(&random, 2));
        if (seed % 4 == 0 && !buffer)
            c = paired_case(&random);
        c.dtype = (mimo_dtype)random_below(&random, MIMO_F8);
        c.buffer = buffer;
        set_checks(seed % 2);
        bridge_bed bed = bed_create(&c);
        for (int way = 0; bed.bridge && way < 4; way++)
            move_mixed(&random, &bed, way % 2);
        bed_destroy(&bed);
    }
    unsetenv("MIMO_CHECK");
}

/* --------------------------------------- order ------------------------------------ */

enum { ORDER_BATCH = 8, ORDER_SEQ = 16, ORDER_HIDDEN = 3 };

/* A contribution. Contributions differ in size enough that another order gives another sum. */
static float contribution(const char *dst, int64_t rank, int64_t b, int64_t s, int64_t h)
{
    int64_t contribution = 4 * ref_coord(dst, "cp", rank) + ref_coord(dst, "pp", rank);
    uint64_t word = ref_word((uint64_t)contribution + 1, b, s, h);
    return ldexpf((float)(int64_t)(word & 0xffff) - 32768, (int)(word >> 16 & 31) - 16);
}

/* The sum over the ranks that hold the sample at tp 0, by ascending or by descending rank. */
static float sum_of(const char *dst, int64_t b, int64_t s, int64_t h, bool ascending)
{
    float sum = 0;
    bool begun = false;
    int64_t ranks = ref_ranks(dst), samples = ORDER_BATCH / ref_size(dst, "dp");
    for (int64_t i = 0; i < ranks; i++) {
        int64_t rank = ascending ? i : ranks - 1 - i;
        if (ref_coord(dst, "tp", rank) > 0 || ref_coord(dst, "dp", rank) != b / samples)
            continue;
        float part = contribution(dst, rank, b, s, h);
        sum = begun ? sum + part : part;
        begun = true;
    }
    return sum;
}

static void check_sums(const char *dst, const test_tile *to, int64_t first, int64_t samples)
{
    int64_t telling = 0;
    bit_report report = {.element = sizeof(float), .columns = ORDER_HIDDEN};
    test_pull(&to->room);
    for (int64_t i = 0; i < samples * ORDER_SEQ * ORDER_HIDDEN; i++) {
        int64_t b = first + i / (ORDER_SEQ * ORDER_HIDDEN), s = i / ORDER_HIDDEN % ORDER_SEQ;
        float sum = sum_of(dst, b, s, i % ORDER_HIDDEN, true);
        bits_note(&report, i, (float *)to->room.host + i, &sum);
        telling += sum_of(dst, b, s, i % ORDER_HIDDEN, false) != sum;
    }
    MPI_EXPECT_BITS(report, "%s: sums in the order of ranks", dst);
    MPI_EXPECT(telling > 0, "%s: any order gives these sums", dst);
}

static void add_in_order(const char *src, const char *dst)
{
    bed_case c = bed_case_of(EXECUTOR_P2P, src, dst, "bsh", "bsh");
    c.dst.all_stages = true;
    c.batch = ORDER_BATCH;
    c.seq = ORDER_SEQ;
    int64_t first = 0, rank = mpi_test_rank(), held = 0;
    int64_t samples = reference_samples(&c.src, ORDER_BATCH, ref_coord(src, "dp", rank), &first);
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_DST), to = bed_tile_new(&bed, MIMO_SRC);
    if (rank < ref_ranks(dst))
        (void)reference_samples(&c.dst, ORDER_BATCH, ref_coord(dst, "dp", rank), &held);
    for (int64_t i = 0; i < from.room.bytes / (int64_t)sizeof(float); i++)
        ((float *)from.room.host)[i] =
            contribution(dst, rank, held + i / (ORDER_SEQ * ORDER_HIDDEN),
                         i / ORDER_HIDDEN % ORDER_SEQ, i % ORDER_HIDDEN);
    test_push(&from.room);
    MPI_EXPECT_OK(bed_call(&bed, true, &to, &from));
    check_sums(dst, &to, first, samples);
    bed_destroy(&bed);
}

/* On 8 ranks: several cp and pp ranks contribute to each row, in grids of any order of dimensions.
 * Backward has one phase, or two where one src rank reads everything. */
MPI_TEST(routed_general, sums_in_the_order_of_ranks)
{
    static const char *const dst[] = {"cp=2,pp=2",      "pp=2,cp=2",           "cp=2,tp=2,pp=2",
                                      "tp=2,pp=2,cp=2", "pp=2,dp=2,cp=2",      "cp=2,dp=2,pp=2",
                                      "dp=2,pp=2,cp=2", "pp=2,tp=2,cp=2,dp=1", "cp=4,pp=2"};
    for (size_t i = 0; i < sizeof dst / sizeof *dst; i++) {
        add_in_order("dp=8", dst[i]);
        add_in_order("tp=8,dp=1", dst[i]);
    }
}

/* ------------------------------------ addresses ----------------------------------- */

/* A tile whose rows the library finds one byte behind an address that fits its dtype. */
typedef struct odd_tile {
    test_tile tile; /* for the bed, which can't use such addresses */
    test_room room;
    mimo_tensor view;
} odd_tile;

static odd_tile odd_tile_new(const bridge_bed *bed, mimo_side side, bool shared)
{
    odd_tile odd = {.tile = bed_tile_new(bed, side)};
    int64_t bytes = odd.tile.room.bytes + 1;
    odd.room = shared ? test_shared_room_new(bytes) : test_room_new(bytes);
    odd.view = odd.tile.view;
    odd.view.data = (char *)odd.room.place + 1;
    return odd;
}

static void odd_tile_free(odd_tile *odd)
{
    test_tile_free(&odd->tile);
    test_room_free(&odd->room);
}

/* Copy what the bed has filled to the odd address, and what has arrived there to the bed's tile. */
static void to_odd_place(const odd_tile *odd)
{
    memcpy((char *)odd->room.host + 1, odd->tile.room.host, (size_t)odd->tile.room.bytes);
    test_push(&odd->room);
}

static void from_odd_place(const odd_tile *odd)
{
    test_pull(&odd->room);
    memcpy(odd->tile.room.host, (char *)odd->room.host + 1, (size_t)odd->tile.room.bytes);
    test_push(&odd->tile.room);
}

static mimo_status move_views(const bridge_bed *bed, bool backward, const mimo_tensor *to,
                              const mimo_tensor *from)
{
    return (backward ? mimo_bridge_backward : mimo_bridge_forward)(bed->bridge, to, from, 1,
                                                                   test_stream());
}

/* Rows that only move may lie at any address. */
static void move_oddly(const bridge_bed *bed, bool backward)
{
    odd_tile from = odd_tile_new(bed, backward ? MIMO_DST : MIMO_SRC, false);
    odd_tile to = odd_tile_new(bed, backward ? MIMO_SRC : MIMO_DST, bed->c.buffer);
    bed_fill(bed, &from.tile, backward, 7);
    to_odd_place(&from);
    to_odd_place(&to);
    mimo_status status = move_views(bed, backward, &to.view, &from.view);
    MPI_EXPECT(status == MIMO_OK, "%s: %s", bed_text(&bed->c), mimo_last_error());
    from_odd_place(&to);
    bed_check_target(bed, &to.tile, backward, 7);
    odd_tile_free(&from);
    odd_tile_free(&to);
}

/* Gradients that are added: on one side the last rank's lie at an odd address. All ranks get the
 * error. */
static void refuse_to_add(const bridge_bed *bed, bool odd_source)
{
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    odd_tile from = odd_tile_new(bed, MIMO_DST, false);
    odd_tile to = odd_tile_new(bed, MIMO_SRC, false);
    test_tile target = bed_target_new(bed, MIMO_SRC);
    bed_fill(bed, &from.tile, true, 8);
    MPI_FAILS(move_views(bed, true, last && !odd_source ? &to.view : &target.view,
                         last && odd_source ? &from.view : &from.tile.view),
              MIMO_ERR_ARGUMENT, "rank 3: bridge ",
              odd_source ? ": dst tile f32" : ": src tile f32",
              "f32 numbers have to lie at a multiple of 4 bytes");
    test_pull(&target.room);
    MPI_EXPECT_BITS(bits_of_poison(target.room.host, 0, target.room.bytes),
                    "written by a refused call");
    MPI_EXPECT_OK(move_views(bed, true, &target.view, &from.tile.view));
    bed_check_target(bed, &target, true, 8);
    odd_tile_free(&from);
    odd_tile_free(&to);
    test_tile_free(&target);
}

/* On 4 ranks, which all get the error of the last one. */
BED_TEST(routed_general, odd_addresses)
{
    test_agree_on_data();
    for (int way = 0; way < 4; way++) {
        bed_case c = bed_fan_in;
        c.src.grid = "tp=1,dp=4"; /* collective requires tp */
        c.dst.grid = "tp=1,cp=2,dp=2";
        c.dst.partition = way % 2;
        c.executor = way / 2 && !buffer ? EXECUTOR_COLLECTIVE : EXECUTOR_P2P;
        c.buffer = buffer;
        bool adds = !c.dst.partition || c.executor == EXECUTOR_COLLECTIVE;
        bridge_bed bed = bed_create(&c);
        if (bed.bridge)
            move_oddly(&bed, false);
        if (bed.bridge && !adds)
            move_oddly(&bed, true);
        for (int side = 0; bed.bridge && adds && !buffer && side < 2; side++)
            refuse_to_add(&bed, side);
        bed_destroy(&bed);
    }
}

/* ------------------------------------- ragged ------------------------------------- */

static int64_t draw_spans(uint64_t *random, int64_t batch, int64_t seq, mimo_span *spans)
{
    int64_t count = 0;
    for (int64_t b = 0; b < batch; b++) {
        int64_t row = 0, position = random_below(random, seq);
        for (int i = 0; i < 2 && position < seq; i++) {
            int64_t length = random_below(random, seq - position) + 1;
            if (random_below(random, 4) > 0) {
                spans[count++] = (mimo_span){b, row, position, length};
                row += length;
            }
            position += length;
        }
    }
    return count;
}

/* Rows of a modality, whose number differs between samples, go to the positions that the LLM's
 * ranks give. */
BED_TEST(routed_general, ragged_batches)
{
    int64_t ran = 0;
    for (uint64_t seed = 1; seed <= BATCHES; seed++) {
        uint64_t random = seed * 7000 + (uint64_t)mpi_test_size();
        char src_text[64], dst_text[64];
        mimo_span spans[2 * 9];
        bed_case c = {.executor = EXECUTOR_ROUTED, .buffer = buffer, .src_letters = "th"};
        draw_side(&random, &c.src, src_text);
        draw_side(&random, &c.dst, dst_text);
        c.src.partition = c.src.sp = false;
        c.src.ragged = c.dst.ragged = 0;
        c.dst.all_stages = random_below(&random, 2);
        c.batch = random_below(&random, 9);
        c.seq = divisor(&c.dst) * (1 + random_below(&random, 3));
        c.src.kind = MIMO_RAGGED_PACKED;
        c.dst.kind = MIMO_RAGGED_PLACED;
        c.src.spans = c.dst.spans = spans;
        c.src.span_count = c.dst.span_count = draw_spans(&random, c.batch, c.seq, spans);
        c.dst_letters = random_below(&random, 2) ? "sbh" : "bsh";
        c.dtype = (mimo_dtype)random_below(&random, MIMO_F8);
        if (c.seq > MOST_POSITIONS)
            continue;
        check_case(&c);
        ran += c.src.span_count > 0;
    }
    MPI_CASES_RAN(ran, BATCHES, BATCHES_AT_LEAST, "ragged batches that move rows");
}

/* One bridge with another table for every micro-batch, and at last without one. */
BED_TEST(routed_general, updates_in_turn)
{
    mimo_span spans[2 * 4];
    uint64_t random = 5;
    bed_case c = {.src = {.grid = "dp=4", .kind = MIMO_RAGGED_PACKED, .spans = spans},
                  .dst = {.grid = "cp=2,dp=2", .partition = true, .kind = MIMO_RAGGED_PLACED},
                  .src_letters = "th",
                  .dst_letters = "sbh",
                  .executor = EXECUTOR_ROUTED,
                  .buffer = buffer,
                  .batch = 4,
                  .seq = 8};
    c.dst.spans = spans;
    bridge_bed bed = bed_create(&c);
    for (uint64_t i = 0; bed.bridge && i < 6; i++) {
        bridge_bed now = bed;
        now.c.src.span_count = now.c.dst.span_count = draw_spans(&random, c.batch, c.seq, spans);
        now.src = reference_of(&now.c.src, c.batch, c.seq);
        now.dst = reference_of(&now.c.dst, c.batch, c.seq);
        bed_update(&now);
        bed_move(&now, false, i);
        bed_move(&now, true, i);
        reference_release(&now.src);
        reference_release(&now.dst);
    }
    bed_destroy(&bed);
}

static mimo_status update(mimo_bridge *bridge, int64_t batch, const mimo_span *spans, int64_t count)
{
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    desc.batch = batch;
    desc.ragged = spans;
    desc.spans = spans;
    desc.span_count = count;
    return mimo_bridge_update(bridge, &desc, 1);
}

/* Forward of the spans' rows. Rank 1 holds all of them, `rows` in number. */
static mimo_status forward_rows(const bridge_bed *bed, int64_t rows)
{
    test_tile source = test_tile_new("th", MIMO_F32, mpi_test_rank() == 1 ? rows : 0, 3, 1);
    test_tile target =
        (bed->c.buffer ? test_shared_tile_new : test_tile_new)("sbh", MIMO_F32, 4, 2, 3);
    mimo_status status =
        mimo_bridge_forward(bed->bridge, &target.view, &source.view, 1, test_stream());
    test_tile_free(&source);
    test_tile_free(&target);
    return status;
}

/* Rank 0 has begun an operation when the update comes; the others have not. */
static void update_in_flight(const bridge_bed *bed)
{
    mimo_op *op = NULL;
    int rank = mpi_test_rank();
    test_tile source = test_tile_new("sbh", MIMO_F32, 8, 1, 3);
    test_tile target =
        (bed->c.buffer ? test_shared_tile_new : test_tile_new)("sbh", MIMO_F32, 4, 2, 3);
    if (rank == 0)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bed->bridge, &target.view, &source.view, 1,
                                                test_stream()));
    MPI_FAILS(mimo_bridge_update(bed->bridge, NULL, 0), MIMO_ERR_STATE,
              "rank 0: bridge 1: update: an operation is in flight");
    if (rank > 0)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bed->bridge, &target.view, &source.view, 1,
                                                test_stream()));
    MPI_EXPECT_OK(mimo_op_wait(&op));
    test_tile_free(&source);
    test_tile_free(&target);
}

BED_TEST(routed_general, wrong_updates)
{
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=4", "cp=2,dp=2", "th", "sbh");
    c.dst.partition = true;
    c.buffer = buffer;
    bridge_bed bed, seed;
    int rank = mpi_test_rank();
    const mimo_span one[] = {{1, 0, 2, 3}}, other[] = {{1, 0, 2, 2}}, none[] = {{4, 0, 0, 1}},
                    late[] = {{1, 0, 6, 3}};
    test_agree_on_data();
    bed = bed_create(&c);
    if (test_memory() == MIMO_MEMORY_HOST) /* on a device an operation ends once enqueued */
        update_in_flight(&bed);
    MPI_FAILS(update(bed.bridge, 4, rank == 2 ? other : one, 1), MIMO_ERR_MISMATCH,
              "ranks 0 and 2 give different spans of sample 1");
    MPI_FAILS(update(bed.bridge, 4, rank == 3 ? none : one, 1), MIMO_ERR_SHAPE,
              "rank 3 gives sample 4 of 4");
    MPI_EXPECT_STATUS(update(bed.bridge, rank == 3 ? 5 : 4, one, 1), MIMO_ERR_MISMATCH);
    MPI_EXPECT_STATUS(update(bed.bridge, -1, one, 1), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_OK(update(bed.bridge, 4, late, 1));
    MPI_FAILS(forward_rows(&bed, 3), MIMO_ERR_SHAPE,
              "3 rows at position 6 do not lie in 8 positions");
    MPI_EXPECT_OK(update(bed.bridge, 4, one, 1));
    MPI_FAILS(forward_rows(&bed, 2), MIMO_ERR_SHAPE,
              "rank 1: bridge 1: src tile is f32 th[2,3]; the spans of this rank's samples have 3");
    MPI_EXPECT_OK(forward_rows(&bed, 3));
    c.executor = EXECUTOR_COLLECTIVE;
    c.buffer = false;
    c.src.grid = "tp=1,dp=4";
    c.dst.grid = "tp=1,cp=2,dp=2";
    seed = bed_create(&c);
    MPI_EXPECT_STATUS(update(seed.bridge, 4, one, 1), MIMO_ERR_UNSUPPORTED);
    bed_destroy(&bed);
    bed_destroy(&seed);
}

static mimo_status forward(const bridge_bed *bed, int64_t src_batch, int64_t dst_batch)
{
    enum { BYTES = 64 * sizeof(float) };
    test_room from = test_room_new(BYTES);
    test_room to = bed->c.buffer ? test_shared_room_new(BYTES) : test_room_new(BYTES);
    mimo_tensor source = test_view(&from, MIMO_F32, "sbh", 2, src_batch, 3);
    mimo_tensor target = test_view(&to, MIMO_F32, "sbh", 2, dst_batch, 3);
    mimo_status status = mimo_bridge_forward(bed->bridge, &target, &source, 1, test_stream());
    test_room_free(&from);
    test_room_free(&to);
    return status;
}

/* Tiles of `src` and `dst` samples, with 8 positions in src and 4, those of a cp rank, in dst. */
static mimo_status forward_halves(const bridge_bed *bed, int64_t src, int64_t dst)
{
    test_tile from = test_tile_new("sbh", MIMO_F32, 8, src, 3);
    test_tile to =
        (bed->c.buffer ? test_shared_tile_new : test_tile_new)("bsh", MIMO_F32, dst, 4, 3);
    mimo_status status = bed_call(bed, false, &to, &from);
    test_tile_free(&from);
    test_tile_free(&to);
    return status;
}

/* With a given batch an uneven batch split needs no agreement. Without it MIMO_AGREE=0 forbids the
 * agreement. */
BED_TEST(routed_general, batch_that_is_told)
{
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=4", "cp=2,dp=2", "sbh", "bsh");
    c.dst.partition = true;
    c.buffer = buffer;
    c.batch = 7;
    c.seq = 8;
    bridge_bed bed = bed_create(&c);
    setenv("MIMO_AGREE", "0", 1);
    MPI_FAILS(forward_halves(&bed, 2, 4), MIMO_ERR_STATE,
              "MIMO_AGREE=0 forbids it: give the batch by mimo_bridge_update");
    setenv("MIMO_CHECK", "calls", 1); /* which agrees on all calls */
    MPI_FAILS(forward_halves(&bed, 2, 4), MIMO_ERR_STATE, "MIMO_AGREE=0 forbids it");
    unsetenv("MIMO_CHECK");
    MPI_EXPECT_OK(update(bed.bridge, 7, NULL, 0));
    bed_move(&bed, false, 1);
    bed_move(&bed, true, 2);
    setenv("MIMO_AGREE", "1", 1);
    MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 1));
    test_agree_on_data();
    MPI_EXPECT_OK(update(bed.bridge, 8, NULL, 0));
    MPI_FAILS(forward_halves(&bed, 1, 2), MIMO_ERR_SHAPE,
              "of a batch of 8 this rank holds 2 samples");
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, NULL, 0));
    bed_move(&bed, false, 3);
    bed_destroy(&bed);
    c.given = true;
    bed = bed_create(&c);
    bed_move(&bed, false, 4);
    MPI_FAILS(forward_halves(&bed, 2, 4), MIMO_ERR_SHAPE, "of a batch of 7 this rank holds");
    MPI_EXPECT_OK(update(bed.bridge, 8, NULL, 0));
    MPI_EXPECT_STATUS(forward_halves(&bed, 1, 2), MIMO_ERR_SHAPE);
    MPI_EXPECT_OK(mimo_bridge_update(bed.bridge, NULL, 0)); /* back to the descriptor's */
    bed_move(&bed, true, 5);
    MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 2));
    bed_destroy(&bed);
}

/* -------------------------------------- sizes ------------------------------------- */

/* On one bridge the batch changes from call to call, to even and uneven sizes, and back. */
BED_TEST(routed_general, batches_that_change)
{
    test_agree_on_data();
    static const int64_t batches[] = {4, 7, 4, 1, 7, 0, 4, 9};
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=4", "cp=2,dp=2", "sbh", "sbh");
    c.dst.partition = true;
    c.buffer = buffer;
    c.batch = 4;
    c.seq = 8;
    bridge_bed bed = bed_create(&c);
    for (size_t i = 0; bed.bridge && i < sizeof batches / sizeof batches[0]; i++) {
        int64_t first, count, expected_first;
        bridge_bed now = bed;
        now.c.batch = batches[i];
        now.c.src.ragged = i == 7 ? 5 : 0;
        now.src = reference_of(&now.c.src, batches[i], c.seq);
        now.dst = reference_of(&now.c.dst, batches[i], c.seq);
        bed_move(&now, false, i);
        bed_move(&now, true, i);
        reference_release(&now.src);
        reference_release(&now.dst);
        MPI_EXPECT_OK(mimo_bridge_samples(&first, &count, bed.bridge, MIMO_SRC, batches[i]));
        int64_t held = reference_samples(&c.src, batches[i], mpi_test_rank(), &expected_first);
        MPI_EXPECT(first == expected_first && count == held, "samples [%d, +%d) of %d", (int)first,
                   (int)count, (int)batches[i]);
    }
    bed_destroy(&bed);
}

/* One batch, of which each call has another split on the dst side alone. A rank with as many
 * samples as before may hold others. */
BED_TEST(routed_general, cuts_that_change)
{
    test_agree_on_data();
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "dp=4", "dp=4", "sbh", "sbh");
    c.buffer = buffer;
    c.batch = 8;
    c.seq = 2;
    bridge_bed bed = bed_create(&c);
    for (uint64_t i = 0; bed.bridge && i < 12; i++) {
        bridge_bed now = bed;
        now.c.dst.ragged = i % 6;
        now.dst = reference_of(&now.c.dst, c.batch, c.seq);
        bed_move(&now, false, i);
        bed_move(&now, true, i);
        reference_release(&now.dst);
    }
    bed_destroy(&bed);
}

/* Two tensors in one call. The second one has more samples, on the dst side alone. */
static mimo_status forward_uneven(const bridge_bed *bed, int64_t src_batch, int64_t dst_batch)
{
    enum { BYTES = 64 * sizeof(float) };
    test_room from = test_room_new(BYTES);
    test_room to = bed->c.buffer ? test_shared_room_new(BYTES) : test_room_new(BYTES);
    mimo_tensor source = test_view(&from, MIMO_F32, "sbh", 2, src_batch, 3);
    mimo_tensor sources[] = {source, source};
    mimo_tensor targets[] = {test_view(&to, MIMO_F32, "sbh", 2, dst_batch, 3),
                             test_view(&to, MIMO_F32, "sbh", 2, dst_batch + 1, 3)};
    mimo_status status = mimo_bridge_forward(bed->bridge, targets, sources, 2, test_stream());
    test_room_free(&from);
    test_room_free(&to);
    return status;
}

/* Sizes that no batch split explains. Every rank gets the sentence, and the next call works. */
BED_TEST(routed_general, sizes_that_do_not_fit)
{
    test_agree_on_data();
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "tp=2,dp=2", "dp=2", "sbh", "sbh");
    c.dst.offset = 2;
    c.buffer = buffer;
    int rank = mpi_test_rank();
    int64_t dst = rank < 2 ? 0 : 2;
    bridge_bed bed = bed_create(&c);
    MPI_EXPECT_OK(forward(&bed, 2, dst));
    MPI_FAILS(forward(&bed, rank == 1 ? 3 : 2, dst), MIMO_ERR_SHAPE,
              "rank 1 holds 3 samples and rank 0, at the same dp coordinate 0, holds 2");
    MPI_FAILS(forward(&bed, rank < 2 ? 3 : 2, dst), MIMO_ERR_SHAPE,
              "hold 5 samples, the dst tiles 4");
    MPI_FAILS(forward(&bed, 2, rank == 0 ? 1 : dst), MIMO_ERR_SHAPE,
              "rank 0: bridge 1: dst tile is f32 sbh[2,1,3], and this rank has no dst rows");
    MPI_FAILS(
        forward_uneven(&bed, 2, dst), MIMO_ERR_SHAPE,
        "rank 0: bridge 1: tensor 1, src tile f32 sbh[2,2,3], is cut otherwise than tensor 0");
    MPI_EXPECT_OK(forward(&bed, rank < 2 ? 3 : 1, dst));
    bed_destroy(&bed);
}

/* On 4 ranks: a routed bridge between grids over the middle two, which pair. The others call its
 * accessors. */
MPI_TEST(routed_general, accessors_outside)
{
    bed_case c = {.src = {.grid = "tp=1,dp=2", .offset = 1},
                  .dst = {.grid = "tp=1,cp=2,dp=1", .offset = 1, .partition = true},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .executor = EXECUTOR_ROUTED};
    int64_t ranks[2], slot, start = -1, length = -1, rank = mpi_test_rank();
    mimo_status wanted = rank == 1 || rank == 2 ? MIMO_OK : MIMO_ERR_GRID;
    bridge_bed bed = bed_create(&c);
    MPI_EXPECT_STATUS(mimo_bridge_gather_group(ranks, &slot, bed.bridge), wanted);
    MPI_EXPECT_STATUS(mimo_bridge_slot_samples(&start, &length, bed.bridge, 4), wanted);
    if (wanted == MIMO_OK)
        MPI_EXPECT(slot == rank - 1 && start == slot * 2 && length == 2, "slot %d, [%d, +%d)",
                   (int)slot, (int)start, (int)length);
    else
        MPI_EXPECT(start == -1 && length == -1, "[%d, +%d)", (int)start, (int)length);
    bed_destroy(&bed);
}
