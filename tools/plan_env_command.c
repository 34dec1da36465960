/* mimo-plan env: the environment variables that the library reads. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_commands.h"

typedef struct env_request {
    bool json;
} env_request;

#define OPTION_INTO env_request

static const option_row rows[] = {OPTION_FLAG("json", json, "Print JSON")};

static bool add_row(cJSON *list, const mimo_env_row *row)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(list, item);
    if (!cJSON_AddStringToObject(item, "name", row->name))
        return false;
    cJSON *value = row->words /* the default of a list is empty: "", not 0 */
                       ? cJSON_AddStringToObject(item, "default", "")
                       : cJSON_AddNumberToObject(item, "default", (double)row->value);
    return value && cJSON_AddStringToObject(item, "help", row->help);
}

static int print_json(const mimo_env_row *variables, int count)
{
    cJSON *document = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(document, "environment");
    bool complete = list;
    for (int i = 0; complete && i < count; i++)
        complete = add_row(list, &variables[i]);
    if (!complete) {
        cJSON_Delete(document);
        document = NULL;
    }
    return plan_print_json(document);
}

static void print_row(const mimo_env_row *row)
{
    if (row->words && !row->words[0])
        printf("%s (a text)\n    %s\n", row->name, row->help);
    else if (row->words) /* a list, empty by default */
        printf("%s (a list of %s)\n    %s\n", row->name, row->words, row->help);
    else
        printf("%s (default %" PRId64 ")\n    %s\n", row->name, row->value, row->help);
}

int plan_env_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan env",
        .about = "Print the environment variables that the library reads: name, default, meaning.",
        OPTION_ROWS(rows)};
    env_request request = {false};
    int count;
    int status = plan_parse(&table, argc, argv, &request);
    if (status != 0)
        return status;
    const mimo_env_row *variables = mimo_env_table(&count);
    if (request.json)
        return print_json(variables, count);
    for (int i = 0; i < count; i++)
        print_row(&variables[i]);
    return 0;
}
