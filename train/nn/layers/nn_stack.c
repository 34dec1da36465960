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

/* Whether the rows of experts stay where they are. */
static bool keeps(const nn_stack *stack)
{
    return stack->recompute == NN_RECOMPUTE_KEEP_ROWS;
}

static mimo_status place_state(const nn_stack *stack, void *state, int64_t i, nn_room *room)
{
    const nn_block_kind *kind = stack->kinds[i];
    return kind->keeping ? kind->keeping->again_place(state, stack->layers[i], room, keeps(stack))
                         : kind->saved_take(state, stack->layers[i], room);
}

/* One state is in use at a time, so all begin at the same place. */
static mimo_status place_again(nn_stack *stack, nn_stack_again *again)
{
    nn_room *room = &stack->room;
    MIMO_TRY(nn_room_take(room, &again->output, stack->elements, sizeof *again->output));
    int64_t begin = room->used, end = begin;
    for (int64_t i = 0; i < stack->count; i++) {
        room->used = begin;
        MIMO_TRY(place_state(stack, again->states[i], i, room));
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
    nn_stack made = {.recompute = desc->recompute};
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

static mimo_status reserve_kept(nn_stack_saved *made, const nn_stack *stack)
{
    MIMO_TRY(mimo_reserve(&made->kept, stack->count, sizeof *made->kept));
    for (made->keeping = 0; made->keeping < stack->count; made->keeping++) {
        const nn_block_keeping *keeping = stack->kinds[made->keeping]->keeping;
        if (keeping)
            MIMO_TRY(mimo_reserve(&made->kept[made->keeping], 1, keeping->size));
    }
    return MIMO_OK;
}

mimo_status nn_stack_saved_init(nn_stack_saved *saved, const nn_stack *stack)
{
    nn_stack_saved made = {0};
    mimo_status status = mimo_reserve(&made.x, stack->count + 1, sizeof *made.x);
    if (status == MIMO_OK)
        status = stack->again ? reserve_kept(&made, stack)
                              : reserve_states(&made.blocks, &made.count, stack);
    if (status != MIMO_OK) {
        nn_stack_saved_release(&made);
        return status;
    }
    *saved = made;
    return MIMO_OK;
}

mimo_status nn_stack_saved_take(nn_stack_saved *saved, const nn_stack *stack, nn_room *room)
{
    nn_stack_abandon(saved);
    for (int64_t i = 0; i <= stack->count; i++)
        MIMO_TRY(nn_room_take(room, &saved->x[i], stack->elements, sizeof *saved->x[i]));
    for (int64_t i = 0; i < saved->count; i++)
        MIMO_TRY(stack->kinds[i]->saved_take(saved->blocks[i], stack->layers[i], room));
    for (int64_t i = 0; i < saved->keeping; i++)
        if (saved->kept[i])
            MIMO_TRY(stack->kinds[i]->keeping->place(saved->kept[i], stack->layers[i], room,
                                                     keeps(stack)));
    return MIMO_OK;
}

void nn_stack_saved_release(nn_stack_saved *saved)
{
    release_states(saved->blocks, saved->count);
    release_states(saved->kept, saved->keeping);
    mimo_release(saved->x);
    memset(saved, 0, sizeof *saved);
}

/* -------------------------------------------- parts ------------------------------------------ */

static unsigned parts_of(const nn_stack *stack, nn_pass pass, int64_t block)
{
    return nn_block_parts(stack->kinds[block], pass, stack->recompute);
}

/* Those of a pass that have not begun. */
static unsigned left_of(const nn_stack *stack, const nn_stack_saved *saved, nn_pass pass)
{
    return parts_of(stack, pass, saved->block) & ~saved->done[pass];
}

/* Whether the walk through a block has this pass. Gradients of parameters are anybody's who has the
 * block's state. */
static bool walks(const nn_stack *stack, const nn_stack_saved *saved, nn_pass pass)
{
    if (!saved->backward)
        return pass == NN_PASS_FORWARD;
    return pass == NN_PASS_INPUT || (stack->again && pass != NN_PASS_FORWARD);
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

/* What the block in which the micro-batch stands keeps; NULL: nothing. */
static const nn_block_keeping *keeping_of(const nn_stack *stack, const nn_stack_saved *saved)
{
    return stack->again ? stack->kinds[saved->block]->keeping : NULL;
}

/* Room for the block whose parts begin, or go on. */
static mimo_status take_again(const nn_stack *stack, nn_stack_saved *saved)
{
    const nn_block_keeping *keeping = keeping_of(stack, saved);
    if (saved->again)
        return MIMO_OK;
    for (int64_t i = 0; i < stack->in_flight && !saved->again; i++)
        if (!stack->again[i].user)
            saved->again = &stack->again[i];
    MIMO_CHECK(saved->again, MIMO_ERR_STATE,
               "stack: recompute has room for parts of %" PRId64
               " micro-batches, and all are taken",
               stack->in_flight);
    saved->again->user = saved;
    if (keeping)
        keeping->resume(saved->again->states[saved->block], saved->kept[saved->block]);
    return MIMO_OK;
}

/* The last block of forward is the first one of backward. */
static void leave_block(const nn_stack *stack, nn_stack_saved *saved)
{
    const nn_block_keeping *keeping = keeping_of(stack, saved);
    if (keeping && saved->again && !saved->backward)
        keeping->keep(saved->kept[saved->block], saved->again->states[saved->block]);
    give_back(saved);
    memset(saved->done, 0, sizeof saved->done);
    if (!saved->backward && ++saved->block < stack->count)
        return;
    if (saved->backward && saved->block == 0)
        saved->sequence = NULL;
    saved->backward = true;
    saved->block--;
}

static bool is_over(const nn_stack *stack, const nn_stack_saved *saved)
{
    for (int pass = 0; pass < NN_PASSES; pass++)
        if (walks(stack, saved, (nn_pass)pass) && left_of(stack, saved, (nn_pass)pass))
            return false;
    return true;
}

/* Behind blocks in which nothing is left to do. */
static void go_on(const nn_stack *stack, nn_stack_saved *saved)
{
    while (saved->sequence && saved->block >= 0 && is_over(stack, saved))
        leave_block(stack, saved);
}

mimo_status nn_stack_begin(const nn_stack *stack, nn_stack_saved *saved,
                           const nn_sequence *sequence)
{
    nn_stack_abandon(saved);
    MIMO_CHECK(sequence, MIMO_ERR_ARGUMENT, "stack: NULL sequence");
    saved->sequence = sequence;
    saved->backward = stack->count == 0;
    saved->block = stack->count == 0 ? -1 : 0;
    memset(saved->done, 0, sizeof saved->done);
    go_on(stack, saved);
    return MIMO_OK;
}

bool nn_stack_next(nn_stack_node *out, const nn_stack *stack, const nn_stack_saved *saved)
{
    if (!saved->sequence || saved->block < 0)
        return false;
    for (int pass = 0; pass < NN_PASSES; pass++)
        for (int i = 0; walks(stack, saved, (nn_pass)pass) && i < NN_PARTS; i++) {
            nn_block_part part = nn_part_in_order((nn_pass)pass, i);
            if (!(left_of(stack, saved, (nn_pass)pass) & 1u << part))
                continue;
            *out = (nn_stack_node){(nn_pass)pass, saved->block, part};
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

static mimo_status check_block(const nn_stack *stack, const nn_stack_saved *saved, nn_stack_node at)
{
    nn_stack_node next;
    MIMO_CHECK(saved->sequence && nn_stack_next(&next, stack, saved), MIMO_ERR_STATE, "stack: %s",
               at.pass == NN_PASS_FORWARD ? "forward of no sequence" : "backward before forward");
    MIMO_CHECK(walks(stack, saved, at.pass) && at.block == saved->block, MIMO_ERR_STATE,
               "stack: %s of block %" PRId64 ", where it is the turn of %s of block %" PRId64,
               name_of(at.pass), at.block, name_of(next.pass), saved->block);
    return MIMO_OK;
}

/* The half before this one: backward of a part reads what its forward saves, and its parameters'
 * half what the input's half does. */
static mimo_status check_half(const nn_stack *stack, const nn_stack_saved *saved, nn_stack_node at)
{
    nn_pass before = at.pass == NN_PASS_PARAMS ? NN_PASS_INPUT : NN_PASS_AGAIN;
    bool missing =
        !nn_pass_is_forward(at.pass) && (left_of(stack, saved, before) & 1u << at.part) != 0;
    MIMO_CHECK(!missing, MIMO_ERR_STATE,
               "stack: %s of block %" PRId64 ": part %s needs %s of the part, which has not begun",
               name_of(at.pass), at.block, nn_part_name(at.part), name_of(before));
    return MIMO_OK;
}

/* Whether it is this part's turn in its block. */
static mimo_status check_turn(const nn_stack *stack, const nn_stack_saved *saved, nn_stack_node at)
{
    unsigned missing = nn_part_needs(at.pass, at.part) & left_of(stack, saved, at.pass);
    for (int p = 0; p < NN_PARTS; p++)
        MIMO_CHECK(!(missing & 1u << p), MIMO_ERR_STATE,
                   "stack: %s of block %" PRId64 ": part %s needs part %s, which has not begun",
                   name_of(at.pass), at.block, nn_part_name(at.part),
                   nn_part_name((nn_block_part)p));
    MIMO_CHECK(!(saved->done[at.pass] & 1u << at.part), MIMO_ERR_STATE,
               "stack: %s of block %" PRId64 ": part %s a second time", name_of(at.pass), at.block,
               nn_part_name(at.part));
    return check_half(stack, saved, at);
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
    bool experts_again = at.pass == NN_PASS_AGAIN && at.part == NN_PART_EXPERTS;
    if (MIMO_MUTATED("experts-not-again") && experts_again)
        return MIMO_OK;
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
    MIMO_CHECK(at.block >= 0 && at.block < stack->count && (unsigned)at.part < NN_PARTS &&
                   (unsigned)at.pass < NN_PASSES,
               MIMO_ERR_ARGUMENT, "stack: part %d of block %" PRId64 " of %" PRId64, (int)at.part,
               at.block, stack->count);
    if (at.pass == NN_PASS_PARAMS && !stack->again)
        return run(move, stack, saved, at);
    MIMO_TRY(check_block(stack, saved, at));
    if (!(parts_of(stack, at.pass, at.block) & 1u << at.part))
        return MIMO_OK;
    MIMO_TRY(check_turn(stack, saved, at));
    if (stack->again)
        MIMO_TRY(take_again(stack, saved));
    mimo_status status = run(move, stack, saved, at);
    if (status != MIMO_OK) {
        nn_stack_abandon(saved);
        return status;
    }
    saved->done[at.pass] |= 1u << at.part;
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

mimo_status nn_stack_forward_blocks(const nn_stack *stack, nn_stack_saved *saved, int64_t end)
{
    nn_stack_node at;
    while (nn_stack_next(&at, stack, saved) && at.pass == NN_PASS_FORWARD && at.block < end)
        MIMO_TRY(run_to_its_end(stack, saved, at));
    return MIMO_OK;
}

mimo_status nn_stack_forward(const nn_stack *stack, nn_stack_saved *saved,
                             const nn_sequence *sequence)
{
    MIMO_TRY(nn_stack_begin(stack, saved, sequence));
    return nn_stack_forward_blocks(stack, saved, stack->count);
}

/* With recompute the walk has had them. */
static mimo_status run_params(const nn_stack *stack, nn_stack_saved *saved, int64_t block)
{
    for (int p = NN_PARTS; !stack->again && p-- > 0;)
        MIMO_TRY(
            run_to_its_end(stack, saved, (nn_stack_node){NN_PASS_PARAMS, block, (nn_block_part)p}));
    return MIMO_OK;
}

mimo_status nn_stack_backward_blocks(const nn_stack *stack, nn_stack_saved *saved, int64_t first)
{
    nn_stack_node at;
    MIMO_CHECK(!saved->sequence || saved->backward, MIMO_ERR_STATE,
               "stack: backward before forward");
    int64_t end = saved->sequence ? saved->block + 1 : 0;
    while (nn_stack_next(&at, stack, saved) && at.block >= first)
        MIMO_TRY(run_to_its_end(stack, saved, at));
    for (int64_t i = end; i-- > first;)
        MIMO_TRY(run_params(stack, saved, i));
    return MIMO_OK;
}

mimo_status nn_stack_backward_input(const nn_stack *stack, nn_stack_saved *saved)
{
    nn_stack_node at;
    MIMO_CHECK(saved->sequence && saved->backward, MIMO_ERR_STATE,
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
        MIMO_TRY(run_params(stack, saved, i));
    return MIMO_OK;
}

mimo_status nn_stack_visit(const nn_stack *stack, nn_lora_visit *visit)
{
    for (int64_t i = 0; i < stack->count; i++)
        MIMO_TRY(stack->kinds[i]->visit(stack->layers[i], visit));
    return MIMO_OK;
}
