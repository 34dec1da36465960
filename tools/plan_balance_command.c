/* mimo-plan balance: which encoder lane works on which image. */
#include <stdio.h>

#include "plan_balance.h"

enum { KEY_LANES = 256, KEY_HIDDEN, KEY_MAX_ROWS, KEY_SLACK, KEY_IN_ORDER, KEY_JSON, KEY_SVG };

static const struct argp_option options[] = {
    {.name = "lanes", .key = KEY_LANES, .arg = "N", .doc = "Lanes: dp of the encoder"},
    {.name = "hidden",
     .key = KEY_HIDDEN,
     .arg = "H",
     .doc = "An item of r rows costs r * (r + 6 H), as a transformer block of this size does (r)"},
    {.name = "max-rows",
     .key = KEY_MAX_ROWS,
     .arg = "N",
     .doc = "The most rows of a lane; 0: no limit (0)"},
    {.name = "slack",
     .key = KEY_SLACK,
     .arg = "PERMILLE",
     .doc = "How much longer than the bound the longest lane may be where fewer rows move (10)"},
    {.name = "in-order", .key = KEY_IN_ORDER, .doc = "Lanes take items that follow each other"},
    {.name = "json", .key = KEY_JSON, .doc = "Print JSON"},
    {.name = "svg", .key = KEY_SVG, .doc = "Draw it"},
    {0},
};

static int choose_output(plan_balance_request *request, const char *option)
{
    if (request->output)
        return plan_usage("%s and %s: one output at a time", request->output, option);
    request->output = option;
    return 0;
}

static int take_file(plan_balance_request *request, const char *file)
{
    if (request->file)
        return plan_usage("argument '%s' is one too many: the file is %s", file, request->file);
    request->file = file;
    return 0;
}

static int check_complete(const plan_balance_request *request, const char *program)
{
    const plan_needed needed[] = {{"--lanes", request->desc.lanes == 0}, {"FILE", !request->file}};
    return plan_complete(program, needed, sizeof needed / sizeof *needed);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    plan_balance_request *request = state->input;
    switch (key) {
    case KEY_LANES:
        return plan_number(&request->desc.lanes, "--lanes", argument, 1);
    case KEY_HIDDEN:
        return plan_number(&request->hidden, "--hidden", argument, 1);
    case KEY_MAX_ROWS:
        return plan_number(&request->desc.max_rows, "--max-rows", argument, 0);
    case KEY_SLACK:
        return plan_number(&request->desc.slack_permille, "--slack", argument, 0);
    case KEY_IN_ORDER:
        request->desc.in_order = true;
        return 0;
    case KEY_JSON:
        return choose_output(request, "--json");
    case KEY_SVG:
        return choose_output(request, "--svg");
    case ARGP_KEY_ARG:
        return take_file(request, argument);
    case ARGP_KEY_END:
        return check_complete(request, state->name);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int print(const plan_balance *plan)
{
    const char *output = plan->request->output;
    if (!output)
        return plan_balance_print_text(plan);
    return output[2] == 'j' ? plan_balance_print_json(plan) : plan_balance_print_svg(plan);
}

int plan_balance_command(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE",
        .doc = "Print which lane (dp coordinate of an encoder) works on which item (image, clip, "
               "sound), so that no lane waits long for another one and few rows move.\v"
               "FILE (-: stdin) has an item a line: its rows, then the lane that has loaded it, "
               "then its cost. The last two may be left out. -1 is no lane. # begins a comment."};
    plan_balance_request request = {.desc = MIMO_BALANCE_DESC_INIT};
    plan_balance plan;
    request.desc.lanes = 0;
    int status = plan_parse(&argp, argc, argv, &request);
    if (status != 0)
        return status;
    status = plan_balance_make(&plan, &request);
    if (status == 0)
        status = print(&plan);
    plan_balance_release(&plan);
    return status;
}
