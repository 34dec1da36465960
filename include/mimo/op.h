/*
 * Operations: calls that were begun and have not ended. <mimo/bridge.h> begins them, and says what
 * holds for the tensors of an operation until it has ended.
 */
#ifndef MIMO_OP_H
#define MIMO_OP_H

#include <stdbool.h>

#include <mimo/comm.h>
#include <mimo/tensor.h>

MIMO_BEGIN_DECLS

typedef struct mimo_op mimo_op;

/** What a call in chunks moves. */
typedef struct mimo_move_desc {
    size_t size;                  /* set by the initializer */
    const mimo_tensor *to, *from; /* to[n] and from[n], as mimo_bridge_forward takes them */
    int n;
    int chunks; /* m > 0, the same on all ranks */
    mimo_stream stream;
} mimo_move_desc;

#define MIMO_MOVE_DESC_INIT                            \
    {                                                  \
        sizeof(mimo_move_desc), NULL, NULL, 0, 1, NULL \
    }

MIMO_API void mimo_move_desc_init(mimo_move_desc *out, size_t size);

/**
 * Wait for a chunk (0 <= chunk < m) of an operation that was begun in chunks. The chunk's rows of
 * `to` are then the caller's again. The other rows, and `from`, stay the operation's until
 * mimo_op_wait. Local: each rank waits for what it needs, in any order, as often as it likes.
 *
 * On the host it blocks, and moves operations on as mimo_op_wait does; `stream` is NULL.
 *
 * On a device it returns at once. What is enqueued on `stream` from then on waits for the chunk.
 * Pass another stream than the operation's, so that later chunks move on meanwhile. In a graph,
 * waiting for chunk m - 1 joins the operation's stream to `stream`.
 *
 * Returns the operation's error where it has failed. MIMO_ERR_ARGUMENT: no such chunk.
 * MIMO_ERR_STATE: the operation was not begun in chunks. mimo_op_wait is due in any case.
 */
MIMO_API mimo_status mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream);

/** Move the bridge's operations on. Local, does not block. *done says whether this one has ended,
 *  with or without an error. Returns MIMO_OK while nothing failed, otherwise the operation's error.
 *  mimo_op_wait is due in any case. */
MIMO_API mimo_status mimo_op_test(bool *done, mimo_op *op);

/** Wait for the end, release the operation and null the handle. Local, blocking on the host. Where
 * the bridge was destroyed meanwhile, the last of these calls also releases the bridge. Returns the
 * operation's status. A handle that is already NULL gives MIMO_OK. */
MIMO_API mimo_status mimo_op_wait(mimo_op **op);

MIMO_END_DECLS

#endif
