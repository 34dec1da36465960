/* Where a path leads whose last name is a symbolic link, and whom what stands there belongs to. */
#ifndef TRAIN_LINK_TARGET_H
#define TRAIN_LINK_TARGET_H

#include <stdbool.h>
#include <sys/stat.h>

#include <mimo/status.h>

/** Whether `entry`, in a folder where anybody may leave files (/tmp: sticky, and all may write),
 *  belongs neither to this process's user nor to the folder's. The kernel opens no such link or
 *  file for writing (fs.protected_symlinks, fs.protected_regular): another user may have left it
 *  there to choose what is overwritten, or who owns the result. Local. */
bool planted_by_another(const struct stat *folder, const struct stat *entry);

/** *out, the caller's to release, is what the link at `path` points to, link by link, also where
 *  nothing is there yet; without a link it is `path`. MIMO_ERR_IO (links that do not end, a link
 *  that is planted_by_another), MIMO_ERR_MEMORY. */
mimo_status link_target(char **out, const char *path);

#endif
