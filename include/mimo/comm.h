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
 *    different things all get MIMO_ERR_MISMATCH, naming the first rank that differs from rank 0.
 *    Where the communicator, or the object that has it, is NULL, that rank fails alone. The
 *    environment row MIMO_AGREE=0 removes the agreement (and that protection), but from what
 *    creates communicators, buffers, grids' groups, bridges and gradients. Those compare this row
 *    and MIMO_CHECK=calls too, as ranks that differ in them would wait for each other: that is
 *    MIMO_ERR_MISMATCH, with the rank and the row. Calls that only enqueue work on a
 *    device don't agree, as the host would have to wait: there a call that is wrong on one rank
 *    fails on that rank alone, and MIMO_CHECK=calls adds the agreement for a run that looks for
 *    such a mistake;
 *  - it gives MIMO_ERR_TIMEOUT where a deadline is set and passes, MIMO_ERR_ABORTED where a rank
 *    aborted, and after either the same at once in every later call ("Deadlines", below);
 *  - one thread at a time per communicator and what was made from it (bridges, buffers, gradient
 *    rules). Distinct communicators may be used from distinct threads: on MPI where it was
 *    initialised with MPI_THREAD_MULTIPLE; on NCCL where neither was split from the other, nor both
 *    from a third, as those share a stream and NCCL communicators.
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

/**
 * Release a communicator. Collective in effect: all ranks release it, in the same order with its
 * other calls. NULL is fine. Never finalizes MPI; after MPI_Finalize it only frees memory.
 *
 * While bridges or buffers made from it are there nothing is released: the last of them does it,
 * and mimo_last_error() says how many there are. Of gradient objects and grids that have the
 * communicator only their destroys may follow. What was split from it goes on by itself.
 */
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
 * Errors: MIMO_ERR_ARGUMENT (colour < -1), MIMO_ERR_MISMATCH, MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_split(mimo_comm **out, mimo_comm *parent, int color, int key);

/** Element-wise reduction of data[count] in place over all ranks. Collective; blocking on the host,
 *  enqueued with a stream. Counts past 2^31 work. f16 and bf16 are combined in f32.
 *  Errors: MIMO_ERR_ARGUMENT (also where data is no multiple of the element size),
 *  MIMO_ERR_UNSUPPORTED (MIMO_F8), MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_allreduce(mimo_comm *comm, void *data, int64_t count,
                                         mimo_dtype dtype, mimo_reduce op, mimo_stream stream);

/** Gather `bytes` bytes of every rank at `to`, in rank order (size * bytes in all). `from` may be
 *  the rank's own place in `to`; overlapping it otherwise is MIMO_ERR_ARGUMENT. Collective;
 *  blocking on the host, enqueued with a stream. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH,
 *  MIMO_ERR_COMM. */
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

/** Return when every rank has arrived. Collective, blocking the host. Errors: MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_barrier(mimo_comm *comm);

/**
 * Make one status out of every rank's own: the agreement that every collective call begins with,
 * for the caller's own steps (did every rank open its file?). Collective, blocking the host.
 *
 * `local` is this rank's status; where it is an error, mimo_last_error() is the sentence that
 * travels (mimo_fail sets it). Returns MIMO_OK when every rank passed MIMO_OK; else, on every rank,
 * the status and the sentence ("rank 3: ...") of the lowest failing rank. A `local` that is no
 * mimo_status counts as MIMO_ERR_ARGUMENT, with its number. Not removed by MIMO_AGREE=0.
 */
MIMO_API mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local);

