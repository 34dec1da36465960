/* Descriptors begin with their own size, which their initializer sets. A caller that was built with
 * an older header passes a shorter descriptor, and the fields that it does not have keep their
 * defaults. */
#ifndef MIMO_CORE_DESCRIPTOR_H
#define MIMO_CORE_DESCRIPTOR_H

#include <stddef.h>
#include <string.h>

#include "core/check.h"

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
    memcpy(own, given, size);
    return MIMO_OK;
}

#endif
