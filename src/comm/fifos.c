#include "comm/fifos.h"

#include <inttypes.h>

#include "comm/buffer_state.h"
#include "core/check.h"
#include "core/logging.h"

static mimo_status open_fifos(mimo_comm *comm)
{
    int64_t bytes = comm->backend->fifo_bytes ? comm->backend->fifo_bytes(comm) : 0;
    if (!comm->backend->fifo_bytes || comm->size == 1)
        return MIMO_OK;
    MIMO_TRY(mimo_buffer_create_fifos(&comm->fifos, comm, bytes, comm->backend->fifo_piece(comm)));
    mimo_buffer_report_reach(comm->fifos);
    if (comm->fifos && comm->rank == 0)
        mimo_log(
            MIMO_LOG_INFO,
            "messages between ranks that share memory can be staged, through %" PRId64
            " bytes on each rank (mimo_nccl_desc.staging_bytes; MIMO_STAGED=0: AUTO stages none)",
            comm->fifos->bytes);
    return MIMO_OK;
}

mimo_status mimo_fifos_use(mimo_fifo_user *user, mimo_comm *comm)
{
    if (user->comm)
        return MIMO_OK;
    if (__atomic_load_n(&comm->fifo_users, __ATOMIC_ACQUIRE) == 0)
        MIMO_TRY(open_fifos(comm));
    __atomic_fetch_add(&comm->fifo_users, 1, __ATOMIC_RELAXED);
    user->comm = comm;
    return MIMO_OK;
}

/* Threads destroy bridges of a forgotten family at once. */
void mimo_fifos_leave(mimo_fifo_user *user)
{
    mimo_comm *comm = user->comm;
    user->comm = NULL;
    if (!comm || __atomic_sub_fetch(&comm->fifo_users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mimo_buffer_destroy(comm->fifos);
    pthread_mutex_lock(&comm->family->lock);
    comm->fifos = NULL;
    pthread_mutex_unlock(&comm->family->lock);
}

mimo_buffer *mimo_fifos_of(const mimo_fifo_user *user)
{
    return user->comm ? user->comm->fifos : NULL;
}
