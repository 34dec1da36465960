/* adapter_config.json: written as Python's json writes it; of what PEFT writes, the four values are
 * read, and everything that this program does not do is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/formats/adapter_config.h"
#include "train/support/train_memory.h"
#include "own_folder.h"

static const char *const up[] = {"up"};
static const struct adapter_config example = {2, 4, false, up, 1, "", ""};

/* What json.dumps(indent=2, sort_keys=True) prints. test_adapter_python.py compares the sum of the
 * whole file. */
#define TEXT(alpha, targets, rslora)         \
    "{\n"                                    \
    "  \"alpha_pattern\": {},\n"             \
    "  \"auto_mapping\": null,\n"            \
    "  \"base_model_name_or_path\": null,\n" \
    "  \"bias\": \"none\",\n"                \
    "  \"fan_in_fan_out\": false,\n"         \
    "  \"inference_mode\": true,\n"          \
    "  \"init_lora_weights\": true,\n"       \
    "  \"lora_alpha\": " alpha ",\n"         \
    "  \"lora_dropout\": 0.0,\n"             \
    "  \"modules_to_save\": null,\n"         \
    "  \"peft_type\": \"LORA\",\n"           \
    "  \"r\": 2,\n"                          \
    "  \"rank_pattern\": {},\n"              \
    "  \"target_modules\": " targets ",\n"   \
    "  \"task_type\": null,\n"               \
    "  \"use_dora\": false,\n"               \
    "  \"use_rslora\": " rslora "\n"         \
    "}"
#define UP "[\n    \"up\"\n  ]"

static void expect_text(const struct adapter_config *config, const char *want)
{
    char *text = NULL;
    SUCCEEDS(adapter_config_text(&text, config));
    cr_assert_str_eq(text, want);
    memory_release(text);
}

Test(adapter_config, golden)
{
    cr_assert_eq(strlen(TEXT("4", UP, "false")), 409);
    expect_text(&example, TEXT("4", UP, "false"));
}

