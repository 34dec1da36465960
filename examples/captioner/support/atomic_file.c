#include "captioner/support/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

enum { NEW_FILE_MODE = 0666 };

static mimo_status failed(const struct atomic_file *file, const char *what, int error)
{
    return mimo_fail(MIMO_ERR_IO, "cannot %s %s: %s", what, file->path, strerror(error));
}

/* mkstemp makes files that only the owner reads; these are ordinary results. */
static void widen_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(fd, NEW_FILE_MODE & ~mask);
}

/* Renaming over a device or a pipe would replace it. */
static mimo_status check_target(const char *path)
{
    struct stat target;
    CHECK(stat(path, &target) != 0 || S_ISREG(target.st_mode), MIMO_ERR_IO,
          "cannot write %s: it exists and is no regular file", path);
    return MIMO_OK;
}

mimo_status atomic_file_open(struct atomic_file *file, const char *path)
{
    static const char tail[] = ".XXXXXX";
    struct atomic_file opened = ATOMIC_FILE_INIT;
    mimo_status status;
    size_t length = strlen(path);
    TRY(check_target(path));
    TRY_GOTO(status, fail, memory_copy_string(&opened.path, path));
    TRY_GOTO(status, fail, memory_reserve(&opened.temporary, (int64_t)(length + sizeof tail), 1));
    memcpy(opened.temporary, path, length);
    memcpy(opened.temporary + length, tail, sizeof tail);
    opened.fd = mkstemp(opened.temporary);
    if (opened.fd < 0) {
        status = failed(&opened, "create", errno);
        goto fail;
    }
    widen_mode(opened.fd);
    *file = opened;
    return MIMO_OK;
fail:
    memory_release(opened.path);
    memory_release(opened.temporary);
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
    int error = bytes > 0 ? posix_fallocate(file->fd, 0, (off_t)bytes) : 0;
    if (error == EINVAL || error == EOPNOTSUPP) /* the file system cannot: writes will tell */
        return MIMO_OK;
    return error == 0 ? MIMO_OK : failed(file, "reserve room for", error);
}

/* A rename is durable once its folder is. File systems that cannot sync a folder are fine. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == path ? strdup("/")
                   : slash       ? strndup(path, (size_t)(slash - path))
                                 : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

mimo_status atomic_file_commit(struct atomic_file *file)
{
    mimo_status status = MIMO_OK;
    if (fsync(file->fd) != 0)
        status = failed(file, "write", errno);
    if (close(file->fd) != 0 && status == MIMO_OK)
        status = failed(file, "close", errno);
    file->fd = -1;
    if (status == MIMO_OK && rename(file->temporary, file->path) != 0)
        status = failed(file, "rename a finished file to", errno);
    if (status == MIMO_OK) {
        sync_folder(file->path);
        memory_release(file->temporary);
        file->temporary = NULL;
    }
    atomic_file_discard(file);
    return status;
}

void atomic_file_discard(struct atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary)
        unlink(file->temporary);
    memory_release(file->temporary);
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
