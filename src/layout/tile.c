#include "layout/tile.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/address.h"
#include "core/checked.h"

bool mimo_tile_is_flat(const mimo_tensor *view)
{
    return strcmp(view->letters, "bh") == 0 || strcmp(view->letters, "th") == 0;
}

mimo_status mimo_tile_check_view(const mimo_tensor *view, mimo_memory memory, const char *name)
{
    char text[MIMO_VIEW_TEXT];
    int64_t elements;
    MIMO_TRY(mimo_tensor_extent(&elements, NULL, view));
    bool known = mimo_tile_is_flat(view) || strcmp(view->letters, "sbh") == 0 ||
                 strcmp(view->letters, "bsh") == 0;
    MIMO_CHECK(known, MIMO_ERR_SHAPE, "%s tile is %s; the bridge takes sbh, bsh, bh and th", name,
               mimo_tensor_text(text, sizeof text, view));
    MIMO_CHECK(view->memory == memory, MIMO_ERR_ARGUMENT,
               "%s tile %s lies in memory kind %d, the communicator moves kind %d", name,
               mimo_tensor_text(text, sizeof text, view), (int)view->memory, (int)memory);
    MIMO_CHECK(view->data || elements == 0, MIMO_ERR_ARGUMENT, "%s tile %s has data NULL", name,
               mimo_tensor_text(text, sizeof text, view));
    return MIMO_OK;
}

mimo_status mimo_tile_read(mimo_tile *out, const mimo_tensor *view, int64_t flat_seq)
{
    mimo_tile tile = {.view = *view};
    MIMO_TRY(mimo_mul(&tile.row_bytes, mimo_tensor_size(view, 'h'),
                      (int64_t)mimo_dtype_size(view->dtype)));
    if (mimo_tile_is_flat(view)) {
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

static mimo_status check_address(const mimo_tensor *view, const char *name)
{
    char text[MIMO_VIEW_TEXT], what[MIMO_VIEW_TEXT + 16];
    int64_t elements;
    MIMO_TRY(mimo_tensor_extent(&elements, NULL, view));
    snprintf(what, sizeof what, "%s tile %s", name, mimo_tensor_text(text, sizeof text, view));
    return mimo_check_address(what, view->data, elements, view->dtype);
}

mimo_status mimo_tile_check_addresses(const mimo_tensor *src, const mimo_tensor *dst)
{
    MIMO_TRY(check_address(src, "src"));
    return check_address(dst, "dst");
}

mimo_status mimo_tile_check_apart(const mimo_tensor *a, const mimo_tensor *b)
{
    int64_t a_bytes, b_bytes;
    MIMO_TRY(mimo_tensor_extent(NULL, &a_bytes, a));
    MIMO_TRY(mimo_tensor_extent(NULL, &b_bytes, b));
    uintptr_t at = (uintptr_t)a->data, bt = (uintptr_t)b->data;
    bool apart = a_bytes == 0 || b_bytes == 0 || at + (uintptr_t)a_bytes <= bt ||
                 bt + (uintptr_t)b_bytes <= at;
    MIMO_CHECK(apart, MIMO_ERR_ARGUMENT, "the tiles at %p and %p overlap", a->data, b->data);
    return MIMO_OK;
}

mimo_tile mimo_tile_like(const mimo_tile *tile, void *data, int64_t seq)
{
    mimo_tile like = *tile;
    like.view.data = data;
    for (int i = 0; i < mimo_tensor_ndim(&like.view); i++) {
        if (like.view.letters[i] == 's')
            like.view.shape[i] = seq;
        else if (mimo_tile_is_flat(&like.view) && i == 0)
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
