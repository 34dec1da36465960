/* What a dispatch refuses: one rank is wrong, and every rank gets its sentence before a row moves.
 * What ranks call differently, and the order of lives and operations. */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/log.h>

#include "comm/comm_backend.h"
#include "dispatch/dispatch_executor.h"
#include "dispatch_bed.h"
#include "same_bits.h"
#include "test_memory.h"

enum { WRONG = 2, RANKS = 4, TOKENS = 3, CHOICES = 2, WIDTH = 4, TILE = 12 };

/* What every rank chooses: experts 0 and 3 get eight rows, 1 and 2 four. */
static const int32_t ids[TOKENS][CHOICES] = {{0, 2}, {1, 3}, {3, 0}};

static bool wrong(void)
{
    return mpi_test_rank() == WRONG;
}

static mimo_dispatch_desc good_desc(void)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = RANKS;
    desc.top_k = CHOICES;
    desc.max_tokens = TOKENS;
    desc.hidden = WIDTH;
    return desc;
}

static mimo_route_desc good_choice(void)
{
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = ids;
    desc.tokens = TOKENS;
    desc.capacity = TILE;
    return desc;
}

/* ---------------------------------------- creation ------------------------------------------ */

static void expect_refused(const mimo_dispatch_desc *desc, mimo_status status, const char *words)
{
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc good = good_desc();
    MPI_FAILS(mimo_dispatch_create(&dispatch, mpi_test_comm(), wrong() ? desc : &good), status,
              words);
    MPI_EXPECT(!dispatch, "a refused creation gave a dispatch");
}

#define REFUSED_WITH(field, value, status, words) \
    do {                                          \
        mimo_dispatch_desc changed = good_desc(); \
        changed.field = (value);                  \
        expect_refused(&changed, status, words);  \
    } while (0)

MPI_TEST(dispatch_errors, of_creation)
{
    mimo_dispatch_desc good = good_desc();
    mimo_dispatch *dispatch = NULL;
    expect_refused(NULL, MIMO_ERR_ARGUMENT, "rank 2: dispatch: desc is NULL");
    REFUSED_WITH(size, 4, MIMO_ERR_ARGUMENT, "descriptor's size is 4");
    REFUSED_WITH(top_k, 9, MIMO_ERR_ARGUMENT, "rank 2: dispatch: top_k 9 of 4 experts");
    REFUSED_WITH(experts, 6, MIMO_ERR_GRID, "rank 2: dispatch: 6 experts over ep=4");
    REFUSED_WITH(etp, 3, MIMO_ERR_GRID, "rank 2: dispatch: 4 ranks are no multiple of etp=3");
    REFUSED_WITH(max_tokens, -1, MIMO_ERR_ARGUMENT, "dispatch: max_tokens -1, hidden 4");
    REFUSED_WITH(hidden, -2, MIMO_ERR_ARGUMENT, "dispatch: max_tokens 3, hidden -2");
    REFUSED_WITH(max_tokens, INT64_C(1) << 40, MIMO_ERR_OVERFLOW, "ids of a rank, more than");
    REFUSED_WITH(max_tokens, INT64_C(1) << 62, MIMO_ERR_OVERFLOW, "does not fit 64 bits");
    REFUSED_WITH(alignment, 0, MIMO_ERR_ARGUMENT, "rank 2: dispatch: an alignment of 0 rows");
    REFUSED_WITH(
        alignment, INT64_C(1) << 31, MIMO_ERR_OVERFLOW,
        "rank 2: dispatch: 4 ranks of 3 tokens and top_k 2, aligned to 2147483648, can fill "
        "a tile of 2147483671 rows, more than 2147483647");
    REFUSED_WITH(alignment, INT64_MAX, MIMO_ERR_OVERFLOW,
                 "rank 2: dispatch: alignment 9223372036854775807: ");
    REFUSED_WITH(transport, MIMO_TRANSPORT_STAGED, MIMO_ERR_ARGUMENT,
                 "dispatch: transport 3, where AUTO, P2P and ZERO_COPY are possible");
    REFUSED_WITH(ctas, -1, MIMO_ERR_ARGUMENT, "dispatch: -1 thread blocks");
    REFUSED_WITH(row_bytes, -1, MIMO_ERR_ARGUMENT, "dispatch: row_bytes -1, 0 tensors");
    REFUSED_WITH(tensors, -2, MIMO_ERR_ARGUMENT, "dispatch: row_bytes 0, -2 tensors");
    REFUSED_WITH(name, "", MIMO_ERR_ARGUMENT, "dispatch: the name is empty");
    MPI_FAILS(mimo_dispatch_create(wrong() ? NULL : &dispatch, mpi_test_comm(), &good),
              MIMO_ERR_ARGUMENT, "rank 2: dispatch: out is NULL");
    MPI_FAILS(mimo_dispatch_create(&dispatch, NULL, &good), MIMO_ERR_ARGUMENT,
              "dispatch: comm is NULL");
}

/* As with tensors in CUDA memory: work is enqueued. Nothing adds rows there. */
MPI_TEST(dispatch_errors, of_devices)
{
    static mimo_device device;
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc good = good_desc();
    mimo_comm *comm = mpi_test_comm_new();
    device = mimo_device_host;
    device.enqueues = true;
    device.add_rows = NULL;
    comm->device = &device;
    MPI_FAILS(mimo_dispatch_create(&dispatch, comm, &good), MIMO_ERR_UNSUPPORTED,
              "dispatch: the communicator moves host memory, and no executor of a dispatch does");
    mimo_comm_destroy(comm);
}

