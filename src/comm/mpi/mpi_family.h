/* What the communicators of one family share under MPI: the family itself, and the first
 * communicator's handle. Farewells travel on that handle as ordinary messages. */
#ifndef MIMO_COMM_MPI_FAMILY_H
#define MIMO_COMM_MPI_FAMILY_H

#include <mpi.h>

#include "comm/comm_backend.h"
#include "comm/mpi/mpi_closing.h"
#include "comm/mpi/mpi_notices.h"

typedef struct mimo_mpi_family {
    mimo_family base;
    int level;       /* of threads, from MPI_Query_thread */
    MPI_Comm handle; /* MPI_COMM_NULL until it is made */
    bool owned;
    mimo_mpi_closing *closing; /* of a handle that it owns */
    mimo_mpi_notices *notices; /* likewise: on the handle of others none are sent */
    int size;
    mimo_farewell first;     /* received before this rank gave up itself */
    mimo_farewell mine;      /* this rank's own */
    MPI_Request *sends;      /* [size], of `mine` */
    char *farewells;         /* [size], whether each rank's has come: see mpi_family.c */
    mimo_farewell elsewhere; /* of a rank that gave up a different call */
} mimo_mpi_family;

/* Make one, with one user. Local. */
mimo_status mimo_mpi_family_create(mimo_mpi_family **out, const mimo_comm_backend *backend,
                                   int rank, int size, const mimo_comm_desc *desc);

/* Whether a release in this thread may call MPI: MPI is not finalized, this may be a thread that
 * calls it, and the family is not forgotten. */
bool mimo_mpi_family_may_call(const mimo_family *family);

/* MIMO_ERR_STATE, with the call and the level found, where this thread may not call MPI. */
mimo_status mimo_mpi_check_thread(int level, const char *call);

/* The backend's. After the end of a family MPI may still use its handle for operations that
 * can't be cancelled, so it is not freed. `ranks` is the communicator whose call was given up. */
void mimo_mpi_family_release(mimo_family *family);
void mimo_mpi_family_end(mimo_mpi_family *family, MPI_Comm ranks, const mimo_last_words *words);
mimo_status mimo_mpi_family_check_open(const mimo_family *family, const char *call);
mimo_status mimo_mpi_family_check_thread(const mimo_family *family, const char *call);
bool mimo_mpi_family_receive(mimo_mpi_family *family, mimo_farewell *out);
void mimo_mpi_family_send_notice(mimo_mpi_family *family, MPI_Comm ranks, int to,
                                 const mimo_notice *notice);
bool mimo_mpi_family_took_notice(mimo_mpi_family *family, int to);
bool mimo_mpi_family_heard_from(mimo_mpi_family *family, MPI_Comm ranks, int rank,
                                const mimo_notice *call);
/* `out` is the text of list_silent, out[capacity]. */
void mimo_mpi_family_list_silent(mimo_mpi_family *family, MPI_Comm ranks, const mimo_notice *call,
                                 int below, char *out, size_t capacity);

#endif
