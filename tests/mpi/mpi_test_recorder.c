/* What calls write into the ring of their family, and where that lies. tests/fault/test_why.py has
 * what is read from it while ranks wait. */
#define _GNU_SOURCE /* mkdtemp */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

#include "comm/recorder.h"
#include "mpi_test.h"

static mimo_comm *comm_with(int64_t ring, const char *folder)
{
    mimo_comm *comm = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.ring = ring;
    desc.ring_folder = folder;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc));
    return comm;
}

static mimo_ring_sample *sample_of(const mimo_comm *comm)
{
    const mimo_recorder *recorder = comm->family->recorder;
    mimo_ring_sample *sample = NULL;
    MPI_EXPECT_OK(mimo_ring_sample_take(&sample, &recorder->ring->memory, &recorder->self));
    return sample;
}

/* The last call of this rank is `verb` of `object`, with this number and status. */
static void expect_last(const mimo_comm *comm, const char *object, const char *verb,
                        mimo_status status)
{
    mimo_ring_sample *sample = sample_of(comm);
    const mimo_ring_call *last = &sample->last;
    MPI_EXPECT(strcmp(mimo_ring_name_at(sample, last->object), object) == 0,
               "object '%s', not '%s'", mimo_ring_name_at(sample, last->object), object);
    MPI_EXPECT(strcmp(mimo_ring_name_at(sample, last->verb), verb) == 0, "verb '%s', not '%s'",
               mimo_ring_name_at(sample, last->verb), verb);
    MPI_EXPECT(last->status == (int)status &&
                   last->state == (status == MIMO_OK ? MIMO_RING_ENDED : MIMO_RING_FAILED),
               "%s: state %d, status %d", verb, (int)last->state, (int)last->status);
    MPI_EXPECT(last->begun > 0 && last->ended >= last->begun, "%s: begun at %ld, ended at %ld",
               verb, (long)last->begun, (long)last->ended);
    mimo_ring_sample_release(sample);
}

MPI_TEST(recorder, calls_are_recorded)
{
    mimo_comm *comm = comm_with(MIMO_RING_MEMORY, NULL);
    float number = 1;
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    expect_last(comm, "", "barrier", MIMO_OK);
    MPI_EXPECT_OK(mimo_comm_allreduce(comm, &number, 1, MIMO_F32, MIMO_SUM, NULL));
    expect_last(comm, "", "allreduce", MIMO_OK);
    MPI_EXPECT_OK(mimo_comm_agree_named(comm, MIMO_OK, "load"));
    expect_last(comm, "load", "agree_named", MIMO_OK);
    MPI_EXPECT_STATUS(mimo_comm_allreduce(comm, &number, -1, MIMO_F32, MIMO_SUM, NULL),
                      MIMO_ERR_ARGUMENT);
    expect_last(comm, "", "allreduce", MIMO_ERR_ARGUMENT);
    mimo_ring_sample *sample = sample_of(comm);
    const mimo_ring_seen *seen = mimo_ring_find_comm(sample, 0);
    MPI_EXPECT(seen && seen->calls == comm->calls && !seen->inside && seen->wait.slot == -1,
               "the communicator has %lu calls, its slot %lu", (unsigned long)comm->calls,
               seen ? (unsigned long)seen->calls : 0);
    mimo_ring_sample_release(sample);
    mimo_comm_destroy(comm);
}

/* An operation has one record, by the name of its bridge and with its bytes. */
MPI_TEST(recorder, operations_are_recorded)
{
    enum { SEQ = 4, HIDDEN = 8 };
    mimo_comm *comm = comm_with(MIMO_RING_MEMORY, NULL);
    mimo_grid *grid = NULL;
    mimo_bridge *bridge = NULL;
    char spec[32];
    float from[SEQ * HIDDEN] = {0}, to[SEQ * HIDDEN];
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    snprintf(spec, sizeof spec, "tp=1,dp=%d", mpi_test_size());
    MPI_EXPECT_OK(mimo_grid_create_text(&grid, spec, 0));
    desc.src = desc.dst = grid;
    desc.name = "image";
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    const mimo_tensor src = mimo_tensor_3d(from, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    const mimo_tensor dst = mimo_tensor_3d(to, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    mimo_ring_sample *before = sample_of(comm);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &dst, &src, 1, NULL));
    mimo_ring_sample *after = sample_of(comm);
    MPI_EXPECT(after->ended == before->ended + 1, "%lu records of one forward",
               (unsigned long)(after->ended - before->ended));
    MPI_EXPECT(after->last.bytes == (int64_t)sizeof from && after->last.chunks == 1 &&
                   after->last.micro_batch == -1,
               "%ld bytes in %d chunks, micro-batch %d", (long)after->last.bytes,
               (int)after->last.chunks, (int)after->last.micro_batch);
    expect_last(comm, "bridge 'image'", "forward", MIMO_OK);
    mimo_ring_sample_release(before);
    mimo_ring_sample_release(after);
    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(grid);
    mimo_comm_destroy(comm);
}

