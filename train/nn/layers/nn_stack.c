#include "train/nn/layers/nn_stack.h"

#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

static mimo_status add_block(nn_stack *made, nn_params *params, mimo_comm *tp,
                             const nn_stack_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    int64_t i = made->count;
    const nn_block_kind *kind = desc->kinds ? desc->kinds[i] : &nn_block_dense;
    nn_block_desc block = desc->block;
    int length = snprintf(name, sizeof name, "%s%" PRId64, desc->name, desc->first + i);
    MIMO_CHECK(length < (int)sizeof name, MIMO_ERR_ARGUMENT,
               "%s: the name of block %" PRId64 " has %d bytes, must be below %d", desc->name,
               desc->first + i, length, NN_NAME_CAPACITY);
    block.name = name;
    MIMO_TRY(mimo_reserve(&made->layers[i], 1, kind->layer_size));
    made->kinds[i] = kind;
    made->count++; /* from here on release finds it */
    return kind->init(made->layers[i], params, tp, &block);
}

static mimo_status add_blocks(nn_stack *made, nn_params *params, mimo_comm *tp,
                              const nn_stack_desc *desc)
{
    int64_t rows;
    MIMO_TRY(mimo_mul(&rows, desc->block.max_rows, desc->block.max_batch));
    MIMO_TRY(mimo_mul(&made->elements, rows, desc->block.hidden));
    MIMO_TRY(mimo_reserve(&made->kinds, desc->count, sizeof *made->kinds));
    MIMO_TRY(mimo_reserve(&made->layers, desc->count, sizeof *made->layers));
    while (made->count < desc->count)
        MIMO_TRY(add_block(made, params, tp, desc));
    return MIMO_OK;
}

static mimo_status reserve_states(void ***states, int64_t *count, const nn_stack *stack)
{
    MIMO_TRY(mimo_reserve(states, stack->count, sizeof **states));
    for (*count = 0; *count < stack->count; ++*count)
        MIMO_TRY(mimo_reserve(&(*states)[*count], 1, stack->kinds[*count]->saved_size));
    return MIMO_OK;
}

static void release_states(void **states, int64_t count)
{
    for (int64_t i = 0; states && i < count; i++)
        mimo_release(states[i]);
    mimo_release(states);
}

/* One state is in use at a time, so all begin at the same place. */
static mimo_status place_again(nn_stack *stack)
{
    nn_room *room = &stack->room;
    MIMO_TRY(nn_room_take(room, &stack->output, stack->elements, sizeof *stack->output));
    int64_t begin = room->used, end = begin;
    for (int64_t i = 0; i < stack->count; i++) {
        room->used = begin;
        MIMO_TRY(stack->kinds[i]->saved_place(stack->again[i], stack->layers[i], room));
        end = room->used > end ? room->used : end;
    }
    room->used = end;
    return MIMO_OK;
}

static mimo_status reserve_again(nn_stack *made, const nn_params *params)
{
    int64_t count;
    MIMO_TRY(reserve_states(&made->again, &count, made));
    MIMO_TRY(place_again(made));
    MIMO_TRY(nn_room_reserve(&made->room, nn_params_runtime(params)));
    return place_again(made);
}

mimo_status nn_stack_init(nn_stack *stack, nn_params *params, mimo_comm *tp,
                          const nn_stack_desc *desc)
{
    nn_stack made = {0};
    mimo_status status = add_blocks(&made, params, tp, desc);
    if (status == MIMO_OK && desc->recompute)
        status = reserve_again(&made, params);
    if (status != MIMO_OK) {
        nn_stack_release(&made);
        return status;
    }
    *stack = made;
    return MIMO_OK;
}

void nn_stack_release(nn_stack *stack)
{
    release_states(stack->again, stack->count);
    nn_room_release(&stack->room);
    for (int64_t i = 0; i < stack->count; i++) {
        stack->kinds[i]->release(stack->layers[i]);
        mimo_release(stack->layers[i]);
    }
    mimo_release(stack->kinds);
    mimo_release(stack->layers);
    memset(stack, 0, sizeof *stack);
}

