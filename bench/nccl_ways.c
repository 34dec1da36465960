/* The calls that are timed: those of the library, and the bare ones beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "bench_support.h"
#include "nccl_bed.h"

/* 1 where destinations lie in the buffer: the index of the tiles to use. */
static int is_shared(nccl_way way)
{
    return way >= NCCL_ZERO_COPY && way != NCCL_AUTO_ELSEWHERE;
}

nccl_way nccl_bed_chosen(const nccl_bed *bed, nccl_way way, bool backward)
{
    switch (executor_id_of(mimo_bridge_executor(bed->bridge[way], backward))) {
    case EXECUTOR_COLLECTIVE:
        return NCCL_COLLECTIVE;
    case EXECUTOR_P2P:
        return NCCL_P2P;
    case EXECUTOR_STAGED:
        return NCCL_STAGED;
    default: /* AUTO stages rows of 2 KiB and more */
        return is_shared(way) ? NCCL_ZERO_COPY : NCCL_STAGED;
    }
}

void nccl_bed_move(const nccl_bed *bed, nccl_way way, bool backward)
{
    cudaStream_t stream = bed->world->stream;
    int shared = is_shared(way);
    const mimo_tensor *encoder = &bed->encoder[shared], *language = &bed->language[shared];
    if (backward)
        bench_must(mimo_bridge_backward(bed->bridge[way], encoder, language, 1, stream),
                   "backward");
    else
        bench_must(mimo_bridge_forward(bed->bridge[way], language, encoder, 1, stream), "forward");
}

/* ----------------------------------------- check ------------------------------------------ */

static const mimo_tensor *source_of(const nccl_bed *bed, int shared, bool backward)
{
    return backward ? &bed->language[shared] : &bed->encoder[shared];
}

static const mimo_tensor *target_of(const nccl_bed *bed, int shared, bool backward)
{
    return backward ? &bed->encoder[shared] : &bed->language[shared];
}

/* Fill the source tiles. Copies of a tile must be equal, so a number is a hash of its index in the
 * tile and of what distinguishes tiles: dp and cp. No number is infinite or NaN in bf16. */
static void fill(const nccl_bed *bed, char *host, bool backward)
{
    int64_t dp, cp, bytes = backward ? bed->language_bytes : bed->encoder_bytes;
    const mimo_grid *grid = backward ? bed->dst : bed->src;
    bench_must(mimo_grid_coord(&dp, grid, bed->world->rank, "dp"), "dp");
    bench_must(mimo_grid_coord(&cp, grid, bed->world->rank, "cp"), "cp");
    uint16_t *number = (uint16_t *)host;
    for (int64_t i = 0; i < bytes / 2; i++)
        number[i] =
            (uint16_t)((((uint64_t)i * 2654435761u + (uint64_t)(dp * 16 + cp) * 40503u) >> 7) &
                       0x3fff);
    for (int shared = 0; shared < 2; shared++)
        nccl_must_cuda(cudaMemcpy(source_of(bed, shared, backward)->data, host, (size_t)bytes,
                                  cudaMemcpyHostToDevice),
                       "cudaMemcpy");
}

