/*
 * Jobs: an operation made ready for its tensors, in one round or two.
 *
 * One round moves rows from where they are to where they are read. Where the dst cp ranks hold
 * contributions and many src ranks read the sum, that would send all contributions to each of them:
 * then a first round brings the contributions of each row to one rank, as if a partition cut the
 * dst tiles, and a second one moves the sums from there.
 */
#include <inttypes.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"

enum { STAGE_ALIGNMENT = 64, JOBS_KEPT = 64 };

/* ------------------------------------------ rounds ------------------------------------------ */

/* A job in making. */
typedef struct job_maker {
    mimo_op *op;
    const mimo_cut *cut;
    mimo_job *job;
    mimo_hop hops[MIMO_ROUNDS]; /* of each round */
} job_maker;

static mimo_row_order order_of(const mimo_tile *tile)
{
    return tile->view.letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
}

/* The tile of a place; shards look like the dst tile that they cut. */
static const mimo_tile *tile_at(const mimo_job *job, mimo_place place, int i)
{
    return place == MIMO_AT_SRC ? &job->pairs[i].src : &job->pairs[i].dst;
}

static int64_t bytes_at(const job_maker *maker, mimo_place place, int i)
{
    int64_t bytes = mimo_tile_bytes(tile_at(maker->job, place, i));
    return place == MIMO_AT_SHARDS ? bytes / maker->op->bridge->routed->shards : bytes;
}

static mimo_status get_plan(mimo_leg *leg, const job_maker *maker, const mimo_hop *hop, int i)
{
    const mimo_cut *cut = maker->cut;
    const int64_t *src = cut->samples[MIMO_SRC], *dst = cut->samples[MIMO_DST];
    const mimo_plan_key key = {.hop = *hop,
                               .order = {order_of(tile_at(maker->job, hop->from, i)),
                                         order_of(tile_at(maker->job, hop->to, i))},
                               .batch = cut->batch,
                               .seq = maker->job->pairs[i].seq,
                               .cut = cut->hash,
                               .samples = {src, dst, dst}};
    return mimo_plan_cache_get(&leg->plan, maker->op->bridge->routed->plans, &key);
}

/* Whether bringing contributions together first moves less. The busiest rank receives, in samples
 * and but for what it holds, b_src * (cp - 1) in one round, and (b_src + b_dst) * (cp - 1) / cp in
 * two, where b = B / dp; where src dp < dst dp more by b_src - b_dst in one, by a cp-th of that in
 * two. */
static bool pays_to_gather(const mimo_op *op)
{
    const mimo_routed *own = op->bridge->routed;
    int64_t src_dp = mimo_grid_dim_size(op->bridge->src, "dp");
    int64_t dst_dp = mimo_grid_dim_size(op->bridge->dst, "dp");
    bool possible = op->backward && !own->ragged && own->shards > 1 &&
                    op->pairs[0].seq % (2 * own->shards) == 0;
    return possible && src_dp < (own->shards - 1) * dst_dp;
}

static void set_hops(job_maker *maker)
{
    bool backward = maker->op->backward;
    maker->job->rounds = 1;
    maker->hops[0] =
        backward ? (mimo_hop){MIMO_AT_DST, MIMO_AT_SRC} : (mimo_hop){MIMO_AT_SRC, MIMO_AT_DST};
    if (pays_to_gather(maker->op)) {
        maker->job->rounds = 2;
        maker->hops[0].to = MIMO_AT_SHARDS;
        maker->hops[1] = (mimo_hop){MIMO_AT_SHARDS, MIMO_AT_SRC};
    }
}

static mimo_status plan_round(const job_maker *maker, int r)
{
    mimo_round *round = &maker->job->round[r];
    int count = maker->job->count;
    MIMO_TRY(mimo_reserve(&round->legs, count, sizeof *round->legs));
    round->count = count;
    round->chunks = maker->job->chunks;
    round->signature = mimo_hash_int(maker->job->signature, r);
    round->guarded = maker->job->guarded;
    for (int i = 0; i < count; i++) {
        const mimo_tile *to = tile_at(maker->job, maker->hops[r].to, i);
        mimo_leg *leg = &round->legs[i];
        MIMO_TRY(get_plan(leg, maker, &maker->hops[r], i));
        round->classes = mimo_plan_classes(leg->plan);
        leg->row_bytes = to->row_bytes;
        leg->bytes = bytes_at(maker, maker->hops[r].to, i);
        leg->dtype = to->view.dtype;
        MIMO_CHECK(round->classes == 1 || leg->dtype != MIMO_F8, MIMO_ERR_UNSUPPORTED,
                   "%s: f8 can be moved, not summed over %" PRId64 " contributions",
                   maker->op->call, round->classes);
        if (round->classes > 1)
            MIMO_TRY(mimo_tile_check_addresses(&maker->job->pairs[i].src.view,
                                               &maker->job->pairs[i].dst.view));
    }
    return MIMO_OK;
}

