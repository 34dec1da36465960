/*
 * The backend table: how one kind of communicator moves bytes. The callers (comm.c, the bridge's
 * executors) have validated and agreed. A backend trusts its arguments and reports only its own
 * failures, as MIMO_ERR_COMM with the transport's text.
 *
 * Every _start function is nonblocking. The caller calls `test` until done and then `release`;
 * mimo_wait does both. A function takes its request from those that the communicator keeps: an
 * allocation that failed on one rank would leave the others waiting. A NULL request is done. On a
 * device the functions that take a stream only enqueue, and return NULL. Within one communicator
 * all ranks start the same operations in the same order.
 *
 * Tensors belong to the caller and stay where they are until the request is done. Host values (the
 * host_ functions) travel in the request's own memory and are copied to the caller's with `done`.
 * So a call that was given up never writes into the caller's memory later.
 *
 * A function that moves tensors can be asked to guard them. Then nothing in flight refers to the
 * caller's memory: _start copies out of it what this rank sends, and `done` comes with a copy into
 * it of what this rank received. In between, rows are in memory of the library. If the call is
 * given up, that memory is left to the transport for good. One rank may guard a call that another
 * rank does not.
 */
#ifndef MIMO_COMM_COMM_BACKEND_H
#define MIMO_COMM_COMM_BACKEND_H

#include <stdbool.h>

#include <mimo/buffer.h>

#include "comm/termination.h"
#include "core/backend_api.h"
#include "core/rows.h"
#include "device/staging.h"

typedef struct mimo_request mimo_request; /* one backend's operation in flight */

/* Of expert_calls.h. */
struct mimo_expert_shape;
struct mimo_route_call;
struct mimo_expert_move;

/* Of survivors_agree.h. */
struct mimo_survivors;
struct mimo_survivors_terms;

/* An element-wise combination over the ranks, in place. */
typedef struct mimo_reduction {
    void *data;
    int64_t count;
    mimo_dtype dtype; /* never MIMO_F8; f16 and bf16 are combined in f32 */
    mimo_reduce op;
    bool single_term; /* at most one rank's term of an element is not zero: any order is exact */
    bool guarded;
} mimo_reduction;

/* Bytes from root to all. */
typedef struct mimo_broadcast {
    void *data;
    int64_t bytes;
    int root;
    bool guarded;
} mimo_broadcast;

/* On every rank, rank j's rows `from` go to `to` moved by j * step rows. `to` describes where rank
 * 0's rows go and matches `from` in both counts. from.base may be NULL: this rank's rows are there
 * already. */
typedef struct mimo_gather {
    mimo_rows to, from;
    int64_t step;
    bool guarded;
} mimo_gather;

/* An element-wise combination over the ranks, of which rank r gets block r. */
typedef struct mimo_block_reduction {
    void *to;         /* to[count]; it is this rank's block of `from` only in guarded calls, or
                         where the backend does not guard */
    const void *from; /* from[size * count], in rank order */
    int64_t count;
    mimo_dtype dtype; /* as in mimo_reduction */
    mimo_reduce op;
    bool guarded;
} mimo_block_reduction;

/* Bytes from each rank to each rank. */
typedef struct mimo_alltoall {
    void *to;         /* to[size * bytes], in rank order; it does not overlap `from` */
    const void *from; /* from[size * bytes], in rank order */
    int64_t bytes;
    bool guarded;
} mimo_alltoall;

/* The rows that go to one peer, or come from it, as one message: those of rows[0], then of rows[1]
 * and so on, each in the order of its two loops. Both ends list the same number of them, and
 * rows[i] of one end match rows[i] of the other. Each end decides on its own how they lie in
 * memory. */
typedef struct mimo_message {
    int peer; /* another rank; the first field (comm/peer_order.h) */
    int64_t count;
    const mimo_placed_rows *rows; /* rows[count], of any number of tensors */
} mimo_message;

/* Rows that this rank writes straight into a peer's memory. */
typedef struct mimo_push {
    int peer; /* another rank, within reach of the buffer that its rows lie in; the first field */
    int64_t count;
    /* rows[count]. `to` is the peer's memory as this rank sees it: it lies at a fixed distance from
     * this rank's own part of the buffer, and is placed behind a base there. */
    const mimo_placed_copy *rows;
} mimo_push;

