#include "schedule/layer_pattern.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"

/* ------------------------------------------- letters ---------------------------------------- */

static const char all_layers[] = "M G * D C H + W - E";

mimo_layer_class mimo_layer_class_of(char symbol)
{
    switch (symbol) {
    case 'M':
        return MIMO_LAYER_MIXER;
    case 'G':
    case '*':
    case 'D':
    case 'C':
    case 'H':
    case '+':
    case 'W':
        return MIMO_LAYER_ATTENTION;
    case '-':
    case 'E':
        return MIMO_LAYER_MLP;
    default:
        return MIMO_LAYER_NONE;
    }
}

const char *mimo_layer_class_name(mimo_layer_class kind)
{
    static const char *const names[] = {[MIMO_LAYER_NONE] = "none",
                                        [MIMO_LAYER_MIXER] = "mixer",
                                        [MIMO_LAYER_ATTENTION] = "self_attention",
                                        [MIMO_LAYER_MLP] = "mlp"};
    return names[kind];
}

/* ------------------------------------------ reading ----------------------------------------- */

/* Where the reading of a text stands. */
typedef struct reader {
    mimo_pattern *pattern;
    const char *text;
    int64_t at;    /* the letter to read */
    int64_t group; /* where the open group begins, or -1 */
    int64_t first; /* its first layer */
    int64_t mtp;   /* where the MTP part begins that is read, or -1 */
} reader;

#define COLUMN "pattern, column %" PRId64 ": "

/* Segments need the memory of all '|', layers that of all letters. */
static mimo_status reserve_pattern(mimo_pattern **out, const char *text)
{
    mimo_pattern *pattern = NULL;
    int64_t length = (int64_t)strlen(text), segments = 1;
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; i < length; i++)
        segments += text[i] == '|';
    MIMO_TRY(mimo_reserve(&pattern, 1, sizeof *pattern));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&pattern->layers, length, sizeof *pattern->layers));
    MIMO_TRY_GOTO(status, fail,
                  mimo_reserve(&pattern->segments, segments, sizeof *pattern->segments));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&pattern->mtp, length + 1, 1));
    pattern->nsegments = 1;
    *out = pattern;
    return MIMO_OK;
fail:
    mimo_pattern_destroy(pattern);
    return status;
}

/* A layer behind others of its group. */
static mimo_status check_in_group(const reader *own, char symbol)
{
    const mimo_pattern *pattern = own->pattern;
    mimo_layer_class kind = mimo_layer_class_of(symbol);
    for (int64_t i = own->first; i < pattern->count; i++)
        MIMO_CHECK(mimo_layer_class_of(pattern->layers[i].symbol) != kind, MIMO_ERR_ARGUMENT,
                   COLUMN "'%c' after '%c': a group has one %s at most", own->at + 1, symbol,
                   pattern->layers[i].symbol, mimo_layer_class_name(kind));
    char last = pattern->count > own->first ? pattern->layers[pattern->count - 1].symbol : '\0';
    MIMO_CHECK(mimo_layer_class_of(last) != MIMO_LAYER_MLP, MIMO_ERR_ARGUMENT,
               COLUMN "'%c' after '%c': an MLP or MoE layer ends its group", own->at + 1, symbol,
               last);
    return MIMO_OK;
}

static mimo_status read_layer(reader *own, char symbol)
{
    mimo_pattern *pattern = own->pattern;
    bool grouped = own->group >= 0;
    MIMO_CHECK(mimo_layer_class_of(symbol) != MIMO_LAYER_NONE, MIMO_ERR_ARGUMENT,
               COLUMN "'%c' is no layer (%s)", own->at + 1, symbol, all_layers);
    if (own->mtp >= 0)
        return MIMO_OK;
    if (grouped)
        MIMO_TRY(check_in_group(own, symbol));
    pattern->layers[pattern->count++] = (mimo_pattern_layer){symbol, grouped, pattern->items};
    pattern->items += grouped ? 0 : 1;
    return MIMO_OK;
}