Test(adapter_config, numbers_as_python_prints_them)
{
    static const struct {
        double alpha;
        const char *want;
    } cases[] = {
        {16, TEXT("16", UP, "false")},         {-0.0, TEXT("0", UP, "false")},
        {-3, TEXT("-3", UP, "false")},         {0.5, TEXT("0.5", UP, "false")},
        {0.1, TEXT("0.1", UP, "false")},       {1e-5, TEXT("1e-05", UP, "false")},
        {0.0001, TEXT("0.0001", UP, "false")}, {1.0 / 3, TEXT("0.3333333333333333", UP, "false")},
        {12.75, TEXT("12.75", UP, "false")},   {1e21, TEXT("1000000000000000000000", UP, "false")},
        {5e-324, TEXT("5e-324", UP, "false")}, {1234567.5, TEXT("1234567.5", UP, "false")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct adapter_config config = example;
        config.alpha = cases[i].alpha;
        expect_text(&config, cases[i].want);
    }
    struct adapter_config largest = example;
    char *text = NULL;
    largest.alpha = 0x1.fffffffffffffp1023;
    SUCCEEDS(adapter_config_text(&text, &largest));
    cr_assert_eq(strlen(text), 409 - 1 + 309);
    memory_release(text);
}

Test(adapter_config, targets_as_python_prints_them)
{
    static const char *const three[] = {"mlp \"x\\y\"", "qkv", "\xc3\xa9\xf0\x9f\x98\x80"};
    static const char *const all[] = {ADAPTER_ALL_LINEAR};
    struct adapter_config config = {2, 4, true, three, 3, "", ""};
    expect_text(&config, TEXT("4",
                              "[\n    \"mlp \\\"x\\\\y\\\"\",\n    \"qkv\",\n    "
                              "\"\\u00e9\\ud83d\\ude00\"\n  ]",
                              "true"));
    config = (struct adapter_config){2, 4, false, all, 1, "", ""};
    expect_text(&config, TEXT("4", "\"all-linear\"", "false"));
}

static mimo_status parse(struct adapter_config **out, const char *text)
{
    return adapter_config_parse(out, text, (int64_t)strlen(text), "x/adapter_config.json");
}

/* The room for the text is a bound of what the targets take: here of many short ones, and of many
 * in which every 2 bytes become 6. */
Test(adapter_config, many_targets)
{
    enum { MANY = 4096 };
    static char names[MANY][8];
    static const char *list[MANY];
    for (int escaped = 0; escaped < 2; escaped++) {
        struct adapter_config config = {1024, -0x1.fffffffffffffp1023, true, list, MANY, "", ""};
        struct adapter_config *read = NULL;
        char *text = NULL;
        for (int i = 0; i < MANY; i++) {
            int high = 0x80 + i / 64, low = 0x80 + i % 64; /* U+00C0 to U+00FF, twice */
            snprintf(names[i], sizeof names[i], escaped ? "\xc3%c\xc3%c" : "%c%c",
                     escaped ? high : '0' + i / 64, escaped ? low : '0' + i % 64);
            list[i] = names[i];
        }
        SUCCEEDS(adapter_config_text(&text, &config));
        SUCCEEDS(parse(&read, text));
        cr_assert_eq(read->target_count, MANY);
        for (int i = 0; i < MANY; i++)
            cr_assert_str_eq(read->targets[i], names[i]);
        memory_release(read);
        memory_release(text);
    }
}

/* Where "modules_to_save" comes next, as keys are sorted. */
Test(adapter_config, hashes)
{
    struct adapter_config config = example;
    struct adapter_config *read = NULL;
    char *text = NULL;
    adapter_hash_print(config.tensors, UINT64_C(0x123456789abcdef));
    SUCCEEDS(adapter_config_text(&text, &config));
    cr_assert(strstr(text, "\"lora_dropout\": 0.0,\n"
                           "  \"mimo_bridge\": {\n"
                           "    \"tensors\": \"0123456789abcdef\"\n"
                           "  },\n"
                           "  \"modules_to_save\": null,\n"),
              "%s", text);
    memory_release(text);
    adapter_hash_print(config.base, UINT64_MAX);
    SUCCEEDS(adapter_config_text(&text, &config));
    cr_assert(strstr(text, "{\n"
                           "    \"base\": \"ffffffffffffffff\",\n"
                           "    \"tensors\": \"0123456789abcdef\"\n"
                           "  },\n"),
              "%s", text);
    SUCCEEDS(parse(&read, text));
    cr_assert_str_eq(read->base, config.base);
    cr_assert_str_eq(read->tensors, config.tensors);
    expect_text(read, text);
    memory_release(read);
    memory_release(text);
}

Test(adapter_config, values_that_no_file_can_have)
{
    static const char *const twice[] = {"up", "up"}, *const unsorted[] = {"up", "down"};
    static const char *const control[] = {"u\np"}, *const empty[] = {""};
    static const char *const mixed[] = {"all-linear", "up"};
    static const struct {
        struct adapter_config config;
        const char *part;
    } cases[] = {
        {{0, 4, false, up, 1, "", ""}, "rank 0: at least 1, at most 1024"},
        {{1025, 4, false, up, 1, "", ""}, "rank 1025"},
        {{2, NAN, false, up, 1, "", ""}, "alpha nan"},
        {{2, INFINITY, false, up, 1, "", ""}, "alpha inf"},
        {{2, 4, false, NULL, 0, "", ""}, "needs a target"},
        {{2, 4, false, twice, 2, "", ""}, "target \"up\" comes behind \"up\""},
        {{2, 4, false, unsorted, 2, "", ""}, "target \"down\" comes behind \"up\""},
        {{2, 4, false, control, 1, "", ""}, "target 0 is not printable"},
        {{2, 4, false, empty, 1, "", ""}, "target 0 is not printable"},
        {{2, 4, false, mixed, 2, "", ""}, "\"all-linear\" is there beside other targets"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        FAILS(adapter_config_text(&text, &cases[i].config), MIMO_ERR_ARGUMENT, cases[i].part);
        cr_assert_null(text);
    }
}

static struct adapter_config *parsed(const char *text)
{
    struct adapter_config *config = NULL;
    SUCCEEDS(parse(&config, text));
    return config;
}

Test(adapter_config, reads_what_it_writes)
{
    static const char *const names[] = {"a\"\\", "up", "\xc3\xa9\xf0\x9f\x98\x80"};
    static const char *const all[] = {ADAPTER_ALL_LINEAR};
    const struct adapter_config cases[] = {{1, 1.0 / 3, true, names, 3, "", ""},
                                           {1024, -1e300, false, all, 1, "", ""},
                                           {2, 4, false, up, 1, "", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        SUCCEEDS(adapter_config_text(&text, &cases[i]));
        struct adapter_config *config = parsed(text);
        cr_assert_eq(config->rank, cases[i].rank);
        cr_assert_eq(config->alpha, cases[i].alpha);
        cr_assert_eq(config->rslora, cases[i].rslora);
        cr_assert_eq(config->target_count, cases[i].target_count);
        for (int64_t t = 0; t < config->target_count; t++)
            cr_assert_str_eq(config->targets[t], cases[i].targets[t]);
        expect_text(config, text);
        memory_release(config);
        memory_release(text);
    }
}

#define MUST "\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16"
#define FULL MUST ", \"target_modules\": [\"up\"]"

/* PEFT 0.21.2 writes these, in one place or another. */
Test(adapter_config, takes_what_changes_nothing)
{
    struct adapter_config *config = parsed(
        "{" MUST ", \"target_modules\": [\"up\", \"down\", \"qkv\", \"up\"],"
        " \"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null,"
        " \"auto_mapping\": {\"base_model_class\": \"M\"}, \"bias\": \"none\","
        " \"base_model_name_or_path\": \"x\", \"corda_config\": null, \"eva_config\": null,"
        " \"exclude_modules\": null, \"fan_in_fan_out\": null, \"inference_mode\": true,"
        " \"init_lora_weights\": \"gaussian\", \"layer_replication\": [], \"layers_pattern\": null,"
        " \"layers_to_transform\": null, \"loftq_config\": {}, \"lora_bias\": false,"
        " \"lora_dropout\": 0.1,"
        " \"modules_to_save\": [], \"peft_version\": \"0.21.2\", \"qalora_group_size\": 16,"
        " \"ensure_weight_tying\": false, \"kasa_config\": null, \"lora_ga_config\": {\"scale\": "
        "1},"
        " \"megatron_config\": null, \"megatron_core\": \"megatron.core\","
        " \"monteclora_config\": null, \"task_type\": \"CAUSAL_LM\", \"velora_config\": null,"
        " \"rank_pattern\": {}, \"revision\": null, \"target_parameters\": null,"
        " \"trainable_token_indices\": null, \"use_bdlora\": null, \"use_dora\": false,"
        " \"use_qalora\": false, \"use_rslora\": true, \"of tomorrow\": null}\r\n\t ");
    cr_assert(config->rank == 8 && config->alpha == 16 && config->rslora);
    cr_assert_eq(config->target_count, 3);
    cr_assert_str_eq(config->targets[0], "down");
    cr_assert_str_eq(config->targets[1], "qkv");
    cr_assert_str_eq(config->targets[2], "up");
    memory_release(config);
    config = parsed("{" MUST ", \"target_modules\": [\"a.router\", \"router\", \"a.routers\"]}");
    cr_assert_eq(config->target_count, 1);
    cr_assert_str_eq(config->targets[0], "a.routers");
    memory_release(config);
    config = parsed("{" MUST ", \"target_modules\": \"ALL-linear\"}");
    cr_assert(config->target_count == 1 && !config->rslora);
    cr_assert_str_eq(config->targets[0], ADAPTER_ALL_LINEAR);
    memory_release(config);
}

struct refusal {
    const char *text, *part;
};

static void expect_refusals(const struct refusal *cases, size_t count, mimo_status status)
{
    for (size_t i = 0; i < count; i++) {
        struct adapter_config *config = NULL;
        FAILS(parse(&config, cases[i].text), status, "x/adapter_config.json: ", cases[i].part);
        cr_assert_null(config, "%s", cases[i].text);
    }
}
#define REFUSED(cases, status) expect_refusals(cases, sizeof(cases) / sizeof *(cases), status)

Test(adapter_config, texts_that_go_on_behind_a_0)
{
    static const struct refusal cases[] = {
        {"{" MUST ", \"target_modules\": [\"up\\u0000per\"]}", "a text with the character 0"},
    };
    REFUSED(cases, MIMO_ERR_IO);
}

Test(adapter_config, other_kinds_of_adapters)
{
    static const struct refusal cases[] = {
        {"{\"peft_type\": \"IA3\"}", "\"peft_type\" is \"IA3\", and this program takes only \"LO"},
        {"{\"peft_type\": 3}", "\"peft_type\" is 3,"},
        {"{" FULL ", \"use_dora\": true}", "\"use_dora\" is true, and this program takes only fa"},
        {"{" FULL ", \"use_dora\": 1}", "\"use_dora\" is 1,"},
        {"{" FULL ", \"use_qalora\": true}", "\"use_qalora\" is true,"},
        {"{" FULL ", \"lora_bias\": true}", "\"lora_bias\" is true,"},
        {"{" FULL ", \"fan_in_fan_out\": true}", "\"fan_in_fan_out\" is true,"},
        {"{" FULL ", \"bias\": \"all\"}", "\"bias\" is \"all\", and this program takes only \"no"},
        {"{" FULL ", \"bias\": false}", "\"bias\" is false,"},
        {"{" FULL ", \"modules_to_save\": [\"head\"]}",
         "\"modules_to_save\" is [\"head\"], and this program takes only null"},
        {"{" FULL ", \"rank_pattern\": {\"up\": 4}}",
         "\"rank_pattern\" is {\"up\":4}, and this program takes only {}"},
        {"{" FULL ", \"alpha_pattern\": {\"up\": 4}}", "\"alpha_pattern\" is {\"up\":4},"},
        {"{" FULL ", \"layer_replication\": [[0, 2]]}", "\"layer_replication\" is [[0,2]],"},
        {"{" FULL ", \"alora_invocation_tokens\": [1]}", "\"alora_invocation_tokens\" is [1],"},
        {"{" FULL ", \"arrow_config\": {\"k\": 1}}", "\"arrow_config\" is {\"k\":1},"},
        {"{" FULL ", \"exclude_modules\": [\"experts.3.up\"]}",
         "\"exclude_modules\" is [\"experts.3.up\"], and this program takes only null"},
        {"{" FULL ", \"exclude_modules\": \"llm.*up\"}", "\"exclude_modules\" is \"llm.*up\","},
        {"{" FULL ", \"layers_to_transform\": [0, 2]}", "\"layers_to_transform\" is [0,2],"},
        {"{" FULL ", \"layers_to_transform\": 0}", "\"layers_to_transform\" is 0,"},
        {"{" FULL ", \"target_parameters\": [\"up\"]}", "\"target_parameters\" is [\"up\"],"},
        {"{" FULL ", \"trainable_token_indices\": [3]}", "\"trainable_token_indices\" is [3],"},
        {"{" FULL ", \"use_bdlora\": {\"nblocks\": 2}}",
         "\"use_bdlora\" is {\"nblocks\":2}, and this program takes only null"},
        {"{" FULL ", \"kasa_config\": {\"beta\": 1}}", "\"kasa_config\" is {\"beta\":1},"},
        {"{" FULL ", \"monteclora_config\": {\"x\": 1}}", "\"monteclora_config\" is {\"x\":1},"},
        {"{" FULL ", \"velora_config\": {\"x\": 1}}", "\"velora_config\" is {\"x\":1},"},
        {"{" FULL ", \"ensure_weight_tying\": true}", "\"ensure_weight_tying\" is true, and"},
        {"{" FULL ", \"megatron_config\": {\"x\": 1}}", "\"megatron_config\" is {\"x\":1},"},
        {"{" FULL ", \"layers_pattern\": [\"h\"]}", "\"layers_pattern\" is [\"h\"],"},
        {"{" FULL ", \"of tomorrow\": [{\"r\": 1}]}",
         "\"of tomorrow\" is [{\"r\":1}], a setting that this program does not know"},
        {"{" FULL ", \"of tomorrow\": false}", "\"of tomorrow\" is false, a setting that"},
        {"{" FULL ", \"USE_DORA\": true}", "\"USE_DORA\" is true, a setting that"},
        {"{" FULL ", \"a\\u001bb\": 1}", "\"a\\u001bb\" is 1, a setting that"},
        {"{" FULL ", \"init_lora_weights\": \"pissa_niter_4\"}",
         "\"init_lora_weights\" is \"pissa_niter_4\", which changes the base weights"},
        {"{" FULL ", \"init_lora_weights\": {}}", "\"init_lora_weights\" is {},"},
        {"{" MUST ", \"target_modules\": [\"a.router\", \"router\"]}",
         "\"target_modules\" is [\"a.router\",\"router\"], and routers have no adapters here"},
        {"{" MUST ", \"target_modules\": \"llm.*up\"}",
         "\"target_modules\" is \"llm.*up\", a pattern, and this program takes only a list"},
    };
    REFUSED(cases, MIMO_ERR_UNSUPPORTED);
}

Test(adapter_config, broken_files)
{
    static const struct refusal cases[] = {
        {"", "it is no JSON object"},
        {"[]", "it is no JSON object"},
        {"{" FULL "", "it is no JSON object"},
        {"{" FULL "} x", "it is no JSON object"},
        {"{" FULL ", \"x\": NaN}", "it is no JSON object"},
        {"{}", "there is no \"peft_type\""},
        {"{\"peft_type\": null}", "there is no \"peft_type\""},
        {"{\"peft_type\": \"LORA\"}", "there is no \"r\""},
        {"{\"peft_type\": \"LORA\", \"r\": 8}", "there is no \"lora_alpha\""},
        {"{" MUST "}", "there is no \"target_modules\""},
        {"{" FULL ", \"r\": 4}", "\"r\" is there twice"},
        {"{" FULL ", \"use_dora\": false, \"use_dora\": true}", "\"use_dora\" is there twice"},
        {"{\"peft_type\": \"LORA\", \"r\": \"8\"}",
         "\"r\" is \"8\", and not a whole number from 1 to 1024"},
        {"{\"peft_type\": \"LORA\", \"r\": 0}", "\"r\" is 0,"},
        {"{\"peft_type\": \"LORA\", \"r\": 1025}", "\"r\" is 1025,"},
        {"{\"peft_type\": \"LORA\", \"r\": 2.5}", "\"r\" is 2.5,"},
        {"{\"peft_type\": \"LORA\", \"r\": 1e300}", "\"r\" is 1e+300,"},
        {"{\"peft_type\": \"LORA\", \"r\": true}", "\"r\" is true,"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": \"16\"}",
         "\"lora_alpha\" is \"16\", and not a finite number"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1e999}", "not a finite number"},
        {"{" FULL ", \"mimo_bridge\": 1}", "\"mimo_bridge\" is 1, and no object"},
        {"{" FULL ", \"mimo_bridge\": {\"base\": 1}}", "\"base\" of \"mimo_bridge\" is 1, and not"},
        {"{" FULL ", \"mimo_bridge\": {\"tensors\": \"0123456789ABCDEF\"}}",
         "\"tensors\" of \"mimo_bridge\" is \"0123456789ABCDEF\", and not 16 hexadecimal digits"},
        {"{" FULL ", \"mimo_bridge\": {\"base\": \"0123456789abcde\"}}", "abcde\", and not 16"},
        {"{" FULL ", \"mimo_bridge\": {\"base\": \"0123456789abcdef0\"}}", "def0\", and not 16"},
        {"{" FULL ", \"mimo_bridge\": {\"seed\": 1}}",
         "\"mimo_bridge\" has \"seed\", which this program does not know"},
        {"{" FULL ", \"use_rslora\": 1}", "\"use_rslora\" is 1, and neither true nor false"},
        {"{" MUST ", \"target_modules\": []}", "\"target_modules\" is [], and neither a list of"},
        {"{" MUST ", \"target_modules\": {\"a\": \"up\"}}", "is {\"a\":\"up\"}, and neither"},
        {"{" MUST ", \"target_modules\": [\"up\", 3]}", "has 3, which is no name of a layer"},
        {"{" MUST ", \"target_modules\": [\"\"]}", "has \"\", which is no name of a layer"},
        {"{" MUST ", \"target_modules\": [\"a\\n\"]}", "has \"a\\n\", which is no name"},
        {"{" MUST ", \"target_modules\": [\"all-linear\"]}", "has \"all-linear\", which is no"},
        {"{" MUST ", \"target_modules\": [\"ALL-linear\"]}", "has \"ALL-linear\", which is no"},
        {"{" MUST ", \"target_modules\": [\"0123456789012345678901234567890123456789"
         "0123456789012345678901234567890123456789\\n\"]}",
         "has \"01234567890123456789012345678901234567890123456789012345678..., which"},
        {"{" MUST ", \"target_modules\": [\"a\xff\"]}", "has \"a..., which is no name"},
    };
    REFUSED(cases, MIMO_ERR_IO);
}

OWN_FOLDER(adapter_config_files, "c.json", .timeout = 60);

Test(adapter_config_files, are_read)
{
    struct adapter_config *config = NULL;
    FAILS(adapter_config_read(&config, NULL, path), MIMO_ERR_NOT_FOUND, "cannot open", path);
    FAILS(adapter_config_read(&config, NULL, folder), MIMO_ERR_IO, folder, "is no ordinary file");
    put_file(path, "{" FULL "}\n", sizeof "{" FULL "}");
    SUCCEEDS(adapter_config_read(&config, NULL, path));
    cr_assert(config->rank == 8 && config->alpha == 16 && config->target_count == 1);
    memory_release(config);
    config = NULL;
    cr_assert_eq(truncate(path, (1 << 20) + 1), 0);
    FAILS(adapter_config_read(&config, NULL, path), MIMO_ERR_IO, path, "has 1048577 bytes");
    cr_assert_eq(truncate(path, 0), 0);
    FAILS(adapter_config_read(&config, NULL, path), MIMO_ERR_IO, path, "it is no JSON object");
    cr_assert_null(config);
}
