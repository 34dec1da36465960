/* The staging of a collective pass: full sequences, joined sp shards, and rows of all-gathers. */
#include "bridge/collective/collective_types.h"
#include "comm/comm_backend.h"
#include "core/checked.h"
#include "core/dtype_kind.h"

/* An all-gather of `bytes` bytes a rank, packed at this end and unpacked there. */
static mimo_status add_gather(mimo_staging_bytes *out, const mimo_comm *comm, int64_t bytes)
{
    int64_t all;
    MIMO_TRY(mimo_mul(&all, bytes, comm->size));
    MIMO_TRY(mimo_add(&out->leaving, out->leaving, bytes));
    return mimo_add(&out->arriving, out->arriving, all);
}

/* The sum over cp of full tiles, where it has more than one term. */
static mimo_status add_sum(mimo_staging_bytes *out, const mimo_collective *own,
                           const mimo_tile *full)
{
    int64_t elements, wide;
    mimo_dtype dtype = full->view.dtype;
    if (!own->cp_sum || own->partition || !own->cp_sum->backend->widens_sums ||
        !mimo_dtype_is_half(dtype))
        return MIMO_OK;
    elements = mimo_tile_bytes(full) / mimo_dtype_size(dtype);
    MIMO_TRY(mimo_mul(&wide, elements, (int64_t)sizeof(float)));
    return mimo_add(&out->leaving, out->leaving, wide);
}

static mimo_status stage_forward(mimo_staging_bytes *out, const mimo_staged_pass *it)
{
    const mimo_collective *own = mimo_collective_of(it->bridge);
    int64_t bytes = mimo_tile_bytes(&it->tile[MIMO_SRC]);
    if (it->bridge->pairing.fan != MIMO_FAN_IN)
        return MIMO_OK;
    return own->partition ? mimo_mul(&out->full, bytes, own->gather->size)
                          : add_gather(out, own->gather, bytes);
}

static mimo_status stage_backward(mimo_staging_bytes *out, const mimo_staged_pass *it)
{
    const mimo_collective *own = mimo_collective_of(it->bridge);
    const mimo_tile *dst = &it->tile[MIMO_DST];
    mimo_tile full = mimo_tile_like(dst, NULL, it->seq);
    if (own->partition || own->cp_sum)
        out->full = mimo_tile_bytes(&full);
    MIMO_TRY(add_sum(out, own, &full));
    if (own->sp_join) {
        MIMO_TRY(mimo_mul(&out->joined, mimo_tile_bytes(dst), own->sp_join->size));
        MIMO_TRY(add_gather(out, own->sp_join, mimo_tile_bytes(dst)));
    }
    return it->bridge->pairing.fan == MIMO_FAN_OUT
               ? add_gather(out, own->gather, mimo_tile_bytes(&full))
               : MIMO_OK;
}

mimo_status mimo_collective_staging(mimo_staging_bytes *out, const mimo_staged_pass *pass)
{
    return (pass->backward ? stage_backward : stage_forward)(out, pass);
}
