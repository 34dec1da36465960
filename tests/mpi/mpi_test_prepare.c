/* Calls that are prepared before they move anything: what a prepare leaves alone, what the first
 * call then finds, and mistakes. */
#include <stdlib.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "bridge_bed.h"
#include "core/memory.h"
#include "exchange_counter.h"
#include "guarded.h"
#include "kept_widths.h"
#include "random_calls.h"
#include "reference_grid.h"

enum { PLENTY = 1 << 30 };

/* Backward adds contributions. With many ranks it has two phases. */
static bed_case case_of(executor_id executor, int chunks)
{
    static char src[32], dst[32];
    bed_case c = {.src = {.grid = src}, .dst = {.grid = dst}};
    snprintf(src, sizeof src, "tp=1,dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", mpi_test_size());
    c.src_letters = "bsh";
    c.dst_letters = "sbh";
    c.executor = executor;
    c.buffer = executor == EXECUTOR_ZERO_COPY;
    c.dtype = MIMO_F32;
    c.hidden = 8;
    c.batch = 2 * mpi_test_size();
    c.given = true;
    c.seq = 4 * mpi_test_size();
    c.sums = executor != EXECUTOR_COLLECTIVE;
    c.chunks = chunks;
    return c;
}

static mimo_move_desc describe(const bridge_bed *bed, const test_tile *to, const test_tile *from)
{
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = &to->view;
    move.from = &from->view;
    move.n = 1;
    move.chunks = bed->c.chunks;
    move.stream = test_stream();
    return move;
}

static mimo_status call(const bridge_bed *bed, bool backward, const mimo_move_desc *move)
{
    mimo_op *op = NULL;
    MIMO_TRY((backward ? mimo_bridge_backward_start_chunked
                       : mimo_bridge_forward_start_chunked)(&op, bed->bridge, move));
    return mimo_op_wait(&op);
}

static void expect_poison(const test_tile *tile)
{
    test_pull(&tile->room);
    MPI_EXPECT(guarded_poison(tile->room.host, 0, tile->room.bytes), "%s",
               "a prepare has written a tensor");
}

/* A buffer that the calls do not use comes, or goes. */
static void change_buffers(const bridge_bed *bed, mimo_buffer **other)
{
    if (*other)
        mimo_buffer_destroy(*other);
    else
        MPI_EXPECT_OK(mimo_buffer_create(other, bed->bridge->mover.parent, 64));
}

/* Prepare with one pair of tiles, call with another one. */
static void prepare_and_call(const bridge_bed *bed, bool backward, bool looks)
{
    mimo_side give = backward ? MIMO_DST : MIMO_SRC, take = backward ? MIMO_SRC : MIMO_DST;
    test_tile from[2], to[2];
    for (int i = 0; i < 2; i++) {
        from[i] = bed_tile_new(bed, give);
        to[i] = bed_target_new(bed, take);
    }
    bed_fill(bed, &from[1], backward, 8);
    const mimo_move_desc first = describe(bed, &to[0], &from[0]);
    const mimo_move_desc second = describe(bed, &to[1], &from[1]);
    MPI_EXPECT_OK(mimo_bridge_prepare(bed->bridge, backward, &first));
    expect_poison(&to[0]);
    expect_poison(&from[0]);
    mimo_buffer *other = NULL;
    for (int calls = 0; calls < 3; calls++) {
        if (calls > 0)
            change_buffers(bed, &other);
        int made = exchange_counter.created;
        (void)mimo_fail_allocation(PLENTY);
        MPI_EXPECT_OK(call(bed, backward, &second));
        int64_t took = PLENTY - mimo_fail_allocation(0);
        MPI_EXPECT(!looks || (took == 0 && exchange_counter.created == made),
                   "%s: call %d takes %d allocations and %d exchanges", bed_text(&bed->c), calls,
                   (int)took, exchange_counter.created - made);
    }
    bed_check_target(bed, &to[1], backward, 8);
    for (int i = 0; i < 2; i++) {
        test_tile_free(&from[i]);
        test_tile_free(&to[i]);
    }
}

