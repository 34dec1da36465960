/* Requests of the MPI backend. They stay with the communicator and are used again, so that starting
 * an operation allocates nothing: a rank without memory would leave those waiting that have
 * started. */
#ifndef MIMO_COMM_MPI_REQUEST_H
#define MIMO_COMM_MPI_REQUEST_H

#include <mpi.h>

#include "comm/host/host_push.h"
#include "core/free_list.h"

/* The requests of one communicator. */
typedef struct mimo_mpi_request_pool {
    const mimo_family *family;
    int64_t usual_count; /* of MPI requests that every request has space for */
    int64_t usual_bytes; /* that every request has space for; those of guarded calls have more */
    int64_t large_in_flight; /* bytes of a larger request that is in flight; 0: there is none */
    mimo_free_item *free;
    mimo_request *abandoned; /* given up: MPI can't cancel them and still uses their memory */
    mimo_host_pushes_in_flight flight; /* the pushes of its exchanges */
} mimo_mpi_request_pool;

struct mimo_request {
    mimo_free_item item; /* in the pool's list of free requests; holds the capacities */
    mimo_mpi_request_pool *pool;
    mimo_request *next_abandoned;
    char *memory; /* what MPI sends and receives of host values, and of rows of guarded calls */
    /* to[to_count]: where memory from `offset` on is copied once all arrived. */
    const mimo_rows *to;
    int64_t to_count, offset;
    mimo_rows one_target;  /* `to` where there is one */
    int count;             /* MPI requests in use */
    int receives;          /* point-to-point: the first `receives` MPI requests; sends follow */
    bool point_to_point;   /* otherwise a collective */
    bool guarded;          /* point-to-point: MPI uses only `memory` */
    bool persistent;       /* the MPI requests belong to an exchange, which starts them again */
    bool complete;         /* all MPI requests are */
    int64_t moving;        /* bytes of tensors on their way */
    mimo_host_push *push;  /* an exchange's, until it is complete; NULL: none */
    MPI_Datatype types[2]; /* the request's own, or MPI_DATATYPE_NULL */
    MPI_Request mpi[];     /* [item.count]; `memory` follows */
};

/* A pool with one request, which has space for an operation among `ranks` ranks. More are made when
 * several are in flight. */
mimo_status mimo_mpi_pool_create(mimo_mpi_request_pool *out, const mimo_family *family, int ranks);
void mimo_mpi_pool_release(mimo_mpi_request_pool *pool);

/* Have a request with at least `bytes` bytes of memory; one in flight counts. Where one has to be
 * made, the free requests that are larger than usual and too small for this are freed. */
mimo_status mimo_mpi_pool_prepare(mimo_mpi_request_pool *pool, int64_t bytes);

/* A request for `count` MPI requests, none of them started, with `bytes` bytes of memory. */
mimo_status mimo_mpi_request_take(mimo_request **out, mimo_mpi_request_pool *pool, int64_t count,
                                  int64_t bytes);

/* Copy data[bytes] into the request's memory, and have it copied back there once all arrived. */
void mimo_mpi_request_load(mimo_request *request, void *data, int64_t bytes);

/* Have the request's memory from `offset` on copied to to[bytes] once all arrived. */
void mimo_mpi_request_copy_back(mimo_request *request, void *to, int64_t bytes, int64_t offset);

/* The backend's. A request that is given up while MPI uses its memory is left to MPI together
 * with that memory. Receives into the caller's memory are cancelled as far as MPI can: not a
 * message that has begun to arrive. Sends from the caller's memory, and collectives, are left to
 * MPI. So are receives once the family is forgotten. */
mimo_status mimo_mpi_request_test(mimo_request *request, bool *done);
int64_t mimo_mpi_request_moving(const mimo_request *request);
int mimo_mpi_request_arrived(const mimo_request *request);
void mimo_mpi_request_release(mimo_request *request);

#endif
