/* Which ranks keep copies for each other, and on which grids ranks that are left go on. */
#include <string.h>

#include <criterion/criterion.h>

#include "captioner/survival/survive_grids.h"
#include "captioner/training/copy_groups.h"
#include "expect_failure.h"

enum { RANKS = 9 };

/* Each letter of `hosts` is the host of a rank. */
static void expect_groups(const char *hosts, const char *groups)
{
    uint64_t number[RANKS] = {0};
    int found[RANKS], order[RANKS], ranks = (int)strlen(hosts);
    for (int i = 0; i < ranks; i++)
        number[i] = (uint64_t)hosts[i];
    copy_groups_make(found, order, number, ranks);
    for (int i = 0; i < ranks; i++)
        cr_assert_eq(found[i], groups[i] - '0', "hosts %s: rank %d is in group %d", hosts, i,
                     found[i]);
}

Test(copy_groups, of_two_hosts_where_there_are_two)
{
    expect_groups("a", "0");
    expect_groups("aa", "00");
    expect_groups("aaa", "000");
    expect_groups("aaaaaaaa", "01230123");
    expect_groups("aaaaaaa", "0120120");
    expect_groups("aaaabbbb", "01230123");
    expect_groups("abababab", "00112233");
    expect_groups("aabbccdd", "01230123");
    expect_groups("abcabc", "021102"); /* a a b b c c */
    expect_groups("aaaab", "01010");
}

/* No group has ranks of one host alone, where no host has more than half of them. */
Test(copy_groups, never_of_one_host)
{
    uint64_t hosts[RANKS] = {0};
    int groups[RANKS], order[RANKS], tried = 0;
    for (int code = 0; code < 6561; code++) { /* 3 hosts, 8 ranks */
        int count[3] = {0}, rest = code;
        for (int i = 0; i < 8; i++, rest /= 3)
            count[hosts[i] = (uint64_t)(rest % 3)]++;
        if (count[0] > 4 || count[1] > 4 || count[2] > 4)
            continue;
        copy_groups_make(groups, order, hosts, 8);
        tried++;
        for (int i = 0; i < 8; i++)
            for (int k = 0; k < i; k++)
                cr_assert(groups[i] != groups[k] || hosts[i] != hosts[k],
                          "code %d: ranks %d and %d of one host share a group", code, i, k);
    }
    cr_assert_geq(tried, 3000);
}

static struct options options_of(const char *survive)
{
    static char words[256];
    char *argv[32] = {(char *)"captioner"};
    int argc = 1;
    struct options options;
    strcpy(words, "--encoder=tp=2,dp=4 --llm=tp=2,cp=2,dp=2 --save-memory=3 --same-bits=4,2 "
                  "--micro-batches=4 --experts=8,2 --expert-grid=ep=4 --survive");
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    SUCCEEDS(options_parse(&options, argc, argv));
    options.survive = survive;
    return options;
}

Test(survive_grids, without_a_text_all_are_replicas)
{
    const struct options options = options_of(""), *chosen;
    survive_grids grids = {0};
    SUCCEEDS(survive_grids_read(&grids, &options, 8));
    for (int ranks = 1; ranks < 8; ranks++) {
        char encoder[32], llm[32];
        snprintf(encoder, sizeof encoder, "tp=1,dp=%d", ranks);
        snprintf(llm, sizeof llm, "tp=1,cp=1,dp=%d", ranks);
        SUCCEEDS(survive_grids_choose(&chosen, &grids, ranks));
        cr_assert_str_eq(chosen->encoder, encoder);
        cr_assert_str_eq(chosen->llm, llm);
        cr_assert_str_eq(options_expert_grid(chosen), "etp=1,ep=1");
        cr_assert_eq(chosen->micro_batches, 4);
    }
    survive_grids_release(&grids);
}

