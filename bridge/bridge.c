/* Creation, release and accessors of the bridge. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "bridge/bridge_types.h"
#include "bridge/layout/layout_types.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "grid/grid_types.h"

/* All of a rule but the lengths of thd. */
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

/* What is asked of a creation, read once: the descriptor and the rules that it points to, all in
 * this version's form, and the environment. */
typedef struct asked {
    mimo_bridge_desc desc;
    mimo_partition_rule rule, src_rule;
    int64_t checks;
    uint64_t head; /* a hash of all that is no length of thd */
} asked;

static mimo_status read_rule(const mimo_partition_rule **rule, mimo_partition_rule *own)
{
    if (!*rule)
        return MIMO_OK;
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, *rule, "bridge partition"));
    own->size = sizeof *own;
    *rule = own;
    return MIMO_OK;
}

static mimo_status read_asked(asked *own, const mimo_bridge_desc *desc)
{
    MIMO_CHECK(desc, MIMO_ERR_ARGUMENT, "bridge: desc is NULL");
    mimo_bridge_desc read = own->desc;
    MIMO_TRY(mimo_read_descriptor(&read, sizeof read, desc, "bridge"));
    MIMO_TRY(read_rule(&read.partition, &own->rule));
    MIMO_TRY(read_rule(&read.src_partition, &own->src_rule));
    if (read.ctas == 0) {
        int64_t ctas;
        MIMO_TRY(mimo_env_get(MIMO_ENV_CTAS, &ctas));
        MIMO_CHECK(ctas >= 0 && ctas <= INT_MAX, MIMO_ERR_ARGUMENT,
                   "environment MIMO_CTAS=%" PRId64 " is no number of thread blocks", ctas);
        read.ctas = (int)ctas;
    }
    MIMO_CHECK(read.ctas >= 0, MIMO_ERR_ARGUMENT, "bridge: %d thread blocks", read.ctas);
    MIMO_CHECK(read.batch >= -1, MIMO_ERR_ARGUMENT, "bridge: a batch of %" PRId64, read.batch);
    MIMO_CHECK(!read.name || *read.name, MIMO_ERR_ARGUMENT,
               "bridge: the name is empty; without one (NULL) a bridge has a number");
    own->desc = read;
    return mimo_env_get(MIMO_ENV_CHECK, &own->checks);
}

/* ----------------------------------- executors ------------------------------------ */

static const mimo_executor_table *const executors[] = {&mimo_collective_executor,
                                                       &mimo_routed_executor};
enum { EXECUTORS = sizeof executors / sizeof executors[0] };

const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge, bool backward)
{
    return executors[bridge->way[backward] != MIMO_EXECUTOR_COLLECTIVE];
}

const mimo_executor_table *mimo_bridge_rules(const mimo_bridge *bridge)
{
    return executors[!bridge->collective];
}

static bool is_used(const mimo_bridge *bridge, const mimo_executor_table *executor)
{
    return mimo_bridge_executor_of(bridge, false) == executor ||
           mimo_bridge_executor_of(bridge, true) == executor;
}

/* Routed unless another one is asked for: it takes any grids, and by plan_cost.h its links never
 * carry more than collective's. */
static mimo_status read_ways(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    const mimo_executor given[2] = {desc->executor, desc->backward_executor};
    for (int way = 0; way < 2; way++) {
        MIMO_CHECK((unsigned)given[way] <= MIMO_EXECUTOR_ZERO_COPY, MIMO_ERR_ARGUMENT,
                   "bridge: unknown executor %d", (int)given[way]);
        bridge->way[way] = given[way] != MIMO_EXECUTOR_AUTO ? given[way]
                           : way > 0                        ? bridge->way[0]
                                                            : MIMO_EXECUTOR_ROUTED;
    }
    return MIMO_OK;
}

static mimo_status create_executors(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    for (int i = 0; i < EXECUTORS; i++)
        if (is_used(bridge, executors[i]))
            MIMO_TRY(executors[i]->create(bridge, desc));
    return MIMO_OK;
}

static mimo_status connect_executors(mimo_bridge *bridge)
{
    for (int i = 0; i < EXECUTORS; i++)
        if (is_used(bridge, executors[i]))
            MIMO_TRY(executors[i]->connect(bridge));
    return MIMO_OK;
}

/* ------------------------------------ creation ------------------------------------ */

/* What can be known without a word to the other ranks. */
static mimo_status fill_local(mimo_bridge *bridge, const mimo_comm *comm,
                              const mimo_bridge_desc *desc)
{
    MIMO_CHECK(desc->src && desc->dst, MIMO_ERR_ARGUMENT, "bridge: the %s grid is NULL",
               desc->src ? "dst" : "src");
    mimo_grids_retain(desc->src, desc->dst, MIMO_GRID_BRIDGE);
    bridge->src = desc->src;
    bridge->dst = desc->dst;
    bridge->rank = comm->rank;
    bridge->size = comm->size;
    bridge->memory = comm->memory;
    bridge->batch = desc->batch;
    MIMO_TRY(read_ways(bridge, desc));
    return create_executors(bridge, desc);
}

