/* The description of a bridge: read, put into words, and compared between the ranks. */
#ifndef MIMO_BRIDGE_BRIDGE_DESC_H
#define MIMO_BRIDGE_BRIDGE_DESC_H

#include "bridge/bridge_types.h"

/* What a creation asks for, read once: the descriptor and the rules that it points to, all in the
 * form of this version, and the environment. */
typedef struct mimo_bridge_request {
    mimo_bridge_desc desc;
    mimo_partition_rule rule, src_rule;
    int64_t checks; /* MIMO_CHECK */
    int64_t stages; /* MIMO_STAGED */
    bool reserves;  /* the descriptor has a limit of thread blocks, so they are reserved */
    uint64_t head;  /* a hash of everything except the lengths of thd */
} mimo_bridge_request;

#define MIMO_BRIDGE_REQUEST_INIT                                                                  \
    {                                                                                             \
        MIMO_BRIDGE_DESC_INIT, MIMO_PARTITION_RULE_INIT, MIMO_PARTITION_RULE_INIT, 0, 0, false, 0 \
    }

/* Read a descriptor. Local. */
mimo_status mimo_bridge_request_read(mimo_bridge_request *own, const mimo_comm *comm,
                                     const mimo_bridge_desc *desc);

/* Agree with all ranks that they create the same bridge, and that the checks of each (`local`) have
 * passed. Collective. */
mimo_status mimo_bridge_request_agree(mimo_comm *comm, mimo_status local, mimo_bridge_request *own);

/* A name on top of a hash; NULL is a name like no other. */
uint64_t mimo_bridge_hash_name(uint64_t hash, const char *name);

#endif
