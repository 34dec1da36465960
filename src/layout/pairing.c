/* Pairs of grids over the same ranks: fan, gather groups, slices. */
#include <mimo/pairing.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "grid/grid_types.h"

MIMO_DEFINE_INIT(mimo_pairing, MIMO_PAIRING_INIT)

const char *mimo_fan_name(mimo_fan fan)
{
    switch (fan) {
    case MIMO_FAN_IN:
        return "fan_in";
    case MIMO_FAN_OUT:
        return "fan_out";
    case MIMO_FAN_EQUAL:
        break;
    }
    return "equal";
}

/* ---------------------------------------- validation ---------------------------------------- */

typedef struct grid_pair {
    const mimo_grid *src, *dst;
    char src_text[MIMO_GRID_TEXT], dst_text[MIMO_GRID_TEXT];
} grid_pair;

/* The dimensions that a side must have, and those that must have size 1. */
static mimo_status check_side(const mimo_grid *grid, const char *side, const char *text)
{
    static const char *const needed[] = {"tp", "dp"};
    for (int i = 0; i < 2; i++)
        MIMO_CHECK(mimo_grid_find(grid, needed[i]) >= 0, MIMO_ERR_GRID,
                   "%s grid %s has no dimension '%s'", side, text, needed[i]);
    MIMO_CHECK(mimo_grid_dim_size(grid, "pp") == 1, MIMO_ERR_GRID,
               "%s grid %s has pp = %" PRId64 ", and the collective executor needs pp = 1", side,
               text, mimo_grid_dim_size(grid, "pp"));
    for (int i = 0; i < grid->ndims; i++)
        MIMO_CHECK(mimo_dim_is_known(grid->dims[i].name) || grid->dims[i].size == 1, MIMO_ERR_GRID,
                   "%s grid %s has %s = %" PRId64
                   ", and the collective executor takes size 1 in dimensions other than tp, cp and "
                   "dp",
                   side, text, grid->dims[i].name, grid->dims[i].size);
    return MIMO_OK;
}

static mimo_status check_ranks(const grid_pair *pair)
{
    MIMO_CHECK(pair->src->size == pair->dst->size, MIMO_ERR_GRID,
               "src grid %s has %" PRId64 " ranks and dst grid %s has %" PRId64, pair->src_text,
               pair->src->size, pair->dst_text, pair->dst->size);
    MIMO_CHECK(pair->src->offset == pair->dst->offset, MIMO_ERR_GRID,
               "src grid %s is at offset %" PRId64 " and dst grid %s at offset %" PRId64,
               pair->src_text, pair->src->offset, pair->dst_text, pair->dst->offset);
    return MIMO_OK;
}

static void set_fan(mimo_pairing *pairing, const mimo_grid *src, const mimo_grid *dst)
{
    int64_t src_dp = mimo_grid_dim_size(src, "dp"), dst_dp = mimo_grid_dim_size(dst, "dp");
    *pairing = (mimo_pairing){sizeof *pairing, MIMO_FAN_EQUAL, 1, 0, 0};
    if (src_dp > dst_dp)
        pairing->fan = MIMO_FAN_IN;
    else if (dst_dp > src_dp)
        pairing->fan = MIMO_FAN_OUT;
    else
        return;
    pairing->scale = src_dp > dst_dp ? src_dp / dst_dp : dst_dp / src_dp;
    pairing->groups = src->size / pairing->scale; /* every rank is in exactly one */
    pairing->group_size = pairing->scale;
}

/*
 * Placement: on every rank the dp coordinate of the smaller side must be that of the larger side
 * divided by k, because the two tiles then have the same samples.
 *
 * Claim: this holds on every rank if and only if n = 1 or the two steps are equal, where n is the
 * smaller dp size, and the steps are
 *
 *     larger side    step = stride * k
 *     smaller side   step = stride
 *
 * Why: let r be the rank, counted from the offset. The two sides of the rule are
 *
 *     larger side    (r / stride mod (n * k)) / k = r / step mod n
 *     smaller side   r / stride mod n             = r / step mod n
 *
 * With n = 1 both are 0. Equal steps make them equal. Let the steps differ and n > 1: below the
 * smaller step both are 0; at the smaller step one is 1 and the other is 0.
 *
 * So the smaller step is the first rank that breaks the rule. The error names it.
 */
static mimo_status check_placement(const grid_pair *pair, const mimo_pairing *pairing)
{
    int64_t src_step = mimo_grid_stride(pair->src, "dp"),
            dst_step = mimo_grid_stride(pair->dst, "dp");
    if (pairing->fan == MIMO_FAN_IN)
        src_step *= pairing->scale;
    else
        dst_step *= pairing->scale;
    int64_t src_dp = mimo_grid_dim_size(pair->src, "dp"),
            dst_dp = mimo_grid_dim_size(pair->dst, "dp");
    if (src_step == dst_step || src_dp == 1 || dst_dp == 1)
        return MIMO_OK;

    int64_t rank = pair->src->offset + (src_step < dst_step ? src_step : dst_step);
    int64_t src_coord, dst_coord;
    MIMO_TRY(mimo_grid_coord(&src_coord, pair->src, rank, "dp"));
    MIMO_TRY(mimo_grid_coord(&dst_coord, pair->dst, rank, "dp"));
    return mimo_fail(MIMO_ERR_GRID,
                     "placement: rank %" PRId64 " has dp coordinate %" PRId64 " of %" PRId64
                     " in src grid %s and %" PRId64 " of %" PRId64
                     " in dst grid %s: these are different samples",
                     rank, src_coord, src_dp, pair->src_text, dst_coord, dst_dp, pair->dst_text);
}

