/* Command lines of mimo-plan's commands: a failure is this tool's one sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "plan_commands.h"

mimo_status plan_read_output(void *into, const option_row *row, const char *text)
{
    const char **output = (const char **)(void *)((char *)into + row->at);
    (void)text;
    MIMO_CHECK(!*output, MIMO_ERR_ARGUMENT, "--%s and --%s: one output at a time", *output,
               row->name);
    *output = row->name;
    return MIMO_OK;
}

mimo_status plan_complete(const char *program, const plan_needed *needed, int count)
{
    char list[256] = "";
    int missing = 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        if (needed[i].missing)
            snprintf(list + used, sizeof list - used, "%s%s", missing++ > 0 ? ", " : "",
                     needed[i].option);
    }
    MIMO_CHECK(missing == 0, MIMO_ERR_ARGUMENT, "%s %s missing; see '%s --help'", list,
               missing == 1 ? "is" : "are", program);
    return MIMO_OK;
}

int plan_parse(const option_table *table, int argc, char **argv, void *request)
{
    option_asked asked;
    mimo_status status = option_parse(&asked, request, table, argc, argv);
    if (status == MIMO_OK && asked != OPTION_ASKED_NOTHING) {
        status = option_answer(stdout, table, asked);
        exit(plan_finish(status == MIMO_OK ? 0 : plan_fail_library()));
    }
    return status == MIMO_OK ? 0 : plan_fail_library();
}
