/* Folders for results, made where they are missing, and unmade where it comes to nothing. */
#ifndef TRAIN_FOLDERS_H
#define TRAIN_FOLDERS_H

#include <stddef.h>

#include <mimo/status.h>

/* Make the folder at `path`, and those above it, where they are missing; *kept is how many bytes of
 * the path lead to the first that was. MIMO_ERR_IO, with the path and the system's reason; then
 * none is left behind. */
mimo_status make_folders(const char *path, size_t *kept);

/* *out, the caller's to release, is the folder of the file at `path`. */
mimo_status folder_of(char **out, const char *path);

/* Remove those that make_folders made, as far as they are empty. */
void remove_folders(const char *path, size_t kept);

#endif
