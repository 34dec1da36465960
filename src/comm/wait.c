/* Waiting for a request, and for a stream. */
#include "comm/buffer_state.h"
#include "comm/recorder.h"
#include "comm/waiter.h"
#include "core/check.h"

mimo_status mimo_test(mimo_comm *comm, mimo_request *request, bool *done)
{
    MIMO_TRY(mimo_comm_check(comm));
    int64_t bytes = comm->backend->moving ? comm->backend->moving(request) : 0;
    MIMO_TRY(comm->backend->test(request, done));
    comm->ended += *done;
    if (*done)
        mimo_record_step(comm, bytes);
    return MIMO_OK;
}

mimo_status mimo_wait(mimo_comm *comm, mimo_request **request, const char *call)
{
    mimo_waiter waiter = {.comm = comm, .call = call, .request = *request};
    mimo_status status = MIMO_OK;
    bool done = *request == NULL;
    if (!done)
        mimo_record_moving(comm);
    while (!done && status == MIMO_OK) {
        status = mimo_test(comm, *request, &done);
        if (!done && status == MIMO_OK)
            status = mimo_waiter_step(&waiter, comm);
    }
    mimo_record_wait_over(&waiter);
    comm->backend->release(*request);
    *request = NULL;
    return status;
}

static mimo_status finish_stream(mimo_comm *comm, mimo_stream stream)
{
    if (comm->backend->stream_finished)
        comm->backend->stream_finished(comm, stream);
    for (const mimo_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
        MIMO_TRY(mimo_buffer_check(buffer));
    return MIMO_OK;
}

mimo_status mimo_wait_for_stream(mimo_comm *comm, mimo_stream stream, const char *call)
{
    mimo_waiter waiter = {.comm = comm, .call = call, .any = true};
    bool done = false;
    for (;;) {
        MIMO_TRY(mimo_comm_check(comm));
        MIMO_TRY(comm->device->finished(&done, stream));
        if (done) {
            mimo_record_wait_over(&waiter);
            return finish_stream(comm, stream);
        }
        MIMO_TRY(mimo_waiter_step(&waiter, comm));
    }
}
