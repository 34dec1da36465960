#include "captioner/training/options.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <mimo/version.h>

#include "train/formats/adapter_config.h"
#include "train/model/augment.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/nn/ops/nn_order.h"
#include "schedule/step_costs.h"

#define PROGRAM "captioner"

enum {
    PATCH = 8,
    LARGEST_IMAGE = 136, /* what the emoji font holds */
    USUAL_SHARDS = 8,    /* V and C of --same-bits without a value */
    USUAL_PAIRS = 1,
    USUAL_LLM_LAYERS = 4,
    MOST_DECAY = 100,
    MOST_IMAGES = 64,
};

/* Keys past the characters: every flag is a long one. */
enum option_key {
    KEY_ENCODER = 0x100,
    KEY_LLM,
    KEY_SP,
    KEY_IMAGE_SIZE,
    KEY_SEQ,
    KEY_HIDDEN,
    KEY_HEADS,
    KEY_EXPERTS,
    KEY_EXPERT_GRID,
    KEY_LLM_PATTERN,
    KEY_LAYERS,
    KEY_ENCODER_LAYERS,
    KEY_LLM_LAYERS,
    KEY_STEPS,
    KEY_GLOBAL_BATCH,
    KEY_MICRO_BATCHES,
    KEY_SCHEDULE,
    KEY_ENCODER_GROUP,
    KEY_ENCODER_ALIVE,
    KEY_COST,
    KEY_SEED,
    KEY_LR,
    KEY_WEIGHT_DECAY,
    KEY_AUGMENT,
    KEY_IMAGES,
    KEY_BALANCE,
    KEY_EVALUATE_EVERY,
    KEY_DEVICE,
    KEY_DTYPE,
    KEY_SAME_BITS,
    KEY_RECOMPUTE,
    KEY_PRECISION,
    KEY_SAMPLES,
    KEY_PREPARE,
    KEY_FONT,
    KEY_EMOJI_TEST,
    KEY_NAMES,
    KEY_OUT,
    KEY_LOG,
    KEY_LOG_HASHES,
    KEY_SAVE,
    KEY_KEYS,
    KEY_SAVE_EVERY,
    KEY_RESUME,
    KEY_PROGRESS,
    KEY_LORA_RANK,
    KEY_LORA_ALPHA,
    KEY_LORA_RSLORA,
    KEY_LORA_TARGETS,
    KEY_BASE,
    KEY_ADAPTER,
    KEY_ADAPTER_OTHER_BASE,
    KEY_ADAPTER_OUT,
    KEY_MERGE,
    KEY_HELP,
    KEY_VERSION,
};

static const struct options defaults = {
    .action = OPTIONS_TRAIN,
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
    .chunks = 1,
    .encoder_alive = -1,
    .costs = MIMO_STEP_COSTS_INIT,
    .seed = 1,
    .lr = 2e-3,
    .decay = 0.01,
    .device = OPTIONS_CPU,
    .dtype = MIMO_F32,
    .precision = MIMO_F32,
    .log_hashes = OPTIONS_HASHES_NOT_GIVEN,
};

/* A row of the help: {name, key, argument, flags, text, group}; a row of text alone is a
 * heading. */
#define HEADING(text, group)          \
    {                                 \
        NULL, 0, NULL, 0, text, group \
    }
#define FLAG(name, key, argument, text) \
    {                                   \
        name, key, argument, 0, text, 0 \
    }
/* A flag that may stand without a value; with one it is --name=value. */
#define OPTIONAL(name, key, argument, text)               \
    {                                                     \
        name, key, argument, OPTION_ARG_OPTIONAL, text, 0 \
    }

