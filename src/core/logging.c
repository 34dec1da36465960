#include "core/logging.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <mimo/env.h>

enum { LINE = 1024 };

static mimo_log_function callers_log;
static void *callers_context;

void mimo_log_set(mimo_log_function log, void *context)
{
    callers_log = log;
    callers_context = context;
}

/* In one call of stdio, so that lines of several ranks do not mix. */
static void write_to_stderr(void *context, mimo_log_level level, const char *text)
{
    (void)context;
    fprintf(stderr, "mimo-bridge: %s%s\n", level == MIMO_LOG_WARNING ? "warning: " : "", text);
}

/* MIMO_LOG has the word of this level. */
static bool is_asked_for(mimo_log_level level)
{
    int64_t levels;
    return mimo_env_get(&levels, MIMO_ENV_LOG) == MIMO_OK && (levels & level) != 0;
}

static bool says_what_to_log(void)
{
    int rows;
    return getenv(mimo_env_table(&rows)[MIMO_ENV_LOG].name) != NULL;
}

static void write_line(mimo_log_function log, mimo_log_level level, const char *format,
                       va_list arguments)
{
    char text[LINE];
    vsnprintf(text, sizeof text, format, arguments);
    log(callers_context, level, text);
}

void mimo_log(mimo_log_level level, const char *format, ...)
{
    va_list arguments;
    mimo_log_function log = callers_log;
    if (!log && is_asked_for(level))
        log = write_to_stderr;
    if (!log)
        return;
    va_start(arguments, format);
    write_line(log, level, format, arguments);
    va_end(arguments);
}

void mimo_log_unasked(const char *format, ...)
{
    va_list arguments;
    mimo_log_function log = callers_log;
    if (!log && (is_asked_for(MIMO_LOG_WARNING) || !says_what_to_log()))
        log = write_to_stderr;
    if (!log)
        return;
    va_start(arguments, format);
    write_line(log, MIMO_LOG_WARNING, format, arguments);
    va_end(arguments);
}
