/*
 * The executors that are fastest for what a bridge is going to move. All candidates live in one
 * bridge and move the same tiles, in interleaved repeats. Each pass keeps its own winner. The times
 * that count are those of the slowest rank, so all ranks choose the same.
 */
#include <inttypes.h>
#include <string.h>

#include "bridge/bridge_executors.h"
#include "layout/layout_types.h"
#include "comm/calls.h"
#include "comm/buffer_state.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/dtype_kind.h"
#include "core/fastest.h"
#include "core/hash.h"
#include "core/logging.h"
#include "core/memory.h"
#include "device/profile.h"

MIMO_DEFINE_INIT(mimo_bridge_sizes, MIMO_BRIDGE_SIZES_INIT)

/* The first one is kept unless another one is clearly faster (core/fastest.h). */
enum { ROUTED, P2P, STAGED, COLLECTIVE, CANDIDATES };

static const mimo_executor candidates[] = {
    [ROUTED] = {MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_AUTO},
    [P2P] = {MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_P2P},
    [STAGED] = {MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_STAGED},
    [COLLECTIVE] = {MIMO_ALGORITHM_COLLECTIVE, MIMO_TRANSPORT_AUTO},
};

enum {
    PASSES = 2,
    WARM_UP = 2,
    ENQUEUED = 20, /* calls of a repeat on a device, where they follow one another without the host;
                      on the host one ends before the next begins */
};

typedef struct trial {
    mimo_bridge *bridge;
    const mimo_bridge_sizes *sizes;
    mimo_tensor tile[2]; /* by mimo_side: the source of one pass and the destination of the other */
    int64_t bytes[2];
    mimo_buffer *buffer[2];         /* that it lies in; NULL: memory of the device */
    bool taken[PASSES][CANDIDATES]; /* measured */
    uint64_t ns[PASSES][CANDIDATES][MIMO_FASTEST_REPEATS];
} trial;

/* --------------------------------------- tiles ---------------------------------------- */

static const char *letters_of(const mimo_bridge_sizes *sizes, mimo_side side)
{
    const char *given = side == MIMO_SRC ? sizes->src_letters : sizes->dst_letters;
    return given ? given : "sbh";
}

/* This rank's tile of a side, without memory. */
static mimo_status shape_tile(trial *it, mimo_side side)
{
    MIMO_TRY(mimo_bridge_tile(&it->tile[side], it->bridge, side, it->sizes));
    return mimo_tensor_extent(NULL, &it->bytes[side], &it->tile[side]);
}

/* Zeros: copies of a source are equal, which MIMO_CHECK=replicas looks at. */
static mimo_status clear_tile(const trial *it, mimo_side side)
{
    const mimo_rows all = mimo_one_row(it->tile[side].data, it->bytes[side]);
    return it->bridge->mover.parent->device->zero_rows(&all, NULL);
}

/* Collective where tiles lie in buffers: all ranks get the largest size. */
static mimo_status reserve_tile(trial *it, mimo_side side)
{
    mimo_comm *parent = it->bridge->mover.parent;
    if (it->sizes->in_buffer) {
        MIMO_TRY(mimo_buffer_create_internal(&it->buffer[side], parent, it->bytes[side]));
        it->tile[side].data = mimo_buffer_data(it->buffer[side]);
    } else {
        MIMO_TRY(parent->device->reserve(&it->tile[side].data, it->bytes[side]));
    }
    return clear_tile(it, side);
}

static mimo_status make_tiles(trial *it)
{
    mimo_comm *parent = it->bridge->mover.parent;
    mimo_status status = shape_tile(it, MIMO_SRC);
    if (status == MIMO_OK)
        status = shape_tile(it, MIMO_DST);
    MIMO_TRY(mimo_comm_agree(parent, status));
    status = reserve_tile(it, MIMO_SRC);
    if (status == MIMO_OK || !it->sizes->in_buffer)
        MIMO_KEEP_FIRST(status, reserve_tile(it, MIMO_DST));
    return mimo_comm_agree(parent, status);
}

static void release_tiles(trial *it)
{
    for (int side = 0; side < 2; side++) {
        if (!it->sizes->in_buffer)
            mimo_comm_release_moved(it->bridge->mover.comm, it->tile[side].data);
        mimo_buffer_destroy(it->buffer[side]);
    }
}

