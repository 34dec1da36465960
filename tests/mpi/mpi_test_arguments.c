/* Arguments that are wrong on every rank. Each call says which one is wrong, and the objects can
 * still be used. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mimo.h>

#include "executors.h"
#include "comm/mpi/mpi_types.h"
#include "mpi_test.h"
#include "test_memory.h"

/* Deprecated functions work as before. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define ARGUMENT(call, words) MPI_FAILS(call, MIMO_ERR_ARGUMENT, words)

/* --------------------------------------- communicators -------------------------------------- */

static void sums(mimo_comm *comm)
{
    int32_t value = 1;
    ARGUMENT(mimo_comm_allreduce(NULL, &value, 1, MIMO_I32, MIMO_SUM, NULL), "comm is NULL");
    ARGUMENT(mimo_comm_allreduce(comm, &value, -1, MIMO_I32, MIMO_SUM, NULL),
             "rank 0: allreduce: count -1 is negative");
    ARGUMENT(mimo_comm_allreduce(comm, &value, 1, (mimo_dtype)77, MIMO_SUM, NULL),
             "allreduce: unknown dtype 77");
    ARGUMENT(mimo_comm_allreduce(comm, &value, 1, MIMO_I32, (mimo_reduce)9, NULL),
             "allreduce: unknown op 9");
    MPI_EXPECT(value == 1, "a failed call wrote %d", (int)value);
}

static void blocks(mimo_comm *comm)
{
    int32_t to = 1, from[2] = {1, 1};
    ARGUMENT(mimo_comm_reduce_scatter(NULL, &to, from, 1, MIMO_I32, MIMO_SUM, NULL),
             "reduce_scatter: comm is NULL");
    ARGUMENT(mimo_comm_reduce_scatter(comm, &to, from, -1, MIMO_I32, MIMO_SUM, NULL),
             "rank 0: reduce_scatter: count -1 is negative");
    ARGUMENT(mimo_comm_reduce_scatter(comm, &to, from, 1, (mimo_dtype)77, MIMO_SUM, NULL),
             "reduce_scatter: unknown dtype 77");
    ARGUMENT(mimo_comm_reduce_scatter(comm, &to, from, 1, MIMO_I32, (mimo_reduce)9, NULL),
             "reduce_scatter: unknown op 9");
    ARGUMENT(mimo_comm_alltoall(NULL, &to, from, 2, NULL), "alltoall: comm is NULL");
    ARGUMENT(mimo_comm_alltoall(comm, &to, from, -1, NULL), "rank 0: alltoall: -1 bytes");
    MPI_EXPECT(to == 1 && from[0] == 1, "a failed call wrote %d, %d", (int)to, (int)from[0]);
}

static void copies(mimo_comm *comm)
{
    char all[8] = "", own = 'x';
    ARGUMENT(mimo_comm_allgather(NULL, all, &own, 1, NULL), "allgather: comm is NULL");
    ARGUMENT(mimo_comm_allgather(comm, all, &own, -1, NULL), "allgather: -1 bytes");
    ARGUMENT(mimo_comm_allgather(comm, NULL, &own, 1, NULL), "allgather: to is NULL, 1 bytes");
    ARGUMENT(mimo_comm_allgather(comm, all, NULL, 1, NULL), "allgather: from is NULL, 1 bytes");
    ARGUMENT(mimo_comm_broadcast(NULL, all, 1, 0, NULL), "broadcast: comm is NULL");
    ARGUMENT(mimo_comm_broadcast(comm, all, -1, 0, NULL), "broadcast: -1 bytes");
    ARGUMENT(mimo_comm_broadcast(comm, NULL, 1, 0, NULL), "broadcast: data is NULL, 1 bytes");
    ARGUMENT(mimo_comm_broadcast(comm, all, 1, 2, NULL), "broadcast: root 2 is not one of 2 ranks");
    ARGUMENT(mimo_comm_broadcast(comm, all, 1, -1, NULL), "broadcast: root -1");
    ARGUMENT(mimo_comm_host_allgather(NULL, all, &own, 1), "host_allgather: comm is NULL");
    ARGUMENT(mimo_comm_host_allgather(comm, all, &own, -1), "host_allgather: -1 bytes");
    mimo_host_gather *gather = NULL;
    ARGUMENT(mimo_comm_host_allgather_start(&gather, NULL, all, &own, 1, NULL),
             "host_allgather_start: comm is NULL");
    ARGUMENT(mimo_comm_host_allgather_start(NULL, comm, all, &own, 1, NULL),
             "host_allgather_start: out is NULL");
    ARGUMENT(mimo_comm_host_allgather_start(&gather, comm, NULL, &own, 1, NULL), "to is NULL");
    ARGUMENT(mimo_comm_host_allgather_wait(NULL), "host_allgather_wait: NULL");
    MPI_EXPECT_OK(mimo_comm_host_allgather_wait(&gather));
    MPI_EXPECT(all[0] == '\0' && !gather, "a failed call wrote");
}

