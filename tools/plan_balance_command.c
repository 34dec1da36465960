/* mimo-plan balance: which encoder lane works on which image. */
#include <stdio.h>

#include "core/check.h"
#include "plan_balance.h"

#define OPTION_INTO plan_balance_request

/* Each lane takes memory and a line. A number with a digit too many is refused. */
enum { MOST_LANES = 1 << 20 };

static const option_row rows[] = {
    OPTION_INT("lanes", "N", desc.lanes, 1, MOST_LANES, "Lanes: dp of the encoder"),
    OPTION_INT(
        "hidden", "H", hidden, 1, INT64_MAX,
        "An item of r rows costs r * (r + 6 H), as a transformer block of this size does (r)"),
    OPTION_INT("max-rows", "N", desc.max_rows, 0, INT64_MAX,
               "The most rows of a lane; 0: no limit (0)"),
    OPTION_INT("slack", "PERMILLE", desc.slack_permille, 0, INT64_MAX,
               "How much longer than the bound the longest lane may be where fewer rows move (10)"),
    OPTION_FLAG("in-order", desc.in_order, "Lanes take items that follow each other"),
    PLAN_OUTPUT("json", output, "Print JSON"),
    PLAN_OUTPUT("svg", output, "Draw it"),
};

static mimo_status check_complete(void *into)
{
    const plan_balance_request *request = into;
    const plan_needed needed[] = {{"--lanes", request->desc.lanes == 0}, {"FILE", !request->file}};
    return plan_complete("mimo-plan balance", needed, sizeof needed / sizeof *needed);
}

static mimo_status take(void *into, const char *word)
{
    plan_balance_request *request = into;
    MIMO_CHECK(!request->file, MIMO_ERR_ARGUMENT, "argument '%s' is one too many: the file is %s",
               word, request->file);
    request->file = word;
    return MIMO_OK;
}

static int print(const plan_balance *plan)
{
    const char *output = plan->request->output;
    if (!output)
        return plan_balance_print_text(plan);
    return output[0] == 'j' ? plan_balance_print_json(plan) : plan_balance_print_svg(plan);
}

int plan_balance_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan balance",
        .words = "FILE",
        .about = "Print which lane (dp coordinate of an encoder) works on which item (image, clip, "
                 "sound), so that no lane waits long for another one and few rows move.\v"
                 "FILE (-: stdin) has an item a line: its rows, then the lane that has loaded it, "
                 "then its cost. The last two may be left out. -1 is no lane. # begins a comment.",
        OPTION_ROWS(rows),
        .take = take,
        .check = check_complete,
    };
    plan_balance_request request = {.desc = MIMO_BALANCE_DESC_INIT};
    plan_balance plan;
    request.desc.lanes = 0;
    int status = plan_parse(&table, argc, argv, &request);
    if (status != 0)
        return status;
    status = plan_balance_make(&plan, &request);
    if (status == 0)
        status = print(&plan);
    plan_balance_release(&plan);
    return status;
}
