/* Ragged layouts: the rows of one modality, each sample with its own number, packed one after the
 * other or at their positions in a sequence. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/search.h"

/* ----------------------------------------- creation ----------------------------------------- */

/* One span behind another: the next rows of the sample, at positions of their own. */
static mimo_status check_span(const mimo_layout_desc *desc, int64_t i)
{
    const mimo_span *span = &desc->spans[i], *before = i > 0 ? span - 1 : NULL;
    bool follows = before && before->sample == span->sample;
    MIMO_CHECK(span->sample >= 0 && span->sample < desc->batch &&
                   (!before || before->sample <= span->sample),
               MIMO_ERR_SHAPE,
               "span %" PRId64 ": sample %" PRId64 " is out of order, or not one of %" PRId64, i,
               span->sample, desc->batch);
    MIMO_CHECK(span->length > 0 && span->position >= 0 && span->position <= desc->seq &&
                   span->length <= desc->seq - span->position,
               MIMO_ERR_SHAPE,
               "span %" PRId64 " of sample %" PRId64 ": %" PRId64 " rows at position %" PRId64
               " do not lie in %" PRId64 " positions",
               i, span->sample, span->length, span->position, desc->seq);
    int64_t row = follows ? before->row + before->length : 0;
    MIMO_CHECK(span->row == row, MIMO_ERR_SHAPE,
               "span %" PRId64 " of sample %" PRId64 " begins with row %" PRId64
               " at position %" PRId64 ", and must with row %" PRId64,
               i, span->sample, span->row, span->position, row);
    return MIMO_OK;
}

static int by_position(const void *left, const void *right)
{
    const mimo_span *a = left, *b = right;
    if (a->sample != b->sample)
        return a->sample < b->sample ? -1 : 1;
    return (a->position > b->position) - (a->position < b->position);
}

static const mimo_span *find_overlap(const mimo_span *spans, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (spans[i].sample == spans[i - 1].sample &&
            spans[i].position < spans[i - 1].position + spans[i - 1].length)
            return &spans[i];
    return NULL;
}

/* Spans of a pack come in another order than their positions (mimo_spans_pack); others ascend. */
static mimo_status check_overlaps(const mimo_layout_desc *desc)
{
    mimo_span *sorted;
    if (!find_overlap(desc->spans, desc->span_count))
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&sorted, desc->span_count, sizeof *sorted));
    memcpy(sorted, desc->spans, (size_t)desc->span_count * sizeof *sorted);
    qsort(sorted, (size_t)desc->span_count, sizeof *sorted, by_position);
    const mimo_span *found = find_overlap(sorted, desc->span_count);
    mimo_status status =
        found ? mimo_fail(MIMO_ERR_SHAPE,
                          "spans of sample %" PRId64 " overlap: rows from %" PRId64
                          " on begin at position %" PRId64 ", where another span lies",
                          found->sample, found->row, found->position)
              : MIMO_OK;
    mimo_release(sorted);
    return status;
}

static mimo_status check_desc(const mimo_layout_desc *desc)
{
    bool packed = desc->ragged == MIMO_RAGGED_PACKED;
    const mimo_partition_rule *rule = desc->partition;
    bool items = desc->ragged == MIMO_RAGGED_ITEMS;
    MIMO_CHECK(packed || items || desc->ragged == MIMO_RAGGED_PLACED, MIMO_ERR_ARGUMENT,
               "layout: unknown kind of ragged %d", (int)desc->ragged);
    MIMO_CHECK(desc->span_count >= 0 && (desc->spans || desc->span_count == 0), MIMO_ERR_ARGUMENT,
               "layout: %" PRId64 " spans%s", desc->span_count, desc->spans ? "" : ", NULL");
    MIMO_CHECK(!items || desc->span_count == 0, MIMO_ERR_ARGUMENT,
               "layout: %" PRId64 " spans, and the rows are those of items", desc->span_count);
    MIMO_CHECK(!rule || (!packed && !items && rule->format == MIMO_SBHD), MIMO_ERR_UNSUPPORTED,
               "layout: ragged rows are placed under an sbhd partition, or packed or items without "
               "one");
    for (int64_t i = 0; i < desc->span_count; i++)
        MIMO_TRY(check_span(desc, i));
    return check_overlaps(desc);
}

mimo_status mimo_ragged_fill(mimo_layout *layout, const mimo_layout_desc *desc)
{
    mimo_ragged_rows *rows = &layout->ragged;
    if (desc->ragged == MIMO_RAGGED_NOT)
        return MIMO_OK;
    int64_t ends; /* of samples: without positions, a batch may have any size */
    MIMO_TRY(check_desc(desc));
    MIMO_TRY(mimo_add(&ends, desc->batch, 1));
    MIMO_TRY(mimo_reserve(&rows->spans, desc->span_count, sizeof *rows->spans));
    MIMO_TRY(mimo_reserve(&rows->first_span, ends, sizeof(int64_t)));
    MIMO_TRY(mimo_reserve(&rows->first_row, ends, sizeof(int64_t)));
    rows->kind = desc->ragged;
    if (rows->kind == MIMO_RAGGED_ITEMS)
        return mimo_items_fill(layout, desc);
    for (int64_t i = 0; i < desc->span_count; i++) {
        const mimo_span *span = &desc->spans[i];
        rows->spans[i] = *span;
        rows->first_span[span->sample + 1]++;
        rows->first_row[span->sample + 1] += span->length;
    }
    for (int64_t b = 0; b < desc->batch; b++) {
        rows->first_span[b + 1] += rows->first_span[b];
        rows->first_row[b + 1] += rows->first_row[b];
    }
    return MIMO_OK;
}

