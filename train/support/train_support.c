#include "train/support/train_support.h"

#include <stdarg.h>
#include <stdio.h>

mimo_status fail_prefix(mimo_status status, const char *format, ...)
{
    char prefix[1024], sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    snprintf(sentence, sizeof sentence, "%s", mimo_last_error()); /* which mimo_fail overwrites */
    return mimo_fail(status, "%s%s", prefix, sentence);
}
