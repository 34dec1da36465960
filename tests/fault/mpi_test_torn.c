/*
 * A rank leaves a call amid its messages, with a deadline in force. The other rank gives up, and
 * uses its tensors for something else, or frees them. Then the first rank comes back, and its
 * messages go on. They may read and write nothing there.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bridge/bridge_op_types.h"
#include "comm/buffer_state.h"
#include "executors.h"
#include "gradient/gradient_state.h"
#include "mpi_test.h"
#include "same_bits.h"

enum { LATE = 0, SHORT = 20, POSITIONS = 1024, H = 1024 };

/* Rank VOTED stays away once it has voted: its vote arrives without another call of it. A tile of
 * SMALL_ROWS x SMALL_H is so small that MPI sends it at once. */
enum { VOTED = 1, SMALL_ROWS = 16, SMALL_H = 8 };

static const int64_t TILE = (int64_t)POSITIONS * H * 4; /* of one sample */

/* Values in memory that both ranks share: a rank that is away makes no calls. */
typedef struct signs {
    int64_t agreeing, away, over; /* numbers of cases */
} signs;

typedef struct torn {
    int64_t number; /* of the case */
    mimo_comm *comm;
    mimo_comm *waiting; /* the communicator that the call waits on: comm, or a part of it */
    mimo_bridge *bridge;
    mimo_grid *src, *dst;
    mimo_gradient *gradient;
    mimo_partition *partition;
    char *from, *to; /* from[TILE * 2], to[TILE * 2], the caller's */
    mimo_progress_callback callback;
    int rounds; /* of the callback, before it acts */
    int finalized;
    signs *signs;
} torn;

/* The object of a call, apart from the communicator. */
typedef enum torn_object { NOTHING, BRIDGE, GRADIENT, PARTITION } torn_object;

typedef struct torn_case {
    const char *name;
    mimo_status (*act)(torn *it);
    torn_object object;
    executor_id executor;
} torn_case;

/* ----------------------------------------- calls ------------------------------------------ */

static mimo_tensor tile(char *data, int64_t samples)
{
    return mimo_tensor_3d(data, MIMO_F32, "sbh", POSITIONS, samples, H);
}

static mimo_status forward(torn *it)
{
    mimo_tensor to = tile(it->to, 2), from = tile(it->from, 1);
    return mimo_bridge_forward(it->bridge, &to, &from, 1, NULL);
}

static mimo_status forward_in_chunks(torn *it)
{
    mimo_op *op = NULL;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    mimo_tensor to = tile(it->to, 2), from = tile(it->from, 1);
    move.to = &to;
    move.from = &from;
    move.n = 1;
    move.chunks = 2;
    mimo_status status = mimo_bridge_forward_start_chunked(&op, it->bridge, &move);
    return status == MIMO_OK ? mimo_op_wait(&op) : status;
}

static mimo_status backward(torn *it)
{
    mimo_tensor to = tile(it->to, 1), from = tile(it->from, 2);
    return mimo_bridge_backward(it->bridge, &to, &from, 1, NULL);
}

static mimo_status gather(torn *it)
{
    return mimo_comm_allgather(it->comm, it->to, it->from, TILE, NULL);
}

static mimo_status sum(torn *it)
{
    return mimo_comm_allreduce(it->comm, it->to, TILE / 4, MIMO_F32, MIMO_SUM, NULL);
}

static mimo_status sum_of_16_bits(torn *it)
{
    return mimo_comm_allreduce(it->comm, it->to, TILE / 2, MIMO_BF16, MIMO_SUM, NULL);
}

static mimo_status broadcast(torn *it)
{
    return mimo_comm_broadcast(it->comm, it->to, TILE, LATE, NULL);
}

static mimo_status broadcast_to_late(torn *it)
{
    return mimo_comm_broadcast(it->comm, it->to, TILE, 1 - LATE, NULL);
}

static mimo_status reduce_scatter(torn *it)
{
    return mimo_comm_reduce_scatter(it->comm, it->to, it->from, TILE / 4, MIMO_F32, MIMO_SUM, NULL);
}

static mimo_status reduce_scatter_in_place(torn *it)
{
    return mimo_comm_reduce_scatter(it->comm, it->from + it->comm->rank * TILE, it->from, TILE / 2,
                                    MIMO_BF16, MIMO_SUM, NULL);
}

static mimo_status alltoall(torn *it)
{
    return mimo_comm_alltoall(it->comm, it->to, it->from, TILE, NULL);
}

