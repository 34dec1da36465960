/* A command line by argp, which is kept quiet: sentences are ours, and the program prints them. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/version.h>

#include "core/check.h"
#include "tools/options/option_table.h"

/* Keys: a letter, or the row's place past all characters. */
enum { KEY_HELP = '?', KEY_VERSION = 'V', KEY_ROWS = 0x100, KEY_USAGE = 1 << 20 };

static const struct argp_option common[] = {
    {.name = "help", .key = KEY_HELP, .doc = "Print this help", .group = -1},
    {.name = "usage", .key = KEY_USAGE, .doc = "Print the options in short", .group = -1},
    {.name = "version", .key = KEY_VERSION, .doc = "Print the version", .group = -1},
    {0},
};

typedef struct parsing {
    const option_table *table;
    const struct argp_option *options;
    void *into;
    option_asked asked;
    mimo_status status; /* of the first failure */
} parsing;

/* What argp knows of a table; the caller frees the options. */
static mimo_status describe(struct argp *out, const option_table *table)
{
    struct argp_option *options =
        calloc(table->count + sizeof common / sizeof *common, sizeof *options);
    MIMO_CHECK(options, MIMO_ERR_MEMORY, "no memory for the %zu options of %s", table->count,
               table->program);
    size_t used = 0;
    for (size_t i = 0; i < table->count; i++) {
        const option_row *row = &table->rows[i];
        if (row->help)
            options[used++] = (struct argp_option){.name = row->name,
                                                   .key = row->kind == OPTION_IS_HEADING ? 0
                                                          : row->letter ? row->letter
                                                                        : KEY_ROWS + (int)i,
                                                   .arg = row->shown,
                                                   .flags = row->optional ? OPTION_ARG_OPTIONAL : 0,
                                                   .doc = row->help};
    }
    memcpy(&options[used], common, sizeof common);
    *out = (struct argp){.options = options, .args_doc = table->words, .doc = table->about};
    return MIMO_OK;
}

static const option_row *row_of(const option_table *table, int key)
{
    for (size_t i = 0; i < table->count; i++)
        if (key == KEY_ROWS + (int)i || (key == table->rows[i].letter && key != 0))
            return &table->rows[i];
    return NULL;
}

/* The option that a word spells, in full or cut short, or by its letter; *matches counts the
 * candidates. */
static const struct argp_option *find_option(const struct argp_option *options, const char *word,
                                             int *matches)
{
    bool is_long = strncmp(word, "--", 2) == 0;
    const char *name = is_long ? word + 2 : word;
    size_t length = strcspn(name, "=");
    const struct argp_option *found = NULL;
    *matches = 0;
    for (const struct argp_option *option = options; option->name || option->doc; option++) {
        bool fits = is_long ? length > 0 && option->name && strncmp(option->name, name, length) == 0
                            : word[0] == '-' && option->key > 0 && option->key == word[1];
        if (!fits)
            continue;
        found = option;
        *matches += 1;
        if (!is_long || option->name[length] == '\0') { /* in full: longer names do not count */
            *matches = 1;
            break;
        }
    }
    return found;
}

/* argp only says that the word before state->next was refused. */
static mimo_status explain_refusal(const parsing *parse, const struct argp_state *state)
{
    const char *word = state->argv[state->next > 1 ? state->next - 1 : 1];
    int matches;
    const struct argp_option *found = find_option(parse->options, word, &matches);
    if (matches == 0)
        return mimo_fail(MIMO_ERR_ARGUMENT, "unknown flag \"%s\": see --help", word);
    if (matches > 1)
        return mimo_fail(MIMO_ERR_ARGUMENT, "\"%s\" may mean %d flags: see --help", word, matches);
    if (found->arg)
        return mimo_fail(MIMO_ERR_ARGUMENT, "--%s needs a value, %s", found->name, found->arg);
    return mimo_fail(MIMO_ERR_ARGUMENT, "--%s takes no value", found->name);
}

static mimo_status take_word(const parsing *parse, const char *word)
{
    if (parse->table->take)
        return parse->table->take(parse->into, word);
    return mimo_fail(MIMO_ERR_ARGUMENT, "\"%s\" is no flag: see --help", word);
}

static error_t on_argument(int key, char *text, struct argp_state *state)
{
    parsing *parse = state->input;
    const option_row *row = row_of(parse->table, key);
    if (row)
        parse->status = (row->read ? row->read : option_read)(parse->into, row, text);
    else if (key == ARGP_KEY_ARG)
        parse->status = take_word(parse, text);
    else if (key == ARGP_KEY_ERROR && parse->status == MIMO_OK && !parse->asked)
        parse->status = explain_refusal(parse, state);
    else if (key == KEY_HELP || key == KEY_USAGE || key == KEY_VERSION)
        parse->asked = key == KEY_HELP    ? OPTION_ASKED_HELP
                       : key == KEY_USAGE ? OPTION_ASKED_USAGE
                                          : OPTION_ASKED_VERSION;
    else
        return ARGP_ERR_UNKNOWN;
    return parse->status == MIMO_OK && !parse->asked ? 0 : ECANCELED;
}

mimo_status option_parse(option_asked *asked, void *into, const option_table *table, int argc,
                         char **argv)
{
    struct argp argp;
    MIMO_TRY(describe(&argp, table));
    argp.parser = on_argument;
    parsing parse = {.table = table, .options = argp.options, .into = into};
    /* In order, and so without reordering argv, which MPI may look at again. */
    const unsigned flags = ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER;
    error_t error = argc > 1 ? argp_parse(&argp, argc, argv, flags, NULL, &parse) : 0;
    free((void *)argp.options);
    MIMO_TRY(parse.status);
    MIMO_CHECK(error == 0 || parse.asked, MIMO_ERR_ARGUMENT, "cannot read the command line: %s",
               strerror(error));
    if (table->check && !parse.asked)
        MIMO_TRY(table->check(into));
    *asked = parse.asked;
    return MIMO_OK;
}

mimo_status option_answer(FILE *stream, const option_table *table, option_asked asked)
{
    struct argp argp;
    if (asked == OPTION_ASKED_VERSION) {
        fprintf(stream, "%s %s\n", table->version ? table->version : table->program,
                mimo_version_text());
        return MIMO_OK;
    }
    MIMO_TRY(describe(&argp, table));
    argp_help(&argp, stream,
              asked == OPTION_ASKED_USAGE ? ARGP_HELP_USAGE
                                          : ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
              (char *)table->program);
    free((void *)argp.options);
    return MIMO_OK;
}
