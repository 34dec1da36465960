/* What JSON may hold and C texts may not. */
#ifndef CAPTIONER_JSON_TEXT_H
#define CAPTIONER_JSON_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Whether a string of the JSON text[0 .. length) has the character 0, which JSON writes as an
 * escape. cJSON would end the string there, and so read another name than Python does. */
static inline bool json_has_nul(const char *text, size_t length)
{
    static const char nul[] = "\\u0000";
    size_t bytes = sizeof nul - 1;
    for (size_t at = 0; at < length; at++) {
        if (text[at] != '\\')
            continue;
        if (length - at >= bytes && memcmp(text + at, nul, bytes) == 0)
            return true;
        at++; /* what is escaped may be a backslash */
    }
    return false;
}

#endif
