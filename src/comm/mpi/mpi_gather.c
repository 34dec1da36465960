/*
 * Direct exchange instead of MPI_Iallgather: each tile goes once from its owner straight into its
 * place (0.9 to 1.1 times a bare MPI_Allgather of contiguous tiles, where MPI_Iallgather into a
 * strided type took 1.1 to 1.5; bench/bridge_bench). A guarded one goes through the request's
 * words: the list of the peers' places, their rows, and the own rows.
 */
#include "comm/mpi/mpi_gather.h"

#include "comm/mpi/mpi_packing.h"
#include "comm/mpi/mpi_types.h"

enum { GATHER_TAG = 1 };

/* Where the rows are for MPI, as elements of the request's two types. */
typedef struct gather_ends {
    char *own;
    char *slots;   /* of the peers by their distance; NULL: they lie in their places */
    int64_t bytes; /* of a slot */
} gather_ends;

int64_t mimo_mpi_gather_pieces(const mimo_comm *comm)
{
    return 2 * ((int64_t)comm->size - 1);
}

int64_t mimo_mpi_gather_words(const mimo_comm *comm, const mimo_gather *gather)
{
    int64_t peers = comm->size - 1, bytes = mimo_rows_bytes(&gather->to);
    return gather->guarded ? peers * (int64_t)sizeof(mimo_rows) + comm->size * bytes : 0;
}

mimo_rows mimo_mpi_gather_place(const mimo_gather *gather, int rank)
{
    mimo_rows place = gather->to;
    place.first += rank * gather->step;
    return place;
}

/* The rank that lies `distance` before this one: it is received from. */
static int peer_at(const mimo_comm *comm, int distance)
{
    return (comm->rank - distance + comm->size) % comm->size;
}

static mimo_status reach_words(gather_ends *out, mimo_request *request, const mimo_comm *comm,
                               const mimo_gather *gather, const mimo_rows *own)
{
    mimo_rows *places = (mimo_rows *)(void *)request->words;
    int peers = comm->size - 1;
    for (int distance = 1; distance <= peers; distance++)
        places[distance - 1] = mimo_mpi_gather_place(gather, peer_at(comm, distance));
    request->guarded = true;
    request->to = places;
    request->to_count = peers;
    request->offset = peers * (int64_t)sizeof *places;
    out->bytes = mimo_rows_bytes(own);
    out->slots = request->words + request->offset;
    out->own = out->slots + peers * out->bytes;
    MIMO_TRY(mimo_mpi_bytes_type(&request->types[0], out->bytes));
    MIMO_TRY(mimo_mpi_bytes_type(&request->types[1], out->bytes));
    return mimo_mpi_pack(out->own, own, 1);
}

static mimo_status reach_rows(gather_ends *out, mimo_request *request, const mimo_gather *gather,
                              const mimo_rows *own)
{
    *out = (gather_ends){mimo_rows_begin(own), NULL, 0};
    MIMO_TRY(mimo_mpi_rows_type(&request->types[0], &gather->to, gather->step));
    return mimo_mpi_rows_type(&request->types[1], own, 0);
}

/* Every receive before any send, peers in the order of their distance, so that no rank is
 * everybody's first target. The order of messages between two ranks is the order of the calls. */
mimo_status mimo_mpi_gather_start(mimo_request *request, mimo_comm *comm, MPI_Comm handle,
                                  const mimo_gather *gather)
{
    gather_ends ends;
    int size = comm->size;
    MPI_Request *piece = request->piece;
    const mimo_rows own =
        gather->from.base ? gather->from : mimo_mpi_gather_place(gather, comm->rank);
    request->messages = true;
    request->receives = size - 1;
    MIMO_TRY(gather->guarded ? reach_words(&ends, request, comm, gather, &own)
                             : reach_rows(&ends, request, gather, &own));
    for (int distance = 1; distance < size; distance++) {
        int peer = peer_at(comm, distance);
        const mimo_rows place = mimo_mpi_gather_place(gather, peer);
        char *slot =
            ends.slots ? ends.slots + (distance - 1) * ends.bytes : mimo_rows_begin(&place);
        MIMO_TRY_MPI(MPI_Irecv(slot, 1, request->types[0], peer, GATHER_TAG, handle, piece++));
    }
    for (int distance = 1; distance < size; distance++) {
        int peer = (comm->rank + distance) % size;
        MIMO_TRY_MPI(MPI_Isend(ends.own, 1, request->types[1], peer, GATHER_TAG, handle, piece++));
    }
    return MIMO_OK;
}