/* --------------------------------------- timing --------------------------------------- */

/* Nanoseconds that a repeat of a candidate takes on this rank, to the end of its stream. */
static mimo_status move(uint64_t *ns, const trial *it, int pass, int candidate)
{
    mimo_bridge *bridge = it->bridge;
    const mimo_device *device = bridge->mover.comm->device;
    const mimo_tensor *to = &it->tile[pass == 0 ? MIMO_DST : MIMO_SRC];
    const mimo_tensor *from = &it->tile[pass == 0 ? MIMO_SRC : MIMO_DST];
    bridge->executor[pass] = candidates[candidate];
    MIMO_TRY(mimo_comm_barrier(bridge->mover.parent));
    int64_t begin = mimo_now();
    for (int i = 0; i < (device->enqueues ? ENQUEUED : 1); i++)
        MIMO_TRY(
            (pass == 0 ? mimo_bridge_forward : mimo_bridge_backward)(bridge, to, from, 1, NULL));
    MIMO_TRY(mimo_comm_synchronize(bridge->mover.parent, NULL));
    *ns = (uint64_t)(mimo_now() - begin);
    return MIMO_OK;
}

/* Replace this rank's times of a repeat by the largest of all ranks. */
static mimo_status take_slowest(trial *it, int repeat)
{
    mimo_comm *parent = it->bridge->mover.parent;
    mimo_request *request = NULL;
    uint64_t ns[PASSES][CANDIDATES];
    for (int pass = 0; pass < PASSES; pass++)
        for (int c = 0; c < CANDIDATES; c++)
            ns[pass][c] = it->ns[pass][c][repeat];
    MIMO_TRY(parent->backend->host_max_start(&request, parent, ns[0], PASSES * CANDIDATES));
    MIMO_TRY(mimo_wait(parent, &request, "bridge create"));
    for (int pass = 0; pass < PASSES; pass++)
        for (int c = 0; c < CANDIDATES; c++)
            it->ns[pass][c][repeat] = ns[pass][c];
    return MIMO_OK;
}

/* Where destinations lie in a buffer, rows go there without staging. Elsewhere routed is p2p or
 * staged: where there is nothing to stage through, it is p2p. */
static bool is_candidate(const trial *it, int pass, int c)
{
    bool stages = mimo_fifos_of(&it->bridge->fifos) != NULL, in_buffer = it->sizes->in_buffer;
    const bool is[CANDIDATES] = {
        [ROUTED] = true,
        [P2P] = in_buffer || stages,
        [STAGED] = stages && !in_buffer,
        [COLLECTIVE] = it->bridge->measured[pass],
    };
    return is[c];
}

/* So that the repeats find all that a first call makes. */
static mimo_status warm_up(trial *it)
{
    uint64_t ns;
    for (int pass = 0; pass < PASSES; pass++)
        for (int c = 0; c < CANDIDATES; c++) {
            it->taken[pass][c] = is_candidate(it, pass, c);
            for (int i = 0; i < WARM_UP && it->taken[pass][c]; i++)
                MIMO_TRY(move(&ns, it, pass, c));
        }
    return MIMO_OK;
}

/* The candidate that comes at this point of a repeat. No candidate always comes first, nor always
 * behind the same one, which leaves it warm caches. */
static int nth_of(int repeat, int n)
{
    return (repeat + (repeat % 2 > 0 ? CANDIDATES - n : n)) % CANDIDATES;
}

static mimo_status run(trial *it)
{
    MIMO_TRY(warm_up(it));
    for (int repeat = 0; repeat < MIMO_FASTEST_REPEATS; repeat++) {
        for (int pass = 0; pass < PASSES; pass++)
            for (int n = 0; n < CANDIDATES; n++) {
                int c = nth_of(repeat, n);
                if (it->taken[pass][c])
                    MIMO_TRY(move(&it->ns[pass][c][repeat], it, pass, c));
            }
        MIMO_TRY(take_slowest(it, repeat));
    }
    return MIMO_OK;
}

/* --------------------------------------- choice --------------------------------------- */