void mimo_ragged_release(mimo_ragged_rows *rows)
{
    mimo_release(rows->spans);
    mimo_release(rows->first_span);
    mimo_release(rows->first_row);
    mimo_release(rows->items);
    mimo_release(rows->in_tile);
    mimo_release(rows->first_item);
}

/* ------------------------------------------ boxes ------------------------------------------- */

int64_t mimo_ragged_rows_of(const mimo_layout *layout, int64_t dp)
{
    const int64_t *first = layout->ragged.first_row;
    mimo_range samples = mimo_layout_samples(layout, dp);
    if (layout->ragged.kind == MIMO_RAGGED_ITEMS) {
        int64_t count = mimo_items_count(layout, dp);
        const mimo_placed_item *last = count > 0 ? mimo_items_at(layout, dp, count - 1) : NULL;
        return last ? last->first + last->item.rows : 0;
    }
    return first[samples.first + samples.count] - first[samples.first];
}

int64_t mimo_ragged_pieces(const mimo_layout *layout, const mimo_cell *cell)
{
    const int64_t *first = layout->ragged.first_span;
    mimo_range samples = mimo_layout_samples(layout, cell->dp);
    if (layout->ragged.kind == MIMO_RAGGED_ITEMS)
        return mimo_items_count(layout, cell->dp);
    if (layout->ragged.kind == MIMO_RAGGED_PACKED)
        return samples.count;
    return first[samples.first + samples.count] - first[samples.first];
}

/* All rows of a sample, which lie behind those of the samples before it. */
static int packed_box(const mimo_layout *layout, mimo_range samples, int64_t sample, mimo_box *box)
{
    const int64_t *first = layout->ragged.first_row;
    int64_t rows = mimo_ragged_sample_rows(layout, sample);
    *box = (mimo_box){.b0 = sample,
                      .nb = 1,
                      .ns = rows,
                      .row0 = first[sample] - first[samples.first],
                      .row_b = rows,
                      .row_s = 1};
    return rows > 0;
}

/* The rows of a span that lie in a run of the rank's positions. */
static int placed_box(const mimo_layout *layout, mimo_range samples, const mimo_span *span,
                      const mimo_run *run, mimo_box *box)
{
    int64_t begin = span->position > run->global ? span->position : run->global;
    int64_t end = span->position + span->length;
    bool sbh = layout->order == MIMO_ROWS_SBH;
    if (end > run->global + run->length)
        end = run->global + run->length;
    if (begin >= end)
        return 0;
    *box = (mimo_box){.b0 = span->sample,
                      .nb = 1,
                      .s0 = span->row + (begin - span->position),
                      .ns = end - begin,
                      .row_b = sbh ? 1 : layout->shard,
                      .row_s = sbh ? samples.count : 1};
    box->row0 = (span->sample - samples.first) * box->row_b +
                (run->local + (begin - run->global)) * box->row_s;
    return 1;
}

int mimo_ragged_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t piece,
                      mimo_box *boxes)
{
    mimo_run runs[MIMO_LAYOUT_BOXES];
    mimo_range samples = mimo_layout_samples(layout, cell->dp);
    const mimo_ragged_rows *rows = &layout->ragged;
    if (rows->kind == MIMO_RAGGED_ITEMS) {
        boxes[0] = mimo_items_box(mimo_items_at(layout, cell->dp, piece));
        return 1;
    }
    if (rows->kind == MIMO_RAGGED_PACKED)
        return packed_box(layout, samples, samples.first + piece, boxes);
    const mimo_span *span = &rows->spans[rows->first_span[samples.first] + piece];
    int found = mimo_layout_cell_runs(layout, cell, 0, runs), count = 0;
    for (int i = 0; i < found; i++)
        count += placed_box(layout, samples, span, &runs[i], &boxes[count]);
    return count;
}

/* The span of a sample that has a row. */
static int64_t span_of(const mimo_ragged_rows *rows, int64_t sample, int64_t row)
{
    int64_t first = rows->first_span[sample], count = rows->first_span[sample + 1] - first;
    return first + mimo_last_at_most(&rows->spans[first].row, sizeof(mimo_span) / sizeof(int64_t),
                                     count, row);
}

void mimo_ragged_find(const mimo_layout *layout, int64_t sample, int64_t row, mimo_cell *cell,
                      mimo_box *box)
{
    mimo_box boxes[MIMO_LAYOUT_BOXES];
    const mimo_ragged_rows *rows = &layout->ragged;
    if (rows->kind == MIMO_RAGGED_ITEMS) {
        const mimo_placed_item *placed = mimo_items_find(layout, sample, row);
        *cell = (mimo_cell){.dp = placed->dp};
        *box = mimo_items_box(placed);
        return;
    }
    cell->dp = mimo_layout_dp_of(layout, sample);
    mimo_range samples = mimo_layout_samples(layout, cell->dp);
    int64_t at = span_of(rows, sample, row), piece = at - rows->first_span[samples.first];
    const mimo_span *span = &rows->spans[at];
    mimo_layout_locate(layout, span->position + (row - span->row), cell);
    if (rows->kind == MIMO_RAGGED_PACKED)
        piece = sample - samples.first;
    int count = mimo_ragged_boxes(layout, cell, piece, boxes);
    bool last = count > 1 && row >= boxes[1].s0;
    *box = boxes[last];
}

int64_t mimo_ragged_sample_rows(const mimo_layout *layout, int64_t sample)
{
    return layout->ragged.first_row[sample + 1] - layout->ragged.first_row[sample];
}

int64_t mimo_ragged_difference(const mimo_layout *a, const mimo_layout *b)
{
    for (int64_t sample = 0; sample < a->batch; sample++)
        if (mimo_ragged_sample_rows(a, sample) != mimo_ragged_sample_rows(b, sample))
            return sample;
    return -1;
}
