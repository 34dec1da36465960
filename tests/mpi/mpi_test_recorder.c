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
#include "dispatch/direct/direct_types.h"
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
    mimo_grid *grid = mpi_test_grid_of("tp=1,dp=%d", mpi_test_size());
    mimo_bridge *bridge = NULL;
    float from[SEQ * HIDDEN] = {0}, to[SEQ * HIDDEN];
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
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

/* How many files there were. */
static int remove_files(const char *folder)
{
    int count = 0;
    char path[512];
    DIR *list = opendir(folder);
    for (struct dirent *it; list && (it = readdir(list));)
        if (strstr(it->d_name, ".ring")) {
            snprintf(path, sizeof path, "%s/%s", folder, it->d_name);
            count += unlink(path) == 0;
        }
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
    line[0] = '\0';
    mimo_log_set(note_line, line);
    comm = comm_with(MIMO_RING_FILE, "/proc"); /* nobody may make files there */
    mimo_log_set(NULL, NULL);
    MPI_EXPECT(strstr(line, "/proc/") && strstr(line, "the ring lies in memory instead"), "'%s'",
               line);
    mimo_comm_destroy(comm);
    comm = comm_with(MIMO_RING_OFF, NULL);
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
    MPI_EXPECT(!comm->family->recorder->ring, "a ring that is off");
    MPI_EXPECT_OK(mimo_comm_verdict(&verdict, comm));
    MPI_EXPECT(!verdict.waits && verdict.text[0] == '\0', "'%s'", verdict.text);
    mimo_comm_destroy(comm);
}

/* MIMO_RING_KEEP=1 keeps a file; so does a family that ends with an error. */
MPI_TEST(recorder, files_stay)
{
    char folder[] = "/tmp/mimo_rings_XXXXXX";
    MPI_EXPECT(mkdtemp(folder) != NULL, "no folder");
    setenv("MIMO_RING_KEEP", "1", 1);
    mimo_comm *comm = comm_with(MIMO_RING_FILE, folder);
    mimo_comm_destroy(comm);
    int stayed = remove_files(folder);
    MPI_EXPECT(stayed == 1, "%d files, of a family that is to leave one", stayed);
    setenv("MIMO_RING_KEEP", "2", 1);
    comm = NULL;
    MPI_EXPECT_STATUS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("environment MIMO_RING_KEEP=2 is neither 0 nor 1");
    unsetenv("MIMO_RING_KEEP");
    comm = comm_with(MIMO_RING_FILE, folder);
    MPI_EXPECT_OK(mimo_comm_abort(comm, "the file is to stay"));
    mimo_comm_destroy(comm);
    stayed = remove_files(folder);
    MPI_EXPECT(stayed == 1, "%d files, of a family that was aborted", stayed);
    MPI_EXPECT(rmdir(folder) == 0, "the folder is not empty");
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

/* ---------------------------------- large messages ----------------------------------- */

/* Wait until the ring of rank 0 says how many bytes are on their way there; 0: it never does. */
static int64_t await_flight(const mimo_comm *comm)
{
    const mimo_recorder *recorder = comm->family->recorder;
    int64_t until = mimo_now() + INT64_C(20000000000), flight = 0;
    for (int i = 0; i < recorder->peer_count && flight == 0 && mimo_now() < until; i++) {
        mimo_ring_sample *sample;
        MPI_EXPECT_OK(mimo_ring_sample_take(&sample, &recorder->peers[i].memory, &recorder->self));
        for (int s = 0; s < sample->count && sample->rank == 0; s++)
            flight = sample->seen[s].flight > flight ? sample->seen[s].flight : flight;
        mimo_ring_sample_release(sample);
        i = i + 1 == recorder->peer_count ? -1 : i;
    }
    return flight;
}

/* Of a message nothing shows before it is there. A rank that waits for one says how large it is. */
MPI_TEST(recorder, messages_on_their_way_are_noted)
{
    enum { FLOATS = 1 << 18 };
    static float data[FLOATS];
    mimo_comm *comm = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    const bool last = mpi_test_rank() == mpi_test_size() - 1;
    desc.agree = 0;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc));
    if (last) {
        int64_t flight = await_flight(comm);
        MPI_EXPECT(flight == (int64_t)sizeof data, "%ld bytes on their way to rank 0",
                   (long)flight);
    }
    MPI_EXPECT_OK(mimo_comm_broadcast(comm, data, sizeof data, mpi_test_size() - 1, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_ring_sample *sample = sample_of(comm);
    const mimo_ring_seen *seen = mimo_ring_find_comm(sample, 0);
    MPI_EXPECT(seen && seen->moved == sizeof data && sample->seen[0].flight == 0,
               "%lu bytes have moved, %ld are on their way", seen ? (unsigned long)seen->moved : 0,
               (long)sample->seen[0].flight);
    mimo_ring_sample_release(sample);
    mimo_comm_destroy(comm);
}

/* The messages of rank 0 that have left or arrived, as its ring says, once these are `wanted`. */
static int64_t await_arrived(const mimo_comm *comm, int64_t wanted)
{
    const mimo_recorder *recorder = comm->family->recorder;
    int64_t until = mimo_now() + INT64_C(20000000000), most = 0;
    while (most < wanted && mimo_now() < until)
        for (int i = 0; i < recorder->peer_count; i++) {
            mimo_ring_sample *sample;
            MPI_EXPECT_OK(
                mimo_ring_sample_take(&sample, &recorder->peers[i].memory, &recorder->self));
            for (int s = 0; s < sample->count && sample->rank == 0; s++)
                if (sample->seen[s].flight > 0 && sample->seen[s].flight_arrived > most)
                    most = sample->seen[s].flight_arrived;
            mimo_ring_sample_release(sample);
        }
    return most;
}

/* Samples of all for all, as messages: while the last rank is late, those of the others arrive. */
MPI_TEST(recorder, messages_that_have_arrived_are_counted)
{
    enum { SEQ = 4, HIDDEN = 8 };
    mimo_comm *comm = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    mimo_grid *src_grid = mpi_test_grid("tp=1,dp=4", 0), *dst_grid = mpi_test_grid("tp=4,dp=1", 0);
    mimo_bridge *bridge = NULL;
    static float from[SEQ * HIDDEN], to[4 * SEQ * HIDDEN];
    desc.agree = 0;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc));
    mimo_bridge_desc whole = mpi_test_bridge_desc(src_grid, dst_grid);
    whole.batch = 4;
    whole.executor = (mimo_executor){MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_P2P};
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &whole));
    const mimo_tensor src = mimo_tensor_3d(from, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    const mimo_tensor dst = mimo_tensor_3d(to, MIMO_F32, "sbh", SEQ, 4, HIDDEN);
    if (mpi_test_rank() == 3) {
        int64_t arrived = await_arrived(comm, 4); /* to and from ranks 1 and 2 */
        MPI_EXPECT(arrived >= 4 && arrived < 6, "%ld of 6 messages of rank 0", (long)arrived);
    }
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &dst, &src, 1, NULL));
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(comm);
}

