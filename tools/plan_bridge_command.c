/* mimo-plan bridge: who needs which samples and tokens of a bridge, and the bytes that move. */
#include <math.h>

#include "plan_bridge.h"

/* ---------------------------------------- arguments ----------------------------------------- */

static const int orders[] = {MIMO_ROWS_SBH, MIMO_ROWS_BSH};

#define OPTION_INTO plan_bridge_request

static const option_row rows[] = {
    OPTION_TEXT("src", "GRID", src, "The encoder's grid, as tp=2,dp=4"),
    OPTION_TEXT("dst", "GRID", dst, "The LLM's grid, on the same ranks"),
    OPTION_INT("batch", "B", batch, 1, INT64_MAX, "Samples of all dp ranks together"),
    OPTION_INT("seq", "S", seq, 1, INT64_MAX, "Tokens of a sample"),
    OPTION_INT("hidden", "H", hidden, 1, INT64_MAX, "Elements of a token"),
    OPTION_TEXT("dtype", "TYPE", dtype, "Element type, as bf16"),
    OPTION_INT("offset", "N", offset, 0, INT64_MAX, "First rank of both grids (0)"),
    OPTION_INT("src-offset", "N", offsets[MIMO_SRC], 0, INT64_MAX,
               "First rank of the encoder's grid"),
    OPTION_INT("dst-offset", "N", offsets[MIMO_DST], 0, INT64_MAX, "First rank of the LLM's grid"),
    OPTION_CHOICE("order", order, "sbh|bsh", "Order of a tile's rows (sbh)", .values = orders),
    OPTION_FLAG("sp", sp, "Sequence parallelism: tp also cuts the LLM's shards"),
    OPTION_FLAG("each-rank", each_rank,
                "Plan rank by rank also where one rank stands for all: slower, the same answer"),
    OPTION_NUMBER("gbps", "G", speed.gbps, 0, HUGE_VAL,
                  "Estimate times: 10^9 bytes a second of a rank's link, in and out each",
                  .above = true),
    OPTION_NUMBER("latency-us", "U", speed.latency_us, 0, HUGE_VAL,
                  "Estimate times: microseconds of a message between two ranks"),
    OPTION_NUMBER(
        "copy-gbps", "G", speed.copy_gbps, 0, HUGE_VAL,
        "Estimate times: 10^9 bytes a second of a copy in a rank's memory (5 times the link)",
        .above = true),
    OPTION_INT("rank", "R", rank, 0, INT64_MAX, "Print one rank only"),
    OPTION_FLAG("summary", summary, "Print no line for each rank and no drawing"),
    OPTION_FLAG("json", json, "Print JSON"),
};

static mimo_status check_complete(void *into)
{
    const plan_bridge_request *request = into;
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
    return plan_complete("mimo-plan bridge", needed, sizeof needed / sizeof *needed);
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
    static const option_table table = {
        .program = "mimo-plan bridge",
        .about =
            "Print how an encoder's grid and an LLM's grid over the same ranks meet: gather "
            "groups, the samples and tokens of each rank, and the bytes that move when each row "
            "goes once from one owner to each rank that needs it, with the partition attached; "
            "with the speed of the links also what a call would take (a model: see "
            "tools/plan_cost.h). Any two grids: other spans, dp sizes and batches that do not "
            "divide, any order of dimensions, an encoder whose cp cuts its sequences, an LLM of "
            "which the first pp stage takes rows, dimensions along which ranks hold copies, as "
            "x=2:copies. A line says where the algorithm \"collective\" can't be used.",
        OPTION_ROWS(rows),
        .check = check_complete,
    };
    plan_bridge_request request = {
        .offsets = {-1, -1}, .rank = -1, .order = MIMO_ROWS_SBH, .speed = {.latency_us = -1}};
    int status = plan_parse(&table, argc, argv, &request);
    return status == 0 ? answer(&request) : status;
}
