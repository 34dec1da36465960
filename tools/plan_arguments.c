/* Arguments by argp. Errors are this tool's one sentence, not argp's two lines. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/version.h>

#include "plan_commands.h"

static bool reported; /* a sentence is printed; later errors print nothing */

int plan_usage(const char *format, ...)
{
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (!reported)
        plan_fail("%s", sentence);
    reported = true;
    return EINVAL;
}

int plan_number(int64_t *out, const char *option, const char *text, int64_t least)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!*text || *end || errno)
        return plan_usage("%s '%s' is not a whole number", option, text);
    if (value < least)
        return plan_usage("%s is %lld, and must be at least %" PRId64, option, value, least);
    *out = value;
    return 0;
}

int plan_decimal(double *out, const char *option, const char *text, bool positive)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return plan_usage("%s '%s' is not a number", option, text);
    if (value < 0 || (positive && value <= 0))
        return plan_usage("%s is %g, and must be %s", option, value,
                          positive ? "larger than 0" : "at least 0");
    *out = value;
    return 0;
}

int plan_complete(const char *program, const plan_needed *needed, int count)
{
    char list[256] = "";
    int missing = 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        if (needed[i].missing)
            snprintf(list + used, sizeof list - used, "%s%s", missing++ > 0 ? ", " : "",
                     needed[i].option);
    }
    return missing == 0 ? 0
                        : plan_usage("%s %s missing; see '%s --help'", list,
                                     missing == 1 ? "is" : "are", program);
}

enum { OPTION_USAGE = 1 << 20 };

/* These replace argp's own options. plan_parse silences argp, so its own would print nothing. */
static const struct argp_option common_options[] = {
    {.name = "help", .key = '?', .doc = "Print this help", .group = -1},
    {.name = "usage", .key = OPTION_USAGE, .doc = "Print the options in short", .group = -1},
    {.name = "version", .key = 'V', .doc = "Print the version", .group = -1},
    {0},
};

/* The option that name[length] spells, in full or cut short. *matches counts the candidates. */
static const struct argp_option *find_option(const struct argp_option *options, const char *name,
                                             size_t length, int *matches)
{
    const struct argp_option *found = NULL;
    for (const struct argp_option *o = options; o && o->name; o++) {
        if (strncmp(o->name, name, length) != 0)
            continue;
        *matches += 1;
        found = o;
        if (o->name[length] == '\0') { /* in full: longer names do not count */
            *matches = 1;
            break;
        }
    }
    return found;
}

/* Report what is wrong with the argument before `next`. getopt refused it without a reason. */
static void report_option(const struct argp *argp, const struct argp_state *state)
{
    const char *option = state->argv[state->next - 1];
    const char *name = option + strspn(option, "-");
    size_t length = strcspn(name, "=");
    int matches = 0;
    const struct argp_option *own = find_option(argp->options, name, length, &matches);
    const struct argp_option *common = find_option(common_options, name, length, &matches);
    const struct argp_option *found = own ? own : common;
    if (name - option != 2 || matches != 1)
        plan_usage("option '%.*s' is unknown; see '%s --help'", (int)(name - option + length),
                   option, state->name);
    else if (found->arg)
        plan_usage("option '--%s' needs a value, %s", found->name, found->arg);
    else
        plan_usage("option '--%s' takes no value", found->name);
}

typedef struct watched {
    const struct argp *argp;
    void *input;
} watched;

/* The parent of the command's own parser. It handles the common options and reports errors. argp is
 * silent, but calls every parser with ARGP_KEY_ERROR when parsing has failed. */
static error_t watch(int key, char *argument, struct argp_state *state)
{
    const watched *own = state->input;
    (void)argument;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = own->input;
        return 0;
    case ARGP_KEY_ERROR:
        if (!reported)
            report_option(own->argp, state);
        return 0;
    case '?':
        argp_help(state->root_argp, stdout, ARGP_HELP_STD_HELP, state->name);
        exit(plan_finish(0));
    case OPTION_USAGE:
        argp_help(state->root_argp, stdout, ARGP_HELP_USAGE, state->name);
        exit(plan_finish(0));
    case 'V':
        printf("mimo-plan %s\n", mimo_version_text());
        exit(plan_finish(0));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int plan_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    const struct argp_child children[] = {{.argp = argp}, {0}};
    const struct argp watcher = {.options = common_options, .parser = watch, .children = children};
    watched own = {argp, input};
    reported = false;
    error_t error = argp_parse(&watcher, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &own);
    if (error && !reported) /* an error inside argp, such as no memory */
        plan_fail("the arguments cannot be read: %s", strerror(error));
    return error ? PLAN_EXIT_ERROR : 0;
}
