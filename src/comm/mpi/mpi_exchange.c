/*
 * A message is one committed datatype and one persistent request. The type holds the rows of a peer
 * over all tensors of a call, relative to the first of them. MPI walks the rows itself: nothing is
 * packed here, and a message past 2^31 bytes still has a count of one.
 *
 * MPI can't cancel a message that has begun to move, and these messages use the caller's rows. So a
 * guarded exchange has packed messages instead (mpi_guarded_messages.c).
 */
#include "comm/mpi/mpi_exchange.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "comm/mpi/mpi_family.h"
#include "comm/mpi/mpi_guarded_messages.h"
#include "comm/mpi/mpi_types.h"
#include "comm/peer_order.h"
#include "core/memory.h"

/* No other message of a communicator has this tag. */
enum { EXCHANGE_TAG = 2 };

struct mimo_exchange {
    const mimo_family *family;
    int ready, receives;                /* messages made; the receives come first */
    MPI_Datatype *types;                /* types[ready] */
    MPI_Request *requests;              /* requests[ready], persistent */
    mimo_mpi_guarded_messages *guarded; /* the messages of a guarded exchange, which has none of the
                                           above; otherwise NULL */
    mimo_row_copy *copies;              /* copies[copy_count] */
    int64_t copy_count;
    mimo_host_push *push; /* NULL: this rank pushes no rows, and no peer pushes rows here */
};

/* ------------------------------------- datatypes -------------------------------------- */

/* The members of a message's type, one for each mimo_rows. */
typedef struct member_list {
    int count; /* made so far */
    MPI_Datatype *types;
    MPI_Aint *offsets; /* bytes from the message's first row */
    int *lengths;      /* all 1 */
} member_list;

static void release_members(member_list *members)
{
    for (int i = 0; i < members->count; i++)
        MPI_Type_free(&members->types[i]);
    mimo_release(members->types);
    mimo_release(members->offsets);
    mimo_release(members->lengths);
}

static mimo_status list_members(member_list *members, const mimo_message *message)
{
    MPI_Aint origin, address;
    MIMO_TRY(mimo_reserve(&members->types, message->count, sizeof *members->types));
    MIMO_TRY(mimo_reserve(&members->offsets, message->count, sizeof *members->offsets));
    MIMO_TRY(mimo_reserve(&members->lengths, message->count, sizeof *members->lengths));
    MIMO_TRY_MPI(MPI_Get_address(mimo_rows_begin(&message->rows[0]), &origin));
    for (int i = 0; i < (int)message->count; i++) {
        MIMO_TRY(mimo_mpi_rows_type(&members->types[i], &message->rows[i], 0));
        members->count = i + 1;
        MIMO_TRY_MPI(MPI_Get_address(mimo_rows_begin(&message->rows[i]), &address));
        members->offsets[i] = MPI_Aint_diff(address, origin);
        members->lengths[i] = 1;
    }
    return MIMO_OK;
}

static mimo_status join_members(MPI_Datatype *out, const member_list *members)
{
    MPI_Datatype joined;
    MIMO_TRY_MPI(MPI_Type_create_struct(members->count, members->lengths, members->offsets,
                                        members->types, &joined));
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
    member_list members = {0};
    MIMO_CHECK(message->count <= INT_MAX, MIMO_ERR_OVERFLOW,
               "%" PRId64 " pieces in one message to or from rank %d", message->count,
               message->peer);
    if (message->count == 1)
        return mimo_mpi_rows_type(out, &message->rows[0], 0);
    mimo_status status = list_members(&members, message);
    if (status == MIMO_OK)
        status = join_members(out, &members);
    release_members(&members);
    return status;
}

/* -------------------------------------- requests -------------------------------------- */

typedef int (*init_call)(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                         MPI_Request *request);

static int init_receive(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                        MPI_Request *request)
{
    return MPI_Recv_init(mimo_rows_begin(&message->rows[0]), 1, type, message->peer, EXCHANGE_TAG,
                         comm, request);
}

