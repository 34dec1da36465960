/* Lines for the caller's log function (<mimo/log.h>). */
#ifndef MIMO_CORE_LOGGING_H
#define MIMO_CORE_LOGGING_H

#include <mimo/log.h>

/* One line, printf-like; nothing where the caller set no function and MIMO_LOG does not ask for it.
 * A line longer than 1 KiB is truncated. */
MIMO_PRINTF(2, 3) void mimo_log(mimo_log_level level, const char *format, ...);

/* A warning of what the caller has hardly meant: what was chosen by name is not done as it says, a
 * descriptor is all zeros. It is also written where the caller set no function and MIMO_LOG is not
 * set at all. */
MIMO_PRINTF(1, 2) void mimo_log_unasked(const char *format, ...);

#endif
