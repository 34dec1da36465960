/* Phases: the exchanges that carry out the transfers of a phase, and the sums that follow. */
#include "bridge/routed/routed_phase.h"

#include "bridge/routed/routed_messages.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ sums -------------------------------------------- */

/* What is added to some rows of a target: classes 1, 2, ... of these rows. A block names them. */
static mimo_placed_sum sum_of(const mimo_transfer *transfer, int64_t classes,
                              const mimo_block *rows)
{
    int64_t size = (int64_t)mimo_dtype_size(transfer->dtype), width = transfer->row_bytes / size;
    int64_t begin = rows->dst_row * transfer->row_bytes;
    bool along_samples = rows->dst_b == 1; /* otherwise rows of a sample follow each other */
    mimo_addends sum = {.n = classes - 1,
                        .step = transfer->bytes / size,
                        .stretches = along_samples ? rows->ns : rows->nb,
                        .pitch = (along_samples ? rows->dst_s : rows->dst_b) * width,
                        .count = (along_samples ? rows->nb : rows->ns) * width,
                        .dtype = transfer->dtype};
    mimo_placed_sum placed = {sum, transfer->to, transfer->classes};
    placed.data.offset += begin;
    placed.terms.offset += begin;
    if (MIMO_MUTATED("class-behind") && sum.count > 0) {
        placed.data.offset += transfer->row_bytes;
        placed.sum.count -= width;
    }
    return placed;
}

/* The rows that a chunk brings to a transfer. The blocks of class 0 list each of them once. */
static void append_sums(mimo_phase_chunk *chunk, const mimo_transfer *transfer, int64_t classes)
{
    static const mimo_block_kind kinds[] = {MIMO_RECV, MIMO_LOCAL};
    for (int k = 0; k < 2; k++) {
        int64_t count;
        const mimo_block *blocks = mimo_plan_blocks(&count, transfer->plan, kinds[k]);
        for (int64_t i = 0; i < count; i++)
            if (blocks[i].contribution == 0)
                chunk->sums[chunk->sum_count++] = sum_of(transfer, classes, &blocks[i]);
    }
}

/* All rows of a transfer, in one stretch. */
static void append_whole_sum(mimo_phase_chunk *chunk, const mimo_transfer *transfer,
                             int64_t classes)
{
    int64_t rows = transfer->row_bytes > 0 ? transfer->bytes / transfer->row_bytes : 0;
    const mimo_block all = {.nb = 1, .ns = rows, .dst_s = 1};
    chunk->sums[chunk->sum_count++] = sum_of(transfer, classes, &all);
}

static mimo_status list_sums(mimo_phase_chunk *chunk, const mimo_transfers *transfers,
                             const mimo_phase *phase)
{
    int64_t received, local, most = transfers->count;
    if (phase->classes == 1)
        return MIMO_OK;
    for (int i = 0; i < transfers->count; i++) {
        mimo_plan_blocks(&received, transfers->list[i].plan, MIMO_RECV);
        mimo_plan_blocks(&local, transfers->list[i].plan, MIMO_LOCAL);
        most += received + local;
    }
    MIMO_TRY(mimo_reserve(&chunk->sums, most, sizeof *chunk->sums));
    for (int i = 0; i < transfers->count; i++)
        (phase->chunk_count == 1 ? append_whole_sum : append_sums)(chunk, &transfers->list[i],
                                                                   phase->classes);
    return MIMO_OK;
}

/* ------------------------------------------ chunks ------------------------------------------ */

/* A phase in making. */
typedef struct phase_maker {
    mimo_phase *phase;
    const mimo_phase_context *context;
} phase_maker;

static mimo_status exchange_of(mimo_exchange **out, const phase_maker *it,
                               const mimo_transfers *transfers)
{
    mimo_message_maker maker = {0};
    mimo_comm *comm = it->context->comm;
    const mimo_push_rule *rule = it->context->rule;
    mimo_status status = mimo_messages_make(&maker, transfers);
    maker.made.alignments = it->context->bases->alignments;
    maker.made.base_count = it->context->bases->count;
    maker.made.guarded = it->phase->guarded;
    maker.made.fifos = it->context->fifos;
    maker.made.pushes.idle = rule->idle;
    maker.made.pushes.ctas = rule->ctas;
    maker.made.pushes.reserved = rule->reserved;
    if (rule->flags && maker.made.pushes.buffer)
        maker.made.pushes.buffer = rule->flags;
    if (status == MIMO_OK)
        status = comm->backend->exchange_create(out, comm, &maker.made);
    mimo_messages_release(&maker);
    return status;
}

