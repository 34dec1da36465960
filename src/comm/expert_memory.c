#include "comm/expert_memory.h"

#include "core/checked.h"
#include "core/sum_program.h"

/* --------------------------------------- shape -------------------------------------- */

static mimo_status check_sizes(const mimo_expert_sizes *it)
{
    MIMO_CHECK(it->top_k <= MIMO_EXPERT_MOST_TOP_K, MIMO_ERR_UNSUPPORTED,
               "top_k %" PRId64 ", and kernels add at most %d rows of a token", it->top_k,
               (int)MIMO_EXPERT_MOST_TOP_K);
    MIMO_CHECK(it->etp <= MIMO_EXPERT_MOST_ETP, MIMO_ERR_UNSUPPORTED,
               "etp=%" PRId64 ", and kernels add at most %d parts of a row", it->etp,
               (int)MIMO_EXPERT_MOST_ETP);
    MIMO_CHECK(it->experts <= MIMO_EXPERT_MOST, MIMO_ERR_UNSUPPORTED,
               "%" PRId64 " experts, and kernels place rows of at most %d", it->experts,
               (int)MIMO_EXPERT_MOST);
    MIMO_CHECK(it->max_tokens * it->top_k <= MIMO_EXPERT_MOST_PAIRS, MIMO_ERR_UNSUPPORTED,
               "%" PRId64 " tokens, top_k %" PRId64
               ", and kernels place at most %d pairs of a rank",
               it->max_tokens, it->top_k, (int)MIMO_EXPERT_MOST_PAIRS);
    MIMO_CHECK(it->tensors <= MIMO_EXPERT_MOST_TENSORS, MIMO_ERR_UNSUPPORTED,
               "%" PRId64 " tensors of a call, and kernels take at most %d", it->tensors,
               (int)MIMO_EXPERT_MOST_TENSORS);
    MIMO_CHECK(it->max_tokens <= INT32_MAX / 2 && it->alignment <= INT32_MAX / 2,
               MIMO_ERR_UNSUPPORTED, "%" PRId64 " tokens, alignment %" PRId64 ": more than %d",
               it->max_tokens, it->alignment, INT32_MAX / 2);
    return MIMO_OK;
}

static int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

mimo_status mimo_expert_shape_read(mimo_expert_shape *out, const mimo_expert_sizes *it)
{
    MIMO_TRY(check_sizes(it));
    const int64_t ep = it->ranks / it->etp, own = it->top_k < ep ? it->top_k : ep;
    const bool narrow = it->top_k <= MIMO_PROGRAM_LEAVES_1 && it->etp <= MIMO_PROGRAM_LEAVES_1;
    *out = (mimo_expert_shape){
        .ranks = (int32_t)it->ranks,
        .etp = (int32_t)it->etp,
        .ep = (int32_t)ep,
        .experts = (int32_t)it->experts,
        .held = (int32_t)(it->experts / ep),
        .by_held = mimo_divisor_of((uint32_t)(it->experts / ep)),
        .top_k = (int32_t)it->top_k,
        .alignment = (int32_t)it->alignment,
        .max_tokens = (int32_t)it->max_tokens,
        .by_tokens = mimo_divisor_of(it->max_tokens > 0 ? (uint32_t)it->max_tokens : 1),
        .tensors = (int32_t)it->tensors,
        .sums = (int32_t)it->sums,
        .returns = (int32_t)(own * it->etp),
        .words = narrow ? 1 : 2,
        .return_bytes = round_up(it->return_bytes, 16),
        .flat_bytes = round_up(it->flat_bytes, 16)};
    return MIMO_OK;
}

/* ------------------------------- parts, one after the other ------------------------- */

typedef struct part {
    int64_t *at;
    int64_t numbers[5]; /* bytes of an element, and the lengths of the array */
} part;

static mimo_status place(int64_t *end, const part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t bytes = 1;
        *parts[i].at = *end;
        for (int n = 0; n < 5; n++)
            MIMO_TRY(mimo_mul(&bytes, bytes, parts[i].numbers[n]));
        MIMO_TRY(mimo_add(end, *end, bytes));
        MIMO_TRY(mimo_add(end, *end, MIMO_EXPERT_STEP - 1));
        *end -= *end % MIMO_EXPERT_STEP;
    }
    return MIMO_OK;
}

