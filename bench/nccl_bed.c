/* Grids, bridges and tiles of one case. */
#include "nccl_bed.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_support.h"

static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;

void nccl_must(bool ok, const char *what, const char *why)
{
    if (ok)
        return;
    fprintf(stderr, "nccl_bench: %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void nccl_must_cuda(cudaError_t code, const char *what)
{
    nccl_must(code == cudaSuccess, what, cudaGetErrorString(code));
}

void nccl_must_nccl(ncclResult_t code, const char *what)
{
    nccl_must(code == ncclSuccess, what, ncclGetErrorString(code));
}

/* ----------------------------------------- moves ------------------------------------------ */

/* Add the bytes of all blocks of one kind, by peer. */
static void count_blocks(int64_t *bytes, const mimo_plan *plan, mimo_block_kind kind,
                         int64_t row_bytes)
{
    int64_t count;
    const mimo_block *block = mimo_plan_blocks(&count, plan, kind);
    for (int64_t i = 0; i < count; i++)
        bytes[block[i].peer] += block[i].nb * block[i].ns * row_bytes;
}

static void read_moves(nccl_moves *moves, const nccl_bed *bed, const mimo_layout *from,
                       const mimo_layout *to)
{
    mimo_plan *plan;
    int size = bed->world->size;
    int64_t row_bytes = bed->c.hidden * 2, most[2];
    moves->to = calloc((size_t)size, sizeof *moves->to);
    moves->from = calloc((size_t)size, sizeof *moves->from);
    bench_must(mimo_plan_create(&plan, from, to, bed->world->rank), "plan");
    count_blocks(moves->to, plan, MIMO_SEND, row_bytes);
    count_blocks(moves->from, plan, MIMO_RECV, row_bytes);
    moves->load = mimo_plan_load_of(plan, row_bytes);
    mimo_plan_destroy(plan);
    for (int rank = 0; rank < size; rank++)
        moves->peers += moves->to[rank] > 0;
    int64_t own[2] = {moves->load.in, moves->peers};
    MPI_Allreduce(own, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    moves->most_in = most[0];
    moves->most_peers = (int)most[1];
}

static void read_both_moves(nccl_bed *bed)
{
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *src, *dst;
    desc.grid = bed->src;
    desc.batch = bed->c.batch;
    desc.seq = bed->c.seq;
    bench_must(mimo_layout_create(&src, &desc), "layout");
    desc.grid = bed->dst;
    desc.partition = &zigzag;
    bench_must(mimo_layout_create(&dst, &desc), "layout");
    read_moves(&bed->moves[0], bed, src, dst);
    read_moves(&bed->moves[1], bed, dst, src);
    mimo_layout_destroy(src);
    mimo_layout_destroy(dst);
}

/* --------------------------------- grids, bridges, tiles ---------------------------------- */

mimo_bridge_desc nccl_bed_bridge_desc(const nccl_bed *bed)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = bed->src;
    desc.dst = bed->dst;
    desc.partition = &zigzag;
    desc.batch = bed->c.batch;
    return desc;
}

/* A limit of its own would be reserved beside the others, which would have fewer then. */
void nccl_bed_create_few(mimo_bridge **out, mimo_comm *comm, const mimo_bridge_desc *desc)
{
    char few[16];
    const char *before = getenv("MIMO_CTAS");
    char *kept = before ? strdup(before) : NULL;
    snprintf(few, sizeof few, "%d", NCCL_FEW_CTAS);
    (void)setenv("MIMO_CTAS", few, 1);
    bench_must(mimo_bridge_create(out, comm, desc), "bridge");
    (void)(kept ? setenv("MIMO_CTAS", kept, 1) : unsetenv("MIMO_CTAS"));
    free(kept);
}

static void make_bridges(nccl_bed *bed)
{
    static const executor_id executors[NCCL_AUTO] = {
        EXECUTOR_COLLECTIVE, EXECUTOR_P2P,       EXECUTOR_STAGED,   EXECUTOR_STAGED,
        EXECUTOR_ZERO_COPY,  EXECUTOR_ZERO_COPY, EXECUTOR_ZERO_COPY};
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    mimo_bridge_desc desc = nccl_bed_bridge_desc(bed);
    for (int way = 0; way < NCCL_AUTO; way++) {
        desc.executor = executor_of(executors[way]);
        desc.destinations_idle = way == NCCL_ZERO_COPY_IDLE;
        if (way == NCCL_ZERO_COPY_FEW || way == NCCL_STAGED_FEW)
            nccl_bed_create_few(&bed->bridge[way], bed->world->comm, &desc);
        else
            bench_must(mimo_bridge_create(&bed->bridge[way], bed->world->comm, &desc), "bridge");
    }
    desc.executor = executor_of(EXECUTOR_AUTO);
    desc.destinations_idle = false;
    sizes.batch = bed->c.batch;
    sizes.seq = bed->c.seq;
    sizes.hidden = bed->c.hidden;
    for (int way = NCCL_AUTO; way < NCCL_WAYS; way++) {
        sizes.in_buffer = way == NCCL_AUTO;
        bench_must(mimo_bridge_create_fastest(&bed->bridge[way], bed->world->comm, &desc, &sizes),
                   "bridge");
    }
}

static mimo_tensor view(void *data, int64_t seq, int64_t batch, int64_t hidden)
{
    mimo_tensor tensor = mimo_tensor_3d(data, MIMO_BF16, "sbh", seq, batch, hidden);
    tensor.memory = MIMO_MEMORY_CUDA;
    return tensor;
}

static void *device_room(int64_t bytes)
{
    void *room;
    nccl_must_cuda(cudaMalloc(&room, (size_t)bytes), "cudaMalloc");
    nccl_must_cuda(cudaMemset(room, 0x3c, (size_t)bytes), "cudaMemset"); /* small numbers */
    return room;
}

static void make_tiles(nccl_bed *bed)
{
    const nccl_case *c = &bed->c;
    int64_t dst_batch = c->batch / mimo_grid_dim_size(bed->dst, "dp");
    int64_t src_batch = c->batch / mimo_grid_dim_size(bed->src, "dp");
    int64_t rows = c->seq / mimo_grid_dim_size(bed->dst, "cp");
    int64_t most = src_batch > dst_batch ? src_batch : dst_batch;
    bed->encoder_bytes = c->seq * src_batch * c->hidden * 2;
    bed->language_bytes = rows * dst_batch * c->hidden * 2;
    bed->full_bytes = c->seq * dst_batch * c->hidden * 2;
    bench_must(mimo_buffer_create(&bed->buffer, bed->world->comm,
                                  bed->encoder_bytes + bed->language_bytes),
               "buffer");
    char *shared = mimo_buffer_data(bed->buffer);
    nccl_must_cuda(cudaMemset(shared, 0x3c, (size_t)mimo_buffer_size(bed->buffer)), "cudaMemset");
    void *encoder[2] = {device_room(bed->encoder_bytes), shared};
    void *language[2] = {device_room(bed->language_bytes), shared + bed->encoder_bytes};
    for (int i = 0; i < 2; i++) {
        bed->encoder[i] = view(encoder[i], c->seq, src_batch, c->hidden);
        bed->language[i] = view(language[i], rows, dst_batch, c->hidden);
    }
    bed->room_bytes = c->seq * most * c->hidden * 2;
}

static void make_rooms(nccl_bed *bed)
{
    for (int pass = 0; pass < 2; pass++) {
        const mimo_plan_load *load = &bed->moves[pass].load;
        int64_t most = load->in > load->out ? load->in : load->out;
        bed->room_bytes = most > bed->room_bytes ? most : bed->room_bytes;
    }
    bed->full = device_room(bed->room_bytes);
    bed->room = device_room(bed->room_bytes);
}

static ncclComm_t bare_group(const nccl_bed *bed, int64_t index, int64_t place)
{
    ncclComm_t group = NULL;
    nccl_must_nccl(ncclCommSplit(bed->world->bare, (int)index, (int)place, &group, NULL),
                   "ncclCommSplit");
    return group;
}

static void make_bare_groups(nccl_bed *bed)
{
    int64_t index, place;
    if (bench_fan(bed->bridge[NCCL_COLLECTIVE]) != MIMO_FAN_EQUAL) {
        bench_must(mimo_pairing_slot(&index, &place, bed->src, bed->dst, bed->world->rank),
                   "gather group");
        bed->gather = bare_group(bed, index, place);
    }
    if (mimo_grid_dim_size(bed->dst, "cp") > 1) {
        bench_must(mimo_grid_group_of(&index, &place, bed->dst, "cp", bed->world->rank),
                   "cp group");
        bed->cp = bare_group(bed, index, place);
    }
}

void nccl_bed_create(nccl_bed *out, const nccl_world *world, const nccl_case *c)
{
    *out = (nccl_bed){.world = world, .c = *c};
    bench_must(mimo_grid_create_text(&out->src, c->src, 0), c->src);
    bench_must(mimo_grid_create_text(&out->dst, c->dst, 0), c->dst);
    make_bridges(out);
    make_tiles(out);
    make_bare_groups(out);
    read_both_moves(out);
    make_rooms(out);
}

void nccl_bed_destroy(nccl_bed *bed)
{
    for (int way = 0; way < NCCL_WAYS; way++)
        mimo_bridge_destroy(bed->bridge[way]);
    mimo_buffer_destroy(bed->buffer);
    if (bed->gather)
        ncclCommDestroy(bed->gather);
    if (bed->cp)
        ncclCommDestroy(bed->cp);
    cudaFree(bed->encoder[0].data);
    cudaFree(bed->language[0].data);
    cudaFree(bed->full);
    cudaFree(bed->room);
    for (int pass = 0; pass < 2; pass++) {
        free(bed->moves[pass].to);
        free(bed->moves[pass].from);
    }
    mimo_grid_destroy(bed->src);
    mimo_grid_destroy(bed->dst);
}
