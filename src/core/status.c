#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <mimo/status.h>

#include "core/check.h"
#include "core/letters.h"

enum { LAST_ERROR_CAPACITY = 1024 };

static _Thread_local char last_error[LAST_ERROR_CAPACITY];

const char *mimo_status_name(mimo_status status)
{
    switch (status) {
#define NAME(name, value, text) \
    case name:                  \
        return #name;
        MIMO_STATUS_LIST(NAME)
#undef NAME
    }
    return "MIMO_ERR_?";
}

const char *mimo_status_text(mimo_status status)
{
    switch (status) {
#define TEXT(name, value, text) \
    case name:                  \
        return text;
        MIMO_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *mimo_last_error(void)
{
    return last_error;
}

#undef mimo_fail /* a macro in a test build (core/check.h) */
mimo_status mimo_fail(mimo_status status, const char *format, ...)
{
    /* Arguments may point into last_error, so the sentence is built in another array first. */
    char sentence[LAST_ERROR_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mimo_end_with_letter(sentence, sizeof sentence,
                         vsnprintf(sentence, sizeof sentence, format, arguments));
    va_end(arguments);
    memcpy(last_error, sentence, strlen(sentence) + 1);
    return status;
}

mimo_status mimo_fail_prefix(mimo_status status, const char *format, ...)
{
    char sentence[LAST_ERROR_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mimo_end_with_letter(sentence, sizeof sentence,
                         vsnprintf(sentence, sizeof sentence, format, arguments));
    va_end(arguments);
    size_t used = strlen(sentence);
    mimo_copy_text(sentence + used, sizeof sentence - used, last_error);
    memcpy(last_error, sentence, strlen(sentence) + 1);
    return status;
}
