/*
 * A message is one committed datatype and one persistent request. The type holds the rows of a peer
 * over all tensors of a call, relative to the first of them. MPI walks the rows itself: nothing is
 * packed here, and a message past 2^31 bytes still has a count of one.
 *
 * Where the rows of a message lie behind one base, the type is made once. Behind several bases it
 * is joined again when these have moved, from types that are made once. Requests are made again in
 * both cases: MPI has no way to give a persistent request another address.
 */
#include "comm/mpi/mpi_direct_messages.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

typedef struct direct_message {
    int peer;
    int count;
    const mimo_placed_rows *rows; /* rows[count] */
    MPI_Datatype *members;        /* members[count]: each of the rows, seen from its first one */
    bool one_base;                /* of all rows */
    MPI_Datatype type; /* all rows, seen from the first one; MPI_DATATYPE_NULL: not made yet */
} direct_message;

struct mimo_mpi_direct_messages {
    MPI_Comm comm;
    int tag;
    int count, receives;    /* messages; the receives come first */
    direct_message *list;   /* list[count] */
    MPI_Request *requests;  /* requests[count], persistent; MPI_REQUEST_NULL: not made yet */
    mimo_placed_rows *rows; /* of all messages, in their order */
    MPI_Datatype *members;  /* of all rows, in their order; MPI_DATATYPE_NULL: not made yet */
    int64_t row_count;
    MPI_Aint *offsets; /* for joining: bytes from a message's first row */
    int *lengths;      /* all 1 */
};

/* ------------------------------------- datatypes -------------------------------------- */

static void free_type(MPI_Datatype *type)
{
    if (*type != MPI_DATATYPE_NULL)
        MPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
}

/* The number of a row counts from a message's first one. */
static char *row_begin(const direct_message *message, int i, char *const *bases)
{
    const mimo_rows rows = mimo_rows_at(&message->rows[i], bases);
    return mimo_rows_begin(&rows);
}

/* All rows of a message as one committed type. */
static mimo_status join(const mimo_mpi_direct_messages *all, direct_message *message,
                        char *const *bases)
{
    MPI_Aint origin, address;
    MIMO_TRY_MPI(MPI_Get_address(row_begin(message, 0, bases), &origin));
    for (int i = 0; i < message->count; i++) {
        MIMO_TRY_MPI(MPI_Get_address(row_begin(message, i, bases), &address));
        all->offsets[i] = MPI_Aint_diff(address, origin);
    }
    MPI_Datatype joined;
    MIMO_TRY_MPI(MPI_Type_create_struct(message->count, all->lengths, all->offsets,
                                        message->members, &joined));
    mimo_status status = mimo_mpi_status(MPI_Type_commit(&joined), "MPI_Type_commit");
    if (status == MIMO_OK)
        message->type = joined;
    else
        free_type(&joined);
    return status;
}

/* -------------------------------------- creation -------------------------------------- */

static mimo_status add_message(mimo_mpi_direct_messages *made, const mimo_message *from)
{
    direct_message *message = &made->list[made->count];
    mimo_placed_rows *rows = made->rows + made->row_count;
    MIMO_CHECK(from->count <= INT_MAX, MIMO_ERR_OVERFLOW,
               "%" PRId64 " pieces in one message to or from rank %d", from->count, from->peer);
    memcpy(rows, from->rows, (size_t)from->count * sizeof *rows);
    *message = (direct_message){.peer = from->peer,
                                .count = (int)from->count,
                                .rows = rows,
                                .members = made->members + made->row_count,
                                .one_base = true,
                                .type = MPI_DATATYPE_NULL};
    made->requests[made->count++] = MPI_REQUEST_NULL;
    for (int i = 0; i < message->count; i++) {
        message->one_base = message->one_base && rows[i].at.base == rows[0].at.base;
        MIMO_TRY(mimo_mpi_rows_type(&made->members[made->row_count], &rows[i].rows, 0));
        made->row_count++;
    }
    return MIMO_OK;
}

