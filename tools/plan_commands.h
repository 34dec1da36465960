/*
 * mimo-plan's commands and what they share.
 *
 * A command gets its own arguments and returns the exit status. argv[0] is "mimo-plan NAME", for
 * the usage text. Every error, of usage or not, is one sentence on stderr by plan_fail, and exit
 * status 2. A command prints to stdout only when nothing can fail any more.
 */
#ifndef MIMO_TOOLS_PLAN_COMMANDS_H
#define MIMO_TOOLS_PLAN_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <mimo/mimo.h>

#include "tools/options/option_table.h"

enum { PLAN_EXIT_ERROR = 2 };

/* ----------------------------------------- commands ----------------------------------------- */

int plan_balance_command(int argc, char **argv);
int plan_bridge_command(int argc, char **argv);
int plan_env_command(int argc, char **argv);
int plan_experts_command(int argc, char **argv);
int plan_grid_command(int argc, char **argv);
int plan_pattern_command(int argc, char **argv);
int plan_schedule_command(int argc, char **argv);

/* ------------------------------------------ output ------------------------------------------ */

/* Print "mimo-plan: " and the sentence as one line on stderr, where texts of files and arguments
 * are made visible (core/visible.h). Returns PLAN_EXIT_ERROR. */
int plan_fail(const char *format, ...) MIMO_PRINTF(1, 2);

/* The same with mimo_last_error(). */
int plan_fail_library(void);

/* Print a document on one line, and release it. NULL means that there was no memory to make it.
 * Returns the exit status. */
int plan_print_json(cJSON *document);

/* An array of whole numbers. NULL where memory runs out. */
cJSON *plan_json_numbers(const int64_t *numbers, int64_t count);

/* Close stdout. Errors of earlier writes may appear only here. Returns `status`, or
 * PLAN_EXIT_ERROR. */
int plan_finish(int status);

/* ----------------------------------------- arguments ---------------------------------------- */

/* option_parse, where an error prints plan_fail's sentence. Returns 0, or the exit status after the
 * sentence. --help, --usage and --version print and exit. */
int plan_parse(const option_table *table, int argc, char **argv, void *request);

/* Options of which a command has one at most, each without a value: the field is the name of the
 * one that was given. */
#define PLAN_OUTPUT(word, field, text)                                                        \
    {                                                                                         \
        OPTION_IS_TEXT, .name = (word), .at = OPTION_AT(const char *, field), .help = (text), \
                        .read = plan_read_output                                              \
    }
mimo_status plan_read_output(void *into, const option_row *row, const char *text);

/* An option that a command can't do without. */
typedef struct plan_needed {
    const char *option;
    bool missing;
} plan_needed;

/* MIMO_ERR_ARGUMENT names all of needed[count] that are missing. */
mimo_status plan_complete(const char *program, const plan_needed *needed, int count);

#endif
