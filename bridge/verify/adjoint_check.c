/*
 * The self-test of a bridge, on its own grids and backend. A small batch of whole numbers in f64
 * goes forward, another one backward. A batch is two tensors of unequal width, moved by one call: a
 * row that arrives in the wrong tensor shows.
 *
 * The numbers of a row are a hash of its origin: side, cell and local row, the same on all copies.
 * Two checks follow.
 *
 *   rows   Every row that this rank received has the numbers of the origin that the layouts give.
 *   sums   Forward P and backward P' are adjoint: <Px, y> = <x, P'y>. One rank of each set of
 *          copies counts, so every global row counts once. No layout is asked which row goes where.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "bridge/bridge_executors.h"
#include "layout/layout_types.h"
#include "comm/calls.h"
#include "comm/buffer_state.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"
#include "partition/packed_rule.h"

/* Odd widths, so that no row is a round number of bytes. Numbers stay small: products of two, and
 * sums of millions of these, are exact in 64 bits. */
enum { TENSORS = 2, FIRST = 3, SECOND = 5, WIDTH = FIRST + SECOND, LARGEST = 65521 };

/* One side on this rank. */
typedef struct test_side {
    mimo_layout *layout;
    mimo_cell cell;
    bool holds;                   /* rows at all */
    bool counts;                  /* in sums, for all copies of its cell */
    int64_t full;                 /* rows of a rank that holds any: the same on all of these */
    int64_t rows;                 /* here */
    double *sent;                 /* [rows, FIRST] and [rows, SECOND] behind it, in host memory */
    double *received;             /* the same */
    mimo_tensor send[TENSORS];    /* the tiles that are sent; the second lies behind the first */
    mimo_tensor receive[TENSORS]; /* the tiles that are received into */
    mimo_buffer *buffer;          /* of `receive`; NULL: it lies in memory of the device */
} test_side;

typedef struct self_test {
    mimo_bridge *bridge;
    char call[MIMO_CALL_TEXT];
    uint64_t seed;
    int64_t batch, seq;
    test_side side[2]; /* by mimo_side */
} self_test;

/* ------------------------------------------- sizes ------------------------------------------ */

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x > 0 ? a / x * b : 0; /* packed sides may have no positions at all */
}

/* The number of positions of which a side can cut any multiple. The routed executor cuts full tiles
 * as well, where it adds them up in shards. Under thd it is the number of all positions. */
static int64_t cut_sequence(const mimo_layout_desc *desc)
{
    const mimo_partition_rule *rule = desc->partition;
    if (!rule)
        return mimo_grid_dim_size(desc->grid, "cp");
    if (mimo_rule_is_packed(rule))
        return mimo_rule_positions(rule);
    return 2 * mimo_grid_dim_size(desc->grid, "cp") * mimo_grid_dim_size(desc->grid, "tp");
}

/* Two samples for each dp coordinate, and a number of positions that both sides can cut. */
static void choose_sizes(self_test *test, const mimo_layout_desc desc[2])
{
    int64_t dp = common_multiple(mimo_grid_dim_size(desc[MIMO_SRC].grid, "dp"),
                                 mimo_grid_dim_size(desc[MIMO_DST].grid, "dp"));
    int64_t src = cut_sequence(&desc[MIMO_SRC]), dst = cut_sequence(&desc[MIMO_DST]);
    test->batch = 2 * dp;
    test->seq = 2 * common_multiple(src, dst);
    if (mimo_rule_is_packed(desc[MIMO_SRC].partition))
        test->seq = src;
    if (mimo_rule_is_packed(desc[MIMO_DST].partition))
        test->seq = dst;
}

/* ------------------------------------------- tiles ------------------------------------------ */

static int64_t bytes_of(int64_t rows)
{
    return rows * WIDTH * (int64_t)sizeof(double);
}

/* Where element e of a row lies. The second tensor's elements begin at e = FIRST. */
static int64_t element_at(const test_side *side, int64_t row, int64_t e)
{
    return e < FIRST ? row * FIRST + e : side->full * FIRST + row * SECOND + e - FIRST;
}

static void shape_tiles(mimo_tensor tile[TENSORS], mimo_memory memory, int64_t positions,
                        int64_t samples)
{
    tile[0] = mimo_tensor_3d(NULL, MIMO_F64, "sbh", positions, samples, FIRST);
    tile[1] = mimo_tensor_3d(NULL, MIMO_F64, "sbh", positions, samples, SECOND);
    tile[0].memory = tile[1].memory = memory;
}

