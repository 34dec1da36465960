#include "bridge/bridge_desc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "bridge/bridge_executors.h"
#include "layout/layout_types.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "grid/grid_types.h"
#include "partition/packed_rule.h"

MIMO_DEFINE_INIT(mimo_bridge_desc, MIMO_BRIDGE_DESC_INIT)

/* ------------------------------------- reading ------------------------------------ */

static mimo_status read_rule(const mimo_partition_rule **rule, mimo_partition_rule *own)
{
    if (!*rule)
        return MIMO_OK;
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, *rule, "bridge partition"));
    own->size = sizeof *own;
    *rule = own;
    return MIMO_OK;
}

mimo_status mimo_bridge_request_read(mimo_bridge_request *own, const mimo_comm *comm,
                                     const mimo_bridge_desc *desc)
{
    MIMO_CHECK(desc, MIMO_ERR_ARGUMENT, "bridge: desc is NULL");
    mimo_bridge_desc read = own->desc;
    MIMO_TRY(mimo_read_descriptor(&read, sizeof read, desc, "bridge"));
    MIMO_TRY(read_rule(&read.partition, &own->rule));
    MIMO_TRY(read_rule(&read.src_partition, &own->src_rule));
    own->reserves = read.ctas > 0;
    if (read.ctas == 0) {
        int64_t ctas;
        MIMO_TRY(mimo_env_get(&ctas, MIMO_ENV_CTAS));
        MIMO_CHECK(ctas >= 0 && ctas <= INT_MAX, MIMO_ERR_ARGUMENT,
                   "environment MIMO_CTAS=%" PRId64 " is no number of thread blocks", ctas);
        read.ctas = (int)ctas;
    }
    MIMO_CHECK(read.ctas >= 0, MIMO_ERR_ARGUMENT, "bridge: %d thread blocks", read.ctas);
    MIMO_CHECK(read.batch >= -1, MIMO_ERR_ARGUMENT, "bridge: a batch of %" PRId64, read.batch);
    MIMO_CHECK(!read.name || *read.name, MIMO_ERR_ARGUMENT,
               "bridge: the name is empty; without one (NULL) a bridge has a number");
    own->desc = read;
    MIMO_TRY(mimo_env_get(&own->stages, MIMO_ENV_STAGED));
    MIMO_CHECK(own->stages == 0 || own->stages == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_STAGED=%" PRId64 " is neither 0 nor 1", own->stages);
    return mimo_comm_checks(&own->checks, comm);
}

/* --------------------------------- words and hash --------------------------------- */

uint64_t mimo_bridge_hash_name(uint64_t hash, const char *name)
{
    return name ? mimo_hash_bytes(hash, name, strlen(name)) : mimo_hash_int(hash, -1);
}

/* Everything of a rule except the lengths of thd. */
static uint64_t hash_rule(uint64_t hash, const mimo_partition_rule *rule)
{
    if (!rule)
        return mimo_hash_int(hash, -1);
    hash = mimo_hash_int(hash, rule->format);
    hash = mimo_hash_int(hash, rule->sp * 2 + rule->strict);
    if (rule->format != MIMO_THD)
        return hash;
    hash = mimo_hash_int(hash, rule->sequences);
    return mimo_hash_int(hash, (rule->cu != NULL) * 2 + (rule->cu_padded != NULL));
}

static void append_rule(char *text, const mimo_partition_rule *rule)
{
    if (!rule)
        return;
    mimo_call_append(text, " with a %spartition over cp%s", rule->strict ? "strict " : "",
                     rule->sp ? " and sp" : "");
    if (mimo_rule_is_packed(rule))
        mimo_call_append(text, " of %" PRId64 " sequences, T %" PRId64, rule->sequences,
                         mimo_rule_positions(rule));
}

static void append_executor(char *text, const char *pass, mimo_executor executor)
{
    const char *name = mimo_executor_name(executor);
    if (name && !mimo_executor_is_auto(executor))
        mimo_call_append(text, ", %s%s", name, pass);
}

static uint64_t hash_executor(uint64_t hash, mimo_executor executor)
{
    return mimo_hash_int(mimo_hash_int(hash, executor.algorithm), executor.transport);
}

/* What differs from the defaults: first the caller's, then the environment's. */
static void append_all(char *text, const mimo_bridge_request *own)
{
    char grid[64];
    const mimo_bridge_desc *desc = &own->desc;
    mimo_call_append(text, " src %s", mimo_grid_text(grid, sizeof grid, desc->src));
    append_rule(text, desc->src_partition);
    mimo_call_append(text, " dst %s", mimo_grid_text(grid, sizeof grid, desc->dst));
    append_rule(text, desc->partition);
    mimo_call_append(text, "%s", desc->all_stages ? " on all stages" : "");
    append_executor(text, "", desc->executor);
    append_executor(text, " backward", desc->backward_executor);
    mimo_call_append(text, "%s", desc->destinations_idle ? ", idle destinations" : "");
    if (desc->ctas > 0)
        mimo_call_append(text, ", %d thread blocks", desc->ctas);
    if (desc->batch >= 0)
        mimo_call_append(text, ", batch %" PRId64, desc->batch);
    if (own->stages == 0)
        mimo_call_append(text, ", MIMO_STAGED=0");
    if ((own->checks & ~MIMO_CHECK_CALLS) > 0) /* `calls` is in every agreement */
        mimo_call_append(text, ", MIMO_CHECK%s%s",
                         own->checks & MIMO_CHECK_REPLICAS ? " replicas" : "",
                         own->checks & MIMO_CHECK_SAMPLES ? " samples" : "");
}

static void begin_words(char *text, const mimo_bridge_request *own)
{
    char title[MIMO_TITLE_TEXT] = "bridge";
    if (own->desc.name)
        mimo_write_title(title, "bridge", own->desc.name, 0);
    snprintf(text, MIMO_CALL_TEXT, "%s create", title);
}

/* The words, and a hash of everything except the lengths. */
static uint64_t describe(char *text, const mimo_bridge_request *own)
{
    const mimo_bridge_desc *desc = &own->desc;
    uint64_t hash = mimo_bridge_hash_name(MIMO_HASH_START, desc->name);
    begin_words(text, own);
    if (!desc->src || !desc->dst)
        return hash;
    append_all(text, own);
    hash = mimo_grid_hash(mimo_grid_hash(hash, desc->src), desc->dst);
    hash = hash_rule(hash_rule(hash, desc->partition), desc->src_partition);
    hash = hash_executor(hash_executor(hash, desc->executor), desc->backward_executor);
    hash = mimo_hash_int(hash, desc->all_stages);
    hash = mimo_hash_int(mimo_hash_int(hash, desc->destinations_idle), desc->ctas);
    hash = mimo_hash_int(hash, desc->batch);
    return mimo_hash_int(mimo_hash_int(hash, own->stages), own->checks);
}

/* ---------------------------------- lengths of thd ---------------------------------- */

/* Sequences of src, the same padded, sequences of dst, the same padded: where each ends. */
enum { LENGTH_LISTS = 4 };

static const int32_t *length_list(const mimo_bridge_request *own, int list, int64_t *count)
{
    const mimo_partition_rule *rule = list < 2 ? own->desc.src_partition : own->desc.partition;
    *count = 0;
    if (!mimo_rule_is_packed(rule))
        return NULL;
    const int32_t *ends = list % 2 == 0 ? rule->cu : rule->cu_padded;
    *count = ends ? rule->sequences : 0;
    return ends;
}

static int64_t count_lengths(const mimo_bridge_request *own)
{
    int64_t count, sum = 0;
    for (int list = 0; list < LENGTH_LISTS; list++) {
        (void)length_list(own, list, &count);
        sum += count;
    }
    return sum;
}

static uint64_t hash_lengths(const void *context, int64_t k)
{
    const mimo_bridge_request *own = context;
    uint64_t hash = own->head;
    int64_t count;
    for (int list = 0; list < LENGTH_LISTS; list++) {
        const int32_t *ends = length_list(own, list, &count);
        for (int64_t i = 0; i < count && k > 0; i++, k--)
            hash = mimo_hash_int(hash, ends[i + 1]);
    }
    return hash;
}

static void write_length(char call[MIMO_CALL_TEXT], const void *context, int64_t item)
{
    const mimo_bridge_request *own = context;
    int64_t count;
    begin_words(call, own);
    for (int list = 0; list < LENGTH_LISTS; list++) {
        const int32_t *ends = length_list(own, list, &count);
        if (item < count) {
            mimo_call_append(call,
                             " with %d positions in sequence %" PRId64 " of %" PRId64 " of %s%s",
                             (int)(ends[item + 1] - ends[item]), item, count,
                             mimo_side_names[list / 2], list % 2 == 0 ? "" : ", padded");
            return;
        }
        item -= count;
    }
}

mimo_status mimo_bridge_request_agree(mimo_comm *comm, mimo_status local, mimo_bridge_request *own)
{
    char call[MIMO_CALL_TEXT];
    mimo_claim claim = {.kind = MIMO_AGREE_CREATE, .local = local, .call = call};
    own->head = describe(call, own);
    claim.signature = own->head;
    if (local == MIMO_OK) {
        int64_t lengths = count_lengths(own);
        claim.signature = hash_lengths(own, lengths);
        claim.items = (mimo_call_items){lengths, hash_lengths, write_length, own};
    }
    return mimo_agree_on(comm, &claim);
}
