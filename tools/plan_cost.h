/*
 * What a call of a bridge would take under each executor, from the speed of the links: a model, not
 * a measurement. Pure. mimo-plan prints it; what has to choose an executor can ask the same.
 *
 * Every rank has one link, which carries `gbps` in and as much out at the same time; whatever moves
 * inside a rank's memory goes at `copy_gbps`. L is the latency, W the bytes of the LLM's tile with
 * whole sequences, V those of the encoder's tile, k the ratio of the dp sizes, cp and tp the LLM's.
 * "copied" counts bytes that are read and written once.
 *
 *   collective   L a collective (2 L for an all_reduce); a ring's bytes over the link; then copies
 *     forward    all-gather (fan-in)       (k-1)/k W     copied: W where it lands in an sbh tile
 *                narrow (fan-out), copy    -             copied: W
 *                with a partition          the same      copied: what it leaves of W, at once
 *     backward   join sp                   (tp-1)/tp W/cp            copied: W/cp
 *                spread, or copy (cp > 1)  -             copied: W
 *                all_reduce over cp        2 (cp-1)/cp W
 *                all-gather (fan-out)      (k-1)/k V     copied: V where it lands in an sbh tile
 *                narrow, copy              -             copied: V
 *   p2p          L a round; the busiest rank's bytes, in or out, over the link; copied: what is
 *                packed and unpacked, rows that stay, contributions that are added
 *   zero-copy    3/4 L a round; the busiest rank's bytes over the link, with the rows that stay
 *                meanwhile; copied after: contributions that are added
 *
 * Where a rank moves nothing over its link a call costs L/2: it starts a copy and is done. The
 * fractions are those of 4 H200: NCCL's send and receive of 64 KiB take 8.0 us, a kernel that
 * writes them to the peer 6.3 us, a local copy 4.1 us. Nothing here knows of contention between
 * links, of a second level of network, or of ranks that come late.
 */
#ifndef MIMO_BRIDGE_PLAN_COST_H
#define MIMO_BRIDGE_PLAN_COST_H

#include <mimo/pairing.h>
#include <mimo/plan.h>

/* How fast bytes move; 10^9 bytes a second, microseconds. */
typedef struct mimo_link_speed {
    double gbps;       /* of one rank's link, in each direction; > 0 */
    double latency_us; /* of one message between two ranks, its launch included; >= 0 */
    double copy_gbps;  /* of a copy in a rank's memory; 0: MIMO_COPY_RATIO times gbps */
} mimo_link_speed;

/* 4 H200 copy 1,854 GB/s inside and write 342 GB/s to a peer. */
enum { MIMO_COPY_RATIO = 5 };

/* Bytes of one plan on one rank; or of several ranks, the largest of each field. */
typedef struct mimo_plan_load {
    int64_t in, out;          /* over the link */
    int64_t local;            /* rows that stay */
    int64_t packed, unpacked; /* of out and of in: messages that are not one run in memory */
    int64_t staged;           /* contributions that arrive beside the tile, to be added to it */
    int64_t pair;             /* to one peer, the busiest */
} mimo_plan_load;

/* The plans that one direction of a bridge carries out one after the other. */
typedef struct mimo_rounds_load {
    mimo_plan_load round[2];
    int rounds; /* 1 or 2 */
} mimo_rounds_load;

enum { MIMO_COST_FORWARD = 0, MIMO_COST_BACKWARD = 1, MIMO_COST_DIRECTIONS = 2 };

typedef struct mimo_cost_case {
    const mimo_grid *src, *dst;
    mimo_pairing pairing;     /* scale 0: the grids do not pair, collective is no choice */
    bool cut, sp;             /* a partition is attached; it cuts along tp too */
    mimo_row_order order[2];  /* of the tiles, by mimo_side */
    int64_t batch, seq;       /* global */
    int64_t row_bytes;        /* of all tensors of the call */
    mimo_rounds_load load[2]; /* the largest of all ranks, by direction */
} mimo_cost_case;

/* Estimated microseconds, by direction; INFINITY where an executor cannot be used. */
typedef struct mimo_cost {
    double collective[MIMO_COST_DIRECTIONS];
    double p2p[MIMO_COST_DIRECTIONS];
    double zero_copy[MIMO_COST_DIRECTIONS];
} mimo_cost;

/* Whether the rows of a block lie one after the other, at the receiver's end or the sender's. */
bool mimo_block_is_one_run(const mimo_block *block, mimo_block_kind end);

/* The load of one rank's plan. A plan's rows times row_bytes must fit 64 bits. */
mimo_plan_load mimo_plan_load_of(const mimo_plan *plan, int64_t row_bytes);

/* Keep the larger of each field: of ranks, in any order. */
void mimo_plan_load_merge(mimo_plan_load *most, const mimo_plan_load *other);

mimo_cost mimo_cost_estimate(const mimo_cost_case *of, const mimo_link_speed *speed);

#endif