/* ---------------------------------------- deadlines ----------------------------------------- */
/*
 * A rank that is missing, late or dead would keep the others waiting for ever. With a deadline, a
 * call in which the host has waited that long ends with MIMO_ERR_TIMEOUT, and its sentence names
 * the call and, on MPI, the ranks that gave no sign of waiting too (numbered as in the communicator
 * that all others were split from). Whoever gives up tells the others, so all that wait end within
 * twice the deadline, and a rank that comes late is told at its next call.
 *
 * Then the communicator, what it was split from and all that was split from that have ended on this
 * rank: every later call fails at once with the same status and sentence. What remains to be done
 * is to destroy: bridges, groups, grids and communicators, none of which waits. The process goes
 * on. What is local remains usable (grids, plans, partitions, tensors), and so do communicators of
 * another mimo_comm_from_mpi or mimo_comm_create_nccl; ranks that are left make a new one.
 *
 *  - On MPI what is in flight can't be called off: no collective, nor a message that has begun to
 *    move. So where a deadline is in force when a call begins on this rank, MPI is never given
 *    the caller's memory: rows go through memory of the library at both ends, and reach the
 *    caller's when all have come. After any return of such a call the caller's memory is the
 *    caller's, to be used for something else or freed. (Only a destination in a mimo_buffer is
 *    written by peers themselves: <mimo/buffer.h> says when they stop.) A communicator keeps as
 *    much memory for this as its largest call sends and receives on the rank, and so does a bridge;
 *    that of a call which ended so is never freed.
 *  - On MPI, where no deadline was in force when the call began: after MIMO_ERR_ABORTED (or
 *    MIMO_ERR_TIMEOUT, which another rank can tell) leave the tensors of that call alone until
 *    MPI_Finalize, the source too. MPI may still read and write them; where they have been freed, a
 *    later call of MPI crashes.
 *  - On MPI staging in flight is kept back, and MPI's own communicators that were in use are never
 *    freed. Where a rank has died, MPI_Finalize may hang: end with _exit.
 *  - On NCCL the communicators are aborted, which ends the kernels that wait inside a device. A
 *    stream of such a call runs to its end, and what it wrote is unspecified.
 *  - Creating and splitting wait inside MPI or NCCL once all ranks are known to have arrived: a
 *    rank that dies in that instant is noticed only where the backend does.
 */

/** The longest deadline: 30 days, in milliseconds. */
#define MIMO_DEADLINE_MOST 2592000000LL

/**
 * Let the host wait so long in one call, 0: for ever. It holds for the communicator, what it was
 * split from and all that was or will be split from that; a new communicator begins with the
 * environment's MIMO_DEADLINE_MS. Calls in flight keep to it at once, but whether MPI was given
 * their tensors is decided when they begin. Time in which the host did not look (between two calls
 * of mimo_op_test, say) counts for an eighth of the deadline at most. Local; the same on every rank
 * is best. MIMO_ERR_ARGUMENT: not in [0, MIMO_DEADLINE_MOST].
 */
MIMO_API mimo_status mimo_comm_set_deadline(mimo_comm *comm, int64_t milliseconds);

/** The deadline in force; 0: none. Local. */
MIMO_API int64_t mimo_comm_deadline(const mimo_comm *comm);

/**
 * End the communicator and its family as a deadline would, with MIMO_ERR_ABORTED and the caller's
 * reason (NULL is fine). On MPI the other ranks are told, and end when they next wait. Local, does
 * not block. Nothing where it has ended already. From another thread only while the first one is
 * blocked outside the library (in cudaStreamSynchronize, say).
 */
MIMO_API mimo_status mimo_comm_abort(mimo_comm *comm, const char *why);

/** MIMO_OK, or what the communicator has ended with. Local. */
MIMO_API mimo_status mimo_comm_state(const mimo_comm *comm);

/** Wait until the work on a stream is done, as cudaStreamSynchronize does but under the deadline:
 *  the way to wait for calls that only enqueue. On the host there is nothing to wait for. Local.
 *  Errors: MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED, MIMO_ERR_DEVICE, and on a device MIMO_ERR_MISMATCH
 *  where ranks called differently into a buffer of the communicator (<mimo/buffer.h>). */
MIMO_API mimo_status mimo_comm_synchronize(mimo_comm *comm, mimo_stream stream);

MIMO_END_DECLS

#endif
