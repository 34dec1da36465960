/* Rounds: what the legs of a round move, and the sums that follow. */
#include "bridge/routed/routed_phase.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ sums -------------------------------------------- */

/* The classes of some rows of a target, which are those of a block there. */
static mimo_addends sum_of(const mimo_leg *leg, int64_t classes, const mimo_block *rows)
{
    int64_t size = (int64_t)mimo_dtype_size(leg->dtype), width = leg->row_bytes / size;
    int64_t begin = rows->dst_row * leg->row_bytes;
    bool along_samples = rows->dst_b == 1; /* else rows of a sample follow each other */
    mimo_addends sum = {.data = leg->to + begin,
                      .terms = leg->classes + begin,
                      .n = classes - 1,
                      .step = leg->bytes / size,
                      .stretches = along_samples ? rows->ns : rows->nb,
                      .pitch = (along_samples ? rows->dst_s : rows->dst_b) * width,
                      .count = (along_samples ? rows->nb : rows->ns) * width,
                      .dtype = leg->dtype};
    if (MIMO_MUTATED("class-behind") && sum.count > 0) {
        sum.data = leg->to + begin + leg->row_bytes;
        sum.count -= width;
    }
    return sum;
}

/* The rows that a chunk brings to a leg are those of its class 0. */
static void append_sums(mimo_round_part *part, const mimo_leg *leg, int64_t classes)
{
    static const mimo_block_kind kinds[] = {MIMO_RECV, MIMO_LOCAL};
    for (int k = 0; k < 2; k++) {
        int64_t count;
        const mimo_block *blocks = mimo_plan_blocks(leg->plan, kinds[k], &count);
        for (int64_t i = 0; i < count; i++)
            if (blocks[i].klass == 0)
                part->sums[part->sum_count++] = sum_of(leg, classes, &blocks[i]);
    }
}

/* All rows of a leg, in one stretch. */
static void append_whole_sum(mimo_round_part *part, const mimo_leg *leg, int64_t classes)
{
    int64_t rows = leg->row_bytes > 0 ? leg->bytes / leg->row_bytes : 0;
    const mimo_block all = {.nb = 1, .ns = rows, .dst_s = 1};
    part->sums[part->sum_count++] = sum_of(leg, classes, &all);
}

static mimo_status list_sums(mimo_round_part *part, const mimo_legs *legs, const mimo_round *round)
{
    int64_t received, local, most = legs->count;
    if (round->classes == 1)
        return MIMO_OK;
    for (int i = 0; i < legs->count; i++) {
        mimo_plan_blocks(legs->list[i].plan, MIMO_RECV, &received);
        mimo_plan_blocks(legs->list[i].plan, MIMO_LOCAL, &local);
        most += received + local;
    }
    MIMO_TRY(mimo_reserve(&part->sums, most, sizeof *part->sums));
    for (int i = 0; i < legs->count; i++)
        (round->chunks == 1 ? append_whole_sum : append_sums)(part, &legs->list[i], round->classes);
    return MIMO_OK;
}

/* ------------------------------------------ parts ------------------------------------------- */

/* A round in making. */
typedef struct round_maker {
    mimo_round *round;
    mimo_comm *comm;
    const mimo_push_rule *rule;
} round_maker;

static mimo_status exchange_of(mimo_exchange **out, const round_maker *it, const mimo_legs *legs,
                               int64_t chunk)
{
    mimo_message_maker maker = {0};
    mimo_status status = mimo_messages_make(&maker, legs);
    maker.made.guarded = it->round->guarded;
    maker.made.pushes.signature = mimo_hash_int(it->round->signature, chunk);
    maker.made.pushes.idle = it->rule->idle;
    maker.made.pushes.ctas = it->rule->ctas;
    if (it->rule->flags && maker.made.pushes.buffer)
        maker.made.pushes.buffer = it->rule->flags;
    if (status == MIMO_OK)
        status = it->comm->backend->exchange_create(out, it->comm, &maker.made);
    mimo_messages_release(&maker);
    return status;
}

static mimo_status compile_part(const round_maker *it, int64_t index, mimo_leg *list)
{
    const mimo_legs legs = {list, it->round->count};
    mimo_round_part *part = &it->round->parts[index];
    MIMO_TRY(list_sums(part, &legs, it->round));
    return exchange_of(&part->exchange, it, &legs, index);
}

/* The round's legs with what of their plans moves one chunk. */
static mimo_status compile_chunk(const round_maker *it, const mimo_chunk *chunk)
{
    int count = it->round->count;
    mimo_leg *legs = NULL;
    mimo_plan **plans = NULL;
    mimo_status status = mimo_duplicate(&legs, it->round->legs, count, sizeof *legs);
    if (status == MIMO_OK)
        status = mimo_reserve(&plans, count, sizeof *plans);
    for (int i = 0; i < count && status == MIMO_OK; i++) {
        status = mimo_plan_chunk(&plans[i], legs[i].plan, chunk);
        legs[i].plan = plans[i];
    }
    if (status == MIMO_OK)
        status = compile_part(it, chunk->index, legs);
    for (int i = 0; i < count && plans; i++)
        mimo_plan_destroy(plans[i]);
    mimo_release(plans);
    mimo_release(legs);
    return status;
}

mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm, const mimo_push_rule *rule,
                               const mimo_layout *tiles)
{
    const round_maker maker = {round, comm, rule};
    mimo_chunk chunk = {tiles, 0, round->chunks};
    MIMO_TRY(mimo_reserve(&round->parts, round->chunks, sizeof *round->parts));
    if (round->chunks == 1)
        return compile_part(&maker, 0, round->legs);
    for (; chunk.index < chunk.count; chunk.index++)
        MIMO_TRY(compile_chunk(&maker, &chunk));
    return MIMO_OK;
}

void mimo_round_release(mimo_round *round, mimo_comm *comm)
{
    for (int64_t i = 0; i < round->chunks && round->parts; i++) {
        comm->backend->exchange_destroy(round->parts[i].exchange);
        mimo_release(round->parts[i].sums);
    }
    mimo_release(round->parts);
    mimo_release(round->legs);
}

/* ----------------------------------------- running ------------------------------------------ */

mimo_status mimo_round_move(mimo_request **out, const mimo_round_part *part, mimo_comm *comm,
                            mimo_stream stream)
{
    return comm->backend->exchange_start(out, comm, part->exchange, stream);
}

mimo_status mimo_round_add(const mimo_round_part *part, mimo_comm *comm, mimo_stream stream)
{
    for (int64_t i = 0; i < part->sum_count && !MIMO_MUTATED("first-class-only"); i++)
        MIMO_TRY(comm->device->accumulate(&part->sums[i], stream));
    return MIMO_OK;
}
