#include "captioner/training/options.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "train/formats/adapter_config.h"
#include "captioner/captions/augment.h"
#include "train/support/train_support.h"
#include "train/nn/ops/nn_order.h"
#include "tools/options/option_costs.h"

enum {
    PATCH = 8,
    LARGEST_IMAGE = 136, /* what the emoji font holds */
    USUAL_SHARDS = 8,    /* V and C of --same-bits without a value */
    USUAL_PAIRS = 1,
    USUAL_LLM_LAYERS = 4,
    MOST_DECAY = 100,
    MOST_IMAGES = 64,
    MOST_LAYERS = 1000,
    MOST_EXPERTS = 1024,
    MOST = 1 << 20, /* of most numbers */
};

static const struct options defaults = {
    .encoder = "tp=2,dp=4",
    .llm = "tp=2,cp=2,dp=2",
    .image_size = 32,
    .seq = 96,
    .hidden = 128,
    .heads = 8,
    .encoder_layers = 2,
    .steps = 2000,
    .global_batch = 16,
    .micro_batches = 1,
    .schedule = {OPTION_1F1B, 1},
    .encoder_alive = -1,
    .costs = MIMO_STEP_COSTS_INIT,
    .node_costs = MIMO_NODE_COSTS_INIT,
    .seed = 1,
    .lr = 2e-3,
    .decay = 0.01,
    .device = OPTIONS_CPU,
    .dtype = MIMO_F32,
    .precision = MIMO_F32,
    .log_hashes = OPTIONS_HASHES_NOT_GIVEN,
};

static const int floats[] = {MIMO_F32, MIMO_BF16};
static const int hashes[] = {OPTIONS_TENSOR_HASHES, OPTIONS_NO_HASHES};
static const int help[] = {OPTION_ASKED_HELP}, usage[] = {OPTION_ASKED_USAGE},
                 version[] = {OPTION_ASKED_VERSION};

static mimo_status read_experts(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    TRY(option_read(o, row, text));
    CHECK(o->top_k <= o->experts, MIMO_ERR_ARGUMENT,
          "--experts \"%s\": a token can't have %" PRId64 " of %" PRId64 " experts", text, o->top_k,
          o->experts);
    return MIMO_OK;
}

/* "4", or "0-4". */
static mimo_status read_images(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    const char *dash = strchr(text, '-');
    char least[32];
    TRY(option_read_int(&o->most_images, dash ? "--images (B)" : "--images", dash ? dash + 1 : text,
                        row->low, row->high));
    o->least_images = o->most_images;
    if (!dash)
        return MIMO_OK;
    snprintf(least, sizeof least, "%.*s", (int)(dash - text), text);
    return option_read_int(&o->least_images, "--images (A)", least, 0, o->most_images);
}

static bool is_power_of_two(int64_t number)
{
    return (number & (number - 1)) == 0;
}

static mimo_status read_same_bits(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    o->shards = USUAL_SHARDS;
    o->pairs = USUAL_PAIRS;
    if (!text)
        return MIMO_OK;
    TRY(option_read(o, row, text));
    CHECK(is_power_of_two(o->shards) && is_power_of_two(o->pairs), MIMO_ERR_ARGUMENT,
          "--same-bits needs powers of two, not \"%s\"", text);
    return MIMO_OK;
}

static mimo_status read_survive(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    if (text)
        return option_read(o, row, text);
    o->survive = "";
    return MIMO_OK;
}

static mimo_status read_cost(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    o->costs = defaults.costs;
    TRY(option_read(o, row, text));
    return option_read_step_costs(&o->costs, text);
}

static mimo_status read_node_cost(void *into, const option_row *row, const char *text)
{
    struct options *o = into;
    o->node_costs = defaults.node_costs;
    TRY(option_read(o, row, text));
    return option_read_node_costs(&o->node_costs, text);
}

#define OPTION_INTO struct options

