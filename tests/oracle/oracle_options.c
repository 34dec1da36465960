#include "oracle_options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "mutations.h"
#include "oracle_adapters.h"

enum { MOST_RANK = 64, MOST_EXPERTS = 16, MOST_CHUNKS = 4, MOST_MICRO_BATCHES = 3 };

/* In the order of executor_id. */
#define EXECUTORS_WORDS "auto|collective|routed|p2p|zero-copy|staged"

static const char *const executors[] = {
    [EXECUTOR_AUTO] = "auto", [EXECUTOR_COLLECTIVE] = "collective", [EXECUTOR_ROUTED] = "routed",
    [EXECUTOR_P2P] = "p2p",   [EXECUTOR_ZERO_COPY] = "zero-copy",   [EXECUTOR_STAGED] = "staged"};

const char *oracle_executor_name(executor_id executor)
{
    return executors[executor];
}

/* "4", or "4:qkv,head". */
static mimo_status read_adapters(void *into, const option_row *row, const char *text)
{
    oracle_spec *spec = &((oracle_options *)into)->spec;
    const char *names = strchr(text, ':');
    int length = names ? (int)(names++ - text) : (int)strlen(text);
    char digits[32];
    int64_t rank;
    (void)row;
    snprintf(digits, sizeof digits, "%.*s", length, text);
    MIMO_TRY(option_read_int(&rank, "--adapters", digits, 1, MOST_RANK));
    MIMO_CHECK(!names || (*names && strlen(names) < ORACLE_ADAPTED_BYTES), MIMO_ERR_ARGUMENT,
               "--adapters has no names, or more than %d bytes of them, behind the rank",
               ORACLE_ADAPTED_BYTES - 1);
    spec->adapters = (int)rank;
    spec->adapted = names;
    return MIMO_OK;
}

static mimo_status read_experts(void *into, const option_row *row, const char *text)
{
    const oracle_spec *spec = &((oracle_options *)into)->spec;
    MIMO_TRY(option_read(into, row, text));
    MIMO_CHECK(spec->top_k <= spec->experts, MIMO_ERR_ARGUMENT,
               "--experts \"%s\": a token can't have %d of %d experts", text, (int)spec->top_k,
               (int)spec->experts);
    return MIMO_OK;
}

static mimo_status read_mutation(void *into, const option_row *row, const char *text)
{
    MIMO_TRY(option_read(into, row, text));
    MIMO_CHECK(mutation_exists(text), MIMO_ERR_ARGUMENT,
               "--mutate: no such mutation; see --list-mutations");
    return MIMO_OK;
}

#define OPTION_INTO oracle_options

