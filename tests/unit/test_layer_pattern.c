/* Patterns of layers: every error, numbers and items, stages, and keys in their three forms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/memory.h"
#include "expect_failure.h"
#include "schedule/pattern_keys.h"

static mimo_pattern *parsed(const char *text)
{
    mimo_pattern *pattern = NULL;
    cr_assert_eq(mimo_pattern_create(&pattern, text), MIMO_OK, "%s: %s", text, mimo_last_error());
    return pattern;
}

/* ------------------------------------------- errors ----------------------------------------- */

Test(layer_pattern, texts_that_are_none)
{
    static const char *const rows[][2] = {
        {"", "pattern: empty"},
        {"MX", "pattern, column 2: 'X' is no layer (M G * D C H + W - E)"},
        {"*-/*x", "pattern, column 5: 'x' is no layer (M G * D C H + W - E)"},
        {"[*-", "pattern, column 1: '[' is not closed"},
        {"*-]", "pattern, column 3: ']' without '['"},
        {"[]", "pattern, column 1: an empty group"},
        {"[*[-]]", "pattern, column 3: a group inside a group"},
        {"[*|-]", "pattern, column 3: '|' inside a group"},
        {"[*/-]", "pattern, column 3: '/' inside a group"},
        {"[E*]", "pattern, column 3: '*' after 'E': an MLP or MoE layer ends its group"},
        {"[-*]", "pattern, column 3: '*' after '-': an MLP or MoE layer ends its group"},
        {"[MM]", "pattern, column 3: 'M' after 'M': a group has one mixer at most"},
        {"[*G]", "pattern, column 3: 'G' after '*': a group has one self_attention at most"},
        {"[-E]", "pattern, column 3: 'E' after '-': a group has one mlp at most"},
        {"*D", "pattern: '*' and 'D' in one model"},
        {"*-/D", "pattern: '*' and 'D' in one model"},
        {"*-/[*-]", "pattern, column 4: a group in an MTP part"},
        {"*-/*|-", "pattern, column 5: '|' in an MTP part"},
        {"*-/", "pattern, column 4: an empty MTP part"},
        {"*-//*", "pattern, column 4: an empty MTP part"},
        {"*-/*-/*", "pattern: MTP part 2 is '*', part 1 is '*-'"},
        {"*-/*/*-", "pattern: MTP part 2 is '*-', part 1 is '*'"},
        {"/*-", "pattern: no layer before the MTP parts"},
        {"|", "pattern: no layer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mimo_pattern *pattern = NULL;
        FAILS(mimo_pattern_create(&pattern, rows[i][0]), MIMO_ERR_ARGUMENT, "");
        cr_assert_str_eq(mimo_last_error(), rows[i][1]);
        cr_assert_null(pattern);
    }
}

static void refused_cut(const char *text, int64_t pp, const char *sentence)
{
    mimo_pattern *pattern = parsed(text);
    mimo_pattern_segment *segments = NULL;
    int64_t chunks = -7;
    FAILS(mimo_pattern_cut(&segments, &chunks, pattern, pp), MIMO_ERR_ARGUMENT, "");
    cr_assert_str_eq(mimo_last_error(), sentence);
    cr_assert(!segments && chunks == -7);
    mimo_pattern_destroy(pattern);
}

Test(layer_pattern, stages_that_do_not_divide)
{
    refused_cut("[*-]|[*-]|[*-]", 2, "pattern: 3 segments over pp=2");
    refused_cut("M*-", 2, "pattern: 3 layers over pp=2 without '|'");
    refused_cut("[*-][M*-]*", 2, "pattern: pp=2 would cut the group [M*-]: write '|'");
    refused_cut("*-", 0, "pattern: pp=0");
}

/* ------------------------------------------ numbers ----------------------------------------- */

Test(layer_pattern, layers_and_items)
{
    mimo_pattern *pattern = parsed("M[M*]-");
    const char symbols[] = "MM*-";
    const int64_t items[] = {0, 1, 1, 2};
    cr_assert(pattern->count == 4 && pattern->items == 3 && pattern->grouped);
    for (int i = 0; i < 4; i++)
        cr_assert(pattern->layers[i].symbol == symbols[i] && pattern->layers[i].item == items[i]);
    mimo_pattern_destroy(pattern);
    pattern = parsed("GDCHW+E/-E/-E");
    cr_assert(pattern->count == 7 && pattern->items == 7 && !pattern->grouped);
    cr_assert(pattern->mtp_parts == 2 && strcmp(pattern->mtp, "-E") == 0);
    mimo_pattern_destroy(pattern);
}

/* "p.v:layers from number, items from item", of every segment. */
static void expect_stages(const char *text, int64_t pp, const char *expected)
{
    mimo_pattern *pattern = parsed(text);
    mimo_pattern_segment *segments;
    int64_t chunks;
    char found[400] = "";
    SUCCEEDS(mimo_pattern_cut(&segments, &chunks, pattern, pp));
    for (int64_t i = 0; i < chunks * pp; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "(%d,%d) %d+%d %d+%d; ",
                 (int)(i % pp), (int)(i / pp), (int)segments[i].begin,
                 (int)(segments[i].end - segments[i].begin), (int)segments[i].first_item,
                 (int)(segments[i].end_item - segments[i].first_item));
    cr_assert_str_eq(found, expected);
    mimo_pattern_release_cut(segments);
    mimo_pattern_destroy(pattern);
}

Test(layer_pattern, segments_of_stages)
{
    expect_stages("[*-]|[*E]|[*E]|[*E]", 2,
                  "(0,0) 0+2 0+1; (1,0) 2+2 1+1; (0,1) 4+2 2+1; (1,1) 6+2 3+1; ");
    expect_stages("[*E]|[*E]|[*E]|/*E", 2,
                  "(0,0) 0+2 0+1; (1,0) 2+2 1+1; (0,1) 4+2 2+1; (1,1) 6+0 3+0; ");
    expect_stages("*[*-][*-]*", 2, "(0,0) 0+3 0+2; (1,0) 3+3 2+2; ");
    expect_stages("[*-]||[*E]|", 2, "(0,0) 0+2 0+1; (1,0) 2+0 1+0; (0,1) 2+2 1+1; (1,1) 4+0 2+0; ");
    expect_stages("M*-M*-", 1, "(0,0) 0+6 0+6; ");
    expect_stages("*-|*-*-", 1, "(0,0) 0+2 0+2; (0,1) 2+4 2+4; ");
}

/* -------------------------------------------- keys ------------------------------------------ */

static mimo_pattern_key key_of(const char *text, int64_t place)
{
    mimo_pattern_key key = {.place = place};
    snprintf(key.text, sizeof key.text, "%s", text);
    return key;
}

/* A tensor has this name in this form, and the other one in the other form; both ways. */
static void expect_key(const mimo_pattern *pattern, const char *own, mimo_key_form form,
                       const char *other, int64_t place)
{
    mimo_pattern_key from = key_of(own, -1), to = key_of(other, place), found;
    cr_assert_eq(mimo_pattern_rename(&found, pattern, MIMO_KEYS_OF_LAYERS, form, &from), MIMO_OK,
                 "%s: %s", own, mimo_last_error());
    cr_assert_str_eq(found.text, other);
    cr_assert_eq(found.place, place, "%s: place %d", own, (int)found.place);
    if (*other == '\0')
        return;
    cr_assert_eq(mimo_pattern_rename(&found, pattern, form, MIMO_KEYS_OF_LAYERS, &to), MIMO_OK,
                 "%s: %s", other, mimo_last_error());
    cr_assert_str_eq(found.text, own);
    cr_assert_eq(found.place, -1);
}

Test(layer_pattern, keys_of_groups)
{
    mimo_pattern *pattern = parsed("M[M*]-[*-]");
    static const char *const rows[][2] = {
        {"decoder.layers.0.mixer.in_proj.weight", "decoder.layers.0.mixer.in_proj.weight"},
        {"decoder.layers.1.norm.weight", "decoder.layers.1.norm.weight"},
        {"decoder.layers.2.self_attention.linear_qkv.weight",
         "decoder.layers.1.self_attention.linear_qkv.weight"},
        {"decoder.layers.3.mlp.linear_fc1.weight", "decoder.layers.2.mlp.linear_fc1.weight"},
        {"decoder.layers.3.anything.weight", "decoder.layers.2.anything.weight"},
        {"decoder.layers.4.self_attention.linear_proj.weight",
         "decoder.layers.3.self_attention.linear_proj.weight"},
        {"model.decoder.layers.5.pre_mlp_layernorm.weight",
         "model.decoder.layers.3.pre_mlp_layernorm.weight"},
        {"decoder.final_norm.weight", "decoder.final_layernorm.weight"},
        {"embedding.word_embeddings.weight", "embedding.word_embeddings.weight"},
        {"output_layer.weight", "output_layer.weight"},
        {"output_layer._extra_state", ""},
        {"vision_decoder.layers.7.mlp.weight", "vision_decoder.layers.7.mlp.weight"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_key(pattern, rows[i][0], MIMO_KEYS_OF_ITEMS, rows[i][1], -1);
    mimo_pattern_destroy(pattern);
}

/* Without groups a checkpoint has the model's own names. */
Test(layer_pattern, keys_without_groups)
{
    static const char *const names[] = {"decoder.layers.2.self_attention.linear_qkv.weight",
                                        "decoder.final_norm.weight", "output_layer._extra_state"};
    mimo_pattern *pattern = parsed("M-*E/*E");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_key(pattern, names[i], MIMO_KEYS_OF_ITEMS, names[i], -1);
    mimo_pattern_destroy(pattern);
}

Test(layer_pattern, keys_of_gpt)
{
    mimo_pattern *pattern = parsed("M*-M|*-");
    expect_key(pattern, "decoder.layers.1.self_attention.linear_qkv.weight", MIMO_KEYS_OF_GPT,
               "decoder.layers.self_attention.linear_qkv.weight", 0);
    expect_key(pattern, "decoder.layers.4.self_attention.linear_qkv.weight", MIMO_KEYS_OF_GPT,
               "decoder.layers.self_attention.linear_qkv.weight", 1);
    expect_key(pattern, "decoder.layers.5.mlp.linear_fc2.weight", MIMO_KEYS_OF_GPT,
               "decoder.layers.mlp.linear_fc2.weight", 1);
    expect_key(pattern, "decoder.layers.3.mixer.in_proj.weight", MIMO_KEYS_OF_GPT, "", -1);
    expect_key(pattern, "decoder.final_norm.weight", MIMO_KEYS_OF_GPT,
               "decoder.final_layernorm.weight", -1);
    expect_key(pattern, "output_layer._extra_state", MIMO_KEYS_OF_GPT, "", -1);
    mimo_pattern_destroy(pattern);
}

static void refused_key(const char *text, mimo_key_form from, mimo_key_form to, const char *name,
                        int64_t place, const char *words)
{
    mimo_pattern *pattern = parsed(text);
    mimo_pattern_key key = key_of(name, place), found;
    FAILS(mimo_pattern_rename(&found, pattern, from, to, &key), MIMO_ERR_ARGUMENT, words);
    mimo_pattern_destroy(pattern);
}

Test(layer_pattern, keys_that_are_refused)
{
    const mimo_key_form own = MIMO_KEYS_OF_LAYERS, items = MIMO_KEYS_OF_ITEMS,
                        gpt = MIMO_KEYS_OF_GPT;
    char longest[256] = "decoder.layers.9.mlp."; /* of layer 10 */
    memset(longest + strlen(longest), 'x', 255 - strlen(longest));
    refused_key("[*-]", own, items, "decoder.layers.2.mlp.w", -1, "there are 2 layers");
    refused_key("[*-]", items, own, "decoder.layers.1.mlp.w", -1, "there are 1 items");
    refused_key("[*-]", items, own, "decoder.layers.99999999999999999999.mlp.w", -1, "1 items");
    refused_key("[*-]", own, items, "decoder.layers.mlp.w", -1,
                "decoder.layers.mlp.w: there are 2");
    refused_key("[*-]", own, items, "decoder.layers.-1.mlp.w", -1, "there are 2 layers");
    refused_key("[*-]", items, own, "decoder.layers.0.mixer.w", -1,
                "decoder.layers.0.mixer.w: no layer of the group has such a tensor");
    refused_key("[*-]", own, items, "decoder.layers.1.input_layernorm.w", -1,
                "decoder.layers.1.input_layernorm.w: layer 1 is '-', which has no such tensor");
    refused_key("M*-", own, gpt, "decoder.layers.2.norm.w", -1,
                "layer 2 is '-', which has no such");
    refused_key("*-", gpt, own, "decoder.layers.mlp.w", 1, "decoder.layers.mlp.w has no layer 1");
    refused_key("*-", gpt, own, "decoder.layers.mlp.w", -1, "has no layer -1");
    refused_key("G-", own, gpt, "x", -1, "layer 0 is 'G', which GPT has not");
    refused_key("*-/*-", own, gpt, "x", -1, "GPT has no MTP part");
    refused_key("*-*E", own, gpt, "x", -1, "1 '-' and 1 'E', and GPT has one kind of MLP");
    refused_key("**-", gpt, own, "x", -1, "2 attentions and 1 MLPs");
    refused_key("M*-", own, MIMO_KEYS_OF_ITEMS, "decoder.layers.3.x", -1, "there are 3 layers");
    refused_key("[*E]*********", items, own, longest, -1, "is too long");
}

/* A tensor of the model that is named twice, as by two stages. */
Test(layer_pattern, keys_that_meet)
{
    mimo_pattern *pattern = parsed("[*-]");
    mimo_pattern_key keys[3] = {key_of("decoder.layers.0.input_layernorm.weight", -1),
                                key_of("decoder.layers.1.mlp.linear_fc1.weight", -1),
                                key_of("decoder.layers.00.input_layernorm.weight", -1)};
    mimo_pattern_key found[3];
    FAILS(mimo_pattern_rename_all(found, pattern, MIMO_KEYS_OF_LAYERS, MIMO_KEYS_OF_ITEMS, keys, 3),
          MIMO_ERR_ARGUMENT, "decoder.layers.0.input_layernorm.weight",
          "decoder.layers.00.input_layernorm.weight",
          " both get the key decoder.layers.0.input_layernorm.weight");
    SUCCEEDS(
        mimo_pattern_rename_all(found, pattern, MIMO_KEYS_OF_LAYERS, MIMO_KEYS_OF_ITEMS, keys, 2));
    cr_assert_str_eq(found[1].text, "decoder.layers.0.mlp.linear_fc1.weight");
    mimo_pattern_destroy(pattern);
}

/* Random patterns: all tensors of layers have their own names in a checkpoint, and come back. */
Test(layer_pattern, keys_of_random_patterns)
{
    static const char *const items[] = {"M",    "*",     "-",    "E",   "[*-]",
                                        "[M*]", "[M*E]", "[*E]", "[M-]"};
    for (uint64_t seed = 0; seed < 500; seed++) {
        char text[200] = "";
        for (uint64_t i = 0; i < 1 + seed % 12; i++)
            strcat(text, items[mimo_mix64(seed * 100 + i) % 9]);
        mimo_pattern *pattern = parsed(text);
        mimo_pattern_key keys[40], found[40], again[40];
        for (int64_t i = 0; i < pattern->count; i++)
            snprintf(keys[i].text, sizeof keys[i].text, "decoder.layers.%d.%s.weight", (int)i,
                     mimo_layer_class_name(mimo_layer_class_of(pattern->layers[i].symbol)));
        cr_assert_eq(mimo_pattern_rename_all(found, pattern, MIMO_KEYS_OF_LAYERS,
                                             MIMO_KEYS_OF_ITEMS, keys, pattern->count),
                     MIMO_OK, "%s: %s", text, mimo_last_error());
        cr_assert_eq(mimo_pattern_rename_all(again, pattern, MIMO_KEYS_OF_ITEMS,
                                             MIMO_KEYS_OF_LAYERS, found, pattern->count),
                     MIMO_OK, "%s: %s", text, mimo_last_error());
        for (int64_t i = 0; i < pattern->count; i++)
            cr_assert_str_eq(again[i].text, keys[i].text);
        mimo_pattern_destroy(pattern);
    }
}
