#include "captioner/data/emoji_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/input_file.h"
#include "train/support/utf8.h"

enum {
    MOST_CODES = 16, /* the longest emoji of Unicode 15 has 10 */
    VARIATION_SELECTOR = 0xfe0f,
    HIGHEST_CODE_POINT = 0x10ffff,
};

/* The code points of an emoji without variation selectors. Unused ones are 0, so that two keys
 * compare as bytes. */
struct emoji_key {
    uint32_t code[MOST_CODES];
};

struct name_row {
    struct emoji_key key;
    int64_t line;
    char name[EMOJI_NAME_CAPACITY + 1]; /* empty: longer than that */
};

struct name_table {
    const char *path;
    int64_t line; /* being read */
    int64_t count, room;
    struct name_row *rows;
};

/* ------------------------------------------- reading ------------------------------------------ */

static mimo_status parse_key(const struct name_table *table, struct emoji_key *key,
                             const char *text)
{
    int count = 0;
    for (const char *at = text; *at;) {
        char *rest;
        errno = 0;
        unsigned long code = strtoul(at, &rest, 16);
        CHECK(rest > at && errno == 0 && code > 0 && code <= HIGHEST_CODE_POINT, MIMO_ERR_IO,
              "%s, line %" PRId64 ": \"%s\" is no list of code points", table->path, table->line,
              text);
        CHECK(count < MOST_CODES, MIMO_ERR_IO,
              "%s, line %" PRId64 ": more than %d code points for one emoji", table->path,
              table->line, MOST_CODES);
        if (code != VARIATION_SELECTOR)
            key->code[count++] = (uint32_t)code;
        at = rest + strspn(rest, " ");
    }
    CHECK(count > 0, MIMO_ERR_IO, "%s, line %" PRId64 ": no code points before the tab",
          table->path, table->line);
    return MIMO_OK;
}

static mimo_status parse_name(const struct name_table *table, struct name_row *row,
                              const char *name)
{
    size_t length = strlen(name), good = utf8_printable(name, length);
    CHECK(length > 0, MIMO_ERR_IO, "%s, line %" PRId64 ": no name after the tab", table->path,
          table->line);
    CHECK(good == length, MIMO_ERR_IO,
          "%s, line %" PRId64 ": the name is not printable UTF-8 at its byte %zu", table->path,
          table->line, good);
    if (length <= EMOJI_NAME_CAPACITY)
        memcpy(row->name, name, length + 1);
    return MIMO_OK;
}

static mimo_status push_row(struct name_table *table, const struct name_row *row)
{
    if (table->count == table->room) {
        int64_t room = table->room ? 2 * table->room : 1024;
        TRY(memory_regrow(&table->rows, table->room, room, sizeof *row));
        table->room = room;
    }
    table->rows[table->count++] = *row;
    return MIMO_OK;
}

static mimo_status take_line(void *into, char *line)
{
    struct name_table *table = into;
    table->line++;
    if (line[0] == '\0' || line[0] == '#')
        return MIMO_OK;
    char *tab = strchr(line, '\t');
    CHECK(tab, MIMO_ERR_IO, "%s, line %" PRId64 ": no tab between code points and name",
          table->path, table->line);
    *tab = '\0';
    struct name_row row = {.line = table->line};
    TRY(parse_key(table, &row.key, line));
    TRY(parse_name(table, &row, tab + 1));
    return push_row(table, &row);
}

static int by_key(const void *a, const void *b)
{
    const struct name_row *x = a, *y = b;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

/* Sorted by key, each once. */
static mimo_status sort_rows(struct name_table *table)
{
    if (table->count > 0)
        qsort(table->rows, (size_t)table->count, sizeof *table->rows, by_key);
    for (int64_t i = 1; i < table->count; i++) {
        const struct name_row *one = &table->rows[i - 1], *other = &table->rows[i];
        int64_t first = one->line < other->line ? one->line : other->line;
        int64_t second = one->line < other->line ? other->line : one->line;
        CHECK(by_key(one, other) != 0, MIMO_ERR_IO,
              "%s, line %" PRId64 ": line %" PRId64 " has named this emoji already", table->path,
              second, first);
    }
    return MIMO_OK;
}

static mimo_status read_table(struct name_table *table)
{
    TRY(input_file_lines(table->path, "the names ", "", take_line, table));
    return sort_rows(table);
}

/* ------------------------------------------ renaming ------------------------------------------ */

/* The row of an emoji; NULL where there is none. */
static const struct name_row *find(const struct name_table *table, const struct emoji *emoji)
{
    struct name_row wanted = {.line = 0};
    int count = 0;
    for (int32_t i = 0; i < emoji->code_count; i++) {
        if (emoji->codes[i] == VARIATION_SELECTOR)
            continue;
        if (count == MOST_CODES)
            return NULL;
        wanted.key.code[count++] = emoji->codes[i];
    }
    if (table->count == 0)
        return NULL;
    return bsearch(&wanted, table->rows, (size_t)table->count, sizeof wanted, by_key);
}

static void count_left_out(struct emoji_left_out *out, const struct name_table *table,
                           const struct emoji_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        const struct name_row *row = find(table, &list->emoji[i]);
        out->unnamed += !row;
        out->too_long += row && !row->name[0];
    }
}

static void rename_all(struct emoji_list *list, const struct name_table *table)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const struct name_row *row = find(table, &list->emoji[i]);
        if (!row || !row->name[0])
            continue;
        struct emoji *emoji = &list->emoji[kept++];
        *emoji = list->emoji[i];
        memcpy(emoji->name, row->name, sizeof emoji->name);
    }
    list->count = kept;
}

mimo_status emoji_list_rename(struct emoji_left_out *left_out, struct emoji_list *list,
                              const char *path)
{
    struct name_table table = {.path = path};
    struct emoji_left_out counted = {0};
    mimo_status status = read_table(&table);
    if (status == MIMO_OK) {
        count_left_out(&counted, &table, list);
        if (counted.unnamed + counted.too_long == list->count)
            status = mimo_fail(MIMO_ERR_IO,
                               "none of the %" PRId64 " names in %s is for one of the %" PRId64
                               " emoji and has at most %d bytes",
                               table.count, path, list->count, EMOJI_NAME_CAPACITY);
    }
    if (status == MIMO_OK) {
        rename_all(list, &table);
        *left_out = counted;
    }
    memory_release(table.rows);
    return status;
}
