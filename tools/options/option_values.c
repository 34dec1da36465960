/* What options are set to, as texts: so programs on many ranks compare them. */
#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/hash.h"
#include "tools/options/option_table.h"

static int64_t count_of(const option_row *row)
{
    if (row->kind == OPTION_IS_HEADING || row->apart)
        return 0;
    return row->kind == OPTION_IS_PAIR ? 2 : 1;
}

int64_t option_values_count(const option_table *table)
{
    int64_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += count_of(&table->rows[i]);
    return count;
}

/* The word of a choice. One that may stand without a value is also given where it has none. */
static void say_choice(char *out, size_t capacity, const option_row *row, int value)
{
    const char *word = row->words;
    for (int i = 0; *word; i++) {
        size_t bytes = strcspn(word, "|[");
        if (value == (row->values ? row->values[i] : i)) {
            snprintf(out, capacity, "%.*s", (int)bytes, word);
            return;
        }
        word += strcspn(word, "|");
        word += *word == '|';
    }
    snprintf(out, capacity, "%s", row->optional && value == row->bare ? "given" : "not given");
}

static void say(option_value *out, const option_row *row, const void *of, int64_t part)
{
    const void *field = (const char *)of + (part == 0 ? row->at : row->second);
    size_t capacity = sizeof out->text;
    const char *text = out->text;
    switch (row->kind) {
    case OPTION_IS_HEADING:
        break;
    case OPTION_IS_FLAG:
        text = *(const bool *)field ? "given" : "not given";
        break;
    case OPTION_IS_INT:
    case OPTION_IS_PAIR:
        snprintf(out->text, capacity, "%" PRId64, *(const int64_t *)field);
        break;
    case OPTION_IS_SEED:
        snprintf(out->text, capacity, "%" PRIu64, *(const uint64_t *)field);
        break;
    case OPTION_IS_NUMBER:
        snprintf(out->text, capacity, "%.17g", *(const double *)field);
        break;
    case OPTION_IS_TEXT:
        text = *(const char *const *)field ? *(const char *const *)field : "not given";
        break;
    case OPTION_IS_CHOICE:
        say_choice(out->text, capacity, row,
                   row->bytes == sizeof(bool) ? *(const bool *)field : *(const int *)field);
        break;
    case OPTION_IS_SET:
        snprintf(out->text, capacity, "%u", *(const unsigned *)field);
        break;
    }
    out->hash = mimo_hash_bytes(MIMO_HASH_START, text, strlen(text));
    if (text != out->text)
        snprintf(out->text, capacity, "%s", text);
}

void option_values(option_value *values, const option_table *table, const void *of)
{
    memset(values, 0, (size_t)option_values_count(table) * sizeof *values);
    for (size_t i = 0; i < table->count; i++)
        for (int64_t part = 0; part < count_of(&table->rows[i]); part++)
            say(values++, &table->rows[i], of, part);
}

mimo_status option_values_compare(const option_table *table, const option_value *mine,
                                  const option_value *first)
{
    for (size_t i = 0; i < table->count; i++) {
        const option_row *row = &table->rows[i];
        for (int64_t part = 0; part < count_of(row); part++, mine++, first++) {
            bool pair = row->kind == OPTION_IS_PAIR;
            const char *name = !pair ? "" : part == 0 ? row->first_part : row->second_part;
            MIMO_CHECK(mine->hash == first->hash, MIMO_ERR_ARGUMENT,
                       "--%s%s%s%s is %s on this rank and %s on rank 0: start every rank with the "
                       "same options",
                       row->name, pair ? " (" : "", name, pair ? ")" : "", mine->text, first->text);
        }
    }
    return MIMO_OK;
}
