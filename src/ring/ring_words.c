#include "ring/ring_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/letters.h"

void mimo_ring_append(mimo_ring_text *to, const char *format, ...)
{
    va_list arguments;
    if (to->used + 1 >= to->capacity)
        return;
    size_t space = to->capacity - to->used;
    char *at = to->text + to->used;
    va_start(arguments, format);
    mimo_end_with_letter(at, space, vsnprintf(at, space, format, arguments));
    va_end(arguments);
    to->used += strlen(at);
}

void mimo_ring_append_ranks(mimo_ring_text *to, const int *ranks, int count)
{
    mimo_ring_append(to, count == 1 ? "rank " : "ranks ");
    for (int i = 0, last; i < count; i = last + 1) {
        last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (last == i + 1) /* "6, 7" */
            last = i;
        mimo_ring_append(to, last > i ? "%s%d-%d" : "%s%d", i > 0 ? ", " : "", ranks[i],
                         ranks[last]);
    }
}

void mimo_ring_append_time(mimo_ring_text *to, int64_t nanoseconds)
{
    double seconds = nanoseconds > 0 ? (double)nanoseconds / 1e9 : 0;
    if (seconds < 10)
        mimo_ring_append(to, "%.2g s", seconds);
    else if (seconds < 600)
        mimo_ring_append(to, "%.0f s", seconds);
    else if (seconds < 36000)
        mimo_ring_append(to, "%.0f min", seconds / 60);
    else
        mimo_ring_append(to, "%.0f h", seconds / 3600);
}

void mimo_ring_append_call(mimo_ring_text *to, const mimo_ring_sample *sample,
                           const mimo_ring_call *call)
{
    const char *object = mimo_ring_name_at(sample, call->object);
    const char *verb = mimo_ring_name_at(sample, call->verb);
    mimo_ring_append(to, "call %" PRIu64 ", %s%s%s", call->number, object, object[0] ? " " : "",
                     verb);
    if (call->micro_batch >= 0)
        mimo_ring_append(to, " in micro-batch %d", (int)call->micro_batch);
}
