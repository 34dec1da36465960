/* mimo_bridge_self_test on correct bridges of every kind. That it finds wrong ones is tested with
 * mimo-oracle, which has mutations. */
#include "bridge_bed.h"
#include "reference_grid.h"

typedef struct self_case {
    const char *src;
    int64_t src_offset;
    const char *dst;
    int64_t dst_offset;
    int cut; /* 1: the dst tile is a shard; 2: along tp as well; 4: the src tile is a shard */
    bool all_stages;
    bool collective; /* collective applies as well */
} self_case;

static const self_case cases[] = {
    {"tp=1,dp=1", 0, "tp=1,cp=1,dp=1", 0, 0, false, true},
    {"tp=1,dp=4", 0, "tp=1,cp=2,dp=2", 0, 0, false, true},
    {"tp=1,dp=4", 0, "tp=1,cp=2,dp=2", 0, 1, false, true},
    {"tp=2,dp=2", 0, "tp=2,cp=2,dp=1", 0, 3, false, true},
    {"tp=4,dp=1", 0, "tp=1,cp=2,dp=2", 0, 1, false, true},
    {"tp=1,dp=3", 0, "tp=1,cp=3,dp=1", 0, 1, false, true},
    {"tp=2,dp=4", 0, "tp=2,cp=2,dp=2", 0, 0, false, true},
    {"tp=2,dp=4", 0, "tp=2,cp=2,dp=2", 0, 3, false, true},
    {"tp=4,dp=2", 0, "tp=1,cp=2,pp=1,dp=4", 0, 0, false, true},
    {"tp=1,dp=8", 0, "tp=2,cp=4,dp=1", 0, 3, false, true},
    {"dp=3", 0, "tp=1,dp=2", 0, 0, false, false},
    {"tp=2,dp=2", 0, "dp=2,tp=2", 0, 0, false, false},
    {"cp=2,dp=2", 0, "cp=4,dp=1", 0, 5, false, false},
    {"dp=2", 0, "cp=2", 2, 1, false, false},
    {"dp=4", 0, "cp=2,pp=2", 0, 1, true, false},
    {"dp=4", 0, "pp=2,cp=2", 0, 0, true, false},
    {"tp=2,dp=3", 1, "dp=2,cp=2,pp=2", 0, 1, true, false},
};

static void check_case(const self_case *it, executor_id executor)
{
    bed_case c = {.src = {.grid = it->src, .offset = it->src_offset},
                  .dst = {.grid = it->dst, .offset = it->dst_offset},
                  .executor = executor,
                  .src_letters = "sbh",
                  .dst_letters = "sbh"};
    c.src.partition = it->cut & 4;
    c.dst.partition = it->cut & 3;
    c.dst.sp = it->cut & 2;
    c.dst.all_stages = it->all_stages;
    c.batch = c.seq = 48;
    bridge_bed bed = bed_create(&c);
    for (uint64_t seed = 0; bed.bridge && seed < 3; seed++)
        MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, seed));
    bed_destroy(&bed);
}

static bool spans(const char *grid, int64_t offset, int64_t ranks)
{
    return offset + ref_ranks(grid) == ranks;
}

static bool fits(const char *grid, int64_t offset, int64_t ranks)
{
    return offset + ref_ranks(grid) <= ranks;
}

MPI_TEST(self_test, right_bridges)
{
    int64_t ranks = mpi_test_size();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const self_case *it = &cases[i];
        if (it->collective && spans(it->src, it->src_offset, ranks))
            check_case(it, EXECUTOR_COLLECTIVE);
        if (fits(it->src, it->src_offset, ranks) && fits(it->dst, it->dst_offset, ranks))
            for (int e = EXECUTOR_ROUTED; e <= EXECUTOR_ZERO_COPY; e++)
                check_case(it, (executor_id)e);
    }
}

/* Packed sequences determine the number of positions, which may be 0. */
MPI_TEST(self_test, packed_bridges)
{
    static const int32_t lengths[] = {0, 8, 8, 24}, none[] = {0, 0, 0, 0};
    for (int way = 0; way < 3; way++) {
        bool both = way > 0;
        const int32_t *cu = way < 2 ? lengths : none;
        bed_case c = {
            .src = {.grid = both ? "cp=2,dp=2" : "tp=1,dp=4", .partition = both},
            .dst = {.grid = "tp=1,cp=2,dp=2", .partition = true, .cu = cu, .sequences = 3},
            .executor = EXECUTOR_ROUTED,
            .src_letters = "sbh",
            .dst_letters = "sbh",
            .batch = 4,
            .seq = cu[3]};
        if (both) {
            c.src.cu = cu;
            c.src.sequences = 3;
        }
        bridge_bed bed = bed_create(&c);
        if (bed.bridge)
            MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 3));
        bed_destroy(&bed);
    }
}

MPI_TEST(self_test, seeds_that_differ)
{
    bed_case c = {.src = {.grid = "tp=1,dp=4"},
                  .dst = {.grid = "tp=1,cp=2,dp=2"},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .batch = 4,
                  .seq = 4};
    bridge_bed bed = bed_create(&c);
    MPI_FAILS(mimo_bridge_self_test(bed.bridge, mpi_test_rank() == 2 ? 8 : 7), MIMO_ERR_MISMATCH,
              "rank 2", "seed 8");
    MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 9));
    MPI_EXPECT_STATUS(mimo_bridge_self_test(NULL, 1), MIMO_ERR_ARGUMENT);
    bed_destroy(&bed);
}

/* An operation is in flight when the ranks call the self-test, and each rank has come a different
 * distance with it. All ranks refuse. The operation, whose batch split is new to the ranks, ends
 * well. */
static void test_in_flight(const bridge_bed *bed, uint64_t round)
{
    bool done;
    mimo_op *op = NULL;
    test_tile from = bed_tile_new(bed, MIMO_SRC), to = bed_target_new(bed, MIMO_DST);
    bed_fill(bed, &from, false, round);
    MPI_EXPECT_OK(
        mimo_bridge_forward_start(&op, bed->bridge, &to.view, &from.view, 1, test_stream()));
    for (uint64_t tests = 0; tests < (uint64_t)mpi_test_rank() * round; tests++)
        MPI_EXPECT_OK(mimo_op_test(&done, op));
    MPI_FAILS(mimo_bridge_self_test(bed->bridge, 3), MIMO_ERR_STATE, "rank 0: bridge ",
              ": self-test: an operation is in flight");
    MPI_EXPECT_OK(mimo_op_wait(&op));
    bed_check_target(bed, &to, false, round);
    test_tile_free(&from);
    test_tile_free(&to);
}

MPI_TEST(self_test, operation_in_flight)
{
    bed_case c = {.src = {.grid = "tp=1,dp=4"},
                  .dst = {.grid = "tp=1,cp=2,dp=2"},
                  .src_letters = "sbh",
                  .dst_letters = "sbh",
                  .batch = 8,
                  .seq = 4};
    test_agree_on_data();
    for (int way = 0; way < 2; way++) {
        c.executor = way > 0 ? EXECUTOR_COLLECTIVE : EXECUTOR_P2P;
        bridge_bed bed = bed_create(&c);
        for (uint64_t round = 0; bed.bridge && round < 20; round++) {
            bridge_bed now = bed;
            now.c.src.ragged = way > 0 ? 0 : round;
            now.src = reference_of(&now.c.src, c.batch, c.seq);
            test_in_flight(&now, round);
            reference_release(&now.src);
        }
        MPI_EXPECT_OK(mimo_bridge_self_test(bed.bridge, 3));
        bed_destroy(&bed);
    }
}
