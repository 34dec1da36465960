/* Ranks that go on after an end that no rank died of: refusals, communicators of a family, several
 * families, and twenty ends in one process. test_survivors.py has ranks that die. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault_bed.h"
#include "mpi_test.h"

enum { LATE = 2, DEADLINE = 150, LIMIT = 4000, SHORT = 1200 };

static mimo_status go_on(mimo_comm **out, mimo_comm *ended, int least, int *ranks)
{
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    desc.least = least;
    desc.timeout_ms = LIMIT;
    desc.ranks = ranks;
    return mimo_comm_survivors(out, ended, &desc);
}

/* The new communicator works, also in a bridge with all it has. */
static void expect_life(mimo_comm *comm)
{
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(fault_forward(&bed));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_gradient_step(&bed));
    fault_bed_end(&bed);
}

/* End a family as a late rank does, or as an abort does. */
static void end_family(mimo_comm *comm, bool late)
{
    int rank = mimo_comm_rank(comm);
    mimo_status expected = late ? MIMO_ERR_TIMEOUT : MIMO_ERR_ABORTED;
    MPI_Barrier(MPI_COMM_WORLD);
    if (late && rank != LATE)
        MPI_EXPECT_STATUS(mimo_comm_barrier(comm), expected);
    if (!late && rank == LATE)
        MPI_EXPECT_OK(mimo_comm_abort(comm, "no more samples"));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_STATUS(mimo_comm_barrier(comm), expected);
}

static void expect_all(mimo_comm *made, const int *ranks, int64_t generation)
{
    MPI_EXPECT(mimo_comm_size(made) == mpi_test_size(), "%d ranks", mimo_comm_size(made));
    MPI_EXPECT(mimo_comm_rank(made) == mpi_test_rank(), "rank %d", mimo_comm_rank(made));
    MPI_EXPECT(mimo_comm_generation(made) == generation, "generation %lld",
               (long long)mimo_comm_generation(made));
    for (int i = 0; i < mimo_comm_size(made); i++)
        MPI_EXPECT(ranks[i] == i, "rank %d was rank %d", i, ranks[i]);
}

/* The caller's communicator of MPI stays until the end, as after any end. */
static mimo_comm *new_borrowed(void)
{
    MPI_Comm own;
    mimo_comm *comm = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_EXPECT_OK(mimo_comm_borrow_mpi(&comm, own, NULL));
    return comm;
}

MPI_TEST(survivors, after_each_end)
{
    for (int late = 0; late < 2; late++) {
        int ranks[FAULT_RANKS] = {-1, -1, -1, -1};
        mimo_comm *comm = late ? new_borrowed() : mpi_test_comm_new(), *made = NULL;
        MPI_EXPECT(mimo_comm_generation(comm) == 0, "a generation before any decision");
        MPI_EXPECT_OK(mimo_comm_set_deadline(comm, late ? DEADLINE : 5000));
        end_family(comm, late);
        MPI_EXPECT_OK(go_on(&made, comm, 0, ranks));
        expect_all(made, ranks, 1);
        MPI_EXPECT(mimo_comm_deadline(made) == (late ? DEADLINE : 5000), "another deadline");
        mimo_comm_destroy(comm);
        MPI_EXPECT_OK(mimo_comm_set_deadline(made, 0));
        expect_life(made);
        mimo_comm_destroy(made);
    }
}

static void expect_bad_common(mimo_comm *ended)
{
    mimo_comm *made = NULL;
    mimo_comm_desc common = MIMO_COMM_DESC_INIT;
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    common.size = 12;
    desc.common = &common;
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, ended, &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("communicator: the descriptor's size is 12");
}