/* A backend with kernels of experts that one rank has no room for. */
static struct {
    const mimo_comm_backend *real;
    mimo_comm_backend table;
    mimo_device device;
    int lines; /* of the log */
} kernels;

static mimo_status split_with_kernels(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    MIMO_TRY(kernels.real->split(out, parent, color, key));
    if (*out)
        (*out)->backend = &kernels.table;
    return MIMO_OK;
}

static mimo_status prepare_kernels(mimo_comm *comm, const struct mimo_expert_shape *shape,
                                   const struct mimo_expert_limit *limit, mimo_lane *lane)
{
    (void)comm, (void)shape, (void)limit;
    lane->kind = MIMO_LANE_RESERVED;
    return wrong() ? mimo_fail(MIMO_ERR_UNSUPPORTED, "no room for kernels") : MIMO_OK;
}

static mimo_status start_route(mimo_comm *comm, const struct mimo_route_call *call,
                               mimo_stream stream)
{
    (void)comm, (void)call, (void)stream;
    return mimo_fail(MIMO_ERR_INTERNAL, "a kernel was started");
}

static void release_lane(mimo_comm *comm, mimo_lane *lane)
{
    (void)comm;
    lane->kind = MIMO_LANE_OUT;
}

static void count_line(void *context, mimo_log_level level, const char *text)
{
    (void)context, (void)level;
    kernels.lines += strstr(text, "rows of a dispatch travel as messages") != NULL &&
                     strstr(text, "rank 2: no room for kernels") != NULL;
}

static mimo_comm *comm_with_kernels(void)
{
    mimo_comm *comm = mpi_test_comm_new();
    kernels.real = comm->backend;
    kernels.table = *kernels.real;
    kernels.table.split = split_with_kernels;
    kernels.table.experts_prepare = prepare_kernels;
    kernels.table.route_start = start_route;
    kernels.table.release_blocks = release_lane;
    kernels.device = mimo_device_host;
    kernels.device.enqueues = true;
    comm->backend = &kernels.table;
    comm->device = &kernels.device;
    return comm;
}

/* Where kernels of a device have no room on one rank, all ranks take the next executor, and one
 * says so. Zero-copy was asked for by name. */
MPI_TEST(dispatch_errors, of_kernels)
{
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc good = good_desc();
    mimo_comm *comm = comm_with_kernels();
    mimo_log_set(count_line, NULL);
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, comm, &good));
    MPI_EXPECT(strcmp(dispatch->executor->name, "messages") == 0, "by %s",
               dispatch->executor->name);
    MPI_EXPECT(dispatch->mover.lane.kind == MIMO_LANE_OUT, "the kernels' lane stays");
    MPI_EXPECT(kernels.lines == (mpi_test_rank() == 0), "%d lines", kernels.lines);
    mimo_dispatch_destroy(dispatch);
    good.transport = MIMO_TRANSPORT_ZERO_COPY;
    MPI_EXPECT_STATUS(mimo_dispatch_create(&dispatch, comm, &good), MIMO_ERR_UNSUPPORTED);
    MPI_EXPECT_SENTENCE("rank 2: no room for kernels");
    mimo_log_set(NULL, NULL);
    mimo_comm_destroy(comm);
}

MPI_TEST(dispatch_errors, of_descriptors_that_differ)
{
    REFUSED_WITH(top_k, 1, MIMO_ERR_MISMATCH, "top_k 1");
    REFUSED_WITH(experts, 8, MIMO_ERR_MISMATCH, "create of 8 experts");
    REFUSED_WITH(etp, 2, MIMO_ERR_MISMATCH, "etp=2");
    REFUSED_WITH(max_tokens, 5, MIMO_ERR_MISMATCH, "5 tokens of 4");
    REFUSED_WITH(hidden, 5, MIMO_ERR_MISMATCH, "3 tokens of 5");
    REFUSED_WITH(alignment, 8, MIMO_ERR_MISMATCH, "alignment 8");
    REFUSED_WITH(narrow_sums, true, MIMO_ERR_MISMATCH, "narrow sums");
    REFUSED_WITH(transport, MIMO_TRANSPORT_P2P, MIMO_ERR_MISMATCH, "p2p");
    REFUSED_WITH(ctas, 3, MIMO_ERR_MISMATCH, "3 thread blocks");
    REFUSED_WITH(row_bytes, 64, MIMO_ERR_MISMATCH, "rows of 64 bytes");
    REFUSED_WITH(tensors, 2, MIMO_ERR_MISMATCH, "2 tensors");
    REFUSED_WITH(buffers_only, true, MIMO_ERR_MISMATCH, "buffers only");
    REFUSED_WITH(name, "layer 7", MIMO_ERR_MISMATCH, "dispatch 'layer 7' create");
}

/* ----------------------------------------- routes ------------------------------------------- */

enum { ROUTES = 4 };

/* A dispatch with this number of routes, of which the first is set. */
typedef struct error_bed {
    mimo_dispatch *dispatch;
    mimo_route *routes[ROUTES];
    mimo_op *sets[ROUTES];
    float tokens[TOKENS][WIDTH], tile[TILE][WIDTH], weights[TOKENS][CHOICES], values[TILE];
} error_bed;

static error_bed begin_bed(mimo_transport transport)
{
    error_bed bed = {.dispatch = NULL};
    mimo_dispatch_desc desc = good_desc();
    mimo_route_desc choice = good_choice();
    desc.name = "layer 3";
    desc.transport = transport;
    MPI_EXPECT_OK(mimo_dispatch_create(&bed.dispatch, mpi_test_comm(), &desc));
    for (int i = 0; i < ROUTES; i++)
        MPI_EXPECT_OK(mimo_route_create(&bed.routes[i], bed.dispatch));
    MPI_EXPECT_OK(mimo_route_set(bed.routes[0], &choice, NULL));
    return bed;
}

