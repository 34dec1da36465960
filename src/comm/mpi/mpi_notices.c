#include "comm/mpi/mpi_notices.h"

#include <pthread.h>

#include "core/memory.h"

/* No other message of a family's handle has this tag. */
enum { NOTICE_TAG = 79 };

typedef struct received_notice {
    mimo_notice call;
    bool came;
} received_notice;

struct mimo_mpi_notices {
    pthread_mutex_t lock; /* threads may wait on different communicators of the family */
    struct {
        mimo_notice mine;
        MPI_Request sending; /* of `mine`; MPI_REQUEST_NULL: it was received */
    } to[MIMO_LISTENERS];
    received_notice last[]; /* of each rank */
};

mimo_status mimo_mpi_notices_create(mimo_mpi_notices **out, int size)
{
    mimo_mpi_notices *made;
    int64_t bytes = (int64_t)sizeof *made + size * (int64_t)sizeof made->last[0];
    MIMO_TRY(mimo_reserve(&made, bytes, 1));
    for (int i = 0; i < MIMO_LISTENERS; i++)
        made->to[i].sending = MPI_REQUEST_NULL;
    if (pthread_mutex_init(&made->lock, NULL) != 0) {
        mimo_release(made);
        return mimo_fail(MIMO_ERR_MEMORY, "out of memory for the lock of a communicator");
    }
    *out = made;
    return MIMO_OK;
}

/* Under the lock. A synchronous send ends when its message has been received. */
static bool is_moving(mimo_mpi_notices *notices, int listener)
{
    int done = 0;
    MPI_Request *sending = &notices->to[listener].sending;
    if (*sending == MPI_REQUEST_NULL)
        return false;
    return MPI_Test(sending, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done;
}

/* Under the lock. All are tested. */
static bool is_any_moving(mimo_mpi_notices *notices)
{
    int moving = 0;
    for (int i = 0; i < MIMO_LISTENERS; i++)
        moving += is_moving(notices, i);
    return moving > 0;
}

void mimo_mpi_notices_send(mimo_mpi_notices *notices, MPI_Comm handle, int listener, int to,
                           const mimo_notice *notice)
{
    pthread_mutex_lock(&notices->lock);
    if (!is_moving(notices, listener)) {
        mimo_notice *mine = &notices->to[listener].mine;
        *mine = *notice;
        (void)MPI_Issend(mine, (int)sizeof *mine, MPI_BYTE, to, NOTICE_TAG, handle,
                         &notices->to[listener].sending);
    }
    pthread_mutex_unlock(&notices->lock);
}

bool mimo_mpi_notices_were_taken(mimo_mpi_notices *notices, int listener)
{
    pthread_mutex_lock(&notices->lock);
    bool taken = !is_moving(notices, listener);
    pthread_mutex_unlock(&notices->lock);
    return taken;
}

static bool receive_one(mimo_mpi_notices *notices, MPI_Comm handle)
{
    int here = 0;
    mimo_notice call;
    MPI_Message message;
    MPI_Status from;
    if (MPI_Improbe(MPI_ANY_SOURCE, NOTICE_TAG, handle, &here, &message, &from) != MPI_SUCCESS ||
        !here ||
        MPI_Mrecv(&call, (int)sizeof call, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    notices->last[from.MPI_SOURCE] = (received_notice){call, true};
    return true;
}

int mimo_mpi_notices_receive(mimo_mpi_notices *notices, MPI_Comm handle)
{
    int count = 0;
    pthread_mutex_lock(&notices->lock);
    while (receive_one(notices, handle))
        count++;
    pthread_mutex_unlock(&notices->lock);
    return count;
}

bool mimo_mpi_notices_have(mimo_mpi_notices *notices, int rank, const mimo_notice *call)
{
    pthread_mutex_lock(&notices->lock);
    const received_notice last = notices->last[rank];
    pthread_mutex_unlock(&notices->lock);
    return last.came && last.call.comm == call->comm && last.call.calls >= call->calls;
}

bool mimo_mpi_notices_are_moving(mimo_mpi_notices *notices)
{
    pthread_mutex_lock(&notices->lock);
    bool moving = is_any_moving(notices);
    pthread_mutex_unlock(&notices->lock);
    return moving;
}

void mimo_mpi_notices_release(mimo_mpi_notices *notices, bool may_call_mpi)
{
    if (!notices)
        return;
    bool moving = may_call_mpi && is_any_moving(notices);
    for (int i = 0; i < MIMO_LISTENERS && !may_call_mpi; i++)
        moving = moving || notices->to[i].sending != MPI_REQUEST_NULL;
    pthread_mutex_destroy(&notices->lock);
    if (moving)
        mimo_abandon(notices);
    else
        mimo_release(notices);
}
