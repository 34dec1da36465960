/* MIMO_CHECK: each of its words finds mistakes that would pass, or hang, without it. None of them
 * reports a mistake where there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge_bed.h"
#include "bridge_pairs.h"
#include "comm/termination.h"
#include "fault_bed.h"

/* ------------------------------------- a wrong route ---------------------------------- */

static bool misroutes; /* this rank confuses the messages of ranks 1 and 2 */

static int swapped(int peer)
{
    return misroutes && (peer == 1 || peer == 2) ? 3 - peer : peer;
}

/* MPI's profiling interface: the receives of the two executors. */
int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    return PMPI_Irecv(data, count, type, swapped(from), tag, comm, request);
}

int MPI_Recv_init(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                  MPI_Request *request)
{
    return PMPI_Recv_init(data, count, type, swapped(from), tag, comm, request);
}

static int64_t slip; /* offset, in bytes, of the rows that this rank sends */

int MPI_Send_init(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                  MPI_Request *request)
{
    return PMPI_Send_init((const char *)data + slip, count, type, to, tag, comm, request);
}

/* Rank 0 gets the rows of sample 1 where those of sample 2 belong, and the reverse. */
static void misroute(executor_id executor, bool backward)
{
    bed_case c = bed_case_of(executor, backward ? "tp=4,dp=1" : "tp=1,dp=4",
                             backward ? "tp=1,cp=1,dp=4" : "tp=4,cp=1,dp=1", "sbh", "bsh");
    c.batch = 4;
    c.seq = 3;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, backward ? MIMO_DST : MIMO_SRC);
    test_tile to = bed_tile_new(&bed, backward ? MIMO_SRC : MIMO_DST);
    bed_fill(&bed, &from, backward, 1);
    misroutes = mpi_test_rank() == 0;
    MPI_EXPECT_STATUS(bed_call(&bed, backward, &to, &from), MIMO_ERR_INTERNAL);
    misroutes = false;
    MPI_EXPECT_SENTENCE("rank 0: bridge ");
    MPI_EXPECT_SENTENCE(backward ? " backward of 1: " : " forward of 1: ");
    MPI_EXPECT_SENTENCE("here is sample 1, position 0, of row 0 of rank 1 or its copies, and got "
                        "row 0 of rank 2");
    bed_destroy(&bed);
    bed = bed_create(&c);
    bed_move(&bed, backward, 2); /* the mistake has left nothing behind */
    bed_destroy(&bed);
}

MPI_TEST(checks, samples_misplaced)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P};
    setenv("MIMO_CHECK", "samples", 1);
    for (int way = 0; way < 4; way++)
        misroute(executors[way / 2], way % 2 > 0);
}

/* Rank 0 sends the rows 3 to 6 of its sample instead of 2 to 5. A row is as large as its tag. */
MPI_TEST(checks, rows_misplaced)
{
    bed_case c = bed_fan_in;
    setenv("MIMO_CHECK", "samples", 1);
    c.buffer = false;
    c.executor = EXECUTOR_P2P;
    c.hidden = 4;
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_tile_new(&bed, MIMO_DST);
    bed_fill(&bed, &from, false, 1);
    slip = mpi_test_rank() == 0 ? from.room.bytes / c.seq : 0;
    MPI_EXPECT_STATUS(bed_call(&bed, false, &to, &from), MIMO_ERR_INTERNAL);
    slip = 0;
    MPI_EXPECT_SENTENCE("rank 1: bridge 1 forward of 1");
    MPI_EXPECT_SENTENCE("here is sample 0, position 2, of row 2 of rank 0 or its copies, and got "
                        "row 3 of rank 0");
    bed_destroy(&bed);
}

/* ------------------------------------- nothing wrong ---------------------------------- */

static void move_checked(const grids *pair, executor_id executor, int cut)
{
    bed_case c = {.src = {.grid = pair->src}, .dst = {.grid = pair->dst}};
    int64_t src_dp = ref_size(pair->src, "dp"), dst_dp = ref_size(pair->dst, "dp");
    c.dst.partition = cut > 0;
    c.dst.sp = cut > 1;
    c.src_letters = "sbh";
    c.dst_letters = cut > 0 ? "bsh" : "th";
    c.batch = 2 * (src_dp > dst_dp ? src_dp : dst_dp);
    c.seq = 2 * ref_size(pair->dst, "cp") * ref_size(pair->dst, "tp");
    c.executor = executor;
    c.dtype = MIMO_BF16;
    c.sums = executor != EXECUTOR_COLLECTIVE;
    bridge_bed bed = bed_create(&c);
    for (int way = 0; way < 4 && bed.bridge; way++)
        bed_move(&bed, way % 2 > 0, (uint64_t)way);
    bed_destroy(&bed);
}