void mimo_bridge_entitle(char title[MIMO_BRIDGE_TITLE], const char *name, int64_t number)
{
    static const char quotes[] = "bridge '...'";
    int room = MIMO_BRIDGE_TITLE - (int)sizeof quotes, length = room;
    if (!name) {
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge %" PRId64, number);
    } else if (strlen(name) <= (size_t)room) {
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge '%s'", name);
    } else {
        while (length > 0 && (name[length] & 0xc0) == 0x80) /* inside a character of UTF-8 */
            length--;
        snprintf(title, MIMO_BRIDGE_TITLE, "bridge '%.*s...'", length, name);
    }
}

static void say_rule(char *text, const mimo_partition_rule *rule)
{
    if (!rule)
        return;
    mimo_call_say(text, " with a %spartition over cp%s", rule->strict ? "strict " : "",
                  rule->sp ? " and sp" : "");
    if (rule->format == MIMO_THD && rule->cu && rule->sequences >= 0)
        mimo_call_say(text, " of %d sequences, T %d", (int)rule->sequences,
                      (int)rule->cu[rule->sequences]);
}

static void say_executor(char *text, const char *way, mimo_executor executor)
{
    static const char *const names[] = {NULL, "collective", "routed", "p2p", "zero-copy"};
    if ((unsigned)executor <= MIMO_EXECUTOR_ZERO_COPY && names[executor])
        mimo_call_say(text, ", %s%s", names[executor], way);
}

/* What differs from the defaults, that of the caller before that of the environment. */
static void say_all(char *text, const asked *own)
{
    char grid[64];
    const mimo_bridge_desc *desc = &own->desc;
    mimo_call_say(text, " src %s", mimo_grid_text(desc->src, grid, sizeof grid));
    say_rule(text, desc->src_partition);
    mimo_call_say(text, " dst %s", mimo_grid_text(desc->dst, grid, sizeof grid));
    say_rule(text, desc->partition);
    mimo_call_say(text, "%s", desc->all_stages ? " on all stages" : "");
    say_executor(text, "", desc->executor);
    say_executor(text, " backward", desc->backward_executor);
    mimo_call_say(text, "%s", desc->destinations_idle ? ", idle destinations" : "");
    if (desc->ctas > 0)
        mimo_call_say(text, ", %d thread blocks", desc->ctas);
    if (desc->batch >= 0)
        mimo_call_say(text, ", batch %" PRId64, desc->batch);
    if ((own->checks & ~MIMO_CHECK_CALLS) > 0) /* the agreement compares and says `calls` */
        mimo_call_say(text, ", MIMO_CHECK%s%s",
                      own->checks & MIMO_CHECK_REPLICAS ? " replicas" : "",
                      own->checks & MIMO_CHECK_SAMPLES ? " samples" : "");
}

static void begin_words(char *text, const asked *own)
{
    char title[MIMO_BRIDGE_TITLE] = "bridge";
    if (own->desc.name)
        mimo_bridge_entitle(title, own->desc.name, 0);
    snprintf(text, MIMO_CALL_TEXT, "%s create", title);
}

static uint64_t hash_name(uint64_t hash, const char *name)
{
    return name ? mimo_hash_bytes(hash, name, strlen(name)) : mimo_hash_int(hash, -1);
}

/* The words, and the hash of all but lengths. */
static uint64_t describe(char *text, const asked *own)
{
    const mimo_bridge_desc *desc = &own->desc;
    uint64_t hash = hash_name(MIMO_HASH_START, desc->name);
    begin_words(text, own);
    if (!desc->src || !desc->dst)
        return hash;
    say_all(text, own);
    hash = mimo_grid_hash(mimo_grid_hash(hash, desc->src), desc->dst);
    hash = hash_rule(hash_rule(hash, desc->partition), desc->src_partition);
    hash = mimo_hash_int(mimo_hash_int(hash, desc->executor), desc->backward_executor);
    hash = mimo_hash_int(hash, desc->all_stages);
    hash = mimo_hash_int(mimo_hash_int(hash, desc->destinations_idle), desc->ctas);
    hash = mimo_hash_int(hash, desc->batch);
    return mimo_hash_int(hash, own->checks);
}

/* ---------------------------------- lengths of thd ---------------------------------- */

/* Sequences of src, the same padded, sequences of dst, the same padded: where each ends. */
enum { LENGTH_LISTS = 4 };

