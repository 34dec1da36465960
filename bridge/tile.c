#include "bridge/tile.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"

enum { VIEW_TEXT = 128 };

static bool is_flat(const mimo_tensor *view)
{
    return strcmp(view->letters, "bh") == 0 || strcmp(view->letters, "th") == 0;
}

static mimo_status check_view(const mimo_tensor *view, mimo_memory memory, const char *role)
{
    char text[VIEW_TEXT];
    int64_t elements;
    MIMO_TRY(mimo_tensor_extent(view, &elements, NULL));
    mimo_tensor_text(view, text, sizeof text);
    bool known =
        is_flat(view) || strcmp(view->letters, "sbh") == 0 || strcmp(view->letters, "bsh") == 0;
    MIMO_CHECK(known, MIMO_ERR_SHAPE, "%s tile is %s; the bridge takes sbh, bsh, bh and th", role,
               text);
    MIMO_CHECK(view->memory == memory, MIMO_ERR_ARGUMENT,
               "%s tile %s lies in memory kind %d, the communicator moves kind %d", role, text,
               (int)view->memory, (int)memory);
    MIMO_CHECK(view->data || elements == 0, MIMO_ERR_ARGUMENT, "%s tile %s has data NULL", role,
               text);
    return MIMO_OK;
}

static mimo_status read_tile(mimo_tile *out, const mimo_tensor *view, int64_t flat_seq)
{
    mimo_tile tile = {.view = *view};
    MIMO_TRY(mimo_mul(&tile.row_bytes, mimo_tensor_size(view, 'h'),
                      (int64_t)mimo_dtype_size(view->dtype)));
    if (is_flat(view)) {
        tile.seq = flat_seq;
        tile.batch = flat_seq > 0 ? view->shape[0] / flat_seq : 0;
    } else {
        tile.seq = mimo_tensor_size(view, 's');
        tile.batch = mimo_tensor_size(view, 'b');
    }
    bool sequence_first = view->letters[0] == 's';
    tile.row_b = sequence_first ? 1 : tile.seq;
    tile.row_s = sequence_first ? tile.batch : 1;
    *out = tile;
    return MIMO_OK;
}

/* The full sequence length, from whichever view tells it. */
static mimo_status full_sequence(int64_t *out, const mimo_tile_rules *rules, const mimo_tensor *src,
                                 const mimo_tensor *dst)
{
    char text[VIEW_TEXT];
    MIMO_CHECK(
        !is_flat(dst) || !rules->partition, MIMO_ERR_SHAPE,
        "dst tile is %s: with a partition it must be sbh or bsh, as a flat tile does not say "
        "where sequences end",
        mimo_tensor_text(dst, text, sizeof text));
    if (!is_flat(src)) {
        *out = mimo_tensor_size(src, 's');
        return MIMO_OK;
    }
    return mimo_mul(out, is_flat(dst) ? 1 : mimo_tensor_size(dst, 's'),
                    is_flat(dst) ? 1 : rules->cuts);
}

/* The dst view that goes with the src view, to be compared and printed. */
static mimo_status needed_dst(mimo_tensor *out, const mimo_tile_rules *rules, const mimo_tile *src,
                              int64_t seq, const mimo_tensor *dst)
{
    char text[VIEW_TEXT];
    int64_t rows = seq, k = rules->pairing.scale, batch = src->batch, flat_rows = 0;
    if (rules->partition)
        MIMO_TRY(mimo_partition_rows(rules->partition, MIMO_EMBEDDINGS, seq, &rows));
    if (rules->pairing.direction == MIMO_FAN_OUT) {
        MIMO_CHECK(batch % k == 0, MIMO_ERR_SHAPE,
                   "src tile %s holds %" PRId64 " samples, which fan-out by %" PRId64
                   " does not divide",
                   mimo_tensor_text(&src->view, text, sizeof text), batch, k);
        batch /= k;
    } else {
        MIMO_TRY(mimo_mul(&batch, batch, k));
    }
    if (is_flat(dst))
        MIMO_TRY(mimo_mul(&flat_rows, batch, rows));
    *out = *dst;
    out->dtype = src->view.dtype;
    for (int i = 0; i < mimo_tensor_ndim(dst); i++)
        out->shape[i] = dst->letters[i] == 'h'   ? mimo_tensor_size(&src->view, 'h')
                        : is_flat(dst)           ? flat_rows
                        : dst->letters[i] == 'b' ? batch
                                                 : rows;
    return MIMO_OK;
}

