#include "bridge_bed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/float16.h"
#include "guarded.h"
#include "reference_grid.h"
#include "same_bits.h"

const bed_case bed_fan_in = {.src = {.grid = "dp=4"},
                             .dst = {.grid = "cp=2,dp=2", .partition = true},
                             .src_letters = "sbh",
                             .dst_letters = "sbh",
                             .buffer = true,
                             .batch = 4,
                             .seq = 8};

bed_case bed_case_of(executor_id executor, const char *src, const char *dst,
                     const char *src_letters, const char *dst_letters)
{
    return (bed_case){.src = {.grid = src},
                      .dst = {.grid = dst},
                      .src_letters = src_letters,
                      .dst_letters = dst_letters,
                      .executor = executor};
}

static void side_text(char *text, size_t room, const layout_case *side, const char *letters)
{
    snprintf(text, room, "%s@%" PRId64 " %s%s%s%s%s%s", side->grid, side->offset, letters,
             side->partition ? " cut" : "", side->sp ? " sp" : "", side->cu ? " packed" : "",
             side->ragged ? " ragged" : "", side->all_stages ? " all stages" : "");
}

int64_t bed_hidden(const bed_case *c)
{
    return c->hidden > 0 ? c->hidden : 3;
}

const char *bed_text(const bed_case *c)
{
    static char text[320];
    char src[128], dst[128];
    side_text(src, sizeof src, &c->src, c->src_letters);
    side_text(dst, sizeof dst, &c->dst, c->dst_letters);
    snprintf(text, sizeof text,
             "%s -> %s, B %" PRId64 " S %" PRId64 " %s, executor %d, %d%s, %d chunks", src, dst,
             c->batch, c->seq, mimo_dtype_name(c->dtype), (int)c->executor,
             (int)c->backward_executor, c->buffer ? " into a buffer" : "", c->chunks);
    return text;
}

static mimo_row_order order_of(const char *letters)
{
    return letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
}

static mimo_partition_rule rule_of(const layout_case *layout)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = layout->sp;
    rule.format = layout->cu ? MIMO_THD : MIMO_SBHD;
    rule.cu = layout->cu;
    rule.sequences = layout->sequences;
    return rule;
}

/* This rank gives the spans of the samples that it holds as dst. */
static void describe_spans(mimo_batch_desc *batch, const bridge_bed *bed, mimo_span *known)
{
    const layout_case *dst = &bed->c.dst;
    int64_t relative = mpi_test_rank() - dst->offset, first = 0, samples = 0;
    if (relative >= 0 && relative < ref_ranks(dst->grid))
        samples =
            reference_samples(dst, bed->c.batch, ref_coord(dst->grid, "dp", relative), &first);
    for (int64_t i = 0; i < dst->span_count; i++)
        if (dst->spans[i].sample >= first && dst->spans[i].sample < first + samples)
            known[batch->span_count++] = dst->spans[i];
    batch->batch = bed->c.batch;
    batch->ragged = true;
    batch->spans = known;
}

/* Every rank gives all items, and all spans. */
static void describe_items(mimo_batch_desc *batch, mimo_batch_items *items, const bridge_bed *bed)
{
    const layout_case *src = &bed->c.src, *dst = &bed->c.dst;
    *items = (mimo_batch_items)MIMO_BATCH_ITEMS_INIT;
    items->src = src->items;
    items->src_first = src->first_item;
    items->dst = dst->kind == MIMO_RAGGED_ITEMS ? dst->items : NULL;
    items->dst_first = dst->kind == MIMO_RAGGED_ITEMS ? dst->first_item : NULL;
    items->dst_packed = dst->kind == MIMO_RAGGED_PACKED;
    batch->batch = bed->c.batch;
    batch->ragged = true;
    batch->items = items;
    batch->spans = dst->spans;
    batch->span_count = dst->kind == MIMO_RAGGED_PLACED ? dst->span_count : 0;
}

static reference_tile held(const bridge_bed *bed, mimo_side side);

