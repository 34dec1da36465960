/*
 * One check may be switched off, so that a script can prove that some test fails without it
 * (scripts/checks.sh). Only a build with MIMO_TEST_CHECKS has this; no other does.
 *
 *   MIMO_TEST_CHECK_OFF=bridge/bridge.c:51    this check holds, whatever its condition says
 *   MIMO_TEST_CHECK_LOG=FILE                  a line "file:line" for each check that did not hold
 */
#include "core/check.h"

#ifdef MIMO_TEST_CHECKS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opened and closed for each line: ranks and forked tests append to one file. */
static void note(const char *file, int line)
{
    const char *path = getenv("MIMO_TEST_CHECK_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log)
        return;
    fprintf(log, "%s:%d\n", file, line);
    fclose(log);
}

/* A compiler's path may lead from the build folder ("../bridge/bridge.c"). */
static bool is_end_of_path(const char *end, size_t length, const char *path)
{
    size_t all = strlen(path);
    return length > 0 && length <= all && strncmp(path + all - length, end, length) == 0 &&
           (length == all || path[all - length - 1] == '/');
}

bool mimo_check_is_off(const char *file, int line)
{
    note(file, line);
    const char *off = getenv("MIMO_TEST_CHECK_OFF");
    const char *colon = off ? strrchr(off, ':') : NULL;
    return colon && atoi(colon + 1) == line && is_end_of_path(off, (size_t)(colon - off), file);
}

#endif