static mimo_status check_apart(const mimo_tensor *src, const mimo_tensor *dst)
{
    int64_t src_bytes, dst_bytes;
    MIMO_TRY(mimo_tensor_extent(src, NULL, &src_bytes));
    MIMO_TRY(mimo_tensor_extent(dst, NULL, &dst_bytes));
    uintptr_t a = (uintptr_t)src->data, b = (uintptr_t)dst->data;
    bool apart = a + (uintptr_t)src_bytes <= b || b + (uintptr_t)dst_bytes <= a;
    MIMO_CHECK(apart, MIMO_ERR_ARGUMENT, "the tiles at %p and %p overlap", src->data, dst->data);
    return MIMO_OK;
}

/* The views alone fit 64 bits; the dst tile with full sequences, which executors stage, may not. */
static mimo_status check_full_size(const mimo_tile *dst, int64_t seq)
{
    int64_t rows, bytes;
    MIMO_TRY(mimo_mul(&rows, dst->batch, seq));
    return mimo_mul(&bytes, rows, dst->row_bytes);
}

static mimo_status read_pair(mimo_tile_pair *pair, const mimo_tile_rules *rules,
                             const mimo_tensor *src, const mimo_tensor *dst)
{
    char got[VIEW_TEXT], from[VIEW_TEXT], need[VIEW_TEXT];
    mimo_tensor needed;
    MIMO_TRY(full_sequence(&pair->seq, rules, src, dst));
    mimo_tensor_text(src, from, sizeof from);
    mimo_tensor_text(dst, got, sizeof got);
    MIMO_CHECK(!is_flat(src) || (pair->seq > 0 ? src->shape[0] % pair->seq : src->shape[0]) == 0,
               MIMO_ERR_SHAPE,
               "src tile %s is not a whole number of samples of %" PRId64
               " positions (dst tile %s)",
               from, pair->seq, got);
    MIMO_TRY(read_tile(&pair->src, src, pair->seq));
    MIMO_TRY(needed_dst(&needed, rules, &pair->src, pair->seq, dst));
    MIMO_CHECK(needed.dtype == dst->dtype &&
                   memcmp(needed.shape, dst->shape, sizeof needed.shape) == 0,
               MIMO_ERR_SHAPE, "dst tile is %s; %s by %" PRId64 " from src tile %s needs %s", got,
               mimo_direction_name(rules->pairing.direction), rules->pairing.scale, from,
               mimo_tensor_text(&needed, need, sizeof need));
    MIMO_TRY(read_tile(&pair->dst, dst, pair->seq));
    return check_full_size(&pair->dst, pair->seq);
}

mimo_status mimo_tile_pair_of(mimo_tile_pair *out, const mimo_tile_rules *rules,
                              const mimo_tensor *src, const mimo_tensor *dst)
{
    char got[VIEW_TEXT], from[VIEW_TEXT];
    mimo_tile_pair pair;
    MIMO_TRY(check_view(src, rules->memory, "src"));
    MIMO_TRY(check_view(dst, rules->memory, "dst"));
    mimo_status status = read_pair(&pair, rules, src, dst);
    if (status == MIMO_ERR_OVERFLOW)
        mimo_fail_prefix(status,
                         "dst tile %s, src tile %s: ", mimo_tensor_text(dst, got, sizeof got),
                         mimo_tensor_text(src, from, sizeof from));
    MIMO_TRY(status);
    MIMO_TRY(check_apart(src, dst));
    *out = pair;
    return MIMO_OK;
}

mimo_tile mimo_tile_like(const mimo_tile *tile, void *data, int64_t seq)
{
    mimo_tile like = *tile;
    like.view.data = data;
    for (int i = 0; i < mimo_tensor_ndim(&like.view); i++) {
        if (like.view.letters[i] == 's')
            like.view.shape[i] = seq;
        else if (is_flat(&like.view) && i == 0)
            like.view.shape[i] = seq * tile->batch;
    }
    like.seq = seq;
    if (tile->view.letters[0] != 's')
        like.row_b = seq;
    return like;
}

int64_t mimo_tile_bytes(const mimo_tile *tile)
{
    return tile->batch * tile->seq * tile->row_bytes;
}

mimo_rows mimo_tile_rows(const mimo_tile *tile, int64_t first, int64_t count, bool along_samples)
{
    mimo_rows rows = {tile->view.data, tile->row_bytes, first * tile->row_b, 0, 0, 0, 0};
    rows.n_outer = along_samples ? tile->seq : count;
    rows.outer = along_samples ? tile->row_s : tile->row_b;
    rows.n_inner = along_samples ? count : tile->seq;
    rows.inner = along_samples ? tile->row_b : tile->row_s;
    return rows;
}
