#include "comm/nccl/nccl_residency.h"

#include <pthread.h>

#include "comm/nccl/nccl_state.h"
#include "core/memory.h"

typedef struct device_ledger {
    struct device_ledger *next;
    int device;
    mimo_residency residency;
} device_ledger;

/* What the process has on its devices. They are the process's, whatever communicators it makes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_ledger *ledgers; /* of the devices with lanes */

/* ------------------------------------- ledgers -------------------------------------- */

static mimo_status count_multiprocessors(int64_t *out, int device)
{
    int count;
    MIMO_TRY_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    *out = count;
    return MIMO_OK;
}

/* NULL: the device has no lanes. */
static device_ledger *find(int device)
{
    device_ledger *it = ledgers;
    while (it && it->device != device)
        it = it->next;
    return it;
}

static mimo_status find_or_make(device_ledger **out, int device)
{
    device_ledger *made = find(device);
    if (!made) {
        int64_t multiprocessors;
        MIMO_TRY(count_multiprocessors(&multiprocessors, device));
        MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
        *made = (device_ledger){ledgers, device, {NULL, multiprocessors}};
        ledgers = made;
    }
    *out = made;
    return MIMO_OK;
}

/* Nothing stays of a device without lanes. */
static void forget_empty(device_ledger *ledger)
{
    device_ledger **link = &ledgers;
    if (ledger->residency.lanes)
        return;
    while (*link != ledger)
        link = &(*link)->next;
    *link = ledger->next;
    mimo_release(ledger);
}

typedef mimo_status (*enter_function)(mimo_residency *ledger, mimo_lane *lane, int64_t blocks);

static mimo_status enter(enter_function function, int device, mimo_lane *lane, int64_t blocks)
{
    device_ledger *ledger;
    pthread_mutex_lock(&lock);
    mimo_status status = find_or_make(&ledger, device);
    if (status == MIMO_OK) {
        status = function(&ledger->residency, lane, blocks);
        forget_empty(ledger);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* --------------------------------------- lanes -------------------------------------- */

mimo_status mimo_nccl_share_blocks(int device, mimo_lane *lane, int64_t most)
{
    return enter(mimo_residency_rest, device, lane, most > 0 ? most : INT64_MAX);
}

mimo_status mimo_nccl_bound_blocks(int device, mimo_lane *lane, int64_t blocks)
{
    return enter(mimo_residency_bound, device, lane, blocks);
}

void mimo_nccl_shrink_lane(int device, mimo_lane *lane, int64_t blocks)
{
    pthread_mutex_lock(&lock);
    device_ledger *ledger = find(device);
    if (ledger && lane->kind != MIMO_LANE_OUT) {
        mimo_residency_shrink(&ledger->residency, lane, blocks);
        forget_empty(ledger);
    }
    pthread_mutex_unlock(&lock);
}

void mimo_nccl_leave_lane(int device, mimo_lane *lane)
{
    mimo_nccl_shrink_lane(device, lane, 0);
}

mimo_status mimo_nccl_block_budget(int64_t *budget, int64_t *multiprocessors, int device)
{
    MIMO_TRY(count_multiprocessors(multiprocessors, device));
    pthread_mutex_lock(&lock);
    const device_ledger *ledger = find(device);
    *budget =
        ledger ? mimo_residency_budget(&ledger->residency) : mimo_residency_whole(*multiprocessors);
    pthread_mutex_unlock(&lock);
    return MIMO_OK;
}

/* --------------------------------------- slots -------------------------------------- */

mimo_status mimo_nccl_reserve_blocks(mimo_comm *comm, mimo_lane *lane, int blocks)
{
    int64_t wanted = blocks;
    const int of_nccl = ((const nccl_comm *)comm)->family->config.maxCTAs;
    if (of_nccl != NCCL_CONFIG_UNDEF_INT && of_nccl > wanted)
        wanted = of_nccl;
    return enter(mimo_residency_reserve, comm->device_number, lane, wanted);
}

void mimo_nccl_release_blocks(mimo_comm *comm, mimo_lane *lane)
{
    mimo_nccl_leave_lane(comm->device_number, lane);
}
