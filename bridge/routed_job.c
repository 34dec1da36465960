/*
 * Jobs: the plans of an operation's tensors, turned into messages, copies and staging.
 *
 * All tensors of an operation are cut alike, so their plans have the same blocks between the same
 * ranks, and differ only in where rows lie. A message to a peer is every tensor's blocks for it,
 * one tensor after the other; both ends list them so.
 */
#include <inttypes.h>
#include <string.h>

#include "bridge/routed_types.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

enum { STAGE_CLASSES = 0, STAGE_ALIGNMENT = 64, JOBS_KEPT = 8 };

/* ------------------------------------------ rows -------------------------------------------- */

/* Which end of a block is meant. */
typedef enum block_end { SENDER, RECEIVER } block_end;

/* The rows of a block in a tile, or in staging that looks like it. Both ends run along samples
 * inside where that gives the receiver longer runs, so that their rows come in the same order. */
static mimo_rows block_rows(const mimo_block *block, block_end end, void *base, int64_t row_bytes)
{
    bool along_samples = block->nb > 1 && block->dst_b == 1;
    int64_t first = end == SENDER ? block->src_row : block->dst_row;
    int64_t b = end == SENDER ? block->src_b : block->dst_b;
    int64_t s = end == SENDER ? block->src_s : block->dst_s;
    if (along_samples)
        return (mimo_rows){base, row_bytes, first, block->ns, s, block->nb, b};
    return (mimo_rows){base, row_bytes, first, block->nb, b, block->ns, s};
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
}

/* Staging of tensor i: classes 1, 2, ... one after the other, each like the tile that is filled. */
static char *staged_tensor(const mimo_job *job, int i)
{
    char *at = job->stage;
    for (int t = 0; t < i; t++)
        at += round_up((job->classes - 1) *
                       mimo_tile_bytes(mimo_pair_to(&job->pairs[t], job->backward)));
    return at;
}

/* Where the rows of a block of tensor i end up: class 0 in the tile itself. */
static mimo_rows target_rows(const mimo_job *job, int i, const mimo_block *block)
{
    const mimo_tile *to = mimo_pair_to(&job->pairs[i], job->backward);
    char *base = to->view.data;
    if (block->klass > 0)
        base = staged_tensor(job, i) + (block->klass - 1) * mimo_tile_bytes(to);
    return block_rows(block, RECEIVER, base, to->row_bytes);
}

static mimo_rows source_rows(const mimo_job *job, int i, const mimo_block *block)
{
    const mimo_tile *from = mimo_pair_from(&job->pairs[i], job->backward);
    return block_rows(block, SENDER, from->view.data, from->row_bytes);
}

/* ----------------------------------------- messages ----------------------------------------- */

/* The messages of one direction, in making. */
typedef struct message_list {
    mimo_message *messages;
    int count;
    mimo_rows *rows; /* of all messages, one after the other */
} message_list;

static void release_list(message_list *list)
{
    mimo_release(list->messages);
    mimo_release(list->rows);
}

/* Blocks [first, end) of every tensor's plan are those of one peer. */
static void append_message(message_list *list, const mimo_job *job, const mimo_plan *const *plans,
                           mimo_block_kind kind, const int64_t range[2])
{
    int64_t blocks;
    mimo_message *message = &list->messages[list->count];
    mimo_rows *rows =
        list->count > 0 ? (mimo_rows *)message[-1].rows + message[-1].count : list->rows;
    *message = (mimo_message){0, 0, rows};
    for (int i = 0; i < job->count; i++) {
        const mimo_block *block = mimo_plan_blocks(plans[i], kind, &blocks);
        message->peer = (int)block[range[0]].peer;
        for (int64_t at = range[0]; at < range[1] && job->pairs[i].src.row_bytes > 0; at++)
            rows[message->count++] = kind == MIMO_SEND ? source_rows(job, i, &block[at])
                                                       : target_rows(job, i, &block[at]);
    }
    if (message->count > 0)
        list->count++;
}