/* The pushes of an exchange, peers ascending. */
typedef struct mimo_pushes {
    mimo_buffer *buffer; /* its flags synchronise the ranks; NULL: no rank pushes */
    const mimo_push *list;
    int count;
    const int *pushers; /* pushers[pusher_count], ascending: the ranks that push rows here */
    int pusher_count;
    bool idle; /* no rank has used a destination since the call before: no rank has to wait */
    int ctas;  /* the largest number of thread blocks on a device; 0: the backend chooses */
} mimo_pushes;

/* What one rank sends, receives, pushes and keeps: at most one message to each peer and one from
 * each, peers ascending. No row is written twice, and none is both written and read. */
typedef struct mimo_messages {
    /* alignments[base_count]: what each base will be a multiple of in every start, a power of two
     * up to MIMO_MOST_ALIGNMENT. Nothing else is known of the bases, so nothing else can decide. */
    const int64_t *alignments;
    int base_count;
    const mimo_message *receives, *sends;
    int receive_count, send_count;
    mimo_pushes pushes;
    /* What messages to ranks within its reach are staged through, on every rank alike; NULL: no
     * message is. Of a backend that has fifo_bytes. */
    mimo_buffer *fifos;
    const mimo_placed_copy *copies; /* copies[copy_count]: rows that stay on this rank */
    int64_t copy_count;
    bool guarded; /* of messages only: a rank itself copies rows that stay or are pushed */
} mimo_messages;

/* Messages prepared for rows behind bases: datatypes, tables and programs exist already. Where the
 * bases lie can change from one start to the next. */
typedef struct mimo_exchange mimo_exchange;

