/*
 * What the files of the NCCL backend share.
 *
 * A *family* is what one mimo_comm_create_nccl or mimo_comm_borrow_nccl made, and everything split
 * from it. A *shared communicator* is one ncclComm_t: communicators of a family that have the same
 * ranks in the same order share it. A communicator of one rank has none.
 */
#ifndef MIMO_COMM_NCCL_STATE_H
#define MIMO_COMM_NCCL_STATE_H

#include <mimo/nccl.h>

#include "comm/comm_backend.h"
#include "comm/nccl/nccl_program_memory.h"
#include "core/free_list.h"
#include "device/cuda_calls.h"

/* What a shared communicator carries. One that is not of tensors belongs to one communicator. */
typedef enum nccl_use {
    NCCL_TENSORS, /* and host values of communicators that have none for these */
    NCCL_HOST_VALUES,
    NCCL_WINDOWS, /* of buffers alone: no kernel of NCCL runs there */
} nccl_use;

typedef struct nccl_shared_comm {
    struct nccl_shared_comm *next; /* in the family's list */
    ncclComm_t handle;             /* NULL before it is made, and once it was aborted */
    bool borrowed;
    nccl_use use;
    bool failed; /* an NCCL call on it failed on this rank, so peers may wait in it for ever */
    bool ended;  /* its family has, and it stays until a buffer in its windows closes */
    bool busy;   /* inside a call that NCCL continues in the background and can't abort (2.28
                    crashes): then it is never freed, and neither is the memory of that call */
    int users;   /* communicators that share it */
    int size;
    int ranks[]; /* [size], of the family, in order */
} nccl_shared_comm;

typedef struct nccl_family {
    mimo_family base; /* its lock is of both lists */
    int device;
    mimo_allocator allocator; /* of staging; reserve NULL: CUDA's */
    int64_t staging_bytes;    /* of the FIFOs of a communicator (comm/fifos.h) */
    struct nccl_comm *comms;
    ncclConfig_t config;
    nccl_shared_comm *shared;
    mimo_nccl_report report;
    void *launches;           /* of its ring, at their device address; NULL: the device has none */
    bool launches_stay;       /* kernels may write there for ever */
    cudaStream_t host_stream; /* of host values (nccl_host_messages.c), and lists of programs */
} nccl_family;

typedef struct nccl_comm {
    mimo_comm base;
    nccl_family *family;
    struct nccl_comm *next;   /* in the family's list */
    nccl_shared_comm *shared; /* NULL where size is 1 */
    int *ranks;               /* [base.size], of the family */
    /* Its ranks on this host; itself where these are all ranks; NULL before
     * mimo_nccl_connect_same_host. */
    struct nccl_comm *same_host;
    /* Of the ranks of same_host, for windows of buffers alone; NULL where they are one rank, or
     * before mimo_nccl_connect_same_host. */
    nccl_shared_comm *windows;
    /* Of host values alone, which then do not wait for messages that were enqueued before them.
     * NULL before mimo_nccl_part_host_values. */
    nccl_shared_comm *values;
    mimo_free_item *free_requests;
    uint64_t host_calls;         /* so far; the same on all ranks */
    int64_t recoveries;          /* that were tried */
    mimo_program_pool *programs; /* of its exchanges */
} nccl_comm;

/* ------------------------- NCCL results (nccl_errors.c) ---------------------------- */

/* MIMO_OK, or MIMO_ERR_COMM with NCCL's text. Where `code` is ncclInProgress this waits for
 * `handle` (NULL where the call had none), under the deadline of `comm` (NULL: without a
 * deadline). An error that stays with a handle of the family ends the family of `comm`. */
mimo_status mimo_nccl_status(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call);

