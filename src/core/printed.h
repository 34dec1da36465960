/* What a function prints, as text in the caller's memory. */
#ifndef MIMO_CORE_PRINTED_H
#define MIMO_CORE_PRINTED_H

#include <stdint.h>
#include <stdio.h>

#include <mimo/status.h>

/* A stream in memory that something is printed to, and then read from. */
typedef struct mimo_printed {
    FILE *stream;
    char *text;
    size_t length;
} mimo_printed;

/* Open it. `name` is the calling function's. MIMO_ERR_ARGUMENT where text[capacity] is no memory to
 * write to. */
mimo_status mimo_printed_open(mimo_printed *out, const char *text, int64_t capacity,
                              const char *name);

/* Close it. Where all went well (`status`), copy what fits into text[capacity], terminated, and the
 * whole length into *length (may be NULL). Returns `status`, or this function's own error. */
mimo_status mimo_printed_close(int64_t *length, char *text, int64_t capacity, mimo_printed *printed,
                               mimo_status status);

#endif
