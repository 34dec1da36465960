#include "train/pipeline/schedule_choice.h"

#include "train/support/train_support.h"
#include "core/checked.h"

static mimo_schedule_desc sizes_of(const schedule_choice *choice, const schedule_need *need)
{
    mimo_schedule_desc desc = MIMO_SCHEDULE_DESC_INIT;
    desc.kind = need->backward ? choice->kind : MIMO_SCHEDULE_FORWARD;
    desc.stages = need->stages;
    desc.chunks = choice->chunks > 0 ? choice->chunks : 1;
    desc.micro_batches = need->micro_batches;
    desc.encoder_group = mimo_smaller(choice->group > 0 ? choice->group : 1, need->micro_batches);
    desc.encoder_frozen = need->frozen;
    desc.overlap = choice->overlap && need->backward;
    return desc;
}

/* The least limit makes every stage wait for each group. One more does not. One stage waits for
 * nobody. It is done with a group before it needs the next one, except where these overlap. */
static mimo_status usual_limit(int64_t *out, const mimo_schedule_desc *desc)
{
    mimo_schedule *unlimited;
    mimo_schedule_report report = MIMO_SCHEDULE_REPORT_INIT;
    *out = desc->overlap ? 2 : 1;
    if (desc->stages == 1)
        return MIMO_OK;
    TRY(mimo_schedule_create(&unlimited, desc));
    mimo_status status = mimo_schedule_report_of(&report, unlimited, NULL);
    mimo_schedule_destroy(unlimited);
    *out = report.least_alive + 1;
    return status;
}

mimo_status schedule_choose(mimo_schedule **out, mimo_schedule_desc *sizes,
                            const schedule_choice *choice, const schedule_need *need)
{
    mimo_schedule_desc desc = sizes_of(choice, need);
    int64_t groups = (desc.micro_batches + desc.encoder_group - 1) / desc.encoder_group;
    int64_t limit = choice->alive;
    desc.costs = choice->costs;
    if (limit == 0)
        TRY(usual_limit(&limit, &desc));
    if (limit == ALIVE_NO_LIMIT || limit > groups)
        limit = groups;
    if (need->slots > 0)
        limit = mimo_smaller(limit, need->slots);
    desc.encoder_alive = limit;
    TRY(mimo_schedule_create(out, &desc));
    desc.costs = NULL;
    *sizes = desc;
    return MIMO_OK;
}