Test(survive_grids, of_a_text)
{
    const struct options options =
        options_of(" 7: ;6: --encoder tp=1,dp=6 --llm=tp=1,cp=1,dp=3,pp=2 --schedule=zero-bubble "
                   "--micro-batches 2 --expert-grid=ep=1;\n 4:--encoder=tp=4,dp=1;");
    const struct options *chosen;
    survive_grids grids = {0};
    SUCCEEDS(survive_grids_read(&grids, &options, 8));
    SUCCEEDS(survive_grids_choose(&chosen, &grids, 7));
    cr_assert_str_eq(chosen->encoder, "tp=1,dp=7");
    SUCCEEDS(survive_grids_choose(&chosen, &grids, 6));
    cr_assert_str_eq(chosen->llm, "tp=1,cp=1,dp=3,pp=2");
    cr_assert(chosen->schedule.word == OPTION_ZERO_BUBBLE && chosen->micro_batches == 2);
    SUCCEEDS(survive_grids_choose(&chosen, &grids, 4));
    cr_assert_str_eq(chosen->encoder, "tp=4,dp=1");
    cr_assert_str_eq(chosen->llm, "tp=1,cp=1,dp=4");
    FAILS(survive_grids_choose(&chosen, &grids, 5), MIMO_ERR_NOT_FOUND,
          "5 ranks are left, and --survive has grids for 7, 6, 4");
    survive_grids_release(&grids);
}

static const struct {
    const char *text;
    mimo_status status;
    const char *part;
} refused[] = {
    {"7", MIMO_ERR_ARGUMENT, "\"7\" does not begin with the number of ranks that are left"},
    {"x:", MIMO_ERR_ARGUMENT, "--survive needs a whole number, not \"x\""},
    {"0:", MIMO_ERR_ARGUMENT, "--survive must be from 1 to"},
    {"8:", MIMO_ERR_ARGUMENT, "an entry for 8 ranks: of the 8 of this run 1 to 7 may be left"},
    {"7:;6:;7:", MIMO_ERR_ARGUMENT, "--survive has two entries for 7 ranks"},
    {" ; ", MIMO_ERR_ARGUMENT, "has no grids"},
    {"7: dp=7", MIMO_ERR_ARGUMENT, "--survive, 7 ranks: \"dp=7\" is no option"},
    {"7: --llm=dp=7 dp=7", MIMO_ERR_ARGUMENT, "--survive, 7 ranks: \"dp=7\" is no option"},
    {"7: --lr=0.1", MIMO_ERR_ARGUMENT, "--survive, 7 ranks: \"--lr=0.1\" is none of --encoder"},
    {"7: --enc=dp=7", MIMO_ERR_ARGUMENT, "\"--enc=dp=7\" is none of"},
    {"7: --micro-batches=99", MIMO_ERR_ARGUMENT, "--survive, 7 ranks: --micro-batches 99 are more"},
    {"7: --encoder=tp=1,dp=6", MIMO_ERR_GRID,
     "--survive, 7 ranks: --encoder tp=1,dp=6 is a grid of 6"},
    {"6: --encoder=tp=2,dp=3 --llm=tp=1,cp=1,pp=6", MIMO_ERR_GRID, "--survive, 6 ranks: "},
    {"3: --llm=tp=3,cp=1,dp=1", MIMO_ERR_SHAPE, "--survive, 3 ranks: 8 heads do not divide"},
    {"4: --llm=tp=1,cp=4,dp=1", MIMO_ERR_UNSUPPORTED, "--survive, 4 ranks: "},
    {"6: --expert-grid=ep=3", MIMO_ERR_SHAPE, "--survive, 6 ranks: --experts 8,2: they do not"},
    {"4: --expert-grid=etp=2", MIMO_ERR_UNSUPPORTED, "same bits need etp=1, not etp=2"},
    {"7: --schedule=interleaved:2", MIMO_ERR_ARGUMENT, "cuts stages, and --llm has none"},
};

Test(survive_grids, refusals)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct options options = options_of(refused[i].text);
        survive_grids grids = {0};
        FAILS(survive_grids_read(&grids, &options, 8), refused[i].status, refused[i].part);
        survive_grids_release(&grids);
    }
    struct options options = options_of("");
    survive_grids grids = {0};
    FAILS(survive_grids_read(&grids, &options, 2), MIMO_ERR_ARGUMENT, "needs 3 ranks, not 2");
    survive_grids_release(&grids);
    options = options_of("4: --encoder=tp=4,dp=1");
    SUCCEEDS(survive_grids_read(&grids, &options, 8));
    survive_grids_release(&grids);
    options.shards = 2; /* --same-bits=2,2 */
    FAILS(survive_grids_read(&grids, &options, 8), MIMO_ERR_UNSUPPORTED,
          "--survive, 4 ranks: ", "the encoder's tp");
    survive_grids_release(&grids);
}
