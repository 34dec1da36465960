/* mimo_bridge_staging says what a bridge takes. The device of the tests' communicator counts. */
#include <inttypes.h>

#include "bridge_bed.h"
#include "bridge_pairs.h"
#include "cases_ran.h"
#include "comm/comm_backend.h"

enum { MOST = 64 };

/* What was reserved and not released. */
static struct {
    void *memory[MOST];
    int64_t bytes[MOST];
} live;

static mimo_status reserve(void **out, int64_t bytes)
{
    mimo_status status = mimo_device_host.reserve(out, bytes);
    for (int i = 0; i < MOST && status == MIMO_OK; i++)
        if (!live.memory[i]) {
            live.memory[i] = *out;
            live.bytes[i] = bytes;
            break;
        }
    return status;
}

static void release(void *memory)
{
    for (int i = 0; i < MOST; i++)
        if (live.memory[i] == memory) {
            live.memory[i] = NULL;
            live.bytes[i] = 0;
        }
    mimo_device_host.release(memory);
}

static int64_t taken(void)
{
    int64_t sum = 0;
    for (int i = 0; i < MOST; i++)
        sum += live.bytes[i];
    return sum;
}

static void count_staging(mimo_comm *comm)
{
    static mimo_device device;
    device = mimo_device_host;
    device.reserve = reserve;
    device.release = release;
    comm->device = &device;
}

/* Returns whether the case takes staging. */
static bool check(const bed_case *c)
{
    int64_t bytes = -1;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    bridge_bed bed = bed_create(c);
    sizes.batch = c->batch;
    sizes.seq = c->seq;
    sizes.hidden = bed_hidden(c);
    sizes.dtype = c->dtype;
    sizes.src_letters = c->src_letters;
    sizes.dst_letters = c->dst_letters;
    MPI_EXPECT_OK(mimo_bridge_staging(&bytes, bed.bridge, &sizes));
    MPI_EXPECT(taken() == 0, "%s: staging before any call", bed_text(c));
    bed_move(&bed, false, 1);
    bed_move(&bed, true, 2);
    bed_move(&bed, false, 3);
    MPI_EXPECT(taken() == bytes, "%s: %" PRId64 " bytes were taken, and %" PRId64 " announced",
               bed_text(c), taken(), bytes);
    bed_destroy(&bed);
    return bytes > 0;
}

/* Both executors on every pair, whole sequences and shards, also over tp. */
MPI_TEST(staging, as_announced)
{
    static const executor_id executors[] = {EXECUTOR_P2P, EXECUTOR_COLLECTIVE};
    int ran = 0, took = 0;
    count_staging(mpi_test_comm());
    FOR_EACH_PAIR(i)
    {
        for (int k = 0; k < 12; k++) {
            bed_case c = bed_case_of(executors[k % 2], bridge_pairs[i].src, bridge_pairs[i].dst,
                                     k % 3 ? "sbh" : "bsh", k % 5 ? "bsh" : "sbh");
            c.batch = 24;
            c.seq = 48;
            c.hidden = 1 + k;
            c.dst.partition = k / 2 % 3 > 0;
            c.dst.sp = k / 2 % 3 > 1;
            took += check(&c);
            ran++;
        }
    }
    MPI_EXPECT(took > 0 || mpi_test_size() == 1, "no case of %d takes staging", ran);
    MPI_CASES_RAN(ran, ran, 12, "cases");
}

MPI_TEST(staging, wrong_questions)
{
    int64_t bytes = 5;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    bridge_bed bed = bed_create(&bed_fan_in);
    MPI_FAILS(mimo_bridge_staging(NULL, bed.bridge, &sizes), MIMO_ERR_ARGUMENT, "bytes is NULL");
    MPI_FAILS(mimo_bridge_staging(&bytes, NULL, &sizes), MIMO_ERR_ARGUMENT, "bridge is NULL");
    MPI_FAILS(mimo_bridge_staging(&bytes, bed.bridge, NULL), MIMO_ERR_ARGUMENT, "sizes is NULL");
    sizes.hidden = -1;
    MPI_FAILS(mimo_bridge_staging(&bytes, bed.bridge, &sizes), MIMO_ERR_ARGUMENT,
              "rows of -1 elements");
    sizes.hidden = INT64_MAX / 8;
    sizes.batch = sizes.seq = 64;
    MPI_EXPECT_STATUS(mimo_bridge_staging(&bytes, bed.bridge, &sizes), MIMO_ERR_OVERFLOW);
    MPI_EXPECT(bytes == 5, "a failure wrote %" PRId64, bytes);
    bed_destroy(&bed);
}
