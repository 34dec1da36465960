/* Host memory of the trainer, by the library's core: sizes are checked, failures are sentences, and
 * a test can make any allocation fail. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

/** Allocate count elements of `size` bytes, all zero. Count 0 gives a pointer that may be freed.
 *  *out is a pointer to any object pointer; the caller releases it with memory_release. */
mimo_status memory_reserve(void *out, int64_t count, size_t size);

/** Grow *out from old_count to count elements, keeping the old ones and zeroing the new. On failure
 *  *out stays as it was. */
mimo_status memory_regrow(void *out, int64_t old_count, int64_t count, size_t size);

/** A copy of a string. */
mimo_status memory_copy_string(char **out, const char *text);

void memory_release(void *pointer); /* NULL is fine */

#endif
