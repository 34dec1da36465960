#include "train/support/link_target.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { MOST_LINKS = 40, LINK_CAPACITY = 4096 };

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

/* Where `path` is a link, *path becomes what it points to, and *moved true. */
static mimo_status follow(char **path, bool *moved)
{
    char text[LINK_CAPACITY], *next;
    ssize_t length = readlink(*path, text, sizeof text - 1);
    *moved = length >= 0;
    if (!*moved)
        return MIMO_OK;
    text[length] = '\0';
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
