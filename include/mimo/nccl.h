/*
 * The NCCL backend: tensors in CUDA memory, one rank per GPU. Not included by <mimo/mimo.h>.
 *
 * Calls that take a stream enqueue their work on it and return; the host does not wait. After the
 * first call of a shape on a stream nothing is allocated, so such calls can be captured in a CUDA
 * graph. (docs/gpu.md says what makes a shape a new one.) All ranks enqueue the work on one device
 * in the same order. Two collectives that two ranks start in opposite orders deadlock.
 *
 * A call works on the device of its communicator, whatever device is current, and leaves the
 * calling thread's current device as it was, on success and on error. This holds for creation as
 * well, and for calls on what was made from a communicator. One exception: where the current device
 * has no CUDA context yet, nobody chose it, and making it current again would take memory there.
 * Then the communicator's device stays current.
 *
 * Streams and tensors of such a call belong to the communicator's device (mimo_nccl_device). Stream
 * NULL is the legacy default stream of that device. Calls without a communicator (alignment;
 * partitions, except the adjoint under sp) use the caller's current device, as CUDA's own calls do:
 * it must be the one that their tensors and their stream belong to.
 *
 * Host values (agreements, splits) also travel over NCCL, on a stream of the library's own. NCCL
 * keeps the order of all that one communicator moves, so they wait for messages that were enqueued
 * before. The first mimo_bridge_update that gathers spans or rows makes one more NCCL communicator,
 * for the host values of the communicator that the bridge was made from. From then on these do not
 * wait for messages.
 *
 * A deadline ("Deadlines" in <mimo/comm.h>) ends every wait of the library on the host, and the
 * wait for a stream in mimo_comm_synchronize. NCCL is then aborted, which ends the kernels that
 * wait inside a device. An abort takes NCCL up to half a second. Other ranks are not told: each has
 * a deadline of its own. A borrowed communicator is never aborted; the caller does that.
 *
 * NCCL itself waits on the host in creation, in splits, for the windows of a buffer, and for the
 * connections of two ranks' first message or of a group's first call. A deadline ends these waits
 * only where NCCL's communicator does not block. It does not block where the descriptor says
 * blocking = 0, or where it leaves that to the library and a deadline is in force at creation
 * (mimo_comm_desc or MIMO_DEADLINE_MS). A deadline that is set later does not change it. A
 * communicator that does not block costs host time: NCCL starts a thread for every group of
 * messages.
 *
 * A wait for windows is given up without an abort, because the abort crashes NCCL 2.28 there. That
 * NCCL communicator is then never freed, and neither is the memory of the buffer.
 */
#ifndef MIMO_NCCL_H
#define MIMO_NCCL_H

#include <nccl.h>

#include <mimo/comm.h>

MIMO_BEGIN_DECLS

/** A value of mimo_nccl_desc that leaves the choice to NCCL, or to the library. */
#define MIMO_NCCL_DEFAULT (-1)

typedef struct mimo_nccl_desc {
    size_t size; /* set by the initializer */
    /* CUDA device of this rank. MIMO_NCCL_DEFAULT: the number of this rank among the ranks of its
     * host, or the only device that it sees. Hosts are identified as NCCL does: by NCCL_HOSTID,
     * otherwise by their name and their kernel's boot id. */
    int device;
    const mimo_comm_desc *common; /* read at creation; NULL: all as the environment says */
    /* The fields below are the same on every rank. */
    int min_ctas;    /* ncclConfig_t.minCTAs: thread blocks of NCCL's own kernels */
    int max_ctas;    /* ncclConfig_t.maxCTAs */
    int blocking;    /* ncclConfig_t.blocking: 0 lets the library poll NCCL's own waits.
                        MIMO_NCCL_DEFAULT: 0 with a deadline, otherwise NCCL's default */
    int split_share; /* ncclConfig_t.splitShare: 1 lets groups share their parent's resources */
    /* The fields below are each rank's own. They are experimental (<mimo/status.h>).
     *
     * Device memory for staging, from the host's allocator; both functions, or neither. NULL:
     * cudaMallocAsync and cudaFreeAsync. They serve the communicator and all that is split or made
     * from it.
     *   reserve  `bytes` bytes (> 0) of the communicator's device, aligned to 256 bytes, for work
     *            on `stream`; NULL where there are none. The call that asked then fails with
     *            MIMO_ERR_MEMORY (another alignment: MIMO_ERR_ARGUMENT), on this rank alone where
     *            it only enqueues
     *   release  takes back what reserve gave, with the same bytes and stream. Earlier work on
     *            the stream may still use that memory: give it only to later work on the same
     *            stream. The stream itself may be gone
     * They are called on the thread of a call, with the communicator's device current, and never
     * while the stream is captured. They do not call this library. After the first call of a shape
     * on a stream reserve is not called for that shape again. What is not staging does not come
     * from here: buffers (ncclMemAlloc), some kilobytes for host values and lists of rows, and
     * the tiles of mimo_bridge_create_fastest and mimo_bridge_self_test while these last. */
    void *(*reserve)(void *context, size_t bytes, mimo_stream stream);
    void (*release)(void *context, void *data, size_t bytes, mimo_stream stream);
    void *context; /* borrowed; passed to both */
    /* Bytes of device memory on each rank that messages are staged through
     * (MIMO_TRANSPORT_STAGED), divided among the other ranks within reach. A communicator takes
     * them while it has bridges with that transport, or with transport AUTO unless MIMO_STAGED=0.
     * Where ranks give different values, all take the largest. MIMO_NCCL_DEFAULT: 32 MiB. 0: none,
     * such bridges send by p2p. */
    int64_t staging_bytes;
} mimo_nccl_desc;

