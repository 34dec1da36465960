/* A wait that lasts long: the line of the lowest rank names those from which nothing has come, and
 * what the others tell it is left behind nowhere. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/log.h>

#include "comm/comm_backend.h"
#include "comm/mpi/mpi_family.h"
#include "mpi_test.h"
#include "released_comms.h"

enum { STALL = 40, WORLD_TAG = 5 };

static mimo_comm *comm_that_says(int64_t stall)
{
    mimo_comm *comm = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.stall = stall;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc));
    return comm;
}

/* Where the late ranks are let go: when a line ends in these words. */
typedef struct awaited_line {
    const char *words;
    int late[2]; /* -1: none */
    int lines;
    bool seen;
} awaited_line;

static void let_go(void *context, mimo_log_level level, const char *text)
{
    awaited_line *awaited = context;
    size_t length = strlen(text), end = strlen(awaited->words);
    awaited->lines += level == MIMO_LOG_WARNING;
    if (awaited->seen || length < end || strcmp(text + length - end, awaited->words) != 0)
        return;
    awaited->seen = true;
    for (int i = 0; i < 2; i++)
        if (awaited->late[i] >= 0)
            MPI_Send(NULL, 0, MPI_BYTE, awaited->late[i], WORLD_TAG, MPI_COMM_WORLD);
}

/* The late ranks come when `speaker` has named them, and nobody else. Without that line this
 * hangs. */
static void name_late_by(int speaker, mimo_comm *on, awaited_line awaited)
{
    int rank = mpi_test_rank();
    if (rank == speaker)
        mimo_log_set(let_go, &awaited);
    if (rank == awaited.late[0] || rank == awaited.late[1])
        MPI_Recv(NULL, 0, MPI_BYTE, speaker, WORLD_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_EXPECT_OK(mimo_comm_barrier(on));
    MPI_EXPECT(awaited.seen || rank != speaker, "no line ends in '%s'", awaited.words);
    mimo_log_set(NULL, NULL);
}

static void name_late(mimo_comm *on, awaited_line awaited)
{
    name_late_by(0, on, awaited);
}

MPI_TEST(stall, names_who_is_late)
{
    mimo_comm *comm = comm_that_says(STALL), *turned = NULL;
    for (int late = 1; late < 4; late++) {
        char words[64];
        snprintf(words, sizeof words, "in communicator 0; no sign of rank %d", late);
        name_late(comm, (awaited_line){.words = words, .late = {late, -1}});
    }
    name_late(comm, (awaited_line){.words = "; no sign of ranks 1, 3", .late = {1, 3}});
    /* Where rank 0 is late, rank 1 names it, and where both are, the others do. */
    name_late_by(1, comm, (awaited_line){.words = "; no sign of ranks 0, 2", .late = {0, 2}});
    name_late_by(1, comm, (awaited_line){.words = "; no sign of rank 0", .late = {0, -1}});
    name_late_by(2, comm, (awaited_line){.words = "; no sign of ranks 0, 1", .late = {0, 1}});
    /* Its lowest rank is rank 3. Ranks of the first communicator tell the processes apart. */
    MPI_EXPECT_OK(mimo_comm_split(&turned, comm, 0, -mpi_test_rank()));
    char words[96];
    snprintf(words, sizeof words,
             "in communicator %" PRIx64 "; no sign of rank 1 of communicator 0", turned->id);
    name_late_by(3, turned, (awaited_line){.words = words, .late = {1, -1}});
    mimo_comm_destroy(turned);
    mimo_comm_destroy(comm);
}

/* The lowest rank is late, and the others wait for 8 times their time: it finds one notice of each.
 * It receives them while it waits, in this call or in the next one, and never two of a rank. */
MPI_TEST(stall, one_notice_of_each)
{
    mimo_comm *comm = comm_that_says(STALL);
    mimo_mpi_family *family = (mimo_mpi_family *)comm->family;
    if (mpi_test_rank() != 0) {
        awaited_line awaited = {.words = mpi_test_rank() == 1
                                             ? "0.32 s in communicator 0; no sign of rank 0"
                                             : "has waited 0.32 s in communicator 0",
                                .late = {0, -1}};
        mimo_log_set(let_go, &awaited);
        MPI_EXPECT_OK(mimo_comm_barrier(comm));
        mimo_log_set(NULL, NULL);
        MPI_EXPECT(awaited.seen && awaited.lines >= 4, "%d lines", awaited.lines);
    } else {
        for (int peer = 1; peer < 4; peer++)
            MPI_Recv(NULL, 0, MPI_BYTE, peer, WORLD_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int count = mimo_mpi_notices_receive(family->notices, family->handle);
        MPI_EXPECT(count == 3, "%d notices of 3 ranks", count);
        MPI_EXPECT_OK(mimo_comm_barrier(comm));
    }
    mimo_comm_destroy(comm);
}

/* Notices that nobody has waited for are received by the end: MPI gets all of its communicators
 * back, and a later one finds none of them. */
MPI_TEST(stall, notices_end_with_their_family)
{
    int before = next_comm_number();
    for (int late = 0; late < 4; late++) {
        mimo_comm *comm = comm_that_says(2), *reversed = NULL;
        MPI_EXPECT_OK(mimo_comm_split(&reversed, comm, 0, -mpi_test_rank()));
        for (int i = 0; i < 2; i++) {
            mimo_comm *on = i ? reversed : comm;
            double until = MPI_Wtime() + (mpi_test_rank() == late ? 0.02 : 0);
            while (MPI_Wtime() < until)
                continue;
            MPI_EXPECT_OK(mimo_comm_barrier(on));
        }
        mimo_comm_destroy(mpi_test_rank() % 2 ? comm : reversed);
        mimo_comm_destroy(mpi_test_rank() % 2 ? reversed : comm);
    }
    int after = next_comm_number();
    MPI_EXPECT(after == before, "from %d to %d", before, after);
}