static const struct argp_option rows[] = {
    HEADING("Grids, on the same ranks:", 1),
    FLAG("encoder", KEY_ENCODER, "SPEC", "Grid of the encoder (default tp=2,dp=4)"),
    FLAG("llm", KEY_LLM, "SPEC",
         "Grid of the language model (default tp=2,cp=2,dp=2); with pp its layers are a pipeline"),
    FLAG("sp", KEY_SP, NULL,
         "Sequence parallelism: outside of the products each of the LLM's tp ranks has its own "
         "rows"),
    HEADING("Model:", 2),
    FLAG("image-size", KEY_IMAGE_SIZE, "N",
         "Pixels a side, a multiple of the patch of 8, at most 136 (default 32)"),
    FLAG("seq", KEY_SEQ, "S", "Tokens of a sequence: image, then name (default 96)"),
    FLAG("hidden", KEY_HIDDEN, "N", "Width of both models (default 128)"),
    FLAG("heads", KEY_HEADS, "N", "Attention heads, a divisor of the width (default 8)"),
    FLAG("layers", KEY_LAYERS, "E,L", "Layers of the encoder and of the LLM (default 2,4)"),
    FLAG("encoder-layers", KEY_ENCODER_LAYERS, "N", "Layers of the encoder alone"),
    FLAG("llm-layers", KEY_LLM_LAYERS, "N", "Layers of the LLM alone"),
    FLAG("llm-pattern", KEY_LLM_PATTERN, "TEXT",
         "The LLM's layers in their order: * is attention, - an MLP, [*-] a block of both, as "
         "--llm-layers has them. | cuts the list into the stages of a pipeline, as many layers as "
         "there are between: \"[*-]|[*-][*-]\". With interleaved:V there are V segments a stage"),
    FLAG("experts", KEY_EXPERTS, "E,K",
         "In place of the MLP of the LLM's blocks 1, 3, ... a mixture of E experts, of which each "
         "token has K: together they are as wide as the MLP"),
    FLAG("expert-grid", KEY_EXPERT_GRID, "SPEC",
         "Which ranks of each of the LLM's stages share its experts: with ep=2 each has half of "
         "them, with etp=2 half of each (default etp=1,ep=1); what is left holds copies"),
    HEADING("Training:", 3),
    FLAG("steps", KEY_STEPS, "N",
         "The step at which training ends, resumed or not; 0 only evaluates (default 2000)"),
    FLAG("global-batch", KEY_GLOBAL_BATCH, "B",
         "Samples of a step, over all ranks: any number, masked samples fill up what dp does not "
         "divide (default 16)"),
    FLAG("micro-batches", KEY_MICRO_BATCHES, "M",
         "Cut the batch into at most M parts, one after another: B/M samples each, rounded up, and "
         "the last what is left (default 1)"),
    FLAG("schedule", KEY_SCHEDULE, "1f1b|zero-bubble|interleaved[:V]|three-phases",
         "In which order the stages of a pipeline take the micro-batches (default 1f1b). "
         "zero-bubble computes gradients of weights where a stage would wait; interleaved cuts the "
         "LLM into V chunks a stage (default 2), and M is a multiple of pp; three-phases is 1f1b "
         "with all of the encoder's work before and behind it. The same bits"),
    FLAG("encoder-group", KEY_ENCODER_GROUP, "G",
         "Micro-batches that are encoded together, at most M (default 1)"),
    FLAG("encoder-alive", KEY_ENCODER_ALIVE, "L",
         "Groups of which a rank holds the encoder's activations at once; 0: no limit (default: as "
         "few as keep no stage waiting for each group)"),
    FLAG("cost", KEY_COST, "LIST",
         "What steps take, for the lists of a pipeline, in whole numbers of any unit, as "
         "f=412,b=830,e=90,eb=170,head=40. A pipelined run prints its own at its end"),
    FLAG("seed", KEY_SEED, "K", "Start of all random numbers (default 1)"),
    FLAG("lr", KEY_LR, "X", "Learning rate at its peak (default 0.002)"),
    FLAG("weight-decay", KEY_WEIGHT_DECAY, "X",
         "Each step takes X times the learning rate off the matrices (default 0.01)"),
    FLAG("augment", KEY_AUGMENT, "LIST",
         "Change training pictures each time, the same on every topology: \"shift\", \"flip\" "
         "(where the English name stays right), \"colour\" (default none)"),
    FLAG("images", KEY_IMAGES, "A-B",
         "Give training samples A to B pictures, or A alone, that take turns with their names, and "
         "fewer where --seq holds no more; without a picture a sample is a name. Held-out pictures "
         "come one at a time (default 1)"),
    FLAG("balance", KEY_BALANCE, NULL,
         "Let any rank encode any picture, so that those with many of them have no more to do; "
         "with --same-bits the same bits"),
    FLAG("evaluate-every", KEY_EVALUATE_EVERY, "N",
         "Measure the held-out loss every N steps as well, and end with the model of the step at "
         "which it was lowest"),
    FLAG("device", KEY_DEVICE, "cpu|cuda", "Where tensors live (default cpu)"),
    FLAG("dtype", KEY_DTYPE, "f32|bf16", "What crosses the bridge (default f32)"),
    FLAG("precision", KEY_PRECISION, "f32|bf16",
         "How layers multiply (default f32); bf16 rounds the factors of matrix products and adds "
         "in f32, weights and all else stay f32"),
    OPTIONAL("same-bits", KEY_SAME_BITS, "V,C",
             "Add in an order that every topology has: the same bits for tp up to V, cp up to C, "
             "any dp and any number of micro-batches. V and C are powers of two (default 8,1); "
             "other V or C, other bits"),
    FLAG(
        "recompute", KEY_RECOMPUTE, NULL,
        "Keep less for backward: blocks save nothing, and their forward runs twice; the same bits"),
    HEADING("Samples:", 4),
    FLAG("samples", KEY_SAMPLES, "FILE",
         "Read the samples from FILE; without it they are rendered from the installed font into a "
         "cache on first use"),
    FLAG("prepare", KEY_PREPARE, "FILE", "Render the samples into FILE, then stop"),
    FLAG("font", KEY_FONT, "FILE", "Colour emoji font (default: fonts-noto-color-emoji's)"),
    FLAG("emoji-test", KEY_EMOJI_TEST, "FILE", "List of emoji (default: unicode-data's)"),
    FLAG("names", KEY_NAMES, "FILE",
         "Other names for them: on each line code points in hexadecimal, a tab, a name. Emoji "
         "without a name there, or with one of more than 80 bytes, are left out"),
    HEADING("Results:", 5),
    FLAG("out", KEY_OUT, "DIR",
         "Write the loss curve and a contact sheet into DIR, as PNG; of a pipeline also its "
         "schedule, as planned and as measured, as SVG"),
    FLAG("log", KEY_LOG, "FILE", "Write one JSON object per training step to FILE"),
    OPTIONAL("log-hashes", KEY_LOG_HASHES, "tensors|none",
             "Add to each line of the log a hash of all parameters after the step and one "
             "of all gradients, and with =tensors those of each tensor: equal bits have "
             "equal hashes on every topology. mimo-diff compares two logs. The default with "
             "--same-bits, where =none leaves them out"),
    FLAG("save", KEY_SAVE, "FILE",
         "Write a checkpoint (safetensors) at the end, and when SIGTERM or SIGINT ends the run, or "
         "a full disk under --log"),
    FLAG("keys", KEY_KEYS, "own|megatron",
         "What checkpoints call the LLM's tensors (default own): with megatron "
         "decoder.layers.0.self_attention.linear_qkv.weight and so on, where each item of "
         "--llm-pattern is a layer. The tensors are the same, and --resume and --base read both"),
    FLAG("save-every", KEY_SAVE_EVERY, "N", "Write it every N steps as well"),
    FLAG("resume", KEY_RESUME, "FILE",
         "Start from a checkpoint, of any topology. Sizes, --seed, --global-batch, --images and "
         "samples must be those of the run that wrote it; --steps, --lr, --micro-batches, "
         "--balance, --dtype and --precision may change, for the steps to come"),
    FLAG("progress", KEY_PROGRESS, "auto|bar|lines",
         "How to show progress on stderr (default auto: a bar on a terminal)"),
    HEADING("Low-rank adapters (LoRA), with the rest of the model frozen:", 6),
    FLAG("lora-rank", KEY_LORA_RANK, "R", "Train adapters of rank R, 1 to 1024"),
    FLAG("lora-alpha", KEY_LORA_ALPHA, "X",
         "Their scale is X/R (default 16, or that of --adapter)"),
    FLAG("lora-rslora", KEY_LORA_RSLORA, NULL,
         "Their scale is X/sqrt(R), rank-stabilised (rsLoRA; default: as --adapter has it)"),
    FLAG("lora-targets", KEY_LORA_TARGETS, "LIST",
         "The layers that get one, by the ends of their names; \"all\" is every linear layer "
         "(default qkv,out,up,down, or those of --adapter)"),
    FLAG("base", KEY_BASE, "FILE",
         "Take the weights from a checkpoint of the same sizes, and nothing else"),
    FLAG("adapter", KEY_ADAPTER, "PATH",
         "Start from an adapter: a folder, as PEFT writes it, or FILE.lora"),
    FLAG("adapter-other-base", KEY_ADAPTER_OTHER_BASE, NULL,
         "Take --adapter although it was trained on other weights than these, which its folder "
         "knows by a hash"),
    FLAG("adapter-out", KEY_ADAPTER_OUT, "PATH", "Write the adapter at the end, in either form"),
    FLAG("merge", KEY_MERGE, "FILE",
         "Write a checkpoint of the weights with the adapters merged into them, for --base"),
    HEADING("Other:", -1),
    FLAG("help", KEY_HELP, NULL, "Print this help"),
    FLAG("version", KEY_VERSION, NULL, "Print the version"),
    {0},
};

