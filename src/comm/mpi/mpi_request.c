#include "comm/mpi/mpi_request.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/mpi/mpi_family.h"
#include "comm/host/host_packing.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

enum { LEAST_COUNT = 64 }; /* MPI requests: a sum needs one for each 2^28 elements */

/* Sums are made in a request's memory, so any element type must be aligned there. */
enum { MEMORY_ALIGNMENT = 16 };

/* How long to wait for a message that has begun to arrive, once its sender was given up. */
enum { LAST_WAIT = 50000000 }; /* nanoseconds */

/* ------------------------------------- one request ------------------------------------ */

static mimo_status request_create(mimo_request **out, mimo_mpi_request_pool *pool, int64_t count,
                                  int64_t bytes)
{
    mimo_request *request;
    MIMO_CHECK(count <= INT_MAX, MIMO_ERR_OVERFLOW, "%" PRId64 " pieces in one call", count);
    int64_t head = (int64_t)sizeof *request + count * (int64_t)sizeof(MPI_Request);
    head = (head + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    MIMO_TRY(mimo_reserve(&request, head + bytes, 1));
    request->pool = pool;
    request->item.count = count;
    request->item.bytes = bytes;
    request->memory = (char *)request + head;
    *out = request;
    return MIMO_OK;
}

static bool is_large(const mimo_request *request)
{
    return request->item.bytes > request->pool->usual_bytes;
}

mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_request_pool *pool, int64_t count,
                                  int64_t bytes)
{
    mimo_request *request = mimo_free_list_take(&pool->free, count, bytes);
    if (!request)
        MIMO_TRY(request_create(&request, pool,
                                count > pool->usual_count ? count : pool->usual_count,
                                bytes > pool->usual_bytes ? bytes : pool->usual_bytes));
    if (is_large(request))
        pool->large_in_flight = request->item.bytes;
    request->to_count = request->offset = 0;
    request->count = (int)count;
    request->receives = 0;
    request->point_to_point = request->guarded = request->persistent = request->complete = false;
    request->push = NULL;
    request->types[0] = request->types[1] = MPI_DATATYPE_NULL;
    for (int i = 0; i < request->count; i++)
        request->mpi[i] = MPI_REQUEST_NULL;
    *out = request;
    return MIMO_OK;
}

void mimo_mpi_request_load(mimo_request *request, void *data, int64_t bytes)
{
    memcpy(request->memory, data, (size_t)bytes);
    mimo_mpi_request_copy_back(request, data, bytes, 0);
}

void mimo_mpi_request_copy_back(mimo_request *request, void *to, int64_t bytes, int64_t offset)
{
    request->one_target = mimo_one_row(to, bytes);
    request->to = &request->one_target;
    request->to_count = 1;
    request->offset = offset;
}

/* MPI makes progress only inside its calls, and a test of no request is none of these. */
static mimo_status progress_mpi(void)
{
    int flag;
    MIMO_TRY_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    return MIMO_OK;
}

mimo_status mimo_mpi_request_test(mimo_request *request, bool *done)
{
    int flag = 0;
    if (request->pool->flight.first)
        MIMO_TRY(mimo_host_push_progress(&request->pool->flight));
    MIMO_TRY_MPI(MPI_Testall(request->count, request->mpi, &flag, MPI_STATUSES_IGNORE));
    if (flag && !request->complete)
        MIMO_TRY(
            mimo_host_unpack(request->to, request->to_count, request->memory + request->offset));
    request->complete = flag != 0;
    *done = flag && (!request->push || mimo_host_push_is_complete(request->push));
    if (flag && !*done)
        return progress_mpi();
    if (!*done || !request->push)
        return MIMO_OK;
    mimo_status outcome = mimo_host_push_status(request->push);
    request->push = NULL;
    return outcome;
}

int64_t mimo_mpi_request_moving(const mimo_request *request)
{
    return request->moving;
}

