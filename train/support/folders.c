#include "train/support/folders.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* 0, or why there is no folder. */
static int make_one(const char *folder, bool *made)
{
    struct stat found;
    *made = mkdir(folder, 0777) == 0;
    int error = *made ? 0 : errno;
    return error && stat(folder, &found) == 0 && S_ISDIR(found.st_mode) ? 0 : error;
}

/* From the folder whose name ends at `end` upwards. The path is cut where it was removed. */
static void remove_upwards(char *path, size_t end, size_t kept)
{
    while (end > kept) {
        path[end] = '\0';
        if (rmdir(path) != 0)
            return;
        while (end > kept && path[end - 1] == '/')
            end--;
        while (end > kept && path[end - 1] != '/')
            end--;
    }
}

mimo_status make_folders(const char *path, size_t *kept)
{
    char *folder;
    TRY(memory_copy_string(&folder, path));
    size_t first_made = strlen(path), begin = 0, end = 0;
    int error = 0;
    while (error == 0 && folder[end]) {
        bool made;
        begin = end + strspn(folder + end, "/");
        end = begin + strcspn(folder + begin, "/");
        char held = folder[end];
        folder[end] = '\0';
        error = make_one(folder, &made);
        folder[end] = held;
        if (made && begin < first_made)
            first_made = begin;
    }
    if (error != 0)
        remove_upwards(folder, begin, first_made);
    memory_release(folder);
    CHECK(error == 0, MIMO_ERR_IO, "cannot make the folder %s: %s", path, strerror(error));
    *kept = first_made;
    return MIMO_OK;
}

void remove_folders(const char *path, size_t kept)
{
    char *folder;
    if (memory_copy_string(&folder, path) != MIMO_OK)
        return;
    remove_upwards(folder, strlen(folder), kept);
    memory_release(folder);
}

mimo_status folder_of(char **out, const char *path)
{
    const char *slash = strrchr(path, '/');
    TRY(memory_copy_string(out, slash ? path : "."));
    if (slash) /* that of the root stays */
        (*out)[slash == path ? 1 : slash - path] = '\0';
    return MIMO_OK;
}
