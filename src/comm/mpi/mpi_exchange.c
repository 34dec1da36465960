/*
 * An exchange's messages use the caller's rows, and MPI can't cancel a message that has begun to
 * move. So a guarded exchange has packed messages instead of direct ones.
 */
#include "comm/mpi/mpi_exchange.h"

#include <string.h>

#include "comm/mpi/mpi_direct_messages.h"
#include "comm/mpi/mpi_family.h"
#include "comm/peer_order.h"
#include "core/memory.h"

/* No other message of a communicator has this tag. */
enum { EXCHANGE_TAG = 2 };

struct mimo_exchange {
    const mimo_family *family;
    char **bases; /* bases[base_count], where the next start finds them */
    int base_count;
    bool bound;                         /* the messages are made for these */
    mimo_mpi_direct_messages *direct;   /* NULL: guarded */
    mimo_mpi_guarded_messages *guarded; /* NULL: direct */
    mimo_placed_copy *copies;           /* copies[copy_count] */
    int64_t copy_count;
    mimo_host_push *push; /* NULL: this rank pushes no rows, and no peer pushes rows here */
    int64_t moving;       /* bytes that the messages move */
};

/* -------------------------------------- messages -------------------------------------- */

static int64_t bytes_of(const mimo_message *messages, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        for (int64_t r = 0; r < messages[i].count; r++)
            bytes += mimo_rows_bytes(&messages[i].rows[r].rows);
    return bytes;
}

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
            : mimo_mpi_direct_messages_create(&exchange->direct, comm, EXCHANGE_TAG, &ordered);
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
    exchange->moving = bytes_of(messages->receives, messages->receive_count) +
                       bytes_of(messages->sends, messages->send_count);
    MIMO_TRY_GOTO(status, fail, prepare_messages(exchange, handle, comm->rank, messages));
    MIMO_TRY_GOTO(status, fail,
                  mimo_reserve(&exchange->bases, messages->base_count, sizeof(char *)));
    exchange->base_count = messages->base_count;
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
    mimo_mpi_direct_messages_destroy(exchange->direct, may_call);
    mimo_mpi_guarded_messages_destroy(exchange->guarded, may_call);
    mimo_release(exchange->bases);
    mimo_release(exchange->copies);
    mimo_host_push_destroy(exchange->push);
    mimo_release(exchange);
}

mimo_status mimo_mpi_exchange_bind(mimo_exchange *exchange, char *const *bases, uint64_t signature)
{
    size_t bytes = (size_t)exchange->base_count * sizeof *bases;
    if (exchange->push)
        mimo_host_push_bind(exchange->push, exchange->bases, signature);
    if (exchange->bound && memcmp(exchange->bases, bases, bytes) == 0)
        return MIMO_OK;
    exchange->bound = false;
    memcpy(exchange->bases, bases, bytes);
    if (exchange->guarded)
        mimo_mpi_guarded_messages_bind(exchange->guarded, bases);
    else
        MIMO_TRY(mimo_mpi_direct_messages_bind(exchange->direct, bases));
    exchange->bound = true;
    return MIMO_OK;
}

int mimo_mpi_exchange_count(const mimo_exchange *exchange)
{
    return exchange->guarded ? mimo_mpi_guarded_messages_count(exchange->guarded)
                             : mimo_mpi_direct_messages_count(exchange->direct);
}

int64_t mimo_mpi_exchange_bytes(const mimo_exchange *exchange)
{
    return exchange->guarded ? mimo_mpi_guarded_messages_bytes(exchange->guarded) : 0;
}

int64_t mimo_mpi_exchange_moving(const mimo_exchange *exchange)
{
    return exchange->moving;
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
    else
        MIMO_TRY(mimo_mpi_direct_messages_start(exchange->direct, request));
    for (int64_t i = 0; i < exchange->copy_count; i++) {
        const mimo_rows to = mimo_rows_at(&exchange->copies[i].to, exchange->bases);
        const mimo_rows from = mimo_rows_at(&exchange->copies[i].from, exchange->bases);
        MIMO_TRY(mimo_device_host.copy_rows(&to, &from, NULL));
    }
    return MIMO_OK;
}
