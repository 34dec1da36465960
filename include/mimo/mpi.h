/*
 * The MPI backend: tensors in host memory. Not included by <mimo/mimo.h>. Its functions are in a
 * library of their own, libmimo-bridge-mpi, so that libmimo-bridge needs no MPI.
 *
 * MPI sends and receives tensors where they lie, and may use them until a call is done. With a
 * deadline in force it gets copies instead ("Deadlines" in <mimo/comm.h>). The copies take time,
 * and bench/bridge_bench reports how much.
 *
 * Threads ("Threads" in <mimo/comm.h>) need this level of MPI_Init_thread:
 *   MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED: only the main thread calls (MPI_Is_thread_main)
 *   MPI_THREAD_SERIALIZED: any thread calls, one at a time, MPI's own calls included
 *   MPI_THREAD_MULTIPLE: different threads use different communicators at once
 * The functions of this header are checked as well. A destroy function that is called by a thread
 * that may not call MPI frees memory and leaves MPI's objects.
 *
 * After MPI_Finalize no function calls MPI. Each call that would need other ranks gets
 * MIMO_ERR_STATE, and so does mimo_comm_abort. Destroy functions free memory, in any order.
 */
#ifndef MIMO_MPI_H
#define MIMO_MPI_H

/* In C++ mpi.h also declares MPI's old C++ classes, which need another library at link time. */
#if defined(__cplusplus) && !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

/**
 * A communicator over the ranks of `mpi`, on a duplicate of it. So the library's messages never
 * match the caller's. Collective over `mpi`, blocking. MPI is initialised, and stays so until the
 * communicator is destroyed. The library's duplicates return errors instead of aborting.
 * The deadline of `desc` (NULL: of the environment) holds for this call as well ("Deadlines" in
 * <mimo/comm.h>). After MIMO_ERR_TIMEOUT the duplication is still in flight on `mpi`: the caller
 * neither frees `mpi` before MPI_Finalize nor duplicates it again, and starts no nonblocking
 * collective on it. (Open MPI 4.1 corrupts memory where it is freed.)
 *
 * Errors on that rank alone: MIMO_ERR_ARGUMENT (NULL, MPI_COMM_NULL, a handle of zeros,
 * intercommunicator), MIMO_ERR_STATE (MPI is not initialised, is finalized, or may not be called by
 * this thread; MPI_COMM_WORLD has one rank, and the environment says that a launcher started more
 * processes. docs/errors.md has its variables, and MIMO_ALONE=1 allows it, as MPI_COMM_SELF does).
 * Errors on every rank: MIMO_ERR_ARGUMENT (the descriptor, the environment), MIMO_ERR_MEMORY,
 * MIMO_ERR_MISMATCH (MIMO_AGREE or MIMO_CHECK=calls differ between ranks), MIMO_ERR_TIMEOUT,
 * MIMO_ERR_COMM.
 */
MIMO_API mimo_status mimo_comm_create_mpi(mimo_comm **out, MPI_Comm mpi,
                                          const mimo_comm_desc *desc);

/**
 * A communicator on `mpi` itself, without a duplicate. The library uses `mpi` until
 * mimo_comm_destroy, and does not free it. Meanwhile the caller sends nothing on `mpi`. The caller
 * sets MPI_ERRORS_RETURN on it where MPI's errors shall come back as statuses. After a deadline or
 * an abort `mpi` can't be used any more, nor freed before MPI_Finalize: what was in flight on it
 * stays in flight. Local. Errors as above, of this rank only.
 */
MIMO_API mimo_status mimo_comm_borrow_mpi(mimo_comm **out, MPI_Comm mpi,
                                          const mimo_comm_desc *desc);

/** Fill a bootstrap (from MIMO_BOOTSTRAP_INIT) from an MPI communicator. `mpi` is borrowed through
 *  *mpi (a pointer to the caller's handle) and must outlive the bootstrap. Local. Errors:
 *  MIMO_ERR_ARGUMENT, MIMO_ERR_STATE, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_bootstrap_from_mpi(mimo_bootstrap *out, MPI_Comm *mpi);

MIMO_END_DECLS

#endif