static const option_row rows[] = {
    /* Compared alone: each table has these. */
    OPTION_CHOICE("help", asked, "given", NULL, .values = help),
    OPTION_CHOICE("usage", asked, "given", NULL, .values = usage),
    OPTION_CHOICE("version", asked, "given", NULL, .values = version),
    OPTION_HEADING("Grids, on the same ranks:"),
    OPTION_TEXT("encoder", "SPEC", encoder, "Grid of the encoder (default tp=2,dp=4)"),
    OPTION_TEXT(
        "llm", "SPEC", llm,
        "Grid of the language model (default tp=2,cp=2,dp=2); with pp its layers are a pipeline"),
    OPTION_FLAG(
        "sp", sp,
        "Sequence parallelism: outside of the products each of the LLM's tp ranks has its own "
        "rows"),
    OPTION_HEADING("Model:"),
    OPTION_INT("image-size", "N", image_size, PATCH, LARGEST_IMAGE,
               "Pixels a side, a multiple of the patch of 8, at most 136 (default 32)"),
    OPTION_INT("seq", "S", seq, 1, MOST, "Tokens of a sequence: image, then name (default 96)"),
    OPTION_INT("hidden", "N", hidden, 1, MOST, "Width of both models (default 128)"),
    OPTION_INT("heads", "N", heads, 1, MOST, "Attention heads, a divisor of the width (default 8)"),
    OPTION_PAIR("layers", "E,L", encoder_layers, llm_layers, MOST_LAYERS,
                "Layers of the encoder and of the LLM (default 2,4)", .first_part = "encoder",
                .second_part = "LLM", .example = "2,4", .apart = true),
    OPTION_INT("encoder-layers", "N", encoder_layers, 1, MOST_LAYERS,
               "Layers of the encoder alone"),
    OPTION_INT("llm-layers", "N", llm_layers, 1, MOST_LAYERS, "Layers of the LLM alone"),
    OPTION_TEXT(
        "llm-pattern", "TEXT", llm_pattern,
        "The LLM's layers in their order: * is attention, - an MLP, [*-] a block of both, as "
        "--llm-layers has them. | cuts the list into the stages of a pipeline, as many layers as "
        "there are between: \"[*-]|[*-][*-]\". With interleaved:V there are V segments a stage"),
    OPTION_PAIR(
        "experts", "E,K", experts, top_k, MOST_EXPERTS,
        "In place of the MLP of the LLM's blocks 1, 3, ... a mixture of E experts, of which each "
        "token has K: together they are as wide as the MLP",
        .first_part = "E", .second_part = "K", .example = "8,2", .read = read_experts),
    OPTION_INT("capacity", "ROWS", capacity, 0, INT32_MAX,
               "The most rows that a rank's experts may get in one mixture and micro-batch. This "
               "sizes their memory; more rows are an error (default 0: any choice of tokens fits)"),
    OPTION_TEXT(
        "expert-grid", "SPEC", expert_grid,
        "Which ranks of each of the LLM's stages share its experts: with ep=2 each has half of "
        "them, with etp=2 half of each (default etp=1,ep=1); what is left holds copies"),
    OPTION_HEADING("Training:"),
    OPTION_INT("steps", "N", steps, 0, OPTIONS_MOST_STEPS,
               "The step at which training ends, resumed or not; 0 only evaluates (default 2000)"),
    OPTION_INT(
        "global-batch", "B", global_batch, 1, MOST,
        "Samples of a step, over all ranks: any number, masked samples fill up what dp does not "
        "divide (default 16)"),
    OPTION_INT(
        "micro-batches", "M", micro_batches, 1, MOST,
        "Cut the batch into at most M parts, one after another: B/M samples each, rounded up, and "
        "the last what is left (default 1)"),
    OPTION_CHOICE(
        "schedule", schedule.word, OPTION_SCHEDULE_WORDS,
        "In which order the stages of a pipeline take the micro-batches (default 1f1b). "
        "zero-bubble computes gradients of weights where a stage would wait; interleaved cuts the "
        "LLM into V chunks a stage (default 2), and M is a multiple of pp; three-phases is 1f1b "
        "with all of the encoder's work before and behind it. The same bits",
        .high = MOST_LAYERS, .read = option_read_schedule),
    OPTION_INT("schedule interleaved", NULL, schedule.chunks, 1, MOST_LAYERS, NULL),
    OPTION_FLAG("overlap", overlap,
                "With --experts, on GPUs without pp: a forward beside the backward of another "
                "micro-batch, and rows of the one go to experts while the other computes. For 1f1b "
                "and interleaved. The same bits"),
    OPTION_INT("encoder-pieces", "N", encoder_pieces, 2, MOST_LAYERS,
               "With --overlap: cut the encoder at layers into N pieces, which run where exchanges "
               "leave a stage idle. The same bits"),
    OPTION_INT("encoder-group", "G", encoder_group, 1, MOST,
               "Micro-batches that are encoded together, at most M (default 1)"),
    OPTION_INT(
        "encoder-alive", "L", encoder_alive, 0, MOST,
        "Groups of which a rank holds the encoder's activations at once; 0: no limit (default: as "
        "few as keep no stage waiting for each group)"),
    OPTION_TEXT("cost", "LIST", cost,
                "What steps take, for the lists of a pipeline, in whole numbers of any unit, as "
                "f=412,b=830,e=90,eb=170,head=40. A pipelined run prints its own at its end",
                .read = read_cost),
    OPTION_TEXT(
        "node-cost", "LIST", node_cost,
        "With --overlap: what nodes take, as pre=300,mlp.bwd=700,combine=250. Pieces of the "
        "encoder are put where it says that exchanges leave a stage idle. Such a run prints "
        "its own at its end. The same bits",
        .read = read_node_cost),
    OPTION_SEED("seed", "K", seed, "Start of all random numbers (default 1)"),
    OPTION_NUMBER("lr", "X", lr, 0, 1, "Learning rate at its peak (default 0.002)", .above = true),
    OPTION_NUMBER("weight-decay", "X", decay, 0, MOST_DECAY,
                  "Each step takes X times the learning rate off the matrices (default 0.01)"),
    OPTION_SET(
        "augment", "LIST", augment, AUGMENT_NAMES,
        "Change training pictures each time, the same on every topology: \"shift\", \"flip\" "
        "(where the English name stays right), \"colour\" (default none)"),
    OPTION_PAIR(
        "images", "A-B", least_images, most_images, MOST_IMAGES,
        "Give training samples A to B pictures, or A alone, that take turns with their names, and "
        "fewer where --seq holds no more; without a picture a sample is a name. Held-out pictures "
        "come one at a time (default 1)",
        .first_part = "A", .second_part = "B", .read = read_images),
    OPTION_FLAG(
        "balance", balance,
        "Let any rank encode any picture, so that those with many of them have no more to do; "
        "with --same-bits the same bits"),
    OPTION_INT(
        "evaluate-every", "N", evaluate_every, 1, OPTIONS_MOST_STEPS,
        "Measure the held-out loss every N steps as well, and end with the model of the step at "
        "which it was lowest"),
    OPTION_CHOICE("device", device, "cpu|cuda", "Where tensors live (default cpu)"),
    OPTION_CHOICE("dtype", dtype, "f32|bf16", "What crosses the bridge (default f32)",
                  .values = floats),
    OPTION_CHOICE(
        "precision", precision, "f32|bf16",
        "How layers multiply (default f32); bf16 rounds the factors of matrix products and adds "
        "in f32, weights and all else stay f32",
        .values = floats),
    OPTION_PAIR(
        "same-bits", "V,C", shards, pairs, NN_MOST_PARTS,
        "Add in an order that every topology has: the same bits for tp up to V, cp up to C, "
        "any dp and any number of micro-batches. V and C are powers of two (default 8,1); "
        "other V or C, other bits",
        .first_part = "V", .second_part = "C", .example = "8,1", .optional = true,
        .read = read_same_bits),
    OPTION_CHOICE(
        "recompute", recompute, "none|send|keep",
        "Keep less for backward: blocks save nothing, and their forward runs twice; the same bits. "
        "The rows of experts are sent again (send, also without a value), or kept",
        .optional = true, .bare = NN_RECOMPUTE_SEND_ROWS),
    OPTION_HEADING("Samples:"),
    OPTION_TEXT(
        "samples", "FILE", samples,
        "Read the samples from FILE; without it they are rendered from the installed font into a "
        "cache on first use"),
    OPTION_TEXT("prepare", "FILE", prepare, "Render the samples into FILE, then stop"),
    OPTION_TEXT("font", "FILE", font, "Colour emoji font (default: fonts-noto-color-emoji's)"),
    OPTION_TEXT("emoji-test", "FILE", emoji_test, "List of emoji (default: unicode-data's)"),
    OPTION_TEXT(
        "names", "FILE", names,
        "Other names for them: on each line code points in hexadecimal, a tab, a name. Emoji "
        "without a name there, or with one of more than 80 bytes, are left out"),
    OPTION_HEADING("Results:"),
    OPTION_TEXT("out", "DIR", out,
                "Write the loss curve and a contact sheet into DIR, as PNG; of a pipeline also its "
                "schedule, as planned and as measured, as SVG"),
    OPTION_TEXT("log", "FILE", log, "Write one JSON object per training step to FILE"),
    OPTION_CHOICE("log-hashes", log_hashes, "tensors|none",
                  "Add to each line of the log a hash of all parameters after the step and one "
                  "of all gradients, and with =tensors those of each tensor: equal bits have "
                  "equal hashes on every topology. mimo-diff compares two logs. The default with "
                  "--same-bits, where =none leaves them out",
                  .values = hashes, .optional = true, .bare = OPTIONS_HASHES),
    OPTION_TEXT(
        "save", "FILE", save,
        "Write a checkpoint (safetensors) at the end, and when SIGTERM or SIGINT ends the run, or "
        "a full disk under --log"),
    OPTION_CHOICE(
        "keys", megatron_keys, "own|megatron",
        "What checkpoints call the LLM's tensors (default own): with megatron "
        "decoder.layers.0.self_attention.linear_qkv.weight and so on, where each item of "
        "--llm-pattern is a layer. The tensors are the same, and --resume and --base read both"),
    OPTION_INT("save-every", "N", save_every, 1, OPTIONS_MOST_STEPS,
               "Write it every N steps as well; where that fails, the next one is another try"),
    OPTION_TEXT(
        "resume", "FILE", resume,
        "Start from a checkpoint, of any topology. Sizes, --seed, --global-batch, --images and "
        "samples must be those of the run that wrote it; --steps, --lr, --micro-batches, "
        "--balance, --dtype and --precision may change, for the steps to come"),
    OPTION_TEXT(
        "survive", "TEXT", survive,
        "Where ranks die, the others go back to the last save and go on without them, in the same "
        "processes. TEXT has the grids for each number of ranks that may be left: \"7: "
        "--encoder=tp=1,dp=7 --llm=tp=1,cp=1,dp=7; 6: ...\"; without it the usual blocks are "
        "replicated on all (dp). Needs mpirun --enable-recovery and MIMO_DEADLINE_MS",
        .optional = true, .read = read_survive),
    OPTION_INT("save-memory", "K", save_memory, 1, OPTIONS_MOST_STEPS,
               "With --survive: every K steps each rank keeps its part of the model in memory, and "
               "a copy of another rank's"),
    OPTION_CHOICE("progress", progress, "auto|bar|lines",
                  "How to show progress on stderr (default auto: a bar on a terminal)",
                  .apart = true),
    OPTION_HEADING("Low-rank adapters (LoRA), with the rest of the model frozen:"),
    OPTION_INT("lora-rank", "R", lora_rank, 1, ADAPTER_MOST_RANK,
               "Train adapters of rank R, 1 to 1024"),
    OPTION_NUMBER("lora-alpha", "X", lora_alpha, 0, HUGE_VAL,
                  "Their scale is X/R (default 16, or that of --adapter)", .above = true),
    OPTION_FLAG("lora-rslora", lora_rslora,
                "Their scale is X/sqrt(R), rank-stabilised (rsLoRA; default: as --adapter has it)"),
    OPTION_TEXT(
        "lora-targets", "LIST", lora_targets,
        "The layers that get one, by the ends of their names; \"all\" is every linear layer "
        "(default qkv,out,up,down, or those of --adapter)"),
    OPTION_TEXT("base", "FILE", base,
                "Take the weights from a checkpoint of the same sizes, and nothing else"),
    OPTION_TEXT("adapter", "PATH", adapter,
                "Start from an adapter: a folder, as PEFT writes it, or FILE.lora"),
    OPTION_FLAG(
        "adapter-other-base", adapter_other_base,
        "Take --adapter although it was trained on other weights than these, which its folder "
        "knows by a hash"),
    OPTION_TEXT("adapter-out", "PATH", adapter_out, "Write the adapter at the end, in either form"),
    OPTION_TEXT("merge", "FILE", merge,
                "Write a checkpoint of the weights with the adapters merged into them, for --base"),
};

