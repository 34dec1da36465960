#include "schedule/schedule_types.h"

#include "core/memory.h"

mimo_status mimo_stage_append(mimo_stage_list *list, mimo_schedule_step step)
{
    MIMO_TRY(mimo_make_room(&list->steps, &list->capacity, list->count, 16, sizeof *list->steps));
    list->steps[list->count++] = step;
    return MIMO_OK;
}
