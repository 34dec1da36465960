#include "train/nn/ops/nn_mark.h"

#include "core/check.h"
#include "device/device.h"

mimo_status nn_mark_init(nn_mark *mark, const nn_runtime *runtime)
{
    mark->device = nn_runtime_or_host(runtime)->device;
    return mark->device->enqueues ? mark->device->event_create(&mark->event) : MIMO_OK;
}

void nn_mark_release(nn_mark *mark)
{
    if (mark->event)
        mark->device->event_destroy(mark->event);
    *mark = (nn_mark){0};
}

mimo_status nn_mark_set(const nn_mark *mark, mimo_stream stream)
{
    return mark->event ? mark->device->event_record(mark->event, stream) : MIMO_OK;
}

mimo_status nn_mark_await(const nn_mark *mark, mimo_stream stream)
{
    return mark->event ? mark->device->event_wait(mark->event, stream) : MIMO_OK;
}
