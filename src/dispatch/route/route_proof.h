/* The proof of the routes of all ranks, on routes that exist already. Pure. */
#ifndef MIMO_DISPATCH_ROUTE_PROOF_H
#define MIMO_DISPATCH_ROUTE_PROOF_H

#include "dispatch/route/virtual_ranks.h"

/* maps[ranks]: one of each rank. MIMO_ERR_INTERNAL, MIMO_ERR_MEMORY. */
mimo_status mimo_route_prove(const mimo_virtual_ranks *ranks, const mimo_route_map *maps);

#endif
