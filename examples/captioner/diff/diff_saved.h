/* The first tensor and element in which two safetensors files differ. */
#ifndef CAPTIONER_DIFF_SAVED_H
#define CAPTIONER_DIFF_SAVED_H

#include <stdbool.h>
#include <stdio.h>

#include <mimo/status.h>

/**
 * Compare metadata and every bit of the tensors, by name, and print on `out` what differs. The
 * place of an element is its index in the whole tensor.
 *
 * MIMO_ERR_SHAPE where they cannot be compared (another "step" in the metadata, other tensors,
 * shapes or dtypes), and the errors of safetensors.h.
 */
mimo_status diff_saved(bool *equal, FILE *out, const char *path_a, const char *path_b);

#endif
