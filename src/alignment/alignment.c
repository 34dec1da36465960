/* Alignment: the n-th special id of a modality takes its n-th row, and text takes the other
 * positions. An update makes one list of positions, grouped by source. Merge is a scatter, and
 * split a gather, of each source by its positions. A captured call has fixed row counts and
 * strides, and reads the positions when it runs. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <mimo/alignment.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "device/device.h"

MIMO_DEFINE_INIT(mimo_alignment_desc, MIMO_ALIGNMENT_DESC_INIT)

enum { VIEW_TEXT = 96 };

struct mimo_alignment {
    int modalities;
    int64_t vocabulary;
    int64_t *special;
    bool updated;
    int64_t batch, seq;
    /* Source m (text: m = modalities) takes table[first[m]] up to table[first[m + 1]], each
     * b * S + s, ascending. */
    int64_t *first;
    mimo_memory memory;
    const mimo_device *device; /* of that memory */
    int64_t *table;            /* table[capacity], in the device's memory */
    int64_t capacity;
};

/* --------------------------------------- creation --------------------------------------- */

static mimo_status check_special(const mimo_alignment_desc *desc)
{
    MIMO_CHECK(desc->modalities >= 0, MIMO_ERR_ARGUMENT, "alignment: %d modalities",
               desc->modalities);
    MIMO_CHECK(desc->vocabulary >= 0, MIMO_ERR_ARGUMENT, "alignment: a vocabulary of %" PRId64,
               desc->vocabulary);
    MIMO_CHECK(desc->special || desc->modalities == 0, MIMO_ERR_ARGUMENT,
               "alignment: special is NULL for %d modalities", desc->modalities);
    for (int m = 0; m < desc->modalities; m++) {
        MIMO_CHECK(desc->special[m] >= 0, MIMO_ERR_ARGUMENT,
                   "alignment: the special id of modality %d is %" PRId64, m, desc->special[m]);
        for (int other = 0; other < m; other++)
            MIMO_CHECK(desc->special[m] != desc->special[other], MIMO_ERR_ARGUMENT,
                       "alignment: modalities %d and %d both have the special id %" PRId64, other,
                       m, desc->special[m]);
    }
    return MIMO_OK;
}

mimo_status mimo_alignment_create(mimo_alignment **out, const mimo_alignment_desc *desc)
{
    mimo_alignment_desc own = MIMO_ALIGNMENT_DESC_INIT;
    mimo_alignment *made;
    mimo_status status;
    MIMO_CHECK(out && desc, MIMO_ERR_ARGUMENT, "alignment: %s is NULL", out ? "desc" : "out");
    MIMO_TRY(mimo_read_descriptor(&own, sizeof own, desc, "alignment"));
    const mimo_device *device;
    MIMO_TRY(check_special(&own));
    MIMO_TRY(mimo_device_for(&device, own.memory));
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->memory = own.memory;
    made->device = device;
    made->modalities = own.modalities;
    made->vocabulary = own.vocabulary;
    MIMO_TRY_GOTO(status, fail,
                  mimo_reserve(&made->special, own.modalities, sizeof *made->special));
    for (int m = 0; m < own.modalities; m++)
        made->special[m] = own.special[m];
    *out = made;
    return MIMO_OK;
fail:
    mimo_alignment_destroy(made);
    return status;
}

void mimo_alignment_destroy(mimo_alignment *alignment)
{
    if (!alignment)
        return;
    mimo_release(alignment->special);
    mimo_release(alignment->first);
    alignment->device->release(alignment->table);
    mimo_release(alignment);
}

/* ---------------------------------------- update ---------------------------------------- */

static int64_t id_at(const mimo_tensor *ids, int64_t i)
{
    return ids->dtype == MIMO_I32 ? ((const int32_t *)ids->data)[i]
                                  : ((const int64_t *)ids->data)[i];
}