static void each_way(const char *checks)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P, EXECUTOR_ZERO_COPY,
                                            EXECUTOR_STAGED};
    for (int i = 0; i < 8; i++) {
        bed_case c = case_of(executors[i / 2], i % 2 ? 3 : 1);
        setenv("MIMO_CHECK", checks, 1);
        bridge_bed bed = bed_create(&c);
        unsetenv("MIMO_CHECK");
        count_exchanges(bed.bridge->mover.comm);
        prepare_and_call(&bed, false, !*checks);
        prepare_and_call(&bed, true, !*checks);
        bed_destroy(&bed);
    }
}

MPI_TEST(prepare, first_calls)
{
    each_way("");
}

/* The checks at run time look at nothing that a prepare moves. */
MPI_TEST(prepare, under_checks)
{
    each_way("samples,replicas");
    each_way("calls");
}

/* ----------------------------------------- any order ---------------------------------------- */

/* Counts what a communicator takes of its device. */
static struct {
    const mimo_device *real;
    mimo_device table;
    int taken;
} device_counter;

static mimo_status count_a_reserve(void **out, int64_t bytes)
{
    device_counter.taken++;
    return device_counter.real->reserve(out, bytes);
}

/* From 0. On the host each operation has staging of its own, so nothing is counted there. */
static void count_memory(mimo_comm *comm)
{
    device_counter.real = comm->device;
    device_counter.table = *comm->device;
    if (comm->device->enqueues)
        device_counter.table.reserve = count_a_reserve;
    comm->device = &device_counter.table;
}

/* The prepared call serves: nothing is made again, and no memory of a device is taken. */
static void make_and_check(const random_calls *it, int i)
{
    random_calls_poison(it, i);
    exchange_counter.created = device_counter.taken = 0;
    random_calls_make(it, i);
    MPI_EXPECT(exchange_counter.created == 0 && device_counter.taken == 0,
               "%s: call %d makes %d exchanges and takes memory %d times", it->text, i,
               exchange_counter.created, device_counter.taken);
    random_calls_check(it, i);
}

/* All calls of a bridge are prepared in one order and made in another one. One of them runs while
 * the others are prepared. */
static void in_any_order(const random_calls *it, uint64_t *seed)
{
    int order[RANDOM_CALLS];
    mimo_op *running = NULL;
    count_exchanges(it->bridge->mover.comm);
    watch_widths(it->bridge->mover.comm);
    count_memory(it->bridge->mover.comm);
    random_calls_order(seed, order);
    random_calls_poison(it, order[0]);
    random_calls_begin(&running, it, order[0]);
    for (int i = 1; i < RANDOM_CALLS; i++)
        random_calls_prepare(it, order[i]);
    MPI_EXPECT_OK(mimo_op_wait(&running));
    random_calls_check(it, order[0]);
    for (int round = 0; round < 2; round++) {
        random_calls_order(seed, order);
        for (int i = 0; i < RANDOM_CALLS; i++)
            make_and_check(it, order[i]);
    }
}

MPI_TEST(prepare, in_any_order)
{
    enum { CASES = 60 };
    uint64_t seed = 5;
    for (int i = 0; i < CASES; i++) {
        random_calls it = random_calls_new(&seed);
        in_any_order(&it, &seed);
        random_calls_free(&it);
    }
}

/* A bridge keeps 128 calls that were made. What was prepared stays besides. */
MPI_TEST(prepare, more_than_are_kept)
{
    enum { SHAPES = 140 };
    bed_case c = case_of(EXECUTOR_P2P, 1);
    c.hidden = SHAPES;
    bridge_bed bed = bed_create(&c);
    count_exchanges(bed.bridge->mover.comm);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    mimo_move_desc move = describe(&bed, &to, &from);
    for (int made = 0; made < 2; made++) {
        exchange_counter.created = 0;
        for (int width = 1; width <= SHAPES; width++) {
            from.view.shape[2] = to.view.shape[2] = width;
            MPI_EXPECT_OK(made ? call(&bed, false, &move)
                               : mimo_bridge_prepare(bed.bridge, false, &move));
        }
    }
    MPI_EXPECT(exchange_counter.created == 0, "%d calls were prepared in vain",
               exchange_counter.created);
    bed_destroy(&bed);
}