static void end_bed(error_bed *bed)
{
    for (int i = 0; i < ROUTES; i++)
        mimo_route_destroy(bed->routes[i]);
    mimo_dispatch_destroy(bed->dispatch);
}

/* Views of a call. */
typedef struct move_views {
    mimo_tensor tokens, tile;
    int n;
} move_views;

static move_views row_views(error_bed *bed)
{
    return (move_views){mimo_tensor_2d(bed->tokens, MIMO_F32, "th", TOKENS, WIDTH),
                        mimo_tensor_2d(bed->tile, MIMO_F32, "th", TILE, WIDTH), 1};
}

static move_views pair_views(error_bed *bed)
{
    return (move_views){mimo_tensor_2d(bed->weights, MIMO_F32, "tk", TOKENS, CHOICES),
                        mimo_tensor_2d(bed->values, MIMO_F32, "t", TILE, 1), 1};
}

static mimo_status move(error_bed *bed, bool combines, const move_views *views)
{
    return combines
               ? mimo_dispatch_combine(bed->routes[0], &views->tokens, &views->tile, views->n, NULL)
               : mimo_dispatch_rows(bed->routes[0], &views->tile, &views->tokens, views->n, NULL);
}

static void expect_not_set(const error_bed *bed, const mimo_route_desc *desc, mimo_status status,
                           const char *words)
{
    mimo_route_desc good = good_choice();
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MPI_FAILS(mimo_route_set(bed->routes[0], wrong() ? desc : &good, NULL), status, words);
    MPI_EXPECT_OK(mimo_route_read(&counts, bed->routes[0]));
    MPI_EXPECT(counts.rows[0] == 8 && counts.rows[1] == 4, "the route did not stay");
}

#define NOT_SET_WITH(field, value, status, words)      \
    do {                                               \
        mimo_route_desc changed = good_choice();       \
        changed.field = (value);                       \
        expect_not_set(&bed, &changed, status, words); \
    } while (0)

MPI_TEST(dispatch_errors, of_routes)
{
    static const int32_t far[] = {0, 1, 2, 3, 4, 0};
    static const int32_t below[] = {0, -2, 2, 3, 1, 0};
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    expect_not_set(&bed, NULL, MIMO_ERR_ARGUMENT,
                   "rank 2: dispatch 'layer 3': route: desc is NULL");
    NOT_SET_WITH(tokens, 4, MIMO_ERR_SHAPE,
                 "rank 2: dispatch 'layer 3': route: 4 tokens, room for 3 (max_tokens)");
    NOT_SET_WITH(ids, far, MIMO_ERR_SHAPE, "route: token 2, choice 0: expert 4 of 4");
    NOT_SET_WITH(ids, below, MIMO_ERR_SHAPE, "route: token 0, choice 1: expert -2 of 4");
    NOT_SET_WITH(ids, NULL, MIMO_ERR_ARGUMENT, "route: ids is NULL, for 3 tokens");
    NOT_SET_WITH(id_dtype, MIMO_F64, MIMO_ERR_ARGUMENT, "route: ids of f64");
    NOT_SET_WITH(capacity, -3, MIMO_ERR_ARGUMENT, "a capacity of -3 rows");
    NOT_SET_WITH(memory, MIMO_MEMORY_CUDA, MIMO_ERR_UNSUPPORTED,
                 "route: the ids lie in memory of kind 1, and the communicator moves host memory");
    mimo_route_desc old = good_choice(); /* of a program that knows no memory of the ids */
    old.size = offsetof(mimo_route_desc, memory);
    old.memory = MIMO_MEMORY_CUDA;
    MPI_EXPECT_OK(mimo_route_set(bed.routes[0], &old, NULL));
    end_bed(&bed);
}

MPI_TEST(dispatch_errors, of_other_routes)
{
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    MPI_FAILS(mimo_route_set(bed.routes[wrong()], &choice, NULL), MIMO_ERR_MISMATCH,
              "dispatch 'layer 3' set of route 1", "dispatch 'layer 3' set of route 2");
    MPI_EXPECT_OK(mimo_route_set(bed.routes[1], &choice, NULL));
    move_views it = row_views(&bed);
    MPI_FAILS(mimo_dispatch_rows(bed.routes[wrong()], &it.tile, &it.tokens, 1, NULL),
              MIMO_ERR_MISMATCH, "dispatch 'layer 3' rows of 1 by route 1",
              "dispatch 'layer 3' rows of 1 by route 2");
    MPI_FAILS(move(&bed, wrong(), &it), MIMO_ERR_MISMATCH,
              "dispatch 'layer 3' rows of 1 by route 1",
              "dispatch 'layer 3' combine of 1 by route 1");
    MPI_EXPECT_OK(move(&bed, false, &it));
    end_bed(&bed);
}

/* A call meets whatever the other ranks call on the communicator. */
MPI_TEST(dispatch_errors, of_other_objects)
{
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO), other = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views it = row_views(&bed);
    MPI_FAILS(move(wrong() ? &other : &bed, false, &it), MIMO_ERR_MISMATCH,
              "rank 2 called dispatch 'layer 3' rows of 1 by route 1: f32 th[12,4]");
    MPI_FAILS(wrong() ? mimo_route_set(bed.routes[0], &choice, NULL) : move(&bed, false, &it),
              MIMO_ERR_MISMATCH, "set of route 1");
    MPI_FAILS(wrong() ? mimo_comm_barrier(mpi_test_comm()) : move(&bed, true, &it),
              MIMO_ERR_MISMATCH,
              "rank 2 called barrier, rank 0 called dispatch 'layer 3' combine of 1");
    MPI_EXPECT_OK(move(&bed, false, &it));
    end_bed(&other);
    end_bed(&bed);
}

