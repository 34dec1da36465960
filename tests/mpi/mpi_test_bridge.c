/* A collective bridge on real ranks: what it says of itself, what it refuses, and in which order
 * calls may end. What it moves is compared beside routed (mpi_test_routed.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executors.h"
#include "bridge_pairs.h"
#include "mpi_test.h"
#include "reference_grid.h"
#include "test_memory.h"

/* Deprecated functions work as before. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef struct bridge_case {
    grids grids;
    bool partition;
    int64_t given; /* the batch of the descriptor; 0: none */
} bridge_case;

static mimo_bridge *make_bridge(const bridge_case *c)
{
    mimo_bridge *bridge = NULL;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid(c->grids.src, 0), mpi_test_grid(c->grids.dst, 0));
    desc.partition = c->partition ? &rule : NULL;
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    if (c->given > 0)
        desc.batch = c->given;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
    return bridge;
}

/* Slots, groups and samples of an example of docs/concepts.md, "The gather-narrow-sum method". */
MPI_TEST(bridge, accessors)
{
    static const int64_t group_of[8] = {0, 1, 0, 1, 4, 5, 4, 5};
    int64_t ranks[2], slot, start, length, first, count, rank = mpi_test_rank();
    bridge_case fan_in = {.grids = {"tp=2,dp=4", "tp=2,cp=2,dp=2"}};
    mimo_bridge *bridge = make_bridge(&fan_in);
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    MPI_EXPECT_OK(mimo_bridge_pairing(&pairing, bridge));
    MPI_EXPECT(pairing.fan == MIMO_FAN_IN && pairing.scale == 2 && pairing.groups == 4,
               "%s by %d, %d groups", mimo_fan_name(pairing.fan), (int)pairing.scale,
               (int)pairing.groups);
    MPI_EXPECT_OK(mimo_bridge_gather_group(ranks, &slot, bridge));
    MPI_EXPECT(ranks[0] == group_of[rank] && ranks[1] == ranks[0] + 2, "group {%d, %d}",
               (int)ranks[0], (int)ranks[1]);
    MPI_EXPECT(ranks[slot] == rank, "slot %d", (int)slot);
    MPI_EXPECT_OK(mimo_bridge_slot_samples(&start, &length, bridge, 4));
    MPI_EXPECT(start == slot * 2 && length == 2, "slice [%d, +%d)", (int)start, (int)length);
    MPI_EXPECT_STATUS(mimo_bridge_slot_samples(&start, &length, bridge, 5), MIMO_ERR_SHAPE);
    MPI_EXPECT_OK(mimo_bridge_samples(&first, &count, bridge, MIMO_SRC, 8));
    MPI_EXPECT(first == rank / 2 * 2 && count == 2, "src samples [%d, +%d)", (int)first,
               (int)count);
    MPI_EXPECT_OK(mimo_bridge_samples(&first, &count, bridge, MIMO_DST, 8));
    MPI_EXPECT(first == rank / 4 * 4 && count == 4, "dst samples [%d, +%d)", (int)first,
               (int)count);
    MPI_EXPECT_STATUS(mimo_bridge_samples(&first, &count, bridge, MIMO_SRC, 6), MIMO_ERR_SHAPE);
    mimo_bridge_destroy(bridge);
}

/* A call that is wrong on one rank is an error on all ranks. Nothing moves, and the next call
 * works. */
