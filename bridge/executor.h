/* An executor: one way to move the tensors of a bridge's calls, as a table. bridge_executors.h says
 * which executors there are. */
#ifndef MIMO_BRIDGE_EXECUTOR_H
#define MIMO_BRIDGE_EXECUTOR_H

#include <mimo/bridge.h>
#include <mimo/plan.h>

#include "comm/comm_backend.h"
#include "layout/tile.h"
#include "move/mover.h"

/* One pass of one tensor, whose staging is asked for. */
typedef struct mimo_staged_pass {
    const mimo_bridge *bridge;
    bool backward;
    mimo_tile tile[2]; /* of this rank, by mimo_side */
    int64_t batch, seq;
    const struct mimo_batch_split *rows; /* in place of an even batch; NULL: not given */
    bool in_buffer;
} mimo_staged_pass;

/* Bytes of the areas of one pass. */
typedef struct mimo_staging_bytes {
    int64_t full, joined, contributions; /* by mimo_staging_use */
    int64_t arriving, leaving;           /* the backend's: rows of messages and gathers, packed */
} mimo_staging_bytes;

/* Executors by mimo_algorithm: AUTO, which is none; those of the library, up to the last algorithm;
 * behind them one of the tests. */
enum { MIMO_LAST_ALGORITHM = MIMO_ALGORITHM_ROUTED, MIMO_EXECUTORS = MIMO_LAST_ALGORITHM + 2 };

/* A transport among those that an executor takes. */
#define MIMO_TRANSPORT_BIT(transport) (1U << (transport))

typedef struct mimo_executor_table {
    const char *name;
    unsigned transports;  /* that it takes beside MIMO_TRANSPORT_AUTO, a bit each. With ZERO_COPY it
                             may push rows into buffers, with STAGED it may stage messages */
    bool whole_sequences; /* it stages full sequences: so it must know S even of flat tiles, and
                             takes no flat dst tile under a partition */
    bool tensors_alike;   /* one plan moves all tensors of a call, so all are like the first */

    /* ------ creation ------ */

    /* What this rank can know by itself, into bridge->state. */
    mimo_status (*create)(mimo_bridge *bridge, const mimo_bridge_desc *desc);
    /* The groups. Collective over the mover's communicator. */
    mimo_status (*connect)(mimo_bridge *bridge);
    /* It was measured, and moves no pass: release what `connect` made for that. What reads and
     * checks the tensors of a call stays, because others ask it. NULL: it keeps all. Collective. */
    void (*disconnect)(mimo_bridge *bridge);
    /* Release all that creation made, or began to make. */
    void (*destroy)(mimo_bridge *bridge);

    /* ------ batches (bridge/batch/) ------ */

    /* Whether it moves by the batches of the bridge, which updates give. `create` then finds the
     * bridge's sides, and its calls the batch of their operation. Updates take bridges whose
     * executors all do. */
    bool takes_batches;
    /* Bytes that a micro-batch keeps for it, all 0 at first. 0: none. */
    size_t batch_bytes;
    /* Release what they point to: an update has replaced the batch, or the bridge ends. NULL:
     * nothing. */
    void (*batch_release)(mimo_bridge *bridge, void *own);

    /* ------ operations ------ */

    /* Bytes that an operation keeps for it, all 0 at first; every operation of any bridge has them.
     * 0: none. */
    size_t op_bytes;
    /* Release what they point to. NULL: nothing. */
    void (*op_release)(void *own);

    /* ------ layouts ------ */

    /* How a side is laid out, without order, batch and seq. */
    mimo_layout_desc (*side_layout)(const mimo_bridge *bridge, mimo_side side);
    /* The same with the batch of an operation that has moved, and its split. */
    mimo_status (*op_layout)(mimo_layout_desc *out, const mimo_op *op, mimo_side side);
    /* The samples of a batch that this rank holds on a side. */
    mimo_status (*samples)(const mimo_bridge *bridge, mimo_side side, int64_t batch, int64_t *first,
                           int64_t *count);

    /* The most staging that a pass takes on this rank, into *out (all 0 before). Local. */
    mimo_status (*staging)(mimo_staging_bytes *out, const mimo_staged_pass *pass);

    /* ------ before the agreement, local ------ */

    /* Check the views of all tensors, and read the sequence length that they share. NULL: `read`
     * does. */
    mimo_status (*read_sequence)(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from,
                                 int n);
    /* Read and check the views of one tensor. */
    mimo_status (*read)(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                        const mimo_tensor *dst);
    /* What of these tiles must be the same on all ranks, as a hash on top of `hash`. */
    uint64_t (*sign)(uint64_t hash, const mimo_tile_pair *tiles);
    /* Where tensor i is written: the buffer and the offset there, if these must be the same on all
     * ranks; otherwise NULL and -1. No function: no destination must be the same. */
    const mimo_buffer *(*target)(int64_t *offset, const mimo_op *op, int i);
    /* With all tensors read: get the memory that the steps will use. A rank without memory then
     * fails while the others can still hear of it. May set claim.guess, claim.unsure and
     * mimo_bridge_op.lacks_guess. */
    mimo_status (*prepare)(mimo_op *op);

    /* ------ after an agreement in which the guesses differed ------ */

    /* Begin to resolve the guess (op->progress.request). NULL: nothing is ever guessed. */
    mimo_status (*resolve_start)(mimo_op *op);
    /* Prepare again by what was found. Another agreement follows. */
    mimo_status (*resolve_finish)(mimo_op *op);

    /* ------ moving ------ */

    const mimo_mover_step *forward, *backward;
    /* The steps of a prepare, of either pass: they move no row. NULL: the steps of the pass, on
     * other memory than the caller's. */
    const mimo_mover_step *connect_steps;
    bool by_chunk; /* see mimo_op_steps */
    /* After the last step, or where the operation failed before. NULL: nothing to do. */
    void (*finish)(mimo_op *op);
} mimo_executor_table;

/* Whether the caller left the choice to the library. */
static inline bool mimo_executor_is_auto(mimo_executor executor)
{
    return executor.algorithm == MIMO_ALGORITHM_AUTO && executor.transport == MIMO_TRANSPORT_AUTO;
}

/* Whether it has a transport beside AUTO. */
static inline bool mimo_executor_takes(const mimo_executor_table *executor,
                                       mimo_transport transport)
{
    return (executor->transports & MIMO_TRANSPORT_BIT(transport)) != 0;
}

/* Whether calls may write straight into buffers. */
static inline bool mimo_executor_pushes(const mimo_executor_table *executor,
                                        mimo_transport transport)
{
    return mimo_executor_takes(executor, MIMO_TRANSPORT_ZERO_COPY) &&
           (transport == MIMO_TRANSPORT_AUTO || transport == MIMO_TRANSPORT_ZERO_COPY);
}

/* Whether its messages may be staged where ranks share memory. `by_choice`: AUTO may. */
static inline bool mimo_executor_stages(const mimo_executor_table *executor,
                                        mimo_transport transport, bool by_choice)
{
    return mimo_executor_takes(executor, MIMO_TRANSPORT_STAGED) &&
           (transport == MIMO_TRANSPORT_STAGED || (by_choice && transport == MIMO_TRANSPORT_AUTO));
}

#endif
