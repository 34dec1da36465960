#include "train/formats/adapter_config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/json_text.h"
#include "train/support/utf8.h"

/* The key that only this program knows, and what stands under it. */
#define HASHES "mimo_bridge"
#define BASE "base"
#define TENSORS "tensors"

enum { MOST_BYTES = 1 << 20 }; /* of a file; PEFT's have 1 or 2 thousand */

static bool is_name(const char *text)
{
    return text && text[0] && utf8_printable(text, strlen(text)) == strlen(text);
}

bool adapter_is_router(const char *name, size_t length)
{
    static const char router[] = "router";
    size_t bytes = sizeof router - 1;
    return length >= bytes && memcmp(name + length - bytes, router, bytes) == 0 &&
           (length == bytes || name[length - bytes - 1] == '.');
}

/* ------------------------------------------- writing ------------------------------------------ */

enum {
    PLAIN_ROOM = 2048,     /* everything except the targets: the longest double has 309 digits */
    TARGET_ROOM = 8,       /* line, indentation, quotes and comma of a target */
    ROOM_PER_BYTE = 3,     /* of a target: 2 of them become \u00e9 */
    SURROGATES_AT = 65536, /* code points from here are two of Python's \u escapes */
};

struct text_room {
    char *text;
    size_t used, size;
};

MIMO_PRINTF(2, 3) static void append(struct text_room *room, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(room->text + room->used, room->size - room->used, format, arguments);
    va_end(arguments);
    room->used += (size_t)bytes;
}

/* As Python does: everything outside of ASCII is escaped. */
static void append_string(struct text_room *room, const char *text)
{
    size_t length = strlen(text);
    append(room, "\"");
    for (size_t at = 0; at < length;) {
        uint32_t code = 0;
        at += utf8_next(text + at, length - at, &code); /* is_name: well-formed */
        if (code == '"' || code == '\\')
            append(room, "\\%c", (char)code);
        else if (code < 0x80)
            append(room, "%c", (char)code);
        else if (code < SURROGATES_AT)
            append(room, "\\u%04x", code);
        else
            append(room, "\\u%04x\\u%04x", 0xd800 + ((code - SURROGATES_AT) >> 10),
                   0xdc00 + ((code - SURROGATES_AT) & 0x3ff));
    }
    append(room, "\"");
}

/* As Python writes it: a whole value as an integer, any other as the shortest text that reads back
 * as the same value. For some powers of 2 below 2^-24 this has one digit more than Python's. */
