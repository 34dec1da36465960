/*
 * MIMO_CHECK=samples: where did the rows of a call's first tensor come from?
 *
 * One more tensor travels with the call, through the same groups, messages and sums. It has a tag
 * for each row: the rank and the local row that the row comes from. The layouts give the origin of
 * each row in closed form, and they know nothing of who sends what to whom. So a row that took a
 * wrong turn shows.
 *
 * Where several ranks contribute to a row, their tags are added. So one of them, chosen by the
 * row's number, gives the tag, and the others give zeros.
 */
#include <inttypes.h>
#include <stdio.h>

#include "bridge/verify/verify.h"
#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/memory.h"

/* Both count from 1, so that a row which nobody wrote shows as 0. */
typedef struct row_tag {
    int64_t rank, row;
} row_tag;

static int64_t rows_of(const mimo_tile *tile)
{
    return tile->batch * tile->seq;
}

/* ----------------------------------------- sending ------------------------------------------ */

/* A contribution class, and how many there are. */
typedef struct one_class {
    int64_t contribution, classes;
} one_class;

/* The contribution class of this rank. */
static mimo_status find_class(one_class *out, const mimo_op *op, int64_t seq)
{
    mimo_layout *layout;
    mimo_cell cell = {0, 0, 0, 0};
    mimo_bridge *bridge = mimo_bridge_of(op);
    *out = (one_class){0, 1};
    if (!op->call.backward)
        return MIMO_OK;
    mimo_layout_desc desc = mimo_bridge_op_of(op)->executor->side_layout(bridge, MIMO_DST);
    desc.batch = 0; /* only who holds rows matters here */
    desc.seq = seq;
    desc.ragged = MIMO_RAGGED_NOT;
    desc.span_count = 0;
    MIMO_TRY(mimo_layout_create(&layout, &desc));
    (void)mimo_layout_cell(&cell, layout, bridge->rank);
    *out = (one_class){cell.contribution, layout->dims.contribution.size};
    mimo_layout_destroy(layout);
    return MIMO_OK;
}

static void write_tags(row_tag *tags, const mimo_op *op, int64_t rows, one_class own)
{
    for (int64_t row = 0; row < rows; row++)
        tags[row] = row % own.classes == own.contribution
                        ? (row_tag){mimo_bridge_of(op)->rank + 1, row + 1}
                        : (row_tag){0, 0};
}

/* A view like one of the call's, of tags in staging. They begin as `tags`. */
static mimo_status put_tags(mimo_tensor *out, mimo_op *op, mimo_staging_use use,
                            const mimo_tile *like, const row_tag *tags)
{
    int64_t bytes = rows_of(like) * (int64_t)sizeof(row_tag);
    *out = like->view;
    out->dtype = MIMO_I64;
    out->shape[mimo_tensor_ndim(out) - 1] = sizeof(row_tag) / sizeof(int64_t);
    out->data = NULL;
    if (bytes == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_op_get_staging(&out->data, op, use, bytes));
    return op->mover->comm->device->upload(out->data, tags, bytes, op->call.stream);
}

static mimo_status add_pair(mimo_op *op, row_tag *tags)
{
    mimo_tensor sent, received;
    one_class own;
    const mimo_tile_pair *first = &op->tensors.pairs[0];
    const mimo_tile *from = mimo_tile_of(first, mimo_op_from(op));
    const mimo_tile *to = mimo_tile_of(first, mimo_op_to(op));
    MIMO_TRY(put_tags(&received, op, MIMO_STAGING_TAGS_RECEIVED, to, tags));
    MIMO_TRY(find_class(&own, op, first->seq));
    write_tags(tags, op, rows_of(from), own);
    MIMO_TRY(put_tags(&sent, op, MIMO_STAGING_TAGS_SENT, from, tags));
    MIMO_TRY(mimo_bridge_op_of(op)->executor->read(&op->tensors.pairs[op->tensors.count], op,
                                                   op->call.backward ? &received : &sent,
                                                   op->call.backward ? &sent : &received));
    op->tensors.count++;
    return MIMO_OK;
}

mimo_status mimo_origins_prepare(mimo_op *op)
{
    row_tag *tags;
    const mimo_tile_pair *first = &op->tensors.pairs[0];
    if (!mimo_bridge_of(op)->check_samples)
        return MIMO_OK;
    int64_t src = rows_of(&first->src), dst = rows_of(&first->dst);
    MIMO_TRY(mimo_reserve(&tags, src > dst ? src : dst, sizeof *tags));
    mimo_status status = add_pair(op, tags);
    mimo_release(tags);
    return status;
}

