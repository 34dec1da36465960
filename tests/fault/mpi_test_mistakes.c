/* One rank calls something else than the others, or the same with other arguments. Every rank gets
 * the same error, which says what was wrong. Nothing has moved, and the next call succeeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mpi.h>

#include "fault_bed.h"
#include "mpi_test.h"
#include "same_bits.h"

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

/* The first source and the second target share an element, and nothing else does. */
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
    const char *routed; /* of all executors except collective; NULL: the same sentence */
} mistake;

static const mistake mistakes[] = {
    {shorter, MIMO_ERR_SHAPE, "rank 2: bridge 1: 7 rows are not a multiple of 2*cp = 4",
     "rank 2: bridge 1: dst tile f32 sbh[2,2,3]: 4 ranks can't share a sequence of 7 positions"},
    {fewer_samples, MIMO_ERR_SHAPE,
     "rank 2: bridge 1: dst tile is f32 sbh[2,2,3]; fan_in by 2 from src tile f32 sbh[8,0,3] needs "
     "f32 "
     "sbh[2,0,3]",
     "rank 3 holds 1 samples and rank 2, at the same dp coordinate 1, holds 0"},
    {another_dtype, MIMO_ERR_MISMATCH, "rank 2 called bridge 1 forward of 1: i32 sbh[2,2,3]", NULL},
    {two_dtypes, MIMO_ERR_SHAPE, "bf16 sbh[8,1,3]", NULL},
    {no_data, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: src tile f32 sbh[8,1,3] has data NULL", NULL},
    {no_tensors, MIMO_ERR_ARGUMENT, "rank 2: bridge 1 forward of 1: to is NULL", NULL},
    {two_tensors, MIMO_ERR_MISMATCH, "rank 2 called bridge 1 forward of 2: ", NULL},
    {over_itself, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: the tiles at ", NULL},
    {onto_one, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: the tiles at ", NULL},
    {onto_the_next_source, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: the tiles at ", NULL},
    {onto_the_last_source, MIMO_ERR_ARGUMENT, "rank 2: bridge 1: the tiles at ", NULL},
    {fault_backward, MIMO_ERR_MISMATCH, "rank 2 called bridge 1 backward of 1: ", NULL},
    {skipped, MIMO_ERR_MISMATCH,
     "rank 2 called bridge 1 self-test with seed 1, rank 0 called bridge 1 "
     "forward of 1: ",
     NULL},
};

static void expect_untouched(const fault_bed *bed)
{
    unsigned char untouched[sizeof bed->shard];
    memset(untouched, 0x5a, sizeof untouched);
    if (bed->rank != WRONG)
        MPI_EXPECT_BITS(bits_of(bed->shard, untouched, sizeof untouched, sizeof(float), FAULT_H),
                        "written by a refused call");
}

static void mistake_of(fault_bed *bed, const mistake *it)
{
    bool collective = bed->executor == EXECUTOR_COLLECTIVE;
    const char *words = collective || !it->routed ? it->words : it->routed;
    mimo_status status = bed->rank == WRONG ? it->act(bed) : right(bed);
    MPI_EXPECT(status == it->status, "%s: %s (%s)", words, mimo_status_name(status),
               mimo_last_error());
    MPI_EXPECT_SENTENCE(words);
    expect_untouched(bed);
    MPI_EXPECT_OK(right(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
}

static void each_mistake(fault_bed *bed, mimo_comm *comm, executor_id executor)
{
    MPI_EXPECT_OK(fault_bed_begin(bed, comm, executor));
    MPI_EXPECT_OK(fault_create_bridge(bed));
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        mistake_of(bed, &mistakes[i]);
    fault_bed_end(bed);
}

/* The bridge is the first one of its communicator. */
static void mistakes_by(executor_id executor, bool in_buffer)
{
    fault_bed bed;
    mimo_comm *comm = NULL;
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_OK(mimo_comm_split(&comm, mpi_test_comm(), 0, mpi_test_rank()));
    if (in_buffer)
        MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, sizeof bed));
    each_mistake(in_buffer ? mimo_buffer_data(buffer) : &bed, comm, executor);
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
}

MPI_TEST(mistakes, of_one_rank)
{
    mistakes_by(EXECUTOR_COLLECTIVE, false);
    mistakes_by(EXECUTOR_ROUTED, false);
    mistakes_by(EXECUTOR_P2P, false);
    mistakes_by(EXECUTOR_ROUTED, true);
    mistakes_by(EXECUTOR_ZERO_COPY, true);
}

/* One rank is in a barrier of the communicator; the others make that call on it. */
static void barrier_instead(const fault_call *call)
{
    char sentence[256];
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
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

/* On the host no memory can be borrowed, whatever the others call. */
MPI_TEST(mistakes, of_another_call)
{
    for (const fault_call *call = fault_calls; call->name; call++)
        if (call->needs == 0 && strcmp(call->name, "barrier") != 0 &&
            strcmp(call->name, "borrow") != 0)
            barrier_instead(call);
}

/* -------------------------------------- parts ----------------------------------------- */

enum { TENSORS = 5 };
typedef float shards[TENSORS][FAULT_ROWS][FAULT_BATCH][FAULT_H];

/* Five tensors, of which this rank gets one wrong: its dtype, or its target. */
static mimo_status move_five(fault_bed *bed, shards room, int wrong, bool dtype)
{
    mimo_tensor from[TENSORS], to[TENSORS];
    fault_fill_full(bed);
    for (int i = 0; i < TENSORS; i++) {
        from[i] = fault_full_view(bed);
        to[i] = fault_shard_view(room[i]);
    }
    if (wrong >= 0 && dtype)
        from[wrong].dtype = to[wrong].dtype = MIMO_I32;
    else if (wrong >= 0)
        to[wrong].data = room[TENSORS];
    return mimo_bridge_forward(bed->bridge, to, from, TENSORS, NULL);
}

/* The ranks from WRONG on differ: rank WRONG in one tensor, the ranks behind it in the last one. */
static void five_tensors(fault_bed *bed, shards room)
{
    char words[256];
    for (int wrong = 0; wrong < TENSORS; wrong++) {
        int mine = bed->rank == WRONG ? wrong : bed->rank > WRONG ? TENSORS - 1 : -1;
        MPI_EXPECT_STATUS(move_five(bed, room, mine, true), MIMO_ERR_MISMATCH);
        snprintf(words, sizeof words,
                 "rank 2 called bridge 1 forward of 5, tensor %d: i32 sbh[2,2,3] from i32 "
                 "sbh[8,1,3], rank 0 called bridge 1 forward of 5, tensor %d: f32 sbh[2,2,3]",
                 wrong, wrong);
        MPI_EXPECT_SENTENCE(words);
    }
    MPI_EXPECT_OK(move_five(bed, room, -1, true));
}

static void five_tensors_by(executor_id executor, const char *checks)
{
    fault_bed bed;
    shards room;
    mimo_comm *comm = NULL;
    setenv("MIMO_CHECK", checks, 1);
    MPI_EXPECT_OK(mimo_comm_split(&comm, mpi_test_comm(), 0, mpi_test_rank()));
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, executor));
    MPI_EXPECT_OK(fault_create_bridge(&bed));
    five_tensors(&bed, room);
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
}

static void five_places(void)
{
    char words[256];
    fault_bed bed;
    mimo_comm *comm = NULL;
    mimo_buffer *buffer = NULL;
    const int place = (int)(sizeof(shards) / TENSORS);
    MPI_EXPECT_OK(mimo_comm_split(&comm, mpi_test_comm(), 0, mpi_test_rank()));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 2 * sizeof(shards)));
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_create_bridge(&bed));
    float(*room)[FAULT_ROWS][FAULT_BATCH][FAULT_H] = mimo_buffer_data(buffer);
    MPI_EXPECT_STATUS(move_five(&bed, room, bed.rank == WRONG ? 3 : -1, false), MIMO_ERR_MISMATCH);
    snprintf(words, sizeof words,
             "tensor 3: f32 sbh[2,2,3] from f32 sbh[8,1,3] at byte %d of buffer 1, rank 0",
             TENSORS * place);
    MPI_EXPECT_SENTENCE(words);
    snprintf(words, sizeof words, "at byte %d of buffer 1", 3 * place);
    MPI_EXPECT_SENTENCE(words);
    MPI_EXPECT_OK(move_five(&bed, room, -1, false));
    fault_bed_end(&bed);
    mimo_buffer_destroy(buffer);
    mimo_comm_destroy(comm);
}