int mimo_mpi_request_arrived(const mimo_request *request)
{
    int arrived = 0;
    for (int i = 0; i < request->count; i++) {
        int done = 0;
        if (MPI_Request_get_status(request->mpi[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            arrived += done;
    }
    return arrived;
}

/* Cancel a receive. A message that has begun to arrive can't be cancelled, so this waits for it:
 * for LAST_WAIT at most where its sender may be gone. */
static void cancel(MPI_Request *mpi, const mimo_family *family)
{
    int done = 0;
    int64_t until = mimo_now() + LAST_WAIT;
    MPI_Cancel(mpi);
    for (;;) {
        bool gone = mimo_family_status(family) != MIMO_OK && mimo_now() > until;
        if (MPI_Test(mpi, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done || gone)
            return;
        sched_yield();
    }
}

/* End a point-to-point operation: afterwards none of its receives writes into the caller's memory
 * or takes a message of a later call. The error that led here is the one to report, so MPI's return
 * codes are ignored. */
static void cancel_all(mimo_request *request)
{
    bool later_calls = mimo_family_status(request->pool->family) == MIMO_OK;
    for (int i = 0; i < request->count && (later_calls || !request->guarded); i++) {
        MPI_Request *mpi = &request->mpi[i];
        if (*mpi != MPI_REQUEST_NULL && i < request->receives)
            cancel(mpi, request->pool->family);
        if (*mpi != MPI_REQUEST_NULL && !request->persistent && !request->guarded)
            MPI_Request_free(mpi);
    }
}

/* Whether MPI still uses the request's own memory. */
static bool is_used_by_mpi(const mimo_request *request)
{
    if (request->complete || (request->point_to_point && !request->guarded))
        return false;
    for (int i = 0; i < request->count; i++)
        if (request->mpi[i] != MPI_REQUEST_NULL)
            return true;
    return false;
}

static bool may_call_mpi(const mimo_request *request)
{
    return mimo_mpi_family_may_call(request->pool->family);
}

void mimo_mpi_request_release(mimo_request *request)
{
    if (!request)
        return;
    if (request->point_to_point && !request->complete && may_call_mpi(request))
        cancel_all(request);
    if (request->push)
        mimo_host_push_remove(&request->pool->flight, request->push);
    for (int i = 0; i < 2; i++)
        if (request->types[i] != MPI_DATATYPE_NULL && may_call_mpi(request))
            MPI_Type_free(&request->types[i]);
    if (is_large(request))
        request->pool->large_in_flight = 0;
    if (is_used_by_mpi(request)) {
        request->next_abandoned = request->pool->abandoned;
        request->pool->abandoned = request;
    } else {
        mimo_free_list_put(&request->pool->free, &request->item);
    }
}

/* ---------------------------------------- pool ---------------------------------------- */

mimo_status mimo_mpi_pool_create(mimo_mpi_request_pool *out, const mimo_family *family, int ranks)
{
    mimo_request *first;
    int64_t peers = 2 * ((int64_t)ranks - 1); /* a receive and a send each */
    int64_t bytes = ((int64_t)ranks + 1) * MIMO_HOST_ALLGATHER_BYTES;
    if (bytes < (int64_t)sizeof(mimo_call_report))
        bytes = (int64_t)sizeof(mimo_call_report);
    *out = (mimo_mpi_request_pool){.family = family,
                                   .usual_count = peers > LEAST_COUNT ? peers : LEAST_COUNT,
                                   .usual_bytes = bytes};
    MIMO_TRY(request_create(&first, out, out->usual_count, bytes));
    mimo_free_list_put(&out->free, &first->item);
    return MIMO_OK;
}

static void free_large(mimo_mpi_request_pool *pool)
{
    for (mimo_free_item **link = &pool->free; *link;) {
        mimo_free_item *item = *link;
        if (item->bytes > pool->usual_bytes) {
            *link = item->next;
            mimo_release(item);
        } else {
            link = &item->next;
        }
    }
}

/* The smaller requests are freed last: without memory for the larger one they are still needed. */
mimo_status mimo_mpi_pool_prepare(mimo_mpi_request_pool *pool, int64_t bytes)
{
    mimo_request *request;
    for (const mimo_free_item *item = pool->free; item; item = item->next)
        if (item->bytes >= bytes)
            return MIMO_OK;
    if (pool->large_in_flight >= bytes)
        return MIMO_OK;
    MIMO_TRY(request_create(&request, pool, pool->usual_count, bytes));
    free_large(pool);
    mimo_free_list_put(&pool->free, &request->item);
    return MIMO_OK;
}

/* Until MPI is finalized it may write into abandoned requests, so these are left to it. */
void mimo_mpi_pool_release(mimo_mpi_request_pool *pool)
{
    bool finalized = mimo_mpi_is_finalized();
    for (mimo_free_item *item; (item = pool->free);) {
        pool->free = item->next;
        mimo_release(item);
    }
    for (mimo_request *request; (request = pool->abandoned);) {
        pool->abandoned = request->next_abandoned;
        if (finalized)
            mimo_release(request);
        else
            mimo_abandon(request);
    }
}