mimo_batch_desc bed_describe(const bridge_bed *bed, bed_given *given)
{
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    given->spans = calloc((size_t)bed->c.dst.span_count + 1, sizeof *given->spans);
    if (bed->c.src.kind == MIMO_RAGGED_ITEMS)
        describe_items(&batch, &given->items, bed);
    else if (bed->c.src.kind)
        describe_spans(&batch, bed, given->spans);
    if (bed->c.given)
        batch.batch = bed->c.batch;
    if (bed->c.rows) {
        batch.src_rows = held(bed, MIMO_SRC).rows;
        batch.dst_rows = held(bed, MIMO_DST).rows;
    }
    return batch;
}

void bed_update(const bridge_bed *bed)
{
    bed_given given;
    mimo_batch_desc batch = bed_describe(bed, &given);
    MPI_EXPECT_OK(mimo_bridge_update(bed->bridge, &batch, 1));
    free(given.spans);
}

void bed_draw_grid(uint64_t *random, char text[64], int64_t *offset)
{
    const char *dims[] = {"tp", "cp", "dp", "pp", "ep"};
    int64_t ranks = 1, limit = mpi_test_size();
    size_t used = (size_t)snprintf(text, 64, "x=1");
    for (int i = 0; i < 5; i++) {
        int64_t j = i + random_below(random, 5 - i), size = 1 + random_below(random, 4);
        const char *dim = dims[j];
        dims[j] = dims[i];
        if (ranks * size > limit)
            size = 1;
        ranks *= size;
        used += (size_t)snprintf(text + used, 64 - used, ",%s=%d%s", dim, (int)size,
                                 dim[0] == 'e' ? ":copies" : "");
    }
    *offset = random_below(random, limit - ranks + 1);
}

bridge_bed bed_create(const bed_case *c)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_partition_rule src_rule = rule_of(&c->src), dst_rule = rule_of(&c->dst);
    bridge_bed made = {.c = *c};
    made.c.src.order = order_of(c->src_letters);
    made.c.dst.order = order_of(c->dst_letters);
    made.c.dst.partial = true;
    made.src = reference_of(&made.c.src, c->batch, c->seq);
    made.dst = reference_of(&made.c.dst, c->batch, c->seq);
    MPI_EXPECT_OK(mimo_grid_create_text(&made.src_grid, c->src.grid, c->src.offset));
    MPI_EXPECT_OK(mimo_grid_create_text(&made.dst_grid, c->dst.grid, c->dst.offset));
    desc.src = made.src_grid;
    desc.dst = made.dst_grid;
    desc.src_partition = c->src.partition ? &src_rule : NULL;
    desc.partition = c->dst.partition ? &dst_rule : NULL;
    desc.all_stages = c->dst.all_stages;
    desc.destinations_idle = c->idle;
    desc.ctas = c->ctas;
    desc.batch = c->given ? c->batch : -1;
    desc.executor = executor_of(c->buffer ? EXECUTOR_ZERO_COPY : c->executor);
    desc.backward_executor = executor_of(c->backward_executor);
    mimo_status status = mimo_bridge_create(&made.bridge, mpi_test_comm(), &desc);
    MPI_EXPECT(status == MIMO_OK, "%s: %s", bed_text(c), mimo_last_error());
    if (made.bridge && (c->src.kind || c->rows))
        bed_update(&made);
    return made;
}

void bed_destroy(bridge_bed *bed)
{
    if (bed->bridge)
        test_rooms_free(bed->bridge);
    mimo_bridge_destroy(bed->bridge);
    mimo_grid_destroy(bed->src_grid);
    mimo_grid_destroy(bed->dst_grid);
    reference_release(&bed->src);
    reference_release(&bed->dst);
}

/* ------------------------------------- tiles -------------------------------------- */

static const reference_layout *layout_on(const bridge_bed *bed, mimo_side side)
{
    return side == MIMO_SRC ? &bed->src : &bed->dst;
}

/* This rank's rows on a side. It has none where it has no role there. */
static reference_tile held(const bridge_bed *bed, mimo_side side)
{
    const reference_layout *layout = layout_on(bed, side);
    int rank = mpi_test_rank();
    return rank < layout->end ? layout->tiles[rank] : (reference_tile){0};
}

static int64_t positions(const bridge_bed *bed, mimo_side side)
{
    const layout_case *cut = side == MIMO_SRC ? &bed->c.src : &bed->c.dst;
    int64_t ranks = ref_size(cut->grid, "cp") * (cut->sp ? ref_size(cut->grid, "tp") : 1);
    return cut->partition ? bed->c.seq / ranks : bed->c.seq;
}

