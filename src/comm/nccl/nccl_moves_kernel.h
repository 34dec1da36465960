/*
 * The kernels that move rows of experts: `rows` from tokens to experts, `combine` back. What lies
 * where in the memory that ranks share, and the tables of a route, are those of
 * comm/expert_memory.h.
 *
 * One launch is one call of the dispatch on this rank. All ranks of the group launch the same call:
 * a kernel sets READY for its peers, writes into their memory, and waits for what they write here.
 * So all thread blocks of all kernels that may wait for each other must be resident at once: see
 * the number of thread blocks below.
 *
 * Every launch enqueues, and neither allocates nor waits. It may be captured.
 */
#ifndef MIMO_COMM_NCCL_MOVES_KERNEL_H
#define MIMO_COMM_NCCL_MOVES_KERNEL_H

#include <cuda_runtime_api.h>

#include <mimo/dtype.h>

#include "comm/nccl/nccl_experts.h"

MIMO_BEGIN_DECLS

enum { MIMO_MOVES_TENSORS = 16 }; /* the most of a call: they are arguments of the launch */

/* What both moves need to know. */
typedef struct mimo_moves {
    mimo_expert_group group;
    mimo_route_tables tables;
    int32_t fill;  /* combine cuts rows into pieces where there are fewer items than this; the same
                     on all ranks; 0: never */
    int32_t gated; /* 1: the caller limits thread blocks, so none of them waits for all peers to be
                      late: a gate waits in front (nccl_moves_gate.cu) */
} mimo_moves;

/* A tensor of a call. Of `rows`, `from` has this rank's tokens and `to` is its tile; of `combine`,
 * `from` is the tile and `to` has the tokens. Neither may be NULL where it has rows. */
typedef struct mimo_moves_tensor {
    const char *from;
    char *to;
    int64_t row_bytes; /* of a row; by pair, of one value */
    bool by_pair;      /* [tokens, k] and [rows], f32 or f64 */
    mimo_dtype dtype;  /* combine: what is added */
    bool narrow;       /* combine: partial sums travel as `dtype`, not as f32 */
    /* Of `rows`: where the row of a token begins on rank r is
     *   there[r] + at + n * row_bytes
     * where n is the row in the tile, or s * N + i for token i of rank s (flat: no tile). */
    char *const *there; /* [P], device memory */
    int64_t at;
    bool flat;
} mimo_moves_tensor;

typedef struct mimo_moves_call {
    mimo_moves moves;
    int32_t count;
    mimo_moves_tensor tensors[MIMO_MOVES_TENSORS];
} mimo_moves_call;

/* Enqueue a call, with this number of thread blocks. The tensors of `combine` that are not by pair
 * have one dtype and one `narrow`. */
cudaError_t mimo_rows_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream);
cudaError_t mimo_combine_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream);
/* The same by loads and stores, which mimo_combine_launch takes for rows that are no multiple of 16
 * bytes, and on devices before Hopper. */
cudaError_t mimo_combine_words_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream);

/* Enqueue the gate, where there is one: the two above do so. */
cudaError_t mimo_moves_gate_launch(const mimo_moves *moves, cudaStream_t stream);

/* Load both kernels onto the current device, and allow them their shared memory. To be called
 * before the first launch: CUDA may otherwise do so at a launch, and wait for the device, while a
 * peer's kernel spins on it. */
cudaError_t mimo_rows_load(void);
cudaError_t mimo_combine_load(void);
cudaError_t mimo_combine_words_load(void);
cudaError_t mimo_moves_gate_load(void);

/* Thread blocks of a launch under a budget of multiprocessors; one block occupies one. 0: as many
 * as there may be, which is fastest with nothing beside it. `most` is what is left for kernels that
 * wait. */
static inline int mimo_moves_blocks(int budget, int most)
{
    return budget > 0 && budget < most ? budget : most;
}

MIMO_END_DECLS

#endif
