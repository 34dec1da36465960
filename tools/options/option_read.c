/* Values of options, each kind by its own reader. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "tools/options/option_table.h"

enum { NAME_CAPACITY = 64 };

mimo_status option_read_int(int64_t *out, const char *flag, const char *text, int64_t low,
                            int64_t high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool number = end != text && *end == '\0' && strspn(text, "+-0123456789") == strlen(text);
    MIMO_CHECK(number, MIMO_ERR_ARGUMENT, "%s needs a whole number, not \"%s\"", flag, text);
    MIMO_CHECK(high < INT64_MAX || (value >= low && errno == 0) || value == INT64_MAX,
               MIMO_ERR_ARGUMENT, "%s must be at least %" PRId64 ", not %s", flag, low, text);
    MIMO_CHECK(errno == 0 && value >= low && value <= high, MIMO_ERR_ARGUMENT,
               "%s must be from %" PRId64 " to %" PRId64 ", not %s", flag, low, high, text);
    *out = value;
    return MIMO_OK;
}

static mimo_status read_seed(uint64_t *out, const char *flag, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    MIMO_CHECK(end != text && *end == '\0' && strspn(text, "0123456789") == strlen(text),
               MIMO_ERR_ARGUMENT, "%s needs a whole number from 0, not \"%s\"", flag, text);
    MIMO_CHECK(errno == 0, MIMO_ERR_ARGUMENT, "%s must be at most %" PRIu64 ", not %s", flag,
               UINT64_MAX, text);
    *out = value;
    return MIMO_OK;
}

static mimo_status read_number(double *out, const option_row *row, const char *flag,
                               const char *text)
{
    char *end;
    double value = strtod(text, &end);
    MIMO_CHECK(end != text && *end == '\0' && strspn(text, "+-.0123456789eE") == strlen(text),
               MIMO_ERR_ARGUMENT, "%s needs a number, not \"%s\"", flag, text);
    bool inside = isfinite(value) && value <= row->most &&
                  (row->above ? value > row->least : value >= row->least);
    if (inside) {
        *out = value;
        return MIMO_OK;
    }
    if (isfinite(row->most))
        return mimo_fail(MIMO_ERR_ARGUMENT,
                         row->above ? "%s must be above %g and at most %g, not %s"
                                    : "%s must be from %g to %g, not %s",
                         flag, row->least, row->most, text);
    return mimo_fail(MIMO_ERR_ARGUMENT,
                     row->above ? "%s must be above %g, not %s" : "%s must be at least %g, not %s",
                     flag, row->least, text);
}

/* The place of a word among those of `words`, "cpu|cuda"; -1: it is none of them. */
static int place_among(const char *words, const char *text, size_t length)
{
    int place = 0;
    for (const char *word = words; *word; place++) {
        size_t bytes = strcspn(word, "|[");
        if (bytes == length && memcmp(word, text, bytes) == 0)
            return place;
        word += strcspn(word, "|");
        word += *word == '|';
    }
    return -1;
}

static mimo_status read_choice(void *field, const option_row *row, const char *flag,
                               const char *text)
{
    int value = row->bare;
    if (text) {
        int place = place_among(row->words, text, strlen(text));
        MIMO_CHECK(place >= 0, MIMO_ERR_ARGUMENT, "%s must be one of %s, not \"%s\"", flag,
                   row->words, text);
        value = row->values ? row->values[place] : place;
    }
    if (row->bytes == sizeof(bool))
        *(bool *)field = value != 0;
    else
        *(int *)field = value;
    return MIMO_OK;
}

static mimo_status read_set(unsigned *out, const option_row *row, const char *flag,
                            const char *text)
{
    unsigned set = 0;
    for (const char *word = text; strcmp(text, "none") != 0; word++) {
        size_t length = strcspn(word, ",");
        int place = place_among(row->words, word, length);
        MIMO_CHECK(place >= 0, MIMO_ERR_ARGUMENT,
                   "%s must be none, or some of %s with commas, not \"%s\"", flag, row->words,
                   text);
        set |= 1U << place;
        word += length;
        if (!*word)
            break;
    }
    *out = set;
    return MIMO_OK;
}

static mimo_status read_pair(int64_t *out, int64_t *second, const option_row *row, const char *text)
{
    const char *comma = strchr(text, ',');
    char flag[NAME_CAPACITY], first[NAME_CAPACITY];
    MIMO_CHECK(comma, MIMO_ERR_ARGUMENT, "--%s needs two numbers, \"%s\", not \"%s\"", row->name,
               row->example, text);
    snprintf(flag, sizeof flag, "--%s (%s)", row->name, row->first_part);
    snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
    MIMO_TRY(option_read_int(out, flag, first, row->low, row->high));
    snprintf(flag, sizeof flag, "--%s (%s)", row->name, row->second_part);
    return option_read_int(second, flag, comma + 1, row->low, row->high);
}

mimo_status option_read(void *into, const option_row *row, const char *text)
{
    void *field = (char *)into + row->at;
    char flag[NAME_CAPACITY];
    snprintf(flag, sizeof flag, "--%s", row->name);
    switch (row->kind) {
    case OPTION_IS_HEADING:
        return MIMO_OK;
    case OPTION_IS_FLAG:
        *(bool *)field = true;
        return MIMO_OK;
    case OPTION_IS_INT:
        return option_read_int(field, flag, text, row->low, row->high);
    case OPTION_IS_SEED:
        return read_seed(field, flag, text);
    case OPTION_IS_NUMBER:
        return read_number(field, row, flag, text);
    case OPTION_IS_TEXT:
        MIMO_CHECK(*text, MIMO_ERR_ARGUMENT, "%s needs a value, not an empty one", flag);
        *(const char **)field = text;
        return MIMO_OK;
    case OPTION_IS_CHOICE:
        return read_choice(field, row, flag, text);
    case OPTION_IS_SET:
        return read_set(field, row, flag, text);
    case OPTION_IS_PAIR:
        return read_pair(field, (int64_t *)(void *)((char *)into + row->second), row, text);
    }
    return MIMO_OK;
}
