/* Two files of the captioner: two training logs, or two safetensors files. */
#ifndef CAPTIONER_DIFF_FILES_H
#define CAPTIONER_DIFF_FILES_H

#include <stdbool.h>
#include <stdio.h>

#include <mimo/status.h>

/** Find out what they are by their first bytes, and compare them. MIMO_ERR_SHAPE where they are not
 *  of one kind, MIMO_ERR_IO where one is of none, and the errors of diff_logs and diff_saved. */
mimo_status diff_files(bool *equal, FILE *out, const char *path_a, const char *path_b);

#endif