MPI_TEST(survivors, refusals)
{
    mimo_comm *comm = mpi_test_comm_new(), *made = NULL, *part = NULL;
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, NULL, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("ended is NULL");
    MPI_EXPECT_STATUS(mimo_comm_survivors(NULL, comm, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("out is NULL");
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, comm, NULL), MIMO_ERR_STATE);
    MPI_EXPECT_SENTENCE("family has not ended");
    end_family(comm, false);
    MPI_EXPECT_STATUS(go_on(&made, comm, -1, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("least -1 is not in [0, 4]");
    MPI_EXPECT_STATUS(go_on(&made, comm, 5, NULL), MIMO_ERR_ARGUMENT);
    desc.timeout_ms = -1;
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, comm, &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("timeout_ms -1 is not in");
    desc.size = 1000;
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, comm, &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("survivors: the descriptor's size is 1000");
    expect_bad_common(comm);
    MPI_EXPECT(!made, "a communicator in spite of an error");
    MPI_EXPECT_OK(go_on(&made, comm, 0, NULL)); /* all is as it was */
    mimo_comm_destroy(comm);
    MPI_EXPECT_OK(mimo_comm_split(&part, made, 0, 0));
    mimo_comm_forget(made);
    MPI_EXPECT_STATUS(mimo_comm_survivors(&made, part, NULL), MIMO_ERR_STATE);
    MPI_EXPECT_SENTENCE("family was forgotten");
    mimo_comm_destroy(part);
}

/* Not before it is told to: creation may take its time. */
static int interrupts(void *context)
{
    int *asked = context;
    return *asked < 0 ? 0 : ++*asked;
}

/* The caller ends the wait for ranks that do not come. */
MPI_TEST(survivors, an_interrupt)
{
    int asked = -1;
    mimo_comm *comm, *made = NULL;
    mimo_comm_desc common = MIMO_COMM_DESC_INIT;
    common.interrupted = interrupts;
    common.context = &asked;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &common));
    end_family(comm, false);
    asked = 0;
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_STATUS(go_on(&made, comm, 4, NULL), MIMO_ERR_ABORTED);
        MPI_EXPECT_SENTENCE("mimo_comm_survivors: its wait was interrupted");
        MPI_EXPECT(asked > 0, "nobody asked");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm_destroy(comm);
}

/* A rank that lives and does not come: the others give up, and go on once it has come. */
MPI_TEST(survivors, a_rank_that_comes_late)
{
    mimo_comm *comm = mpi_test_comm_new(), *made = NULL;
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    int ranks[FAULT_RANKS];
    desc.least = 4;
    desc.timeout_ms = SHORT;
    end_family(comm, false);
    if (mpi_test_rank() != LATE) {
        MPI_EXPECT_STATUS(mimo_comm_survivors(&made, comm, &desc), MIMO_ERR_TIMEOUT);
        MPI_EXPECT_SENTENCE("3 of 4 ranks are left after ");
        MPI_EXPECT_SENTENCE("at least 4 have to be; no sign of rank 2");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(go_on(&made, comm, 4, ranks));
    expect_all(made, ranks, 2);
    mimo_comm_destroy(comm);
    expect_life(made);
    mimo_comm_destroy(made);
}

/* The others decide without it; it finds that when it comes. */
MPI_TEST(survivors, a_rank_that_is_left_out)
{
    mimo_comm *comm = mpi_test_comm_new(), *made = NULL;
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    int sum = 1, ranks[FAULT_RANKS] = {0};
    desc.timeout_ms = SHORT;
    desc.ranks = ranks;
    end_family(comm, false);
    if (mpi_test_rank() != LATE) {
        mimo_status status;
        do /* a busy machine may take longer */
            status = mimo_comm_survivors(&made, comm, &desc);
        while (status == MIMO_ERR_TIMEOUT);
        MPI_EXPECT_OK(status);
        MPI_EXPECT(mimo_comm_size(made) == 3, "%d ranks", mimo_comm_size(made));
        MPI_EXPECT(ranks[0] == 0 && ranks[1] == 1 && ranks[2] == 3, "%d %d %d", ranks[0], ranks[1],
                   ranks[2]);
        MPI_EXPECT_OK(mimo_comm_allreduce(made, &sum, 1, MIMO_I32, MIMO_SUM, NULL));
        MPI_EXPECT(sum == 3, "%d", sum);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int twice = 0; twice < 2 && mpi_test_rank() == LATE; twice++) {
        MPI_EXPECT_STATUS(mimo_comm_survivors(&made, comm, &desc), MIMO_ERR_ABORTED);
        MPI_EXPECT_SENTENCE("ranks 0, 1, 3 went on without this one, rank 2, as generation ");
    }
    mimo_comm_destroy(comm);
    mimo_comm_destroy(made);
}

/* Communicators that were split from the one that ended go on by themselves. */
MPI_TEST(survivors, of_a_part)
{
    mimo_comm *comm = mpi_test_comm_new(), *half = NULL, *made = NULL;
    int ranks[FAULT_RANKS / 2], sum = mpi_test_rank();
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, -mpi_test_rank()));
    end_family(comm, false);
    MPI_EXPECT_OK(go_on(&made, half, 2, ranks));
    MPI_EXPECT(mimo_comm_rank(made) == mimo_comm_rank(half), "rank %d", mimo_comm_rank(made));
    MPI_EXPECT(ranks[0] == 0 && ranks[1] == 1, "%d %d", ranks[0], ranks[1]);
    MPI_EXPECT_OK(mimo_comm_allreduce(made, &sum, 1, MIMO_I32, MIMO_SUM, NULL));
    MPI_EXPECT(sum == 2 + 2 * (mpi_test_rank() % 2), "%d", sum);
    mimo_comm_destroy(half);
    mimo_comm_destroy(comm);
    mimo_comm_destroy(made);
}

