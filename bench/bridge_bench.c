/*
 * Times the bridge's executors side by side, in interleaved repeats of one run, without a partition
 * and with one. It also times the bare MPI collective that `collective` calls in each pass:
 *
 *   forward   bare: MPI_Allgather of the same bytes over the gather group (fan-in)
 *   backward  bare: MPI_Allreduce of the full-sequence gradient over cp
 *
 *   mpirun -n 8 bridge_bench [--repeats N] [--json] [--kib K]...
 *
 * A time is that of the slowest rank. Figures are medians over the repeats. Ratios to collective
 * are medians of the ratios in each repeat. "zero-copy" has its destinations in a buffer, "p2p" has
 * not. "must move" is what the busiest rank receives under the routed plan: the floor for any
 * executor.
 *
 * "guard" is the time with a deadline in force over the time without one, for collective and for
 * p2p. Under a deadline, rows go through memory of the library at both ends.
 *
 * "auto" is the executor that mimo_bridge_create_fastest chose for the pass, for destinations in a
 * buffer. Beside it stands its time over the best of the three (wanted: at most 1.05). "twice"
 * shows how far one executor is from itself: it compares the bridge that chose with the bridge that
 * is pinned to the same executor, the longer time over the shorter one. Both figures use the least
 * time of the repeats, not the median. The last lines count these ratios. They also count those of
 * a bridge that chooses nothing, by default: zero-copy into buffers, p2p elsewhere.
 *
 * Behind them stands how long small calls take whose tensors lie elsewhere each time, beside calls
 * whose tensors stay (bench_addresses.h; wanted: at most 1.3 times as long).
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

#include "bench_addresses.h"
#include "executors.h"
#include "bench_support.h"

enum { MAX_SIZES = 16, WARM_UP = 3 };

typedef struct settings {
    int64_t repeats;
    bool json;
    int64_t sizes[MAX_SIZES]; /* KiB of the source tile of a rank */
    int count;
} settings;

typedef struct pair_case {
    const char *src, *dst;
} pair_case;

static const pair_case cases[] = {
    {"tp=1,dp=2", "tp=1,cp=2,dp=1"}, {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
    {"tp=1,dp=4", "tp=1,cp=4,dp=1"}, {"tp=2,dp=2", "tp=1,cp=4,dp=1"},
    {"tp=4,dp=1", "tp=1,cp=2,dp=2"}, {"tp=2,dp=4", "tp=2,cp=2,dp=2"},
    {"tp=2,dp=4", "tp=1,cp=4,dp=2"}, {"tp=2,dp=4", "tp=1,cp=2,dp=4"},
    {"tp=4,dp=2", "tp=1,cp=2,dp=4"},
};

/* What is timed: each executor, the bridge that chose one, two executors with a deadline in force,
 * and the bare collective. */
enum {
    COLLECTIVE,
    P2P,
    ZERO_COPY,
    AUTO,
    GUARDED_COLLECTIVE,
    GUARDED_P2P,
    BARE,
    CALLS,
    PINNED = AUTO,
    BRIDGES = GUARDED_COLLECTIVE,
    HOUR = 3600000
};

static const executor_id executors[PINNED] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P,
                                              EXECUTOR_ZERO_COPY};
static const char *const names[PINNED] = {"collective", "p2p", "zero-copy"};

/* The tensors of one side. Sources are always `view`. Destinations are `shared` for ZERO_COPY and
 * AUTO, and `view` for all others. */
typedef struct tile {
    mimo_tensor view, shared;
    mimo_buffer *buffer; /* the memory of `shared` */
    int64_t bytes;
} tile;

/* The bridges and their tiles: rows of 4 KiB, one sample for each dp rank of the side with more of
 * them. */
typedef struct bed {
    mimo_comm *comm;
    mimo_grid *src, *dst;
    bool cut;                   /* a partition is attached */
    mimo_bridge *bridges[BARE]; /* by what is timed; a guarded entry is the same bridge */
    int call;                   /* index of the bridge that is called */
    tile encoder, language;
    MPI_Comm gather, cp;
} bed;

typedef struct figures {
    double seconds[CALLS]; /* 0: not called */
    double least[CALLS];   /* the least of the repeats: a disturbance only adds time */
    double ratio[CALLS];   /* to collective, in the same repeat */
    double guarded[2]; /* collective, p2p: over the time without a deadline, in the same repeat */
    int64_t floor;     /* bytes */
    int chosen;        /* by AUTO: below PINNED */
} figures;

