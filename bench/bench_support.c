#include "bench_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

void bench_must(mimo_status status, const char *what)
{
    if (status == MIMO_OK)
        return;
    fprintf(stderr, "bench: %s: %s\n", what, mimo_last_error());
    fflush(NULL);
    _exit(1); /* not exit: other ranks may still wait for this one */
}

void *bench_room(int64_t count, size_t bytes)
{
    void *made = calloc(count > 0 ? (size_t)count : 1, bytes);
    if (made)
        return made;
    fprintf(stderr, "bench: out of memory: %lld items of %zu bytes\n", (long long)count, bytes);
    fflush(NULL);
    _exit(1);
}

void bench_options(void *into, const option_table *table, int argc, char **argv)
{
    option_asked asked;
    mimo_status status = option_parse(&asked, into, table, argc, argv);
    if (status == MIMO_OK && asked != OPTION_ASKED_NOTHING)
        status = option_answer(stdout, table, asked);
    if (status == MIMO_OK && asked == OPTION_ASKED_NOTHING)
        return;
    if (status != MIMO_OK)
        fprintf(stderr, "%s: %s\n", table->program, mimo_last_error());
    exit(status == MIMO_OK ? 0 : EX_USAGE);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *stage; /* what this rank does now */

static void give_up(int signal)
{
    static const char text[] = "no end for a minute: ";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    written += write(STDERR_FILENO, stage, strlen(stage));
    written += write(STDERR_FILENO, "\n", 1);
    (void)signal, (void)written;
    _exit(1);
}

void bench_stage(const char *name)
{
    stage = name;
    signal(SIGALRM, give_up);
    alarm(60);
}

double bench_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

static int64_t received(const mimo_layout *from, const mimo_layout *to, int64_t rank)
{
    mimo_plan *plan;
    bench_must(mimo_plan_create(&plan, from, to, rank), "plan");
    int64_t rows = mimo_plan_rows(plan, MIMO_RECV);
    mimo_plan_destroy(plan);
    return rows;
}

int64_t bench_floor(const bench_transfer *t)
{
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *src, *dst;
    int64_t most = 0;
    desc.grid = t->src;
    desc.seq = t->seq;
    desc.batch = t->batch;
    bench_must(mimo_layout_create(&src, &desc), "layout");
    desc.grid = t->dst;
    desc.partition = t->partition;
    bench_must(mimo_layout_create(&dst, &desc), "layout");
    for (int64_t rank = 0; rank < mimo_grid_size(t->dst); rank++) {
        int64_t rows = t->backward ? received(dst, src, rank) : received(src, dst, rank);
        most = rows > most ? rows : most;
    }
    mimo_layout_destroy(src);
    mimo_layout_destroy(dst);
    return most * t->row_bytes;
}

double bench_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

mimo_fan bench_fan(const mimo_bridge *bridge)
{
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    bench_must(mimo_bridge_pairing(&pairing, bridge), "pairing");
    return pairing.fan;
}
