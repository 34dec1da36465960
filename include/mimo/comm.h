/*
 * Communicators: a set of ranks, and how bytes move between them.
 *
 *     mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL);   <mimo/mpi.h>: tensors in host memory
 *     mimo_comm_create_nccl(&comm, &bootstrap, &desc);     <mimo/nccl.h>: in device memory
 *     ...                                                  grids, bridges, gradients over it
 *     mimo_comm_destroy(comm);                             last
 *
 * A backend header makes a mimo_comm. Everything else in the library uses this one type. Rules for
 * all that is called on a communicator, or on what was made from one:
 *
 *  - Order. A "collective" function is called by all ranks of the communicator, in the same order
 *    among its other collective calls.
 *  - Errors. On the host a collective call that is wrong on one rank moves no data, and every rank
 *    returns the same status ("Agreement" below). Where a call only enqueues work on a device, a
 *    mistake of one rank is that rank's error alone.
 *  - Ranks that are missing. A call waits for them for ever, or until the deadline where one is set
 *    ("Waits" and "Deadlines" below).
 *  - Threads. One at a time ("Threads" below). A forked child uses none of it ("Processes").
 *  - Ownership. What a function gives through `out` is the caller's, who gives it back with the
 *    destroy function of its type. What a call takes as an argument stays the caller's: tensors
 *    until the call has ended (for calls that only enqueue: until the stream is done), descriptors
 *    and texts during the call. Bridges, dispatches and buffers hold the communicator that they
 *    were made from, and bridges and gradient objects hold their grids: these may be destroyed in
 *    any order. Grids and gradient objects do not hold the communicator: after its end they can
 *    only be destroyed.
 */
#ifndef MIMO_COMM_H
#define MIMO_COMM_H

#include <mimo/tensor.h>

MIMO_BEGIN_DECLS

typedef struct mimo_comm mimo_comm;

/** In a field of a descriptor: what the environment says (<mimo/env.h>), or the default. */
#define MIMO_FROM_ENV (-1)

/**
 * What the communicators of a family have in common ("Deadlines" below: what a family is). A field
 * that is set wins over the environment. All ranks set the same. Start from MIMO_COMM_DESC_INIT: 0
 * is a value. A descriptor in which all is 0, as `{.size = sizeof d}` makes it, has no agreement
 * and no deadline: a warning says so, also where MIMO_LOG is not set (<mimo/log.h>).
 */
typedef struct mimo_comm_desc {
    size_t size;      /* set by the initializer */
    int agree;        /* as MIMO_AGREE: 1 or 0 */
    int checks;       /* as MIMO_CHECK: bits of <mimo/env.h>, MIMO_CHECK_REPLICAS | ...; 0: none */
    int64_t deadline; /* as MIMO_DEADLINE_MS: milliseconds; 0: none */
    /* Experimental. */
    int64_t stall;                     /* as MIMO_STALL_MS: milliseconds; 0: no line */
    int (*interrupted)(void *context); /* asked while the host waits ("Waits" below); NULL: no */
    void *context;                     /* borrowed; passed to `interrupted` */
    int64_t ring;                      /* as MIMO_RING: MIMO_RING_OFF, _MEMORY or _FILE */
    const char *ring_folder;           /* as MIMO_RING_FOLDER; NULL: what the environment says */
} mimo_comm_desc;

#define MIMO_COMM_DESC_INIT                                                                       \
    {                                                                                             \
        sizeof(mimo_comm_desc), MIMO_FROM_ENV, MIMO_FROM_ENV, MIMO_FROM_ENV, MIMO_FROM_ENV, NULL, \
            NULL, MIMO_FROM_ENV, NULL                                                             \
    }

MIMO_API void mimo_comm_desc_init(mimo_comm_desc *out, size_t size);

