/* Names in another language: which emoji get them, which leave the list, every refusal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "captioner/data/emoji_names.h"
#include "core/check.h"
#include "expect_failure.h"

enum { SMALL = 4 };

/* Four emoji; the red heart is written with U+FE0F. */
static void make_small(struct emoji_list *list)
{
    static const uint32_t codes[] = {0x1f600, 0x2764, 0xfe0f, 0x1f44b, 0x1f3fb, 0x1f98a};
    static const struct {
        const char *name;
        int first, count;
    } rows[SMALL] = {{"grinning face", 0, 1},
                     {"red heart", 1, 2},
                     {"waving hand: light skin tone", 3, 2},
                     {"fox", 5, 1}};
    static struct emoji emoji[SMALL];
    for (int i = 0; i < SMALL; i++) {
        emoji[i] = (struct emoji){
            .held_out = i % 2 == 1, .code_count = rows[i].count, .codes = codes + rows[i].first};
        strcpy(emoji[i].name, rows[i].name);
    }
    *list = (struct emoji_list){.count = SMALL, .emoji = emoji};
}

static mimo_status rename_with(struct emoji_left_out *left_out, struct emoji_list *list,
                               const char *text)
{
    char path[] = "/tmp/captioner-names-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    mimo_status status = emoji_list_rename(left_out, list, path);
    unlink(path);
    return status;
}

Test(names, every_emoji_gets_its_own)
{
    struct emoji_list list;
    struct emoji_left_out left_out = {-1, -1};
    make_small(&list);
    SUCCEEDS(rename_with(&left_out, &list,
                         "# any order, any case, with U+FE0F or without, other emoji too\n\n"
                         "1f98a\tFuchs\r\n"
                         "2764\trotes Herz\n"
                         "1F44B\twinkende Hand\n"
                         "1F44B 1F3FB\twinkende Hand: helle Hautfarbe\n"
                         "1F600 FE0F\tgrinsendes Gesicht mit \xc3\x9c"));
    cr_assert_eq(list.count, SMALL);
    cr_assert_str_eq(list.emoji[0].name, "grinsendes Gesicht mit \xc3\x9c");
    cr_assert_str_eq(list.emoji[1].name, "rotes Herz");
    cr_assert_str_eq(list.emoji[2].name, "winkende Hand: helle Hautfarbe");
    cr_assert_str_eq(list.emoji[3].name, "Fuchs");
    for (int i = 0; i < SMALL; i++)
        cr_assert_eq(list.emoji[i].held_out, i % 2 == 1, "emoji %d changed sides", i);
    cr_assert(left_out.unnamed == 0 && left_out.too_long == 0);
}

Test(names, emoji_without_a_usable_name_leave_the_list)
{
    struct emoji_list list;
    struct emoji_left_out left_out;
    char text[300], most[EMOJI_NAME_CAPACITY + 1];
    memset(most, 'o', sizeof most);
    make_small(&list);
    snprintf(text, sizeof text, "1F600\t%.80so\n2764\t%.80s\n1F98A\tFuchs\n", most, most);
    SUCCEEDS(rename_with(&left_out, &list, text));
    cr_assert_eq(list.count, 2);
    cr_assert_eq(strlen(list.emoji[0].name), EMOJI_NAME_CAPACITY, "80 bytes fit");
    cr_assert_eq(list.emoji[0].codes[0], 0x2764u);
    cr_assert_str_eq(list.emoji[1].name, "Fuchs");
    cr_assert(list.emoji[0].held_out && list.emoji[1].held_out);
    cr_assert(left_out.unnamed == 1 && left_out.too_long == 1, "%lld without, %lld too long",
              (long long)left_out.unnamed, (long long)left_out.too_long);
}