static const int32_t *length_list(const asked *own, int list, int64_t *count)
{
    const mimo_partition_rule *rule = list < 2 ? own->desc.src_partition : own->desc.partition;
    bool packed = rule && rule->format == MIMO_THD && rule->cu && rule->sequences >= 0;
    const int32_t *ends = !packed ? NULL : list % 2 == 0 ? rule->cu : rule->cu_padded;
    *count = ends ? rule->sequences : 0;
    return ends;
}

static int64_t count_lengths(const asked *own)
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
    const asked *own = context;
    uint64_t hash = own->head;
    int64_t count;
    for (int list = 0; list < LENGTH_LISTS; list++) {
        const int32_t *ends = length_list(own, list, &count);
        for (int64_t i = 0; i < count && k > 0; i++, k--)
            hash = mimo_hash_int(hash, ends[i + 1]);
    }
    return hash;
}

static void say_length(char call[MIMO_CALL_TEXT], const void *context, int64_t part)
{
    const asked *own = context;
    int64_t count;
    begin_words(call, own);
    for (int list = 0; list < LENGTH_LISTS; list++) {
        const int32_t *ends = length_list(own, list, &count);
        if (part < count) {
            mimo_call_say(call, " with %d positions in sequence %" PRId64 " of %" PRId64 " of %s%s",
                          (int)(ends[part + 1] - ends[part]), part, count,
                          mimo_side_names[list / 2], list % 2 == 0 ? "" : ", padded");
            return;
        }
        part -= count;
    }
}

static mimo_status agree(mimo_comm *comm, mimo_status local, asked *own)
{
    char call[MIMO_CALL_TEXT];
    mimo_claim claim = {.kind = MIMO_AGREE_CREATE, .local = local, .call = call};
    own->head = describe(call, own);
    claim.signature = own->head;
    if (local == MIMO_OK) {
        int64_t lengths = count_lengths(own);
        claim.signature = hash_lengths(own, lengths);
        claim.items = (mimo_call_items){lengths, hash_lengths, say_length, own};
    }
    return mimo_agree_on(comm, &claim);
}

/* ------------------------------------- the whole ------------------------------------ */

mimo_status mimo_bridge_split(mimo_comm **out, mimo_bridge *bridge, const mimo_grid *grid,
                              const char *dim)
{
    int64_t index = -1, place = 0, first = mimo_grid_offset(grid);
    if (bridge->rank >= first && bridge->rank < first + mimo_grid_size(grid))
        MIMO_TRY(mimo_grid_group_of(grid, dim, bridge->rank, &index, &place));
    return mimo_comm_split(out, bridge->comm, (int)index, (int)place);
}

/* Ranks along tp hold copies of a source, unless sp cuts it there. */
static bool has_replicas(const mimo_bridge *bridge, const asked *own)
{
    const mimo_partition_rule *cut = own->desc.src_partition;
    return mimo_grid_dim_size(bridge->src, "tp") > 1 && !(cut && cut->sp);
}

static mimo_status connect(mimo_bridge *bridge, mimo_comm *comm, const asked *own)
{
    MIMO_TRY(mimo_comm_split(&bridge->comm, comm, 0, comm->rank));
    bridge->compares_calls = (own->checks & MIMO_CHECK_CALLS) != 0;
    bridge->names_tensors = !comm->device->enqueues || bridge->compares_calls;
    bridge->check_samples = (own->checks & MIMO_CHECK_SAMPLES) != 0;
    bridge->check_replicas = (own->checks & MIMO_CHECK_REPLICAS) != 0 && has_replicas(bridge, own);
    if (bridge->check_replicas)
        MIMO_TRY(mimo_bridge_split(&bridge->src_tp, bridge, bridge->src, "tp"));
    return connect_executors(bridge);
}

static void name_bridge(mimo_bridge *bridge, int64_t number, const char *name)
{
    mimo_bridge_entitle(bridge->title, name, number);
    bridge->id = mimo_hash_int(hash_name(MIMO_HASH_START, name), number);
}

static void move_on(void *bridge)
{
    mimo_bridge_progress(bridge);
}

