/* What goes wrong on one rank alone, and must end as an error and not as a hang or a late write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "core/memory.h"
#include "mpi_test.h"

enum { WORDS = 5, GATHER_TAG = 1 };

static int sends_left; /* until MPI refuses one; 0: it refuses none */

/* MPI's profiling interface: this definition goes before the library's. */
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (sends_left > 0 && --sends_left == 0)
        return MPI_ERR_OTHER;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* Start an all-gather that MPI refuses at the second send, all receives being under way. */
static void start_refused(mimo_comm *comm, int *to, int *from)
{
    mimo_request *request = NULL;
    mimo_rows all = {to, WORDS * sizeof *to, 0, 1, 1, 1, 1};
    mimo_rows mine = {from, WORDS * sizeof *from, 0, 1, 1, 1, 1};
    sends_left = 2;
    MPI_EXPECT_STATUS(comm->backend->allgather_start(&request, comm, &all, 1, &mine, NULL),
                      MIMO_ERR_COMM);
    MPI_EXPECT_SENTENCE("MPI_Isend");
    MPI_EXPECT(!request, "a request in spite of the error");
}

/* Messages that would have met the receives of the failed start go to whoever receives next: had
 * the receives stayed, each would take the first of two. */
static void expect_called_off(int peer)
{
    int got[WORDS] = {0};
    for (int i = 1; i <= 2 && (i == 1 || got[0] == 1); i++) {
        MPI_Recv(got, WORDS, MPI_INT, peer, GATHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_EXPECT(got[0] == i, "message %d of rank %d came as number %d", got[0], peer, i);
    }
}

MPI_TEST(faults, gather_that_is_refused)
{
    enum { SIZE = 4, FAILING = 1 };
    mimo_comm *comm = NULL;
    int to[SIZE * WORDS], poison[SIZE * WORDS], from[WORDS], rank = mpi_test_rank();
    MPI_EXPECT_OK(mimo_comm_borrow_mpi(&comm, MPI_COMM_WORLD));
    memset(to, 0x5a, sizeof to);
    memcpy(poison, to, sizeof to);
    for (int i = 0; i < WORDS; i++)
        from[i] = 100 * rank + i;
    if (rank == FAILING)
        start_refused(comm, to, from);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == FAILING) {
        for (int peer = 0; peer < SIZE; peer++)
            if (peer != FAILING)
                expect_called_off(peer);
    } else {
        for (int i = 1; i <= 2; i++)
            MPI_Send((int[WORDS]){i}, WORDS, MPI_INT, FAILING, GATHER_TAG, MPI_COMM_WORLD);
    }
    MPI_EXPECT(memcmp(to, poison, sizeof to) == 0, "written after the error");
    if (rank == FAILING + 1) /* its send had left before the refusal */
        MPI_Recv(to, WORDS, MPI_INT, FAILING, GATHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_EXPECT_OK(mimo_comm_allgather(comm, to, from, sizeof from, NULL));
    for (int i = 0; i < SIZE * WORDS; i++)
        MPI_EXPECT(to[i] == 100 * (i / WORDS) + i % WORDS, "[%d] is %d", i, to[i]);
    mimo_comm_destroy(comm);
}

/* ------------------------------------- no memory -------------------------------------- */

enum { H = 3, SEQ = 8, BATCH = 2, ROWS = 2 };

/* A bridge that uses all it has, staging and the replica check included: two samples, one a pair of
 * tp replicas, to four shards over cp and sp. It lies in a buffer, for the executors that care. */
typedef struct fixture {
    mimo_comm *comm;
    mimo_grid *src, *dst;
    mimo_executor executor;
    mimo_bridge *bridge;
    float full[SEQ][H];          /* this rank's sample */
    float shard[ROWS][BATCH][H]; /* this rank's rows of both */
    float second[ROWS][BATCH][H];
} fixture;

typedef mimo_status (*attempt)(fixture *it);

static float value_of(int sample, int position, int h)
{
    return (float)(1000 * sample + 10 * position + h);
}

static mimo_tensor full_view(fixture *it)
{
    return mimo_tensor_3d(it->full, MIMO_F32, "sbh", SEQ, 1, H);
}

static mimo_tensor shard_view(float shard[ROWS][BATCH][H])
{
    return mimo_tensor_3d(shard, MIMO_F32, "sbh", ROWS, BATCH, H);
}

/* Write what belongs there, or compare with it. */
static void visit_full(fixture *it, bool compare)
{
    int sample = mpi_test_rank() / 2;
    for (int i = 0; i < SEQ * H; i++) {
        float *at = &it->full[i / H][i % H], value = value_of(sample, i / H, i % H);
        MPI_EXPECT(!compare || *at == value, "full [%d] is %g", i, (double)*at);
        *at = value;
    }
}

static void visit_shard(float shard[ROWS][BATCH][H], bool compare)
{
    static const int first[] = {0, 6, 2, 4}; /* zigzag over cp, each half cut over tp */
    for (int i = 0; i < ROWS * BATCH * H; i++) {
        int row = i / (BATCH * H), sample = i / H % BATCH;
        float *at = &shard[row][sample][i % H];
        float value = value_of(sample, first[mpi_test_rank()] + row, i % H);
        MPI_EXPECT(!compare || *at == value, "shard [%d] is %g", i, (double)*at);
        *at = value;
    }
}

static void expect_poison(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        MPI_EXPECT(((const unsigned char *)data)[i] == 0x5a, "byte %zu was written", i);
}

static mimo_status create(fixture *it)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    rule.sp = true;
    desc.src = it->src;
    desc.dst = it->dst;
    desc.partition = &rule;
    desc.executor = it->executor;
    return mimo_bridge_create(&it->bridge, it->comm, &desc);
}

