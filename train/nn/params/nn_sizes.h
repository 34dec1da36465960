/* Private: checks of sizes and names, for the store and for the layers. */
#ifndef MIMO_NN_NN_SIZES_H
#define MIMO_NN_NN_SIZES_H

#include <stdint.h>

#include <mimo/status.h>

/* Enough for the name of a layer and of its parameter. */
enum { NN_NAME_CAPACITY = 256 };

/* Check that 1 <= size <= INT_MAX. BLAS counts in int. */
mimo_status nn_check_size(const char *layer, const char *what, int64_t size);
/* Check that `parts` divides `size`. */
mimo_status nn_check_divides(const char *layer, const char *what, int64_t size, int64_t parts);
/* Write "LAYER.PART" into name[NN_NAME_CAPACITY]. */
mimo_status nn_join(char *name, const char *layer, const char *part);

#endif
