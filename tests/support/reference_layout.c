#include "reference_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_grid.h"

/* Samples are split in order of the coordinates. The first `batch` mod dp of these get one more. */
static int64_t deal(int64_t batch, int64_t dp, int64_t d, int64_t *first)
{
    int64_t next = 0, count = 0;
    for (int64_t i = 0; i <= d; i++) {
        *first = next;
        count = batch / dp + (i < batch % dp ? 1 : 0);
        next += count;
    }
    return count;
}

/* Where a coordinate's samples begin in a random split: the d-th smallest of dp - 1 random
 * numbers. */
static int64_t random_begin(uint64_t seed, int64_t batch, int64_t dp, int64_t d)
{
    int64_t before = 0;
    for (int64_t place = 0; d > 0 && place <= batch; place++) {
        for (int64_t i = 1; i < dp; i++)
            before += (int64_t)(ref_word(seed, i, 0, 0) % (uint64_t)(batch + 1)) == place;
        if (before >= d)
            return place;
    }
    return d > 0 ? batch : 0;
}

int64_t reference_samples(const layout_case *layout, int64_t batch, int64_t d, int64_t *first)
{
    int64_t dp = ref_size(layout->grid, "dp");
    if (!layout->ragged)
        return deal(batch, dp, d, first);
    *first = random_begin(layout->ragged, batch, dp, d);
    return random_begin(layout->ragged, batch, dp, d + 1) - *first;
}

static bool in_item(const mimo_item *item, int64_t sample, int64_t row)
{
    return item->sample == sample && row >= item->row && row < item->row + item->rows;
}

int64_t reference_chunk(const layout_case *layout, int64_t batch, int64_t sample, int64_t row,
                        int64_t chunks)
{
    int64_t first = 0, held = 0, d = -1, chunk = 0, at = sample;
    if (layout->kind == MIMO_RAGGED_ITEMS) {
        for (at = 0; !in_item(&layout->items[at], sample, row);)
            at++;
        for (d = 0; at >= layout->first_item[d + 1];)
            d++;
        first = layout->first_item[d];
        held = layout->first_item[d + 1] - first;
    }
    while (at >= first + held)
        held = reference_samples(layout, batch, ++d, &first);
    while ((chunk + 1) * held / chunks <= at - first)
        chunk++;
    return chunk;
}

/* The global position of local row j of a cp shard: docs/concepts.md, "Sequence partition". */
static int64_t packed_position(const layout_case *layout, int64_t cp, int64_t c, int64_t j)
{
    int64_t s = 0;
    while (layout->cu[s + 1] / cp <= j)
        s++;
    int64_t begin = layout->cu[s] / cp, length = layout->cu[s + 1] / cp - begin, i = j - begin;
    if (cp == 1)
        return j;
    return i + begin * cp + length / 2 * (i < length / 2 ? c : 2 * (cp - 1) - c);
}

static int64_t position_of(const layout_case *layout, int64_t relative, int64_t seq, int64_t i)
{
    const char *grid = layout->grid;
    int64_t cp = ref_size(grid, "cp"), tp = ref_size(grid, "tp");
    if (!layout->partition)
        return i;
    if (!layout->cu)
        return ref_position(grid, relative, seq, layout->sp, i);
    int64_t skipped = layout->sp ? ref_coord(grid, "tp", relative) * (seq / (cp * tp)) : 0;
    return packed_position(layout, cp, ref_coord(grid, "cp", relative), skipped + i);
}

/* From here on `relative` counts from the grid's first rank. */

static bool holds(const layout_case *layout, int64_t relative)
{
    return layout->all_stages || ref_coord(layout->grid, "pp", relative) == 0;
}

/* The coordinates along the contributing dimensions, in grid order. The first varies fastest. */
static int64_t class_of(const layout_case *layout, int64_t relative)
{
    const char *grid = layout->grid;
    bool cp = layout->partial && !layout->partition, pp = layout->partial && layout->all_stages;
    int64_t cp_at = cp ? ref_coord(grid, "cp", relative) : 0;
    int64_t pp_at = pp ? ref_coord(grid, "pp", relative) : 0;
    const char *cp_name = strstr(grid, "cp="), *pp_name = strstr(grid, "pp=");
    if (cp_name && pp_name && pp_name < cp_name)
        return pp_at + cp_at * (pp ? ref_size(grid, "pp") : 1);
    return cp_at + pp_at * (cp ? ref_size(grid, "cp") : 1);
}

/* Positions become rows of the modality, or no row. */
static void keep_spans(reference_tile *tile, const layout_case *layout)
{
    for (int64_t row = 0; row < tile->rows; row++) {
        int64_t b = tile->b[row], position = tile->s[row];
        tile->b[row] = -1;
        for (int64_t i = 0; i < layout->span_count; i++) {
            const mimo_span *span = &layout->spans[i];
            if (span->sample == b && position >= span->position &&
                position < span->position + span->length) {
                tile->b[row] = b;
                tile->s[row] = span->row + position - span->position;
            }
        }
    }
}

