#include "random_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "guarded.h"
#include "reference_grid.h"
#include "same_bits.h"

enum { FROM, TO, SHIFTS = 16 };

static bool odds(uint64_t *seed, int64_t of)
{
    return random_below(seed, of) == 0;
}

/* ----------------------------------------- bridges ------------------------------------------ */

static executor_id draw_executor(uint64_t *seed, bool buffer)
{
    static const executor_id anywhere[] = {EXECUTOR_ROUTED, EXECUTOR_P2P, EXECUTOR_STAGED};
    static const executor_id into[] = {EXECUTOR_ROUTED, EXECUTOR_ZERO_COPY};
    return buffer ? into[random_below(seed, 2)] : anywhere[random_below(seed, 3)];
}

static mimo_partition_rule draw_rule(uint64_t *seed)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = odds(seed, 2);
    return rule;
}

static void draw_bridges(random_calls *it, uint64_t *seed)
{
    static const int ctas[] = {0, 1, 8, 32};
    char src[64], dst[64];
    int64_t src_offset, dst_offset;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    bed_draw_grid(seed, src, &src_offset);
    bed_draw_grid(seed, dst, &dst_offset);
    const mimo_partition_rule src_rule = draw_rule(seed), dst_rule = draw_rule(seed);
    desc.src_partition = odds(seed, 2) ? &src_rule : NULL;
    desc.partition = odds(seed, 2) ? &dst_rule : NULL;
    desc.all_stages = odds(seed, 2);
    desc.ctas = ctas[random_below(seed, 4)];
    it->buffer = odds(seed, 2);
    executor_id there = draw_executor(seed, it->buffer), back = draw_executor(seed, it->buffer);
    snprintf(it->text, sizeof it->text, "%s@%d%s%s -> %s@%d%s%s%s, executors %d, %d, %d ctas", src,
             (int)src_offset, desc.src_partition ? " cut" : "", src_rule.sp ? " sp" : "", dst,
             (int)dst_offset, desc.partition ? " cut" : "", dst_rule.sp ? " sp" : "",
             desc.all_stages ? " all stages" : "", there, back, desc.ctas);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->src, src, src_offset));
    MPI_EXPECT_OK(mimo_grid_create_text(&it->dst, dst, dst_offset));
    desc.src = it->src;
    desc.dst = it->dst;
    desc.executor = executor_of(EXECUTOR_P2P);
    MPI_EXPECT_OK(mimo_bridge_create(&it->plain, mpi_test_comm(), &desc));
    desc.executor = executor_of(there);
    desc.backward_executor = executor_of(back);
    MPI_EXPECT_OK(mimo_bridge_create(&it->bridge, mpi_test_comm(), &desc));
}

/* Batches of a few samples: some ranks have none. */
static void tell_batches(const random_calls *it, uint64_t *seed)
{
    mimo_batch_desc batches[RANDOM_BATCHES];
    for (int i = 0; i < RANDOM_BATCHES; i++) {
        batches[i] = (mimo_batch_desc)MIMO_BATCH_DESC_INIT;
        batches[i].batch = 1 + random_below(seed, mpi_test_size() + 1);
    }
    MPI_EXPECT_OK(mimo_bridge_update(it->bridge, batches, RANDOM_BATCHES));
    MPI_EXPECT_OK(mimo_bridge_update(it->plain, batches, RANDOM_BATCHES));
}

/* ----------------------------------------- tensors ------------------------------------------ */

static int64_t bytes_of(const mimo_tensor *view)
{
    int64_t bytes = 0;
    MPI_EXPECT_OK(mimo_tensor_extent(NULL, &bytes, view));
    return bytes;
}