/* A rank makes no route, as it calls something else. Those of the others leave no trace. */
MPI_TEST(dispatch_errors, of_routes_that_one_rank_lacks)
{
    mimo_route *route = NULL;
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    if (!wrong())
        MPI_EXPECT_OK(mimo_route_create(&route, bed.dispatch));
    MPI_FAILS(wrong() ? mimo_comm_barrier(mpi_test_comm()) : mimo_route_set(route, &choice, NULL),
              MIMO_ERR_MISMATCH,
              "rank 2 called barrier, rank 0 called dispatch 'layer 3' set of route 5");
    mimo_route_destroy(route);
    MPI_EXPECT_OK(mimo_route_create(&route, bed.dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    mimo_route_destroy(route);
    end_bed(&bed);
}

/* Begin rows of both objects and one combine, set a route, and wait in the reverse order. Rank 2
 * is wrong in all but the first call, each in its own way. Each call has its own error on all
 * ranks. */
MPI_TEST(dispatch_errors, of_calls_in_flight)
{
    static const int32_t far[] = {0, 1, 2, 3, 4, 0};
    mimo_op *first, *second, *third;
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO), other = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views it = row_views(&bed), its = row_views(&other), bad = it;
    bad.tile.shape[0] -= wrong();
    choice.ids = wrong() ? far : choice.ids;
    MPI_EXPECT_OK(mimo_dispatch_rows_start(&first, bed.routes[0], &it.tile, &it.tokens, 1, NULL));
    MPI_EXPECT_OK(
        mimo_dispatch_rows_start(&second, bed.routes[0], &bad.tile, &bad.tokens, 1, NULL));
    if (wrong())
        MPI_EXPECT_OK(
            mimo_dispatch_combine_start(&third, bed.routes[0], &its.tokens, &its.tile, 1, NULL));
    else
        MPI_EXPECT_OK(
            mimo_dispatch_rows_start(&third, other.routes[0], &its.tile, &its.tokens, 1, NULL));
    MPI_FAILS(mimo_route_set(other.routes[1], &choice, NULL), MIMO_ERR_SHAPE,
              "rank 2: dispatch 'layer 3': route: token 2, choice 0: expert 4 of 4");
    MPI_FAILS(mimo_op_wait(&third), MIMO_ERR_MISMATCH,
              "rank 2 called dispatch 'layer 3' combine of 1 by route 1");
    MPI_FAILS(mimo_op_wait(&second), MIMO_ERR_SHAPE,
              "rank 2: dispatch 'layer 3': the expert side is f32 th[11,4]");
    MPI_EXPECT_OK(mimo_op_wait(&first));
    MPI_EXPECT_OK(move(&other, false, &its));
    end_bed(&other);
    end_bed(&bed);
}

/* ------------------------------------------ moves ------------------------------------------- */

/* Both moves refuse it, and the destinations stay as they are. */
static void expect_not_moved(error_bed *bed, const move_views *good, const move_views *bad,
                             mimo_status status, const char *words)
{
    for (int combines = 0; combines < 2; combines++) {
        memset(bed->tile, GUARD_POISON, sizeof bed->tile);
        memset(bed->tokens, GUARD_POISON, sizeof bed->tokens);
        MPI_FAILS(move(bed, combines, wrong() ? bad : good), status, "rank 2: dispatch 'layer 3'",
                  words);
        MPI_EXPECT_BITS(bits_of_poison(bed->tile, 0, sizeof bed->tile), "the tile");
        MPI_EXPECT_BITS(bits_of_poison(bed->tokens, 0, sizeof bed->tokens), "the tokens");
    }
}

#define NOT_MOVED_WITH(views, change, status, words)        \
    do {                                                    \
        move_views good = views(&bed), bad = good;          \
        change;                                             \
        expect_not_moved(&bed, &good, &bad, status, words); \
    } while (0)

MPI_TEST(dispatch_errors, of_views)
{
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    NOT_MOVED_WITH(row_views, bad.n = 0, MIMO_ERR_ARGUMENT, ": 0 tensors");
    NOT_MOVED_WITH(row_views, bad.tokens.shape[0] = 2, MIMO_ERR_SHAPE,
                   "the token side is f32 th[2,4], and route 1 has 3 tokens of this rank");
    NOT_MOVED_WITH(row_views, bad.tile.shape[0] = 11, MIMO_ERR_SHAPE,
                   "the expert side is f32 th[11,4], and this rank's tile has 12 rows by route 1");
    NOT_MOVED_WITH(row_views, bad.tile.shape[1] = 3, MIMO_ERR_SHAPE, "dtype and h must agree");
    NOT_MOVED_WITH(row_views, bad.tile.dtype = MIMO_I32, MIMO_ERR_SHAPE, "dtype and h must agree");
    NOT_MOVED_WITH(row_views, bad.tile.shape[1] = bad.tokens.shape[1] = 5, MIMO_ERR_SHAPE,
                   "f32 th[3,5]: rows have at most 4 elements (hidden)");
    NOT_MOVED_WITH(row_views, bad.tokens.letters[0] = 'b', MIMO_ERR_SHAPE,
                   "f32 bh[3,4] and the expert side f32 th[12,4]: they are th and th, or tk and t");
    NOT_MOVED_WITH(row_views, bad.tokens.letters[1] = 'k', MIMO_ERR_SHAPE, "or tk and t");
    NOT_MOVED_WITH(row_views, bad.tile.data = NULL, MIMO_ERR_ARGUMENT, "has data NULL");
    NOT_MOVED_WITH(row_views, bad.tokens.memory = MIMO_MEMORY_CUDA, MIMO_ERR_ARGUMENT,
                   "the token side f32 th[3,4] lies in memory kind 1");
    NOT_MOVED_WITH(row_views, bad.tokens.data = bad.tile.data, MIMO_ERR_ARGUMENT, "overlap");
    NOT_MOVED_WITH(row_views, bad.tokens.dtype = (mimo_dtype)99, MIMO_ERR_ARGUMENT, "dtype");
    NOT_MOVED_WITH(pair_views, bad.tokens.shape[1] = 1, MIMO_ERR_SHAPE,
                   "f32 tk[3,1]: values of pairs are f32 or f64, of k = 2");
    NOT_MOVED_WITH(pair_views, bad.tokens.dtype = bad.tile.dtype = MIMO_I32, MIMO_ERR_SHAPE,
                   "i32 tk[3,2]: values of pairs are f32 or f64, of k = 2");
    end_bed(&bed);
}

MPI_TEST(dispatch_errors, of_moves)
{
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views good = row_views(&bed), bad = good;
    mimo_route *set = bed.routes[0];
    bed.routes[0] = bed.routes[1];
    MPI_FAILS(move(&bed, false, &good), MIMO_ERR_STATE,
              "dispatch 'layer 3': route 2 was never set");
    MPI_EXPECT_STATUS(move(&bed, true, &good), MIMO_ERR_STATE);
    bed.routes[0] = set;
    bad.tokens.dtype = bad.tile.dtype = MIMO_I32;
    MPI_FAILS(move(&bed, true, &bad), MIMO_ERR_UNSUPPORTED,
              "combine of i32 th[3,4]: i32 can be moved, not summed");
    MPI_EXPECT_OK(move(&bed, false, &bad));
    MPI_FAILS(move(&bed, false, wrong() ? &bad : &good), MIMO_ERR_MISMATCH,
              "i32 th[12,4] from i32 th[3,4]");
    bad = good;
    bad.tokens.data = (char *)bad.tokens.data + 1;
    bad.tokens.shape[0] = wrong() ? TOKENS : good.tokens.shape[0];
    bad.tile.shape[1] = bad.tokens.shape[1] = good.tile.shape[1] = good.tokens.shape[1] = 3;
    MPI_FAILS(move(&bed, true, wrong() ? &bad : &good), MIMO_ERR_ARGUMENT,
              "f32 numbers have to lie at a multiple of 4 bytes");
    MPI_EXPECT_OK(move(&bed, false, wrong() ? &bad : &good));
    MPI_FAILS(mimo_dispatch_rows(bed.routes[0], NULL, &good.tokens, 1, NULL), MIMO_ERR_ARGUMENT,
              "to is NULL");
    end_bed(&bed);
}

static mimo_status refusal(mimo_status local)
{
    return local == MIMO_ERR_IO ? mimo_fail(local, "no view of 7 tensors") : local;
}

/* A rank that can't make a call, or can't tell its ids, has its own sentence on all ranks. */
MPI_TEST(dispatch_errors, refused)
{
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views good = row_views(&bed);
    const mimo_status statuses[] = {MIMO_ERR_IO, MIMO_OK, (mimo_status)77};
    static const char *const words[] = {": no view of 7 tensors", ": MIMO_OK is no error",
                                        ": 77 is no mimo_status"};
    for (int i = 0; i < 9; i++) {
        bool combines = i % 3 == 1, sets = i % 3 == 2;
        mimo_status local = statuses[i / 3], got;
        if (sets)
            got = wrong() ? mimo_dispatch_refuse_route(bed.dispatch, refusal(local))
                          : mimo_route_set(bed.routes[0], &choice, NULL);
        else
            got = wrong() ? mimo_dispatch_refuse(bed.dispatch, combines, refusal(local))
                          : move(&bed, combines, &good);
        MPI_EXPECT(got == (i < 3 ? MIMO_ERR_IO : MIMO_ERR_ARGUMENT), "call %d: %s", i,
                   mimo_status_name(got));
        MPI_EXPECT_SENTENCE("rank 2: dispatch 'layer 3'");
        MPI_EXPECT_SENTENCE(words[i / 3]);
    }
    MPI_EXPECT_OK(move(&bed, false, &good));
    MPI_FAILS(mimo_dispatch_refuse(NULL, false, MIMO_ERR_IO), MIMO_ERR_ARGUMENT,
              "dispatch refuse: dispatch is NULL");
    MPI_FAILS(mimo_dispatch_refuse_route(NULL, MIMO_ERR_IO), MIMO_ERR_ARGUMENT,
              "dispatch refuse route: dispatch is NULL");
    end_bed(&bed);
}

/* Errors of one rank alone: no other is asked. */
MPI_TEST(dispatch_errors, of_null)
{
    const int32_t *ends;
    mimo_op *op;
    mimo_route_desc choice = good_choice();
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    mimo_dispatch_counts report = MIMO_DISPATCH_COUNTS_INIT;
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views it = row_views(&bed);
#define REFUSES(call, words) MPI_FAILS(call, MIMO_ERR_ARGUMENT, words)
    REFUSES(mimo_route_create(NULL, bed.dispatch), "mimo_route_create: out is NULL");
    REFUSES(mimo_route_create(&bed.routes[0], NULL), "mimo_route_create: dispatch is NULL");
    REFUSES(mimo_route_set(NULL, &choice, NULL), "mimo_route_set: route is NULL");
    REFUSES(mimo_route_set_start(NULL, bed.routes[0], &choice, NULL),
            "mimo_route_set_start: out is NULL");
    REFUSES(mimo_route_set_start(&op, NULL, &choice, NULL), "mimo_route_set_start: route is NULL");
    REFUSES(mimo_route_ends(NULL, bed.routes[0]), "mimo_route_ends: out is NULL");
    REFUSES(mimo_route_ends(&ends, NULL), "mimo_route_ends: route is NULL");
    REFUSES(mimo_route_read(NULL, bed.routes[0]), "mimo_route_read: out is NULL");
    REFUSES(mimo_route_read(&counts, NULL), "mimo_route_read: route is NULL");
    REFUSES(mimo_dispatch_report(NULL, bed.dispatch), "mimo_dispatch_report: out is NULL");
    REFUSES(mimo_dispatch_report(&report, NULL), "mimo_dispatch_report: dispatch is NULL");
    REFUSES(mimo_dispatch_rows(NULL, &it.tile, &it.tokens, 1, NULL), "rows: route is NULL");
    REFUSES(mimo_dispatch_combine(NULL, &it.tokens, &it.tile, 1, NULL), "combine: route is NULL");
    REFUSES(mimo_dispatch_rows_start(NULL, bed.routes[0], &it.tile, &it.tokens, 1, NULL),
            "rows: out is NULL");
    REFUSES(mimo_dispatch_combine_start(&op, NULL, &it.tokens, &it.tile, 1, NULL),
            "combine: route is NULL");
    counts.size = 0;
    REFUSES(mimo_route_read(&counts, bed.routes[0]), "route counts: the size of the struct");
    report.size = 4;
    REFUSES(mimo_dispatch_report(&report, bed.dispatch), "dispatch counts: the size of the struct");
    MPI_EXPECT_STATUS(mimo_route_ends(&ends, bed.routes[1]), MIMO_ERR_STATE);
    MPI_EXPECT_STATUS(mimo_route_read(&counts, bed.routes[1]), MIMO_ERR_STATE);
    mimo_route_destroy(NULL);
    mimo_dispatch_destroy(NULL);
    end_bed(&bed);
}

/* ----------------------------------------- buffers ------------------------------------------ */

/* Tiles lie at one offset of one buffer on all ranks, or in none. */
MPI_TEST(dispatch_errors, of_buffers)
{
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    test_tile shared = test_shared_tile_new("th", MIMO_F32, 2 * TILE, WIDTH, 1);
    move_views good = row_views(&bed), bad = good;
    good.tile.data = shared.view.data;
    MPI_FAILS(move(&bed, false, wrong() ? &bad : &good), MIMO_ERR_MISMATCH, " of buffer ");
    bad.tile.data = (float *)good.tile.data + WIDTH;
    MPI_FAILS(move(&bed, false, wrong() ? &bad : &good), MIMO_ERR_MISMATCH, "at byte ");
    MPI_EXPECT_OK(move(&bed, false, &good));
    MPI_EXPECT_OK(move(&bed, true, wrong() ? &bad : &good)); /* it only reads the tile */
    end_bed(&bed);
    bed = begin_bed(MIMO_TRANSPORT_ZERO_COPY);
    bad.tile.data = bed.tile;
    MPI_FAILS(move(&bed, false, wrong() ? &bad : &good), MIMO_ERR_ARGUMENT,
              "zero-copy: tensor 0, f32 th[12,4], is to be written at ");
    MPI_EXPECT_OK(move(&bed, false, &good));
    end_bed(&bed);
}

/* What ranks find out when rows are to be written: the sentence names the dispatch. */
MPI_TEST(dispatch_errors, of_buffers_without_agreement)
{
    setenv("MIMO_AGREE", "0", 1);
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    test_tile shared = test_shared_tile_new("th", MIMO_F32, 2 * TILE, WIDTH, 1);
    move_views views = row_views(&bed);
    views.tile.data = (float *)shared.view.data + (wrong() ? WIDTH : 0);
    MPI_EXPECT_STATUS(move(&bed, false, &views), MIMO_ERR_MISMATCH);
    MPI_EXPECT(strncmp(mimo_last_error(), "dispatch 'layer 3': ", 20) == 0 &&
                   !strstr(mimo_last_error(), "zero-copy"),
               "'%s'", mimo_last_error());
    MPI_EXPECT_SENTENCE(wrong() ? "no rows were written to rank " : "rank 2");
    unsetenv("MIMO_AGREE");
    end_bed(&bed);
}

/* ------------------------------------- operations, lives ------------------------------------ */

static void fill_tokens(float tokens[TOKENS][WIDTH], int call)
{
    for (int i = 0; i < TOKENS * WIDTH; i++)
        tokens[i / WIDTH][i % WIDTH] = (float)(call * 1000 + mpi_test_rank() * 100 + i);
}

/* A token has two pairs, whose rows nobody changed. */
static void expect_twice(float tokens[TOKENS][WIDTH], int call)
{
    float expected[TOKENS][WIDTH];
    fill_tokens(expected, call);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        expected[i / WIDTH][i % WIDTH] *= 2;
    MPI_EXPECT_BITS(bits_of(tokens, expected, sizeof expected, 4, WIDTH), "call %d", call);
}

enum { CALLS = 6 };

/* Rows that move out and back, two operations. */
typedef struct round_trip {
    float tokens[TOKENS][WIDTH], tile[TILE][WIDTH], sums[TOKENS][WIDTH];
    mimo_op *rows, *combine;
} round_trip;

static void start_rows(round_trip *it, mimo_route *route, int call)
{
    mimo_tensor from = mimo_tensor_2d(it->tokens, MIMO_F32, "th", TOKENS, WIDTH);
    mimo_tensor tile = mimo_tensor_2d(it->tile, MIMO_F32, "th", TILE, WIDTH);
    fill_tokens(it->tokens, call);
    MPI_EXPECT_OK(mimo_dispatch_rows_start(&it->rows, route, &tile, &from, 1, NULL));
}

static void start_combine(round_trip *it, mimo_route *route)
{
    mimo_tensor tile = mimo_tensor_2d(it->tile, MIMO_F32, "th", TILE, WIDTH);
    mimo_tensor sums = mimo_tensor_2d(it->sums, MIMO_F32, "th", TOKENS, WIDTH);
    MPI_EXPECT_OK(mimo_dispatch_combine_start(&it->combine, route, &sums, &tile, 1, NULL));
}

/* Many moves at once, of two routes, with all waits in the reverse order. Then one route is set
 * anew while moves of it are in flight, and all handles are destroyed while others are. */
MPI_TEST(dispatch_errors, operations_outlive_their_routes)
{
    static round_trip trips[CALLS];
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    MPI_EXPECT_OK(mimo_route_set(bed.routes[1], &choice, NULL));
    for (int i = 0; i < CALLS; i++) {
        mimo_route *route = bed.routes[i % 2];
        start_rows(&trips[i], route, i);
        start_combine(&trips[i], route);
    }
    MPI_EXPECT_OK(mimo_route_set(bed.routes[0], &choice, NULL));
    end_bed(&bed);
    for (int i = CALLS; i-- > 0;) {
        bool done = false;
        while (!done)
            MPI_EXPECT_OK(mimo_op_test(&done, trips[i].combine));
        MPI_EXPECT_OK(mimo_op_wait(&trips[i].combine));
        MPI_EXPECT_OK(mimo_op_wait(&trips[i].rows));
        expect_twice(trips[i].sums, i);
    }
}

/* ------------------------------------- routes in flight ------------------------------------- */

/* Begin to set a route, by which each token has one pair: with expert i, which is rank i's. */
static void start_set(error_bed *bed, int i, int64_t capacity, int32_t last)
{
    int32_t chosen[TOKENS][CHOICES];
    mimo_route_desc choice = good_choice();
    for (int token = 0; token < TOKENS; token++) {
        chosen[token][0] = i;
        chosen[token][1] = token < TOKENS - 1 ? -1 : last;
    }
    choice.ids = chosen;
    choice.capacity = capacity;
    MPI_EXPECT_OK(mimo_route_set_start(&bed->sets[i], bed->routes[i], &choice, NULL));
    memset(chosen, 0, sizeof chosen); /* they were read */
}

static void expect_set(const error_bed *bed, int i)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    MPI_EXPECT_OK(mimo_route_read(&counts, bed->routes[i]));
    for (int rank = 0; rank < RANKS; rank++)
        MPI_EXPECT(counts.rows[rank] == (rank == i ? RANKS * TOKENS : 0),
                   "route %d: rank %d needs %d rows", i, rank, (int)counts.rows[rank]);
}

