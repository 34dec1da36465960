/* Buffers: creation with its checks, one size for all ranks, and the buffer that holds an
 * address. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/agreement.h"
#include "comm/buffer_state.h"
#include "comm/calls.h"
#include "comm/recorder.h"
#include "core/check.h"
#include "core/logging.h"
#include "core/memory.h"
#include "device/profile.h"

/* ---------------------------------------- creation ---------------------------------------- */

/* The arguments of a creation. */
typedef struct creation {
    const char *call;
    mimo_buffer **out;
    bool borrows; /* the caller's memory, at `data` */
    void *data;
    int64_t bytes, piece; /* see mimo_buffer */
} creation;

static mimo_status check_creation(const creation *own, const mimo_comm *comm)
{
    MIMO_CHECK(own->out, MIMO_ERR_ARGUMENT, "%s: out is NULL", own->call);
    MIMO_CHECK(own->bytes >= 0 && own->bytes <= INT64_MAX / 2, MIMO_ERR_ARGUMENT,
               "%s: %" PRId64 " bytes", own->call, own->bytes);
    MIMO_CHECK(comm->backend->buffer_open, MIMO_ERR_UNSUPPORTED,
               "%s: backend '%s' has no memory that ranks share", own->call, comm->backend->name);
    if (!own->borrows)
        return MIMO_OK;
    MIMO_CHECK(comm->memory == MIMO_MEMORY_CUDA, MIMO_ERR_UNSUPPORTED,
               "%s: %s that is there already can't be shared", own->call,
               mimo_memory_text(comm->memory));
    MIMO_CHECK(own->data && (uintptr_t)own->data % MIMO_BUFFER_ALIGNMENT == 0, MIMO_ERR_ARGUMENT,
               "%s: data is %p, and has to be a multiple of %d", own->call, own->data,
               MIMO_BUFFER_ALIGNMENT);
    return MIMO_OK;
}

static mimo_status reserve_buffer(mimo_buffer **out, mimo_comm *comm, const creation *own)
{
    mimo_buffer *made;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->comm = comm;
    made->given = own->data;
    made->refusal = &made->noted;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made->data, comm->size, sizeof *made->data));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made->flags, comm->size, sizeof *made->flags));
    *out = made;
    return MIMO_OK;
fail:
    mimo_release(made->data);
    mimo_release(made);
    return status;
}

static void free_buffer(mimo_buffer *buffer)
{
    mimo_release(buffer->data);
    mimo_release(buffer->flags);
    mimo_release(buffer);
}

/* The sizes on all ranks: the largest that a rank asked for. Memory of the callers must have
 * the same size everywhere. */
static mimo_status agree_on_sizes(mimo_buffer *out, mimo_comm *comm, const creation *own)
{
    uint64_t values[3] = {(uint64_t)own->bytes, ~(uint64_t)own->bytes, (uint64_t)own->piece};
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_max_start(&request, comm, values, 3));
    MIMO_TRY(mimo_wait(comm, &request, own->call));
    int64_t most = (int64_t)values[0], least = (int64_t)~values[1];
    MIMO_CHECK(!own->borrows || most == least, MIMO_ERR_ARGUMENT,
               "%s: ranks brought from %" PRId64 " to %" PRId64
               " bytes, and have to bring the same",
               own->call, least, most);
    out->bytes = most;
    out->piece = (int64_t)values[2];
    return MIMO_OK;
}

static void name_launches(const mimo_buffer *buffer)
{
    char title[32];
    snprintf(title, sizeof title, "%s %" PRIu64,
             buffer->piece > 0 ? "staged messages, buffer" : "buffer", buffer->serial);
    mimo_recorder_name_launches(buffer->comm, buffer->launches, title, false);
}

void mimo_buffer_entitle(mimo_buffer *buffer, const char *title)
{
    buffer->title = title;
    mimo_recorder_name_launches(buffer->comm, buffer->launches, title, true);
}

static mimo_status create(mimo_comm *comm, const creation *own)
{
    mimo_buffer *made = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "%s: comm is NULL", own->call);
    MIMO_ENTER(comm, own->call);
    mimo_status local = check_creation(own, comm);
    if (local == MIMO_OK)
        local = reserve_buffer(&made, comm, own);
    uint64_t signature =
        mimo_signature_start(own->borrows ? MIMO_CALL_BUFFER_BORROW : MIMO_CALL_BUFFER_CREATE);
    mimo_status status = mimo_agree_as(comm, MIMO_AGREE_CREATE, local, signature, own->call);
    if (status == MIMO_OK)
        status = agree_on_sizes(made, comm, own);
    if (status == MIMO_OK) {
        status = mimo_agree_as(comm, MIMO_AGREE_ALWAYS, comm->backend->buffer_open(made), signature,
                               own->call);
        if (status != MIMO_OK)
            comm->backend->buffer_close(made);
    }
    if (status != MIMO_OK) {
        if (made)
            free_buffer(made);
        return status;
    }
    mimo_comm_retain(comm);
    pthread_mutex_lock(&comm->family->lock);
    made->next = comm->buffers;
    comm->buffers = made;
    made->serial = ++comm->buffers_made;
    pthread_mutex_unlock(&comm->family->lock);
    name_launches(made);
    *own->out = made;
    return MIMO_OK;
}

void mimo_buffer_report_reach(const mimo_buffer *buffer)
{
    int reach = mimo_buffer_reach(buffer), size = buffer->comm->size;
    bool reported = buffer->comm->reported_reach == reach;
    buffer->comm->reported_reach = reach;
    if (buffer->comm->rank == 0 && reach < size && !reported)
        mimo_log(MIMO_LOG_WARNING,
                 "rank 0 reaches the buffers of %d ranks out of %d, itself included; rows to and "
                 "from ranks out of reach are sent%s%s",
                 reach, size, buffer->unreached ? ": " : "",
                 buffer->unreached ? buffer->unreached : "");
}

