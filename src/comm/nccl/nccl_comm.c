/* The NCCL backend's table, and its public calls: creation from a bootstrap, borrowing, the
 * report. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "comm/device_visit.h"
#include "comm/recorder.h"
#include "comm/nccl/nccl_buffer.h"
#include "comm/nccl/nccl_expert_calls.h"
#include "comm/nccl/nccl_launches.h"
#include "comm/nccl/nccl_residency.h"
#include "comm/nccl/nccl_same_host.h"
#include "comm/nccl/nccl_split.h"
#include "comm/nccl/nccl_staged_kernel.h"
#include "comm/nccl/nccl_survivors.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/cuda_kernels.h"
#include "device/profile.h"

enum { BUS_TEXT = 32 };

/* --------------------------------------- table -------------------------------------- */

static void comm_destroy(mimo_comm *base)
{
    nccl_comm *comm = (nccl_comm *)base;
    if (comm->same_host && comm->same_host != comm)
        mimo_comm_destroy(&comm->same_host->base);
    mimo_nccl_comm_remove(comm);
}

/* Kernels that are aborted pass on what they have, and a rank that still waits takes it for what
 * its peers sent. Ranks that began to wait together give up meanwhile. */
static void let_peers_give_up(int64_t patience)
{
    static const int64_t second = 1000000000;
    const struct timespec time = {(time_t)(patience / second), (long)(patience % second)};
    (void)nanosleep(&time, NULL); /* a signal may end it early */
}

/* Farewells can't be sent here: host values travel over NCCL, which is aborted. So nothing is known
 * of missing ranks. */
static void family_end(mimo_family *base, const mimo_last_words *words)
{
    nccl_family *family = (nccl_family *)base;
    let_peers_give_up(words->patience);
    for (const nccl_comm *each = family->comms; each; each = each->next)
        for (const mimo_buffer *it = each->base.buffers; it; it = it->next)
            mimo_nccl_buffer_abort(it);
    mimo_nccl_family_abort(family);
}

static void family_ranks(const mimo_comm *comm, int *ranks)
{
    memcpy(ranks, ((const nccl_comm *)comm)->ranks, (size_t)comm->size * sizeof *ranks);
}

static void stream_finished(mimo_comm *comm, mimo_stream stream)
{
    for (const nccl_comm *each = ((nccl_comm *)comm)->family->comms; each; each = each->next)
        for (const mimo_buffer *it = each->base.buffers; it; it = it->next)
            mimo_nccl_buffer_stream_finished(it, stream);
}

static int64_t fifo_bytes(const mimo_comm *comm)
{
    return ((const nccl_comm *)comm)->family->staging_bytes;
}

/* A device that can't be asked loads and stores. */
static int64_t fifo_piece(const mimo_comm *comm)
{
    (void)comm;
    bool bulk;
    return mimo_staged_bulk_runs(&bulk) == cudaSuccess && bulk ? MIMO_STAGED_BULK
                                                               : MIMO_STAGED_PIECE;
}

static mimo_status comm_survivors(mimo_comm **out, mimo_comm *base, mimo_survivors_terms *terms)
{
    nccl_comm *ended = (nccl_comm *)base;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc desc = mimo_nccl_survivors_desc(ended->family, &terms->common);
    MIMO_TRY(mimo_nccl_survivors_meet(terms, ended, &bootstrap));
    MIMO_TRY(mimo_comm_create_nccl(out, &bootstrap, &desc));
    (*out)->family->generation = terms->generation;
    return MIMO_OK;
}

