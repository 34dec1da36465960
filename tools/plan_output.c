/* What the commands print: sentences on stderr, JSON on stdout. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/visible.h"
#include "plan_commands.h"

int plan_fail(const char *format, ...)
{
    enum { SENTENCE = 1024 };
    char sentence[SENTENCE], shown[SENTENCE * MIMO_VISIBLE_MOST];
    va_list arguments;
    va_start(arguments, format);
    mimo_end_with_letter(sentence, sizeof sentence,
                         vsnprintf(sentence, sizeof sentence, format, arguments));
    va_end(arguments);
    fprintf(stderr, "mimo-plan: %s\n", mimo_visible(shown, sizeof shown, sentence));
    return PLAN_EXIT_ERROR;
}

int plan_fail_library(void)
{
    return plan_fail("%s", mimo_last_error());
}

int plan_print_json(cJSON *document)
{
    char *text = document ? cJSON_PrintUnformatted(document) : NULL;
    cJSON_Delete(document);
    if (!text)
        return plan_fail("out of memory while writing JSON");
    puts(text);
    cJSON_free(text);
    return 0;
}

cJSON *plan_json_numbers(const int64_t *numbers, int64_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (int64_t i = 0; array && i < count; i++) {
        cJSON *item = cJSON_CreateNumber((double)numbers[i]);
        if (!item) {
            cJSON_Delete(array);
            return NULL;
        }
        cJSON_AddItemToArray(array, item);
    }
    return array;
}

int plan_finish(int status)
{
    bool failed = ferror(stdout);
    failed = fclose(stdout) != 0 || failed;
    if (failed && status == 0)
        return plan_fail("cannot write to stdout: %s", strerror(errno));
    return status;
}