MPI_TEST(bridge, mistakes_of_one_rank)
{
    bridge_case c = {.grids = {"tp=1,dp=4", "tp=1,cp=2,dp=2"}};
    test_agree_on_data();
    mimo_bridge *bridge = make_bridge(&c);
    int rank = mpi_test_rank();
    mimo_stream stream = test_stream();
    test_room from = test_room_new(8 * 3 * sizeof(float));
    test_room to = test_room_new(16 * 3 * sizeof(float));
    mimo_tensor source = test_view(&from, MIMO_F32, "sbh", 8, 1, 3);
    mimo_tensor target = test_view(&to, MIMO_F32, "sbh", 8, 2, 3);
    mimo_tensor bad = source;
    memset(from.host, 0, (size_t)from.bytes);
    memset(to.host, 0x5a, (size_t)to.bytes);
    test_push(&from);
    test_push(&to);
    bad.shape[0] = 7;
    MPI_FAILS(mimo_bridge_forward(bridge, &target, rank == 3 ? &bad : &source, 1, stream),
              MIMO_ERR_SHAPE,
              "rank 3: bridge 1: dst tile is f32 sbh[8,2,3]; fan_in by 2 from src tile f32 "
              "sbh[7,1,3] needs f32 sbh[7,2,3]");
    bad = test_view(&from, MIMO_F32, rank == 2 ? "bsh" : "sbh", 2, 2, 3);
    mimo_tensor square = test_view(&to, MIMO_F32, "sbh", 2, 4, 3);
    MPI_FAILS(mimo_bridge_forward(bridge, &square, &bad, 1, stream), MIMO_ERR_MISMATCH,
              "rank 2 called bridge 1 forward of 1: f32 sbh[2,4,3] from f32 bsh[2,2,3]");
    bad = source;
    bad.dtype = MIMO_I32;
    MPI_EXPECT_STATUS(mimo_bridge_forward(bridge, &target, rank == 1 ? &bad : &source, 1, stream),
                      MIMO_ERR_SHAPE);
    bad = source;
    bad.data = NULL;
    MPI_FAILS(mimo_bridge_forward(bridge, &target, rank == 2 ? &bad : &source, 1, stream),
              MIMO_ERR_ARGUMENT, "rank 2: bridge 1: src tile f32 sbh[8,1,3] has data NULL");
    bad = source;
    bad.letters[0] = 'p';
    MPI_EXPECT_STATUS(mimo_bridge_forward(bridge, &target, rank == 0 ? &bad : &source, 1, stream),
                      MIMO_ERR_SHAPE);
    bad = source;
    bad.data = (float *)to.place + 3;
    MPI_FAILS(mimo_bridge_forward(bridge, &target, rank == 2 ? &bad : &source, 1, stream),
              MIMO_ERR_ARGUMENT, "overlap");
    bad = source;
    bad.memory = test_other_memory();
    MPI_EXPECT_STATUS(mimo_bridge_forward(bridge, &target, rank == 2 ? &bad : &source, 1, stream),
                      MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_bridge_forward(bridge, &target, &source, rank == 1 ? 0 : 1, stream),
                      MIMO_ERR_ARGUMENT);
    mimo_status mixed = rank == 2 ? mimo_bridge_backward(bridge, &source, &target, 1, stream)
                                  : mimo_bridge_forward(bridge, &target, &source, 1, stream);
    MPI_EXPECT(mixed == MIMO_ERR_MISMATCH, "%s", mimo_status_name(mixed));
    MPI_EXPECT_SENTENCE("rank 2 called bridge 1 backward of 1: f32 sbh[8,1,3] from f32 sbh[8,2,3], "
                        "rank 0 called bridge 1 forward");
    mimo_tensor bytes_src = test_view(&from, MIMO_F8, "sbh", 8, 1, 3);
    mimo_tensor bytes_dst = test_view(&to, MIMO_F8, "sbh", 8, 2, 3);
    MPI_EXPECT_STATUS(mimo_bridge_backward(bridge, &bytes_src, &bytes_dst, 1, stream),
                      MIMO_ERR_UNSUPPORTED);
    test_pull(&to);
    for (int64_t i = 0; i < to.bytes; i++)
        MPI_EXPECT(((unsigned char *)to.host)[i] == 0x5a, "byte %d was written", (int)i);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &target, &source, 1, stream));
    test_pull(&to);
    const float last = ((float *)to.host)[47];
    MPI_EXPECT(last == 0, "%g", (double)last);
    mimo_bridge_destroy(bridge);
}