/**
 * What a launcher provides, so that a backend can start without knowing the launcher.
 *
 * allgather: collective over all ranks, blocking. Every rank gives `bytes` bytes at `from` and
 * receives bytes * (number of ranks) bytes at `to`, in rank order. Returns 0, or non-zero on
 * failure.
 *
 * The library cannot end this wait, and a deadline does not end it. So where a rank may be missing,
 * allgather itself has a time limit, and returns non-zero when it has passed. It may fail late, or
 * on some ranks only. The library then gives up what it was making, calls allgather no more, and
 * returns MIMO_ERR_COMM with the number. It frees `to` and `from`, so nothing that allgather has
 * begun may still use them.
 */
typedef struct mimo_bootstrap {
    size_t size; /* set by the initializer */
    int rank;    /* this process's, 0 <= rank < ranks */
    int ranks;
    int (*allgather)(void *context, void *to, const void *from, size_t bytes);
    void *context; /* borrowed; passed back to allgather */
} mimo_bootstrap;

#define MIMO_BOOTSTRAP_INIT                      \
    {                                            \
        sizeof(mimo_bootstrap), 0, 0, NULL, NULL \
    }

MIMO_API void mimo_bootstrap_init(mimo_bootstrap *out, size_t size);

typedef enum mimo_reduce {
    MIMO_SUM = 0,
    MIMO_MAX = 1,
} mimo_reduce;

/**
 * Release a communicator. Collective in effect: all ranks release it, in the same order among its
 * other calls. NULL is fine. It never finalizes MPI; after MPI_Finalize it only frees memory. On
 * MPI it waits for no rank: MPI's own communicator is freed once all ranks have released it. A rank
 * looks for that when it next makes or releases one, and in MPI_Finalize, which waits up to 0.2
 * seconds for it.
 *
 * While bridges, dispatches or buffers made from it exist, nothing is released: the last of them
 * releases it, and mimo_last_error() says how many there are. Gradient objects and grids that have
 * the communicator may only be destroyed afterwards. Communicators that were split from it can
 * still be used.
 */
MIMO_API void mimo_comm_destroy(mimo_comm *comm);

/** This process's rank in the communicator, 0 <= rank < size. Local. */
MIMO_API int mimo_comm_rank(const mimo_comm *comm);

/** Number of ranks. Local. */
MIMO_API int mimo_comm_size(const mimo_comm *comm);

/** Where tensors of this communicator lie. Local. */
MIMO_API mimo_memory mimo_comm_memory(const mimo_comm *comm);

/**
 * Split into one communicator per colour; ranks are ordered by key, ties by parent rank.
 * Collective, blocking. Colour -1 takes part but gets *out = NULL. The caller owns *out.
 *
 * Errors: MIMO_ERR_ARGUMENT (colour < -1), MIMO_ERR_MISMATCH, MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_split(mimo_comm **out, mimo_comm *parent, int color, int key);

/** Element-wise reduction of data[count] in place over all ranks. Collective; blocking on the host,
 *  enqueued with a stream. Counts past 2^31 work. f16 and bf16 are combined in f32.
 *  Errors: MIMO_ERR_ARGUMENT (also where data is no multiple of the element size),
 *  MIMO_ERR_UNSUPPORTED (MIMO_F8), MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_allreduce(mimo_comm *comm, void *data, int64_t count,
                                         mimo_dtype dtype, mimo_reduce op, mimo_stream stream);

/** Gather `bytes` bytes of every rank at `to`, in rank order (size * bytes in all). `from` may be
 *  where this rank's bytes go in `to`; any other overlap is MIMO_ERR_ARGUMENT. Collective;
 *  blocking on the host, enqueued with a stream. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH,
 *  MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_allgather(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                                         mimo_stream stream);

/** Gather `bytes` bytes of host memory of every rank at `to`, in rank order. `to` and `from` are
 *  host memory on every backend: it is for sizes, counts and names, not for tensors. Collective,
 *  blocking the host. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_host_allgather(mimo_comm *comm, void *to, const void *from,
                                              int bytes);

/** Copy `bytes` bytes at `data` from rank `root` to all. Collective; blocking on the host, enqueued
 *  with a stream. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MISMATCH, MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_broadcast(mimo_comm *comm, void *data, int64_t bytes, int root,
                                         mimo_stream stream);

/** Return when every rank has arrived. Collective, blocking the host. Errors: MIMO_ERR_MISMATCH,
 *  MIMO_ERR_COMM. */
