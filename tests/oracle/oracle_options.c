#include "oracle_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutations.h"
#include "oracle_adapters.h"

enum {
    KEY_ENCODER = 1,
    KEY_LLM,
    KEY_SP,
    KEY_ADAPTERS,
    KEY_EXPERTS,
    KEY_EXPERT_GRID,
    KEY_SCHEDULE,
    KEY_GROUP,
    KEY_ALIVE,
    KEY_EXECUTOR,
    KEY_DEVICE,
    KEY_MUTATE,
    KEY_LIST,
    KEY_SEED,
    KEY_TRAIN,
    KEY_SAME_BITS,
    KEY_MICRO_BATCHES,
    KEY_FAST,
    KEY_SGD,
    KEY_LIST_ORDER,
    KEY_SELF_TEST,
    KEY_RUNS,
    KEY_LOG,
    KEY_JSON,
    KEY_HELP
};

enum { MOST_RANK = 64, MOST_EXPERTS = 16, MOST_CHUNKS = 4 };

static const struct option table[] = {
    {"encoder", required_argument, NULL, KEY_ENCODER},
    {"llm", required_argument, NULL, KEY_LLM},
    {"sp", no_argument, NULL, KEY_SP},
    {"adapters", required_argument, NULL, KEY_ADAPTERS},
    {"experts", required_argument, NULL, KEY_EXPERTS},
    {"expert-grid", required_argument, NULL, KEY_EXPERT_GRID},
    {"schedule", required_argument, NULL, KEY_SCHEDULE},
    {"encoder-group", required_argument, NULL, KEY_GROUP},
    {"encoder-alive", required_argument, NULL, KEY_ALIVE},
    {"executor", required_argument, NULL, KEY_EXECUTOR},
    {"device", required_argument, NULL, KEY_DEVICE},
    {"mutate", required_argument, NULL, KEY_MUTATE},
    {"list-mutations", no_argument, NULL, KEY_LIST},
    {"list-order-mutations", no_argument, NULL, KEY_LIST_ORDER},
    {"seed", required_argument, NULL, KEY_SEED},
    {"self-test", no_argument, NULL, KEY_SELF_TEST},
    {"train", required_argument, NULL, KEY_TRAIN},
    {"same-bits", required_argument, NULL, KEY_SAME_BITS},
    {"micro-batches", required_argument, NULL, KEY_MICRO_BATCHES},
    {"fast", no_argument, NULL, KEY_FAST},
    {"sgd", no_argument, NULL, KEY_SGD},
    {"runs", required_argument, NULL, KEY_RUNS},
    {"log", required_argument, NULL, KEY_LOG},
    {"json", no_argument, NULL, KEY_JSON},
    {"help", no_argument, NULL, KEY_HELP},
    {0},
};

void oracle_options_help(FILE *stream)
{
    fputs(
        "mpirun -n N mimo-oracle --encoder SPEC --llm SPEC [option...]\n"
        "\n"
        "Trains a small encoder and LLM on the two grids and compares everything with a\n"
        "one-process f64 reference. Exit status 0 only where every phase passes.\n"
        "\n"
        "  --encoder SPEC    the encoder's grid, such as tp=2,dp=4\n"
        "  --llm SPEC        the LLM's grid, such as tp=2,cp=2,dp=2\n"
        "  --sp              sequence parallelism over the LLM's tp\n"
        "  --adapters RANK[:NAME,...]  on every linear layer, or on those whose names end like\n"
        "                    this, and the rest frozen in the second case (default: one adapter,\n"
        "                    on the head, and nothing is frozen)\n"
        "  --experts E,K     in place of the MLP of every second block of the LLM a mixture of E\n"
        "                    experts, of which each token has K\n"
        "  --expert-grid SPEC  which ranks share them, such as etp=2,ep=4 (default: etp=1,ep=1)\n"
        "  --schedule NAME   of the stages of --llm ...,pp=2: 1f1b (default), zero-bubble,\n"
        "                    interleaved:V with V chunks a stage, in the second case alone, or\n"
        "                    three-phases: 1f1b with all of the encoder's work before and behind\n"
        "  --encoder-group G  micro-batches that are encoded together (default: 1)\n"
        "  --encoder-alive L  groups of the encoder at once (default: as few as make no stage\n"
        "                    wait for each of them)\n"
        "  --executor NAME   of the bridge: auto (default), collective, routed, p2p, staged, or\n"
        "                    zero-copy with the tiles in a buffer, also those of experts\n"
        "  --device NAME     cpu (default), or cuda: a GPU a rank, over NCCL; exit status 77\n"
        "                    where there is none\n"
        "  --seed N          of parameters and data (default: 1)\n"
        "  --mutate NAME     switch on a bug of the library's test copy\n"
        "  --self-test       no comparison: mimo_bridge_self_test on the topology's bridge\n"
        "  --train N         no comparison: the loss after N steps\n"
        "  --same-bits V,C   in the fixed order of additions; with --train, a line for each step\n"
        "                    that is the same on every topology\n"
        "  --micro-batches M of --same-bits with --train: 1 (default), 2 or 3\n"
        "  --fast            the run of --same-bits in the fast order, whose bits differ\n"
        "  --sgd             the run of --same-bits by SGD, not by AdamW\n"
        "  --runs FILE       several runs one after the other, the options of each on a line of\n"
        "                    the file; a line behind each says how it ended\n"
        "  --json            JSON in place of the table\n"
        "  --log FILE        every tensor of every phase (default: mimo-oracle.log)\n"
        "  --list-mutations  their names, phases and topologies; without mpirun\n"
        "  --list-order-mutations  those of the fixed order, which --same-bits sees\n"
        "  --help            this text\n",
        stream);
}

