/* Rounds: what the legs of a round move, and the sums that follow. */
#include "bridge/routed_round.h"

#include "core/memory.h"
#include "core/mutation.h"

mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm, const mimo_push_rule *rule)
{
    const mimo_legs legs = {round->legs, round->count};
    mimo_message_maker maker = {0};
    mimo_status status = mimo_messages_make(&maker, &legs);
    maker.made.pushes.idle = rule->idle;
    maker.made.pushes.ctas = rule->ctas;
    if (rule->flags && maker.made.pushes.buffer)
        maker.made.pushes.buffer = rule->flags;
    if (status == MIMO_OK)
        status = comm->backend->exchange_create(&round->exchange, comm, &maker.made);
    mimo_messages_release(&maker);
    return status;
}

void mimo_round_release(mimo_round *round, mimo_comm *comm)
{
    comm->backend->exchange_destroy(round->exchange);
    mimo_release(round->legs);
}

mimo_status mimo_round_move(mimo_request **out, const mimo_round *round, mimo_comm *comm,
                            mimo_stream stream)
{
    return comm->backend->exchange_start(out, comm, round->exchange, stream);
}

mimo_status mimo_round_add(const mimo_round *round, mimo_comm *comm, mimo_stream stream)
{
    for (int i = 0; i < round->count && round->classes > 1; i++) {
        const mimo_leg *leg = &round->legs[i];
        int64_t elements = leg->bytes / (int64_t)mimo_dtype_size(leg->dtype);
        mimo_parts parts = {.data = leg->to,
                            .parts = leg->classes,
                            .n = round->classes - 1,
                            .step = elements,
                            .stretches = 1,
                            .count = elements,
                            .dtype = leg->dtype};
        if (MIMO_MUTATED("first-class-only"))
            continue;
        if (MIMO_MUTATED("class-behind") && leg->bytes > 0) {
            parts.count -= leg->row_bytes / (int64_t)mimo_dtype_size(leg->dtype);
            parts.data = leg->to + leg->row_bytes;
        }
        MIMO_TRY(comm->device->add_parts(&parts, stream));
    }
    return MIMO_OK;
}