bool options_have_adapters(const struct options *options)
{
    return options->lora_rank > 0 || options->adapter;
}

const char *options_expert_grid(const struct options *options)
{
    if (options->experts == 0)
        return NULL;
    return options->expert_grid ? options->expert_grid : "etp=1,ep=1";
}

static mimo_status check_adapters(const struct options *o)
{
    const char *given = o->lora_alpha > 0 ? "--lora-alpha"
                        : o->lora_rslora  ? "--lora-rslora"
                        : o->lora_targets ? "--lora-targets"
                        : o->adapter_out  ? "--adapter-out"
                        : o->merge        ? "--merge"
                                          : NULL;
    CHECK(!given || options_have_adapters(o), MIMO_ERR_ARGUMENT,
          "%s needs adapters: give --lora-rank or --adapter with it", given);
    CHECK(o->adapter || !o->adapter_other_base, MIMO_ERR_ARGUMENT,
          "--adapter-other-base needs an adapter of another base: give --adapter with it");
    CHECK(!(o->base && o->resume), MIMO_ERR_ARGUMENT,
          "--resume goes on with a run and --base starts one: give one of them");
    CHECK(!(o->adapter && o->resume), MIMO_ERR_ARGUMENT,
          "--resume has the adapters of its run: --adapter does not go with it");
    return MIMO_OK;
}