MPI_TEST(arguments, of_communicators)
{
    mimo_comm *comm = mpi_test_comm(), *none = NULL;
    sums(comm);
    copies(comm);
    blocks(comm);
    ARGUMENT(mimo_comm_split(NULL, comm, 0, 0), "split: out is NULL");
    ARGUMENT(mimo_comm_split(&none, NULL, 0, 0), "split: parent is NULL");
    ARGUMENT(mimo_comm_barrier(NULL), "barrier: comm is NULL");
    ARGUMENT(mimo_comm_agree(NULL, MIMO_OK), "mimo_comm_agree: comm is NULL");
    ARGUMENT(mimo_comm_agree_named(NULL, MIMO_OK, "step"), "mimo_comm_agree_named: comm is NULL");
    ARGUMENT(mimo_comm_synchronize(NULL, NULL), "mimo_comm_synchronize: comm is NULL");
    ARGUMENT(mimo_comm_set_deadline(NULL, 1), "mimo_comm_set_deadline: comm is NULL");
    ARGUMENT(mimo_comm_abort(NULL, "why"), "mimo_comm_abort: comm is NULL");
    ARGUMENT(mimo_comm_state(NULL), "mimo_comm_state: comm is NULL");
    setenv("MIMO_DEADLINE_MS", "-1", 1);
    ARGUMENT(mimo_comm_create_mpi(&none, MPI_COMM_WORLD, NULL), "environment MIMO_DEADLINE_MS=-1");
    unsetenv("MIMO_DEADLINE_MS");
    MPI_EXPECT(!none, "a failed call made a communicator");
    MPI_EXPECT_OK(mimo_comm_barrier(comm));
}

/* Counts past the limits of MPI's types. No memory of that size is needed. */
MPI_TEST(arguments, of_mpi_types)
{
    const int64_t most = INT_MAX;
    const mimo_rows right = {.row_bytes = 4, .n_outer = 2, .outer = 8, .n_inner = 1, .inner = 1};
    mimo_rows outer = right, inner = right;
    outer.n_outer = most + 1;
    inner.n_inner = most + 1;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_FAILS(mimo_mpi_rows_type(&type, &outer, 1), MIMO_ERR_OVERFLOW, "2147483648 x 1 rows");
    MPI_FAILS(mimo_mpi_rows_type(&type, &inner, 1), MIMO_ERR_OVERFLOW, "2 x 2147483648 rows");
    MPI_FAILS(mimo_mpi_bytes_type(&type, INT64_MAX), MIMO_ERR_OVERFLOW,
              "9223372036854775807 bytes in one message");
    MPI_EXPECT(type == MPI_DATATYPE_NULL, "a failed call made a type");
    MPI_EXPECT_OK(mimo_mpi_rows_type(&type, &right, 1));
    MPI_Type_free(&type);
}

/* ----------------------------------------- gradients ---------------------------------------- */

