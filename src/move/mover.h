/*
 * A mover moves rows by operations, each from its call to its end: queue, words, signature,
 * agreement, steps, staging, chunks. The object whose rows move (a bridge) embeds a mover. It gives
 * hooks for what is its own: which views a call takes, what the ranks compare of it, and the steps
 * that move its rows.
 */
#ifndef MIMO_MOVE_MOVER_H
#define MIMO_MOVE_MOVER_H

#include <stdarg.h>

#include <mimo/op.h>

#include "comm/agreement.h"
#include "comm/comm_backend.h"
#include "core/free_list.h"
#include "layout/tile.h"

enum { MIMO_TITLE_TEXT = 64 };

typedef struct mimo_mover mimo_mover;

/*
 * One step of an operation, for one tensor or for all of them at once. It does local work, or
 * leaves one thing in flight: a request (op->progress.request) or an agreement (mimo_op_agree,
 * mimo_op_agree_on). The next step comes when that is over. Where it fails, the operation ends. No
 * step waits, except that a check may wait for its stream. A list of steps ends with NULL.
 */
typedef mimo_status (*mimo_mover_step)(mimo_op *op, const mimo_tile_pair *tiles);

/* What is the object's own. */
typedef struct mimo_mover_hooks {
    mimo_callback_owner kind; /* of the object */
    /* Operations agree on the parent, where each meets whatever the other ranks call instead. So
     * all ranks begin them in one order with all calls there. Otherwise they agree on the mover's
     * own communicator, and ranks may begin those of two movers in different orders. */
    bool on_parent;
    const char *pass[2]; /* how sentences call a forward and a backward */

    /* Make an operation, all zero, with memory for what the object keeps in it (op->own). */
    mimo_status (*op_create)(mimo_op **out);
    void (*op_destroy)(mimo_op *op);

    /* ------ when a call begins; all of it is local ------ */

    /* Set op->own back, and say which steps the operation takes (op->steps). */
    void (*begin)(mimo_op *op);
    /* What the call says of the object, as a hash on top of `hash` and in words behind `call`: of
     * an operation that is no move (mimo_op_request) behind the object's title alone. */
    uint64_t (*sign_call)(uint64_t hash, const mimo_op *op);
    void (*describe)(char call[MIMO_CALL_TEXT], const mimo_op *op);
    /* Read and check n > 0 views: reserve (mimo_op_reserve_pairs) and fill op->tensors.pairs. */
    mimo_status (*read)(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n);
    /* What of tensor i must be the same on all ranks, as a hash on top of `hash`. */
    uint64_t (*sign)(uint64_t hash, const mimo_op *op, int i);
    /* Where tensor i is written: the buffer and the offset there, if these must be the same on all
     * ranks; otherwise NULL and -1. */
    const mimo_buffer *(*target)(int64_t *offset, const mimo_op *op, int i);
    /* Check all tensors together, and get the memory that the steps will use. A rank without memory
     * then fails while the others can still hear of it. May set claim.guess and claim.unsure. */
    mimo_status (*prepare)(mimo_op *op);

    /* ------ when it ends ------ */

    /* After the last step, or where the operation failed before. */
    void (*finish)(mimo_op *op);
    /* The caller has waited for it. When that is depends on the caller alone, and not on how far
     * the ranks have got. NULL: nothing to do. */
    void (*waited)(mimo_op *op);
} mimo_mover_hooks;

struct mimo_mover {
    const mimo_mover_hooks *hooks;
    void *owner;                 /* the object that embeds it */
    mimo_comm *comm;             /* own: rows; agreements, unless they are on the parent */
    mimo_comm *parent;           /* borrowed; NULL until the object is complete */
    char title[MIMO_TITLE_TEXT]; /* "bridge 'images'" or "bridge 2": begins its sentences */
    uint64_t id;                 /* a hash of name and number: begins its signatures */
    bool compares_calls;         /* with all other calls of the parent (MIMO_CHECK=calls) */
    bool knows_reach;            /* a call has looked whether all ranks' buffers are in reach */
    mimo_progress_callback callback;

    mimo_op *queue;        /* operations in flight: only the first moves, so that all ranks start
                              their communication in the same order */
    mimo_free_item *spare; /* ended ones, kept for the next */
    bool progressing; /* inside mimo_mover_progress: a step may wait for its stream, and that wait
                       * moves on the other movers alone */
    int unwaited;     /* operations that were begun, and not waited for */
    void (*idle)(void *owner); /* once the last of these was waited for; NULL: nothing */
    mimo_staging staging;      /* of all operations on a device, by stream */
};

/* A call of a mover that was made for zero-copy, by this name, writes into `buffer`: the first one
 * warns where ranks are out of reach. */