MPI_TEST(checks, all_is_well)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_ROUTED};
    setenv("MIMO_CHECK", "samples,calls,replicas", 1);
    FOR_EACH_PAIR(pair)
    for (int way = 0; way < 6; way++)
        move_checked(&bridge_pairs[pair], executors[way / 3], way % 3);
}

/* Shards under sp are no replicas of each other. */
MPI_TEST(checks, shards_are_no_replicas)
{
    bed_case c = bed_case_of(EXECUTOR_ROUTED, "tp=2,cp=2,dp=1", "tp=1,cp=1,dp=4", "sbh", "sbh");
    c.src.partition = true;
    c.src.sp = true;
    c.batch = 4;
    c.seq = 8;
    setenv("MIMO_CHECK", "replicas,samples", 1);
    bridge_bed bed = bed_create(&c);
    bed_move(&bed, false, 1);
    bed_move(&bed, true, 2);
    bed_destroy(&bed);
}

/* More batches at once than a bridge keeps. */
MPI_TEST(checks, many_batches_in_flight)
{
    enum { CALLS = 12, SEQ = 4 };
    static double sent[CALLS][SEQ * CALLS], got[CALLS][SEQ * CALLS];
    mimo_op *op[CALLS] = {NULL};
    mimo_bridge *bridge = NULL;
    mimo_partition_rule cut = MIMO_PARTITION_RULE_INIT;
    mimo_grid *src = mpi_test_grid("dp=4", 0), *dst = mpi_test_grid("cp=2,dp=2", 0);
    setenv("MIMO_CHECK", "samples", 1);
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    desc.partition = &cut;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    for (int i = 0; i < CALLS; i++) {
        mimo_tensor from = mimo_tensor_3d(sent[i], MIMO_F64, "sbh", SEQ, i + 1, 1);
        mimo_tensor to = mimo_tensor_3d(got[i], MIMO_F64, "sbh", SEQ / 2, 2 * (i + 1), 1);
        MPI_EXPECT_OK(mimo_bridge_forward_start(&op[i], bridge, &to, &from, 1, NULL));
    }
    for (int i = 0; i < CALLS; i++)
        MPI_EXPECT_OK(mimo_op_wait(&op[i]));
    mimo_bridge_destroy(bridge);
}

/* --------------------------------------- calls ---------------------------------------- */

/* A rank leaves out a call of the bridge. Its next call of the bridge looks the same. Then it calls
 * another object: there all ranks get the error, where otherwise each would wait for its own
 * call. */
MPI_TEST(checks, call_that_is_left_out)
{
    enum { LEAVES_OUT = 2 };
    fault_bed bed;
    setenv("MIMO_CHECK", "calls", 1);
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(mimo_comm_set_deadline(bed.comm, 60000)); /* a hang becomes a timeout */
    MPI_EXPECT_OK(fault_forward(&bed));                     /* rank 2 left out the first one */
    MPI_FAILS(bed.rank == LEAVES_OUT ? mimo_gradient_count(NULL, NULL, bed.gradient)
                                     : fault_forward(&bed),
              MIMO_ERR_MISMATCH,
              "rank 2 called gradient count, rank 0 called bridge 1 forward of 1: f32 "
              "sbh[2,2,3] from f32 sbh[8,1,3]");
    MPI_EXPECT_OK(fault_forward(&bed));
    fault_bed_end(&bed);
}

static mimo_bridge *second_bridge; /* beside the bed's, on the same grids */

static mimo_status forward_by(fault_bed *bed, mimo_bridge *bridge, int rows)
{
    float target[FAULT_ROWS][FAULT_BATCH][FAULT_H];
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(target);
    fault_fill_full(bed);
    from.shape[2] = to.shape[2] = rows;
    return mimo_bridge_forward(bridge, &to, &from, 1, NULL);
}

static mimo_status forward_first(fault_bed *bed)
{
    return forward_by(bed, bed->bridge, FAULT_H);
}

static mimo_status forward_second(fault_bed *bed)
{
    return forward_by(bed, second_bridge, FAULT_H);
}

static mimo_status forward_second_narrow(fault_bed *bed)
{
    return forward_by(bed, second_bridge, 1);
}

/* Both operations begin before either is waited for. */
static mimo_status in_flight(fault_bed *bed, mimo_bridge *first, mimo_bridge *second)
{
    float target[2][FAULT_ROWS][FAULT_BATCH][FAULT_H];
    mimo_tensor from = fault_full_view(bed);
    mimo_tensor to[] = {fault_shard_view(target[0]), fault_shard_view(target[1])};
    mimo_op *op[2] = {NULL, NULL};
    fault_fill_full(bed);
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op[0], first, &to[0], &from, 1, NULL));
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op[1], second, &to[1], &from, 1, NULL));
    mimo_status status = mimo_op_wait(&op[0]);
    MPI_EXPECT(mimo_op_wait(&op[1]) == status, "one of two: %s", mimo_last_error());
    return status;
}

static mimo_status flight(fault_bed *bed)
{
    return in_flight(bed, bed->bridge, second_bridge);
}

