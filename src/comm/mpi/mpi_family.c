#include "comm/mpi/mpi_family.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

/* Larger than the tags of exchanges and of gathers. */
enum { FAREWELL_TAG = 77 };

/* What is known of a rank when the family ends. ELSEWHERE: its farewell came, and it waited in a
 * different call. */
enum { NOT_RECEIVED = 0, RECEIVED, ELSEWHERE };

enum { NAMES_TEXT = 128 }; /* of a list of ranks */

static void free_family(mimo_mpi_family *family, bool may_call)
{
    mimo_release(family->sends);
    mimo_release(family->farewells);
    mimo_release(family->closing);
    mimo_mpi_notices_release(family->notices, may_call);
    mimo_release(family);
}

static mimo_status fill(mimo_mpi_family *family, const mimo_comm_backend *backend,
                        const mimo_comm_desc *desc)
{
    int size = family->size;
    mimo_mpi_watch_finalize();
    MIMO_TRY_MPI(MPI_Query_thread(&family->level));
    MIMO_TRY(mimo_reserve(&family->farewells, size, sizeof *family->farewells));
    MIMO_TRY(mimo_reserve(&family->sends, size, sizeof *family->sends));
    MIMO_TRY(mimo_mpi_closing_create(&family->closing));
    MIMO_TRY(mimo_mpi_notices_create(&family->notices, size));
    for (int i = 0; i < size; i++)
        family->sends[i] = MPI_REQUEST_NULL;
    return mimo_family_init(&family->base, backend, desc);
}

mimo_status mimo_mpi_family_create(mimo_mpi_family **out, const mimo_comm_backend *backend,
                                   int rank, int size, const mimo_comm_desc *desc)
{
    mimo_mpi_family *family;
    MIMO_TRY(mimo_reserve(&family, 1, sizeof *family));
    family->handle = MPI_COMM_NULL;
    family->base.rank = rank;
    family->size = size;
    mimo_status status = fill(family, backend, desc);
    if (status != MIMO_OK) {
        free_family(family, true);
        return status;
    }
    family->base.any_thread_ends = family->base.parallel = family->level == MPI_THREAD_MULTIPLE;
    mimo_family_retain(&family->base);
    *out = family;
    return MIMO_OK;
}

/* Whether MPI still reads `mine`. A rank that is gone may never receive it. */
static bool is_sending(mimo_mpi_family *family)
{
    int done = 1;
    MPI_Testall(family->size, family->sends, &done, MPI_STATUSES_IGNORE);
    return !done;
}

void mimo_mpi_family_release(mimo_family *base)
{
    mimo_mpi_family *family = (mimo_mpi_family *)base;
    bool may_call = mimo_mpi_family_may_call(base);
    bool told = family->mine.status != MIMO_OK;
    if (told && !mimo_mpi_is_finalized() && (!may_call || is_sending(family))) {
        mimo_abandon(family->sends);
        mimo_abandon(family);
        return;
    }
    bool ended = mimo_family_status(base) != MIMO_OK;
    if (may_call && !ended && family->owned && family->handle != MPI_COMM_NULL) {
        mimo_mpi_close(family->closing, family->handle, family->notices);
        family->closing = NULL;
        family->notices = NULL;
    }
    free_family(family, may_call);
}

/* ------------------------------- who may call MPI --------------------------------- */

mimo_status mimo_mpi_family_check_open(const mimo_family *family, const char *call)
{
    (void)family;
    MIMO_CHECK(!mimo_mpi_is_finalized(), MIMO_ERR_STATE, "%s: MPI is finalized", call);
    return MIMO_OK;
}

static const char *level_name(int level)
{
    return level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
}

mimo_status mimo_mpi_check_thread(int level, const char *call)
{
    int main = 1;
    if (level >= MPI_THREAD_SERIALIZED)
        return MIMO_OK;
    MPI_Is_thread_main(&main);
    MIMO_CHECK(main, MIMO_ERR_STATE,
               "%s: MPI was initialised with %s (level %d), so only the thread that did it may "
               "call; others need MPI_THREAD_SERIALIZED",
               call, level_name(level), level);
    return MIMO_OK;
}

