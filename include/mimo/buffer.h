/*
 * Buffers: memory of every rank that other ranks load and store. With NCCL it is symmetric memory
 * over NVLink, with Open MPI memory that the ranks of a host share.
 *
 * A routed bridge whose destinations lie in a buffer writes each row straight into its consumer's
 * tensor: it packs, receives and stages nothing. Rows to a rank whose memory is out of reach (on
 * another host) are sent in the same call, as without a buffer. Creation then logs one line
 * (<mimo/log.h>). Where a bridge or a dispatch was made with MIMO_TRANSPORT_ZERO_COPY, its first
 * call warns on rank 0, also where nobody asked for log lines.
 *
 * The rules of a call whose destinations lie in a buffer:
 *   - All ranks pass destinations at the same offset of the same buffer. A rank without rows passes
 *     an empty view whose data is at that offset.
 *   - Between the start of a call and its end on *any* rank, peers may write this rank's
 *     destination. So on this rank's stream the call comes after the last reader and writer of that
 *     destination. The call tells the writers that they may write (READY), and ends when they have
 *     written (DONE).
 *   - On a device all ranks enqueue the calls into one buffer in the same order.
 *   - A CUDA graph that captured such calls is replayed the same number of times on all ranks. All
 *     calls that one graph captured follow one another: they are on one stream, or the caller's
 *     events order them.
 *   - The library orders calls on different streams: each call is enqueued after the last call,
 *     which may be on another stream. So a stream lives until the next call on another stream, or
 *     until mimo_comm_synchronize has waited for it after its last call. (CUDA does not define what
 *     happens to a stream that is gone. At best this rank alone gets MIMO_ERR_DEVICE. Its peers
 *     then count a call that this rank never began, so the buffer can't be used any more.)
 *   - The library does not see replays. The caller makes sure that no replay runs at the same time
 *     as another replay or call (one stream, or events). Kernels that wait for peers wait for ever
 *     if two ranks start them in opposite orders.
 *
 * Ranks that disagree. On the host, and with MIMO_CHECK=calls, the ranks agree first: a call that
 * differs between ranks is MIMO_ERR_MISMATCH on all of them, and moves nothing. Elsewhere READY
 * carries a signature of 20 bits. It covers letters, dtype, bytes of a row, S, the number of
 * tensors, how the batch is split, the chunk, forward or backward, and the offset of each
 * destination in its buffer. A rank that reads a different signature than its own writes no row to
 * that peer. The call still ends on both ranks, and rows between ranks that agree have arrived.
 * These two ranks get MIMO_ERR_MISMATCH: on the host from that call; on a device from the next
 * mimo_comm_synchronize on the communicator that the buffer was made from, or from the next call
 * into the buffer. From then on, on these two ranks:
 *   - Each later call into the buffer fails at once with the same sentence. (On the host: each
 *     later call of that bridge into any buffer.) On a device so does mimo_comm_synchronize.
 *   - Calls into it that were enqueued before, or are replayed, do not wait for late peers. They
 *     end with rows missing.
 *   - Everything else works: tensors outside of the buffer, other buffers, the communicator. The
 *     buffer is destroyed as usual, and a new one works.
 * Other ranks do not learn of it. Where they wait for one of the two, a deadline ends the wait.
 *
 * What signatures do not find:
 *   - One rank waits for rows that its peer does not push: the peer's destination lies in no
 *     buffer, or its batch differs. The rank waits until a deadline.
 *   - Two different calls have equal signatures by chance: once in a million.
 *   - With mimo_bridge_desc.destinations_idle there is no READY, so nothing is compared. A rank
 *     that calls differently writes rows into its peers' buffers where its own arguments place
 *     them. They may lie outside of a tile, or of the buffer.
 *
 * After MIMO_ERR_TIMEOUT or MIMO_ERR_ABORTED, peers that do not know of it yet may still write the
 * destinations of calls that had begun on this rank. A deadline in force does not change that.
 * Sources are read by this rank alone. The memory can be used again or freed
 *   - on the host once each peer has left that call: the call has returned there, with MIMO_OK or
 *     the error, or the process is gone. A peer writes only inside its own calls.
 *   - on a device once the stream of the call is done, on this rank and on each peer
 *     (cudaStreamSynchronize returns there), or the peer's process is gone. The end of a family on
 *     one rank ends that rank's waiting kernels; kernels of its peers go on. This holds for memory
 *     of mimo_buffer_borrow as well: the caller neither uses nor frees it before.
 * The library does not tell when that is. The caller finds out, for example by a barrier on another
 * communicator.
 */
