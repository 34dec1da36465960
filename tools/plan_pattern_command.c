/* mimo-plan pattern: the layers of a hybrid model, on stages and in checkpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "plan_commands.h"
#include "schedule/pattern_keys.h"

typedef struct pattern_request {
    const char *text;
    int64_t pp;
    bool json;
} pattern_request;

#define OPTION_INTO pattern_request

static const option_row rows[] = {
    OPTION_INT("pp", "N", pp, 1, INT64_MAX, "Stages of the pipeline (1)"),
    OPTION_FLAG("json", json, "Print JSON"),
};

static mimo_status take(void *into, const char *word)
{
    pattern_request *request = into;
    MIMO_CHECK(!request->text, MIMO_ERR_ARGUMENT, "one pattern at a time, and got '%s' and '%s'",
               request->text, word);
    request->text = word;
    return MIMO_OK;
}

static mimo_status check_complete(void *into)
{
    const pattern_request *request = into;
    MIMO_CHECK(request->text, MIMO_ERR_ARGUMENT,
               "a pattern such as M*-M*- is missing; see 'mimo-plan pattern --help'");
    return MIMO_OK;
}

/* ------------------------------------------ answer ------------------------------------------ */

typedef struct placed_pattern {
    const pattern_request *request;
    mimo_pattern *pattern;
    mimo_pattern_segment *segments; /* segments[pp * chunks] */
    int64_t chunks;
    mimo_pattern_key *keys; /* keys[count]: of each layer, in a checkpoint */
    mimo_pattern_key norm;
} placed_pattern;

/* What a layer calls its tensors, up to its class. */
static mimo_pattern_key own_key(const mimo_pattern *pattern, int64_t layer)
{
    mimo_pattern_key key = {.place = -1};
    mimo_layer_class kind = mimo_layer_class_of(pattern->layers[layer].symbol);
    snprintf(key.text, sizeof key.text, "decoder.layers.%" PRId64 ".%s.", layer,
             mimo_layer_class_name(kind));
    return key;
}

static mimo_status place(placed_pattern *out)
{
    const mimo_pattern_key norm = {"decoder.final_norm.", -1};
    MIMO_TRY(mimo_pattern_create(&out->pattern, out->request->text));
    MIMO_TRY(mimo_pattern_cut(&out->segments, &out->chunks, out->pattern, out->request->pp));
    MIMO_TRY(mimo_reserve(&out->keys, out->pattern->count, sizeof *out->keys));
    for (int64_t i = 0; i < out->pattern->count; i++) {
        mimo_pattern_key key = own_key(out->pattern, i);
        MIMO_TRY(mimo_pattern_rename(&out->keys[i], out->pattern, MIMO_KEYS_OF_LAYERS,
                                     MIMO_KEYS_OF_ITEMS, &key));
    }
    return mimo_pattern_rename(&out->norm, out->pattern, MIMO_KEYS_OF_LAYERS, MIMO_KEYS_OF_ITEMS,
                               &norm);
}

static void print_layers(const placed_pattern *placed, const mimo_pattern_segment *segment)
{
    for (int64_t i = segment->begin; i < segment->end; i++) {
        const mimo_pattern_layer *layer = &placed->pattern->layers[i];
        printf("  layer %" PRId64 "  item %" PRId64 "  %c  %s*\n", i, layer->item, layer->symbol,
               placed->keys[i].text);
    }
}

/* Parts lie behind the model's last chunk, whether it has layers or not. Their layers are numbered
 * within a part. */
static const char mtp_key[] = "mtp.layers.%" PRId64 ".mtp_model_layer.layers.%" PRId64 ".%s.";

static const char *mtp_class(const mimo_pattern *pattern, int64_t layer)
{
    return mimo_layer_class_name(mimo_layer_class_of(pattern->mtp[layer]));
}

static void print_mtp_part(const mimo_pattern *pattern, int64_t part)
{
    printf("  MTP part %" PRId64 "  %s  mtp.layers.%" PRId64 ".*\n", part, pattern->mtp, part);
    for (int64_t i = 0; pattern->mtp[i]; i++) {
        printf("    layer %" PRId64 "  %c  ", i, pattern->mtp[i]);
        printf(mtp_key, part, i, mtp_class(pattern, i));
        puts("*");
    }
}