/* What one parse carries through argp. */
struct parse {
    struct options options;
    mimo_status status; /* of the first failure, whose sentence is mimo_last_error */
};

static mimo_status parse_int(int64_t *out, const char *flag, const char *text, int64_t low,
                             int64_t high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool number = end != text && *end == '\0' && strspn(text, "+-0123456789") == strlen(text);
    CHECK(number, MIMO_ERR_ARGUMENT, "%s needs a whole number, not \"%s\"", flag, text);
    CHECK(errno == 0 && value >= low && value <= high, MIMO_ERR_ARGUMENT,
          "%s must be from %" PRId64 " to %" PRId64 ", not %s", flag, low, high, text);
    *out = value;
    return MIMO_OK;
}

static mimo_status parse_seed(uint64_t *out, const char *flag, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    CHECK(end != text && *end == '\0' && strspn(text, "0123456789") == strlen(text),
          MIMO_ERR_ARGUMENT, "%s needs a whole number from 0, not \"%s\"", flag, text);
    CHECK(errno == 0, MIMO_ERR_ARGUMENT, "%s must be at most %" PRIu64 ", not %s", flag, UINT64_MAX,
          text);
    *out = value;
    return MIMO_OK;
}

static mimo_status parse_number(double *out, const char *flag, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    CHECK(end != text && *end == '\0' && strspn(text, "+-.0123456789eE") == strlen(text),
          MIMO_ERR_ARGUMENT, "%s needs a number, not \"%s\"", flag, text);
    *out = value;
    return MIMO_OK;
}

