/*
 * What a family writes into its ring (src/ring), and what it reads from those of other ranks.
 *
 * A *record* is one call of a communicator, by the number that the ranks count alike
 * (`calls` of mimo_comm). It begins where an agreement does. That of a blocking call ends with the
 * scope of the public call (comm/calls.h), or where the scope begins the next one. An operation has
 * a record of its own, which ends with the operation. What a wait waits for is recorded by the
 * waiter. So no call has code of its own for this.
 *
 * Nothing here fails a call, waits, or calls a transport. A family without a ring records nothing.
 */
#ifndef MIMO_COMM_RECORDER_H
#define MIMO_COMM_RECORDER_H

#include "comm/comm_backend.h"
#include "ring/ring_process.h"
#include "ring/ring_verdict.h"
#include "ring/ring_writer.h"

struct mimo_waiter;

typedef struct mimo_peer_ring {
    int rank;
    mimo_ring_memory memory;
} mimo_peer_ring;

typedef struct mimo_recorder {
    mimo_ring *ring; /* NULL: none is written */
    mimo_ring_identity self;
    int rank, size;
    mimo_peer_ring *peers; /* peers[peer_count]: of other ranks of this host, mapped */
    int peer_count;
    mimo_ring_identity *members; /* members[size]: who runs the ranks; NULL: it is not known */
    mimo_ring_verdict verdict;   /* of the family's end */
    bool judged;                 /* it has one */
    /* The device lets go of the page of launches. False: a kernel may still write there. NULL: no
     * device has it. */
    bool (*let_go)(mimo_family *family, void *page);
} mimo_recorder;

/* ------------------------------ its life (recorder.c) ------------------------------ */

/* Begin the ring of a family, as its descriptor said (mimo_family_init). Where this system or the
 * folder has no room for one, a warning says so. MIMO_ERR_MEMORY. */
MIMO_BACKEND_API mimo_status mimo_recorder_begin(mimo_family *family, int rank, int size);
void mimo_recorder_end(mimo_family *family, bool stays);

/* What has become of a rank's process, of the family's ranks; unknown where nobody was told. */
mimo_ring_life mimo_recorder_life(const mimo_family *family, int rank);

/* What the ranks tell each other at creation: who this process is. */
MIMO_BACKEND_API void mimo_recorder_identity(mimo_ring_identity *out, const mimo_family *family);

/* All ranks have told: all[size]. Map the rings of this host. MIMO_ERR_MEMORY. */
MIMO_BACKEND_API mimo_status mimo_recorder_meet(mimo_family *family, const mimo_ring_identity *all);

/* A communicator is made and has its id; it is released. ranks[size]: in the family; NULL: all. */
MIMO_BACKEND_API void mimo_recorder_add(mimo_comm *comm, const int *ranks);
void mimo_recorder_remove(mimo_comm *comm);

/* `used_with` of a communicator was set. */
void mimo_recorder_share(const mimo_comm *comm);

/* Name the object that a communicator belongs to: "bridge 'image'". */
void mimo_recorder_title(const mimo_comm *comm, const char *title);

/* ----------------------------- kernels (record_launches.c) -------------------------- */

/* The page of the ring where a device says what its kernels do (ring_launches.h); NULL: the ring is
 * off, or a file, whose pages no device may hold. */
void *mimo_recorder_launches(const mimo_family *family);

/* Launches of an object of the communicator; NULL: nothing is said of its kernels. Give them back
 * when no kernel writes there any more. */
mimo_ring_launches *mimo_recorder_take_launches(const mimo_comm *comm);
void mimo_recorder_give_launches(const mimo_comm *comm, mimo_ring_launches *launches);
/* `alike`: all ranks of the communicator make the same. NULL launches are fine, as below. */
void mimo_recorder_name_launches(const mimo_comm *comm, mimo_ring_launches *launches,
                                 const char *title, bool alike);
/* A launch was enqueued; `captured`: into a graph. */
void mimo_recorder_count_launch(mimo_ring_launches *launches, bool captured);

/* ------------------------------- its calls (record.c) ------------------------------- */

/* What an operation says of its record when that begins. */
typedef struct mimo_record {
    mimo_comm *comm; /* where it is open; NULL: it is not */
    mimo_comm *of;   /* the communicator whose title names the object */
    const char *verb;
    int micro_batch, chunks; /* micro_batch -1: there is none */
    int64_t bytes;
    mimo_ring_call call;
} mimo_record;

/* A thread enters its first scope in what `owner` owns, by the public call `call`; it leaves the
 * last one. */
void mimo_record_enter(mimo_comm *comm, mimo_owner *owner, const char *call);
void mimo_record_leave(mimo_comm *comm, mimo_owner *owner);

/* The next record of the scope is of this object: a name that the caller gave. */
void mimo_record_object(mimo_comm *comm, const char *name);

/* Call `number` of the communicator begins. `own` is an operation's; NULL: the scope's. */
void mimo_record_begin(mimo_comm *comm, uint64_t number, mimo_record *own);

/* The scope's record has come to a new state: an agreement has ended with `status` (readers see it
 * with the next state); rows move. */
void mimo_record_agreed(mimo_comm *comm, mimo_status status);
void mimo_record_moving(mimo_comm *comm);

/* The same of an operation: it moves on `comm`; it has ended. */
void mimo_record_op_moves(mimo_record *own, mimo_comm *comm);
void mimo_record_op_ended(mimo_record *own, mimo_status status);

/* `comm->calls` has changed. */
void mimo_record_count(const mimo_comm *comm);
/* This rank has moved `bytes` bytes of tensors itself. */
MIMO_BACKEND_API void mimo_record_bytes(const mimo_comm *comm, int64_t bytes);
/* A request has ended, which moved `bytes` bytes of tensors. */
void mimo_record_step(const mimo_comm *comm, int64_t bytes);

/* A wait has looked and found nothing; it is over. */
void mimo_record_wait(const struct mimo_waiter *waiter);
void mimo_record_wait_over(const struct mimo_waiter *waiter);

/* ---------------------------- verdicts (comm_verdict.c) ----------------------------- */

/* Who waits for whom, as the rings of this host say now. False where none can be read. */
bool mimo_recorder_judge(mimo_ring_verdict *out, const mimo_family *family);

#endif
