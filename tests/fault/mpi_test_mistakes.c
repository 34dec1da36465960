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

static mimo_status onto_one(fault_bed *bed)
{
    mimo_tensor from[] = {fault_full_view(bed), fault_full_view(bed)};
    mimo_tensor to[] = {fault_shard_view(bed->shard), fault_shard_view(bed->shard)};
    return move(bed, to, from, 2);
}

/* The second source and the first target share an element, and nothing else does. */
static mimo_status onto_the_next_source(fault_bed *bed)
{
    mimo_tensor from[] = {fault_full_view(bed), fault_full_view(bed)};
    mimo_tensor to[] = {fault_shard_view(bed->shard), fault_shard_view(bed->second)};
    from[1].data = &bed->full[0][1];
    return move(bed, to, from, 2);
}

/* The same of the first source and the second target. */
static mimo_status onto_the_last_source(fault_bed *bed)
{
    mimo_tensor from[] = {fault_full_view(bed), fault_full_view(bed)};
    mimo_tensor to[] = {fault_shard_view(bed->second), fault_shard_view(bed->shard)};
    from[0].data = &bed->full[0][1];
    return move(bed, to, from, 2);
}

static mimo_status skipped(fault_bed *bed)
{
    return mimo_bridge_self_test(bed->bridge, 1);
}

typedef struct mistake {
    fault_act act;
    mimo_status status;
    const char *words;
    const char *routed; /* by every executor but collective; NULL: the same */
} mistake;

static const mistake mistakes[] = {
    {shorter, MIMO_ERR_SHAPE, "rank 2: 7 rows are not a multiple of 2*cp = 4",
     "rank 2: dst tile f32 sbh[2,2,3]: 4 ranks can't share a sequence of 7 positions"},
    {fewer_samples, MIMO_ERR_SHAPE,
     "rank 2: dst tile is f32 sbh[2,2,3]; fan_in by 2 from src tile f32 sbh[8,0,3] needs f32 "
     "sbh[2,0,3]",
     "rank 3 holds 1 samples and rank 2, at the same dp coordinate 1, holds 0"},
    {another_dtype, MIMO_ERR_MISMATCH, "rank 2 called bridge forward of 1: i32 sbh[2,2,3]", NULL},
    {two_dtypes, MIMO_ERR_SHAPE, "bf16 sbh[8,1,3]", NULL},
    {no_data, MIMO_ERR_ARGUMENT, "rank 2: src tile f32 sbh[8,1,3] has data NULL", NULL},
    {no_tensors, MIMO_ERR_ARGUMENT, "rank 2: bridge forward of 1: to is NULL", NULL},
    {two_tensors, MIMO_ERR_MISMATCH, "rank 2 called bridge forward of 2: ", NULL},
    {over_itself, MIMO_ERR_ARGUMENT, "rank 2: the tiles at ", NULL},
    {onto_one, MIMO_ERR_ARGUMENT, "rank 2: the tiles at ", NULL},
    {onto_the_next_source, MIMO_ERR_ARGUMENT, "rank 2: the tiles at ", NULL},
    {onto_the_last_source, MIMO_ERR_ARGUMENT, "rank 2: the tiles at ", NULL},
    {fault_backward, MIMO_ERR_MISMATCH, "rank 2 called bridge backward of 1: ", NULL},
    {skipped, MIMO_ERR_MISMATCH,
     "rank 2 called bridge self-test with seed 1, rank 0 called bridge "
     "forward of 1: ",
     NULL},
};

static void expect_untouched(const fault_bed *bed)
{
    const unsigned char *bytes = (const unsigned char *)bed->shard;
    for (size_t i = 0; i < sizeof bed->shard && bed->rank != WRONG; i++)
        MPI_EXPECT(bytes[i] == 0x5a, "byte %zu was written", i);
}

