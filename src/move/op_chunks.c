/* Operations in chunks: which chunks have arrived, and on a device the events that say so. */
#include "core/memory.h"
#include "move/op_types.h"

int mimo_op_chunks_here(const mimo_op *op)
{
    if (op->steps.by_chunk)
        return op->progress.item;
    return op->progress.item > 0 && op->progress.item == op->tensors.count ? op->call.chunks : 0;
}

mimo_status mimo_op_reserve_events(mimo_op *op)
{
    const mimo_device *device = op->mover->comm->device;
    if (!op->call.chunked || !device->enqueues || op->call.chunks <= op->memory.event_count)
        return MIMO_OK;
    MIMO_TRY(mimo_regrow(&op->memory.events, op->memory.event_count, op->call.chunks,
                         sizeof(mimo_event *)));
    for (; op->memory.event_count < op->call.chunks; op->memory.event_count++)
        MIMO_TRY(device->event_create(&op->memory.events[op->memory.event_count]));
    return MIMO_OK;
}

/* One item can complete several chunks; the event of the last one stands for all of them. */
mimo_status mimo_op_record_item(mimo_op *op)
{
    const mimo_device *device = op->mover->comm->device;
    int here = mimo_op_chunks_here(op);
    if (!op->call.chunked || !device->enqueues || here == 0)
        return MIMO_OK;
    return device->event_record(op->memory.events[here - 1], op->call.stream);
}

mimo_status mimo_op_wait_event(const mimo_op *op, int chunk, mimo_stream stream)
{
    const mimo_device *device = op->mover->comm->device;
    int last = op->steps.by_chunk ? chunk : op->call.chunks - 1;
    return device->enqueues ? device->event_wait(op->memory.events[last], stream) : MIMO_OK;
}

void mimo_op_release_events(mimo_op *op)
{
    for (int64_t i = 0; i < op->memory.event_count; i++)
        op->mover->comm->device->event_destroy(op->memory.events[i]);
    mimo_release(op->memory.events);
}
