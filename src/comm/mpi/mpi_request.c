#include "comm/mpi/mpi_request.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/mpi/mpi_packing.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

enum { LEAST_ROOM = 64 }; /* pieces of a sum: 2^28 elements each */

/* Sums are made in words: any element lies right there. */
enum { WORDS_ALIGNMENT = 16 };

/* Once peers are given up: how long a message that has begun to arrive is waited for. */
enum { LAST_WAIT = 50000000 }; /* nanoseconds */

/* ------------------------------------- one request ------------------------------------ */

static mimo_status request_create(mimo_request **out, mimo_mpi_requests *home, int64_t room,
                                  int64_t words)
{
    mimo_request *request;
    MIMO_CHECK(room <= INT_MAX, MIMO_ERR_OVERFLOW, "%" PRId64 " pieces in one call", room);
    int64_t head = (int64_t)sizeof *request + room * (int64_t)sizeof(MPI_Request);
    head = (head + WORDS_ALIGNMENT - 1) / WORDS_ALIGNMENT * WORDS_ALIGNMENT;
    MIMO_TRY(mimo_reserve(&request, head + words, 1));
    request->home = home;
    request->room = room;
    request->words_room = words;
    request->words = (char *)request + head;
    *out = request;
    return MIMO_OK;
}

/* The smallest that fits, so that a vote does not take what a guarded call was promised. */
static mimo_request *take_spare(mimo_mpi_requests *home, int64_t pieces, int64_t words)
{
    mimo_request **best = NULL, *found;
    for (mimo_request **at = &home->spare; *at; at = &(*at)->next)
        if ((*at)->room >= pieces && (*at)->words_room >= words &&
            (!best || (*at)->words_room < (*best)->words_room))
            best = at;
    if (!best)
        return NULL;
    found = *best;
    *best = found->next;
    return found;
}

static bool is_large(const mimo_request *request)
{
    return request->words_room > request->home->words_room;
}

mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_requests *home, int64_t pieces,
                                  int64_t words)
{
    mimo_request *request = take_spare(home, pieces, words);
    if (!request)
        MIMO_TRY(request_create(&request, home, pieces > home->room ? pieces : home->room,
                                words > home->words_room ? words : home->words_room));
    if (is_large(request))
        home->lent = request->words_room;
    request->next = NULL;
    request->to_count = request->offset = 0;
    request->pieces = (int)pieces;
    request->receives = 0;
    request->messages = request->guarded = request->kept = request->over = false;
    request->push = NULL;
    request->types[0] = request->types[1] = MPI_DATATYPE_NULL;
    for (int i = 0; i < request->pieces; i++)
        request->piece[i] = MPI_REQUEST_NULL;
    *out = request;
    return MIMO_OK;
}

void mimo_mpi_request_hold(mimo_request *request, void *data, int64_t bytes)
{
    memcpy(request->words, data, (size_t)bytes);
    request->place = (mimo_rows){data, bytes, 0, 1, 1, 1, 1};
    request->to = &request->place;
    request->to_count = 1;
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
    if (flag && !request->over)
        MIMO_TRY(mimo_mpi_unpack(request->to, request->to_count, request->words + request->offset));
    request->over = flag != 0;
    *done = flag && (!request->push || mimo_host_push_is_over(request->push));
    if (flag && !*done)
        return poke();
    if (!*done || !request->push)
        return MIMO_OK;
    mimo_status outcome = mimo_host_push_outcome(request->push);
    request->push = NULL;
    return outcome;
}

/* Cancel a receive. A message that has begun to arrive can't be cancelled: it is then waited for,
 * but not for ever where its sender may be gone. */
static void cancel(MPI_Request *piece, const mimo_family *family)
{
    int done = 0;
    int64_t until = mimo_now() + LAST_WAIT;
    MPI_Cancel(piece);
    for (;;) {
        bool gone = mimo_family_status(family) != MIMO_OK && mimo_now() > until;
        if (MPI_Test(piece, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done || gone)
            return;
        sched_yield();
    }
}

/* Leave nothing of a point-to-point operation in flight that writes into the caller's memory, nor
 * a receive that would take a message of a later call. The error that led here is the one to
 * report, so codes are not looked at. */
static void call_off(mimo_request *request)
{
    bool later_calls = mimo_family_status(request->home->family) == MIMO_OK;
    for (int i = 0; i < request->pieces && (later_calls || !request->guarded); i++) {
        MPI_Request *piece = &request->piece[i];
        if (*piece != MPI_REQUEST_NULL && i < request->receives)
            cancel(piece, request->home->family);
        if (*piece != MPI_REQUEST_NULL && !request->kept && !request->guarded)
            MPI_Request_free(piece);
    }
}

/* Whether MPI still has something of it, that is no message on the caller's memory. */
static bool is_stuck(const mimo_request *request)
{
    if (request->over || (request->messages && !request->guarded))
        return false;
    for (int i = 0; i < request->pieces; i++)
        if (request->piece[i] != MPI_REQUEST_NULL)
            return true;
    return false;
}

void mimo_mpi_request_release(mimo_request *request)
{
    if (!request)
        return;
    if (request->messages && !request->over)
        call_off(request);
    if (request->push)
        mimo_host_push_leave(&request->home->flight, request->push);
    for (int i = 0; i < 2; i++)
        if (request->types[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&request->types[i]);
    if (is_large(request))
        request->home->lent = 0;
    mimo_request **list = is_stuck(request) ? &request->home->stuck : &request->home->spare;
    request->next = *list;
    *list = request;
}

/* ------------------------------- those of a communicator ------------------------------ */

mimo_status mimo_mpi_requests_create(mimo_mpi_requests *out, const mimo_family *family, int ranks)
{
    int64_t peers = 2 * ((int64_t)ranks - 1); /* a receive and a send each */
    int64_t words = ((int64_t)ranks + 1) * MIMO_HOST_ALLGATHER_BYTES;
    if (words < (int64_t)sizeof(mimo_call_report))
        words = (int64_t)sizeof(mimo_call_report);
    *out = (mimo_mpi_requests){
        .family = family, .room = peers > LEAST_ROOM ? peers : LEAST_ROOM, .words_room = words};
    return request_create(&out->spare, out, out->room, words);
}

static void release_large(mimo_mpi_requests *requests)
{
    for (mimo_request **at = &requests->spare; *at;) {
        mimo_request *request = *at;
        if (is_large(request)) {
            *at = request->next;
            mimo_release(request);
        } else {
            at = &request->next;
        }
    }
}

/* The smaller ones go last: without memory for the larger one they are still needed. */
mimo_status mimo_mpi_requests_prepare(mimo_mpi_requests *requests, int64_t words)
{
    mimo_request *request;
    for (request = requests->spare; request; request = request->next)
        if (request->words_room >= words)
            return MIMO_OK;
    if (requests->lent >= words)
        return MIMO_OK;
    MIMO_TRY(request_create(&request, requests, requests->room, words));
    release_large(requests);
    request->next = requests->spare;
    requests->spare = request;
    return MIMO_OK;
}

static void release_list(mimo_request *request)
{
    while (request) {
        mimo_request *next = request->next;
        mimo_release(request);
        request = next;
    }
}

/* Requests that are stuck are left to MPI, which may write into them until it is finalized. */
void mimo_mpi_requests_release(mimo_mpi_requests *requests)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    release_list(requests->spare);
    if (finalized)
        release_list(requests->stuck);
    else
        mimo_abandon(requests->stuck); /* and those behind it */
    requests->spare = requests->stuck = NULL;
}