static mimo_status check_survival(const struct options *o)
{
    CHECK(o->survive || o->save_memory == 0, MIMO_ERR_ARGUMENT,
          "--save-memory is for ranks that outlive others: give --survive with it");
    if (!o->survive)
        return MIMO_OK;
    CHECK(o->save_memory > 0 || o->save_every > 0, MIMO_ERR_ARGUMENT,
          "--survive goes back to what was saved last: give --save-every or --save-memory with it");
    CHECK(o->evaluate_every == 0, MIMO_ERR_ARGUMENT,
          "--evaluate-every %" PRId64 " keeps a best model that no checkpoint has: it does not go "
          "with --survive",
          o->evaluate_every);
    CHECK(o->device == OPTIONS_CPU, MIMO_ERR_ARGUMENT,
          "--survive makes communicators of the ranks that are left on the host so far, not with "
          "--device cuda");
    return MIMO_OK;
}

static const char *without_dots(const char *path)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return path;
}

/* The same words, or two names of a file that is there. */
static bool same_file(const char *a, const char *b)
{
    struct stat one, other;
    return strcmp(without_dots(a), without_dots(b)) == 0 ||
           (stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino);
}

/* Of two results in one file the first would be lost, and the samples under any. The log begins
 * before inputs are read, and what --prepare makes would replace one. Other results replace a file
 * at the end: --save may take the place of what --resume read. */