static mimo_status parse_rate(double *out, const char *flag, const char *text)
{
    double value;
    TRY(parse_number(&value, flag, text));
    CHECK(isfinite(value) && value > 0 && value <= 1, MIMO_ERR_ARGUMENT,
          "%s must be above 0 and at most 1, not %s", flag, text);
    *out = value;
    return MIMO_OK;
}

static mimo_status parse_decay(double *out, const char *flag, const char *text)
{
    double value;
    TRY(parse_number(&value, flag, text));
    CHECK(value >= 0 && value <= MOST_DECAY, MIMO_ERR_ARGUMENT, "%s must be from 0 to %d, not %s",
          flag, MOST_DECAY, text);
    *out = value;
    return MIMO_OK;
}

/* The place of a word among those of `choices`, "cpu|cuda"; -1: it is none of them. */
static int place_among(const char *choices, const char *text, size_t length)
{
    int place = 0;
    for (const char *word = choices; *word; place++) {
        size_t bytes = strcspn(word, "|");
        if (bytes == length && memcmp(word, text, bytes) == 0)
            return place;
        word += bytes + (word[bytes] == '|');
    }
    return -1;
}

static mimo_status parse_choice(int *out, const char *flag, const char *text, const char *choices)
{
    int place = place_among(choices, text, strlen(text));
    CHECK(place >= 0, MIMO_ERR_ARGUMENT, "%s must be one of %s, not \"%s\"", flag, choices, text);
    *out = place;
    return MIMO_OK;
}

