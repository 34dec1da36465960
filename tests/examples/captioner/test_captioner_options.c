/* The captioner's command line: every flag, every refusal. */
#include <stdlib.h>
#include <string.h>

#include "captioner/captions/augment.h"
#include "captioner/training/options.h"
#include "core/check.h"
#include "tools/options/option_costs.h"
#include "expect_failure.h"

enum { MOST_WORDS = 32 };

/* Parse a command line written as one string, with single spaces between words. */
static mimo_status parse(struct options *options, char *line)
{
    char program[] = "captioner";
    char *argv[MOST_WORDS + 1] = {program};
    int argc = 1;
    for (char *save, *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    return options_parse(options, argc, argv);
}

Test(options, defaults)
{
    struct options o;
    char line[] = "";
    SUCCEEDS(parse(&o, line));
    cr_assert_eq(o.asked, OPTION_ASKED_NOTHING);
    cr_assert_str_eq(o.encoder, "tp=2,dp=4");
    cr_assert_str_eq(o.llm, "tp=2,cp=2,dp=2");
    cr_assert(o.image_size == 32 && o.seq == 96 && o.hidden == 128 && o.heads == 8);
    cr_assert(o.encoder_layers == 2 && o.llm_layers == 4);
    cr_assert(o.experts == 0 && !o.expert_grid && !options_expert_grid(&o));
    cr_assert(o.steps == 2000 && o.global_batch == 16 && o.micro_batches == 1 && o.seed == 1);
    cr_assert(o.lr == 2e-3 && o.device == OPTIONS_CPU);
    cr_assert(o.dtype == MIMO_F32 && o.precision == MIMO_F32 && !o.recompute);
    cr_assert(o.decay == 0.01 && o.augment == 0 && o.evaluate_every == 0 && o.save_every == 0);
    cr_assert(!o.llm_pattern);
    cr_assert(!o.cost && o.costs.of[MIMO_STEP_F] == 4 && o.costs.head == 0);
    cr_assert(o.least_images == 0 && o.most_images == 0 && !o.balance);
    cr_assert(!o.samples && !o.prepare && !o.font && !o.emoji_test && !o.out && !o.log);
    cr_assert(!o.names && o.log_hashes == OPTIONS_NO_HASHES);
    cr_assert(!o.save && !o.resume && o.progress == OPTIONS_PROGRESS_AUTO);
}

Test(options, every_flag)
{
    struct options o;
    char models[] = "--encoder dp=8 --llm=cp=4,dp=2 --image-size 64 --seq 160 --hidden 256 "
                    "--heads 16 --layers 3,5 --samples s.bin --out pics --log l.jsonl "
                    "--save a.safetensors --resume b.safetensors --progress bar";
    SUCCEEDS(parse(&o, models));
    cr_assert_str_eq(o.encoder, "dp=8");
    cr_assert_str_eq(o.llm, "cp=4,dp=2");
    cr_assert(o.image_size == 64 && o.seq == 160 && o.hidden == 256 && o.heads == 16);
    cr_assert(o.encoder_layers == 3 && o.llm_layers == 5);
    cr_assert_str_eq(o.samples, "s.bin");
    cr_assert_str_eq(o.out, "pics");
    cr_assert_str_eq(o.log, "l.jsonl");
    cr_assert_str_eq(o.save, "a.safetensors");
    cr_assert_str_eq(o.resume, "b.safetensors");
    cr_assert_eq(o.progress, OPTIONS_PROGRESS_BAR);
    char training[] = "--steps 7 --global-batch 32 --micro-batches 4 --seed 18446744073709551615 "
                      "--lr 2.5e-4 --device cuda --dtype bf16 --encoder-layers 1 --llm-layers 9 "
                      "--precision bf16 --recompute";
    SUCCEEDS(parse(&o, training));
    cr_assert(o.steps == 7 && o.global_batch == 32 && o.micro_batches == 4);
    cr_assert(o.seed == UINT64_MAX && o.lr == 2.5e-4);
    cr_assert(o.device == OPTIONS_CUDA);
    cr_assert(o.dtype == MIMO_BF16 && o.precision == MIMO_BF16 && o.recompute);
    cr_assert(o.encoder_layers == 1 && o.llm_layers == 9);
    char pattern[] = "--llm-pattern [*-]|*-", both[] = "--layers 1,3 --llm-pattern [*-]|*-";
    SUCCEEDS(parse(&o, pattern));
    cr_assert_str_eq(o.llm_pattern, "[*-]|*-");
    cr_assert_eq(o.llm_layers, 0);
    SUCCEEDS(parse(&o, both));
    cr_assert_eq(o.llm_layers, 3);
    char mixtures[] = "--experts 16,4", shared[] = "--experts 16,4 --expert-grid etp=2,ep=2";
    SUCCEEDS(parse(&o, mixtures));
    cr_assert(o.experts == 16 && o.top_k == 4);
    cr_assert_str_eq(options_expert_grid(&o), "etp=1,ep=1");
    SUCCEEDS(parse(&o, shared));
    cr_assert_str_eq(options_expert_grid(&o), "etp=2,ep=2");
    char care[] = "--weight-decay 2.5 --augment colour,shift --evaluate-every 50 --save s "
                  "--save-every 9";
    SUCCEEDS(parse(&o, care));
    cr_assert(o.decay == 2.5 && o.evaluate_every == 50 && o.save_every == 9);
    cr_assert_eq(o.augment, AUGMENT_SHIFT + AUGMENT_COLOUR);
    char none[] = "--weight-decay 0 --augment shift --augment none";
    SUCCEEDS(parse(&o, none));
    cr_assert(o.decay == 0 && o.augment == 0);
    char keys[] = "--save s --keys megatron", own[] = "--save s";
    SUCCEEDS(parse(&o, keys));
    cr_assert(o.megatron_keys);
    SUCCEEDS(parse(&o, own));
    cr_assert(!o.megatron_keys);
    char images[] = "--images 0-4 --balance", number[] = "--images 3";
    SUCCEEDS(parse(&o, images));
    cr_assert(o.least_images == 0 && o.most_images == 4 && o.balance);
    SUCCEEDS(parse(&o, number));
    cr_assert(o.least_images == 3 && o.most_images == 3 && !o.balance);
    char hashes[] = "--log l --log-hashes", tensors[] = "--log l --log-hashes=tensors";
    SUCCEEDS(parse(&o, hashes));
    cr_assert_eq(o.log_hashes, OPTIONS_HASHES);
    SUCCEEDS(parse(&o, tensors));
    cr_assert_eq(o.log_hashes, OPTIONS_TENSOR_HASHES);
    char fixed[] = "--same-bits --log l", plain[] = "--log-hashes=none --same-bits --log l";
    SUCCEEDS(parse(&o, fixed));
    cr_assert_eq(o.log_hashes, OPTIONS_HASHES, "the mode is there to be compared");
    SUCCEEDS(parse(&o, plain));
    cr_assert_eq(o.log_hashes, OPTIONS_NO_HASHES);
    char fast[] = "--log l", unlogged[] = "--same-bits";
    SUCCEEDS(parse(&o, fast));
    cr_assert_eq(o.log_hashes, OPTIONS_NO_HASHES);
    SUCCEEDS(parse(&o, unlogged));
    cr_assert_eq(o.log_hashes, OPTIONS_NO_HASHES);
    char prepare[] = "--prepare s.bin --font f.ttf --emoji-test e.txt --names n.txt";
    SUCCEEDS(parse(&o, prepare));
    cr_assert_str_eq(o.prepare, "s.bin");
    cr_assert_str_eq(o.font, "f.ttf");
    cr_assert_str_eq(o.emoji_test, "e.txt");
    cr_assert_str_eq(o.names, "n.txt");
}

Test(options, ranks_that_are_lost)
{
    struct options o;
    char survive[] = "--survive --save-memory 3";
    SUCCEEDS(parse(&o, survive));
    cr_assert(o.survive && !o.survive[0] && o.save_memory == 3);
    char grids[] = "--survive=7:;6: --save s --save-every 2";
    SUCCEEDS(parse(&o, grids));
    cr_assert_str_eq(o.survive, "7:;6:");
}

/* As a run prints them. */
Test(options, costs)
{
    struct options o;
    char *text = NULL;
    size_t size = 0;
    char some[] = "--cost B=9 --cost f=412,b=830,hop=3,head=40";
    SUCCEEDS(parse(&o, some));
    cr_assert(o.costs.of[MIMO_STEP_F] == 412 && o.costs.of[MIMO_STEP_B] == 830);
    cr_assert(o.costs.head == 40 && o.costs.hop == 3 && o.costs.of[MIMO_STEP_EB] == 2);
    FILE *stream = open_memstream(&text, &size);
    option_print_step_costs(stream, &o.costs);
    fclose(stream);
    cr_assert_str_eq(text, "f=412,b=830,i=4,w=4,e=1,eb=2,head=40");
    mimo_step_costs read = MIMO_STEP_COSTS_INIT;
    SUCCEEDS(option_read_step_costs(&read, text));
    cr_assert(memcmp(read.of, o.costs.of, sizeof read.of) == 0 && read.head == 40);
    free(text);
}

Test(options, node_costs)
{
    struct options o;
    char some[] = "--experts 4,2 --overlap --node-cost mlp=9 --node-cost mlp=4,mlp.dw=7,encoder2=1";
    cr_assert_neq(parse(&o, some), MIMO_OK);
    char right[] = "--experts 4,2 --overlap --node-cost pre=9 --node-cost mlp=4,mlp.dw=7";
    SUCCEEDS(parse(&o, right));
    cr_assert(o.node_costs.of[MIMO_NODE_MLP][MIMO_NODE_FORWARD] == 4);
    cr_assert(o.node_costs.of[MIMO_NODE_MLP][MIMO_NODE_WEIGHTS] == 7);
    cr_assert(o.node_costs.of[MIMO_NODE_PRE][MIMO_NODE_FORWARD] == 3); /* the last one counts */
}

static const struct {
    const char *line, *part;
} refusals[] = {
    {"--bogus", "unknown flag \"--bogus\""},
    {"--bogus=3", "unknown flag \"--bogus=3\""},
    {"--steps 3 --bogus 4", "unknown flag \"--bogus\""},
    {"-x", "unknown flag \"-x\""},
    {"-xyz", "unknown flag \"-xyz\""},
    {"stray", "\"stray\" is no flag"},
    {"--steps 3 stray", "\"stray\" is no flag"},
    {"--steps", "--steps needs a value, N"},
    {"--s 3", "\"--s\" may mean"},
    {"--help=3", "--help takes no value"},
    {"--steps=", "--steps needs a whole number, not \"\""},
    {"--steps 3x", "--steps needs a whole number, not \"3x\""},
    {"--steps 0x10", "--steps needs a whole number"},
    {"--steps -1", "--steps must be from 0 to 1000000000, not -1"},
    {"--steps 99999999999999999999", "--steps must be from"},
    {"--global-batch 0", "--global-batch must be from 1"},
    {"--micro-batches 0", "--micro-batches must be from 1"},
    {"--micro-batches 17", "--micro-batches 17 are more than the samples of --global-batch 16"},
    {"--seed -1", "--seed needs a whole number from 0, not \"-1\""},
    {"--seed 18446744073709551616", "--seed must be at most 18446744073709551615"},
    {"--lr 0", "--lr must be above 0 and at most 1, not 0"},
    {"--lr nan", "--lr needs a number, not \"nan\""},
    {"--lr 1e-3s", "--lr needs a number"},
    {"--lr 2", "--lr must be above 0"},
    {"--weight-decay -1", "--weight-decay must be from 0 to 100, not -1"},
    {"--weight-decay 101", "--weight-decay must be from 0 to 100, not 101"},
    {"--weight-decay 1s", "--weight-decay needs a number, not \"1s\""},
    {"--augment blur", "--augment must be none, or some of shift|flip|colour with commas"},
    {"--augment shift,", "with commas, not \"shift,\""},
    {"--augment none,shift", "with commas, not \"none,shift\""},
    {"--augment=", "with commas, not \"\""},
    {"--images 0", "--images must be from 1 to 64, not 0"},
    {"--images 0-0", "--images (B) must be from 1 to 64, not 0"},
    {"--images 3-2", "--images (A) must be from 0 to 2, not 3"},
    {"--images -2", "--images (A) needs a whole number, not \"\""},
    {"--images 1-2-3", "--images (B) needs a whole number, not \"2-3\""},
    {"--capacity=9", "--capacity is for rows of experts: give --experts with it"},
    {"--balance", "--balance needs samples of several pictures: give --images with it"},
    {"--evaluate-every 0", "--evaluate-every must be from 1"},
    {"--save s --save-every 0", "--save-every must be from 1"},
    {"--save-every 5", "--save-every needs a file: give --save FILE with it"},
    {"--survive", "--survive goes back to what was saved last: give --save-every or --save-memory"},
    {"--survive= --save-memory 1", "--survive needs a value"},
    {"--save-memory 1", "--save-memory is for ranks that outlive others: give --survive with it"},
    {"--survive --save-memory 0", "--save-memory must be from 1"},
    {"--survive --save-memory 1 --evaluate-every 5", "--evaluate-every 5 keeps a best model that"},
    {"--survive --save-memory 1 --device cuda", "on the host so far, not with --device cuda"},
    {"--image-size 33", "--image-size must be a multiple of the patch of 8, not 33"},
    {"--image-size 144", "--image-size must be from 8 to 136, not 144"},
    {"--seq 16", "--seq 16 leaves no room for a name after 16 image tokens"},
    {"--seq 0", "--seq must be from 1"},
    {"--hidden 100", "--hidden 100 is no multiple of --heads 8"},
    {"--hidden 0", "--hidden must be"},
    {"--heads 0", "--heads must be"},
    {"--layers 2", "--layers needs two numbers"},
    {"--layers 2,x", "--layers (LLM) needs a whole number, not \"x\""},
    {"--layers 0,2", "--layers (encoder) must be from 1 to 1000, not 0"},
    {"--encoder-layers 0", "--encoder-layers must be"},
    {"--llm-layers 1001", "--llm-layers must be"},
    {"--experts 8", "--experts needs two numbers, \"8,2\", not \"8\""},
    {"--experts 0,1", "--experts (E) must be from 1 to 1024, not 0"},
    {"--experts 2,3", "--experts \"2,3\": a token can't have 3 of 2 experts"},
    {"--expert-grid ep=2", "--expert-grid needs experts: give --experts with it"},
    {"--expert-grid=", "--expert-grid needs a value"},
    {"--llm-pattern=", "--llm-pattern needs a value"},
    {"--save s --keys hf", "--keys must be one of own|megatron, not \"hf\""},
    {"--cost=", "--cost needs a value"},
    {"--node-cost mlq=3", "--node-cost has 'mlq=3', and takes the parts of nodes as mlp=4"},
    {"--node-cost mlp=", "--node-cost mlp needs a whole number, not \"\""},
    {"--cost f=4,x=1", "--cost has 'x=1', and takes f, b, i, w, fb, e, bf, bb, eb, head and hop"},
    {"--cost f=4,", "--cost has '', and takes"},
    {"--cost f=4,b", "--cost has 'b', and takes"},
    {"--cost f=1.5", "--cost f needs a whole number, not \"1.5\""},
    {"--cost f=99999999999999999999", "--cost f must be from 0 to 9223372036854775807, not 9999"},
    {"--cost b=-1", "--cost b must be at least 0, not -1"},
    {"--cost f=11111111111111111111111111111111111111111111111111111111111111111111111111111111",
     "which is too long"},
    {"--encoder=", "--encoder needs a value"},
    {"--device gpu", "--device must be one of cpu|cuda, not \"gpu\""},
    {"--dtype f16", "--dtype must be one of f32|bf16, not \"f16\""},
    {"--precision tf32", "--precision must be one of f32|bf16, not \"tf32\""},
    {"--progress no", "--progress must be one of auto|bar|lines, not \"no\""},
    {"--samples a --prepare b", "give one of them"},
    {"--samples a --font b", "--font does not go with it"},
    {"--samples a --names b", "--names does not go with it"},
    {"--names=", "--names needs a value"},
    {"--log-hashes", "--log-hashes needs a log: give --log FILE with it"},
    {"--log l --log-hashes=all", "--log-hashes must be one of tensors|none, not \"all\""},
    {"--log l --log-hashes tensors", "\"tensors\" is no flag"},
    {"--save f --lora-rank 2 --merge f", "--save and --merge are the same file, f: give"},
    {"--save ././f --log ./f", "--log and --save are the same file, ././f"},
    {"--lora-rank 2 --save a.lora --adapter-out a.lora", "--save and --adapter-out are the"},
    {"--samples s --save s", "--samples and --save are the same file, s"},
    {"--lora-rank 2 --save /tmp/. --merge /tmp", "--save and --merge are the same file, /tmp"},
    {"--base f --log f", "--base and --log are the same file, f"},
    {"--resume f --log f", "--resume and --log are the same file, f"},
    {"--adapter f --log f", "--adapter and --log are the same file, f"},
    {"--prepare f --names f", "--names and --prepare are the same file, f"},
    {"--prepare f --font ./f", "--font and --prepare are the same file, f"},
};

Test(options, each_refusal_has_its_sentence)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct options o = {.steps = -7};
        char line[256];
        strcpy(line, refusals[i].line);
        FAILS(parse(&o, line), MIMO_ERR_ARGUMENT, refusals[i].part);
        cr_assert(!strchr(mimo_last_error(), '\n'), "one sentence: %s", mimo_last_error());
        cr_assert_eq(o.steps, -7, "a failed call leaves its output");
    }
}