static const mimo_comm_backend nccl_backend = {
    .name = "nccl",
    .widens_sums = true,
    .split = mimo_nccl_split,
    .destroy = comm_destroy,
    .family_ranks = family_ranks,
    .part_host_values = mimo_nccl_part_host_values,
    .host_max_start = mimo_nccl_host_max_start,
    .host_broadcast_start = mimo_nccl_host_broadcast_start,
    .host_allgather_prepare = mimo_nccl_host_allgather_prepare,
    .host_allgather_start = mimo_nccl_host_allgather_start,
    .allreduce_start = mimo_nccl_allreduce_start,
    .broadcast_start = mimo_nccl_broadcast_start,
    .allgather_start = mimo_nccl_allgather_start,
    .reduce_scatter_start = mimo_nccl_reduce_scatter_start,
    .alltoall_start = mimo_nccl_alltoall_start,
    .most_bases = MIMO_PUSH_MOST_BASES,
    .exchange_create = mimo_nccl_exchange_create,
    .exchange_bind = mimo_nccl_exchange_bind,
    .exchange_connect = mimo_nccl_exchange_connect,
    .exchange_start = mimo_nccl_exchange_start,
    .exchange_destroy = mimo_nccl_exchange_destroy,
    .reserve_blocks = mimo_nccl_reserve_blocks,
    .release_blocks = mimo_nccl_release_blocks,
    .buffer_open = mimo_nccl_buffer_open,
    .buffer_close = mimo_nccl_buffer_close,
    .fifo_bytes = fifo_bytes,
    .fifo_piece = fifo_piece,
    .experts_prepare = mimo_nccl_experts_prepare,
    .route_start = mimo_nccl_route_start,
    .rows_start = mimo_nccl_rows_start,
    .combine_start = mimo_nccl_combine_start,
    .stream_finished = stream_finished,
    .test = mimo_nccl_request_test,
    .release = mimo_nccl_request_release,
    .end = family_end,
    .survivors = comm_survivors,
    .release_family = mimo_nccl_family_release,
};

/* Which kernel a call takes depends on its sizes. All are loaded here, so that no later call waits
 * for the device because its kernel is the first of its kind. Those that move rows in bulk are
 * asked what they need, which loads them. */
static mimo_status load_kernels(void)
{
    bool bulk;
    int fits;
    MIMO_TRY_CUDA(mimo_cuda_load_copies());
    MIMO_TRY_CUDA(mimo_cuda_load_row_lists());
    MIMO_TRY_CUDA(mimo_push_load_store_load());
    MIMO_TRY_CUDA(mimo_push_bulk_fits(&fits));
    MIMO_TRY_CUDA(mimo_staged_load_store_load());
    MIMO_TRY_CUDA(mimo_staged_gate_load());
    MIMO_TRY_CUDA(mimo_staged_bulk_runs(&bulk));
    return MIMO_OK;
}

/* A family with a communicator of all `size` ranks, which has no ncclComm_t yet. Local. */
static mimo_status make_first(nccl_comm **out, int rank, int size, const mimo_nccl_desc *desc)
{
    nccl_family *family;
    nccl_comm *made;
    MIMO_TRY(load_kernels());
    MIMO_TRY(mimo_nccl_family_create(&family, &nccl_backend, desc));
    family->base.rank = rank;
    mimo_status status = mimo_recorder_begin(&family->base, rank, size);
    if (status == MIMO_OK)
        mimo_nccl_launches_begin(family);
    if (status == MIMO_OK)
        status = mimo_nccl_comm_add(&made, family, size);
    mimo_family_release(&family->base); /* the communicator is its user */
    MIMO_TRY(status);
    made->base.rank = rank;
    for (int i = 0; i < size; i++)
        made->ranks[i] = i;
    mimo_recorder_add(&made->base, NULL);
    *out = made;
    return MIMO_OK;
}

/* ------------------------------- creation: the bootstrap ---------------------------- */

enum { SETTINGS = 4 };
static const char *const setting_names[SETTINGS] = {"min_ctas", "max_ctas", "blocking",
                                                    "split_share"};

/* What the ranks exchange before NCCL is called, so that no rank waits in it alone. */
typedef struct rank_info {
    int32_t status;
    char sentence[MIMO_SENTENCE_TEXT];
    int32_t settings[SETTINGS]; /* the descriptor's fields that must agree */
    uint64_t host;              /* mimo_nccl_host_hash */
    mimo_ring_identity self;    /* who runs this rank; nobody before its family is made */
    char bus[BUS_TEXT];         /* the GPU's PCI bus id on that host */
    int32_t device;
    int32_t multiprocessors;
    int32_t share;   /* of its GPU: these multiprocessors (mimo_residency_share) */
    int32_t policy;  /* mimo_agreement_policy */
    int32_t shares;  /* NCCL lets this rank share its GPU */
    ncclUniqueId id; /* rank 0's is used */
} rank_info;

