/*
 * How many thread blocks of kernels that wait for peers may be in flight together on a device: a
 * ledger, which knows neither kernels nor streams.
 *
 * A block may wait for a peer, and the peer for a block of another kernel here that does not run
 * yet. So all blocks of all such kernels that may be in flight together fit the device at once,
 * each with a multiprocessor of its own. Then every one runs, in whatever order they were started,
 * and those that peers wait for are among them.
 *
 * A *lane* is a line of the ledger: kernels that follow one another.
 *
 *   reserved   what has a limit of its own may run beside everything else
 *   rest       what has none: these lanes are one, as their callers keep all such calls in one
 *              order. They share what reservations leave
 *   bound      no kernels: the budget of a rank that shares the device with others
 *
 * So the most thread blocks in flight are
 *
 *   the sum of the reserved lanes + the largest lane of the rest
 *
 * and the ledger keeps them within the budget: the smallest of the bounds, or else that of the
 * device. Nothing here is safe for several threads.
 */
#ifndef MIMO_COMM_RESIDENCY_H
#define MIMO_COMM_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/check.h"

typedef enum mimo_lane_kind {
    MIMO_LANE_OUT, /* not in a ledger */
    MIMO_LANE_RESERVED,
    MIMO_LANE_REST,
    MIMO_LANE_BOUND,
} mimo_lane_kind;

/* It lies in what it is of, which stays where it is while the lane is in a ledger. All zero: in
 * none. */
typedef struct mimo_lane {
    struct mimo_lane *next;
    mimo_lane_kind kind;
    int64_t blocks;
} mimo_lane;

typedef struct mimo_residency {
    mimo_lane *lanes;
    int64_t multiprocessors; /* of the device, at least 1 */
} mimo_residency;

/* Multiprocessors that no lane gets: NCCL's kernels of host values run there, which other ranks may
 * wait for. */
enum { MIMO_RESIDENCY_SPARE = 4 };

/* The most thread blocks in flight: of all multiprocessors except the spare ones, at least 1. */
int64_t mimo_residency_whole(int64_t multiprocessors);

/* What this rank may have in flight. */
int64_t mimo_residency_budget(const mimo_residency *ledger);

/* The lanes that are in flight together, at the most. */
int64_t mimo_residency_in_flight(const mimo_residency *ledger);

/* A share of a device, in hundredths of a percent. */
enum { MIMO_SHARE_WHOLE = 10000 };

/* The share that a process has by the variable CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, or NULL: rounded
 * up. Without MPS nobody reads the variable: the process sees all of the device, and others do
 * too. */
int64_t mimo_residency_share(bool mps, const char *percentage);

/* A rank, as those of a communicator tell each other. */
typedef struct mimo_residency_rank {
    uint64_t device;         /* the same number for the same device */
    int64_t multiprocessors; /* as the rank sees them */
    int64_t share;           /* of the device: these multiprocessors */
} mimo_residency_rank;

/* The part of rank `self` of its device's budget, at least 1. Where the shares of a device's ranks
 * come to more than the whole, as they do if no rank has a share of its own, all parts are smaller
 * by as much. A pure function of what all ranks know, so they agree. */
int64_t mimo_residency_part(const mimo_residency_rank *ranks, int count, int self);

/* Enter a lane. A lane that could not enter is out; the ledger is as it was. MIMO_ERR_ARGUMENT:
 * more would be in flight than the budget allows; the sentence has the numbers.
 *
 * bound    from now on the budget is at most `blocks`
 * reserve  `wanted` > 0 thread blocks, or the budget where that is less: lane->blocks
 * rest     as many of `wanted` > 0 as there are: lane->blocks, at least 1 */
mimo_status mimo_residency_bound(mimo_residency *ledger, mimo_lane *lane, int64_t blocks);
mimo_status mimo_residency_reserve(mimo_residency *ledger, mimo_lane *lane, int64_t wanted);
mimo_status mimo_residency_rest(mimo_residency *ledger, mimo_lane *lane, int64_t wanted);

/* A lane of the rest needs `blocks` <= lane->blocks alone; 0: it leaves. */
void mimo_residency_shrink(mimo_residency *ledger, mimo_lane *lane, int64_t blocks);

/* Take a lane out. One that is out stays so. */
void mimo_residency_leave(mimo_residency *ledger, mimo_lane *lane);

#endif
