#include "comm/mpi/mpi_guarded_messages.h"

#include <string.h>

#include "comm/host/host_packing.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

/* A message; its rows are packed at `offset` of a request's memory. */
typedef struct guarded_message {
    int peer;
    const mimo_rows *rows; /* rows[count] */
    int64_t count, offset;
    MPI_Datatype type;
} guarded_message;

struct mimo_mpi_guarded_messages {
    MPI_Comm comm;
    int tag;
    int count, receives;      /* messages made; the receives come first */
    guarded_message *list;    /* list[count] */
    mimo_placed_rows *placed; /* of all messages, in their order */
    mimo_rows *rows;          /* the same at the bases of now */
    int64_t row_count, received_rows;
    int64_t bytes;
};

static mimo_status add_message(mimo_mpi_guarded_messages *made, const mimo_message *message)
{
    mimo_rows *rows = made->rows + made->row_count;
    guarded_message *it = &made->list[made->count];
    memcpy(made->placed + made->row_count, message->rows,
           (size_t)message->count * sizeof *made->placed);
    for (int64_t i = 0; i < message->count; i++)
        rows[i] = message->rows[i].rows;
    int64_t bytes = mimo_host_packed_bytes(rows, message->count);
    *it = (guarded_message){message->peer, rows, message->count, made->bytes, MPI_DATATYPE_NULL};
    MIMO_TRY(mimo_mpi_bytes_type(&it->type, bytes));
    made->count++;
    made->row_count += message->count;
    made->bytes += bytes;
    return MIMO_OK;
}

static mimo_status fill(mimo_mpi_guarded_messages *made, const mimo_mpi_message_list *from)
{
    int64_t count = (int64_t)from->receives + from->sends, rows = 0;
    for (int64_t i = 0; i < count; i++)
        rows += from->list[i].count;
    MIMO_TRY(mimo_reserve(&made->list, count, sizeof *made->list));
    MIMO_TRY(mimo_reserve(&made->rows, rows, sizeof *made->rows));
    MIMO_TRY(mimo_reserve(&made->placed, rows, sizeof *made->placed));
    for (int64_t i = 0; i < count; i++) {
        MIMO_TRY(add_message(made, &from->list[i]));
        if (i < from->receives)
            made->received_rows = made->row_count;
    }
    made->receives = from->receives;
    return MIMO_OK;
}

mimo_status mimo_mpi_guarded_messages_create(mimo_mpi_guarded_messages **out, MPI_Comm comm,
                                             int tag, const mimo_mpi_message_list *from)
{
    mimo_mpi_guarded_messages *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->comm = comm;
    made->tag = tag;
    mimo_status status = fill(made, from);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_mpi_guarded_messages_destroy(made, true);
    return status;
}

void mimo_mpi_guarded_messages_destroy(mimo_mpi_guarded_messages *messages, bool may_call)
{
    if (!messages)
        return;
    for (int i = 0; i < messages->count && may_call; i++)
        MPI_Type_free(&messages->list[i].type);
    mimo_release(messages->list);
    mimo_release(messages->rows);
    mimo_release(messages->placed);
    mimo_release(messages);
}

int mimo_mpi_guarded_messages_count(const mimo_mpi_guarded_messages *messages)
{
    return messages->count;
}

int64_t mimo_mpi_guarded_messages_bytes(const mimo_mpi_guarded_messages *messages)
{
    return messages->bytes;
}

void mimo_mpi_guarded_messages_bind(mimo_mpi_guarded_messages *messages, char *const *bases)
{
    for (int64_t i = 0; i < messages->row_count; i++)
        messages->rows[i] = mimo_rows_at(&messages->placed[i], bases);
}

mimo_status mimo_mpi_guarded_messages_start(const mimo_mpi_guarded_messages *messages,
                                            mimo_request *request)
{
    request->point_to_point = request->guarded = true;
    request->receives = messages->receives;
    request->to = messages->rows;
    request->to_count = messages->received_rows;
    for (int i = 0; i < messages->count; i++) {
        const guarded_message *it = &messages->list[i];
        char *packed = request->memory + it->offset;
        if (i < messages->receives) {
            MIMO_TRY_MPI(MPI_Irecv(packed, 1, it->type, it->peer, messages->tag, messages->comm,
                                   &request->mpi[i]));
            continue;
        }
        MIMO_TRY(mimo_host_pack(packed, it->rows, it->count));
        MIMO_TRY_MPI(MPI_Isend(packed, 1, it->type, it->peer, messages->tag, messages->comm,
                               &request->mpi[i]));
    }
    return MIMO_OK;
}