/* Words with commas, each of which is a bit; or "none". */
static mimo_status parse_augment(unsigned *out, const char *text)
{
    unsigned kinds = 0;
    if (strcmp(text, "none") != 0)
        for (const char *word = text;; word++) {
            size_t length = strcspn(word, ",");
            int place = place_among(AUGMENT_NAMES, word, length);
            CHECK(place >= 0, MIMO_ERR_ARGUMENT,
                  "--augment must be none, or some of " AUGMENT_NAMES " with commas, not \"%s\"",
                  text);
            kinds |= 1U << place;
            word += length;
            if (!*word)
                break;
        }
    *out = kinds;
    return MIMO_OK;
}

static mimo_status parse_text(const char **out, const char *flag, const char *text)
{
    CHECK(text[0] != '\0', MIMO_ERR_ARGUMENT, "%s needs a value, not an empty one", flag);
    *out = text;
    return MIMO_OK;
}

enum { MOST_LAYERS = 1000, MOST_EXPERTS = 1024 };

static mimo_status parse_float(mimo_dtype *out, const char *flag, const char *text)
{
    int choice = 0;
    TRY(parse_choice(&choice, flag, text, "f32|bf16"));
    *out = choice == 0 ? MIMO_F32 : MIMO_BF16;
    return MIMO_OK;
}

/* Two numbers from 1 to `most`, with a comma. `flags`: the flag, then what each of them is called;
 * `example` is what is understood. */
static mimo_status parse_two(int64_t *first, int64_t *second, const char *const flags[3],
                             const char *text, const char *example, int64_t most)
{
    const char *comma = strchr(text, ',');
    CHECK(comma, MIMO_ERR_ARGUMENT, "%s needs two numbers, \"%s\", not \"%s\"", flags[0], example,
          text);
    char *copy;
    TRY(memory_copy_string(&copy, text));
    copy[comma - text] = '\0';
    mimo_status status = parse_int(first, flags[1], copy, 1, most);
    memory_release(copy);
    TRY(status);
    return parse_int(second, flags[2], comma + 1, 1, most);
}

static mimo_status parse_layers(struct options *options, const char *text)
{
    static const char *const flags[] = {"--layers", "--layers (encoder)", "--layers (LLM)"};
    return parse_two(&options->encoder_layers, &options->llm_layers, flags, text, "2,4",
                     MOST_LAYERS);
}

static mimo_status parse_experts(struct options *options, const char *text)
{
    static const char *const flags[] = {"--experts", "--experts (E)", "--experts (K)"};
    TRY(parse_two(&options->experts, &options->top_k, flags, text, "8,2", MOST_EXPERTS));
    CHECK(options->top_k <= options->experts, MIMO_ERR_ARGUMENT,
          "--experts \"%s\": a token can't have %" PRId64 " of %" PRId64 " experts", text,
          options->top_k, options->experts);
    return MIMO_OK;
}

/* "4", or "0-4". */
static mimo_status parse_images(struct options *options, const char *text)
{
    const char *dash = strchr(text, '-');
    char *least;
    TRY(parse_int(&options->most_images, dash ? "--images (B)" : "--images", dash ? dash + 1 : text,
                  1, MOST_IMAGES));
    options->least_images = options->most_images;
    if (!dash)
        return MIMO_OK;
    TRY(memory_copy_string(&least, text));
    least[dash - text] = '\0';
    mimo_status status =
        parse_int(&options->least_images, "--images (A)", least, 0, options->most_images);
    memory_release(least);
    return status;
}

static mimo_status parse_same_bits(struct options *options, const char *text)
{
    static const char *const flags[] = {"--same-bits", "--same-bits (V)", "--same-bits (C)"};
    options->shards = USUAL_SHARDS;
    options->pairs = USUAL_PAIRS;
    if (!text)
        return MIMO_OK;
    TRY(parse_two(&options->shards, &options->pairs, flags, text, "8,1", NN_MOST_PARTS));
    CHECK((options->shards & (options->shards - 1)) == 0 &&
              (options->pairs & (options->pairs - 1)) == 0,
          MIMO_ERR_ARGUMENT, "--same-bits needs powers of two, not \"%s\"", text);
    return MIMO_OK;
}

