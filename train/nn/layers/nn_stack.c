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
static mimo_status place_again(nn_stack *stack, nn_stack_again *again)
{
    nn_room *room = &stack->room;
    MIMO_TRY(nn_room_take(room, &again->output, stack->elements, sizeof *again->output));
    int64_t begin = room->used, end = begin;
    for (int64_t i = 0; i < stack->count; i++) {
        room->used = begin;
        MIMO_TRY(stack->kinds[i]->saved_place(again->states[i], stack->layers[i], room));
        end = room->used > end ? room->used : end;
    }
    room->used = end;
    return MIMO_OK;
}

static mimo_status place_all_again(nn_stack *stack)
{
    for (int64_t i = 0; i < stack->in_flight; i++)
        MIMO_TRY(place_again(stack, &stack->again[i]));
    return MIMO_OK;
}

static mimo_status reserve_again(nn_stack *made, const nn_params *params, int64_t in_flight)
{
    int64_t count;
    MIMO_TRY(mimo_reserve(&made->again, in_flight, sizeof *made->again));
    made->in_flight = in_flight; /* from here on release finds them */
    for (int64_t i = 0; i < in_flight; i++)
        MIMO_TRY(reserve_states(&made->again[i].states, &count, made));
    MIMO_TRY(place_all_again(made));
    MIMO_TRY(nn_room_reserve(&made->room, nn_params_runtime(params)));
    return place_all_again(made);
}

mimo_status nn_stack_init(nn_stack *stack, nn_params *params, mimo_comm *tp,
                          const nn_stack_desc *desc)
{
    nn_stack made = {0};
    mimo_status status = add_blocks(&made, params, tp, desc);
    if (status == MIMO_OK && desc->recompute)
        status = reserve_again(&made, params, desc->in_flight > 1 ? desc->in_flight : 1);
    if (status != MIMO_OK) {
        nn_stack_release(&made);
        return status;
    }
    *stack = made;
    return MIMO_OK;
}

