/* What moves on while the host waits. */
#include "comm/comm_backend.h"

mimo_progress_callback **mimo_callbacks_of(mimo_comm *comm)
{
    return comm->family->parallel ? &comm->callbacks : &comm->family->callbacks;
}

void mimo_callback_add(mimo_comm *comm, mimo_progress_callback *callback)
{
    mimo_progress_callback **first = mimo_callbacks_of(comm);
    callback->comm = comm;
    pthread_mutex_lock(&comm->family->lock);
    callback->next = *first;
    *first = callback;
    pthread_mutex_unlock(&comm->family->lock);
}

void mimo_callback_remove(mimo_comm *comm, mimo_progress_callback *callback)
{
    pthread_mutex_lock(&comm->family->lock);
    mimo_progress_callback **at = mimo_callbacks_of(comm);
    while (*at && *at != callback)
        at = &(*at)->next;
    if (*at)
        *at = callback->next;
    pthread_mutex_unlock(&comm->family->lock);
}
