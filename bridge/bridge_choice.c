/*
 * The executor that is fastest for what a bridge is going to move: each candidate is made, moves
 * tiles of that size both ways a few times, and the slowest rank's time counts, so that all ranks
 * choose alike.
 */
#include <inttypes.h>
#include <time.h>

#include "bridge/bridge_types.h"
#include "bridge/layout_types.h"
#include "comm/buffer_state.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"

enum { WARM_UP = 2, CALLS = 4, REPEATS = 5, CANDIDATES = 2 };

/* --------------------------------------- tiles ---------------------------------------- */

/* Tiles of a trial; a tile is source of one way and target of the other. */
typedef struct trial {
    mimo_bridge *bridge;
    const mimo_bridge_sizes *sizes;
    mimo_tensor tile[2]; /* by mimo_side */
    int64_t bytes[2];
    mimo_buffer *buffer[2]; /* that it lies in; NULL: memory of the device */
} trial;

/* This rank's tile of a side, without memory. */
static mimo_status shape_tile(trial *it, mimo_side side)
{
    mimo_layout *layout;
    const mimo_bridge_sizes *sizes = it->sizes;
    mimo_layout_desc desc = it->bridge->executor->side(it->bridge, side);
    desc.batch = sizes->batch;
    desc.seq = sizes->seq;
    MIMO_TRY(mimo_layout_create(&layout, &desc));
    mimo_cell cell;
    bool holds = mimo_layout_cell(&cell, layout, it->bridge->rank);
    int64_t samples = holds ? mimo_layout_samples(layout, cell.dp).count : 0;
    it->tile[side] =
        mimo_tensor_3d(NULL, sizes->dtype, "sbh", layout->shard, samples, sizes->hidden);
    it->tile[side].memory = it->bridge->memory;
    mimo_layout_destroy(layout);
    return mimo_tensor_extent(&it->tile[side], NULL, &it->bytes[side]);
}

/* Collective where tiles lie in buffers: all ranks get the largest size. */
static mimo_status place_tile(trial *it, mimo_side side)
{
    mimo_comm *parent = it->bridge->parent;
    if (!it->sizes->in_buffer)
        return parent->device->reserve(&it->tile[side].data, it->bytes[side]);
    MIMO_TRY(mimo_buffer_create_own(&it->buffer[side], parent, it->bytes[side]));
    it->tile[side].data = mimo_buffer_data(it->buffer[side]);
    return MIMO_OK;
}

static mimo_status make_tiles(trial *it)
{
    mimo_comm *parent = it->bridge->parent;
    mimo_status status = shape_tile(it, MIMO_SRC);
    if (status == MIMO_OK)
        status = shape_tile(it, MIMO_DST);
    MIMO_TRY(mimo_comm_agree(parent, status));
    status = place_tile(it, MIMO_SRC);
    if (status == MIMO_OK || !it->sizes->in_buffer)
        MIMO_KEEP_FIRST(status, place_tile(it, MIMO_DST));
    return mimo_comm_agree(parent, status);
}

static void release_tiles(trial *it)
{
    for (int side = 0; side < 2; side++) {
        if (!it->sizes->in_buffer)
            it->bridge->comm->device->release(it->tile[side].data);
        mimo_buffer_destroy(it->buffer[side]);
    }
}

/* --------------------------------------- timing --------------------------------------- */

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static mimo_status move(const trial *it, int calls)
{
    char byte;
    const mimo_tensor *src = &it->tile[MIMO_SRC], *dst = &it->tile[MIMO_DST];
    for (int i = 0; i < calls; i++) {
        MIMO_TRY(mimo_bridge_forward(it->bridge, dst, src, 1, NULL));
        MIMO_TRY(mimo_bridge_backward(it->bridge, src, dst, 1, NULL));
    }
    return it->bridge->comm->device->download(&byte, NULL, 0, NULL); /* the end of the stream */
}

/* The fastest of some repeats: what disturbs one only makes it slower. */
static mimo_status run(const trial *it, int64_t *least)
{
    MIMO_TRY(move(it, WARM_UP));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        MIMO_TRY(mimo_comm_barrier(it->bridge->parent));
        int64_t begin = nanoseconds();
        MIMO_TRY(move(it, CALLS));
        int64_t taken = nanoseconds() - begin;
        *least = repeat == 0 || taken < *least ? taken : *least;
    }
    return MIMO_OK;
}