/* Rows that a rank copies into memory of others count when they are copied. */
MPI_TEST(recorder, copied_rows_are_counted)
{
    enum { SEQ = 4, HIDDEN = 8 };
    mimo_comm *comm = comm_with(MIMO_RING_MEMORY, NULL);
    mimo_buffer *buffer = NULL;
    mimo_bridge *bridge = NULL;
    const int size = mpi_test_size();
    float from[SEQ * HIDDEN] = {0};
    const int64_t tile = (int64_t)size * (int64_t)sizeof from;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, tile));
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("tp=1,dp=%d", size),
                                                 mpi_test_grid_of("tp=%d,dp=1", size));
    desc.executor = (mimo_executor){MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_ZERO_COPY};
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, comm, &desc));
    const mimo_tensor src = mimo_tensor_3d(from, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    const mimo_tensor dst =
        mimo_tensor_3d(mimo_buffer_data(buffer), MIMO_F32, "sbh", SEQ, size, HIDDEN);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &dst, &src, 1, NULL));
    mimo_ring_sample *sample = sample_of(comm);
    uint64_t moved = 0;
    for (int s = 0; s < sample->count; s++)
        moved += sample->seen[s].moved;
    MPI_EXPECT(moved == (uint64_t)(tile - (int64_t)sizeof from), "%lu bytes were copied to others",
               (unsigned long)moved);
    mimo_ring_sample_release(sample);
    mimo_bridge_destroy(bridge);
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
}

/* ---------------------------------- waits for streams -------------------------------- */

static mimo_status is_never_done(bool *out, mimo_stream stream)
{
    (void)stream;
    *out = false;
    return MIMO_OK;
}

static mimo_status is_done(bool *out, mimo_stream stream)
{
    (void)stream;
    *out = true;
    return MIMO_OK;
}

/* A dispatch of this memory, whose rank 0 is a call ahead of the others. */
static mimo_dispatch *dispatch_ahead(mimo_comm *comm)
{
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    int64_t word = 1;
    desc.experts = mpi_test_size();
    desc.top_k = 1;
    desc.hidden = 4;
    desc.max_tokens = 2;
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, comm, &desc));
    if (mpi_test_rank() == 0) /* a root waits for nobody, as a call that enqueues does not */
        MPI_EXPECT_OK(mimo_comm_broadcast(comm, &word, sizeof word, 0, NULL));
    return dispatch;
}

/* A stream that never ends stands for a kernel that waits for a rank which is late: what a read of
 * a dispatch on a device waits for. */
MPI_TEST(recorder, reads_of_a_dispatch_have_a_deadline)
{
    mimo_comm *comm = NULL;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    mimo_device late = mimo_device_host;
    const mimo_device *device = &mimo_device_host;
    mimo_verdict verdict = MIMO_VERDICT_INIT;
    desc.agree = 0;
    desc.deadline = 300;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, &desc));
    mimo_dispatch *dispatch = dispatch_ahead(comm);
    mimo_comm *own = dispatch->mover.comm;
    own->device = &late;
    late.finished = is_done;
    MPI_EXPECT_OK(mimo_direct_wait(dispatch, NULL, "mimo_route_read"));
    late.finished = is_never_done;
    if (mpi_test_rank() == 0) {
        MPI_EXPECT_STATUS(mimo_direct_wait(dispatch, NULL, "mimo_route_read"), MIMO_ERR_TIMEOUT);
        MPI_EXPECT_SENTENCE("dispatch 1: mimo_route_read: given up after ");
        MPI_EXPECT_SENTENCE("; ranks 1-3 have not begun call ");
        MPI_EXPECT_SENTENCE("; rank 0 waits for work on a stream");
        MPI_EXPECT_OK(mimo_comm_verdict(&verdict, comm));
        MPI_EXPECT(verdict.rank_count == 3 && verdict.ranks[0] == 1, "%d ranks, the first is %d",
                   (int)verdict.rank_count, (int)verdict.ranks[0]);
        MPI_EXPECT_STATUS(mimo_direct_wait(dispatch, NULL, "mimo_dispatch_report"),
                          MIMO_ERR_TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    own->device = device;
    mimo_dispatch_destroy(dispatch);
    mimo_comm_destroy(comm);
}
