/* The views of a call, read as tiles. By pair, a tile's rows are the values of single pairs. */
#include <inttypes.h>
#include <string.h>

#include "comm/buffer_state.h"
#include "core/check.h"
#include "core/dtype_kind.h"
#include "dispatch/dispatch_views.h"

/* The words of both views, for a sentence about them. */
typedef struct view_words {
    char src[MIMO_VIEW_TEXT], dst[MIMO_VIEW_TEXT];
} view_words;

static void write_words(view_words *words, const mimo_tensor *src, const mimo_tensor *dst)
{
    mimo_tensor_text(words->src, sizeof words->src, src);
    mimo_tensor_text(words->dst, sizeof words->dst, dst);
}

static mimo_status check_view(const mimo_tensor *view, mimo_memory memory, const char *side)
{
    char text[MIMO_VIEW_TEXT];
    int64_t elements;
    MIMO_TRY(mimo_tensor_extent(&elements, NULL, view));
    MIMO_CHECK(view->memory == memory, MIMO_ERR_ARGUMENT,
               "the %s side %s lies in memory kind %d, the communicator moves kind %d", side,
               mimo_tensor_text(text, sizeof text, view), (int)view->memory, (int)memory);
    MIMO_CHECK(view->data || elements == 0, MIMO_ERR_ARGUMENT, "the %s side %s has data NULL", side,
               mimo_tensor_text(text, sizeof text, view));
    return MIMO_OK;
}

static mimo_status check_kind(const mimo_op *op, const mimo_tensor *src, const mimo_tensor *dst)
{
    view_words words;
    const mimo_dispatch *dispatch = mimo_route_of(op)->dispatch;
    bool tokens = strcmp(src->letters, "th") == 0 && strcmp(dst->letters, "th") == 0;
    bool pairs = strcmp(src->letters, "tk") == 0 && strcmp(dst->letters, "t") == 0;
    write_words(&words, src, dst);
    MIMO_CHECK(tokens || pairs, MIMO_ERR_SHAPE,
               "the token side is %s and the expert side %s: they are th and th, or tk and t",
               words.src, words.dst);
    MIMO_CHECK(src->dtype == dst->dtype && (pairs || src->shape[1] == dst->shape[1]),
               MIMO_ERR_SHAPE,
               "the token side is %s and the expert side %s: dtype and h must agree", words.src,
               words.dst);
    bool wide = src->dtype == MIMO_F32 || src->dtype == MIMO_F64;
    MIMO_CHECK(tokens || (wide && src->shape[1] == dispatch->shape.top_k), MIMO_ERR_SHAPE,
               "the token side is %s: values of pairs are f32 or f64, of k = %" PRId64, words.src,
               dispatch->shape.top_k);
    MIMO_CHECK(pairs || src->shape[1] <= dispatch->desc.hidden, MIMO_ERR_SHAPE,
               "the token side is %s: rows have at most %" PRId64 " elements (hidden)", words.src,
               dispatch->desc.hidden);
    return MIMO_OK;
}

static mimo_status check_rows(const mimo_op *op, const mimo_tensor *src, const mimo_tensor *dst)
{
    view_words words;
    const mimo_route *route = mimo_route_of(op);
    int64_t tokens = route->sizes.tokens, rows = route->sizes.rows;
    write_words(&words, src, dst);
    MIMO_CHECK(src->shape[0] == tokens, MIMO_ERR_SHAPE,
               "the token side is %s, and route %" PRId64 " has %" PRId64 " tokens of this rank",
               words.src, route->number, tokens);
    MIMO_CHECK(dst->shape[0] == rows, MIMO_ERR_SHAPE,
               "the expert side is %s, and this rank's tile has %" PRId64 " rows by route %" PRId64,
               words.dst, rows, route->number);
    return MIMO_OK;
}

static mimo_status check_sum(const mimo_tensor *src, const mimo_tensor *dst)
{
    char text[MIMO_VIEW_TEXT];
    mimo_dtype_kind kind = mimo_dtype_kind_of(src->dtype);
    MIMO_CHECK(kind == MIMO_DTYPE_FLOAT || kind == MIMO_DTYPE_HALF, MIMO_ERR_UNSUPPORTED,
               "combine of %s: %s can be moved, not summed",
               mimo_tensor_text(text, sizeof text, src), mimo_dtype_name(src->dtype));
    return mimo_tile_check_addresses(src, dst);
}

/* A view as a tile of `rows` rows. */
static mimo_tile tile_of(const mimo_tensor *view, int64_t rows, int64_t row_bytes)
{
    return (mimo_tile){
        .view = *view, .batch = rows, .seq = 1, .row_b = 1, .row_s = 1, .row_bytes = row_bytes};
}

mimo_status mimo_dispatch_read_pair(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                                    const mimo_tensor *dst)
{
    int64_t size = (int64_t)mimo_dtype_size(src->dtype);
    mimo_memory memory = op->mover->comm->memory;
    MIMO_TRY(check_view(src, memory, "token"));
    MIMO_TRY(check_view(dst, memory, "expert"));
    MIMO_TRY(check_kind(op, src, dst));
    MIMO_TRY(check_rows(op, src, dst));
    if (op->call.backward)
        MIMO_TRY(check_sum(src, dst));
    bool pairs = src->letters[1] == 'k';
    int64_t row_bytes = pairs ? size : size * src->shape[1];
    int64_t rows = pairs ? src->shape[0] * src->shape[1] : src->shape[0];
    *out =
        (mimo_tile_pair){tile_of(src, rows, row_bytes), tile_of(dst, dst->shape[0], row_bytes), 1};
    return MIMO_OK;
}

mimo_buffer *mimo_dispatch_target(const mimo_op *op, int i)
{
    const mimo_dispatch *dispatch = mimo_route_of(op)->dispatch;
    const mimo_tile *tile = &op->tensors.pairs[i].dst;
    if (op->call.backward || !dispatch->flags)
        return NULL;
    return mimo_buffer_holding(op->mover->parent, tile->view.data, mimo_tile_bytes(tile));
}
