/* Targets of adapters: which linear layers they choose, and those that no layer has. */
#include <string.h>

#include "captioner/training/lora_setup.h"
#include "expect_failure.h"

/* Two kinds of models; the second one has halves of blocks, and mixtures at items 1 and 3. */
static const struct options dense = {.encoder_layers = 1, .llm_layers = 2, .lora_rank = 4};
static const struct options mixed = {
    .encoder_layers = 1, .llm_pattern = "*[*-]*[*-]", .experts = 12, .lora_rank = 4};

static mimo_status make(lora_setup *out, const struct options *model, const char *targets)
{
    struct options options = *model;
    options.lora_targets = targets;
    struct file_content content = {0};
    *out = (lora_setup){0};
    return lora_setup_read(out, &content, &options);
}

static bool chooses(const char *targets, const char *layer)
{
    lora_setup setup;
    cr_assert_eq(make(&setup, &mixed, targets), MIMO_OK, "%s: %s", targets, mimo_last_error());
    bool chosen = nn_lora_for(&setup.choice, layer);
    lora_setup_release(&setup);
    return chosen;
}

Test(lora_setup, single_experts)
{
    static const char *const targets[] = {"experts.3.down",      "3.down",
                                          "mlp.experts.3.down",  "block3.mlp.experts.3.down",
                                          "head,experts.3.down", "llm.block3.mlp.experts.3.down"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        cr_assert(chooses(targets[i], "llm.block3.mlp.experts.3.down"), "%s", targets[i]);
        cr_assert(chooses(targets[i], "llm.block1.mlp.experts.3.down") == !strstr(targets[i], "k3"),
                  "%s", targets[i]);
        cr_assert_not(chooses(targets[i], "llm.block3.mlp.experts.3.up"), "%s", targets[i]);
        cr_assert_not(chooses(targets[i], "llm.block3.mlp.experts.2.down"), "%s", targets[i]);
    }
    cr_assert_not(chooses("experts.1.up", "llm.block1.mlp.experts.11.up"));
    cr_assert_not(chooses("1.up", "llm.block1.mlp.experts.11.up"));
}

Test(lora_setup, each_target_once)
{
    lora_setup setup;
    SUCCEEDS(make(&setup, &mixed, "out,experts.3.down,out,,experts.11.up"));
    cr_assert_eq(setup.choice.n_targets, 3);
    cr_assert_str_eq(setup.choice.targets[0], "experts.11.up");
    cr_assert_str_eq(setup.choice.targets[1], "experts.3.down");
    cr_assert_str_eq(setup.choice.targets[2], "out");
    lora_setup_release(&setup);
    SUCCEEDS(make(&setup, &mixed, "all"));
    cr_assert_null(setup.choice.targets);
    lora_setup_release(&setup);
}

/* A router is no linear layer that can have an adapter. */
Test(lora_setup, targets_that_no_layer_has)
{
    static const struct {
        const struct options *model;
        const char *target;
    } cases[] = {
        {&mixed, "experts.12.up"},
        {&mixed, "experts.03.up"},
        {&mixed, "experts.3"},
        {&mixed, "experts"},
        {&mixed, "experts.-1.up"},
        {&mixed, "xperts.3.up"},
        {&mixed, "llm.block1.mlp.up"},
        {&mixed, "block0.mlp.experts.3.up"},
        {&mixed, "block2.mlp.up"},
        {&mixed, "mlp.router"},
        {&mixed, "router"},
        {&mixed, "shared.up"},
        {&mixed, "block3.mlp.experts.0"},
        {&mixed, "block4.attention.qkv"},
        {&dense, "experts.0.up"},
        {&dense, "block2.mlp.up"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[80], with_another[80];
        lora_setup setup;
        snprintf(words, sizeof words, "\"%s\": no linear layer ends with \".%s\"; there are: patch",
                 cases[i].target, cases[i].target);
        FAILS(make(&setup, cases[i].model, cases[i].target), MIMO_ERR_ARGUMENT, words);
        lora_setup_release(&setup);
        snprintf(with_another, sizeof with_another, "head,%s", cases[i].target);
        FAILS(make(&setup, cases[i].model, with_another), MIMO_ERR_ARGUMENT, words);
        lora_setup_release(&setup);
    }
}