void mimo_mover_look_at_reach(mimo_mover *mover, const mimo_buffer *buffer);

/* ---------------------------------- its life (mover.c) -------------------------------------- */

/* Begin, with memory for the first operation. Local. */
mimo_status mimo_mover_create(mimo_mover *mover, void *owner, const mimo_mover_hooks *hooks);

/* Its communicator, and where operations agree on the parent also words for that (agreement.h).
 * Collective over `parent`. `checks` are the bits of MIMO_CHECK in force. */
mimo_status mimo_mover_connect(mimo_mover *mover, mimo_comm *parent, int64_t checks);

/* The object is complete: hold the parent, whose waits move the operations on. */
void mimo_mover_open(mimo_mover *mover, mimo_comm *parent);

/* Release all that it has. No operation is in flight. */
void mimo_mover_release(mimo_mover *mover);

/* MIMO_ERR_STATE where an operation was not waited for. That is the same on all ranks; whether one
 * still moves is not, so nothing depends on that. */
mimo_status mimo_mover_check_idle(const mimo_mover *mover, const char *call);

/* -------------------------------- its words (mover_words.c) --------------------------------- */

/* "bridge 'images'", of an object of that kind and name, or of that number where it has no name. */
void mimo_write_title(char title[MIMO_TITLE_TEXT], const char *kind, const char *name,
                      int64_t number);

/* Put the title in front of the sentence of an error, unless it is there or the family has ended.
 * Returns the status. */
mimo_status mimo_mover_prefix_error(const mimo_mover *mover, mimo_status status);

/* Append to a call in words, as far as there is space. */
MIMO_PRINTF(2, 3) void mimo_call_append(char call[MIMO_CALL_TEXT], const char *format, ...);
MIMO_PRINTF(2, 0)
void mimo_call_append_list(char call[MIMO_CALL_TEXT], const char *format, va_list arguments);

/* --------------------------------- its calls (op_begin.c) ----------------------------------- */

/* What a public call asks for. */
typedef struct mimo_op_request {
    bool backward, chunked, prepares;
    mimo_move_desc move;
    /* What the owner does in the turn of a move, if it is none: then the operation has no tensors,
     * and of the hooks before its steps only `begin`, `sign_call` and `describe` are asked. 0: a
     * move. */
    mimo_call_kind instead;
    void *subject; /* the owner's: what of it moves, for hooks->begin; NULL: the owner as a whole */
    mimo_status read; /* what the caller has checked before; if an error, see mimo_last_error() */
} mimo_op_request;

/* A pass of whole tensors. */
static inline mimo_op_request mimo_whole_pass(bool backward, const mimo_tensor *to,
                                              const mimo_tensor *from, int n, mimo_stream stream)
{
    return (mimo_op_request){.backward = backward, .move = {0, to, from, n, 1, stream}};
}

/* Begin an operation. Only what leaves nothing to agree on is an error here; all other errors are
 * the operation's. On a device it has ended on return. */
mimo_status mimo_mover_begin(mimo_op **out, mimo_mover *mover, const mimo_op_request *request);

/* Begin one and wait for it, inside of a call on the mover's parent: no other thread gets in
 * between, and no operation is left (mover_calls.c). */
mimo_status mimo_mover_run(mimo_mover *mover, const mimo_op_request *request);

/* The public calls of a pass (mover_calls.c): begun; from the start to the end; and that of a rank
 * which can't make it, with the error that all ranks get. `call` begins sentences. */
mimo_status mimo_mover_start(mimo_op **out, mimo_mover *mover, const mimo_op_request *request);
mimo_status mimo_mover_move(mimo_mover *mover, const mimo_op_request *request);
mimo_status mimo_mover_refuse(mimo_mover *mover, const mimo_op_request *request, mimo_status local,
                              const char *call);

/* mimo_mover_begin with what a descriptor says. One that can't be read is an error of this rank's
 * checks: all ranks get it from the agreement. */
mimo_status mimo_mover_begin_described(mimo_op **out, mimo_mover *mover,
                                       const mimo_op_request *asked, const mimo_move_desc *desc);

/* ---------------------- its calls, between all ranks (op_claim.c) --------------------------- */

/* Where mover->compares_calls: agree on a call over the parent, where it is compared with those of
 * all other objects. Blocking. */
mimo_status mimo_mover_compare_call(const mimo_mover *mover, const mimo_claim *claim);

/* ---------------------------------- progress (op_progress.c) -------------------------------- */

/* Move the operations on, without blocking; until all have ended. */
void mimo_mover_progress(mimo_mover *mover);
void mimo_mover_finish(mimo_mover *mover);

#endif
