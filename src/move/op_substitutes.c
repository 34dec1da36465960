/* Substitutes: memory that a prepare moves in place of the caller's tensors, where its steps have
 * no other way to take what they take for the first time. */
#include "core/checked.h"
#include "core/memory.h"
#include "move/op_types.h"

enum { ALIGNMENT = 256 };

/* Put a tile at `used` bytes of the memory; with memory NULL only count its bytes. */
static mimo_status place(mimo_tile *tile, char *memory, int64_t *used)
{
    int64_t end;
    if (memory)
        tile->view.data = memory + *used;
    MIMO_TRY(mimo_add(&end, *used, mimo_tile_bytes(tile)));
    MIMO_TRY(mimo_add(&end, end, ALIGNMENT - 1));
    *used = end / ALIGNMENT * ALIGNMENT;
    return MIMO_OK;
}

static mimo_status place_all(mimo_op *op, char *memory, int64_t *used)
{
    *used = 0;
    for (int i = 0; i < op->tensors.count; i++) {
        MIMO_TRY(place(&op->tensors.pairs[i].src, memory, used));
        MIMO_TRY(place(&op->tensors.pairs[i].dst, memory, used));
    }
    return MIMO_OK;
}

mimo_status mimo_op_take_substitutes(mimo_op *op)
{
    int64_t bytes;
    void *memory;
    const mimo_device *device = op->mover->comm->device;
    MIMO_TRY(place_all(op, NULL, &bytes));
    MIMO_TRY(device->reserve(&memory, bytes));
    op->memory.substitutes = memory;
    MIMO_TRY(place_all(op, memory, &bytes));
    const mimo_rows all = mimo_one_row(memory, bytes);
    return device->zero_rows(&all, op->call.stream);
}

/* On the host, a transport may still use the memory of a prepare that failed. */
void mimo_op_release_substitutes(mimo_op *op)
{
    const mimo_device *device = op->mover->comm->device;
    void *memory = op->memory.substitutes;
    op->memory.substitutes = NULL;
    if (op->progress.status == MIMO_OK || device->enqueues)
        device->release(memory);
    else
        mimo_abandon(memory);
}