mimo_status mimo_bridge_create(mimo_bridge **out, mimo_comm *comm, const mimo_bridge_desc *desc)
{
    mimo_bridge *bridge = NULL;
    asked own = {MIMO_BRIDGE_DESC_INIT, MIMO_PARTITION_RULE_INIT, MIMO_PARTITION_RULE_INIT, 0, 0};
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "bridge: comm is NULL");
    mimo_status local = read_asked(&own, desc);
    if (local == MIMO_OK)
        local = mimo_reserve(&bridge, 1, sizeof *bridge);
    if (local == MIMO_OK)
        local = mimo_reserve(&bridge->spare, 1, sizeof *bridge->spare);
    if (local == MIMO_OK)
        local = fill_local(bridge, comm, &own.desc);
    if (local == MIMO_OK && !out)
        local = mimo_fail(MIMO_ERR_ARGUMENT, "bridge: out is NULL");
    mimo_status status = agree(comm, local, &own);
    if (status == MIMO_OK)
        status = mimo_comm_agree(comm, connect(bridge, comm, &own));
    if (status != MIMO_OK) {
        mimo_bridge_destroy(bridge);
        return status;
    }
    bridge->parent = comm;
    name_bridge(bridge, ++comm->bridges, own.desc.name);
    bridge->callback = (mimo_progress_callback){NULL, move_on, bridge};
    mimo_callback_add(comm, &bridge->callback);
    *out = bridge;
    return MIMO_OK;
}

static void destroy_op(mimo_op *op)
{
    if (op->torn)
        mimo_staging_abandon(&op->staging);
    mimo_staging_release(&op->staging);
    mimo_op_release_events(op);
    mimo_release(op->hashes);
    mimo_release(op->sizes);
    mimo_release(op->pairs);
    mimo_release(op);
}

static void release(mimo_bridge *bridge)
{
    if (bridge->parent)
        mimo_callback_remove(bridge->parent, &bridge->callback);
    while (bridge->spare) {
        mimo_op *op = bridge->spare;
        bridge->spare = op->next;
        destroy_op(op);
    }
    for (int i = 0; i < EXECUTORS; i++)
        executors[i]->destroy(bridge);
    mimo_staging_release(&bridge->staging);
    mimo_comm_destroy(bridge->src_tp);
    mimo_comm_destroy(bridge->comm);
    if (bridge->src)
        mimo_grids_release(bridge->src, bridge->dst, MIMO_GRID_BRIDGE);
    if (bridge->parent)
        mimo_comm_release_unused(bridge->parent);
    mimo_release(bridge);
}

mimo_status mimo_bridge_check_idle(const mimo_bridge *bridge, const char *call)
{
    MIMO_CHECK(bridge->unwaited == 0, MIMO_ERR_STATE,
               "%s: an operation is in flight (%d were not waited for)", call, bridge->unwaited);
    return MIMO_OK;
}

void mimo_bridge_destroy(mimo_bridge *bridge)
{
    if (!bridge)
        return;
    bridge->destroyed = true;
    if (mimo_bridge_check_idle(bridge, "bridge destroy") == MIMO_OK)
        release(bridge);
    else
        mimo_fail_prefix(MIMO_ERR_STATE, "the last mimo_op_wait releases the bridge: ");
}

mimo_pairing mimo_bridge_pairing(const mimo_bridge *bridge)
{
    return bridge->pairing;
}

mimo_status mimo_bridge_gather_group(const mimo_bridge *bridge, int64_t *ranks, int64_t *slot)
{
    int64_t index;
    MIMO_CHECK(bridge && ranks && slot, MIMO_ERR_ARGUMENT, "gather group: NULL argument");
    MIMO_TRY(mimo_pairing_place(bridge->src, bridge->dst, bridge->rank, &index, NULL));
    if (index >= 0)
        MIMO_TRY(mimo_pairing_group(bridge->src, bridge->dst, index, ranks));
    *slot = bridge->slot;
    return MIMO_OK;
}

mimo_status mimo_bridge_slice(const mimo_bridge *bridge, int64_t batch, int64_t *start,
                              int64_t *length)
{
    MIMO_CHECK(bridge && start && length, MIMO_ERR_ARGUMENT, "slice: NULL argument");
    int64_t k = bridge->pairing.scale;
    MIMO_CHECK(k > 0, MIMO_ERR_GRID, "slice: the grids do not pair, so there are no slices");
    MIMO_TRY(mimo_grid_check_rank(bridge->src, bridge->rank)); /* grids that pair have one span */
    MIMO_CHECK(batch >= 0 && batch % k == 0, MIMO_ERR_SHAPE,
               "slice: scale %" PRId64 " does not divide a batch of %" PRId64, k, batch);
    *start = bridge->slot * (batch / k);
    *length = batch / k;
    return MIMO_OK;
}

mimo_status mimo_bridge_samples(const mimo_bridge *bridge, mimo_side side, int64_t batch,
                                int64_t *first, int64_t *count)
{
    MIMO_CHECK(bridge && first && count, MIMO_ERR_ARGUMENT, "samples: NULL argument");
    MIMO_CHECK(side == MIMO_SRC || side == MIMO_DST, MIMO_ERR_ARGUMENT, "samples: unknown side %d",
               (int)side);
    return mimo_bridge_rules(bridge)->samples(bridge, side, batch, first, count);
}
