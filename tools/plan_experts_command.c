/* mimo-plan experts: a grid of experts beside an LLM's, and what routes over it move. */
#include "plan_experts.h"

/* ---------------------------------------- arguments ----------------------------------------- */

enum {
    KEY_LLM = 256,
    KEY_GRID,
    KEY_EXPERTS,
    KEY_TOP_K,
    KEY_TOKENS,
    KEY_HIDDEN,
    KEY_DTYPE,
    KEY_ALIGNMENT,
    KEY_CAPACITY,
    KEY_ZIPF,
    KEY_SHUFFLED,
    KEY_SEED,
    KEY_NARROW,
    KEY_GBPS,
    KEY_COPY_GBPS,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {.name = "llm", .key = KEY_LLM, .arg = "GRID", .doc = "The LLM's grid, as tp=2,cp=2,dp=2"},
    {.name = "expert-grid",
     .key = KEY_GRID,
     .arg = "GRID",
     .doc = "The grid of its experts on the same ranks, as etp=2,ep=4; edp is the rest"},
    {.name = "experts", .key = KEY_EXPERTS, .arg = "E", .doc = "Experts of a layer"},
    {.name = "top-k", .key = KEY_TOP_K, .arg = "K", .doc = "Experts of a token"},
    {.name = "tokens", .key = KEY_TOKENS, .arg = "N", .doc = "Tokens of a rank"},
    {.name = "hidden", .key = KEY_HIDDEN, .arg = "H", .doc = "Elements of a token's row"},
    {.name = "dtype", .key = KEY_DTYPE, .arg = "TYPE", .doc = "Element type, as bf16"},
    {.name = "alignment",
     .key = KEY_ALIGNMENT,
     .arg = "A",
     .doc = "Rows that each expert's first row is a multiple of (1)"},
    {.name = "capacity",
     .key = KEY_CAPACITY,
     .arg = "R",
     .doc = "Rows of a tile: say which tiles are too small, and how many pairs are lost"},
    {.name = "zipf",
     .key = KEY_ZIPF,
     .arg = "S",
     .doc = "Choose expert r, from 0, with a probability like (r + 1)^-S (0: all alike)"},
    {.name = "shuffled", .key = KEY_SHUFFLED, .doc = "Likely experts lie on any rank"},
    {.name = "seed", .key = KEY_SEED, .arg = "N", .doc = "Of the chance that chooses (1)"},
    {.name = "narrow-sums",
     .key = KEY_NARROW,
     .doc = "Partial sums of 16-bit rows travel in 16 bits, not in f32"},
    {.name = "gbps",
     .key = KEY_GBPS,
     .arg = "G",
     .doc = "Print times: 10^9 bytes a second of a rank's link, in and out each"},
    {.name = "copy-gbps",
     .key = KEY_COPY_GBPS,
     .arg = "G",
     .doc = "10^9 bytes a second that copies in a rank's memory read and write (5 times the link)"},
    {.name = "json", .key = KEY_JSON, .doc = "Print JSON"},
    {0},
};

static int check_complete(const plan_experts_request *request, const char *program)
{
    bool timed = request->speed.copy_gbps > 0;
    const plan_needed needed[] = {{"--llm", !request->llm},
                                  {"--expert-grid", !request->grid},
                                  {"--experts", request->experts == 0},
                                  {"--top-k", request->top_k == 0},
                                  {"--tokens", request->tokens == 0},
                                  {"--hidden", request->hidden == 0},
                                  {"--dtype", !request->dtype},
                                  {"--gbps", timed && request->speed.gbps <= 0}};
    return plan_complete(program, needed, sizeof needed / sizeof *needed);
}

static error_t parse_choice(int key, char *argument, plan_experts_request *request)
{
    switch (key) {
    case KEY_ALIGNMENT:
        return plan_number(&request->alignment, "--alignment", argument, 1);
    case KEY_CAPACITY:
        return plan_number(&request->capacity, "--capacity", argument, 0);
    case KEY_ZIPF:
        return plan_decimal(&request->zipf, "--zipf", argument, false);
    case KEY_SHUFFLED:
        request->shuffled = true;
        return 0;
    case KEY_SEED:
        return plan_number(&request->seed, "--seed", argument, 0);
    case KEY_NARROW:
        request->narrow = true;
        return 0;
    case KEY_GBPS:
        return plan_decimal(&request->speed.gbps, "--gbps", argument, true);
    case KEY_COPY_GBPS:
        return plan_decimal(&request->speed.copy_gbps, "--copy-gbps", argument, true);
    case KEY_JSON:
        request->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    plan_experts_request *request = state->input;
    switch (key) {
    case KEY_LLM:
        request->llm = argument;
        return 0;
    case KEY_GRID:
        request->grid = argument;
        return 0;
    case KEY_EXPERTS:
        return plan_number(&request->experts, "--experts", argument, 1);
    case KEY_TOP_K:
        return plan_number(&request->top_k, "--top-k", argument, 1);
    case KEY_TOKENS:
        return plan_number(&request->tokens, "--tokens", argument, 1);
    case KEY_HIDDEN:
        return plan_number(&request->hidden, "--hidden", argument, 1);
    case KEY_DTYPE:
        request->dtype = argument;
        return 0;
    case ARGP_KEY_ARG:
        return plan_usage("argument '%s' is one too many; see '%s --help'", argument, state->name);
    case ARGP_KEY_END:
        return check_complete(request, state->name);
    default:
        return parse_choice(key, argument, request);
    }
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
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print how a grid of experts lies on an LLM's ranks, and what moves where each rank "
               "routes the same number of tokens to experts that chance chooses: the rows of each "
               "tile, and the bytes of the busiest rank. A token's row goes to a rank once, and is "
               "copied there to its further experts."};
    plan_experts_request request = {.alignment = 1, .capacity = -1, .seed = 1};
    int status = plan_parse(&argp, argc, argv, &request);
    return status == 0 ? answer(&request) : status;
}
