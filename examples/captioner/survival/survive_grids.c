#include "captioner/survival/survive_grids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captioner/training/run_model.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { MOST_WORDS = 32, LIST = 512 };
static const char blanks[] = " \t\n";

/* Whether an entry may have the option: its name is spelled in full. */
static bool may_differ(const char *word)
{
    static const char *const names[] = {"encoder",  "llm",           "sp",
                                        "overlap",  "expert-grid",   "micro-batches",
                                        "schedule", "encoder-group", "encoder-alive",
                                        "cost",     "recompute"};
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (length == 2 + strlen(names[i]) && strncmp(word, "--", 2) == 0 &&
            strncmp(word + 2, names[i], length - 2) == 0)
            return true;
    return false;
}

static mimo_status check_word(const char *word, const char *before)
{
    bool value = before && strncmp(before, "--", 2) == 0 && !strchr(before, '=');
    CHECK(strncmp(word, "--", 2) != 0 || may_differ(word), MIMO_ERR_ARGUMENT,
          "\"%s\" is none of --encoder, --llm, --sp, --expert-grid, --micro-batches, --schedule, "
          "--overlap, --encoder-group, --encoder-alive, --cost and --recompute",
          word);
    CHECK(strncmp(word, "--", 2) == 0 || value, MIMO_ERR_ARGUMENT, "\"%s\" is no option", word);
    return MIMO_OK;
}

/* Every rank has all of the model, and the ranks share the samples. */
static void set_usual(survive_entry *entry, const struct options *options, int ranks)
{
    struct options *usual = &entry->options;
    snprintf(entry->encoder, sizeof entry->encoder, "tp=1,dp=%d", ranks);
    snprintf(entry->llm, sizeof entry->llm, "tp=1,cp=1,dp=%d", ranks);
    *usual = *options;
    usual->encoder = entry->encoder;
    usual->llm = entry->llm;
    usual->expert_grid = NULL;
    usual->sp = usual->overlap = false;
    usual->schedule = (option_schedule){OPTION_1F1B, 1};
    usual->encoder_group = 0;
    usual->encoder_alive = -1;
    entry->ranks = ranks;
}

/* The words of an entry over the usual options. */
static mimo_status read_words(struct options *options, char *words)
{
    char *argv[MOST_WORDS + 2] = {(char *)"captioner"}, *rest;
    int count = 1;
    for (char *word = strtok_r(words, blanks, &rest); word; word = strtok_r(NULL, blanks, &rest)) {
        CHECK(count <= MOST_WORDS, MIMO_ERR_ARGUMENT, "more than %d words", MOST_WORDS);
        TRY(check_word(word, count > 1 ? argv[count - 1] : NULL));
        argv[count++] = word;
    }
    return options_parse_over(options, count, argv);
}

static mimo_status check_number(const survive_grids *grids, int64_t number, int ranks)
{
    for (int i = 0; i < grids->count; i++)
        CHECK(grids->entries[i].ranks != number, MIMO_ERR_ARGUMENT,
              "--survive has two entries for %" PRId64 " ranks", number);
    CHECK(number >= 1 && number < ranks, MIMO_ERR_ARGUMENT,
          "--survive has an entry for %" PRId64 " ranks: of the %d of this run 1 to %d may be left",
          number, ranks, ranks - 1);
    return MIMO_OK;
}

/* "7: words" */
static mimo_status read_entry(survive_grids *out, char *text, const struct options *options,
                              int ranks)
{
    char *colon = strchr(text, ':'), *start = text + strspn(text, blanks);
    int64_t number;
    CHECK(colon, MIMO_ERR_ARGUMENT,
          "--survive: \"%s\" does not begin with the number of ranks that are left, as in \"7: "
          "--encoder=tp=1,dp=7 --llm=tp=1,cp=1,dp=7\"",
          start);
    *colon = '\0';
    TRY(option_read_int(&number, "--survive", start, 1, INT32_MAX));
    TRY(check_number(out, number, ranks));
    survive_entry *entry = &out->entries[out->count];
    set_usual(entry, options, (int)number);
    mimo_status status = read_words(&entry->options, colon + 1);
    if (status == MIMO_OK)
        status = run_model_check(&entry->options, number);
    out->count++;
    return status == MIMO_OK ? MIMO_OK
                             : fail_prefix(status, "--survive, %" PRId64 " ranks: ", number);
}

static mimo_status read_text(survive_grids *out, const struct options *options, int ranks)
{
    int64_t most = 1;
    char *rest;
    for (const char *at = options->survive; *at; at++)
        most += *at == ';';
    TRY(memory_copy_string(&out->text, options->survive));
    TRY(memory_reserve(&out->entries, most, sizeof *out->entries));
    for (char *text = strtok_r(out->text, ";", &rest); text; text = strtok_r(NULL, ";", &rest))
        if (text[strspn(text, blanks)] != '\0')
            TRY(read_entry(out, text, options, ranks));
    CHECK(out->count > 0, MIMO_ERR_ARGUMENT, "--survive=\"%s\" has no grids", options->survive);
    return MIMO_OK;
}

/* A number of ranks that holds the model is all that matters: none is cut. */
static mimo_status set_all(survive_grids *out, const struct options *options, int ranks)
{
    TRY(memory_reserve(&out->entries, ranks - 1, sizeof *out->entries));
    for (; out->count < ranks - 1; out->count++) {
        survive_entry *entry = &out->entries[out->count];
        set_usual(entry, options, ranks - 1 - out->count);
        TRY(run_model_check(&entry->options, entry->ranks));
    }
    return MIMO_OK;
}

mimo_status survive_grids_read(survive_grids *out, const struct options *options, int ranks)
{
    CHECK(ranks > 2, MIMO_ERR_ARGUMENT,
          "--survive needs 3 ranks, not %d: more than half of them must be left", ranks);
    return options->survive[0] ? read_text(out, options, ranks) : set_all(out, options, ranks);
}

void survive_grids_release(survive_grids *grids)
{
    memory_release(grids->entries);
    memory_release(grids->text);
    *grids = (survive_grids){0};
}

mimo_status survive_grids_choose(const struct options **out, const survive_grids *grids, int ranks)
{
    char list[LIST] = "";
    size_t used = 0;
    for (int i = 0; i < grids->count; i++) {
        const survive_entry *entry = &grids->entries[i];
        if (entry->ranks == ranks) {
            *out = &entry->options;
            return MIMO_OK;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", i > 0 ? ", " : "",
                                     entry->ranks);
    }
    return mimo_fail(MIMO_ERR_NOT_FOUND, "%d ranks are left, and --survive has grids for %s", ranks,
                     list);
}