/* The library says what tile this rank has, where batches are split evenly. The calls of the bed
 * then show that they take it. */
static void expect_tile(const bridge_bed *bed, mimo_side side, const mimo_tensor *tile)
{
    char text[128], expected[128];
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    mimo_tensor said = *tile;
    sizes.batch = bed->c.given || bed->c.src.kind || bed->c.rows ? -1 : bed->c.batch;
    sizes.seq = bed->c.src.cu || bed->c.dst.cu ? 0 : bed->c.seq;
    sizes.hidden = bed_hidden(&bed->c);
    sizes.dtype = bed->c.dtype;
    sizes.src_letters = bed->c.src_letters;
    sizes.dst_letters = bed->c.dst_letters;
    MPI_EXPECT_OK(mimo_bridge_tile(&said, bed->bridge, side, &sizes));
    bool same = memcmp(said.shape, tile->shape, sizeof said.shape) == 0;
    MPI_EXPECT(same && !said.data && said.memory == tile->memory && said.dtype == tile->dtype &&
                   strcmp(said.letters, tile->letters) == 0,
               "%s: side %d is %s, and mimo_bridge_tile says %s", bed_text(&bed->c), (int)side,
               mimo_tensor_text(expected, sizeof expected, tile),
               mimo_tensor_text(text, sizeof text, &said));
}

/* So does it of spans: this rank has those of its samples, whichever ranks gave them. */
static void expect_spans(const bridge_bed *bed)
{
    const layout_case *dst = &bed->c.dst;
    bool holds = held(bed, MIMO_DST).rows > 0;
    int64_t d = holds ? ref_coord(dst->grid, "dp", mpi_test_rank() - dst->offset) : 0;
    int64_t first, samples = reference_samples(dst, bed->c.batch, d, &first), at = 0, found = 0;
    mimo_span *spans = calloc((size_t)dst->span_count + 1, sizeof *spans);
    MPI_EXPECT_OK(mimo_bridge_spans(&found, spans, dst->span_count, bed->bridge));
    for (int64_t i = 0; holds && i < dst->span_count; i++)
        if (dst->spans[i].sample >= first && dst->spans[i].sample < first + samples) {
            MPI_EXPECT(memcmp(&spans[at], &dst->spans[i], sizeof *spans) == 0,
                       "%s: span %d begins at %" PRId64 ", not at %" PRId64, bed_text(&bed->c),
                       (int)at, spans[at].position, dst->spans[i].position);
            at++;
        }
    MPI_EXPECT(found == at, "%s: %d spans, not %d", bed_text(&bed->c), (int)found, (int)at);
    free(spans);
}

static test_tile shape_tile(const bridge_bed *bed, mimo_side side, bool shared)
{
    const char *letters = side == MIMO_SRC ? bed->c.src_letters : bed->c.dst_letters;
    int64_t rows = held(bed, side).rows, s = positions(bed, side), b = s > 0 ? rows / s : 0;
    test_tile (*make)(const char *, mimo_dtype, int64_t, int64_t, int64_t) =
        shared ? test_shared_tile_new : test_tile_new;
    if (strcmp(letters, "sbh") == 0)
        return make(letters, bed->c.dtype, s, b, bed_hidden(&bed->c));
    if (strcmp(letters, "bsh") == 0)
        return make(letters, bed->c.dtype, b, s, bed_hidden(&bed->c));
    return make(letters, bed->c.dtype, rows, bed_hidden(&bed->c), 1);
}

static test_tile tile_new(const bridge_bed *bed, mimo_side side, bool shared)
{
    test_tile made = shape_tile(bed, side, shared);
    if (bed->bridge && (bed->c.rows || !(side == MIMO_SRC ? bed->c.src : bed->c.dst).ragged))
        expect_tile(bed, side, &made.view);
    if (bed->bridge && side == MIMO_DST && bed->c.dst.kind == MIMO_RAGGED_PLACED)
        expect_spans(bed);
    test_room_own(&made.room, bed->bridge);
    return made;
}

test_tile bed_tile_new(const bridge_bed *bed, mimo_side side)
{
    return tile_new(bed, side, false);
}

test_tile bed_target_new(const bridge_bed *bed, mimo_side side)
{
    return tile_new(bed, side, bed->c.buffer);
}

