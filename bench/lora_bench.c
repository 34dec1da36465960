/*
 * What an adapter saves. Times forward and backward of a transformer block, alone on a rank:
 * trained in full, frozen with adapters on its linear layers, and frozen altogether. Counts the
 * bytes of parameters, gradients and optimizer, and of what a micro-batch saves for its backward.
 *
 *   lora_bench [--device cuda] [--hidden 1024] [--rows 512] [--rank 8] [--repeats 15]
 *
 * The three take turns, so what is compared meets the same moods of the machine. A time is the
 * median of its repeats, a ratio that of medians.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_support.h"
#include "train/device/blas_kernels.h"
#include "train/nn/nn.h"
#include "train/nn/params/nn_initial.h"

enum { FULL, ADAPTED, FROZEN, KINDS, MOST_REPEATS = 1000, HEADS = 8 };
static const char *const kind_names[KINDS] = {"trained in full", "frozen, adapters", "frozen"};

typedef struct settings {
    mimo_memory memory;
    int64_t hidden, rows, rank, repeats;
} settings;

typedef struct subject {
    nn_params *params;
    nn_block block;
    nn_block_saved saved;
    nn_room room;                                         /* of saved */
    double forward[MOST_REPEATS], backward[MOST_REPEATS]; /* ms */
} subject;

typedef struct bench {
    settings s;
    nn_runtime runtime;
    nn_sequence sequence;
    nn_real *x, *y, *d;
    subject subjects[KINDS];
} bench;

#define OPTION_INTO settings

static const option_row known[] = {
    OPTION_CHOICE("device", memory, "cpu|cuda", "Where tensors live (default cpu)", .letter = 'd'),
    OPTION_INT("hidden", "N", hidden, 1, INT32_MAX, "Width of the block (default 1024)",
               .letter = 'h'),
    OPTION_INT("rows", "N", rows, 1, INT32_MAX, "Rows that pass through it (default 512)",
               .letter = 'n'),
    OPTION_INT("rank", "N", rank, 1, INT32_MAX, "Rank of the adapters (default 8)", .letter = 'k'),
    OPTION_INT("repeats", "N", repeats, 1, MOST_REPEATS, "Timed repeats of each kind (default 15)",
               .letter = 'r'),
};

static void make_subject(bench *b, int kind)
{
    subject *made = &b->subjects[kind];
    nn_params_desc store = {.name = kind_names[kind],
                            .module = MIMO_DST,
                            .tp_size = 1,
                            .seed = 1,
                            .frozen = kind != FULL,
                            .runtime = &b->runtime};
    nn_lora_selection adapters = {.adapter = {.rank = b->s.rank, .alpha = 16, .b_std = 0.1}};
    nn_block_desc block = {.name = "block",
                           .hidden = b->s.hidden,
                           .heads = HEADS,
                           .inner = 4 * b->s.hidden,
                           .max_rows = b->s.rows,
                           .max_batch = 1,
                           .std = 0.02,
                           .out_std = 0.02,
                           .adapters = kind == ADAPTED ? &adapters : NULL};
    must(nn_params_create(&made->params, &store));
    must(nn_block_init(&made->block, made->params, NULL, &block));
    must(nn_params_seal(made->params));
    must(nn_block_saved_take(&made->saved, &made->block, &made->room));
    must(nn_room_reserve(&made->room, &b->runtime));
    must(nn_block_saved_take(&made->saved, &made->block, &made->room));
}

static void make(bench *b)
{
    nn_runtime_desc runtime = {.memory = b->s.memory};
    nn_sequence_desc sequence = {.rows = b->s.rows, .batch = 1, .runtime = &b->runtime};
    int64_t elements = b->s.rows * b->s.hidden;
    must(nn_runtime_init(&b->runtime, &runtime));
    must(nn_sequence_init(&b->sequence, &sequence));
    must(nn_runtime_reserve(&b->runtime, &b->x, elements, sizeof *b->x));
    must(nn_runtime_reserve(&b->runtime, &b->y, elements, sizeof *b->y));
    must(nn_runtime_reserve(&b->runtime, &b->d, elements, sizeof *b->d));
    nn_real *values = malloc((size_t)elements * sizeof *values);
    for (int64_t i = 0; i < elements; i++)
        values[i] = (nn_real)nn_normal(1, "x", i);
    must(nn_runtime_write(&b->runtime, b->x, values, elements * (int64_t)sizeof *values));
    free(values);
    for (int kind = 0; kind < KINDS; kind++)
        make_subject(b, kind);
}

/* Milliseconds, when the device has done all that was enqueued. */
static double now(const bench *b)
{
    nn_real last;
    must(nn_runtime_read(&b->runtime, &last, b->d, sizeof last));
    return 1e3 * bench_seconds();
}

static void take_turn(bench *b, subject *of, int64_t repeat)
{
    double start = now(b);
    must(nn_block_forward(&of->block, &of->saved, b->y, b->x, &b->sequence));
    double middle = now(b);
    must(nn_block_backward_input(&of->block, &of->saved, b->d, b->y));
    must(nn_block_backward_params(&of->block, &of->saved));
    double end = now(b);
    if (repeat < 0) /* warming up */
        return;
    of->forward[repeat] = middle - start;
    of->backward[repeat] = end - middle;
}

static void print_kind(bench *b, int kind, const double full[2])
{
    subject *of = &b->subjects[kind];
    int64_t values = 0, trained = 0;
    for (int i = 0; i < nn_params_count(of->params); i++) {
        const nn_param *param = nn_params_at(of->params, i);
        values += param->count;
        trained += param->frozen ? 0 : param->count;
    }
    double forward = bench_median(of->forward, b->s.repeats);
    double backward = bench_median(of->backward, b->s.repeats);
    printf("%-18s %9.3f %6.3f %9.3f %6.3f %12" PRId64 " %12" PRId64 " %12" PRId64 "\n",
           kind_names[kind], forward, forward / full[0], backward, backward / full[1],
           values * (int64_t)sizeof(nn_real), 3 * trained * (int64_t)sizeof(nn_real),
           of->room.bytes);
}

int main(int argc, char **argv)
{
    static const option_table table = {
        .program = "lora_bench",
        .about = "Times a block trained in full, with adapters, and frozen.",
        OPTION_ROWS(known)};
    static bench b = {.s = {MIMO_MEMORY_HOST, 1024, 512, 8, 15}};
    blas_kernels_choose(argv);
    bench_options(&b.s, &table, argc, argv);
    make(&b);
    for (int64_t repeat = -2; repeat < b.s.repeats; repeat++)
        for (int kind = 0; kind < KINDS; kind++)
            take_turn(&b, &b.subjects[kind], repeat);
    printf("a block, hidden %" PRId64 ", %" PRId64 " rows, rank %" PRId64 ", on the %s; medians of "
           "%" PRId64 "\n%-18s %9s %6s %9s %6s %12s %12s %12s\n",
           b.s.hidden, b.s.rows, b.s.rank, b.s.memory == MIMO_MEMORY_CUDA ? "GPU" : "host",
           b.s.repeats, "", "forward", "ratio", "backward", "ratio", "values", "gradients",
           "saved for");
    printf("%-18s %9s %6s %9s %6s %12s %12s %12s\n", "", "ms", "", "ms", "", "bytes", "and moments",
           "backward");
    double full[2] = {bench_median(b.subjects[FULL].forward, b.s.repeats),
                      bench_median(b.subjects[FULL].backward, b.s.repeats)};
    for (int kind = 0; kind < KINDS; kind++)
        print_kind(&b, kind, full);
    return 0;
}
