/*
 * Dispatch: rows of tokens to the experts that a router chose, and the experts' rows back.
 *
 * The ranks of one group share E experts (<mimo/route.h> defines the words). Two moves:
 *
 *   rows     token rows -> expert rows. Each expert gets a copy of the row of each of its pairs
 *   combine  expert rows -> token rows. A token gets the sum of the rows of its pairs
 *
 * Each is the other's gradient: the gradient of a combine is a `rows` move, and the gradient of
 * `rows` is a combine. A combine does not weight. The weights of the pairs travel with the rows,
 * and experts multiply their activations by them.
 *
 *   dispatch  what stays: experts, ranks, sizes
 *   route     what one batch chose. It serves forward, backward and recomputation, and is then set
 *             anew. Several may be in use at once: one for each layer and micro-batch in flight
 *
 * Tensors of a call, any number, of any of these two kinds:
 *
 *   "th" [tokens, H] <-> "th" [rows, H]  by token: any dtype and width. Combine adds: f32, f64, f16
 *                                        and bf16
 *   "tk" [tokens, k] <-> "t" [rows]      by pair: f32 or f64. Weights out, their gradients back. A
 *                                        choice of -1 gets 0
 *
 * The expert side has `capacity` rows, or where that is -1 the rows that the route needs. Rows of
 * padding get zeros. Rows behind the last expert's end are not touched, and combine reads neither.
 *
 * Sums. The result of a token depends on the rows of its pairs alone. All additions are in f32 (of
 * f64 rows in f64), and a tree halves [lo, hi) at lo + (hi - lo) / 2. They are, in this order:
 *
 *   a rank            rows of one expert, in the order of the choices
 *                     the E / ep experts of the rank, in a tree that halves these
 *                     this partial sum is rounded once, to the dtype in which it travels
 *   the token's rank  partial sums of ranks that share an expert, in a tree that halves [0, etp)
 *                     those of all x, in a tree that halves [0, ep)
 *                     the result is rounded once
 *
 * So
 *   - results are the same from run to run, whatever the other tokens are;
 *   - where ep is a power of two, both trees of experts are together the one that halves [0, E):
 *     with partial sums in f32, results are the same for all these ep.
 * Another etp, an ep that is no power of two, and partial sums of 16 bits each give other bits.
 *
 * Tensors, and the ids of routes, lie in the memory that the communicator moves. On the host
 * `stream` is NULL in all calls.
 *
 * On a device calls enqueue and return; only mimo_route_read and mimo_dispatch_report wait. No
 * number of rows reaches the host. So
 *   - the capacity of a tile is given. Where a tile is too small, rows behind its end are not
 *     written, a token that lost a pair gets NaN, and so does the value of the pair. A read and a
 *     report have the numbers. With a capacity of -1 mimo_route_read has to tell the rows of the
 *     tile before the first move by the route, and waits;
 *   - an id that is no expert counts as -1;
 *   - all calls can be captured. Numbers of tokens, capacities and tensors then stay, and ids are
 *     read at each launch: a smaller batch is padded with -1;
 *   - an error of this rank's arguments is its own, unless MIMO_CHECK=calls asks ranks to agree.
 *     Ranks that call different things get MIMO_ERR_MISMATCH from a later call, and the dispatch
 *     can be used no more;
 *   - all ranks reach each other's memory, k and etp are at most 14, and E at most 3000. A combine
 *     has rows of one dtype;
 *   - reads and reports use the stream of the last set or call, which has to live;
 *   - kernels wait for those of other ranks. Those that may run at the same time need a
 *     multiprocessor for each of their thread blocks: give `ctas` where other calls of the library
 *     or of NCCL run beside a dispatch, on another stream.
 *
 * Order. A call meets whatever the other ranks call on the communicator: a move of another
 * dispatch, mimo_route_set, a barrier. Where these differ, all of them get MIMO_ERR_MISMATCH, and
 * the next call works. With moves of bridges a call is compared under MIMO_CHECK=calls alone:
 * without it, ranks that mix these up wait until a deadline.
 *
 * Errors are those of all ranks of the group. Other groups, which have copies of the experts (edp),
 * do not know of them, and may wait in their next world-wide call: mimo_comm_abort ends that.
 *
 * All of this header is experimental: it declares nothing where MIMO_EXPERIMENTAL is not defined.
 */
