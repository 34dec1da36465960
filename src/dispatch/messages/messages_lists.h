/* The lists of a route that kernels read, in the memory that rows lie in: positions of rows, and
 * sums. In host memory they are the route's own; a device has copies, which a set renews. */
#ifndef MIMO_DISPATCH_MESSAGES_LISTS_H
#define MIMO_DISPATCH_MESSAGES_LISTS_H

#include "comm/comm_backend.h"
#include "dispatch/route/route_map.h"

typedef struct mimo_messages_lists {
    /* As in the map, except that nothing of `begin` is here: the host reads that. */
    mimo_route_blocks in, out;
    mimo_sum_list partial, sums, pair_sums;
    int32_t *ends;
    void *memory;     /* NULL: all of this is the map's */
    mimo_event *last; /* behind the last work that used them, on whatever stream */
} mimo_messages_lists;

/* Whether the tensors of a communicator lie where the host reads nothing. */
static inline bool mimo_lists_lie_apart(const mimo_comm *comm)
{
    return comm->device != &mimo_device_host;
}

/* Memory for the lists of any route of this map. Everything is to be released, also after an
 * error. */
mimo_status mimo_messages_lists_reserve(mimo_messages_lists *lists, const mimo_route_map *map,
                                        const mimo_comm *comm);
void mimo_messages_lists_release(mimo_messages_lists *lists, const mimo_comm *comm);

/* The map was filled: have its lists, in the order of the stream. */
mimo_status mimo_messages_lists_fill(mimo_messages_lists *lists, const mimo_route_map *map,
                                     const mimo_comm *comm, mimo_stream stream);

/* Work of a stream that uses them begins, and has been enqueued: that of other streams before comes
 * first. In a graph all of it is on one stream. */
mimo_status mimo_messages_lists_enter(const mimo_messages_lists *lists, const mimo_comm *comm,
                                      mimo_stream stream);
mimo_status mimo_messages_lists_leave(const mimo_messages_lists *lists, const mimo_comm *comm,
                                      mimo_stream stream);

#endif
