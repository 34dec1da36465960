/* A library of its own, because the test of failing allocations has another one in its place
 * (tests/examples/failing_train_memory.c). */
#include "train/support/train_memory.h"

#include <stdlib.h>
#include <string.h>

#include "train/support/train_support.h"

static mimo_status byte_count(int64_t *bytes, int64_t count, size_t size)
{
    TRY(size_mul(bytes, count, (int64_t)size));
    CHECK(*bytes >= 0, MIMO_ERR_OVERFLOW, "cannot allocate %" PRId64 " bytes", *bytes);
    return MIMO_OK;
}

mimo_status memory_reserve(void *out, int64_t count, size_t size)
{
    int64_t bytes;
    TRY(byte_count(&bytes, count, size));
    void *made = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    CHECK(made, MIMO_ERR_MEMORY, "out of memory allocating %" PRId64 " bytes", bytes);
    memcpy(out, &made, sizeof made);
    return MIMO_OK;
}

mimo_status memory_regrow(void *out, int64_t old_count, int64_t count, size_t size)
{
    int64_t bytes;
    TRY(byte_count(&bytes, count, size));
    void *old;
    memcpy(&old, out, sizeof old);
    char *grown = realloc(old, bytes > 0 ? (size_t)bytes : 1);
    CHECK(grown, MIMO_ERR_MEMORY, "out of memory allocating %" PRId64 " bytes", bytes);
    if (count > old_count)
        memset(grown + (size_t)old_count * size, 0, (size_t)(count - old_count) * size);
    memcpy(out, &grown, sizeof grown);
    return MIMO_OK;
}

mimo_status memory_copy_string(char **out, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy;
    TRY(memory_reserve(&copy, (int64_t)bytes, 1));
    memcpy(copy, text, bytes);
    *out = copy;
    return MIMO_OK;
}

void memory_release(void *pointer)
{
    free(pointer);
}