static mimo_status list_messages(message_list *list, const mimo_job *job,
                                 const mimo_plan *const *plans, mimo_block_kind kind)
{
    int64_t blocks, rows, end;
    const mimo_block *block = mimo_plan_blocks(plans[0], kind, &blocks);
    MIMO_TRY(mimo_mul(&rows, blocks, job->count));
    MIMO_TRY(mimo_reserve(&list->messages, blocks, sizeof *list->messages));
    MIMO_TRY(mimo_reserve(&list->rows, rows, sizeof *list->rows));
    for (int64_t first = 0; first < blocks; first = end) {
        for (end = first; end < blocks && block[end].peer == block[first].peer;)
            end++;
        append_message(list, job, plans, kind, (int64_t[]){first, end});
    }
    return MIMO_OK;
}

static mimo_status make_exchange(mimo_job *job, mimo_comm *comm, const mimo_plan *const *plans)
{
    message_list receives = {0}, sends = {0};
    mimo_status status = list_messages(&receives, job, plans, MIMO_RECV);
    if (status == MIMO_OK)
        status = list_messages(&sends, job, plans, MIMO_SEND);
    const mimo_messages messages = {receives.messages, sends.messages, receives.count, sends.count};
    if (status == MIMO_OK)
        status = comm->backend->exchange_create(&job->exchange, comm, &messages);
    release_list(&receives);
    release_list(&sends);
    return status;
}

static mimo_status list_copies(mimo_job *job, const mimo_plan *const *plans)
{
    int64_t blocks, copies;
    mimo_plan_blocks(plans[0], MIMO_LOCAL, &blocks);
    MIMO_TRY(mimo_mul(&copies, blocks, job->count));
    MIMO_TRY(mimo_reserve(&job->copies, copies, sizeof *job->copies));
    for (int i = 0; i < job->count; i++) {
        const mimo_block *block = mimo_plan_blocks(plans[i], MIMO_LOCAL, &blocks);
        for (int64_t at = 0; at < blocks && job->pairs[i].src.row_bytes > 0; at++)
            job->copies[job->copy_count++] =
                (mimo_row_copy){target_rows(job, i, &block[at]), source_rows(job, i, &block[at])};
    }
    return MIMO_OK;
}

/* ----------------------------------------- staging ------------------------------------------ */

static mimo_status reserve_stage(mimo_op *op, mimo_job *job)
{
    int64_t total = 0, bytes;
    void *room = NULL;
    for (int i = 0; i < job->count && job->classes > 1; i++) {
        const mimo_tile *to = mimo_pair_to(&job->pairs[i], job->backward);
        MIMO_CHECK(to->view.dtype != MIMO_F8, MIMO_ERR_UNSUPPORTED,
                   "%s: f8 can be moved, not summed over cp = %" PRId64, op->call, job->classes);
        MIMO_TRY(mimo_mul(&bytes, job->classes - 1, mimo_tile_bytes(to)));
        MIMO_TRY(mimo_add(&bytes, bytes, STAGE_ALIGNMENT));
        MIMO_TRY(mimo_add(&total, total, bytes));
    }
    if (total > 0)
        MIMO_TRY(mimo_op_stage(&room, op, STAGE_CLASSES, total));
    job->stage = room;
    job->stage_bytes = total;
    return MIMO_OK;
}

mimo_status mimo_job_add_classes(const mimo_op *op)
{
    const mimo_job *job = op->job;
    const mimo_device *device = op->bridge->comm->device;
    for (int i = 0; i < job->count && job->classes > 1; i++) {
        if (MIMO_MUTATED("first-class-only"))
            break;
        const mimo_tile *to = mimo_pair_to(&job->pairs[i], job->backward);
        int64_t elements = mimo_tile_bytes(to) / (int64_t)mimo_dtype_size(to->view.dtype);
        MIMO_TRY(device->add_parts(to->view.data, staged_tensor(job, i), job->classes - 1, elements,
                                   to->view.dtype, op->stream));
    }
    return MIMO_OK;
}

/* ------------------------------------------- jobs ------------------------------------------- */

static void destroy_job(mimo_bridge *bridge, mimo_job *job)
{
    if (!job)
        return;
    bridge->comm->backend->exchange_destroy(job->exchange);
    mimo_release(job->copies);
    mimo_release(job->pairs);
    mimo_release(job);
}

static mimo_row_order order_of(const mimo_tile *tile)
{
    return tile->view.letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
}

