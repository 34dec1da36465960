/* The first step, module and tensor in which two training logs differ. */
#ifndef CAPTIONER_DIFF_LOGS_H
#define CAPTIONER_DIFF_LOGS_H

#include <stdbool.h>
#include <stdio.h>

#include <mimo/status.h>

/**
 * Compare the steps that both logs have, in all except "ms", and print on `out` what differs in
 * the first step that does: in the order in which a step makes it (tokens, loss, gradients, norm,
 * parameters), and for the gradient of a tensor how many parts are added to make it.
 *
 * MIMO_ERR_SHAPE where they cannot be compared (no step in common, other tensors, other shapes),
 * and the errors of log_reader.h.
 */
mimo_status diff_logs(bool *equal, FILE *out, const char *path_a, const char *path_b);

#endif
