/* Where a path leads whose last name is a symbolic link. */
#ifndef TRAIN_LINK_TARGET_H
#define TRAIN_LINK_TARGET_H

#include <mimo/status.h>

/** *out, the caller's to release, is what the link at `path` points to, link by link, also where
 *  nothing is there yet; without a link it is `path`. MIMO_ERR_IO (links that do not end),
 *  MIMO_ERR_MEMORY. */
mimo_status link_target(char **out, const char *path);

#endif
