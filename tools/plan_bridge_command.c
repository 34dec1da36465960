/* mimo-plan bridge: who needs which samples and tokens of a bridge, and the bytes that move. */
#include <string.h>

#include "plan_bridge.h"

/* ---------------------------------------- arguments ----------------------------------------- */

enum {
    KEY_SRC = 256,
    KEY_DST,
    KEY_BATCH,
    KEY_SEQ,
    KEY_HIDDEN,
    KEY_DTYPE,
    KEY_OFFSET,
    KEY_SRC_OFFSET,
    KEY_DST_OFFSET,
    KEY_ORDER,
    KEY_SP,
    KEY_EACH_RANK,
    KEY_GBPS,
    KEY_LATENCY,
    KEY_COPY_GBPS,
    KEY_RANK,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {.name = "src", .key = KEY_SRC, .arg = "GRID", .doc = "The encoder's grid, as tp=2,dp=4"},
    {.name = "dst", .key = KEY_DST, .arg = "GRID", .doc = "The LLM's grid, on the same ranks"},
    {.name = "batch", .key = KEY_BATCH, .arg = "B", .doc = "Samples of all dp ranks together"},
    {.name = "seq", .key = KEY_SEQ, .arg = "S", .doc = "Tokens of a sample"},
    {.name = "hidden", .key = KEY_HIDDEN, .arg = "H", .doc = "Elements of a token"},
    {.name = "dtype", .key = KEY_DTYPE, .arg = "TYPE", .doc = "Element type, as bf16"},
    {.name = "offset", .key = KEY_OFFSET, .arg = "N", .doc = "First rank of both grids (0)"},
    {.name = "src-offset",
     .key = KEY_SRC_OFFSET,
     .arg = "N",
     .doc = "First rank of the encoder's grid"},
    {.name = "dst-offset",
     .key = KEY_DST_OFFSET,
     .arg = "N",
     .doc = "First rank of the LLM's grid"},
    {.name = "order",
     .key = KEY_ORDER,
     .arg = "ORDER",
     .doc = "Order of a tile's rows: sbh (default) or bsh"},
    {.name = "sp", .key = KEY_SP, .doc = "Sequence parallelism: tp also cuts the LLM's shards"},
    {.name = "each-rank",
     .key = KEY_EACH_RANK,
     .doc = "Plan rank by rank also where one rank stands for all: slower, the same answer"},
    {.name = "gbps",
     .key = KEY_GBPS,
     .arg = "G",
     .doc = "Estimate times: 10^9 bytes a second of a rank's link, in and out each"},
    {.name = "latency-us",
     .key = KEY_LATENCY,
     .arg = "U",
     .doc = "Estimate times: microseconds of a message between two ranks"},
    {.name = "copy-gbps",
     .key = KEY_COPY_GBPS,
     .arg = "G",
     .doc = "Estimate times: 10^9 bytes a second of a copy in a rank's memory (5 times the link)"},
    {.name = "rank", .key = KEY_RANK, .arg = "R", .doc = "Print one rank only"},
    {.name = "json", .key = KEY_JSON, .doc = "Print JSON"},
    {0},
};

static int parse_order(mimo_row_order *out, const char *text)
{
    if (strcmp(text, "sbh") == 0)
        *out = MIMO_ROWS_SBH;
    else if (strcmp(text, "bsh") == 0)
        *out = MIMO_ROWS_BSH;
    else
        return plan_usage("--order is '%s', and can be sbh or bsh", text);
    return 0;
}

static int check_complete(const plan_bridge_request *request, const char *program)
{
    const mimo_link_speed *speed = &request->speed;
    bool timed = speed->gbps > 0 || speed->latency_us >= 0 || speed->copy_gbps > 0;
    const plan_needed needed[] = {{"--src", !request->src},
                                  {"--dst", !request->dst},
                                  {"--batch", request->batch == 0},
                                  {"--seq", request->seq == 0},
                                  {"--hidden", request->hidden == 0},
                                  {"--dtype", !request->dtype},
                                  {"--gbps", timed && speed->gbps <= 0},
                                  {"--latency-us", timed && speed->latency_us < 0}};
    return plan_complete(program, needed, sizeof needed / sizeof *needed);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    plan_bridge_request *request = state->input;
    switch (key) {
    case KEY_SRC:
        request->src = argument;
        return 0;
    case KEY_DST:
        request->dst = argument;
        return 0;
    case KEY_BATCH:
        return plan_number(&request->batch, "--batch", argument, 1);
    case KEY_SEQ:
        return plan_number(&request->seq, "--seq", argument, 1);
    case KEY_HIDDEN:
        return plan_number(&request->hidden, "--hidden", argument, 1);
    case KEY_DTYPE:
        request->dtype = argument;
        return 0;
    case KEY_OFFSET:
        return plan_number(&request->offset, "--offset", argument, 0);
    case KEY_SRC_OFFSET:
        return plan_number(&request->offsets[MIMO_SRC], "--src-offset", argument, 0);
    case KEY_DST_OFFSET:
        return plan_number(&request->offsets[MIMO_DST], "--dst-offset", argument, 0);
    case KEY_ORDER:
        return parse_order(&request->order, argument);
    case KEY_SP:
        request->sp = true;
        return 0;
    case KEY_EACH_RANK:
        request->each_rank = true;
        return 0;
    case KEY_GBPS:
        return plan_decimal(&request->speed.gbps, "--gbps", argument, true);
    case KEY_LATENCY:
        return plan_decimal(&request->speed.latency_us, "--latency-us", argument, false);
    case KEY_COPY_GBPS:
        return plan_decimal(&request->speed.copy_gbps, "--copy-gbps", argument, true);
    case KEY_RANK:
        return plan_number(&request->rank, "--rank", argument, 0);
    case KEY_JSON:
        request->json = true;
        return 0;
    case ARGP_KEY_ARG:
        return plan_usage("argument '%s' is one too many; see '%s --help'", argument, state->name);
    case ARGP_KEY_END:
        return check_complete(request, state->name);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ----------------------------------------- command ------------------------------------------ */

static int answer(const plan_bridge_request *request)
{
    plan_bridge bridge = {.request = request};
    int status;
    if (plan_bridge_make(&bridge) != MIMO_OK || plan_bridge_count(&bridge) != MIMO_OK)
        status = plan_fail_library();
    else
        status = (request->json ? plan_bridge_print_json : plan_bridge_print_text)(&bridge);
    plan_bridge_release(&bridge);
    return status;
}

int plan_bridge_command(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print how an encoder's grid and an LLM's grid over the same ranks meet: gather "
               "groups, the samples and tokens of each rank, and the bytes that move when each row "
               "goes once from one owner to each rank that needs it, with the partition attached; "
               "with the speed of the links also what a call would take (a model: see "
               "tools/plan_cost.h). Any two grids: other spans, dp sizes and batches that do not "
               "divide, any order of dimensions, an encoder whose cp cuts its sequences, an LLM of "
               "which the first pp stage takes rows, dimensions along which ranks hold copies, as "
               "x=2:copies. A line says where the algorithm \"collective\" can't be used."};
    plan_bridge_request request = {
        .offsets = {-1, -1}, .rank = -1, .order = MIMO_ROWS_SBH, .speed = {.latency_us = -1}};
    int status = plan_parse(&argp, argc, argv, &request);
    return status == 0 ? answer(&request) : status;
}