mimo_status nn_stack_saved_init(nn_stack_saved *saved, const nn_stack *stack)
{
    nn_stack_saved made = {0};
    mimo_status status = mimo_reserve(&made.x, stack->count + 1, sizeof *made.x);
    if (status == MIMO_OK && !stack->again)
        status = reserve_states(&made.blocks, &made.count, stack);
    if (status != MIMO_OK) {
        nn_stack_saved_release(&made);
        return status;
    }
    *saved = made;
    return MIMO_OK;
}

mimo_status nn_stack_saved_place(nn_stack_saved *saved, const nn_stack *stack, nn_room *room)
{
    saved->sequence = NULL;
    for (int64_t i = 0; i <= stack->count; i++)
        MIMO_TRY(nn_room_take(room, &saved->x[i], stack->elements, sizeof *saved->x[i]));
    for (int64_t i = 0; i < saved->count; i++)
        MIMO_TRY(stack->kinds[i]->saved_place(saved->blocks[i], stack->layers[i], room));
    return MIMO_OK;
}

void nn_stack_saved_release(nn_stack_saved *saved)
{
    release_states(saved->blocks, saved->count);
    mimo_release(saved->x);
    memset(saved, 0, sizeof *saved);
}

mimo_status nn_stack_forward(const nn_stack *stack, nn_stack_saved *saved,
                             const nn_sequence *sequence)
{
    nn_real **x = saved->x;
    void **states = stack->again ? stack->again : saved->blocks;
    saved->sequence = NULL;
    for (int64_t i = 0; i < stack->count; i++)
        MIMO_TRY(stack->kinds[i]->forward(stack->layers[i], states[i], x[i + 1], x[i], sequence));
    saved->sequence = sequence;
    return MIMO_OK;
}

/* By now x[i + 1] holds its gradient, so the output of this forward goes to a place of its own. */
static mimo_status backward_again(const nn_stack *stack, const nn_stack_saved *saved, int64_t i)
{
    const nn_block_kind *kind = stack->kinds[i];
    const void *layer = stack->layers[i];
    void *state = stack->again[i];
    nn_real *x = saved->x[i], *dy = saved->x[i + 1];
    MIMO_TRY(kind->forward(layer, state, stack->output, x, saved->sequence));
    MIMO_TRY(kind->backward_input(layer, state, x, dy));
    return kind->backward_params(layer, state);
}

static mimo_status backward_block(const nn_stack *stack, const nn_stack_saved *saved, int64_t i)
{
    if (stack->again)
        return backward_again(stack, saved, i);
    return stack->kinds[i]->backward_input(stack->layers[i], saved->blocks[i], saved->x[i],
                                           saved->x[i + 1]);
}

mimo_status nn_stack_backward_input(const nn_stack *stack, nn_stack_saved *saved)
{
    MIMO_CHECK(saved->sequence, MIMO_ERR_STATE, "stack: backward before forward");
    for (int64_t i = stack->count; i-- > 0;)
        MIMO_TRY(backward_block(stack, saved, i));
    saved->sequence = NULL;
    return MIMO_OK;
}

mimo_status nn_stack_backward_params(const nn_stack *stack, nn_stack_saved *saved)
{
    int64_t first = MIMO_MUTATED("dw-of-layer0-dropped") ? 1 : 0;
    for (int64_t i = saved->count; i-- > first;)
        MIMO_TRY(stack->kinds[i]->backward_params(stack->layers[i], saved->blocks[i]));
    return MIMO_OK;
}

mimo_status nn_stack_visit(const nn_stack *stack, nn_lora_visit *visit)
{
    for (int64_t i = 0; i < stack->count; i++)
        MIMO_TRY(stack->kinds[i]->visit(stack->layers[i], visit));
    return MIMO_OK;
}
