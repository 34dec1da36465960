/*
 * The NCCL backend: tensors in CUDA memory, one rank per GPU. Not included by <mimo/mimo.h>.
 *
 * Calls that take a stream enqueue their work on it and return; the host does not wait, and nothing
 * is allocated after the first call of the same tensors, so such calls can be captured in a CUDA
 * graph. Everything that works on one device is enqueued in the same order on every rank: two
 * collectives that wait for each other's peers, started in opposite orders on two ranks, deadlock.
 *
 * The calling thread's current device is the communicator's; creation makes it so for its thread.
 * Host words (agreements, splits) travel over NCCL too, on a stream of the library's own.
 *
 * A deadline ("Deadlines" in <mimo/comm.h>) ends what the library waits for on the host, and
 * mimo_comm_synchronize the wait for a stream: NCCL is then aborted, which ends the kernels that
 * wait inside a device. What NCCL itself waits for on the host (creation, splits, the windows of a
 * buffer and the connections of two ranks' first message or of a group's first call) it ends only
 * where NCCL's communicator does not block: made with blocking = 0 in the descriptor, or, where
 * that is left to the library, made while MIMO_DEADLINE_MS is in force. A deadline that is set
 * later does not change it. Windows it then gives up without an abort, which crashes NCCL 2.28
 * there, and leaves that communicator and the memory behind. An abort takes NCCL up to half a
 * second. Other ranks are not told: each has a deadline of its own. A borrowed communicator is
 * never aborted; that is the caller's to do.
 */
#ifndef MIMO_NCCL_H
#define MIMO_NCCL_H

#include <nccl.h>

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

/** A field of mimo_nccl_desc that is left to NCCL, or to the library. */
#define MIMO_NCCL_DEFAULT (-1)

typedef struct mimo_nccl_desc {
    size_t size;     /* set by the initializer */
    int device;      /* CUDA device of this rank; left to the library: its number among the ranks
                        of its host, hosts told apart as NCCL does (NCCL_HOSTID, else the name and
                        the kernel's boot), or the only device that it sees */
    int min_ctas;    /* ncclConfig_t.minCTAs, maxCTAs: thread blocks of NCCL's own kernels */
    int max_ctas;    /*   (all but `device` are the same on every rank) */
    int blocking;    /* ncclConfig_t.blocking: 0 lets NCCL's own waits be polled; left to the
                        library: 0 with MIMO_DEADLINE_MS, otherwise NCCL's default */
    int split_share; /* ncclConfig_t.splitShare: 1 lets groups share their parent's resources */
} mimo_nccl_desc;

#define MIMO_NCCL_DESC_INIT                                                              \
    {                                                                                    \
        sizeof(mimo_nccl_desc), MIMO_NCCL_DEFAULT, MIMO_NCCL_DEFAULT, MIMO_NCCL_DEFAULT, \
            MIMO_NCCL_DEFAULT, MIMO_NCCL_DEFAULT                                         \
    }

/**
 * A communicator over the ranks of a bootstrap (<mimo/mpi.h> fills one from an MPI communicator;
 * any launcher's allgather will do). Collective over the bootstrap, blocking; the bootstrap is used
 * during this call only. Makes the rank's device the calling thread's current one. The caller owns
 * *out.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (`desc` is NULL, no such device, two ranks on
 * one GPU), MIMO_ERR_MISMATCH (descriptors differ), MIMO_ERR_COMM (NCCL failed), MIMO_ERR_DEVICE,
 * MIMO_ERR_MEMORY. Alone fails a rank whose `out` or `bootstrap` is NULL, whose place is outside
 * [0, size), whose bootstrap fails (MIMO_ERR_COMM), or that has no room for what this gathers
 * (under a kilobyte a rank): then the others wait in the bootstrap for as long as that does.
 */
MIMO_API mimo_status mimo_comm_create_nccl(mimo_comm **out, const mimo_bootstrap *bootstrap,
                                           const mimo_nccl_desc *desc);

/**
 * A communicator around one of the caller's, which is borrowed: it stays valid until
 * mimo_comm_destroy and is not destroyed by it. Its calls and the library's keep one order on every
 * rank. Memory of tensors that is registered with it (ncclCommRegister, ncclCommWindowRegister) has
 * to be so at both ends of a message, which is NCCL's own rule: else the message may never end.
 * Makes its device the calling thread's current one. Local, but every rank does it. Errors:
 * MIMO_ERR_ARGUMENT, MIMO_ERR_COMM, MIMO_ERR_DEVICE, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_borrow_nccl(mimo_comm **out, ncclComm_t nccl);

/** What a communicator and all that was split from it hold. The first buffer of a communicator
 *  takes an NCCL communicator for its windows over the ranks of each host, where these are several
 *  (and another one where they are neither all ranks nor a group that is there already); it stays
 *  until that communicator is destroyed. */
typedef struct mimo_nccl_report {
    int communicators;    /* of NCCL, alive, that this rank is in; the first included */
    int shared;           /* splits that took an equal group's communicator instead of a new one */
    int64_t device_bytes; /* device memory that NCCL took when these were made, as the device
                             counts it: other work of the device at that time counts too */
} mimo_nccl_report;

/** Fill *out. Local. Errors: MIMO_ERR_ARGUMENT (NULL, or not an NCCL communicator). */
MIMO_API mimo_status mimo_nccl_report_of(mimo_nccl_report *out, const mimo_comm *comm);

MIMO_END_DECLS

#endif
