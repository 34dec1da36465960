#include "tools/options/option_schedule.h"

#include <string.h>

#include "core/check.h"

mimo_status option_read_schedule(void *into, const option_row *row, const char *text)
{
    static const char interleaved[] = "interleaved:";
    option_schedule *out = (option_schedule *)(void *)((char *)into + row->at);
    int64_t chunks;
    if (strncmp(text, interleaved, strlen(interleaved)) == 0) {
        MIMO_TRY(option_read_int(&chunks, "--schedule interleaved", text + strlen(interleaved), 2,
                                 row->high));
        *out = (option_schedule){OPTION_INTERLEAVED, chunks};
        return MIMO_OK;
    }
    MIMO_TRY(option_read(into, row, text));
    out->chunks = out->word == OPTION_INTERLEAVED ? 2 : 1;
    return MIMO_OK;
}

mimo_schedule_kind option_schedule_kind(const option_schedule *schedule)
{
    static const mimo_schedule_kind kinds[] = {
        [OPTION_1F1B] = MIMO_SCHEDULE_1F1B,
        [OPTION_ZERO_BUBBLE] = MIMO_SCHEDULE_ZERO_BUBBLE,
        [OPTION_INTERLEAVED] = MIMO_SCHEDULE_INTERLEAVED,
        [OPTION_THREE_PHASES] = MIMO_SCHEDULE_1F1B,
    };
    return kinds[schedule->word];
}