/* All rows of samples [b0, b0 + nb), one after the other. */
static void list_packed(reference_tile *tile, const layout_case *layout, int64_t b0, int64_t nb)
{
    tile->rows = 0;
    for (int64_t i = 0; i < layout->span_count; i++)
        if (layout->spans[i].sample >= b0 && layout->spans[i].sample < b0 + nb)
            tile->rows += layout->spans[i].length;
    tile->b = calloc((size_t)tile->rows + 1, sizeof *tile->b);
    tile->s = calloc((size_t)tile->rows + 1, sizeof *tile->s);
    int64_t row = 0;
    for (int64_t i = 0; i < layout->span_count; i++) {
        const mimo_span *span = &layout->spans[i];
        for (int64_t j = 0; j < span->length; j++)
            if (span->sample >= b0 && span->sample < b0 + nb) {
                tile->b[row] = span->sample;
                tile->s[row++] = span->row + j;
            }
    }
}

/* The items of a dp coordinate, one after the other. */
static void list_items(reference_tile *tile, const layout_case *layout, int64_t d)
{
    tile->rows = 0;
    for (int64_t i = layout->first_item[d]; i < layout->first_item[d + 1]; i++)
        tile->rows += layout->items[i].rows;
    tile->b = calloc((size_t)tile->rows + 1, sizeof *tile->b);
    tile->s = calloc((size_t)tile->rows + 1, sizeof *tile->s);
    int64_t row = 0;
    for (int64_t i = layout->first_item[d]; i < layout->first_item[d + 1]; i++)
        for (int64_t j = 0; j < layout->items[i].rows; j++) {
            tile->b[row] = layout->items[i].sample;
            tile->s[row++] = layout->items[i].row + j;
        }
}

static void fill_tile(reference_tile *tile, const layout_case *layout,
                      const reference_layout *reference, int64_t relative)
{
    const char *grid = layout->grid;
    int64_t seq = reference->seq, b0 = 0, ns = seq;
    int64_t nb = reference_samples(layout, reference->batch, ref_coord(grid, "dp", relative), &b0);
    tile->contribution = class_of(layout, relative);
    if (layout->kind == MIMO_RAGGED_ITEMS) {
        list_items(tile, layout, ref_coord(grid, "dp", relative));
        return;
    }
    if (layout->kind == MIMO_RAGGED_PACKED) {
        list_packed(tile, layout, b0, nb);
        return;
    }
    if (layout->partition)
        ns = seq / ref_size(grid, "cp") / (layout->sp ? ref_size(grid, "tp") : 1);
    tile->rows = nb * ns;
    tile->b = calloc((size_t)tile->rows + 1, sizeof *tile->b);
    tile->s = calloc((size_t)tile->rows + 1, sizeof *tile->s);
    for (int64_t i = 0; i < ns; i++) {
        int64_t s = position_of(layout, relative, seq, i);
        for (int64_t j = 0; j < nb; j++) {
            int64_t row = layout->order == MIMO_ROWS_SBH ? i * nb + j : j * ns + i;
            tile->b[row] = b0 + j;
            tile->s[row] = s;
        }
    }
    if (layout->kind == MIMO_RAGGED_PLACED)
        keep_spans(tile, layout);
}

reference_layout reference_of(const layout_case *layout, int64_t batch, int64_t seq)
{
    reference_layout reference = {batch, seq, layout->offset + ref_ranks(layout->grid), 1, NULL};
    if (layout->partial && !layout->partition)
        reference.classes = ref_size(layout->grid, "cp");
    if (layout->partial && layout->all_stages)
        reference.classes *= ref_size(layout->grid, "pp");
    reference.tiles = calloc((size_t)reference.end, sizeof *reference.tiles);
    for (int64_t rank = layout->offset; rank < reference.end; rank++)
        if (holds(layout, rank - layout->offset))
            fill_tile(&reference.tiles[rank], layout, &reference, rank - layout->offset);
    return reference;
}

void reference_release(reference_layout *reference)
{
    for (int64_t rank = 0; rank < reference->end; rank++) {
        free(reference->tiles[rank].b);
        free(reference->tiles[rank].s);
    }
    free(reference->tiles);
}

static void must(mimo_status status, const char *what)
{
    if (status == MIMO_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, mimo_last_error());
    abort();
}

mimo_layout *layout_of(const layout_case *layout, int64_t batch, int64_t seq, mimo_grid **grid)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *made = NULL;
    must(mimo_grid_create_text(grid, layout->grid, layout->offset), layout->grid);
    int64_t dp = ref_size(layout->grid, "dp"), first;
    int64_t *samples = calloc((size_t)dp, sizeof *samples);
    for (int64_t d = 0; d < dp; d++)
        samples[d] = reference_samples(layout, batch, d, &first);
    rule.sp = layout->sp;
    rule.format = layout->cu ? MIMO_THD : MIMO_SBHD;
    rule.cu = layout->cu;
    rule.sequences = layout->sequences;
    desc.samples = layout->ragged ? samples : NULL;
    desc.all_stages = layout->all_stages;
    desc.ragged = layout->kind;
    desc.spans = layout->spans;
    desc.span_count = layout->span_count;
    desc.items = layout->items;
    desc.first_item = layout->first_item;
    desc.grid = *grid;
    desc.order = layout->order;
    desc.batch = batch;
    desc.seq = seq;
    desc.partition = layout->partition ? &rule : NULL;
    desc.cp_copies = layout->partial ? MIMO_COPIES_PARTIAL : MIMO_COPIES_EQUAL;
    must(mimo_layout_create(&made, &desc), layout->grid);
    free(samples);
    return made;
}
