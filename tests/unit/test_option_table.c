/* The table of options: kinds, letters, what is asked for, and the comparison. The rows of the
 * captioner have a test of their own (test_captioner_options.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mimo.h>

#include "tools/options/option_table.h"
#include "expect_failure.h"

typedef struct settings {
    bool json;
    int64_t count, one, other;
    double speed;
    const char *grid;
    int device, hashes;
} settings;

#define OPTION_INTO settings

static const int hashes[] = {7};

static const option_row rows[] = {
    OPTION_FLAG("json", json, "Print JSON", .letter = 'j'),
    OPTION_INT("count", "N", count, 1, INT64_MAX, "How many", .letter = 'c'),
    OPTION_NUMBER("speed", "G", speed, 0, HUGE_VAL, "How fast", .above = true),
    OPTION_TEXT("grid", "SPEC", grid, "Which grid", .apart = true),
    OPTION_CHOICE("device", device, "cpu|cuda", "Where"),
    OPTION_CHOICE("hashes", hashes, "all", "What", .values = hashes, .optional = true, .bare = 5),
    OPTION_PAIR("pair", "A,B", one, other, 9, "Two", .first_part = "A", .second_part = "B",
                .example = "1,2"),
};

static const option_table table = {.program = "program", .about = "A program.", OPTION_ROWS(rows)};

/* Parse a command line written as one string, with single spaces between words. */
static mimo_status parse(settings *out, option_asked *asked, const char *text)
{
    char line[128], program[] = "program", *argv[16] = {program};
    int argc = 1;
    strcpy(line, text);
    for (char *save, *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    *out = (settings){0};
    return option_parse(asked, out, &table, argc, argv);
}

static void refused(const char *line, const char *sentence)
{
    settings s;
    option_asked asked;
    cr_assert_eq(parse(&s, &asked, line), MIMO_ERR_ARGUMENT, "%s", line);
    cr_assert_str_eq(mimo_last_error(), sentence);
}

Test(option_table, kinds)
{
    settings s;
    option_asked asked;
    SUCCEEDS(parse(&s, &asked, "-jc3 --speed 0.5 --dev cuda --hashes --pair 9,1"));
    cr_assert(s.json && s.count == 3 && s.speed == 0.5 && s.device == 1 && s.hashes == 5);
    cr_assert(s.one == 9 && s.other == 1 && asked == OPTION_ASKED_NOTHING);
    SUCCEEDS(parse(&s, &asked, "--hashes=all --count 9223372036854775807"));
    cr_assert(s.hashes == 7 && s.count == INT64_MAX);
    refused("-c", "--count needs a value, N");
    refused("--count -1", "--count must be at least 1, not -1");
    refused("--count 9223372036854775808",
            "--count must be from 1 to 9223372036854775807, not 9223372036854775808");
    refused("--speed 0", "--speed must be above 0, not 0");
    refused("--speed 1e999", "--speed must be above 0, not 1e999");
    refused("--pair 1,10", "--pair (B) must be from 1 to 9, not 10");
    refused("-x", "unknown flag \"-x\": see --help");
}

Test(option_table, reading_ends_where_help_is_asked_for)
{
    settings s;
    option_asked asked;
    SUCCEEDS(parse(&s, &asked, "--usage --bogus"));
    cr_assert_eq(asked, OPTION_ASKED_USAGE);
    SUCCEEDS(parse(&s, &asked, "-? --count 0"));
    cr_assert_eq(asked, OPTION_ASKED_HELP);
}

Test(option_table, values_are_compared)
{
    settings s;
    option_asked asked;
    option_value mine[8], first[8];
    cr_assert_eq(option_values_count(&table), 7);
    SUCCEEDS(parse(&s, &asked, "--grid tp=2 --pair 1,2"));
    option_values(mine, &table, &s);
    SUCCEEDS(parse(&s, &asked, "--grid tp=4 --pair 1,2"));
    option_values(first, &table, &s);
    cr_assert_eq(option_values_compare(&table, mine, first), MIMO_OK, "grids may differ");
    SUCCEEDS(parse(&s, &asked, "--pair 1,3"));
    option_values(first, &table, &s);
    cr_assert_eq(option_values_compare(&table, mine, first), MIMO_ERR_ARGUMENT);
    cr_assert_str_eq(mimo_last_error(), "--pair (B) is 2 on this rank and 3 on rank 0: start every "
                                        "rank with the same options");
}
