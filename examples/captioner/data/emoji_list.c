#include "captioner/data/emoji_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captioner/data/word_set.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/input_file.h"
#include "train/support/utf8.h"

enum {
    CANDIDATE_ONE_IN = 16,
    HIGHEST_CODE_POINT = 0x10ffff,
};

/* Where the parser is, and room that grows by doubling. */
struct list_reader {
    const char *path;
    int64_t line;
    int64_t emoji_room;
    int64_t code_count;
    int64_t code_room;
    int64_t promised; /* what the file's own "# fully-qualified : N" says, -1 before */
    bool complete;    /* "#EOF" was seen */
    struct emoji_list list;
};

static mimo_status push_code(struct list_reader *reader, uint32_t code)
{
    if (reader->code_count == reader->code_room) {
        int64_t room = reader->code_room ? 2 * reader->code_room : 4096;
        TRY(memory_regrow(&reader->list.codes, reader->code_room, room, sizeof code));
        reader->code_room = room;
    }
    reader->list.codes[reader->code_count++] = code;
    return MIMO_OK;
}

static mimo_status push_emoji(struct list_reader *reader, const struct emoji *emoji)
{
    struct emoji_list *list = &reader->list;
    if (list->count == reader->emoji_room) {
        int64_t room = reader->emoji_room ? 2 * reader->emoji_room : 1024;
        TRY(memory_regrow(&list->emoji, reader->emoji_room, room, sizeof *emoji));
        reader->emoji_room = room;
    }
    list->emoji[list->count++] = *emoji;
    return MIMO_OK;
}

static mimo_status parse_codes(struct list_reader *reader, struct emoji *emoji, const char *text,
                               const char *end)
{
    const char *at = text;
    while (at < end) {
        char *rest;
        errno = 0;
        unsigned long code = strtoul(at, &rest, 16);
        CHECK(rest > at && rest <= end && errno == 0 && code > 0 && code <= HIGHEST_CODE_POINT,
              MIMO_ERR_IO, "%s, line %" PRId64 ": \"%.*s\" is no list of code points", reader->path,
              reader->line, (int)(end - text), text);
        TRY(push_code(reader, (uint32_t)code));
        emoji->code_count++;
        at = rest + strspn(rest, " ");
    }
    return MIMO_OK;
}

/* The comment of a data line: the emoji itself, the version that brought it ("E15.0"), the name. */
static mimo_status parse_name(const struct list_reader *reader, struct emoji *emoji,
                              const char *comment)
{
    const char *version = strstr(comment, " E");
    const char *name = version ? strchr(version + 2, ' ') : NULL;
    CHECK(name && name[1], MIMO_ERR_IO, "%s, line %" PRId64 ": the emoji has no name", reader->path,
          reader->line);
    name++;
    size_t length = strlen(name);
    CHECK(length <= EMOJI_NAME_CAPACITY, MIMO_ERR_IO,
          "%s, line %" PRId64 ": the name has %zu bytes, at most %d are allowed", reader->path,
          reader->line, length, EMOJI_NAME_CAPACITY);
    CHECK(utf8_printable(name, length) == length, MIMO_ERR_IO,
          "%s, line %" PRId64 ": the name is not UTF-8 at its byte %zu", reader->path, reader->line,
          utf8_printable(name, length));
    memcpy(emoji->name, name, length + 1);
    return MIMO_OK;
}

/* "1F600 ; fully-qualified # <the emoji> E1.0 grinning face"; other states are passed over. */
static mimo_status parse_data(struct list_reader *reader, const char *text)
{
    const char *semicolon = strchr(text, ';');
    const char *hash = semicolon ? strchr(semicolon, '#') : NULL;
    CHECK(hash, MIMO_ERR_IO, "%s, line %" PRId64 ": expected \"code points ; status # emoji name\"",
          reader->path, reader->line);
    const char *state = semicolon + 1 + strspn(semicolon + 1, " ");
    if (strncmp(state, "fully-qualified", 15) != 0)
        return MIMO_OK;
    struct emoji emoji = {.code_count = 0};
    TRY(parse_codes(reader, &emoji, text, semicolon));
    CHECK(emoji.code_count > 0, MIMO_ERR_IO, "%s, line %" PRId64 ": no code points", reader->path,
          reader->line);
    TRY(parse_name(reader, &emoji, hash + 1));
    return push_emoji(reader, &emoji);
}

