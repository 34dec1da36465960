/*
 * Times the bridge beside the bare MPI collectives that its `collective` executor asks for, in
 * interleaved repeats of one run:
 *
 *   forward   against MPI_Allgather of the same bytes over the gather group (fan-in)
 *   backward  against MPI_Allreduce of the full-sequence gradient over cp
 *
 *   mpirun -n 4 bridge_bench [--repeats N] [--json] [--mib M]...
 *
 * A time is the slowest rank's; figures are medians over the repeats. "must move" is what the
 * routed plan says the busiest rank has to receive: the floor for any executor.
 */
#include <argp.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

enum { MAX_SIZES = 16, WARM_UP = 3 };

typedef struct settings {
    int repeats;
    bool json;
    int sizes[MAX_SIZES], count; /* MiB of source tile per rank */
} settings;

typedef struct pair_case {
    const char *src, *dst;
} pair_case;

static const pair_case cases[] = {
    {"tp=1,dp=2", "tp=1,cp=2,dp=1"}, {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
    {"tp=1,dp=4", "tp=1,cp=4,dp=1"}, {"tp=2,dp=2", "tp=1,cp=4,dp=1"},
    {"tp=4,dp=1", "tp=1,cp=2,dp=2"}, {"tp=2,dp=4", "tp=2,cp=2,dp=2"},
    {"tp=4,dp=2", "tp=1,cp=2,dp=4"},
};

/* One bridge with its tiles: rows of 4 KiB, 4 samples per dp rank of the larger side. */
typedef struct bed {
    mimo_comm *comm;
    mimo_grid *src, *dst;
    mimo_bridge *bridge;
    mimo_tensor encoder, language;
    int64_t encoder_bytes, language_bytes;
    MPI_Comm gather, cp;
} bed;

typedef struct figures {
    double forward, allgather, backward, allreduce; /* seconds */
    int64_t forward_floor, backward_floor;          /* bytes */
} figures;

static void must(mimo_status status, const char *what)
{
    if (status == MIMO_OK)
        return;
    fprintf(stderr, "bridge_bench: %s: %s\n", what, mimo_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

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
    must(mimo_grid_group_of(grid, dim, rank, &index, &place), dim);
    MPI_Comm_split(MPI_COMM_WORLD, (int)index, (int)place, &group);
    return group;
}

static void bed_create(bed *out, const pair_case *pair, int mib)
{
    enum { HIDDEN = 1024 };
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    must(mimo_comm_from_mpi(&out->comm, MPI_COMM_WORLD), "communicator");
    must(mimo_grid_parse(&out->src, pair->src, 0), pair->src);
    must(mimo_grid_parse(&out->dst, pair->dst, 0), pair->dst);
    desc.src = out->src;
    desc.dst = out->dst;
    must(mimo_bridge_create(&out->bridge, out->comm, &desc), "bridge");
    int64_t src_dp = mimo_grid_dim_size(out->src, "dp"),
            dst_dp = mimo_grid_dim_size(out->dst, "dp");
    int64_t batch = src_dp > dst_dp ? src_dp : dst_dp;
    out->encoder_bytes = (int64_t)mib << 20;
    int64_t seq = out->encoder_bytes / (batch / src_dp * HIDDEN * 4);
    out->language_bytes = seq * (batch / dst_dp) * HIDDEN * 4;
    out->encoder =
        mimo_tensor_3d(filled(out->encoder_bytes), MIMO_F32, "sbh", seq, batch / src_dp, HIDDEN);
    out->language =
        mimo_tensor_3d(filled(out->language_bytes), MIMO_F32, "sbh", seq, batch / dst_dp, HIDDEN);
    out->gather = group_along(out->src, "dp");
    if (mimo_bridge_pairing(out->bridge).direction == MIMO_FAN_IN) {
        int64_t index, slot;
        int rank = mimo_comm_rank(out->comm);
        MPI_Comm_free(&out->gather);
        must(mimo_pairing_place(out->src, out->dst, rank, &index, &slot), "place");
        MPI_Comm_split(MPI_COMM_WORLD, (int)index, (int)slot, &out->gather);
    }
    out->cp = group_along(out->dst, "cp");
}

static void bed_destroy(bed *b)
{
    MPI_Comm_free(&b->gather);
    MPI_Comm_free(&b->cp);
    free(b->encoder.data);
    free(b->language.data);
    mimo_bridge_destroy(b->bridge);
    mimo_grid_destroy(b->src);
    mimo_grid_destroy(b->dst);
    mimo_comm_destroy(b->comm);
}

static void run_forward(bed *b)
{
    must(mimo_bridge_forward(b->bridge, &b->language, &b->encoder, 1, NULL), "forward");
}

static void run_backward(bed *b)
{
    must(mimo_bridge_backward(b->bridge, &b->encoder, &b->language, 1, NULL), "backward");
}

static void run_allgather(bed *b)
{
    MPI_Allgather(b->encoder.data, (int)b->encoder_bytes, MPI_BYTE, b->language.data,
                  (int)b->encoder_bytes, MPI_BYTE, b->gather);
}

static void run_allreduce(bed *b)
{
    MPI_Allreduce(MPI_IN_PLACE, b->language.data, (int)(b->language_bytes / 4), MPI_FLOAT, MPI_SUM,
                  b->cp);
}

static double timed(bed *b, void (*call)(bed *))
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    call(b);
    double took = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

/* What the busiest rank must receive when each consumed row moves once. */
static int64_t floor_bytes(const bed *b, bool backward)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_layout *src, *dst;
    int64_t most = 0;
    desc.grid = b->src;
    desc.seq = b->encoder.shape[0];
    desc.batch = b->encoder.shape[1] * mimo_grid_dim_size(b->src, "dp");
    must(mimo_layout_create(&src, &desc), "layout");
    desc.grid = b->dst;
    desc.partition = &rule;
    must(mimo_layout_create(&dst, &desc), "layout");
    for (int rank = 0; rank < mimo_comm_size(b->comm); rank++) {
        mimo_plan *plan;
        must(mimo_plan_create(&plan, backward ? dst : src, backward ? src : dst, rank), "plan");
        int64_t bytes = mimo_plan_rows(plan, MIMO_RECV) * b->encoder.shape[2] * 4;
        most = bytes > most ? bytes : most;
        mimo_plan_destroy(plan);
    }
    mimo_layout_destroy(src);
    mimo_layout_destroy(dst);
    return most;
}

static figures measure(bed *b, int repeats)
{
    figures f;
    double *t[4];
    bool fan_in = mimo_bridge_pairing(b->bridge).direction == MIMO_FAN_IN;
    for (int i = 0; i < 4; i++)
        t[i] = calloc((size_t)repeats, sizeof *t[i]);
    for (int i = -WARM_UP; i < repeats; i++) {
        int at = i < 0 ? 0 : i;
        t[0][at] = timed(b, run_forward);
        t[1][at] = fan_in ? timed(b, run_allgather) : 0;
        t[2][at] = timed(b, run_backward);
        memset(b->language.data, 0, (size_t)b->language_bytes);
        t[3][at] = timed(b, run_allreduce);
    }
    f.forward = median(t[0], repeats);
    f.allgather = median(t[1], repeats);
    f.backward = median(t[2], repeats);
    f.allreduce = median(t[3], repeats);
    for (int i = 0; i < 4; i++)
        free(t[i]);
    f.forward_floor = floor_bytes(b, false);
    f.backward_floor = floor_bytes(b, true);
    return f;
}

static void print_row(const pair_case *pair, int mib, const char *direction, int64_t must_move,
                      double seconds, double bare, bool json)
{
    double ratio = bare > 0 ? seconds / bare : 0;
    if (!json) {
        printf("%-10s %-16s %4d %-9s %9.2f %10.2f %10.2f %7.2f\n", pair->src, pair->dst, mib,
               direction, (double)must_move / 1048576, seconds * 1e3, bare * 1e3, ratio);
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "src", pair->src);
    cJSON_AddStringToObject(row, "dst", pair->dst);
    cJSON_AddNumberToObject(row, "mib_per_rank", mib);
    cJSON_AddStringToObject(row, "direction", direction);
    cJSON_AddNumberToObject(row, "must_move_bytes", (double)must_move);
    cJSON_AddNumberToObject(row, "seconds", seconds);
    cJSON_AddNumberToObject(row, "bare_seconds", bare);
    cJSON_AddNumberToObject(row, "ratio", ratio);
    char *text = cJSON_PrintUnformatted(row);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(row);
}

static void run_case(const pair_case *pair, int mib, const settings *s, int rank)
{
    bed b;
    bed_create(&b, pair, mib);
    figures f = measure(&b, s->repeats);
    if (rank == 0) {
        print_row(pair, mib, "forward", f.forward_floor, f.forward, f.allgather, s->json);
        print_row(pair, mib, "backward", f.backward_floor, f.backward, f.allreduce, s->json);
        fflush(stdout);
    }
    bed_destroy(&b);
}

static const struct argp_option options[] = {
    {"repeats", 'r', "N", 0, "Timed repeats of each call (default 11)", 0},
    {"mib", 'm', "M", 0, "MiB of source tile per rank; may be repeated (default 1, 8, 32)", 0},
    {"json", 'j', NULL, 0, "One JSON object a line", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    settings *s = state->input;
    switch (key) {
    case 'r':
        s->repeats = atoi(argument);
        break;
    case 'm':
        if (s->count < MAX_SIZES)
            s->sizes[s->count++] = atoi(argument);
        break;
    case 'j':
        s->json = true;
        break;
    case ARGP_KEY_END:
        if (s->repeats < 1 || (s->count > 0 && s->sizes[s->count - 1] < 1))
            argp_error(state, "--repeats and --mib take whole numbers from 1");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp parser = {
        options, parse, NULL, "Times the bridge beside bare MPI collectives.", NULL, NULL, NULL};
    settings s = {.repeats = 11};
    int rank, size;
    argp_parse(&parser, argc, argv, 0, NULL, &s);
    if (s.count == 0) {
        s.sizes[s.count++] = 1;
        s.sizes[s.count++] = 8;
        s.sizes[s.count++] = 32;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0 && !s.json)
        printf("%-10s %-16s %4s %-9s %9s %10s %10s %7s\n", "src", "dst", "MiB", "", "must move",
               "bridge ms", "bare ms", "ratio");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mimo_grid *grid;
        must(mimo_grid_parse(&grid, cases[i].src, 0), cases[i].src);
        bool fits = mimo_grid_size(grid) == size;
        mimo_grid_destroy(grid);
        for (int m = 0; fits && m < s.count; m++)
            run_case(&cases[i], s.sizes[m], &s, rank);
    }
    MPI_Finalize();
    return 0;
}
