/* Layouts: which rows a rank holds, and which ranks hold a row, in closed form. */
#include <string.h>

#include "bridge/layout/layout_types.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

const char *const mimo_side_names[2] = {"src", "dst"};

/* ---------------------------------------- arithmetic ---------------------------------------- */

/* Ranks fit 32 bits (mimo_grid_create), where division is several times faster; planning is made of
 * this. */
static int64_t digit(const mimo_layout *layout, int64_t rank, mimo_axis axis)
{
    if (axis.size == 1)
        return 0;
    return (uint32_t)(rank - layout->offset) / (uint32_t)axis.stride % (uint32_t)axis.size;
}

static bool holds_rows(const mimo_layout *layout, int64_t rank)
{
    return rank >= layout->offset && rank - layout->offset < layout->ranks &&
           digit(layout, rank, layout->pp) == 0;
}

/* The index that mimo_axes_offset takes, of a rank. */
static int64_t index_along(const mimo_layout *layout, int64_t rank, const mimo_axes *axes,
                           int64_t above)
{
    int64_t index = above;
    for (int i = axes->count - 1; i >= 0; i--)
        index = index * axes->axis[i].size + digit(layout, rank, axes->axis[i]);
    return index;
}

bool mimo_layout_cell(mimo_cell *out, const mimo_layout *layout, int64_t rank)
{
    const mimo_cell_axes *cut = &layout->cut;
    if (!holds_rows(layout, rank))
        return false;
    *out = (mimo_cell){digit(layout, rank, cut->dp), digit(layout, rank, cut->cp),
                       digit(layout, rank, cut->tp), index_along(layout, rank, &cut->klass, 0)};
    return true;
}

int64_t mimo_layout_first_rank(const mimo_layout *layout, const mimo_cell *cell)
{
    const mimo_cell_axes *cut = &layout->cut;
    return layout->offset + cell->dp * cut->dp.stride + cell->cp * cut->cp.stride +
           cell->tp * cut->tp.stride + mimo_axes_offset(&cut->klass, cell->klass);
}

int64_t mimo_axes_offset(const mimo_axes *axes, int64_t index)
{
    int64_t offset = 0;
    uint32_t rest = (uint32_t)index;
    for (int i = 0; rest > 0; i++) {
        uint32_t size = (uint32_t)axes->axis[i].size;
        offset += rest % size * axes->axis[i].stride;
        rest /= size;
    }
    return offset;
}

bool mimo_layout_reader(int64_t *out, const mimo_layout *layout, int64_t rank)
{
    if (!holds_rows(layout, rank))
        return false;
    *out = index_along(layout, rank, &layout->readers, digit(layout, rank, layout->cut.dp));
    return true;
}

/* ----------------------------------------- samples ------------------------------------------ */

mimo_range mimo_layout_samples(const mimo_layout *layout, int64_t dp)
{
    const int64_t *first = layout->first_sample;
    if (first)
        return (mimo_range){first[dp], first[dp + 1] - first[dp]};
    int64_t least = layout->batch / layout->cut.dp.size, more = layout->batch % layout->cut.dp.size;
    return (mimo_range){dp * least + (dp < more ? dp : more), least + (dp < more)};
}