MIMO_API mimo_status mimo_comm_barrier(mimo_comm *comm);

/**
 * Make one status out of every rank's own: the agreement that every collective call begins with,
 * for the caller's own steps (did every rank open its file?). Collective, blocking the host.
 *
 * `local` is this rank's status; where it is an error, mimo_last_error() is the sentence that
 * travels (mimo_fail sets it). Returns MIMO_OK where every rank passed MIMO_OK; otherwise, on every
 * rank, the status and the sentence ("rank 3: ...") of the lowest failing rank. A `local` that is
 * no mimo_status counts as MIMO_ERR_ARGUMENT, with its number. Not removed by MIMO_AGREE=0.
 */
MIMO_API mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local);

/* ---------------------------------------- agreement ----------------------------------------- */
/*
 * On the host a collective call begins with one agreement of all ranks on their status and on the
 * call's signature (operation, sequence number, sizes, dtype). A call that is wrong on one rank
 * moves no data, and *every* rank returns the error of the first failing rank. Ranks that called
 * differently all get MIMO_ERR_MISMATCH, which names the first rank that differs from rank 0. If
 * the communicator, or the object that has it, is NULL on one rank, that rank fails alone.
 *
 * MIMO_AGREE=0 in the environment, or agree = 0 in the communicator's descriptor, removes the
 * agreement and its protection. It does not remove those that create communicators, buffers, groups
 * of grids, bridges and gradients. These also compare this choice and that of MIMO_CHECK=calls,
 * because ranks that differ in them would wait for each other: MIMO_ERR_MISMATCH, with the rank and
 * the variable.
 *
 * A call that only enqueues work on a device does not agree, as the host would have to wait. A
 * mistake of one rank then fails on that rank alone. MIMO_CHECK=calls, or MIMO_CHECK_CALLS in the
 * descriptor, adds the agreement, for a run that looks for such a mistake.
 *
 * Any collective call returns MIMO_ERR_TIMEOUT where a deadline is set and has passed, and
 * MIMO_ERR_ABORTED where a rank aborted. Afterwards every later call returns the same at once.
 */

/* ----------------------------------------- threads ------------------------------------------ */
/*
 * One thread at a time uses a communicator and what was made from it (bridges, buffers, gradient
 * rules). Any thread may take its turn: an object belongs to no thread. A call that meets another
 * thread inside of one gets MIMO_ERR_STATE, on that rank alone: it did not begin, and where it is
 * collective the other ranks still wait for it. A destroy function then releases nothing, and
 * mimo_last_error() says so. (Grids and gradient objects free their memory, and their groups stay.)
 *  - On MPI the level that MPI was initialised with decides. Below MPI_THREAD_SERIALIZED only MPI's
 *    main thread may call. Another thread gets MIMO_ERR_STATE with the level, on that rank alone.
 *    With MPI_THREAD_SERIALIZED threads take turns, with each other and with the program's own
 *    calls of MPI. With MPI_THREAD_MULTIPLE different threads use different communicators at once.
 *  - On NCCL different threads use communicators of different creations at once. Those split from
 *    one share a stream and NCCL communicators, so their threads take turns.
 *  - These four may be called by any thread at any time, also while another one is inside a call:
 *    mimo_comm_abort, mimo_comm_state, mimo_comm_set_deadline, mimo_comm_forget.
 */

/* ---------------------------------------- processes ----------------------------------------- */
/*
 * A child that was forked off has copies of the parent's objects, and must not use them. Each call
 * that moves data, agrees, waits or tests gets MIMO_ERR_STATE there, and so do mimo_comm_state,
 * mimo_comm_abort, mimo_comm_set_deadline and mimo_bridge_select. To destroy an object in the child
 * leaves everything as it is. Nothing there waits, and no message of the parent is touched. Grids,
 * plans and partitions are memory alone and work in the child. All other questions about an object
 * (rank, size, tile, samples, staging, group, text, ...) are answered from the child's copy, as of
 * the fork; mimo_gradient_add counts in that copy alone. (A fork by other means than fork() is not
 * noticed.)
 */

