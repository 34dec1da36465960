/*
 * The options of a program as a table.
 *
 * A row is one option: its name, what it reads, into which field of the program's struct, within
 * which bounds, and its help. From the table a command line is parsed, the help is printed, and the
 * options of two ranks are compared.
 *
 *   #define OPTION_INTO settings
 *   static const option_row rows[] = {
 *       OPTION_INT("steps", "N", steps, 0, 1000, "Steps of a run (default 10)"),
 *       OPTION_FLAG("json", json, "Print JSON", .letter = 'j'),
 *   };
 *
 * The macros check the type of the field. Behind the help, which comes last, a row may set further
 * members. Nothing here prints an error or exits, as ranks must fail together: a call leaves its
 * one sentence in mimo_last_error().
 */
#ifndef MIMO_TOOLS_OPTION_TABLE_H
#define MIMO_TOOLS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <mimo/status.h>

typedef enum option_kind {
    OPTION_IS_HEADING,
    OPTION_IS_FLAG,
    OPTION_IS_INT,
    OPTION_IS_SEED,
    OPTION_IS_NUMBER,
    OPTION_IS_TEXT,
    OPTION_IS_CHOICE,
    OPTION_IS_SET,
    OPTION_IS_PAIR,
} option_kind;

typedef struct option_row option_row;
struct option_row {
    option_kind kind;
    const char *name;  /* without its dashes */
    const char *shown; /* what the help calls the value; NULL: there is none */
    const char *help;  /* NULL: no option, a field that is compared alone */
    int letter;        /* 'j': -j is the same option; 0: it has no letter */
    size_t at, second; /* offsets of the field; of the second number of a pair */
    size_t bytes;      /* of the field of a choice */
    int64_t low, high; /* bounds of whole numbers */
    double least, most;
    bool above;        /* a number is not `least` itself */
    const char *words; /* of a choice or a set: "cpu|cuda"; "word[more]": `read` takes off more */
    const int *values; /* of a choice: what each word stands for; NULL: its place, from 0 */
    const char *first_part, *second_part; /* what sentences call the numbers of a pair */
    const char *example;                  /* of a pair */
    bool optional; /* it may stand without a value: --name, or --name=value */
    int bare;      /* what a choice without a value stands for */
    bool apart;    /* ranks may differ in it */
    /* Reads the value in place of option_read; NULL text: there is none. */
    mimo_status (*read)(void *into, const option_row *row, const char *text);
};

/* The offset of a field, which must have this type. */
#define OPTION_AT(type, field) \
    (offsetof(OPTION_INTO, field) + 0 * sizeof((type *)0 == &((OPTION_INTO *)0)->field))

#define OPTION_HEADING(text)               \
    {                                      \
        OPTION_IS_HEADING, .help = (text), \
    }
/* bool: true where it is given. */
#define OPTION_FLAG(word, field, ...)                                                     \
    {                                                                                     \
        OPTION_IS_FLAG, .name = (word), .at = OPTION_AT(bool, field), .help = __VA_ARGS__ \
    }
/* int64_t. INT64_MAX: no upper bound. */
#define OPTION_INT(word, value, field, from, to, ...)                                 \
    {                                                                                 \
        OPTION_IS_INT, .name = (word), .shown = (value), .low = (from), .high = (to), \
                       .at = OPTION_AT(int64_t, field), .help = __VA_ARGS__           \
    }
/* uint64_t, all of them. */
#define OPTION_SEED(word, value, field, ...)                                                \
    {                                                                                       \
        OPTION_IS_SEED, .name = (word), .shown = (value), .at = OPTION_AT(uint64_t, field), \
                        .help = __VA_ARGS__                                                 \
    }
/* double, finite. HUGE_VAL: no upper bound. */
#define OPTION_NUMBER(word, value, field, from, to, ...)                                   \
    {                                                                                      \
        OPTION_IS_NUMBER, .name = (word), .shown = (value), .least = (from), .most = (to), \
                          .at = OPTION_AT(double, field), .help = __VA_ARGS__              \
    }
/* const char *, not empty: grids, lists and paths, which others read. */
#define OPTION_TEXT(word, value, field, ...)                                                    \
    {                                                                                           \
        OPTION_IS_TEXT, .name = (word), .shown = (value), .at = OPTION_AT(const char *, field), \
                        .help = __VA_ARGS__                                                     \
    }