static mimo_status check_ids(const mimo_tensor *ids, int64_t *count)
{
    char text[VIEW_TEXT];
    MIMO_TRY(mimo_tensor_extent(count, NULL, ids));
    mimo_tensor_text(text, sizeof text, ids);
    MIMO_CHECK(strncmp(ids->letters, "bs", 3) == 0, MIMO_ERR_SHAPE,
               "alignment: ids are %s, they must be bs[B,S]", text);
    MIMO_CHECK(ids->dtype == MIMO_I32 || ids->dtype == MIMO_I64, MIMO_ERR_SHAPE,
               "alignment: ids are %s, they must be i32 or i64", text);
    MIMO_CHECK(ids->memory == MIMO_MEMORY_HOST, MIMO_ERR_SHAPE,
               "alignment: ids %s must lie in host memory", text);
    MIMO_CHECK(ids->data || *count == 0, MIMO_ERR_ARGUMENT, "alignment: ids %s, and data is NULL",
               text);
    return MIMO_OK;
}

/* The source that an id takes its row from; -1 for an unknown id. */
static int source_of(const mimo_alignment *alignment, int64_t id)
{
    for (int m = 0; m < alignment->modalities; m++)
        if (alignment->special[m] == id)
            return m;
    bool text = id >= 0 && (alignment->vocabulary == 0 || id < alignment->vocabulary);
    return text ? alignment->modalities : -1;
}

/* How many rows each source takes, as running sums: first[0..sources]. */
static mimo_status count_sources(const mimo_alignment *alignment, const mimo_tensor *ids,
                                 int64_t count, int64_t *first)
{
    for (int64_t i = 0; i < count; i++) {
        int source = source_of(alignment, id_at(ids, i));
        MIMO_CHECK(source >= 0, MIMO_ERR_ARGUMENT,
                   "alignment: unknown id %" PRId64 " in sample %" PRId64 " at position %" PRId64
                   " (%d special ids, a vocabulary of %" PRId64 ")",
                   id_at(ids, i), i / ids->shape[1], i % ids->shape[1], alignment->modalities,
                   alignment->vocabulary);
        first[source + 1]++;
    }
    for (int source = 0; source <= alignment->modalities; source++)
        first[source + 1] += first[source];
    return MIMO_OK;
}

/* Fill the list. Each first[m] moves to the end of its source's positions and is then restored. */
static void list_positions(const mimo_alignment *alignment, const mimo_tensor *ids, int64_t count,
                           int64_t *first, int64_t *positions)
{
    for (int64_t i = 0; i < count; i++)
        positions[first[source_of(alignment, id_at(ids, i))]++] = i;
    for (int source = alignment->modalities; source > 0; source--)
        first[source] = first[source - 1];
    first[0] = 0;
}

/* Have a table for `count` positions on the device. One that is large enough stays where it is, as
 * captured graphs read it. */
static mimo_status grow_table(mimo_alignment *alignment, int64_t count)
{
    int64_t bytes;
    void *table;
    if (alignment->table && count <= alignment->capacity)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)sizeof *alignment->table));
    MIMO_TRY(alignment->device->reserve(&table, bytes));
    alignment->device->release(alignment->table);
    alignment->table = table;
    alignment->capacity = count;
    return MIMO_OK;
}

mimo_status mimo_alignment_update(mimo_alignment *alignment, const mimo_tensor *ids,
                                  mimo_stream stream)
{
    MIMO_RANGE();
    int64_t count, *first = NULL, *positions = NULL;
    mimo_status status;
    MIMO_CHECK(alignment && ids, MIMO_ERR_ARGUMENT, "mimo_alignment_update: %s is NULL",
               alignment ? "ids" : "alignment");
    MIMO_TRY(check_ids(ids, &count));
    MIMO_TRY_GOTO(status, fail,
                  mimo_reserve(&first, (int64_t)alignment->modalities + 2, sizeof *first));
    MIMO_TRY_GOTO(status, fail, count_sources(alignment, ids, count, first));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&positions, count, sizeof *positions));
    list_positions(alignment, ids, count, first, positions);
    MIMO_TRY_GOTO(status, fail, grow_table(alignment, count));
    MIMO_TRY_GOTO(status, fail,
                  alignment->device->upload(alignment->table, positions,
                                            count * (int64_t)sizeof *positions, stream));
    mimo_release(positions);
    mimo_release(alignment->first);
    alignment->first = first;
    alignment->batch = ids->shape[0];
    alignment->seq = ids->shape[1];
    alignment->updated = true;
    return MIMO_OK;
