/*
 * Buffers inside: memory that other ranks write into, and the flags that synchronise them.
 *
 * Every buffer has a page of flags on each rank, with one mimo_flags for each peer. Two ranks that
 * push rows to each other count their calls. Each call counts once on both ends, whatever it moves.
 * So both ends must start the calls of a page in the same order. On a device the caller sees to
 * that. On the host, ranks may finish the agreements of two bridges in different orders; but within
 * a communicator the order is the same. So on the host a bridge has flags of its own: a buffer of 0
 * bytes on its own communicator, whatever buffers its rows go to.
 *
 *   receiver   sets `ready` in the sender's page to the call's number and signature (READY)
 *   sender     waits for that number, writes the rows, and adds MIMO_PUSH_UNIT to `done` in the
 *              receiver's page (DONE); where several workers write, each adds its fraction
 *   receiver   waits until `done` is the number of the call times MIMO_PUSH_UNIT
 *
 * The signature is a few bits of a hash of what both ends must have in common. The receiver sets
 * READY of a call once all earlier calls of the two ranks are done. So the sender always reads the
 * number and the signature of the same call. If the signature is not the sender's own, the sender
 * refuses: it writes no row, sets MIMO_PUSH_REFUSED in `done`, and counts the call as usual, so
 * that no rank waits for it. Both ends note what they found (mimo_refusal) and use the buffer no
 * more.
 *
 * A call whose destinations are known to be idle skips READY. It counts as usual, and nothing is
 * compared.
 */
#ifndef MIMO_COMM_BUFFER_STATE_H
#define MIMO_COMM_BUFFER_STATE_H

#include <mimo/buffer.h>

#include "comm/comm_backend.h"
#include "core/host_device.h"

/* With this unit a page counts 2^39 calls between two ranks: weeks of nothing but calls. */
enum { MIMO_BUFFER_ALIGNMENT = 4096, MIMO_PUSH_UNIT = 1 << 24, MIMO_SIGNATURE_BITS = 20 };

/* In `done`: the rows of a call were refused. It is never cleared. */
#define MIMO_PUSH_REFUSED (UINT64_C(1) << 63)

/* The value of READY of a call. Values of later calls are larger. */
static inline MIMO_HOST_AND_DEVICE uint64_t mimo_ready_value(uint64_t call, uint64_t signature)
{
    return call << MIMO_SIGNATURE_BITS | (signature & ((1u << MIMO_SIGNATURE_BITS) - 1));
}

static inline MIMO_HOST_AND_DEVICE uint64_t mimo_ready_call(uint64_t ready)
{
    return ready >> MIMO_SIGNATURE_BITS;
}

static inline MIMO_HOST_AND_DEVICE uint64_t mimo_done_calls(uint64_t done)
{
    return (done & ~MIMO_PUSH_REFUSED) / MIMO_PUSH_UNIT;
}

/* What a rank's page holds about one peer. The peer writes the first two fields, the rank itself
 * the others. All start at 0 and only grow.
 *
 * The entry about the rank itself is free for kernels. There `ready` counts the thread blocks that
 * are done with a launch, and `done` and `receives` count the pieces of remote and of local rows
 * that they have taken (nccl_push_pieces.cuh); every launch leaves these three at 0. `sends` is 1
 * once a refusal has been noted. */
typedef struct mimo_flags {
    uint64_t ready;    /* READY of the last call whose rows may be written to the peer */
    uint64_t done;     /* calls whose rows the peer has written here, in units; MIMO_PUSH_REFUSED */
    uint64_t receives; /* calls in which the peer writes rows here */
    uint64_t sends;    /* calls in which this rank writes rows to the peer */
} mimo_flags;

/* The first call that this rank or a peer refused. The rank's host reads it; it is in host memory,
 * or in memory that the device writes. */
typedef struct mimo_refusal {
    uint64_t mine;  /* READY of the call with this rank's signature */
    uint64_t other; /* with the peer's signature; 0 where the peer refused: not visible from here */
    int64_t distance; /* peer - rank */
    uint32_t noted;   /* 1: there was one, and the other fields can be read */
} mimo_refusal;

struct mimo_buffer {
    mimo_buffer *next; /* in the communicator's list */
    mimo_comm *comm;
    uint64_t serial; /* from 1, in the order of the communicator's creations */
    int64_t bytes;   /* of data, the same on every rank */
    int64_t piece;   /* where it has FIFOs: bytes of the longest piece, the same on every rank */
    /* data[size]: the memory of each rank, at addresses of this rank or its device; NULL: out of
     * reach. */
    char **data;
    mimo_flags **flags;                  /* flags[size]: the pages, each [size], in the same way */
    void *given;                         /* the caller's memory; NULL: the backend's own */
    void *own;                           /* the backend's */
    struct mimo_ring_launches *launches; /* of kernels that use its flags; NULL: none is noted */
    const char *title; /* whose flags they are: "dispatch 1"; NULL: zero-copy. Borrowed */
    /* Why the backend looks for no other rank's memory, in words; NULL: it has looked. */
    const char *unreached;
    mimo_refusal noted;          /* by the host */
    const mimo_refusal *refusal; /* `noted`, or the backend's, which its device writes */
};

/* Bytes from the data to the flags, where both are in memory of the backend. */
static inline int64_t mimo_buffer_flags_offset(const mimo_buffer *buffer)
{
    return (buffer->bytes + MIMO_BUFFER_ALIGNMENT - 1) / MIMO_BUFFER_ALIGNMENT *
           MIMO_BUFFER_ALIGNMENT;
}

/* mimo_buffer_create for the library's own use: it logs no line about ranks out of reach. */
mimo_status mimo_buffer_create_internal(mimo_buffer **out, mimo_comm *comm, int64_t bytes);

/* The same, for FIFOs. The largest `piece` of all ranks counts. */
mimo_status mimo_buffer_create_fifos(mimo_buffer **out, mimo_comm *comm, int64_t bytes,
                                     int64_t piece);

/* Say whose flags these are, in words that live as long: "dispatch 1". All ranks of its
 * communicator launch the same kernels under them then. */
void mimo_buffer_entitle(mimo_buffer *buffer, const char *title);

/* Tell the user that some rows are sent, once until the reach changes: zero-copy or staged messages
 * may have been expected. */
void mimo_buffer_report_reach(const mimo_buffer *buffer);

/* Warn on rank 0 where it reaches not all ranks' memory of the buffer: `title` is of what was made
 * with `transport`, by that name. Logged also where nobody asked. */
void mimo_buffer_warn_of_reach(const mimo_buffer *buffer, const char *title, const char *transport);

/* The buffer of the communicator that holds [at, at + bytes) of this rank's memory, or NULL. */
mimo_buffer *mimo_buffer_holding(const mimo_comm *comm, const void *at, int64_t bytes);

/* MIMO_ERR_MISMATCH, with a sentence about the first refusal, where a call with the buffer's flags
 * was refused. */
MIMO_BACKEND_API mimo_status mimo_buffer_check(const mimo_buffer *buffer);

#endif
