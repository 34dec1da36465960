/* The description of a dispatch: read, put into words, and compared between the ranks. */
#ifndef MIMO_DISPATCH_DISPATCH_DESC_H
#define MIMO_DISPATCH_DISPATCH_DESC_H

#include "comm/comm_backend.h"
#include "dispatch/dispatch_executor.h"

/* What a creation asks for. */
typedef struct mimo_dispatch_request {
    mimo_dispatch_desc desc;
    mimo_route_shape shape;
    bool reserves; /* the descriptor has a limit of thread blocks, not MIMO_CTAS */
    const mimo_dispatch_executor *executor;
    int64_t checks; /* MIMO_CHECK in force */
} mimo_dispatch_request;

/* Read and check it. Local. */
mimo_status mimo_dispatch_request_read(mimo_dispatch_request *out, const mimo_comm *comm,
                                       const mimo_dispatch_desc *desc);

/* Have all ranks ask for the same. `local` is what this rank found by itself. */
mimo_status mimo_dispatch_request_agree(mimo_comm *comm, mimo_status local,
                                        const mimo_dispatch_request *request);

/* The name on top of a hash. */
uint64_t mimo_dispatch_hash_name(uint64_t hash, const char *name);

#endif
