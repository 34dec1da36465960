/*
 * Buffers: memory of every rank that the others load and store (NCCL: symmetric memory over NVLink;
 * Open MPI: memory shared by the ranks of a host).
 *
 * A routed bridge whose destinations lie in a buffer writes each row straight into its consumer's
 * tensor: nothing is packed, received or staged. Ranks that can't reach each other's memory (other
 * hosts) send those rows in the same call, as without a buffer; creation says so, in one line on
 * stderr.
 *
 * The contract of a call whose destinations lie in a buffer:
 *   - all ranks pass destinations at the same offset of the same buffer, ranks without rows too (an
 *     empty view whose data is that place);
 *   - between a call's start and its end on *any* rank, peers may write this rank's destination.
 *     So the call is ordered, on its stream, after the last reader and writer of that destination
 *     on this rank. It says so to those who write (READY), and ends when they have (DONE);
 *   - on a device, calls into one buffer are enqueued in the same order on every rank, and a CUDA
 *     graph that captured some is replayed equally often by all; calls captured into one graph are
 *     on one stream. Calls on different streams follow one another; a stream lives until the next
 *     call on another one has begun. Of replays the library knows nothing: the caller sees to it
 *     that no replay runs beside another one or beside a call (one stream, or events). Kernels that
 *     wait for peers and were started in opposite orders on two ranks wait for ever.
 *
 * After MIMO_ERR_TIMEOUT or MIMO_ERR_ABORTED, with a deadline in force or not, peers that have not
 * heard of it may still write the destinations of calls that had begun here; sources are read by
 * this rank alone. The memory is free again
 *   - on the host once each peer is out of that call: the call has returned there, MIMO_OK or with
 *     the error, or the process is gone. A peer writes only inside calls of its own;
 *   - on a device once the stream that the call was enqueued on is done, on this rank and on each
 *     peer (cudaStreamSynchronize returns there), or the peer's process is gone. A rank's own end
 *     ends its kernels that wait; those of its peers go on. So it is with memory of
 *     mimo_buffer_register, which the caller must neither use nor free before.
 * Nobody tells this rank: the caller finds out (by a barrier on another communicator, say).
 */
#ifndef MIMO_BUFFER_H
#define MIMO_BUFFER_H

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

typedef struct mimo_buffer mimo_buffer;

/**
 * A buffer of `bytes` bytes on every rank; ranks may ask for different sizes, and get the largest.
 * Its contents are not initialised. Collective over `comm`, blocking. The communicator is borrowed
 * and outlives the buffer; the bridges that are to use it are made from the same communicator. The
 * caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (bytes < 0, or past 2^62), MIMO_ERR_MEMORY,
 * MIMO_ERR_UNSUPPORTED (the backend has no such memory here), MIMO_ERR_MISMATCH (some ranks
 * register), MIMO_ERR_COMM, MIMO_ERR_DEVICE.
 */
MIMO_API mimo_status mimo_buffer_create(mimo_buffer **out, mimo_comm *comm, int64_t bytes);

/**
 * The same around memory of the caller's, `bytes` bytes at `data` on every rank, which stays the
 * caller's and outlives the buffer. NCCL: memory of ncclMemAlloc, 4096-byte aligned, the same size
 * on every rank. Open MPI has no way to share memory that is there already: MIMO_ERR_UNSUPPORTED.
 *
 * Errors, the same on every rank: as mimo_buffer_create, MIMO_ERR_ARGUMENT (NULL, alignment, a size
 * that differs between ranks: both are printed).
 */
MIMO_API mimo_status mimo_buffer_register(mimo_buffer **out, mimo_comm *comm, void *data,
                                          int64_t bytes);

/** Release. Collective in effect: all ranks do it in the same order, each buffer after the last
 *  call that used it has ended on all of them. NULL is fine. After a deadline or an abort each rank
 *  releases it alone, and peers need not be out of their calls: on the host the memory lives on for
 *  them until they have released it too. */
MIMO_API void mimo_buffer_destroy(mimo_buffer *buffer);

/** This rank's memory, 4096-byte aligned, owned by the buffer. Local. */
MIMO_API void *mimo_buffer_data(const mimo_buffer *buffer);

/** Its size in bytes, the same on every rank. Local. */
MIMO_API int64_t mimo_buffer_size(const mimo_buffer *buffer);

/** How many ranks this one reaches, itself included; rows to and from others are sent. Local. */
MIMO_API int mimo_buffer_reach(const mimo_buffer *buffer);

MIMO_END_DECLS

#endif
