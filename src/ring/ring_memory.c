#define _GNU_SOURCE /* memfd_create, seals */
#include "ring/ring_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/memory.h"

/* Older headers do not have these. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const mimo_ring_memory none = {.fd = -1};

/* ------------------------------------- memory ------------------------------------- */

/* Kernels before 6.3 know no MFD_NOEXEC_SEAL. */
static int open_memfd(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(MIMO_RING_FILE_NAME, flags | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(MIMO_RING_FILE_NAME, flags) : fd;
}

/* Kernels before 5.1 know no F_SEAL_FUTURE_WRITE; there others of this user could write. */
static int seal(int fd)
{
    const int sizes = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fcntl(fd, F_ADD_SEALS, sizes | F_SEAL_FUTURE_WRITE) != 0 &&
        fcntl(fd, F_ADD_SEALS, sizes) != 0)
        return -1;
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

static mimo_status fail_with(const mimo_ring_memory *made, const char *what)
{
    return mimo_fail(MIMO_ERR_IO, "a ring of %zu bytes: %s: %s", made->bytes, what,
                     strerror(errno));
}

static mimo_status map_own(mimo_ring_memory *made)
{
    void *base = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
    if (base == MAP_FAILED)
        return fail_with(made, "mmap");
    made->base = base;
    return MIMO_OK;
}

static mimo_status fill_memfd(mimo_ring_memory *made)
{
    made->fd = open_memfd();
    if (made->fd < 0)
        return fail_with(made, "memfd_create");
    if (ftruncate(made->fd, (off_t)made->bytes) != 0)
        return fail_with(made, "ftruncate");
    MIMO_TRY(map_own(made));
    return seal(made->fd) == 0 ? MIMO_OK : fail_with(made, "its seals");
}

/* Where it was made. */
static mimo_status give(mimo_ring_memory *out, mimo_ring_memory *made, mimo_status status)
{
    if (status == MIMO_OK)
        *out = *made;
    else
        mimo_ring_memory_release(made);
    return status;
}

mimo_status mimo_ring_memory_make(mimo_ring_memory *out, size_t bytes)
{
    mimo_ring_memory made = none;
    made.bytes = bytes;
    return give(out, &made, fill_memfd(&made));
}

/* -------------------------------------- files ------------------------------------- */

/* A host's name may hold what a file's name may not. */
static void write_path(char path[PATH_MAX], const char *folder, const mimo_ring_identity *owner,
                       int rank, int number)
{
    char host[sizeof owner->host], again[16] = "";
    snprintf(host, sizeof host, "%s", owner->host[0] ? owner->host : "host");
    for (char *at = host; *at; at++)
        if (*at == '/')
            *at = '_';
    if (number > 1)
        snprintf(again, sizeof again, "-%d", number);
    snprintf(path, PATH_MAX, "%s/%s-%d-%d%s.ring", folder, host, (int)owner->pid, rank, again);
}

static int open_new(char path[PATH_MAX], const char *folder, const mimo_ring_identity *owner,
                    int rank)
{
    int fd = -1;
    enum { MOST = 1000 };
    for (int number = 1; fd < 0 && number <= MOST; number++) {
        write_path(path, folder, owner, rank, number);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* The blocks are taken now: a full file system would end the process at a later store. */
static mimo_status fill_file(mimo_ring_memory *made)
{
    int error = posix_fallocate(made->fd, 0, (off_t)made->bytes);
    if (error != 0) {
        errno = error;
        return fail_with(made, "posix_fallocate");
    }
    return map_own(made);
}

mimo_status mimo_ring_memory_make_file(mimo_ring_memory *out, size_t bytes, const char *folder,
                                       const mimo_ring_identity *owner, int rank)
{
    char path[PATH_MAX];
    mimo_ring_memory made = none;
    made.bytes = bytes;
    made.fd = open_new(path, folder, owner, rank);
    MIMO_CHECK(made.fd >= 0, MIMO_ERR_IO, "a ring as file %s: %s", path, strerror(errno));
    mimo_status status = mimo_copy_string(&made.path, path);
    if (status != MIMO_OK)
        (void)unlink(path);
    else
        status = fill_file(&made);
    return give(out, &made, status);
}

/* -------------------------------------- others ------------------------------------ */

/* A memfd must not shrink while it is mapped. */
static mimo_status check_seals(int fd, const char *path)
{
    int seals = fcntl(fd, F_GET_SEALS);
    MIMO_CHECK(seals < 0 || (seals & F_SEAL_SHRINK) != 0, MIMO_ERR_IO,
               "%s: a memfd that may shrink", path);
    return MIMO_OK;
}

static mimo_status map_open(mimo_ring_memory *made, const char *path)
{
    struct stat about;
    MIMO_CHECK(made->fd >= 0, MIMO_ERR_IO, "%s: %s", path, strerror(errno));
    MIMO_CHECK(fstat(made->fd, &about) == 0 && S_ISREG(about.st_mode), MIMO_ERR_IO, "%s is no file",
               path);
    MIMO_CHECK((uint64_t)about.st_size >= mimo_ring_parts_of(1).bytes, MIMO_ERR_IO,
               "%s has %" PRId64 " bytes: no ring", path, (int64_t)about.st_size);
    MIMO_TRY(check_seals(made->fd, path));
    made->bytes = (size_t)about.st_size;
    void *base = mmap(NULL, made->bytes, PROT_READ, MAP_SHARED, made->fd, 0);
    MIMO_CHECK(base != MAP_FAILED, MIMO_ERR_IO, "%s: mmap: %s", path, strerror(errno));
    made->base = base;
    return MIMO_OK;
}

static mimo_status map_path(mimo_ring_memory *out, const char *path, int flags)
{
    mimo_ring_memory made = none;
    made.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    return give(out, &made, map_open(&made, path));
}

mimo_status mimo_ring_memory_map(mimo_ring_memory *out, int32_t pid, int32_t fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)fd);
    return map_path(out, path, 0); /* a link of /proc */
}

mimo_status mimo_ring_memory_map_file(mimo_ring_memory *out, const char *path)
{
    return map_path(out, path, O_NOFOLLOW);
}

void mimo_ring_memory_close(mimo_ring_memory *memory)
{
    if (memory->fd >= 0)
        (void)close(memory->fd);
    memory->fd = -1;
}

void mimo_ring_memory_keep(mimo_ring_memory *memory)
{
    mimo_release(memory->path);
    memory->path = NULL;
}

void mimo_ring_memory_release(mimo_ring_memory *memory)
{
    if (memory->base)
        (void)munmap(memory->base, memory->bytes);
    mimo_ring_memory_close(memory);
    if (memory->path)
        (void)unlink(memory->path);
    mimo_release(memory->path);
    *memory = none;
}
