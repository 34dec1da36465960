#include "oracle_pass.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "schedule/schedule_types.h"

mimo_status oracle_pass_choose(oracle_pass *out, const oracle_topology *topology,
                               int64_t micro_batches, bool backward, int64_t slots)
{
    const schedule_need need = {.stages = topology->ranks.stages,
                                .micro_batches = micro_batches,
                                .backward = backward,
                                .slots = slots};
    return schedule_choose(&out->schedule, &out->sizes, &topology->schedule, &need);
}

mimo_status oracle_pass_states(int64_t **states, const oracle_pass *pass,
                               const oracle_topology *topology)
{
    MIMO_TRY(mimo_reserve(states, topology->schedule.chunks, sizeof **states));
    return mimo_schedule_states(*states, pass->schedule, topology->ranks.stage);
}

mimo_status oracle_pass_create(oracle_pass *out, const oracle_topology *topology,
                               const int64_t *states, int64_t slots, stage_hops *hops,
                               const pipeline_work *work)
{
    const pipeline_desc desc = {.world = topology->ranks.world,
                                .schedule = out->schedule,
                                .sizes = out->sizes,
                                .stage = topology->ranks.stage,
                                .states = states,
                                .slots = slots,
                                .hops = hops,
                                .work = *work};
    return pipeline_create(&out->pipeline, &desc);
}

static void close_notes(oracle_pass *pass)
{
    if (pass->notes)
        (void)fclose(pass->notes);
    free(pass->ran);
    pass->notes = NULL;
    pass->ran = NULL;
}

void oracle_pass_destroy(oracle_pass *pass)
{
    pipeline_destroy(&pass->pipeline);
    mimo_schedule_destroy(pass->schedule);
    close_notes(pass);
    memset(pass, 0, sizeof *pass);
}

mimo_status oracle_pass_run(oracle_pass *pass)
{
    close_notes(pass);
    pass->notes = open_memstream(&pass->ran, &pass->length);
    MIMO_CHECK(pass->notes, MIMO_ERR_MEMORY, "no memory for the steps of a walk");
    fprintf(pass->notes, "stage %" PRId64 ":", pass->pipeline.desc.stage);
    MIMO_TRY(pipeline_run(&pass->pipeline));
    fputc('\n', pass->notes);
    MIMO_CHECK(fflush(pass->notes) == 0, MIMO_ERR_MEMORY, "no memory for the steps of a walk");
    return MIMO_OK;
}

static void note_number(const oracle_pass *pass, const pipeline_task *task)
{
    fprintf(pass->notes, "%" PRId64, task->index);
    if (task->kind < MIMO_STEP_FB && pass->sizes.chunks > 1)
        fprintf(pass->notes, ".%" PRId64, task->chunk);
}

void oracle_pass_note_pair(const oracle_pass *pass, const pipeline_task *tasks)
{
    fputs(" FB", pass->notes);
    note_number(pass, &tasks[0]);
    fputc('/', pass->notes);
    note_number(pass, &tasks[1]);
}

void oracle_pass_note(const oracle_pass *pass, const pipeline_task *task)
{
    static const char *const names[MIMO_STEP_KINDS] = {
#define NAME(name, cost, what) #name,
        MIMO_STEP_LIST(NAME)
#undef NAME
    };
    fprintf(pass->notes, " %s", names[task->kind]);
    note_number(pass, task);
}

mimo_status oracle_pass_was_printed(bool *out, const oracle_pass *pass)
{
    int64_t length;
    char *text;
    MIMO_TRY(mimo_schedule_text(&length, NULL, 0, pass->schedule, MIMO_SCHEDULE_TEXT));
    MIMO_TRY(mimo_reserve(&text, length + 1, 1));
    mimo_status status =
        mimo_schedule_text(NULL, text, length + 1, pass->schedule, MIMO_SCHEDULE_TEXT);
    if (status == MIMO_OK)
        *out = strstr(text, pass->ran) != NULL;
    mimo_release(text);
    return status;
}