static mimo_status adjoint(torn *it)
{
    mimo_tensor to = tile(it->to, 2);
    mimo_tensor from = mimo_tensor_3d(it->from, MIMO_F32, "sbh", POSITIONS / 2, 2, H);
    return mimo_partition_adjoint(it->partition, MIMO_EMBEDDINGS, &to, &from, it->comm, NULL);
}

/* Another bucket each time, as a count does not come in between. */
static mimo_status finalize(torn *it)
{
    char name[32];
    snprintf(name, sizeof name, "weights %d", it->finalized++);
    const mimo_gradient_bucket bucket = {
        sizeof(mimo_gradient_bucket), name, it->to, TILE / 4, MIMO_F32, MIMO_SRC, "", "", NULL};
    return mimo_gradient_finalize(it->gradient, &bucket, 1, NULL);
}

static const torn_case cases[] = {
    {"forward, p2p", forward, BRIDGE, EXECUTOR_P2P},
    {"forward, routed", forward, BRIDGE, EXECUTOR_ROUTED},
    {"forward, collective", forward, BRIDGE, EXECUTOR_COLLECTIVE},
    {"in chunks, p2p", forward_in_chunks, BRIDGE, EXECUTOR_P2P},
    {"backward, p2p", backward, BRIDGE, EXECUTOR_P2P},
    {"backward, collective", backward, BRIDGE, EXECUTOR_COLLECTIVE},
    {"allgather", gather, NOTHING, EXECUTOR_AUTO},
    {"allreduce", sum, NOTHING, EXECUTOR_AUTO},
    {"allreduce of bf16", sum_of_16_bits, NOTHING, EXECUTOR_AUTO},
    {"broadcast", broadcast, NOTHING, EXECUTOR_AUTO},
    {"broadcast to late", broadcast_to_late, NOTHING, EXECUTOR_AUTO},
    {"reduce_scatter", reduce_scatter, NOTHING, EXECUTOR_AUTO},
    {"reduce_scatter in place", reduce_scatter_in_place, NOTHING, EXECUTOR_AUTO},
    {"alltoall", alltoall, NOTHING, EXECUTOR_AUTO},
    {"adjoint", adjoint, PARTITION, EXECUTOR_AUTO},
    {"finalize", finalize, GRADIENT, EXECUTOR_AUTO},
};

/* ---------------------------------------- leaving ----------------------------------------- */

static int64_t seen(const int64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(int64_t *word, int64_t number)
{
    __atomic_store_n(word, number, __ATOMIC_RELEASE);
}

/* Calls on other objects do not agree here, so their first wait is amid the messages. */
static bool is_in_the_midst(const torn *it)
{
    const mimo_op *op = it->bridge ? it->bridge->mover.queue : NULL;
    return !it->bridge || (op && op->progress.state == MIMO_OP_MOVING && op->progress.request);
}

/* Leave, until the other rank has given up. */
static void stay_away(const torn *it)
{
    set(&it->signs->away, it->number);
    while (seen(&it->signs->over) < it->number)
        sched_yield();
}

/* The progress callback of the late rank: while it waits in a call it leaves, until the other rank
 * has given up. */
static void leave(void *context)
{
    torn *it = context;
    if (seen(&it->signs->away) == it->number || !is_in_the_midst(it))
        return;
    stay_away(it);
}

/* The progress callback of the other rank. It starts no messages before the late rank has left, as
 * that rank could otherwise complete them. Then it sets a short deadline. (A vote once cast
 * completes on the late rank without this one. On an MPI where it does not, the loop's limit ends
 * the wait.) */
static void end_soon(void *context)
{
    torn *it = context;
    enum { ROUNDS = 1000 };
    if (seen(&it->signs->agreeing) < it->number) {
        set(&it->signs->agreeing, it->number);
        for (int i = 0; i < ROUNDS && seen(&it->signs->away) < it->number; i++)
            usleep(1000);
    }
    if (seen(&it->signs->away) == it->number)
        MPI_EXPECT_OK(mimo_comm_set_deadline(it->comm, SHORT));
}

/* ----------------------------------------- a case ----------------------------------------- */

static void *memory_of(int64_t bytes)
{
    char *at =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "no memory of %lld bytes\n", (long long)bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(at, 1, (size_t)bytes);
    return at;
}

static void create_bridge(torn *it, executor_id executor)
{
    mimo_bridge_desc desc = mpi_test_bridge_desc(it->src, it->dst);
    desc.executor = executor_of(executor);
    MPI_EXPECT_OK(mimo_bridge_create(&it->bridge, it->comm, &desc));
}

/* A first call makes its group. */
static void create_gradient(torn *it)
{
    MPI_EXPECT_OK(mimo_gradient_create(&it->gradient, it->comm, it->src, it->dst));
    MPI_EXPECT_OK(mimo_gradient_add(it->gradient, 1.0, 2));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, it->gradient));
    MPI_EXPECT_OK(finalize(it));
    MPI_EXPECT(it->gradient->group_count == 1, "not one group");
    it->waiting = it->gradient->groups[0].comm;
}

