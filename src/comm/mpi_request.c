#include "comm/mpi_request.h"

#include <inttypes.h>
#include <limits.h>

#include "comm/mpi_types.h"
#include "core/memory.h"

enum { LEAST_ROOM = 64 }; /* pieces of a sum: 2^28 elements each */

/* ------------------------------------- one request ------------------------------------ */

static mimo_status request_create(mimo_request **out, mimo_mpi_requests *home, int64_t room)
{
    mimo_request *request;
    MIMO_CHECK(room <= INT_MAX, MIMO_ERR_OVERFLOW, "%" PRId64 " pieces in one call", room);
    MIMO_TRY(
        mimo_reserve(&request, (int64_t)sizeof *request + room * (int64_t)sizeof(MPI_Request), 1));
    request->home = home;
    request->room = room;
    *out = request;
    return MIMO_OK;
}

mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_requests *home, int64_t pieces)
{
    mimo_request *request = home->spare;
    if (request && pieces <= request->room)
        home->spare = request->next;
    else
        MIMO_TRY(request_create(&request, home, pieces > home->room ? pieces : home->room));
    request->next = NULL;
    request->pieces = (int)pieces;
    request->receives = 0;
    request->kept = false;
    request->push = NULL;
    request->types[0] = request->types[1] = MPI_DATATYPE_NULL;
    for (int i = 0; i < request->pieces; i++)
        request->piece[i] = MPI_REQUEST_NULL;
    *out = request;
    return MIMO_OK;
}

/* MPI moves on what it still has to send only when called, and testing nothing does not count. */
static mimo_status poke(void)
{
    int flag;
    MIMO_TRY_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    return MIMO_OK;
}

mimo_status mimo_mpi_request_test(mimo_request *request, bool *done)
{
    int flag = 0;
    MIMO_TRY(mimo_host_push_move(&request->home->flight));
    MIMO_TRY_MPI(MPI_Testall(request->pieces, request->piece, &flag, MPI_STATUSES_IGNORE));
    if (flag)
        request->receives = 0; /* nothing to call off */
    if (request->push && mimo_host_push_is_over(request->push))
        request->push = NULL;
    *done = flag && !request->push;
    return flag && !*done ? poke() : MIMO_OK;
}

/* Leave nothing of a point-to-point operation in flight that writes. A message that has begun to
 * arrive can't be cancelled: its receive is then waited for. The error that led here is the one to
 * report, so codes are not looked at. */
static void call_off(mimo_request *request)
{
    for (int i = 0; i < request->pieces; i++) {
        MPI_Request *piece = &request->piece[i];
        if (*piece == MPI_REQUEST_NULL)
            continue;
        if (i < request->receives) {
            MPI_Cancel(piece);
            MPI_Wait(piece, MPI_STATUS_IGNORE);
        } else if (!request->kept) {
            MPI_Request_free(piece);
        }
    }
}

void mimo_mpi_request_release(mimo_request *request)
{
    if (!request)
        return;
    if (request->receives > 0)
        call_off(request);
    if (request->push)
        mimo_host_push_leave(&request->home->flight, request->push);
    for (int i = 0; i < 2; i++)
        if (request->types[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&request->types[i]);
    request->next = request->home->spare;
    request->home->spare = request;
}

/* ------------------------------- those of a communicator ------------------------------ */

mimo_status mimo_mpi_requests_create(mimo_mpi_requests *out, int ranks)
{
    int64_t peers = 2 * ((int64_t)ranks - 1); /* a receive and a send each */
    *out = (mimo_mpi_requests){.room = peers > LEAST_ROOM ? peers : LEAST_ROOM};
    return request_create(&out->spare, out, out->room);
}

void mimo_mpi_requests_release(mimo_mpi_requests *requests)
{
    while (requests->spare) {
        mimo_request *request = requests->spare;
        requests->spare = request->next;
        mimo_release(request);
    }
}