static mimo_status open_group(reader *own)
{
    MIMO_CHECK(own->mtp < 0, MIMO_ERR_ARGUMENT, COLUMN "a group in an MTP part", own->at + 1);
    MIMO_CHECK(own->group < 0, MIMO_ERR_ARGUMENT, COLUMN "a group inside a group", own->at + 1);
    own->group = own->at;
    own->first = own->pattern->count;
    own->pattern->grouped = true;
    return MIMO_OK;
}

static mimo_status close_group(reader *own)
{
    MIMO_CHECK(own->group >= 0, MIMO_ERR_ARGUMENT, COLUMN "']' without '['", own->at + 1);
    MIMO_CHECK(own->pattern->count > own->first, MIMO_ERR_ARGUMENT, COLUMN "an empty group",
               own->group + 1);
    own->group = -1;
    own->pattern->items++;
    return MIMO_OK;
}

static void end_segment(mimo_pattern *pattern)
{
    mimo_pattern_segment *segment = &pattern->segments[pattern->nsegments - 1];
    segment->end = pattern->count;
    segment->end_item = pattern->items;
}

static mimo_status next_segment(reader *own)
{
    mimo_pattern *pattern = own->pattern;
    MIMO_CHECK(own->mtp < 0, MIMO_ERR_ARGUMENT, COLUMN "'|' in an MTP part", own->at + 1);
    MIMO_CHECK(own->group < 0, MIMO_ERR_ARGUMENT, COLUMN "'|' inside a group", own->at + 1);
    end_segment(pattern);
    pattern->segments[pattern->nsegments++] =
        (mimo_pattern_segment){pattern->count, pattern->count, pattern->items, pattern->items};
    return MIMO_OK;
}

/* The MTP part that ends before own->at is the first one, or equal to it. */
static mimo_status end_mtp(reader *own)
{
    mimo_pattern *pattern = own->pattern;
    int64_t length = own->at - own->mtp;
    const char *part = own->text + own->mtp;
    if (own->mtp < 0)
        return MIMO_OK;
    MIMO_CHECK(length > 0, MIMO_ERR_ARGUMENT, COLUMN "an empty MTP part", own->at + 1);
    pattern->mtp_parts++;
    if (pattern->mtp_parts == 1)
        memcpy(pattern->mtp, part, (size_t)length);
    bool same =
        (size_t)length == strlen(pattern->mtp) && memcmp(part, pattern->mtp, (size_t)length) == 0;
    MIMO_CHECK(same, MIMO_ERR_ARGUMENT, "pattern: MTP part %" PRId64 " is '%.*s', part 1 is '%s'",
               pattern->mtp_parts, (int)length, part, pattern->mtp);
    return MIMO_OK;
}

static mimo_status next_mtp(reader *own)
{
    MIMO_CHECK(own->group < 0, MIMO_ERR_ARGUMENT, COLUMN "'/' inside a group", own->at + 1);
    MIMO_CHECK(own->pattern->count > 0, MIMO_ERR_ARGUMENT,
               "pattern: no layer before the MTP parts");
    MIMO_TRY(end_mtp(own));
    own->mtp = own->at + 1;
    return MIMO_OK;
}

static mimo_status read_letter(reader *own)
{
    switch (own->text[own->at]) {
    case '[':
        return open_group(own);
    case ']':
        return close_group(own);
    case '|':
        return next_segment(own);
    case '/':
        return next_mtp(own);
    default:
        return read_layer(own, own->text[own->at]);
    }
}

/* '*' is attention as the model's options describe it, and the others replace it everywhere. */
static mimo_status check_attentions(const char *text)
{
    size_t other = strcspn(text, "+DCHW");
    MIMO_CHECK(!strchr(text, '*') || text[other] == '\0', MIMO_ERR_ARGUMENT,
               "pattern: '*' and '%c' in one model", text[other]);
    return MIMO_OK;
}

static mimo_status read_all(reader *own)
{
    for (; own->text[own->at]; own->at++)
        MIMO_TRY(read_letter(own));
    MIMO_CHECK(own->group < 0, MIMO_ERR_ARGUMENT, COLUMN "'[' is not closed", own->group + 1);
    MIMO_CHECK(own->pattern->count > 0, MIMO_ERR_ARGUMENT, "pattern: no layer");
    end_segment(own->pattern);
    MIMO_TRY(end_mtp(own));
    return check_attentions(own->text);
}

