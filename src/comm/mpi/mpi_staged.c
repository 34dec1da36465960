#include "comm/mpi/mpi_staged.h"

#include <string.h>

#include "comm/mpi/mpi_exchange.h"
#include "comm/mpi/mpi_packing.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

/* A message, packed at words + at. */
typedef struct staged_message {
    int peer;
    const mimo_rows *rows; /* rows[count] */
    int64_t count, at;
    MPI_Datatype type;
} staged_message;

struct mimo_mpi_staged {
    MPI_Comm comm;
    int count, receives;      /* messages made; the receives come first */
    staged_message *messages; /* messages[count] */
    mimo_rows *rows;          /* of all of them, in their order */
    int64_t row_count, received_rows;
    int64_t bytes;
};

static mimo_status add_message(mimo_mpi_staged *staged, const mimo_message *message)
{
    mimo_rows *rows = staged->rows + staged->row_count;
    int64_t bytes = mimo_mpi_packed_bytes(message->rows, message->count);
    staged_message *it = &staged->messages[staged->count];
    memcpy(rows, message->rows, (size_t)message->count * sizeof *rows);
    *it = (staged_message){message->peer, rows, message->count, staged->bytes, MPI_DATATYPE_NULL};
    MIMO_TRY(mimo_mpi_bytes_type(&it->type, bytes));
    staged->count++;
    staged->row_count += message->count;
    staged->bytes += bytes;
    return MIMO_OK;
}

/* In the order of an exchange that is not guarded. */
static mimo_status add_messages(mimo_mpi_staged *staged, int rank, const mimo_message *messages,
                                int count)
{
    int above = mimo_mpi_first_above(rank, messages, count);
    for (int i = 0; i < count; i++)
        MIMO_TRY(add_message(staged, &messages[(above + i) % count]));
    return MIMO_OK;
}

static int64_t rows_of(const mimo_message *messages, int count)
{
    int64_t rows = 0;
    for (int i = 0; i < count; i++)
        rows += messages[i].count;
    return rows;
}

static mimo_status fill(mimo_mpi_staged *staged, int rank, const mimo_messages *messages)
{
    int64_t count = (int64_t)messages->receive_count + messages->send_count;
    int64_t rows = rows_of(messages->receives, messages->receive_count) +
                   rows_of(messages->sends, messages->send_count);
    MIMO_TRY(mimo_reserve(&staged->messages, count, sizeof *staged->messages));
    MIMO_TRY(mimo_reserve(&staged->rows, rows, sizeof *staged->rows));
    MIMO_TRY(add_messages(staged, rank, messages->receives, messages->receive_count));
    staged->receives = staged->count;
    staged->received_rows = staged->row_count;
    return add_messages(staged, rank, messages->sends, messages->send_count);
}

mimo_status mimo_mpi_staged_create(mimo_mpi_staged **out, MPI_Comm comm, int rank,
                                   const mimo_messages *messages)
{
    mimo_mpi_staged *staged;
    MIMO_TRY(mimo_reserve(&staged, 1, sizeof *staged));
    staged->comm = comm;
    mimo_status status = fill(staged, rank, messages);
    if (status == MIMO_OK)
        *out = staged;
    else
        mimo_mpi_staged_destroy(staged);
    return status;
}

void mimo_mpi_staged_destroy(mimo_mpi_staged *staged)
{
    int finalized = 1;
    if (!staged)
        return;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
        for (int i = 0; i < staged->count; i++)
            MPI_Type_free(&staged->messages[i].type);
    mimo_release(staged->messages);
    mimo_release(staged->rows);
    mimo_release(staged);
}

int mimo_mpi_staged_pieces(const mimo_mpi_staged *staged)
{
    return staged->count;
}

int64_t mimo_mpi_staged_bytes(const mimo_mpi_staged *staged)
{
    return staged->bytes;
}

mimo_status mimo_mpi_staged_start(const mimo_mpi_staged *staged, mimo_request *request)
{
    request->messages = request->guarded = true;
    request->receives = staged->receives;
    request->to = staged->rows;
    request->to_count = staged->received_rows;
    for (int i = 0; i < staged->count; i++) {
        const staged_message *it = &staged->messages[i];
        char *at = request->words + it->at;
        if (i < staged->receives) {
            MIMO_TRY_MPI(MPI_Irecv(at, 1, it->type, it->peer, MIMO_MPI_EXCHANGE_TAG, staged->comm,
                                   &request->piece[i]));
            continue;
        }
        MIMO_TRY(mimo_mpi_pack(at, it->rows, it->count));
        MIMO_TRY_MPI(MPI_Isend(at, 1, it->type, it->peer, MIMO_MPI_EXCHANGE_TAG, staged->comm,
                               &request->piece[i]));
    }
    return MIMO_OK;
}
