/* Stacks with mixtures of experts on real ranks, and what a test reads of them. */
#ifndef MIMO_TESTS_STACK_BED_H
#define MIMO_TESTS_STACK_BED_H

#include "mixture_bed.h"

enum { S = 12, B = TOKENS / S, HEADS = 2, LORA = 2, MOST_GRADS = 1 << 16 };

/* How the blocks of a stack run. */
typedef struct stack_case {
    nn_order order;
    int64_t shared;
    bool adapted, sp;
    nn_recompute recompute;
    int64_t in_flight;
} stack_case;

/* The blocks first, ..., first + count - 1 of a model of these kinds. */
static inline void open_stack(nn_stack *stack, layer_bed *on, const stack_case *c,
                              const nn_block_kind *const *kinds, int64_t first, int64_t count)
{
    static const nn_lora_selection adapters = {.adapter = {.rank = LORA, .alpha = 3, .b_std = 0.3}};
    const nn_mixture mixture = {.dispatch = on->dispatch,
                                .inner = F,
                                .shared = c->shared,
                                .scores = NN_SCORES_ALL,
                                .balance = 0.1};
    const nn_stack_desc desc = {.name = "block",
                                .first = first,
                                .count = count,
                                .kinds = kinds + first,
                                .recompute = c->recompute,
                                .in_flight = c->in_flight,
                                .block = {.hidden = H,
                                          .heads = HEADS,
                                          .inner = F,
                                          .max_rows = S,
                                          .max_batch = B,
                                          .std = 0.3,
                                          .out_std = 0.3,
                                          .sp = c->sp,
                                          .adapters = c->adapted ? &adapters : NULL,
                                          .mixture = &mixture}};
    MPI_EXPECT_OK(nn_stack_init(stack, on->params, on->tp, &desc));
}

static inline void place_stack(nn_stack_saved *saved, nn_room *room, const nn_stack *stack,
                               const nn_runtime *runtime)
{
    MPI_EXPECT_OK(nn_stack_saved_init(saved, stack));
    MPI_EXPECT_OK(nn_stack_saved_take(saved, stack, room));
    MPI_EXPECT_OK(nn_room_reserve(room, runtime));
    MPI_EXPECT_OK(nn_stack_saved_take(saved, stack, room));
}

static inline void release_stack(nn_stack_saved *saved, nn_room *room)
{
    nn_stack_saved_release(saved);
    nn_room_release(room);
}

/* The gradients of all parameters that this rank holds, of a step whose moves are over. */
static inline void read_grads(float grads[MOST_GRADS], nn_params *params)
{
    int64_t used = 0;
    MPI_EXPECT_OK(nn_params_settle(params, 1));
    for (int i = 0; i < nn_params_count(params); i++) {
        const nn_param *param = nn_params_at(params, i);
        int64_t count = param->held ? param->count : 0;
        MPI_EXPECT(used + count <= MOST_GRADS, "%d elements", (int)used);
        if (count > 0)
            MPI_EXPECT_OK(nn_params_read(params, i, NN_GRAD, grads + used));
        used += count;
    }
}

#endif