static mimo_status parse_model_flag(struct options *o, int key, const char *text)
{
    switch (key) {
    case KEY_ENCODER:
        return parse_text(&o->encoder, "--encoder", text);
    case KEY_LLM:
        return parse_text(&o->llm, "--llm", text);
    case KEY_SP:
        o->sp = true;
        return MIMO_OK;
    case KEY_IMAGE_SIZE:
        return parse_int(&o->image_size, "--image-size", text, PATCH, LARGEST_IMAGE);
    case KEY_SEQ:
        return parse_int(&o->seq, "--seq", text, 1, 1 << 20);
    case KEY_HIDDEN:
        return parse_int(&o->hidden, "--hidden", text, 1, 1 << 20);
    case KEY_HEADS:
        return parse_int(&o->heads, "--heads", text, 1, 1 << 20);
    case KEY_EXPERTS:
        return parse_experts(o, text);
    case KEY_EXPERT_GRID:
        return parse_text(&o->expert_grid, "--expert-grid", text);
    case KEY_LLM_PATTERN:
        return parse_text(&o->llm_pattern, "--llm-pattern", text);
    case KEY_LAYERS:
        return parse_layers(o, text);
    case KEY_ENCODER_LAYERS:
        return parse_int(&o->encoder_layers, "--encoder-layers", text, 1, MOST_LAYERS);
    default:
        return parse_int(&o->llm_layers, "--llm-layers", text, 1, MOST_LAYERS);
    }
}

/* "interleaved" may have a number of chunks behind it. */
static mimo_status parse_schedule(struct options *o, const char *text)
{
    static const char interleaved[] = "interleaved:";
    int choice = 0;
    o->chunks = 1;
    if (strncmp(text, interleaved, strlen(interleaved)) == 0) {
        o->schedule = OPTIONS_INTERLEAVED;
        return parse_int(&o->chunks, "--schedule interleaved", text + strlen(interleaved), 2,
                         MOST_LAYERS);
    }
    TRY(parse_choice(&choice, "--schedule", text, "1f1b|zero-bubble|interleaved|three-phases"));
    o->schedule = (enum options_schedule)choice;
    if (o->schedule == OPTIONS_INTERLEAVED)
        o->chunks = 2;
    return MIMO_OK;
}

static mimo_status parse_cost(struct options *o, const char *text)
{
    o->costs = defaults.costs;
    TRY(parse_text(&o->cost, "--cost", text));
    mimo_status status = mimo_step_costs_parse(&o->costs, text);
    return status == MIMO_OK ? MIMO_OK : fail_prefix(status, "--");
}

static mimo_status parse_training_flag(struct options *o, int key, const char *text)
{
    int choice = 0;
    switch (key) {
    case KEY_STEPS:
        return parse_int(&o->steps, "--steps", text, 0, OPTIONS_MOST_STEPS);
    case KEY_GLOBAL_BATCH:
        return parse_int(&o->global_batch, "--global-batch", text, 1, 1 << 20);
    case KEY_MICRO_BATCHES:
        return parse_int(&o->micro_batches, "--micro-batches", text, 1, 1 << 20);
    case KEY_SCHEDULE:
        return parse_schedule(o, text);
    case KEY_ENCODER_GROUP:
        return parse_int(&o->encoder_group, "--encoder-group", text, 1, 1 << 20);
    case KEY_ENCODER_ALIVE:
        return parse_int(&o->encoder_alive, "--encoder-alive", text, 0, 1 << 20);
    case KEY_COST:
        return parse_cost(o, text);
    case KEY_SEED:
        return parse_seed(&o->seed, "--seed", text);
    case KEY_LR:
        return parse_rate(&o->lr, "--lr", text);
    case KEY_WEIGHT_DECAY:
        return parse_decay(&o->decay, "--weight-decay", text);
    case KEY_AUGMENT:
        return parse_augment(&o->augment, text);
    case KEY_IMAGES:
        return parse_images(o, text);
    case KEY_BALANCE:
        o->balance = true;
        return MIMO_OK;
    case KEY_EVALUATE_EVERY:
        return parse_int(&o->evaluate_every, "--evaluate-every", text, 1, OPTIONS_MOST_STEPS);
    case KEY_DEVICE:
        TRY(parse_choice(&choice, "--device", text, "cpu|cuda"));
        o->device = choice == 0 ? OPTIONS_CPU : OPTIONS_CUDA;
        return MIMO_OK;
    case KEY_DTYPE:
        return parse_float(&o->dtype, "--dtype", text);
    case KEY_SAME_BITS:
        return parse_same_bits(o, text);
    case KEY_RECOMPUTE:
        o->recompute = true;
        return MIMO_OK;
    default:
        return parse_float(&o->precision, "--precision", text);
    }
}