static mimo_status update(const fault_bed *bed, int64_t batch, bool ragged)
{
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    desc.batch = batch;
    desc.ragged = ragged;
    return mimo_bridge_update(bed->bridge, &desc, 1);
}

static void updates(void)
{
    fault_bed bed;
    mimo_comm *comm = NULL;
    MPI_EXPECT_OK(mimo_comm_split(&comm, mpi_test_comm(), 0, mpi_test_rank()));
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_create_bridge(&bed));
    bool wrong = bed.rank == WRONG;
    MPI_FAILS(update(&bed, wrong ? 4 : 5, false), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 update to a batch of 4, rank 0 called bridge 1 "
              "update to a batch of 5");
    MPI_FAILS(update(&bed, 4, wrong), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 update to a ragged batch of 4 with 0 spans, rank 0");
    MPI_FAILS(wrong ? mimo_bridge_update(bed.bridge, NULL, 0) : update(&bed, 4, false),
              MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 update to a batch that is not given, rank 0");
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
}

static mimo_status create_packed(fault_bed *bed, const int32_t *cu, const int32_t *padded)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.format = MIMO_THD;
    rule.sequences = 3;
    rule.cu = cu;
    rule.cu_padded = padded;
    mimo_bridge_desc desc = mpi_test_bridge_desc(bed->src, bed->src);
    desc.partition = &rule;
    mimo_status status = mimo_bridge_create(&bed->bridge, bed->comm, &desc);
    mimo_bridge_destroy(bed->bridge);
    bed->bridge = NULL;
    return status;
}