MPI_TEST(survivors, of_two_families)
{
    mimo_comm *ended[2], *made[2] = {NULL, NULL};
    int ranks[FAULT_RANKS];
    for (int f = 0; f < 2; f++)
        ended[f] = mpi_test_comm_new();
    for (int f = 0; f < 2; f++)
        end_family(ended[f], false);
    for (int f = 1; f >= 0; f--) {
        MPI_EXPECT_OK(go_on(&made[f], ended[f], 0, ranks));
        expect_all(made[f], ranks, 1);
    }
    end_family(made[0], false);
    expect_life(made[1]);
    for (int f = 0; f < 2; f++) {
        mimo_comm_destroy(ended[f]);
        mimo_comm_destroy(made[f]);
    }
}

/* ------------------------------- twenty in one process ------------------------------- */

typedef struct holdings {
    long heap; /* bytes in use; 0 where the C library does not tell */
    int files, shared;
} holdings;

/* Whose names have these words. */
static int entries_of(const char *path, const char *words)
{
    int count = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *it; folder && (it = readdir(folder));)
        count += strstr(it->d_name, words) != NULL;
    if (folder)
        closedir(folder);
    return count;
}

static holdings held(void)
{
    char own[32];
    snprintf(own, sizeof own, "-%ld-", (long)getpid()); /* in the names of shared memory */
    holdings now = {0, entries_of("/proc/self/fd", ""), entries_of("/dev/shm", own)};
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33) && !defined(__SANITIZE_ADDRESS__)
    struct mallinfo2 info = mallinfo2();
    now.heap = (long)(info.uordblks + info.hblkhd);
#endif
    return now;
}

static mimo_comm *one_end(mimo_comm *comm)
{
    mimo_comm *made = NULL;
    int64_t before = mimo_comm_generation(comm);
    expect_life(comm);
    end_family(comm, false);
    MPI_EXPECT_OK(go_on(&made, comm, 0, NULL));
    MPI_EXPECT(mimo_comm_generation(made) == before + 1, "generation %lld after %lld",
               (long long)mimo_comm_generation(made), (long long)before);
    mimo_comm_destroy(comm);
    return made;
}

/* MPI keeps its own communicator of each end, and some kilobytes with it. */
MPI_TEST(survivors, twenty_times)
{
    enum { TIMES = 20, WARM = 3, BYTES_OF_AN_END = 64 * 1024 };
    mimo_comm *comm = mpi_test_comm_new();
    for (int i = 0; i < WARM; i++)
        comm = one_end(comm);
    holdings before = held();
    for (int i = 0; i < TIMES; i++)
        comm = one_end(comm);
    holdings after = held();
    MPI_EXPECT(after.heap - before.heap < TIMES * BYTES_OF_AN_END, "%ld bytes more",
               after.heap - before.heap);
    MPI_EXPECT(after.files <= before.files, "%d files, %d before", after.files, before.files);
    MPI_EXPECT(after.shared <= before.shared, "%d in /dev/shm, %d before", after.shared,
               before.shared);
    if (mpi_test_rank() == 0)
        fprintf(stderr, "%ld bytes an end\n", (after.heap - before.heap) / TIMES);
    mimo_comm_destroy(comm);
}
