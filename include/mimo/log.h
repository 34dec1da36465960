/*
 * Log lines: what the library has to say beside statuses. A program sets a function that takes the
 * lines. Where it has set none, MIMO_LOG=warn in the environment has warnings written to stderr,
 * and MIMO_LOG=warn,info all lines. Where MIMO_LOG is not set, warnings of what the caller has
 * hardly meant are written: a transport chosen by name is not what moves all rows, or a
 * communicator's descriptor is all zeros. MIMO_LOG= (empty) silences them. The library writes
 * nothing else to stdout or stderr.
 */
#ifndef MIMO_LOG_H
#define MIMO_LOG_H

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

typedef enum mimo_log_level {
    MIMO_LOG_WARNING = 1, /* it works, but more slowly than might be expected; a family ended; a
                             loss is NaN or infinite */
    MIMO_LOG_INFO = 2,    /* what was chosen */
} mimo_log_level;

/** Takes one line, without a newline at its end. `text` is valid during the call only. It is called
 *  in the thread that called the library, in the middle of that call: it must not call the library,
 *  except mimo_status_name and mimo_status_text. */
typedef void (*mimo_log_function)(void *context, mimo_log_level level, const char *text);

/** Have `log` called with `context` for each line of the whole process; NULL: none. Local.
 *  No other thread may be inside a call of the library meanwhile. */
MIMO_API void mimo_log_set(mimo_log_function log, void *context);

#endif

MIMO_END_DECLS

#endif
