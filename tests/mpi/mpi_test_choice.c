/* Bridges that choose their executor by measuring. Which one is fastest depends on the machine.
 * These tests check that the choice gives right results and is the same on all ranks. */
#include <stdio.h>
#include <string.h>

#include "executors.h"
#include "bridge/bridge_types.h"
#include "bridge/collective/collective_types.h"
#include "core/hash.h"
#include "mpi_test.h"
#include "reference_grid.h"
#include "test_memory.h"

static const struct {
    const char *src, *dst;
    bool cut;
    bool both; /* both executors apply */
} pairs[] = {
    {"tp=1,dp=1", "tp=1,cp=1,dp=1", false, true}, {"tp=1,dp=2", "tp=1,cp=2,dp=1", true, true},
    {"tp=1,dp=2", "tp=1,cp=2,dp=1", false, true}, {"dp=2", "cp=1,dp=1,tp=2", false, true},
    {"tp=1,dp=4", "tp=1,cp=2,dp=2", true, true},  {"tp=4,dp=1", "tp=1,cp=2,dp=2", true, true},
    {"tp=2,dp=2", "dp=2,tp=2", false, false},     {"tp=1,dp=8", "tp=2,cp=4,dp=1", true, true},
};

/* The arguments of a bridge between a pair of grids. */
typedef struct choice {
    mimo_partition_rule rule;
    mimo_bridge_desc desc;
    mimo_bridge_sizes sizes;
} choice;

static void set_up(choice *c, const char *src, const char *dst, bool cut)
{
    *c = (choice){MIMO_PARTITION_RULE_INIT,
                  mpi_test_bridge_desc(mpi_test_grid(src, 0), mpi_test_grid(dst, 0)),
                  MIMO_BRIDGE_SIZES_INIT};
    c->desc.partition = cut ? &c->rule : NULL;
    c->sizes.batch = 8;
    c->sizes.seq = 64;
    c->sizes.hidden = 24;
    c->sizes.dtype = MIMO_F32;
}

static mimo_status create(mimo_bridge **out, const choice *c)
{
    return mimo_bridge_create_fastest(out, mpi_test_comm(), &c->desc, &c->sizes);
}

static bool stages(const mimo_bridge *bridge)
{
    return mimo_fifos_of(&bridge->fifos) != NULL;
}

/* Whether transport AUTO may be another one than p2p for destinations in no buffer. */
static bool can_stage(void)
{
    return mpi_test_comm()->backend->fifo_bytes != NULL;
}

/* All ranks have chosen the same executor, it is one that applies, and it moves rows rightly. */
static void check_bridge(mimo_bridge *bridge, const choice *c, bool both)
{
    int own[2], most[2];
    for (int way = 0; way < 2; way++)
        own[way] = executor_id_of(mimo_bridge_executor(bridge, way));
    MPI_Allreduce(own, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int way = 0; way < 2; way++) {
        bool can = own[way] == EXECUTOR_ROUTED ||
                   (own[way] == EXECUTOR_P2P && (c->sizes.in_buffer || can_stage())) ||
                   (own[way] == EXECUTOR_STAGED && stages(bridge) && !c->sizes.in_buffer) ||
                   (own[way] == EXECUTOR_COLLECTIVE && both &&
                    (way == 0 || c->sizes.dtype != MIMO_F8)); /* collective can't sum F8 over cp */
        MPI_EXPECT(own[way] == most[way], "%d here, %d elsewhere", own[way], most[way]);
        MPI_EXPECT(can, "executor %d, direction %d", own[way], way);
    }
    MPI_EXPECT_OK(mimo_bridge_self_test(bridge, 3));
    mimo_bridge_destroy(bridge);
}

static void choose(const choice *c, bool both)
{
    mimo_bridge *bridge = NULL;
    MPI_EXPECT_OK(create(&bridge, c));
    if (bridge)
        check_bridge(bridge, c, both);
}

MPI_TEST(choice, of_executors)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int in_buffer = 0; in_buffer < 2; in_buffer++) {
            choice c;
            if (ref_ranks(pairs[i].src) != mpi_test_size())
                continue;
            set_up(&c, pairs[i].src, pairs[i].dst, pairs[i].cut);
            c.sizes.in_buffer = in_buffer;
            choose(&c, pairs[i].both);
            if (pairs[i].cut) {
                c.sizes.dtype = MIMO_F8;
                choose(&c, true);
            }
            c.sizes.dtype = MIMO_F32;
            c.sizes.batch = 9; /* which collective takes on one rank only */
            choose(&c, mpi_test_size() == 1);
        }
}

/* ----------------------------------------- accepted ----------------------------------------- */