#ifndef MIMO_BUFFER_H
#define MIMO_BUFFER_H

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

typedef struct mimo_buffer mimo_buffer;

/**
 * Create a buffer of `bytes` bytes on every rank. Ranks may ask for different sizes, and all get
 * the largest. Its contents are not initialised. Collective over `comm`, blocking. The communicator
 * is borrowed (mimo_comm_destroy). Bridges that use the buffer are made from the same communicator.
 * The caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (bytes < 0, or 2^62 and more),
 * MIMO_ERR_MEMORY, MIMO_ERR_UNSUPPORTED (the backend has no such memory here), MIMO_ERR_MISMATCH
 * (some ranks call mimo_buffer_borrow), MIMO_ERR_COMM, MIMO_ERR_DEVICE.
 */
MIMO_API mimo_status mimo_buffer_create(mimo_buffer **out, mimo_comm *comm, int64_t bytes);

/**
 * Create a buffer in the caller's memory: `bytes` bytes at `data` on every rank. Collective over
 * `comm`, blocking. The memory stays the caller's and outlives the buffer. NCCL takes memory of
 * ncclMemAlloc, 4096-byte aligned, of the same size on every rank. Open MPI can't share existing
 * memory: MIMO_ERR_UNSUPPORTED.
 *
 * Errors, the same on every rank: as mimo_buffer_create; MIMO_ERR_ARGUMENT (NULL, alignment, sizes
 * that differ between ranks: the sentence has both).
 */
MIMO_API mimo_status mimo_buffer_borrow(mimo_buffer **out, mimo_comm *comm, void *data,
                                        int64_t bytes);

/** Release a buffer. Collective in effect: all ranks release their buffers in the same order, each
 *  after its last call has ended on all ranks. NULL is fine. After a deadline, an abort or
 *  mimo_comm_forget each rank releases it alone, and peers may still be in their calls: memory that
 *  the library allocated lives until every rank has released the buffer. */
MIMO_API void mimo_buffer_destroy(mimo_buffer *buffer);

/** This rank's memory, 4096-byte aligned, owned by the buffer. Local. */
MIMO_API void *mimo_buffer_data(const mimo_buffer *buffer);

/** Its size in bytes, the same on every rank. Local. */
MIMO_API int64_t mimo_buffer_size(const mimo_buffer *buffer);

/** How many ranks' memory this rank reaches, itself included. Rows to and from other ranks are
 *  sent. Local. */
MIMO_API int mimo_buffer_reach(const mimo_buffer *buffer);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/**
 * The buffer of a communicator that holds all of [data, data + bytes) of this rank's memory, and
 * the offset of `data` in it. With 0 bytes: the one that `data` points into. Calls of bridges that
 * were made from `comm` look for their destinations in the same way. Local; *out is borrowed.
 *
 * Errors, outputs untouched: MIMO_ERR_NOT_FOUND (the sentence has the address),
 * MIMO_ERR_ARGUMENT (NULL, bytes < 0).
 */
MIMO_API mimo_status mimo_buffer_find(const mimo_buffer **out, int64_t *offset,
                                      const mimo_comm *comm, const void *data, int64_t bytes);

#endif

MIMO_END_DECLS

#endif
