/*
 * How long a call of a bridge would take under each executor, from the speed of the links. It is a
 * model, not a measurement. Pure. mimo-plan prints it.
 *
 * The model: every rank has one link. It carries `gbps` in and `gbps` out at the same time. Copies
 * inside a rank's memory run at `copy_gbps`. "Copied" bytes are read once and written once. The
 * time of an executor is a sum of three terms: latencies, bytes over the link of the busiest rank,
 * bytes copied.
 *
 * Letters:
 *
 *   L       the latency
 *   W       bytes of the LLM's tile with whole sequences
 *   V       bytes of the encoder's tile
 *   k       the ratio of the dp sizes
 *   cp, tp  sizes of the LLM's grid; tp counts as 1 without sp
 *
 * collective. Each all-gather takes L, each all_reduce 2 L.
 *
 *   forward                                  over the link       copied
 *     all-gather (fan-in)                    (k-1)/k W           W where the dst tile is sbh
 *     narrow (fan-out), or copy (equal)      -                   W
 *     with a partition, in place of these    the same            the shard: W / (cp tp)
 *
 *   backward                                 over the link       copied
 *     join sp                                (tp-1)/tp W/cp      W/cp
 *     spread into zeros, or copy (cp > 1)    -                   W
 *     all_reduce over cp                     2 (cp-1)/cp W       -
 *     all-gather (fan-out)                   (k-1)/k V           V where the src tile is sbh
 *     narrow (fan-in), or copy (equal)       -                   V
 *
 *   In a bsh tile, gathered samples follow one another and arrive in their place. In an sbh tile
 *   they are copied there.
 *
 * p2p. Each phase takes L. The busiest rank's bytes, in or out, go over the link. The rows that are
 * packed or unpacked, the rows that stay, and the contributions that are added count as copied.
 *
 * zero-copy. Each phase takes 3/4 L. The busiest rank's bytes go over the link. Rows that stay are
 * copied at the same time. Contributions that are added count as copied, after that.
 *
 * Where a rank moves nothing over its link, a call takes L/2: the launch of a copy.
 *
 * Where 3/4 and 1/2 come from: on 4 H200, NCCL's send and receive of 64 KiB take 8.0 us, a kernel
 * that writes them to the peer 6.3 us, a local copy 4.1 us.
 *
 * The model knows nothing of contention between links, of a second level of network, or of ranks
 * that are late.
 */
#ifndef MIMO_TOOLS_PLAN_COST_H
#define MIMO_TOOLS_PLAN_COST_H

#include <mimo/pairing.h>
#include <mimo/plan.h>

/* How fast bytes move. Rates are in 10^9 bytes a second. */
typedef struct mimo_link_speed {
    double gbps;       /* of one rank's link, in and out each; > 0 */
    double latency_us; /* of one message between two ranks, with its launch; >= 0 */
    double copy_gbps;  /* of a copy in a rank's memory; 0: MIMO_COPY_RATIO times gbps */
} mimo_link_speed;

/* Measured on 4 H200: 1,854 GB/s for a copy in a GPU's memory, 342 GB/s for writes to a peer. */
enum { MIMO_COPY_RATIO = 5 };

/* Bytes of one plan on one rank. For several ranks: the largest of each field. */
typedef struct mimo_plan_load {
    int64_t in, out;          /* bytes over the link */
    int64_t local;            /* rows that stay */
    int64_t packed, unpacked; /* the part of out and the part of in that is not one run in memory */
    int64_t staged;           /* contributions that arrive in staging, to be added to the tile */
    int64_t pair;             /* to the peer that gets most */
} mimo_plan_load;

/* The plans that a pass of a bridge carries out, one after the other: one for each phase. */
typedef struct mimo_phases_load {
    mimo_plan_load phase[2];
    int phases; /* 1 or 2 */
} mimo_phases_load;

enum { MIMO_COST_FORWARD = 0, MIMO_COST_BACKWARD = 1, MIMO_COST_PASSES = 2 };

typedef struct mimo_cost_case {
    const mimo_grid *src, *dst;
    mimo_pairing pairing;     /* scale 0: the grids do not pair, so collective cannot be used */
    bool cut, sp;             /* a partition is attached; it has sp */
    mimo_row_order order[2];  /* of the tiles, by mimo_side */
    int64_t batch, seq;       /* global */
    int64_t row_bytes;        /* of all tensors of the call */
    mimo_phases_load load[2]; /* by pass; the largest over all ranks */
} mimo_cost_case;

/* Estimated microseconds, by pass. INFINITY where an executor cannot be used. */
typedef struct mimo_cost {
    double collective[MIMO_COST_PASSES];
    double p2p[MIMO_COST_PASSES];
    double zero_copy[MIMO_COST_PASSES];
} mimo_cost;

/* Whether the rows of a block follow one another without a gap, at the receiver's end (MIMO_RECV)
 * or at the sender's (MIMO_SEND). */
bool mimo_block_is_one_run(const mimo_block *block, mimo_block_kind end);

/* The load of one rank's plan. The plan's rows times row_bytes must fit 64 bits. */
mimo_plan_load mimo_plan_load_of(const mimo_plan *plan, int64_t row_bytes);

/* Keep the larger value of each field. Ranks may come in any order. */
void mimo_plan_load_merge(mimo_plan_load *most, const mimo_plan_load *other);

mimo_cost mimo_cost_estimate(const mimo_cost_case *of, const mimo_link_speed *speed);

#endif
