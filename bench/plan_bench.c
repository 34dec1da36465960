/*
 * Times the planning of one rank in pairs of 16,384-rank grids, forward and backward. It prints the
 * median and the slowest of ranks that are sampled over the whole grid, and the size of the largest
 * plan.
 *
 *   plan_bench [--json]
 *
 * Needs no MPI ranks. A rank's time is the best of a few repeats, so that other work on the machine
 * does not count. A plan's bytes are those of its blocks. A peer that a rank both sends to and
 * receives from counts twice. The project's own limit is 5 ms for each rank.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <mimo/plan.h>

#include "bench_support.h"

enum { REPEATS = 5, SAMPLES = 499 }; /* SAMPLES is odd, so samples reach every kind of rank */

typedef struct pair_case {
    const char *src, *dst;
    bool sp;
} pair_case;

static const pair_case cases[] = {
    {"tp=8,dp=2048", "tp=8,cp=8,dp=256", false},  {"tp=8,dp=2048", "tp=8,cp=8,dp=256", true},
    {"tp=1,dp=16384", "tp=8,cp=16,dp=128", true}, {"tp=64,dp=256", "tp=2,cp=4,dp=2048", false},
    {"tp=4,dp=4096", "tp=4,cp=1,dp=4096", false}, {"tp=2,dp=8192", "tp=8,cp=64,dp=32", true},
};

typedef struct settings {
    bool json;
} settings;

typedef struct figures {
    double median, slowest; /* seconds */
    int64_t blocks, peers;  /* of the largest plan */
} figures;

static void count_plan(figures *out, const mimo_plan *plan)
{
    int64_t blocks = 0, peers = 0;
    for (int kind = MIMO_RECV; kind <= MIMO_LOCAL; kind++) {
        int64_t count;
        const mimo_block *list = mimo_plan_blocks(&count, plan, (mimo_block_kind)kind);
        blocks += count;
        for (int64_t i = 0; kind != MIMO_LOCAL && i < count; i++)
            peers += i == 0 || list[i].peer != list[i - 1].peer;
    }
    out->blocks = blocks > out->blocks ? blocks : out->blocks;
    out->peers = peers > out->peers ? peers : out->peers;
}

static double time_rank(figures *out, const mimo_layout *src, const mimo_layout *dst, int64_t rank)
{
    double best = 0;
    for (int i = 0; i < REPEATS; i++) {
        mimo_plan *plan;
        double start = bench_seconds();
        must(mimo_plan_create(&plan, src, dst, rank));
        double time = bench_seconds() - start;
        best = i == 0 || time < best ? time : best;
        count_plan(out, plan);
        mimo_plan_destroy(plan);
    }
    return best;
}

static figures measure(const mimo_layout *src, const mimo_layout *dst, int64_t ranks)
{
    double times[SAMPLES];
    figures result = {0, 0, 0, 0};
    for (int64_t i = 0; i < SAMPLES; i++)
        times[i] = time_rank(&result, src, dst, i * ranks / SAMPLES);
    result.median = bench_median(times, SAMPLES); /* sorts */
    result.slowest = times[SAMPLES - 1];
    return result;
}

static void print_figures(const pair_case *pair, const char *pass, const figures *f, bool json)
{
    int64_t bytes = f->blocks * (int64_t)sizeof(mimo_block);
    printf(json ? "{\"src\":\"%s\",\"dst\":\"%s\",\"sp\":%s,\"pass\":\"%s\",\"median_us\":%.2f,"
                  "\"slowest_us\":%.2f,\"blocks\":%" PRId64 ",\"peers\":%" PRId64
                  ",\"bytes\":%" PRId64 "}\n"
                : "%-14s %-18s %-5s %-8s %11.2f %11.2f %8" PRId64 " %8" PRId64 " %10" PRId64 "\n",
           pair->src, pair->dst, pair->sp ? "true" : "false", pass, 1e6 * f->median,
           1e6 * f->slowest, f->blocks, f->peers, bytes);
}

static void measure_pair(const pair_case *pair, bool json)
{
    mimo_grid *grids[2];
    mimo_layout *layouts[2];
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    must(mimo_grid_create_text(&grids[0], pair->src, 0));
    must(mimo_grid_create_text(&grids[1], pair->dst, 0));
    rule.sp = pair->sp;
    desc.batch = 16384;
    desc.seq = 65536;
    desc.grid = grids[0];
    must(mimo_layout_create(&layouts[0], &desc));
    desc.grid = grids[1];
    desc.partition = &rule;
    must(mimo_layout_create(&layouts[1], &desc));

    int64_t ranks = mimo_grid_size(grids[0]);
    figures forward = measure(layouts[0], layouts[1], ranks);
    figures backward = measure(layouts[1], layouts[0], ranks);
    print_figures(pair, "forward", &forward, json);
    print_figures(pair, "backward", &backward, json);
    for (int i = 0; i < 2; i++) {
        mimo_layout_destroy(layouts[i]);
        mimo_grid_destroy(grids[i]);
    }
}

#define OPTION_INTO settings

static const option_row known[] = {
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
};

int main(int argc, char **argv)
{
    static const option_table table = {.program = "plan_bench",
                                       .about = "Times the planning of one rank of 16,384.",
                                       OPTION_ROWS(known)};
    settings set = {false};
    bench_options(&set, &table, argc, argv);
    if (!set.json)
        printf("%-14s %-18s %-5s %-8s %11s %11s %8s %8s %10s\n", "src", "dst", "sp", "",
               "median us", "slowest us", "blocks", "peers", "bytes");
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        measure_pair(&cases[c], set.json);
    return 0;
}
