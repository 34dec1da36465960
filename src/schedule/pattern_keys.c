#include "schedule/pattern_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "core/mutation.h"

/* A name taken apart: prefix, number of the layer, and what the layer calls the tensor. */
typedef struct parts {
    int prefix;       /* letters up to and including "decoder.layers." */
    int64_t layer;    /* -1: the name is of no decoder layer */
    const char *rest; /* "mixer.in_proj.weight" */
} parts;

static const char layers_name[] = "decoder.layers.";
static const char *const final_norms[] = {"decoder.final_norm.", "decoder.final_layernorm."};
static const char extra_state[] = "output_layer._extra_state";

/* Where `words` stand in a name, at its beginning or behind a dot. NULL: nowhere. */
static const char *find_words(const char *name, const char *words)
{
    for (const char *at = strstr(name, words); at; at = strstr(at + 1, words))
        if (at == name || at[-1] == '.')
            return at;
    return NULL;
}

/* The class whose layers have tensors of this name, by its first word: the class itself, or a norm
 * that stands before it. */
static mimo_layer_class owner_class(const char *rest)
{
    static const struct {
        const char *word;
        mimo_layer_class kind;
    } words[] = {
        {"mixer.", MIMO_LAYER_MIXER},
        {"norm.", MIMO_LAYER_MIXER},
        {"self_attention.", MIMO_LAYER_ATTENTION},
        {"input_layernorm.", MIMO_LAYER_ATTENTION},
        {"mlp.", MIMO_LAYER_MLP},
        {"pre_mlp_layernorm.", MIMO_LAYER_MLP},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strncmp(rest, words[i].word, strlen(words[i].word)) == 0)
            return words[i].kind;
    return MIMO_LAYER_NONE;
}

/* ----------------------------------------- from a form -------------------------------------- */

/* The layer of an item that has a tensor of this name, or -1. A layer alone has every name. */
static int64_t layer_of_item(const mimo_pattern *pattern, int64_t item, const char *rest)
{
    mimo_layer_class kind = owner_class(rest);
    for (int64_t i = 0; i < pattern->count; i++)
        if (pattern->layers[i].item == item &&
            (!pattern->layers[i].grouped || mimo_layer_class_of(pattern->layers[i].symbol) == kind))
            return i;
    return -1;
}

/* The i-th attention, or the i-th MLP, or -1. */
static int64_t layer_of_place(const mimo_pattern *pattern, int64_t place, const char *rest)
{
    mimo_layer_class kind = owner_class(rest);
    for (int64_t i = 0; i < pattern->count; i++)
        if (mimo_layer_class_of(pattern->layers[i].symbol) == kind && place-- == 0)
            return i;
    return -1;
}

/* Names whose number is that of an item. */
static bool counts_items(const mimo_pattern *pattern, mimo_key_form form)
{
    if (MIMO_MUTATED("layers-for-items"))
        return false;
    return form == MIMO_KEYS_OF_ITEMS && pattern->grouped;
}

/* Take the number of "decoder.layers.12.mixer". */
static mimo_status take_layer(parts *out, const mimo_pattern *pattern, mimo_key_form from,
                              const char *name)
{
    char *end;
    const char *number = name + out->prefix;
    long long value = strtoll(number, &end, 10);
    bool items = counts_items(pattern, from);
    int64_t most = items ? pattern->items : pattern->count;
    MIMO_CHECK(*number >= '0' && *number <= '9' && *end == '.' && value < most, MIMO_ERR_ARGUMENT,
               "pattern: key %s: there are %" PRId64 " %s", name, most, items ? "items" : "layers");
    out->rest = end + 1;
    out->layer = items ? layer_of_item(pattern, value, out->rest) : value;
    MIMO_CHECK(out->layer >= 0, MIMO_ERR_ARGUMENT,
               "pattern: key %s: no layer of the group has such a tensor", name);
    return MIMO_OK;
}