#ifndef MIMO_DISPATCH_H
#define MIMO_DISPATCH_H

#include <mimo/buffer.h>
#include <mimo/op.h>
#include <mimo/route.h>
#include <mimo/transport.h>

MIMO_BEGIN_DECLS

#ifdef MIMO_EXPERIMENTAL

typedef struct mimo_dispatch mimo_dispatch;
typedef struct mimo_route mimo_route;

/** All ranks set the same. */
typedef struct mimo_dispatch_desc {
    size_t size;            /* set by the initializer */
    int64_t experts, top_k; /* E, at most 65535; k, at most E */
    int64_t etp;            /* ranks that share an expert. Rank t + etp * x of the communicator
                                   has coordinates t along etp and x along ep */
    int64_t max_tokens;     /* most tokens of any rank in a call: the same on all ranks */
    int64_t hidden;         /* elements of the widest row */
    int64_t alignment;      /* of each expert's first row, in rows; at least 1 */
    /* Partial sums of f16 and bf16 rows travel in that dtype, not in f32: half of the bytes of a
     * combine, and results that depend on ep. */
    bool narrow_sums;
    mimo_transport transport; /* AUTO, P2P or ZERO_COPY: straight into the rows of experts that lie
                                 in a mimo_buffer. Combine sends messages */
    int ctas;                 /* for devices: in host memory it changes nothing; 0: MIMO_CTAS */
    const char *name; /* in sentences ("layer 3"). Copied; a long one is shortened. NULL: its number
                         among the communicator's, from 1 */
    /* The next three are for devices, and decide how much memory a dispatch takes there. In host
     * memory they change nothing. */
    int64_t row_bytes; /* of the widest row of a call; 0: 2 * hidden, which is f16 and bf16 */
    int64_t tensors;   /* most tensors by token of a call; 0: one. It has as many by pair */
    bool buffers_only; /* tiles of experts always lie in buffers. Otherwise others may, too: their
                          rows take a way through memory of the library */
} mimo_dispatch_desc;

#define MIMO_DISPATCH_DESC_INIT                                                                  \
    {                                                                                            \
        sizeof(mimo_dispatch_desc), 0, 1, 1, 0, 0, 1, false, MIMO_TRANSPORT_AUTO, 0, NULL, 0, 0, \
            false                                                                                \
    }

MIMO_API void mimo_dispatch_desc_init(mimo_dispatch_desc *out, size_t size);

/**
 * Create a dispatch over the ranks of a communicator, which is the group along "etp,ep"
 * (mimo_grid_create_group). Collective, blocking. The communicator is borrowed (mimo_comm_destroy);
 * destinations that rows are written straight into lie in its buffers. The caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (k > E, sizes < 0, a transport that is none of
 * the three), MIMO_ERR_GRID (E over ep, or the ranks over etp, leave a rest), MIMO_ERR_MISMATCH (a
 * field that differs between ranks: the sentence has both descriptions), MIMO_ERR_UNSUPPORTED
 * (zero-copy where ranks share no memory; on a device also p2p, ranks out of reach, and numbers
 * above its limits), MIMO_ERR_OVERFLOW (a tile that max_tokens tokens of each rank and the
 * alignment can fill with 2^31 rows; 2^30 bytes of a rank's ids), MIMO_ERR_MEMORY, MIMO_ERR_COMM.
 *
 * On a device it takes memory for all its calls, about
 *
 *   max_tokens * min(k, ep) * etp * tensors * max(4 * hidden, row_bytes)  bytes, or half of it with
 *                                                                         narrow_sums
 *   P * max_tokens * tensors * row_bytes                                  more without buffers_only
 */
MIMO_API mimo_status mimo_dispatch_create(mimo_dispatch **out, mimo_comm *comm,
                                          const mimo_dispatch_desc *desc);

/** Release. NULL is fine. Local. Its routes and operations may outlive the handle: the last
 *  mimo_route_destroy or mimo_op_wait then releases the rest. */
MIMO_API void mimo_dispatch_destroy(mimo_dispatch *dispatch);