static mimo_status parse_file_flag(struct options *o, int key, const char *text)
{
    int choice = 0;
    switch (key) {
    case KEY_SAMPLES:
        return parse_text(&o->samples, "--samples", text);
    case KEY_PREPARE:
        if (o->action == OPTIONS_TRAIN)
            o->action = OPTIONS_PREPARE;
        return parse_text(&o->prepare, "--prepare", text);
    case KEY_FONT:
        return parse_text(&o->font, "--font", text);
    case KEY_EMOJI_TEST:
        return parse_text(&o->emoji_test, "--emoji-test", text);
    case KEY_NAMES:
        return parse_text(&o->names, "--names", text);
    case KEY_OUT:
        return parse_text(&o->out, "--out", text);
    case KEY_LOG:
        return parse_text(&o->log, "--log", text);
    case KEY_LOG_HASHES:
        if (text)
            TRY(parse_choice(&choice, "--log-hashes", text, "tensors|none"));
        o->log_hashes = !text         ? OPTIONS_HASHES
                        : choice == 0 ? OPTIONS_TENSOR_HASHES
                                      : OPTIONS_NO_HASHES;
        return MIMO_OK;
    case KEY_SAVE:
        return parse_text(&o->save, "--save", text);
    case KEY_KEYS:
        TRY(parse_choice(&choice, "--keys", text, "own|megatron"));
        o->megatron_keys = choice == 1;
        return MIMO_OK;
    case KEY_SAVE_EVERY:
        return parse_int(&o->save_every, "--save-every", text, 1, OPTIONS_MOST_STEPS);
    case KEY_RESUME:
        return parse_text(&o->resume, "--resume", text);
    default:
        TRY(parse_choice(&choice, "--progress", text, "auto|bar|lines"));
        o->progress = (enum options_progress)choice;
        return MIMO_OK;
    }
}

static mimo_status parse_alpha(double *out, const char *flag, const char *text)
{
    double value;
    TRY(parse_number(&value, flag, text));
    CHECK(isfinite(value) && value > 0, MIMO_ERR_ARGUMENT, "%s must be above 0, not %s", flag,
          text);
    *out = value;
    return MIMO_OK;
}

static mimo_status parse_adapter_flag(struct options *o, int key, const char *text)
{
    switch (key) {
    case KEY_LORA_RANK:
        return parse_int(&o->lora_rank, "--lora-rank", text, 1, ADAPTER_MOST_RANK);
    case KEY_LORA_ALPHA:
        return parse_alpha(&o->lora_alpha, "--lora-alpha", text);
    case KEY_LORA_RSLORA:
        o->lora_rslora = true;
        return MIMO_OK;
    case KEY_LORA_TARGETS:
        return parse_text(&o->lora_targets, "--lora-targets", text);
    case KEY_BASE:
        return parse_text(&o->base, "--base", text);
    case KEY_ADAPTER:
        return parse_text(&o->adapter, "--adapter", text);
    case KEY_ADAPTER_OTHER_BASE:
        o->adapter_other_base = true;
        return MIMO_OK;
    case KEY_ADAPTER_OUT:
        return parse_text(&o->adapter_out, "--adapter-out", text);
    default:
        return parse_text(&o->merge, "--merge", text);
    }
}

static mimo_status parse_flag(struct options *options, int key, const char *text)
{
    if (key == KEY_HELP || key == KEY_VERSION) {
        options->action = key == KEY_HELP ? OPTIONS_HELP : OPTIONS_VERSION;
        return MIMO_OK;
    }
    if (key <= KEY_LLM_LAYERS)
        return parse_model_flag(options, key, text);
    if (key <= KEY_PRECISION)
        return parse_training_flag(options, key, text);
    return key <= KEY_PROGRESS ? parse_file_flag(options, key, text)
                               : parse_adapter_flag(options, key, text);
}