static mimo_status take_place(parts *out, const mimo_pattern *pattern, const mimo_pattern_key *key)
{
    out->rest = key->text + out->prefix;
    out->layer = layer_of_place(pattern, key->place, out->rest);
    MIMO_CHECK(key->place >= 0 && out->layer >= 0, MIMO_ERR_ARGUMENT,
               "pattern: key %s has no layer %" PRId64, key->text, key->place);
    return MIMO_OK;
}

static mimo_status take_apart(parts *out, const mimo_pattern *pattern, mimo_key_form from,
                              const mimo_pattern_key *key)
{
    const char *at = find_words(key->text, layers_name);
    *out = (parts){0, -1, key->text};
    if (!at)
        return MIMO_OK;
    out->prefix = (int)(at - key->text) + (int)strlen(layers_name);
    return from == MIMO_KEYS_OF_GPT ? take_place(out, pattern, key)
                                    : take_layer(out, pattern, from, key->text);
}

/* ------------------------------------------ to a form --------------------------------------- */

/* How many layers of its class stand before a layer; -1 for a class that GPT has not. */
static int64_t place_of_layer(const mimo_pattern *pattern, int64_t layer)
{
    mimo_layer_class kind = mimo_layer_class_of(pattern->layers[layer].symbol);
    int64_t place = 0;
    for (int64_t i = 0; i < layer; i++)
        place += mimo_layer_class_of(pattern->layers[i].symbol) == kind;
    return kind == MIMO_LAYER_MIXER ? -1 : place;
}

static mimo_status put_text(mimo_pattern_key *out, const mimo_pattern_key *key, int length)
{
    MIMO_CHECK(length >= 0 && (size_t)length < sizeof out->text, MIMO_ERR_ARGUMENT,
               "pattern: key %.100s is too long", key->text);
    return MIMO_OK;
}

/* Where a name says whose it is, another layer's would come back as that layer's. */
static mimo_status check_owner(const mimo_pattern *pattern, mimo_key_form to, const parts *from,
                               const mimo_pattern_key *key)
{
    const mimo_pattern_layer *layer = &pattern->layers[from->layer];
    bool by_name = to == MIMO_KEYS_OF_GPT || (counts_items(pattern, to) && layer->grouped);
    MIMO_CHECK(!by_name || owner_class(from->rest) == mimo_layer_class_of(layer->symbol),
               MIMO_ERR_ARGUMENT,
               "pattern: key %s: layer %" PRId64 " is '%c', which has no such tensor", key->text,
               from->layer, layer->symbol);
    return MIMO_OK;
}

static mimo_status put_layer(mimo_pattern_key *out, const mimo_pattern *pattern, mimo_key_form to,
                             const parts *from, const mimo_pattern_key *key)
{
    int64_t number = counts_items(pattern, to) ? pattern->layers[from->layer].item : from->layer;
    out->place = -1;
    MIMO_TRY(check_owner(pattern, to, from, key));
    if (to != MIMO_KEYS_OF_GPT)
        return put_text(out, key,
                        snprintf(out->text, sizeof out->text, "%.*s%" PRId64 ".%s", from->prefix,
                                 key->text, number, from->rest));
    out->place = place_of_layer(pattern, from->layer);
    out->text[0] = '\0';
    if (out->place < 0) /* keeps its initial values */
        return MIMO_OK;
    return put_text(
        out, key,
        snprintf(out->text, sizeof out->text, "%.*s%s", from->prefix, key->text, from->rest));
}

/* Whether a form has the names of a transformer's final norm and no extra state. */
static bool is_transformer(const mimo_pattern *pattern, mimo_key_form form)
{
    return form == MIMO_KEYS_OF_GPT || (form == MIMO_KEYS_OF_ITEMS && pattern->grouped);
}