mimo_status mimo_expert_layout_of(mimo_expert_layout *out, const mimo_expert_shape *it)
{
    const int64_t p = it->ranks, n = it->max_tokens, k = it->top_k, t = it->tensors;
    const int64_t flags = MIMO_EXPERT_PIECES;
    const part parts[] = {
        {&out->arrived, {8, p, MIMO_ROUTE_BLOCKS, 1, 1}},
        {&out->inbox_head, {sizeof(mimo_inbox_head), p, 1, 1, 1}},
        {&out->inbox_count, {4, p, it->experts, 1, 1}},
        {&out->inbox_id, {2, p, n, k, 1}},
        {&out->inbox_place, {4, p, n, k, 1}},
        {&out->row_flags, {4, t, p, n, flags}},
        {&out->return_flags, {4, t, n, it->returns, flags}},
        {&out->pairs, {8, t, p, n, k}},
        {&out->returns, {it->return_bytes, it->sums, n, it->returns, 1}},
        {&out->flat, {it->flat_bytes, it->sums, p, n, 1}},
        {&out->counters, {sizeof(mimo_expert_counters), 1, 1, 1, 1}},
    };
    out->bytes = 0;
    return place(&out->bytes, parts, (int)(sizeof parts / sizeof parts[0]));
}

/* -------------------------------------- tables -------------------------------------- */

typedef struct table_offsets {
    int64_t tokens, capacity, needed, ends, filled, starts, row, x, partial, total, shared;
    int64_t bytes;
} table_offsets;

static mimo_status offsets_of(table_offsets *out, const mimo_expert_shape *it)
{
    const int64_t p = it->ranks, n = it->max_tokens, k = it->top_k, words = it->words;
    const part parts[] = {
        {&out->tokens, {4, p, 1, 1, 1}},        {&out->capacity, {4, p, 1, 1, 1}},
        {&out->needed, {4, it->ep, 1, 1, 1}},   {&out->ends, {4, it->held, 1, 1, 1}},
        {&out->filled, {4, it->held, 1, 1, 1}}, {&out->starts, {4, p, it->experts, 1, 1}},
        {&out->row, {4, p, n, k, 1}},           {&out->x, {2, n, k, 1, 1}},
        {&out->partial, {8, p, n, words, 1}},   {&out->total, {8, n, words, 1, 1}},
        {&out->shared, {8, words, 1, 1, 1}},
    };
    out->bytes = 0;
    return place(&out->bytes, parts, (int)(sizeof parts / sizeof parts[0]));
}

mimo_status mimo_route_tables_bytes(int64_t *bytes, const mimo_expert_shape *shape)
{
    table_offsets offsets;
    MIMO_TRY(offsets_of(&offsets, shape));
    *bytes = offsets.bytes;
    return MIMO_OK;
}

mimo_status mimo_route_tables_place(mimo_route_tables *out, const mimo_expert_shape *shape,
                                    char *at)
{
    table_offsets o;
    MIMO_TRY(offsets_of(&o, shape));
    char *begin = at;
    *out = (mimo_route_tables){
        .tokens = (int32_t *)(void *)(begin + o.tokens),
        .capacity = (int32_t *)(void *)(begin + o.capacity),
        .needed = (int32_t *)(void *)(begin + o.needed),
        .ends = (int32_t *)(void *)(begin + o.ends),
        .filled = (int32_t *)(void *)(begin + o.filled),
        .starts = (int32_t *)(void *)(begin + o.starts),
        .row = (int32_t *)(void *)(begin + o.row),
        .x = (uint16_t *)(void *)(begin + o.x),
        .partial = (uint64_t *)(void *)(begin + o.partial),
        .total = (uint64_t *)(void *)(begin + o.total),
        .shared = (uint64_t *)(void *)(begin + o.shared),
    };
    return MIMO_OK;
}