mimo_status mimo_mpi_family_check_thread(const mimo_family *family, const char *call)
{
    return mimo_mpi_check_thread(((const mimo_mpi_family *)family)->level, call);
}

bool mimo_mpi_family_may_call(const mimo_family *family)
{
    int main = 1;
    if (mimo_family_is_forgotten(family) || mimo_mpi_is_finalized())
        return false;
    if (((const mimo_mpi_family *)family)->level < MPI_THREAD_SERIALIZED)
        MPI_Is_thread_main(&main);
    return main != 0;
}

/* ----------------------------------- farewells ------------------------------------ */

static void note(mimo_mpi_family *family, const mimo_farewell *received)
{
    bool elsewhere = received->status == MIMO_ERR_TIMEOUT &&
                     (received->comm != family->mine.comm || received->calls < family->mine.calls);
    family->farewells[received->rank] = elsewhere ? ELSEWHERE : RECEIVED;
    if (elsewhere)
        family->elsewhere = *received;
}

bool mimo_mpi_family_receive(mimo_mpi_family *family, mimo_farewell *out)
{
    int here = 0;
    MPI_Message message;
    if (family->handle == MPI_COMM_NULL ||
        MPI_Improbe(MPI_ANY_SOURCE, FAREWELL_TAG, family->handle, &here, &message,
                    MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !here)
        return false;
    if (MPI_Mrecv(out, (int)sizeof *out, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    if (family->mine.status == MIMO_OK)
        family->first = *out;
    else
        note(family, out);
    return true;
}

/* MPI buffers messages of this size, so no send waits for its peer. */
static void send_farewells(mimo_mpi_family *family)
{
    for (int i = 1; i < family->size; i++) {
        int peer = (family->base.rank + i) % family->size;
        MPI_Isend(&family->mine, (int)sizeof family->mine, MPI_BYTE, peer, FAREWELL_TAG,
                  family->handle, &family->sends[peer]);
    }
}

/* A rank of a communicator, as a rank of the family's first communicator. */
static int family_rank(MPI_Group ranks, MPI_Group all, int rank)
{
    int translated = MPI_UNDEFINED;
    MPI_Group_translate_ranks(ranks, 1, &rank, all, &translated);
    return translated;
}

/* Whether a rank of the family has sent what `asked` asks for. */
typedef bool (*has_sent)(const mimo_mpi_family *family, int rank, const void *asked);

static bool farewell_came(const mimo_mpi_family *family, int rank, const void *asked)
{
    (void)asked;
    return family->farewells[rank] != NOT_RECEIVED;
}

/* What is asked of which ranks of a communicator. */
typedef struct question {
    MPI_Comm comm;
    int below; /* of the ranks below this one */
    has_sent has;
    const void *asked;
} question;

/* Write the ranks that have not sent it into `text`, "3, 5", as far as they fit. They are ranks of
 * the family's first communicator. Returns how many they are. */
static int list_missing(const mimo_mpi_family *family, const question *of, char *text,
                        size_t capacity)
{
    MPI_Group ranks, all;
    int size = 0, missing = 0;
    size_t used = 0;
    enum { LONGEST_RANK = 16 };
    MPI_Comm comm = of->comm;
    MPI_Comm_size(comm, &size);
    size = size < of->below ? size : of->below;
    MPI_Comm_group(comm, &ranks);
    MPI_Comm_group(family->handle, &all);
    text[0] = '\0';
    for (int i = 0; i < size; i++) {
        int rank = family_rank(ranks, all, i);
        if (rank < 0 || rank == family->base.rank || of->has(family, rank, of->asked))
            continue;
        if (used + 2 * LONGEST_RANK < capacity)
            used +=
                (size_t)snprintf(text + used, capacity - used, "%s%d", missing ? ", " : "", rank);
        else if (used + LONGEST_RANK < capacity)
            used += (size_t)snprintf(text + used, capacity - used, ", ...");
        missing++;
    }
    MPI_Group_free(&ranks);
    MPI_Group_free(&all);
    return missing;
}

static void write_missing(char *text, size_t capacity, int missing, const char *names,
                          const char *whose)
{
    if (missing > 0)
        snprintf(text, capacity, "; no sign of %s %s%s", missing > 1 ? "ranks" : "rank", names,
                 whose);
}

/* Receive farewells until all of the communicator's ranks have sent theirs, for at most `patience`
 * nanoseconds. Returns how many are missing, and their list in `text`. */
static int await_farewells(mimo_mpi_family *family, MPI_Comm comm, int64_t patience, char *text,
                           size_t capacity)
{
    mimo_farewell received;
    int64_t until = mimo_now() + patience;
    const question of = {comm, INT_MAX, farewell_came, NULL};
    int missing = list_missing(family, &of, text, capacity);
    while (missing > 0 && mimo_now() < until) {
        if (mimo_mpi_family_receive(family, &received))
            missing = list_missing(family, &of, text, capacity);
        else
            sched_yield();
    }
    return missing;
}

void mimo_mpi_family_end(mimo_mpi_family *family, MPI_Comm ranks, const mimo_last_words *words)
{
    char names[NAMES_TEXT];
    if (family->handle == MPI_COMM_NULL || !words->mine || mimo_mpi_is_finalized())
        return;
    family->mine = *words->mine;
    family->mine.rank = family->base.rank;
    if (family->mine.origin < 0)
        family->mine.origin = family->base.rank;
    /* The sentence names this rank already, and its call. */
    if (family->first.status != MIMO_OK)
        family->farewells[family->first.rank] = RECEIVED;
    send_farewells(family);
    if (words->patience == 0)
        return;
    int missing = await_farewells(family, ranks, words->patience, names, sizeof names);
    const char *whose = words->comm && words->comm->renumbered ? MIMO_OF_FIRST : "";
    write_missing(words->text, words->capacity, missing, names, whose);
    size_t used = strlen(words->text);
    if (family->elsewhere.text[0])
        snprintf(words->text + used, words->capacity - used, "; rank %d%s waited in %s",
                 (int)family->elsewhere.rank, whose, family->elsewhere.text);
}

/* ------------------------------------ notices ------------------------------------- */

/* A rank of a communicator, as a rank of the family's first one; -1 where it is none. */
static int rank_of_family(const mimo_mpi_family *family, MPI_Comm ranks, int rank)
{
    MPI_Group some, all;
    MPI_Comm_group(ranks, &some);
    MPI_Comm_group(family->handle, &all);
    int found = family_rank(some, all, rank);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return found;
}

void mimo_mpi_family_send_notice(mimo_mpi_family *family, MPI_Comm ranks, int to,
                                 const mimo_notice *notice)
{
    if (!family->owned)
        return;
    int rank = rank_of_family(family, ranks, to);
    if (rank >= 0 && rank != family->base.rank)
        mimo_mpi_notices_send(family->notices, family->handle, to, rank, notice);
}

bool mimo_mpi_family_took_notice(mimo_mpi_family *family, int to)
{
    return !family->owned || mimo_mpi_notices_were_taken(family->notices, to);
}

bool mimo_mpi_family_heard_from(mimo_mpi_family *family, MPI_Comm ranks, int rank,
                                const mimo_notice *call)
{
    int found = family->owned ? rank_of_family(family, ranks, rank) : -1;
    return found >= 0 && mimo_mpi_notices_have(family->notices, found, call);
}

static bool notice_came(const mimo_mpi_family *family, int rank, const void *asked)
{
    return mimo_mpi_notices_have(family->notices, rank, asked);
}

void mimo_mpi_family_list_silent(mimo_mpi_family *family, MPI_Comm ranks, const mimo_notice *call,
                                 int below, char *out, size_t capacity)
{
    char names[NAMES_TEXT];
    const question of = {ranks, below, notice_came, call};
    out[0] = '\0';
    if (!family->owned)
        return;
    (void)mimo_mpi_notices_receive(family->notices, family->handle);
    int missing = list_missing(family, &of, names, sizeof names);
    write_missing(out, capacity, missing, names, "");
}
