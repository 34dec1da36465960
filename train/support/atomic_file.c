#include "train/support/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/folders.h"
#include "train/support/link_target.h"
#include "train/support/unfinished_file.h"

enum {
    NEW_MODE = 0666,    /* of what is not there yet: an ordinary result */
    HIDDEN_MODE = 0600, /* until it has the permissions of what it replaces */
    PERMISSIONS = 0777,
    GROUP_PERMISSIONS = 0070,
};

static mimo_status failed(const struct atomic_file *file, const char *what, int error)
{
    return mimo_fail(MIMO_ERR_IO, "cannot %s %s: %s", what, file->path, strerror(error));
}

/* The access that the file at the target gives. A group that cannot be kept has no access: another
 * group would get it. Where nothing can be kept the file stays hidden. */
static void keep_access(int fd, const struct stat *old)
{
    mode_t mode = old->st_mode & PERMISSIONS;
    bool kept =
        fchown(fd, old->st_uid, old->st_gid) == 0 || fchown(fd, (uid_t)-1, old->st_gid) == 0;
    (void)fchmod(fd, kept ? mode : mode & ~(mode_t)GROUP_PERMISSIONS);
}

/* Renaming over a device or a pipe would replace it. In a sticky folder the kernel renames only
 * over the caller's own files. And nobody should fill one that another user has left there: its
 * owner would have the result. Said now, this costs no training. */
static mimo_status check_replaced(const struct atomic_file *file, const struct stat *old)
{
    struct stat folder;
    uid_t self = geteuid();
    CHECK(S_ISREG(old->st_mode), MIMO_ERR_IO, "cannot write %s: it exists and is no regular file",
          file->path);
    if (stat(file->folder, &folder) != 0) /* then there is no file in it to be opened either */
        return MIMO_OK;
    bool owned = old->st_uid == self || folder.st_uid == self || self == 0;
    CHECK(!planted_by_another(&folder, old) && (owned || !(folder.st_mode & S_ISVTX)), MIMO_ERR_IO,
          "cannot write %s: it is a file of user %ld, in a folder where each user replaces only "
          "their own",
          file->path, (long)old->st_uid);
    return MIMO_OK;
}

static mimo_status open_beside_target(struct atomic_file *file)
{
    struct stat old;
    bool replaces = stat(file->target, &old) == 0;
    if (replaces)
        TRY(check_replaced(file, &old));
    unfinished_file_remove_dead(file->folder, file->target);
    TRY(unfinished_file_create(&file->fd, &file->temporary, file->target,
                               replaces ? HIDDEN_MODE : NEW_MODE));
    if (replaces)
        keep_access(file->fd, &old);
    return MIMO_OK;
}

mimo_status atomic_file_open(struct atomic_file *file, const char *path)
{
    struct atomic_file opened = ATOMIC_FILE_INIT;
    mimo_status status = memory_copy_string(&opened.path, path);
    if (status == MIMO_OK)
        status = link_target(&opened.target, path);
    if (status == MIMO_OK)
        status = folder_of(&opened.folder, opened.target);
    if (status == MIMO_OK)
        status = open_beside_target(&opened);
    if (status == MIMO_OK)
        *file = opened;
    else
        atomic_file_discard(&opened);
    return status;
}

mimo_status atomic_file_write(struct atomic_file *file, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t written = write(file->fd, from, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(file, "write", errno);
        from += written;
        bytes -= (size_t)written;
    }
    return MIMO_OK;
}

mimo_status atomic_file_write_at(struct atomic_file *file, const void *data, size_t bytes,
                                 int64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t written = pwrite(file->fd, from, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(file, "write", errno);
        from += written;
        offset += written;
        bytes -= (size_t)written;
    }
    return MIMO_OK;
}

mimo_status atomic_file_reserve(struct atomic_file *file, int64_t bytes)
{
    int error = 0;
    if (bytes > 0)
        do
            error = posix_fallocate(file->fd, 0, (off_t)bytes);
        while (error == EINTR);
    if (error == EINVAL || error == EOPNOTSUPP) /* the file system cannot: writes will tell */
        return MIMO_OK;
    return error == 0 ? MIMO_OK : failed(file, "reserve room for", error);
}

/* A rename is durable once its folder is. File systems that cannot sync a folder are fine. */
static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

mimo_status atomic_file_sync(struct atomic_file *file)
{
    if (fsync(file->fd) != 0)
        return failed(file, "write", errno);
    sync_folder(file->folder);
    return MIMO_OK;
}

/* The file is open, and so locked, until it has its name. */
static mimo_status put_in_place(struct atomic_file *file)
{
    if (fsync(file->fd) != 0)
        return failed(file, "write", errno);
    if (rename(file->temporary, file->target) != 0)
        return failed(file, "rename a finished file to", errno);
    sync_folder(file->folder);
    memory_release(file->temporary);
    file->temporary = NULL;
    return MIMO_OK;
}

mimo_status atomic_file_commit(struct atomic_file *file)
{
    mimo_status status = put_in_place(file);
    atomic_file_discard(file);
    return status;
}

mimo_status atomic_file_publish(int *fd, struct atomic_file *file)
{
    mimo_status status = put_in_place(file);
    if (status == MIMO_OK) {
        *fd = file->fd;
        file->fd = -1;
    }
    atomic_file_discard(file);
    return status;
}

mimo_status atomic_file_remove_of(const char *path, long pid)
{
    char *target = NULL, *folder = NULL;
    mimo_status status = link_target(&target, path);
    if (status == MIMO_OK)
        status = folder_of(&folder, target);
    if (status == MIMO_OK)
        unfinished_file_remove_of(folder, target, pid);
    memory_release(folder);
    memory_release(target);
    return status;
}

void atomic_file_discard(struct atomic_file *file)
{
    if (file->temporary && !file->needed)
        unlink(file->temporary);
    if (file->fd >= 0)
        close(file->fd);
    memory_release(file->temporary);
    memory_release(file->folder);
    memory_release(file->target);
    memory_release(file->path);
    *file = (struct atomic_file)ATOMIC_FILE_INIT;
}

mimo_status atomic_file_probe(const char *path)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    mimo_status status = atomic_file_open(&file, path);
    atomic_file_discard(&file);
    return status;
}