/* A forward call of tiles with these numbers of samples on this rank. */
static mimo_status forward(mimo_bridge *bridge, const choice *c, int64_t src, int64_t dst)
{
    test_tile from = test_tile_new("sbh", MIMO_F32, c->sizes.seq, src, c->sizes.hidden);
    test_tile to = test_tile_new("sbh", MIMO_F32, c->sizes.seq / 2, dst, c->sizes.hidden);
    mimo_status status = mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream());
    test_pull(&to.room); /* waits */
    test_tile_free(&from);
    test_tile_free(&to);
    return status;
}

/* From dp=size to cp=2,dp=size/2, where collective is a candidate. */
static void expect_rules_of_both(mimo_bridge *bridge, const choice *c)
{
    int64_t first, count, dp = mpi_test_size();
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = 2 * dp;
    MPI_EXPECT_STATUS(mimo_bridge_update(bridge, &batch, 1), MIMO_ERR_UNSUPPORTED);
    bool routed = mimo_bridge_executor(bridge, false).algorithm == MIMO_ALGORITHM_ROUTED;
    MPI_EXPECT_SENTENCE(routed ? "update: forward is routed, measured against collective; backward"
                               : "update: forward is collective; backward is ");
    MPI_EXPECT_STATUS(mimo_bridge_samples(&first, &count, bridge, MIMO_SRC, dp + 1),
                      MIMO_ERR_SHAPE);
    MPI_EXPECT_OK(forward(bridge, c, 3, 6)); /* another batch than measured, evenly split */
    bool more = mpi_test_rank() == 0;
    test_agree_on_data();
    MPI_EXPECT_STATUS(forward(bridge, c, more ? 3 : 2, dp > 2 ? (mpi_test_rank() < 2 ? 5 : 4) : 5),
                      MIMO_ERR_SHAPE);
}

/* Forward of tensor 0, which is shaped, and of tensor 1, which is flat on both sides with `samples`
 * on this rank's src, by an executor of a measured bridge. Both are filled with numbers. */
static mimo_status forward_mixed(mimo_bridge *bridge, executor_id executor, int64_t samples,
                                 test_tile to[2])
{
    enum { SEQ = 6, WIDTH = 3 };
    int64_t rank = mpi_test_rank();
    test_tile from[2] = {test_tile_new("sbh", MIMO_F32, SEQ, 2, WIDTH),
                         test_tile_new("th", MIMO_F32, samples * SEQ, WIDTH, 0)};
    mimo_tensor from_views[2] = {from[0].view, from[1].view}, to_views[2];
    to[0] = test_tile_new("sbh", MIMO_F32, SEQ, 4, WIDTH);
    to[1] = test_tile_new("th", MIMO_F32, 2 * samples * SEQ, WIDTH, 0);
    for (int i = 0; i < 2; i++) {
        int64_t count = from[i].room.bytes / (int64_t)sizeof(float);
        for (int64_t k = 0; k < count; k++)
            ((float *)from[i].room.host)[k] = (float)((2 * rank + i) * 1000 + k);
        test_push(&from[i].room);
        to_views[i] = to[i].view;
    }
    bridge->executor[0] = executor_of(executor);
    mimo_status status = mimo_bridge_forward(bridge, to_views, from_views, 2, test_stream());
    for (int i = 0; i < 2; i++) {
        test_pull(&to[i].room);
        test_tile_free(&from[i]);
    }
    return status;
}

/* A call of a tensor that is shaped and one that is flat on both sides: routed reads S of the flat
 * one from the other, collective reads rows. What is accepted, and what arrives, is the same. */
MPI_TEST(choice, mixed_tensors)
{
    choice c;
    char src[32], dst[32];
    mimo_bridge *bridge = NULL;
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=2,dp=%d", mpi_test_size() / 2);
    set_up(&c, src, dst, false);
    MPI_EXPECT_OK(create(&bridge, &c));
    if (!mimo_collective_of(bridge)->gather) /* collective lost, and its groups are gone */
        MPI_EXPECT_OK(mimo_collective_connect(bridge));
    for (int64_t samples = 1; samples <= 2; samples++) { /* tensor 0 has 2 */
        test_tile by_routed[2], by_collective[2];
        mimo_status wanted = samples == 2 ? MIMO_OK : MIMO_ERR_SHAPE;
        const char *words = wanted == MIMO_OK ? "" : "tensor 1, src tile f32 th[6,3], is cut other";
        test_agree_on_data();
        MPI_FAILS(forward_mixed(bridge, EXECUTOR_ROUTED, samples, by_routed), wanted, words);
        MPI_FAILS(forward_mixed(bridge, EXECUTOR_COLLECTIVE, samples, by_collective), wanted,
                  words);
        for (int i = 0; i < 2; i++) {
            MPI_EXPECT(wanted != MIMO_OK ||
                           memcmp(by_routed[i].room.host, by_collective[i].room.host,
                                  (size_t)by_routed[i].room.bytes) == 0,
                       "tensor %d differs", i);
            test_tile_free(&by_routed[i]);
            test_tile_free(&by_collective[i]);
        }
    }
    mimo_bridge_destroy(bridge);
}