static void lengths(void)
{
    static const int32_t right[] = {0, 4, 8, 16}, other[] = {0, 4, 10, 16};
    static const int32_t padded[] = {0, 4, 12, 20}, other_padded[] = {0, 4, 12, 24};
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    bool wrong = bed.rank == WRONG;
    MPI_FAILS(create_packed(&bed, wrong ? other : right, NULL), MIMO_ERR_MISMATCH,
              "rank 2 called bridge create with 6 positions in sequence 1 of 3 of dst, "
              "rank 0 called bridge create with 4 positions in sequence 1 of 3 of dst");
    MPI_FAILS(create_packed(&bed, right, wrong ? other_padded : padded), MIMO_ERR_MISMATCH,
              "rank 2 called bridge create with 12 positions in sequence 2 of 3 of dst, "
              "padded, rank 0 called bridge create with 8 positions in sequence 2");
    MPI_EXPECT_OK(create_packed(&bed, right, padded));
    fault_bed_end(&bed);
}

/* The first tensor or length that differs is named. */
MPI_TEST(mistakes, in_one_of_many)
{
    five_tensors_by(EXECUTOR_COLLECTIVE, "");
    five_tensors_by(EXECUTOR_ROUTED, "");
    five_tensors_by(EXECUTOR_P2P, "calls,samples");
    setenv("MIMO_CHECK", "", 1);
    five_places();
    updates();
    lengths();
}

/* ------------------------------------- creation --------------------------------------- */

