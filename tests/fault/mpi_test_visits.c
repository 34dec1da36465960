/* Public calls work on their communicator's device, and leave the caller's current device as it
 * was. A communicator of host memory gets two devices here, which only count; its backend and its
 * memory look at which of them is current. */
#include <string.h>

#include "comm/comm_backend.h"
#include "fault_bed.h"
#include "mpi_test.h"

enum { THEIRS = 3, OWN = 5 };

static int now = THEIRS; /* the current device */
static int visits;       /* how often it became the communicator's */
static int elsewhere;    /* work that the communicator did on another one */
static const mimo_comm_backend *backend;

static int current(void)
{
    return now;
}

static void set_current(int number)
{
    visits += number == OWN;
    now = number;
}

static void look(void)
{
    elsewhere += now != OWN;
}

/* ----------------------------------- what is looked at ------------------------------------ */

static mimo_status split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    look();
    return backend->split(out, parent, color, key);
}

static mimo_status host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *values, int count)
{
    look();
    return backend->host_max_start(out, comm, values, count);
}

static mimo_status host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                        const void *from, int bytes)
{
    look();
    return backend->host_allgather_start(out, comm, to, from, bytes);
}

#define STARTED(name, what)                                                        \
    static mimo_status name(mimo_request **out, mimo_comm *comm, const what *call, \
                            mimo_stream stream)                                    \
    {                                                                              \
        look();                                                                    \
        return backend->name(out, comm, call, stream);                             \
    }

STARTED(allreduce_start, mimo_reduction)
STARTED(broadcast_start, mimo_broadcast)
STARTED(allgather_start, mimo_gather)
STARTED(reduce_scatter_start, mimo_block_reduction)
STARTED(alltoall_start, mimo_alltoall)

static mimo_status buffer_open(mimo_buffer *buffer)
{
    look();
    return backend->buffer_open(buffer);
}

static void buffer_close(mimo_buffer *buffer)
{
    look();
    backend->buffer_close(buffer);
}

static void destroy(mimo_comm *comm)
{
    look();
    backend->destroy(comm);
}

static void end(mimo_family *family, const mimo_last_words *words)
{
    look();
    backend->end(family, words);
}

static mimo_status reserve(void **out, int64_t bytes)
{
    look();
    return mimo_device_host.reserve(out, bytes);
}

static void release(void *memory)
{
    look();
    mimo_device_host.release(memory);
}

static mimo_status finished(bool *out, mimo_stream stream)
{
    look();
    return mimo_device_host.finished(out, stream);
}

static mimo_status sum_squares(double *out, const void *data, int64_t count, mimo_dtype dtype,
                               mimo_stream stream)
{
    look();
    return mimo_device_host.sum_squares(out, data, count, dtype, stream);
}

static void watch(mimo_comm *comm)
{
    static mimo_device device;
    static mimo_comm_backend watched;
    device = mimo_device_host;
    device.current = current;
    device.set_current = set_current;
    device.reserve = reserve;
    device.release = release;
    device.finished = finished;
    device.sum_squares = sum_squares;
    backend = comm->backend;
    watched = *backend;
    watched.split = split;
    watched.host_max_start = host_max_start;
    watched.host_allgather_start = host_allgather_start;
    watched.allreduce_start = allreduce_start;
    watched.broadcast_start = broadcast_start;
    watched.allgather_start = allgather_start;
    watched.reduce_scatter_start = reduce_scatter_start;
    watched.alltoall_start = alltoall_start;
    watched.buffer_open = buffer_open;
    watched.buffer_close = buffer_close;
    watched.destroy = destroy;
    watched.end = end;
    comm->backend = &watched;
    comm->device = &device;
    comm->device_number = OWN;
}

/* ----------------------------------------- tests ------------------------------------------ */