/** Create a route that was never set. Local; all ranks create a dispatch's routes in the same
 *  order. The newest one counts as never created if it is destroyed before it was ever set: the
 *  first mimo_route_set fails where another rank, which may have created none, called something
 *  else. The caller owns *out. It takes the memory for any batch of max_tokens tokens a rank, about
 *
 *    P * max_tokens * (19 k + 24)  bytes
 *
 *  which the system provides as far as rows come to this rank; on a device
 *
 *    P * max_tokens * (4 k + 8)    bytes
 */
MIMO_API mimo_status mimo_route_create(mimo_route **out, mimo_dispatch *dispatch);

/** Release. NULL is fine. Local. Moves that were begun end as if it were there. On a device the
 *  next route gets its memory: keep a route whose calls were captured as long as the graph. */
MIMO_API void mimo_route_destroy(mimo_route *route);

/**
 * Set a route: which experts this rank's tokens go to. Collective over the communicator, blocking.
 * The ids are read during the call; on a device, when the stream gets there. Moves of the dispatch
 * that were begun end first.
 *
 * A rank without tokens, or whose experts get none, calls as well, and so it does in each move.
 *
 * Errors, the same on every rank:
 *   - MIMO_ERR_SHAPE (more than max_tokens tokens, or an id that is no expert), MIMO_ERR_ARGUMENT,
 *     MIMO_ERR_UNSUPPORTED (on the host, ids that lie elsewhere),
 *     MIMO_ERR_STATE (a set of it that was not waited for), MIMO_ERR_MISMATCH (another route, or
 *     another call). The route stays as it was.
 *   - MIMO_ERR_SHAPE where a tile has fewer rows than it needs: the sentence has the first such
 *     rank, the rows that it needs and its capacity. Moves of the route then give the same error,
 *     and mimo_route_read has the rows needed of all ranks.
 *   - MIMO_ERR_COMM, MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED.
 */
MIMO_API mimo_status mimo_route_set(mimo_route *route, const mimo_route_desc *desc,
                                    mimo_stream stream);

/**
 * Begin to set a route, and let the caller compute meanwhile: <mimo/op.h> has mimo_op_test and
 * mimo_op_wait, which is due in any case. The ids can be reused on return. The operation takes its
 * turn among the moves of the dispatch: moves that were begun before it go first, and those of
 * other routes may be begun behind it. Several routes may be set at once.
 *
 * Until the wait the route can't be used: a move by it, another set, mimo_route_ends and
 * mimo_route_read are MIMO_ERR_STATE, whether or not the operation has ended. A route that is
 * destroyed meanwhile is released by the wait.
 *
 * Errors are those of mimo_route_set, and the operation's; only a NULL, or no memory for the
 * operation, is an error here.
 */
MIMO_API mimo_status mimo_route_set_start(mimo_op **out, mimo_route *route,
                                          const mimo_route_desc *desc, mimo_stream stream);

/** Where the rows of each of this rank's E / ep experts end, padding included: what grouped
 *  products of matrices take. They lie in the memory that the communicator moves.
 *  Owned by the route, and overwritten when it is set. Local.
 *  MIMO_ERR_STATE: never set, or being set. */
MIMO_API mimo_status mimo_route_ends(const int32_t **out, const mimo_route *route);

/** What a route needs. */
typedef struct mimo_route_counts {
    size_t size; /* set by the initializer */
    int64_t ranks;
    const int64_t *rows; /* rows[ranks]: the rows that each rank's tile needs, padding included.
                            Owned by the route, and overwritten when it is set */
    int64_t overflows;   /* ranks whose tiles have fewer */
} mimo_route_counts;

#define MIMO_ROUTE_COUNTS_INIT                \
    {                                         \
        sizeof(mimo_route_counts), 0, NULL, 0 \
    }

MIMO_API void mimo_route_counts_init(mimo_route_counts *out, size_t size);

/** The counts of a route. Local; on a device it waits for the set and what comes before it on its
 *  stream, under the deadline of the communicator, and gives a route that was set with a capacity
 *  of -1 the rows that it needs. MIMO_ERR_STATE: never set, or being set; or the stream of the set
 *  is being captured. On a device also MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED, MIMO_ERR_COMM, and
 *  MIMO_ERR_MISMATCH where a kernel refused a call. */
MIMO_API mimo_status mimo_route_read(mimo_route_counts *out, mimo_route *route);

