/* One case on GPUs: a pair of grids, its bridges and tiles, and what the bare calls need. */
#ifndef MIMO_BENCH_NCCL_BED_H
#define MIMO_BENCH_NCCL_BED_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

#include <mimo/mimo.h>

#include "executors.h"
#include "tools/plan_cost.h"

#include "link_floor.h"

enum { NCCL_FEW_CTAS = 32 }; /* thread blocks that leave multiprocessors free to compute */

typedef struct nccl_case {
    const char *src, *dst;
    int64_t batch, seq, hidden; /* global B; bf16 */
} nccl_case;

/* What all cases of a launch share. */
typedef struct nccl_world {
    mimo_comm *comm;
    ncclComm_t bare; /* over all ranks; the library does not use it */
    cudaStream_t stream;
    link_floor *floor;
    int rank, size;
} nccl_world;

/* The ways to call the library, each with a bridge of its own. */
typedef enum nccl_way {
    NCCL_COLLECTIVE,
    NCCL_P2P,
    NCCL_STAGED,
    NCCL_STAGED_FEW, /* with 32 thread blocks */
    NCCL_ZERO_COPY,
    NCCL_ZERO_COPY_FEW,  /* with 32 thread blocks */
    NCCL_ZERO_COPY_IDLE, /* with destinations_idle */
    NCCL_AUTO,           /* chosen by measurement, destinations in a buffer */
    NCCL_AUTO_ELSEWHERE, /* chosen by measurement, destinations in plain memory */
    NCCL_WAYS,
} nccl_way;

/* What one pass moves. */
typedef struct nccl_moves {
    int64_t *to, *from;    /* [size]: bytes to each rank, bytes from each rank */
    mimo_plan_load load;   /* of this rank */
    int64_t most_in;       /* bytes that the busiest rank receives */
    int peers, most_peers; /* ranks that this rank sends to; the most over all ranks */
} nccl_moves;

typedef struct nccl_bed {
    const nccl_world *world;
    nccl_case c;
    mimo_grid *src, *dst;
    mimo_bridge *bridge[NCCL_WAYS];
    mimo_buffer *buffer;
    mimo_tensor encoder[2], language[2]; /* in plain memory, and in the buffer */
    int64_t encoder_bytes, language_bytes, full_bytes;
    void *full, *room; /* room_bytes each: gathered tiles, or what is sent and received */
    int64_t room_bytes;
    ncclComm_t gather, cp; /* for the bare calls; NULL where `collective` needs none */
    nccl_moves moves[2];   /* forward, backward */
} nccl_bed;

/* Collective. An error ends the launch. */
void nccl_bed_create(nccl_bed *out, const nccl_world *world, const nccl_case *c);
void nccl_bed_destroy(nccl_bed *bed);

/* What describes a bridge between the grids of a bed: all but the executor. */
mimo_bridge_desc nccl_bed_bridge_desc(const nccl_bed *bed);

/* A bridge whose calls have NCCL_FEW_CTAS thread blocks and run alone. */
void nccl_bed_create_few(mimo_bridge **out, mimo_comm *comm, const mimo_bridge_desc *desc);

/* Enqueue one call of the library. */
void nccl_bed_move(const nccl_bed *bed, nccl_way way, bool backward);

/* What a way that chose an executor uses: NCCL_COLLECTIVE, NCCL_P2P or NCCL_ZERO_COPY. */
nccl_way nccl_bed_chosen(const nccl_bed *bed, nccl_way way, bool backward);

/* Fill the source of a pass. Then compare the result of each way with that of `collective`, bit for
 * bit. Returns the first way that differs, or NCCL_WAYS. */
nccl_way nccl_bed_check(const nccl_bed *bed, bool backward);

/* What `collective` and p2p consist of: bare calls of NCCL, and copies. */
void nccl_bed_bare_collective(const nccl_bed *bed, bool backward);
void nccl_bed_collective_copies(const nccl_bed *bed, bool backward);
void nccl_bed_bare_p2p(const nccl_bed *bed, bool backward);
void nccl_bed_p2p_copies(const nccl_bed *bed, bool backward);
/* One copy of the bytes that stay on the busiest rank. */
void nccl_bed_local_copy(const nccl_bed *bed, bool backward);

void nccl_must(bool ok, const char *what, const char *why);
void nccl_must_cuda(cudaError_t code, const char *what);
void nccl_must_nccl(ncclResult_t code, const char *what);

#endif
