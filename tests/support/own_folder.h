/* For Criterion tests of files: a folder for each test, a file in it, and whole files as bytes. */
#ifndef MIMO_TESTS_OWN_FOLDER_H
#define MIMO_TESTS_OWN_FOLDER_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "expect_failure.h"

/* A suite whose tests have `folder`, new and empty, and `path`, a file in it that is not there yet.
 * Behind a test nothing else may be left. */
#define OWN_FOLDER(suite, name, ...)                                               \
    static char folder[] = "/tmp/mimo-" #suite "-XXXXXX", path[64];                \
    static void make_folder(void)                                                  \
    {                                                                              \
        cr_assert(mkdtemp(folder));                                                \
        snprintf(path, sizeof path, "%s/" name, folder);                           \
    }                                                                              \
    static void remove_folder(void)                                                \
    {                                                                              \
        unlink(path);                                                              \
        cr_assert_eq(rmdir(folder), 0, "something was left behind in %s", folder); \
    }                                                                              \
    TestSuite(suite, .init = make_folder, .fini = remove_folder, __VA_ARGS__)

static inline void put_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s", name);
}

/* At most `room` bytes of it. Returns how many it has. */
static inline size_t get_file(const char *name, void *bytes, size_t room)
{
    FILE *file = fopen(name, "rb");
    cr_assert(file, "%s", name);
    size_t size = fread(bytes, 1, room, file);
    fclose(file);
    return size;
}

/* A limit of the file size replaces a full disk. Returns the one before, for setrlimit. */
static inline struct rlimit limit_files(rlim_t bytes)
{
    struct rlimit before, low;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    return before;
}

static inline void expect_file(const char *name, const char *text)
{
    char found[1024] = "";
    get_file(name, found, sizeof found - 1);
    cr_assert_str_eq(found, text);
}

#endif