fail:
    mimo_release(first);
    mimo_release(positions);
    return status;
}

static int64_t rows_of(const mimo_alignment *alignment, int source)
{
    return alignment->first[source + 1] - alignment->first[source];
}

mimo_status mimo_alignment_rows(int64_t *rows, const mimo_alignment *alignment, int modality)
{
    MIMO_CHECK(alignment && rows, MIMO_ERR_ARGUMENT, "mimo_alignment_rows: %s is NULL",
               alignment ? "rows" : "alignment");
    MIMO_CHECK(modality >= -1 && modality < alignment->modalities, MIMO_ERR_ARGUMENT,
               "alignment: no modality %d among %d", modality, alignment->modalities);
    MIMO_CHECK(alignment->updated, MIMO_ERR_STATE, "alignment: no ids yet");
    *rows = rows_of(alignment, modality < 0 ? alignment->modalities : modality);
    return MIMO_OK;
}

/* ----------------------------------- merge and split ------------------------------------ */

/* One call: the merged tile, and the sources that it is made of. */
typedef struct merge_call {
    const mimo_alignment *alignment;
    const mimo_tensor *tile;
    const mimo_tensor *rows; /* [modalities] */
    const mimo_tensor *text;
    int64_t row_bytes;
} merge_call;

static const mimo_tensor *source_view(const merge_call *call, int source)
{
    return source < call->alignment->modalities ? &call->rows[source] : call->text;
}

static mimo_status check_tile(merge_call *call)
{
    char text[VIEW_TEXT];
    const mimo_tensor *tile = call->tile;
    const mimo_alignment *alignment = call->alignment;
    int64_t bytes;
    MIMO_TRY(mimo_tensor_extent(NULL, &bytes, tile));
    mimo_tensor_text(text, sizeof text, tile);
    MIMO_CHECK(strncmp(tile->letters, "sbh", 4) == 0 || strncmp(tile->letters, "bsh", 4) == 0,
               MIMO_ERR_SHAPE, "alignment: the merged tile is %s, it must be sbh or bsh", text);
    MIMO_CHECK(mimo_tensor_size(tile, 'b') == alignment->batch &&
                   mimo_tensor_size(tile, 's') == alignment->seq,
               MIMO_ERR_SHAPE,
               "alignment: the merged tile is %s, the ids have B = %" PRId64 " and S = %" PRId64,
               text, alignment->batch, alignment->seq);
    MIMO_CHECK(tile->memory == alignment->memory, MIMO_ERR_SHAPE,
               "alignment: the merged tile lies in %s, the alignment was made for %s",
               mimo_memory_text(tile->memory), mimo_memory_text(alignment->memory));
    MIMO_CHECK(tile->data || bytes == 0, MIMO_ERR_ARGUMENT,
               "alignment: the merged tile is %s, and data is NULL", text);
    return mimo_mul(&call->row_bytes, mimo_tensor_size(tile, 'h'),
                    (int64_t)mimo_dtype_size(tile->dtype));
}

/* Number of rows of a source; -1 where a source may not have its letters. */
static int64_t count_rows(const mimo_tensor *view, bool is_text)
{
    static const char *const flat[] = {"th", "bh"}, *const tiles[] = {"sbh", "bsh"};
    for (int i = 0; i < (is_text ? 1 : 2); i++)
        if (strncmp(view->letters, flat[i], 3) == 0)
            return view->shape[0];
    for (int i = 0; i < (is_text ? 0 : 2); i++)
        if (strncmp(view->letters, tiles[i], 4) == 0)
            return view->shape[0] * view->shape[1];
    return -1;
}

