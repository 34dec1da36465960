/* Objects made and destroyed, many times and in unusual orders: nothing grows, and no rank
 * waits. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault_bed.h"
#include "mpi_test.h"
#include "released_comms.h"

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void); /* gcc brings no header for it */
#endif

/* ------------------------------------ many lives -------------------------------------- */

/* What a process holds. */
typedef struct holdings {
    long heap;     /* bytes in use; 0 where the C library does not tell */
    long resident; /* kilobytes */
    int files;
    int comms; /* the lowest number that MPI has left for a communicator */
} holdings;

static long heap_bytes(void)
{
#ifdef __SANITIZE_ADDRESS__
    return (long)__sanitizer_get_current_allocated_bytes();
#elif defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    return (long)(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

/* ASan keeps freed memory for a while, so the number means nothing there. */
static long resident_kilobytes(void)
{
    long kilobytes = 0;
#ifndef __SANITIZE_ADDRESS__
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &kilobytes) == 1)
            break;
    if (status)
        fclose(status);
#endif
    return kilobytes;
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static holdings held(void)
{
    MPI_Comm probe;
    free_released_comms();
    MPI_Comm_dup(MPI_COMM_WORLD, &probe);
    holdings now = {heap_bytes(), resident_kilobytes(), open_files(), (int)MPI_Comm_c2f(probe)};
    MPI_Comm_free(&probe);
    return now;
}

/* A communicator and two bridges on it, one of each executor. Some lives use them once. */
static void one_life(int number)
{
    mimo_comm *comm = NULL;
    mimo_grid *src = NULL, *dst = NULL;
    mimo_bridge *bridges[2] = {NULL, NULL};
    MPI_EXPECT_OK(mimo_grid_create_text(&src, "tp=1,dp=2", 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&dst, "tp=1,cp=2,dp=1", 0));
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL));
    mimo_bridge_desc desc = mpi_test_bridge_desc(src, dst);
    for (int i = 0; i < 2; i++) {
        desc.executor = executor_of(i == 0 ? EXECUTOR_COLLECTIVE : EXECUTOR_ROUTED);
        MPI_EXPECT_OK(mimo_bridge_create(&bridges[i], comm, &desc));
        if (number % 10 == 0)
            MPI_EXPECT_OK(mimo_bridge_self_test(bridges[i], (uint64_t)number));
    }
    mimo_bridge_destroy(bridges[number % 2]);
    mimo_bridge_destroy(bridges[1 - number % 2]);
    mimo_grid_destroy(src);
    mimo_grid_destroy(dst);
    mimo_comm_destroy(comm);
}

static void expect_no_growth(const holdings *before, const holdings *after, long heap_limit)
{
    enum { RESIDENT_LIMIT = 256 };
    MPI_EXPECT(after->heap < before->heap + heap_limit, "from %ld to %ld bytes in use",
               before->heap, after->heap);
    MPI_EXPECT(after->resident < before->resident + RESIDENT_LIMIT, "from %ld to %ld KB",
               before->resident, after->resident);
    MPI_EXPECT(after->files == before->files, "from %d to %d open files", before->files,
               after->files);
    MPI_EXPECT(after->comms == before->comms, "from communicator %d to %d", before->comms,
               after->comms);
}

/* 10,000 lives of a communicator and two bridges. The first ones fill pools of MPI and of malloc.
 * The pools go on to grow, by six bytes a life and less and less, and once or twice by 60 KiB. The
 * smallest leak of malloc's is 32 bytes a life. */
MPI_TEST(lives, ten_thousand_communicators)
{
    enum { WARM = 2000, LIVES = 10000, BYTES_A_LIFE = 26 };
    holdings before = {0, 0, 0, 0};
    for (int i = 0; i < LIVES; i++) {
        if (i == WARM)
            before = held();
        one_life(i);
    }
    holdings after = held();
    expect_no_growth(&before, &after, (long)(LIVES - WARM) * BYTES_A_LIFE);
}

/* ------------------------------------- odd orders ------------------------------------- */