/* ---------------------------------------- receiving ----------------------------------------- */

/* A call whose tags have arrived. */
typedef struct tag_check {
    const mimo_op *op;
    mimo_layout *from, *to;
    mimo_cell cell; /* of this rank in `to` */
    row_tag *tags;
} tag_check;

/* The origin that a tag names. */
static const char *origin_text(char *text, size_t size, const row_tag *tag)
{
    if (tag->rank < 1 || tag->row < 1)
        snprintf(text, size, "nothing");
    else
        snprintf(text, size, "row %" PRId64 " of rank %" PRId64, tag->row - 1, tag->rank - 1);
    return text;
}

/* Whether the tag's rank is one of the cell's copies. */
static bool is_of(const tag_check *it, const row_tag *tag, const mimo_cell *cell)
{
    mimo_cell got;
    return mimo_layout_cell(&got, it->from, tag->rank - 1) && mimo_cell_is(&got, cell);
}

static mimo_status check_tag(const tag_check *it, int64_t row, int64_t sample, int64_t position)
{
    char got[64], call[MIMO_CALL_TEXT];
    mimo_cell cell;
    mimo_box box;
    const row_tag *tag = &it->tags[row];
    mimo_layout_find(it->from, sample, position, &cell, &box);
    int64_t expected = mimo_box_row(&box, sample, position);
    cell.contribution = expected % it->from->dims.contribution.size;
    MIMO_CHECK(tag->row == expected + 1 && is_of(it, tag, &cell), MIMO_ERR_INTERNAL,
               "%s: row %" PRId64 " here is sample %" PRId64 ", position %" PRId64
               ", of row %" PRId64 " of rank %" PRId64 " or its copies, and got %s",
               mimo_op_text(call, it->op), row, sample, position, expected,
               mimo_layout_first_rank(it->from, &cell), origin_text(got, sizeof got, tag));
    return MIMO_OK;
}

static mimo_status check_box(const tag_check *it, const mimo_box *box)
{
    for (int64_t b = 0; b < box->nb; b++)
        for (int64_t s = 0; s < box->ns; s++)
            MIMO_TRY(check_tag(it, mimo_box_row(box, box->b0 + b, box->s0 + s), box->b0 + b,
                               box->s0 + s));
    return MIMO_OK;
}

static mimo_status check_rows(const tag_check *it)
{
    mimo_box_walk walk;
    mimo_box_walk_begin(&walk, it->to, &it->cell);
    for (const mimo_box *box; (box = mimo_next_box(&walk));)
        MIMO_TRY(check_box(it, box));
    return MIMO_OK;
}

/* A side in the batch and split of this call. */
static mimo_status make_layout(mimo_layout **out, const mimo_op *op, mimo_side side)
{
    mimo_layout_desc desc;
    const mimo_tile_pair *pair = &op->tensors.pairs[0];
    const mimo_tile *tile = mimo_tile_of(pair, side);
    MIMO_TRY(mimo_bridge_op_of(op)->executor->op_layout(&desc, op, side));
    desc.order = mimo_tile_order(tile);
    desc.seq = pair->seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status fetch_and_check(tag_check *it)
{
    const mimo_op *op = it->op;
    const mimo_comm *comm = op->mover->comm;
    const mimo_tile *tile = mimo_tile_of(&op->tensors.pairs[op->tensors.count - 1], mimo_op_to(op));
    int64_t bytes = rows_of(tile) * (int64_t)sizeof(row_tag);
    MIMO_TRY(make_layout(&it->from, op, mimo_op_from(op)));
    MIMO_TRY(make_layout(&it->to, op, mimo_op_to(op)));
    if (bytes == 0 || !mimo_layout_cell(&it->cell, it->to, mimo_bridge_of(op)->rank))
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&it->tags, rows_of(tile), sizeof *it->tags));
    MIMO_TRY(mimo_comm_synchronize(op->mover->comm, op->call.stream));
    MIMO_TRY(comm->device->download(it->tags, tile->view.data, bytes, op->call.stream));
    return check_rows(it);
}

static mimo_status outcome(const mimo_op *op)
{
    tag_check it = {.op = op};
    mimo_status status = fetch_and_check(&it);
    mimo_release(it.tags);
    mimo_layout_destroy(it.from);
    mimo_layout_destroy(it.to);
    return status;
}

mimo_status mimo_origins_compare(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    if (mimo_bridge_of(op)->check_samples && !op->call.prepares)
        mimo_op_agree_on(op, outcome(op), "samples check");
    return MIMO_OK;
}