int64_t mimo_last_at_most(const int64_t *first, int64_t count, int64_t value)
{
    int64_t low = 0, high = count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (first[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t mimo_layout_dp_of(const mimo_layout *layout, int64_t sample)
{
    /* A coordinate without samples begins where the next one does. */
    if (layout->first_sample)
        return mimo_last_at_most(layout->first_sample, layout->cut.dp.size, sample);
    int64_t least = layout->batch / layout->cut.dp.size, more = layout->batch % layout->cut.dp.size;
    int64_t in_larger = more * (least + 1); /* samples of the ranks that hold one more */
    if (sample < in_larger)
        return sample / (least + 1);
    return more + (sample - in_larger) / least;
}

/* ------------------------------------------ boxes ------------------------------------------- */

static mimo_box box_of(const mimo_layout *layout, mimo_range samples, const mimo_run *run)
{
    mimo_box box = {.b0 = samples.first, .nb = samples.count, .s0 = run->global, .ns = run->length};
    bool sbh = layout->order == MIMO_ROWS_SBH;
    box.row_b = sbh ? 1 : layout->shard;
    box.row_s = sbh ? samples.count : 1;
    box.row0 = run->local * box.row_s;
    return box;
}

static mimo_range segment_range(const mimo_layout *layout, int64_t segment)
{
    const int64_t *first = layout->first_position;
    return first ? (mimo_range){first[segment], first[segment + 1] - first[segment]}
                 : (mimo_range){0, layout->seq};
}

/* Every rank holds the same share of each segment, so the segments before one take their length
 * over cp of its rows. */
int mimo_layout_cell_runs(const mimo_layout *layout, const mimo_cell *cell, int64_t segment,
                          mimo_run *runs)
{
    mimo_run zigzag[MIMO_LAYOUT_BOXES];
    mimo_range range = segment_range(layout, segment);
    int64_t whole = mimo_zigzag_append(zigzag, 0, range.first, range.count,
                                       (mimo_cp_coordinate){cell->cp, layout->cut.cp.size});
    int count = 0;
    for (int64_t i = 0; i < whole; i++) {
        zigzag[i].local += range.first / layout->cut.cp.size;
        count += mimo_run_clip(&runs[count], &zigzag[i], cell->tp * layout->shard, layout->shard);
    }
    return count;
}

int64_t mimo_layout_parts(const mimo_layout *layout, const mimo_cell *cell)
{
    return layout->ragged.kind ? mimo_ragged_parts(layout, cell) : layout->segments;
}

int mimo_layout_cell_boxes(const mimo_layout *layout, const mimo_cell *cell, int64_t part,
                           mimo_box *boxes)
{
    mimo_run runs[MIMO_LAYOUT_BOXES];
    if (layout->ragged.kind)
        return mimo_ragged_boxes(layout, cell, part, boxes);
    mimo_range samples = mimo_layout_samples(layout, cell->dp);
    int count = samples.count > 0 ? mimo_layout_cell_runs(layout, cell, part, runs) : 0;
    for (int i = 0; i < count; i++)
        boxes[i] = box_of(layout, samples, &runs[i]);
    return count;
}

/* Empty segments begin where the next one does. */
static int64_t segment_of(const mimo_layout *layout, int64_t position)
{
    const int64_t *first = layout->first_position;
    return first ? mimo_last_at_most(first, layout->segments, position) : 0;
}

/* The zigzag map backwards: the cp coordinate of a position, and its row in that cp shard. */
static int64_t cp_of(const mimo_layout *layout, int64_t position, int64_t *row)
{
    int64_t cp = layout->cut.cp.size;
    mimo_range range = segment_range(layout, segment_of(layout, position));
    *row = position;
    if (cp == 1)
        return 0;
    int64_t length = range.count / (2 * cp), within = position - range.first;
    int64_t chunk = within / length;
    *row = range.first / cp + within - chunk * length + (chunk < cp ? 0 : length);
    return chunk < cp ? chunk : 2 * cp - 1 - chunk;
}

void mimo_layout_place(const mimo_layout *layout, int64_t position, mimo_cell *cell)
{
    int64_t row;
    cell->cp = cp_of(layout, position, &row);
    cell->tp = row / layout->shard;
    cell->klass = 0;
}

void mimo_layout_find(const mimo_layout *layout, int64_t sample, int64_t position, mimo_cell *cell,
                      mimo_box *box)
{
    mimo_box boxes[MIMO_LAYOUT_BOXES];
    cell->dp = mimo_layout_dp_of(layout, sample);
    if (layout->ragged.kind) {
        mimo_ragged_find(layout, sample, position, cell, box);
        return;
    }
    mimo_layout_place(layout, position, cell);
    int count = mimo_layout_cell_boxes(layout, cell, segment_of(layout, position), boxes);
    bool last = count > 1 && position >= boxes[1].s0;
    *box = boxes[last];
}

/* ----------------------------------------- creation ----------------------------------------- */

/* The descriptor and the rule that it points to, both in this version's form. */
static mimo_status read_desc(mimo_layout_desc *own, mimo_partition_rule *rule,
                             const mimo_layout_desc *desc)
{
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, desc, "layout"));
    if (own->partition) {
        MIMO_TRY(mimo_read_descriptor(rule, sizeof *rule, own->partition, "layout partition"));
        rule->size = sizeof *rule;
        own->partition = rule;
    }
    MIMO_CHECK(own->grid, MIMO_ERR_ARGUMENT, "layout: the grid is NULL");
    MIMO_CHECK(own->order == MIMO_ROWS_SBH || own->order == MIMO_ROWS_BSH, MIMO_ERR_ARGUMENT,
               "layout: unknown row order %d", (int)own->order);
    MIMO_CHECK(own->cp_copies == MIMO_COPIES_EQUAL || own->cp_copies == MIMO_COPIES_PARTIAL,
               MIMO_ERR_ARGUMENT, "layout: unknown kind of cp copies %d", (int)own->cp_copies);
    MIMO_CHECK(own->batch >= 0 && own->seq >= 0, MIMO_ERR_ARGUMENT,
               "layout: batch %" PRId64 " and seq %" PRId64 " must not be negative", own->batch,
               own->seq);
    return MIMO_OK;
}

/* Positions of one rank, by the partition's own rules. */
static mimo_status shard_of(int64_t *out, const mimo_layout_desc *desc, const mimo_layout *layout)
{
    mimo_partition_place place = {.cp_size = layout->cut.cp.size,
                                  .tp_size = mimo_grid_dim_size(desc->grid, "tp")};
    mimo_partition *partition;
    if (!desc->partition) {
        *out = desc->seq;
        return MIMO_OK;
    }
    MIMO_TRY(mimo_partition_create(&partition, desc->partition, &place));
    mimo_status status = mimo_partition_rows(partition, MIMO_EMBEDDINGS, desc->seq, out);
    mimo_partition_destroy(partition);
    return status;
}

/* A rank receives at most batch * seq rows per class, of at most as many classes as src has ranks,
 * and sends at most as many to each rank of dst: with this check every count of rows in a plan
 * fits. */
static mimo_status check_rows(const mimo_layout_desc *desc)
{
    int64_t rows;
    if (mimo_mul(&rows, desc->batch, desc->seq) != MIMO_OK ||
        mimo_mul(&rows, rows, mimo_grid_size(desc->grid)) != MIMO_OK)
        return mimo_fail_prefix(
            MIMO_ERR_OVERFLOW,
            "rows of batch %" PRId64 " x seq %" PRId64 " on %" PRId64 " ranks: ", desc->batch,
            desc->seq, mimo_grid_size(desc->grid));
    return MIMO_OK;
}

static void add_axis(mimo_axes *axes, mimo_axis axis)
{
    axes->axis[axes->count++] = axis;
    axes->size *= axis.size;
}

/* Gives every dimension of the grid its role. */
static void set_axes(mimo_layout *layout, const mimo_layout_desc *desc)
{
    bool cuts = desc->partition, partial = desc->cp_copies == MIMO_COPIES_PARTIAL;
    bool sp = cuts && desc->partition->sp;
    mimo_axis stride = {1, 1};
    layout->cut.dp = layout->cut.cp = layout->cut.tp = layout->pp = stride;
    layout->copies.size = layout->readers.size = layout->cut.klass.size = 1;
    for (int i = 0; i < mimo_grid_ndims(desc->grid); i++) {
        mimo_dim dim = mimo_grid_dim(desc->grid, i);
        mimo_axis axis = {dim.size, stride.stride};
        bool is_cp = strcmp(dim.name, "cp") == 0, is_dp = strcmp(dim.name, "dp") == 0;
        bool is_pp = strcmp(dim.name, "pp") == 0;
        stride.stride *= dim.size;
        if (is_pp && !desc->all_stages) {
            layout->pp = axis;
            continue;
        }
        if (is_dp)
            layout->cut.dp = axis;
        else if (is_cp && cuts)
            layout->cut.cp = axis;
        else if ((is_cp || is_pp) && partial)
            add_axis(&layout->cut.klass, axis);
        else if (strcmp(dim.name, "tp") == 0 && sp)
            layout->cut.tp = axis;
        else
            add_axis(&layout->copies, axis);
        if (!is_dp)
            add_axis(&layout->readers, axis);
    }
}

static mimo_status set_samples(mimo_layout *layout, const mimo_layout_desc *desc)
{
    int64_t dp = layout->cut.dp.size;
    if (!desc->samples)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&layout->first_sample, dp + 1, sizeof(int64_t)));
    int64_t *first = layout->first_sample;
    for (int64_t d = 0; d < dp; d++) {
        MIMO_CHECK(desc->samples[d] >= 0, MIMO_ERR_SHAPE,
                   "layout: dp coordinate %" PRId64 " has %" PRId64 " samples", d,
                   desc->samples[d]);
        MIMO_TRY(mimo_add(&first[d + 1], first[d], desc->samples[d]));
    }
    MIMO_CHECK(first[dp] == desc->batch, MIMO_ERR_SHAPE,
               "layout: dp = %" PRId64 " coordinates have %" PRId64
               " samples in all, the batch is %" PRId64,
               dp, first[dp], desc->batch);
    return MIMO_OK;
}