static mimo_executor winner(const trial *it, int pass)
{
    mimo_fastest_times times[CANDIDATES];
    for (int c = 0; c < CANDIDATES; c++)
        times[c] = it->taken[pass][c] ? it->ns[pass][c] : NULL;
    int chosen = mimo_fastest_of(times, CANDIDATES);
    mimo_log(MIMO_LOG_INFO, "%s: %s was measured as the fastest %s", it->bridge->mover.title,
             mimo_executor_name(candidates[chosen]), pass == 0 ? "forward" : "backward");
    return candidates[chosen];
}

static mimo_status measure(trial *it)
{
    mimo_status status = make_tiles(it);
    if (status == MIMO_OK)
        status = mimo_comm_agree(it->bridge->mover.parent, run(it));
    release_tiles(it);
    return status;
}

/* Collective adds up full sequences in backward, which not every dtype can be. */
static bool collective_adds(const mimo_bridge *bridge, mimo_dtype dtype, int pass)
{
    return pass == 0 || mimo_dtype_can_add(dtype) || mimo_grid_dim_size(bridge->dst, "cp") == 1;
}

/* Whether there is more than one candidate. */
static bool has_choice(const trial *it)
{
    bool has = false;
    for (int pass = 0; pass < PASSES; pass++)
        for (int c = ROUTED + 1; c < CANDIDATES; c++)
            has = has || is_candidate(it, pass, c);
    return has;
}

/* What no pass needs any more. */
static void release_losers(mimo_bridge *bridge)
{
    mimo_executors_disconnect_unused(bridge);
    if (!mimo_bridge_stages(bridge, false) && !mimo_bridge_stages(bridge, true))
        mimo_fifos_leave(&bridge->fifos);
}

/* Without collective the batch may be uneven. The trial gives it, so that its calls only enqueue on
 * devices. */
static mimo_status choose(mimo_bridge *bridge, const mimo_bridge_sizes *sizes)
{
    trial it = {.bridge = bridge, .sizes = sizes};
    const bool collective = mimo_bridge_has(bridge, MIMO_ALGORITHM_COLLECTIVE);
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = sizes->batch;
    if (!sizes->in_buffer)
        MIMO_TRY(mimo_comm_agree(bridge->mover.parent,
                                 mimo_fifos_use(&bridge->fifos, bridge->mover.parent)));
    for (int pass = 0; pass < PASSES; pass++)
        bridge->measured[pass] = collective && collective_adds(bridge, sizes->dtype, pass);
    if (!has_choice(&it))
        return MIMO_OK;
    if (!collective)
        MIMO_TRY(mimo_bridge_update(bridge, &batch, 1));
    MIMO_TRY(measure(&it));
    for (int pass = 0; pass < PASSES; pass++)
        bridge->executor[pass] = winner(&it, pass);
    release_losers(bridge);
    return collective ? MIMO_OK : mimo_bridge_update(bridge, NULL, 0);
}

static bool splits_evenly(const mimo_bridge_desc *desc, int64_t batch)
{
    return desc->src && desc->dst && batch % mimo_grid_dim_size(desc->src, "dp") == 0 &&
           batch % mimo_grid_dim_size(desc->dst, "dp") == 0;
}

/* A bridge of both executors where collective takes grids and batch. All ranks do the same: they
 * agreed on whether the batch is split evenly (`sign`), and a creation has one status. */
static mimo_status create_all(mimo_bridge **out, mimo_comm *comm, mimo_bridge_desc *desc,
                              const mimo_bridge_sizes *sizes)
{
    desc->executor = candidates[ROUTED];
    if (!sizes->any_batch && splits_evenly(desc, sizes->batch)) {
        desc->backward_executor = candidates[COLLECTIVE];
        mimo_status status = mimo_bridge_create(out, comm, desc);
        if (status != MIMO_ERR_GRID && status != MIMO_ERR_UNSUPPORTED)
            return status;
    }
    desc->backward_executor = candidates[ROUTED];
    return mimo_bridge_create(out, comm, desc);
}