/* Nanoseconds of the slowest rank. */
static mimo_status measure(int64_t *out, mimo_bridge *bridge, const mimo_bridge_sizes *sizes)
{
    trial it = {.bridge = bridge, .sizes = sizes};
    int64_t own = 0;
    uint64_t most[1];
    mimo_comm *parent = bridge->parent;
    mimo_request *request = NULL;
    mimo_status status = make_tiles(&it);
    if (status == MIMO_OK)
        status = mimo_comm_agree(parent, run(&it, &own));
    release_tiles(&it);
    MIMO_TRY(status);
    most[0] = (uint64_t)own;
    MIMO_TRY(parent->backend->vote_start(&request, parent, most, 1));
    MIMO_TRY(mimo_wait(parent, &request, "bridge create"));
    *out = (int64_t)most[0];
    return MIMO_OK;
}

/* --------------------------------------- choice --------------------------------------- */

typedef struct candidates {
    mimo_bridge *bridge[CANDIDATES];
    int count;
} candidates;

/* Whether an executor takes these grids follows from the descriptor, so all ranks see alike. */
static mimo_status make_candidates(candidates *out, mimo_comm *comm, const mimo_bridge_desc *desc)
{
    static const mimo_executor executors[CANDIDATES] = {MIMO_EXECUTOR_ROUTED,
                                                        MIMO_EXECUTOR_COLLECTIVE};
    for (int i = 0; i < CANDIDATES; i++) {
        mimo_bridge_desc pinned = *desc;
        pinned.executor = executors[i];
        mimo_status status = mimo_bridge_create(&out->bridge[out->count], comm, &pinned);
        bool refused = status == MIMO_ERR_GRID || status == MIMO_ERR_UNSUPPORTED;
        if (i > 0 && refused)
            continue;
        MIMO_TRY(status);
        out->count++;
    }
    return MIMO_OK;
}

static mimo_status choose(int *best, const candidates *all, const mimo_bridge_sizes *sizes)
{
    int64_t taken, least = 0;
    *best = 0;
    for (int i = 0; i < all->count && all->count > 1; i++) {
        MIMO_TRY(measure(&taken, all->bridge[i], sizes));
        if (i == 0 || taken < least) {
            least = taken;
            *best = i;
        }
    }
    return MIMO_OK;
}

static mimo_status check_sizes(const mimo_bridge_sizes *sizes)
{
    int64_t bytes;
    MIMO_CHECK(sizes->batch > 0 && sizes->seq > 0 && sizes->hidden > 0, MIMO_ERR_ARGUMENT,
               "bridge sizes: batch %" PRId64 ", seq %" PRId64 ", hidden %" PRId64, sizes->batch,
               sizes->seq, sizes->hidden);
    MIMO_CHECK(mimo_dtype_size(sizes->dtype) > 0, MIMO_ERR_ARGUMENT,
               "bridge sizes: unknown dtype %d", (int)sizes->dtype);
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
    MIMO_CHECK(desc->executor == MIMO_EXECUTOR_AUTO, MIMO_ERR_ARGUMENT,
               "bridge: executor %d is pinned, and sizes are for choosing one",
               (int)desc->executor);
    return check_sizes(sizes);
}

static uint64_t sign(const mimo_bridge_sizes *sizes)
{
    uint64_t hash = mimo_hash_int(mimo_hash_int(MIMO_HASH_START, sizes->batch), sizes->seq);
    hash = mimo_hash_int(mimo_hash_int(hash, sizes->hidden), sizes->dtype);
    return mimo_hash_int(hash, sizes->in_buffer);
}

mimo_status mimo_bridge_create_fastest(mimo_bridge **out, mimo_comm *comm,
                                       const mimo_bridge_desc *desc, const mimo_bridge_sizes *sizes)
{
    mimo_bridge_desc own = MIMO_BRIDGE_DESC_INIT;
    mimo_bridge_sizes own_sizes = MIMO_BRIDGE_SIZES_INIT;
    candidates all = {{NULL}, 0};
    int best = 0;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "bridge: comm is NULL");
    mimo_status local = read_arguments(&own, &own_sizes, desc, sizes, out);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_ALWAYS, local, sign(&own_sizes),
                           "bridge create by measurement"));
    mimo_status status = make_candidates(&all, comm, &own);
    if (status == MIMO_OK)
        status = choose(&best, &all, &own_sizes);
    for (int i = 0; i < CANDIDATES; i++)
        if (status != MIMO_OK || i != best)
            mimo_bridge_destroy(all.bridge[i]);
    if (status == MIMO_OK)
        *out = all.bridge[best];
    return status;
}

mimo_executor mimo_bridge_executor(const mimo_bridge *bridge)
{
    if (bridge->executor == &mimo_collective_executor)
        return MIMO_EXECUTOR_COLLECTIVE;
    return MIMO_EXECUTOR_ROUTED;
}