/* Slots have the ranks of their communicators, and are given back with them. */
MPI_TEST(recorder, communicators_have_slots)
{
    mimo_comm *comm = comm_with(MIMO_RING_MEMORY, NULL), *turned = NULL;
    int size = mpi_test_size();
    MPI_EXPECT_OK(mimo_comm_split(&turned, comm, 0, -mpi_test_rank()));
    mimo_ring_sample *sample = sample_of(comm);
    const mimo_ring_seen *seen = mimo_ring_find_comm(sample, turned->id);
    MPI_EXPECT(seen && seen->size == size, "the split communicator has no slot");
    for (int i = 0; seen && i < size; i++)
        MPI_EXPECT(mimo_ring_member(sample, seen, i) == size - 1 - i, "rank %d is %d", i,
                   mimo_ring_member(sample, seen, i));
    mimo_ring_sample_release(sample);
    uint64_t id = turned->id;
    mimo_comm_destroy(turned);
    sample = sample_of(comm);
    MPI_EXPECT(!mimo_ring_find_comm(sample, id), "its slot stays");
    mimo_ring_sample_release(sample);
    MPI_EXPECT(comm->family->recorder->peer_count == size - 1, "%d rings of %d other ranks",
               comm->family->recorder->peer_count, size - 1);
    mimo_comm_destroy(comm);
}

/* ------------------------------------ where it lies --------------------------------- */

static int count_files(const char *folder)
{
    int count = 0;
    DIR *list = opendir(folder);
    for (struct dirent *it; list && (it = readdir(list));)
        count += strstr(it->d_name, ".ring") != NULL;
    if (list)
        closedir(list);
    return count;
}

static void note_line(void *context, mimo_log_level level, const char *text)
{
    (void)level;
    snprintf(context, 256, "%s", text);
}

MPI_TEST(recorder, lies_where_it_is_asked_for)
{
    char folder[] = "/tmp/mimo_rings_XXXXXX", line[256] = "";
    mimo_verdict verdict = MIMO_VERDICT_INIT;
    MPI_EXPECT(mkdtemp(folder) != NULL, "no folder");
    mimo_comm *comm = comm_with(MIMO_RING_FILE, folder);
    MPI_EXPECT(count_files(folder) == 1, "%d files", count_files(folder));
    mimo_comm_destroy(comm);
    MPI_EXPECT(count_files(folder) == 0, "a file stays");
    setenv("MIMO_RING", "file", 1);
    setenv("MIMO_RING_FOLDER", folder, 1);
    comm = comm_with(MIMO_FROM_ENV, NULL);
    MPI_EXPECT(count_files(folder) == 1, "%d files", count_files(folder));
    mimo_comm_destroy(comm);
    rmdir(folder);
    mimo_log_set(note_line, line);
    comm = comm_with(MIMO_RING_FILE, folder); /* there is no such folder any more */
    mimo_log_set(NULL, NULL);
    MPI_EXPECT(strstr(line, folder) && strstr(line, "the ring lies in memory instead"), "'%s'",
               line);
    MPI_EXPECT(comm->family->recorder->ring, "nor in memory");
    mimo_comm_destroy(comm);
    comm = comm_with(MIMO_RING_OFF, NULL);
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    MPI_EXPECT(!comm->family->recorder->ring, "a ring that is off");
    MPI_EXPECT_OK(mimo_comm_verdict(&verdict, comm));
    MPI_EXPECT(!verdict.waits && verdict.text[0] == '\0', "'%s'", verdict.text);
    mimo_comm_destroy(comm);
}

MPI_TEST(recorder, wrong_ways_are_refused)
{
    static const struct wrong {
        int64_t ring;
        const char *folder, *words;
    } list[] = {
        {3, NULL, "ring = 3 is not one of off, memory, file"},
        {8, NULL, "ring = 8 is not one of"},
        {MIMO_RING_FILE, "", "MIMO_RING_FOLDER names no folder"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        mimo_comm *comm = NULL;
        mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
        desc.ring = list[i].ring;
        desc.ring_folder = list[i].folder;
        MPI_FAILS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc), MIMO_ERR_ARGUMENT,
                  list[i].words);
    }
}

MPI_TEST(recorder, verdicts)
{
    mimo_comm *comm = comm_with(MIMO_RING_MEMORY, NULL);
    mimo_verdict verdict = MIMO_VERDICT_INIT;
    verdict.rank_count = 7;
    MPI_FAILS(mimo_comm_verdict(NULL, comm), MIMO_ERR_ARGUMENT, "mimo_comm_verdict: out is NULL");
    MPI_FAILS(mimo_comm_verdict(&verdict, NULL), MIMO_ERR_ARGUMENT,
              "mimo_comm_verdict: comm is NULL");
    MPI_EXPECT(verdict.rank_count == 7, "a failed call wrote its output");
    MPI_Barrier(MPI_COMM_WORLD); /* nobody is inside of the library */
    MPI_EXPECT_OK(mimo_comm_verdict(&verdict, comm));
    MPI_EXPECT(!verdict.waits && !verdict.stands && verdict.rank_count == 0 &&
                   strcmp(verdict.text, mpi_test_size() > 1 ? "nobody waits" : "") == 0,
               "'%s'", verdict.text);
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm_destroy(comm);
}
