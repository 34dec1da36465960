/* One rank calls something else than the others, or the same with other arguments: that is the same
 * error on every rank, with what was wrong; nothing has moved, and the next call succeeds. */
#include <stdio.h>
#include <string.h>

#include "fault_bed.h"
#include "mpi_test.h"

enum { WRONG = 2 };

static mimo_status move(fault_bed *bed, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    fault_fill_full(bed);
    memset(bed->shard, 0x5a, sizeof bed->shard);
    return mimo_bridge_forward(bed->bridge, to, from, n, NULL);
}

static mimo_status right(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    return move(bed, &to, &from, 1);
}

static mimo_status shorter(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.shape[0] -= 1;
    return move(bed, &to, &from, 1);
}

static mimo_status fewer_samples(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.shape[1] = 0;
    return move(bed, &to, &from, 1);
}

static mimo_status another_dtype(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.dtype = to.dtype = MIMO_I32;
    return move(bed, &to, &from, 1);
}

static mimo_status two_dtypes(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.dtype = MIMO_BF16;
    return move(bed, &to, &from, 1);
}

static mimo_status no_data(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.data = NULL;
    return move(bed, &to, &from, 1);
}

static mimo_status no_tensors(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed);
    return move(bed, NULL, &from, 1);
}

static mimo_status two_tensors(fault_bed *bed)
{
    mimo_tensor from[] = {fault_full_view(bed), fault_full_view(bed)};
    mimo_tensor to[] = {fault_shard_view(bed->shard), fault_shard_view(bed->second)};
    return move(bed, to, from, 2);
}

static mimo_status over_itself(fault_bed *bed)
{
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    from.data = to.data;
    return move(bed, &to, &from, 1);
}

static mimo_status skipped(fault_bed *bed)
{
    return mimo_bridge_self_test(bed->bridge, 1);
}

/* Sentences differ between the executors: what is in both. */
typedef struct mistake {
    fault_act act;
    mimo_status status;
    const char *words;
} mistake;

static const mistake mistakes[] = {
    {shorter, MIMO_ERR_SHAPE, "rank 2: "},
    {fewer_samples, MIMO_ERR_SHAPE, ""},
    {another_dtype, MIMO_ERR_MISMATCH, "rank 2 called bridge forward of 1: i32 sbh[2,2,3]"},
    {two_dtypes, MIMO_ERR_SHAPE, "bf16 sbh[8,1,3]"},
    {no_data, MIMO_ERR_ARGUMENT, "rank 2: src"},
    {no_tensors, MIMO_ERR_ARGUMENT, "rank 2: bridge forward of 1: "},
    {two_tensors, MIMO_ERR_MISMATCH, "rank 2 called bridge forward of 2: "},
    {over_itself, MIMO_ERR_ARGUMENT, "rank 2: "},
    {fault_backward, MIMO_ERR_MISMATCH, "rank 2 called bridge backward of 1: "},
    {skipped, MIMO_ERR_MISMATCH,
     "rank 2 called bridge self-test with seed 1, rank 0 called bridge "
     "forward of 1: "},
};

static void expect_untouched(const fault_bed *bed)
{
    const unsigned char *bytes = (const unsigned char *)bed->shard;
    for (size_t i = 0; i < sizeof bed->shard && bed->rank != WRONG; i++)
        MPI_EXPECT(bytes[i] == 0x5a, "byte %zu was written", i);
}

static void mistake_of(fault_bed *bed, const mistake *it)
{
    mimo_status status = bed->rank == WRONG ? it->act(bed) : right(bed);
    MPI_EXPECT(status == it->status, "%s: %s (%s)", it->words, mimo_status_name(status),
               mimo_last_error());
    MPI_EXPECT_SENTENCE(it->words);
    expect_untouched(bed);
    MPI_EXPECT_OK(right(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
}

MPI_TEST(mistakes, of_one_rank)
{
    static const mimo_executor executors[] = {MIMO_EXECUTOR_COLLECTIVE, MIMO_EXECUTOR_ROUTED};
    for (int way = 0; way < 2; way++) {
        fault_bed bed;
        MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), executors[way]));
        MPI_EXPECT_OK(fault_create_bridge(&bed));
        for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
            mistake_of(&bed, &mistakes[i]);
        fault_bed_end(&bed);
    }
}

/* ------------------------------------- creation --------------------------------------- */

static mimo_status create(fault_bed *bed, const char *dst, bool sp, mimo_executor executor)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_grid *grid = NULL;
    MPI_EXPECT_OK(mimo_grid_parse(&grid, dst, 0));
    rule.sp = sp;
    desc.src = bed->src;
    desc.dst = grid;
    desc.partition = &rule;
    desc.executor = executor;
    mimo_status status = mimo_bridge_create(&bed->bridge, bed->comm, &desc);
    mimo_bridge_destroy(bed->bridge);
    bed->bridge = NULL;
    mimo_grid_destroy(grid);
    return status;
}

/* Also where MIMO_AGREE=0 removes other agreements. */
MPI_TEST(mistakes, in_creation)
{
    static const char grid[] = "tp=2,cp=2,dp=1";
    fault_bed bed;
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), MIMO_EXECUTOR_ROUTED));
    bool wrong = bed.rank == WRONG;
    MPI_EXPECT_STATUS(create(&bed, wrong ? "tp=2,cp=1,dp=2" : grid, true, MIMO_EXECUTOR_ROUTED),
                      MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=1,dp=2 with a "
                        "partition over cp and sp, routed, rank 0 called bridge create");
    MPI_EXPECT_STATUS(create(&bed, grid, !wrong, MIMO_EXECUTOR_ROUTED), MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=2,dp=1 with a "
                        "partition over cp, ");
    MPI_EXPECT_STATUS(
        create(&bed, grid, true, wrong ? MIMO_EXECUTOR_COLLECTIVE : MIMO_EXECUTOR_ROUTED),
        MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=2,dp=1 with a "
                        "partition over cp and sp, collective, rank 0 called bridge create src "
                        "tp=2,dp=2 dst tp=2,cp=2,dp=1 with a partition over cp and sp, routed");
    MPI_EXPECT_STATUS(wrong ? mimo_bridge_create(&bed.bridge, bed.comm, NULL)
                            : create(&bed, grid, true, MIMO_EXECUTOR_ROUTED),
                      MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("rank 2: bridge: desc is NULL");
    MPI_EXPECT_OK(create(&bed, grid, true, MIMO_EXECUTOR_ROUTED));
    fault_bed_end(&bed);
}
