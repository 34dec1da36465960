/*
 * The backend table: how one kind of communicator moves bytes. The front (comm.c, the bridge's
 * executors) has validated and agreed; a backend trusts its arguments and reports only its own
 * failures, as MIMO_ERR_COMM with the library's words.
 *
 * Every _start slot is nonblocking and must be followed by `test` until done (mimo_wait does both)
 * and then `release`. It takes its request from those that the communicator keeps, so that memory
 * running out on one rank strands nobody. A NULL request is done: on a device the slots that take a
 * stream only enqueue, and give none. Tensors belong to the caller and stay put until then; host
 * words (vote, tell, collect) are the request's own and get to the caller's memory with `done`, so
 * that a call which was given up writes nowhere later. Within one communicator all ranks start the
 * same operations in the same order.
 *
 * A slot that moves tensors can be asked to guard them: then nothing in flight has the caller's
 * memory. What this rank sends is copied out of it in the start, and what it receives is copied
 * into it with `done`; between, rows are in memory of the library, which a call that was given up
 * leaves to the transport for good. The ranks need not ask alike.
 */
#ifndef MIMO_COMM_COMM_BACKEND_H
#define MIMO_COMM_COMM_BACKEND_H

#include <stdbool.h>

#include <mimo/buffer.h>

#include "comm/termination.h"
#include "core/rows.h"
#include "device/staging.h"

typedef struct mimo_request mimo_request; /* one backend's operation in flight */

/* An element-wise combination over the ranks, in place. */
typedef struct mimo_reduction {
    void *data;
    int64_t count;
    mimo_dtype dtype; /* never MIMO_F8; f16 and bf16 are combined in f32 */
    mimo_reduce op;
    bool lone; /* all terms of an element but one are zero: exact in any order and dtype */
    bool guarded;
} mimo_reduction;

/* Bytes from root to all. */
typedef struct mimo_broadcast {
    void *data;
    int64_t bytes;
    int root;
    bool guarded;
} mimo_broadcast;

/* Rank j's rows `from` land at to + j * step rows, on every rank; j in rank order. `to` describes
 * rank 0's place and matches `from` in both counts. from.base may be NULL: this rank's rows lie in
 * place already. */
typedef struct mimo_gather {
    mimo_rows to, from;
    int64_t step;
    bool guarded;
} mimo_gather;

/* The rows that go to one peer, or come from it, as one message: those of rows[0], then of rows[1]
 * and so on, each in the order of its two loops. Both ends list as many, and rows[i] of one match
 * rows[i] of the other; how they lie in memory is each end's own business. */
typedef struct mimo_message {
    int peer; /* another rank */
    int64_t count;
    const mimo_rows *rows; /* rows[count], of any number of tensors */
} mimo_message;

/* Rows that this rank writes straight into a peer's memory. */
typedef struct mimo_push {
    int peer; /* another rank, within reach of the buffer that its rows lie in */
    int64_t count;
    const mimo_row_copy *rows; /* rows[count]; `to` as this rank finds the peer's memory */
} mimo_push;

/* The pushes of an exchange, by peers ascending. */
typedef struct mimo_pushes {
    mimo_buffer *buffer; /* whose flags keep the ranks apart; NULL: nothing is pushed at all */
    const mimo_push *list;
    int count;
    const int *pushers; /* pushers[pusher_count], ascending: the ranks that push rows here */
    int pusher_count;
    uint64_t signature; /* a hash of what both ends of a push must have alike */
    bool idle; /* nobody reads or writes a destination since the call before: no need to ask */
    int ctas;  /* the most thread blocks of a device that may work on it; 0: the backend's choice */
} mimo_pushes;

/* What one rank sends, receives, pushes and keeps: at most one message to each peer and one from
 * each, peers ascending. No row is written twice, or written and read. */
typedef struct mimo_messages {
    const mimo_message *receives, *sends;
    int receive_count, send_count;
    mimo_pushes pushes;
    const mimo_row_copy *copies; /* copies[copy_count]: rows that stay on this rank */
    int64_t copy_count;
    bool guarded; /* messages: rows that stay or are pushed are copied by a rank itself */
} mimo_messages;

/* Messages made ready for fixed buffers: whatever can be prepared once (datatypes, requests, tables
 * and room for packing), so that starting them again costs nothing but the transfer. */
typedef struct mimo_exchange mimo_exchange;

