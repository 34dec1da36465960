/* Requests of the MPI backend. They stay with the communicator and are used again, so that starting
 * an operation allocates nothing: a rank without memory would strand those that have started. */
#ifndef MIMO_COMM_MPI_REQUEST_H
#define MIMO_COMM_MPI_REQUEST_H

#include <mpi.h>

#include "comm/host_push.h"

/* The requests of one communicator that are not in flight. */
typedef struct mimo_mpi_requests {
    int64_t room; /* pieces that each of them has room for */
    mimo_request *spare;
    mimo_host_flight flight; /* of its exchanges */
} mimo_mpi_requests;

struct mimo_request {
    mimo_mpi_requests *home;
    mimo_request *next; /* spare */
    int64_t room;
    int pieces;           /* in use */
    int receives;         /* point-to-point: so many receives come first, then the sends */
    bool kept;            /* the pieces are an exchange's, which starts them again and frees them */
    mimo_host_push *push; /* an exchange's, until it is over; NULL: none */
    MPI_Datatype types[2]; /* the request's own, or MPI_DATATYPE_NULL */
    MPI_Request piece[];
};

/* One request, with room for what an operation among `ranks` ranks starts; more are made when
 * several are in flight. */
mimo_status mimo_mpi_requests_create(mimo_mpi_requests *out, int ranks);
void mimo_mpi_requests_release(mimo_mpi_requests *requests);

/* A request of so many pieces, none started. */
mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_requests *home, int64_t pieces);

/* The backend's slots. After an error, receives in flight are called off, so that nothing writes
 * into the caller's buffer any more but peers that push; sends only read and are left to MPI, and
 * so are collectives, which MPI can't call off. */
mimo_status mimo_mpi_request_test(mimo_request *request, bool *done);
void mimo_mpi_request_release(mimo_request *request);

#endif