/* ------------------------------------------ waits ------------------------------------------- */
/*
 * A call that waits for other ranks polls: it looks, yields the processor and looks again. Where
 * ranks of the family's first communicator outnumber the processors of this host that they may run
 * on, it also sleeps between two looks, once it has waited for some 3 ms: at most 1/64 of the
 * time that it has waited, and at most a millisecond. The more bytes of tensors it waits for, the
 * later that begins. MIMO_WAIT (<mimo/env.h>) says that waits sleep where other programs need the
 * processors, or that they never do. A borrowed communicator does not know where its ranks run: its
 * waits sleep where MIMO_WAIT says so.
 *
 * A wait moves on the operations of all bridges of the family (a communicator and all that were
 * split from it), whatever communicator it waits on: so ranks may begin operations on several
 * communicators, and wait for them in different orders. Under MPI_THREAD_MULTIPLE, where other
 * threads may be inside of other communicators, it moves those of its own communicator alone; there
 * all ranks wait in the same order.
 *
 * A host that has waited for a minute in one call says so in a warning of the log (<mimo/log.h>),
 * and again after 2, 4, 8 ... minutes (MIMO_STALL_MS; 0: never):
 *
 *     barrier: rank 0 of 4 has waited 60 s in communicator 0; no sign of rank 2
 *
 * It has the call's words, and the communicator's number: 0 is the first of its family, the others
 * have numbers that are the same on all of their ranks. On MPI ranks that wait tell ranks 0 and 1
 * of their communicator. So the line of rank 0 names the ranks from which nothing has come. Where
 * rank 0 is one of them, the line of rank 1 names them, and where neither takes what it is told,
 * all lines name these two. They are numbered as in the family's first communicator: where ranks
 * have other numbers there, lines say so ("rank 0 of 2 (rank 4 of communicator 0)", "no sign of
 * rank 5 of communicator 0"). A rank that waits in another communicator's call is one of
 * these. Nothing is told on NCCL, nor where MPI's communicator is borrowed. Work that is only
 * enqueued on a device makes no host wait, so nothing is said of it, until mimo_comm_synchronize
 * waits for it.
 *
 * `interrupted` of the descriptor is called every 50 milliseconds while the host waits, in the
 * thread that waits: for signals that an interpreter has taken, for example. 0 lets the wait go on.
 * Anything else ends it, and with it the family, as mimo_comm_abort does: the call gets
 * MIMO_ERR_ABORTED, and its peers wait for a rank that has left. The function must not call the
 * library. It may be called until no call of the family runs any more.
 */

