/* Where bridge_step runs: over MPI with tensors in host memory, or over NCCL with them on GPUs. */
#ifndef EMBEDDING_STEP_PLACE_H
#define EMBEDDING_STEP_PLACE_H

#include <stdbool.h>

#include <mimo/comm.h>

typedef struct step_place {
    mimo_comm *comm;
    mimo_stream moving, computing; /* of the bridges, of the models; NULL on the host */
    bool cuda;
} step_place;

/** Open a place over MPI_COMM_WORLD. Collective. The caller zeroes *out before and calls
 *  place_close after, whatever the result, when nothing uses the place any more. */
mimo_status place_open(step_place *out, bool cuda);
void place_close(step_place *place);

/** Memory for `count` floats where tensors lie. Local. */
mimo_status place_reserve(const step_place *place, float **out, int64_t count);
void place_release(const step_place *place, float *data);

/** Copy `count` floats between the host and where tensors lie, either way. It comes behind the work
 *  on `stream`, and the host waits for it, at most as long as the deadline. Local. */
mimo_status place_copy(const step_place *place, float *to, const float *from, int64_t count,
                       mimo_stream stream);

#endif
