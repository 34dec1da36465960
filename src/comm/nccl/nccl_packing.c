#include "comm/nccl/nccl_packing.h"

#include "core/memory.h"

enum { TO, FROM };

mimo_status mimo_packing_reserve(mimo_packing *packing, int64_t packed, int64_t stay)
{
    int64_t most = packed + stay;
    MIMO_TRY(mimo_reserve(&packing->copies, most, sizeof *packing->copies));
    MIMO_TRY(mimo_reserve(&packing->places[TO], most, sizeof **packing->places));
    return mimo_reserve(&packing->places[FROM], most, sizeof **packing->places);
}

static void add(mimo_packing *packing, const mimo_placed_rows *to, const mimo_placed_rows *from)
{
    packing->copies[packing->count] = (mimo_row_copy){to->rows, from->rows};
    packing->places[TO][packing->count] = to->at;
    packing->places[FROM][packing->count] = from->at;
    packing->count++;
}

void mimo_packing_add(mimo_packing *packing, const mimo_placed_rows *placed, int64_t offset)
{
    const mimo_placed_rows staged = {mimo_rows_packed(NULL, &placed->rows), {0, offset}};
    if (packing->packs)
        add(packing, &staged, placed);
    else
        add(packing, placed, &staged);
    packing->packed++;
}

void mimo_packing_add_staying(mimo_packing *packing, const mimo_placed_copy *copy)
{
    add(packing, &copy->to, &copy->from);
}

mimo_status mimo_packing_run(mimo_packing *packing, const mimo_device *device,
                             const mimo_packing_bases *at, mimo_stream stream)
{
    for (int64_t i = 0; i < packing->count; i++) {
        mimo_row_copy *copy = &packing->copies[i];
        copy->to.base = mimo_address_of(&packing->places[TO][i], at->bases);
        copy->from.base = mimo_address_of(&packing->places[FROM][i], at->bases);
        if (i < packing->packed && packing->packs)
            copy->to.base = at->staging + packing->places[TO][i].offset;
        else if (i < packing->packed)
            copy->from.base = at->staging + packing->places[FROM][i].offset;
    }
    return device->copy_list(packing->copies, packing->count, stream);
}

void mimo_packing_release(mimo_packing *packing)
{
    mimo_release(packing->copies);
    mimo_release(packing->places[TO]);
    mimo_release(packing->places[FROM]);
}