/* Buckets of a caller whose header is older: two of `old` bytes, one behind the other. */
static void check_old_buckets(const mimo_gradient *gradient, size_t old)
{
    mimo_gradient_bucket bucket = MIMO_GRADIENT_BUCKET_INIT, list[2];
    char text[2000], *at = (char *)list;
    float grad[2] = {1, 1};
    int64_t length;
    bucket.size = old;
    for (int i = 0; i < 2; i++) {
        bucket.name = i == 0 ? "first" : "second";
        bucket.grad = &grad[i];
        bucket.count = 1;
        memcpy(at + (size_t)i * old, &bucket, old);
    }
    MPI_EXPECT_OK(mimo_gradient_text(&length, text, sizeof text, gradient, list, 2));
    MPI_EXPECT(strstr(text, "first") && strstr(text, "second"), "%s", text);
    bucket.size = old - 8;
    memcpy(at + old, &bucket, old);
    ARGUMENT(mimo_gradient_text(&length, text, sizeof text, gradient, list, 2),
             "gradient bucket 1: its size is");
}

MPI_TEST(arguments, of_gradients)
{
    mimo_grid *grid = mpi_test_grid("dp=2", 0);
    mimo_gradient *gradient = NULL;
    float grad = 1;
    double norm = -5;
    mimo_gradient_bucket odd = MIMO_GRADIENT_BUCKET_INIT, unsized = {.name = "unsized"};
    odd.name = "odd";
    odd.dtype = (mimo_dtype)77;
    odd.grad = &grad;
    ARGUMENT(mimo_gradient_create(NULL, mpi_test_comm(), grid, grid), "gradient: out is NULL");
    MPI_EXPECT_OK(mimo_gradient_create(&gradient, mpi_test_comm(), grid, grid));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    ARGUMENT(mimo_gradient_add(NULL, 1, 1), "mimo_gradient_add: gradient is NULL");
    ARGUMENT(mimo_gradient_count(NULL, NULL, NULL), "mimo_gradient_count: gradient is NULL");
    ARGUMENT(mimo_gradient_finalize(NULL, NULL, 0, NULL), "finalize: gradient is NULL");
    ARGUMENT(mimo_gradient_norm(&norm, NULL, NULL, 0, NULL), "norm: gradient is NULL");
    ARGUMENT(mimo_gradient_finalize(gradient, NULL, 1, NULL), "gradient: 1 buckets at ");
    ARGUMENT(mimo_gradient_finalize(gradient, &odd, 1, NULL), "bucket 'odd': unknown dtype 77");
    ARGUMENT(mimo_gradient_explain(stderr, gradient, &odd, -1), "gradient: -1 buckets");
    ARGUMENT(mimo_gradient_explain(stderr, gradient, NULL, 1), "gradient: 1 buckets");
    ARGUMENT(mimo_gradient_explain(stderr, gradient, &unsized, 1),
             "bucket 0: the descriptor's size is 0");
    check_old_buckets(gradient, offsetof(mimo_gradient_bucket, partial));
    check_old_buckets(gradient, offsetof(mimo_gradient_bucket, grid));
    ARGUMENT(mimo_gradient_text(NULL, NULL, 4, gradient, NULL, 0), "text of 4 bytes at");
    ARGUMENT(mimo_gradient_explain(stderr, NULL, &odd, 1), "explain: gradient is NULL");
    MPI_EXPECT(grad == 1 && norm == -5, "a failed call wrote");
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, NULL, 0, NULL));
    mimo_gradient_destroy(gradient);
}

/* ------------------------------------------ bridges ----------------------------------------- */

/* A pair of grids on 4 ranks with the descriptor of a bridge. */
typedef struct pair {
    mimo_grid *src, *dst;
    mimo_partition_rule rule;
    mimo_bridge_desc desc;
} pair;

static void pair_begin(pair *p, const char *src, const char *dst)
{
    *p = (pair){.src = mpi_test_grid(src, 0), .dst = mpi_test_grid(dst, 0)};
    mimo_partition_rule_init(&p->rule, sizeof p->rule);
    p->desc = mpi_test_bridge_desc(p->src, p->dst);
    p->desc.executor = executor_of(EXECUTOR_ROUTED);
}

