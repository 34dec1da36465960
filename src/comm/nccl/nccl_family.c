/* Families of NCCL communicators, and the communicators in them. */
#include "comm/fifos.h"
#include "comm/nccl/nccl_residency.h"
#include "comm/nccl/nccl_state.h"
#include "core/descriptor.h"
#include "core/memory.h"

MIMO_DEFINE_INIT(mimo_nccl_desc, MIMO_NCCL_DESC_INIT)
MIMO_DEFINE_INIT(mimo_nccl_report, MIMO_NCCL_REPORT_INIT)

mimo_status mimo_nccl_family_create(nccl_family **out, const mimo_comm_backend *backend,
                                    const mimo_nccl_desc *desc)
{
    nccl_family *made;
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->config = config;
    made->device = desc->device;
    made->allocator = (mimo_allocator){desc->reserve, desc->release, desc->context};
    made->staging_bytes =
        desc->staging_bytes == MIMO_NCCL_DEFAULT ? MIMO_FIFO_BYTES : desc->staging_bytes;
    if (desc->min_ctas != MIMO_NCCL_DEFAULT)
        made->config.minCTAs = desc->min_ctas;
    if (desc->max_ctas != MIMO_NCCL_DEFAULT)
        made->config.maxCTAs = desc->max_ctas;
    if (desc->blocking != MIMO_NCCL_DEFAULT)
        made->config.blocking = desc->blocking;
    if (desc->split_share != MIMO_NCCL_DEFAULT)
        made->config.splitShare = desc->split_share;
    mimo_status status = mimo_cuda_status(
        cudaStreamCreateWithFlags(&made->host_stream, cudaStreamNonBlocking), "cudaStreamCreate");
    if (status == MIMO_OK)
        status = mimo_family_init(&made->base, backend, desc->common);
    if (status != MIMO_OK) {
        if (made->host_stream)
            (void)cudaStreamDestroy(made->host_stream);
        mimo_release(made);
        return status;
    }
    made->base.any_thread_ends = true;
    mimo_family_retain(&made->base);
    *out = made;
    return MIMO_OK;
}

void mimo_nccl_family_release(mimo_family *base)
{
    nccl_family *family = (nccl_family *)base;
    mimo_nccl_leave_lane(family->device, &family->bound);
    (void)cudaStreamDestroy(family->host_stream);
    mimo_release(family);
}

mimo_status mimo_nccl_comm_add(nccl_comm **out, nccl_family *family, int size)
{
    nccl_comm *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->base.backend = family->base.backend;
    made->base.device = &mimo_device_cuda;
    made->base.device_number = family->device;
    made->base.staging.allocator = family->allocator.reserve ? &family->allocator : NULL;
    made->base.memory = MIMO_MEMORY_CUDA;
    made->base.size = size;
    made->base.holders = 1;
    made->base.family = &family->base;
    made->family = family;
    mimo_status status = mimo_reserve(&made->ranks, size, sizeof *made->ranks);
    if (status == MIMO_OK)
        status = mimo_reserve(&made->programs, 1, sizeof *made->programs);
    if (status == MIMO_OK)
        status = mimo_nccl_requests_prepare(made);
    if (status != MIMO_OK) {
        mimo_release(made->programs);
        mimo_release(made->ranks);
        mimo_release(made);
        return status;
    }
    made->programs->stream = family->host_stream;
    mimo_family_retain(&family->base);
    pthread_mutex_lock(&family->base.lock);
    made->next = family->comms;
    family->comms = made;
    pthread_mutex_unlock(&family->base.lock);
    *out = made;
    return MIMO_OK;
}

void mimo_nccl_comm_remove(nccl_comm *comm)
{
    nccl_family *family = comm->family;
    nccl_comm **link = &family->comms;
    pthread_mutex_lock(&family->base.lock);
    while (*link != comm)
        link = &(*link)->next;
    *link = comm->next;
    mimo_nccl_shared_comm_drop(family, comm->values);
    mimo_nccl_shared_comm_drop(family, comm->windows);
    mimo_nccl_shared_comm_drop(family, comm->shared);
    pthread_mutex_unlock(&family->base.lock);
    mimo_nccl_requests_free(comm);
    mimo_program_pool_release(comm->programs);
    mimo_release(comm->programs);
    mimo_release(comm->ranks);
    mimo_release(comm);
    mimo_family_release(&family->base);
}

/* A kernel that stands behind a message of NCCL starts when that is aborted. It may store into
 * windows before it finds that it is to end, so they stay until their buffers close. */
static void keep_windows(nccl_family *family)
{
    for (nccl_comm *each = family->comms; each; each = each->next)
        if (each->windows && each->base.buffers)
            each->windows->ended = !each->windows->busy;
}

/* In one group: an abort frees memory, and CUDA then waits for the kernels of the others. */
void mimo_nccl_family_abort(nccl_family *family)
{
    keep_windows(family);
    (void)ncclGroupStart();
    for (nccl_shared_comm *shared = family->shared; shared; shared = shared->next) {
        ncclComm_t handle = shared->handle;
        if (!handle || shared->borrowed || shared->ended)
            continue;
        shared->handle = NULL;
        if (!shared->busy)
            (void)ncclCommAbort(handle);
    }
    (void)ncclGroupEnd();
}