static mimo_status check_sizes(const mimo_bridge_sizes *sizes)
{
    int64_t bytes;
    MIMO_CHECK(sizes->batch > 0 && sizes->seq > 0 && sizes->hidden > 0, MIMO_ERR_ARGUMENT,
               "bridge sizes: batch %" PRId64 ", seq %" PRId64 ", hidden %" PRId64, sizes->batch,
               sizes->seq, sizes->hidden);
    MIMO_CHECK(mimo_dtype_size(sizes->dtype) > 0, MIMO_ERR_ARGUMENT,
               "bridge sizes: unknown dtype %d", (int)sizes->dtype);
    for (mimo_side side = MIMO_SRC; side <= MIMO_DST; side++) {
        const char *letters = letters_of(sizes, side);
        MIMO_CHECK(strcmp(letters, "sbh") == 0 || strcmp(letters, "bsh") == 0, MIMO_ERR_ARGUMENT,
                   "bridge sizes: letters '%s' of %s are neither sbh nor bsh", letters,
                   mimo_side_names[side]);
    }
    MIMO_TRY(mimo_mul(&bytes, sizes->batch, sizes->seq));
    MIMO_TRY(mimo_mul(&bytes, bytes, sizes->hidden));
    return mimo_mul(&bytes, bytes, (int64_t)mimo_dtype_size(sizes->dtype));
}

static mimo_status read_arguments(mimo_bridge_desc *desc, mimo_bridge_sizes *sizes,
                                  const mimo_bridge_desc *given,
                                  const mimo_bridge_sizes *given_sizes, const void *out)
{
    MIMO_CHECK(out && given && given_sizes, MIMO_ERR_ARGUMENT, "bridge: %s is NULL",
               !out ? "out" : (!given ? "desc" : "sizes"));
    MIMO_TRY(mimo_read_descriptor(desc, sizeof *desc, given, "bridge"));
    MIMO_TRY(mimo_read_descriptor(sizes, sizeof *sizes, given_sizes, "bridge sizes"));
    desc->size = sizeof *desc;
    MIMO_CHECK(desc->src && desc->dst, MIMO_ERR_ARGUMENT, "bridge: the %s grid is NULL",
               desc->src ? "dst" : "src");
    MIMO_CHECK(
        mimo_executor_is_auto(desc->executor) && mimo_executor_is_auto(desc->backward_executor),
        MIMO_ERR_ARGUMENT, "bridge: the executor of %s is pinned, and sizes are for choosing one",
        mimo_executor_is_auto(desc->executor) ? "backward" : "forward");
    MIMO_CHECK(desc->batch < 0 || desc->batch == sizes->batch, MIMO_ERR_ARGUMENT,
               "bridge: the descriptor gives a batch of %" PRId64 ", the sizes one of %" PRId64,
               desc->batch, sizes->batch);
    return check_sizes(sizes);
}

/* The sizes, and of the grids what decides which bridges are created. */
static uint64_t sign(const mimo_bridge_sizes *sizes, const mimo_bridge_desc *desc)
{
    uint64_t hash = mimo_hash_int(mimo_hash_int(MIMO_HASH_START, sizes->batch), sizes->seq);
    hash = mimo_hash_int(mimo_hash_int(hash, sizes->hidden), sizes->dtype);
    hash = mimo_hash_int(hash, splits_evenly(desc, sizes->batch));
    for (mimo_side side = MIMO_SRC; side <= MIMO_DST; side++)
        hash = mimo_hash_int(hash, letters_of(sizes, side)[0]);
    return mimo_hash_int(mimo_hash_int(hash, sizes->in_buffer), sizes->any_batch);
}

mimo_status mimo_bridge_create_fastest(mimo_bridge **out, mimo_comm *comm,
                                       const mimo_bridge_desc *desc, const mimo_bridge_sizes *sizes)
{
    MIMO_RANGE();
    mimo_bridge_desc own = MIMO_BRIDGE_DESC_INIT;
    mimo_bridge_sizes own_sizes = MIMO_BRIDGE_SIZES_INIT;
    mimo_bridge *bridge = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "bridge: comm is NULL");
    MIMO_ENTER(comm, "bridge");
    mimo_status local = read_arguments(&own, &own_sizes, desc, sizes, out);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_CREATE, local, sign(&own_sizes, &own),
                           "bridge create by measurement"));
    MIMO_TRY(create_all(&bridge, comm, &own, &own_sizes));
    mimo_status status = choose(bridge, &own_sizes);
    if (status == MIMO_OK)
        *out = bridge;
    else
        mimo_bridge_destroy(bridge);
    return status;
}
