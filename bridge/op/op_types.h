/* An operation of a bridge: what the caller asked for, what the ranks agree on, how far it has got,
 * and the memory that it keeps for the next one. */
#ifndef MIMO_BRIDGE_OP_TYPES_H
#define MIMO_BRIDGE_OP_TYPES_H

#include <mimo/bridge.h>

#include "layout/tile.h"
#include "comm/agreement.h"
#include "comm/comm_backend.h"
#include "comm/waiter.h"
#include "core/free_list.h"

/* What the caller asked for. */
typedef struct mimo_op_call {
    bool backward;
    bool guarded;  /* a deadline was in force when it began: see comm_backend.h */
    bool chunked;  /* its chunks can be waited for */
    bool prepares; /* it makes a call ready, and moves none of the tensors */
    int chunks;    /* 1 where it is not chunked */
    int batch;     /* which of the micro-batches that an update told it moves */
    mimo_stream stream;
} mimo_op_call;

/* The tensors that move. */
typedef struct mimo_op_tensors {
    mimo_tile_pair *pairs; /* pairs[count], in memory for `capacity` */
    int count;
    int64_t capacity;
    int64_t seq; /* routed: S of the full sequences; 1 where all tiles are flat */
    bool tagged; /* the last pair is the samples check's, not the caller's */
} mimo_op_tensors;

/* What this rank brings to the agreement of all ranks. */
typedef struct mimo_op_claim {
    mimo_status local;  /* this rank's own checks */
    uint64_t signature; /* see mimo_claim */
    uint64_t guess;     /* see mimo_claim */
    uint64_t head;      /* the signature without the tensors */
    bool unsure;        /* the batch split is a guess, so the ranks agree on devices as well */
    char words[MIMO_CALL_TEXT];
    uint64_t worded; /* what `words` describe where they name no tensors */
    mimo_agreement agreement;
} mimo_op_claim;

typedef enum mimo_op_state {
    MIMO_OP_QUEUED,
    MIMO_OP_AGREEING,
    MIMO_OP_RESOLVING,         /* the ranks guessed different splits: gathering their samples */
    MIMO_OP_HASHING_REPLICAS,  /* replica check: gathering hashes of copies of the source */
    MIMO_OP_AGREEING_REPLICAS, /* replica check: agreeing on its outcome */
    MIMO_OP_MOVING,
    MIMO_OP_AGREEING_ORIGINS, /* samples check: agreeing on its outcome */
    MIMO_OP_ENDED,
} mimo_op_state;

/* How far it has got. */
typedef struct mimo_op_progress {
    mimo_op_state state;
    int item; /* MOVING: the tensor that moves, or the chunk of all tensors */
    int step; /* MOVING: the next step of that item */
    mimo_request *request;
    mimo_waiter waiter; /* of the host, for it */
    mimo_status status;
    char sentence[MIMO_SENTENCE_TEXT]; /* of `status` or claim.local: a wait may come much later */
} mimo_op_progress;

/* Memory that it keeps for the next operation. */
typedef struct mimo_op_memory {
    mimo_staging staging; /* on the host; see mimo_op_get_staging */
    mimo_event **events;  /* events[event_count]: on a device, when each chunk has arrived */
    int64_t event_count;  /* as many as the operation with the most chunks had */
    uint64_t *hashes;     /* replica check: the own hash, then those of all ranks with copies */
    char *substitutes;    /* of a prepare: see mimo_op_take_substitutes */
    int64_t *samples;     /* routed: this rank's samples of either side, then those of all ranks */
} mimo_op_memory;

struct mimo_op {
    mimo_free_item item; /* while it is spare */
    mimo_bridge *bridge;
    const struct mimo_executor_table *executor; /* of its pass */
    mimo_op *next;                              /* in the bridge's queue */
    mimo_op_call call;
    mimo_op_tensors tensors;
    mimo_op_claim claim;
    mimo_op_progress progress;
    mimo_op_memory memory;
    struct mimo_prepared_call *prepared; /* routed: NULL until the batch split is known */
};

