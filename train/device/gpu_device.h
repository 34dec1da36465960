/* What compute_device needs of CUDA and NCCL. gpu_device.c has it; in a build without CUDA
 * no_gpu_device.c says so instead. */
#ifndef TRAIN_GPU_DEVICE_H
#define TRAIN_GPU_DEVICE_H

#include <stdbool.h>

#include <mimo/comm.h>

/** All ranks of MPI_COMM_WORLD over NCCL, each on the GPU of its number among the ranks of its
 *  machine. Collective; errors are the same on every rank. */
mimo_status gpu_world_create(mimo_comm **out);

/** A stream of the current device. urgent: its thread blocks come before those of other streams
 *  that wait for room. Local. */
mimo_status gpu_stream_create(mimo_stream *out, bool urgent);
void gpu_stream_destroy(mimo_stream stream); /* NULL is fine */

/** A communicator of NCCL over the ranks of `same`, on their devices. It shares nothing with `same`
 *  and with what was split from it: what it moves has an order of its own. NCCL's messages
 *  take `ctas` thread blocks. Collective over `same`. */
mimo_status gpu_apart_create(mimo_comm **out, mimo_comm *same, int ctas);

/** Points in the work of streams, and when they were reached. */
typedef struct gpu_clock gpu_clock;

/** `count` points on the current device. Local. Errors: MIMO_ERR_MEMORY, MIMO_ERR_DEVICE. */
mimo_status gpu_clock_create(gpu_clock **out, int64_t count);
void gpu_clock_destroy(gpu_clock *clock); /* NULL is fine */

/** Point `i` is behind all that the stream was given so far. The host does not wait. */
mimo_status gpu_clock_stamp(gpu_clock *clock, int64_t i, mimo_stream stream);

/** Nanoseconds from point 0 to each of the first `count`, which were all stamped. Waits. */
mimo_status gpu_clock_read(int64_t *times, gpu_clock *clock, int64_t count);

#endif
