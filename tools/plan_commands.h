/*
 * mimo-plan's commands and what they share.
 *
 * A command gets its own arguments (argv[0] is "mimo-plan NAME", for the usage text) and returns
 * the exit status. Every error, also one of usage, is one sentence on stderr, printed by plan_fail,
 * and exit status 2. A command prints to stdout only when nothing can fail any more.
 */
#ifndef MIMO_TOOLS_PLAN_COMMANDS_H
#define MIMO_TOOLS_PLAN_COMMANDS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <mimo/mimo.h>

enum { PLAN_EXIT_ERROR = 2 };

/* ----------------------------------------- commands ----------------------------------------- */

int plan_bridge_command(int argc, char **argv);
int plan_env_command(int argc, char **argv);
int plan_grid_command(int argc, char **argv);

/* ------------------------------------------ output ------------------------------------------ */

/* Print "mimo-plan: " and the sentence as one line on stderr; returns PLAN_EXIT_ERROR. */
int plan_fail(const char *format, ...) MIMO_PRINTF(1, 2);

/* The same with mimo_last_error(). */
int plan_fail_library(void);

/* Print a document in one line, and release it. NULL means that memory ran out while it was made.
 * Returns the exit status. */
int plan_print_json(cJSON *document);

/* An array of whole numbers. NULL where memory runs out. */
cJSON *plan_json_numbers(const int64_t *numbers, int64_t count);

/* Close stdout; its errors may show only now. Returns `status`, or that of the error. */
int plan_finish(int status);

/* ----------------------------------------- arguments ---------------------------------------- */

/* argp_parse with this tool's rules: only plan_fail's sentence is printed, options may stand after
 * arguments, an unknown option is named. Parsers report by `return plan_usage(...)`. Returns 0, or
 * the exit status after the sentence. --help, --usage and --version print and exit. */
int plan_parse(const struct argp *argp, int argc, char **argv, void *input);

/* plan_fail from inside a parser. Prints only the first sentence. Returns EINVAL. */
int plan_usage(const char *format, ...) MIMO_PRINTF(1, 2);

/* The whole number `text`, given for `option`, at least `least`; otherwise plan_usage. Returns 0 or
 * EINVAL. */
int plan_number(int64_t *out, const char *option, const char *text, int64_t least);

/* The same for a finite number: above 0 where `positive`, otherwise at least 0. */
int plan_decimal(double *out, const char *option, const char *text, bool positive);

#endif