/* The second one begins at the same offset on all ranks, as a buffer requires. */
static void set_tiles(mimo_tensor tile[TENSORS], const test_side *side, void *data)
{
    tile[0].data = data;
    tile[1].data = (double *)data + element_at(side, 0, FIRST);
}

static mimo_status reserve_tiles(mimo_tensor tile[TENSORS], const test_side *side,
                                 const mimo_device *device)
{
    void *data;
    if (side->rows == 0)
        return MIMO_OK;
    MIMO_TRY(device->reserve(&data, bytes_of(side->rows)));
    set_tiles(tile, side, data);
    return MIMO_OK;
}

static mimo_status create_side(test_side *out, const self_test *test, const mimo_layout_desc *desc)
{
    mimo_layout_desc full = *desc;
    const mimo_comm *comm = test->bridge->mover.comm;
    full.batch = test->batch;
    full.seq = test->seq;
    MIMO_TRY(mimo_layout_create(&out->layout, &full));
    MIMO_TRY(mimo_layout_rows(&out->rows, out->layout, comm->rank));
    out->holds = mimo_layout_cell(&out->cell, out->layout, comm->rank);
    out->counts = out->holds && mimo_layout_first_rank(out->layout, &out->cell) == comm->rank;
    int64_t samples = mimo_layout_samples(out->layout, 0).count;
    out->full = out->layout->shard * samples;
    MIMO_TRY(mimo_reserve(&out->sent, out->rows * WIDTH, sizeof *out->sent));
    MIMO_TRY(mimo_reserve(&out->received, out->rows * WIDTH, sizeof *out->received));
    shape_tiles(out->send, test->bridge->memory, out->layout->shard, out->holds ? samples : 0);
    shape_tiles(out->receive, test->bridge->memory, out->layout->shard, out->holds ? samples : 0);
    return reserve_tiles(out->send, out, comm->device);
}

/* The number that element `at` of a cell's tensors begins with. It is the same on all copies. */
static double number_at(const self_test *test, mimo_side side, const mimo_cell *cell, int64_t at)
{
    uint64_t hash = mimo_hash_int(mimo_hash_int(MIMO_HASH_START, (int64_t)test->seed), side);
    hash = mimo_hash_int(mimo_hash_int(hash, cell->dp), cell->cp);
    hash = mimo_hash_int(mimo_hash_int(hash, cell->tp), cell->contribution);
    return (double)(mimo_hash_int(hash, at) % LARGEST) - LARGEST / 2;
}

static void fill(const self_test *test, mimo_side side)
{
    const test_side *here = &test->side[side];
    for (int64_t i = 0; i < here->rows * WIDTH; i++)
        here->sent[i] = number_at(test, side, &here->cell, i);
}

/* The numbers to send; and NaN where rows are received, so that a row which nobody writes shows. */
static mimo_status upload(const self_test *test, const test_side *side)
{
    const mimo_device *device = test->bridge->mover.comm->device;
    if (side->rows == 0)
        return MIMO_OK;
    for (int64_t i = 0; i < side->rows * WIDTH; i++)
        side->received[i] = (double)NAN;
    MIMO_TRY(device->upload(side->receive[0].data, side->received, bytes_of(side->rows), NULL));
    return device->upload(side->send[0].data, side->sent, bytes_of(side->rows), NULL);
}

static mimo_status download(const self_test *test, const test_side *side)
{
    mimo_comm *comm = test->bridge->mover.comm;
    const mimo_device *device = comm->device;
    if (side->rows == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_comm_synchronize(comm, NULL)); /* under the deadline: peers send these rows */
    return device->download(side->received, side->receive[0].data, bytes_of(side->rows), NULL);
}

/* What a rank can do alone. */
static mimo_status prepare(self_test *test)
{
    mimo_layout_desc desc[2];
    for (int side = 0; side < 2; side++)
        desc[side] =
            mimo_bridge_stricter_executor(test->bridge)->side_layout(test->bridge, (mimo_side)side);
    choose_sizes(test, desc);
    for (int side = 0; side < 2; side++) {
        MIMO_TRY(create_side(&test->side[side], test, &desc[side]));
        fill(test, (mimo_side)side);
    }
    return MIMO_OK;
}

/* Memory to receive into. Where the bridge requires buffers, each side has one, which begins at the
 * same offset on all ranks. */
