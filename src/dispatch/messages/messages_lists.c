#include "dispatch/messages/messages_lists.h"

#include "core/check.h"
#include "core/checked.h"

enum { LISTS = 16, ALIGNMENT = 16 };

/* A list: where it lies in host memory, what it has now, what it may have, and the pointer to it
 * that kernels get. */
typedef struct one_list {
    const void *from;
    int64_t count, most;
    size_t element;
    const void **to;
} one_list;

typedef struct all_lists {
    one_list list[LISTS];
    int count;
} all_lists;

static void add(all_lists *all, one_list list)
{
    all->list[all->count++] = list;
}

#define LIST(field, now, at_most) \
    ((one_list){map->field, (now), (at_most), sizeof *map->field, (const void **)&lists->field})

/* `known`: the map was filled. */
static all_lists list_all(mimo_messages_lists *lists, const mimo_route_map *map, bool known)
{
    const mimo_route_shape *shape = &map->shape;
    const int64_t n = map->max_tokens, k = shape->top_k, all = n * shape->ranks;
    const int64_t choices = k < shape->ep ? k : shape->ep;
    const int64_t in = known ? map->in.begin[shape->ranks] : 0;
    const int64_t out = known ? map->out.begin[shape->ep] : 0;
    const int64_t in_pairs = known ? map->in.pairs[in] : 0;
    const int64_t out_pairs = known ? map->out.pairs[out] : 0;
    const mimo_sum_list none = {0}, *sums = known ? &map->sums : &none;
    const mimo_sum_list *pair_sums = known ? &map->pair_sums : &none;
    const int64_t leaves = known ? sums->begin[sums->count] : 0;
    const int64_t pair_leaves = known ? pair_sums->begin[pair_sums->count] : 0;
    all_lists made = {.count = 0};
    add(&made, LIST(in.pairs, in + 1, all + 1));
    add(&made, LIST(in.row, in_pairs, all * k));
    add(&made, LIST(in.first, in, all));
    add(&made, LIST(out.token, out, n * choices));
    add(&made, LIST(out.pair, out_pairs, n * k));
    add(&made, LIST(partial.adds, in_pairs, all * k));
    add(&made, LIST(sums.begin, sums->count + 1, n + 1));
    add(&made, LIST(sums.leaf, leaves, n * choices * shape->etp));
    add(&made, LIST(sums.adds, leaves, n * choices * shape->etp));
    add(&made, LIST(pair_sums.begin, pair_sums->count + 1, n * k + 1));
    add(&made, LIST(pair_sums.leaf, pair_leaves, n * k * shape->etp));
    add(&made, LIST(pair_sums.adds, pair_leaves, n * k * shape->etp));
    add(&made, LIST(ends, shape->held, shape->held));
    return made;
}

/* ------------------------------------- its life ------------------------------------- */

static mimo_status add_bytes(int64_t *sum, const one_list *list)
{
    int64_t bytes;
    MIMO_TRY(mimo_mul(&bytes, list->most, (int64_t)list->element));
    MIMO_TRY(mimo_add(sum, *sum, bytes));
    MIMO_TRY(mimo_add(sum, *sum, ALIGNMENT - 1));
    *sum = *sum / ALIGNMENT * ALIGNMENT;
    return MIMO_OK;
}

mimo_status mimo_messages_lists_reserve(mimo_messages_lists *lists, const mimo_route_map *map,
                                        const mimo_comm *comm)
{
    int64_t bytes = 0;
    const mimo_device *device = comm->device;
    const all_lists all = list_all(lists, map, false);
    if (!mimo_lists_lie_apart(comm))
        return MIMO_OK;
    for (int i = 0; i < all.count; i++)
        MIMO_TRY(add_bytes(&bytes, &all.list[i]));
    MIMO_TRY(device->reserve(&lists->memory, bytes));
    bytes = 0;
    for (int i = 0; i < all.count; i++) {
        *all.list[i].to = (char *)lists->memory + bytes;
        MIMO_TRY(add_bytes(&bytes, &all.list[i]));
    }
    return device->event_create ? device->event_create(&lists->last) : MIMO_OK;
}

void mimo_messages_lists_release(mimo_messages_lists *lists, const mimo_comm *comm)
{
    if (lists->last)
        comm->device->event_destroy(lists->last);
    if (lists->memory)
        comm->device->release(lists->memory);
    *lists = (mimo_messages_lists){.memory = NULL};
}

/* ------------------------------------ a set, a move --------------------------------- */

mimo_status mimo_messages_lists_fill(mimo_messages_lists *lists, const mimo_route_map *map,
                                     const mimo_comm *comm, mimo_stream stream)
{
    const all_lists all = list_all(lists, map, true);
    MIMO_TRY(mimo_messages_lists_enter(lists, comm, stream));
    for (int i = 0; i < all.count; i++) {
        const one_list *it = &all.list[i];
        if (!lists->memory)
            *it->to = it->from;
        else if (it->count > 0)
            MIMO_TRY(comm->device->upload((void *)*it->to, it->from,
                                          it->count * (int64_t)it->element, stream));
    }
    lists->partial.count = map->partial.count;
    lists->partial.begin = lists->in.pairs; /* a sum of each entry, of its rows */
    lists->partial.leaf = lists->in.row;
    lists->sums.count = map->sums.count;
    lists->pair_sums.count = map->pair_sums.count;
    return mimo_messages_lists_leave(lists, comm, stream);
}

static bool is_recorded(const mimo_device *device, mimo_stream stream)
{
    return device->records && device->records(stream);
}

mimo_status mimo_messages_lists_enter(const mimo_messages_lists *lists, const mimo_comm *comm,
                                      mimo_stream stream)
{
    if (!lists->last || is_recorded(comm->device, stream))
        return MIMO_OK;
    return comm->device->event_wait(lists->last, stream);
}

mimo_status mimo_messages_lists_leave(const mimo_messages_lists *lists, const mimo_comm *comm,
                                      mimo_stream stream)
{
    if (!lists->last || is_recorded(comm->device, stream))
        return MIMO_OK;
    return comm->device->event_record(lists->last, stream);
}
