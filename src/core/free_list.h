/* A list of objects that wait for their next use. Each object begins with a mimo_free_item. */
#ifndef MIMO_CORE_FREE_LIST_H
#define MIMO_CORE_FREE_LIST_H

#include <stddef.h>
#include <stdint.h>

typedef struct mimo_free_item {
    struct mimo_free_item *next;
    int64_t count, bytes; /* the object's capacities */
} mimo_free_item;

static inline void mimo_free_list_put(mimo_free_item **list, mimo_free_item *item)
{
    item->next = *list;
    *list = item;
}

/* Take the smallest object with these capacities, by bytes; NULL where there is none. So a small
 * operation leaves the large object to the call that it was made for. */
static inline void *mimo_free_list_take(mimo_free_item **list, int64_t count, int64_t bytes)
{
    mimo_free_item **best = NULL;
    for (mimo_free_item **link = list; *link; link = &(*link)->next)
        if ((*link)->count >= count && (*link)->bytes >= bytes &&
            (!best || (*link)->bytes < (*best)->bytes))
            best = link;
    if (!best)
        return NULL;
    mimo_free_item *found = *best;
    *best = found->next;
    return found;
}

#endif
