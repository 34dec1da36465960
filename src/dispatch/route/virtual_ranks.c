#include "dispatch/route/virtual_ranks.h"

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/memory.h"

/* What rank r brings. All of the list have the size of the first. */
static mimo_status read_rank(mimo_route_desc *out, const mimo_routing *routing, int64_t rank)
{
    mimo_route_desc element = MIMO_ROUTE_DESC_INIT;
    mimo_status status =
        mimo_read_element(&element, sizeof element, routing->ranks, (int)rank, "route");
    element.size = sizeof element;
    if (status == MIMO_OK)
        status = mimo_route_desc_read(out, &element);
    return status == MIMO_OK ? status : mimo_fail_prefix(status, "rank %" PRId64 ": ", rank);
}

static mimo_status read_sizes(mimo_virtual_ranks *out, const mimo_routing *routing)
{
    mimo_route_desc desc;
    int64_t ranks = out->shape.ranks;
    MIMO_TRY(mimo_reserve(&out->tokens, ranks, sizeof *out->tokens));
    MIMO_TRY(mimo_reserve(&out->capacity, ranks, sizeof *out->capacity));
    for (int64_t rank = 0; rank < ranks; rank++) {
        MIMO_TRY(read_rank(&desc, routing, rank));
        out->tokens[rank] = desc.tokens;
        out->capacity[rank] = desc.capacity;
        if (desc.tokens > out->max_tokens)
            out->max_tokens = desc.tokens;
    }
    return MIMO_OK;
}

static mimo_status read_ids(mimo_virtual_ranks *out, const mimo_routing *routing)
{
    mimo_route_desc desc;
    int64_t stride, all;
    MIMO_TRY(mimo_mul(&stride, out->max_tokens, out->shape.top_k));
    MIMO_TRY(mimo_mul(&all, stride, out->shape.ranks));
    MIMO_TRY(mimo_reserve(&out->list, all, sizeof *out->list));
    for (int64_t rank = 0; rank < out->shape.ranks; rank++) {
        MIMO_TRY(read_rank(&desc, routing, rank));
        mimo_status status = mimo_route_ids_read(out->list + rank * stride, &desc, &out->shape);
        if (status != MIMO_OK)
            return mimo_fail_prefix(status, "rank %" PRId64 ": ", rank);
    }
    out->ids = (mimo_route_ids){out->list, stride, out->tokens, out->capacity};
    return MIMO_OK;
}

mimo_status mimo_virtual_ranks_read(mimo_virtual_ranks *out, const mimo_routing *routing,
                                    const char *name)
{
    mimo_routing own = MIMO_ROUTING_INIT;
    *out = (mimo_virtual_ranks){.max_tokens = 0};
    MIMO_CHECK(routing, MIMO_ERR_ARGUMENT, "%s: routing is NULL", name);
    MIMO_TRY(mimo_read_descriptor(&own, sizeof own, routing, name));
    MIMO_TRY(mimo_route_shape_read(&out->shape, &own, name));
    MIMO_CHECK(own.ranks && own.rank_count <= INT32_MAX, MIMO_ERR_ARGUMENT,
               "%s: ranks at %p, %" PRId64 " of them", name, (const void *)own.ranks,
               own.rank_count);
    MIMO_TRY(read_sizes(out, &own));
    return read_ids(out, &own);
}

void mimo_virtual_ranks_release(mimo_virtual_ranks *ranks)
{
    mimo_release(ranks->list);
    mimo_release(ranks->tokens);
    mimo_release(ranks->capacity);
}

mimo_status mimo_virtual_ranks_route(mimo_route_map *out, const mimo_virtual_ranks *ranks,
                                     int64_t rank)
{
    MIMO_TRY(mimo_route_map_reserve(out, &ranks->shape, rank, ranks->max_tokens));
    mimo_route_map_fill(out, &ranks->ids);
    return MIMO_OK;
}