/* A call has ended that began with `from` current. */
static void expect_visit(const char *call, int from)
{
    MPI_EXPECT(now == from, "%s: device %d was current before, and %d after", call, from, now);
    MPI_EXPECT(from == OWN || visits > 0, "%s did not visit the communicator's device", call);
    MPI_EXPECT(elsewhere == 0, "%s: %d pieces of work on another device", call, elsewhere);
    visits = elsewhere = 0;
}

#define VISITS(name, call, status)       \
    do {                                 \
        MPI_EXPECT_STATUS(call, status); \
        expect_visit(name, THEIRS);      \
    } while (0)

/* What a call gives here; `again`: the second time. */
static mimo_status expected_of(const fault_call *call, const fault_bed *bed, bool again)
{
    if (strncmp(call->name, "update", 6) == 0 && bed->executor == EXECUTOR_COLLECTIVE)
        return MIMO_ERR_UNSUPPORTED;
    return again && strcmp(call->name, "group") == 0 ? MIMO_ERR_EXISTS : MIMO_OK;
}

static void make_calls(fault_bed *bed, int from)
{
    for (const fault_call *call = fault_calls; call->name; call++) {
        now = from;
        if (strcmp(call->name, "connect") == 0 && from == OWN) /* it is connected */
            continue;
        MPI_EXPECT_STATUS(call->act(bed), expected_of(call, bed, from == OWN));
        expect_visit(call->name, from);
    }
    MPI_EXPECT_OK(mimo_comm_synchronize(bed->comm, NULL));
    expect_visit("synchronize", from);
}