/* ---------------------------------------- deadlines ----------------------------------------- */
/*
 * A rank that is missing, late or dead would let the others wait for ever. With a deadline, a call
 * in which the host has waited that long ends with MIMO_ERR_TIMEOUT. The sentence names the call.
 * On MPI it also names the ranks that gave no sign of waiting, numbered as in the communicator that
 * all others were split from. It ends with whom the ranks of this host wait for: mimo_comm_verdict,
 * whose words a warning of a long wait has as well. A rank that gives up tells the others. So all
 * ranks that wait end within twice the deadline, and a rank that comes late learns of it at its
 * next call.
 *
 * A *family* is a communicator of a backend header and all that was split from it. It ends as a
 * whole on a rank: afterwards every call fails at once with the same status and sentence. What
 * remains is to destroy bridges, groups, grids and communicators, and none of that waits. The
 * process goes on. What is local can be used (grids, plans, partitions, tensors), and so can
 * communicators of another mimo_comm_create_mpi or mimo_comm_create_nccl. The ranks that are left
 * can make a new one.
 *
 *  - MPI can't cancel collectives, nor a message that has begun to move. So where a deadline is in
 *    force when a call begins on this rank, MPI never gets the caller's memory. Rows go through
 *    memory of the library, and are copied into the caller's when all have come. After such a call
 *    returns, with whatever status, the caller may use or free its memory. (The exception is a
 *    destination in a mimo_buffer: peers write there themselves, and <mimo/buffer.h> says when they
 *    stop.) For this a communicator keeps as much memory as its largest call sends and receives on
 *    the rank, and so does a bridge. Memory of a call that was given up is never freed.
 *  - On MPI a call can begin without a deadline in force. If it ends with MIMO_ERR_ABORTED (or with
 *    MIMO_ERR_TIMEOUT, which another rank can cause), its tensors must not be touched or freed
 *    before MPI_Finalize, the source included. MPI may still read and write them, and where they
 *    were freed a later call of MPI crashes.
 *  - On MPI staging in flight is kept. MPI's own communicators are never freed, also on ranks that
 *    had released theirs before: a rank that gives up may still send on them. Where a rank has
 *    died, MPI_Finalize may hang: end with _exit.
 *  - On NCCL the communicators are aborted, which ends the kernels that wait inside a device. A
 *    stream of such a call runs to its end, and what it wrote is unspecified. Aborted kernels pass
 *    on what they have. So a rank first waits for a quarter of its deadline, in which those that
 *    wait with it give up as well; a stream of a rank that comes later may run to its end, and its
 *    next agreement fails. An error after which NCCL moves nothing (it lost a peer) ends the family
 *    in the same way, with MIMO_ERR_COMM.
 *  - A deadline does not hold where NCCL makes communicators, nor inside MPI_Comm_split. All ranks
 *    are known to have arrived there, and have all that they need. But if a rank is killed in that
 *    instant, or leaves because of its deadline or an abort, ranks that are inside stay there. Only
 *    who started the processes can end them (mpirun does, where it sees one die). On MPI two kinds
 *    of groups do without MPI_Comm_split, and the deadline holds: groups of one rank, and one group
 *    of all ranks in the order of their communicator (such as the one of each bridge). What splits:
 *    the creation of groups of a grid and of collective bridges, MIMO_CHECK=replicas in the
 *    creation of a bridge, and a mimo_gradient_finalize that sums over a group for the first time.
 *    So a program makes all of them before its first step, the last by mimo_gradient_prepare.
 */

/** The longest deadline: 30 days, in milliseconds. */
#define MIMO_DEADLINE_MOST 2592000000LL

/**
 * Set how long the host waits in one call; 0: for ever. It holds for the communicator's whole
 * family, future splits included. A new family begins with MIMO_DEADLINE_MS of the environment.
 * Calls in flight obey it at once, but whether MPI got their tensors was decided when they began.
 * Time in which the host did not check (between two calls of mimo_op_test, for example) counts for
 * at most an eighth of the deadline. Local; best the same on every rank. MIMO_ERR_ARGUMENT: not in
 * [0, MIMO_DEADLINE_MOST].
 */
MIMO_API mimo_status mimo_comm_set_deadline(mimo_comm *comm, int64_t milliseconds);

/** The deadline in force; 0: none. Local. */
MIMO_API int64_t mimo_comm_deadline(const mimo_comm *comm);

/**
 * End the communicator's family as a deadline would, with MIMO_ERR_ABORTED and the caller's reason
 * (NULL is fine). Local, does not block, and only the first reason counts. It does nothing where
 * the family has ended already. Any thread may call it at any time before the communicator is
 * destroyed: a watchdog, for example. Which thread then calls the transport:
 *  - Another thread is inside a call of the family (whatever it waits for there). This call only
 *    asks. The other thread ends the family where it next looks, within microseconds, and its call
 *    gets MIMO_ERR_ABORTED. If that call does not wait, it may still succeed, and the family ends
 *    with it. A wait inside MPI or NCCL itself is not ended ("Deadlines" above
 *    says which, and <mimo/nccl.h>), nor is a wait of a destroy function for its peers.
 *  - No thread is inside, on NCCL. This call aborts the NCCL communicators. So a thread that is
 *    blocked outside the library, in cudaStreamSynchronize for example, goes on.
 *  - No thread is inside, on MPI. With MPI_THREAD_MULTIPLE, or in the thread that called last, this
 *    call tells the other ranks, who end when they next wait. Any other thread leaves that to this
 *    rank's next call, as it can't know whether MPI is being called at that moment.
 * Errors: MIMO_ERR_ARGUMENT (NULL), MIMO_ERR_STATE (a forked child; MPI is finalized).
 */
