#include "core/logging.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE = 1024 };

static mimo_log_function callers_log;
static void *callers_context;

void mimo_log_set(mimo_log_function log, void *context)
{
    callers_log = log;
    callers_context = context;
}

void mimo_log(mimo_log_level level, const char *format, ...)
{
    char text[LINE];
    va_list arguments;
    if (!callers_log)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    callers_log(callers_context, level, text);
}