/* Three routes are set while rows move by a fourth one. All waits come in the reverse order. */
static void set_beside_moves(void)
{
    static round_trip trips[ROUTES];
    bool done = false;
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    for (int i = 1; i < ROUTES; i++) {
        start_rows(&trips[i], bed.routes[0], i);
        start_set(&bed, i, TILE, -1);
        start_combine(&trips[i], bed.routes[0]);
    }
    while (!done)
        MPI_EXPECT_OK(mimo_op_test(&done, bed.sets[2]));
    for (int i = ROUTES; i-- > 1;) {
        MPI_EXPECT_OK(mimo_op_wait(&trips[i].combine));
        MPI_EXPECT_OK(mimo_op_wait(&bed.sets[i]));
        MPI_EXPECT_OK(mimo_op_wait(&trips[i].rows));
        expect_twice(trips[i].sums, i);
        expect_set(&bed, i);
    }
    end_bed(&bed);
}

MPI_TEST(dispatch_errors, routes_set_in_flight)
{
    for (int guarded = 0; guarded < 2; guarded++) {
        mpi_test_guard(mpi_test_comm(), guarded);
        set_beside_moves();
    }
    mpi_test_guard(mpi_test_comm(), false);
}

/* Each set has its own error on all ranks: an id of rank 2, its tile, and another route. What rank
 * 2 brought to a set that failed is forgotten. */