static mimo_status check_results(const struct options *o)
{
    enum { INPUT = 1, EARLY = 2, LATE = 4 };
    const struct {
        const char *flag, *path;
        int kind;
    } files[] = {{"--samples", o->samples, LATE}, /* an input that no result replaces */
                 {"--base", o->base, INPUT},
                 {"--resume", o->resume, INPUT},
                 {"--adapter", o->adapter, INPUT},
                 {"--font", o->font, INPUT},
                 {"--emoji-test", o->emoji_test, INPUT},
                 {"--names", o->names, INPUT},
                 {"--prepare", o->prepare, EARLY},
                 {"--log", o->log, EARLY},
                 {"--save", o->save, LATE},
                 {"--adapter-out", o->adapter_out, LATE},
                 {"--merge", o->merge, LATE}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t j = 0; j < i; j++) {
            int kinds = files[i].kind | files[j].kind;
            bool apart = kinds == INPUT || kinds == (INPUT | LATE);
            CHECK(apart || !files[i].path || !files[j].path ||
                      !same_file(files[i].path, files[j].path),
                  MIMO_ERR_ARGUMENT, "%s and %s are the same file, %s: give them different ones",
                  files[j].flag, files[i].flag, files[i].path);
        }
    return MIMO_OK;
}

static mimo_status check_together(const struct options *o)
{
    CHECK(o->image_size % PATCH == 0, MIMO_ERR_ARGUMENT,
          "--image-size must be a multiple of the patch of %d, not %" PRId64, PATCH, o->image_size);
    int64_t side = o->image_size / PATCH;
    CHECK(o->seq > side * side, MIMO_ERR_ARGUMENT,
          "--seq %" PRId64 " leaves no room for a name after %" PRId64
          " image tokens (--image-size %" PRId64 ")",
          o->seq, side * side, o->image_size);
    CHECK(o->hidden % o->heads == 0, MIMO_ERR_ARGUMENT,
          "--hidden %" PRId64 " is no multiple of --heads %" PRId64, o->hidden, o->heads);
    CHECK(o->micro_batches <= o->global_batch, MIMO_ERR_ARGUMENT,
          "--micro-batches %" PRId64 " are more than the samples of --global-batch %" PRId64,
          o->micro_batches, o->global_batch);
    CHECK(o->capacity == 0 || o->experts > 0, MIMO_ERR_ARGUMENT,
          "--capacity is for rows of experts: give --experts with it");
    CHECK(!o->balance || o->most_images > 0, MIMO_ERR_ARGUMENT,
          "--balance needs samples of several pictures: give --images with it");
    CHECK(o->encoder_pieces == 0 || o->overlap, MIMO_ERR_ARGUMENT,
          "--encoder-pieces needs --overlap, whose exchanges leave stages idle");
    CHECK(!o->node_cost || o->overlap, MIMO_ERR_ARGUMENT,
          "--node-cost needs --overlap, which walks nodes");
    CHECK(o->encoder_group <= o->micro_batches, MIMO_ERR_ARGUMENT,
          "--encoder-group %" PRId64 " is more than the micro-batches, --micro-batches %" PRId64,
          o->encoder_group, o->micro_batches);
    CHECK(o->schedule.word != OPTION_THREE_PHASES ||
              (o->encoder_group == 0 && o->encoder_alive < 0),
          MIMO_ERR_ARGUMENT,
          "--schedule three-phases encodes all micro-batches as one group: %s does not go with it",
          o->encoder_group > 0 ? "--encoder-group" : "--encoder-alive");
    CHECK(o->shards == 0 || o->precision == MIMO_F32, MIMO_ERR_ARGUMENT,
          "--same-bits needs --precision f32: products in bf16 have no fixed order");
    CHECK(o->save || o->save_every == 0, MIMO_ERR_ARGUMENT,
          "--save-every needs a file: give --save FILE with it");
    CHECK(o->experts > 0 || !o->expert_grid, MIMO_ERR_ARGUMENT,
          "--expert-grid needs experts: give --experts with it");
    TRY(check_adapters(o));
    TRY(check_survival(o));
    TRY(check_results(o));
    CHECK(o->log || !o->log_hashes, MIMO_ERR_ARGUMENT,
          "--log-hashes needs a log: give --log FILE with it");
    CHECK(!(o->samples && o->prepare), MIMO_ERR_ARGUMENT,
          "--samples reads a file and --prepare makes one: give one of them");
    CHECK(!(o->samples && (o->font || o->emoji_test || o->names)), MIMO_ERR_ARGUMENT,
          "--samples is rendered already: %s does not go with it",
          o->font         ? "--font"
          : o->emoji_test ? "--emoji-test"
                          : "--names");
    return MIMO_OK;
}

