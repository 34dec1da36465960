#include "schedule/schedule_types.h"

#include <inttypes.h>

static const char *const kind_names[MIMO_STEP_KINDS] = {
#define ROW(name, cost, what) #name,
    MIMO_STEP_LIST(ROW)
#undef ROW
};

const char *mimo_step_kind_name(mimo_step_kind kind)
{
    return kind_names[kind];
}

/* "3", and where a stage has several chunks "3.1". */
static void write_index(char *out, size_t size, const mimo_schedule *schedule, int64_t index,
                        int64_t chunk)
{
    if (schedule->desc.chunks > 1)
        snprintf(out, size, "%" PRId64 ".%" PRId64, index, chunk);
    else
        snprintf(out, size, "%" PRId64, index);
}

mimo_step_name mimo_step_name_of(const mimo_schedule *schedule, const mimo_schedule_step *step)
{
    mimo_step_name name;
    char index[44], back[44] = "";
    if (mimo_step_of_llm(step->kind))
        write_index(index, sizeof index, schedule, step->index, step->chunk);
    else
        snprintf(index, sizeof index, "%" PRId64, step->index);
    if (step->kind == MIMO_STEP_FB)
        write_index(back, sizeof back, schedule, step->back, step->back_chunk);
    snprintf(name.text, sizeof name.text, "%s%s%s%s", kind_names[step->kind], index,
             *back ? "/" : "", back);
    return name;
}
