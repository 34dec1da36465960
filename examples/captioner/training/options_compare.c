#include "captioner/training/options_compare.h"

#include <inttypes.h>
#include <string.h>

#include "train/support/train_support.h"

enum { MOST_OPTIONS = 96, VALUE_CAPACITY = 96 };

/* As it travels: of a long path the beginning, for the sentence, and a hash of all of it. */
typedef struct option_value {
    uint64_t hash;
    char text[VALUE_CAPACITY];
} option_value;

typedef struct option_list {
    int count;
    const char *flag[MOST_OPTIONS];
    option_value value[MOST_OPTIONS];
} option_list;

static void add_text(option_list *list, const char *flag, const char *text)
{
    option_value *value = &list->value[list->count];
    const char *said = text ? text : "not given";
    list->flag[list->count++] = flag;
    value->hash = hash_bytes(HASH_START, said, strlen(said));
    snprintf(value->text, sizeof value->text, "%s", said);
}

static void add_int(option_list *list, const char *flag, int64_t number)
{
    char text[VALUE_CAPACITY];
    snprintf(text, sizeof text, "%" PRId64, number);
    add_text(list, flag, text);
}

static void add_model(option_list *list, const struct options *o)
{
    add_text(list, "--encoder", o->encoder);
    add_text(list, "--llm", o->llm);
    add_text(list, "--sp", o->sp ? "given" : NULL);
    add_int(list, "--image-size", o->image_size);
    add_int(list, "--seq", o->seq);
    add_int(list, "--hidden", o->hidden);
    add_int(list, "--heads", o->heads);
    add_int(list, "--encoder-layers", o->encoder_layers);
    add_int(list, "--llm-layers", o->llm_layers);
    add_text(list, "--llm-pattern", o->llm_pattern);
    add_int(list, "--experts (E)", o->experts);
    add_int(list, "--experts (K)", o->top_k);
    add_text(list, "--expert-grid", o->expert_grid);
}

static void add_training(option_list *list, const struct options *o)
{
    char text[VALUE_CAPACITY];
    add_int(list, "--steps", o->steps);
    add_int(list, "--global-batch", o->global_batch);
    add_int(list, "--micro-batches", o->micro_batches);
    add_int(list, "--schedule", o->schedule);
    add_int(list, "--schedule interleaved", o->chunks);
    add_int(list, "--encoder-group", o->encoder_group);
    add_int(list, "--encoder-alive", o->encoder_alive);
    add_text(list, "--cost", o->cost);
    snprintf(text, sizeof text, "%" PRIu64, o->seed);
    add_text(list, "--seed", text);
    snprintf(text, sizeof text, "%.17g", o->lr);
    add_text(list, "--lr", text);
    snprintf(text, sizeof text, "%.17g", o->decay);
    add_text(list, "--weight-decay", text);
    add_int(list, "--augment", o->augment);
    add_int(list, "--images (A)", o->least_images);
    add_int(list, "--images (B)", o->most_images);
    add_text(list, "--balance", o->balance ? "given" : NULL);
    add_int(list, "--evaluate-every", o->evaluate_every);
    add_text(list, "--device", o->device == OPTIONS_CPU ? "cpu" : "cuda");
    add_text(list, "--dtype", mimo_dtype_name(o->dtype));
    add_text(list, "--precision", mimo_dtype_name(o->precision));
    add_int(list, "--same-bits (V)", o->shards);
    add_int(list, "--same-bits (C)", o->pairs);
    add_text(list, "--recompute", o->recompute ? "given" : NULL);
    add_int(list, "--lora-rank", o->lora_rank);
    snprintf(text, sizeof text, "%.17g", o->lora_alpha);
    add_text(list, "--lora-alpha", text);
    add_text(list, "--lora-rslora", o->lora_rslora ? "given" : NULL);
    add_text(list, "--lora-targets", o->lora_targets);
}

/* Rank 0 alone writes, yet whether there is something to write is known to all. */
static void add_files(option_list *list, const struct options *o)
{
    add_text(list, "--samples", o->samples);
    add_text(list, "--prepare", o->prepare);
    add_text(list, "--font", o->font);
    add_text(list, "--emoji-test", o->emoji_test);
    add_text(list, "--names", o->names);
    add_text(list, "--out", o->out);
    add_text(list, "--log", o->log);
    add_int(list, "--log-hashes", o->log_hashes);
    add_text(list, "--save", o->save);
    add_text(list, "--keys", o->megatron_keys ? "megatron" : NULL);
    add_int(list, "--save-every", o->save_every);
    add_text(list, "--resume", o->resume);
    add_text(list, "--base", o->base);
    add_text(list, "--adapter", o->adapter);
    add_text(list, "--adapter-other-base", o->adapter_other_base ? "given" : NULL);
    add_text(list, "--adapter-out", o->adapter_out);
    add_text(list, "--merge", o->merge);
}

static mimo_status compare(const option_list *mine, const option_value *first)
{
    for (int i = 0; i < mine->count; i++)
        CHECK(mine->value[i].hash == first[i].hash, MIMO_ERR_ARGUMENT,
              "%s is %s on this rank and %s on rank 0: start every rank with the same options",
              mine->flag[i], mine->value[i].text, first[i].text);
    return MIMO_OK;
}

mimo_status options_compare(const struct options *options, mimo_comm *world)
{
    option_list mine = {0};
    add_text(&mine, "--help", options->action == OPTIONS_HELP ? "given" : NULL);
    add_text(&mine, "--version", options->action == OPTIONS_VERSION ? "given" : NULL);
    add_model(&mine, options);
    add_training(&mine, options);
    add_files(&mine, options);

    option_value first[MOST_OPTIONS];
    memcpy(first, mine.value, sizeof first);
    TRY(mimo_comm_broadcast(world, first, sizeof first, 0, NULL));
    return mimo_comm_agree(world, compare(&mine, first));
}
