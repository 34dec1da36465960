/* For tests of MPI: a bed whose communicator may end, and a rank that comes late to its calls. */
#ifndef FAULT_LATE_BED_H
#define FAULT_LATE_BED_H

#include "fault_bed.h"
#include "mpi_test.h"

enum { LATE = 2 };

/* The bed on a fresh communicator, with everything made on all ranks. All ranks wait here: the end
 * of the communicator can overtake a call that has ended on some ranks only. */
static inline void late_bed_open(fault_bed *bed, executor_id executor)
{
    MPI_EXPECT_OK(fault_bed_begin(bed, mpi_test_comm_new(), executor));
    MPI_EXPECT_OK(fault_bed_create(bed, FAULT_ALL));
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline void late_bed_close(fault_bed *bed)
{
    mimo_comm *comm = bed->comm;
    fault_bed_end(bed);
    mimo_comm_destroy(comm);
}

/* Whether this rank's call waits for the late rank: the tp groups are {0, 1} and {2, 3}. */
static inline bool late_bed_waits(const fault_bed *bed, const fault_call *call)
{
    return strcmp(call->name, "adjoint") != 0 || bed->rank / 2 == LATE / 2;
}

#endif