/* NCCL 2.30 and later lets ranks of one host share a GPU where this says so. */
static bool shares_gpus(void)
{
    const char *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return enabled && strcmp(enabled, "1") == 0;
}

/* Whether processes use this device by MPS. Where the runtime or the driver is too old to tell,
 * they don't: then ranks divide what they see, which is too little under MPS, and never too
 * much. */
static bool has_mps(int device)
{
    int enabled = 0;
#if CUDART_VERSION >= 12030
    if (cudaDeviceGetAttribute(&enabled, cudaDevAttrMpsEnabled, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
#else
    (void)device;
#endif
    return enabled != 0;
}

/* Choose the device: the number of this rank on its host, or the only device where a launcher shows
 * each rank one GPU. */
static mimo_status choose_device(mimo_nccl_desc *desc, int neighbours)
{
    int devices = 0;
    MIMO_TRY_CUDA(cudaGetDeviceCount(&devices));
    if (desc->device == MIMO_NCCL_DEFAULT) {
        desc->device = devices == 1 ? 0 : neighbours;
        MIMO_CHECK(desc->device < devices, MIMO_ERR_ARGUMENT,
                   "%d ranks of this host come before this one, and it has %d GPUs", neighbours,
                   devices);
    }
    MIMO_CHECK(desc->device >= 0 && desc->device < devices, MIMO_ERR_ARGUMENT,
               "device %d is not one of %d", desc->device, devices);
    return MIMO_OK;
}

static mimo_status check_desc(const mimo_nccl_desc *desc)
{
    MIMO_CHECK((desc->reserve != NULL) == (desc->release != NULL), MIMO_ERR_ARGUMENT,
               "`%s` of the NCCL descriptor is given, and `%s` is NULL",
               desc->reserve ? "reserve" : "release", desc->reserve ? "release" : "reserve");
    MIMO_CHECK(desc->min_ctas >= MIMO_NCCL_DEFAULT && desc->max_ctas >= MIMO_NCCL_DEFAULT,
               MIMO_ERR_ARGUMENT, "min_ctas %d, max_ctas %d", desc->min_ctas, desc->max_ctas);
    MIMO_CHECK(desc->staging_bytes >= MIMO_NCCL_DEFAULT, MIMO_ERR_ARGUMENT,
               "staging_bytes %" PRId64, desc->staging_bytes);
    return MIMO_OK;
}

static void read_settings(rank_info *mine, const mimo_nccl_desc *desc)
{
    const int settings[SETTINGS] = {desc->min_ctas, desc->max_ctas, desc->blocking,
                                    desc->split_share};
    for (int s = 0; s < SETTINGS; s++)
        mine->settings[s] = settings[s];
}

/* What this rank does alone: choose its device, make NCCL's identifier and the communicator. */
static mimo_status prepare_rank(rank_info *mine, nccl_comm **made, const mimo_bootstrap *bootstrap,
                                const mimo_nccl_desc *given, int neighbours)
{
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    MIMO_CHECK(given, MIMO_ERR_ARGUMENT, "mimo_comm_create_nccl: desc is NULL");
    MIMO_TRY(mimo_read_descriptor(&desc, sizeof desc, given, "NCCL communicator"));
    read_settings(mine, &desc);
    MIMO_TRY(choose_device(&desc, neighbours));
    MIMO_TRY(check_desc(&desc));
    mine->device = desc.device;
    MIMO_TRY_CUDA(cudaSetDevice(desc.device));
    MIMO_TRY_CUDA(cudaDeviceGetPCIBusId(mine->bus, BUS_TEXT, desc.device));
    MIMO_TRY_CUDA(cudaDeviceGetAttribute(&mine->multiprocessors, cudaDevAttrMultiProcessorCount,
                                         desc.device));
    mine->share = (int32_t)mimo_residency_share(has_mps(desc.device),
                                                getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
    MIMO_TRY(make_first(made, bootstrap->rank, bootstrap->ranks, &desc));
    MIMO_TRY(mimo_agreement_policy(&mine->policy, &(*made)->base));
    mine->shares = shares_gpus();
    mimo_recorder_identity(&mine->self, (*made)->base.family);
    if (desc.blocking == MIMO_NCCL_DEFAULT && mimo_comm_deadline(&(*made)->base) > 0)
        (*made)->family->config.blocking = 0; /* NCCL's own waits have no deadline */
    return MIMO_OK;
}

/* All ranks read the same array, so all return the same. */
static mimo_status compare(const rank_info *all, int size)
{
    for (int i = 0; i < size; i++)
        MIMO_CHECK(all[i].status == MIMO_OK, (mimo_status)all[i].status, "rank %d: %s", i,
                   all[i].sentence);
    for (int i = 1; i < size; i++)
        for (int s = 0; s < SETTINGS; s++)
            MIMO_CHECK(
                all[i].settings[s] == all[0].settings[s], MIMO_ERR_MISMATCH,
                "rank %d gave another NCCL descriptor than rank 0: %s is %d there, and %d on "
                "rank 0",
                i, setting_names[s], (int)all[i].settings[s], (int)all[0].settings[s]);
    for (int i = 1; i < size; i++)
        MIMO_CHECK(all[i].policy == all[0].policy, MIMO_ERR_MISMATCH,
                   "rank %d has another MIMO_AGREE or MIMO_CHECK=calls than rank 0, in its "
                   "environment or descriptor",
                   i);
    for (int i = 1; i < size; i++)
        for (int j = 0; j < i; j++)
            MIMO_CHECK((all[i].shares && all[j].shares) || all[i].host != all[j].host ||
                           strcmp(all[i].bus, all[j].bus) != 0,
                       MIMO_ERR_ARGUMENT,
                       "ranks %d and %d both use GPU %s (device %d and %d): NCCL takes one rank a "
                       "GPU",
                       j, i, all[i].bus, (int)all[j].device, (int)all[i].device);
    return MIMO_OK;
}

static mimo_status exchange_infos(const mimo_bootstrap *bootstrap, rank_info *all,
                                  const rank_info *mine)
{
    int failed = bootstrap->allgather(bootstrap->context, all, mine, sizeof *mine);
    MIMO_CHECK(failed == 0, MIMO_ERR_COMM, "the bootstrap's allgather gave %d", failed);
    return MIMO_OK;
}

/* The ranks before this one that run on its host. */
static int count_neighbours(const rank_info *all, int rank)
{
    int count = 0;
    for (int i = 0; i < rank; i++)
        count += all[i].host == all[rank].host;
    return count;
}

/* The ranks that run on the processors of this one, itself included. */
static int count_sharers(const rank_info *all, const mimo_bootstrap *bootstrap)
{
    int count = 0;
    for (int i = 0; i < bootstrap->ranks; i++)
        count += all[i].self.place == all[bootstrap->rank].self.place;
    return count;
}

static mimo_residency_rank residency_of(const rank_info *rank)
{
    uint64_t device = mimo_hash_bytes(rank->host, rank->bus, strnlen(rank->bus, BUS_TEXT));
    return (mimo_residency_rank){device, rank->multiprocessors, rank->share};
}

/* Ranks that share a GPU divide what kernels that wait may occupy of it: all know the same of each
 * other, so they agree. */
static mimo_status divide_gpu(nccl_family *family, const rank_info *all,
                              const mimo_bootstrap *bootstrap)
{
    mimo_residency_rank *ranks;
    MIMO_TRY(mimo_reserve(&ranks, bootstrap->ranks, sizeof *ranks));
    for (int i = 0; i < bootstrap->ranks; i++)
        ranks[i] = residency_of(&all[i]);
    int64_t part = mimo_residency_part(ranks, bootstrap->ranks, bootstrap->rank);
    mimo_release(ranks);
    return mimo_nccl_bound_blocks(family->device, &family->bound, part);
}

/* Who runs the ranks was told in the first step. */
static mimo_status meet(mimo_family *family, const rank_info *all, const mimo_bootstrap *bootstrap)
{
    mimo_ring_identity *ranks;
    MIMO_TRY(mimo_reserve(&ranks, bootstrap->ranks, sizeof *ranks));
    for (int i = 0; i < bootstrap->ranks; i++)
        ranks[i] = all[i].self;
    mimo_family_set_sharers(family, count_sharers(all, bootstrap));
    mimo_status status = mimo_recorder_meet(family, ranks);
    mimo_release(ranks);
    return status;
}

static mimo_status connect(nccl_comm *made, ncclUniqueId id)
{
    ncclComm_t handle = NULL;
    nccl_family *family = made->family;
    int64_t before = mimo_nccl_free_bytes();
    if (made->base.size == 1)
        return MIMO_OK;
    ncclResult_t code =
        ncclCommInitRankConfig(&handle, made->base.size, id, made->base.rank, &family->config);
    mimo_status status = mimo_nccl_status(code, made, handle, "ncclCommInitRankConfig");
    if (status == MIMO_OK)
        status =
            mimo_nccl_shared_comm_add(&made->shared, family, handle, made->ranks, made->base.size);
    if (status != MIMO_OK && handle)
        (void)ncclCommAbort(handle);
    int64_t taken = before - mimo_nccl_free_bytes();
    family->report.device_bytes = taken > 0 ? taken : 0;
    return status;
}

/* The first call of the communicator. So the ring of a rank that waits in NCCL says so, and that of
 * a rank which has not come to it. */
static mimo_status connect_first(nccl_comm *made, ncclUniqueId id)
{
    mimo_comm *comm = &made->base;
    MIMO_ENTER(comm, "mimo_comm_create_nccl");
    mimo_record_begin(comm, comm->calls++, NULL);
    return connect(made, id);
}

/* NCCL keeps a thread until all ranks have used an identifier, and nothing takes one back. So it is
 * made when no rank has refused. One rank alone never uses it. */
static mimo_status make_identifier(rank_info *mine, const mimo_bootstrap *bootstrap)
{
    if (bootstrap->rank > 0 || bootstrap->ranks == 1)
        return MIMO_OK;
    return mimo_nccl_status(ncclGetUniqueId(&mine->id), NULL, NULL, "ncclGetUniqueId");
}

/* One step of the creation has ended on this rank with `local`. All ranks return the same. */
static mimo_status agree(rank_info *all, rank_info *mine, const mimo_bootstrap *bootstrap,
                         mimo_status local)
{
    mine->status = (int32_t)local;
    snprintf(mine->sentence, sizeof mine->sentence, "%s",
             local == MIMO_OK ? "" : mimo_last_error());
    MIMO_TRY(exchange_infos(bootstrap, all, mine));
    return compare(all, bootstrap->ranks);
}

static mimo_status read_bootstrap(mimo_bootstrap *own, mimo_comm **out, const mimo_bootstrap *given)
{
    const mimo_bootstrap *bootstrap = given ? own : NULL;
    if (given)
        MIMO_TRY(mimo_read_descriptor(own, sizeof *own, given, "bootstrap"));
    MIMO_CHECK(out && bootstrap && bootstrap->allgather, MIMO_ERR_ARGUMENT,
               "mimo_comm_create_nccl: %s is NULL",
               !out ? "out" : (!bootstrap ? "bootstrap" : "the bootstrap's allgather"));
    MIMO_CHECK(bootstrap->ranks > 0 && bootstrap->rank >= 0 && bootstrap->rank < bootstrap->ranks,
               MIMO_ERR_ARGUMENT, "mimo_comm_create_nccl: rank %d of %d", bootstrap->rank,
               bootstrap->ranks);
    return MIMO_OK;
}

mimo_status mimo_comm_create_nccl(mimo_comm **out, const mimo_bootstrap *given,
                                  const mimo_nccl_desc *desc)
{
    MIMO_RANGE();
    mimo_bootstrap own = MIMO_BOOTSTRAP_INIT;
    const mimo_bootstrap *bootstrap = &own;
    rank_info mine, *all = NULL;
    nccl_comm *made = NULL;
    mimo_status status;
    memset(&mine, 0, sizeof mine);
    MIMO_DEVICE_VISIT(mimo_device_stay(&mimo_device_cuda));
    MIMO_TRY(read_bootstrap(&own, out, given));
    MIMO_TRY(mimo_reserve(&all, bootstrap->ranks, sizeof *all));
    mine.host = mimo_nccl_host_hash();
    MIMO_TRY_GOTO(status, done, exchange_infos(bootstrap, all, &mine));
    int neighbours = count_neighbours(all, bootstrap->rank);
    status = prepare_rank(&mine, &made, bootstrap, desc, neighbours);
    MIMO_TRY_GOTO(status, done, agree(all, &mine, bootstrap, status));
    status = meet(made->base.family, all, bootstrap);
    if (status == MIMO_OK)
        status = divide_gpu(made->family, all, bootstrap);
    if (status == MIMO_OK)
        status = make_identifier(&mine, bootstrap);
    MIMO_TRY_GOTO(status, done, agree(all, &mine, bootstrap, status));
    status = connect_first(made, all[0].id);
    MIMO_TRY_GOTO(status, done, agree(all, &mine, bootstrap, status));
    *out = &made->base;
    made = NULL;
done:
    if (made && made->shared)
        made->shared->failed = true; /* peers may not come to its end */
    if (made)
        mimo_comm_destroy(&made->base);
    mimo_release(all);
    return status;
}

/* -------------------------------- borrowing, report --------------------------------- */

static mimo_status read_borrowed(ncclComm_t nccl, int *rank, int *size, int *device)
{
    MIMO_TRY(mimo_nccl_status(ncclCommUserRank(nccl, rank), NULL, nccl, "ncclCommUserRank"));
    MIMO_TRY(mimo_nccl_status(ncclCommCount(nccl, size), NULL, nccl, "ncclCommCount"));
    return mimo_nccl_status(ncclCommCuDevice(nccl, device), NULL, nccl, "ncclCommCuDevice");
}

mimo_status mimo_comm_borrow_nccl(mimo_comm **out, ncclComm_t nccl, const mimo_nccl_desc *given)
{
    MIMO_RANGE();
    int rank, size;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    nccl_comm *made;
    MIMO_CHECK(out && nccl, MIMO_ERR_ARGUMENT, "mimo_comm_borrow_nccl: %s is NULL",
               out ? "nccl" : "out");
    MIMO_DEVICE_VISIT(mimo_device_stay(&mimo_device_cuda));
    if (given)
        MIMO_TRY(mimo_read_descriptor(&desc, sizeof desc, given, "NCCL communicator"));
    MIMO_TRY(check_desc(&desc));
    MIMO_TRY(read_borrowed(nccl, &rank, &size, &desc.device));
    MIMO_TRY_CUDA(cudaSetDevice(desc.device));
    MIMO_TRY(make_first(&made, rank, size, &desc));
    mimo_status status = MIMO_OK;
    if (size > 1)
        status = mimo_nccl_shared_comm_add(&made->shared, made->family, nccl, made->ranks, size);
    if (status != MIMO_OK) {
        mimo_comm_destroy(&made->base);
        return status;
    }
    if (made->shared)
        made->shared->borrowed = true;
    *out = &made->base;
    return MIMO_OK;
}

static mimo_status check_nccl(const char *call, const void *out, const mimo_comm *comm)
{
    MIMO_CHECK(out && comm, MIMO_ERR_ARGUMENT, "%s: %s is NULL", call, out ? "comm" : "out");
    MIMO_CHECK(comm->backend == &nccl_backend, MIMO_ERR_ARGUMENT,
               "%s: the communicator is of backend '%s'", call, comm->backend->name);
    return MIMO_OK;
}

mimo_status mimo_nccl_device(int *out, const mimo_comm *comm)
{
    MIMO_TRY(check_nccl("mimo_nccl_device", out, comm));
    *out = comm->device_number;
    return MIMO_OK;
}

mimo_status mimo_nccl_report_of(mimo_nccl_report *out, const mimo_comm *comm)
{
    MIMO_TRY(check_nccl("mimo_nccl_report_of", out, comm));
    const mimo_nccl_report *report = &((const nccl_comm *)comm)->family->report;
    return mimo_write_descriptor(out, report, sizeof *report, "mimo_nccl_report_of");
}