static const char *const executors[] = {
    [EXECUTOR_AUTO] = "auto", [EXECUTOR_COLLECTIVE] = "collective", [EXECUTOR_ROUTED] = "routed",
    [EXECUTOR_P2P] = "p2p",   [EXECUTOR_ZERO_COPY] = "zero-copy",   [EXECUTOR_STAGED] = "staged"};

const char *oracle_executor_name(executor_id executor)
{
    return executors[executor];
}

static const char *read_executor(executor_id *out, const char *name)
{
    for (size_t i = 0; i < sizeof executors / sizeof *executors; i++)
        if (strcmp(executors[i], name) == 0) {
            *out = (executor_id)i;
            return NULL;
        }
    return "--executor is none of auto, collective, routed, p2p, zero-copy and staged";
}

static const char *read_device(mimo_memory *out, const char *name)
{
    *out = strcmp(name, "cuda") == 0 ? MIMO_MEMORY_CUDA : MIMO_MEMORY_HOST;
    return *out == MIMO_MEMORY_CUDA || strcmp(name, "cpu") == 0
               ? NULL
               : "--device is none of cpu and cuda";
}

/* Digits only, as strtoull accepts and wraps a sign as well. False for any other text, and for a
 * number above `most`. */
static bool read_number(uint64_t *out, const char *text, uint64_t most)
{
    if (!*text || text[strspn(text, "0123456789")])
        return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0 && *out <= most;
}

static const char *read_seed(uint64_t *out, const char *text)
{
    return read_number(out, text, UINT64_MAX) ? NULL : "--seed is not a number from 0 to 2^64 - 1";
}

static const char *read_steps(int *out, const char *text)
{
    uint64_t steps = 0;
    bool read = read_number(&steps, text, INT_MAX);
    *out = (int)steps;
    return read && steps > 0 ? NULL : "--train is not a number of steps from 1 to 2^31 - 1";
}

static const char *read_adapters(oracle_spec *spec, const char *text)
{
    const char *names = strchr(text, ':');
    int64_t length = names ? names++ - text : (int64_t)strlen(text);
    char digits[8];
    uint64_t rank = 0;
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    if (!read_number(&rank, digits, MOST_RANK) || rank == 0)
        return "--adapters is not a rank from 1 to 64";
    if (names && (!*names || strlen(names) >= ORACLE_ADAPTED_BYTES))
        return "--adapters has no names, or more than 199 bytes of them, behind the rank";
    spec->adapters = (int)rank;
    spec->adapted = names;
    return NULL;
}

static const char *read_order(oracle_spec *spec, const char *text)
{
    int used = 0;
    int numbers = sscanf(text, "%" SCNd64 ",%" SCNd64 "%n", &spec->shards, &spec->pairs, &used);
    return numbers == 2 && !text[used] && spec->shards > 0 && spec->pairs > 0
               ? NULL
               : "--same-bits is not V,C";
}

static const char *read_experts(oracle_spec *spec, const char *text)
{
    int used = 0;
    int numbers = sscanf(text, "%" SCNd64 ",%" SCNd64 "%n", &spec->experts, &spec->top_k, &used);
    bool read = numbers == 2 && !text[used];
    return read && spec->top_k > 0 && spec->top_k <= spec->experts && spec->experts <= MOST_EXPERTS
               ? NULL
               : "--experts is not E,K with K from 1 to E, and E at most 16";
}

