/* Which sums make the gradient of a tensor, in the runs of two logs. */
#ifndef CAPTIONER_DIFF_SUMS_H
#define CAPTIONER_DIFF_SUMS_H

#include <stdbool.h>
#include <stdio.h>

#include "captioner/diff/log_reader.h"

/** Print how many parts each dimension of the tensor's module has in either run, and whether they
 *  are added: by the rule that the logs give. Where a log does not have it, one line says so.
 *  `alone`: no other gradient differs. */
void diff_sums_print(FILE *out, const char *tensor, bool alone, const struct log_start *a,
                     const struct log_start *b);

#endif