/* Tiles that do not fit a partition, or a fan-out, are refused with the numbers. */
MPI_TEST(bridge, tiles_that_do_not_fit)
{
    test_room a = test_room_new(64 * sizeof(float)), b = test_room_new(64 * sizeof(float));
    bridge_case c = {.grids = {"tp=1,dp=4", "tp=1,cp=2,dp=2"}};
    c.partition = true;
    mimo_bridge *bridge = make_bridge(&c);
    mimo_tensor tile = test_view(&a, MIMO_F32, "sbh", 8, 1, 2);
    mimo_tensor flat = test_view(&b, MIMO_F32, "bh", 16, 2, 1);
    MPI_FAILS(mimo_bridge_forward(bridge, &flat, &tile, 1, test_stream()), MIMO_ERR_SHAPE,
              "dst tile is f32 bh[16,2]: with a partition it must be sbh or bsh");
    MPI_EXPECT_STATUS(mimo_bridge_backward(bridge, &tile, &flat, 1, test_stream()), MIMO_ERR_SHAPE);
    mimo_tensor ragged = test_view(&a, MIMO_F32, "th", 9, 2, 1);
    mimo_tensor shard = test_view(&b, MIMO_F32, "sbh", 4, 2, 2);
    MPI_FAILS(mimo_bridge_forward(bridge, &shard, &ragged, 1, test_stream()), MIMO_ERR_SHAPE,
              "f32 th[9,2] is not a whole number of samples of 8 positions");
    mimo_bridge_destroy(bridge);

    bridge_case out = {.grids = {"tp=4,dp=1", "tp=1,cp=1,dp=4"}};
    bridge = make_bridge(&out);
    mimo_tensor six = test_view(&a, MIMO_F32, "sbh", 4, 6, 2);
    mimo_tensor part = test_view(&b, MIMO_F32, "sbh", 4, 1, 2);
    MPI_FAILS(mimo_bridge_forward(bridge, &part, &six, 1, test_stream()), MIMO_ERR_SHAPE,
              "holds 6 samples, which fan-out by 4 does not divide");
    /* only the sizes that the letters name count; the last one here is the rank */
    mimo_tensor four = test_view(&a, MIMO_F32, "bh", 4, 2, mpi_test_rank());
    mimo_tensor one = test_view(&b, MIMO_F32, "bh", 1, 2, mpi_test_rank());
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &one, &four, 1, test_stream()));
    mimo_bridge_destroy(bridge);

    out.given = 8;
    bridge = make_bridge(&out);
    mimo_tensor few = test_view(&a, MIMO_F32, "sbh", 4, 4, 2);
    MPI_FAILS(mimo_bridge_forward(bridge, &part, &few, 1, test_stream()), MIMO_ERR_SHAPE,
              "of a batch of 8 this rank holds 8 samples");
    /* flat on both sides: two rows for each of the 8 samples, and nothing says so */
    mimo_tensor rows = test_view(&a, MIMO_F32, "th", 16, 2, 1);
    mimo_tensor quarter = test_view(&b, MIMO_F32, "th", 4, 2, 1);
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, &quarter, &rows, 1, test_stream()));
    MPI_EXPECT_OK(mimo_bridge_backward(bridge, &rows, &quarter, 1, test_stream()));
    mimo_bridge_destroy(bridge);
}

static void wait_and_sum(mimo_op *op[2], const test_tile *one)
{
    int rank = mpi_test_rank(), first = rank % 2;
    if (rank > 1)
        MPI_EXPECT_OK(mimo_op_wait(&op[first]));
    MPI_EXPECT_OK(
        mimo_comm_allreduce(mpi_test_comm(), one->view.data, 1, MIMO_F32, MIMO_SUM, test_stream()));
    MPI_EXPECT_OK(mimo_op_wait(&op[1 - first]));
    MPI_EXPECT_OK(mimo_op_wait(&op[first]));
}

/* Two bridges of one communicator. Half of the ranks wait for one of them first, the other half for
 * the other one. Rank 0 is meanwhile busy with a sum over all. */
