/* mimo-plan schedule: the steps of a pipeline beside an encoder that lies on all ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "plan_schedule.h"
#include "tools/options/option_costs.h"

/* ---------------------------------------- arguments ----------------------------------------- */

static mimo_status read_costs(void *into, const option_row *row, const char *text)
{
    plan_schedule_request *request = into;
    (void)row;
    return option_read_step_costs(&request->costs, text);
}

static mimo_status read_node_costs(void *into, const option_row *row, const char *text)
{
    plan_schedule_request *request = into;
    (void)row;
    request->nodes.costs_given = true;
    return option_read_node_costs(&request->nodes.costs, text);
}

static mimo_status read_exchanges(void *into, const option_row *row, const char *text)
{
    plan_schedule_request *request = into;
    (void)row;
    return plan_read_exchanges(&request->nodes, text);
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
    OPTION_TEXT(
        "nodes", "LAYERS", nodes.layers,
        "Cut the steps into nodes, for mixtures of experts. LAYERS: a number of mixtures in "
        "each chunk; a pattern, as [*E][*-]|[*E]; or F,B: one step of F layers forward and "
        "B backward, without a schedule"),
    OPTION_OWN("node-cost", "LIST", read_node_costs,
               "Times of nodes, as pre=3,mlp=4,mlp.dw=4,dispatch=2,combine=2"),
    OPTION_INT("multiprocessors", "N", nodes.desc.multiprocessors, 1, 4096,
               "Of a device, for lanes and products to share (they are not counted)"),
    OPTION_OWN("exchanges", "LIST", read_exchanges,
               "Thread blocks of an exchange and its time with them, as 16=5,32=3: each is "
               "planned, and the fastest is printed (32)"),
    OPTION_FLAG("shared-expert", nodes.shared, "Mixtures have a shared expert"),
    OPTION_CHOICE("recompute", nodes.recompute, "none|keep|send|costs",
                  "Backward repeats forward: the rows of experts are kept, or sent again; costs: "
                  "sent, if that takes no longer"),
    OPTION_FLAG("route-ahead", nodes.ahead,
                "Routes are set as soon as experts are chosen, ahead of the rows"),
    OPTION_FLAG("early", nodes.desc.early,
                "Backward of attention before the other's experts: activations are freed earlier"),
    OPTION_FLAG("grad-sync", nodes.desc.grad_sync, "Gradients are added over ranks"),
    OPTION_INT("encoder-pieces", "N", nodes.desc.encoder_pieces, 1, 1024,
               "Cut steps of the encoder into N, which fill what exchanges leave idle (1)"),
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

/* What says something of nodes alone. */
static mimo_status check_nodes(const plan_schedule_request *request)
{
    const plan_nodes_request *nodes = &request->nodes;
    bool other = nodes->costs_given || nodes->count > 0 || nodes->desc.multiprocessors > 0 ||
                 nodes->shared || nodes->ahead || nodes->recompute != MIMO_RECOMPUTE_NONE ||
                 nodes->desc.early || nodes->desc.grad_sync || nodes->desc.encoder_pieces > 0;
    MIMO_CHECK(nodes->layers || !other, MIMO_ERR_ARGUMENT,
               "--node-cost, --multiprocessors, --exchanges, --shared-expert, --recompute, "
               "--route-ahead, --early, --grad-sync and --encoder-pieces belong to --nodes");
    bool table = request->output && strcmp(request->output, "print-csv") == 0;
    MIMO_CHECK(!nodes->layers || !table, MIMO_ERR_ARGUMENT,
               "--nodes and --print-csv: the table of steps has no nodes");
    return MIMO_OK;
}

static mimo_status check_complete(void *into)
{
    const plan_schedule_request *request = into;
    MIMO_TRY(check_nodes(request));
    if (plan_nodes_alone(&request->nodes))
        return MIMO_OK;
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

static int print_nodes(const plan_nodes *plan)
{
    const char *output = plan->request->output;
    if (!output)
        return plan_nodes_print_text(plan);
    if (strcmp(output, "json") == 0)
        return plan_nodes_print_json(plan);
    mimo_schedule_format format =
        strcmp(output, "svg") == 0 ? MIMO_SCHEDULE_SVG : MIMO_SCHEDULE_TRACE;
    return mimo_nodes_print(stdout, plan->nodes[plan->best], format) == MIMO_OK
               ? 0
               : plan_fail_library();
}

static int answer_nodes(const plan_nodes_request *request, const mimo_schedule *schedule)
{
    plan_nodes nodes;
    mimo_status made = plan_nodes_make(&nodes, request, schedule);
    int status = made == MIMO_OK ? print_nodes(&nodes) : plan_fail_library();
    plan_nodes_release(&nodes);
    return status;
}

static int answer(const plan_schedule_request *request)
{
    plan_schedule plan;
    if (plan_nodes_alone(&request->nodes))
        return answer_nodes(&request->nodes, NULL);
    int status = plan_schedule_make(&plan, request);
    if (status == 0)
        status =
            request->nodes.layers ? answer_nodes(&request->nodes, plan.schedule) : print(&plan);
    plan_schedule_release(&plan);
    return status;
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
        .desc = MIMO_SCHEDULE_DESC_INIT,
        .costs = MIMO_STEP_COSTS_INIT,
        .alive = -1,
        .nodes = {.costs = MIMO_NODE_COSTS_INIT, .desc = MIMO_NODES_DESC_INIT}};
    request.desc.stages = request.desc.micro_batches = 0;
    request.desc.encoder_group = 1;
    request.desc.costs = &request.costs;
    int status = plan_parse(&table, argc, argv, &request);
    request.nodes.output = request.output;
    return status == 0 ? answer(&request) : status;
}