static void bring(const nccl_bed *bed, nccl_way way, bool backward, char *host, int64_t bytes)
{
    void *target = target_of(bed, is_shared(way), backward)->data;
    nccl_must_cuda(cudaMemset(target, 0xff, (size_t)bytes), "cudaMemset");
    nccl_must_cuda(cudaDeviceSynchronize(), "fill");
    MPI_Barrier(MPI_COMM_WORLD); /* NCCL_ZERO_COPY_IDLE needs it: all destinations are idle */
    nccl_bed_move(bed, way, backward);
    nccl_must_cuda(cudaStreamSynchronize(bed->world->stream), "move");
    nccl_must_cuda(cudaMemcpy(host, target, (size_t)bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

nccl_way nccl_bed_check(const nccl_bed *bed, bool backward)
{
    int64_t out = backward ? bed->encoder_bytes : bed->language_bytes;
    int64_t in = backward ? bed->language_bytes : bed->encoder_bytes, most = in > out ? in : out;
    char *wanted = malloc((size_t)most), *got = malloc((size_t)most);
    int differs = NCCL_WAYS;
    nccl_must(wanted && got, "check", "out of memory");
    fill(bed, got, backward);
    bring(bed, NCCL_COLLECTIVE, backward, wanted, out);
    for (int way = NCCL_P2P; way < NCCL_WAYS && differs == NCCL_WAYS; way++) {
        bring(bed, (nccl_way)way, backward, got, out);
        int bad = memcmp(got, wanted, (size_t)out) != 0;
        MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (bad)
            differs = way;
    }
    free(wanted);
    free(got);
    return (nccl_way)differs;
}

/* -------------------------------------- bare calls ---------------------------------------- */

void nccl_bed_bare_collective(const nccl_bed *bed, bool backward)
{
    cudaStream_t stream = bed->world->stream;
    mimo_fan fan = bench_fan(bed->bridge[NCCL_COLLECTIVE]);
    if (!backward && fan == MIMO_FAN_IN)
        nccl_must_nccl(ncclAllGather(bed->encoder[0].data, bed->full, (size_t)bed->encoder_bytes,
                                     ncclUint8, bed->gather, stream),
                       "ncclAllGather");
    if (backward && bed->cp)
        nccl_must_nccl(ncclAllReduce(bed->full, bed->full, (size_t)bed->full_bytes / 2,
                                     ncclBfloat16, ncclSum, bed->cp, stream),
                       "ncclAllReduce");
    if (backward && fan == MIMO_FAN_OUT)
        nccl_must_nccl(ncclAllGather(bed->full, bed->room, (size_t)bed->full_bytes, ncclUint8,
                                     bed->gather, stream),
                       "ncclAllGather");
}

static void copy(const nccl_bed *bed, int64_t bytes)
{
    for (int64_t left = bytes, part; left > 0; left -= part) {
        part = left < bed->room_bytes ? left : bed->room_bytes;
        nccl_must_cuda(cudaMemcpyAsync(bed->room, bed->full, (size_t)part, cudaMemcpyDeviceToDevice,
                                       bed->world->stream),
                       "cudaMemcpyAsync");
    }
}

/* Forward copies the rows of this rank's shard, from the gathered tile or its own. Backward copies
 * the shard among zeros, then the narrowed or gathered rows to the encoder's tile. */
void nccl_bed_collective_copies(const nccl_bed *bed, bool backward)
{
    if (backward)
        copy(bed, bed->full_bytes);
    copy(bed, backward ? bed->encoder_bytes : bed->language_bytes);
}

void nccl_bed_bare_p2p(const nccl_bed *bed, bool backward)
{
    const nccl_moves *moves = &bed->moves[backward];
    size_t from = 0, to = 0;
    nccl_must_nccl(ncclGroupStart(), "ncclGroupStart");
    for (int peer = 0; peer < bed->world->size; peer++) {
        if (moves->to[peer] > 0)
            nccl_must_nccl(ncclSend((char *)bed->full + to, (size_t)moves->to[peer], ncclUint8,
                                    peer, bed->world->bare, bed->world->stream),
                           "ncclSend");
        if (moves->from[peer] > 0)
            nccl_must_nccl(ncclRecv((char *)bed->room + from, (size_t)moves->from[peer], ncclUint8,
                                    peer, bed->world->bare, bed->world->stream),
                           "ncclRecv");
        to += (size_t)moves->to[peer];
        from += (size_t)moves->from[peer];
    }
    nccl_must_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

/* The bytes that p2p packs and unpacks. Rows that stay are not counted. */
void nccl_bed_p2p_copies(const nccl_bed *bed, bool backward)
{
    copy(bed, bed->moves[backward].load.packed);
    copy(bed, bed->moves[backward].load.unpacked);
}

void nccl_bed_local_copy(const nccl_bed *bed, bool backward)
{
    copy(bed, bed->moves[backward].load.local);
}
