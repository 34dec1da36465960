/* NCCL communicators, which communicators of equal ranks share. */
#include <string.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_state.h"
#include "core/memory.h"

int64_t mimo_nccl_free_bytes(void)
{
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return (int64_t)free;
}

mimo_status mimo_nccl_shared_comm_add(nccl_shared_comm **out, nccl_family *family,
                                      ncclComm_t handle, const int *ranks, int size)
{
    nccl_shared_comm *shared;
    MIMO_TRY(mimo_reserve(&shared, (int64_t)sizeof *shared + size * (int64_t)sizeof *ranks, 1));
    shared->handle = handle;
    shared->users = 1;
    shared->size = size;
    memcpy(shared->ranks, ranks, (size_t)size * sizeof *ranks);
    shared->next = family->shared;
    family->shared = shared;
    family->report.communicators++;
    *out = shared;
    return MIMO_OK;
}

nccl_shared_comm *mimo_nccl_shared_comm_find(const nccl_family *family, const int *ranks, int size)
{
    nccl_shared_comm *shared = family->shared;
    while (shared && (shared->use != NCCL_TENSORS || shared->size != size ||
                      memcmp(shared->ranks, ranks, (size_t)size * sizeof *ranks) != 0))
        shared = shared->next;
    return shared;
}

/* Host values are some hundred bytes, for which one thread block is enough. They share nothing with
 * the parent, because NCCL keeps an order among all that uses the same resources. */
static ncclConfig_t config_of(const nccl_family *family, nccl_use use)
{
    ncclConfig_t config = family->config;
    if (use == NCCL_HOST_VALUES) {
        config.minCTAs = config.maxCTAs = 1;
        config.splitShare = 0;
    }
    return config;
}

mimo_status mimo_nccl_shared_comm_split(ncclComm_t *out, nccl_comm *parent, nccl_part part)
{
    ncclConfig_t config = config_of(parent->family, part.use);
    int64_t before = mimo_nccl_free_bytes();
    *out = NULL;
    ncclComm_t handle = parent->shared->handle;
    ncclResult_t code = ncclCommSplit(handle, part.color, part.key, out, &config);
    mimo_status status = mimo_nccl_settle(code, parent, handle, "ncclCommSplit");
    if (status == MIMO_OK && *out)
        status = mimo_nccl_settle(ncclSuccess, parent, *out, "ncclCommSplit");
    if (status != MIMO_OK) {
        if (*out)
            (void)ncclCommAbort(*out);
        *out = NULL;
        return status;
    }
    int64_t taken = before - mimo_nccl_free_bytes();
    parent->family->report.device_bytes += taken > 0 ? taken : 0;
    return MIMO_OK;
}

/* Each rank allocates first and agrees on that, so that no rank is missing from what NCCL does. */
mimo_status mimo_nccl_shared_comm_make(nccl_shared_comm **out, nccl_comm *comm, nccl_comm *like,
                                       nccl_use use)
{
    nccl_shared_comm *made = NULL;
    mimo_status status = MIMO_OK;
    const nccl_part part = {0, like->base.rank, use};
    if (like->shared)
        status = mimo_nccl_shared_comm_add(&made, like->family, NULL, like->ranks, like->base.size);
    if (made)
        made->use = use;
    status = mimo_comm_agree(&comm->base, status);
    if (status == MIMO_OK && made)
        status = mimo_nccl_shared_comm_split(&made->handle, like, part);
    status = mimo_comm_agree(&comm->base, status);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_nccl_shared_comm_drop(comm->family, made);
    return status;
}

static bool is_well(const nccl_shared_comm *shared)
{
    ncclResult_t met = ncclSuccess;
    return !shared->failed && !shared->ended &&
           ncclCommGetAsyncError(shared->handle, &met) == ncclSuccess && met == ncclSuccess;
}

/* After an error, ncclCommDestroy could wait for ever for a peer that has given up. */
static void close_handle(const nccl_shared_comm *shared)
{
    ncclComm_t handle = shared->handle;
    if (!handle)
        return;
    if (!is_well(shared)) {
        (void)ncclCommAbort(handle);
        return;
    }
    (void)mimo_nccl_status(ncclCommFinalize(handle), NULL, handle, "ncclCommFinalize");
    (void)ncclCommDestroy(handle);
}

void mimo_nccl_shared_comm_drop(nccl_family *family, nccl_shared_comm *shared)
{
    nccl_shared_comm **link = &family->shared;
    if (!shared || --shared->users > 0)
        return;
    while (*link != shared)
        link = &(*link)->next;
    *link = shared->next;
    family->report.communicators--;
    if (!shared->borrowed)
        close_handle(shared);
    mimo_release(shared);
}

void mimo_nccl_shared_comm_unmap(nccl_family *family, nccl_shared_comm *shared)
{
    pthread_mutex_lock(&family->base.lock);
    ncclComm_t handle = shared->ended ? shared->handle : NULL;
    if (handle)
        shared->handle = NULL;
    pthread_mutex_unlock(&family->base.lock);
    if (handle)
        (void)ncclCommAbort(handle);
}