static void creations(const pair *p)
{
    mimo_comm *comm = mpi_test_comm();
    mimo_bridge *none = NULL;
    mimo_bridge_desc desc = p->desc;
    ARGUMENT(mimo_bridge_create(&none, NULL, &desc), "bridge: comm is NULL");
    ARGUMENT(mimo_bridge_create(NULL, comm, &desc), "bridge: out is NULL");
    desc.ctas = -1;
    ARGUMENT(mimo_bridge_create(&none, comm, &desc), "bridge: -1 thread blocks");
    desc = p->desc;
    desc.executor = executor_of(EXECUTOR_COLLECTIVE);
    desc.src_partition = &p->rule;
    MPI_FAILS(mimo_bridge_create(&none, comm, &desc), MIMO_ERR_UNSUPPORTED,
              "a partition of the src tile is not supported by the collective executor");
    MPI_EXPECT(!none, "a failed call made a bridge");
}

static void creations_by_measurement(const pair *p)
{
    mimo_comm *comm = mpi_test_comm();
    mimo_bridge *none = NULL;
    mimo_bridge_desc desc = p->desc;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    desc.executor = executor_of(EXECUTOR_AUTO);
    sizes.batch = sizes.seq = sizes.hidden = 4;
    sizes.dtype = (mimo_dtype)77;
    ARGUMENT(mimo_bridge_create_fastest(&none, NULL, &desc, &sizes), "bridge: comm is NULL");
    ARGUMENT(mimo_bridge_create_fastest(NULL, comm, &desc, &sizes), "bridge: out is NULL");
    ARGUMENT(mimo_bridge_create_fastest(&none, comm, NULL, &sizes), "bridge: desc is NULL");
    ARGUMENT(mimo_bridge_create_fastest(&none, comm, &desc, NULL), "bridge: sizes is NULL");
    ARGUMENT(mimo_bridge_create_fastest(&none, comm, &desc, &sizes), "sizes: unknown dtype 77");
    MPI_EXPECT(!none, "a failed call made a bridge");
}

static void creation_of_too_many_ranks(void)
{
    pair p;
    mimo_bridge *none = NULL;
    pair_begin(&p, "dp=8", "dp=4");
    MPI_FAILS(mimo_bridge_create(&none, mpi_test_comm(), &p.desc), MIMO_ERR_GRID,
              "the src grid has ranks [0, 8), the communicator has 4 ranks");
    mimo_bridge_destroy(none);
}

MPI_TEST(arguments, of_creation)
{
    pair p;
    pair_begin(&p, "tp=1,dp=4", "tp=1,cp=2,dp=2");
    creations(&p);
    creations_by_measurement(&p);
    creation_of_too_many_ranks();
}

/* Calls of the bridge's accessors on grids that do not pair. */
static void questions(const mimo_bridge *bridge)
{
    int64_t ranks[8], a = -7, b = -7;
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    ARGUMENT(mimo_bridge_refuse(NULL, false, false, MIMO_ERR_IO), "bridge refuse: bridge is NULL");
    ARGUMENT(mimo_bridge_pairing(NULL, bridge), "mimo_bridge_pairing: out is NULL");
    ARGUMENT(mimo_bridge_pairing(&pairing, NULL), "mimo_bridge_pairing: bridge is NULL");
    ARGUMENT(mimo_bridge_gather_group(ranks, &a, NULL), "gather_group: bridge is NULL");
    ARGUMENT(mimo_bridge_gather_group(NULL, &a, bridge), "gather_group: ranks is NULL");
    ARGUMENT(mimo_bridge_gather_group(ranks, NULL, bridge), "gather_group: slot is NULL");
    ARGUMENT(mimo_bridge_slot_samples(&a, &b, NULL, 4), "slot_samples: bridge is NULL");
    ARGUMENT(mimo_bridge_slot_samples(NULL, &b, bridge, 4), "slot_samples: start is NULL");
    ARGUMENT(mimo_bridge_slot_samples(&a, NULL, bridge, 4), "slot_samples: length is NULL");
    MPI_FAILS(mimo_bridge_slot_samples(&a, &b, bridge, 4), MIMO_ERR_GRID, "the grids do not pair");
    ARGUMENT(mimo_bridge_samples(&a, &b, NULL, MIMO_SRC, 4), "bridge_samples: bridge is NULL");
    ARGUMENT(mimo_bridge_samples(NULL, &b, bridge, MIMO_SRC, 4), "bridge_samples: first is NULL");
    ARGUMENT(mimo_bridge_samples(&a, NULL, bridge, MIMO_SRC, 4), "bridge_samples: count is NULL");
    ARGUMENT(mimo_bridge_samples(&a, &b, bridge, (mimo_side)7, 4), "samples: unknown side 7");
    MPI_FAILS(mimo_bridge_samples(&a, &b, bridge, MIMO_DST, -4), MIMO_ERR_SHAPE, "a batch of -4");
    ARGUMENT(mimo_bridge_spans(&a, NULL, 0, NULL), "mimo_bridge_spans: bridge is NULL");
    ARGUMENT(mimo_bridge_spans(NULL, NULL, 0, bridge), "mimo_bridge_spans: count is NULL");
    ARGUMENT(mimo_bridge_spans(&a, NULL, 1, bridge), "mimo_bridge_spans: spans is NULL");
    ARGUMENT(mimo_bridge_spans(&a, NULL, -1, bridge), "mimo_bridge_spans: spans is NULL");
    ARGUMENT(mimo_bridge_spans(&a, &(mimo_span){0}, -1, bridge),
             "mimo_bridge_spans: capacity is -1");
    MPI_EXPECT(a == -7 && b == -7, "a failed call wrote its output");
}