/* ------------------------------------ elements ------------------------------------ */

static void store_number(void *to, int64_t number, mimo_dtype dtype)
{
    switch (dtype) {
    case MIMO_F32:
        *(float *)to = (float)number;
        break;
    case MIMO_F64:
        *(double *)to = (double)number;
        break;
    case MIMO_F16:
        *(uint16_t *)to = mimo_f16_from((float)number);
        break;
    case MIMO_BF16:
        *(uint16_t *)to = mimo_bf16_from((float)number);
        break;
    case MIMO_I32:
        *(int32_t *)to = (int32_t)number;
        break;
    case MIMO_I64:
        *(int64_t *)to = number;
        break;
    default:
        *(char *)to = (char)number;
    }
}

/* A small number, so that sums are exact in every dtype. */
static int64_t number_of(uint64_t word, int64_t contribution)
{
    return (int64_t)(word >> (8 * contribution) & 7) - 3;
}

typedef struct element {
    int64_t contribution, classes; /* the class of a contribution; the number of classes */
    bool sums;
    uint64_t word;
    mimo_dtype dtype;
} element;

/* What a source holds. */
static void source_element(void *to, const element *e)
{
    memset(to, 0, mimo_dtype_size(e->dtype));
    if (e->sums)
        store_number(to, number_of(e->word, e->contribution), e->dtype);
    else if ((int64_t)(e->word >> 9) % e->classes == e->contribution)
        ref_store(to, e->word, (int64_t)mimo_dtype_size(e->dtype));
}

/* What the target gets: the sum over the classes. */
static void target_element(void *to, const element *e)
{
    int64_t sum = 0;
    for (int64_t contribution = 0; contribution < e->classes; contribution++)
        sum += number_of(e->word, contribution);
    if (e->sums)
        store_number(to, sum, e->dtype);
    else
        ref_store(to, e->word, (int64_t)mimo_dtype_size(e->dtype));
}

typedef enum tile_use { FILL, CHECK_SOURCE, CHECK_TARGET, CHECK_POISON } tile_use;

/* Whether samples are split by counting rows: both sides have flat tiles, and no packing determines
 * S. */
static bool counts_rows(const bed_case *c)
{
    return c->src_letters[1] == 'h' && c->dst_letters[1] == 'h' && !c->src.cu && !c->dst.cu &&
           !c->src.kind;
}

/* The chunk of a call that brings a row of this rank's target. */
static int chunk_of(const bridge_bed *bed, mimo_side target, const reference_tile *rows,
                    int64_t row)
{
    int chunk = 0;
    if (!counts_rows(&bed->c))
        return (int)reference_chunk(target == MIMO_SRC ? &bed->c.src : &bed->c.dst, bed->c.batch,
                                    rows->b[row], rows->s[row], bed->c.chunks);
    while ((chunk + 1) * rows->rows / bed->c.chunks <= row)
        chunk++;
    return chunk;
}

/* Visit all rows, or those of a chunk. */
static void visit(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed,
                  tile_use use, int chunk)
{
    mimo_side source = backward ? MIMO_DST : MIMO_SRC, target = backward ? MIMO_SRC : MIMO_DST;
    bool in_target = use == CHECK_TARGET || use == CHECK_POISON;
    reference_tile rows = held(bed, in_target ? target : source);
    int64_t bytes = (int64_t)mimo_dtype_size(bed->c.dtype), hidden = bed_hidden(&bed->c);
    bit_report report = {.element = bytes, .columns = hidden};
    element e = {.contribution = backward ? rows.contribution : 0,
                 .classes = backward ? layout_on(bed, source)->classes : 1,
                 .sums = bed->c.sums && backward,
                 .dtype = bed->c.dtype};
    for (int64_t row = 0; row < rows.rows; row++)
        for (int64_t h = 0; h < hidden; h++) {
            char expected[8];
            char *at = (char *)tile->room.host + (row * hidden + h) * bytes;
            e.word = ref_word(seed, rows.b[row], rows.s[row], h);
            if (chunk >= 0 && (rows.b[row] < 0 || chunk_of(bed, target, &rows, row) != chunk))
                continue;
            if (rows.b[row] < 0 || use == CHECK_POISON) /* in no span, or not written yet */
                memset(expected, GUARD_POISON, sizeof expected);
            else if (use == CHECK_TARGET)
                target_element(expected, &e);
            else
                source_element(expected, &e);
            if (use == FILL)
                memcpy(at, expected, (size_t)bytes);
            bits_note(&report, row * hidden + h, at, expected);
        }
    MPI_EXPECT_BITS(report, "%s %s, the %s", backward ? "backward" : "forward", bed_text(&bed->c),
                    in_target ? "target" : "source");
}