/* What options say together, and what follows for those that were not given. */
static mimo_status complete(void *into)
{
    struct options *o = into;
    if (o->log_hashes == OPTIONS_HASHES_NOT_GIVEN)
        o->log_hashes = o->log && o->shards > 0 ? OPTIONS_HASHES : OPTIONS_NO_HASHES;
    TRY(check_together(o));
    if (o->llm_layers == 0 && !o->llm_pattern)
        o->llm_layers = USUAL_LLM_LAYERS;
    return MIMO_OK;
}

const option_table *options_table(void)
{
    static const option_table table = {
        .program = "captioner",
        .version = "captioner (mimo-bridge)",
        .about =
            "Train an image encoder and a language model together, on the same ranks but "
            "under different grids, to name emoji."
            "\vExample: mpirun -n 8 captioner --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2 --out out",
        OPTION_ROWS(rows),
        .check = complete};
    return &table;
}

mimo_status options_parse_over(struct options *options, int argc, char **argv)
{
    struct options read = *options;
    TRY(option_parse(&read.asked, &read, options_table(), argc, argv));
    *options = read;
    return MIMO_OK;
}

mimo_status options_parse(struct options *out, int argc, char **argv)
{
    struct options options = defaults;
    TRY(options_parse_over(&options, argc, argv));
    *out = options;
    return MIMO_OK;
}