/**
 * Move token rows to experts: to[i], the expert side, from from[i], the token side. Collective over
 * the communicator, blocking. No tensor of `to` may overlap another one of the
 * call. `from` is only read.
 *
 * Where a tensor of `to` lies in a buffer of the communicator, all ranks pass it at the same offset
 * of that buffer, and rows are written straight into it (<mimo/buffer.h>).
 *
 * Errors, the same on every rank:
 *   - Before any data moves: MIMO_ERR_STATE (the route was never set, or with a capacity of -1 on
 *     a device and not read), MIMO_ERR_SHAPE (prints the
 *     view and what fits; a tile that is too small, see mimo_route_set), MIMO_ERR_ARGUMENT,
 *     MIMO_ERR_UNSUPPORTED (a sum of integers or f8), MIMO_ERR_MISMATCH (ranks call different
 *     things: see "Order"; or pass different buffers or offsets), MIMO_ERR_OVERFLOW,
 *     MIMO_ERR_MEMORY. `to` is untouched.
 *   - Later: MIMO_ERR_COMM, MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED. `to` is unspecified.
 */
MIMO_API mimo_status mimo_dispatch_rows(mimo_route *route, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream);

/** Add expert rows up for the tokens: to[i], the token side, from from[i], the expert side. A token
 *  without an expert gets zeros. Tensors lie at multiples of their element size. The rest is as
 *  with mimo_dispatch_rows. */
MIMO_API mimo_status mimo_dispatch_combine(mimo_route *route, const mimo_tensor *to,
                                           const mimo_tensor *from, int n, mimo_stream stream);

/**
 * Begin a move, and let the caller compute meanwhile: <mimo/op.h> has mimo_op_test and
 * mimo_op_wait, which is due in any case. All ranks begin their moves, and make all other calls on
 * the communicator, in the same order.
 * `to` and `from`, the arrays, can be reused on return. The tensors stay the operation's until the
 * wait. Errors of the call are the operation's; only a NULL, or no memory for the operation, is an
 * error here.
 */
MIMO_API mimo_status mimo_dispatch_rows_start(mimo_op **out, mimo_route *route,
                                              const mimo_tensor *to, const mimo_tensor *from, int n,
                                              mimo_stream stream);
MIMO_API mimo_status mimo_dispatch_combine_start(mimo_op **out, mimo_route *route,
                                                 const mimo_tensor *to, const mimo_tensor *from,
                                                 int n, mimo_stream stream);

/**
 * Take part in a call that this rank can't make: its part failed before the call (a tensor that a
 * binding can't describe). The ranks that make the call get this rank's status and sentence, as if
 * the library had found the mistake. It stands in place of a move of any route of the dispatch, and
 * the second one in place of mimo_route_set.
 *
 * `local` is the status; mimo_last_error() is the sentence (mimo_fail sets it). Collective,
 * blocking. Where MIMO_AGREE=0 nobody else learns of it.
 *
 * Never MIMO_OK: the status and the sentence of the lowest failing rank; MIMO_ERR_ARGUMENT where
 * `local` is MIMO_OK or no mimo_status.
 */
MIMO_API mimo_status mimo_dispatch_refuse(mimo_dispatch *dispatch, bool combine, mimo_status local);
MIMO_API mimo_status mimo_dispatch_refuse_route(mimo_dispatch *dispatch, mimo_status local);

/** What the routes of a dispatch needed since the last report. */
typedef struct mimo_dispatch_counts {
    size_t size;       /* set by the initializer */
    int64_t routes;    /* how many were set */
    int64_t rows;      /* the most rows that any rank needed in one of them */
    int64_t overflows; /* routes in which a rank had fewer than it needed */
} mimo_dispatch_counts;

#define MIMO_DISPATCH_COUNTS_INIT             \
    {                                         \
        sizeof(mimo_dispatch_counts), 0, 0, 0 \
    }

MIMO_API void mimo_dispatch_counts_init(mimo_dispatch_counts *out, size_t size);

/** Report, and begin to count anew. Local; on a device it waits for the last call, as
 *  mimo_route_read does and with its errors. MIMO_ERR_STATE: the stream of that is being
 *  captured. */
MIMO_API mimo_status mimo_dispatch_report(mimo_dispatch_counts *out, mimo_dispatch *dispatch);

#endif

MIMO_END_DECLS

#endif