/* One ratio, over all cases. */
typedef struct tally {
    const char *what;
    double most;
    int near, count; /* cases within WANTED; all cases */
} tally;

enum { CHOSEN, INTO_BUFFERS, ELSEWHERE, TWICE, TALLIES };

#define WANTED 1.05

static void *filled(int64_t bytes)
{
    unsigned char *room = malloc((size_t)bytes);
    if (!room) {
        fprintf(stderr, "bridge_bench: no %" PRId64 " bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int64_t i = 0; i < bytes; i++)
        room[i] = (unsigned char)(i * 31 + 7) & 0x3f; /* never NaN: sums stay finite */
    return room;
}

static MPI_Comm group_along(const mimo_grid *grid, const char *dim)
{
    int64_t index, place;
    int rank;
    MPI_Comm group;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bench_must(mimo_grid_group_of(&index, &place, grid, dim, rank), dim);
    MPI_Comm_split(MPI_COMM_WORLD, (int)index, (int)place, &group);
    return group;
}

static void create_bridges(bed *b)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    desc.src = b->src;
    desc.dst = b->dst;
    desc.partition = b->cut ? &rule : NULL;
    desc.batch = b->encoder.view.shape[1] * mimo_grid_dim_size(b->src, "dp");
    for (int i = 0; i < PINNED; i++) {
        desc.executor = executor_of(executors[i]);
        bench_must(mimo_bridge_create(&b->bridges[i], b->comm, &desc), "bridge");
    }
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    const mimo_tensor *encoder = &b->encoder.view;
    sizes.batch = desc.batch;
    sizes.seq = encoder->shape[0];
    sizes.hidden = encoder->shape[2];
    sizes.dtype = encoder->dtype;
    sizes.in_buffer = true;
    desc.executor = executor_of(EXECUTOR_AUTO);
    bench_must(mimo_bridge_create_fastest(&b->bridges[AUTO], b->comm, &desc, &sizes), "bridge");
    b->bridges[GUARDED_COLLECTIVE] = b->bridges[COLLECTIVE];
    b->bridges[GUARDED_P2P] = b->bridges[P2P];
}

/* Memory of `bytes` bytes, twice, and views of its first rows. */
static void tile_create(tile *out, mimo_comm *comm, const mimo_tensor *view, int64_t bytes)
{
    out->bytes = bytes;
    out->view = out->shared = *view;
    out->view.data = filled(bytes);
    bench_must(mimo_buffer_create(&out->buffer, comm, bytes), "buffer");
    out->shared.data = mimo_buffer_data(out->buffer);
}

static void tile_destroy(tile *it)
{
    free(it->view.data);
    mimo_buffer_destroy(it->buffer);
}

static void create_tiles(bed *b, int64_t kib)
{
    enum { HIDDEN = 1024 };
    int64_t src_dp = mimo_grid_dim_size(b->src, "dp"), dst_dp = mimo_grid_dim_size(b->dst, "dp");
    int64_t batch = src_dp > dst_dp ? src_dp : dst_dp, bytes = kib << 10;
    int64_t seq = bytes / (batch / src_dp * HIDDEN * 4);
    int64_t rows = b->cut ? seq / mimo_grid_dim_size(b->dst, "cp") : seq;
    int64_t room = seq * (batch / dst_dp) * HIDDEN * 4; /* the bare all-reduce needs all of it */
    mimo_tensor encoder = mimo_tensor_3d(NULL, MIMO_F32, "sbh", seq, batch / src_dp, HIDDEN);
    mimo_tensor language = mimo_tensor_3d(NULL, MIMO_F32, "sbh", rows, batch / dst_dp, HIDDEN);
    tile_create(&b->encoder, b->comm, &encoder, bytes);
    tile_create(&b->language, b->comm, &language, room);
}

static void bed_create(bed *out, const pair_case *pair, int64_t kib, bool cut)
{
    bench_must(mimo_comm_create_mpi(&out->comm, MPI_COMM_WORLD, NULL), "communicator");
    bench_must(mimo_grid_create_text(&out->src, pair->src, 0), pair->src);
    bench_must(mimo_grid_create_text(&out->dst, pair->dst, 0), pair->dst);
    out->cut = cut;
    create_tiles(out, kib);
    create_bridges(out);
    out->gather = group_along(out->src, "dp");
    if (bench_fan(out->bridges[COLLECTIVE]) == MIMO_FAN_IN) {
        int64_t index, slot;
        int rank = mimo_comm_rank(out->comm);
        MPI_Comm_free(&out->gather);
        bench_must(mimo_pairing_slot(&index, &slot, out->src, out->dst, rank), "place");
        MPI_Comm_split(MPI_COMM_WORLD, (int)index, (int)slot, &out->gather);
    }
    out->cp = group_along(out->dst, "cp");
}

static void bed_destroy(bed *b)
{
    MPI_Comm_free(&b->gather);
    MPI_Comm_free(&b->cp);
    for (int i = 0; i < BRIDGES; i++)
        mimo_bridge_destroy(b->bridges[i]);
    tile_destroy(&b->encoder);
    tile_destroy(&b->language);
    mimo_grid_destroy(b->src);
    mimo_grid_destroy(b->dst);
    mimo_comm_destroy(b->comm);
}

static const mimo_tensor *target(const bed *b, const tile *it)
{
    return b->call == ZERO_COPY || b->call == AUTO ? &it->shared : &it->view;
}

static void run_forward(bed *b)
{
    bench_must(mimo_bridge_forward(b->bridges[b->call], target(b, &b->language), &b->encoder.view,
                                   1, NULL),
               "forward");
}

static void run_backward(bed *b)
{
    bench_must(mimo_bridge_backward(b->bridges[b->call], target(b, &b->encoder), &b->language.view,
                                    1, NULL),
               "backward");
}

static void run_allgather(bed *b)
{
    int bytes = (int)b->encoder.bytes;
    MPI_Allgather(b->encoder.view.data, bytes, MPI_BYTE, b->language.view.data, bytes, MPI_BYTE,
                  b->gather);
}

static void run_allreduce(bed *b)
{
    MPI_Allreduce(MPI_IN_PLACE, b->language.view.data, (int)(b->language.bytes / 4), MPI_FLOAT,
                  MPI_SUM, b->cp);
}

static double timed(bed *b, void (*call)(bed *))
{
    bool guarded = b->call == GUARDED_COLLECTIVE || b->call == GUARDED_P2P;
    bench_must(mimo_comm_set_deadline(b->comm, guarded ? HOUR : 0), "deadline");
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    call(b);
    double took = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int64_t floor_bytes(const bed *b, bool backward)
{
    static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    const bench_transfer transfer = {
        .src = b->src,
        .dst = b->dst,
        /* Backward: of the contributions to a row, only one is not zero. */
        .partition = b->cut || backward ? &zigzag : NULL,
        .batch = b->encoder.view.shape[1] * mimo_grid_dim_size(b->src, "dp"),
        .seq = b->encoder.view.shape[0],
        .row_bytes = b->encoder.view.shape[2] * 4,
        .backward = backward,
    };
    return bench_floor(&transfer);
}

static double median_ratio(const double *a, const double *b, int64_t count)
{
    double *ratios = calloc((size_t)count, sizeof *ratios);
    for (int64_t i = 0; i < count; i++)
        ratios[i] = a[i] / b[i];
    double ratio = bench_median(ratios, count);
    free(ratios);
    return ratio;
}

/* The index of the executor that AUTO uses. Any other than those two is routed into the buffer. */
static int chosen_way(const bed *b, bool backward)
{
    switch (executor_id_of(mimo_bridge_executor(b->bridges[AUTO], backward))) {
    case EXECUTOR_COLLECTIVE:
        return COLLECTIVE;
    case EXECUTOR_P2P:
        return P2P;
    default:
        return ZERO_COPY;
    }
}

static figures measure(bed *b, bool backward, int64_t repeats)
{
    figures f = {.floor = floor_bytes(b, backward), .chosen = chosen_way(b, backward)};
    double *t[CALLS];
    bool fan_in = bench_fan(b->bridges[COLLECTIVE]) == MIMO_FAN_IN;
    for (int i = 0; i < CALLS; i++)
        t[i] = calloc((size_t)repeats, sizeof *t[i]);
    for (int64_t i = -WARM_UP; i < repeats; i++) {
        int64_t at = i < 0 ? 0 : i;
        for (int turn = 0; turn < BARE; turn++) {
            /* The order changes: what runs before leaves warm or cold caches. */
            b->call = (int)((at + (at % 2 > 0 ? BARE - turn : turn)) % BARE);
            t[b->call][at] = timed(b, backward ? run_backward : run_forward);
        }
        if (backward) {
            memset(b->language.view.data, 0, (size_t)b->language.bytes);
            t[BARE][at] = timed(b, run_allreduce);
        } else if (fan_in) {
            t[BARE][at] = timed(b, run_allgather);
        }
    }
    for (int i = 0; i < BARE; i++)
        f.ratio[i] = median_ratio(t[i], t[COLLECTIVE], repeats);
    f.guarded[0] = median_ratio(t[GUARDED_COLLECTIVE], t[COLLECTIVE], repeats);
    f.guarded[1] = median_ratio(t[GUARDED_P2P], t[P2P], repeats);
    for (int i = 0; i < CALLS; i++) {
        f.seconds[i] = bench_median(t[i], repeats);
        f.least[i] = t[i][0]; /* bench_median sorts */
        free(t[i]);
    }
    return f;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* The time of the chosen executor over the best of the three. */
static double over_best(const double *seconds, int chosen)
{
    return seconds[chosen] /
           smaller(seconds[COLLECTIVE], smaller(seconds[P2P], seconds[ZERO_COPY]));
}

/* The two times of the chosen executor, through AUTO and pinned: the longer over the shorter. */
static double twice(const figures *f)
{
    double ratio = f->least[AUTO] / f->least[f->chosen];
    return ratio < 1 ? 1 / ratio : ratio;
}

static void count(tally *it, double ratio)
{
    it->most = ratio > it->most ? ratio : it->most;
    it->near += ratio <= WANTED;
    it->count++;
}

static void count_all(tally *tallies, const figures *f)
{
    count(&tallies[CHOSEN], over_best(f->least, f->chosen));
    count(&tallies[INTO_BUFFERS], over_best(f->least, ZERO_COPY));
    count(&tallies[ELSEWHERE], f->least[P2P] / smaller(f->least[COLLECTIVE], f->least[P2P]));
    count(&tallies[TWICE], twice(f));
}

static void print_tallies(const tally *tallies)
{
    for (int i = 0; i < TALLIES; i++)
        printf("%s: within %.2f in %d of %d, at most %.2f\n", tallies[i].what, WANTED,
               tallies[i].near, tallies[i].count, tallies[i].most);
}

static void print_row(const bed *b, const pair_case *pair, const char *pass, const figures *f,
                      bool json)
{
    const double *seconds = f->seconds;
    double kib = (double)b->encoder.bytes / 1024;
    if (!json) {
        printf("%-10s %-16s %-5s %6.0f %-9s %9.3f %10.3f %6.2f %10.3f %6.2f %6.2f %10.3f %6.2f "
               "%10.3f %-10s %6.2f %6.2f\n",
               pair->src, pair->dst, b->cut ? "shard" : "full", kib, pass,
               (double)f->floor / 1048576, seconds[COLLECTIVE] * 1e3, f->guarded[0],
               seconds[P2P] * 1e3, f->ratio[P2P], f->guarded[1], seconds[ZERO_COPY] * 1e3,
               f->ratio[ZERO_COPY], seconds[BARE] * 1e3, names[f->chosen],
               over_best(f->least, f->chosen), twice(f));
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "src", pair->src);
    cJSON_AddStringToObject(row, "dst", pair->dst);
    cJSON_AddBoolToObject(row, "partition", b->cut);
    cJSON_AddNumberToObject(row, "kib_per_rank", kib);
    cJSON_AddStringToObject(row, "pass", pass);
    cJSON_AddNumberToObject(row, "must_move_bytes", (double)f->floor);
    cJSON_AddNumberToObject(row, "collective_seconds", seconds[COLLECTIVE]);
    cJSON_AddNumberToObject(row, "p2p_seconds", seconds[P2P]);
    cJSON_AddNumberToObject(row, "p2p_ratio", f->ratio[P2P]);
    cJSON_AddNumberToObject(row, "collective_guarded_ratio", f->guarded[0]);
    cJSON_AddNumberToObject(row, "p2p_guarded_ratio", f->guarded[1]);
    cJSON_AddNumberToObject(row, "zero_copy_seconds", seconds[ZERO_COPY]);
    cJSON_AddNumberToObject(row, "zero_copy_ratio", f->ratio[ZERO_COPY]);
    cJSON_AddNumberToObject(row, "bare_seconds", seconds[BARE]);
    cJSON_AddStringToObject(row, "auto", names[f->chosen]);
    cJSON_AddNumberToObject(row, "auto_seconds", seconds[AUTO]);
    cJSON_AddNumberToObject(row, "auto_over_best", over_best(f->least, f->chosen));
    cJSON_AddNumberToObject(row, "auto_twice", twice(f));
    char *text = cJSON_PrintUnformatted(row);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(row);
}

static void run_case(tally *tallies, const pair_case *pair, int64_t kib, bool cut,
                     const settings *s)
{
    bed b;
    bed_create(&b, pair, kib, cut);
    for (int backward = 0; backward < 2; backward++) {
        figures f = measure(&b, backward, s->repeats);
        if (mimo_comm_rank(b.comm) == 0) {
            print_row(&b, pair, backward ? "backward" : "forward", &f, s->json);
            fflush(stdout);
        }
        count_all(tallies, &f);
    }
    bed_destroy(&b);
}

static void *host_room(int64_t bytes)
{
    return filled(bytes);
}

static void report_addresses(bool json)
{
    bench_memory memory = {NULL, NULL, host_room, free};
    bench_must(mimo_comm_create_mpi(&memory.comm, MPI_COMM_WORLD, NULL), "communicator");
    bench_fresh_addresses(&memory, json);
    mimo_comm_destroy(memory.comm);
}

static mimo_status read_size(void *into, const option_row *row, const char *text)
{
    settings *s = into;
    int64_t size;
    (void)row;
    if (s->count == MAX_SIZES)
        return mimo_fail(MIMO_ERR_ARGUMENT, "--kib can be given %d times at most", MAX_SIZES);
    mimo_status status = option_read_int(&size, "--kib", text, 64, 1 << 20);
    if (status == MIMO_OK)
        s->sizes[s->count++] = size;
    return status;
}

#define OPTION_INTO settings

static const option_row known[] = {
    OPTION_INT("repeats", "N", repeats, 1, INT32_MAX, "Timed repeats of each call (default 11)",
               .letter = 'r'),
    OPTION_OWN("kib", "K", read_size,
               "KiB of source tile per rank; may be repeated (default 64, 256, 1024, 8192, 32768)",
               .letter = 'k'),
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
};

int main(int argc, char **argv)
{
    static const option_table table = {.program = "bridge_bench",
                                       .about = "Times the bridge beside bare MPI collectives.",
                                       OPTION_ROWS(known)};
    enum { DEFAULTS = 5 };
    static const int default_sizes[DEFAULTS] = {64, 256, 1024, 8192, 32768};
    settings s = {.repeats = 11};
    tally tallies[TALLIES] = {[CHOSEN] = {.what = "chosen by measurement / best"},
                              [INTO_BUFFERS] = {.what = "default, into buffers / best"},
                              [ELSEWHERE] = {.what = "default, elsewhere / best"},
                              [TWICE] = {.what = "one executor / itself"}};
    int rank, size;
    bench_options(&s, &table, argc, argv);
    for (int i = 0; s.count == 0 && i < DEFAULTS; i++)
        s.sizes[i] = default_sizes[i];
    s.count = s.count > 0 ? s.count : DEFAULTS;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0 && !s.json)
        printf("%-10s %-16s %-5s %6s %-9s %9s %10s %6s %10s %6s %6s %10s %6s %10s %-10s %6s %6s\n",
               "src", "dst", "tile", "KiB", "", "must MiB", "collect ms", "guard", "p2p ms",
               "ratio", "guard", "0-copy ms", "ratio", "bare ms", "auto", "/best", "twice");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mimo_grid *grid;
        bench_must(mimo_grid_create_text(&grid, cases[i].src, 0), cases[i].src);
        bool fits = mimo_grid_size(grid) == size;
        mimo_grid_destroy(grid);
        for (int m = 0; fits && m < 2 * s.count; m++)
            run_case(tallies, &cases[i], s.sizes[m / 2], m % 2, &s);
    }
    if (rank == 0 && !s.json)
        print_tallies(tallies);
    report_addresses(s.json);
    MPI_Finalize();
    return 0;
}
