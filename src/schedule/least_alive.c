/* The smallest limit of encoder groups that an order of LLM steps allows. */
#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "schedule/schedule_types.h"

/* Groups go back in order, though the last gradients of a later one may be there before. */
typedef struct group_counts {
    const mimo_schedule_desc *desc;
    int64_t size, *back; /* back[groups]: micro-batches whose gradients are there */
    int64_t opened, ended, most;
} group_counts;

static bool has_ended(const group_counts *own, int64_t group)
{
    int64_t left = own->desc->micro_batches - group * own->size;
    return left > 0 && own->back[group] == (left < own->size ? left : own->size);
}

/* A part of a step of stage 0 and chunk 0. */
static void count_part(group_counts *own, const mimo_schedule_step *part)
{
    int64_t group = part->index / own->size;
    if (part->kind == MIMO_STEP_F)
        own->opened = mimo_larger(own->opened, group + 1);
    else if (part->kind != MIMO_STEP_W)
        own->back[group]++;
    while (has_ended(own, own->ended))
        own->ended++;
    own->most = mimo_larger(own->most, own->opened - own->ended);
}

static void count_groups(group_counts *own, const mimo_stage_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        mimo_schedule_step parts[2];
        int count = mimo_step_parts(parts, &list->steps[i]);
        for (int k = 0; k < count; k++)
            if (mimo_step_of_llm(parts[k].kind) && parts[k].chunk == 0)
                count_part(own, &parts[k]);
    }
}

mimo_status mimo_schedule_least_alive(int64_t *out, const mimo_schedule *schedule,
                                      int64_t encoder_group)
{
    const mimo_schedule_desc *desc = &schedule->desc;
    group_counts own = {.desc = desc, .size = encoder_group};
    *out = encoder_group > 0;
    if (encoder_group == 0 || desc->encoder_frozen || desc->kind == MIMO_SCHEDULE_FORWARD)
        return MIMO_OK;
    int64_t groups = (desc->micro_batches + encoder_group - 1) / encoder_group;
    MIMO_TRY(mimo_reserve(&own.back, groups, sizeof *own.back));
    count_groups(&own, &schedule->lists[0]);
    mimo_release(own.back);
    *out = own.most;
    return MIMO_OK;
}