MPI_TEST(bridge, waits_in_any_order)
{
    mimo_bridge *bridge[2];
    bridge_case c = {.grids = {"tp=1,dp=4", "tp=1,cp=4,dp=1"}};
    int rank = mpi_test_rank();
    for (int i = 0; i < 2; i++)
        bridge[i] = make_bridge(&c);
    test_tile from[2], to[2], one = test_tile_new("t", MIMO_F32, 1, 1, 1);
    for (int i = 0; i < 2; i++) {
        from[i] = test_tile_new("sbh", MIMO_F32, 2, 1, 1);
        to[i] = test_tile_new("sbh", MIMO_F32, 2, 4, 1);
    }
    for (int round = 0; round < 20; round++) {
        float *sum = one.room.host;
        mimo_op *op[2];
        *sum = 1;
        test_push(&one.room);
        for (int i = 0; i < 2; i++) {
            for (int s = 0; s < 2; s++)
                ((float *)from[i].room.host)[s] = (float)(100 * round + 10 * i + rank);
            test_push(&from[i].room);
            MPI_EXPECT_OK(mimo_bridge_forward_start(&op[i], bridge[i], &to[i].view, &from[i].view,
                                                    1, test_stream()));
        }
        wait_and_sum(op, &one);
        for (int i = 0; i < 2; i++)
            test_pull(&to[i].room);
        for (int i = 0; i < 16; i++) {
            float got = ((float *)to[i / 8].room.host)[i % 8];
            MPI_EXPECT(got == (float)(100 * round + 10 * (i / 8) + i % 4), "round %d, %d: %g",
                       round, i, (double)got);
        }
        test_pull(&one.room);
        MPI_EXPECT(*sum == 4, "sum %g", (double)*sum);
    }
    for (int i = 0; i < 2; i++) {
        test_tile_free(&from[i]);
        test_tile_free(&to[i]);
        mimo_bridge_destroy(bridge[i]);
    }
}

static mimo_status create_with(const char *src_spec, const char *dst_spec, int64_t offset,
                               const mimo_partition_rule *rule)
{
    mimo_bridge *bridge = NULL;
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid(src_spec, offset), mpi_test_grid(dst_spec, offset));
    desc.partition = rule;
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    mimo_status status = mimo_bridge_create(&bridge, mpi_test_comm(), &desc);
    MPI_EXPECT((status == MIMO_OK) == (bridge != NULL), "%s, but bridge %p",
               mimo_status_name(status), (void *)bridge);
    mimo_bridge_destroy(bridge);
    return status;
}

MPI_TEST(bridge, wrong_creation)
{
    int rank = mpi_test_rank();
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    MPI_FAILS(create_with("tp=1,dp=4", rank == 2 ? "tp=1,cp=4,dp=1" : "tp=1,cp=2,dp=2", 0, NULL),
              MIMO_ERR_MISMATCH, "rank 2 called bridge create src tp=1,dp=4 dst tp=1,cp=4,dp=1");
    MPI_FAILS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, rank == 3 ? &rule : NULL),
              MIMO_ERR_MISMATCH, "rank 3");
    MPI_FAILS(create_with("tp=1,dp=3", "tp=1,cp=3,dp=1", 0, NULL), MIMO_ERR_GRID,
              "[0, 3), the communicator has 4 ranks");
    MPI_EXPECT_STATUS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 1, NULL), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(create_with("tp=1,cp=2,dp=2", "tp=1,cp=2,dp=2", 0, NULL), MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(create_with("tp=2,dp=2", "dp=2,tp=2", 0, NULL), MIMO_ERR_GRID);
    rule.format = MIMO_THD;
    MPI_EXPECT_STATUS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, &rule), MIMO_ERR_UNSUPPORTED);
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_bridge *bridge = NULL;
    MPI_EXPECT_STATUS(mimo_bridge_create(&bridge, mpi_test_comm(), &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_bridge_create(&bridge, mpi_test_comm(), NULL), MIMO_ERR_ARGUMENT);
    desc.size = 3;
    MPI_EXPECT_STATUS(mimo_bridge_create(&bridge, mpi_test_comm(), &desc), MIMO_ERR_ARGUMENT);
    if (rank == 1)
        setenv("MIMO_CTAS", "4294967297", 1); /* would be 1 if it were cut to 32 bits */
    MPI_FAILS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, NULL), MIMO_ERR_ARGUMENT,
              "rank 1: environment MIMO_CTAS=4294967297");
    unsetenv("MIMO_CTAS");
    if (rank == 1)
        setenv("MIMO_STAGED", "2", 1);
    MPI_FAILS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, NULL), MIMO_ERR_ARGUMENT,
              "rank 1: environment MIMO_STAGED=2 is neither 0 nor 1");
    if (rank == 1)
        setenv("MIMO_STAGED", "0", 1);
    MPI_FAILS(create_with("tp=1,dp=4", "tp=1,cp=2,dp=2", 0, NULL), MIMO_ERR_MISMATCH,
              ", MIMO_STAGED=0, rank 0 called");
    unsetenv("MIMO_STAGED");
}

