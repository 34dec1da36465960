#include "comm/nccl/nccl_packing.h"

#include "core/memory.h"

mimo_status mimo_packing_reserve(mimo_packing *packing, int64_t packed, int64_t stay)
{
    MIMO_TRY(mimo_reserve(&packing->copies, packed + stay, sizeof *packing->copies));
    return mimo_reserve(&packing->offset, packed, sizeof *packing->offset);
}

void mimo_packing_add(mimo_packing *packing, const mimo_rows *rows, int64_t offset)
{
    const mimo_rows staged = {NULL,          rows->row_bytes, 0, rows->n_outer,
                              rows->n_inner, rows->n_inner,   1};
    packing->copies[packing->count++] =
        packing->packs ? (mimo_row_copy){staged, *rows} : (mimo_row_copy){*rows, staged};
    packing->offset[packing->packed++] = offset;
}

void mimo_packing_add_staying(mimo_packing *packing, const mimo_row_copy *copy)
{
    packing->copies[packing->count++] = *copy;
}

mimo_status mimo_packing_run(mimo_packing *packing, const mimo_device *device, char *staging,
                             mimo_stream stream)
{
    for (int64_t i = 0; i < packing->packed; i++) {
        mimo_row_copy *copy = &packing->copies[i];
        (packing->packs ? &copy->to : &copy->from)->base = staging + packing->offset[i];
    }
    return device->copy_list(packing->copies, packing->count, stream);
}

void mimo_packing_release(mimo_packing *packing)
{
    mimo_release(packing->copies);
    mimo_release(packing->offset);
}