static int init_send(MPI_Comm comm, const mimo_message *message, MPI_Datatype type,
                     MPI_Request *request)
{
    return MPI_Send_init(mimo_rows_begin(&message->rows[0]), 1, type, message->peer, EXCHANGE_TAG,
                         comm, request);
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

static mimo_status add_messages(mimo_exchange *exchange, MPI_Comm comm,
                                const mimo_mpi_message_list *from)
{
    int count = from->receives + from->sends;
    MIMO_TRY(mimo_reserve(&exchange->types, count, sizeof *exchange->types));
    MIMO_TRY(mimo_reserve(&exchange->requests, count, sizeof *exchange->requests));
    for (int i = 0; i < count; i++)
        MIMO_TRY(add_message(exchange, comm, &from->list[i],
                             i < from->receives ? init_receive : init_send));
    exchange->receives = from->receives;
    return MIMO_OK;
}

/* -------------------------------------- messages -------------------------------------- */

static void append_in_order(mimo_mpi_message_list *out, int at, int rank,
                            const mimo_message *messages, int count)
{
    int first = mimo_first_peer(rank, messages, count, sizeof *messages);
    for (int i = 0; i < count; i++)
        out->list[at + i] = messages[(first + i) % count];
}

static mimo_status order_messages(mimo_mpi_message_list *out, int rank,
                                  const mimo_messages *messages)
{
    out->receives = messages->receive_count;
    out->sends = messages->send_count;
    MIMO_TRY(mimo_reserve(&out->list, (int64_t)out->receives + out->sends, sizeof *out->list));
    append_in_order(out, 0, rank, messages->receives, out->receives);
    append_in_order(out, out->receives, rank, messages->sends, out->sends);
    return MIMO_OK;
}

static mimo_status prepare_messages(mimo_exchange *exchange, MPI_Comm comm, int rank,
                                    const mimo_messages *messages)
{
    mimo_mpi_message_list ordered;
    MIMO_TRY(order_messages(&ordered, rank, messages));
    mimo_status status =
        messages->guarded
            ? mimo_mpi_guarded_messages_create(&exchange->guarded, comm, EXCHANGE_TAG, &ordered)
            : add_messages(exchange, comm, &ordered);
    mimo_release(ordered.list);
    return status;
}

/* -------------------------------------- exchange -------------------------------------- */

mimo_status mimo_mpi_exchange_create(mimo_exchange **out, const mimo_comm *comm, MPI_Comm handle,
                                     const mimo_messages *messages)
{
    mimo_exchange *exchange;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&exchange, 1, sizeof *exchange));
    exchange->family = comm->family;
    MIMO_TRY_GOTO(status, fail, prepare_messages(exchange, handle, comm->rank, messages));
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
    if (!exchange)
        return;
    bool may_call = mimo_mpi_family_may_call(exchange->family);
    if (may_call)
        for (int i = 0; i < exchange->ready; i++) {
            MPI_Request_free(&exchange->requests[i]);
            MPI_Type_free(&exchange->types[i]);
        }
    mimo_release(exchange->types);
    mimo_release(exchange->requests);
    mimo_mpi_guarded_messages_destroy(exchange->guarded, may_call);
    mimo_release(exchange->copies);
    mimo_host_push_destroy(exchange->push);
    mimo_release(exchange);
}

int mimo_mpi_exchange_count(const mimo_exchange *exchange)
{
    return exchange->guarded ? mimo_mpi_guarded_messages_count(exchange->guarded) : exchange->ready;
}

int64_t mimo_mpi_exchange_bytes(const mimo_exchange *exchange)
{
    return exchange->guarded ? mimo_mpi_guarded_messages_bytes(exchange->guarded) : 0;
}

/* A persistent request keeps its handle when it completes, so a copy of the handle can be
 * tested. */
static mimo_status start_messages(mimo_exchange *exchange, mimo_request *request)
{
    MIMO_TRY_MPI(MPI_Startall(exchange->ready, exchange->requests));
    memcpy(request->mpi, exchange->requests, (size_t)exchange->ready * sizeof *request->mpi);
    request->point_to_point = true;
    request->receives = exchange->receives;
    request->persistent = true;
    return MIMO_OK;
}

/* Rows that stay are copied while messages are in flight and peers write. */
mimo_status mimo_mpi_exchange_start(mimo_exchange *exchange, mimo_request *request)
{
    if (exchange->push)
        MIMO_TRY(mimo_host_push_check(exchange->push));
    request->push = exchange->push;
    if (exchange->push)
        mimo_host_push_start(&request->pool->flight, exchange->push);
    if (exchange->guarded)
        MIMO_TRY(mimo_mpi_guarded_messages_start(exchange->guarded, request));
    else if (exchange->ready > 0)
        MIMO_TRY(start_messages(exchange, request));
    for (int64_t i = 0; i < exchange->copy_count; i++)
        MIMO_TRY(
            mimo_device_host.copy_rows(&exchange->copies[i].to, &exchange->copies[i].from, NULL));
    return MIMO_OK;
}
