/* A dispatch on real ranks, whose routes are random, and what its moves must give: by the plain
 * loops of plain_route.h. Every rank knows the ids of all. */
#ifndef MIMO_TESTS_DISPATCH_BED_H
#define MIMO_TESTS_DISPATCH_BED_H

#include "mpi_test.h"
#include "plain_route.h"
#include "test_memory.h"

/* What is tried. A group of N ranks has ep = N / etp, and `held` experts on each. */
typedef struct dispatch_case {
    int64_t etp, held, top_k, alignment, hidden;
    mimo_dtype dtype; /* of the rows that are summed */
    bool narrow;
    mimo_transport transport;
    bool shared;   /* the tiles of experts lie in a buffer */
    int64_t spare; /* rows that a tile has beyond what it needs; -1: its capacity is not given */
} dispatch_case;

typedef struct dispatch_bed {
    const dispatch_case *its;
    plain_route *plain;
    mimo_dispatch *dispatch;
    mimo_route *route;
    int64_t tokens, rows; /* of this rank; rows of its tile */
    test_room ids;        /* of the last set; a device reads them late */
} dispatch_bed;

/* Whether a group of `ranks` ranks can have a case. */
bool dispatch_case_fits(const dispatch_case *its, int ranks);

/* A dispatch over a communicator, with a route that was never set. Collective. */
dispatch_bed dispatch_bed_new(mimo_comm *comm, const dispatch_case *its);
void dispatch_bed_free(dispatch_bed *bed);

/* Set the route to random ids. Collective. Notes a failure. */
void dispatch_bed_set(dispatch_bed *bed, uint64_t seed);

/* Move rows of several kinds, and compare every byte of the tiles; combine, and compare the bits of
 * every sum. Collective. */
void dispatch_bed_move_rows(const dispatch_bed *bed, uint64_t seed);
void dispatch_bed_combine(const dispatch_bed *bed, uint64_t seed);

#endif
