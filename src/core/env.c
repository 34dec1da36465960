#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/env.h>

#include "core/check.h"

static const mimo_env_row table[] = {
#define ROW(id, name, value, words, help) {name, value, words, help},
    MIMO_ENV_LIST(ROW)
#undef ROW
};
enum { ROWS = sizeof table / sizeof table[0] };

const mimo_env_row *mimo_env_table(int *count)
{
    *count = ROWS;
    return table;
}

static mimo_status read_number(int64_t *out, const mimo_env_row *row, const char *text)
{
    const char *digits = text + (*text == '-'); /* strtoll would accept blanks and '+' */
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    MIMO_CHECK(*digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0, MIMO_ERR_ARGUMENT,
               "environment %s='%s' is not a whole number", row->name, text);
    *out = value;
    return MIMO_OK;
}

/* The bit of a word in a list "replicas,calls,samples"; 0 where it is none of these. */
static int64_t bit_of(const char *words, const char *word, size_t length)
{
    for (int64_t bit = 1; *words; bit *= 2) {
        size_t known = strcspn(words, ",");
        if (known == length && memcmp(words, word, length) == 0)
            return bit;
        words += known + (words[known] == ',');
    }
    return 0;
}

static mimo_status read_words(int64_t *out, const mimo_env_row *row, const char *text)
{
    int64_t bits = 0;
    const char *word = text;
    for (bool more = *text; more;) {
        size_t length = strcspn(word, ",");
        int64_t bit = bit_of(row->words, word, length);
        MIMO_CHECK(bit > 0, MIMO_ERR_ARGUMENT, "environment %s='%s': '%.*s' is none of %s",
                   row->name, text, (int)length, word, row->words);
        bits |= bit;
        more = word[length] == ','; /* another word follows a comma, even if it is empty */
        word += length + more;
    }
    *out = bits;
    return MIMO_OK;
}

static bool is_text(const mimo_env_row *row)
{
    return row->words && !row->words[0];
}

mimo_status mimo_env_text(const char **out, mimo_env_id id)
{
    MIMO_CHECK(out && (unsigned)id < ROWS, MIMO_ERR_ARGUMENT, "mimo_env_text: row %d of %d%s",
               (int)id, (int)ROWS, out ? "" : ", and out is NULL");
    MIMO_CHECK(is_text(&table[id]), MIMO_ERR_ARGUMENT, "mimo_env_text: %s is no text",
               table[id].name);
    const char *text = getenv(table[id].name);
    *out = text ? text : "";
    return MIMO_OK;
}

mimo_status mimo_env_get(int64_t *out, mimo_env_id id)
{
    MIMO_CHECK(out && (unsigned)id < ROWS, MIMO_ERR_ARGUMENT, "mimo_env_get: row %d of %d%s",
               (int)id, (int)ROWS, out ? "" : ", and out is NULL");
    const mimo_env_row *row = &table[id];
    MIMO_CHECK(!is_text(row), MIMO_ERR_ARGUMENT, "mimo_env_get: %s is a text", row->name);
    const char *text = getenv(row->name);
    if (!text) {
        *out = row->value;
        return MIMO_OK;
    }
    return row->words ? read_words(out, row, text) : read_number(out, row, text);
}
