/* How experts lie on the ranks of a group, and the ids of all these ranks. Pure. */
#ifndef MIMO_DISPATCH_ROUTE_SHAPE_H
#define MIMO_DISPATCH_ROUTE_SHAPE_H

#include <stdbool.h>

#include <mimo/route.h>

/* What must be the same on all ranks. */
typedef struct mimo_route_shape {
    int64_t ranks, etp, ep; /* ranks = etp * ep */
    int64_t experts, held;  /* E, and E / ep: those that a rank has */
    int64_t top_k, alignment;
} mimo_route_shape;

/* Check the numbers; `name` begins the sentences. MIMO_ERR_ARGUMENT, MIMO_ERR_GRID. */
mimo_status mimo_route_shape_read(mimo_route_shape *out, const mimo_routing *routing,
                                  const char *name);

/* The coordinate of a rank along ep. */
static inline int64_t mimo_route_x(const mimo_route_shape *shape, int64_t rank)
{
    return rank / shape->etp;
}

/* An id as ranks tell it: 16 bits, so that each of them can have all. */
typedef uint16_t mimo_route_id;
enum { MIMO_ROUTE_NONE = 0xffff, MIMO_ROUTE_MOST_EXPERTS = 0xffff };

/* The ids of all ranks, [tokens[r], top_k] of rank r from ids + r * stride on, and the rows that
 * their tiles have. */
typedef struct mimo_route_ids {
    const mimo_route_id *ids;
    int64_t stride;
    const int64_t *tokens, *capacity; /* [ranks] */
} mimo_route_ids;

/* Read what one rank brings, in this version's form. MIMO_ERR_ARGUMENT. */
mimo_status mimo_route_desc_read(mimo_route_desc *out, const mimo_route_desc *desc);

/* Write its ids as 16 bits, all rows of them. MIMO_ERR_SHAPE: one is no expert.
 * MIMO_ERR_UNSUPPORTED: they lie in no host memory. */
mimo_status mimo_route_ids_read(mimo_route_id *out, const mimo_route_desc *desc,
                                const mimo_route_shape *shape);

#endif
