#include "comm/fifos.h"

#include "comm/buffer_state.h"
#include "core/check.h"

static mimo_status open_fifos(mimo_comm *comm)
{
    int64_t bytes = comm->backend->fifo_bytes ? comm->backend->fifo_bytes(comm) : 0;
    if (!comm->backend->fifo_bytes || comm->size == 1)
        return MIMO_OK;
    return mimo_buffer_create_internal(&comm->fifos, comm, bytes);
}

mimo_status mimo_fifos_use(mimo_fifo_user *user, mimo_comm *comm)
{
    if (comm->fifo_users == 0)
        MIMO_TRY(open_fifos(comm));
    comm->fifo_users++;
    user->comm = comm;
    return MIMO_OK;
}

void mimo_fifos_leave(mimo_fifo_user *user)
{
    mimo_comm *comm = user->comm;
    user->comm = NULL;
    if (!comm || --comm->fifo_users > 0)
        return;
    mimo_buffer_destroy(comm->fifos);
    comm->fifos = NULL;
}

mimo_buffer *mimo_fifos_of(const mimo_fifo_user *user)
{
    return user->comm ? user->comm->fifos : NULL;
}