/* A value that `reader` alone knows, such as one that may be repeated; not compared. */
#define OPTION_OWN(word, value, reader, ...)                                               \
    {                                                                                      \
        OPTION_IS_TEXT, .name = (word), .shown = (value), .read = (reader), .apart = true, \
                        .help = __VA_ARGS__                                                \
    }
/* An enum, or a bool with two words. */
#define OPTION_CHOICE(word, field, choices, ...)                                           \
    {                                                                                      \
        OPTION_IS_CHOICE, .name = (word), .shown = (choices), .words = (choices),          \
                          .at = offsetof(OPTION_INTO, field),                              \
                          .bytes = OPTION_CHOICE_BYTES(sizeof(((OPTION_INTO *)0)->field)), \
                          .help = __VA_ARGS__                                              \
    }
#define OPTION_CHOICE_BYTES(bytes) \
    ((bytes) + 0 * sizeof(char[(bytes) == sizeof(int) || (bytes) == sizeof(bool) ? 1 : -1]))
/* unsigned, a bit for each word; words with commas, or none. */
#define OPTION_SET(word, value, field, choices, ...)                         \
    {                                                                        \
        OPTION_IS_SET, .name = (word), .shown = (value), .words = (choices), \
                       .at = OPTION_AT(unsigned, field), .help = __VA_ARGS__ \
    }
/* Two int64_t from 1 to `to`, with a comma. */
#define OPTION_PAIR(word, value, one, other, to, ...)                                       \
    {                                                                                       \
        OPTION_IS_PAIR, .name = (word), .shown = (value), .low = 1, .high = (to),           \
                        .at = OPTION_AT(int64_t, one), .second = OPTION_AT(int64_t, other), \
                        .help = __VA_ARGS__                                                 \
    }

typedef struct option_table {
    const char *program; /* as the help and sentences call it */
    const char *version; /* as --version does; NULL: as `program` */
    const char *about;   /* above the options and, behind a \v, below them */
    const char *words;   /* what the help calls words that are no option; NULL: there are none */
    const option_row *rows;
    size_t count;
    /* Takes such a word. */
    mimo_status (*take)(void *into, const char *word);
    /* Looks at all of them together when all are read; may be NULL. */
    mimo_status (*check)(void *into);
} option_table;

#define OPTION_ROWS(list) .rows = (list), .count = sizeof(list) / sizeof *(list)

/* Every program has these three beside its own. */
typedef enum option_asked {
    OPTION_ASKED_NOTHING,
    OPTION_ASKED_HELP,
    OPTION_ASKED_USAGE,
    OPTION_ASKED_VERSION
} option_asked;

/* Read argv[1 .. argc) in their order; argv is not reordered. `into` is the program's struct, with
 * its defaults; texts stay argv's. At the first of --help, --usage and --version reading ends, and
 * `check` is not called. MIMO_ERR_ARGUMENT, with a sentence that names the option and its value,
 * for what is not understood or out of bounds; *into then has what was read before. */
mimo_status option_parse(option_asked *asked, void *into, const option_table *table, int argc,
                         char **argv);

/* Print what was asked for. */
mimo_status option_answer(FILE *stream, const option_table *table, option_asked asked);

/* Read `text` into the field of a row, by its kind: for a row's own `read`. */
mimo_status option_read(void *into, const option_row *row, const char *text);

/* Read a whole number; `flag` is what sentences call it. */
mimo_status option_read_int(int64_t *out, const char *flag, const char *text, int64_t low,
                            int64_t high);

/* The value of an option, as it travels to be compared: of a long text the beginning, for the
 * sentence, and a hash of all of it. */
typedef struct option_value {
    uint64_t hash;
    char text[96];
} option_value;

/* How many values a table has: of each option that ranks must share one, of a pair two. */
int64_t option_values_count(const option_table *table);

/* The values of a program's struct: values[option_values_count(table)]. */
void option_values(option_value *values, const option_table *table, const void *of);

/* MIMO_ERR_ARGUMENT, with the first option whose value on this rank is not that of rank 0. */
mimo_status option_values_compare(const option_table *table, const option_value *mine,
                                  const option_value *first);

#endif