mimo_status mimo_pairing_of(mimo_pairing *out, const mimo_grid *src, const mimo_grid *dst)
{
    MIMO_CHECK(out && src && dst, MIMO_ERR_ARGUMENT, "mimo_pairing_of: %s is NULL",
               !out ? "out" : (src ? "dst" : "src"));
    grid_pair pair = {.src = src, .dst = dst};
    mimo_grid_text(pair.src_text, sizeof pair.src_text, src);
    mimo_grid_text(pair.dst_text, sizeof pair.dst_text, dst);
    MIMO_TRY(check_side(src, "src", pair.src_text));
    MIMO_TRY(check_side(dst, "dst", pair.dst_text));
    MIMO_TRY(check_ranks(&pair));
    MIMO_CHECK(mimo_grid_dim_size(src, "cp") == 1, MIMO_ERR_GRID,
               "src grid %s has cp = %" PRId64 ", and the collective executor needs src cp = 1",
               pair.src_text, mimo_grid_dim_size(src, "cp"));

    int64_t src_dp = mimo_grid_dim_size(src, "dp"), dst_dp = mimo_grid_dim_size(dst, "dp");
    MIMO_CHECK(src_dp % dst_dp == 0 || dst_dp % src_dp == 0, MIMO_ERR_GRID,
               "src grid %s has dp = %" PRId64 " and dst grid %s has dp = %" PRId64
               ": neither divides the other",
               pair.src_text, src_dp, pair.dst_text, dst_dp);
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    set_fan(&pairing, src, dst);
    MIMO_TRY(check_placement(&pair, &pairing));
    return mimo_write_descriptor(out, &pairing, sizeof pairing, "pairing");
}

/* -------------------------------------- gather groups --------------------------------------- */

/* The grid with the larger dp: gather groups run along its dp. Both grids have size 1 in all
 * dimensions except tp, cp and dp, and src has cp = 1. So one formula serves fan-in and fan-out. */
static const mimo_grid *wide_side(const mimo_pairing *pairing, const mimo_grid *src,
                                  const mimo_grid *dst)
{
    return pairing->fan == MIMO_FAN_IN ? src : dst;
}

mimo_status mimo_pairing_group(int64_t *ranks, const mimo_grid *src, const mimo_grid *dst,
                               int64_t index)
{
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    MIMO_TRY(mimo_pairing_of(&pairing, src, dst));
    MIMO_CHECK(ranks, MIMO_ERR_ARGUMENT, "mimo_pairing_group: ranks is NULL");
    MIMO_CHECK(index >= 0 && index < pairing.groups, MIMO_ERR_ARGUMENT,
               "gather group %" PRId64 " is outside the %" PRId64 " groups there are", index,
               pairing.groups);

    const mimo_grid *wide = wide_side(&pairing, src, dst);
    int64_t tp = mimo_grid_dim_size(wide, "tp"), cp = mimo_grid_dim_size(wide, "cp");
    int64_t c = index % cp, t = index / cp % tp, d = index / cp / tp;
    int64_t dp_stride = mimo_grid_stride(wide, "dp");
    int64_t first = wide->offset + t * mimo_grid_stride(wide, "tp") +
                    c * mimo_grid_stride(wide, "cp") + d * pairing.scale * dp_stride;
    for (int64_t j = 0; j < pairing.scale; j++)
        ranks[j] = first + j * dp_stride;
    return MIMO_OK;
}

mimo_status mimo_pairing_slot(int64_t *index, int64_t *slot, const mimo_grid *src,
                              const mimo_grid *dst, int64_t rank)
{
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    int64_t t, c, d;
    MIMO_TRY(mimo_pairing_of(&pairing, src, dst));
    const mimo_grid *wide = wide_side(&pairing, src, dst);
    MIMO_TRY(mimo_grid_coord(&t, wide, rank, "tp"));
    MIMO_TRY(mimo_grid_coord(&c, wide, rank, "cp"));
    MIMO_TRY(mimo_grid_coord(&d, wide, rank, "dp"));
    int64_t tp = mimo_grid_dim_size(wide, "tp"), cp = mimo_grid_dim_size(wide, "cp");
    bool equal = pairing.fan == MIMO_FAN_EQUAL;
    if (index)
        *index = equal ? -1 : (d / pairing.scale * tp + t) * cp + c;
    if (slot)
        *slot = d % pairing.scale;
    return MIMO_OK;
}

mimo_status mimo_pairing_samples(int64_t *first, int64_t *count, const mimo_grid *grid,
                                 int64_t rank, int64_t batch)
{
    char text[MIMO_GRID_TEXT];
    int64_t d;
    MIMO_CHECK(grid && first && count, MIMO_ERR_ARGUMENT, "mimo_pairing_samples: %s is NULL",
               !grid ? "grid" : (first ? "count" : "first"));
    MIMO_TRY(mimo_grid_coord(&d, grid, rank, "dp"));
    int64_t dp = mimo_grid_dim_size(grid, "dp");
    MIMO_CHECK(batch >= 0 && batch % dp == 0, MIMO_ERR_SHAPE,
               "a batch of %" PRId64 " samples does not divide over dp = %" PRId64 " of grid %s",
               batch, dp, mimo_grid_text(text, sizeof text, grid));
    *first = d * (batch / dp);
    *count = batch / dp;
    return MIMO_OK;
}
