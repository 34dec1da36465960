/*
 * One shared memory object for each rank: its data, and its page of flags after them. Every rank
 * that finds an object by its name maps it; these are the ranks of the same host.
 *
 * Names go before memory comes: all ranks find each other's objects while these are empty, names
 * are removed, and then each rank takes the memory of its own. So a process that is killed leaves
 * no memory behind. At most it leaves a name, of an object without memory.
 *
 * MPI's shared windows are not used. Where a host has too little memory for one, Open MPI 4.1
 * returns an error to one rank and leaves the others waiting. Windows are not aligned, and freeing
 * one blocks. An object of our own fails on one rank, and the agreement carries that to the others.
 */
#include "comm/host/host_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/agreement.h"
#include "core/memory.h"

static const char CALL[] = "buffer create"; /* in sentences of waits */

typedef struct object_name {
    char text[64]; /* "": none */
} object_name;

/* ----------------------------------------- reach ------------------------------------------ */

#ifdef MIMO_TEST_HOOKS
static int host_count = 1;

void mimo_split_hosts(int hosts)
{
    host_count = hosts;
}
#endif

static bool may_reach(int rank, int peer)
{
#ifdef MIMO_TEST_HOOKS
    return rank % host_count == peer % host_count;
#else
    (void)rank, (void)peer;
    return true;
#endif
}

/* ---------------------------------------- objects ----------------------------------------- */

/* This does not overflow: buffer.c accepts no buffer of INT64_MAX / 2 bytes. */
static int64_t object_bytes(const mimo_buffer *buffer)
{
    return mimo_buffer_flags_offset(buffer) + buffer->comm->size * (int64_t)sizeof(mimo_flags);
}

static mimo_status refused(int error, const char *what, const mimo_buffer *buffer)
{
    bool memory = error == ENOMEM || error == ENOSPC || error == EFBIG || error == EMFILE;
    return mimo_fail(memory ? MIMO_ERR_MEMORY : MIMO_ERR_UNSUPPORTED,
                     "can't %s %" PRId64 " bytes of memory that the ranks of a host share: %s",
                     what, object_bytes(buffer), strerror(error));
}

static mimo_status map(mimo_buffer *buffer, int rank, int file)
{
    char *at =
        mmap(NULL, (size_t)object_bytes(buffer), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        return refused(errno, "map", buffer);
    buffer->data[rank] = at;
    buffer->flags[rank] = (mimo_flags *)(void *)(at + mimo_buffer_flags_offset(buffer));
    return MIMO_OK;
}

/* Make an object under an unused name. The name contains the rank: on another host an object of the
 * same name is no peer's. */
static int create_object(object_name *out, int rank)
{
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(out->text, sizeof out->text, "/mimo-%d-%ld-%ld.%ld", rank, (long)getpid(),
                 (long)now.tv_sec, now.tv_nsec);
        int file = shm_open(out->text, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
}

/* An object has its size from the beginning, and can be mapped before it has memory. Nobody touches
 * it until all ranks have taken theirs. */
static mimo_status make_own(int *file, object_name *name, mimo_buffer *buffer)
{
    *file = create_object(name, buffer->comm->rank);
    if (*file < 0) {
        name->text[0] = '\0';
        return refused(errno, "name", buffer);
    }
    if (ftruncate(*file, object_bytes(buffer)) != 0)
        return refused(errno, "name", buffer);
    return map(buffer, buffer->comm->rank, *file);
}

/* All of it at once: a write without memory would end the process. */
static mimo_status take_memory(int file, const mimo_buffer *buffer)
{
    int error;
    do
        error = posix_fallocate(file, 0, object_bytes(buffer));
    while (error == EINTR);
    return error ? refused(error, "take", buffer) : MIMO_OK;
}

/* A name that is not found belongs to a rank on another host. */
static mimo_status map_peer(mimo_buffer *buffer, int peer, const object_name *name)
{
    int file = shm_open(name->text, O_RDWR, 0);
    if (file < 0)
        return errno == ENOENT ? MIMO_OK : refused(errno, "open", buffer);
    mimo_status status = map(buffer, peer, file);
    close(file);
    return status;
}

static mimo_status map_peers(mimo_buffer *buffer, object_name *names, const object_name *own)
{
    mimo_comm *comm = buffer->comm;
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, names, own, (int)sizeof *own));
    MIMO_TRY(mimo_wait(comm, &request, CALL));
    for (int peer = 0; peer < comm->size; peer++)
        if (peer != comm->rank && may_reach(comm->rank, peer))
            MIMO_TRY(map_peer(buffer, peer, &names[peer]));
    return MIMO_OK;
}

/* ----------------------------------------- functions ------------------------------------------ */

static mimo_status agree(mimo_comm *comm, mimo_status local)
{
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, local,
                         mimo_signature_start(MIMO_CALL_BUFFER_CREATE), CALL);
}

/* Names are removed once all ranks have mapped what they found. From then on the memory is freed
 * with the last process, however that ends. The caller agrees on whether all ranks have theirs. New
 * objects are 0, flags included. */
mimo_status mimo_host_buffer_open(mimo_buffer *buffer)
{
    mimo_comm *comm = buffer->comm;
    object_name own = {""}, *names = NULL;
    int file = -1;
    mimo_status status = mimo_reserve(&names, comm->size, sizeof *names);
    if (status == MIMO_OK)
        status = make_own(&file, &own, buffer);
    status = agree(comm, status);
    if (status == MIMO_OK)
        status = agree(comm, map_peers(buffer, names, &own));
    if (own.text[0])
        shm_unlink(own.text);
    if (status == MIMO_OK)
        status = take_memory(file, buffer);
    if (file >= 0)
        close(file);
    mimo_release(names);
    return status;
}

void mimo_host_buffer_close(mimo_buffer *buffer, bool keep_own)
{
    for (int rank = 0; rank < buffer->comm->size; rank++)
        if (buffer->data[rank] && !(keep_own && rank == buffer->comm->rank))
            munmap(buffer->data[rank], (size_t)object_bytes(buffer));
}
