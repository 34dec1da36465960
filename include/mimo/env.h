/* The environment variables that the library reads, in one table. */
#ifndef MIMO_ENV_H
#define MIMO_ENV_H

#include <stdint.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/** One row per variable: X(id, name, default, words, help). All except MIMO_ALONE, MIMO_WAIT,
 *  MIMO_LOG and MIMO_RING_KEEP can also be set in a descriptor, which wins: mimo_comm_desc,
 *  mimo_bridge_desc.ctas.
 *  Values are whole numbers; where the row has words, values are lists of these, "calls,samples" or
 *  "", and the number has a bit for each; where the words are "", the value is a text, empty by
 *  default. Any other value is an error at the call that reads it.
 *  The creation of a bridge reads MIMO_CTAS and MIMO_CHECK, and remembers them; that of a gradient
 *  object MIMO_CHECK. The creation of a communicator reads MIMO_DEADLINE_MS, MIMO_STALL_MS,
 *  MIMO_WAIT, MIMO_RING, MIMO_RING_FOLDER and MIMO_RING_KEEP, and checks MIMO_LOG. From an MPI that
 *  knows of one process it reads MIMO_ALONE.
 *  Calls that agree read MIMO_AGREE, and whether MIMO_CHECK has the word `calls`. All ranks set the
 *  same: creations compare MIMO_AGREE and MIMO_CHECK (MIMO_ERR_MISMATCH), other calls do not. */
#define MIMO_ENV_LIST(X)                                                                      \
    X(MIMO_ENV_AGREE, "MIMO_AGREE", 1, NULL,                                                  \
      "1: each collective call that the host waits for begins with an agreement of its "      \
      "ranks on status and signature; 0: only calls that create something do, and another "   \
      "call that fails on one rank can leave the others waiting; the same on all ranks")      \
    X(MIMO_ENV_CHECK, "MIMO_CHECK", 0, "replicas,calls,samples",                              \
      "further checks, a list of: replicas (bridge forward: the source tensor is the same "   \
      "on all src ranks that hold copies; gradient norm: so is the norm of a bucket); calls " \
      "(calls that only enqueue work on a device agree as well, whatever MIMO_AGREE says, "   \
      "and calls of bridges and their self-tests are compared with all other calls of the "   \
      "communicator); samples (bridges: each row carries its origin, which is compared with " \
      "the one that the layouts give)")                                                       \
    X(MIMO_ENV_CTAS, "MIMO_CTAS", 0, NULL,                                                    \
      "thread blocks of a device that a zero-copy or staged call may take, the same on all "  \
      "ranks; 0: enough for the link")                                                        \
    X(MIMO_ENV_DEADLINE, "MIMO_DEADLINE_MS", 0, NULL,                                         \
      "milliseconds that the host waits for other ranks in one call before it gives "         \
      "up with MIMO_ERR_TIMEOUT; 0: for ever (mimo_comm_set_deadline changes it)")            \
    X(MIMO_ENV_WAIT, "MIMO_WAIT", 0, "poll,sleep",                                            \
      "how the host waits, one of: poll (it looks again at once, and yields the "             \
      "processor); sleep (after some 3 ms it also sleeps, for at most 1/64 of the time "      \
      "that it has waited, so that others get the processor); empty: sleep where ranks of "   \
      "the communicator outnumber the processors of this host that they may run on")          \
    X(MIMO_ENV_STALL, "MIMO_STALL_MS", 60000, NULL,                                           \
      "milliseconds that the host waits in one call before a warning of the log says so, "    \
      "and again each time that it has waited twice as long; 0: none does")                   \
    X(MIMO_ENV_LOG, "MIMO_LOG", 0, "warn,info",                                               \
      "lines of the log that are written to stderr where the program takes none, a list of: " \
      "warn (waits that last long, communicators that ended, choices that are slow); info "   \
      "(what was chosen). Not set: only that a transport which was chosen by name does not "  \
      "move all rows; empty: nothing")                                                        \
    X(MIMO_ENV_STAGED, "MIMO_STAGED", 1, NULL,                                                \
      "1: transport AUTO stages messages on devices whose ranks share memory, where that is " \
      "faster, and a communicator with bridges takes memory for it; 0: it sends them; the "   \
      "same on all ranks")                                                                    \
    X(MIMO_ENV_ALONE, "MIMO_ALONE", 0, NULL,                                                  \
      "1: a process is alone on purpose where a launcher started several and MPI knows of "   \
      "this one alone; 0: a communicator from MPI is then refused")                           \
    X(MIMO_ENV_RING, "MIMO_RING", 0, "off,memory,file",                                       \
      "where a process keeps its last calls for mimo-why and for the sentences of deadlines " \
      "to read, one of: memory (which ends with the processes of its ranks); file (in "       \
      "MIMO_RING_FOLDER, where it outlives a process that is killed); off (nowhere); empty: " \
      "memory")                                                                               \
    X(MIMO_ENV_RING_FOLDER, "MIMO_RING_FOLDER", 0, "", "text: the folder for MIMO_RING=file") \
    X(MIMO_ENV_RING_KEEP, "MIMO_RING_KEEP", 0, NULL,                                          \
      "1: a file of MIMO_RING_FOLDER stays when its communicators are released; 0: it is "    \
      "removed then, unless they ended with an error")

/** The bits of MIMO_ENV_CHECK. */
enum { MIMO_CHECK_REPLICAS = 1, MIMO_CHECK_CALLS = 2, MIMO_CHECK_SAMPLES = 4, MIMO_CHECK_ALL = 7 };

/** The bits of MIMO_ENV_RING; two at once are an error. */
enum { MIMO_RING_OFF = 1, MIMO_RING_MEMORY = 2, MIMO_RING_FILE = 4 };

/** The bits of MIMO_ENV_WAIT; both at once are an error. */
enum { MIMO_WAIT_POLL = 1, MIMO_WAIT_SLEEP = 2 };

typedef enum mimo_env_id {
#define MIMO_ENV_ENUM(id, name, value, words, help) id,
    MIMO_ENV_LIST(MIMO_ENV_ENUM)
#undef MIMO_ENV_ENUM
} mimo_env_id;

typedef struct mimo_env_row {
    const char *name;
    int64_t value;     /* the default */
    const char *words; /* "replicas,calls,samples"; NULL: a number; "": a text */
    const char *help;
} mimo_env_row;

/** The table; *count rows. Never NULL, owned by the library. Thread-safe. */
MIMO_API const mimo_env_row *mimo_env_table(int *count);

/** The value in force: the environment's, or the default. MIMO_ERR_ARGUMENT where the environment
 *  holds no number, or a word that the row does not have. The calls that use a value check its
 *  range. Thread-safe while no thread calls setenv. */
MIMO_API mimo_status mimo_env_get(int64_t *out, mimo_env_id id);

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/** The text of a row that holds one: the environment's own, or "". MIMO_ERR_ARGUMENT: the row holds
 *  no text. Thread-safe while no thread calls setenv; valid until the variable is set again. */
MIMO_API mimo_status mimo_env_text(const char **out, mimo_env_id id);

#endif

MIMO_END_DECLS

#endif