typedef struct mimo_comm_backend {
    const char *name;

    /* Blocking and collective; colour -1 gives NULL. */
    mimo_status (*split)(mimo_comm **out, mimo_comm *parent, int color, int key);
    /* Releases everything, the struct included; the staging are gone already. */
    void (*destroy)(mimo_comm *comm);

    /* MAX of `count` host words over the ranks, in place: the carrier of agreements. */
    mimo_status (*host_max_start)(mimo_request **out, mimo_comm *comm, uint64_t *words, int count);
    /* Host bytes from root to all: the carrier of sentences. */
    mimo_status (*host_broadcast_start)(mimo_request **out, mimo_comm *comm, void *data, int bytes,
                                        int root);
    /* Have a request ready for a collect of so many bytes a rank. Local, so it is done before the
     * agreement. Up to MIMO_HOST_ALLGATHER_BYTES one is ready anyway. */
    mimo_status (*host_allgather_prepare)(mimo_comm *comm, int bytes);
    /* Host bytes from all to all, in rank order: the carrier of what ranks compare. */
    mimo_status (*host_allgather_start)(mimo_request **out, mimo_comm *comm, void *to,
                                        const void *from, int bytes);

    /* Have memory for one guarded call whose rows take `bytes` bytes on this rank, sent and
     * received together. Local: it is done before the agreement. Later calls that need no more find
     * it too, one after the other. What several calls in flight need is got when they start. NULL:
     * nothing in flight outlives a call here, and `guarded` is ignored. */
    mimo_status (*guard_prepare)(mimo_comm *comm, int64_t bytes);
    mimo_status (*allreduce_start)(mimo_request **out, mimo_comm *comm,
                                   const mimo_reduction *reduction, mimo_stream stream);
    mimo_status (*broadcast_start)(mimo_request **out, mimo_comm *comm,
                                   const mimo_broadcast *broadcast, mimo_stream stream);
    mimo_status (*allgather_start)(mimo_request **out, mimo_comm *comm, const mimo_gather *gather,
                                   mimo_stream stream);

    /* Prepare messages, and the memory of guarded ones. Local: no rank hears of it, so it is done
     * before the agreement. The lists are read during the call only; the buffers stay put until
     * exchange_destroy. */
    mimo_status (*exchange_create)(mimo_exchange **out, mimo_comm *comm,
                                   const mimo_messages *messages);
    /* Send, receive, push and copy. Every rank of the communicator that has a message starts its
     * exchange, in the same order with its other operations; a rank without messages need not. Not
     * started again before the request is done, nor after an error. With a stream, work is enqueued
     * and the request is done as soon as the host need do no more. */
    mimo_status (*exchange_start)(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                  mimo_stream stream);
    /* Free an exchange that is not in flight; where its work is still on a stream, what that needs
     * is freed behind it. NULL is fine. */
    void (*exchange_destroy)(mimo_exchange *exchange);

    /* Fill data and flags of a buffer whose size is known: take memory (or `given`) and learn where
     * that of the peers is; set the own flags to 0. Blocking and collective: whatever fails on one
     * rank, all return. NULL: the backend has none. */
    mimo_status (*buffer_open)(mimo_buffer *buffer);
    /* Undo it, or what of it succeeded. Collective. */
    void (*buffer_close)(mimo_buffer *buffer);
    /* All work of a stream is done: nothing need be ordered behind it any more. NULL: it never
     * is. */
    void (*stream_over)(mimo_comm *comm, mimo_stream stream);

    /* Progress; *done once complete. Never blocks. Not called again after done. */
    mimo_status (*test)(mimo_request *request, bool *done);
    /* Give back a request that is done, was given up, or whose test failed: what of it can be
     * called off is, so that it writes nothing into the caller's buffers later. NULL is fine. */
    void (*release)(mimo_request *request);

    /* The family ends here, once. Tell the peers; wait for those that do the same for at most
     * `patience` nanoseconds and write into signs[room] which of the communicator's ranks are
     * missing (; ...), or leave it empty; end what waits inside a device. NULL: nothing to do. */
    void (*end)(mimo_comm *comm, const mimo_farewell *mine, int64_t patience, char *signs,
                size_t room);
    /* True where a peer's farewell has come, and *out is it. Never blocks. NULL: none ever does. */
    bool (*hear)(mimo_comm *comm, mimo_farewell *out);
} mimo_comm_backend;

enum { MIMO_HOST_ALLGATHER_BYTES = 64 };

/* Work that moves on wherever the host waits on a communicator: the operations of the bridges that
 * were made from it. So ranks may wait for these in different orders, or wait for something
 * else. */
typedef struct mimo_progress_callback {
    struct mimo_progress_callback *next;
    void (*progress)(void *context); /* never blocks */
    void *context;
} mimo_progress_callback;

/* The head of every backend's communicator struct. */
struct mimo_comm {
    const mimo_comm_backend *backend;
    const mimo_device *device;
    mimo_memory memory;
    int rank, size;
    mimo_family *family; /* the backend's */
    uint64_t id;         /* in the family, the same on all its ranks; 0: the first */
    uint64_t calls;      /* sequence number of collective calls, part of their signature */
    int64_t heard;       /* when it last listened for farewells, nanoseconds */
    mimo_progress_callback *callbacks;
    mimo_buffer *buffers;
    uint64_t buffer_changes; /* how often one came or went */
    int64_t bridges;         /* made from it so far */
    int reach_said;          /* of the last buffer */
    mimo_staging staging;    /* staging of the backend, and of calls that borrow the communicator */
    bool destroyed;          /* the last callback or buffer releases it */
};

/* A callback or buffer has gone: release a communicator that was destroyed while it was there, if
 * it was the last. */
void mimo_comm_release_unused(mimo_comm *comm);

/* The backend's test, unless the family has ended: then that error. */
mimo_status mimo_test(mimo_comm *comm, mimo_request *request, bool *done);

/* Wait for a request, release it and null the handle. A NULL request is done. `call` is what waits,
 * in words. */
mimo_status mimo_wait(mimo_comm *comm, mimo_request **request, const char *call);

/* Whether calls that begin now guard the caller's tensors: where a deadline is in force, and the
 * backend can't call off what is in flight. Asked once a call, when it begins. */
bool mimo_is_guarding(const mimo_comm *comm);

/* Have memory for a call, if it is guarded: `copies` times `bytes` bytes. Before the agreement. */
mimo_status mimo_guard_prepare(mimo_comm *comm, bool guarded, int64_t copies, int64_t bytes);

/* What the host does between two tests of something unfinished: move the callbacks on, then yield,
 * as ranks may outnumber cores. Every loop that waits for a request, an agreement, an operation or
 * a stream calls it, and mimo_poll_termination, which watches the deadline. (A backend's own loops,
 * for a communicator in making and for what it calls off, only yield.) */
void mimo_comm_progress(mimo_comm *comm);

/* Put a callback on a communicator, and take it off. The callback is the caller's. */
void mimo_callback_add(mimo_comm *comm, mimo_progress_callback *callback);
void mimo_callback_remove(mimo_comm *comm, mimo_progress_callback *callback);

#endif
