/* An operation of a mover: what the caller asked for, what the ranks agree on, how far it has got,
 * and the memory that it keeps for the next one. */
#ifndef MIMO_MOVE_OP_TYPES_H
#define MIMO_MOVE_OP_TYPES_H

#include "comm/recorder.h"
#include "comm/waiter.h"
#include "move/mover.h"

/* What the caller asked for. */
typedef struct mimo_op_call {
    bool backward;
    bool guarded;  /* a deadline was in force when it began: see comm_backend.h */
    bool chunked;  /* its chunks can be waited for */
    bool prepares; /* it makes a call ready, and moves none of the tensors */
    mimo_call_kind
        kind;   /* MIMO_CALL_MOVE; another one where it has no tensors: see mimo_op_request */
    int n;      /* tensors */
    int chunks; /* 1 where it is not chunked */
    mimo_stream stream;
    void *subject;   /* of the owner: see mimo_op_request */
    int micro_batch; /* -1: its object knows none */
    bool named;      /* there is a first tensor, of these views */
    mimo_tensor to, from;
} mimo_op_call;

/* The tensors that move. */
typedef struct mimo_op_tensors {
    mimo_tile_pair *pairs; /* pairs[count], in memory for `capacity`: the caller's come first */
    int count;
    int64_t capacity;
} mimo_op_tensors;

/* What this rank brings to the agreement of all ranks. */
typedef struct mimo_op_claim {
    mimo_status local;  /* this rank's own checks */
    uint64_t signature; /* see mimo_claim */
    uint64_t guess; /* see mimo_claim; of a bridge: a hash of the batch split that it inferred */
    uint64_t head;  /* the signature without the tensors */
    bool unsure;    /* it may differ between ranks, so they agree even where a device lets
                           them leave the agreement out */
    char words[MIMO_CALL_TEXT]; /* of the waiter, once it has waited for long */
    mimo_agreement agreement;
} mimo_op_claim;

typedef enum mimo_op_state {
    MIMO_OP_QUEUED,
    MIMO_OP_AGREEING,
    MIMO_OP_MOVING,
    MIMO_OP_ENDED
} mimo_op_state;

/* Steps come in three parts: once before all rows, for each item, and once behind all rows. */
typedef enum mimo_op_part {
    MIMO_OP_BEFORE,
    MIMO_OP_ITEMS,
    MIMO_OP_BEHIND,
    MIMO_OP_PARTS
} mimo_op_part;

typedef struct mimo_op_steps {
    const mimo_mover_step *part[MIMO_OP_PARTS];
    /* true: an item is one chunk of all tensors. false: it is one whole tensor, and chunks mean
     * nothing to the steps; a tensor whose src tile is empty, as it then is on all ranks, is passed
     * over. */
    bool by_chunk;
} mimo_op_steps;

/* How far it has got. */
typedef struct mimo_op_progress {
    mimo_op_state state;
    mimo_op_part part; /* MOVING: what follows next */
    int item, step;    /* of that part */
    /* In flight: one of the two, or none. */
    mimo_request *request;
    bool agreeing;      /* on claim.agreement */
    mimo_waiter waiter; /* of the host, for it */
    mimo_status status;
    char sentence[MIMO_SENTENCE_TEXT]; /* of `status` or claim.local: a wait may come much later */
} mimo_op_progress;

/* Memory that it keeps for the next operation. */
typedef struct mimo_op_memory {
    mimo_staging staging; /* on the host; see mimo_op_get_staging */
    mimo_event **events;  /* events[event_count]: on a device, when each chunk has arrived */
    int64_t event_count;  /* as many as the operation with the most chunks had */
    char *substitutes;    /* of a prepare: see mimo_op_take_substitutes */
} mimo_op_memory;

/* The caller has the handle from the call to its wait. The mover keeps the operation: in its queue
 * until it ends, and in its spare list once it was waited for, for the next call. It is destroyed
 * with the mover. */
struct mimo_op {
    mimo_free_item item; /* while it is spare */
    mimo_mover *mover;
    mimo_op *next; /* in the mover's queue */
    void *own;     /* what the mover's owner keeps in it */
    mimo_op_steps steps;
    mimo_op_call call;
    mimo_op_tensors tensors;
    mimo_op_claim claim;
    mimo_op_progress progress;
    mimo_op_memory memory;
    mimo_record record; /* in the ring of the family */
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
mimo_status mimo_op_get_staging(void **out, mimo_op *op, mimo_staging_use use, int64_t bytes);

/* --------------------------- the call in words (op_words.c) --------------------------------- */

/* Write the call as a whole, with its first tensor. Returns `call`. */
const char *mimo_op_text(char call[MIMO_CALL_TEXT], const mimo_op *op);

/* Write the call with one tensor; -1: as a whole. `context` is the operation: see
 * mimo_call_items. */
void mimo_op_describe(char call[MIMO_CALL_TEXT], const void *context, int64_t tensor);

/* ---------------------- what the ranks compare and agree on (op_claim.c) -------------------- */

/* Begin the signature. */
void mimo_op_begin_signature(mimo_op *op);

/* A destination on top of `hash`: the buffer that it lies in and the offset there; NULL and -1
 * where it lies in none. */
uint64_t mimo_target_sign(uint64_t hash, const mimo_buffer *buffer, int64_t offset);

/* Keep the outcome of this rank's own checks, with its sentence, until the agreement reads it. */
void mimo_op_keep_local(mimo_op *op, mimo_status local);

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

/* ------------------------------------- the end (op.c) --------------------------------------- */

/* mimo_op_wait, inside of a call on the mover's parent, which outlives the object. */
mimo_status mimo_op_finish(mimo_op **handle);

/* ------------------------------- prepares (op_substitutes.c) -------------------------------- */

/* Let a prepare move memory of the library, all zero, in place of the caller's tensors. Local. */
mimo_status mimo_op_take_substitutes(mimo_op *op);

/* Release it after the prepare, whose work on a stream is done. */
void mimo_op_release_substitutes(mimo_op *op);

/* ---------------------------------- beginning (op_begin.c) ---------------------------------- */

/* Memory for this number of pairs. Those that are there stay. */
mimo_status mimo_op_reserve_pairs(mimo_op *op, int64_t pairs);

/* An operation that has not begun. */
mimo_status mimo_op_create(mimo_op **out, mimo_mover *mover);
void mimo_op_destroy(mimo_op *op);

/* ---------------------------------- progress (op_progress.c) -------------------------------- */

/* Move an operation of its mover's queue to its end, with this status. */
void mimo_op_end(mimo_op *op, mimo_status status);

/* Leave an agreement in flight: on the operation's claim, over the parent; on the claim, perhaps
 * again as it has changed; on this rank's outcome of a check. */
void mimo_op_agree_on_parent(mimo_op *op);
void mimo_op_agree(mimo_op *op);
void mimo_op_agree_on(mimo_op *op, mimo_status outcome, const char *check);

/* For a caller that looks once whether the operation has ended: mimo_waiter_check. */
mimo_status mimo_op_check(mimo_op *op);

/* Move the mover's operations on until this one has ended, or this number of its chunks has
 * arrived. */
void mimo_op_progress_to(mimo_op *op, int chunks);

#endif