static mimo_status compile_chunk(const phase_maker *it, int64_t index, mimo_transfer *list)
{
    const mimo_transfers transfers = {list, it->phase->count};
    mimo_phase_chunk *chunk = &it->phase->chunks[index];
    MIMO_TRY(list_sums(chunk, &transfers, it->phase));
    return exchange_of(&chunk->exchange, it, &transfers);
}

/* The phase's transfers with those blocks of their plans that move one chunk. */
static mimo_status cut_chunk(const phase_maker *it, const mimo_chunk *chunk)
{
    int count = it->phase->count;
    mimo_transfer *transfers = NULL;
    mimo_plan **plans = NULL;
    mimo_status status = mimo_duplicate(&transfers, it->phase->transfers, count, sizeof *transfers);
    if (status == MIMO_OK)
        status = mimo_reserve(&plans, count, sizeof *plans);
    for (int i = 0; i < count && status == MIMO_OK; i++) {
        status = mimo_plan_chunk(&plans[i], transfers[i].plan, chunk);
        transfers[i].plan = plans[i];
    }
    if (status == MIMO_OK)
        status = compile_chunk(it, chunk->index, transfers);
    for (int i = 0; i < count && plans; i++)
        mimo_plan_destroy(plans[i]);
    mimo_release(plans);
    mimo_release(transfers);
    return status;
}

mimo_status mimo_phase_compile(mimo_phase *phase, const mimo_phase_context *context,
                               const mimo_layout *tiles)
{
    const phase_maker maker = {phase, context};
    mimo_chunk chunk = {tiles, 0, phase->chunk_count};
    MIMO_TRY(mimo_reserve(&phase->chunks, phase->chunk_count, sizeof *phase->chunks));
    if (phase->chunk_count == 1)
        return compile_chunk(&maker, 0, phase->transfers);
    for (; chunk.index < chunk.count; chunk.index++)
        MIMO_TRY(cut_chunk(&maker, &chunk));
    return MIMO_OK;
}

void mimo_phase_release(mimo_phase *phase, mimo_comm *comm)
{
    for (int64_t i = 0; i < phase->chunk_count && phase->chunks; i++) {
        comm->backend->exchange_destroy(phase->chunks[i].exchange);
        mimo_release(phase->chunks[i].sums);
    }
    mimo_release(phase->chunks);
    mimo_release(phase->transfers);
}

/* ----------------------------------------- running ------------------------------------------ */

mimo_status mimo_phase_bind(mimo_phase *phase, mimo_comm *comm, const mimo_bases *bases,
                            uint64_t signature)
{
    for (int64_t i = 0; i < phase->chunk_count; i++)
        MIMO_TRY(comm->backend->exchange_bind(phase->chunks[i].exchange, bases->at,
                                              mimo_hash_int(signature, i)));
    return MIMO_OK;
}

mimo_status mimo_phase_connect(const mimo_phase_chunk *chunk, mimo_comm *comm, mimo_stream stream)
{
    const mimo_comm_backend *backend = comm->backend;
    return backend->exchange_connect ? backend->exchange_connect(comm, chunk->exchange, stream)
                                     : MIMO_OK;
}

mimo_status mimo_phase_move(mimo_request **out, const mimo_phase_chunk *chunk, mimo_comm *comm,
                            mimo_stream stream)
{
    return comm->backend->exchange_start(out, comm, chunk->exchange, stream);
}

mimo_status mimo_phase_add(const mimo_phase_chunk *chunk, mimo_comm *comm, const mimo_bases *bases,
                           mimo_stream stream)
{
    for (int64_t i = 0; i < chunk->sum_count && !MIMO_MUTATED("first-class-only"); i++) {
        const mimo_placed_sum *placed = &chunk->sums[i];
        mimo_addends sum = placed->sum;
        sum.data = mimo_address_of(&placed->data, bases->at);
        sum.terms = mimo_address_of(&placed->terms, bases->at);
        MIMO_TRY(comm->device->accumulate(&sum, stream));
    }
    return MIMO_OK;
}