void nn_stack_release(nn_stack *stack)
{
    for (int64_t i = 0; i < stack->in_flight; i++)
        release_states(stack->again[i].states, stack->count);
    mimo_release(stack->again);
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
    nn_stack_abandon(saved);
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

/* -------------------------------------------- parts ------------------------------------------ */

static unsigned parts_of(const nn_stack *stack, int64_t block)
{
    unsigned parts = 0;
    for (int p = 0; p < NN_PARTS; p++)
        if (stack->kinds[block]->parts[p])
            parts |= 1u << p;
    return parts;
}

static void give_back(nn_stack_saved *saved)
{
    if (saved->again)
        saved->again->user = NULL;
    saved->again = NULL;
}

void nn_stack_abandon(nn_stack_saved *saved)
{
    give_back(saved);
    saved->sequence = NULL;
}

/* Room for the block whose parts begin, or go on. */
static mimo_status take_again(const nn_stack *stack, nn_stack_saved *saved)
{
    for (int64_t i = 0; i < stack->in_flight && !saved->again; i++)
        if (!stack->again[i].user)
            saved->again = &stack->again[i];
    MIMO_CHECK(saved->again, MIMO_ERR_STATE,
               "stack: recompute has room for parts of %" PRId64
               " micro-batches, and all are taken",
               stack->in_flight);
    saved->again->user = saved;
    return MIMO_OK;
}

/* The last block of forward is the first one of backward. */
static void turn_back(const nn_stack *stack, nn_stack_saved *saved)
{
    saved->pass = stack->again ? NN_PASS_AGAIN : NN_PASS_INPUT;
    saved->block = stack->count - 1;
}

/* A pass through a block is over. */
static void go_on(const nn_stack *stack, nn_stack_saved *saved)
{
    saved->done = 0;
    if (saved->pass == NN_PASS_FORWARD) {
        give_back(saved);
        if (++saved->block == stack->count)
            turn_back(stack, saved);
        return;
    }
    if (stack->again && saved->pass != NN_PASS_PARAMS) {
        saved->pass = saved->pass == NN_PASS_AGAIN ? NN_PASS_INPUT : NN_PASS_PARAMS;
        return;
    }
    give_back(saved);
    saved->pass = stack->again ? NN_PASS_AGAIN : NN_PASS_INPUT;
    if (saved->block-- == 0)
        saved->sequence = NULL;
}

mimo_status nn_stack_begin(const nn_stack *stack, nn_stack_saved *saved,
                           const nn_sequence *sequence)
{
    nn_stack_abandon(saved);
    MIMO_CHECK(sequence, MIMO_ERR_ARGUMENT, "stack: NULL sequence");
    saved->sequence = sequence;
    saved->pass = NN_PASS_FORWARD;
    saved->block = 0;
    saved->done = 0;
    if (stack->count == 0)
        turn_back(stack, saved);
    return MIMO_OK;
}

bool nn_stack_next(nn_stack_node *out, const nn_stack *stack, const nn_stack_saved *saved)
{
    if (!saved->sequence || saved->block < 0)
        return false;
    unsigned left = parts_of(stack, saved->block) & ~saved->done;
    for (int i = 0; i < NN_PARTS; i++) {
        nn_block_part part = nn_part_in_order(saved->pass, i);
        if (!(left & 1u << part))
            continue;
        *out = (nn_stack_node){saved->pass, saved->block, part};
        return true;
    }
    return false;
}

static const char *name_of(nn_pass pass)
{
    static const char *const names[] = {
        [NN_PASS_FORWARD] = "forward",
        [NN_PASS_AGAIN] = "forward again",
        [NN_PASS_INPUT] = "the input's half of backward",
        [NN_PASS_PARAMS] = "the parameters' half of backward",
    };
    return names[pass];
}

/* Whether it is this part's turn. */
static mimo_status check_turn(const nn_stack *stack, const nn_stack_saved *saved, nn_stack_node at)
{
    MIMO_CHECK(saved->sequence, MIMO_ERR_STATE, "stack: %s",
               at.pass == NN_PASS_FORWARD ? "forward of no sequence" : "backward before forward");
    MIMO_CHECK(at.pass == saved->pass && at.block == saved->block, MIMO_ERR_STATE,
               "stack: %s of block %" PRId64 ", where it is the turn of %s of block %" PRId64,
               name_of(at.pass), at.block, name_of(saved->pass), saved->block);
    unsigned parts = parts_of(stack, at.block);
    unsigned missing = nn_part_needs(at.pass, at.part) & parts & ~saved->done;
    for (int p = 0; p < NN_PARTS; p++)
        MIMO_CHECK(!(missing & 1u << p), MIMO_ERR_STATE,
                   "stack: %s of block %" PRId64 ": part %s needs part %s, which has not begun",
                   name_of(at.pass), at.block, nn_part_name(at.part),
                   nn_part_name((nn_block_part)p));
    MIMO_CHECK(!(saved->done & 1u << at.part), MIMO_ERR_STATE,
               "stack: %s of block %" PRId64 ": part %s a second time", name_of(at.pass), at.block,
               nn_part_name(at.part));
    return MIMO_OK;
}

/* In backward x[i] becomes its gradient, so the output of a repeated forward goes elsewhere. */
static nn_block_call call_of(const nn_stack_saved *saved, nn_stack_node at)
{
    nn_real *before = saved->x[at.block], *behind = saved->x[at.block + 1];
    if (!nn_pass_is_forward(at.pass))
        return (nn_block_call){.pass = at.pass, .dx = before, .dy = behind};
    return (nn_block_call){.pass = at.pass,
                           .x = before,
                           .y = at.pass == NN_PASS_AGAIN ? saved->again->output : behind,
                           .sequence = saved->sequence};
}

static mimo_status run(mimo_op **move, const nn_stack *stack, nn_stack_saved *saved,
                       nn_stack_node at)
{
    void **states = stack->again ? saved->again->states : saved->blocks;
    nn_block_call call = call_of(saved, at);
    MIMO_TRY(nn_block_run(stack->kinds[at.block], at.part, stack->layers[at.block],
                          states[at.block], &call));
    *move = call.move;
    return MIMO_OK;
}

mimo_status nn_stack_run(mimo_op **move, const nn_stack *stack, nn_stack_saved *saved,
                         nn_stack_node at)
{
    *move = NULL;
    MIMO_CHECK(at.block >= 0 && at.block < stack->count && (unsigned)at.part < NN_PARTS,
               MIMO_ERR_ARGUMENT, "stack: part %d of block %" PRId64 " of %" PRId64, (int)at.part,
               at.block, stack->count);
    if (at.pass == NN_PASS_PARAMS && !stack->again)
        return run(move, stack, saved, at);
    if (!stack->kinds[at.block]->parts[at.part])
        return MIMO_OK;
    MIMO_TRY(check_turn(stack, saved, at));
    if (stack->again)
        MIMO_TRY(take_again(stack, saved));
    mimo_status status = run(move, stack, saved, at);
    if (status != MIMO_OK) {
        nn_stack_abandon(saved);
        return status;
    }
    saved->done |= 1u << at.part;
    if (saved->done == parts_of(stack, at.block))
        go_on(stack, saved);
    return MIMO_OK;
}

/* ------------------------------------------ plain walks --------------------------------------- */

static mimo_status run_to_its_end(const nn_stack *stack, nn_stack_saved *saved, nn_stack_node at)
{
    mimo_op *move;
    MIMO_TRY(nn_stack_run(&move, stack, saved, at));
    mimo_status status = mimo_op_wait(&move);
    if (status != MIMO_OK)
        nn_stack_abandon(saved);
    return status;
}

mimo_status nn_stack_forward(const nn_stack *stack, nn_stack_saved *saved,
                             const nn_sequence *sequence)
{
    nn_stack_node at;
    MIMO_TRY(nn_stack_begin(stack, saved, sequence));
    while (nn_stack_next(&at, stack, saved) && at.pass == NN_PASS_FORWARD)
        MIMO_TRY(run_to_its_end(stack, saved, at));
    return MIMO_OK;
}

mimo_status nn_stack_backward_input(const nn_stack *stack, nn_stack_saved *saved)
{
    nn_stack_node at;
    MIMO_CHECK(saved->sequence && saved->pass != NN_PASS_FORWARD, MIMO_ERR_STATE,
               "stack: backward before forward");
    while (nn_stack_next(&at, stack, saved))
        MIMO_TRY(run_to_its_end(stack, saved, at));
    saved->sequence = NULL;
    return MIMO_OK;
}

mimo_status nn_stack_backward_params(const nn_stack *stack, nn_stack_saved *saved)
{
    int64_t first = MIMO_MUTATED("dw-of-layer0-dropped") ? 1 : 0;
    for (int64_t i = saved->count; i-- > first;)
        for (int p = NN_PARTS; p-- > 0;)
            MIMO_TRY(
                run_to_its_end(stack, saved, (nn_stack_node){NN_PASS_PARAMS, i, (nn_block_part)p}));
    return MIMO_OK;
}

mimo_status nn_stack_visit(const nn_stack *stack, nn_lora_visit *visit)
{
    for (int64_t i = 0; i < stack->count; i++)
        MIMO_TRY(stack->kinds[i]->visit(stack->layers[i], visit));
    return MIMO_OK;
}