/* mimo_nccl_status of a call on a communicator's own ncclComm_t. */
#define MIMO_TRY_NCCL(comm, call) \
    MIMO_TRY(mimo_nccl_status((call), (comm), (comm)->shared->handle, #call))

/* mimo_nccl_status of a call that a nonblocking ncclComm_t may continue after ncclSuccess. */
mimo_status mimo_nccl_settle(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call);

/* End a group of ncclSend and ncclRecv on a communicator's own ncclComm_t. The first error counts:
 * that of these calls (`inside`), or that of the end. A group must end after an error as well. */
mimo_status mimo_nccl_end_group(nccl_comm *comm, ncclResult_t inside);

/* mimo_nccl_status of an error that NCCL has met since the last call. MIMO_OK for NULL, which is
 * one rank. Never blocks. */
mimo_status mimo_nccl_check(nccl_comm *comm, const nccl_shared_comm *shared);

/* -------------------- shared communicators (nccl_shared_comm.c) --------------------- */

/* Free memory of the device. What creations take of it is NCCL's memory. */
int64_t mimo_nccl_free_bytes(void);

/* Add one to the family's list, with one user. It owns the handle, which may be NULL for now. */
mimo_status mimo_nccl_shared_comm_add(nccl_shared_comm **out, nccl_family *family,
                                      ncclComm_t handle, const int *ranks, int size);
/* Make one of the ranks of `like` for a use of its own; NULL where these are one rank. Collective
 * over `comm`, blocking; all ranks return the same. */
mimo_status mimo_nccl_shared_comm_make(nccl_shared_comm **out, nccl_comm *comm, nccl_comm *like,
                                       nccl_use use);
/* The one for tensors of these ranks in this order; NULL where there is none. */
nccl_shared_comm *mimo_nccl_shared_comm_find(const nccl_family *family, const int *ranks, int size);
/* Which ranks ncclCommSplit puts together, and for what. */
typedef struct nccl_part {
    int color, key;
    nccl_use use;
} nccl_part;

/* Make the ncclComm_t of this rank's colour by ncclCommSplit; NULL for NCCL_SPLIT_NOCOLOR.
 * Collective over the parent. */
mimo_status mimo_nccl_shared_comm_split(ncclComm_t *out, nccl_comm *parent, nccl_part part);
/* Abort it where its family has ended: the device is idle, so nothing uses its windows any more.
 * By any thread. */
void mimo_nccl_shared_comm_unmap(nccl_family *family, nccl_shared_comm *shared);
/* Drop a user. The last user destroys it, or aborts it after an error. NULL is fine. */
void mimo_nccl_shared_comm_drop(nccl_family *family, nccl_shared_comm *shared);

/* ---------------------------- families (nccl_family.c) ------------------------------ */

/* A family with one user, and without communicators. Local. */
mimo_status mimo_nccl_family_create(nccl_family **out, const mimo_comm_backend *backend,
                                    const mimo_nccl_desc *desc);
/* The backend's function. */
void mimo_nccl_family_release(mimo_family *family);
/* Abort all ncclComm_t of a family except borrowed and busy ones, and those whose windows have
 * buffers. Kernels of NCCL that wait for peers end. */
void mimo_nccl_family_abort(nccl_family *family);
/* A communicator of up to `size` ranks: rank 0, no ranks filled in, no ncclComm_t. Released with
 * mimo_comm_destroy. */
mimo_status mimo_nccl_comm_add(nccl_comm **out, nccl_family *family, int size);
/* Remove a communicator from its family and free it. */
void mimo_nccl_comm_remove(nccl_comm *comm);

/* ----------------------- host values (nccl_host_messages.c) ------------------------- */

/* The backend's slot. */
mimo_status mimo_nccl_part_host_values(mimo_comm *comm);
mimo_status mimo_nccl_host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *values,
                                     int count);
mimo_status mimo_nccl_host_broadcast_start(mimo_request **out, mimo_comm *comm, void *data,
                                           int bytes, int root);
mimo_status mimo_nccl_host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                           const void *from, int bytes);
mimo_status mimo_nccl_request_test(mimo_request *request, bool *done);
void mimo_nccl_request_release(mimo_request *request);
/* Make a request in advance: with space for the reports of an agreement, or for a host
 * all-gather. */
mimo_status mimo_nccl_requests_prepare(nccl_comm *comm);
mimo_status mimo_nccl_host_allgather_prepare(mimo_comm *comm, int bytes);
/* Free all requests that are not in flight. */
void mimo_nccl_requests_free(nccl_comm *comm);

/* ------------------------------ data (nccl_data.c, nccl_exchange.c) ----------------- */

mimo_status mimo_nccl_allreduce_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_reduction *reduction, mimo_stream stream);
mimo_status mimo_nccl_broadcast_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_broadcast *broadcast, mimo_stream stream);
mimo_status mimo_nccl_allgather_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_gather *gather, mimo_stream stream);
mimo_status mimo_nccl_reduce_scatter_start(mimo_request **out, mimo_comm *comm,
                                           const mimo_block_reduction *reduction,
                                           mimo_stream stream);
mimo_status mimo_nccl_alltoall_start(mimo_request **out, mimo_comm *comm,
                                     const mimo_alltoall *alltoall, mimo_stream stream);
mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages);
mimo_status mimo_nccl_exchange_bind(mimo_exchange *exchange, char *const *bases,
                                    uint64_t signature);
mimo_status mimo_nccl_exchange_connect(mimo_comm *comm, mimo_exchange *exchange,
                                       mimo_stream stream);
mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream);
void mimo_nccl_exchange_destroy(mimo_exchange *exchange);

#endif
