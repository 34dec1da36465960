/* Where the ends of a route's experts are read. In the fixed order nobody downloads them, so on a
 * device the host waits for no route, and a tile that is too small is an error of the step. */
#include <math.h>

#include "comm/comm_backend.h"
#include "device/device.h"
#include "mixture_bed.h"
#include "nn_test_memory.h"

enum { ROWS = 4, ROUTES = 2 };

/* A copy of the tested memory's table that counts downloads. Each waits for the stream. */
static mimo_device counting;
static const mimo_device *counted;
static int downloads;

static mimo_status count_download(void *to, const void *from, int64_t bytes, mimo_stream stream)
{
    downloads++;
    return counted->download(to, from, bytes, stream);
}

static void use_table(layer_bed *it, const mimo_device *device)
{
    it->runtime.device = device;
    if (test_memory() != MIMO_MEMORY_HOST) /* the library knows the host's by its address */
        it->group->device = device;
}

/* Of the layers, and of the dispatch. */
static void count_downloads(layer_bed *it)
{
    counted = it->runtime.device;
    counting = *counted;
    counting.download = count_download;
    downloads = 0;
    use_table(it, &counting);
}

static mimo_status place(layer_bed *it)
{
    return nn_moe_saved_take(&it->saved, &it->moe, &it->room);
}

static void open_layer(layer_bed *it, nn_order order, int64_t capacity)
{
    open_grids(it, mpi_test_comm());
    open_store(it, order);
    const nn_mixture mixture = {.dispatch = it->dispatch, .inner = F, .capacity = capacity};
    const nn_moe_desc desc = {
        .name = "moe", .mixture = &mixture, .hidden = H, .max_rows = TOKENS, .max_batch = TOKENS};
    MPI_EXPECT_OK(nn_moe_init(&it->moe, it->params, it->tp, &desc));
    MPI_EXPECT_OK(nn_params_seal(it->params));
    NN_TEST_PLACE(it->room, place(it));
}

static void close_layer(layer_bed *it)
{
    nn_test_free_rooms();
    close_bed(it);
}

static void run_forth_and_back(layer_bed *it, nn_real *x, nn_real *y, nn_real *dx)
{
    MPI_EXPECT_OK(nn_moe_forward(&it->moe, &it->saved, y, &(nn_moe_input){x, ROWS, 1, NULL}));
    MPI_EXPECT_OK(nn_moe_backward_input(&it->moe, &it->saved, dx, y));
    MPI_EXPECT_OK(nn_moe_backward_params(&it->moe, &it->saved));
}

static int downloads_of(nn_order order)
{
    const shape on = {1, mpi_test_size(), 1};
    layer_bed it = {.shape = &on};
    open_layer(&it, order, 0);
    nn_real *x = nn_test_room(TOKENS * H), *y = nn_test_room(TOKENS * H);
    count_downloads(&it);
    for (int route = 0; route < ROUTES; route++)
        run_forth_and_back(&it, x, y, nn_test_room(TOKENS * H));
    use_table(&it, counted);
    MPI_EXPECT_OK(nn_dispatch_check(it.dispatch));
    close_layer(&it);
    return downloads;
}

MPI_TEST(nn_ends, no_route_is_waited_for)
{
    int fixed = downloads_of(NN_ORDER_FIXED), fast = downloads_of(NN_ORDER_FAST);
    bool host = test_memory() == MIMO_MEMORY_HOST;
    MPI_EXPECT(fixed == 0, "%d downloads of %d routes in the fixed order", fixed, ROUTES);
    MPI_EXPECT(host ? fast == 0 : fast >= ROUTES, "%d downloads of %d routes in the fast order",
               fast, ROUTES);
}

/* All tokens choose experts 0, 1 and 2, which rank 0 has. The last row of y lies behind them. */
static void expect_lost_rows(layer_bed *it, nn_real *x, nn_real *y)
{
    nn_real got[(ROWS + 1) * H];
    run_forth_and_back(it, x, y, nn_test_room(TOKENS * H));
    nn_test_read(got, y, (ROWS + 1) * H);
    for (int i = 0; i < (ROWS + 1) * H; i++)
        MPI_EXPECT(!isnan((double)got[i]) == (i >= ROWS * H), "y[%d] is %g", i, (double)got[i]);
    MPI_FAILS(nn_dispatch_check(it->dispatch), MIMO_ERR_SHAPE,
              "rank 0 needs 24 rows for its experts, its tile has 2: in 1 of 1 routes");
    MPI_EXPECT_OK(nn_dispatch_check(it->dispatch)); /* was told */
    mimo_dispatch_counts counts = MIMO_DISPATCH_COUNTS_INIT;
    MPI_EXPECT_OK(nn_dispatch_report(&counts, it->dispatch));
    MPI_EXPECT(counts.routes == 1 && counts.rows == 24 && counts.overflows == 1,
               "%d routes, %d rows, %d overflows", (int)counts.routes, (int)counts.rows,
               (int)counts.overflows);
}

/* On the host the set says it. On a device it sets no gradient, and the check has the number. */
MPI_TEST(nn_ends, rows_past_the_capacity)
{
    const shape on = {1, 2, 1};
    layer_bed it = {.shape = &on};
    open_layer(&it, NN_ORDER_FIXED, 2);
    nn_real *x = nn_test_room(TOKENS * H), *y = nn_test_room(TOKENS * H);
    if (test_memory() == MIMO_MEMORY_HOST)
        MPI_FAILS(nn_moe_forward(&it.moe, &it.saved, y, &(nn_moe_input){x, ROWS, 1, NULL}),
                  MIMO_ERR_SHAPE, "rank 0 needs 24 rows for its experts, its tile has 2");
    else
        expect_lost_rows(&it, x, y);
    close_layer(&it);
}
