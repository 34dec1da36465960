#include "dispatch_ways.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/dispatch.h>

#include "bench_support.h"
#include "comm/buffer_state.h"
#include "comm/comm_backend.h"
#include "core/float16.h"

const char *const way_names[WAYS] = {[WAY_FLOOR] = "a push of as many bytes",
                                     [WAY_ROUTE] = "route",
                                     [WAY_ROWS] = "rows",
                                     [WAY_COMBINE] = "combine",
                                     [WAY_ALL] = "route, rows, combine",
                                     [WAY_PER_PAIR] = "per pair",
                                     [WAY_ONCE] = "once + select",
                                     [WAY_GATHERED] = "all-gather + select",
                                     [WAY_ADDED] = "per pair + add",
                                     [WAY_SCATTERED] = "add + reduce-scatter"};
const char *const way_keys[WAYS] = {
    [WAY_FLOOR] = "floor",        [WAY_ROUTE] = "route",       [WAY_ROWS] = "rows",
    [WAY_COMBINE] = "combine",    [WAY_ALL] = "all",           [WAY_PER_PAIR] = "per_pair",
    [WAY_ONCE] = "once",          [WAY_GATHERED] = "gathered", [WAY_ADDED] = "added",
    [WAY_SCATTERED] = "scattered"};

/* The lists of a routing, where tensors lie. */
typedef struct near_lists {
    int32_t *pair_tokens, *once_tokens, *tile_of_pairs, *tile_of_once, *tile_of_all, *pairs_of_tile;
    routing_sums tokens_of_pairs, all_of_tile;
} near_lists;

struct dispatch_ways {
    ways_desc desc;
    const routing *its;
    int64_t row_bytes;
    int rank;
    mimo_dispatch *dispatch;
    mimo_route *route;
    mimo_buffer *tiles, *floor; /* the tile of the dispatch, and what the floor writes into */
    mimo_exchange *push;
    near_lists lists;
    void *ids, *tokens, *sums; /* [tokens, k], [tokens, H], [tokens, H] */
    /* Of the other ways. */
    void *sent, *received, *tile, *back; /* rows */
    float *wide, *wide_sums;             /* [ranks * tokens, H], [tokens, H] */
    void *graphs[WAYS];                  /* NULL: the way has none so far */
};

/* ------------------------------------- the dispatch ----------------------------------- */

static void open_dispatch(dispatch_ways *it)
{
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = it->its->sizes.experts;
    desc.top_k = it->its->sizes.top_k;
    desc.max_tokens = it->its->sizes.tokens;
    desc.hidden = it->desc.hidden;
    desc.buffers_only = true;
    desc.ctas = it->desc.ctas;
    desc.narrow_sums = it->desc.narrow;
    must(mimo_dispatch_create(&it->dispatch, it->desc.comm, &desc));
    must(mimo_route_create(&it->route, it->dispatch));
    must(mimo_buffer_create(&it->tiles, it->desc.comm, it->its->most_rows * it->row_bytes));
}

static void set_route(void *context)
{
    const dispatch_ways *it = context;
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = it->ids;
    desc.tokens = it->its->sizes.tokens;
    desc.capacity = it->its->most_rows;
    desc.memory = it->desc.place->memory;
    must(mimo_route_set(it->route, &desc, it->desc.stream));
}

static mimo_tensor rows_at(const dispatch_ways *it, void *data, int64_t rows)
{
    mimo_tensor view = mimo_tensor_2d(data, MIMO_BF16, "th", rows, it->desc.hidden);
    view.memory = it->desc.place->memory;
    return view;
}

static void move_rows(void *context)
{
    const dispatch_ways *it = context;
    const mimo_tensor to = rows_at(it, mimo_buffer_data(it->tiles), it->its->most_rows);
    const mimo_tensor from = rows_at(it, it->tokens, it->its->sizes.tokens);
    must(mimo_dispatch_rows(it->route, &to, &from, 1, it->desc.stream));
}

static void combine(void *context)
{
    const dispatch_ways *it = context;
    const mimo_tensor to = rows_at(it, it->sums, it->its->sizes.tokens);
    const mimo_tensor from = rows_at(it, mimo_buffer_data(it->tiles), it->its->most_rows);
    must(mimo_dispatch_combine(it->route, &to, &from, 1, it->desc.stream));
}