static mimo_status create(fault_bed *bed, const char *dst, bool sp, executor_id executor)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_grid *grid = NULL;
    MPI_EXPECT_OK(mimo_grid_create_text(&grid, dst, 0));
    rule.sp = sp;
    mimo_bridge_desc desc = mpi_test_bridge_desc(bed->src, grid);
    desc.partition = &rule;
    desc.executor = executor_of(executor);
    mimo_status status = mimo_bridge_create(&bed->bridge, bed->comm, &desc);
    mimo_bridge_destroy(bed->bridge);
    bed->bridge = NULL;
    mimo_grid_destroy(grid);
    return status;
}

static mimo_status create_named(fault_bed *bed, const char *name)
{
    mimo_bridge_desc desc = mpi_test_bridge_desc(bed->src, bed->dst);
    desc.name = name;
    return mimo_bridge_create(&bed->bridge, bed->comm, &desc);
}

/* Long names are shortened in sentences only, and there never inside a character. */
static void names(fault_bed *bed)
{
    char first[100], second[100];
    bool wrong = bed->rank == WRONG;
    MPI_FAILS(create_named(bed, wrong ? "sounds" : "images"), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 'sounds' create src tp=2,dp=2 dst tp=2,cp=2,dp=1, "
              "rank 0 called bridge 'images' create src");
    MPI_FAILS(create_named(bed, wrong ? NULL : "images"), MIMO_ERR_MISMATCH,
              "rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=2,dp=1, rank 0");
    MPI_FAILS(create_named(bed, wrong ? "" : "images"), MIMO_ERR_ARGUMENT,
              "rank 2: bridge: the name is empty");
    memset(first, 'x', sizeof first);
    first[99] = '\0';
    memcpy(second, first, sizeof second);
    second[98] = 'y';
    MPI_FAILS(create_named(bed, wrong ? second : first), MIMO_ERR_MISMATCH,
              "xxx...' create src tp=2,dp=2 dst");
    for (int i = 0; i < 98; i += 2)
        memcpy(&first[i], "\xc3\xa9", 2);
    first[98] = '\0';
    MPI_EXPECT_OK(create_named(bed, first));
    MPI_FAILS(mimo_bridge_forward(bed->bridge, NULL, NULL, 1, NULL), MIMO_ERR_ARGUMENT,
              "bridge '\xc3\xa9\xc3\xa9", "\xc3\xa9...' forward of 1: to is NULL");
    mimo_bridge_destroy(bed->bridge);
    bed->bridge = NULL;
}

/* Holds also where MIMO_AGREE=0 removes other agreements. */
MPI_TEST(mistakes, in_creation)
{
    static const char grid[] = "tp=2,cp=2,dp=1";
    fault_bed bed;
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    bool wrong = bed.rank == WRONG;
    MPI_FAILS(create(&bed, wrong ? "tp=2,cp=1,dp=2" : grid, true, EXECUTOR_ROUTED),
              MIMO_ERR_MISMATCH,
              "rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=1,dp=2 with a "
              "partition over cp and sp, routed, rank 0 called bridge create");
    MPI_FAILS(create(&bed, grid, !wrong, EXECUTOR_ROUTED), MIMO_ERR_MISMATCH,
              "rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=2,dp=1 with a "
              "partition over cp, ");
    MPI_FAILS(create(&bed, grid, true, wrong ? EXECUTOR_COLLECTIVE : EXECUTOR_ROUTED),
              MIMO_ERR_MISMATCH,
              "rank 2 called bridge create src tp=2,dp=2 dst tp=2,cp=2,dp=1 with a "
              "partition over cp and sp, collective, rank 0 called bridge create src "
              "tp=2,dp=2 dst tp=2,cp=2,dp=1 with a partition over cp and sp, routed");
    MPI_FAILS(wrong ? mimo_bridge_create(&bed.bridge, bed.comm, NULL)
                    : create(&bed, grid, true, EXECUTOR_ROUTED),
              MIMO_ERR_ARGUMENT, "rank 2: bridge: desc is NULL");
    names(&bed);
    MPI_EXPECT_OK(create(&bed, grid, true, EXECUTOR_ROUTED));
    fault_bed_end(&bed);
}