/* "2, 5-7", as far as they fit. */
static void list_unreached(char *text, size_t capacity, const mimo_buffer *buffer)
{
    enum { LONGEST = 32 };
    size_t used = 0;
    int size = buffer->comm->size;
    text[0] = '\0';
    for (int rank = 0, end; rank < size && used + LONGEST < capacity; rank = end) {
        bool reached = buffer->data[rank] != NULL;
        for (end = rank + 1; end < size && (buffer->data[end] != NULL) == reached; end++)
            ;
        if (reached)
            continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", used > 0 ? ", " : "", rank);
        if (end > rank + 1)
            used += (size_t)snprintf(text + used, capacity - used, "-%d", end - 1);
        if (used + LONGEST >= capacity)
            snprintf(text + used, capacity - used, ", ...");
    }
}

void mimo_buffer_warn_of_reach(const mimo_buffer *buffer, const char *title, const char *transport)
{
    char ranks[256];
    int missing = buffer->comm->size - mimo_buffer_reach(buffer);
    if (buffer->comm->rank != 0 || missing == 0)
        return;
    list_unreached(ranks, sizeof ranks, buffer);
    mimo_log_unasked("%s: %s was chosen, and rank 0 reaches no memory of %s %s: rows to and from "
                     "ranks out of reach are sent%s%s",
                     title, transport, missing == 1 ? "rank" : "ranks", ranks,
                     buffer->unreached ? ": " : "", buffer->unreached ? buffer->unreached : "");
}

static mimo_status create_and_report(mimo_comm *comm, const creation *own)
{
    MIMO_TRY(create(comm, own));
    mimo_buffer_report_reach(*own->out);
    return MIMO_OK;
}

mimo_status mimo_buffer_create(mimo_buffer **out, mimo_comm *comm, int64_t bytes)
{
    MIMO_RANGE();
    const creation own = {.call = "buffer create", .out = out, .bytes = bytes};
    return create_and_report(comm, &own);
}

mimo_status mimo_buffer_borrow(mimo_buffer **out, mimo_comm *comm, void *data, int64_t bytes)
{
    MIMO_RANGE();
    const creation own = {
        .call = "buffer borrow", .out = out, .borrows = true, .data = data, .bytes = bytes};
    return create_and_report(comm, &own);
}

mimo_status mimo_buffer_create_internal(mimo_buffer **out, mimo_comm *comm, int64_t bytes)
{
    return mimo_buffer_create_fifos(out, comm, bytes, 0);
}

mimo_status mimo_buffer_create_fifos(mimo_buffer **out, mimo_comm *comm, int64_t bytes,
                                     int64_t piece)
{
    const creation own = {.call = "own buffer create", .out = out, .bytes = bytes, .piece = piece};
    return create(comm, &own);
}

static void unlink_buffer(mimo_comm *comm, const mimo_buffer *buffer)
{
    pthread_mutex_lock(&comm->family->lock);
    mimo_buffer **link = &comm->buffers;
    while (*link != buffer)
        link = &(*link)->next;
    *link = buffer->next;
    pthread_mutex_unlock(&comm->family->lock);
}

void mimo_buffer_destroy(mimo_buffer *buffer)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!buffer || !mimo_release_enter(&scope, buffer->comm))
        return;
    mimo_comm *comm = buffer->comm;
    unlink_buffer(comm, buffer);
    comm->backend->buffer_close(buffer);
    free_buffer(buffer);
    mimo_comm_release(comm);
}

/* --------------------------------------- questions ---------------------------------------- */

void *mimo_buffer_data(const mimo_buffer *buffer)
{
    return buffer->data[buffer->comm->rank];
}

int64_t mimo_buffer_size(const mimo_buffer *buffer)
{
    return buffer->bytes;
}

int mimo_buffer_reach(const mimo_buffer *buffer)
{
    int count = 0;
    for (int rank = 0; rank < buffer->comm->size; rank++)
        count += buffer->data[rank] != NULL;
    return count;
}

mimo_buffer *mimo_buffer_holding(const mimo_comm *comm, const void *at, int64_t bytes)
{
    for (mimo_buffer *buffer = comm->buffers; buffer && at; buffer = buffer->next) {
        uintptr_t begin = (uintptr_t)mimo_buffer_data(buffer),
                  end = begin + (uintptr_t)buffer->bytes;
        uintptr_t first = (uintptr_t)at;
        if (first >= begin && first < end && (uintptr_t)bytes <= end - first)
            return buffer;
    }
    return NULL;
}

mimo_status mimo_buffer_find(const mimo_buffer **out, int64_t *offset, const mimo_comm *comm,
                             const void *data, int64_t bytes)
{
    MIMO_CHECK(out && offset && comm, MIMO_ERR_ARGUMENT, "mimo_buffer_find: %s is NULL",
               !out ? "out" : (!offset ? "offset" : "comm"));
    MIMO_CHECK(bytes >= 0, MIMO_ERR_ARGUMENT, "mimo_buffer_find: %" PRId64 " bytes", bytes);
    const mimo_buffer *found = mimo_buffer_holding(comm, data, bytes);
    MIMO_CHECK(found, MIMO_ERR_NOT_FOUND,
               "the %" PRId64 " bytes at %p lie in no buffer of the communicator", bytes, data);
    *out = found;
    *offset = (const char *)data - (const char *)mimo_buffer_data(found);
    return MIMO_OK;
}
