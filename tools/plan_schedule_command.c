/* mimo-plan schedule: the steps of a pipeline beside an encoder that lies on all ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "plan_schedule.h"
#include "schedule/step_costs.h"

/* ---------------------------------------- arguments ----------------------------------------- */

static mimo_status read_costs(void *into, const option_row *row, const char *text)
{
    plan_schedule_request *request = into;
    (void)row;
    mimo_status status = mimo_step_costs_parse(&request->costs, text);
    return status == MIMO_OK ? MIMO_OK : mimo_fail_prefix(status, "--");
}

/* "1f1b|interleaved|...", in the order of the values, behind a bar. */
#define BAR_WORD(name, value, word, what) "|" word
static const char kinds[] = MIMO_SCHEDULE_KIND_LIST(BAR_WORD);
#undef BAR_WORD

#define OPTION_INTO plan_schedule_request

static const option_row rows[] = {
    OPTION_INT("pp", "N", desc.stages, 1, INT64_MAX, "Stages of the pipeline"),
    OPTION_INT("micro-batches", "M", desc.micro_batches, 1, INT64_MAX, "Micro-batches of a step"),
    OPTION_CHOICE("kind", desc.kind, &kinds[1], "The order of the LLM's steps (1f1b)"),
    OPTION_INT("vpp", "V", desc.chunks, 1, INT64_MAX, "Chunks of a stage (1)"),
    OPTION_INT("encoder-group", "G", desc.encoder_group, 0, INT64_MAX,
               "Micro-batches that the encoder takes at once (1); M: three phases; 0: no encoder"),
    OPTION_INT("alive", "L", alive, 0, INT64_MAX,
               "Encoder groups that a stage may hold; 0: no limit (one more than needed)"),
    OPTION_FLAG("frozen", desc.encoder_frozen, "The encoder has no backward"),
    OPTION_FLAG("overlap", desc.overlap,
                "A forward beside the backward of another micro-batch, as one step"),
    OPTION_OWN("cost", "LIST", read_costs,
               "Times of steps in whole numbers of any unit, as f=4,b=8,i=4,w=4,e=1,eb=2,bf=0,bb=0,"
               "head=0,hop=0"),
    OPTION_TEXT("csv", "FILE", file,
                "Read the LLM's steps from a table of torch.distributed.pipelining; -: from stdin"),
    OPTION_FLAG(
        "any-order", desc.any_order,
        "The table's backwards may come in any order of micro-batches; gradients have other "
        "bits then"),
    PLAN_OUTPUT("json", output, "Print JSON"),
    PLAN_OUTPUT("svg", output, "Draw it"),
    PLAN_OUTPUT("trace", output, "Print events for chrome://tracing and Perfetto"),
    PLAN_OUTPUT("print-csv", output, "Print the LLM's steps as such a table"),
};

/* Forwards of all stages: eight times those of pp=64 with 1,024 micro-batches and 8 chunks, whose
 * list takes some seconds. */
enum { MOST_FORWARDS = 1 << 22 };

/* A number with a digit too many is refused here, not by the memory of the machine. */
static mimo_status check_size(const mimo_schedule_desc *desc)
{
    int64_t forwards;
    MIMO_TRY(mimo_mul(&forwards, desc->stages, desc->micro_batches));
    MIMO_TRY(mimo_mul(&forwards, forwards, desc->chunks));
    MIMO_CHECK(forwards <= MOST_FORWARDS, MIMO_ERR_ARGUMENT,
               "%" PRId64 " micro-batches over pp=%" PRId64 " with %" PRId64 " chunks have %" PRId64
               " forwards, and a list may have %d",
               desc->micro_batches, desc->stages, desc->chunks, forwards, MOST_FORWARDS);
    return MIMO_OK;
}

static mimo_status check_complete(void *into)
{
    const plan_schedule_request *request = into;
    const plan_needed needed[] = {{"--pp", request->desc.stages == 0},
                                  {"--micro-batches", request->desc.micro_batches == 0}};
    MIMO_TRY(plan_complete("mimo-plan schedule", needed, sizeof needed / sizeof *needed));
    return check_size(&request->desc);
}

/* ----------------------------------------- command ------------------------------------------ */

static int print(const plan_schedule *plan)
{
    static const struct {
        const char *option;
        mimo_schedule_format format;
    } formats[] = {{"svg", MIMO_SCHEDULE_SVG},
                   {"trace", MIMO_SCHEDULE_TRACE},
                   {"print-csv", MIMO_SCHEDULE_CSV}};
    const char *output = plan->request->output;
    if (!output)
        return plan_schedule_print_text(plan);
    if (strcmp(output, "print-csv") == 0 && plan->request->desc.encoder_group > 0)
        fputs("mimo-plan: the table has no steps of the encoder\n", stderr);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(output, formats[i].option) == 0)
            return mimo_schedule_print(stdout, plan->schedule, formats[i].format) == MIMO_OK
                       ? 0
                       : plan_fail_library();
    return plan_schedule_print_json(plan);
}

int plan_schedule_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan schedule",
        .about =
            "Print what each stage of a pipeline does beside an encoder that lies on all ranks, "
            "step by step, what that takes, and what is held in memory. Nothing runs.\v"
            "F, B: forward and backward of a micro-batch. I, W: the two parts of a backward. "
            "E, EB: the encoder's forward and backward of a group of micro-batches. BF, BB: the "
            "bridge's forward and backward, calls that end when all stages have begun them.",
        OPTION_ROWS(rows),
        .check = check_complete,
    };
    plan_schedule_request request = {
        .desc = MIMO_SCHEDULE_DESC_INIT, .costs = MIMO_STEP_COSTS_INIT, .alive = -1};
    plan_schedule plan;
    request.desc.stages = request.desc.micro_batches = 0;
    request.desc.encoder_group = 1;
    request.desc.costs = &request.costs;
    int status = plan_parse(&table, argc, argv, &request);
    if (status != 0)
        return status;
    status = plan_schedule_make(&plan, &request);
    if (status == 0)
        status = print(&plan);
    plan_schedule_release(&plan);
    return status;
}