static const option_row rows[] = {
    OPTION_TEXT("encoder", "SPEC", spec.encoder, "The encoder's grid, such as tp=2,dp=4"),
    OPTION_TEXT("llm", "SPEC", spec.llm, "The LLM's grid, such as tp=2,cp=2,dp=2"),
    OPTION_FLAG("sp", spec.sp, "Sequence parallelism over the LLM's tp"),
    OPTION_OWN("adapters", "RANK[:NAME,...]", read_adapters,
               "On every linear layer, or on those whose names end like this, and the rest frozen "
               "in the second case (default: one adapter, on the head, and nothing is frozen)"),
    OPTION_PAIR("experts", "E,K", spec.experts, spec.top_k, MOST_EXPERTS,
                "In place of the MLP of every second block of the LLM a mixture of E experts, of "
                "which each token has K",
                .first_part = "E", .second_part = "K", .example = "8,2", .read = read_experts),
    OPTION_TEXT("expert-grid", "SPEC", spec.expert_grid,
                "Which ranks share them, such as etp=2,ep=4 (default: etp=1,ep=1)"),
    OPTION_CHOICE(
        "schedule", schedule.word, OPTION_SCHEDULE_WORDS,
        "Of the stages of --llm ...,pp=2 (default 1f1b). interleaved has V chunks a stage "
        "(default 2), in the second case alone; three-phases is 1f1b with all of the "
        "encoder's work before and behind",
        .high = MOST_CHUNKS, .read = option_read_schedule),
    OPTION_FLAG("overlap", spec.schedule.overlap,
                "With --experts: a forward beside the backward of another micro-batch, by nodes"),
    OPTION_INT("encoder-group", "G", spec.schedule.group, 1, INT_MAX,
               "Micro-batches that are encoded together (default: 1)"),
    OPTION_INT("encoder-alive", "L", spec.schedule.alive, 1, INT_MAX,
               "Groups of the encoder at once (default: as few as make no stage wait for each)"),
    OPTION_CHOICE("executor", spec.executor, EXECUTORS_WORDS,
                  "Of the bridge (default auto), zero-copy with the tiles in a buffer, also those "
                  "of experts"),
    OPTION_CHOICE("device", memory, "cpu|cuda",
                  "Where tensors live (default cpu). cuda is a GPU a rank, over NCCL; exit status "
                  "77 where there is none"),
    OPTION_SEED("seed", "N", seed, "Of parameters and data (default: 1)"),
    OPTION_TEXT("mutate", "NAME", mutation, "Switch on a bug of the library's test copy",
                .read = read_mutation),
    OPTION_FLAG("self-test", self_test,
                "No comparison: mimo_bridge_self_test on the topology's bridge"),
    OPTION_INT("train", "N", train, 1, INT_MAX, "No comparison: the loss after N steps"),
    OPTION_PAIR("same-bits", "V,C", spec.shards, spec.pairs, INT_MAX,
                "In the fixed order of additions; with --train, a line for each step that is the "
                "same on every topology",
                .first_part = "V", .second_part = "C", .example = "8,1"),
    OPTION_INT("micro-batches", "M", micro_batches, 1, MOST_MICRO_BATCHES,
               "Of --same-bits with --train: 1 (default), 2 or 3"),
    OPTION_FLAG("fast", fast, "The run of --same-bits in the fast order, whose bits differ"),
    OPTION_FLAG("sgd", sgd, "The run of --same-bits by SGD, not by AdamW"),
    OPTION_TEXT("runs", "FILE", runs,
                "Several runs one after the other, the options of each on a line of the file; a "
                "line behind each says how it ended"),
    OPTION_FLAG("json", json, "JSON in place of the table"),
    OPTION_TEXT("log", "FILE", log, "Every tensor of every phase (default: mimo-oracle.log)"),
    OPTION_FLAG("list-mutations", list_mutations,
                "Their names, phases and topologies; without mpirun"),
    OPTION_FLAG("list-order-mutations", list_order_mutations,
                "Those of the fixed order, which --same-bits sees"),
};

static mimo_status check_together(void *into)
{
    oracle_options *o = into;
    schedule_choice *schedule = &o->spec.schedule;
    bool is_run = !o->list_mutations && !o->list_order_mutations && !o->runs;
    MIMO_CHECK(!is_run || (o->spec.encoder && o->spec.llm), MIMO_ERR_ARGUMENT,
               "--encoder and --llm are needed; see --help");
    schedule->kind = option_schedule_kind(&o->schedule);
    schedule->chunks = o->schedule.chunks;
    if (o->schedule.word != OPTION_THREE_PHASES)
        return MIMO_OK;
    MIMO_CHECK(schedule->group == 0 && schedule->alive == 0, MIMO_ERR_ARGUMENT,
               "--schedule three-phases encodes all micro-batches as one group: --encoder-group "
               "and --encoder-alive do not go with it");
    schedule->group = INT_MAX; /* all micro-batches are one group */
    return MIMO_OK;
}

const option_table *oracle_options_table(void)
{
    static const option_table table = {
        .program = "mimo-oracle",
        .about = "Train a small encoder and LLM on the two grids and compare everything with a "
                 "one-process f64 reference. Exit status 0 only where every phase passes."
                 "\vExample: mpirun -n 8 mimo-oracle --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2",
        OPTION_ROWS(rows),
        .check = check_together};
    return &table;
}

const char *oracle_options_parse(oracle_options *out, int argc, char **argv)
{
    *out = (oracle_options){.seed = 1, .micro_batches = 1, .log = "mimo-oracle.log"};
    out->spec.expert_grid = "etp=1,ep=1";
    mimo_status status = option_parse(&out->asked, out, oracle_options_table(), argc, argv);
    return status == MIMO_OK ? NULL : mimo_last_error();
}
