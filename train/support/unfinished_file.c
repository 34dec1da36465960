#include "train/support/unfinished_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

#define MARK ".unfinished-"

enum { MOST_TRIES = 1000 }; /* a generation's numbers */

static int64_t generation; /* of the run of this process */

void unfinished_file_set_generation(int64_t number)
{
    generation = number;
}

/* Whether the new file is this process's. Before it was locked, another one may have taken it for
 * that of a dead process, and have removed it. */
static bool lock_new(int fd)
{
    struct stat found;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK; /* a file system without locks: then nobody removes it */
    return fstat(fd, &found) == 0 && found.st_nlink > 0;
}

/* -1 where that one is taken, with errno. */
static int create_one(const char *name, mode_t mode)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 || lock_new(fd))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

mimo_status unfinished_file_create(int *fd, char **name, const char *path, mode_t mode)
{
    char *text;
    size_t room = strlen(path) + sizeof MARK + 2 * 21; /* two numbers of 64 bits */
    TRY(memory_reserve(&text, (int64_t)room, 1));
    int created = -1;
    errno = EEXIST;
    for (int i = 0; created < 0 && errno == EEXIST && i < MOST_TRIES; i++) {
        snprintf(text, room, "%s" MARK "%ld-%" PRId64, path, (long)getpid(),
                 generation * MOST_TRIES + i);
        created = create_one(text, mode);
    }
    if (created < 0) {
        mimo_fail(MIMO_ERR_IO, "cannot create %s: %s", path, strerror(errno));
        memory_release(text);
        return MIMO_ERR_IO;
    }
    *fd = created;
    *name = text;
    return MIMO_OK;
}

/* Locked, where no process has it open; otherwise -1. The caller closes it. */
static int lock_dead(int folder, const char *name)
{
    struct stat found;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void remove_where_dead(int folder, const char *name)
{
    int fd = lock_dead(folder, name);
    if (fd < 0)
        return;
    (void)unlinkat(folder, name, 0);
    close(fd);
}

void unfinished_file_adopt(const char *name, const char *path)
{
    int fd = lock_dead(AT_FDCWD, name);
    if (fd < 0)
        return;
    (void)rename(name, path);
    close(fd);
}

/* "NAME.unfinished-12-0" */
static bool is_unfinished(const char *entry, const char *name)
{
    size_t length = strlen(name), mark = sizeof MARK - 1;
    if (strncmp(entry, name, length) != 0 || strncmp(entry + length, MARK, mark) != 0)
        return false;
    const char *numbers = entry + length + mark;
    size_t first = strspn(numbers, "0123456789");
    const char *second = numbers + first + (numbers[first] == '-');
    return first > 0 && numbers[first] == '-' && *second &&
           strspn(second, "0123456789") == strlen(second);
}

/* FOLDER/ENTRY as `path` spells its folder. */
static mimo_status name_beside(char **out, const char *path, const char *entry)
{
    const char *slash = strrchr(path, '/');
    size_t before = slash ? (size_t)(slash - path) + 1 : 0, room = before + strlen(entry) + 1;
    TRY(memory_reserve(out, (int64_t)room, 1));
    snprintf(*out, room, "%.*s%s", (int)before, path, entry);
    return MIMO_OK;
}

mimo_status unfinished_file_find(char **out, const char *folder, const char *path,
                                 bool (*takes)(void *context, const char *name), void *context)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    mimo_status status = MIMO_OK;
    char *found = NULL;
    DIR *opened = opendir(folder);
    for (struct dirent *entry; opened && !found && (entry = readdir(opened));) {
        if (!is_unfinished(entry->d_name, name))
            continue;
        status = name_beside(&found, path, entry->d_name);
        if (status != MIMO_OK)
            break;
        if (!takes(context, found)) {
            memory_release(found);
            found = NULL;
        }
    }
    if (opened)
        closedir(opened);
    if (status == MIMO_OK)
        *out = found;
    return status;
}

/* "NAME.unfinished-PID-N", where N is of an earlier generation. */
static bool is_earlier_of(const char *entry, const char *name, long pid)
{
    if (!is_unfinished(entry, name))
        return false;
    char *end;
    bool its = strtol(entry + strlen(name) + sizeof MARK - 1, &end, 10) == pid;
    return its && strtoll(end + 1, NULL, 10) / MOST_TRIES < generation;
}

void unfinished_file_remove_of(const char *folder, const char *path, long pid)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    DIR *opened = opendir(folder);
    if (!opened)
        return;
    for (struct dirent *entry; (entry = readdir(opened));)
        if (is_earlier_of(entry->d_name, name, pid))
            (void)unlinkat(dirfd(opened), entry->d_name, 0);
    closedir(opened);
}

void unfinished_file_remove_dead(const char *folder, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    DIR *opened = opendir(folder);
    if (!opened)
        return;
    for (struct dirent *entry; (entry = readdir(opened));)
        if (is_unfinished(entry->d_name, name))
            remove_where_dead(dirfd(opened), entry->d_name);
    closedir(opened);
}
