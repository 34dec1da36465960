#include "captioner/support/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

mimo_status input_file_open(struct input_file *out, const char *path)
{
    struct stat found;
    TRY(memory_copy_string(&out->path, path));
    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us */
    CHECK(out->fd >= 0, errno == ENOENT ? MIMO_ERR_NOT_FOUND : MIMO_ERR_IO, "cannot open %s: %s",
          path, strerror(errno));
    CHECK(fstat(out->fd, &found) == 0 && S_ISREG(found.st_mode), MIMO_ERR_IO,
          "%s is no ordinary file", path);
    out->size = found.st_size;
    return MIMO_OK;
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