static void do_all(void *context)
{
    set_route(context);
    move_rows(context);
    combine(context);
}

/* --------------------------------------- the floor ------------------------------------ */

enum { BASE_FROM, BASE_TO, BASES };

static int peers_of(int *list, const int64_t *rows, const dispatch_ways *it)
{
    int count = 0;
    for (int r = 0; r < (int)it->its->sizes.ranks; r++)
        if (r != it->rank && rows[r] > 0)
            list[count++] = r;
    return count;
}

/* To each peer as many rows as it needs, into the place of this rank there. */
static void open_floor(dispatch_ways *it)
{
    static const int64_t alignments[BASES] = {MIMO_MOST_ALIGNMENT, MIMO_MOST_ALIGNMENT};
    const int64_t ranks = it->its->sizes.ranks, each = it->its->sizes.tokens * it->row_bytes;
    mimo_comm *comm = it->desc.comm;
    int *peers = bench_room(ranks, sizeof *peers), *pushers = bench_room(ranks, sizeof *pushers);
    mimo_push *pushes = bench_room(ranks, sizeof *pushes);
    mimo_placed_copy *rows = bench_room(ranks, sizeof *rows);
    must(mimo_buffer_create(&it->floor, comm, ranks * each));
    char *const own = mimo_buffer_data(it->floor), *bases[BASES] = {it->tokens, own};
    mimo_messages messages = {.alignments = alignments, .base_count = BASES};
    messages.pushes = (mimo_pushes){.buffer = it->floor,
                                    .list = pushes,
                                    .count = peers_of(peers, it->its->once.to, it),
                                    .pushers = pushers,
                                    .pusher_count = peers_of(pushers, it->its->once.from, it),
                                    .ctas = it->desc.ctas};
    for (int i = 0; i < messages.pushes.count; i++) {
        intptr_t distance = (intptr_t)it->floor->data[peers[i]] - (intptr_t)own;
        mimo_rows run = {NULL, it->row_bytes, 0, 1, 1, it->its->once.to[peers[i]], 1};
        rows[i] =
            (mimo_placed_copy){{run, {BASE_TO, distance + it->rank * each}}, {run, {BASE_FROM, 0}}};
        pushes[i] = (mimo_push){peers[i], 1, &rows[i]};
    }
    must(comm->backend->exchange_create(&it->push, comm, &messages));
    must(comm->backend->exchange_bind(it->push, bases, 1));
    free(peers);
    free(pushers);
    free(pushes);
    free(rows);
}

static void push_as_much(void *context)
{
    dispatch_ways *it = context;
    mimo_request *request = NULL;
    mimo_comm *comm = it->desc.comm;
    must(comm->backend->exchange_start(&request, comm, it->push, it->desc.stream));
    must(mimo_wait(comm, &request, "floor"));
}

/* -------------------------------------- other ways ------------------------------------ */

static void move_by_rank(const dispatch_ways *it, void *to, const void *from,
                         const routing_counts *counts, int back)
{
    const place_rows rows = {back ? counts->from : counts->to, back ? counts->to : counts->from,
                             it->row_bytes};
    it->desc.place->exchange(to, from, &rows);
}

static void select_rows(const dispatch_ways *it, void *to, const void *from, const int32_t *index,
                        int64_t rows)
{
    it->desc.place->select(to, from, index, rows, it->row_bytes);
}

static void move_per_pair(void *context)
{
    dispatch_ways *it = context;
    select_rows(it, it->sent, it->tokens, it->lists.pair_tokens, it->its->pairs.sent);
    move_by_rank(it, it->received, it->sent, &it->its->pairs, 0);
    select_rows(it, it->tile, it->received, it->lists.tile_of_pairs, it->its->rows);
}

static void move_once(void *context)
{
    dispatch_ways *it = context;
    select_rows(it, it->sent, it->tokens, it->lists.once_tokens, it->its->once.sent);
    move_by_rank(it, it->received, it->sent, &it->its->once, 0);
    select_rows(it, it->tile, it->received, it->lists.tile_of_once, it->its->rows);
}

static void gather_and_select(void *context)
{
    dispatch_ways *it = context;
    it->desc.place->gather(it->received, it->tokens, it->its->sizes.tokens * it->row_bytes);
    select_rows(it, it->tile, it->received, it->lists.tile_of_all, it->its->rows);
}