static mimo_status forward(fixture *it)
{
    mimo_tensor from = full_view(it), to = shard_view(it->shard);
    visit_full(it, false);
    memset(it->shard, 0x5a, sizeof it->shard);
    mimo_status status = mimo_bridge_forward(it->bridge, &to, &from, 1, NULL);
    if (status == MIMO_OK)
        visit_shard(it->shard, true);
    else
        expect_poison(it->shard, sizeof it->shard);
    return status;
}

static mimo_status backward(fixture *it)
{
    mimo_tensor to = full_view(it), from = shard_view(it->shard);
    visit_shard(it->shard, false);
    memset(it->full, 0x5a, sizeof it->full);
    mimo_status status = mimo_bridge_backward(it->bridge, &to, &from, 1, NULL);
    if (status == MIMO_OK)
        visit_full(it, true);
    else
        expect_poison(it->full, sizeof it->full);
    return status;
}

/* One that fails does not hinder the other. */
static mimo_status two_forwards(fixture *it)
{
    mimo_op *ops[2] = {NULL, NULL};
    mimo_status status[2];
    mimo_tensor from = full_view(it), to[] = {shard_view(it->shard), shard_view(it->second)};
    visit_full(it, false);
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&ops[i], it->bridge, &to[i], &from, 1, NULL));
    for (int i = 1; i >= 0; i--) {
        status[i] = mimo_op_wait(&ops[i]);
        if (status[i] == MIMO_OK)
            visit_shard(i == 0 ? it->shard : it->second, true);
    }
    MPI_EXPECT(status[0] == MIMO_OK || status[1] == MIMO_OK, "both failed");
    return status[0] == MIMO_OK ? status[1] : status[0];
}

/* The n-th allocation of the attempt fails on one rank: that is every rank's error, and the same
 * attempt and all others succeed after it. False where there are fewer than n. */
static bool nth_fails(attempt act, mimo_executor executor, int failing, int n)
{
    char sentence[64];
    mimo_buffer *buffer;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), sizeof(fixture)));
    fixture *it = mimo_buffer_data(buffer);
    *it = (fixture){.comm = mpi_test_comm(), .executor = executor};
    MPI_EXPECT_OK(mimo_grid_parse(&it->src, "tp=2,dp=2", 0));
    MPI_EXPECT_OK(mimo_grid_parse(&it->dst, "tp=2,cp=2,dp=1", 0));
    if (act != create)
        MPI_EXPECT_OK(create(it));
    if (mpi_test_rank() == failing)
        mimo_fail_allocation(n);
    mimo_status status = act(it);
    int failed = mpi_test_rank() == failing && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
    MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "allocation %d: %s (%s)", n,
               mimo_status_name(status), mimo_last_error());
    snprintf(sentence, sizeof sentence, "rank %d: out of memory allocating ", failing);
    if (failed) {
        MPI_EXPECT_SENTENCE(sentence);
        MPI_EXPECT_OK(act(it));
    }
    MPI_EXPECT_OK(forward(it));
    MPI_EXPECT_OK(backward(it));
    mimo_bridge_destroy(it->bridge);
    mimo_grid_destroy(it->src);
    mimo_grid_destroy(it->dst);
    mimo_buffer_destroy(buffer);
    return failed;
}

/* Every allocation in turn, on the first rank and on the last, with each executor; there are at
 * least so many. */
static void each_fails(attempt act, int least)
{
    static const mimo_executor executors[] = {MIMO_EXECUTOR_COLLECTIVE, MIMO_EXECUTOR_P2P,
                                              MIMO_EXECUTOR_ZERO_COPY};
    setenv("MIMO_CHECK", "replicas", 1);
    for (int way = 0; way < 6; way++) {
        int n = 1;
        while (nth_fails(act, executors[way / 2], way % 2 * 3, n))
            n++;
        MPI_EXPECT(n > least, "only %d allocations", n - 1);
    }
}

/* There is no communicator yet that could agree. */
static bool nth_of_a_communicator_fails(int failing, int n)
{
    char sentence[32];
    mimo_comm *comm = NULL;
    bool here = mpi_test_rank() == failing;
    if (here)
        mimo_fail_allocation(n);
    mimo_status status = mimo_comm_from_mpi(&comm, MPI_COMM_WORLD);
    int failed = here && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
    MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "allocation %d: %s (%s)", n,
               mimo_status_name(status), mimo_last_error());
    snprintf(sentence, sizeof sentence, "rank %d: ", failing);
    if (failed)
        MPI_EXPECT_SENTENCE(sentence);
    MPI_EXPECT(failed == !comm, "allocation %d left a communicator, or none", n);
    mimo_comm_destroy(comm);
    return failed;
}

MPI_TEST(faults, no_memory_for_a_communicator)
{
    for (int failing = 0; failing < 4; failing += 3) {
        int n = 1;
        while (nth_of_a_communicator_fails(failing, n))
            n++;
        MPI_EXPECT(n > 5, "only %d allocations", n - 1);
    }
}

MPI_TEST(faults, no_memory_to_create_a_bridge)
{
    each_fails(create, 8);
}

/* The next operation, the pair of tiles, the staging, the hashes. */
MPI_TEST(faults, no_memory_to_move)
{
    each_fails(forward, 4);
    each_fails(backward, 5);
}

MPI_TEST(faults, no_memory_for_two_in_flight)
{
    each_fails(two_forwards, 8);
}
