/* Descriptors begin with their own size, which their initializer sets. A caller that was built with
 * an older header passes a shorter descriptor, and the fields that it does not have keep their
 * defaults. */
#ifndef MIMO_CORE_DESCRIPTOR_H
#define MIMO_CORE_DESCRIPTOR_H

#include <stddef.h>
#include <string.h>

#include "core/check.h"

/* Define mimo_x_init(out, size), which writes the first `size` bytes of a descriptor's initializer,
 * with that size: a caller whose header is older has a shorter descriptor. */
#define MIMO_DEFINE_INIT(type, ...)                                   \
    void type##_init(type *out, size_t size)                          \
    {                                                                 \
        type initial = __VA_ARGS__;                                   \
        initial.size = size < sizeof initial ? size : sizeof initial; \
        memcpy(out, &initial, initial.size);                          \
    }

/* No struct that begins with a size_t has another size, and no pointer or count is cut in two. */
static inline mimo_status mimo_check_descriptor_size(size_t size, const char *what)
{
    MIMO_CHECK(size % sizeof size == 0, MIMO_ERR_ARGUMENT,
               "%s: the descriptor's size is %zu, which is no multiple of %zu (start from its "
               "_INIT)",
               what, size, sizeof size);
    return MIMO_OK;
}

/* Read `given` into `own`, which holds the defaults; `known` is sizeof *own. */
static inline mimo_status mimo_read_descriptor(void *own, size_t known, const void *given,
                                               const char *what)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    MIMO_CHECK(size >= sizeof size && size <= known, MIMO_ERR_ARGUMENT,
               "%s: the descriptor's size is %zu, this library knows up to %zu (start from its "
               "_INIT)",
               what, size, known);
    MIMO_TRY(mimo_check_descriptor_size(size, what));
    memcpy(own, given, size);
    return MIMO_OK;
}

/* Read element `i` of an array of descriptors. Each has the size of the first one. */
static inline mimo_status mimo_read_element(void *own, size_t known, const void *list, int i,
                                            const char *what)
{
    size_t size, first;
    memcpy(&first, list, sizeof first);
    const char *at = (const char *)list + (size_t)i * first;
    memcpy(&size, at, sizeof size);
    MIMO_CHECK(size == first, MIMO_ERR_ARGUMENT, "%s: its size is %zu, that of the first one %zu",
               what, size, first);
    return mimo_read_descriptor(own, known, at, what);
}

/* Write what is known of a struct that the caller sized: all of it where the caller's header is
 * newer than the library, a part of it where it is older. `own` has its size field as well. */
static inline mimo_status mimo_write_descriptor(void *out, const void *own, size_t known,
                                                const char *what)
{
    size_t size;
    memcpy(&size, out, sizeof size);
    MIMO_CHECK(size >= sizeof size, MIMO_ERR_ARGUMENT,
               "%s: the size of the struct to fill is %zu (start from its _INIT)", what, size);
    MIMO_TRY(mimo_check_descriptor_size(size, what));
    if (size > known)
        size = known;
    for (size_t i = sizeof size; i < size; i++)
        ((char *)out)[i] = ((const char *)own)[i];
    return MIMO_OK;
}

#endif