static void create_partition(torn *it)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    const mimo_partition_coords place = {sizeof(mimo_partition_coords), 0, 1, mpi_test_rank(), 2};
    rule.sp = true;
    MPI_EXPECT_OK(mimo_partition_create(&it->partition, &rule, &place));
}

/* In calls that agree first, the late rank comes last. In other calls it comes first. */
static void wait_for_turn(const torn *it, const torn_case *c)
{
    bool agrees = c->object == BRIDGE, late = mpi_test_rank() == LATE;
    while (late && agrees && seen(&it->signs->agreeing) < it->number)
        sched_yield();
    while (!late && !agrees && seen(&it->signs->away) < it->number)
        sched_yield();
}

static void make(torn *it, const torn_case *c)
{
    it->comm = it->waiting = mpi_test_comm_new();
    it->from = memory_of(2 * TILE);
    it->to = memory_of(2 * TILE);
    MPI_EXPECT_OK(mimo_grid_create_text(&it->src, "tp=1,dp=2", 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&it->dst, "tp=1,cp=2,dp=1", 0));
    if (c->object == BRIDGE)
        create_bridge(it, c->executor);
    if (c->object == GRADIENT)
        create_gradient(it);
    if (c->object == PARTITION)
        create_partition(it);
}

static void begin(torn *it, const torn_case *c)
{
    make(it, c);
    MPI_EXPECT_OK(c->act(it)); /* prepared without a deadline, so a guarded call can't use it */
    it->callback = (mimo_progress_callback){.progress = mpi_test_rank() == LATE ? leave : end_soon,
                                            .context = it};
    mimo_callback_add(it->waiting, &it->callback);
    mpi_test_guard(it->comm, true);
    if (c->object != BRIDGE)
        setenv("MIMO_AGREE", "0", 1);
    MPI_Barrier(MPI_COMM_WORLD);
    wait_for_turn(it, c);
}

/* Ends the case. Its communicators are its own, and on them nothing goes wrong. */
static void end(torn *it)
{
    mimo_callback_remove(it->waiting, &it->callback);
    setenv("MIMO_AGREE", "1", 1);
    mimo_bridge_destroy(it->bridge);
    mimo_gradient_destroy(it->gradient);
    mimo_partition_destroy(it->partition);
    mimo_grid_destroy(it->src);
    mimo_grid_destroy(it->dst);
    mimo_comm_destroy(it->comm);
    munmap(it->from, (size_t)(2 * TILE));
    munmap(it->to, (size_t)(2 * TILE));
}

/* What a rank writes when it uses its memory again. The other rank writes another value. */
static char mark(void)
{
    return (char)(0x55 + mpi_test_rank());
}

/* The caller uses its memory for something else, or has none (PROT_NONE). */
static void use(torn *it, bool gone)
{
    memset(it->from, mark(), (size_t)(2 * TILE));
    memset(it->to, mark(), (size_t)(2 * TILE));
    if (gone) {
        mprotect(it->from, (size_t)(2 * TILE), PROT_NONE);
        mprotect(it->to, (size_t)(2 * TILE), PROT_NONE);
    }
}