/* A tile without rows has no strides to tell its order by, so the letters do. */
static mimo_status get_plans(const mimo_plan **plans, const mimo_op *op, const mimo_job *job,
                             const mimo_cut *cut)
{
    for (int i = 0; i < job->count; i++) {
        const mimo_tile_pair *pair = &job->pairs[i];
        const mimo_plan_key key = {.backward = job->backward,
                                   .order = {order_of(&pair->src), order_of(&pair->dst)},
                                   .batch = cut->batch,
                                   .seq = pair->seq,
                                   .cut = cut->hash,
                                   .samples = {cut->samples[MIMO_SRC], cut->samples[MIMO_DST]}};
        MIMO_TRY(mimo_plan_cache_get(&plans[i], op->bridge->routed->plans, &key));
    }
    return MIMO_OK;
}

static mimo_status fill_job(mimo_job *job, mimo_op *op, const mimo_cut *cut,
                            const mimo_plan **plans)
{
    MIMO_TRY(mimo_reserve(&job->pairs, op->count, sizeof *job->pairs));
    memcpy(job->pairs, op->pairs, (size_t)op->count * sizeof *job->pairs);
    job->count = op->count;
    MIMO_TRY(get_plans(plans, op, job, cut));
    job->classes = mimo_plan_classes(plans[0]);
    MIMO_TRY(reserve_stage(op, job));
    MIMO_TRY(list_copies(job, plans));
    return make_exchange(job, op->bridge->comm, plans);
}

static mimo_status make_job(mimo_job **out, mimo_op *op, const mimo_cut *cut)
{
    mimo_job *job;
    const mimo_plan **plans = NULL;
    MIMO_TRY(mimo_reserve(&job, 1, sizeof *job));
    job->backward = op->backward;
    job->cut = cut->hash;
    mimo_status status = mimo_reserve(&plans, op->count, sizeof *plans);
    if (status == MIMO_OK)
        status = fill_job(job, op, cut, plans);
    mimo_release(plans);
    if (status == MIMO_OK)
        *out = job;
    else
        destroy_job(op->bridge, job);
    return status;
}

static bool same_tile(const mimo_tile *a, const mimo_tile *b)
{
    return a->view.data == b->view.data && a->view.dtype == b->view.dtype &&
           strcmp(a->view.letters, b->view.letters) == 0 && a->batch == b->batch &&
           a->seq == b->seq && a->row_bytes == b->row_bytes;
}

/* Whether a job does what the operation asks, staging in the operation's own room included. */
static bool fits(const mimo_job *job, const mimo_op *op, uint64_t cut)
{
    bool staged = !job->stage || (job->stage == op->stage[STAGE_CLASSES].room &&
                                  job->stage_bytes <= op->stage[STAGE_CLASSES].bytes);
    bool same =
        staged && job->backward == op->backward && job->cut == cut && job->count == op->count;
    for (int i = 0; same && i < op->count; i++)
        same = job->pairs[i].seq == op->pairs[i].seq &&
               same_tile(&job->pairs[i].src, &op->pairs[i].src) &&
               same_tile(&job->pairs[i].dst, &op->pairs[i].dst);
    return same;
}

mimo_status mimo_job_prepare(mimo_op *op, const mimo_cut *cut)
{
    for (mimo_job **at = &op->bridge->routed->idle; *at; at = &(*at)->next)
        if (fits(*at, op, cut->hash)) {
            op->job = *at;
            *at = op->job->next;
            return MIMO_OK;
        }
    return make_job(&op->job, op, cut);
}

void mimo_job_put_back(mimo_op *op)
{
    mimo_routed *own = op->bridge->routed;
    mimo_job **last = &own->idle, *job = op->job;
    op->job = NULL;
    if (!job)
        return;
    if (op->status != MIMO_OK) { /* it may have been in flight, and can't be started again */
        destroy_job(op->bridge, job);
        return;
    }
    job->next = own->idle;
    own->idle = job;
    for (int kept = 0; *last && kept < JOBS_KEPT; kept++)
        last = &(*last)->next;
    destroy_job(op->bridge, *last);
    *last = NULL;
}

void mimo_job_destroy_idle(mimo_bridge *bridge)
{
    while (bridge->routed->idle) {
        mimo_job *job = bridge->routed->idle;
        bridge->routed->idle = job->next;
        destroy_job(bridge, job);
    }
}
