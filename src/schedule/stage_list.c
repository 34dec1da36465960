#include "schedule/schedule_types.h"

#include "core/memory.h"

mimo_status mimo_stage_append(mimo_stage_list *list, mimo_schedule_step step)
{
    if (list->count == list->capacity) {
        int64_t grown = list->capacity > 0 ? 2 * list->capacity : 16;
        MIMO_TRY(mimo_regrow(&list->steps, list->count, grown, sizeof *list->steps));
        list->capacity = grown;
    }
    list->steps[list->count++] = step;
    return MIMO_OK;
}
