/* What the collective executor asks of a pair of tiles: the shape of the dst tile follows from that
 * of the src tile. */
#include "bridge/collective/collective_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"

/* The full sequence length: from the src view, or, where that is flat, from the dst view. */
static mimo_status full_sequence(int64_t *out, const mimo_tile_rules *rules, const mimo_tensor *src,
                                 const mimo_tensor *dst)
{
    char text[MIMO_VIEW_TEXT];
    MIMO_CHECK(
        !mimo_tile_is_flat(dst) || !rules->partition, MIMO_ERR_SHAPE,
        "dst tile is %s: with a partition it must be sbh or bsh, as a flat tile does not say "
        "where sequences end",
        mimo_tensor_text(text, sizeof text, dst));
    if (!mimo_tile_is_flat(src)) {
        *out = mimo_tensor_size(src, 's');
        return MIMO_OK;
    }
    return mimo_mul(out, mimo_tile_is_flat(dst) ? 1 : mimo_tensor_size(dst, 's'),
                    mimo_tile_is_flat(dst) ? 1 : rules->cuts);
}

/* The dst view that goes with the src view, to be compared and printed. */
static mimo_status needed_dst(mimo_tensor *out, const mimo_tile_rules *rules, const mimo_tile *src,
                              int64_t seq, const mimo_tensor *dst)
{
    char text[MIMO_VIEW_TEXT];
    int64_t rows = seq, k = rules->pairing.scale, batch = src->batch, flat_rows = 0;
    if (rules->partition)
        MIMO_TRY(mimo_partition_rows(&rows, rules->partition, MIMO_EMBEDDINGS, seq));
    if (rules->pairing.direction == MIMO_FAN_OUT) {
        MIMO_CHECK(batch % k == 0, MIMO_ERR_SHAPE,
                   "src tile %s holds %" PRId64 " samples, which fan-out by %" PRId64
                   " does not divide",
                   mimo_tensor_text(text, sizeof text, &src->view), batch, k);
        batch /= k;
    } else {
        MIMO_TRY(mimo_mul(&batch, batch, k));
    }
    if (mimo_tile_is_flat(dst))
        MIMO_TRY(mimo_mul(&flat_rows, batch, rows));
    *out = *dst;
    out->dtype = src->view.dtype;
    for (int i = 0; i < mimo_tensor_ndim(dst); i++)
        out->shape[i] = dst->letters[i] == 'h'   ? mimo_tensor_size(&src->view, 'h')
                        : mimo_tile_is_flat(dst) ? flat_rows
                        : dst->letters[i] == 'b' ? batch
                                                 : rows;
    return MIMO_OK;
}

/* The views alone fit 64 bits; the dst tile with full sequences, which executors stage, may not. */
static mimo_status check_full_size(const mimo_tile *dst, int64_t seq)
{
    int64_t rows, bytes;
    MIMO_TRY(mimo_mul(&rows, dst->batch, seq));
    return mimo_mul(&bytes, rows, dst->row_bytes);
}

static const char *direction_text(char *text, size_t size, const mimo_pairing *pairing)
{
    if (pairing->direction == MIMO_FAN_NONE)
        snprintf(text, size, "as src and dst dp are equal,");
    else
        snprintf(text, size, "%s by %" PRId64 " from", mimo_fan_name(pairing->direction),
                 pairing->scale);
    return text;
}

static mimo_status read_pair(mimo_tile_pair *pair, const mimo_tile_rules *rules,
                             const mimo_tensor *src, const mimo_tensor *dst)
{
    char got[MIMO_VIEW_TEXT], from[MIMO_VIEW_TEXT], need[MIMO_VIEW_TEXT], how[64];
    mimo_tensor needed;
    MIMO_TRY(full_sequence(&pair->seq, rules, src, dst));
    MIMO_CHECK(
        !mimo_tile_is_flat(src) || (pair->seq > 0 ? src->shape[0] % pair->seq : src->shape[0]) == 0,
        MIMO_ERR_SHAPE,
        "src tile %s is not a whole number of samples of %" PRId64 " positions (dst tile %s)",
        mimo_tensor_text(from, sizeof from, src), pair->seq,
        mimo_tensor_text(got, sizeof got, dst));
    MIMO_TRY(mimo_tile_read(&pair->src, src, pair->seq));
    MIMO_TRY(needed_dst(&needed, rules, &pair->src, pair->seq, dst));
    MIMO_CHECK(
        needed.dtype == dst->dtype && memcmp(needed.shape, dst->shape, sizeof needed.shape) == 0,
        MIMO_ERR_SHAPE, "dst tile is %s; %s src tile %s needs %s",
        mimo_tensor_text(got, sizeof got, dst), direction_text(how, sizeof how, &rules->pairing),
        mimo_tensor_text(from, sizeof from, src), mimo_tensor_text(need, sizeof need, &needed));
    MIMO_TRY(mimo_tile_read(&pair->dst, dst, pair->seq));
    return check_full_size(&pair->dst, pair->seq);
}

mimo_status mimo_tile_pair_of(mimo_tile_pair *out, const mimo_tile_rules *rules,
                              const mimo_tensor *src, const mimo_tensor *dst)
{
    char got[MIMO_VIEW_TEXT], from[MIMO_VIEW_TEXT];
    mimo_tile_pair pair;
    MIMO_TRY(mimo_tile_check_view(src, rules->memory, "src"));
    MIMO_TRY(mimo_tile_check_view(dst, rules->memory, "dst"));
    mimo_status status = read_pair(&pair, rules, src, dst);
    if (status == MIMO_ERR_OVERFLOW)
        mimo_fail_prefix(status,
                         "dst tile %s, src tile %s: ", mimo_tensor_text(got, sizeof got, dst),
                         mimo_tensor_text(from, sizeof from, src));
    MIMO_TRY(status);
    *out = pair;
    return MIMO_OK;
}