bit_report bed_bits(const bridge_bed *bed, const test_tile *got, const test_tile *expected)
{
    return bits_of(got->room.host, expected->room.host, expected->room.bytes,
                   (int64_t)mimo_dtype_size(bed->c.dtype), bed_hidden(&bed->c));
}

void bed_fill(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed)
{
    visit(bed, tile, backward, seed, FILL, -1);
    test_push(&tile->room);
}

void bed_check_source(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed)
{
    test_pull(&tile->room);
    visit(bed, tile, backward, seed, CHECK_SOURCE, -1);
}

void bed_check_target(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed)
{
    test_pull(&tile->room);
    visit(bed, tile, backward, seed, CHECK_TARGET, -1);
}

void bed_check_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, uint64_t seed,
                     int chunk)
{
    test_pull(&tile->room);
    visit(bed, tile, backward, seed, CHECK_TARGET, chunk);
}

void bed_check_no_chunk(const bridge_bed *bed, const test_tile *tile, bool backward, int chunk)
{
    test_pull(&tile->room);
    visit(bed, tile, backward, 0, CHECK_POISON, chunk);
}

/* ------------------------------------- moves -------------------------------------- */

mimo_status bed_start_chunked(mimo_op **out, const bridge_bed *bed, bool backward,
                              const test_tile *to, const test_tile *from)
{
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = &to->view;
    move.from = &from->view;
    move.n = 1;
    move.chunks = bed->c.chunks;
    move.stream = test_side_stream();
    return (backward ? mimo_bridge_backward_start_chunked
                     : mimo_bridge_forward_start_chunked)(out, bed->bridge, &move);
}

/* Each chunk is checked before the next one is waited for. */
static mimo_status move_in_chunks(const bridge_bed *bed, bool backward, uint64_t seed,
                                  const test_tile *to, const test_tile *from)
{
    mimo_op *op = NULL;
    mimo_status status = bed_start_chunked(&op, bed, backward, to, from);
    for (int chunk = 0; status == MIMO_OK && chunk < bed->c.chunks; chunk++) {
        status = mimo_op_wait_chunk(op, chunk, test_stream());
        if (status == MIMO_OK)
            bed_check_chunk(bed, to, backward, seed, chunk);
    }
    mimo_status ended = mimo_op_wait(&op);
    return status == MIMO_OK ? ended : status;
}

mimo_status bed_call(const bridge_bed *bed, bool backward, const test_tile *to,
                     const test_tile *from)
{
    return (backward ? mimo_bridge_backward : mimo_bridge_forward)(bed->bridge, &to->view,
                                                                   &from->view, 1, test_stream());
}

/* Rows arrive with the same bits, guarded or not at either end. */
static void guard_or_not(void)
{
    static const mpi_test *test;
    static int64_t moves;
    if (test != mpi_test_running()) /* a test draws the same in a launch of its own */
        moves = 0;
    test = mpi_test_running();
    mpi_test_guard(mpi_test_comm(), ref_word(7, moves++, mpi_test_rank(), 0) % 2);
}

void bed_move(const bridge_bed *bed, bool backward, uint64_t seed)
{
    guard_or_not();
    test_tile from = bed_tile_new(bed, backward ? MIMO_DST : MIMO_SRC);
    test_tile to = bed_target_new(bed, backward ? MIMO_SRC : MIMO_DST);
    bed_fill(bed, &from, backward, seed);
    mimo_status status = bed->c.chunks > 0 ? move_in_chunks(bed, backward, seed, &to, &from)
                                           : bed_call(bed, backward, &to, &from);
    MPI_EXPECT(status == MIMO_OK, "%s: %s", bed_text(&bed->c), mimo_last_error());
    bed_check_target(bed, &to, backward, seed);
    bed_check_source(bed, &from, backward, seed);
    test_tile_free(&from);
    test_tile_free(&to);
}
