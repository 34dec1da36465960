#include "comm/mpi/mpi_root.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

/* The exchange's tag and the gather's are below it. */
enum { FAREWELL_TAG = 77 };

/* What is known of a rank when the family ends. */
enum { NO_SIGN = 0, HERE, ELSEWHERE };

mimo_status mimo_mpi_root_create(mimo_mpi_root **out, int rank, int size)
{
    mimo_mpi_root *root;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&root, 1, sizeof *root));
    root->handle = MPI_COMM_NULL;
    root->rank = rank;
    root->size = size;
    root->users = 1;
    MIMO_TRY_GOTO(status, fail, mimo_family_init(&root->family));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&root->signs, size, sizeof *root->signs));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&root->sends, size, sizeof *root->sends));
    for (int i = 0; i < size; i++)
        root->sends[i] = MPI_REQUEST_NULL;
    *out = root;
    return MIMO_OK;
fail:
    mimo_mpi_root_drop(root);
    return status;
}

/* Whether MPI still reads `mine`. A rank that is gone may never take it. */
static bool is_sending(mimo_mpi_root *root)
{
    int done = 1;
    if (root->sends)
        MPI_Testall(root->size, root->sends, &done, MPI_STATUSES_IGNORE);
    return !done;
}

void mimo_mpi_root_drop(mimo_mpi_root *root)
{
    int finalized = 1;
    if (__atomic_fetch_sub(&root->users, 1, __ATOMIC_ACQ_REL) > 1)
        return;
    bool ended = mimo_family_status(&root->family) != MIMO_OK;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized) {
        if (ended && is_sending(root)) {
            mimo_abandon(root);
            return;
        }
        if (!ended && root->owned && root->handle != MPI_COMM_NULL)
            MPI_Comm_free(&root->handle);
    }
    mimo_release(root->sends);
    mimo_release(root->signs);
    mimo_release(root);
}

/* ----------------------------------- farewells ------------------------------------ */

static void note(mimo_mpi_root *root, const mimo_farewell *heard)
{
    bool elsewhere = heard->status == MIMO_ERR_TIMEOUT &&
                     (heard->comm != root->mine.comm || heard->calls < root->mine.calls);
    root->signs[heard->rank] = elsewhere ? ELSEWHERE : HERE;
    if (elsewhere)
        root->elsewhere = *heard;
}

bool mimo_mpi_root_hear(mimo_mpi_root *root, mimo_farewell *out)
{
    int here = 0;
    MPI_Message message;
    if (root->handle == MPI_COMM_NULL ||
        MPI_Improbe(MPI_ANY_SOURCE, FAREWELL_TAG, root->handle, &here, &message,
                    MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !here)
        return false;
    if (MPI_Mrecv(out, (int)sizeof *out, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    if (root->mine.status == MIMO_OK)
        root->first = *out;
    else
        note(root, out);
    return true;
}

/* Small messages: MPI takes them whether or not the peer ever does. */
static void say(mimo_mpi_root *root)
{
    for (int i = 1; i < root->size; i++) {
        int peer = (root->rank + i) % root->size;
        MPI_Isend(&root->mine, (int)sizeof root->mine, MPI_BYTE, peer, FAREWELL_TAG, root->handle,
                  &root->sends[peer]);
    }
}

/* A rank of a communicator, as a rank of the first one; the groups are freed by the caller. */
static int root_rank(MPI_Group ranks, MPI_Group all, int rank)
{
    int translated = MPI_UNDEFINED;
    MPI_Group_translate_ranks(ranks, 1, &rank, all, &translated);
    return translated;
}

/* The ranks of a communicator that gave no sign, as "3, 5": how many, and as many as fit. */
static int list_missing(const mimo_mpi_root *root, MPI_Comm comm, char *text, size_t room)
{
    MPI_Group ranks, all;
    int size = 0, missing = 0;
    size_t used = 0;
    enum { ROOM_OF_ONE = 16 };
    MPI_Comm_size(comm, &size);
    MPI_Comm_group(comm, &ranks);
    MPI_Comm_group(root->handle, &all);
    text[0] = '\0';
    for (int i = 0; i < size; i++) {
        int rank = root_rank(ranks, all, i);
        if (rank < 0 || rank == root->rank || root->signs[rank] != NO_SIGN)
            continue;
        if (used + 2 * ROOM_OF_ONE < room)
            used += (size_t)snprintf(text + used, room - used, "%s%d", missing ? ", " : "", rank);
        else if (used + ROOM_OF_ONE < room)
            used += (size_t)snprintf(text + used, room - used, ", ...");
        missing++;
    }
    MPI_Group_free(&ranks);
    MPI_Group_free(&all);
    return missing;
}

/* Hear until all of the communicator's ranks gave a sign, for at most `patience` nanoseconds. */
static int gather_signs(mimo_mpi_root *root, MPI_Comm comm, int64_t patience, char *text,
                        size_t room)
{
    mimo_farewell heard;
    int64_t until = mimo_now() + patience;
    int missing = list_missing(root, comm, text, room);
    while (missing > 0 && mimo_now() < until) {
        if (mimo_mpi_root_hear(root, &heard))
            missing = list_missing(root, comm, text, room);
        else
            sched_yield();
    }
    return missing;
}

void mimo_mpi_root_end(mimo_mpi_root *root, MPI_Comm ranks, const mimo_farewell *mine,
                       int64_t patience, char *signs, size_t room)
{
    char names[128];
    if (root->handle == MPI_COMM_NULL)
        return;
    root->mine = *mine;
    root->mine.rank = root->rank;
    if (root->mine.origin < 0)
        root->mine.origin = root->rank;
    if (root->first.status != MIMO_OK) /* who waits elsewhere is in the sentence already */
        root->signs[root->first.rank] = HERE;
    say(root);
    if (patience == 0)
        return;
    int missing = gather_signs(root, ranks, patience, names, sizeof names);
    if (missing > 0)
        snprintf(signs, room, "; no sign of %s %s", missing > 1 ? "ranks" : "rank", names);
    size_t used = strlen(signs);
    if (root->elsewhere.words[0])
        snprintf(signs + used, room - used, "; rank %d waited in %s", (int)root->elsewhere.rank,
                 root->elsewhere.words);
}