/* shard_of has checked the rule. */
static mimo_status set_segments(mimo_layout *layout, const mimo_partition_rule *rule)
{
    layout->segments = 1;
    if (!rule || rule->format != MIMO_THD || layout->cut.cp.size == 1)
        return MIMO_OK;
    int64_t count = rule->sequences + 1;
    MIMO_TRY(mimo_reserve(&layout->first_position, count, sizeof *layout->first_position));
    const int32_t *cu = rule->cu_padded ? rule->cu_padded : rule->cu;
    for (int64_t i = 0; i < count; i++)
        layout->first_position[i] = cu[i];
    layout->segments = rule->sequences;
    return MIMO_OK;
}

static mimo_status fill(mimo_layout *layout, const mimo_layout_desc *desc)
{
    int ndims = mimo_grid_ndims(desc->grid);
    MIMO_TRY(mimo_reserve(&layout->copies.axis, ndims, sizeof(mimo_axis)));
    MIMO_TRY(mimo_reserve(&layout->readers.axis, ndims, sizeof(mimo_axis)));
    MIMO_TRY(mimo_reserve(&layout->cut.klass.axis, ndims, sizeof(mimo_axis)));
    layout->order = desc->order;
    layout->batch = desc->batch;
    layout->seq = desc->seq;
    layout->offset = mimo_grid_offset(desc->grid);
    layout->ranks = mimo_grid_size(desc->grid);
    set_axes(layout, desc);
    MIMO_TRY(set_samples(layout, desc));
    MIMO_TRY(shard_of(&layout->shard, desc, layout));
    MIMO_TRY(set_segments(layout, desc->partition));
    return mimo_ragged_fill(layout, desc);
}

