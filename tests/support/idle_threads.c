#include "idle_threads.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* "17 (name) R ...": the thread runs, or waits for a processor. */
static bool is_running(const char *thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.16s/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_ends = strrchr(text, ')');
    return name_ends && strncmp(name_ends, ") R", 3) == 0;
}

static bool others_run(void)
{
    const long self = syscall(SYS_gettid);
    bool some = false;
    DIR *threads = opendir("/proc/self/task");
    for (const struct dirent *it; threads && !some && (it = readdir(threads));)
        some = it->d_name[0] != '.' && atol(it->d_name) != self && is_running(it->d_name);
    if (threads)
        closedir(threads);
    return some;
}

void idle_threads_wait(void)
{
    enum { LOOKS = 5000 };
    const struct timespec millisecond = {0, 1000000};
    for (int i = 0; i < LOOKS && others_run(); i++)
        nanosleep(&millisecond, NULL);
}