Test(names, each_failure_has_its_sentence)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"# names\n1F600 Gesicht\n", ", line 2: no tab between code points and name"},
        {"1F60x\tGesicht\n", ", line 1: \"1F60x\" is no list of code points"},
        {"110000\tGesicht\n", "\"110000\" is no list of code points"},
        {"0\tGesicht\n", "\"0\" is no list of code points"},
        {"\tGesicht\n", ", line 1: no code points before the tab"},
        {"FE0F\tGesicht\n", "no code points before the tab"},
        {"1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\tx\n", "more than 16 code points"},
        {"1F600\t\n", ", line 1: no name after the tab"},
        {"1F600\ta\xff\n", "not printable UTF-8 at its byte 1"},
        {"1F600\ta\tb\n", "not printable UTF-8 at its byte 1"},
        {"2764\ta\n1F600\tb\n2764 FE0F\tc\n", ", line 3: line 1 has named this emoji already"},
        {"", "none of the 0 names"},
        {"41\tA\n", "none of the 1 names in /tmp/captioner-names-"},
        {"1F98A\t123456789012345678901234567890123456789012345678901234567890123456789012345678901",
         "is for one of the 4 emoji and has at most 80 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct emoji_list list;
        struct emoji_left_out left_out = {-7, -7};
        make_small(&list);
        FAILS(rename_with(&left_out, &list, cases[i].text), MIMO_ERR_IO, cases[i].part);
        cr_assert(list.count == SMALL && left_out.unnamed == -7, "case %zu: output touched", i);
        cr_assert_str_eq(list.emoji[3].name, "fox", "case %zu", i);
    }
    struct emoji_list list;
    struct emoji_left_out left_out;
    make_small(&list);
    FAILS(emoji_list_rename(&left_out, &list, "/nowhere/names"), MIMO_ERR_NOT_FOUND,
          "/nowhere/names");
    cr_assert_eq(emoji_list_rename(&left_out, &list, "/tmp"), MIMO_ERR_IO, "a folder");
}

/* Nobody ever writes into it. */
Test(names, a_pipe_is_refused_at_once, .timeout = 10)
{
    struct emoji_list list;
    struct emoji_left_out left_out;
    char path[] = "/tmp/captioner-names-XXXXXX", wanted[80];
    make_small(&list);
    close(mkstemp(path));
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(emoji_list_rename(&left_out, &list, path), MIMO_ERR_IO);
    snprintf(wanted, sizeof wanted, "the names %s is no ordinary file", path);
    cr_assert_str_eq(mimo_last_error(), wanted);
    cr_assert_eq(emoji_list_read(&list, path), MIMO_ERR_IO);
    snprintf(wanted, sizeof wanted, "the emoji list %s is no ordinary file", path);
    cr_assert_str_eq(mimo_last_error(), wanted);
    unlink(path);
}

/* The installed list with the installed German names, as scripts/emoji_names.py prints them. */
Test(names, german)
{
    struct emoji_list list = {0};
    struct emoji_left_out left_out;
    char path[] = "/tmp/captioner-names-XXXXXX", command[200];
    if (access("/usr/share/unicode/cldr/common/annotations/de.xml", R_OK) != 0)
        cr_skip_test("no unicode-cldr-core");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    snprintf(command, sizeof command, "python3 " SCRIPTS "/emoji_names.py de >%s", path);
    cr_assert_eq(system(command), 0);
    SUCCEEDS(emoji_list_read(&list, EMOJI_LIST_DEFAULT_PATH));
    int64_t all = list.count, umlauts = 0, held_out = 0;
    SUCCEEDS(emoji_list_rename(&left_out, &list, path));
    unlink(path);
    cr_assert_eq(list.count + left_out.unnamed + left_out.too_long, all);
    cr_assert_gt(list.count, all - all / 20, "%lld of %lld", (long long)list.count, (long long)all);
    for (int64_t i = 0; i < list.count; i++) {
        umlauts += strstr(list.emoji[i].name, "\xc3") != NULL;
        held_out += list.emoji[i].held_out;
    }
    cr_assert_str_eq(list.emoji[0].name, "grinsendes Gesicht");
    cr_assert_gt(umlauts, 100);
    cr_assert(held_out > list.count / 30 && held_out < list.count / 12);
    emoji_list_release(&list);
}