static int64_t most_of_ranks(int64_t bytes)
{
    int64_t most = 0;
    MPI_Allreduce(&bytes, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* Finite numbers. They differ between ranks, so rows of other ranks show. */
static void fill(const test_room *room, mimo_dtype dtype, uint64_t seed)
{
    int64_t size = (int64_t)mimo_dtype_size(dtype);
    for (int64_t i = 0; i < room->bytes / size; i++)
        ref_store((char *)room->host + i * size, ref_word(seed, mpi_test_rank(), i, 0), size);
    test_push(room);
}

/* Memory that is not there, aligned like this view's. What has no bytes may lie anywhere. */
static void *elsewhere(const mimo_tensor *view, int number, uint64_t *seed)
{
    uint64_t place = (uint64_t)(number + 1) << 36, low = (uint64_t)(uintptr_t)view->data % SHIFTS;
    bool null = odds(seed, 2);
    if (bytes_of(view) == 0)
        return null ? NULL : (char *)(uintptr_t)(place + 1);
    return (char *)(uintptr_t)(place + low);
}

static void draw_views(random_tensor *out, const random_calls *it, const random_call *call,
                       uint64_t *seed)
{
    static const char *const letters[] = {"sbh", "bsh", "bh"};
    static const mimo_dtype dtypes[] = {MIMO_BF16, MIMO_F32, MIMO_F64};
    static const int64_t widths[] = {1, 3, 8, 16};
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    bool flat = odds(seed, 3), src = odds(seed, 2); /* at most one side is */
    sizes.batch = -1;
    sizes.seq = it->seq;
    sizes.hidden = widths[random_below(seed, 4)];
    sizes.dtype = dtypes[random_below(seed, 3)];
    sizes.src_letters = letters[flat && src ? 2 : random_below(seed, 2)];
    sizes.dst_letters = letters[flat && !src ? 2 : random_below(seed, 2)];
    for (int side = 0; side < 2; side++) {
        mimo_tensor *view = &out->views[(side == MIMO_DST) != call->backward ? TO : FROM];
        MPI_EXPECT_OK(mimo_bridge_tile(view, it->bridge, (mimo_side)side, &sizes));
    }
}

static void draw_tensor(random_tensor *out, const random_calls *it, const random_call *call,
                        uint64_t *seed)
{
    static int number;
    draw_views(out, it, call, seed);
    mimo_dtype dtype = out->views[FROM].dtype;
    int64_t step = (int64_t)mimo_dtype_size(dtype), bytes[2];
    int64_t shift[2] = {random_below(seed, SHIFTS / step) * step,
                        random_below(seed, SHIFTS / step) * step};
    for (int way = 0; way < 2; way++)
        bytes[way] = bytes_of(&out->views[way]);
    /* In a buffer the other place lies behind, at the same offset on every rank. */
    int64_t behind = (most_of_ranks(bytes[TO]) + 2 * SHIFTS - 1) / SHIFTS * SHIFTS;
    out->from = test_room_new(bytes[FROM] + SHIFTS);
    out->to = (it->buffer ? test_shared_room_new : test_room_new)(2 * behind + SHIFTS);
    out->views[FROM].data = (char *)out->from.place + shift[FROM];
    out->views[TO].data = (char *)out->to.place + shift[TO];
    fill(&out->from, dtype, next_random(seed));
    for (int way = 0; way < 2; way++) {
        out->other[way] = out->views[way];
        out->other[way].data = elsewhere(&out->views[way], number++, seed);
    }
    if (it->buffer)
        out->other[TO].data = (char *)out->views[TO].data + behind;
}

/* ------------------------------------------ calls ------------------------------------------- */

static mimo_move_desc describe(const random_call *call, mimo_tensor views[2][RANDOM_TENSORS],
                               bool other)
{
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    for (int i = 0; i < call->n; i++)
        for (int way = 0; way < 2; way++)
            views[way][i] = (other ? call->tensors[i].other : call->tensors[i].views)[way];
    move.from = views[FROM];
    move.to = views[TO];
    move.n = call->n;
    move.chunks = call->chunks;
    move.stream = test_stream();
    return move;
}

static void poison_call(const random_call *call)
{
    for (int i = 0; i < call->n; i++) {
        const test_room *room = &call->tensors[i].to;
        memset(room->host, GUARD_POISON, (size_t)room->bytes);
        test_push(room);
    }
}

/* What the call must bring, by the other bridge. */
static void expect(const random_calls *it, random_call *call)
{
    mimo_tensor views[2][RANDOM_TENSORS];
    const mimo_move_desc move = describe(call, views, false);
    poison_call(call);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_bridge_select(it->plain, call->batch));
    MPI_EXPECT_OK((call->backward ? mimo_bridge_backward : mimo_bridge_forward)(
        it->plain, move.to, move.from, move.n, move.stream));
    for (int i = 0; i < call->n; i++) {
        random_tensor *tensor = &call->tensors[i];
        test_pull(&tensor->to);
        tensor->expected = malloc((size_t)tensor->to.bytes);
        memcpy(tensor->expected, tensor->to.host, (size_t)tensor->to.bytes);
    }
}

static void draw_call(random_calls *it, random_call *call, uint64_t *seed)
{
    static const int chunks[] = {1, 1, 2, 4};
    call->batch = (int)random_below(seed, RANDOM_BATCHES);
    call->backward = odds(seed, 2);
    call->chunks = chunks[random_below(seed, 4)];
    call->n = 1 + (int)random_below(seed, RANDOM_TENSORS);
    MPI_EXPECT_OK(mimo_bridge_select(it->bridge, call->batch));
    for (int i = 0; i < call->n; i++)
        draw_tensor(&call->tensors[i], it, call, seed);
    expect(it, call);
}

random_calls random_calls_new(uint64_t *seed)
{
    random_calls it = {.seq = 48};
    draw_bridges(&it, seed);
    tell_batches(&it, seed);
    for (int i = 0; i < RANDOM_CALLS; i++)
        draw_call(&it, &it.calls[i], seed);
    return it;
}

void random_calls_free(random_calls *it)
{
    for (int i = 0; i < RANDOM_CALLS; i++)
        for (int j = 0; j < it->calls[i].n; j++) {
            random_tensor *tensor = &it->calls[i].tensors[j];
            test_room_free(&tensor->from);
            test_room_free(&tensor->to);
            free(tensor->expected);
        }
    mimo_bridge_destroy(it->bridge);
    mimo_bridge_destroy(it->plain);
    mimo_grid_destroy(it->src);
    mimo_grid_destroy(it->dst);
}

void random_calls_prepare(const random_calls *it, int i)
{
    mimo_tensor views[2][RANDOM_TENSORS];
    const random_call *call = &it->calls[i];
    const mimo_move_desc move = describe(call, views, true);
    MPI_EXPECT_OK(mimo_bridge_select(it->bridge, call->batch));
    MPI_EXPECT_OK(mimo_bridge_prepare(it->bridge, call->backward, &move));
}

void random_calls_begin(mimo_op **out, const random_calls *it, int i)
{
    mimo_tensor views[2][RANDOM_TENSORS];
    const random_call *call = &it->calls[i];
    const mimo_move_desc move = describe(call, views, false);
    MPI_EXPECT_OK(mimo_bridge_select(it->bridge, call->batch));
    MPI_EXPECT_OK((call->backward ? mimo_bridge_backward_start_chunked
                                  : mimo_bridge_forward_start_chunked)(out, it->bridge, &move));
}

void random_calls_make(const random_calls *it, int i)
{
    mimo_op *op = NULL;
    random_calls_begin(&op, it, i);
    MPI_EXPECT_OK(mimo_op_wait(&op));
}

void random_calls_poison(const random_calls *it, int i)
{
    poison_call(&it->calls[i]);
    MPI_Barrier(MPI_COMM_WORLD);
}

void random_calls_check(const random_calls *it, int i)
{
    const random_call *call = &it->calls[i];
    for (int j = 0; j < call->n; j++) {
        const random_tensor *tensor = &call->tensors[j];
        int64_t size = (int64_t)mimo_dtype_size(tensor->views[TO].dtype);
        test_pull(&tensor->to);
        MPI_EXPECT_BITS(bits_of(tensor->to.host, tensor->expected, tensor->to.bytes, size, 0),
                        "%s, call %d, %s of %d chunks, tensor %d", it->text, i,
                        call->backward ? "backward" : "forward", call->chunks, j);
    }
}

void random_calls_order(uint64_t *seed, int order[RANDOM_CALLS])
{
    for (int i = 0; i < RANDOM_CALLS; i++) {
        int at = (int)random_below(seed, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
}
