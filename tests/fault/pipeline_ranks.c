/*
 * Four stages of a pipeline of which one dies, for test_dead_stages.py:
 *
 *   pipeline_ranks STEP END
 *
 * Stage 2 ends by END ("kill": SIGKILL, "exit") before step STEP of its list, counted from 0. With
 * a STEP past the list nobody dies. The others print the status and the time of the walk, and of
 * the call behind it.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "comm/termination.h"
#include "dead_rank.h"
#include "stand_in_stages.h"

enum { VICTIM = 2, STAGES = 4, MICRO_BATCHES = 6, DEADLINE = 1000 };

static int64_t last_step;
static const char *end_by;

static mimo_status end_in_time(stand_in_stages *own, const pipeline_task *task)
{
    (void)task;
    if (own->stage == VICTIM && own->steps == last_step)
        dead_rank_end(end_by);
    return MIMO_OK;
}

static int live(stand_in_stages *own, mimo_comm *comm)
{
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    sizes.stages = STAGES;
    sizes.micro_batches = MICRO_BATCHES;
    sizes.encoder_group = 1;
    sizes.encoder_alive = STAGES + 1;
    if (stand_in_create(own, comm, &sizes, 0) != MIMO_OK ||
        mimo_comm_set_deadline(comm, DEADLINE) != MIMO_OK)
        return 1;
    own->before = end_in_time;
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = mimo_now();
    dead_rank_say(mimo_comm_rank(comm), "call", pipeline_run(&own->pipeline), begin);
    begin = mimo_now();
    dead_rank_say(mimo_comm_rank(comm), "next", mimo_comm_barrier(comm), begin);
    stand_in_destroy(own);
    mimo_comm_destroy(comm);
    return 0;
}

int main(int argc, char **argv)
{
    static stand_in_stages own;
    mimo_comm *comm;
    if (argc != 3)
        return 2;
    last_step = atoll(argv[1]);
    end_by = argv[2];
    MPI_Init(NULL, NULL);
    if (mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL) != MIMO_OK)
        return 1;
    _exit(live(&own, comm));
}
