/*
 * What the files of the NCCL backend share.
 *
 * A *root* is what one mimo_comm_create_nccl or _borrow_nccl made, and everything split from it. A
 * *team* is one NCCL communicator: a list of ranks of the root. Communicators over equal groups
 * share a team; a group of one rank has none.
 */
#ifndef MIMO_COMM_NCCL_STATE_H
#define MIMO_COMM_NCCL_STATE_H

#include <mimo/nccl.h>

#include "comm/comm_backend.h"
#include "device/cuda_calls.h"

typedef struct nccl_team {
    struct nccl_team *next; /* in the root's list */
    ncclComm_t handle;      /* NULL once it was aborted */
    bool borrowed;
    bool unshared; /* of one user: equal groups do not share it */
    bool failed;   /* a call of it did on this rank: peers may have given up what it waits for */
    bool busy; /* in a call that NCCL goes on with behind it and can't abort (2.28 crashes): then it
                  is left to itself, with what it was given, instead */
    int users; /* communicators that share it */
    int size;
    int ranks[]; /* [size], of the root, in the team's order */
} nccl_team;

typedef struct nccl_root {
    mimo_family family;
    int users; /* communicators, */
    struct nccl_comm *comms;
    ncclConfig_t config;
    nccl_team *teams;
    mimo_nccl_report report;
    cudaStream_t words; /* the stream of host words */
} nccl_root;

typedef struct nccl_comm {
    mimo_comm base;
    nccl_root *root;
    struct nccl_comm *next;    /* in the root's list */
    nccl_team *team;           /* NULL where size is 1 */
    int *ranks;                /* [base.size], of the root */
    struct nccl_comm *on_host; /* its ranks on this host, itself where these are all; NULL until
                                  they were asked for (nccl_hosts.h) */
    nccl_team *windows;        /* theirs, for the windows of buffers alone; NULL where they are
                                  one rank, or not asked for */
    mimo_request *spare;
} nccl_comm;

extern const mimo_comm_backend mimo_nccl_backend;

/* --------------------------- NCCL results (nccl_calls.c) --------------------------- */

/* MIMO_OK, or MIMO_ERR_COMM with NCCL's words. ncclInProgress is waited for on `handle` (NULL where
 * the call had none), under the deadline of `comm` (NULL: for as long as it takes). */
mimo_status mimo_nccl_status(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call);

/* The same for a call on a communicator's own team. */
#define MIMO_TRY_NCCL(comm, call) \
    MIMO_TRY(mimo_nccl_status((call), (comm), (comm)->team->handle, #call))

/* The same where a nonblocking communicator may still be at it though its call gave ncclSuccess. */
mimo_status mimo_nccl_settle(ncclResult_t code, nccl_comm *comm, ncclComm_t handle,
                             const char *call);

/* MIMO_ERR_COMM where NCCL has met an error since the last call. Never blocks. */
mimo_status mimo_nccl_check(const nccl_team *team);

/* Free memory of the device: NCCL's share is what creation takes of it. */
int64_t mimo_nccl_free_bytes(void);

/* The NCCL type of a dtype; f8 moves as bytes. */
ncclDataType_t mimo_nccl_type(mimo_dtype dtype);

/* -------------------------------- teams (nccl_team.c) ------------------------------- */

/* Take a team into the root's list, with one user; the handle, or NULL for now, is the team's. */
mimo_status mimo_nccl_team_add(nccl_team **out, nccl_root *root, ncclComm_t handle,
                               const int *ranks, int size);
/* A team of these ranks in this order that can be shared; NULL where there is none. */
nccl_team *mimo_nccl_team_find(const nccl_root *root, const int *ranks, int size);
/* Give a team up; the last user destroys it, or aborts it after an error. */
void mimo_nccl_team_drop(nccl_root *root, nccl_team *team);
/* Abort all teams but borrowed and busy ones: what waits for a peer inside the device ends. */
void mimo_nccl_teams_abort(nccl_root *root);

/* ----------------------- host words in flight (nccl_words.c) ------------------------ */

mimo_status mimo_nccl_host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *words,
                                     int count);
mimo_status mimo_nccl_host_broadcast_start(mimo_request **out, mimo_comm *comm, void *data,
                                           int bytes, int root);
mimo_status mimo_nccl_host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                           const void *from, int bytes);
mimo_status mimo_nccl_words_test(mimo_request *request, bool *done);
void mimo_nccl_words_release(mimo_request *request);
/* Make a request ahead, with room for a sentence of every rank, or for a collect; and free all that
 * are not in flight. */
mimo_status mimo_nccl_words_prepare(nccl_comm *comm);
mimo_status mimo_nccl_host_allgather_prepare(mimo_comm *comm, int bytes);
void mimo_nccl_words_free(nccl_comm *comm);

/* ------------------------------ data (nccl_data.c, nccl_exchange.c) ----------------- */

mimo_status mimo_nccl_allreduce_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_reduction *reduction, mimo_stream stream);
mimo_status mimo_nccl_broadcast_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_broadcast *broadcast, mimo_stream stream);
mimo_status mimo_nccl_allgather_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_gather *gather, mimo_stream stream);
mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages);
mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream);
void mimo_nccl_exchange_destroy(mimo_exchange *exchange);

#endif