/* ------------------------------------------ mistakes ---------------------------------------- */

MPI_TEST(prepare, mistakes)
{
    bed_case c = case_of(EXECUTOR_P2P, 1);
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    const mimo_move_desc right = describe(&bed, &to, &from);
    bool here = mpi_test_rank() == mpi_test_size() - 1;
    MPI_EXPECT_STATUS(mimo_bridge_prepare(NULL, false, &right), MIMO_ERR_ARGUMENT);
    test_agree_on_data();
    MPI_FAILS(mimo_bridge_prepare(bed.bridge, false, here ? NULL : &right), MIMO_ERR_ARGUMENT,
              "desc is NULL");
    mimo_move_desc wrong = right;
    wrong.n = here ? 0 : 1;
    MPI_FAILS(mimo_bridge_prepare(bed.bridge, false, &wrong), MIMO_ERR_ARGUMENT,
              "prepare of forward of 0: 0 tensors");
    wrong = right;
    wrong.chunks = 1 + here;
    MPI_EXPECT_STATUS(mimo_bridge_prepare(bed.bridge, false, &wrong), MIMO_ERR_MISMATCH);
    test_tile narrow = from;
    narrow.view.shape[2] -= here;
    wrong = describe(&bed, &to, &narrow);
    MPI_EXPECT_STATUS(mimo_bridge_prepare(bed.bridge, false, &wrong), MIMO_ERR_SHAPE);
    expect_poison(&to);
    MPI_EXPECT_OK(mimo_bridge_prepare(bed.bridge, false, &right));
    bed_fill(&bed, &from, false, 3);
    MPI_EXPECT_OK(call(&bed, false, &right));
    bed_check_target(&bed, &to, false, 3);
    bed_destroy(&bed);
}

static mimo_status refuse(bridge_bed *bed, bool backward, bool prepare, mimo_status local)
{
    return mimo_bridge_refuse(bed->bridge, backward, prepare,
                              local == MIMO_ERR_IO ? mimo_fail(local, "no tile") : local);
}

static mimo_status refuse_update(bridge_bed *bed, mimo_status local)
{
    return mimo_bridge_refuse_update(bed->bridge,
                                     local == MIMO_ERR_IO ? mimo_fail(local, "no spans") : local);
}

/* The same of an update, after which the batch of before is in force. */
MPI_TEST(prepare, refused_update)
{
    bed_case c = case_of(EXECUTOR_P2P, 1);
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    bool here = mpi_test_rank() == 1;
    bridge_bed bed = bed_create(&c);
    batch.batch = 2 * mpi_test_size();
    const mimo_status wrong[] = {MIMO_ERR_IO, MIMO_OK, (mimo_status)77};
    static const char *const words[] = {": no spans", "refuse update: MIMO_OK is no error",
                                        "refuse update: 77 is no mimo_status"};
    for (int i = 0; i < 3; i++) {
        MPI_FAILS(here ? refuse_update(&bed, wrong[i]) : mimo_bridge_update(bed.bridge, &batch, 1),
                  i == 0 ? MIMO_ERR_IO : MIMO_ERR_ARGUMENT, "rank 1: bridge ", words[i]);
    }
    MPI_EXPECT_STATUS(mimo_bridge_refuse_update(NULL, MIMO_ERR_IO), MIMO_ERR_ARGUMENT);
    bed_move(&bed, false, 5);
    bed_destroy(&bed);
}

