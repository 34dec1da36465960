/* Schedules as text and in other formats; the hash. */
#include "schedule/schedule_formats.h"

#include <inttypes.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/printed.h"

static void write_text(FILE *stream, const mimo_schedule *schedule)
{
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        fprintf(stream, "stage %" PRId64 ":", p);
        for (int64_t i = 0; i < schedule->lists[p].count; i++)
            fprintf(stream, " %s", mimo_step_name_of(schedule, &schedule->lists[p].steps[i]).text);
        fputc('\n', stream);
    }
}

mimo_status mimo_schedule_print(FILE *stream, const mimo_schedule *schedule,
                                mimo_schedule_format format)
{
    MIMO_CHECK(schedule && stream, MIMO_ERR_ARGUMENT, "mimo_schedule_print: %s is NULL",
               schedule ? "stream" : "schedule");
    switch (format) {
    case MIMO_SCHEDULE_TEXT:
        write_text(stream, schedule);
        break;
    case MIMO_SCHEDULE_CSV:
        mimo_schedule_write_csv(stream, schedule);
        break;
    case MIMO_SCHEDULE_SVG:
    case MIMO_SCHEDULE_TRACE:
        MIMO_TRY(mimo_schedule_write_plan(stream, schedule, format));
        break;
    default:
        return mimo_fail(MIMO_ERR_ARGUMENT, "mimo_schedule_print: there is no format %d",
                         (int)format);
    }
    bool whole = fflush(stream) == 0 && !ferror(stream);
    MIMO_CHECK(whole, MIMO_ERR_IO, "mimo_schedule_print: the stream takes no more");
    return MIMO_OK;
}

mimo_status mimo_schedule_text(int64_t *length, char *text, int64_t capacity,
                               const mimo_schedule *schedule, mimo_schedule_format format)
{
    mimo_printed printed;
    MIMO_TRY(mimo_printed_open(&printed, text, capacity, "mimo_schedule_text"));
    return mimo_printed_close(length, text, capacity, &printed,
                              mimo_schedule_print(printed.stream, schedule, format));
}

uint64_t mimo_schedule_hash(const mimo_schedule *schedule)
{
    const mimo_schedule_desc *desc = &schedule->desc;
    const int64_t sizes[] = {desc->stages, desc->chunks, desc->micro_batches, desc->encoder_group};
    uint64_t hash = MIMO_HASH_START;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        hash = mimo_hash_int(hash, sizes[i]);
    for (int64_t n = 0; n < mimo_model_chunks(schedule); n++)
        hash = mimo_hash_int(hash, schedule->stage_of[n]);
    for (int64_t p = 0; p < desc->stages; p++)
        for (int64_t i = 0; i < schedule->lists[p].count; i++) {
            const mimo_schedule_step *step = &schedule->lists[p].steps[i];
            const int64_t words[] = {step->kind, step->index, step->chunk, step->back,
                                     step->back_chunk};
            for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
                hash = mimo_hash_int(hash, words[k]);
        }
    return hash;
}