/* The side that an operation reads, and the one that it writes. */
static inline mimo_side mimo_op_from(const mimo_op *op)
{
    return op->call.backward ? MIMO_DST : MIMO_SRC;
}

static inline mimo_side mimo_op_to(const mimo_op *op)
{
    return op->call.backward ? MIMO_SRC : MIMO_DST;
}

/* --------------------------------- staging (op_staging.c) ----------------------------------- */

/* Staging of at least `bytes` bytes for the steps of an operation. On the host it is the
 * operation's own, as several may be in flight. On a device it is the stream's, which runs its
 * operations one after the other: so its size depends on the largest operation, not on their
 * number. */
mimo_status mimo_op_get_staging(void **out, mimo_op *op, mimo_staging_slot slot, int64_t bytes);

/* --------------------------- the call in words (op_words.c) --------------------------------- */

/* Begin the words of a call of n tensors. */
void mimo_op_begin_words(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n);

/* Append to the words, where they name tensors. */
MIMO_PRINTF(2, 3) void mimo_op_append(mimo_op *op, const char *format, ...);

/* The words of a call with those of one tensor. `context` is the operation: see mimo_call_items. */
void mimo_op_write_tensor(char call[MIMO_CALL_TEXT], const void *context, int64_t tensor);

/* ---------------------- what the ranks compare and agree on (op_claim.c) -------------------- */

/* Begin the signature of a call of n tensors. */
void mimo_op_begin_signature(mimo_op *op, int n);

/* A destination on top of `hash`: the buffer that it lies in and the offset there; NULL and -1
 * where it lies in none. */
uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t offset);

/* Keep the sentence of an error of this rank's own checks, until the agreement reads it. */
void mimo_op_keep_sentence(mimo_op *op);

mimo_claim mimo_op_claim_of(const mimo_op *op);

/* ---------------------------------- chunks (op_chunks.c) ------------------------------------ */

/* Chunks that have arrived; on a device, that were enqueued. */
int mimo_op_chunks_here(const mimo_op *op);

/* The events of an operation in chunks on a device. Elsewhere these do nothing.
 * Before the agreement: have one for each chunk. */
mimo_status mimo_op_reserve_events(mimo_op *op);
/* An item has moved. */
mimo_status mimo_op_record_item(mimo_op *op);
/* Let a stream wait for a chunk. */
mimo_status mimo_op_wait_event(const mimo_op *op, int chunk, mimo_stream stream);
void mimo_op_release_events(mimo_op *op);

/* ------------------------------- prepares (op_substitutes.c) -------------------------------- */

/* Let a prepare move memory of the library, all zero, in place of the caller's tensors. Local. */
mimo_status mimo_op_take_substitutes(mimo_op *op);

/* Release it after the prepare, whose work on a stream is done. */
void mimo_op_release_substitutes(mimo_op *op);

/* ---------------------------------- beginning (op_begin.c) ---------------------------------- */

/* What a public call asks for. */
typedef struct mimo_op_request {
    bool backward, chunked, prepares;
    mimo_move_desc move;
    mimo_status read; /* whether the descriptor could be read; if not, see mimo_last_error() */
} mimo_op_request;

/* An operation with this rank's checks done, in no queue yet. Local. Only what leaves nothing to
 * agree on is an error here; all else is in claim.local. */
mimo_status mimo_op_begin(mimo_op **out, mimo_bridge *bridge, const mimo_op_request *request);
void mimo_op_destroy(mimo_op *op);

/* ---------------------------------- progress (op_progress.c) -------------------------------- */

/* Move an operation of its bridge's queue to its end, with this status. */
void mimo_op_end(mimo_op *op, mimo_status status);

/* Move the operations of a bridge on, without blocking; until one has ended, or this number of its
 * chunks has arrived; until all have ended. */
void mimo_bridge_progress(mimo_bridge *bridge);
void mimo_op_progress_to(mimo_op *op, int chunks);
void mimo_bridge_finish(mimo_bridge *bridge);

#endif
