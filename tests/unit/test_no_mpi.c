/* Calls that need MPI fail with a sentence in a process that never initialised it. */
#include <criterion/criterion.h>

#include <mimo/mpi.h>

#include "expect_failure.h"

Test(no_mpi, handles)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_comm *comm = NULL;
    mimo_bootstrap bootstrap = {.rank = -7};
    FAILS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_STATE,
          "mimo_comm_create_mpi: MPI is not initialised");
    FAILS(mimo_comm_borrow_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_STATE, "not initialised");
    FAILS(mimo_bootstrap_from_mpi(&bootstrap, &world), MIMO_ERR_STATE, "not initialised");
    FAILS(mimo_bootstrap_from_mpi(&bootstrap, NULL), MIMO_ERR_ARGUMENT, "mpi is NULL");
    cr_assert(comm == NULL && bootstrap.rank == -7, "a failed call wrote its output");
}
