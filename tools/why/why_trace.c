/* The last calls as a Chrome trace. */
#include <inttypes.h>

#include "core/check.h"
#include "ring/ring_waits.h"
#include "tools/why/why_calls.h"

typedef struct trace {
    FILE *out;
    int64_t zero; /* the first begin of all, on the real clock */
    bool more;    /* an event was written */
} trace;

static void begin_event(trace *own)
{
    fputs(own->more ? ",\n" : "\n", own->out);
    own->more = true;
}

/* The thread of a communicator is its slot: 0 for one that is gone. */
static int thread_of(const mimo_ring_sample *ring, const mimo_ring_call *call)
{
    const mimo_ring_seen *comm = mimo_ring_find_comm(ring, call->comm);
    return comm ? comm->slot : 0;
}

static void print_names(trace *own, const mimo_ring_sample *ring, int process)
{
    begin_event(own);
    fprintf(own->out,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d (pid "
            "%d)\"}}",
            process, ring->rank, (int)ring->owner.pid);
    for (int i = 1; i < ring->count; i++) {
        const mimo_ring_seen *comm = &ring->seen[i];
        begin_event(own);
        fprintf(own->out,
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":",
                process, comm->slot);
        why_print_string(own->out, comm->title[0] ? comm->title : "communicator");
        fputs("}}", own->out);
    }
}

/* An open call lasts until it was read. */
static void print_call(trace *own, const why_calls *calls, const mimo_ring_call *call, int process)
{
    char name[256];
    int64_t end = call->ended ? call->ended : calls->ring->taken;
    why_call_name(name, sizeof name, calls->ring, call);
    begin_event(own);
    fputs("{\"ph\":\"X\",\"name\":", own->out);
    why_print_string(own->out, name);
    fprintf(own->out,
            ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"call\":%" PRIu64
            ",\"bytes\":%" PRId64 ",\"micro_batch\":%d,\"status\":%d,\"open\":%s}}",
            process, thread_of(calls->ring, call),
            (double)(call->begun + calls->to_real - own->zero) / 1e3,
            (double)(end - call->begun) / 1e3, call->number, call->bytes, (int)call->micro_batch,
            (int)call->status, call->ended ? "false" : "true");
}

static mimo_status print_ring(trace *own, const why_rings *rings, int i)
{
    why_calls calls;
    mimo_status status = why_calls_read(&calls, rings, i);
    if (status == MIMO_OK)
        print_names(own, calls.ring, i);
    for (int c = 0; status == MIMO_OK && c < calls.count; c++)
        print_call(own, &calls, &calls.calls[c], i);
    why_calls_release(&calls);
    return status;
}

static mimo_status find_zero(trace *own, const why_rings *rings)
{
    own->zero = INT64_MAX;
    for (int i = 0; i < rings->count; i++) {
        why_calls calls;
        mimo_status status = why_calls_read(&calls, rings, i);
        for (int c = 0; status == MIMO_OK && c < calls.count; c++)
            if (calls.calls[c].begun + calls.to_real < own->zero)
                own->zero = calls.calls[c].begun + calls.to_real;
        why_calls_release(&calls);
        MIMO_TRY(status);
    }
    return MIMO_OK;
}

mimo_status why_print_trace(FILE *out, const why_rings *rings)
{
    trace own = {.out = out};
    mimo_status status = find_zero(&own, rings);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
    for (int i = 0; status == MIMO_OK && i < rings->count; i++)
        status = print_ring(&own, rings, i);
    fputs("\n]}\n", out);
    return status;
}