/* The result does not depend on which executor was faster. A bridge with both executors can always
 * go on as routed. */
MPI_TEST(choice, what_is_accepted)
{
    choice c;
    char src[32], dst[32];
    mimo_bridge *bridge = NULL;
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=2,dp=%d", mpi_test_size() / 2);
    set_up(&c, src, dst, true);
    MPI_EXPECT_OK(create(&bridge, &c));
    expect_rules_of_both(bridge, &c);
    bridge->executor[0] = bridge->executor[1] = executor_of(EXECUTOR_ROUTED);
    expect_rules_of_both(bridge, &c);
    MPI_EXPECT_OK(mimo_bridge_self_test(bridge, 5));
    mimo_bridge_destroy(bridge);

    c.sizes.any_batch = mpi_test_rank() == 1;
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_MISMATCH);
    c.sizes.any_batch = true;
    MPI_EXPECT_OK(create(&bridge, &c));
    for (int way = 0; way < 2; way++)
        MPI_EXPECT(executor_id_of(mimo_bridge_executor(bridge, way)) != EXECUTOR_COLLECTIVE,
                   "way %d", way);
    batch.batch = 3 * mpi_test_size();
    MPI_EXPECT_OK(mimo_bridge_update(bridge, &batch, 1));
    MPI_EXPECT_OK(forward(bridge, &c, 3, 6));
    mimo_bridge_destroy(bridge);

    c.desc.batch = 3;
    MPI_FAILS(create(&bridge, &c), MIMO_ERR_ARGUMENT, "a batch of 3, the sizes one of 8");
    c.desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    MPI_FAILS(mimo_bridge_create(&bridge, mpi_test_comm(), &c.desc), MIMO_ERR_SHAPE,
              "do not both divide a batch of 3");
    c.desc.batch = mpi_test_rank() == 1 ? 8 : 4;
    MPI_EXPECT_STATUS(mimo_bridge_create(&bridge, mpi_test_comm(), &c.desc), MIMO_ERR_MISMATCH);
    c.desc.batch = -2;
    MPI_EXPECT_STATUS(mimo_bridge_create(&bridge, mpi_test_comm(), &c.desc), MIMO_ERR_ARGUMENT);
    c.desc.batch = 2 * mpi_test_size();
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &c.desc));
    MPI_EXPECT_OK(mimo_bridge_self_test(bridge, 6));
    MPI_EXPECT_OK(forward(bridge, &c, 2, 4));
    MPI_FAILS(forward(bridge, &c, 3, 6), MIMO_ERR_SHAPE, "this rank holds 2 samples");
    mimo_bridge_destroy(bridge);
}

/* What a descriptor fixes is what is used. */
MPI_TEST(choice, what_is_pinned)
{
    choice c;
    set_up(&c, "tp=1,dp=4", "tp=1,cp=2,dp=2", true);
    for (int forward = EXECUTOR_AUTO; forward <= EXECUTOR_ZERO_COPY; forward++)
        for (int backward = EXECUTOR_AUTO; backward <= EXECUTOR_ZERO_COPY; backward++) {
            int first = forward == EXECUTOR_AUTO ? EXECUTOR_ROUTED : forward;
            mimo_bridge *bridge = NULL;
            c.desc.executor = executor_of((executor_id)forward);
            c.desc.backward_executor = executor_of((executor_id)backward);
            MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &c.desc));
            MPI_EXPECT((int)executor_id_of(mimo_bridge_executor(bridge, false)) == first,
                       "forward");
            MPI_EXPECT((int)executor_id_of(mimo_bridge_executor(bridge, true)) ==
                           (backward == EXECUTOR_AUTO ? first : backward),
                       "backward");
            MPI_EXPECT_OK(mimo_bridge_self_test(bridge, 4));
            mimo_bridge_destroy(bridge);
        }
    mimo_bridge *none = NULL;
    const mimo_executor wrong[] = {
        {(mimo_algorithm)(MIMO_ALGORITHM_ROUTED + 1), MIMO_TRANSPORT_AUTO},
        {MIMO_ALGORITHM_ROUTED, (mimo_transport)(MIMO_TRANSPORT_STAGED + 1)},
        {MIMO_ALGORITHM_COLLECTIVE, MIMO_TRANSPORT_P2P},
    };
    static const char *const words[] = {"unknown algorithm 3", "unknown transport 4",
                                        "transport 1 is asked for with the collective algorithm"};
    for (int i = 0; i < 3; i++) {
        c.desc.backward_executor = wrong[i];
        MPI_FAILS(mimo_bridge_create(&none, mpi_test_comm(), &c.desc), MIMO_ERR_ARGUMENT, words[i]);
    }
    c.desc.backward_executor =
        executor_of(mpi_test_rank() == 1 ? EXECUTOR_STAGED : EXECUTOR_ROUTED);
    MPI_FAILS(mimo_bridge_create(&none, mpi_test_comm(), &c.desc), MIMO_ERR_MISMATCH,
              ", staged backward"); /* MIMO_CTAS may follow */
    MPI_EXPECT_SENTENCE(", rank 0 called bridge create");
    MPI_EXPECT(none == NULL, "a bridge of a creation that failed");
}