mimo_status mimo_pattern_create(mimo_pattern **out, const char *text)
{
    mimo_pattern *pattern = NULL;
    MIMO_CHECK(*text, MIMO_ERR_ARGUMENT, "pattern: empty");
    MIMO_TRY(reserve_pattern(&pattern, text));
    reader own = {pattern, text, 0, -1, 0, -1};
    mimo_status status = read_all(&own);
    if (status == MIMO_OK)
        *out = pattern;
    else
        mimo_pattern_destroy(pattern);
    return status;
}

void mimo_pattern_destroy(mimo_pattern *pattern)
{
    if (!pattern)
        return;
    mimo_release(pattern->layers);
    mimo_release(pattern->segments);
    mimo_release(pattern->mtp);
    mimo_release(pattern);
}

/* ------------------------------------------ stages ------------------------------------------ */

/* Layers number and number - 1 are of one group. */
static bool is_inside_group(const mimo_pattern *pattern, int64_t number)
{
    return number > 0 && number < pattern->count && pattern->layers[number].grouped &&
           pattern->layers[number].item == pattern->layers[number - 1].item;
}

/* "[M*-]", the group of a layer. */
static void write_group(char *out, const mimo_pattern *pattern, int64_t number)
{
    int64_t item = pattern->layers[number].item, i = number;
    while (i > 0 && pattern->layers[i - 1].item == item)
        i--;
    *out++ = '[';
    for (; i < pattern->count && pattern->layers[i].item == item; i++)
        *out++ = pattern->layers[i].symbol;
    memcpy(out, "]", 2);
}

/* The items before a layer. */
static int64_t items_before(const mimo_pattern *pattern, int64_t number)
{
    return number < pattern->count ? pattern->layers[number].item : pattern->items;
}

static mimo_status deal_out(mimo_pattern_segment *segments, const mimo_pattern *pattern, int64_t pp)
{
    int64_t each = pattern->count / pp;
    char group[8]; /* three classes, brackets */
    MIMO_CHECK(pattern->count % pp == 0, MIMO_ERR_ARGUMENT,
               "pattern: %" PRId64 " layers over pp=%" PRId64 " without '|'", pattern->count, pp);
    for (int64_t p = 0; p < pp; p++) {
        int64_t begin = p * each, end = begin + each;
        if (is_inside_group(pattern, begin)) {
            write_group(group, pattern, begin);
            return mimo_fail(MIMO_ERR_ARGUMENT,
                             "pattern: pp=%" PRId64 " would cut the group %s: write '|'", pp,
                             group);
        }
        segments[p] = (mimo_pattern_segment){begin, end, items_before(pattern, begin),
                                             items_before(pattern, end)};
    }
    return MIMO_OK;
}

mimo_status mimo_pattern_cut(mimo_pattern_segment **out, int64_t *chunks,
                             const mimo_pattern *pattern, int64_t pp)
{
    int64_t count = pattern->nsegments > 1 ? pattern->nsegments : pp;
    mimo_pattern_segment *segments = NULL;
    mimo_status status = MIMO_OK;
    MIMO_CHECK(pp >= 1, MIMO_ERR_ARGUMENT, "pattern: pp=%" PRId64, pp);
    MIMO_CHECK(count % pp == 0, MIMO_ERR_ARGUMENT, "pattern: %" PRId64 " segments over pp=%" PRId64,
               count, pp);
    MIMO_TRY(mimo_reserve(&segments, count, sizeof *segments));
    if (pattern->nsegments > 1)
        memcpy(segments, pattern->segments, (size_t)count * sizeof *segments);
    else
        MIMO_TRY_GOTO(status, fail, deal_out(segments, pattern, pp));
    *out = segments;
    *chunks = count / pp;
    return MIMO_OK;
fail:
    mimo_release(segments);
    return status;
}

void mimo_pattern_release_cut(mimo_pattern_segment *segments)
{
    mimo_release(segments);
}