/* argp was told to keep quiet, so it only says that the word before state->next was refused. */
static mimo_status explain_refusal(const struct argp_state *state)
{
    const char *word = state->argv[state->next > 1 ? state->next - 1 : 1];
    const char *name = strncmp(word, "--", 2) == 0 ? word + 2 : "";
    size_t length = strcspn(name, "=");
    int matches = 0;
    const struct argp_option *match = NULL;
    for (const struct argp_option *row = rows; row->name || row->doc; row++) {
        if (length == 0 || !row->name || strncmp(row->name, name, length) != 0)
            continue;
        match = row;
        matches++;
        if (row->name[length] == '\0') {
            matches = 1;
            break;
        }
    }
    if (matches == 0)
        return mimo_fail(MIMO_ERR_ARGUMENT, "unknown flag \"%s\": see --help", word);
    if (matches > 1)
        return mimo_fail(MIMO_ERR_ARGUMENT, "\"%s\" may mean %d flags: see --help", word, matches);
    if (match->arg)
        return mimo_fail(MIMO_ERR_ARGUMENT, "--%s needs a value, %s", match->name, match->arg);
    return mimo_fail(MIMO_ERR_ARGUMENT, "--%s takes no value", match->name);
}

static error_t on_argument(int key, char *text, struct argp_state *state)
{
    struct parse *parse = state->input;
    if (key == ARGP_KEY_ARG)
        parse->status = mimo_fail(MIMO_ERR_ARGUMENT, "\"%s\" is no flag: see --help", text);
    else if (key == ARGP_KEY_ERROR && parse->status == MIMO_OK)
        parse->status = explain_refusal(state);
    else if (key >= KEY_ENCODER && key <= KEY_VERSION)
        parse->status = parse_flag(&parse->options, key, text);
    else
        return ARGP_ERR_UNKNOWN;
    return parse->status == MIMO_OK ? 0 : EINVAL;
}

static const struct argp description = {
    .options = rows,
    .parser = on_argument,
    .doc = "Train an image encoder and a language model together, on the same ranks but under "
           "different grids, to name emoji."
           "\vExample: mpirun -n 8 " PROGRAM " --encoder tp=2,dp=4 --llm tp=2,cp=2,dp=2 --out out",
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
    CHECK(!o->balance || o->most_images > 0, MIMO_ERR_ARGUMENT,
          "--balance needs samples of several pictures: give --images with it");
    CHECK(o->encoder_group <= o->micro_batches, MIMO_ERR_ARGUMENT,
          "--encoder-group %" PRId64 " is more than the micro-batches, --micro-batches %" PRId64,
          o->encoder_group, o->micro_batches);
    CHECK(o->schedule != OPTIONS_THREE_PHASES || (o->encoder_group == 0 && o->encoder_alive < 0),
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

mimo_status options_parse(struct options *out, int argc, char **argv)
{
    struct parse parse = {.options = defaults};
    /* In order, and so without reordering argv, which MPI may look at again. */
    const unsigned flags = ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER;
    error_t error = argc > 1 ? argp_parse(&description, argc, argv, flags, NULL, &parse) : 0;
    TRY(parse.status);
    CHECK(error == 0, MIMO_ERR_ARGUMENT, "cannot read the command line: %s", strerror(error));
    if (parse.options.log_hashes == OPTIONS_HASHES_NOT_GIVEN)
        parse.options.log_hashes =
            parse.options.log && parse.options.shards > 0 ? OPTIONS_HASHES : OPTIONS_NO_HASHES;
    if (parse.options.action == OPTIONS_TRAIN || parse.options.action == OPTIONS_PREPARE)
        TRY(check_together(&parse.options));
    if (parse.options.llm_layers == 0 && !parse.options.llm_pattern)
        parse.options.llm_layers = USUAL_LLM_LAYERS;
    *out = parse.options;
    return MIMO_OK;
}

void options_print_help(FILE *stream)
{
    char program[] = PROGRAM;
    argp_help(&description, stream, ARGP_HELP_STD_HELP & ~(ARGP_HELP_EXIT_OK | ARGP_HELP_EXIT_ERR),
              program);
}

void options_print_version(FILE *stream)
{
    fprintf(stream, PROGRAM " (mimo-bridge) %s\n", mimo_version_text());
}
