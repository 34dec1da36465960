/*
 * The Open MPI backend: host memory, nonblocking collectives on a duplicate of the caller's
 * communicator. Duplicating and splitting are the exception: MPI 3.1 has no nonblocking split, so
 * the front agrees first and every rank is known to arrive.
 */
#include <limits.h>
#include <string.h>

#include <mimo/mpi.h>

#include "comm/agreement.h"
#include "comm/comm_backend.h"
#include "comm/host_buffer.h"
#include "comm/mpi_exchange.h"
#include "comm/mpi_request.h"
#include "comm/mpi_sums.h"
#include "comm/mpi_types.h"
#include "core/hash.h"
#include "core/memory.h"

enum { ELEMENTS_PER_PIECE = 1 << 28, GATHER_TAG = 1 };

typedef struct mpi_comm {
    mimo_comm base;
    MPI_Comm handle;
    bool owned;
    mimo_mpi_sums sums;
    mimo_mpi_requests requests;
} mpi_comm;

static const mimo_comm_backend mpi_backend;

static MPI_Comm handle_of(mimo_comm *comm)
{
    return ((mpi_comm *)comm)->handle;
}

/* ------------------------------------ requests ------------------------------------ */

/* A request of so many pieces of this communicator. */
static mimo_status take(mimo_request **out, mimo_comm *comm, int64_t pieces)
{
    return mimo_mpi_request_take(out, &((mpi_comm *)comm)->requests, pieces);
}

/* Hand a started request to the caller, or release it where starting failed. */
static mimo_status hand_over(mimo_request **out, mimo_request *request, mimo_status started)
{
    if (started == MIMO_OK)
        *out = request;
    else
        mimo_mpi_request_release(request);
    return started;
}

/* ----------------------------- agreement and sentences ---------------------------- */

static mimo_status vote_start(mimo_request **out, mimo_comm *comm, uint64_t *words, int count)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, 1));
    int code = MPI_Iallreduce(MPI_IN_PLACE, words, count, MPI_UINT64_T, MPI_MAX, handle_of(comm),
                              request->piece);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Iallreduce"));
}

static mimo_status tell_start(mimo_request **out, mimo_comm *comm, void *data, int bytes, int root)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, 1));
    int code = MPI_Ibcast(data, bytes, MPI_BYTE, root, handle_of(comm), request->piece);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Ibcast"));
}

static mimo_status collect_start(mimo_request **out, mimo_comm *comm, void *to, const void *from,
                                 int bytes)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, 1));
    int code =
        MPI_Iallgather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, handle_of(comm), request->piece);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Iallgather"));
}

/* -------------------------------------- data -------------------------------------- */

/* Operators work on elements, so counts past an int go in pieces instead of a nested type. */
static mimo_status allreduce_start(mimo_request **out, mimo_comm *comm,
                                   const mimo_reduction *reduction, mimo_stream stream)
{
    mimo_request *request;
    MPI_Datatype type;
    MPI_Op op;
    mimo_status status = MIMO_OK;
    (void)stream;
    int64_t count = reduction->count, bytes = (int64_t)mimo_dtype_size(reduction->dtype);
    int64_t pieces = (count + ELEMENTS_PER_PIECE - 1) / ELEMENTS_PER_PIECE;
    MIMO_TRY(take(&request, comm, pieces));
    mimo_mpi_sums_pick(&((mpi_comm *)comm)->sums, reduction->dtype, reduction->op, &type, &op);
    for (int64_t i = 0; i < pieces && status == MIMO_OK; i++) {
        int64_t first = i * ELEMENTS_PER_PIECE, left = count - first;
        int length = (int)(left < ELEMENTS_PER_PIECE ? left : ELEMENTS_PER_PIECE);
        int code = MPI_Iallreduce(MPI_IN_PLACE, (char *)reduction->data + first * bytes, length,
                                  type, op, handle_of(comm), &request->piece[i]);
        status = mimo_mpi_status(code, "MPI_Iallreduce");
    }
    return hand_over(out, request, status);
}

static mimo_status broadcast_bytes(mimo_request *request, mimo_comm *comm, void *data,
                                   int64_t bytes, int root)
{
    MIMO_TRY(mimo_mpi_bytes_type(&request->types[0], bytes));
    MIMO_TRY_MPI(MPI_Ibcast(data, 1, request->types[0], root, handle_of(comm), request->piece));
    return MIMO_OK;
}