static mimo_status update(mimo_bridge *bridge, int64_t batch, const mimo_span *spans, int64_t count,
                          bool ragged)
{
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    desc.batch = batch;
    desc.spans = spans;
    desc.span_count = count;
    desc.ragged = ragged;
    return mimo_bridge_update(bridge, &desc, 1);
}

static void updates(mimo_bridge *bridge)
{
    const mimo_span span = {0, 0, 0, 1};
    ARGUMENT(mimo_bridge_update(NULL, NULL, 0), "bridge update: bridge is NULL");
    ARGUMENT(update(bridge, -2, NULL, 0, false), "update: a batch of -2");
    ARGUMENT(update(bridge, 4, &span, -1, true), "update: -1 spans");
    ARGUMENT(update(bridge, 4, NULL, 1, true), "update: 1 spans, NULL");
    ARGUMENT(update(bridge, 4, &span, 1, false), "1 spans, and the batch is not ragged");
    MPI_FAILS(update(bridge, 4, &span, INT64_C(1) << 31, true), MIMO_ERR_OVERFLOW,
              "update: 2147483648 spans of one rank");
}

/* Partitions with which a batch can't be ragged. */
static void ragged_updates(void)
{
    const int32_t cu[] = {0, 4, 8};
    mimo_partition_rule packed = MIMO_PARTITION_RULE_INIT;
    packed.format = MIMO_THD;
    packed.sequences = 2;
    packed.cu = cu;
    for (int thd = 0; thd < 2; thd++) {
        pair p;
        mimo_bridge *bridge = NULL;
        pair_begin(&p, "cp=2,dp=2", "cp=2,dp=2");
        p.desc.src_partition = thd ? NULL : &p.rule;
        p.desc.partition = thd ? &packed : &p.rule;
        MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &p.desc));
        MPI_FAILS(update(bridge, 4, NULL, 0, true), MIMO_ERR_UNSUPPORTED,
                  "a ragged batch takes no src partition and no thd partition");
        mimo_bridge_destroy(bridge);
    }
}

static void operations(mimo_bridge *bridge)
{
    float from[4 * 3] = {0}, to[4 * 3];
    const mimo_tensor src = mimo_tensor_3d(from, MIMO_F32, "sbh", 4, 1, 3);
    const mimo_tensor dst = mimo_tensor_3d(to, MIMO_F32, "sbh", 4, 1, 3);
    mimo_op *op = NULL;
    bool done = false;
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bridge, &dst, &src, 1, NULL));
    ARGUMENT(mimo_op_test(&done, NULL), "mimo_op_test: op is NULL");
    ARGUMENT(mimo_op_test(NULL, op), "mimo_op_test: done is NULL");
    ARGUMENT(mimo_op_wait(NULL), "mimo_op_wait: NULL");
    MPI_EXPECT_OK(mimo_op_wait(&op));
}