static void print_text(const placed_pattern *placed)
{
    const mimo_pattern *pattern = placed->pattern;
    int64_t pp = placed->request->pp;
    printf("pattern %s: %" PRId64 " layers, %" PRId64 " items, %" PRId64 " MTP parts\n",
           placed->request->text, pattern->count, pattern->items, pattern->mtp_parts);
    for (int64_t i = 0; i < pp * placed->chunks; i++) {
        const mimo_pattern_segment *segment = &placed->segments[i];
        printf("stage %" PRId64 ", chunk %" PRId64 ": %" PRId64 " layers from %" PRId64
               ", items from %" PRId64 "\n",
               i % pp, i / pp, segment->end - segment->begin, segment->begin, segment->first_item);
        print_layers(placed, segment);
        if (i + 1 < pp * placed->chunks)
            continue;
        printf("  final norm  %s*\n", placed->norm.text);
        for (int64_t part = 0; part < pattern->mtp_parts; part++)
            print_mtp_part(pattern, part);
    }
}

static void print_mtp_json(const placed_pattern *placed)
{
    const mimo_pattern *pattern = placed->pattern;
    const char *before = "";
    printf(",\"mtp_stage\":%" PRId64 ",\"mtp_chunk\":%" PRId64 ",\"mtp_keys\":[",
           placed->request->pp - 1, placed->chunks - 1);
    for (int64_t part = 0; part < pattern->mtp_parts; part++)
        for (int64_t i = 0; pattern->mtp[i]; i++) {
            printf("%s\"", before);
            printf(mtp_key, part, i, mtp_class(pattern, i));
            printf("\"");
            before = ",";
        }
    printf("]");
}

/* Letters of patterns need no escape. */
static void print_json(const placed_pattern *placed)
{
    const mimo_pattern *pattern = placed->pattern;
    int64_t pp = placed->request->pp;
    printf("{\"layers\":%" PRId64 ",\"items\":%" PRId64 ",\"mtp_parts\":%" PRId64
           ",\"mtp\":\"%s\",\"final_norm\":\"%s\",\"segments\":[",
           pattern->count, pattern->items, pattern->mtp_parts, pattern->mtp, placed->norm.text);
    for (int64_t i = 0; i < pp * placed->chunks; i++) {
        const mimo_pattern_segment *segment = &placed->segments[i];
        printf("%s{\"stage\":%" PRId64 ",\"chunk\":%" PRId64 ",\"first_layer\":%" PRId64
               ",\"first_item\":%" PRId64 ",\"layers\":[",
               i == 0 ? "" : ",", i % pp, i / pp, segment->begin, segment->first_item);
        for (int64_t k = segment->begin; k < segment->end; k++)
            printf("%s{\"symbol\":\"%c\",\"item\":%" PRId64 ",\"key\":\"%s\"}",
                   k == segment->begin ? "" : ",", pattern->layers[k].symbol,
                   pattern->layers[k].item, placed->keys[k].text);
        printf("]}");
    }
    printf("]");
    if (pattern->mtp_parts > 0)
        print_mtp_json(placed);
    puts("}");
}

int plan_pattern_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan pattern",
        .words = "PATTERN",
        .about =
            "Print the layers of a pattern, their stages and the names of their tensors in "
            "Megatron-LM's checkpoints.\v"
            "M is a mixer; G * D C H + W are self attentions; - and E are MLPs. [*-] is a group, "
            "one transformer layer in checkpoints. '|' ends a stage's chunk, '/' begins an MTP "
            "part.",
        OPTION_ROWS(rows),
        .take = take,
        .check = check_complete,
    };
    pattern_request request = {.pp = 1};
    int status = plan_parse(&table, argc, argv, &request);
    if (status != 0)
        return status;
    placed_pattern placed = {.request = &request};
    if (place(&placed) != MIMO_OK)
        status = plan_fail_library();
    else
        (request.json ? print_json : print_text)(&placed);
    mimo_pattern_destroy(placed.pattern);
    mimo_pattern_release_cut(placed.segments);
    mimo_release(placed.keys);
    return status;
}