static void mistakes_of_buffers(const fault_bed *bed)
{
    static char here[64];
    bool wrong = bed->rank == WRONG;
    mimo_buffer *buffer = NULL;
    MPI_FAILS(mimo_buffer_create(&buffer, bed->comm, wrong ? -1 : 64), MIMO_ERR_ARGUMENT,
              "rank 2: buffer create: -1 bytes");
    MPI_FAILS(wrong ? mimo_buffer_borrow(&buffer, bed->comm, here, sizeof here)
                    : mimo_buffer_create(&buffer, bed->comm, sizeof here),
              MIMO_ERR_UNSUPPORTED,
              "rank 2: buffer borrow: host memory that is there already can't be");
    MPI_EXPECT(!buffer, "a buffer in spite of the errors");
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, bed->comm, wrong ? 0 : 64));
    MPI_EXPECT(mimo_buffer_size(buffer) == 64, "%lld bytes", (long long)mimo_buffer_size(buffer));
    mimo_buffer_destroy(buffer);
}

MPI_TEST(mistakes, in_other_objects)
{
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    bool wrong = bed.rank == WRONG;
    MPI_FAILS(mimo_grid_connect(wrong ? bed.src : bed.dst, bed.comm), MIMO_ERR_MISMATCH,
              "rank 2 called connect grid tp=2,dp=2 at offset 0, rank 0 called connect "
              "grid tp=2,cp=2,dp=1 at offset 0");
    MPI_EXPECT_OK(mimo_grid_connect(bed.dst, bed.comm));
    mistakes_of_buffers(&bed);
    MPI_FAILS(fault_create_fastest(&bed, wrong ? 2 : 1), MIMO_ERR_MISMATCH,
              "rank 2 called bridge create by measurement, rank 0 called bridge create");
    MPI_FAILS(fault_create_fastest(&bed, wrong ? 0 : 1), MIMO_ERR_ARGUMENT,
              "rank 2: bridge sizes: batch 2, seq 8, hidden 0");
    MPI_EXPECT_OK(fault_create_fastest(&bed, 1));
    fault_bed_end(&bed);
}

/* ------------------------------------ environment ------------------------------------- */

static void differ_in(const char *name, const char *value, const char *words)
{
    static const char *const creations[] = {"split",  "group",   "connect", "buffer",
                                            "create", "fastest", "gradient"};
    char sentence[128];
    mimo_comm *comm = NULL;
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, 0));
    MPI_EXPECT_OK(mimo_comm_set_deadline(bed.comm, 30000)); /* a hang becomes a timeout */
    snprintf(sentence, sizeof sentence, " under %s, rank 0 called ", words);
    for (size_t i = 0; i < sizeof creations / sizeof creations[0]; i++) {
        fault_act act = fault_find_call(creations[i])->act;
        if (bed.rank == WRONG)
            setenv(name, value, 1);
        mimo_status status = act(&bed);
        MPI_EXPECT(status == MIMO_ERR_MISMATCH, "%s: %s", creations[i], mimo_status_name(status));
        MPI_EXPECT_SENTENCE(sentence);
        unsetenv(name);
        MPI_EXPECT(act(&bed) == MIMO_OK, "%s: %s", creations[i], mimo_last_error());
    }
    if (bed.rank == WRONG)
        setenv(name, value, 1);
    MPI_EXPECT_STATUS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_MISMATCH);
    unsetenv(name);
    MPI_EXPECT_SENTENCE("rank 2 called mimo_comm_create_mpi");
    MPI_EXPECT(!comm, "a communicator in spite of the error");
    fault_bed_end(&bed);
}

/* If one rank alone changed its setting for agreements, the others would wait in the next call. */
MPI_TEST(mistakes, in_the_environment)
{
    differ_in("MIMO_AGREE", "0", "MIMO_AGREE=0");
    differ_in("MIMO_CHECK", "calls", "MIMO_CHECK=calls");
}
