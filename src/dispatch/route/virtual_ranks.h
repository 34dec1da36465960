/* The ids of a group whose ranks are all virtual: one process has them. Pure. */
#ifndef MIMO_DISPATCH_VIRTUAL_RANKS_H
#define MIMO_DISPATCH_VIRTUAL_RANKS_H

#include "dispatch/route/route_map.h"

typedef struct mimo_virtual_ranks {
    mimo_route_shape shape;
    mimo_route_ids ids; /* points into the following */
    mimo_route_id *list;
    int64_t *tokens, *capacity; /* [ranks] */
    int64_t max_tokens;
} mimo_virtual_ranks;

/* Read a routing. `name` is the calling function's. Everything is to be released, also after an
 * error. Errors of mimo_route_check, except those of the proof. */
mimo_status mimo_virtual_ranks_read(mimo_virtual_ranks *out, const mimo_routing *routing,
                                    const char *name);
void mimo_virtual_ranks_release(mimo_virtual_ranks *ranks);

/* The route of one of them; the map is to be released, also after an error. */
mimo_status mimo_virtual_ranks_route(mimo_route_map *out, const mimo_virtual_ranks *ranks,
                                     int64_t rank);

#endif
