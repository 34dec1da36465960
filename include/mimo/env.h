/* The environment rows that the library reads, in one table. */
#ifndef MIMO_ENV_H
#define MIMO_ENV_H

#include <stdint.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/** One row per variable: X(id, name, default, help). Values are whole numbers, read at each use (no
 *  state is kept). A value that is not a number is an error at the call that reads it. */
#define MIMO_ENV_LIST(X)                                                                      \
    X(MIMO_ENV_AGREE, "MIMO_AGREE", 1,                                                        \
      "1: every collective call that the host waits for first agrees on status and "          \
      "signature over its ranks; 2: calls that only enqueue work on a device do too; "        \
      "0: no agreement, a call that fails on one rank can strand the others")                 \
    X(MIMO_ENV_CTAS, "MIMO_CTAS", 0,                                                          \
      "thread blocks of a device that a zero-copy transfer may take; 0: enough for the link") \
    X(MIMO_ENV_CHECK_REPLICAS, "MIMO_CHECK_REPLICAS", 0,                                      \
      "1: bridge forward verifies that the source tensor is the same on all src tp ranks")    \
    X(MIMO_ENV_DEADLINE, "MIMO_DEADLINE_MS", 0,                                               \
      "milliseconds that the host waits for other ranks in one call before it gives "         \
      "up with MIMO_ERR_TIMEOUT; 0: for ever (mimo_comm_set_deadline changes it)")

typedef enum mimo_env_id {
#define MIMO_ENV_ENUM(id, name, value, help) id,
    MIMO_ENV_LIST(MIMO_ENV_ENUM)
#undef MIMO_ENV_ENUM
} mimo_env_id;

typedef struct mimo_env_row {
    const char *name;
    int64_t value; /* the default */
    const char *help;
} mimo_env_row;

/** The table; *count rows. Never NULL, owned by the library. Thread-safe. */
MIMO_API const mimo_env_row *mimo_env_table(int *count);

/** The value in force: the environment's, or the default. MIMO_ERR_ARGUMENT where the environment
 *  holds something that is not a whole number. Thread-safe while nobody calls setenv. */
MIMO_API mimo_status mimo_env_get(mimo_env_id id, int64_t *out);

MIMO_END_DECLS

#endif