/* MPI progresses all messages that are still in flight. */
static void progress(void)
{
    enum { ROUNDS = 20 };
    for (int i = 0; i < ROUNDS; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void expect_marks(const char *at, const char *name, const char *tensor)
{
    const char expected = mark();
    bit_report report = {.element = 1};
    for (int64_t i = 0; i < 2 * TILE; i++)
        bits_note(&report, i, &at[i], &expected);
    MPI_EXPECT_BITS(report, "%s: `%s`, which is the caller's", name, tensor);
}

static void tear(const torn_case *c, torn *it, bool gone)
{
    begin(it, c);
    mimo_status status = c->act(it);
    MPI_EXPECT(status == MIMO_ERR_TIMEOUT || status == MIMO_OK, "%s: %s", c->name,
               mimo_status_name(status)); /* OK where everything for this rank had come */
    use(it, gone);
    if (mpi_test_rank() != LATE)
        set(&it->signs->over, it->number);
    MPI_EXPECT(seen(&it->signs->away) == it->number, "%s: nobody left in the midst", c->name);
    progress();
    if (!gone) {
        expect_marks(it->to, c->name, "to");
        expect_marks(it->from, c->name, "from");
    }
    end(it);
}

MPI_TEST(torn, memory_is_the_callers)
{
    mimo_buffer *shared = NULL;
    torn it = {0};
    MPI_EXPECT_OK(mimo_buffer_create(&shared, mpi_test_comm(), sizeof(signs)));
    if (mimo_buffer_reach(shared) < 2)
        mpi_test_skip("two ranks of one host");
    signs *words = (signs *)(void *)shared->data[0];
    if (mpi_test_rank() == 0)
        *words = (signs){0, 0, 0};
    MPI_EXPECT_OK(mimo_comm_barrier(mpi_test_comm()));
    for (int gone = 0; gone < 2; gone++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            it = (torn){.number = it.number + 1, .signs = words};
            tear(&cases[i], &it, gone);
        }
    mimo_buffer_destroy(shared);
}

static int64_t in_use(void)
{
    struct mallinfo2 all = mallinfo2();
    return (int64_t)(all.hblkhd + all.uordblks);
}

/* Calls of many sizes and kinds, several in flight. */
static void move_much(torn *it)
{
    mimo_op *ops[2] = {NULL, NULL};
    MPI_EXPECT_OK(forward(it));
    MPI_EXPECT_OK(gather(it));
    MPI_EXPECT_OK(backward(it));
    MPI_EXPECT_OK(sum(it));
    MPI_EXPECT_OK(reduce_scatter(it));
    MPI_EXPECT_OK(alltoall(it));
    MPI_EXPECT_OK(forward_in_chunks(it));
    for (int i = 0; i < 2; i++) {
        mimo_tensor to = tile(it->to + i * TILE, 1), from = tile(it->from + i * TILE, 1);
        to.shape[0] = from.shape[0] = POSITIONS / 2;
        to.shape[1] = 2;
        MPI_EXPECT_OK(mimo_bridge_forward_start(&ops[i], it->bridge, &to, &from, 1, NULL));
    }
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(mimo_op_wait(&ops[i]));
}

MPI_TEST(torn, memory_does_not_pile_up)
{
    enum { WARM_UP = 3, ROUNDS = 20 };
    static const torn_case c = {"much", forward, BRIDGE, EXECUTOR_P2P};
    torn it = {0};
    int64_t before = 0;
    make(&it, &c);
    mpi_test_guard(it.comm, true);
    for (int i = 0; i < ROUNDS; i++) {
        before = i == WARM_UP ? in_use() : before;
        move_much(&it);
    }
    MPI_EXPECT(in_use() < before + TILE, "%lld bytes, and %lld after %d phases more",
               (long long)before, (long long)in_use(), ROUNDS - WARM_UP);
    end(&it);
}

/* ------------------------------------ own memory -------------------------------------- */

/* Calls that move memory of the library. Without a deadline MPI gets it as it is. */
static mimo_status self_test(torn *it)
{
    return mimo_bridge_self_test(it->bridge, 1);
}

static mimo_status create_fastest(torn *it)
{
    mimo_bridge *made = NULL;
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    mimo_bridge_desc desc = mpi_test_bridge_desc(it->src, it->dst);
    sizes.batch = 2;
    sizes.seq = SMALL_ROWS;
    sizes.hidden = SMALL_H;
    sizes.dtype = MIMO_F32;
    return mimo_bridge_create_fastest(&made, it->comm, &desc, &sizes);
}

static mimo_status small_adjoint(torn *it)
{
    mimo_tensor to = mimo_tensor_3d(it->to, MIMO_F32, "sbh", SMALL_ROWS, 2, SMALL_H);
    mimo_tensor from = mimo_tensor_3d(it->from, MIMO_F32, "sbh", SMALL_ROWS / 2, 2, SMALL_H);
    return mimo_partition_adjoint(it->partition, MIMO_EMBEDDINGS, &to, &from, it->comm, NULL);
}

/* `bytes`: about those of the memory that rows are received in. */
typedef struct own_case {
    torn_case call;
    int64_t bytes;
} own_case;

static const own_case own_cases[] = {
    {{"self-test", self_test, BRIDGE, EXECUTOR_P2P}, 2 * 2 * 2 * 8 * 8},
    {{"fastest", create_fastest, NOTHING, EXECUTOR_AUTO}, SMALL_ROWS *SMALL_H * 4},
    {{"adjoint", small_adjoint, PARTITION, EXECUTOR_AUTO}, 2 * SMALL_ROWS *SMALL_H * 4},
};

/* Other objects than the case's own have a callback on the communicator as well: bridges. */
static mimo_op_state state_of_op(const torn *it)
{
    const mimo_progress_callback *callback = *mimo_callbacks_of(it->comm);
    while (callback && callback->context == it)
        callback = callback->next;
    const mimo_op *op = callback ? ((const mimo_mover *)callback->context)->queue : NULL;
    return op ? op->progress.state : MIMO_OP_ENDED;
}

/* The late rank has voted in the call's agreement, and has sent no rows, when it leaves. It comes
 * back, sends them, and gives up when nobody answers any more. */
static void leave_after_the_vote(void *context)
{
    torn *it = context;
    if (seen(&it->signs->away) == it->number) {
        if (--it->rounds == 0)
            MPI_EXPECT_OK(mimo_comm_abort(it->comm, "nobody answers"));
        return;
    }
    if (!it->partition && state_of_op(it) != MIMO_OP_AGREEING)
        return;
    stay_away(it);
}

/* The other rank waits for these rows, and then no more. */
static void forget_amid_messages(void *context)
{
    torn *it = context;
    if (seen(&it->signs->away) != it->number ||
        (!it->partition && state_of_op(it) != MIMO_OP_MOVING))
        return;
    if (--it->rounds == 0)
        mimo_comm_forget(it->comm);
}

/* These blocks get the memory that the library has freed. What MPI still writes to it would change
 * them. */
static void expect_own_blocks(const own_case *c, torn *it)
{
    enum { BLOCKS = 200 };
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc((size_t)c->bytes);
        memset(blocks[i], mark(), (size_t)c->bytes);
    }
    if (mpi_test_rank() != VOTED)
        set(&it->signs->over, it->number);
    progress();
    for (int i = 0; i < BLOCKS; i++)
        for (int64_t at = 0; at < c->bytes; at++)
            if (blocks[i][at] != mark()) {
                MPI_EXPECT(false, "%s: block %d has changed at byte %lld", c->call.name, i,
                           (long long)at);
                break;
            }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static void leave_own_memory(const own_case *c, torn *it)
{
    enum { SOME = 100, MANY = 20000 };
    bool late = mpi_test_rank() == VOTED;
    make(it, &c->call);
    it->rounds = late ? MANY : SOME;
    it->callback = (mimo_progress_callback){
        .progress = late ? leave_after_the_vote : forget_amid_messages, .context = it};
    mimo_callback_add(it->comm, &it->callback);
    MPI_Barrier(MPI_COMM_WORLD);
    while (!late && it->partition && seen(&it->signs->away) < it->number)
        sched_yield();
    mimo_status status = c->call.act(it);
    MPI_EXPECT(status == MIMO_ERR_ABORTED || (late && status == MIMO_OK), "%s: %s", c->call.name,
               mimo_status_name(status));
    if (late) {
        mimo_callback_remove(it->comm, &it->callback);
        mimo_comm_destroy(it->comm);
    }
    mimo_bridge_destroy(it->bridge);
    mimo_partition_destroy(it->partition);
    mimo_grid_destroy(it->src);
    mimo_grid_destroy(it->dst);
    expect_own_blocks(c, it);
}

MPI_TEST(torn, own_memory_stays)
{
    enum { ROUNDS = 5 };
    mimo_buffer *shared = NULL;
    torn it = {0};
    MPI_EXPECT_OK(mimo_buffer_create(&shared, mpi_test_comm(), sizeof(signs)));
    if (mimo_buffer_reach(shared) < 2)
        mpi_test_skip("two ranks of one host");
    signs *words = (signs *)(void *)shared->data[0];
    if (mpi_test_rank() == 0)
        *words = (signs){0, 0, 0};
    MPI_EXPECT_OK(mimo_comm_barrier(mpi_test_comm()));
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < sizeof own_cases / sizeof own_cases[0]; i++) {
            it = (torn){.number = it.number + 1, .signs = words};
            leave_own_memory(&own_cases[i], &it);
            MPI_EXPECT(seen(&words->away) == it.number, "%s: nobody left", own_cases[i].call.name);
        }
    mimo_buffer_destroy(shared);
}