/* ----------------------------------------- staging ------------------------------------------ */

/* Where staging is handed out; base NULL: to see how much there is. */
typedef struct stage_cursor {
    char *base;
    int64_t used;
} stage_cursor;

static mimo_status take(char **out, stage_cursor *stage, int64_t copies, int64_t bytes)
{
    int64_t all, end;
    *out = stage->base ? stage->base + stage->used : NULL;
    MIMO_TRY(mimo_mul(&all, copies, bytes));
    MIMO_TRY(mimo_add(&end, stage->used, all));
    MIMO_TRY(mimo_add(&end, end, STAGE_ALIGNMENT - 1));
    stage->used = end / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
    return MIMO_OK;
}

static char *data_at(const mimo_job *job, mimo_place place, int i, char *shards)
{
    return place == MIMO_AT_SHARDS ? shards : tile_at(job, place, i)->view.data;
}

static bool pushes(const mimo_op *op)
{
    return op->bridge->routed->can_push && mimo_executor_pushes(op->bridge->way[op->backward]);
}

mimo_buffer *mimo_job_buffer(const mimo_op *op, const mimo_tile *tile)
{
    if (!pushes(op))
        return NULL;
    return mimo_buffer_find(op->bridge->parent, tile->view.data, mimo_tile_bytes(tile));
}

/* Both ends of tensor i in each round, and room for the classes that are added to its target. */
static mimo_status place_tensor(const job_maker *maker, int i, stage_cursor *stage)
{
    mimo_job *job = maker->job;
    char *shards = NULL;
    if (job->rounds > 1)
        MIMO_TRY(take(&shards, stage, 1, bytes_at(maker, MIMO_AT_SHARDS, i)));
    for (int r = 0; r < job->rounds; r++) {
        mimo_leg *leg = &job->round[r].legs[i];
        if (maker->hops[r].to != MIMO_AT_SHARDS)
            leg->buffer = mimo_job_buffer(maker->op, tile_at(job, maker->hops[r].to, i));
        leg->from = data_at(job, maker->hops[r].from, i, shards);
        if (r > 0 && MIMO_MUTATED("part-for-sum"))
            leg->from = job->round[0].legs[i].classes;
        leg->to = data_at(job, maker->hops[r].to, i, shards);
        MIMO_TRY(take(&leg->classes, stage, job->round[r].classes - 1, leg->bytes));
    }
    return MIMO_OK;
}

static mimo_status place_tensors(const job_maker *maker, stage_cursor *stage)
{
    for (int i = 0; i < maker->job->count; i++)
        MIMO_TRY(place_tensor(maker, i, stage));
    return MIMO_OK;
}

static mimo_status set_stage(const job_maker *maker)
{
    mimo_job *job = maker->job;
    stage_cursor stage = {NULL, 0};
    void *room = NULL;
    MIMO_TRY(place_tensors(maker, &stage));
    if (stage.used > 0)
        MIMO_TRY(mimo_op_stage(&room, maker->op, MIMO_STAGING_PARTIALS, stage.used));
    job->stage = room;
    job->stage_bytes = stage.used;
    stage = (stage_cursor){room, 0};
    return place_tensors(maker, &stage);
}

/* ------------------------------------------- jobs ------------------------------------------- */

static void destroy_job(mimo_bridge *bridge, mimo_job *job)
{
    if (!job)
        return;
    for (int r = 0; r < MIMO_ROUNDS; r++)
        mimo_round_release(&job->round[r], bridge->comm);
    mimo_release(job->pairs);
    mimo_release(job);
}