/* Calls that fail, some of them before the agreement and some in it. */
static void make_mistakes(fault_bed *bed)
{
    mimo_tensor view = fault_full_view(bed);
    double *nowhere = NULL;
    VISITS("broadcast of NULL", mimo_comm_broadcast(bed->comm, NULL, 4, 0, NULL),
           MIMO_ERR_ARGUMENT);
    VISITS("forward of the source", mimo_bridge_forward(bed->bridge, &view, &view, 1, NULL),
           MIMO_ERR_SHAPE);
    mimo_status refusal = mimo_fail(MIMO_ERR_SHAPE, "no tile");
    VISITS("refuse", mimo_bridge_refuse(bed->bridge, false, false, refusal), MIMO_ERR_SHAPE);
    mimo_update_desc updates[] = {MIMO_UPDATE_DESC_INIT, MIMO_UPDATE_DESC_INIT};
    updates[0].bridge = updates[1].bridge = bed->bridge;
    VISITS("update of a bridge twice", mimo_bridge_update_all(updates, 2), MIMO_ERR_ARGUMENT);
    refusal = mimo_fail(MIMO_ERR_SHAPE, "no spans");
    VISITS("refuse update", mimo_bridge_refuse_update(bed->bridge, refusal), MIMO_ERR_SHAPE);
    VISITS("refuse of rows", mimo_dispatch_refuse(bed->dispatch, false, refusal), MIMO_ERR_SHAPE);
    VISITS("refuse of a route", mimo_dispatch_refuse_route(bed->dispatch, refusal), MIMO_ERR_SHAPE);
    VISITS("add of no grid", mimo_gradient_add_grid(bed->gradient, NULL, NULL, NULL, NULL),
           MIMO_ERR_ARGUMENT);
    VISITS("norm of NULL", mimo_gradient_norm(nowhere, bed->gradient, NULL, 1, NULL),
           MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_bridge_forward(NULL, &view, &view, 1, NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT_STATUS(mimo_comm_barrier(NULL), MIMO_ERR_ARGUMENT);
    MPI_EXPECT(now == THEIRS && visits == 0, "a call on nothing set the device");
}

static void make_operations(fault_bed *bed)
{
    mimo_op *op = NULL;
    mimo_host_gather *gather = NULL;
    int all[FAULT_RANKS];
    bool done = false;
    mimo_tensor from = fault_full_view(bed), to = fault_shard_view(bed->shard);
    VISITS("forward start", mimo_bridge_forward_start(&op, bed->bridge, &to, &from, 1, NULL),
           MIMO_OK);
    while (!done)
        VISITS("test", mimo_op_test(&done, op), MIMO_OK);
    VISITS("wait", mimo_op_wait(&op), MIMO_OK);
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = &to;
    move.from = &from;
    move.n = 1;
    VISITS("start in chunks", mimo_bridge_forward_start_chunked(&op, bed->bridge, &move), MIMO_OK);
    VISITS("wait for a chunk", mimo_op_wait_chunk(op, 0, NULL), MIMO_OK);
    VISITS("wait behind a chunk", mimo_op_wait(&op), MIMO_OK);
    VISITS("select", mimo_bridge_select(bed->bridge, 0), MIMO_OK);
    VISITS(
        "host allgather start",
        mimo_comm_host_allgather_start(&gather, bed->comm, all, &bed->rank, sizeof bed->rank, NULL),
        MIMO_OK);
    VISITS("wait for a host allgather", mimo_comm_host_allgather_wait(&gather), MIMO_OK);
}

/* Moves that are begun here and end in a wait. */
static void make_moves_of_experts(fault_bed *bed)
{
    int64_t tokens = bed->rank == FAULT_WITHOUT_TOKENS ? 0 : FAULT_TOKENS;
    mimo_tensor own = mimo_tensor_2d(bed->tokens, MIMO_F32, "th", tokens, FAULT_H);
    mimo_tensor tile = mimo_tensor_2d(bed->tile, MIMO_F32, "th", FAULT_TILE, FAULT_H);
    mimo_op *op = NULL;
    VISITS("rows start", mimo_dispatch_rows_start(&op, bed->route, &tile, &own, 1, NULL), MIMO_OK);
    VISITS("wait for rows", mimo_op_wait(&op), MIMO_OK);
    VISITS("combine start", mimo_dispatch_combine_start(&op, bed->route, &own, &tile, 1, NULL),
           MIMO_OK);
    VISITS("wait for a combine", mimo_op_wait(&op), MIMO_OK);
}

static void release_all(fault_bed *bed)
{
    mimo_route_destroy(bed->route);
    expect_visit("route destroy", THEIRS);
    mimo_dispatch_destroy(bed->dispatch);
    expect_visit("dispatch destroy", THEIRS);
    mimo_bridge_destroy(bed->bridge);
    expect_visit("bridge destroy", THEIRS);
    mimo_gradient_destroy(bed->gradient);
    expect_visit("gradient destroy", THEIRS);
    mimo_comm_destroy(bed->tp);
    expect_visit("destroy of a group", THEIRS);
    bed->bridge = NULL;
    bed->gradient = NULL;
    bed->tp = NULL;
    bed->route = NULL;
    bed->dispatch = NULL;
    fault_bed_end(bed);
    expect_visit("destroy of a grid with groups", THEIRS);
}

MPI_TEST(visits, of_any_call)
{
    static const executor_id executors[] = {EXECUTOR_ROUTED, EXECUTOR_COLLECTIVE};
    for (int i = 0; i < 2; i++) {
        fault_bed bed;
        mimo_comm *comm = mpi_test_comm_new();
        watch(comm);
        now = THEIRS;
        MPI_EXPECT_OK(fault_bed_begin(&bed, comm, executors[i]));
        MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
        expect_visit("creation", THEIRS);
        make_calls(&bed, THEIRS);
        make_calls(&bed, OWN);
        now = THEIRS;
        make_mistakes(&bed);
        make_operations(&bed);
        make_moves_of_experts(&bed);
        release_all(&bed);
        mimo_comm_destroy(comm);
        expect_visit("communicator destroy", THEIRS);
    }
}

MPI_TEST(visits, of_an_abort)
{
    mimo_comm *comm = mpi_test_comm_new();
    watch(comm);
    VISITS("abort", mimo_comm_abort(comm, "the test wants it"), MIMO_OK);
    VISITS("barrier after the abort", mimo_comm_barrier(comm), MIMO_ERR_ABORTED);
    mimo_comm_destroy(comm);
    expect_visit("communicator destroy", THEIRS);
}
