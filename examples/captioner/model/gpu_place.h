/* What compute_place needs of CUDA and NCCL. gpu_place.c has it; in a build without CUDA
 * no_gpu_place.c says so instead. */
#ifndef CAPTIONER_GPU_PLACE_H
#define CAPTIONER_GPU_PLACE_H

#include <mimo/comm.h>

/** All ranks of MPI_COMM_WORLD over NCCL, each on the GPU of its place among the ranks of its
 *  machine. Collective; errors are the same on every rank. */
mimo_status gpu_world_create(mimo_comm **out);

/** A stream of the current device. Local. */
mimo_status gpu_stream_create(mimo_stream *out);
void gpu_stream_destroy(mimo_stream stream); /* NULL is fine */

#endif