/* The arguments of a creation. In each trial one rank has another value of one field. */
typedef struct creation {
    mimo_bridge_desc desc;
    mimo_partition_rule rule, src_rule;
    int32_t cu[3], cu_padded[3];
} creation;

enum { FIELDS = 11 };

static void change_field(creation *it, int field)
{
    switch (field) {
    case 0:
        it->desc.executor = executor_of(EXECUTOR_P2P);
        break;
    case 1:
        it->desc.backward_executor = executor_of(EXECUTOR_P2P);
        break;
    case 2:
        it->desc.all_stages = true;
        break;
    case 3:
        it->desc.destinations_idle = true;
        break;
    case 4:
        it->desc.ctas = 4;
        break;
    case 5:
        it->desc.src_partition = &it->src_rule;
        break;
    case 6:
        it->rule.sp = true;
        break;
    case 7:
        it->rule.strict = true;
        break;
    case 8:
        it->cu[1] = 3;
        break;
    case 9:
        it->desc.executor = executor_of(EXECUTOR_STAGED);
        break;
    default:
        it->cu_padded[1] = 4;
    }
}

MPI_TEST(bridge, descriptors_that_differ)
{
    mimo_grid *src = mpi_test_grid("dp=4", 0), *dst = mpi_test_grid("cp=2,dp=2", 0);
    mimo_bridge *bridge = NULL;
    int rank = mpi_test_rank();
    for (int field = -1; field <= FIELDS; field++) {
        creation it = {MIMO_BRIDGE_DESC_INIT,
                       MIMO_PARTITION_RULE_INIT,
                       MIMO_PARTITION_RULE_INIT,
                       {0, 4, 8},
                       {0, 8, 16}};
        it.desc.src = src;
        it.desc.dst = dst;
        it.desc.partition = &it.rule;
        it.rule.format = MIMO_THD;
        it.rule.cu = it.cu;
        it.rule.cu_padded = it.cu_padded;
        it.rule.sequences = 2;
        if (rank == 2 && field >= 0 && field < FIELDS)
            change_field(&it, field);
        if (rank == 2 && field == FIELDS)
            setenv("MIMO_CHECK", "samples", 1);
        mimo_status status = mimo_bridge_create(&bridge, mpi_test_comm(), &it.desc);
        MPI_EXPECT(status == (field < 0 ? MIMO_OK : MIMO_ERR_MISMATCH), "field %d: %s", field,
                   mimo_status_name(status));
        if (field >= 0)
            MPI_EXPECT_SENTENCE("rank 2 called bridge create");
        if (field == 0)
            MPI_EXPECT_SENTENCE(" of 2 sequences, T 16, p2p, rank 0");
        if (field == 9)
            MPI_EXPECT_SENTENCE(", staged");
        mimo_bridge_destroy(bridge);
        bridge = NULL;
    }
    mimo_bridge_destroy(bridge);
}