static mimo_status check_source(const merge_call *call, int source)
{
    char name[32] = "text", text[VIEW_TEXT], tile[VIEW_TEXT];
    const mimo_tensor *view = source_view(call, source);
    bool is_text = source == call->alignment->modalities;
    int64_t wanted = rows_of(call->alignment, source);
    if (!is_text)
        snprintf(name, sizeof name, "modality %d", source);
    MIMO_TRY(mimo_tensor_extent(NULL, NULL, view));
    mimo_tensor_text(text, sizeof text, view);
    mimo_tensor_text(tile, sizeof tile, call->tile);
    int64_t got = count_rows(view, is_text);
    MIMO_CHECK(got >= 0, MIMO_ERR_SHAPE, "alignment: rows of %s are %s, they must be %s", name,
               text, is_text ? "th" : "th, bh, sbh or bsh");
    MIMO_CHECK(got == wanted, MIMO_ERR_SHAPE,
               "alignment: %s has %" PRId64 " rows (%s), the ids take %" PRId64, name, got, text,
               wanted);
    MIMO_CHECK(
        mimo_tensor_size(view, 'h') == mimo_tensor_size(call->tile, 'h') &&
            view->dtype == call->tile->dtype && view->memory == call->tile->memory,
        MIMO_ERR_SHAPE,
        "alignment: rows of %s are %s, the merged tile is %s: H, dtype and memory must agree", name,
        text, tile);
    return MIMO_OK;
}

static mimo_status check_call(merge_call *call)
{
    MIMO_CHECK(
        call->alignment && call->tile && call->text, MIMO_ERR_ARGUMENT, "alignment: %s is NULL",
        !call->alignment ? "the alignment" : (!call->tile ? "the merged tile" : "the text view"));
    MIMO_CHECK(call->alignment->updated, MIMO_ERR_STATE, "alignment: no ids yet");
    MIMO_CHECK(call->rows || call->alignment->modalities == 0, MIMO_ERR_ARGUMENT,
               "alignment: rows is NULL for %d modalities", call->alignment->modalities);
    MIMO_TRY(check_tile(call));
    for (int source = 0; source <= call->alignment->modalities; source++)
        MIMO_TRY(check_source(call, source));
    return MIMO_OK;
}

/* Where a source's rows lie in the tile, and in the source. Sample-major row n of an sbh source is
 * its row
 *   (n mod s) * b + n / s */
static mimo_row_map map_of(const merge_call *call, int source)
{
    const mimo_alignment *alignment = call->alignment;
    const mimo_tensor *view = source_view(call, source);
    bool by_position = call->tile->letters[0] == 's';
    bool sequence_first = view->letters[0] == 's' && !MIMO_MUTATED("sequence-major");
    int64_t rows = rows_of(alignment, source);
    return (mimo_row_map){
        .position = alignment->table + alignment->first[source],
        .rows = rows,
        .row_bytes = call->row_bytes,
        .seq = alignment->seq,
        .tile_b = by_position ? 1 : alignment->seq,
        .tile_s = by_position ? alignment->batch : 1,
        .length = sequence_first ? view->shape[0] : rows,
        .packed_b = 1,
        .packed_s = sequence_first ? view->shape[1] : 1,
    };
}

mimo_status mimo_alignment_merge(const mimo_alignment *alignment, const mimo_tensor *to,
                                 const mimo_tensor *rows, const mimo_tensor *text,
                                 mimo_stream stream)
{
    MIMO_RANGE();
    merge_call call = {alignment, to, rows, text, 0};
    MIMO_TRY(check_call(&call));
    for (int source = 0; source <= alignment->modalities; source++) {
        const void *packed = source_view(&call, source)->data;
        mimo_row_map map = map_of(&call, source);
        if (packed)
            MIMO_TRY(alignment->device->scatter_rows(to->data, packed, &map, stream));
    }
    return MIMO_OK;
}

mimo_status mimo_alignment_split(const mimo_alignment *alignment, const mimo_tensor *rows,
                                 const mimo_tensor *text, const mimo_tensor *from,
                                 mimo_stream stream)
{
    MIMO_RANGE();
    merge_call call = {alignment, from, rows, text, 0};
    MIMO_TRY(check_call(&call));
    for (int source = 0; source <= alignment->modalities; source++) {
        void *packed = source_view(&call, source)->data;
        mimo_row_map map = map_of(&call, source);
        if (packed)
            MIMO_TRY(alignment->device->gather_rows(packed, from->data, &map, stream));
    }
    return MIMO_OK;
}
