/* What all targets link: files without a disk, and their beginning. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_input.h"

/* Of targets that need no beginning. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int fuzz_file(char *path, const void *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_EXPECT(fd >= 0, "no file in memory: %s", strerror(errno));
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(fd, (const char *)data + done, size - done);
        FUZZ_EXPECT(wrote > 0, "a file in memory takes no %zu bytes: %s", size, strerror(errno));
        done += (size_t)wrote;
    }
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
    return fd;
}
