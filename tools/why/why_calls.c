#include "tools/why/why_calls.h"

#include "core/check.h"
#include "core/memory.h"
#include "ring/ring_waits.h"
#include "ring/ring_words.h"

static int append_open(mimo_ring_call *calls, const mimo_ring_sample *ring)
{
    int count = 0;
    for (int i = 1; i < ring->count; i++)
        if (mimo_ring_is_open(&ring->seen[i]))
            calls[count++] = ring->seen[i].open;
    return count;
}

mimo_status why_calls_read(why_calls *out, const why_rings *rings, int i)
{
    const mimo_ring_memory *memory = &rings->memories[i];
    const mimo_ring_head *head = (const mimo_ring_head *)memory->base;
    *out = (why_calls){.ring = rings->looked[i].now, .to_real = head->real - head->monotonic};
    MIMO_TRY(mimo_reserve(&out->calls, MIMO_RING_CALLS + MIMO_RING_SLOTS, sizeof *out->calls));
    out->count = mimo_ring_read_calls(out->calls, memory);
    out->count += append_open(out->calls + out->count, out->ring);
    return MIMO_OK;
}

void why_calls_release(why_calls *calls)
{
    mimo_release(calls->calls);
    calls->calls = NULL;
}

void why_call_name(char *name, size_t capacity, const mimo_ring_sample *ring,
                   const mimo_ring_call *call)
{
    mimo_ring_text text = {name, capacity, 0};
    const char *object = mimo_ring_name_at(ring, call->object);
    mimo_ring_append(&text, "%s%s%s", object, object[0] ? " " : "",
                     mimo_ring_name_at(ring, call->verb));
    if (text.used == 0)
        mimo_ring_append(&text, "call");
}

void why_print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}
