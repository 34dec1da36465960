#include "train/support/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* A pipe with nobody at its other end must not hold us. */
static mimo_status open_ordinary(int *fd, struct stat *found, const char *path, const char *what,
                                 const char *hint)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CHECK(*fd >= 0, errno == ENOENT ? MIMO_ERR_NOT_FOUND : MIMO_ERR_IO, "cannot open %s%s: %s%s",
          what, path, strerror(errno), hint);
    CHECK(fstat(*fd, found) == 0 && S_ISREG(found->st_mode), MIMO_ERR_IO,
          "%s%s is no ordinary file", what, path);
    return MIMO_OK;
}

mimo_status input_file_open(struct input_file *out, const char *path)
{
    struct stat found;
    TRY(memory_copy_string(&out->path, path));
    TRY(open_ordinary(&out->fd, &found, path, "", ""));
    out->size = found.st_size;
    return MIMO_OK;
}

mimo_status input_file_stream(FILE **out, const char *path, const char *what, const char *hint)
{
    struct stat found;
    int fd;
    mimo_status status = open_ordinary(&fd, &found, path, what, hint);
    FILE *opened = status == MIMO_OK ? fdopen(fd, "r") : NULL;
    if (status == MIMO_OK && !opened)
        status =
            mimo_fail(MIMO_ERR_IO, "cannot open %s%s: %s%s", what, path, strerror(errno), hint);
    if (!opened && fd >= 0)
        close(fd);
    if (opened)
        *out = opened;
    return status;
}

mimo_status input_file_lines(const char *path, const char *what, const char *hint,
                             mimo_status (*take)(void *context, char *line), void *context)
{
    FILE *file;
    char *line = NULL;
    size_t room = 0;
    mimo_status status = MIMO_OK;
    TRY(input_file_stream(&file, path, what, hint));
    errno = 0;
    while (status == MIMO_OK && getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        status = take(context, line);
    }
    if (status == MIMO_OK && ferror(file))
        status = mimo_fail(MIMO_ERR_IO, "cannot read %s%s: %s", what, path, strerror(errno));
    free(line);
    fclose(file);
    return status;
}

void input_file_close(struct input_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    memory_release(file->path);
    *file = (struct input_file)INPUT_FILE_INIT;
}

mimo_status input_file_read(const struct input_file *file, void *to, int64_t bytes, int64_t at)
{
    char *next = to;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, next, (size_t)bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        CHECK(got >= 0, MIMO_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
        CHECK(got > 0, MIMO_ERR_IO, "%s ends at byte %" PRId64 ", %" PRId64 " are missing",
              file->path, at, bytes);
        next += got;
        at += got;
        bytes -= got;
    }
    return MIMO_OK;
}

mimo_status input_file_content(struct file_content *out, const struct input_file *file)
{
    enum { AT_ONCE = 1 << 20 };
    struct file_content content = {.bytes = file->size, .hash = HASH_START};
    int64_t most = file->size < AT_ONCE ? file->size : AT_ONCE;
    unsigned char *room;
    mimo_status status = MIMO_OK;
    TRY(memory_reserve(&room, most, 1));
    for (int64_t at = 0; status == MIMO_OK && at < file->size; at += most) {
        int64_t some = file->size - at < most ? file->size - at : most;
        status = input_file_read(file, room, some, at);
        if (status == MIMO_OK)
            content.hash = hash_bytes(content.hash, room, (size_t)some);
    }
    memory_release(room);
    if (status == MIMO_OK)
        *out = content;
    return status;
}