static const char *read_schedule(oracle_options *options, const char *name)
{
    static const char interleaved[] = "interleaved:";
    schedule_choice *out = &options->spec.schedule;
    size_t length = strlen(interleaved);
    uint64_t chunks = 0;
    out->kind = MIMO_SCHEDULE_1F1B;
    out->chunks = 1;
    options->three_phases = strcmp(name, "three-phases") == 0;
    if (options->three_phases || strcmp(name, "1f1b") == 0)
        return NULL;
    out->kind = MIMO_SCHEDULE_ZERO_BUBBLE;
    if (strcmp(name, "zero-bubble") == 0)
        return NULL;
    bool read =
        strncmp(name, interleaved, length) == 0 && read_number(&chunks, name + length, MOST_CHUNKS);
    out->kind = MIMO_SCHEDULE_INTERLEAVED;
    out->chunks = (int64_t)chunks;
    return read && chunks > 1 ? NULL
                              : "--schedule is none of 1f1b, zero-bubble, three-phases and "
                                "interleaved:V with V from 2 to 4";
}

static const char *read_positive(int64_t *out, const char *text, const char *wrong)
{
    uint64_t number = 0;
    bool read = read_number(&number, text, INT_MAX);
    *out = (int64_t)number;
    return read && number > 0 ? NULL : wrong;
}

static const char *read_parts(int64_t *out, const char *text)
{
    uint64_t parts = 0;
    bool read = read_number(&parts, text, 3);
    *out = (int64_t)parts;
    return read && parts > 0 ? NULL : "--micro-batches is not 1, 2 or 3";
}

static const char *read_option(oracle_options *out, int key)
{
    switch (key) {
    case KEY_ENCODER:
        out->spec.encoder = optarg;
        return NULL;
    case KEY_LLM:
        out->spec.llm = optarg;
        return NULL;
    case KEY_SP:
        out->spec.sp = true;
        return NULL;
    case KEY_ADAPTERS:
        return read_adapters(&out->spec, optarg);
    case KEY_EXPERTS:
        return read_experts(&out->spec, optarg);
    case KEY_EXPERT_GRID:
        out->spec.expert_grid = optarg;
        return NULL;
    case KEY_SCHEDULE:
        return read_schedule(out, optarg);
    case KEY_GROUP:
        return read_positive(&out->spec.schedule.group, optarg,
                             "--encoder-group is not a number of micro-batches from 1");
    case KEY_ALIVE:
        return read_positive(&out->spec.schedule.alive, optarg,
                             "--encoder-alive is not a number of groups from 1");
    case KEY_EXECUTOR:
        return read_executor(&out->spec.executor, optarg);
    case KEY_DEVICE:
        return read_device(&out->memory, optarg);
    case KEY_MUTATE:
        out->mutation = optarg;
        return mutation_exists(optarg) ? NULL : "--mutate: no such mutation; see --list-mutations";
    case KEY_LIST:
        out->list_mutations = true;
        return NULL;
    case KEY_SEED:
        return read_seed(&out->seed, optarg);
    case KEY_SAME_BITS:
        return read_order(&out->spec, optarg);
    case KEY_FAST:
        out->fast = true;
        return NULL;
    case KEY_SGD:
        out->sgd = true;
        return NULL;
    case KEY_LIST_ORDER:
        out->list_order_mutations = true;
        return NULL;
    case KEY_MICRO_BATCHES:
        return read_parts(&out->micro_batches, optarg);
    case KEY_SELF_TEST:
        out->self_test = true;
        return NULL;
    case KEY_TRAIN:
        return read_steps(&out->train, optarg);
    case KEY_RUNS:
        out->runs = optarg;
        return NULL;
    case KEY_LOG:
        out->log = optarg;
        return NULL;
    case KEY_JSON:
        out->json = true;
        return NULL;
    case KEY_HELP:
        out->help = true;
        return NULL;
    default:
        return "unknown option or missing value; see --help";
    }
}

/* All micro-batches are one group. */
static const char *choose_three_phases(oracle_options *out)
{
    schedule_choice *schedule = &out->spec.schedule;
    if (out->three_phases && (schedule->group > 0 || schedule->alive > 0))
        return "--schedule three-phases encodes all micro-batches as one group: --encoder-group "
               "and --encoder-alive do not go with it";
    if (out->three_phases)
        schedule->group = INT_MAX;
    return NULL;
}

const char *oracle_options_parse(oracle_options *out, int argc, char **argv)
{
    *out = (oracle_options){.seed = 1, .micro_batches = 1, .log = "mimo-oracle.log"};
    out->spec.expert_grid = "etp=1,ep=1";
    opterr = 0;
    optind = 0; /* start again, as other arguments may have been read before */
    for (int key; (key = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        const char *wrong = read_option(out, key);
        if (wrong)
            return wrong;
    }
    if (optind < argc)
        return "arguments are options only; see --help";
    bool is_run = !out->help && !out->list_mutations && !out->list_order_mutations && !out->runs;
    if (is_run && (!out->spec.encoder || !out->spec.llm))
        return "--encoder and --llm are needed; see --help";
    return choose_three_phases(out);
}
