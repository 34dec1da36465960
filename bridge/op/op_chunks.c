/* Operations in chunks: which of them are here, and on a device the events behind them. */
#include "bridge/bridge_types.h"
#include "core/memory.h"

int mimo_op_chunks_here(const mimo_op *op)
{
    if (op->executor->at_once)
        return op->turn;
    return op->turn > 0 && op->turn == op->count ? op->chunks : 0;
}

mimo_status mimo_op_reserve_events(mimo_op *op)
{
    const mimo_device *device = op->bridge->comm->device;
    if (!op->chunked || !device->enqueues || op->chunks <= op->event_count)
        return MIMO_OK;
    MIMO_TRY(mimo_regrow(&op->events, op->event_count, op->chunks, sizeof(mimo_event *)));
    for (; op->event_count < op->chunks; op->event_count++)
        MIMO_TRY(device->event_create(&op->events[op->event_count]));
    return MIMO_OK;
}

/* The last of the chunks that are here with a turn stands for all of them. */
mimo_status mimo_op_record_turn(mimo_op *op)
{
    const mimo_device *device = op->bridge->comm->device;
    int here = mimo_op_chunks_here(op);
    if (!op->chunked || !device->enqueues || here == 0)
        return MIMO_OK;
    return device->event_record(op->events[here - 1], op->stream);
}

mimo_status mimo_op_wait_event(const mimo_op *op, int chunk, mimo_stream stream)
{
    const mimo_device *device = op->bridge->comm->device;
    int last = op->executor->at_once ? chunk : op->chunks - 1;
    return device->enqueues ? device->event_wait(op->events[last], stream) : MIMO_OK;
}

void mimo_op_release_events(mimo_op *op)
{
    for (int64_t i = 0; i < op->event_count; i++)
        op->bridge->comm->device->event_destroy(op->events[i]);
    mimo_release(op->events);
}
