#include "tools/options/option_costs.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "core/check.h"
#include "tools/options/option_table.h"

enum { ITEM = 80 };

/* Reads one item, "f=4", of an option. */
typedef mimo_status (*item_reader)(void *costs, const char *option, const char *item);

/* Up to the first item that fails. */
static mimo_status read_items(void *costs, const char *option, const char *text, item_reader read)
{
    char item[ITEM];
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        MIMO_CHECK(length < sizeof item, MIMO_ERR_ARGUMENT, "%s has '%s...', which is too long",
                   option, item);
        MIMO_TRY(read(costs, option, item));
        at += length;
        if (!*at)
            return MIMO_OK;
    }
}

static mimo_status read_cost(int64_t *out, const char *option, const char *item)
{
    char flag[ITEM + 16];
    size_t name = strcspn(item, "=");
    snprintf(flag, sizeof flag, "%s %.*s", option, (int)name, item);
    return option_read_int(out, flag, item + name + 1, 0, INT64_MAX);
}

static bool is_word(const char *word, const char *name, size_t length)
{
    return strlen(word) == length && strncmp(word, name, length) == 0;
}

/* -------------------------------------------- steps ------------------------------------------- */

#define STEP_WORD(name, cost, what) [MIMO_STEP_##name] = #name,
static const char *const step_words[MIMO_STEP_KINDS] = {MIMO_STEP_LIST(STEP_WORD)};
#undef STEP_WORD

/* The cost that a name of `length` letters means, or NULL. */
static int64_t *cost_named(mimo_step_costs *costs, const char *name, size_t length)
{
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++)
        if (strlen(step_words[kind]) == length && strncasecmp(name, step_words[kind], length) == 0)
            return &costs->of[kind];
    if (is_word("head", name, length))
        return &costs->head;
    return is_word("hop", name, length) ? &costs->hop : NULL;
}

static mimo_status read_step(void *into, const char *option, const char *item)
{
    size_t length = strcspn(item, "=");
    int64_t *cost = cost_named(into, item, length);
    MIMO_CHECK(cost && item[length] == '=', MIMO_ERR_ARGUMENT,
               "%s has '%s', and takes f, b, i, w, fb, e, bf, bb, eb, head and hop as f=4", option,
               item);
    return read_cost(cost, option, item);
}

mimo_status option_read_step_costs(mimo_step_costs *out, const char *text)
{
    mimo_step_costs costs = *out;
    MIMO_TRY(read_items(&costs, "--cost", text, read_step));
    *out = costs;
    return MIMO_OK;
}

void option_print_step_costs(FILE *stream, const mimo_step_costs *costs)
{
    static const struct {
        const char *name;
        mimo_step_kind kind;
    } printed[] = {{"f", MIMO_STEP_F}, {"b", MIMO_STEP_B}, {"i", MIMO_STEP_I},
                   {"w", MIMO_STEP_W}, {"e", MIMO_STEP_E}, {"eb", MIMO_STEP_EB}};
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        fprintf(stream, "%s=%" PRId64 ",", printed[i].name, costs->of[printed[i].kind]);
    fprintf(stream, "head=%" PRId64, costs->head);
}

/* -------------------------------------------- nodes ------------------------------------------- */

#define PART_WORD(name, word, lane, what) [MIMO_NODE_##name] = (word),
static const char *const part_words[MIMO_NODE_PARTS] = {MIMO_NODE_PART_LIST(PART_WORD)};
#undef PART_WORD

static bool find_part(mimo_node_part *out, const char *name, size_t length)
{
    for (int part = 0; part < MIMO_NODE_PARTS; part++)
        if (is_word(part_words[part], name, length)) {
            *out = (mimo_node_part)part;
            return true;
        }
    return false;
}

/* A bit for each pass that ".bwd" means; without such an ending all of them; 0: it is none. */
static unsigned find_passes(const char *ending, size_t length)
{
    static const char *const words[MIMO_NODE_PASSES] = {".fwd", ".replay", ".bwd", ".dw"};
    for (unsigned pass = 0; pass < MIMO_NODE_PASSES; pass++)
        if (is_word(words[pass], ending, length))
            return 1u << pass;
    return length == 0 ? (1u << MIMO_NODE_PASSES) - 1 : 0;
}

static mimo_status read_node(void *into, const char *option, const char *item)
{
    mimo_node_costs *costs = into;
    size_t name = strcspn(item, ".="), whole = strcspn(item, "=");
    unsigned passes = find_passes(item + name, whole - name);
    mimo_node_part part;
    int64_t cost;
    MIMO_CHECK(item[whole] == '=' && find_part(&part, item, name) && passes != 0, MIMO_ERR_ARGUMENT,
               "%s has '%s', and takes the parts of nodes as mlp=4 or mlp.dw=4 (.fwd, .replay, "
               ".bwd, .dw)",
               option, item);
    MIMO_TRY(read_cost(&cost, option, item));
    for (unsigned pass = 0; pass < MIMO_NODE_PASSES; pass++)
        if (passes & 1u << pass)
            costs->of[part][pass] = cost;
    return MIMO_OK;
}

mimo_status option_read_node_costs(mimo_node_costs *out, const char *text)
{
    mimo_node_costs costs = *out;
    MIMO_TRY(read_items(&costs, "--node-cost", text, read_node));
    *out = costs;
    return MIMO_OK;
}