static mimo_status flight_swapped(fault_bed *bed)
{
    return in_flight(bed, second_bridge, bed->bridge);
}

static mimo_status test_first(fault_bed *bed)
{
    return mimo_bridge_self_test(bed->bridge, 1);
}

static mimo_status test_second(fault_bed *bed)
{
    (void)bed;
    return mimo_bridge_self_test(second_bridge, 1);
}

static mimo_status count_tokens(fault_bed *bed)
{
    return mimo_gradient_count(NULL, NULL, bed->gradient);
}

static mimo_status wait_for_all(fault_bed *bed)
{
    return mimo_comm_barrier(bed->comm);
}

static mimo_status update_first(fault_bed *bed)
{
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = FAULT_BATCH;
    return mimo_bridge_update(bed->bridge, &batch, 1);
}

/* A pair of calls that ranks mix up, and the names of both in the sentence. */
typedef struct mixture {
    fault_act others, differing;
    const char *called_by_others, *called_by_differing;
} mixture;

#define FORWARD " forward of 1: f32 sbh[2,2,3] from f32 sbh[8,1,3]"
static const mixture mixtures[] = {
    {forward_first, forward_second, "bridge 'images'" FORWARD, "bridge 2" FORWARD},
    {forward_second, forward_first, "bridge 2" FORWARD, "bridge 'images'" FORWARD},
    {flight, flight_swapped, "bridge 2" FORWARD,
     "bridge 'images'" FORWARD}, /* names the later one */
    {forward_first, forward_second_narrow, "bridge 'images'" FORWARD,
     "bridge 2 forward of 1: f32 sbh[2,2,1] from f32 sbh[8,1,1]"},
    {forward_first, count_tokens, "bridge 'images'" FORWARD, "gradient count"},
    {forward_first, test_first, "bridge 'images'" FORWARD, "bridge 'images' self-test with seed 1"},
    {test_first, test_second, "bridge 'images' self-test with seed 1",
     "bridge 2 self-test with seed 1"},
    {wait_for_all, test_first, "barrier", "bridge 'images' self-test with seed 1"},
    {update_first, test_first, "bridge 'images' update to a batch of 2",
     "bridge 'images' self-test with seed 1"},
};

static mimo_status create_named(mimo_bridge **out, const fault_bed *bed, const char *name)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = true;
    mimo_bridge_desc desc = mpi_test_bridge_desc(bed->src, bed->dst);
    desc.partition = &rule;
    desc.executor = executor_of(bed->executor);
    desc.name = name;
    return mimo_bridge_create(out, bed->comm, &desc);
}

static void mix(fault_bed *bed, const mixture *it)
{
    enum { DIFFERING = 2 };
    char words[2 * MIMO_CALL_TEXT];
    mimo_status status = (bed->rank == DIFFERING ? it->differing : it->others)(bed);
    snprintf(words, sizeof words, "rank 2 called %s, rank 0 called %s", it->called_by_differing,
             it->called_by_others);
    MPI_EXPECT(status == MIMO_ERR_MISMATCH, "%s: %s", words, mimo_status_name(status));
    MPI_EXPECT_SENTENCE(words);
}

/* Ranks that call different objects of one communicator, even with equal tensors. */
MPI_TEST(checks, calls_of_other_objects)
{
    fault_bed bed;
    char name[] = "images";
    setenv("MIMO_CHECK", "calls", 1);
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_GRADIENT));
    MPI_EXPECT_OK(create_named(&bed.bridge, &bed, name));
    name[0] = '\0'; /* creation has copied it */
    MPI_EXPECT_OK(create_named(&second_bridge, &bed, NULL));
    MPI_EXPECT_OK(mimo_comm_set_deadline(bed.comm, 30000)); /* a hang becomes a timeout */
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        mix(&bed, &mixtures[i]);
    MPI_EXPECT_OK(forward_first(&bed));
    MPI_EXPECT_OK(flight(&bed));
    MPI_EXPECT_OK(test_second(&bed));
    mimo_bridge_destroy(second_bridge);
    fault_bed_end(&bed);
}

/* MIMO_CHECK=calls asks for the agreement that MIMO_AGREE=0 removes. */
MPI_TEST(checks, calls_that_differ)
{
    enum { DIFFERING = 2 };
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    setenv("MIMO_AGREE", "0", 1);
    setenv("MIMO_CHECK", "calls", 1);
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(update_first(&bed)); /* MIMO_AGREE=0 wants the batch */
    MPI_FAILS(bed.rank == DIFFERING ? fault_backward(&bed) : fault_forward(&bed), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 backward of 1: f32 sbh[8,1,3] from f32 sbh[2,2,3], "
              "rank 0 called bridge 1 forward of 1: f32 sbh[2,2,3] from f32 sbh[8,1,3]");
    MPI_EXPECT_OK(fault_forward(&bed));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    fault_bed_end(&bed);
}
