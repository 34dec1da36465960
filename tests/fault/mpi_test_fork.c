/* A child that was forked off: each of its calls fails, and none touches the parent's messages. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_bed.h"
#include "mpi_callers.h"
#include "mpi_test.h"

/* Deprecated functions work as before. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int wrong; /* in the child */

static void expect_refused(mimo_status status, const char *what)
{
    const char *words = "this process was forked from the one that made the communicator";
    if (status == MIMO_ERR_STATE && strstr(mimo_last_error(), words))
        return;
    fprintf(stderr, "in the child %s: %s (%s)\n", what, mimo_status_name(status),
            mimo_last_error());
    wrong++;
}

static void expect_success_in_child(mimo_status status, const char *what)
{
    if (status == MIMO_OK)
        return;
    fprintf(stderr, "in the child %s: %s (%s)\n", what, mimo_status_name(status),
            mimo_last_error());
    wrong++;
}

static void call_everything(fault_bed *bed, mimo_op **op)
{
    bool done;
    for (const fault_call *call = fault_calls; call->name; call++)
        expect_refused(call->act(bed), call->name);
    expect_refused(mimo_comm_synchronize(bed->comm, NULL), "synchronize");
    expect_refused(mimo_comm_state(bed->comm), "state");
    expect_refused(mimo_comm_set_deadline(bed->comm, 1), "deadline");
    expect_refused(mimo_comm_abort(bed->comm, "by the child"), "abort");
    expect_refused(mimo_bridge_select(bed->bridge, 0), "select");
    expect_refused(mimo_bridge_refuse(bed->bridge, false, false, MIMO_ERR_SHAPE), "refuse");
    expect_refused(mimo_bridge_refuse_update(bed->bridge, MIMO_ERR_SHAPE), "refuse update");
    expect_refused(mimo_dispatch_refuse(bed->dispatch, true, MIMO_ERR_SHAPE), "refuse a combine");
    expect_refused(mimo_dispatch_refuse_route(bed->dispatch, MIMO_ERR_SHAPE), "refuse a route");
    expect_refused(mimo_op_test(&done, *op), "op test");
    expect_refused(mimo_op_wait(op), "op wait");
}

/* ------------------------------------- questions ---------------------------------- */

enum { ANSWERS = 16, MOST_TEXT = 1024 };

/* What memory answers, as the parent and as the child hear it. */
typedef struct answers {
    int64_t numbers[ANSWERS];
    mimo_status statuses[ANSWERS];
    int count;
    mimo_tensor tile;
    mimo_pairing pairing;
    char text[MOST_TEXT];
} answers;

static void note(answers *it, mimo_status status, int64_t number)
{
    it->statuses[it->count] = status;
    it->numbers[it->count++] = number;
}

static void ask_bridge(answers *it, const mimo_bridge *bridge)
{
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    int64_t first = -1, count = -1, slot = -1, bytes = -1, ranks[FAULT_RANKS] = {0};
    sizes.batch = FAULT_BATCH;
    sizes.seq = FAULT_SEQ;
    sizes.hidden = FAULT_H;
    sizes.dtype = MIMO_F32;
    sizes.src_letters = sizes.dst_letters = "sbh";
    note(it, mimo_bridge_tile(&it->tile, bridge, MIMO_DST, &sizes), it->tile.shape[0]);
    note(it, mimo_bridge_staging(&bytes, bridge, &sizes), bytes);
    note(it, mimo_bridge_samples(&first, &count, bridge, MIMO_SRC, FAULT_BATCH), first);
    note(it, mimo_bridge_pairing(&it->pairing, bridge), it->pairing.scale);
    note(it, mimo_bridge_slot_samples(&first, &count, bridge, FAULT_BATCH), first + 10 * count);
    note(it, mimo_bridge_gather_group(ranks, &slot, bridge), slot + 10 * ranks[0]);
    note(it, MIMO_OK, mimo_bridge_executor(bridge, false).algorithm);
}