MIMO_API mimo_status mimo_comm_abort(mimo_comm *comm, const char *why);

/** MIMO_OK, or the status that the communicator's family has ended with; MIMO_ERR_ABORTED as soon
 *  as a thread has aborted it. Local, in any thread. */
MIMO_API mimo_status mimo_comm_state(const mimo_comm *comm);

/** Wait until the work on a stream is done, as cudaStreamSynchronize does, but under the deadline.
 *  Use it to wait for calls that only enqueue. On the host it does not wait. Local. Errors:
 *  MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED, MIMO_ERR_DEVICE, and on a device MIMO_ERR_MISMATCH where
 *  ranks called differently into a buffer of the communicator (<mimo/buffer.h>). */
MIMO_API mimo_status mimo_comm_synchronize(mimo_comm *comm, mimo_stream stream);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/**
 * Element-wise reduction over all ranks, of which each rank gets a block. `from` holds size * count
 * elements: a block of count elements for each rank, in rank order. to[count] gets this rank's
 * block, combined over the ranks. `to` may be where that block lies in `from` (from + rank * count
 * elements), and then it alone of `from` is written. Any other overlap is MIMO_ERR_ARGUMENT.
 *
 * Collective; blocking on the host, enqueued with a stream. Counts past 2^31 work. f16 and bf16 are
 * combined in f32. The order of the additions may be another one than that of mimo_comm_allreduce.
 * Errors: MIMO_ERR_ARGUMENT (also where `to` or `from` is no multiple of the element size),
 * MIMO_ERR_UNSUPPORTED (MIMO_F8), MIMO_ERR_OVERFLOW (size * count), MIMO_ERR_MISMATCH,
 * MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_reduce_scatter(mimo_comm *comm, void *to, const void *from,
                                              int64_t count, mimo_dtype dtype, mimo_reduce op,
                                              mimo_stream stream);

/** A gather of host bytes that was begun. */
typedef struct mimo_host_gather mimo_host_gather;

/**
 * Begin mimo_comm_host_allgather, and wait for its end later: every rank's bytes are then at `to`.
 * Other calls may come between. The start is collective, and the ranks agree there, which blocks
 * the host; `from` is free when it returns, and `to` belongs to the call until the wait. Every rank
 * waits for what it has begun, once. The communicator stays until then. The wait sets *gather to
 * NULL, except where MIMO_ERR_STATE says that this thread or process may not call. NULL: nothing.
 *
 * name: whose gather it is, the same on every rank (otherwise MIMO_ERR_MISMATCH); NULL: nobody's.
 * Text, read during the start; its first 128 bytes stand in sentences.
 *
 * Errors: those of mimo_comm_host_allgather; of the wait also MIMO_ERR_TIMEOUT, MIMO_ERR_ABORTED.
 */
MIMO_API mimo_status mimo_comm_host_allgather_start(mimo_host_gather **out, mimo_comm *comm,
                                                    void *to, const void *from, int bytes,
                                                    const char *name);
MIMO_API mimo_status mimo_comm_host_allgather_wait(mimo_host_gather **gather);

/**
 * Copy a part from each rank to each rank. `from` and `to` hold size * bytes bytes each: one part
 * of `bytes` bytes for each rank, in rank order. Part r of `to` gets this rank's part of rank r's
 * `from`. `to` and `from` do not overlap: anything else is MIMO_ERR_ARGUMENT.
 *
 * Collective; blocking on the host, enqueued with a stream. Sizes past 2^31 work. Under a deadline
 * a call on MPI takes 2 * size * bytes bytes of host memory. Errors: MIMO_ERR_ARGUMENT,
 * MIMO_ERR_OVERFLOW (size * bytes), MIMO_ERR_MISMATCH, MIMO_ERR_COMM, MIMO_ERR_MEMORY.
 */
MIMO_API mimo_status mimo_comm_alltoall(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                                        mimo_stream stream);