static mimo_status broadcast_start(mimo_request **out, mimo_comm *comm, void *data, int64_t bytes,
                                   int root, mimo_stream stream)
{
    mimo_request *request;
    (void)stream;
    MIMO_TRY(take(&request, comm, 1));
    return hand_over(out, request, broadcast_bytes(request, comm, data, bytes, root));
}

static char *slot_of(const mimo_rows *to, int64_t step, int rank)
{
    return mimo_rows_begin(to) + rank * step * to->row_bytes;
}

/* Every receive before any send, peers in the order of their distance, so that no rank is
 * everybody's first target. The order of messages between two ranks is the order of the calls. */
static mimo_status allgather_peers(mimo_request *request, mimo_comm *comm, const mimo_rows *to,
                                   int64_t step, const mimo_rows *from)
{
    int rank = comm->rank, size = comm->size;
    MPI_Request *piece = request->piece;
    request->receives = size - 1;
    MIMO_TRY(mimo_mpi_rows_type(&request->types[0], to, step));
    MIMO_TRY(mimo_mpi_rows_type(&request->types[1], from, 0));
    for (int distance = 1; distance < size; distance++) {
        int peer = (rank - distance + size) % size;
        MIMO_TRY_MPI(MPI_Irecv(slot_of(to, step, peer), 1, request->types[0], peer, GATHER_TAG,
                               handle_of(comm), piece++));
    }
    for (int distance = 1; distance < size; distance++) {
        int peer = (rank + distance) % size;
        MIMO_TRY_MPI(MPI_Isend(mimo_rows_begin(from), 1, request->types[1], peer, GATHER_TAG,
                               handle_of(comm), piece++));
    }
    return MIMO_OK;
}

/* Direct exchange instead of MPI_Iallgather: each tile goes once from its owner straight into its
 * place (0.9 to 1.1 times a bare MPI_Allgather of contiguous tiles, where MPI_Iallgather into a
 * strided type took 1.1 to 1.5; bench/bridge_bench). */
static mimo_status allgather_start(mimo_request **out, mimo_comm *comm, const mimo_rows *to,
                                   int64_t step, const mimo_rows *from, mimo_stream stream)
{
    mimo_request *request;
    mimo_rows own = *to;
    own.first += comm->rank * step;
    MIMO_TRY(take(&request, comm, 2 * ((int64_t)comm->size - 1)));
    mimo_status status = allgather_peers(request, comm, to, step, from->base ? from : &own);
    if (status == MIMO_OK && from->base)
        status = comm->device->copy_rows(&own, from, stream);
    return hand_over(out, request, status);
}

static mimo_status exchange_create(mimo_exchange **out, mimo_comm *comm,
                                   const mimo_messages *messages)
{
    return mimo_mpi_exchange_create(out, handle_of(comm), comm->rank, messages);
}

static mimo_status exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                  mimo_stream stream)
{
    mimo_request *request;
    (void)stream;
    MIMO_TRY(take(&request, comm, mimo_mpi_exchange_pieces(exchange)));
    return hand_over(out, request, mimo_mpi_exchange_start(exchange, request));
}

/* --------------------------------- life of a comm --------------------------------- */

static mimo_status comm_create(mimo_comm **out, MPI_Comm handle, bool owned)
{
    mpi_comm *comm;
    MIMO_TRY(mimo_reserve(&comm, 1, sizeof *comm));
    mimo_status status = mimo_mpi_sums_create(&comm->sums);
    MIMO_KEEP_FIRST(status,
                    mimo_mpi_status(MPI_Comm_rank(handle, &comm->base.rank), "MPI_Comm_rank"));
    MIMO_KEEP_FIRST(status,
                    mimo_mpi_status(MPI_Comm_size(handle, &comm->base.size), "MPI_Comm_size"));
    if (status == MIMO_OK)
        status = mimo_mpi_requests_create(&comm->requests, comm->base.size);
    if (status != MIMO_OK) {
        mimo_mpi_sums_release(&comm->sums);
        mimo_release(comm);
        return status;
    }
    comm->base.backend = &mpi_backend;
    comm->base.device = &mimo_device_host;
    comm->base.memory = MIMO_MEMORY_HOST;
    comm->handle = handle;
    comm->owned = owned;
    *out = &comm->base;
    return MIMO_OK;
}

static void comm_destroy(mimo_comm *base)
{
    mpi_comm *comm = (mpi_comm *)base;
    int finalized = 1;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized) {
        mimo_mpi_sums_release(&comm->sums);
        if (comm->owned)
            MPI_Comm_free(&comm->handle);
    }
    mimo_mpi_requests_release(&comm->requests);
    mimo_release(comm);
}

