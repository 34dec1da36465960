/* Copies between tensors and the staging that messages are packed in, all in one list. Rows that
 * stay on this rank are copied along. */
#ifndef MIMO_COMM_NCCL_PACKING_H
#define MIMO_COMM_NCCL_PACKING_H

#include "comm/comm_backend.h"

typedef struct mimo_packing {
    bool packs;            /* into the staging; otherwise out of it */
    mimo_row_copy *copies; /* copies[count]: a run sets where they lie */
    /* places[0][count] of `to`, places[1][count] of `from`. The base of an end in the staging does
     * not matter. */
    mimo_place *places[2];
    int64_t packed, count; /* the first `packed` have one end in the staging */
} mimo_packing;

/* Allocate for `packed` rows with an end in the staging and `stay` rows that stay. *packing is all
 * 0 before. */
mimo_status mimo_packing_reserve(mimo_packing *packing, int64_t packed, int64_t stay);

/* Add rows, which lie one after the other at `offset` of the staging. All of these come before any
 * that stay. */
void mimo_packing_add(mimo_packing *packing, const mimo_placed_rows *rows, int64_t offset);
void mimo_packing_add_staying(mimo_packing *packing, const mimo_placed_copy *copy);

/* Where the rows and the staging lie in one run. */
typedef struct mimo_packing_bases {
    char *const *bases;
    char *staging;
} mimo_packing_bases;

/* Enqueue all copies. */
mimo_status mimo_packing_run(mimo_packing *packing, const mimo_device *device,
                             const mimo_packing_bases *at, mimo_stream stream);

void mimo_packing_release(mimo_packing *packing);

#endif