mimo_status mimo_layout_create(mimo_layout **out, const mimo_layout_desc *desc)
{
    mimo_layout_desc own = MIMO_LAYOUT_DESC_INIT;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout *layout;
    MIMO_CHECK(out && desc, MIMO_ERR_ARGUMENT, "mimo_layout_create: %s is NULL",
               out ? "desc" : "out");
    MIMO_TRY(read_desc(&own, &rule, desc));
    MIMO_TRY(check_rows(&own));
    MIMO_TRY(mimo_reserve(&layout, 1, sizeof *layout));
    mimo_status status = fill(layout, &own);
    if (status == MIMO_OK)
        *out = layout;
    else
        mimo_layout_destroy(layout);
    return status;
}

void mimo_layout_destroy(mimo_layout *layout)
{
    if (!layout)
        return;
    mimo_release(layout->copies.axis);
    mimo_release(layout->readers.axis);
    mimo_release(layout->cut.klass.axis);
    mimo_release(layout->first_sample);
    mimo_release(layout->first_position);
    mimo_ragged_release(&layout->ragged);
    mimo_release(layout);
}

/* ---------------------------------------- questions ----------------------------------------- */

mimo_status mimo_layout_boxes(const mimo_layout *layout, int64_t rank, mimo_box *boxes,
                              int64_t capacity, int64_t *count)
{
    mimo_cell cell;
    mimo_box own[MIMO_LAYOUT_BOXES];
    int64_t held = 0;
    MIMO_CHECK(layout && count && (boxes || capacity == 0), MIMO_ERR_ARGUMENT,
               "mimo_layout_boxes: %s is NULL", !layout ? "layout" : (count ? "boxes" : "count"));
    MIMO_CHECK(capacity >= 0, MIMO_ERR_ARGUMENT, "mimo_layout_boxes: capacity is %" PRId64,
               capacity);
    bool holds = mimo_layout_cell(&cell, layout, rank);
    int64_t parts = holds ? mimo_layout_parts(layout, &cell) : 0;
    for (int64_t part = 0; part < parts; part++) {
        int found = mimo_layout_cell_boxes(layout, &cell, part, own);
        for (int i = 0; i < found; i++, held++)
            if (held < capacity)
                boxes[held] = own[i];
    }
    *count = held;
    return MIMO_OK;
}

mimo_status mimo_layout_rows(const mimo_layout *layout, int64_t rank, int64_t *rows)
{
    mimo_cell cell;
    MIMO_CHECK(layout && rows, MIMO_ERR_ARGUMENT, "mimo_layout_rows: %s is NULL",
               layout ? "rows" : "layout");
    if (!mimo_layout_cell(&cell, layout, rank))
        *rows = 0;
    else if (layout->ragged.kind == MIMO_RAGGED_PACKED)
        *rows = mimo_ragged_rows_of(layout, cell.dp);
    else
        *rows = mimo_layout_samples(layout, cell.dp).count * layout->shard;
    return MIMO_OK;
}
