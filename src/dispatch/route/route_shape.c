#include "dispatch/route/route_shape.h"

#include "core/checked.h"
#include "core/descriptor.h"

MIMO_DEFINE_INIT(mimo_route_desc, MIMO_ROUTE_DESC_INIT)
MIMO_DEFINE_INIT(mimo_routing, MIMO_ROUTING_INIT)

static mimo_status check_experts(const mimo_routing *it, const char *name)
{
    MIMO_CHECK(it->experts > 0 && it->experts <= MIMO_ROUTE_MOST_EXPERTS, MIMO_ERR_ARGUMENT,
               "%s: %" PRId64 " experts, where 1 to %d are possible", name, it->experts,
               (int)MIMO_ROUTE_MOST_EXPERTS);
    MIMO_CHECK(it->top_k > 0 && it->top_k <= it->experts, MIMO_ERR_ARGUMENT,
               "%s: top_k %" PRId64 " of %" PRId64 " experts", name, it->top_k, it->experts);
    MIMO_CHECK(it->alignment > 0, MIMO_ERR_ARGUMENT, "%s: an alignment of %" PRId64 " rows", name,
               it->alignment);
    MIMO_CHECK(it->etp > 0, MIMO_ERR_ARGUMENT, "%s: etp=%" PRId64, name, it->etp);
    return MIMO_OK;
}

mimo_status mimo_route_shape_read(mimo_route_shape *out, const mimo_routing *it, const char *name)
{
    MIMO_TRY(check_experts(it, name));
    MIMO_CHECK(it->rank_count > 0 && it->rank_count % it->etp == 0, MIMO_ERR_GRID,
               "%s: %" PRId64 " ranks are no multiple of etp=%" PRId64, name, it->rank_count,
               it->etp);
    int64_t ep = it->rank_count / it->etp;
    MIMO_CHECK(it->experts % ep == 0, MIMO_ERR_GRID, "%s: %" PRId64 " experts over ep=%" PRId64,
               name, it->experts, ep);
    *out = (mimo_route_shape){.ranks = it->rank_count,
                              .etp = it->etp,
                              .ep = ep,
                              .experts = it->experts,
                              .held = it->experts / ep,
                              .top_k = it->top_k,
                              .alignment = it->alignment};
    return MIMO_OK;
}

mimo_status mimo_route_desc_read(mimo_route_desc *out, const mimo_route_desc *desc)
{
    mimo_route_desc read = MIMO_ROUTE_DESC_INIT;
    MIMO_CHECK(desc, MIMO_ERR_ARGUMENT, "route: desc is NULL");
    MIMO_TRY(mimo_read_descriptor(&read, sizeof read, desc, "route"));
    MIMO_CHECK(read.tokens >= 0 && read.capacity >= -1, MIMO_ERR_ARGUMENT,
               "route: %" PRId64 " tokens, a capacity of %" PRId64 " rows", read.tokens,
               read.capacity);
    MIMO_CHECK(read.id_dtype == MIMO_I32 || read.id_dtype == MIMO_I64, MIMO_ERR_ARGUMENT,
               "route: ids of %s, where i32 and i64 are possible", mimo_dtype_name(read.id_dtype));
    MIMO_CHECK(read.ids || read.tokens == 0, MIMO_ERR_ARGUMENT,
               "route: ids is NULL, for %" PRId64 " tokens", read.tokens);
    *out = read;
    return MIMO_OK;
}

mimo_status mimo_route_ids_read(mimo_route_id *out, const mimo_route_desc *desc,
                                const mimo_route_shape *shape)
{
    const int32_t *narrow = desc->ids;
    const int64_t *wide = desc->ids;
    MIMO_CHECK(desc->memory == MIMO_MEMORY_HOST, MIMO_ERR_UNSUPPORTED,
               "route: the ids lie in memory of kind %d, and the communicator moves host memory",
               (int)desc->memory);
    for (int64_t i = 0; i < desc->tokens * shape->top_k; i++) {
        int64_t id = desc->id_dtype == MIMO_I32 ? narrow[i] : wide[i];
        MIMO_CHECK(id >= -1 && id < shape->experts, MIMO_ERR_SHAPE,
                   "route: token %" PRId64 ", choice %" PRId64 ": expert %" PRId64 " of %" PRId64,
                   i / shape->top_k, i % shape->top_k, id, shape->experts);
        out[i] = id < 0 ? MIMO_ROUTE_NONE : (mimo_route_id)id;
    }
    return MIMO_OK;
}