MPI_TEST(dispatch_errors, of_routes_set_in_flight)
{
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    start_set(&bed, 1, TILE, wrong() ? RANKS : -1);
    start_set(&bed, 2, wrong() ? 5 : TILE, -1);
    MPI_EXPECT_OK(mimo_route_set_start(&bed.sets[3], bed.routes[wrong() ? 0 : 3], &choice, NULL));
    MPI_FAILS(mimo_op_wait(&bed.sets[3]), MIMO_ERR_MISMATCH,
              "rank 2 called dispatch 'layer 3' set of route 1, rank 0 called dispatch "
              "'layer 3' set of route 4");
    MPI_FAILS(mimo_op_wait(&bed.sets[2]), MIMO_ERR_SHAPE,
              "dispatch 'layer 3': rank 2 needs 12 rows for its experts, its tile has 5");
    MPI_FAILS(mimo_op_wait(&bed.sets[1]), MIMO_ERR_SHAPE,
              "rank 2: dispatch 'layer 3': route: token 2, choice 1: expert 4 of 4");
    MPI_EXPECT_STATUS(mimo_route_read(&counts, bed.routes[1]), MIMO_ERR_STATE);
    expect_set(&bed, 2);
    for (int i = 1; i < ROUTES; i++)
        start_set(&bed, i, TILE, -1);
    for (int i = 1; i < ROUTES; i++) {
        MPI_EXPECT_OK(mimo_op_wait(&bed.sets[i]));
        expect_set(&bed, i);
    }
    end_bed(&bed);
}