Test(options, help_and_version_win_over_contradictions)
{
    struct options o;
    char help[] = "--help --hidden 100";
    SUCCEEDS(parse(&o, help));
    cr_assert_eq(o.asked, OPTION_ASKED_HELP);
    char version[] = "--version";
    SUCCEEDS(parse(&o, version));
    cr_assert_eq(o.asked, OPTION_ASKED_VERSION);
}

Test(options, help_explains_each_flag)
{
    static const char *const flags[] = {
        "--encoder=SPEC",
        "--llm=SPEC",
        "--steps=N",
        "--global-batch=B",
        "--micro-batches=M",
        "--seq=S",
        "--seed=K",
        "--lr=X",
        "--weight-decay=X",
        "--augment=LIST",
        "--evaluate-every=N",
        "--save-every=N",
        "--survive[=TEXT]",
        "--save-memory=K",
        "--log=FILE",
        "--log-hashes[=tensors|none]",
        "--image-size=N",
        "--hidden=N",
        "--heads=N",
        "--layers=E,L",
        "--encoder-layers=N",
        "--llm-layers=N",
        "--llm-pattern=TEXT",
        "--cost=LIST",
        "--node-cost=LIST",
        "--keys=own|megatron",
        "--experts=E,K",
        "--expert-grid=SPEC",
        "--samples=FILE",
        "--out=DIR",
        "--save=FILE",
        "--resume=FILE",
        "--device=cpu|cuda",
        "--dtype=f32|bf16",
        "--precision=f32|bf16",
        "--recompute",
        "--prepare=FILE",
        "--font=FILE",
        "--emoji-test=FILE",
        "--names=FILE",
        "--progress=auto|bar|lines",
    };
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    SUCCEEDS(option_answer(stream, options_table(), OPTION_ASKED_HELP));
    SUCCEEDS(option_answer(stream, options_table(), OPTION_ASKED_VERSION));
    fclose(stream);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cr_assert(strstr(text, flags[i]), "%s is not in the help", flags[i]);
    cr_assert(strstr(text, "captioner (mimo-bridge) "));
    free(text);
}