static mimo_status fill(mimo_mpi_direct_messages *made, const mimo_mpi_message_list *from)
{
    int64_t count = (int64_t)from->receives + from->sends, rows = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        rows += from->list[i].count;
        most = from->list[i].count > most ? from->list[i].count : most;
    }
    made->receives = from->receives;
    MIMO_TRY(mimo_reserve(&made->list, count, sizeof *made->list));
    MIMO_TRY(mimo_reserve(&made->requests, count, sizeof *made->requests));
    MIMO_TRY(mimo_reserve(&made->rows, rows, sizeof *made->rows));
    MIMO_TRY(mimo_reserve(&made->members, rows, sizeof *made->members));
    MIMO_TRY(mimo_reserve(&made->offsets, most, sizeof *made->offsets));
    MIMO_TRY(mimo_reserve(&made->lengths, most, sizeof *made->lengths));
    for (int64_t i = 0; i < most; i++)
        made->lengths[i] = 1;
    for (int64_t i = 0; i < count; i++)
        MIMO_TRY(add_message(made, &from->list[i]));
    return MIMO_OK;
}

mimo_status mimo_mpi_direct_messages_create(mimo_mpi_direct_messages **out, MPI_Comm comm, int tag,
                                            const mimo_mpi_message_list *from)
{
    mimo_mpi_direct_messages *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->comm = comm;
    made->tag = tag;
    mimo_status status = fill(made, from);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_mpi_direct_messages_destroy(made, true);
    return status;
}

/* What MPI has of them. */
static void free_handles(mimo_mpi_direct_messages *messages)
{
    for (int i = 0; i < messages->count; i++) {
        if (messages->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&messages->requests[i]);
        free_type(&messages->list[i].type);
    }
    for (int64_t i = 0; i < messages->row_count; i++)
        free_type(&messages->members[i]);
}

void mimo_mpi_direct_messages_destroy(mimo_mpi_direct_messages *messages, bool may_call)
{
    if (!messages)
        return;
    if (may_call)
        free_handles(messages);
    mimo_release(messages->list);
    mimo_release(messages->requests);
    mimo_release(messages->rows);
    mimo_release(messages->members);
    mimo_release(messages->offsets);
    mimo_release(messages->lengths);
    mimo_release(messages);
}

int mimo_mpi_direct_messages_count(const mimo_mpi_direct_messages *messages)
{
    return messages->count;
}

/* -------------------------------------- binding --------------------------------------- */

static mimo_status bind_message(mimo_mpi_direct_messages *all, int at, char *const *bases)
{
    direct_message *it = &all->list[at];
    MPI_Request *request = &all->requests[at];
    bool receives = at < all->receives;
    char *begin = row_begin(it, 0, bases);
    if (*request != MPI_REQUEST_NULL)
        MIMO_TRY_MPI(MPI_Request_free(request));
    if (!it->one_base)
        free_type(&it->type);
    if (it->count > 1 && it->type == MPI_DATATYPE_NULL)
        MIMO_TRY(join(all, it, bases));
    MPI_Datatype type = it->count > 1 ? it->type : it->members[0];
    int code = receives ? MPI_Recv_init(begin, 1, type, it->peer, all->tag, all->comm, request)
                        : MPI_Send_init(begin, 1, type, it->peer, all->tag, all->comm, request);
    if (code != MPI_SUCCESS)
        *request = MPI_REQUEST_NULL;
    return mimo_mpi_status(code, receives ? "MPI_Recv_init" : "MPI_Send_init");
}

mimo_status mimo_mpi_direct_messages_bind(mimo_mpi_direct_messages *messages, char *const *bases)
{
    for (int i = 0; i < messages->count; i++)
        MIMO_TRY(bind_message(messages, i, bases));
    return MIMO_OK;
}

/* A persistent request keeps its handle when it completes, so a copy of the handle can be
 * tested. */
mimo_status mimo_mpi_direct_messages_start(const mimo_mpi_direct_messages *messages,
                                           mimo_request *request)
{
    if (messages->count == 0)
        return MIMO_OK;
    MIMO_TRY_MPI(MPI_Startall(messages->count, messages->requests));
    memcpy(request->mpi, messages->requests, (size_t)messages->count * sizeof *request->mpi);
    request->point_to_point = true;
    request->receives = messages->receives;
    request->persistent = true;
    return MIMO_OK;
}
