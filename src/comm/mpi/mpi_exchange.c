/*
 * One message is one datatype, committed once, and one persistent request: the rows of a peer over
 * all tensors of a call, relative to the first of them. MPI walks the rows itself, so nothing is
 * packed here, and a message past 2^31 bytes is still a count of one.
 *
 * MPI can't call off a message that has begun to move, and these lie on the caller's rows. So a
 * guarded exchange has other messages, which are packed (mpi_staged.c).
 */
#include "comm/mpi/mpi_exchange.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "comm/mpi/mpi_staged.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

struct mimo_exchange {
    int ready, receives;     /* messages made; the receives come first */
    MPI_Datatype *types;     /* types[ready] */
    MPI_Request *requests;   /* requests[ready], persistent */
    mimo_mpi_staged *staged; /* guarded: the messages, and none of the above; else NULL */
    mimo_row_copy *copies;   /* copies[copy_count] */
    int64_t copy_count;
    mimo_host_push *push; /* NULL: no rows are pushed, nor come so */
};

/* ------------------------------------- datatypes -------------------------------------- */

/* The parts of a message's type. */
typedef struct part_list {
    int count; /* made so far */
    MPI_Datatype *types;
    MPI_Aint *places; /* bytes from the message's first row */
    int *lengths;     /* all 1 */
} part_list;

static void release_parts(part_list *parts)
{
    for (int i = 0; i < parts->count; i++)
        MPI_Type_free(&parts->types[i]);
    mimo_release(parts->types);
    mimo_release(parts->places);
    mimo_release(parts->lengths);
}

static mimo_status list_parts(part_list *parts, const mimo_message *message)
{
    MPI_Aint origin, place;
    MIMO_TRY(mimo_reserve(&parts->types, message->count, sizeof *parts->types));
    MIMO_TRY(mimo_reserve(&parts->places, message->count, sizeof *parts->places));
    MIMO_TRY(mimo_reserve(&parts->lengths, message->count, sizeof *parts->lengths));
    MIMO_TRY_MPI(MPI_Get_address(mimo_rows_begin(&message->rows[0]), &origin));
    for (int i = 0; i < (int)message->count; i++) {
        MIMO_TRY(mimo_mpi_rows_type(&parts->types[i], &message->rows[i], 0));
        parts->count = i + 1;
        MIMO_TRY_MPI(MPI_Get_address(mimo_rows_begin(&message->rows[i]), &place));
        parts->places[i] = MPI_Aint_diff(place, origin);
        parts->lengths[i] = 1;
    }
    return MIMO_OK;
}

static mimo_status join_parts(MPI_Datatype *out, const part_list *parts)
{
    MPI_Datatype joined;
    MIMO_TRY_MPI(
        MPI_Type_create_struct(parts->count, parts->lengths, parts->places, parts->types, &joined));
    mimo_status status = mimo_mpi_status(MPI_Type_commit(&joined), "MPI_Type_commit");
    if (status == MIMO_OK)
        *out = joined;
    else
        MPI_Type_free(&joined);
    return status;
}

/* All rows of a message as one committed type, seen from its first row. */
static mimo_status message_type(MPI_Datatype *out, const mimo_message *message)
{
    part_list parts = {0};
    MIMO_CHECK(message->count <= INT_MAX, MIMO_ERR_OVERFLOW,
               "%" PRId64 " pieces in one message to or from rank %d", message->count,
               message->peer);
    if (message->count == 1)
        return mimo_mpi_rows_type(out, &message->rows[0], 0);
    mimo_status status = list_parts(&parts, message);
    if (status == MIMO_OK)
        status = join_parts(out, &parts);
    release_parts(&parts);
    return status;
}

/* -------------------------------------- requests -------------------------------------- */

typedef int (*init_call)(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                         MPI_Request *request);

static int init_receive(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                        MPI_Request *request)
{
    return MPI_Recv_init(mimo_rows_begin(&message->rows[0]), 1, type, message->peer,
                         MIMO_MPI_EXCHANGE_TAG, comm, request);
}

static int init_send(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                     MPI_Request *request)
{
    return MPI_Send_init(mimo_rows_begin(&message->rows[0]), 1, type, message->peer,
                         MIMO_MPI_EXCHANGE_TAG, comm, request);
}

static mimo_status add_message(mimo_exchange *exchange, MPI_Comm comm, const mimo_message *message,
                               init_call init)
{
    int at = exchange->ready;
    MIMO_TRY(message_type(&exchange->types[at], message));
    int code = init(comm, message, exchange->types[at], &exchange->requests[at]);
    if (code != MPI_SUCCESS)
        MPI_Type_free(&exchange->types[at]);
    else
        exchange->ready++;
    return mimo_mpi_status(code, init == init_send ? "MPI_Send_init" : "MPI_Recv_init");
}