static void send_back_and_add(void *context)
{
    dispatch_ways *it = context;
    const void *tile = mimo_buffer_data(it->tiles);
    select_rows(it, it->received, tile, it->lists.pairs_of_tile, it->its->rows);
    move_by_rank(it, it->sent, it->received, &it->its->pairs, 1);
    it->desc.place->add(it->back, it->sent, &it->lists.tokens_of_pairs, it->desc.hidden, 0);
}

static void add_and_scatter(void *context)
{
    dispatch_ways *it = context;
    const void *tile = mimo_buffer_data(it->tiles);
    it->desc.place->add(it->wide, tile, &it->lists.all_of_tile, it->desc.hidden, 1);
    it->desc.place->scatter_sums(it->wide_sums, it->wide, it->its->sizes.tokens * it->desc.hidden);
}

static const place_call calls[WAYS] = {[WAY_FLOOR] = push_as_much,
                                       [WAY_ROUTE] = set_route,
                                       [WAY_ROWS] = move_rows,
                                       [WAY_COMBINE] = combine,
                                       [WAY_ALL] = do_all,
                                       [WAY_PER_PAIR] = move_per_pair,
                                       [WAY_ONCE] = move_once,
                                       [WAY_GATHERED] = gather_and_select,
                                       [WAY_ADDED] = send_back_and_add,
                                       [WAY_SCATTERED] = add_and_scatter};

/* NULL: the way is called, not replayed. */
static void *graph_of(dispatch_ways *it, dispatch_way way)
{
    const dispatch_place *place = it->desc.place;
    if (!it->graphs[way] && place->record && (it->desc.graph || way == WAY_ALL))
        it->graphs[way] = place->record(calls[way], it);
    return it->graphs[way];
}

/* --------------------------------------- its life ------------------------------------- */

static void *near(const dispatch_ways *it, const void *list, int64_t bytes)
{
    void *made = it->desc.place->room(bytes);
    it->desc.place->put(made, list, bytes);
    return made;
}

static int32_t *near_list(const dispatch_ways *it, const int32_t *list, int64_t count)
{
    return near(it, list, count * (int64_t)sizeof *list);
}

static routing_sums near_sums(const dispatch_ways *it, const routing_sums *sums)
{
    return (routing_sums){sums->count, near_list(it, sums->begin, sums->count + 1),
                          near_list(it, sums->leaf, sums->begin[sums->count])};
}

static void open_lists(dispatch_ways *it)
{
    const routing *its = it->its;
    it->lists = (near_lists){.pair_tokens = near_list(it, its->pair_tokens, its->pairs.sent),
                             .once_tokens = near_list(it, its->once_tokens, its->once.sent),
                             .tile_of_pairs = near_list(it, its->tile_of_pairs, its->rows),
                             .tile_of_once = near_list(it, its->tile_of_once, its->rows),
                             .tile_of_all = near_list(it, its->tile_of_all, its->rows),
                             .pairs_of_tile = near_list(it, its->pairs_of_tile, its->rows),
                             .tokens_of_pairs = near_sums(it, &its->tokens_of_pairs),
                             .all_of_tile = near_sums(it, &its->all_of_tile)};
    it->ids = near_list(it, its->ids, its->sizes.tokens * its->sizes.top_k);
}

/* Whole numbers below 8: sums of up to 32 of them are exact in bf16. */
static void fill_tokens(dispatch_ways *it)
{
    int64_t count = it->its->sizes.tokens * it->desc.hidden;
    uint16_t *values = bench_room(count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        uint64_t mixed = ((uint64_t)it->rank * (uint64_t)count + (uint64_t)i) * 2654435761U;
        values[i] = mimo_bf16_from((float)(mixed >> 11 & 7));
    }
    it->tokens = near(it, values, count * 2);
    free(values);
}

static void open_rooms(dispatch_ways *it)
{
    const dispatch_place *place = it->desc.place;
    int64_t tokens = it->its->sizes.tokens, all = it->its->sizes.ranks * tokens;
    int64_t most = it->its->rows > all ? it->its->rows : all;
    it->sums = place->room(tokens * it->row_bytes);
    it->back = place->room(tokens * it->row_bytes);
    it->sent = place->room(it->its->pairs.sent * it->row_bytes);
    it->received = place->room(most * it->row_bytes);
    it->tile = place->room(it->its->rows * it->row_bytes);
    it->wide = place->room(all * it->desc.hidden * 4);
    it->wide_sums = place->room(tokens * it->desc.hidden * 4);
}