/* A typo, or a mesh with other names: taken for copies, they would mix up samples. */
MPI_TEST(bridge, dimensions_without_a_meaning)
{
    static const struct {
        const char *src, *dst, *words;
    } cases[] = {
        {"pd=4", "cp=2,dp=2", "bridge: the src grid pd=4 has pd = 4"},
        {"dp=4", "cp=2,dp_shard=2", "bridge: the dst grid cp=2,dp_shard=2 has dp_shard = 2"},
        {"tp=2,x=2", "tp=2,dp=2", "x=2:copies"},
    };
    for (int collective = 0; collective < 2; collective++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            mimo_bridge *bridge = NULL;
            mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid(cases[i].src, 0),
                                                         mpi_test_grid(cases[i].dst, 0));
            if (collective > 0)
                desc.executor.algorithm = MIMO_ALGORITHM_COLLECTIVE;
            MPI_FAILS(mimo_bridge_create(&bridge, mpi_test_comm(), &desc), MIMO_ERR_GRID,
                      cases[i].words);
            mimo_bridge_destroy(bridge);
        }
}

/* Rank 3's source differs, and some dimension says that it is a copy. */
MPI_TEST(bridge, replicas_along_every_dimension)
{
    static const struct {
        const char *src, *words; /* NULL: it is no copy */
    } cases[] = {
        {"cp=4,dp=1", "copies along cp of src: rank 3 from rank 0"},
        {"x=4:copies", "copies along x of src: rank 3 from rank 0"},
        {"x=2:copies,tp=2,dp=1", "copies along x,tp of src: rank 3 from rank 0"},
        {"dp=2,x=2:copies", "copies along x of src: rank 3 from rank 1"},
        {"x=1,dp=4", NULL},
    };
    setenv("MIMO_CHECK", "replicas", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mimo_grid *src = mpi_test_grid(cases[i].src, 0), *dst = mpi_test_grid("dp=4", 0);
        mimo_bridge *bridge = NULL;
        mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
        MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &desc));
        int64_t samples = 4 / mimo_grid_dim_size(src, "dp");
        test_tile from = test_tile_new("sbh", MIMO_F32, 2, samples, 1);
        test_tile to = test_tile_new("sbh", MIMO_F32, 2, 1, 1);
        for (int64_t k = 0; k < 2 * samples; k++)
            ((float *)from.room.host)[k] = mpi_test_rank() == 3 ? 1.0f : 0.0f;
        test_push(&from.room);
        MPI_EXPECT_STATUS(mimo_bridge_forward(bridge, &to.view, &from.view, 1, test_stream()),
                          cases[i].words ? MIMO_ERR_MISMATCH : MIMO_OK);
        if (cases[i].words)
            MPI_EXPECT_SENTENCE(cases[i].words);
        test_tile_free(&from);
        test_tile_free(&to);
        mimo_bridge_destroy(bridge);
    }
}

/* MIMO_CHECK=replicas: every rank gets an error that names a source that differs between tp copies,
 * even where only the last element of the last tensor differs. */
MPI_TEST(bridge, replica_check)
{
    enum { TENSORS = 2, WIDTH = 1 << 12, LAST = 8 * WIDTH - 1 };
    setenv("MIMO_CHECK", "replicas", 1);
    bridge_case c = {.grids = {"tp=2,dp=2", "tp=1,cp=4,dp=1"}};
    mimo_bridge *bridge = make_bridge(&c);
    test_tile from[TENSORS], to[TENSORS];
    mimo_tensor from_views[TENSORS], to_views[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        from[i] = test_tile_new("sbh", MIMO_F32, 8, 1, WIDTH);
        to[i] = test_tile_new("sbh", MIMO_F32, 8, 2, WIDTH);
        memset(from[i].room.host, 0, (size_t)from[i].room.bytes);
        test_push(&from[i].room);
        from_views[i] = from[i].view;
        to_views[i] = to[i].view;
    }
    MPI_EXPECT_OK(mimo_bridge_forward(bridge, to_views, from_views, TENSORS, test_stream()));
    ((float *)from[1].room.host)[LAST] = mpi_test_rank() == 3 ? 1.0f : 0.0f;
    test_push(&from[1].room);
    MPI_FAILS(mimo_bridge_forward(bridge, to_views, from_views, TENSORS, test_stream()),
              MIMO_ERR_MISMATCH, "copies along tp of src: rank 3 from rank 2");
    MPI_EXPECT_OK(mimo_bridge_backward(bridge, from_views, to_views, TENSORS, test_stream()));
    mimo_bridge_destroy(bridge);
}