static mimo_status put_other(mimo_pattern_key *out, const mimo_pattern *pattern, mimo_key_form from,
                             mimo_key_form to, const mimo_pattern_key *key)
{
    const char *old = final_norms[is_transformer(pattern, from)];
    const char *new = final_norms[is_transformer(pattern, to)];
    const char *at = find_words(key->text, old), *extra = find_words(key->text, extra_state);
    out->place = -1;
    if (is_transformer(pattern, to) && extra && strcmp(extra, extra_state) == 0) {
        out->text[0] = '\0';
        return MIMO_OK;
    }
    if (!at)
        return put_text(out, key, snprintf(out->text, sizeof out->text, "%s", key->text));
    return put_text(out, key,
                    snprintf(out->text, sizeof out->text, "%.*s%s%s", (int)(at - key->text),
                             key->text, new, at + strlen(old)));
}

/* -------------------------------------------- both ------------------------------------------ */

static mimo_status check_gpt(const mimo_pattern *pattern)
{
    int64_t attentions = 0, dense = 0, experts = 0;
    for (int64_t i = 0; i < pattern->count; i++) {
        char symbol = pattern->layers[i].symbol;
        MIMO_CHECK(strchr("M*-E", symbol), MIMO_ERR_ARGUMENT,
                   "pattern: layer %" PRId64 " is '%c', which GPT has not", i, symbol);
        attentions += symbol == '*';
        dense += symbol == '-';
        experts += symbol == 'E';
    }
    MIMO_CHECK(pattern->mtp_parts == 0, MIMO_ERR_ARGUMENT, "pattern: GPT has no MTP part");
    MIMO_CHECK(dense == 0 || experts == 0, MIMO_ERR_ARGUMENT,
               "pattern: %" PRId64 " '-' and %" PRId64 " 'E', and GPT has one kind of MLP", dense,
               experts);
    MIMO_CHECK(attentions == dense + experts, MIMO_ERR_ARGUMENT,
               "pattern: %" PRId64 " attentions and %" PRId64
               " MLPs, and GPT has one of each in a layer",
               attentions, dense + experts);
    return MIMO_OK;
}

mimo_status mimo_pattern_rename(mimo_pattern_key *out, const mimo_pattern *pattern,
                                mimo_key_form from, mimo_key_form to, const mimo_pattern_key *key)
{
    parts taken;
    if (from == MIMO_KEYS_OF_GPT || to == MIMO_KEYS_OF_GPT)
        MIMO_TRY(check_gpt(pattern));
    MIMO_TRY(take_apart(&taken, pattern, from, key));
    return taken.layer >= 0 ? put_layer(out, pattern, to, &taken, key)
                            : put_other(out, pattern, from, to, key);
}

/* A renamed key and where it came from, for sorting. */
typedef struct renamed {
    const mimo_pattern_key *out, *key;
} renamed;

static int by_name(const void *a, const void *b)
{
    const renamed *one = a, *other = b;
    int order = strcmp(one->out->text, other->out->text);
    if (order != 0)
        return order;
    return (one->out->place > other->out->place) - (one->out->place < other->out->place);
}

static mimo_status check_once(const renamed *sorted, int64_t count)
{
    for (int64_t i = 1; i < count && !MIMO_MUTATED("key-twice"); i++) {
        const renamed *one = &sorted[i - 1], *other = &sorted[i];
        MIMO_CHECK(*one->out->text == '\0' || by_name(one, other) != 0, MIMO_ERR_ARGUMENT,
                   "pattern: %s and %s both get the key %s", one->key->text, other->key->text,
                   one->out->text);
    }
    return MIMO_OK;
}

mimo_status mimo_pattern_rename_all(mimo_pattern_key *out, const mimo_pattern *pattern,
                                    mimo_key_form from, mimo_key_form to,
                                    const mimo_pattern_key *keys, int64_t count)
{
    renamed *sorted = NULL;
    mimo_status status = MIMO_OK;
    MIMO_TRY(mimo_reserve(&sorted, count, sizeof *sorted));
    for (int64_t i = 0; status == MIMO_OK && i < count; i++) {
        status = mimo_pattern_rename(&out[i], pattern, from, to, &keys[i]);
        sorted[i] = (renamed){&out[i], &keys[i]};
    }
    if (status == MIMO_OK) {
        qsort(sorted, (size_t)count, sizeof *sorted, by_name);
        status = check_once(sorted, count);
    }
    mimo_release(sorted);
    return status;
}