int mimo_mpi_first_above(int rank, const mimo_message *messages, int count)
{
    int above = 0;
    while (above < count && messages[above].peer < rank)
        above++;
    return above;
}

static mimo_status add_messages(mimo_exchange *exchange, MPI_Comm comm, int rank,
                                const mimo_message *messages, int count, init_call init)
{
    int above = mimo_mpi_first_above(rank, messages, count);
    for (int i = 0; i < count; i++)
        MIMO_TRY(add_message(exchange, comm, &messages[(above + i) % count], init));
    return MIMO_OK;
}

static mimo_status add_both(mimo_exchange *exchange, MPI_Comm comm, int rank,
                            const mimo_messages *messages)
{
    int64_t count = (int64_t)messages->receive_count + messages->send_count;
    MIMO_TRY(mimo_reserve(&exchange->types, count, sizeof *exchange->types));
    MIMO_TRY(mimo_reserve(&exchange->requests, count, sizeof *exchange->requests));
    MIMO_TRY(add_messages(exchange, comm, rank, messages->receives, messages->receive_count,
                          init_receive));
    exchange->receives = exchange->ready;
    return add_messages(exchange, comm, rank, messages->sends, messages->send_count, init_send);
}

mimo_status mimo_mpi_exchange_create(mimo_exchange **out, MPI_Comm comm, int rank,
                                     const mimo_messages *messages)
{
    mimo_exchange *exchange;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&exchange, 1, sizeof *exchange));
    if (messages->guarded)
        status = mimo_mpi_staged_create(&exchange->staged, comm, rank, messages);
    else
        status = add_both(exchange, comm, rank, messages);
    MIMO_TRY_GOTO(status, fail, status);
    MIMO_TRY_GOTO(status, fail,
                  mimo_duplicate(&exchange->copies, messages->copies, messages->copy_count,
                                 sizeof *exchange->copies));
    exchange->copy_count = messages->copy_count;
    MIMO_TRY_GOTO(status, fail, mimo_host_push_create(&exchange->push, &messages->pushes));
    *out = exchange;
    return MIMO_OK;
fail:
    mimo_mpi_exchange_destroy(exchange);
    return status;
}

void mimo_mpi_exchange_destroy(mimo_exchange *exchange)
{
    int finalized = 1;
    if (!exchange)
        return;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
        for (int i = 0; i < exchange->ready; i++) {
            MPI_Request_free(&exchange->requests[i]);
            MPI_Type_free(&exchange->types[i]);
        }
    mimo_release(exchange->types);
    mimo_release(exchange->requests);
    mimo_mpi_staged_destroy(exchange->staged);
    mimo_release(exchange->copies);
    mimo_host_push_destroy(exchange->push);
    mimo_release(exchange);
}

int mimo_mpi_exchange_pieces(const mimo_exchange *exchange)
{
    return exchange->staged ? mimo_mpi_staged_pieces(exchange->staged) : exchange->ready;
}

int64_t mimo_mpi_exchange_words(const mimo_exchange *exchange)
{
    return exchange->staged ? mimo_mpi_staged_bytes(exchange->staged) : 0;
}

/* A persistent request keeps its handle when it completes, so whoever tests can hold copies. */
static mimo_status start_messages(mimo_exchange *exchange, mimo_request *request)
{
    MIMO_TRY_MPI(MPI_Startall(exchange->ready, exchange->requests));
    memcpy(request->piece, exchange->requests, (size_t)exchange->ready * sizeof *request->piece);
    request->messages = true;
    request->receives = exchange->receives;
    request->kept = true;
    return MIMO_OK;
}

/* What stays here is copied while the messages are in flight, and peers write. */
mimo_status mimo_mpi_exchange_start(mimo_exchange *exchange, mimo_request *request)
{
    if (exchange->push)
        MIMO_TRY(mimo_host_push_check(exchange->push));
    request->push = exchange->push;
    if (exchange->push)
        mimo_host_push_start(&request->home->flight, exchange->push);
    if (exchange->staged)
        MIMO_TRY(mimo_mpi_staged_start(exchange->staged, request));
    else if (exchange->ready > 0)
        MIMO_TRY(start_messages(exchange, request));
    for (int64_t i = 0; i < exchange->copy_count; i++)
        MIMO_TRY(
            mimo_device_host.copy_rows(&exchange->copies[i].to, &exchange->copies[i].from, NULL));
    return MIMO_OK;
}