#define MIMO_NCCL_DESC_INIT                                                                    \
    {                                                                                          \
        sizeof(mimo_nccl_desc), MIMO_NCCL_DEFAULT, NULL, MIMO_NCCL_DEFAULT, MIMO_NCCL_DEFAULT, \
            MIMO_NCCL_DEFAULT, MIMO_NCCL_DEFAULT, NULL, NULL, NULL, MIMO_NCCL_DEFAULT          \
    }

MIMO_API void mimo_nccl_desc_init(mimo_nccl_desc *out, size_t size);

/**
 * A communicator over the ranks of a bootstrap (<mimo/mpi.h> fills one from an MPI communicator;
 * any launcher's allgather will do). Collective over the bootstrap, blocking; the bootstrap is used
 * during this call only, with any device current. The caller owns *out.
 *
 * Errors, the same on every rank: MIMO_ERR_ARGUMENT (`desc` is NULL, no such device, two ranks on
 * one GPU), MIMO_ERR_MISMATCH (descriptors, MIMO_AGREE or MIMO_CHECK=calls differ between ranks),
 * MIMO_ERR_COMM (NCCL failed), MIMO_ERR_DEVICE, MIMO_ERR_MEMORY. A rank fails alone where `out` or
 * `bootstrap` is NULL, its rank is outside [0, ranks), its bootstrap fails (MIMO_ERR_COMM), or it
 * has no memory for what this gathers (under a kilobyte a rank). Then the others wait in the
 * bootstrap as long as the bootstrap does.
 */
MIMO_API mimo_status mimo_comm_create_nccl(mimo_comm **out, const mimo_bootstrap *bootstrap,
                                           const mimo_nccl_desc *desc);

/**
 * A communicator around the caller's own, which is borrowed: it stays valid until
 * mimo_comm_destroy, which does not destroy it. The caller's calls on it and the library's have the
 * same order on every rank. Memory of tensors that is registered with it (ncclCommRegister,
 * ncclCommWindowRegister) must be registered at both ends of a message. That is NCCL's own rule,
 * and otherwise the message may never end. Local, but every rank calls it. `desc` may be NULL; of
 * its fields `common`, the allocator and `staging_bytes` alone count. Errors: MIMO_ERR_ARGUMENT,
 * MIMO_ERR_COMM, MIMO_ERR_DEVICE, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_borrow_nccl(mimo_comm **out, ncclComm_t nccl,
                                           const mimo_nccl_desc *desc);

/** The CUDA device of this rank: the descriptor's, or the one that the library chose. Local.
 *  Errors: MIMO_ERR_ARGUMENT (NULL, or not an NCCL communicator). */
MIMO_API mimo_status mimo_nccl_device(int *out, const mimo_comm *comm);

/** What a communicator and all that was split from it hold. The first buffer of a communicator
 *  makes an NCCL communicator for its windows, over the ranks of each host where these are several.
 *  If these ranks have no communicator yet, as all ranks or as a group, it makes one more for them.
 *  Both stay until the buffer's communicator is destroyed. So does one for host values, which the
 *  first update makes that gathers spans or rows. */
typedef struct mimo_nccl_report {
    size_t size;          /* set by the initializer */
    int communicators;    /* NCCL communicators of this rank that exist, the first included */
    int shared;           /* splits that share the communicator of an equal group */
    int64_t device_bytes; /* device memory that NCCL took when they were made, as the device counts
                             it: other work of the device at that time counts as well */
} mimo_nccl_report;

#define MIMO_NCCL_REPORT_INIT             \
    {                                     \
        sizeof(mimo_nccl_report), 0, 0, 0 \
    }

MIMO_API void mimo_nccl_report_init(mimo_nccl_report *out, size_t size);

/** Fill *out, from MIMO_NCCL_REPORT_INIT. Local. Errors: MIMO_ERR_ARGUMENT (NULL, or not an NCCL
 *  communicator). */
MIMO_API mimo_status mimo_nccl_report_of(mimo_nccl_report *out, const mimo_comm *comm);

MIMO_END_DECLS

#endif