/* One rank can't take part in what the others call or prepare. All get its sentence. */
MPI_TEST(prepare, refused)
{
    bed_case c = case_of(EXECUTOR_P2P, 1);
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    const mimo_move_desc move = describe(&bed, &to, &from), back = describe(&bed, &from, &to);
    bool here = mpi_test_rank() == 1;
    MPI_FAILS(here ? refuse(&bed, false, true, MIMO_ERR_IO)
                   : mimo_bridge_prepare(bed.bridge, false, &move),
              MIMO_ERR_IO, ": no tile");
    test_agree_on_data();
    MPI_FAILS(here ? refuse(&bed, false, false, MIMO_ERR_IO) : call(&bed, false, &move),
              MIMO_ERR_IO, "rank 1: bridge ", ": no tile");
    MPI_EXPECT_STATUS(here ? refuse(&bed, true, false, MIMO_ERR_IO) : call(&bed, true, &back),
                      MIMO_ERR_IO);
    MPI_FAILS(here ? refuse(&bed, false, false, MIMO_OK) : call(&bed, false, &move),
              MIMO_ERR_ARGUMENT, "bridge refuse: MIMO_OK is no error");
    MPI_FAILS(here ? refuse(&bed, false, false, (mimo_status)77) : call(&bed, false, &move),
              MIMO_ERR_ARGUMENT, "bridge refuse: 77 is no mimo_status");
    MPI_EXPECT_STATUS(mimo_bridge_refuse(NULL, false, false, MIMO_ERR_IO), MIMO_ERR_ARGUMENT);
    bed_fill(&bed, &from, false, 3);
    MPI_EXPECT_OK(call(&bed, false, &move));
    bed_check_target(&bed, &to, false, 3);
    bed_destroy(&bed);
}

/* One rank prepares what the others call. */
MPI_TEST(prepare, beside_a_call)
{
    bed_case c = case_of(EXECUTOR_P2P, 1);
    bridge_bed bed = bed_create(&c);
    test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
    const mimo_move_desc move = describe(&bed, &to, &from);
    mimo_status status = mpi_test_rank() == 1 ? mimo_bridge_prepare(bed.bridge, false, &move)
                                              : call(&bed, false, &move);
    MPI_FAILS(status, MIMO_ERR_MISMATCH, "prepare of forward");
    expect_poison(&to);
    bed_destroy(&bed);
}

/* ---------------------------------------- a device's rules ---------------------------------- */

static bool always_records(mimo_stream stream)
{
    (void)stream;
    return true;
}

static mimo_status no_event(mimo_event **out)
{
    *out = NULL;
    return MIMO_OK;
}

static void forget_event(mimo_event *event)
{
    (void)event;
}

static mimo_status pass_event(mimo_event *event, mimo_stream stream)
{
    (void)event, (void)stream;
    return MIMO_OK;
}

static mimo_device enqueuing(void)
{
    mimo_device device = mimo_device_host;
    device.enqueues = true;
    device.event_create = no_event;
    device.event_destroy = forget_event;
    device.event_record = device.event_wait = pass_event;
    return device;
}

/* A table that says that work is enqueued stands before the host's functions. Ranks agree on a
 * prepare there as well; in a capture it is an error. */
MPI_TEST(prepare, where_calls_enqueue)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P};
    for (int i = 0; i < 2; i++) {
        bed_case c = case_of(executors[i], 1);
        mimo_device device = enqueuing();
        bridge_bed bed = bed_create(&c);
        bed.bridge->mover.comm->device = &device;
        count_exchanges(bed.bridge->mover.comm);
        test_tile from = bed_tile_new(&bed, MIMO_SRC), to = bed_target_new(&bed, MIMO_DST);
        const mimo_move_desc right = describe(&bed, &to, &from);
        mimo_move_desc wrong = right;
        wrong.n = mpi_test_rank() == 1 ? 0 : 1;
        MPI_EXPECT_STATUS(mimo_bridge_prepare(bed.bridge, false, &wrong), MIMO_ERR_ARGUMENT);
        device.records = always_records;
        MPI_FAILS(mimo_bridge_prepare(bed.bridge, false, &right), MIMO_ERR_STATE,
                  "is being captured");
        device.records = NULL;
        MPI_EXPECT_OK(mimo_bridge_prepare(bed.bridge, false, &right));
        MPI_EXPECT_OK(mimo_bridge_prepare(
            bed.bridge, true, &(mimo_move_desc){sizeof right, right.from, right.to, 1, 1, NULL}));
        expect_poison(&to);
        expect_poison(&from);
        bed_destroy(&bed);
    }
}