/* Own a fresh handle: errors come back as statuses, and a handle that can't be kept is freed. */
static mimo_status adopt(mimo_comm **out, MPI_Comm handle)
{
    mimo_status status = mimo_mpi_status(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN),
                                         "MPI_Comm_set_errhandler");
    if (status == MIMO_OK)
        status = comm_create(out, handle, true);
    if (status != MIMO_OK)
        MPI_Comm_free(&handle);
    return status;
}

static mimo_status comm_split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    MPI_Comm handle;
    MIMO_TRY_MPI(
        MPI_Comm_split(handle_of(parent), color < 0 ? MPI_UNDEFINED : color, key, &handle));
    if (handle == MPI_COMM_NULL) {
        *out = NULL;
        return MIMO_OK;
    }
    return adopt(out, handle);
}

static const mimo_comm_backend mpi_backend = {
    .name = "mpi",
    .split = comm_split,
    .destroy = comm_destroy,
    .vote_start = vote_start,
    .tell_start = tell_start,
    .collect_start = collect_start,
    .allreduce_start = allreduce_start,
    .broadcast_start = broadcast_start,
    .allgather_start = allgather_start,
    .exchange_create = exchange_create,
    .exchange_start = exchange_start,
    .exchange_destroy = mimo_mpi_exchange_destroy,
    .buffer_open = mimo_host_buffer_open,
    .buffer_close = mimo_host_buffer_close,
    .test = mimo_mpi_request_test,
    .release = mimo_mpi_request_release,
};

/* ----------------------------------- <mimo/mpi.h> --------------------------------- */

static mimo_status check_handle(const void *out, MPI_Comm mpi, const char *call)
{
    int initialized = 0, finalized = 0, inter = 0;
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "%s: out is NULL", call);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    MIMO_CHECK(initialized && !finalized, MIMO_ERR_STATE, "%s: MPI is %s", call,
               finalized ? "finalized" : "not initialised");
    MIMO_CHECK(mpi != MPI_COMM_NULL, MIMO_ERR_ARGUMENT, "%s: the communicator is MPI_COMM_NULL",
               call);
    MIMO_TRY_MPI(MPI_Comm_test_inter(mpi, &inter));
    MIMO_CHECK(!inter, MIMO_ERR_ARGUMENT, "%s: the communicator is an intercommunicator", call);
    return MIMO_OK;
}

/* The caller's error handler is left as it was, but does not decide over our duplicate. */
static mimo_status duplicate(MPI_Comm *out, MPI_Comm mpi)
{
    MPI_Errhandler handler;
    MIMO_TRY_MPI(MPI_Comm_get_errhandler(mpi, &handler));
    int code = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_dup(mpi, out);
        MPI_Comm_set_errhandler(mpi, handler);
    }
    MPI_Errhandler_free(&handler);
    return mimo_mpi_status(code, "MPI_Comm_dup");
}

mimo_status mimo_comm_from_mpi(mimo_comm **out, MPI_Comm mpi)
{
    MPI_Comm handle;
    MIMO_TRY(check_handle(out, mpi, "mimo_comm_from_mpi"));
    MIMO_TRY(duplicate(&handle, mpi));
    return adopt(out, handle);
}

mimo_status mimo_comm_borrow_mpi(mimo_comm **out, MPI_Comm mpi)
{
    MIMO_TRY(check_handle(out, mpi, "mimo_comm_borrow_mpi"));
    return comm_create(out, mpi, false);
}

static int bootstrap_allgather(void *context, void *to, const void *from, size_t bytes)
{
    MPI_Comm *mpi = context;
    if (bytes > INT_MAX)
        return 1;
    return MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, *mpi) != MPI_SUCCESS;
}

mimo_status mimo_bootstrap_from_mpi(mimo_bootstrap *out, MPI_Comm *mpi)
{
    int rank, size;
    MIMO_CHECK(mpi, MIMO_ERR_ARGUMENT, "mimo_bootstrap_from_mpi: mpi is NULL");
    MIMO_TRY(check_handle(out, *mpi, "mimo_bootstrap_from_mpi"));
    MIMO_TRY_MPI(MPI_Comm_rank(*mpi, &rank));
    MIMO_TRY_MPI(MPI_Comm_size(*mpi, &size));
    *out = (mimo_bootstrap){rank, size, bootstrap_allgather, mpi};
    return MIMO_OK;
}