typedef struct mimo_comm_backend {
    const char *name;
    bool widens_sums; /* an all-reduce of f16 or bf16 sums in f32, in staging of the communicator */

    /* Blocking and collective; colour -1 gives NULL. */
    mimo_status (*split)(mimo_comm **out, mimo_comm *parent, int color, int key);
    /* Releases everything, the struct included. Its staging has been released before. */
    void (*destroy)(mimo_comm *comm);
    /* Write the communicator's ranks, in the family's first communicator, to ranks[size]. Local.
     * NULL: nobody asks. */
    void (*family_ranks)(const mimo_comm *comm, int *ranks);

    /* Let host values travel beside tensors from now on, so that none waits for tensors that were
     * enqueued before it. Blocking and collective; all ranks return the same. Once it is done it
     * does nothing. NULL: they never wait for tensors. */
    mimo_status (*part_host_values)(mimo_comm *comm);
    /* MAX of `count` host values over the ranks, in place. Agreements use it. */
    mimo_status (*host_max_start)(mimo_request **out, mimo_comm *comm, uint64_t *values, int count);
    /* Host bytes from root to all. The reports of an agreement use it. */
    mimo_status (*host_broadcast_start)(mimo_request **out, mimo_comm *comm, void *data, int bytes,
                                        int root);
    /* Have a request ready for a host_allgather_start of `bytes` bytes a rank. Local: it comes
     * before the agreement. Up to MIMO_HOST_ALLGATHER_BYTES a request is always ready. */
    mimo_status (*host_allgather_prepare)(mimo_comm *comm, int bytes);
    /* `bytes` host bytes of every rank to all ranks, in rank order. */
    mimo_status (*host_allgather_start)(mimo_request **out, mimo_comm *comm, void *to,
                                        const void *from, int bytes);

    /* Have memory for one guarded call whose rows take `bytes` bytes on this rank, sent and
     * received together. Local: it comes before the agreement. Later calls use the same memory if
     * they need no more; a call that starts while another is in flight allocates its own. NULL:
     * nothing in flight outlives a call of this backend, and `guarded` is ignored. */
    mimo_status (*guard_prepare)(mimo_comm *comm, int64_t bytes);
    mimo_status (*allreduce_start)(mimo_request **out, mimo_comm *comm,
                                   const mimo_reduction *reduction, mimo_stream stream);
    mimo_status (*broadcast_start)(mimo_request **out, mimo_comm *comm,
                                   const mimo_broadcast *broadcast, mimo_stream stream);
    mimo_status (*allgather_start)(mimo_request **out, mimo_comm *comm, const mimo_gather *gather,
                                   mimo_stream stream);
    /* The next two are called with at least two ranks and a size above 0. */
    mimo_status (*reduce_scatter_start)(mimo_request **out, mimo_comm *comm,
                                        const mimo_block_reduction *reduction, mimo_stream stream);
    mimo_status (*alltoall_start)(mimo_request **out, mimo_comm *comm,
                                  const mimo_alltoall *alltoall, mimo_stream stream);

    /* The largest number of bases of an exchange; 0: any number. */
    int most_bases;
    /* Prepare messages, and the memory of guarded ones. Local: it comes before the agreement. The
     * lists are read during the call only. */
    mimo_status (*exchange_create)(mimo_exchange **out, mimo_comm *comm,
                                   const mimo_messages *messages);
    /* Say where the bases lie in the starts that follow, each at a multiple of its alignment; and
     * the signature of these starts, a hash of what must be the same at both ends of a push. To be
     * called before the first start, and not while the exchange is in flight. Local: it comes
     * before the agreement. On a device it allocates nothing and waits for nothing. After an error
     * it is to be called again before a start. */
    mimo_status (*exchange_bind)(mimo_exchange *exchange, char *const *bases, uint64_t signature);
    /* Have all that a start on this stream would take for the first time: staging, and connections
     * to the peers. Collective over the ranks that have messages; no row moves. NULL: there is
     * nothing of the kind. */
    mimo_status (*exchange_connect)(mimo_comm *comm, mimo_exchange *exchange, mimo_stream stream);
    /* Send, receive, push and copy. Every rank that has a message starts its exchange, in the same
     * order among its other operations; a rank without messages need not. An exchange is not
     * started again before its request is done, nor after an error. With a stream, work is
     * enqueued, and the request is done as soon as the host has nothing more to do. */
    mimo_status (*exchange_start)(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                  mimo_stream stream);
    /* Free an exchange that is not in flight. Where a stream still runs its work, what that needs
     * is freed after the work. NULL is fine. */
    void (*exchange_destroy)(mimo_exchange *exchange);

    /* Fill data and flags of a buffer whose size is known: take memory (or `given`), find the
     * peers' memory, and set this rank's own flags to 0. Blocking and collective; all ranks return,
     * also where one fails. NULL: the backend has no buffers. */
    mimo_status (*buffer_open)(mimo_buffer *buffer);
    /* Undo buffer_open, also one that failed halfway. Collective. */
    void (*buffer_close)(mimo_buffer *buffer);
    /* Bytes of the buffer that messages are staged through, as this rank wants them; 0: none. NULL:
     * the backend stages no messages. */
    int64_t (*fifo_bytes)(const mimo_comm *comm);
    /* Bytes of the longest piece of a message that suits this rank's device. Where ranks differ,
     * the largest counts. Of a backend that has fifo_bytes. */
    int64_t (*fifo_piece)(const mimo_comm *comm);
    /* Dispatches on a device, by kernels that find out alone which rows go where (expert_calls.h).
     * NULL, all four: the backend has no such kernels.
     *
     * Have all that calls of a dispatch of this shape take for the first time. Local; it comes
     * before the first call. MIMO_ERR_ARGUMENT: the device has no `ctas` multiprocessors for them;
     * MIMO_ERR_UNSUPPORTED: it has too little memory of thread blocks for the shape. */
    mimo_status (*experts_prepare)(mimo_comm *comm, const struct mimo_expert_shape *shape,
                                   int ctas);
    /* Enqueue a call. Nothing is allocated and nothing waited for; it may be captured. */
    mimo_status (*route_start)(mimo_comm *comm, const struct mimo_route_call *call,
                               mimo_stream stream);
    mimo_status (*rows_start)(mimo_comm *comm, const struct mimo_expert_move *move,
                              mimo_stream stream);
    mimo_status (*combine_start)(mimo_comm *comm, const struct mimo_expert_move *move,
                                 mimo_stream stream);
    /* All work of a stream is done, so nothing has to be ordered after it any more. NULL: the
     * backend does not need to know. */
    void (*stream_finished)(mimo_comm *comm, mimo_stream stream);

    /* Make progress; *done once complete. Never blocks. Not called again after done. */
    mimo_status (*test)(mimo_request *request, bool *done);
    /* Bytes of tensors on their way that move only while the request is tested. NULL: nothing waits
     * for a test. */
    int64_t (*moving)(const mimo_request *request);
    /* How many of the messages of a request have left or arrived, where it has several and that can
     * be seen. NULL: it never can. */
    int (*arrived)(const mimo_request *request);
    /* Return a request that is done, was given up, or whose test failed. What can be cancelled of
     * it is cancelled, so that it does not write into the caller's memory later. NULL is fine. */
    void (*release)(mimo_request *request);

    /* The family ends on this rank; called once, by a thread that may call the transport while no
     * other is inside a call. Send the farewell to the peers and end what waits inside a device.
     * Then wait for the peers' farewells, and write which ranks sent none ("; no sign of rank 3"),
     * or leave the text empty. NULL: nothing to do. */
    void (*end)(mimo_family *family, const mimo_last_words *words);
    /* True where a peer's farewell has arrived; then *out is it. Never blocks. NULL: this backend
     * receives none. */
    bool (*receive_farewell)(mimo_comm *comm, mimo_farewell *out);
    /* Tell rank `to` of the communicator, below MIMO_LISTENERS, that this rank waits, unless such a
     * rank has not received what it was told before. Never blocks. NULL: this backend can't tell,
     * and has none of the next three either. */
    void (*send_notice)(mimo_comm *comm, int to, const mimo_notice *notice);
    /* Whether it has received what it was told last. Never blocks. */
    bool (*took_notice)(mimo_comm *comm, int to);
    /* Whether a rank has told this one that it waits in this call or a later one. */
    bool (*heard_from)(mimo_comm *comm, int rank, const mimo_notice *call);
    /* Write which other ranks below `below` have not told so: "; no sign of rank 3", ranks of the
     * family's first communicator at the end of the text, or "" where all have. */
    void (*list_silent)(mimo_comm *comm, const mimo_notice *call, int below, char *text,
                        size_t capacity);
    /* The family of `ended` has ended. Agree who is left, and make a family of these. Blocking;
     * collective over those that are left, under the limit of the terms. On success the terms'
     * decision is filled. */
    mimo_status (*survivors)(mimo_comm **out, mimo_comm *ended, struct mimo_survivors_terms *terms);
    /* Free a family that has no user. */
    void (*release_family)(mimo_family *family);
    /* MIMO_ERR_STATE, with the call's name in the sentence, once the program has ended the
     * transport for good. NULL: it never does. */
    mimo_status (*check_open)(const mimo_family *family, const char *call);
    /* Whether this thread may call the transport, which is open: MIMO_ERR_STATE, with the call's
     * name in the sentence, where it may not. NULL: any thread may. */
    mimo_status (*check_thread)(const mimo_family *family, const char *call);
} mimo_comm_backend;

