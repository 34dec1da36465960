#include "train/model/layer_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "schedule/layer_pattern.h"

static const char usual_block[] = "[*-]";

/* Of the first layer of an item: whether it has another one. */
static bool is_pair(const mimo_pattern *pattern, int64_t layer)
{
    return layer + 1 < pattern->count &&
           pattern->layers[layer].item == pattern->layers[layer + 1].item;
}

/* ------------------------------------------ segments ------------------------------------------ */

/* As even as possible: some have no item where there are fewer. */
static mimo_status cut_evenly(layer_layout *out, const layer_layout_desc *desc)
{
    int64_t count = desc->stages * desc->chunks, items = out->items;
    out->chunks = desc->chunks;
    TRY(memory_reserve(&out->bounds, count + 1, sizeof *out->bounds));
    for (int64_t s = 0; s <= count; s++)
        out->bounds[s] = s * items / count;
    return MIMO_OK;
}

static mimo_status cut_by_pattern(layer_layout *out, const layer_layout_desc *desc)
{
    mimo_pattern_segment *segments;
    TRY(mimo_pattern_cut(&segments, &out->chunks, out->pattern, desc->stages));
    int64_t count = desc->stages * out->chunks;
    mimo_status status = memory_reserve(&out->bounds, count + 1, sizeof *out->bounds);
    for (int64_t s = 0; status == MIMO_OK && s < count; s++)
        out->bounds[s + 1] = segments[s].end_item;
    mimo_pattern_release_cut(segments);
    return status;
}

/* ------------------------------------------ reading ------------------------------------------- */

static mimo_status take_pattern(layer_layout *out, const char *text)
{
    TRY(mimo_pattern_create(&out->pattern, text));
    out->items = out->pattern->items;
    out->layers = out->pattern->count;
    return MIMO_OK;
}

static mimo_status check_layers(const mimo_pattern *pattern, int64_t layers)
{
    for (int64_t i = 0; i < pattern->count; i++)
        CHECK(strchr("*-", pattern->layers[i].symbol), MIMO_ERR_ARGUMENT,
              "the captioner has no layer '%c'", pattern->layers[i].symbol);
    CHECK(layers == 0 || pattern->items == layers, MIMO_ERR_ARGUMENT,
          "%" PRId64 " blocks, and --llm-layers has %" PRId64, pattern->items, layers);
    CHECK(pattern->mtp_parts == 0, MIMO_ERR_ARGUMENT, "the captioner has no MTP part '%s'",
          pattern->mtp);
    return MIMO_OK;
}

static mimo_status read_pattern(layer_layout *out, const layer_layout_desc *desc)
{
    TRY(take_pattern(out, desc->pattern));
    TRY(check_layers(out->pattern, desc->layers));
    out->usual = 2 * out->items == out->pattern->count;
    if (desc->stages == 1)
        return cut_evenly(out, desc);
    TRY(cut_by_pattern(out, desc));
    CHECK(out->chunks == desc->chunks, MIMO_ERR_ARGUMENT,
          "each of %d stages gets %" PRId64 " chunks, and --schedule has %" PRId64, desc->stages,
          out->chunks, desc->chunks);
    return MIMO_OK;
}

static mimo_status repeat_block(layer_layout *out, const layer_layout_desc *desc)
{
    char *text;
    size_t length = strlen(usual_block);
    TRY(memory_reserve(&text, desc->layers * (int64_t)length + 1, 1));
    for (int64_t i = 0; i < desc->layers; i++)
        memcpy(text + (size_t)i * length, usual_block, length);
    mimo_status status = take_pattern(out, text);
    memory_release(text);
    TRY(status);
    out->usual = true;
    return cut_evenly(out, desc);
}

mimo_status layer_layout_create(layer_layout *out, const layer_layout_desc *desc)
{
    if (!desc->pattern)
        return repeat_block(out, desc);
    mimo_status status = read_pattern(out, desc);
    return status == MIMO_OK ? status : fail_prefix(status, "--llm-pattern %s: ", desc->pattern);
}

void layer_layout_release(layer_layout *layout)
{
    mimo_pattern_destroy(layout->pattern);
    memory_release(layout->bounds);
    *layout = (layer_layout){0};
}

/* ------------------------------------------- items -------------------------------------------- */

int64_t layer_layout_first(const layer_layout *layout, int64_t item)
{
    int64_t layer = 0;
    while (layout->pattern->layers[layer].item < item)
        layer++;
    return layer;
}

const nn_block_kind *layer_layout_kind(const layer_layout *layout, int64_t item)
{
    const mimo_pattern *pattern = layout->pattern;
    int64_t layer = layer_layout_first(layout, item);
    if (is_pair(pattern, layer))
        return &nn_block_dense;
    return pattern->layers[layer].symbol == '*' ? &nn_block_attention : &nn_block_mlp;
}

/* The letters of all items into at most `capacity` bytes. Returns how many it takes. */
static size_t write_items(char *out, size_t capacity, const mimo_pattern *pattern)
{
    size_t used = 0;
    for (int64_t i = 0; i < pattern->count; i++) {
        const mimo_pattern_layer *layer = &pattern->layers[i];
        bool begins = layer->grouped && (i == 0 || pattern->layers[i - 1].item != layer->item);
        const char letters[] = {begins ? '[' : '\0', layer->symbol,
                                layer->grouped && !is_pair(pattern, i) ? ']' : '\0'};
        for (size_t k = 0; k < sizeof letters; k++)
            if (letters[k] && used++ < capacity)
                out[used - 1] = letters[k];
    }
    return used;
}

void layer_layout_spell(char *out, size_t capacity, const layer_layout *layout)
{
    const mimo_pattern *pattern = layout->pattern;
    size_t length = write_items(out, capacity, pattern);
    uint64_t hash = HASH_START;
    if (length < capacity) {
        out[length] = '\0';
        return;
    }
    for (int64_t i = 0; i < pattern->count; i++) {
        const mimo_pattern_layer *layer = &pattern->layers[i];
        const char letters[] = {layer->symbol, (char)(layer->grouped ? 'g' : '-'),
                                (char)(is_pair(pattern, i) ? 'p' : '-')};
        hash = hash_bytes(hash, letters, sizeof letters);
    }
    snprintf(out, capacity, "%" PRId64 " layers with the hash %016" PRIx64, pattern->count, hash);
}
