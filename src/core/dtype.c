#include <string.h>

#include <mimo/dtype.h>

#include "core/check.h"

size_t mimo_dtype_size(mimo_dtype dtype)
{
    switch (dtype) {
#define BYTES(name, value, text, bytes) \
    case name:                          \
        return bytes;
        MIMO_DTYPE_LIST(BYTES)
#undef BYTES
    }
    return 0;
}

const char *mimo_dtype_name(mimo_dtype dtype)
{
    switch (dtype) {
#define TEXT(name, value, text, bytes) \
    case name:                         \
        return text;
        MIMO_DTYPE_LIST(TEXT)
#undef TEXT
    }
    return "?";
}

mimo_status mimo_dtype_parse(mimo_dtype *out, const char *name)
{
    MIMO_CHECK(out && name, MIMO_ERR_ARGUMENT, "mimo_dtype_parse: %s is NULL",
               out ? "name" : "out");
#define MATCH(dtype, value, text, bytes) \
    if (strcmp(name, text) == 0) {       \
        *out = dtype;                    \
        return MIMO_OK;                  \
    }
    MIMO_DTYPE_LIST(MATCH)
#undef MATCH
#define NAME(dtype, value, text, bytes) " " text
    return mimo_fail(MIMO_ERR_ARGUMENT, "no dtype is named '%s'; there are" MIMO_DTYPE_LIST(NAME),
                     name);
#undef NAME
}
