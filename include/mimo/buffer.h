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
 *     on one stream. Calls on different streams follow one another: the next call on another stream
 *     is ordered behind the last one's, so that one lives until then, or until
 *     mimo_comm_synchronize has waited for it after its last call. (CUDA does not define what a
 *     stream does that is gone: MIMO_ERR_DEVICE at best, on this rank alone, and the buffer is of
 *     no use any more, as its peers count a call that this rank never began.) Of replays the
 *     library knows nothing: the caller sees to it that no replay runs beside another one or beside
 *     a call (one stream, or events). Kernels that wait for peers and were started in opposite
 *     orders on two ranks wait for ever.
 *
 * Ranks that disagree. Where an agreement comes first (on the host, and with MIMO_CHECK=calls), a
 * call that differs between ranks is MIMO_ERR_MISMATCH on all of them, and moves nothing. Elsewhere
 * READY carries a signature of 20 bits: letters, dtype, bytes of a row, S, the number of tensors,
 * how the batch is cut, the chunk, the direction, and each destination's place in its buffer. A
 * rank whose own signature is another one writes no row to that peer. The call ends on both all the
 * same, and rows between ranks that do agree have arrived. Those two ranks get MIMO_ERR_MISMATCH:
 * on the host from that call, on a device from the next mimo_comm_synchronize on the communicator
 * that the buffer was made from, or the next call into the buffer that is enqueued. From then on,
 * on those ranks:
 *   - each later call into the buffer (on the host: of that bridge into any buffer) fails at once
 *     with the same sentence, and so does mimo_comm_synchronize, on a device;
 *   - calls into it that were enqueued before, or are replayed, wait for no peer that is late, and
 *     end with rows missing;
 *   - everything else goes on: tensors outside of the buffer, other buffers, the communicator. The
 *     buffer is destroyed as any other, and one made anew works.
 * Other ranks are not told: where they wait for one of the two, a deadline ends it.
 *
 * What a signature can't tell: which of two ranks writes to the other. Where one awaits rows that
 * the other does not push (its destination lies in no buffer, or its batch is another one), it
 * waits until a deadline. Two signatures are alike by accident once in a million. And with
 * mimo_bridge_desc.destinations_idle there is no READY: nothing is compared, and a rank that calls
 * differently writes rows where its own tensors would have them, in the buffers of its peers,
 * wherever that is; some may lie beyond a tile, or beyond the buffer.
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
 * (mimo_comm_destroy); the bridges that are to use it are made from the same communicator. The
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
