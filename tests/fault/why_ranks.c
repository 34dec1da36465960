/*
 * Four ranks that come to stand in one way after the other, for test_why.py:
 *
 *   why_ranks FOLDER SITUATION...
 *
 * Each rank writes "ready SITUATION RANK PID" when it is about to do its part. The situation ends
 * when FOLDER has a file of its name: ranks that wait are interrupted, the others stop sleeping.
 * "early" comes before MPI_Init, "gone" kills rank 2, so that it is the last.
 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

enum { RANKS = 4, BATCH = 4, SEQ = 2, HIDDEN = 8 };

typedef struct stage {
    const char *folder, *name;
    int rank;
    mimo_comm *comm, *second; /* a family each; in "threads" the second was split from the first */
} stage;

static int is_over(void *context)
{
    const stage *it = context;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", it->folder, it->name);
    return access(path, F_OK) == 0;
}

static void sleep_outside(stage *it)
{
    const struct timespec moment = {0, 2000000};
    while (!is_over(it))
        (void)nanosleep(&moment, NULL);
}

static void say_ready(const stage *it)
{
    char line[256];
    int length = snprintf(line, sizeof line, "ready %s %d %d\n", it->name, it->rank, getpid());
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

static void make_family(mimo_comm **out, stage *it)
{
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    desc.interrupted = is_over;
    desc.context = it;
    if (mimo_comm_create_mpi(out, MPI_COMM_WORLD, &desc) != MIMO_OK) {
        fprintf(stderr, "rank %d: %s\n", it->rank, mimo_last_error());
        _exit(1);
    }
}

/* The call is interrupted in the end. */
static void wait_in(mimo_comm *comm)
{
    (void)mimo_comm_barrier(comm);
}

/* ------------------------------------- situations ----------------------------------- */

static void nobody(stage *it)
{
    wait_in(it->comm);
    say_ready(it);
    sleep_outside(it);
}

static void late(stage *it)
{
    wait_in(it->comm);
    say_ready(it);
    if (it->rank == 2)
        sleep_outside(it);
    else
        wait_in(it->comm);
}

static void one_waits(stage *it)
{
    wait_in(it->comm);
    say_ready(it);
    if (it->rank == 0)
        wait_in(it->comm);
    else
        sleep_outside(it);
}

static void other_order(stage *it)
{
    mimo_comm *other = NULL;
    (void)mimo_comm_split(&other, it->comm, 0, it->rank);
    say_ready(it);
    wait_in(it->rank < 2 ? it->comm : other);
    mimo_comm_destroy(other);
}

static void families(stage *it)
{
    say_ready(it);
    wait_in(it->rank % 2 ? it->comm : it->second);
}

/* Rank 1 begins a forward that gathers the samples of all, and goes on to something else. Rank
 * `late` has not begun it. The others wait in it. */
static void forward_without(stage *it, int late)
{
    mimo_grid *src_grid = NULL, *dst_grid = NULL;
    mimo_bridge *bridge = NULL;
    mimo_op *op = NULL;
    float from[SEQ * HIDDEN] = {0}, to[SEQ * BATCH * HIDDEN];
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_status status = mimo_grid_create_text(&src_grid, "tp=1,dp=4", 0);
    if (status == MIMO_OK)
        status = mimo_grid_create_text(&dst_grid, "tp=4,dp=1", 0);
    desc.src = src_grid;
    desc.dst = dst_grid;
    desc.name = "image";
    if (status == MIMO_OK)
        status = mimo_bridge_create(&bridge, it->comm, &desc);
    const mimo_tensor src = mimo_tensor_3d(from, MIMO_F32, "sbh", SEQ, 1, HIDDEN);
    const mimo_tensor dst = mimo_tensor_3d(to, MIMO_F32, "sbh", SEQ, BATCH, HIDDEN);
    say_ready(it);
    if (status == MIMO_OK && it->rank != late)
        status = mimo_bridge_forward_start(&op, bridge, &dst, &src, 1, NULL);
    if (status != MIMO_OK)
        fprintf(stderr, "rank %d: %s\n", it->rank, mimo_last_error());
    if (it->rank == 1 || it->rank == late)
        sleep_outside(it);
    (void)mimo_op_wait(&op);
    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(src_grid);
    mimo_grid_destroy(dst_grid);
}

static void in_data(stage *it)
{
    forward_without(it, 3);
}

static void left(stage *it)
{
    forward_without(it, -1);
}

static void *wait_in_second(void *context)
{
    stage *it = context;
    wait_in(it->second);
    if (it->rank == 2)
        sleep_outside(it);
    else
        wait_in(it->second);
    return NULL;
}

/* In the first threads rank 3 is late, in the second ones rank 2. */
static void threads(stage *it)
{
    pthread_t second;
    wait_in(it->comm);
    say_ready(it);
    if (pthread_create(&second, NULL, wait_in_second, it) != 0)
        _exit(1);
    if (it->rank == 3)
        sleep_outside(it);
    else
        wait_in(it->comm);
    (void)pthread_join(second, NULL);
}

static void gone(stage *it)
{
    wait_in(it->comm);
    say_ready(it);
    if (it->rank == 2)
        raise(SIGKILL);
    wait_in(it->comm);
    fflush(NULL);
    _exit(0); /* MPI_Finalize would wait for the dead rank */
}

typedef struct situation {
    const char *name;
    void (*play)(stage *it);
} situation;

static const situation situations[] = {
    {"nobody", nobody},     {"late", late},         {"stopped", late}, {"one", one_waits},
    {"order", other_order}, {"families", families}, {"data", in_data}, {"left", left},
    {"threads", threads},   {"gone", gone},
};

static void play(stage *it)
{
    make_family(&it->comm, it);
    if (strcmp(it->name, "threads") == 0)
        (void)mimo_comm_split(&it->second, it->comm, 0, it->rank);
    if (strcmp(it->name, "families") == 0)
        make_family(&it->second, it);
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++)
        if (strcmp(situations[i].name, it->name) == 0)
            situations[i].play(it);
    mimo_comm_destroy(it->second);
    mimo_comm_destroy(it->comm);
}

int main(int argc, char **argv)
{
    int level;
    stage it = {.folder = argc > 1 ? argv[1] : ".", .name = "early"};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (argc > 2 && strcmp(argv[2], "early") == 0) {
        it.rank = rank ? atoi(rank) : 0;
        say_ready(&it);
        sleep_outside(&it);
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &it.rank);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "early") == 0)
            continue;
        stage next = {.folder = it.folder, .name = argv[i], .rank = it.rank};
        play(&next);
    }
    MPI_Finalize();
    return 0;
}
