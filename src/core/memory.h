/* Host allocation of the library's own objects. Sizes are checked, and a test can make any
 * allocation fail. */
#ifndef MIMO_CORE_MEMORY_H
#define MIMO_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/backend_api.h"
#include "core/check.h"

/* Allocate count elements of `size` bytes, all zero. Count 0 gives a pointer that may be freed.
 * *out is a pointer to any object pointer; the caller releases it with mimo_release. */
MIMO_BACKEND_API mimo_status mimo_reserve(void *out, int64_t count, size_t size);

/* Grow *out from old_count to count elements, keeping the old ones and zeroing the new. On failure
 * *out stays as it was. */
mimo_status mimo_regrow(void *out, int64_t old_count, int64_t count, size_t size);

/* Room for one more element behind `count` of them: *capacity doubles, from `first` on, where it is
 * used up. As mimo_regrow otherwise. */
mimo_status mimo_make_room(void *out, int64_t *capacity, int64_t count, int64_t first, size_t size);

/* A copy of count elements of `size` bytes. */
MIMO_BACKEND_API mimo_status mimo_duplicate(void *out, const void *from, int64_t count,
                                            size_t size);

/* A copy of a string. */
mimo_status mimo_copy_string(char **out, const char *text);

MIMO_BACKEND_API void mimo_release(void *pointer);

/* Leave memory unfreed for good: a transport may still read or write it. Leak checkers are told. */
MIMO_BACKEND_API void mimo_abandon(void *pointer);

/* In the copy of the library that tests link (tests/meson.build): the n-th allocation from now
 * fails, once; 0: none fails. Returns what was left of the count before: 0 where that allocation
 * has failed. */
#ifdef MIMO_TEST_HOOKS
int64_t mimo_fail_allocation(int64_t n);
#endif

#endif