/* Whether a set has ended differs between ranks, and until the wait nothing depends on it. */
MPI_TEST(dispatch_errors, of_routes_before_their_wait)
{
    static const char words[] =
        "dispatch 'layer 3': the operation that sets route 2 was not waited";
    const int32_t *ends;
    mimo_op *again;
    bool done = false;
    mimo_route_desc choice = good_choice();
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    move_views it = row_views(&bed);
    start_set(&bed, 1, TILE, -1);
    while (!done && mpi_test_rank() % 2 == 0)
        MPI_EXPECT_OK(mimo_op_test(&done, bed.sets[1]));
    MPI_FAILS(mimo_dispatch_rows(bed.routes[1], &it.tile, &it.tokens, 1, NULL), MIMO_ERR_STATE,
              words);
    MPI_FAILS(mimo_route_set(bed.routes[1], &choice, NULL), MIMO_ERR_STATE, words);
    MPI_EXPECT_OK(mimo_route_set_start(&again, bed.routes[1], &choice, NULL));
    MPI_FAILS(mimo_op_wait(&again), MIMO_ERR_STATE, words);
    MPI_FAILS(mimo_route_ends(&ends, bed.routes[1]), MIMO_ERR_STATE, words);
    MPI_EXPECT_STATUS(mimo_route_read(&counts, bed.routes[1]), MIMO_ERR_STATE);
    MPI_EXPECT_OK(mimo_op_wait(&bed.sets[1]));
    expect_set(&bed, 1);
    end_bed(&bed);
}

