/* mimo-plan experts: a grid of experts beside an LLM's, and what routes over it move. */
#include <math.h>

#include "plan_experts.h"

/* ---------------------------------------- arguments ----------------------------------------- */

#define OPTION_INTO plan_experts_request

static const option_row rows[] = {
    OPTION_TEXT("llm", "GRID", llm, "The LLM's grid, as tp=2,cp=2,dp=2"),
    OPTION_TEXT("expert-grid", "GRID", grid,
                "The grid of its experts on the same ranks, as etp=2,ep=4; edp is the rest"),
    OPTION_INT("experts", "E", experts, 1, INT64_MAX, "Experts of a layer"),
    OPTION_INT("top-k", "K", top_k, 1, INT64_MAX, "Experts of a token"),
    OPTION_INT("tokens", "N", tokens, 1, INT64_MAX, "Tokens of a rank"),
    OPTION_INT("hidden", "H", hidden, 1, INT64_MAX, "Elements of a token's row"),
    OPTION_TEXT("dtype", "TYPE", dtype, "Element type, as bf16"),
    OPTION_INT("alignment", "A", alignment, 1, INT64_MAX,
               "Rows that each expert's first row is a multiple of (1)"),
    OPTION_INT("capacity", "R", capacity, 0, INT64_MAX,
               "Rows of a tile: say which tiles are too small, and how many pairs are lost"),
    OPTION_NUMBER("zipf", "S", zipf, 0, HUGE_VAL,
                  "Choose expert r, from 0, with a probability like (r + 1)^-S (0: all alike)"),
    OPTION_FLAG("shuffled", shuffled, "Likely experts lie on any rank"),
    OPTION_INT("seed", "N", seed, 0, INT64_MAX, "Of the chance that chooses (1)"),
    OPTION_FLAG("narrow-sums", narrow, "Partial sums of 16-bit rows travel in 16 bits, not in f32"),
    OPTION_NUMBER("gbps", "G", speed.gbps, 0, HUGE_VAL,
                  "Print times: 10^9 bytes a second of a rank's link, in and out each",
                  .above = true),
    OPTION_NUMBER(
        "copy-gbps", "G", speed.copy_gbps, 0, HUGE_VAL,
        "10^9 bytes a second that copies in a rank's memory read and write (5 times the link)",
        .above = true),
    OPTION_FLAG("json", json, "Print JSON"),
};

static mimo_status check_complete(void *into)
{
    const plan_experts_request *request = into;
    bool timed = request->speed.copy_gbps > 0;
    const plan_needed needed[] = {{"--llm", !request->llm},
                                  {"--expert-grid", !request->grid},
                                  {"--experts", request->experts == 0},
                                  {"--top-k", request->top_k == 0},
                                  {"--tokens", request->tokens == 0},
                                  {"--hidden", request->hidden == 0},
                                  {"--dtype", !request->dtype},
                                  {"--gbps", timed && request->speed.gbps <= 0}};
    return plan_complete("mimo-plan experts", needed, sizeof needed / sizeof *needed);
}

/* ----------------------------------------- command ------------------------------------------ */

static int answer(const plan_experts_request *request)
{
    plan_experts plan = {.request = request};
    int status;
    if (plan_experts_make(&plan) != MIMO_OK)
        status = plan_fail_library();
    else
        status = (request->json ? plan_experts_print_json : plan_experts_print_text)(&plan);
    plan_experts_release(&plan);
    return status;
}

int plan_experts_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan experts",
        .about =
            "Print how a grid of experts lies on an LLM's ranks, and what moves where each rank "
            "routes the same number of tokens to experts that chance chooses: the rows of each "
            "tile, and the bytes of the busiest rank. A token's row goes to a rank once, and is "
            "copied there to its further experts.",
        OPTION_ROWS(rows),
        .check = check_complete,
    };
    plan_experts_request request = {.alignment = 1, .capacity = -1, .seed = 1};
    int status = plan_parse(&table, argc, argv, &request);
    return status == 0 ? answer(&request) : status;
}