static void append_number(struct text_room *room, double value)
{
    char digits[32];
    if (value == floor(value)) {
        append(room, "%.0f", value + 0.0); /* no -0 */
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    append(room, "%s", digits);
}

static void append_targets(struct text_room *room, const struct adapter_config *config)
{
    if (strcmp(config->targets[0], ADAPTER_ALL_LINEAR) == 0) {
        append_string(room, ADAPTER_ALL_LINEAR);
        return;
    }
    append(room, "[");
    for (int64_t i = 0; i < config->target_count; i++) {
        append(room, "%s\n    ", i > 0 ? "," : "");
        append_string(room, config->targets[i]);
    }
    append(room, "\n  ]");
}

void adapter_hash_print(adapter_hash out, uint64_t hash)
{
    snprintf(out, sizeof(adapter_hash), "%016" PRIx64, hash);
}

/* Nothing where no hash is known: the file is then as PEFT writes it. */
static void append_hashes(struct text_room *room, const struct adapter_config *config)
{
    const char *base = config->base, *tensors = config->tensors;
    if (!base[0] && !tensors[0])
        return;
    append(room, "  \"" HASHES "\": {");
    if (base[0])
        append(room, "\n    \"" BASE "\": \"%s\"", base);
    if (tensors[0])
        append(room, "%s\n    \"" TENSORS "\": \"%s\"", base[0] ? "," : "", tensors);
    append(room, "\n  },\n");
}

static bool is_hash(const char *text)
{
    return strlen(text) == ADAPTER_HASH_DIGITS &&
           strspn(text, "0123456789abcdef") == ADAPTER_HASH_DIGITS;
}

static mimo_status check_config(const struct adapter_config *config)
{
    CHECK(config->rank >= 1 && config->rank <= ADAPTER_MOST_RANK, MIMO_ERR_ARGUMENT,
          "an adapter cannot have rank %" PRId64 ": at least 1, at most %d", config->rank,
          ADAPTER_MOST_RANK);
    CHECK(isfinite(config->alpha), MIMO_ERR_ARGUMENT, "an adapter cannot have alpha %g",
          config->alpha);
    CHECK(config->target_count >= 1, MIMO_ERR_ARGUMENT, "an adapter needs a target");
    for (int64_t i = 0; i < config->target_count; i++) {
        const char *target = config->targets[i];
        CHECK(is_name(target), MIMO_ERR_ARGUMENT, "target %" PRId64 " is not printable UTF-8", i);
        CHECK(i == 0 || strcmp(config->targets[i - 1], target) < 0, MIMO_ERR_ARGUMENT,
              "target \"%s\" comes behind \"%s\", and not in the order of their bytes", target,
              config->targets[i - 1]);
        CHECK(config->target_count == 1 || strcmp(target, ADAPTER_ALL_LINEAR) != 0,
              MIMO_ERR_ARGUMENT, "\"%s\" is there beside other targets", target);
    }
    return MIMO_OK;
}

mimo_status adapter_config_text(char **out, const struct adapter_config *config)
{
    struct text_room room = {NULL, 0, PLAIN_ROOM};
    TRY(check_config(config));
    for (int64_t i = 0; i < config->target_count; i++)
        room.size += ROOM_PER_BYTE * strlen(config->targets[i]) + TARGET_ROOM;
    TRY(memory_reserve(&room.text, (int64_t)room.size, 1));
    append(&room, "{\n"
                  "  \"alpha_pattern\": {},\n"
                  "  \"auto_mapping\": null,\n"
                  "  \"base_model_name_or_path\": null,\n"
                  "  \"bias\": \"none\",\n"
                  "  \"fan_in_fan_out\": false,\n"
                  "  \"inference_mode\": true,\n"
                  "  \"init_lora_weights\": true,\n"
                  "  \"lora_alpha\": ");
    append_number(&room, config->alpha);
    append(&room, ",\n"
                  "  \"lora_dropout\": 0.0,\n");
    append_hashes(&room, config);
    append(&room,
           "  \"modules_to_save\": null,\n"
           "  \"peft_type\": \"LORA\",\n"
           "  \"r\": %" PRId64 ",\n"
           "  \"rank_pattern\": {},\n"
           "  \"target_modules\": ",
           config->rank);
    append_targets(&room, config);
    append(&room,
           ",\n"
           "  \"task_type\": null,\n"
           "  \"use_dora\": false,\n"
           "  \"use_rslora\": %s\n"
           "}",
           config->rslora ? "true" : "false");
    *out = room.text;
    return MIMO_OK;
}

/* ------------------------------------------- reading ------------------------------------------ */

/* A value in a sentence: as JSON, cut where it is long or not printable. */
typedef char value_text[64];

static const char *spell(value_text out, const cJSON *value)
{
    static const char cut[] = "...";
    char *json = cJSON_PrintUnformatted(value);
    size_t length = json ? strlen(json) : 0, room = sizeof(value_text) - sizeof cut;
    size_t kept = json ? utf8_printable(json, length < room ? length : room) : 0;
    snprintf(out, sizeof(value_text), "%.*s%s", (int)kept, json ? json : "",
             kept < length || !json ? cut : "");
    cJSON_free(json);
    return out;
}

/* The same of a key, which is any text. */
static const char *spell_name(value_text out, char *key)
{
    return spell(out, &(cJSON){.type = cJSON_String, .valuestring = key});
}

/* The value of a key; NULL where there is none, or null. */
static mimo_status find(const cJSON **out, const cJSON *object, const char *key)
{
    const cJSON *found;
    TRY(json_member(&found, object, key));
    *out = found && !cJSON_IsNull(found) ? found : NULL;
    return MIMO_OK;
}

static mimo_status find_needed(const cJSON **out, const cJSON *object, const char *key)
{
    const cJSON *found;
    TRY(find(&found, object, key));
    CHECK(found, MIMO_ERR_IO, "there is no \"%s\"", key);
    *out = found;
    return MIMO_OK;
}

/* All keys that are known, and the one value that is taken; NULL: any, because the value is read
 * below, or says nothing of what an adapter computes and which layers have one. The settings of
 * initial values (loftq_config and so on) have done their work: check_initial reads whether the
 * base weights are other ones since. */
static const struct known_key {
    const char *key, *only;
} known_keys[] = {
    {"alora_invocation_tokens", "null"},
    {"alpha_pattern", "{}"},
    {"arrow_config", "null"},
    {"auto_mapping", NULL},
    {"base_model_name_or_path", NULL},
    {"bias", "\"none\""},
    {"corda_config", NULL},
    {"ensure_weight_tying", "false"},
    {"eva_config", NULL},
    {"exclude_modules", "null"},
    {"fan_in_fan_out", "false"},
    {"inference_mode", NULL},
    {"init_lora_weights", NULL},
    {"kasa_config", "null"},
    {"layer_replication", "null"},
    {"layers_pattern", "null"},
    {"layers_to_transform", "null"},
    {"loftq_config", NULL},
    {"lora_alpha", NULL},
    {"lora_bias", "false"},
    {"lora_dropout", NULL},
    {"lora_ga_config", NULL},
    {"megatron_config", "null"},
    {"megatron_core", NULL}, /* a module's name, for megatron_config */
    {HASHES, NULL},
    {"modules_to_save", "null"},
    {"monteclora_config", "null"},
    {"peft_type", "\"LORA\""},
    {"peft_version", NULL},
    {"qalora_group_size", NULL}, /* for use_qalora */
    {"r", NULL},
    {"rank_pattern", "{}"},
    {"revision", NULL},
    {"target_modules", NULL},
    {"target_parameters", "null"},
    {"task_type", NULL},
    {"trainable_token_indices", "null"},
    {"use_bdlora", "null"},
    {"use_dora", "false"},
    {"use_qalora", "false"},
    {"use_rslora", NULL},
    {"velora_config", "null"},
};

/* Nothing that could be asked for. */
static bool is_empty(const cJSON *value)
{
    return cJSON_IsFalse(value) ||
           ((cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child);
}

static bool is_text(const cJSON *value, const char *text)
{
    return cJSON_IsString(value) && strcmp(value->valuestring, text) == 0;
}

/* Some initial values come with other base weights: the difference is in no file. */
static bool keeps_base(const cJSON *initial)
{
    return cJSON_IsBool(initial) || is_text(initial, "gaussian") || is_text(initial, "eva") ||
           is_text(initial, "orthogonal");
}

static const struct known_key *find_known(const char *key)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (strcmp(known_keys[i].key, key) == 0)
            return &known_keys[i];
    return NULL;
}

static bool fits(const cJSON *value, const char *only)
{
    size_t length = strlen(only);
    if (only[0] != '"')
        return is_empty(value);
    return cJSON_IsString(value) && strlen(value->valuestring) == length - 2 &&
           memcmp(value->valuestring, only + 1, length - 2) == 0;
}

/* A value of null asks for nothing, whatever the key. */
static mimo_status check_key(const cJSON *object, const cJSON *value)
{
    value_text spelled, name;
    const cJSON *once;
    const struct known_key *known = find_known(value->string);
    if (cJSON_IsNull(value))
        return MIMO_OK;
    CHECK(known, MIMO_ERR_UNSUPPORTED,
          "%s is %s, a setting that this program does not know: what it does to the adapter would "
          "be missing",
          spell_name(name, value->string), spell(spelled, value));
    TRY(json_member(&once, object, known->key));
    CHECK(!known->only || fits(value, known->only), MIMO_ERR_UNSUPPORTED,
          "\"%s\" is %s, and this program takes only %s", known->key, spell(spelled, value),
          known->only);
    return MIMO_OK;
}

static mimo_status check_initial(const cJSON *object)
{
    value_text spelled;
    const cJSON *value;
    TRY(find(&value, object, "init_lora_weights"));
    CHECK(!value || keeps_base(value), MIMO_ERR_UNSUPPORTED,
          "\"init_lora_weights\" is %s, which changes the base weights, and this program takes "
          "them as they are",
          spell(spelled, value));
    return MIMO_OK;
}

/* The kind comes first: another one has keys of its own. */
static mimo_status check_keys(const cJSON *object)
{
    const cJSON *item, *kind;
    TRY(find_needed(&kind, object, "peft_type"));
    TRY(check_key(object, kind));
    cJSON_ArrayForEach(item, object) TRY(check_key(object, item));
    return check_initial(object);
}

static mimo_status read_numbers(struct adapter_config *config, const cJSON *object)
{
    value_text spelled;
    const cJSON *value;
    TRY(find_needed(&value, object, "r"));
    double rank = cJSON_IsNumber(value) ? value->valuedouble : 0;
    CHECK(rank >= 1 && rank <= ADAPTER_MOST_RANK && rank == floor(rank), MIMO_ERR_IO,
          "\"r\" is %s, and not a whole number from 1 to %d", spell(spelled, value),
          ADAPTER_MOST_RANK);
    config->rank = (int64_t)rank;
    TRY(find_needed(&value, object, "lora_alpha"));
    CHECK(cJSON_IsNumber(value) && isfinite(value->valuedouble), MIMO_ERR_IO,
          "\"lora_alpha\" is %s, and not a finite number", spell(spelled, value));
    config->alpha = value->valuedouble;
    TRY(find(&value, object, "use_rslora"));
    CHECK(!value || cJSON_IsBool(value), MIMO_ERR_IO,
          "\"use_rslora\" is %s, and neither true nor false", spell(spelled, value));
    config->rslora = cJSON_IsTrue(value);
    return MIMO_OK;
}

static mimo_status read_hash(adapter_hash out, const cJSON *hashes, const char *key)
{
    value_text spelled;
    const cJSON *value;
    TRY(find(&value, hashes, key));
    if (!value)
        return MIMO_OK;
    CHECK(cJSON_IsString(value) && is_hash(value->valuestring), MIMO_ERR_IO,
          "\"%s\" of \"" HASHES "\" is %s, and not %d hexadecimal digits", key,
          spell(spelled, value), ADAPTER_HASH_DIGITS);
    strcpy(out, value->valuestring);
    return MIMO_OK;
}

static mimo_status read_hashes(struct adapter_config *config, const cJSON *object)
{
    value_text spelled;
    const cJSON *value;
    TRY(find(&value, object, HASHES));
    CHECK(!value || cJSON_IsObject(value), MIMO_ERR_IO, "\"" HASHES "\" is %s, and no object",
          spell(spelled, value));
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
        CHECK(strcmp(item->string, BASE) == 0 || strcmp(item->string, TENSORS) == 0, MIMO_ERR_IO,
              "\"" HASHES "\" has %s, which this program does not know",
              spell_name(spelled, item->string));
    TRY(read_hash(config->base, value, BASE));
    return read_hash(config->tensors, value, TENSORS);
}

/* copy_config leaves routers out. */
static mimo_status check_more_than_routers(const cJSON *targets)
{
    value_text spelled;
    const cJSON *item;
    bool others = cJSON_IsString(targets);
    cJSON_ArrayForEach(item, targets) others =
        others || !adapter_is_router(item->valuestring, strlen(item->valuestring));
    CHECK(others, MIMO_ERR_UNSUPPORTED,
          "\"target_modules\" is %s, and routers have no adapters here", spell(spelled, targets));
    return MIMO_OK;
}

static mimo_status find_targets(const cJSON **out, const cJSON *object)
{
    value_text spelled;
    const cJSON *value, *item;
    TRY(find_needed(&value, object, "target_modules"));
    CHECK(!cJSON_IsString(value) || strcasecmp(value->valuestring, ADAPTER_ALL_LINEAR) == 0,
          MIMO_ERR_UNSUPPORTED,
          "\"target_modules\" is %s, a pattern, and this program takes only a list of names or "
          "\"" ADAPTER_ALL_LINEAR "\"",
          spell(spelled, value));
    CHECK(cJSON_IsString(value) || (cJSON_IsArray(value) && value->child), MIMO_ERR_IO,
          "\"target_modules\" is %s, and neither a list of names nor \"" ADAPTER_ALL_LINEAR "\"",
          spell(spelled, value));
    cJSON_ArrayForEach(item, value)
    {
        CHECK(cJSON_IsString(item) && is_name(item->valuestring) &&
                  strcasecmp(item->valuestring, ADAPTER_ALL_LINEAR) != 0,
              MIMO_ERR_IO, "\"target_modules\" has %s, which is no name of a layer",
              spell(spelled, item));
    }
    *out = value;
    return check_more_than_routers(value);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One piece of memory: the configuration, the list of targets, their texts. */
static mimo_status copy_config(struct adapter_config **out, const struct adapter_config *numbers,
                               const cJSON *targets)
{
    int64_t count = 0, bytes = sizeof ADAPTER_ALL_LINEAR;
    const cJSON *item;
    cJSON_ArrayForEach(item, targets)
    {
        count++;
        bytes += (int64_t)strlen(item->valuestring) + 1;
    }
    int64_t most = count > 0 ? count : 1;
    struct adapter_config *config;
    TRY(memory_reserve(&config, (int64_t)sizeof *config + most * (int64_t)sizeof(char *) + bytes,
                       1));
    const char **list = (const char **)(config + 1);
    char *text = (char *)(list + most);
    list[0] = strcpy(text, ADAPTER_ALL_LINEAR);
    text += sizeof ADAPTER_ALL_LINEAR;
    count = 0;
    cJSON_ArrayForEach(item, targets)
    {
        if (adapter_is_router(item->valuestring, strlen(item->valuestring)))
            continue;
        list[count++] = strcpy(text, item->valuestring);
        text += strlen(text) + 1;
    }
    *config = *numbers;
    config->targets = list;
    config->target_count = 1; /* "all-linear", and the first of a list */
    qsort(list, (size_t)count, sizeof *list, by_bytes);
    for (int64_t i = 1; i < count; i++)
        if (strcmp(list[i], list[config->target_count - 1]) != 0)
            list[config->target_count++] = list[i];
    *out = config;
    return MIMO_OK;
}

static mimo_status understand(struct adapter_config **out, const cJSON *object)
{
    struct adapter_config numbers = {0};
    const cJSON *targets = NULL;
    CHECK(cJSON_IsObject(object), MIMO_ERR_IO, "it is no JSON object");
    TRY(check_keys(object));
    TRY(read_numbers(&numbers, object));
    TRY(read_hashes(&numbers, object));
    TRY(find_targets(&targets, object));
    return copy_config(out, &numbers, targets);
}

mimo_status adapter_config_parse(struct adapter_config **out, const char *text, int64_t length,
                                 const char *path)
{
    const char *end = text;
    cJSON *object = cJSON_ParseWithLengthOpts(text, (size_t)length, &end, 0);
    while (object && end < text + length && strchr(" \t\r\n", *end))
        end++;
    mimo_status status = json_has_nul(text, (size_t)length)
                             ? mimo_fail(MIMO_ERR_IO, "it has a text with the character 0")
                             : understand(out, end == text + length ? object : NULL);
    cJSON_Delete(object);
    if (status != MIMO_OK && status != MIMO_ERR_MEMORY)
        fail_prefix(status, "%s: ", path);
    return status;
}

static mimo_status read_file(struct adapter_config **out, struct file_content *content,
                             const struct input_file *file)
{
    char *text;
    int64_t bytes = file->size;
    CHECK(bytes <= MOST_BYTES, MIMO_ERR_IO,
          "%s has %" PRId64 " bytes, and a configuration at most %d", file->path, bytes,
          MOST_BYTES);
    TRY(memory_reserve(&text, bytes + 1, 1));
    mimo_status status = input_file_read(file, text, bytes, 0);
    if (status == MIMO_OK)
        status = adapter_config_parse(out, text, bytes, file->path);
    if (status == MIMO_OK && content)
        *content = (struct file_content){bytes, hash_bytes(HASH_START, text, (size_t)bytes)};
    memory_release(text);
    return status;
}

mimo_status adapter_config_read(struct adapter_config **out, struct file_content *content,
                                const char *path)
{
    struct input_file file = INPUT_FILE_INIT;
    mimo_status status = input_file_open(&file, path);
    if (status == MIMO_OK)
        status = read_file(out, content, &file);
    input_file_close(&file);
    return status;
}