enum { MIMO_HOST_ALLGATHER_BYTES = 64 };

/* Whose work it is. */
typedef enum mimo_callback_owner {
    MIMO_CALLBACK_BRIDGE,
    MIMO_CALLBACK_DISPATCH,
    MIMO_CALLBACK_OWNERS /* their number */
} mimo_callback_owner;

/* Work that moves on whenever the host waits: the operations of the movers that were made from a
 * communicator. So ranks may wait for operations in different orders. */
typedef struct mimo_progress_callback {
    struct mimo_progress_callback *next;
    void (*progress)(void *context); /* never blocks */
    void *context;
    mimo_callback_owner owner;
    const mimo_comm *comm; /* set by mimo_callback_add */
} mimo_progress_callback;

/* The head of every backend's communicator struct. */
struct mimo_comm {
    const mimo_comm_backend *backend;
    const mimo_device *device;
    int device_number; /* among those that this process sees; 0 on the host */
    mimo_memory memory;
    int rank, size;
    mimo_family *family; /* the backend's */
    bool renumbered;     /* its ranks have other numbers in the family's first communicator */
    uint64_t id;         /* in the family, the same on all its ranks; 0: the first communicator */
    uint64_t calls;      /* sequence number of collective calls, part of their signature */
    uint64_t ended;      /* requests that mimo_test found done */
    int slot;            /* in the family's ring; 0: it has none */
    struct {
        const char *text;
        uint32_t name;    /* in the family's ring */
    } verbs[8];           /* public calls that it was used with last, by their addresses */
    int64_t last_receive; /* when it last looked for farewells, nanoseconds (mimo_now) */
    mimo_progress_callback *callbacks; /* where the family is parallel */
    mimo_buffer *buffers;
    mimo_buffer *fifos; /* the one of them that messages are staged through, or NULL */
    int fifo_users;
    uint64_t buffers_made; /* the serial of the last one */
    int64_t bridges;       /* made from it so far */
    int64_t dispatches;    /* the same */
    int reported_reach;    /* of the last buffer */
    mimo_staging staging;  /* of the backend, and of calls that borrow the communicator */
    int holders;           /* the caller, and what was made from it (bridges, buffers): an atomic */
    bool destroyed;        /* by the caller */
    mimo_owner owner;      /* where threads may use different communicators of the family at once */
    mimo_comm *used_with; /* whose owner uses this one too: a bridge's own communicator is used with
                              the one that the bridge was made from. NULL: none's */
    struct mimo_agreement *agreements; /* that have begun and not ended, oldest first */
    struct mimo_survivors *survivors;  /* of its recovery; NULL: none was tried */
    mimo_comm
        *words; /* where agreements explain what went wrong; NULL: here. Where operations agree
                         on this communicator, they are in flight beside its other calls */
};

