#define _GNU_SOURCE /* O_PATH */

#include "train/support/link_target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/support/folders.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { MOST_LINKS = 40, LINK_CAPACITY = 4096 };

bool planted_by_another(const struct stat *folder, const struct stat *entry)
{
    bool anybody = (folder->st_mode & S_ISVTX) != 0 && (folder->st_mode & S_IWOTH) != 0;
    return anybody && entry->st_uid != geteuid() && entry->st_uid != folder->st_uid;
}

/* Relative links count from the folder in which the link lies. */
static mimo_status beside(char **out, const char *link, const char *text)
{
    const char *slash = strrchr(link, '/');
    size_t folder = text[0] == '/' || !slash ? 0 : (size_t)(slash - link) + 1;
    size_t room = folder + strlen(text) + 1;
    TRY(memory_reserve(out, (int64_t)room, 1));
    snprintf(*out, room, "%.*s%s", (int)folder, link, text);
    return MIMO_OK;
}

/* Who owns the link at `path` and its folder, and the link's text; false where there is no link.
 * All is of one open link: nobody can put another one in its place in between. */
static bool read_link(char text[LINK_CAPACITY], struct stat *folder, struct stat *link, int above,
                      const char *path)
{
    const char *slash = strrchr(path, '/');
    int fd = openat(above, slash ? slash + 1 : path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = -1;
    if (fd >= 0 && fstat(above, folder) == 0 && fstat(fd, link) == 0 && S_ISLNK(link->st_mode))
        length = readlinkat(fd, "", text, LINK_CAPACITY - 1);
    if (fd >= 0)
        close(fd);
    text[length < 0 ? 0 : length] = '\0';
    return length >= 0;
}

/* Where `path` is a link, *path becomes what it points to, and *moved true. */
static mimo_status follow(char **path, bool *moved)
{
    char text[LINK_CAPACITY], *folder, *next;
    struct stat of_folder, of_link;
    TRY(folder_of(&folder, *path));
    int above = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    memory_release(folder);
    *moved = above >= 0 && read_link(text, &of_folder, &of_link, above, *path);
    if (above >= 0)
        close(above);
    if (!*moved)
        return MIMO_OK;
    CHECK(!planted_by_another(&of_folder, &of_link), MIMO_ERR_IO,
          "cannot write %s: it is a link of user %ld, in a folder where anybody may leave one, and "
          "is not followed",
          *path, (long)of_link.st_uid);
    TRY(beside(&next, *path, text));
    memory_release(*path);
    *path = next;
    return MIMO_OK;
}

mimo_status link_target(char **out, const char *path)
{
    char *target;
    TRY(memory_copy_string(&target, path));
    mimo_status status = MIMO_OK;
    bool moved = true;
    for (int links = 0; status == MIMO_OK && moved; links++)
        status = links < MOST_LINKS ? follow(&target, &moved)
                                    : mimo_fail(MIMO_ERR_IO, "cannot follow the link %s: %s", path,
                                                strerror(ELOOP));
    if (status == MIMO_OK)
        *out = target;
    else
        memory_release(target);
    return status;
}