static answers ask(fault_bed *bed, const mimo_buffer *buffer)
{
    answers it = {.count = 0, .pairing = MIMO_PAIRING_INIT};
    const mimo_buffer *found = NULL;
    mimo_comm *group = NULL;
    int64_t at = -1, length = -1;
    ask_bridge(&it, bed->bridge);
    char *inside = (char *)mimo_buffer_data(buffer) + 8;
    note(&it, mimo_buffer_find(&found, &at, bed->comm, inside, 8), at + 100 * (found == buffer));
    note(&it, MIMO_OK, mimo_buffer_size(buffer) + mimo_buffer_reach(buffer));
    note(&it, mimo_gradient_text(&length, it.text, sizeof it.text, bed->gradient, NULL, 0), length);
    note(&it, mimo_grid_group(&group, bed->src, "tp"), group != NULL);
    note(&it, MIMO_OK, mimo_comm_size(bed->comm) + 10 * mimo_comm_rank(bed->comm));
    note(&it, MIMO_OK, mimo_comm_deadline(bed->comm));
    return it;
}

static void compare_answers(const answers *here, const answers *parents)
{
    if (here->count != parents->count || strcmp(here->text, parents->text) != 0) {
        fprintf(stderr, "in the child %d answers, not %d; %s, not %s\n", here->count,
                parents->count, here->text, parents->text);
        wrong++;
    }
    for (int i = 0; i < here->count; i++)
        if (here->statuses[i] != MIMO_OK || here->numbers[i] != parents->numbers[i]) {
            fprintf(stderr, "in the child answer %d: %s, %d, not %d (%s)\n", i,
                    mimo_status_name(here->statuses[i]), (int)here->numbers[i],
                    (int)parents->numbers[i], mimo_last_error());
            wrong++;
        }
}

/* -------------------------------------- the child --------------------------------- */

/* What is local works: grids, and the release of everything. */
static void release_everything(fault_bed *bed, mimo_buffer *buffer)
{
    mimo_comm *comm = bed->comm;
    int64_t size = mimo_grid_size(bed->src);
    wrong += size != FAULT_RANKS || mimo_comm_size(comm) != FAULT_RANKS;
    mimo_comm_forget(bed->tp);
    bed->tp = NULL;
    mimo_buffer_destroy(buffer);
    fault_bed_end(bed);
    mimo_comm_destroy(comm);
}

static void be_a_child(fault_bed *bed, mimo_op **op, mimo_buffer *buffer, const answers *parents)
{
    mpi_callers_forbid();
    const answers here = ask(bed, buffer);
    compare_answers(&here, parents);
    expect_success_in_child(mimo_gradient_add(bed->gradient, 1, 1), "gradient add");
    call_everything(bed, op);
    release_everything(bed, buffer);
    if (mpi_callers_wrong() > 0)
        fprintf(stderr, "the child called MPI %d times\n", mpi_callers_wrong());
    _exit(wrong + mpi_callers_wrong() > 0);
}

static void expect_success_of(pid_t child)
{
    int status = -1;
    MPI_EXPECT(child > 0, "no child");
    MPI_EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "the child ended with %#x", status);
}

static void expect_all_answered(const answers *parents)
{
    for (int i = 0; i < parents->count; i++)
        MPI_EXPECT(parents->statuses[i] == MIMO_OK, "answer %d: %s", i,
                   mimo_status_name(parents->statuses[i]));
}

static void use(fault_bed *bed)
{
    MPI_EXPECT_OK(fault_forward(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_backward(bed));
    MPI_EXPECT(fault_wrong_full(bed) == 0, "a wrong gradient");
    MPI_EXPECT_OK(fault_gradient_step(bed));
    MPI_EXPECT_OK(fault_adjoint(bed));
}

/* All ranks fork while an operation is in flight. The parents go on. */
static void fork_in(executor_id executor)
{
    fault_bed bed;
    mimo_op *op = NULL;
    mimo_buffer *buffer = NULL;
    mimo_comm *comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, executor));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 64));
    MPI_EXPECT_OK(mimo_grid_create_group(bed.src, "tp"));
    use(&bed);
    mimo_tensor from = fault_full_view(&bed), to = fault_shard_view(bed.second);
    fault_fill_full(&bed);
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bed.bridge, &to, &from, 1, NULL));
    const answers parents = ask(&bed, buffer);
    expect_all_answered(&parents);
    pid_t child = fork();
    if (child == 0)
        be_a_child(&bed, &op, buffer, &parents);
    expect_success_of(child);
    MPI_EXPECT_OK(mimo_op_wait(&op));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.second) == 0, "a wrong second shard");
    use(&bed);
    mimo_buffer_destroy(buffer);
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
}

MPI_TEST(fork, child_is_refused)
{
    fork_in(EXECUTOR_ROUTED);
    fork_in(EXECUTOR_COLLECTIVE);
}