MPI_TEST(arguments, of_bridges)
{
    pair p;
    mimo_bridge *bridge = NULL;
    pair_begin(&p, "dp=4", "dp=4");
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &p.desc));
    questions(bridge);
    updates(bridge);
    operations(bridge);
    mimo_bridge_destroy(bridge);
    ragged_updates();
}

/* ------------------------------------------- tiles ------------------------------------------ */

/* A call of tiles with given letters and sizes, in memory that is large enough. */
static mimo_status move(mimo_bridge *bridge, bool backward, mimo_tensor to, mimo_tensor from)
{
    static float rooms[2][256];
    to.data = rooms[0];
    from.data = rooms[1];
    return (backward ? mimo_bridge_backward : mimo_bridge_forward)(bridge, &to, &from, 1, NULL);
}

static mimo_tensor tile(const char *letters, int64_t size0, int64_t size1, int64_t size2)
{
    return mimo_tensor_3d(NULL, MIMO_F32, letters, size0, size1, size2);
}

/* Tiles of a routed bridge that splits sequences of 8 over two ranks. */
static void tiles_of_a_cut(mimo_bridge *bridge)
{
    MPI_FAILS(move(bridge, false, tile("xbh", 4, 2, 3), tile("sbh", 8, 1, 3)), MIMO_ERR_SHAPE,
              "dst tile is f32 xbh[4,2,3]; the bridge takes sbh, bsh, bh and th");
    MPI_FAILS(move(bridge, false, tile("th", 8, 3, 1), tile("th", 8, 3, 1)), MIMO_ERR_SHAPE,
              "with a partition a tile of the call must be sbh or bsh");
    MPI_FAILS(move(bridge, false, tile("th", 7, 3, 1), tile("sbh", 8, 1, 3)), MIMO_ERR_SHAPE,
              "dst tile f32 th[7,3] is not a whole number of samples of 4 positions");
    MPI_FAILS(move(bridge, false, tile("sbh", 3, 2, 3), tile("sbh", 8, 1, 3)), MIMO_ERR_SHAPE,
              "dst tile is f32 sbh[3,2,3]; sequences of 8 positions need s = 4");
    MPI_FAILS(move(bridge, false, tile("sbh", 4, 2, 3), tile("sbh", 6, 1, 3)), MIMO_ERR_SHAPE,
              "dst tile is f32 sbh[4,2,3]: 6 rows are not a multiple of 2*cp = 4");
    MPI_EXPECT_OK(move(bridge, false, tile("sbh", 4, 2, 3), tile("sbh", 8, 1, 3)));
    MPI_EXPECT_OK(update(bridge, 4, NULL, 0, true));
    MPI_FAILS(move(bridge, false, tile("sbh", 4, 2, 3), tile("sbh", 8, 1, 3)), MIMO_ERR_SHAPE,
              "of a ragged batch they are th or bh, and sbh or bsh");
}

/* Without a partition the ranks of cp hold contributions, which must be numbers: bytes can't be
 * added. */
static void tiles_that_are_summed(void)
{
    pair p;
    mimo_bridge *bridge = NULL;
    mimo_tensor to = tile("sbh", 8, 1, 3), from = tile("sbh", 8, 2, 3);
    to.dtype = from.dtype = MIMO_F8;
    pair_begin(&p, "dp=4", "cp=2,dp=2");
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &p.desc));
    MPI_FAILS(move(bridge, true, to, from), MIMO_ERR_UNSUPPORTED,
              "f8 can be moved, not summed over 2 contributions");
    MPI_EXPECT_OK(move(bridge, false, from, to));
    mimo_bridge_destroy(bridge);
}

MPI_TEST(arguments, of_tiles)
{
    pair p;
    mimo_bridge *bridge = NULL;
    pair_begin(&p, "dp=4", "cp=2,dp=2");
    p.desc.partition = &p.rule;
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, mpi_test_comm(), &p.desc));
    tiles_of_a_cut(bridge);
    mimo_bridge_destroy(bridge);
    tiles_that_are_summed();
}