/* Which thread is inside of calls of the communicator is noted here (comm/calls.h). */
static inline mimo_owner *mimo_owner_of(mimo_comm *comm)
{
    if (!comm->family->parallel)
        return &comm->family->owner;
    return comm->used_with ? &comm->used_with->owner : &comm->owner;
}

/* Add a holder; take it away. The last one frees the communicator (holders.c). */
void mimo_comm_retain(mimo_comm *comm);
void mimo_comm_release(mimo_comm *comm);

/* Whether the transport may still use memory of calls that this rank gave up. */
bool mimo_comm_may_still_move(const mimo_comm *comm);
/* Release memory of the library that calls of the communicator moved, where it lies on its device.
 * What the transport may still use stays for good. */
void mimo_comm_release_moved(const mimo_comm *comm, void *memory);

/* The backend's test, unless the family has ended: then that error. */
mimo_status mimo_test(mimo_comm *comm, mimo_request *request, bool *done);

/* Wait for a request, release it and set the handle to NULL. A NULL request is done. `call` is the
 * text of the call that waits. */
MIMO_BACKEND_API mimo_status mimo_wait(mimo_comm *comm, mimo_request **request, const char *call);

/* Wait for the work of a stream, under the deadline. On the host it is done. MIMO_ERR_MISMATCH
 * where it refused a call into one of the communicator's buffers. To be called inside of a scope;
 * `call` is the text of the call that waits. */
mimo_status mimo_wait_for_stream(mimo_comm *comm, mimo_stream stream, const char *call);

/* Whether a call that begins now guards the caller's tensors: a deadline is in force, and the
 * backend can't cancel what is in flight. Each call asks once, when it begins. */
bool mimo_is_guarding(const mimo_comm *comm);

/* Have memory for a call if it is guarded: `copies` times `bytes` bytes. Local: it comes before the
 * agreement. */
mimo_status mimo_guard_prepare(mimo_comm *comm, bool guarded, int64_t copies, int64_t bytes);

/* The first callback that a wait on a communicator calls: those of its whole family where one
 * thread at a time is inside that, otherwise its own. */
mimo_progress_callback **mimo_callbacks_of(mimo_comm *comm);

/* Add a callback to a communicator; remove it. The callback belongs to the caller, and the caller
 * holds the communicator meanwhile. */
void mimo_callback_add(mimo_comm *comm, mimo_progress_callback *callback);
void mimo_callback_remove(mimo_comm *comm, mimo_progress_callback *callback);

/* Bytes of tensors that are on their way in a request; NULL: there is none. */
static inline int64_t mimo_bytes_moving(const mimo_comm *comm, const mimo_request *request)
{
    return request && comm->backend->moving ? comm->backend->moving(request) : 0;
}

#endif