/* Ranks destroy the same objects in different orders. */
static void end_differently(fault_bed *bed)
{
    if (bed->rank % 2 == 0) {
        mimo_gradient_destroy(bed->gradient);
        mimo_bridge_destroy(bed->bridge);
        mimo_grid_destroy(bed->src);
        mimo_comm_destroy(bed->tp);
    } else {
        mimo_comm_destroy(bed->tp);
        mimo_bridge_destroy(bed->bridge);
        mimo_grid_destroy(bed->src);
        mimo_gradient_destroy(bed->gradient);
    }
    bed->gradient = NULL;
    bed->bridge = NULL;
    bed->src = NULL;
    bed->tp = NULL;
    fault_bed_end(bed);
}

MPI_TEST(lives, ends_in_odd_orders)
{
    fault_bed bed;
    mimo_comm *comm = mpi_test_comm_new(), *half = NULL, *quarter = NULL;
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(fault_gradient_step(&bed));
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
    MPI_EXPECT_OK(mimo_comm_split(&quarter, half, mimo_comm_rank(half), 0));
    end_differently(&bed);
    mimo_comm_destroy(comm); /* before the communicators that were split from it */
    MPI_EXPECT_OK(mimo_comm_barrier(half));
    mimo_comm_destroy(half);
    MPI_EXPECT_OK(mimo_comm_barrier(quarter));
    mimo_comm_destroy(quarter);
    mimo_comm_destroy(NULL);
    mimo_bridge_destroy(NULL);
    mimo_gradient_destroy(NULL);
    mimo_grid_destroy(NULL);

    comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_COLLECTIVE));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_OK(mimo_comm_abort(bed.tp, NULL)); /* then no rank waits for another */
    if (mpi_test_rank() == 0)                     /* rank 0 destroys last */
        MPI_Barrier(MPI_COMM_WORLD);
    end_differently(&bed);
    mimo_comm_destroy(comm);
    if (mpi_test_rank() != 0)
        MPI_Barrier(MPI_COMM_WORLD);
}

/* ------------------------------------- any order -------------------------------------- */

/* What is destroyed in turn. OTHERS are the gradient object and the buffer. */
enum { GRIDS, COMM, BRIDGE, OTHERS, OBJECTS };

typedef struct any_order {
    fault_bed bed;
    mimo_comm *comm;
    mimo_buffer *buffer;
    mimo_op *op; /* NULL: none is in flight */
    bool gone[OBJECTS];
} any_order;

static void begin_life(any_order *it, bool in_flight)
{
    mimo_tensor from = fault_full_view(&it->bed), to = fault_shard_view(it->bed.shard);
    memset(it, 0, sizeof *it);
    it->comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&it->bed, it->comm, EXECUTOR_ROUTED));
    MPI_EXPECT_OK(fault_bed_create(&it->bed, FAULT_BRIDGE | FAULT_GRADIENT));
    MPI_EXPECT_OK(mimo_grid_create_group(it->bed.src, "dp"));
    MPI_EXPECT_OK(fault_gradient_step(&it->bed));
    MPI_EXPECT_OK(mimo_buffer_create(&it->buffer, it->comm, 64));
    fault_fill_full(&it->bed);
    if (in_flight)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&it->op, it->bed.bridge, &to, &from, 1, NULL));
}

/* The words of the error when this object is destroyed while another one uses it; NULL where none
 * does. */
static const char *words_of(const any_order *it, int object)
{
    static const char *const of_grid[] = {NULL, "bridges (0) or gradient objects (1) use it",
                                          "bridges (1) or gradient objects (0) use it",
                                          "bridges (1) or gradient objects (1) use it"};
    static const char *const of_comm[] = {NULL, "bridges (0) or buffers (1) that were made from it",
                                          "bridges (1) or buffers (0) that were made from it",
                                          "bridges (1) or buffers (1) that were made from it"};
    int users = 2 * (!it->gone[BRIDGE] || it->op) + !it->gone[OTHERS];
    if (object == GRIDS)
        return of_grid[users];
    if (object == COMM)
        return of_comm[users];
    return object == BRIDGE && it->op ? "bridge destroy: an operation is in flight (1 " : NULL;
}

