#include "comm/mpi/mpi_closing.h"

#include <pthread.h>
#include <sched.h>

#include "comm/termination.h"
#include "core/memory.h"

/* Each other rank tells this one, which tells all of them once it has heard from all. */
enum { ROOT = 0 };

/* No other message of a communicator has this tag. */
enum { CLOSING_TAG = 78 };

/* How long MPI_Finalize waits for the next message. Ranks that aborted never send theirs. */
static const int64_t PATIENCE = 200000000; /* nanoseconds */

struct mimo_mpi_closing {
    mimo_mpi_closing *next;
    MPI_Comm handle;
    int rank;
    int awaited; /* messages that are still to come */
    bool told;   /* this rank has said that it released the handle */
    mimo_mpi_notices *notices;
};

/* Of all families, which end before their handles. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mimo_mpi_closing *closings;

/* Whether MPI_Finalize calls finish(); whether it has. */
static bool watched, finalizing;

mimo_status mimo_mpi_closing_create(mimo_mpi_closing **out)
{
    *out = NULL;
    return mimo_reserve(out, 1, sizeof **out);
}

/* A message without bytes needs no memory, so nothing has to wait for its end. Where it can't be
 * sent the handle stays. */
static void tell(const mimo_mpi_closing *closing, int peer)
{
    MPI_Request request;
    if (MPI_Isend(NULL, 0, MPI_BYTE, peer, CLOSING_TAG, closing->handle, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

static bool hear(const mimo_mpi_closing *closing)
{
    int here = 0;
    MPI_Comm handle = closing->handle;
    if (MPI_Iprobe(MPI_ANY_SOURCE, CLOSING_TAG, handle, &here, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !here)
        return false;
    return MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, CLOSING_TAG, handle, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS;
}

static void free_handle(mimo_mpi_closing *closing)
{
    int size = 0;
    MPI_Comm_size(closing->handle, &size);
    for (int peer = ROOT + 1; peer < size && closing->rank == ROOT; peer++)
        tell(closing, peer);
    MPI_Comm_free(&closing->handle);
    mimo_mpi_notices_release(closing->notices, true);
    mimo_release(closing);
}

/* Say that this rank has released the handle, once its own notice has been received. Returns how
 * many notices have come. */
static int release_notices(mimo_mpi_closing *closing)
{
    int heard = closing->notices ? mimo_mpi_notices_receive(closing->notices, closing->handle) : 0;
    if (closing->told || (closing->notices && mimo_mpi_notices_are_moving(closing->notices)))
        return heard;
    closing->told = true;
    if (closing->rank != ROOT)
        tell(closing, ROOT);
    return heard;
}

/* Returns how many messages have come. Under the lock. */
static int move_on(void)
{
    int heard = 0;
    for (mimo_mpi_closing **link = &closings; *link;) {
        mimo_mpi_closing *closing = *link;
        heard += release_notices(closing);
        for (; closing->awaited > 0 && hear(closing); heard++)
            closing->awaited--;
        if (closing->awaited > 0 || !closing->told) {
            link = &closing->next;
            continue;
        }
        *link = closing->next;
        free_handle(closing);
    }
    return heard;
}

void mimo_mpi_close_rest(void)
{
    pthread_mutex_lock(&lock);
    (void)move_on();
    pthread_mutex_unlock(&lock);
}

/* MPI wants every message received before its end. */
static int finish(MPI_Comm self, int key, void *value, void *context)
{
    (void)self, (void)key, (void)value, (void)context;
    __atomic_store_n(&finalizing, true, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    for (int64_t until = mimo_now() + PATIENCE; closings && mimo_now() < until;) {
        if (move_on() > 0)
            until = mimo_now() + PATIENCE;
        sched_yield();
    }
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

/* MPI_Finalize begins with the attributes of MPI_COMM_SELF. */
static bool watch(void)
{
    int key;
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finish, &key, NULL) != MPI_SUCCESS)
        return false;
    int code = MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key); /* it lives on with the attribute */
    return code == MPI_SUCCESS;
}

void mimo_mpi_watch_finalize(void)
{
    pthread_mutex_lock(&lock);
    if (!watched && watch())
        __atomic_store_n(&watched, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

/* Each call of the library asks, so MPI is asked only once MPI_Finalize has begun. Other attributes
 * of MPI_COMM_SELF may still use MPI then. */
bool mimo_mpi_is_finalized(void)
{
    int finalized = 0;
    if (__atomic_load_n(&watched, __ATOMIC_ACQUIRE) &&
        !__atomic_load_n(&finalizing, __ATOMIC_ACQUIRE))
        return false;
    return MPI_Finalized(&finalized) != MPI_SUCCESS || finalized;
}

void mimo_mpi_close(mimo_mpi_closing *closing, MPI_Comm handle, mimo_mpi_notices *notices)
{
    int size = 0;
    closing->handle = handle;
    closing->notices = notices;
    MPI_Comm_rank(handle, &closing->rank);
    MPI_Comm_size(handle, &size);
    closing->awaited = closing->rank == ROOT ? size - 1 : 1;
    pthread_mutex_lock(&lock);
    closing->next = closings;
    closings = closing;
    (void)move_on();
    pthread_mutex_unlock(&lock);
}