/* A route ends before the operation that sets it, and its dispatch as well. One whose set failed
 * leaves no trace: the next ones have equal numbers, also on a rank that made none. */
MPI_TEST(dispatch_errors, sets_outlive_their_routes)
{
    mimo_route *route = NULL;
    mimo_op *op = NULL;
    mimo_route_desc choice = good_choice();
    error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
    mimo_status status;
    if (wrong()) {
        status = mimo_comm_barrier(mpi_test_comm());
    } else {
        MPI_EXPECT_OK(mimo_route_create(&route, bed.dispatch));
        MPI_EXPECT_OK(mimo_route_set_start(&op, route, &choice, NULL));
        mimo_route_destroy(route);
        status = mimo_op_wait(&op);
    }
    MPI_EXPECT(status == MIMO_ERR_MISMATCH, "%s", mimo_status_name(status));
    MPI_EXPECT_SENTENCE("rank 2 called barrier, rank 0 called dispatch 'layer 3' set of route 5");
    MPI_EXPECT_OK(mimo_route_create(&route, bed.dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    mimo_route_destroy(route);
    for (int i = 1; i < ROUTES; i++)
        start_set(&bed, i, TILE, -1);
    end_bed(&bed);
    for (int i = 1; i < ROUTES; i++)
        MPI_EXPECT_OK(mimo_op_wait(&bed.sets[i]));
}

/* --------------------------------------- the end -------------------------------------------- */

/* A dispatch ends before its routes, behind them, or with none ever made; its communicator before
 * it. */
MPI_TEST(dispatch_errors, lives_in_any_order)
{
    for (int order = 0; order < 3; order++) {
        error_bed bed = begin_bed(MIMO_TRANSPORT_AUTO);
        move_views it = row_views(&bed);
        if (order == 0)
            mimo_dispatch_destroy(bed.dispatch);
        MPI_EXPECT_OK(move(&bed, false, &it));
        for (int i = 1; i < ROUTES; i++)
            mimo_route_destroy(bed.routes[i]);
        if (order == 1)
            mimo_dispatch_destroy(bed.dispatch);
        MPI_EXPECT_OK(move(&bed, true, &it));
        mimo_route_destroy(bed.routes[0]);
        if (order == 2)
            mimo_dispatch_destroy(bed.dispatch);
    }
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc desc = good_desc();
    mimo_comm *comm = mpi_test_comm_new();
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, comm, &desc));
    mimo_comm_destroy(comm);
    MPI_EXPECT_SENTENCE(
        "destroyed before dispatches (1), bridges (0) or buffers (0) that were made");
    mimo_dispatch_destroy(dispatch);
}

/* 1,000 steps of changing, uneven and empty routes, forward and backward: the same hundred, ten
 * times. MPI keeps buffers for messages that come early, now and then many at once, so any one
 * hundred may take memory. A leak takes it in each of them. */
MPI_TEST(dispatch_errors, a_thousand_steps)
{
    static const dispatch_case its = {2,     4, 3, 4, 16, MIMO_BF16, false, MIMO_TRANSPORT_AUTO,
                                      false, -1};
    enum { STEPS = 100, TURNS = 10, LEAST = 96 };
    int64_t before = 0, least = INT64_MAX;
    dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), &its);
    for (int turn = 0; turn < TURNS; turn++) {
        for (uint64_t step = 1; step <= STEPS; step++) {
            dispatch_bed_set(&bed, step % STEPS);
            dispatch_bed_move_rows(&bed, step);
            dispatch_bed_combine(&bed, step);
        }
        int64_t used = (int64_t)mallinfo2().uordblks;
        if (turn >= TURNS / 2 && used - before < least)
            least = used - before;
        before = used;
    }
    MPI_EXPECT(least < (int64_t)STEPS * LEAST, "each %d steps took %" PRId64 " bytes or more",
               (int)STEPS, least);
    dispatch_bed_free(&bed);
}
