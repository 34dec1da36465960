/* Patterns of the captioner's LLM: which stage gets which layers, and what is refused. */
#include <stdio.h>
#include <string.h>

#include "train/model/layer_layout.h"
#include "expect_failure.h"

static layer_layout made(layer_layout_desc desc)
{
    layer_layout layout = {0};
    SUCCEEDS(layer_layout_create(&layout, &desc));
    return layout;
}

/* Segment by segment, with the kinds of the items as letters: b of both, a, m. */
static void expect_segments(layer_layout_desc desc, const char *expected)
{
    char text[128] = "";
    size_t used = 0;
    layer_layout layout = made(desc);
    for (int64_t s = 0; s < desc.stages * layout.chunks; s++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", s > 0 ? "|" : "");
        for (int64_t i = layout.bounds[s]; i < layout.bounds[s + 1]; i++) {
            const nn_block_kind *kind = layer_layout_kind(&layout, i);
            const char letter = kind == &nn_block_dense ? 'b' : kind == &nn_block_mlp ? 'm' : 'a';
            used += (size_t)snprintf(text + used, sizeof text - used, "%c", letter);
        }
    }
    cr_assert_str_eq(text, expected);
    cr_assert_eq(layout.chunks, desc.chunks);
    layer_layout_release(&layout);
}

Test(layer_layout, segments)
{
    expect_segments((layer_layout_desc){NULL, 5, 2, 1}, "bb|bbb");
    expect_segments((layer_layout_desc){NULL, 2, 2, 2}, "|b||b");
    expect_segments((layer_layout_desc){NULL, 1, 1, 1}, "b");
    expect_segments((layer_layout_desc){"[*-][*-]", 0, 2, 1}, "b|b");
    expect_segments((layer_layout_desc){"*-*-", 4, 2, 1}, "am|am");
    expect_segments((layer_layout_desc){"[*-][*-]|-*|-", 0, 3, 1}, "bb|ma|m");
    expect_segments((layer_layout_desc){"||[*-]|", 0, 2, 2}, "||b|");
    expect_segments((layer_layout_desc){"[*]|[-]|", 0, 1, 1}, "am");
}

/* Texts that a checkpoint has of a pattern. */
static void expect_spelt(const char *pattern, bool usual, const char *expected)
{
    char text[40];
    layer_layout layout = made((layer_layout_desc){pattern, 0, 1, 1});
    layer_layout_spell(text, sizeof text, &layout);
    cr_assert_str_eq(text, expected);
    cr_assert_eq(layout.usual, usual);
    layer_layout_release(&layout);
}

Test(layer_layout, spelling)
{
    expect_spelt("[*-]|[*-]", true, "[*-][*-]");
    expect_spelt("*-|*-", false, "*-*-");
    expect_spelt("[*]-|[*-]", false, "[*]-[*-]");
    expect_spelt("*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*", false,
                 "*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*");
}

/* Patterns that do not fit differ where they differ in brackets alone. */
Test(layer_layout, spelling_of_a_long_one)
{
    char texts[2][40];
    static const char *const patterns[] = {"*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*",
                                           "*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*[-]*"};
    for (int i = 0; i < 2; i++) {
        layer_layout layout = made((layer_layout_desc){patterns[i], 0, 1, 1});
        layer_layout_spell(texts[i], sizeof texts[i], &layout);
        layer_layout_release(&layout);
    }
    cr_assert(strncmp(texts[0], "41 layers with the hash ", 24) == 0, "%s", texts[0]);
    cr_assert(strcmp(texts[0], texts[1]) != 0, "%s", texts[0]);
}

Test(layer_layout, refusals)
{
    static const struct {
        layer_layout_desc desc;
        const char *sentence;
    } rows[] = {
        {{"MX", 0, 2, 1}, "--llm-pattern MX: pattern, column 2: 'X' is no layer"},
        {{"[-*]", 0, 2, 1}, "pattern, column 3: '*' after '-': an MLP or MoE layer ends its group"},
        {{"|", 0, 2, 1}, "--llm-pattern |: pattern: no layer"},
        {{"M*-", 0, 1, 1}, "--llm-pattern M*-: the captioner has no layer 'M'"},
        {{"[*E]|[*-]", 0, 2, 1}, "the captioner has no layer 'E'"},
        {{"*-/*", 0, 1, 1}, "the captioner has no MTP part '*'"},
        {{"*-*-", 2, 1, 1}, "--llm-pattern *-*-: 4 blocks, and --llm-layers has 2"},
        {{"[*-]|[*-]|[*-]", 0, 2, 1}, "pattern: 3 segments over pp=2"},
        {{"*-*", 0, 2, 1}, "pattern: 3 layers over pp=2 without '|'"},
        {{"*[*-]-", 0, 2, 1}, "pattern: pp=2 would cut the group [*-]: write '|'"},
        {{"*|-|*|-", 0, 2, 1}, "each of 2 stages gets 2 chunks, and --schedule has 1"},
        {{"*-*-", 0, 2, 2}, "each of 2 stages gets 1 chunks, and --schedule has 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        layer_layout layout = {0};
        FAILS(layer_layout_create(&layout, &rows[i].desc), MIMO_ERR_ARGUMENT, rows[i].sentence);
        layer_layout_release(&layout);
    }
}