static void end_one(any_order *it, int object)
{
    const char *words = words_of(it, object);
    mimo_fail(MIMO_OK, "nothing was said");
    if (object == GRIDS) {
        mimo_grid_destroy(it->bed.src);
    } else if (object == COMM) {
        mimo_comm_destroy(it->comm);
    } else if (object == BRIDGE) {
        mimo_bridge_destroy(it->bed.bridge);
    } else {
        mimo_gradient_destroy(it->bed.gradient);
        mimo_buffer_destroy(it->buffer);
    }
    MPI_EXPECT_SENTENCE(words ? words : "nothing was said");
    if (object == GRIDS)
        mimo_grid_destroy(it->bed.dst);
    it->gone[object] = true;
}

/* Writes permutation number `order` of the objects. */
static void write_order(int order, int objects[OBJECTS])
{
    for (int i = 0; i < OBJECTS; i++) {
        int at = order % (i + 1);
        order /= i + 1;
        objects[i] = objects[at];
        objects[at] = i;
    }
}

/* An operation in flight is waited for last, and has still moved its rows. */
static void one_order(int order, bool in_flight)
{
    any_order it;
    int objects[OBJECTS] = {0};
    write_order(order, objects);
    begin_life(&it, in_flight);
    for (int i = 0; i < OBJECTS; i++)
        end_one(&it, objects[i]);
    if (in_flight) {
        MPI_EXPECT_OK(mimo_op_wait(&it.op));
        MPI_EXPECT(fault_wrong_shard(&it.bed, it.bed.shard) == 0, "order %d: a wrong shard", order);
    }
}

/* Pools are filled first. They go on to grow a little, and in some runs a pool of MPI grows once
 * more by 60 KiB. The limit is far above that, and below what one life could lose. */
MPI_TEST(lives, ends_in_any_order)
{
    enum { ORDERS = 24, WARM = 2 * ORDERS, LIVES = 6 * ORDERS, BYTES_A_LIFE = 1024 };
    holdings before = {0, 0, 0, 0};
    for (int i = 0; i < WARM + LIVES; i++) {
        if (i == WARM)
            before = held();
        one_order(i / 2 % ORDERS, i % 2);
    }
    holdings after = held();
    expect_no_growth(&before, &after, LIVES * BYTES_A_LIFE);
}

/* Several operations in flight, waited for in another order than begun, and a view of a grid. */
MPI_TEST(lives, operations_outlive_their_bridge)
{
    enum { FLIGHTS = 3 };
    fault_bed bed;
    mimo_op *ops[FLIGHTS];
    mimo_comm *comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_COLLECTIVE));
    mimo_grid *whole = bed.src;
    const mimo_dim dims[] = {{"tp", 2}, {"dp", 2}};
    MPI_EXPECT_OK(mimo_grid_create_view(&bed.src, whole, "again", dims, 2));
    MPI_EXPECT_OK(fault_create_bridge(&bed));
    mimo_tensor from = fault_full_view(&bed), to = fault_shard_view(bed.shard);
    mimo_tensor second = fault_shard_view(bed.second);
    fault_fill_full(&bed);
    for (int i = 0; i < FLIGHTS; i++)
        MPI_EXPECT_OK(
            mimo_bridge_forward_start(&ops[i], bed.bridge, i == 1 ? &second : &to, &from, 1, NULL));
    mimo_bridge_destroy(bed.bridge);
    MPI_EXPECT_SENTENCE("the last mimo_op_wait releases the bridge");
    MPI_EXPECT_SENTENCE("(3 were not waited for)");
    mimo_grid_destroy(whole);
    MPI_EXPECT_SENTENCE("grid tp=2,dp=2 was destroyed while bridges (1)");
    mimo_grid_destroy(bed.dst);
    mimo_comm_destroy(comm);
    for (int i = 0; i < FLIGHTS; i++) {
        bool done;
        MPI_EXPECT_OK(mimo_op_test(&done, ops[(i + 1) % FLIGHTS]));
        MPI_EXPECT_OK(mimo_op_wait(&ops[(i + 1) % FLIGHTS]));
    }
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    MPI_EXPECT(fault_wrong_shard(&bed, bed.second) == 0, "a wrong second shard");
}
