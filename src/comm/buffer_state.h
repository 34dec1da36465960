/*
 * Buffers inside: memory that other ranks write into, and the flags by which they keep apart.
 *
 * Every buffer has a page of flags on each rank, one line of mimo_flags per peer. Two ranks that
 * push rows to each other count their calls, each call once on both ends whatever it moves. So both
 * have to start the calls of a page in the same order. On a device that is the caller's part. On
 * the host two bridges can overtake each other: which of them agrees first is for each rank to see.
 * Within a communicator the order is the same, so there a bridge has flags of its own, a buffer of
 * 0 bytes on its own communicator, whatever buffers its rows go to.
 *
 *   receiver   ready of the sender's page = the number of the call, and its signature: "write now"
 *   sender     waits for that number, writes the rows, adds MIMO_PUSH_UNIT to done of the
 *              receiver's page, in parts where several workers write
 *   receiver   waits until done is the number of the call * MIMO_PUSH_UNIT
 *
 * The signature is a few bits of a hash of what both ends must have alike. READY of a call is said
 * once all earlier ones of the two ranks are done, so the sender finds the signature of that very
 * call beside its number. Where it is not the sender's own, the sender writes no row: it marks done
 * with MIMO_PUSH_REFUSED and counts as ever, so that nobody waits for it. Both note what they met
 * (mimo_refusal), and the buffer is of no further use to them.
 *
 * A call that knows its destinations to be idle skips READY, and counts all the same. Nothing is
 * compared then.
 */
#ifndef MIMO_COMM_BUFFER_STATE_H
#define MIMO_COMM_BUFFER_STATE_H

#include <mimo/buffer.h>

#include "comm/comm_backend.h"

/* So a page counts 2^39 calls between two ranks: weeks of nothing else. */
enum { MIMO_BUFFER_ALIGNMENT = 4096, MIMO_PUSH_UNIT = 1 << 24, MIMO_SIGNATURE_BITS = 20 };

/* In `done`: a call's rows were not written. It stays. */
#define MIMO_PUSH_REFUSED (UINT64_C(1) << 63)

#ifdef __CUDACC__
#define MIMO_HOST_AND_DEVICE __host__ __device__
#else
#define MIMO_HOST_AND_DEVICE
#endif

/* READY of a call. Words of later calls are larger. */
static inline MIMO_HOST_AND_DEVICE uint64_t mimo_ready_word(uint64_t call, uint64_t signature)
{
    return call << MIMO_SIGNATURE_BITS | (signature & ((1u << MIMO_SIGNATURE_BITS) - 1));
}

static inline MIMO_HOST_AND_DEVICE uint64_t mimo_ready_call(uint64_t word)
{
    return word >> MIMO_SIGNATURE_BITS;
}

static inline MIMO_HOST_AND_DEVICE uint64_t mimo_done_calls(uint64_t done)
{
    return (done & ~MIMO_PUSH_REFUSED) / MIMO_PUSH_UNIT;
}

/* What a rank's page holds about one peer. The first two are written by that peer, the others by
 * the rank itself. All start at 0 and only grow. Of the line about the rank itself a device takes
 * `ready` for the thread blocks that are done with a launch, and `done` and `asked` for the pieces
 * of remote and of local rows that they have taken (nccl_push_deal.cuh), and leaves them at 0; and
 * `served`, which is 1 once a refusal has been noted. */
typedef struct mimo_flags {
    uint64_t ready;  /* of the last call for which the peer's destination may be written */
    uint64_t done;   /* calls whose rows the peer has written here, in units; MIMO_PUSH_REFUSED */
    uint64_t asked;  /* calls in which the peer writes rows here */
    uint64_t served; /* calls in which this rank writes rows there */
} mimo_flags;

/* The first call that this rank or a peer refused, as a rank's host reads it: its own memory, or
 * memory that its device writes. */
typedef struct mimo_refusal {
    uint64_t mine, other; /* READY of the call by this rank's signature, and by the peer's: 0 where
                             it was the peer who refused, as that can't be seen from here */
    int64_t ahead;        /* peer - rank */
    uint32_t met;         /* 1: there was one, and all of it can be read */
} mimo_refusal;

struct mimo_buffer {
    mimo_buffer *next; /* in the communicator's list */
    mimo_comm *comm;
    uint64_t serial; /* of the communicator's buffers; the same on all ranks */
    int64_t bytes;   /* of data, the same on every rank */
    char **data; /* data[size]: rank r's memory as this rank's loads and stores (or its device's)
                      find it; NULL where out of reach */
    mimo_flags **flags; /* flags[size]: the pages, each [size], as data; NULL where out of reach */
    void *given;        /* the caller's memory; NULL: the backend's own */
    void *own;          /* the backend's */
    mimo_refusal noted; /* by the host, */
    const mimo_refusal *refusal; /* which is here, or where the backend has it from its device */
};

/* Of data that the backend makes: the flags come after it. */
static inline int64_t mimo_buffer_room(const mimo_buffer *buffer)
{
    return (buffer->bytes + MIMO_BUFFER_ALIGNMENT - 1) / MIMO_BUFFER_ALIGNMENT *
           MIMO_BUFFER_ALIGNMENT;
}

/* As mimo_buffer_create, for the library's own ends: nothing is said of ranks out of reach. */
mimo_status mimo_buffer_create_internal(mimo_buffer **out, mimo_comm *comm, int64_t bytes);

/* The buffer of the communicator that holds [at, at + bytes) of this rank's memory, or NULL. */
mimo_buffer *mimo_buffer_find(const mimo_comm *comm, const void *at, int64_t bytes);

/* MIMO_ERR_MISMATCH where a call by the buffer's flags was refused, with what is known of it. */
mimo_status mimo_buffer_check(const mimo_buffer *buffer);

#endif