static mimo_status reserve_received(self_test *test)
{
    for (int i = 0; i < 2; i++) {
        test_side *side = &test->side[i];
        if (!mimo_bridge_wants_buffers(test->bridge)) {
            MIMO_TRY(reserve_tiles(side->receive, side, test->bridge->mover.comm->device));
            continue;
        }
        MIMO_TRY(mimo_buffer_create_internal(&side->buffer, test->bridge->mover.parent,
                                             bytes_of(side->full)));
        set_tiles(side->receive, side, mimo_buffer_data(side->buffer));
    }
    return MIMO_OK;
}

static mimo_status make_tiles(self_test *test)
{
    MIMO_TRY(reserve_received(test));
    MIMO_TRY(upload(test, &test->side[MIMO_SRC]));
    return upload(test, &test->side[MIMO_DST]);
}

static void release(self_test *test)
{
    for (int side = 0; side < 2; side++) {
        test_side *it = &test->side[side];
        mimo_comm_release_moved(test->bridge->mover.comm, it->send[0].data);
        if (!it->buffer)
            mimo_comm_release_moved(test->bridge->mover.comm, it->receive[0].data);
        mimo_buffer_destroy(it->buffer);
        mimo_release(it->sent);
        mimo_release(it->received);
        mimo_layout_destroy(it->layout);
    }
}

/* ------------------------------------------- checks ----------------------------------------- */

/* What element e of global row (b, s), over both tensors, is worth on the side that it comes from:
 * the sum over that side's contribution classes. */
static double expected_at(const self_test *test, mimo_side from, int64_t b, int64_t s, int64_t e)
{
    const mimo_layout *layout = test->side[from].layout;
    mimo_cell cell;
    mimo_box box;
    double sum = 0;
    mimo_layout_find(layout, b, s, &cell, &box);
    int64_t row = mimo_box_row(&box, b, s);
    for (cell.contribution = 0; cell.contribution < layout->dims.contribution.size;
         cell.contribution++)
        sum += number_at(test, from, &cell, element_at(&test->side[from], row, e));
    return sum;
}

static mimo_status check_row(const self_test *test, mimo_side to, int64_t row, int64_t b, int64_t s)
{
    for (int64_t e = 0; e < WIDTH; e++) {
        double got = test->side[to].received[element_at(&test->side[to], row, e)];
        double expected = expected_at(test, to == MIMO_SRC ? MIMO_DST : MIMO_SRC, b, s, e);
        MIMO_CHECK(got == expected, MIMO_ERR_INTERNAL,
                   "self-test: %s gave row %" PRId64 " here (sample %" PRId64 ", position %" PRId64
                   "), element %" PRId64 " of tensor %d, as %.17g; it is %.17g",
                   to == MIMO_SRC ? "backward" : "forward", row, b, s, e < FIRST ? e : e - FIRST,
                   e >= FIRST, got, expected);
    }
    return MIMO_OK;
}

static mimo_status check_box(const self_test *test, mimo_side to, const mimo_box *box)
{
    for (int64_t b = 0; b < box->nb; b++)
        for (int64_t s = 0; s < box->ns; s++)
            MIMO_TRY(check_row(test, to, mimo_box_row(box, box->b0 + b, box->s0 + s), box->b0 + b,
                               box->s0 + s));
    return MIMO_OK;
}

/* Every row that this rank received. */
static mimo_status check_side(const self_test *test, mimo_side to)
{
    mimo_box_walk walk;
    mimo_box_walk_begin_rank(&walk, test->side[to].layout, test->bridge->rank);
    for (const mimo_box *box; (box = mimo_next_box(&walk));)
        MIMO_TRY(check_box(test, to, box));
    return MIMO_OK;
}

/* -------------------------------------------- sums ------------------------------------------ */

/* What the ranks that count add up. */
typedef struct test_sums {
    int64_t rows[2];    /* by mimo_side */
    int64_t product[2]; /* received . sent, by the side that received: <x, P'y> and <Px, y> */
} test_sums;

static test_sums own_sums(const self_test *test)
{
    test_sums sums = {{0, 0}, {0, 0}};
    for (int side = 0; side < 2; side++) {
        const test_side *it = &test->side[side];
        sums.rows[side] = it->counts ? it->rows : 0;
        for (int64_t i = 0; it->counts && i < it->rows * WIDTH; i++)
            sums.product[side] += (int64_t)it->received[i] * (int64_t)it->sent[i];
    }
    return sums;
}