dispatch_ways *dispatch_ways_new(const ways_desc *desc, const routing *its)
{
    dispatch_ways *made = bench_room(1, sizeof *made);
    *made = (dispatch_ways){.desc = *desc, .its = its, .row_bytes = desc->hidden * 2};
    made->rank = mimo_comm_rank(desc->comm);
    open_lists(made);
    fill_tokens(made);
    open_rooms(made);
    open_dispatch(made);
    open_floor(made);
    return made;
}

void dispatch_ways_free(dispatch_ways *it)
{
    const near_lists *lists = &it->lists;
    void *const rooms[] = {lists->pair_tokens,
                           lists->once_tokens,
                           lists->tile_of_pairs,
                           lists->tile_of_once,
                           lists->tile_of_all,
                           lists->pairs_of_tile,
                           lists->tokens_of_pairs.begin,
                           lists->tokens_of_pairs.leaf,
                           lists->all_of_tile.begin,
                           lists->all_of_tile.leaf,
                           it->ids,
                           it->tokens,
                           it->sums,
                           it->back,
                           it->sent,
                           it->received,
                           it->tile,
                           it->wide,
                           it->wide_sums};
    for (int way = 0; way < WAYS; way++)
        if (it->graphs[way])
            it->desc.place->forget(it->graphs[way]);
    it->desc.comm->backend->exchange_destroy(it->push);
    mimo_route_destroy(it->route);
    mimo_dispatch_destroy(it->dispatch);
    mimo_buffer_destroy(it->floor);
    mimo_buffer_destroy(it->tiles);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        it->desc.place->release(rooms[i]);
    free(it);
}

/* -------------------------------------- the check ------------------------------------- */

/* Whether two tensors have equal bytes here. */
static bool same(const dispatch_ways *it, const void *one, const void *other, int64_t bytes)
{
    char *a = bench_room(bytes, 1), *b = bench_room(bytes, 1);
    it->desc.place->take(a, one, bytes);
    it->desc.place->take(b, other, bytes);
    bool equal = memcmp(a, b, (size_t)bytes) == 0;
    free(a);
    free(b);
    return equal;
}

/* Sums in f32, beside those that were rounded: whole numbers, so they are equal. */
static bool same_sums(const dispatch_ways *it)
{
    int64_t count = it->its->sizes.tokens * it->desc.hidden;
    uint16_t *narrow = bench_room(count, sizeof *narrow);
    float *wide = bench_room(count, sizeof *wide);
    bool equal = true;
    it->desc.place->take(narrow, it->sums, count * 2);
    it->desc.place->take(wide, it->wide_sums, count * 4);
    for (int64_t i = 0; i < count; i++)
        equal = equal && wide[i] == mimo_bf16_to(narrow[i]);
    free(narrow);
    free(wide);
    return equal;
}

static bool brings_the_same(const dispatch_ways *it, dispatch_way way)
{
    if (way == WAY_PER_PAIR || way == WAY_ONCE || way == WAY_GATHERED)
        return same(it, it->tile, mimo_buffer_data(it->tiles), it->its->rows * it->row_bytes);
    if (way == WAY_ADDED)
        return same(it, it->back, it->sums, it->its->sizes.tokens * it->row_bytes);
    return way != WAY_SCATTERED || same_sums(it);
}

dispatch_way dispatch_ways_check(dispatch_ways *it)
{
    for (int way = 0; way < WAYS; way++) {
        calls[way](it); /* a first call is no graph's: NCCL may connect ranks in it */
        void *graph = graph_of(it, (dispatch_way)way);
        if (graph)
            it->desc.place->replay(graph);
        int differs = !brings_the_same(it, (dispatch_way)way);
        MPI_Allreduce(MPI_IN_PLACE, &differs, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (differs)
            return (dispatch_way)way;
    }
    return WAYS;
}

double dispatch_ways_time(dispatch_ways *it, dispatch_way way, int count)
{
    const dispatch_place *place = it->desc.place;
    void *graph = graph_of(it, way);
    double us =
        graph ? place->time(place->replay, graph, count) : place->time(calls[way], it, count);
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}
