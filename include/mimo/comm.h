/*
 * Communicators: a set of ranks and how bytes move among them.
 *
 * A mimo_comm is made by a backend header, <mimo/mpi.h> (tensors in host memory) or <mimo/nccl.h>
 * (tensors in device memory); everything else in the library is written against this one type.
 *
 * Rules for every function marked "collective":
 *  - all ranks of the communicator call it, in the same order with its other collective calls;
 *  - on the host it begins with one agreement over the ranks on their status and on the call's
 *    signature (operation, sequence, sizes, dtype). A call that is wrong on one rank moves no data
 *    and returns the error of the first failing rank on *every* rank; ranks that asked for
 * different things all get MIMO_ERR_MISMATCH, naming the first rank that differs from rank 0. The
 *    environment row MIMO_AGREE=0 removes the agreement (and that protection). Calls that only
 *    enqueue work on a device don't agree, as the host would have to wait: there a call that is
 *    wrong on one rank fails on that rank alone, and MIMO_AGREE=2 adds the agreement for a run that
 *    looks for such a mistake;
 *  - one thread at a time per communicator. Distinct communicators may be used from distinct
 * threads where the MPI library was initialised with MPI_THREAD_MULTIPLE.
 */
#ifndef MIMO_COMM_H
#define MIMO_COMM_H

#include <mimo/tensor.h>

MIMO_BEGIN_DECLS

typedef struct mimo_comm mimo_comm;

/**
 * What a launcher must offer so that a backend can start without knowing the launcher.
 *
 * allgather: collective over all `size` ranks, blocking. Every rank gives `bytes` bytes at `from`
 * and receives size * bytes bytes at `to`, in rank order. Returns 0, or non-zero on failure.
 */
typedef struct mimo_bootstrap {
    int rank;
    int size;
    int (*allgather)(void *context, void *to, const void *from, size_t bytes);
    void *context; /* borrowed; passed back to allgather */
} mimo_bootstrap;

typedef enum mimo_reduce {
    MIMO_SUM = 0,
    MIMO_MAX = 1,
} mimo_reduce;

/** Release a communicator. Collective in effect: all ranks release it, in the same order with its
 *  other calls. NULL is fine. Objects made from it must be gone before. Never finalizes MPI; after
 *  MPI_Finalize it only frees memory. */
MIMO_API void mimo_comm_destroy(mimo_comm *comm);

/** This process's rank in the communicator, 0 <= rank < size. Local. */
MIMO_API int mimo_comm_rank(const mimo_comm *comm);

/** Number of ranks. Local. */
MIMO_API int mimo_comm_size(const mimo_comm *comm);

/** Where tensors of this communicator lie. Local. */
MIMO_API mimo_memory mimo_comm_memory(const mimo_comm *comm);

/**
 * Split into one communicator per colour; ranks are ordered by key, ties by parent rank.
 * Collective, blocking. Colour -1 takes part but gets *out = NULL. The caller owns *out.
 *
 * Errors: MIMO_ERR_ARGUMENT (colour < -1), MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_split(mimo_comm **out, mimo_comm *parent, int color, int key);

/** Element-wise reduction of data[count] in place over all ranks. Collective; blocking on the host,
 *  enqueued with a stream. Counts past 2^31 work. f16 and bf16 are combined in f32.
 *  Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_UNSUPPORTED (MIMO_F8), MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_allreduce(mimo_comm *comm, void *data, int64_t count,
                                         mimo_dtype dtype, mimo_reduce op, mimo_stream stream);

/** Gather `bytes` bytes of every rank at `to`, in rank order (size * bytes in all). `from` may be
 *  the rank's own place in `to`, and else must not overlap it. Collective; blocking on the host,
 *  enqueued with a stream. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_allgather(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                                         mimo_stream stream);

/** Gather `bytes` bytes of host memory of every rank at `to`, in rank order, whatever memory the
 *  communicator moves: for sizes, counts and names, not for tensors. Collective, blocking the host.
 *  Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_collect(mimo_comm *comm, void *to, const void *from, int bytes);

/** Copy `bytes` bytes at `data` from rank `root` to all. Collective; blocking on the host, enqueued
 *  with a stream. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_broadcast(mimo_comm *comm, void *data, int64_t bytes, int root,
                                         mimo_stream stream);

/** Return when every rank has arrived. Collective, blocking the host. */
MIMO_API mimo_status mimo_comm_barrier(mimo_comm *comm);

/**
 * Make one status out of every rank's own: the agreement that every collective call begins with,
 * for the caller's own steps (did every rank open its file?). Collective, blocking the host.
 *
 * `local` is this rank's status; where it is an error, mimo_last_error() is the sentence that
 * travels (mimo_fail sets it). Returns MIMO_OK when every rank passed MIMO_OK; else, on every rank,
 * the status and the sentence ("rank 3: ...") of the lowest failing rank. Not removed by
 * MIMO_AGREE=0.
 */
MIMO_API mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local);

MIMO_END_DECLS

#endif
