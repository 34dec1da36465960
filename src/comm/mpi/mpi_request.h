/* Requests of the MPI backend. They stay with the communicator and are used again, so that starting
 * an operation allocates nothing: a rank without memory would strand those that have started. */
#ifndef MIMO_COMM_MPI_REQUEST_H
#define MIMO_COMM_MPI_REQUEST_H

#include <mpi.h>

#include "comm/mpi/host_push.h"

/* The requests of one communicator that are not in flight. */
typedef struct mimo_mpi_requests {
    const mimo_family *family;
    int64_t room;       /* pieces that each of them has room for, */
    int64_t words_room; /* and bytes of words; those that guarded calls use have more */
    int64_t lent;       /* the words of one of those that is in flight; 0: none is */
    mimo_request *spare;
    mimo_request *stuck;     /* given up: MPI can't call them off, and still uses their words */
    mimo_host_flight flight; /* of its exchanges */
} mimo_mpi_requests;

struct mimo_request {
    mimo_mpi_requests *home;
    mimo_request *next; /* spare or stuck */
    int64_t room, words_room;
    char *words; /* votes, sentences, collects, and rows of guarded calls, while MPI has them */
    const mimo_rows *to; /* to[to_count]: where the words from `offset` on go when all has come */
    int64_t to_count, offset;
    mimo_rows place;      /* room for one */
    int pieces;           /* in use */
    int receives;         /* point-to-point: so many receives come first, then the sends */
    bool messages;        /* point-to-point; else a collective */
    bool guarded;         /* messages of which MPI has the words alone */
    bool kept;            /* the pieces are an exchange's, which starts them again and frees them */
    bool over;            /* all pieces are complete */
    mimo_host_push *push; /* an exchange's, until it is over; NULL: none */
    MPI_Datatype types[2]; /* the request's own, or MPI_DATATYPE_NULL */
    MPI_Request piece[];   /* [room]; the words follow */
};

/* One request, with room for what an operation among `ranks` ranks starts; more are made when
 * several are in flight. */
mimo_status mimo_mpi_requests_create(mimo_mpi_requests *out, const mimo_family *family, int ranks);
void mimo_mpi_requests_release(mimo_mpi_requests *requests);

/* Have a request ready with room for `words` bytes of words; one in flight will do. Where it has to
 * be made, spare requests that are larger than usual and too small for this are freed. */
mimo_status mimo_mpi_requests_prepare(mimo_mpi_requests *requests, int64_t words);

/* A request of so many pieces, none started, with room for so many bytes of words. */
mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_requests *home, int64_t pieces,
                                  int64_t words);

/* The words are data[bytes], and go back there when all has come. */
void mimo_mpi_request_hold(mimo_request *request, void *data, int64_t bytes);

/* The backend's slots. What is given up with its words in flight is left to MPI, words and all.
 * Receives into the caller's memory are called off as far as MPI can: not where a message has begun
 * to arrive. Sends from there are left to MPI, and so are collectives. */
mimo_status mimo_mpi_request_test(mimo_request *request, bool *done);
void mimo_mpi_request_release(mimo_request *request);

#endif
