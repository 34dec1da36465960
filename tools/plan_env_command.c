/* mimo-plan env: the environment variables that the library reads. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_commands.h"

enum { OPTION_JSON = 256 };

static error_t parse(int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case OPTION_JSON:
        *(bool *)state->input = true;
        return 0;
    case ARGP_KEY_ARG:
        return plan_usage("argument '%s' is one too many; see '%s --help'", argument, state->name);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool add_row(cJSON *rows, const mimo_env_row *row)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(rows, item);
    if (!cJSON_AddStringToObject(item, "name", row->name))
        return false;
    cJSON *value = row->words /* the default of a list is empty: "", not 0 */
                       ? cJSON_AddStringToObject(item, "default", "")
                       : cJSON_AddNumberToObject(item, "default", (double)row->value);
    return value && cJSON_AddStringToObject(item, "help", row->help);
}

static int print_json(const mimo_env_row *rows, int count)
{
    cJSON *document = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(document, "environment");
    bool complete = list;
    for (int i = 0; complete && i < count; i++)
        complete = add_row(list, &rows[i]);
    if (!complete) {
        cJSON_Delete(document);
        document = NULL;
    }
    return plan_print_json(document);
}

static void print_row(const mimo_env_row *row)
{
    if (row->words) /* a list, empty by default */
        printf("%s (a list of %s)\n    %s\n", row->name, row->words, row->help);
    else
        printf("%s (default %" PRId64 ")\n    %s\n", row->name, row->value, row->help);
}

int plan_env_command(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.name = "json", .key = OPTION_JSON, .doc = "Print JSON"}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Print the environment variables that the library reads: name, default, meaning."};
    bool json = false;
    int count;
    int status = plan_parse(&argp, argc, argv, &json);
    if (status != 0)
        return status;
    const mimo_env_row *rows = mimo_env_table(&count);
    if (json)
        return print_json(rows, count);
    for (int i = 0; i < count; i++)
        print_row(&rows[i]);
    return 0;
}