/**
 * mimo_comm_agree for a step that has a name ("load", say). Sentences of deadlines name it. Ranks
 * that agree on steps of different names get MIMO_ERR_MISMATCH. `name` is text, read during the
 * call; its first 191 bytes stand in sentences. Collective, blocking the host. Errors as those of
 * mimo_comm_agree, and MIMO_ERR_ARGUMENT (name is NULL).
 */
MIMO_API mimo_status mimo_comm_agree_named(mimo_comm *comm, mimo_status local, const char *name);

enum { MIMO_VERDICT_RANKS = 8, MIMO_VERDICT_TEXT = 1024 };

/** Who waits for whom in a family. */
typedef struct mimo_verdict {
    size_t size;        /* set by the initializer */
    int waits;          /* 1: some rank waits for others */
    int stands;         /* 1: and that is not because data is on its way, as far as can be seen */
    int64_t rank_count; /* that others wait for and that do not wait themselves */
    int ranks[MIMO_VERDICT_RANKS]; /* the first of them, numbered as in the family's first
                                      communicator */
    char text[MIMO_VERDICT_TEXT];  /* in words; "": there are no rings to read */
} mimo_verdict;

#define MIMO_VERDICT_INIT                   \
    {                                       \
        sizeof(mimo_verdict), 0, 0, 0, {0}, \
        {                                   \
            0                               \
        }                                   \
    }

MIMO_API void mimo_verdict_init(mimo_verdict *out, size_t size);

/**
 * Who waits for whom now, in the communicator's family, as far as ranks of this host can tell: each
 * rank keeps its last calls in memory that the others of its host read (MIMO_RING in <mimo/env.h>).
 * After MIMO_ERR_TIMEOUT it is what was so when this rank gave up; its sentence ends with the same
 * words. All other ends of a family leave the text empty, and so does a ring that is off.
 *
 * `out` began with MIMO_VERDICT_INIT. Local: it waits for no rank, and calls no transport. Any
 * thread. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_STATE (a forked child).
 */
MIMO_API mimo_status mimo_comm_verdict(mimo_verdict *out, const mimo_comm *comm);

/**
 * Leave the communicator's whole family for good, and release the communicator: for garbage
 * collection, and for exits after an error. Local. Waits for no rank, and tells none. A rank
 * that waits for this one waits until its deadline. (Where it shall know, call mimo_comm_abort
 * first, in a thread that tells the others.) Any thread may call it, also while another one is
 * inside a call of the family: that call ends with MIMO_ERR_ABORTED. NULL is fine.
 *
 * Everything else that was made from the family (communicators split from it, bridges, buffers,
 * gradient objects, groups of grids) stays the caller's. Each is destroyed by its own function, or
 * not at all, which leaks its memory. Once no call of the family runs any more, they may be
 * destroyed in any order, by any thread, different ones by several threads at once. None of that
 * waits for a rank or calls MPI, whatever its level of threads. Operations in flight end:
 * mimo_op_wait gives MIMO_ERR_ABORTED at once. All other calls that need other ranks do the same.
 *
 * Memory that others may still use:
 *  - On MPI, tensors of operations in flight are as after mimo_comm_abort ("Deadlines" above).
 *    Staging in flight stays, and so do MPI's own objects and this rank's part of each buffer.
 *    After MPI_Finalize all memory is freed.
 *  - On NCCL the NCCL communicators are aborted, except a borrowed one. That and the release of
 *    device memory wait for work on this rank's device. A rank that has ended its last call may
 *    still be needed by its peers' kernels: so ranks first meet in mimo_comm_barrier, after
 *    mimo_comm_synchronize, where the last call's results count.
 *  - Peers that do not know of it may write into this rank's buffers. On the host, and in
 *    buffers that the library allocated on a device, the physical memory lives until each peer
 *    has released its part of the buffer, so such writes are lost and harm nobody. This rank's
 *    addresses end with mimo_buffer_destroy. Memory of mimo_buffer_borrow is the caller's:
 *    <mimo/buffer.h> says when it can be used again.
 */
MIMO_API void mimo_comm_forget(mimo_comm *comm);

#endif

MIMO_END_DECLS

#endif
