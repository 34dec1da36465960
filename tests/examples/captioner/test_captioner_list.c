/* The list of emoji and the split; UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "captioner/data/emoji_list.h"
#include "captioner/support/utf8.h"
#include "core/check.h"

static struct emoji_list installed(void)
{
    struct emoji_list list = {0};
    cr_assert_eq(emoji_list_read(&list, EMOJI_LIST_DEFAULT_PATH), MIMO_OK, "%s", mimo_last_error());
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

Test(list, base_names)
{
    static const struct {
        const char *name, *base;
    } cases[] = {
        {"grinning face", "grinning face"},
        {"waving hand: medium-light skin tone", "waving hand"},
        {"woman: dark skin tone, red hair", "woman: red hair"},
        {"man: beard", "man: beard"},
        {"kiss: man, man, light skin tone, dark skin tone", "kiss: man, man"},
        {"kiss: person, person, light skin tone, dark skin tone", "kiss"},
        {"family: man, woman, girl, boy", "family: man, woman, girl, boy"},
        {"flag: Wales", "flag: Wales"},
        {"light skin tone", "light skin tone"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char base[EMOJI_NAME_CAPACITY + 1];
        emoji_base_name(base, cases[i].name);
        cr_assert_str_eq(base, cases[i].base, "%s -> %s", cases[i].name, base);
    }
}

/* The code points without tones and variation selectors, as text. An independent way to find
 * variants. */
static void toneless(char *text, const struct emoji *emoji)
{
    *text = '\0';
    for (int32_t i = 0; i < emoji->code_count; i++) {
        uint32_t code = emoji->codes[i];
        if ((code >= 0x1f3fb && code <= 0x1f3ff) || code == 0xfe0f)
            continue;
        text += sprintf(text, "%x ", code);
    }
}

Test(list, split_is_five_percent_and_keeps_variants_together)
{
    struct emoji_list list = installed();
    int64_t held_out = 0;
    char(*codes)[256] = calloc((size_t)list.count, sizeof *codes);
    cr_assert(codes);
    for (int64_t i = 0; i < list.count; i++) {
        toneless(codes[i], &list.emoji[i]);
        held_out += list.emoji[i].held_out;
        for (int64_t j = 0; j < i; j++)
            if (codes[i][0] && strcmp(codes[i], codes[j]) == 0)
                cr_assert_eq(list.emoji[i].held_out, list.emoji[j].held_out, "%s | %s",
                             list.emoji[i].name, list.emoji[j].name);
    }
    double share = (double)held_out / (double)list.count;
    cr_assert(share > 0.04 && share < 0.06, "%lld held out", (long long)held_out);
    cr_assert_eq(held_out, 196, "the split is fixed: %lld", (long long)held_out);
    cr_assert(emoji_is_held_out("mechanic: dark skin tone"));
    cr_assert(!emoji_is_held_out("grinning face"));
    free(codes);
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
    cr_assert_eq(read_text(&list, "# a comment\r\n\n1F44B 1F3FB ; fully-qualified # x E1.0 hi\r\n"
                                  "263A ; unqualified # x E0.6 ho\n# fully-qualified : 1\n#EOF\n"),
                 MIMO_OK, "%s", mimo_last_error());
    cr_assert_eq(list.count, 1);
    cr_assert_eq(list.emoji[0].codes[1], 0x1f3fbu);
    cr_assert_str_eq(list.emoji[0].name, "hi");
    emoji_list_release(&list);
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
        cr_assert_eq(read_text(&list, cases[i].text), MIMO_ERR_IO, "case %zu", i);
        cr_assert(strstr(mimo_last_error(), cases[i].part), "case %zu: %s", i, mimo_last_error());
        cr_assert_eq(list.count, -7, "a failed call leaves its output");
    }
    struct emoji_list list;
    cr_assert_eq(emoji_list_read(&list, "/nowhere/emoji-test.txt"), MIMO_ERR_NOT_FOUND);
    cr_assert(strstr(mimo_last_error(), "/nowhere/emoji-test.txt"));
    cr_assert(strstr(mimo_last_error(), "unicode-data"));
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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(utf8_printable(cases[i].text, strlen(cases[i].text)), cases[i].good,
                     "case %zu", i);
}