static mimo_status check_sums(const self_test *test, const test_sums *all)
{
    test_sums sums = {{0, 0}, {0, 0}};
    int64_t rows = test->batch * test->seq, ranks = test->bridge->size;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int side = 0; side < 2; side++) {
            sums.rows[side] += all[rank].rows[side];
            sums.product[side] += all[rank].product[side];
        }
    for (int side = 0; side < 2; side++) {
        int64_t classes = test->side[side].layout->dims.contribution.size;
        MIMO_CHECK(sums.rows[side] == rows * classes, MIMO_ERR_INTERNAL,
                   "self-test: the %s ranks hold %" PRId64 " rows, copies apart, and %" PRId64
                   " samples of %" PRId64 " positions are %" PRId64,
                   mimo_side_names[side], sums.rows[side], test->batch, test->seq, rows * classes);
    }
    MIMO_CHECK(sums.product[0] == sums.product[1], MIMO_ERR_INTERNAL,
               "self-test: backward is not the adjoint of forward: <x, P'y> is %" PRId64
               " and <Px, y> is %" PRId64,
               sums.product[MIMO_SRC], sums.product[MIMO_DST]);
    return MIMO_OK;
}

static mimo_status compare_sums(const self_test *test, test_sums *all)
{
    mimo_comm *comm = test->bridge->mover.comm;
    mimo_request *request = NULL;
    test_sums mine = own_sums(test);
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, all, &mine, (int)sizeof mine));
    MIMO_TRY(mimo_wait(comm, &request, test->call));
    return check_sums(test, all);
}

/* -------------------------------------------- test ------------------------------------------ */

static mimo_status fetch_and_check(const self_test *test, mimo_side side)
{
    MIMO_TRY(download(test, &test->side[side]));
    return check_side(test, side);
}

/* Both passes, then the check of rows on this rank, then the sums of all. All ranks share a
 * failure. */
static mimo_status run(const self_test *test, test_sums *all)
{
    const test_side *src = &test->side[MIMO_SRC], *dst = &test->side[MIMO_DST];
    MIMO_TRY(mimo_bridge_forward(test->bridge, dst->receive, src->send, TENSORS, NULL));
    MIMO_TRY(mimo_bridge_backward(test->bridge, src->receive, dst->send, TENSORS, NULL));
    mimo_status status = fetch_and_check(test, MIMO_DST);
    if (status == MIMO_OK)
        status = fetch_and_check(test, MIMO_SRC);
    MIMO_TRY(mimo_comm_agree(test->bridge->mover.comm,
                             mimo_mover_prefix_error(&test->bridge->mover, status)));
    return mimo_mover_prefix_error(&test->bridge->mover, compare_sums(test, all));
}

/* With the other calls of the bridge, and under MIMO_CHECK=calls first with those of all objects.
 */
static mimo_status agree(const self_test *test, mimo_status local)
{
    const mimo_bridge *bridge = test->bridge;
    const mimo_claim claim = {
        .kind = MIMO_AGREE_ALWAYS,
        .local = mimo_mover_prefix_error(&bridge->mover, local),
        .signature = mimo_hash_int(mimo_hash_int(bridge->mover.id, MIMO_CALL_BRIDGE_SELF_TEST),
                                   (int64_t)test->seed),
        .call = test->call};
    if (bridge->mover.compares_calls)
        MIMO_TRY(mimo_mover_compare_call(&bridge->mover, &claim));
    return mimo_agree_on(bridge->mover.comm, &claim);
}

mimo_status mimo_bridge_self_test(mimo_bridge *bridge, uint64_t seed)
{
    MIMO_RANGE();
    test_sums *all = NULL;
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "mimo_bridge_self_test: bridge is NULL");
    MIMO_ENTER(bridge->mover.comm, "mimo_bridge_self_test");
    self_test test = {.bridge = bridge, .seed = seed};
    mimo_mover_finish(&bridge->mover); /* their agreements come before this one on every rank */
    mimo_status status = mimo_mover_check_idle(&bridge->mover, "self-test");
    if (status == MIMO_OK)
        status = mimo_reserve(&all, bridge->size, sizeof *all);
    if (status == MIMO_OK)
        status = prepare(&test);
    snprintf(test.call, sizeof test.call, "%s self-test with seed %" PRIu64, bridge->mover.title,
             seed);
    status = agree(&test, status);
    if (status == MIMO_OK)
        status = mimo_comm_agree(bridge->mover.comm,
                                 mimo_mover_prefix_error(&bridge->mover, make_tiles(&test)));
    if (status == MIMO_OK) {
        int64_t batch = bridge->batch;
        bridge->batch = test.batch; /* the moves of the test have their own */
        status = run(&test, all);
        bridge->batch = batch;
    }
    release(&test);
    mimo_release(all);
    return status;
}
