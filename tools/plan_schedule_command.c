/* mimo-plan schedule: the steps of a pipeline beside an encoder that lies on all ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_schedule.h"
#include "schedule/step_costs.h"

/* ---------------------------------------- arguments ----------------------------------------- */

enum {
    KEY_PP = 256,
    KEY_MICRO_BATCHES,
    KEY_KIND,
    KEY_VPP,
    KEY_GROUP,
    KEY_ALIVE,
    KEY_FROZEN,
    KEY_OVERLAP,
    KEY_COST,
    KEY_CSV,
    KEY_JSON,
    KEY_SVG,
    KEY_TRACE,
    KEY_PRINT_CSV,
};

static const struct argp_option options[] = {
    {.name = "pp", .key = KEY_PP, .arg = "N", .doc = "Stages of the pipeline"},
    {.name = "micro-batches",
     .key = KEY_MICRO_BATCHES,
     .arg = "M",
     .doc = "Micro-batches of a step"},
    {.name = "kind",
     .key = KEY_KIND,
     .arg = "KIND",
     .doc = "1f1b (default), interleaved, zero-bubble or forward"},
    {.name = "vpp", .key = KEY_VPP, .arg = "V", .doc = "Chunks of a stage (1)"},
    {.name = "encoder-group",
     .key = KEY_GROUP,
     .arg = "G",
     .doc = "Micro-batches that the encoder takes at once (1); M: three phases; 0: no encoder"},
    {.name = "alive",
     .key = KEY_ALIVE,
     .arg = "L",
     .doc = "Encoder groups that a stage may hold; 0: no limit (one more than needed)"},
    {.name = "frozen", .key = KEY_FROZEN, .doc = "The encoder has no backward"},
    {.name = "overlap",
     .key = KEY_OVERLAP,
     .doc = "A forward beside the backward of another micro-batch, as one step"},
    {.name = "cost",
     .key = KEY_COST,
     .arg = "LIST",
     .doc = "Times of steps in whole numbers of any unit, as f=4,b=8,i=4,w=4,e=1,eb=2,bf=0,bb=0,"
            "head=0,hop=0"},
    {.name = "csv",
     .key = KEY_CSV,
     .arg = "FILE",
     .doc = "Read the LLM's steps from a table of torch.distributed.pipelining; -: from stdin"},
    {.name = "json", .key = KEY_JSON, .doc = "Print JSON"},
    {.name = "svg", .key = KEY_SVG, .doc = "Draw it"},
    {.name = "trace", .key = KEY_TRACE, .doc = "Print events for chrome://tracing and Perfetto"},
    {.name = "print-csv", .key = KEY_PRINT_CSV, .doc = "Print the LLM's steps as such a table"},
    {0},
};

static int parse_kind(mimo_schedule_kind *out, const char *text)
{
    static const char *const names[] = {[MIMO_SCHEDULE_1F1B] = "1f1b",
                                        [MIMO_SCHEDULE_INTERLEAVED] = "interleaved",
                                        [MIMO_SCHEDULE_ZERO_BUBBLE] = "zero-bubble",
                                        [MIMO_SCHEDULE_FORWARD] = "forward"};
    for (int i = 0; i <= MIMO_SCHEDULE_FORWARD; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (mimo_schedule_kind)i;
            return 0;
        }
    return plan_usage("--kind is '%s', and can be 1f1b, interleaved, zero-bubble or forward", text);
}

static int parse_costs(mimo_step_costs *out, const char *text)
{
    return mimo_step_costs_parse(out, text) == MIMO_OK ? 0 : plan_usage("--%s", mimo_last_error());
}

static int choose_output(plan_schedule_request *request, const char *option)
{
    if (request->output)
        return plan_usage("%s and %s: one output at a time", request->output, option);
    request->output = option;
    return 0;
}

static int check_complete(const plan_schedule_request *request, const char *program)
{
    const plan_needed needed[] = {{"--pp", request->desc.stages == 0},
                                  {"--micro-batches", request->desc.micro_batches == 0}};
    return plan_complete(program, needed, sizeof needed / sizeof *needed);
}

static error_t parse_output(int key, plan_schedule_request *request)
{
    switch (key) {
    case KEY_JSON:
        return choose_output(request, "--json");
    case KEY_SVG:
        return choose_output(request, "--svg");
    case KEY_TRACE:
        return choose_output(request, "--trace");
    case KEY_PRINT_CSV:
        return choose_output(request, "--print-csv");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    plan_schedule_request *request = state->input;
    switch (key) {
    case KEY_PP:
        return plan_number(&request->desc.stages, "--pp", argument, 1);
    case KEY_MICRO_BATCHES:
        return plan_number(&request->desc.micro_batches, "--micro-batches", argument, 1);
    case KEY_KIND:
        return parse_kind(&request->desc.kind, argument);
    case KEY_VPP:
        return plan_number(&request->desc.chunks, "--vpp", argument, 1);
    case KEY_GROUP:
        return plan_number(&request->desc.encoder_group, "--encoder-group", argument, 0);
    case KEY_ALIVE:
        return plan_number(&request->alive, "--alive", argument, 0);
    case KEY_FROZEN:
        request->desc.encoder_frozen = true;
        return 0;
    case KEY_OVERLAP:
        request->desc.overlap = true;
        return 0;
    case KEY_COST:
        return parse_costs(&request->costs, argument);
    case KEY_CSV:
        request->file = argument;
        return 0;
    case ARGP_KEY_ARG:
        return plan_usage("argument '%s' is one too many; see '%s --help'", argument, state->name);
    case ARGP_KEY_END:
        return check_complete(request, state->name);
    default:
        return parse_output(key, request);
    }
}

/* ----------------------------------------- command ------------------------------------------ */

static int print(const plan_schedule *plan)
{
    static const struct {
        const char *option;
        mimo_schedule_format format;
    } formats[] = {{"--svg", MIMO_SCHEDULE_SVG},
                   {"--trace", MIMO_SCHEDULE_TRACE},
                   {"--print-csv", MIMO_SCHEDULE_CSV}};
    const char *output = plan->request->output;
    if (!output)
        return plan_schedule_print_text(plan);
    if (strcmp(output, "--print-csv") == 0 && plan->request->desc.encoder_group > 0)
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
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print what each stage of a pipeline does beside an encoder that lies on all ranks, "
               "step by step, what that takes, and what is held in memory. Nothing runs.\v"
               "F, B: forward and backward of a micro-batch. I, W: the two parts of a backward. "
               "E, EB: the encoder's forward and backward of a group of micro-batches. BF, BB: the "
               "bridge's forward and backward, calls that end when all stages have begun them."};
    plan_schedule_request request = {
        .desc = MIMO_SCHEDULE_DESC_INIT, .costs = MIMO_STEP_COSTS_INIT, .alive = -1};
    plan_schedule plan;
    request.desc.stages = request.desc.micro_batches = 0;
    request.desc.encoder_group = 1;
    request.desc.costs = &request.costs;
    int status = plan_parse(&argp, argc, argv, &request);
    if (status != 0)
        return status;
    status = plan_schedule_make(&plan, &request);
    if (status == 0)
        status = print(&plan);
    plan_schedule_release(&plan);
    return status;
}