/* The tiles that are written in the end: chunks have their samples. */
static mimo_status target_layout(mimo_layout **out, const job_maker *maker)
{
    mimo_side side = maker->op->backward ? MIMO_SRC : MIMO_DST;
    mimo_layout_desc desc = mimo_routed_side(maker->op->bridge, side);
    desc.batch = maker->cut->batch;
    desc.samples = maker->cut->samples[side];
    desc.seq = maker->job->pairs[0].seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status compile_rounds(const job_maker *maker)
{
    mimo_job *job = maker->job;
    mimo_bridge *bridge = maker->op->bridge;
    mimo_layout *tiles = NULL;
    mimo_status status = job->chunks > 1 ? target_layout(&tiles, maker) : MIMO_OK;
    for (int r = 0; r < job->rounds && status == MIMO_OK; r++)
        status =
            mimo_round_compile(&job->round[r], bridge->comm, &bridge->routed->push_rule, tiles);
    mimo_layout_destroy(tiles);
    return status;
}

static mimo_status fill_job(job_maker *maker)
{
    mimo_op *op = maker->op;
    mimo_job *job = maker->job;
    MIMO_TRY(mimo_reserve(&job->pairs, op->count, sizeof *job->pairs));
    memcpy(job->pairs, op->pairs, (size_t)op->count * sizeof *job->pairs);
    job->count = op->count;
    set_hops(maker);
    for (int r = 0; r < job->rounds; r++)
        MIMO_TRY(plan_round(maker, r));
    MIMO_TRY(set_stage(maker));
    return compile_rounds(maker);
}

/* What the ranks that push to each other must have alike: how the batch is cut counts too. */
static uint64_t sign_job(const mimo_op *op, uint64_t cut)
{
    return mimo_hash_int(op->signature, (int64_t)cut);
}

static mimo_status make_job(mimo_job **out, mimo_op *op, const mimo_cut *cut)
{
    mimo_job *job;
    MIMO_TRY(mimo_reserve(&job, 1, sizeof *job));
    job->backward = op->backward;
    job->guarded = op->guarded;
    job->pushes = pushes(op);
    job->chunks = op->chunks;
    job->cut = cut->hash;
    job->signature = sign_job(op, cut->hash);
    job->buffer_changes = op->bridge->parent->buffer_changes;
    job_maker maker = {.op = op, .cut = cut, .job = job};
    mimo_status status = fill_job(&maker);
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

/* Whether a job does what the operation asks, in the staging that the operation has. */
static bool fits(const mimo_job *job, mimo_op *op, uint64_t cut)
{
    bool staged =
        !job->stage || mimo_op_has_stage(op, MIMO_STAGING_PARTIALS, job->stage, job->stage_bytes);
    bool usable = !job->failed && (!job->recorded || job->stream == op->stream);
    bool same = usable && staged && job->buffer_changes == op->bridge->parent->buffer_changes &&
                job->backward == op->backward && job->guarded == op->guarded &&
                job->chunks == op->chunks && job->pushes == pushes(op) && job->cut == cut &&
                job->count == op->count && job->signature == sign_job(op, cut);
    for (int i = 0; same && i < op->count; i++)
        same = job->pairs[i].seq == op->pairs[i].seq &&
               same_tile(&job->pairs[i].src, &op->pairs[i].src) &&
               same_tile(&job->pairs[i].dst, &op->pairs[i].dst);
    return same;
}

/* One that is kept, or a new one. */
static mimo_status find_job(mimo_op *op, const mimo_cut *cut)
{
    for (mimo_job **at = &op->bridge->routed->idle; *at; at = &(*at)->next)
        if (fits(*at, op, cut->hash)) {
            op->job = *at;
            *at = op->job->next;
            return MIMO_OK;
        }
    return make_job(&op->job, op, cut);
}

mimo_status mimo_job_prepare(mimo_op *op, const mimo_cut *cut)
{
    MIMO_TRY(find_job(op, cut));
    mimo_cuts_find(&op->bridge->routed->cuts, cut->hash)->holders++;
    return MIMO_OK;
}

void mimo_job_put_back(mimo_op *op)
{
    mimo_routed *own = op->bridge->routed;
    mimo_job **last = &own->idle, *job = op->job;
    op->job = NULL;
    if (!job)
        return;
    mimo_cuts_find(&own->cuts, job->cut)->holders--;
    job->failed = op->status != MIMO_OK; /* it may have been in flight */
    if (job->failed && !job->recorded) {
        destroy_job(op->bridge, job);
        return;
    }
    job->next = own->idle;
    own->idle = job;
    for (int kept = 0; *last && (kept < JOBS_KEPT || (*last)->recorded); last = &(*last)->next)
        kept += !(*last)->recorded;
    if (*last) {
        mimo_job *oldest = *last;
        *last = oldest->next;
        destroy_job(op->bridge, oldest);
    }
}

void mimo_job_destroy_idle(mimo_bridge *bridge)
{
    while (bridge->routed->idle) {
        mimo_job *job = bridge->routed->idle;
        bridge->routed->idle = job->next;
        destroy_job(bridge, job);
    }
}