static mimo_status take_line(void *into, char *line)
{
    static const char promise[] = "# fully-qualified :";
    struct list_reader *reader = into;
    reader->line++;
    if (line[0] == '\0')
        return MIMO_OK;
    if (line[0] != '#')
        return parse_data(reader, line);
    if (strncmp(line, promise, sizeof promise - 1) == 0)
        reader->promised = strtoll(line + sizeof promise - 1, NULL, 10);
    if (strcmp(line, "#EOF") == 0)
        reader->complete = true;
    return MIMO_OK;
}

/* The file tells its own end and its own count, so a cut-off copy is found out. */
static mimo_status check_complete(const struct list_reader *reader)
{
    CHECK(reader->complete, MIMO_ERR_IO,
          "the emoji list %s is cut short or no emoji-test.txt: no \"#EOF\" after %" PRId64
          " lines and %" PRId64 " fully-qualified emoji",
          reader->path, reader->line, reader->list.count);
    CHECK(reader->list.count > 0, MIMO_ERR_IO, "the emoji list %s holds no fully-qualified emoji",
          reader->path);
    CHECK(reader->promised < 0 || reader->promised == reader->list.count, MIMO_ERR_IO,
          "the emoji list %s holds %" PRId64 " fully-qualified emoji, but says that it has "
          "%" PRId64,
          reader->path, reader->list.count, reader->promised);
    return MIMO_OK;
}

/* Candidates by their names alone; the words of all other names go into the set. Returns how many
 * candidates there are. */
static int64_t choose_candidates(struct emoji_list *list, word_set *words)
{
    int64_t candidates = 0;
    for (int64_t i = 0; i < list->count; i++) {
        struct emoji *emoji = &list->emoji[i];
        size_t length = strlen(emoji->name);
        emoji->held_out = hash_bytes(HASH_START, emoji->name, length) % CANDIDATE_ONE_IN == 0;
        candidates += emoji->held_out;
        if (!emoji->held_out)
            word_set_add(words, emoji->name, length);
    }
    word_set_sort(words);
    return candidates;
}

static bool is_spellable(const struct emoji *emoji, const word_set *words)
{
    return word_set_covers(words, emoji->name, strlen(emoji->name));
}

/* Nobody can spell a word that they have never seen: where that leaves enough, candidates with such
 * a word go back into training. */
static mimo_status hold_out(struct emoji_list *list)
{
    word_set words = {0};
    int64_t spellable = 0;
    TRY(word_set_reserve(&words, list->count * EMOJI_NAME_CAPACITY));
    int64_t candidates = choose_candidates(list, &words);
    for (int64_t i = 0; i < list->count; i++)
        spellable += list->emoji[i].held_out && is_spellable(&list->emoji[i], &words);
    for (int64_t i = 0; 2 * spellable >= candidates && i < list->count; i++)
        list->emoji[i].held_out = list->emoji[i].held_out && is_spellable(&list->emoji[i], &words);
    word_set_release(&words);
    return MIMO_OK;
}

mimo_status emoji_list_read(struct emoji_list *out, const char *path)
{
    struct list_reader reader = {.path = path, .promised = -1};
    mimo_status status = input_file_lines(path, "the emoji list ", " (Debian package unicode-data)",
                                          take_line, &reader);
    if (status == MIMO_OK)
        status = check_complete(&reader);
    if (status == MIMO_OK)
        status = hold_out(&reader.list);
    if (status != MIMO_OK) {
        emoji_list_release(&reader.list);
        return status;
    }
    /* Only now do the code points stay where they are. */
    const uint32_t *codes = reader.list.codes;
    for (int64_t i = 0; i < reader.list.count; i++) {
        reader.list.emoji[i].codes = codes;
        codes += reader.list.emoji[i].code_count;
    }
    *out = reader.list;
    return MIMO_OK;
}

void emoji_list_release(struct emoji_list *list)
{
    memory_release(list->emoji);
    memory_release(list->codes);
    *list = (struct emoji_list){0};
}