/* All ranks get the error, and nothing is left behind. */
MPI_TEST(choice, wrong_sizes)
{
    choice c;
    mimo_bridge *bridge = NULL;
    set_up(&c, "tp=1,dp=4", "tp=1,cp=2,dp=2", true);
    c.sizes.hidden = mpi_test_rank() == 2 ? 25 : 24;
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_MISMATCH);
    c.sizes.hidden = mpi_test_rank() == 1 ? 0 : 24;
    MPI_FAILS(create(&bridge, &c), MIMO_ERR_ARGUMENT, "hidden 0");
    c.sizes.hidden = INT64_MAX / 64;
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_OVERFLOW);
    c.sizes.hidden = 24;
    c.sizes.seq = 66; /* not a multiple of 2cp */
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_SHAPE);
    c.sizes.seq = 64;
    c.sizes.dst_letters = mpi_test_rank() == 1 ? "bsh" : NULL;
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_MISMATCH);
    c.sizes.dst_letters = "hsb";
    MPI_FAILS(create(&bridge, &c), MIMO_ERR_ARGUMENT,
              "letters 'hsb' of dst are neither sbh nor bsh");
    c.sizes.dst_letters = NULL;
    c.desc.executor = executor_of(EXECUTOR_P2P);
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_ARGUMENT);
    c.desc.executor = executor_of(EXECUTOR_AUTO);
    c.desc.backward_executor = executor_of(EXECUTOR_P2P);
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_ARGUMENT);
    MPI_EXPECT(bridge == NULL, "a bridge of a creation that failed");
    c.desc.backward_executor = executor_of(EXECUTOR_AUTO);
    MPI_EXPECT_OK(create(&bridge, &c));
    mimo_bridge_destroy(bridge);
}

/* On one rank the grids rule collective out, so its candidates are others. Either all ranks measure
 * a candidate, or none does. */
MPI_TEST(choice, grids_that_differ)
{
    choice c;
    mimo_bridge *bridge = NULL;
    bool odd = mpi_test_rank() == 1;
    set_up(&c, odd ? "tp=1,dp=4" : "tp=2,cp=2,dp=1", "tp=4,dp=1", false);
    c.sizes.batch = 9;
    MPI_EXPECT_STATUS(create(&bridge, &c), MIMO_ERR_MISMATCH);
    set_up(&c, "tp=1,dp=4", "tp=1,cp=2,dp=2", false);
    if (odd)
        c.desc.dst = NULL;
    MPI_FAILS(create(&bridge, &c), MIMO_ERR_ARGUMENT, "the dst grid is NULL");
    MPI_EXPECT(bridge == NULL, "a bridge of a creation that failed");
}

/* ----------------------------------------- letters ------------------------------------------ */

/* A hash of the strides of the messages' rows. */
static uint64_t strides;

int MPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype old,
                            MPI_Datatype *made)
{
    strides = mimo_hash_int(mimo_hash_int(mimo_hash_int(strides, count), length), stride);
    return PMPI_Type_create_hvector(count, length, stride, old, made);
}

static uint64_t strides_with(const char *src_letters, const char *dst_letters)
{
    choice c;
    mimo_bridge *bridge = NULL;
    set_up(&c, "tp=1,dp=4", "tp=1,cp=2,dp=2", true);
    c.sizes.src_letters = src_letters;
    c.sizes.dst_letters = dst_letters;
    strides = MIMO_HASH_START;
    MPI_EXPECT_OK(create(&bridge, &c));
    mimo_bridge_destroy(bridge);
    return strides;
}

/* Tiles of a trial have the letters of the calls to come. */
MPI_TEST(choice, letters_of_tiles)
{
    uint64_t unsaid = strides_with(NULL, NULL);
    MPI_EXPECT(unsaid != MIMO_HASH_START, "no strides");
    MPI_EXPECT(unsaid == strides_with("sbh", "sbh"), "sbh is not what is moved");
    MPI_EXPECT(unsaid != strides_with("bsh", "sbh"), "src tiles lie alike");
    MPI_EXPECT(unsaid != strides_with("sbh", "bsh"), "dst tiles lie alike");
}
