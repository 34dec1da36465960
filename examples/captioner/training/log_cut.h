/* What a run that goes on leaves of the log of the one before it. */
#ifndef CAPTIONER_LOG_CUT_H
#define CAPTIONER_LOG_CUT_H

#include <stdint.h>

#include <mimo/status.h>

/** Cut the log at `path` behind its lines of the first `last` steps: off come later steps, which
 *  will be taken again, the start of a run that took them, and a last line that is not whole. What
 *  is not there, or is no ordinary file, has no such lines. Local. MIMO_ERR_IO, also where a line
 *  is none of a log's; then the file is as before. */
mimo_status log_cut_after(const char *path, int64_t last);

/** Put another file in the place of the log at `path`, with its lines of the first `last` steps:
 *  who still has the old one open writes to no log. *fd, at the end of the new one, is the
 *  caller's. Local. MIMO_ERR_IO, also for what is no ordinary file, and MIMO_ERR_MEMORY; then the
 *  log is as before. */
mimo_status log_replace_after(int *fd, const char *path, int64_t last);

#endif