static void mistake_of(fault_bed *bed, const mistake *it)
{
    bool collective = bed->executor == MIMO_EXECUTOR_COLLECTIVE;
    const char *words = collective || !it->routed ? it->words : it->routed;
    mimo_status status = bed->rank == WRONG ? it->act(bed) : right(bed);
    MPI_EXPECT(status == it->status, "%s: %s (%s)", words, mimo_status_name(status),
               mimo_last_error());
    MPI_EXPECT_SENTENCE(words);
    expect_untouched(bed);
    MPI_EXPECT_OK(right(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
}

static void each_mistake(fault_bed *bed, mimo_executor executor)
{
    MPI_EXPECT_OK(fault_bed_begin(bed, mpi_test_comm(), executor));
    MPI_EXPECT_OK(fault_create_bridge(bed));
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        mistake_of(bed, &mistakes[i]);
    fault_bed_end(bed);
}

MPI_TEST(mistakes, of_one_rank)
{
    fault_bed bed;
    mimo_buffer *buffer = NULL;
    each_mistake(&bed, MIMO_EXECUTOR_COLLECTIVE);
    each_mistake(&bed, MIMO_EXECUTOR_ROUTED);
    each_mistake(&bed, MIMO_EXECUTOR_P2P);
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), sizeof bed));
    each_mistake(mimo_buffer_data(buffer), MIMO_EXECUTOR_ROUTED);
    each_mistake(mimo_buffer_data(buffer), MIMO_EXECUTOR_ZERO_COPY);
    mimo_buffer_destroy(buffer);
}

/* One rank is in a barrier of the communicator on which the others make that call. */
static void barrier_instead(const fault_call *call)
{
    char sentence[256];
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), MIMO_EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, 0));
    mimo_status status = bed.rank == WRONG ? mimo_comm_barrier(bed.comm) : call->act(&bed);
    MPI_EXPECT(status == MIMO_ERR_MISMATCH, "%s: %s (%s)", call->name, mimo_status_name(status),
               mimo_last_error());
    snprintf(sentence, sizeof sentence, "rank 2 called barrier, rank 0 called %.*s",
             (int)strcspn(call->words, ":"), call->words);
    MPI_EXPECT_SENTENCE(sentence);
    MPI_EXPECT(call->act(&bed) == MIMO_OK, "%s: %s", call->name, mimo_last_error());
    fault_bed_end(&bed);
}

/* A registration fails on the host whatever the others call. */
MPI_TEST(mistakes, of_another_call)
{
    for (const fault_call *call = fault_calls; call->name; call++)
        if (call->needs == 0 && strcmp(call->name, "barrier") != 0 &&
            strcmp(call->name, "register") != 0)
            barrier_instead(call);
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

static void mistakes_of_buffers(const fault_bed *bed)
{
    static char here[64];
    bool wrong = bed->rank == WRONG;
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_STATUS(mimo_buffer_create(&buffer, bed->comm, wrong ? -1 : 64), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("rank 2: buffer create: -1 bytes");
    MPI_EXPECT_STATUS(wrong ? mimo_buffer_register(&buffer, bed->comm, here, sizeof here)
                            : mimo_buffer_create(&buffer, bed->comm, sizeof here),
                      MIMO_ERR_UNSUPPORTED);
    MPI_EXPECT_SENTENCE("rank 2: buffer register: host memory that is there already can't be");
    MPI_EXPECT(!buffer, "a buffer in spite of the errors");
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, bed->comm, wrong ? 0 : 64));
    MPI_EXPECT(mimo_buffer_size(buffer) == 64, "%lld bytes", (long long)mimo_buffer_size(buffer));
    mimo_buffer_destroy(buffer);
}

MPI_TEST(mistakes, in_other_objects)
{
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), MIMO_EXECUTOR_ROUTED));
    bool wrong = bed.rank == WRONG;
    MPI_EXPECT_STATUS(mimo_grid_connect(wrong ? bed.src : bed.dst, bed.comm), MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called connect grid tp=2,dp=2 at offset 0, rank 0 called connect "
                        "grid tp=2,cp=2,dp=1 at offset 0");
    MPI_EXPECT_OK(mimo_grid_connect(bed.dst, bed.comm));
    mistakes_of_buffers(&bed);
    MPI_EXPECT_STATUS(fault_create_fastest(&bed, wrong ? 2 : 1), MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("rank 2 called bridge create by measurement, rank 0 called bridge create");
    MPI_EXPECT_STATUS(fault_create_fastest(&bed, wrong ? 0 : 1), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_SENTENCE("rank 2: bridge sizes: batch 2, seq 8, hidden 0");
    MPI_EXPECT_OK(fault_create_fastest(&bed, 1));
    fault_bed_end(&bed);
}
