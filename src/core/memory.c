#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#ifdef MIMO_TEST_HOOKS
static int64_t until_failure; /* 0: none is to fail */

int64_t mimo_fail_allocation(int64_t n)
{
    int64_t left = until_failure;
    until_failure = n;
    return left;
}

#endif

static bool must_fail(void)
{
#ifdef MIMO_TEST_HOOKS
    return until_failure > 0 && --until_failure == 0;
#else
    return false;
#endif
}

static mimo_status byte_count(int64_t *bytes, int64_t count, size_t size)
{
    MIMO_TRY(mimo_mul(bytes, count, (int64_t)size));
    MIMO_CHECK(*bytes >= 0, MIMO_ERR_OVERFLOW, "cannot allocate %" PRId64 " bytes", *bytes);
    return MIMO_OK;
}

mimo_status mimo_reserve(void *out, int64_t count, size_t size)
{
    int64_t bytes;
    MIMO_TRY(byte_count(&bytes, count, size));
    void *made = must_fail() ? NULL : calloc(1, bytes > 0 ? (size_t)bytes : 1);
    MIMO_CHECK(made, MIMO_ERR_MEMORY, "out of memory allocating %" PRId64 " bytes", bytes);
    memcpy(out, &made, sizeof made);
    return MIMO_OK;
}

mimo_status mimo_regrow(void *out, int64_t old_count, int64_t count, size_t size)
{
    int64_t bytes;
    MIMO_TRY(byte_count(&bytes, count, size));
    void *old;
    memcpy(&old, out, sizeof old);
    char *grown = must_fail() ? NULL : realloc(old, bytes > 0 ? (size_t)bytes : 1);
    MIMO_CHECK(grown, MIMO_ERR_MEMORY, "out of memory allocating %" PRId64 " bytes", bytes);
    if (count > old_count)
        memset(grown + (size_t)old_count * size, 0, (size_t)(count - old_count) * size);
    memcpy(out, &grown, sizeof grown);
    return MIMO_OK;
}

mimo_status mimo_make_room(void *out, int64_t *capacity, int64_t count, int64_t first, size_t size)
{
    int64_t grown = *capacity > 0 ? 2 * *capacity : first;
    if (count < *capacity)
        return MIMO_OK;
    MIMO_TRY(mimo_regrow(out, count, grown, size));
    *capacity = grown;
    return MIMO_OK;
}

mimo_status mimo_duplicate(void *out, const void *from, int64_t count, size_t size)
{
    void *copy;
    MIMO_TRY(mimo_reserve(&copy, count, size));
    if (count > 0)
        memcpy(copy, from, (size_t)count * size);
    memcpy(out, &copy, sizeof copy);
    return MIMO_OK;
}

mimo_status mimo_copy_string(char **out, const char *text)
{
    return mimo_duplicate(out, text, (int64_t)strlen(text) + 1, 1);
}

void mimo_release(void *pointer)
{
    free(pointer);
}

void mimo_abandon(void *pointer)
{
#ifdef __SANITIZE_ADDRESS__
    __lsan_ignore_object(pointer);
#else
    (void)pointer;
#endif
}
