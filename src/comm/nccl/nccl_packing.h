/* Copies between tensors and a room that messages are packed in, all at once; rows that stay go
 * along. */
#ifndef MIMO_COMM_NCCL_PACKING_H
#define MIMO_COMM_NCCL_PACKING_H

#include "comm/comm_backend.h"

typedef struct mimo_packing {
    bool packs;            /* into the room; else out of it */
    mimo_row_copy *copies; /* copies[count]; the first `lines` have an end in the room, */
    int64_t *offset;       /* at offset[lines] */
    int64_t lines, count;
} mimo_packing;

/* Room for so many lines and rows that stay. *packing is all 0 before. */
mimo_status mimo_packing_reserve(mimo_packing *packing, int64_t lines, int64_t stay);

/* Rows that lie one after the other at `offset` of the room; all of them before any that stay. */
void mimo_packing_add(mimo_packing *packing, const mimo_rows *rows, int64_t offset);
void mimo_packing_add_staying(mimo_packing *packing, const mimo_row_copy *copy);

/* Enqueue. */
mimo_status mimo_packing_run(mimo_packing *packing, const mimo_device *device, char *room,
                             mimo_stream stream);

void mimo_packing_release(mimo_packing *packing);

#endif
