/* The list of emoji and the split; UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captioner/data/emoji_list.h"
#include "train/support/utf8.h"
#include "core/check.h"
#include "expect_failure.h"

static struct emoji_list installed(void)
{
    struct emoji_list list = {0};
    SUCCEEDS(emoji_list_read(&list, EMOJI_LIST_DEFAULT_PATH));
    return list;
}

Test(list, installed_list_is_whole)
{
    struct emoji_list list = installed();
    cr_assert_eq(list.count, 3655, "%lld emoji", (long long)list.count);
    size_t longest = 0;
    for (int64_t i = 0; i < list.count; i++) {
        size_t length = strlen(list.emoji[i].name);
        cr_assert(length >= 1 && length <= EMOJI_NAME_CAPACITY, "%s", list.emoji[i].name);
        cr_assert_geq(list.emoji[i].code_count, 1);
        longest = length > longest ? length : longest;
    }
    cr_assert_eq(longest, 80, "longest name: %zu", longest);
    cr_assert_str_eq(list.emoji[0].name, "grinning face");
    cr_assert_eq(list.emoji[0].codes[0], 0x1f600u);
    const struct emoji *wales = &list.emoji[list.count - 1];
    cr_assert_str_eq(wales->name, "flag: Wales");
    cr_assert_eq(wales->code_count, 7);
    cr_assert_eq(wales->codes[6], 0xe007fu);
    emoji_list_release(&list);
}

/* Whether `text` has the word, by a search that knows nothing of hashes. */
static bool has_word(const char *text, const char *word, size_t length)
{
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || strchr(" :,", at[-1])) && strchr(" :,", at[length]))
            return true;
    return false;
}

static bool training_has(const struct emoji_list *list, const char *word)
{
    for (int64_t i = 0; i < list->count; i++)
        if (!list->emoji[i].held_out && has_word(list->emoji[i].name, word, strlen(word)))
            return true;
    return false;
}

Test(list, split_is_four_percent_whose_words_training_has)
{
    struct emoji_list list = installed();
    int64_t held_out = 0;
    for (int64_t i = 0; i < list.count; i++) {
        char name[EMOJI_NAME_CAPACITY + 1], *rest = name;
        memcpy(name, list.emoji[i].name, sizeof name);
        held_out += list.emoji[i].held_out;
        for (char *word; list.emoji[i].held_out && (word = strtok_r(rest, " :,", &rest));)
            cr_assert(training_has(&list, word), "%s: %s", list.emoji[i].name, word);
        if (strcmp(list.emoji[i].name, "face without mouth") == 0)
            cr_assert(list.emoji[i].held_out);
    }
    cr_assert_eq(held_out, 141, "the split is fixed: %lld", (long long)held_out);
    emoji_list_release(&list);
}

static mimo_status read_text(struct emoji_list *list, const char *text)
{
    char path[] = "/tmp/captioner-list-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    mimo_status status = emoji_list_read(list, path);
    unlink(path);
    return status;
}

Test(list, small_lists)
{
    struct emoji_list list = {0};
    SUCCEEDS(read_text(&list, "# a comment\r\n\n1F44B 1F3FB ; fully-qualified # x E1.0 hi\r\n"
                              "263A ; unqualified # x E0.6 ho\n# fully-qualified : 1\n#EOF\n"));
    cr_assert_eq(list.count, 1);
    cr_assert_eq(list.emoji[0].codes[1], 0x1f3fbu);
    cr_assert_str_eq(list.emoji[0].name, "hi");
    emoji_list_release(&list);
}

/* "three two" is a candidate by its hash, and so is "dog, cat". */
Test(list, a_word_of_its_own_keeps_a_name_in_training)
{
    static const struct {
        const char *names[4];
        bool held_out[4];
    } cases[] = {
        {{"one two", "three two", "three", "four"}, {0, 1, 0, 0}},
        {{"two", "three: three", "three two", "dog, cat"}, {0, 0, 1, 0}},
        {{"one", "two", "three two", "four"}, {0, 0, 1, 0}}, /* the only one: it is needed */
        {{"one", "two", "three", "four"}, {0, 0, 0, 0}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[400], *at = text;
        struct emoji_list list = {0};
        for (int i = 0; i < 4; i++)
            at += sprintf(at, "1F60%d ; fully-qualified # x E1.0 %s\n", i, cases[c].names[i]);
        strcpy(at, "#EOF\n");
        SUCCEEDS(read_text(&list, text));
        for (int i = 0; i < 4; i++)
            cr_assert_eq(list.emoji[i].held_out, cases[c].held_out[i], "list %zu: %s", c,
                         cases[c].names[i]);
        emoji_list_release(&list);
    }
}

Test(list, each_error_has_its_sentence)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "\"#EOF\" after 0 lines"},
        {"1F600 ; fully-qualified # x E1.0 hi\n", "after 1 lines and 1 fully"},
        {"1F600 ; fully-qualified\n#EOF\n", "line 1: expected"},
        {"hello\n#EOF\n", "line 1: expected"},
        {"\n1F60Z ; fully-qualified # x E1.0 hi\n#EOF\n", "line 2: \"1F60Z \" is no list"},
        {"110000 ; fully-qualified # x E1.0 hi\n#EOF\n", "is no list of code points"},
        {"; fully-qualified # x E1.0 hi\n#EOF\n", "no code points"},
        {"1F600 ; fully-qualified # x\n#EOF\n", "no name"},
        {"1F600 ; fully-qualified # x E1.0 a\xff\n#EOF\n", "not UTF-8 at its byte 1"},
        {"# only\n#EOF\n", "no fully-qualified emoji"},
        {"1F600 ; fully-qualified # x E1.0 hi\n# fully-qualified : 3\n#EOF\n", "holds 1 fully"},
        {"1F600 ; fully-qualified # x E1.0 "
         "123456789012345678901234567890123456789012345678901234567890123456789012345678901\n#"
         "EOF\n",
         "has 81 bytes, at most 80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct emoji_list list = {.count = -7};
        FAILS(read_text(&list, cases[i].text), MIMO_ERR_IO, cases[i].part);
        cr_assert_eq(list.count, -7, "a failed call leaves its output");
    }
    struct emoji_list list;
    FAILS(emoji_list_read(&list, "/nowhere/emoji-test.txt"), MIMO_ERR_NOT_FOUND,
          "/nowhere/emoji-test.txt", "unicode-data");
    cr_assert_eq(emoji_list_read(&list, "/tmp"), MIMO_ERR_IO, "a folder is no list");
}

Test(utf8, good_and_bad)
{
    static const struct {
        const char *text;
        size_t good;
    } cases[] = {
        {"plain", 5},
        {"\xc3\x85land", 6},
        {"\xe2\x80\x9c", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"a\xc3", 1},
        {"a\x80", 1},
        {"\xc0\x80", 0},
        {"\xed\xa0\x80", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xe0\x80\x80", 0},
        {"a\nb", 1},
        {"\xff", 0},
        {"a\xe2\x80\xae", 1}, /* turns of direction and ends of lines, and what lies beside them */
        {"a\xe2\x81\xa6", 1},
        {"a\xe2\x80\xa8", 1},
        {"\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(utf8_printable(cases[i].text, strlen(cases[i].text)), cases[i].good,
                     "case %zu", i);
}
