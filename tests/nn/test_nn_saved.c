/* Several micro-batches in flight: each has a saved state of its own. Which interleavings give the
 * bits of one micro-batch after the other, and what a saved state takes. */
#include <math.h>
#include <string.h>

#include "train/nn/ops/nn_ops.h"
#include "nn_gradient_check.h"
#include "same_bits.h"
#include "walk_by_parts.h"

enum { S = 6, B = 2, HIDDEN = 8, HEADS = 2, INNER = 12, V = 10, N = S * B };
enum { BLOCKS = 2, MICRO_BATCHES = 3, MOST_PARAMETERS = 48, MOST_ELEMENTS = 3 * HIDDEN * HIDDEN };

typedef struct model {
    nn_runtime runtime;
    nn_params *params;
    nn_sequence sequence;
    nn_embedding tokens;
    nn_stack blocks;
    nn_norm norm;
    nn_linear head;
    nn_loss loss;
    nn_real *d_normed;
} model;

typedef struct micro_batch {
    nn_room room; /* of all below */
    nn_embedding_saved tokens;
    nn_stack_saved blocks;
    nn_norm_saved norm;
    nn_linear_saved head;
    nn_loss_saved loss;
    nn_real *normed, *logits;
} micro_batch;

static mimo_status place(micro_batch *b, const model *m)
{
    mimo_status status = nn_embedding_saved_take(&b->tokens, &m->tokens, &b->room);
    status = status ? status : nn_stack_saved_take(&b->blocks, &m->blocks, &b->room);
    status = status ? status : nn_norm_saved_take(&b->norm, &m->norm, &b->room);
    status = status ? status : nn_linear_saved_take(&b->head, &m->head, &b->room);
    status = status ? status : nn_loss_saved_take(&b->loss, &m->loss, &b->room);
    status = status ? status : nn_room_take(&b->room, &b->normed, N * HIDDEN, sizeof(nn_real));
    return status ? status : nn_room_take(&b->room, &b->logits, N * V, sizeof(nn_real));
}

static nn_block_desc small_block(void)
{
    return (nn_block_desc){.hidden = HIDDEN,
                           .heads = HEADS,
                           .inner = INNER,
                           .max_rows = S,
                           .max_batch = B,
                           .std = 0.3,
                           .out_std = 0.3};
}

static void make(model *m, nn_order order, nn_recompute recompute)
{
    static const nn_lora_selection adapters = {.adapter = {.rank = 2, .alpha = 3, .b_std = 0.3}};
    nn_runtime_desc runtime = {nn_test_runtime()->memory, nn_test_runtime()->stream,
                               NN_PRECISION_FULL, order, 0};
    memset(m, 0, sizeof *m);
    SUCCEEDS(nn_runtime_init(&m->runtime, &runtime));
    nn_params_desc store = {
        .name = "test", .module = MIMO_DST, .tp_size = 1, .seed = 7, .runtime = &m->runtime};
    nn_sequence_desc sequence = {NULL, true, S, B, NULL, &m->runtime, 0};
    nn_embedding_desc tokens = {"tokens", V, HIDDEN, 1, NN_REPLICATED, N};
    nn_stack_desc blocks = {.name = "block",
                            .first = 3,
                            .count = BLOCKS,
                            .recompute = recompute,
                            .block = small_block()};
    blocks.block.adapters = &adapters;
    nn_linear_desc head = {.name = "head", .in = HIDDEN, .out = V, .bias = true, .std = 0.3};
    SUCCEEDS(nn_params_create(&m->params, &store));
    SUCCEEDS(nn_sequence_init(&m->sequence, &sequence));
    SUCCEEDS(nn_embedding_init(&m->tokens, m->params, &tokens));
    SUCCEEDS(nn_stack_init(&m->blocks, m->params, NULL, &blocks));
    SUCCEEDS(nn_norm_init(&m->norm, m->params, "norm", HIDDEN, N, NN_REPLICATED));
    SUCCEEDS(nn_linear_init(&m->head, m->params, NULL, &head));
    SUCCEEDS(nn_loss_init(&m->loss, &m->runtime, NULL, V, N));
    SUCCEEDS(nn_params_seal(m->params));
    m->d_normed = nn_test_room(N * HIDDEN);
}

static void discard(model *m)
{
    nn_loss_release(&m->loss);
    nn_linear_release(&m->head);
    nn_norm_release(&m->norm);
    nn_stack_release(&m->blocks);
    nn_embedding_release(&m->tokens);
    nn_sequence_release(&m->sequence);
    nn_params_destroy(m->params);
    nn_runtime_release(&m->runtime);
    nn_test_free_rooms();
}

static void open_micro_batch(micro_batch *b, const model *m)
{
    memset(b, 0, sizeof *b);
    SUCCEEDS(nn_stack_saved_init(&b->blocks, &m->blocks));
    NN_TEST_PLACE(b->room, place(b, m));
}

static void close_micro_batch(micro_batch *b)
{
    nn_stack_saved_release(&b->blocks);
    nn_room_release(&b->room);
}

static void forward(model *m, micro_batch *b, int number)
{
    int64_t ids[N], labels[N];
    for (int i = 0; i < N; i++) {
        ids[i] = (i * 3 + number) % V;
        labels[i] = (i + number) % 4 ? (i * 7 + number) % V : NN_IGNORE;
    }
    SUCCEEDS(nn_embedding_forward(&m->tokens, &b->tokens, b->blocks.x[0], ids, N));
    SUCCEEDS(nn_stack_forward(&m->blocks, &b->blocks, &m->sequence));
    SUCCEEDS(nn_norm_forward(&m->norm, &b->norm, b->normed, b->blocks.x[BLOCKS], N));
    SUCCEEDS(nn_linear_forward(&m->head, &b->head, b->logits, b->normed, N, B));
    SUCCEEDS(nn_loss_forward(&m->loss, &b->loss, b->logits, labels, N));
}

static void backward_input(model *m, micro_batch *b)
{
    SUCCEEDS(nn_loss_backward_input(&m->loss, &b->loss, b->logits));
    SUCCEEDS(nn_linear_backward_input(&m->head, &b->head, m->d_normed, b->logits));
    SUCCEEDS(nn_norm_backward_input(&m->norm, &b->norm, b->blocks.x[BLOCKS], m->d_normed, NULL));
    SUCCEEDS(nn_stack_backward_input(&m->blocks, &b->blocks));
}

static void backward_params(model *m, micro_batch *b)
{
    SUCCEEDS(nn_linear_backward_params(&m->head, &b->head));
    SUCCEEDS(nn_stack_backward_params(&m->blocks, &b->blocks));
    SUCCEEDS(nn_embedding_backward_params(&m->tokens, &b->tokens, b->blocks.x[0]));
}

typedef struct results {
    nn_real grads[MOST_PARAMETERS][MOST_ELEMENTS];
    nn_real inputs[MICRO_BATCHES][N * HIDDEN]; /* gradients */
} results;

/* A list of steps: F forward, I and W the halves of backward, and the micro-batch. */
static void run(results *out, model *m, const char *steps)
{
    micro_batch in_flight[MICRO_BATCHES];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < MICRO_BATCHES; i++)
        open_micro_batch(&in_flight[i], m);
    SUCCEEDS(nn_params_zero_grad(m->params));
    for (const char *step = steps; *step; step += step[2] ? 3 : 2) {
        int number = step[1] - '0';
        micro_batch *b = &in_flight[number];
        if (step[0] == 'F')
            forward(m, b, number);
        if (step[0] == 'I')
            backward_input(m, b);
        if (step[0] == 'W')
            backward_params(m, b);
    }
    SUCCEEDS(nn_params_settle(m->params, 1));
    cr_assert_leq(nn_params_count(m->params), MOST_PARAMETERS);
    for (int i = 0; i < nn_params_count(m->params); i++)
        SUCCEEDS(nn_params_read(m->params, i, NN_GRAD, out->grads[i]));
    for (int i = 0; i < MICRO_BATCHES; i++) {
        nn_test_read(out->inputs[i], in_flight[i].blocks.x[0], N * HIDDEN);
        close_micro_batch(&in_flight[i]);
    }
}

static void expect_same(const results *got, const results *expected, const char *steps)
{
    EXPECT_BITS(bits_of(got->grads, expected->grads, sizeof got->grads, sizeof(nn_real), 0),
                "parameters, %s", steps);
    EXPECT_BITS(bits_of(got->inputs, expected->inputs, sizeof got->inputs, sizeof(nn_real), 0),
                "inputs, %s", steps);
}

static const char *const one_by_one = "F0 I0 W0 F1 I1 W1 F2 I2 W2";
/* In each of the first, the calls that add to a parameter ascend by micro-batch. */
static const char *const ascending[] = {"F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 F1 F2 I0 I1 I2 W0 W1 W2",
                                        "F2 F1 F0 I0 I1 W0 I2 W1 W2"};
static const char *const others[] = {"F0 F1 F2 I2 I1 I0 W1 W2 W0", "F0 F1 I1 I0 W0 F2 W1 I2 W2"};

enum { ASCENDING = sizeof ascending / sizeof *ascending, OTHERS = sizeof others / sizeof *others };

Test(nn_saved, interleavings_that_ascend_give_the_bits_of_one_by_one)
{
    static results expected, got;
    model m;
    make(&m, NN_ORDER_FAST, false);
    run(&expected, &m, one_by_one);
    for (int i = 0; i < ASCENDING; i++) {
        run(&got, &m, ascending[i]);
        expect_same(&got, &expected, ascending[i]);
    }
    run(&got, &m, others[0]);
    cr_assert(memcmp(got.grads, expected.grads, sizeof got.grads) != 0,
              "the order plays no part: these numbers test nothing");
    discard(&m);
}

#ifndef NN_REAL_F64
Test(nn_saved, every_interleaving_gives_the_same_bits_in_the_fixed_order)
{
    static results expected, got;
    model m;
    make(&m, NN_ORDER_FIXED, false);
    run(&expected, &m, one_by_one);
    for (int i = 0; i < ASCENDING + OTHERS; i++) {
        const char *steps = i < ASCENDING ? ascending[i] : others[i - ASCENDING];
        run(&got, &m, steps);
        expect_same(&got, &expected, steps);
    }
    discard(&m);
}
#endif

/* With recompute the parameters of blocks add up where the inputs' halves do. */
Test(nn_saved, recomputed_blocks_give_the_same_bits)
{
    static results expected, got;
    model m;
    make(&m, NN_ORDER_FAST, false);
    run(&expected, &m, one_by_one);
    discard(&m);
    make(&m, NN_ORDER_FAST, true);
    run(&got, &m, one_by_one);
    expect_same(&got, &expected, "recompute");
    for (int i = 0; i < ASCENDING; i++) {
        run(&got, &m, ascending[i]);
        expect_same(&got, &expected, ascending[i]);
    }
    discard(&m);
}

/* A used saved state begins again, and each half wants what comes before it. */
Test(nn_saved, halves_come_in_order)
{
    model m;
    micro_batch b;
    make(&m, NN_ORDER_FAST, false);
    open_micro_batch(&b, &m);
    FAILS(nn_stack_backward_input(&m.blocks, &b.blocks), MIMO_ERR_STATE, "before forward");
    forward(&m, &b, 0);
    FAILS(nn_stack_backward_params(&m.blocks, &b.blocks), MIMO_ERR_STATE, "before the input's");
    backward_input(&m, &b);
    backward_params(&m, &b);
    FAILS(nn_stack_backward_params(&m.blocks, &b.blocks), MIMO_ERR_STATE, "before the input's");
    FAILS(nn_stack_backward_input(&m.blocks, &b.blocks), MIMO_ERR_STATE, "before forward");
    forward(&m, &b, 0);
    backward_input(&m, &b);
    close_micro_batch(&b);
    discard(&m);
}

/* A gradient that its layer gives back is NaN in the build that finds late readers. */
Test(nn_saved, lent_gradients_are_poisoned)
{
    model m;
    micro_batch b;
    nn_real logits[N * V];
    make(&m, NN_ORDER_FAST, false);
    open_micro_batch(&b, &m);
    forward(&m, &b, 0);
    backward_input(&m, &b);
    SUCCEEDS(nn_linear_backward_params(&m.head, &b.head));
    nn_test_read(logits, b.logits, N * V);
    for (int i = 0; i < N * V; i++) {
#ifdef MIMO_MUTATIONS
        cr_assert(isnan((double)logits[i]), "element %d is %g", i, (double)logits[i]);
#else
        cr_assert(isfinite((double)logits[i]), "element %d is %g", i, (double)logits[i]);
#endif
    }
    close_micro_batch(&b);
    discard(&m);
}

/* Blocks of a stage have the names that they have in the whole model. */
Test(nn_saved, a_stage_is_a_range_of_a_stack)
{
    model m;
    make(&m, NN_ORDER_FAST, false);
    cr_assert_eq(nn_params_find(m.params, "block2.norm1.scale"), -1);
    cr_assert_geq(nn_params_find(m.params, "block3.norm1.scale"), 0);
    cr_assert_geq(nn_params_find(m.params, "block4.mlp.down.bias"), 0);
    cr_assert_eq(nn_params_find(m.params, "block5.norm1.scale"), -1);
    discard(&m);
}

/* ------------------------------------------- kinds ------------------------------------------- */

/* A kind without parameters, which saves nothing: y = 2 x. */
typedef struct doubling {
    const nn_runtime *runtime;
    int64_t elements;
} doubling;

static mimo_status doubling_init(void *layer, nn_params *params, mimo_comm *tp,
                                 const nn_block_desc *desc)
{
    (void)tp;
    *(doubling *)layer =
        (doubling){nn_params_runtime(params), desc->max_rows * desc->max_batch * desc->hidden};
    return MIMO_OK;
}

static void doubling_release(void *layer)
{
    (void)layer;
}

static mimo_status doubling_place(void *saved, const void *layer, nn_room *room)
{
    (void)saved, (void)layer, (void)room;
    return MIMO_OK;
}

static mimo_status write_double(const doubling *d, nn_real *to, const nn_real *from)
{
    const nn_runtime *runtime = d->runtime;
    SUCCEEDS(nn_runtime_zero(runtime, to, d->elements * (int64_t)sizeof *to));
    SUCCEEDS(runtime->ops->add(runtime, to, from, d->elements));
    return runtime->ops->add(runtime, to, from, d->elements);
}

static mimo_status doubling_forward(const void *layer, void *saved, nn_block_call *call)
{
    (void)saved;
    return write_double(layer, call->y, call->x);
}

static mimo_status doubling_backward_input(const void *layer, void *saved, nn_block_call *call)
{
    (void)saved;
    return write_double(layer, call->dx, call->dy);
}

static mimo_status doubling_visit(void *layer, nn_lora_visit *visit)
{
    (void)layer, (void)visit;
    return MIMO_OK;
}

static const nn_block_work doubling_work = {doubling_forward, doubling_backward_input, NULL};
static const nn_block_kind doubling_kind = {.layer_size = sizeof(doubling),
                                            .saved_size = 1,
                                            .init = doubling_init,
                                            .release = doubling_release,
                                            .saved_take = doubling_place,
                                            .visit = doubling_visit,
                                            .parts = {[NN_PART_EXPERTS] = &doubling_work}};

static void expect_double(const nn_real *room, const nn_real *of, const char *what)
{
    nn_real got[N * HIDDEN], single[N * HIDDEN];
    nn_test_read(got, room, N * HIDDEN);
    nn_test_read(single, of, N * HIDDEN);
    for (int i = 0; i < N * HIDDEN; i++)
        cr_assert(got[i] == 2 * single[i] && single[i] != 0, "%s: element %d is %g, twice %g", what,
                  i, (double)got[i], (double)single[i]);
}

/* Of a stack whose first block doubles. */
static void check_doubling(const nn_stack *stack, const nn_sequence *sequence)
{
    nn_stack_saved saved;
    nn_room room = {0};
    nn_real numbers[N * HIDDEN];
    SUCCEEDS(nn_stack_saved_init(&saved, stack));
    NN_TEST_PLACE(room, nn_stack_saved_take(&saved, stack, &room));
    nn_test_fill(numbers, N * HIDDEN, "x");
    nn_test_write(saved.x[0], numbers, N * HIDDEN);
    SUCCEEDS(nn_stack_forward(stack, &saved, sequence));
    expect_double(saved.x[1], saved.x[0], "forward");
    nn_test_write(saved.x[2], numbers, N * HIDDEN);
    SUCCEEDS(nn_stack_backward_input(stack, &saved));
    expect_double(saved.x[0], saved.x[1], "backward");
    SUCCEEDS(nn_stack_backward_params(stack, &saved));
    nn_stack_saved_release(&saved);
    nn_room_release(&room);
}

Test(nn_saved, a_stack_takes_blocks_of_several_kinds)
{
    static const nn_block_kind *const kinds[] = {&doubling_kind, &nn_block_dense};
    nn_stack_desc desc = {.name = "block", .count = 2, .kinds = kinds, .block = small_block()};
    nn_sequence_desc shape = {NULL, true, S, B, NULL, nn_test_runtime(), 0};
    nn_sequence sequence;
    SUCCEEDS(nn_sequence_init(&sequence, &shape));
    for (int recompute = 0; recompute < 2; recompute++) {
        nn_params *params = nn_test_store(0, 1);
        nn_stack stack;
        desc.recompute = (nn_recompute)recompute;
        SUCCEEDS(nn_stack_init(&stack, params, NULL, &desc));
        SUCCEEDS(nn_params_seal(params));
        check_doubling(&stack, &sequence);
        nn_stack_release(&stack);
        nn_params_destroy(params);
    }
    nn_sequence_release(&sequence);
}

/* What a stack gives: its output, the gradient of its input and those of its parameters. */
typedef struct stack_results {
    nn_real y[N * HIDDEN], dx[N * HIDDEN];
    nn_real grads[MOST_PARAMETERS][MOST_ELEMENTS];
} stack_results;

/* Of a stack with the values of `from`, or its own where that is NULL. */
static void run_stack(stack_results *out, const nn_stack *stack, nn_params *params, nn_params *from)
{
    nn_sequence_desc shape = {NULL, true, S, B, NULL, nn_test_runtime(), 0};
    nn_sequence sequence;
    nn_stack_saved saved;
    nn_room room = {0};
    nn_real numbers[MOST_ELEMENTS];
    memset(out, 0, sizeof *out);
    SUCCEEDS(nn_sequence_init(&sequence, &shape));
    SUCCEEDS(nn_stack_saved_init(&saved, stack));
    NN_TEST_PLACE(room, nn_stack_saved_take(&saved, stack, &room));
    for (int i = 0; from && i < nn_params_count(params); i++) {
        SUCCEEDS(nn_params_read(from, i, NN_VALUE, numbers));
        SUCCEEDS(nn_params_write(params, i, NN_VALUE, numbers));
    }
    nn_test_fill(numbers, N * HIDDEN, "x");
    nn_test_write(saved.x[0], numbers, N * HIDDEN);
    SUCCEEDS(nn_stack_forward(stack, &saved, &sequence));
    nn_test_read(out->y, saved.x[stack->count], N * HIDDEN);
    nn_test_fill(numbers, N * HIDDEN, "dy");
    nn_test_write(saved.x[stack->count], numbers, N * HIDDEN);
    SUCCEEDS(nn_stack_backward_input(stack, &saved));
    SUCCEEDS(nn_stack_backward_params(stack, &saved));
    nn_test_read(out->dx, saved.x[0], N * HIDDEN);
    for (int i = 0; i < nn_params_count(params); i++)
        SUCCEEDS(nn_params_read(params, i, NN_GRAD, out->grads[i]));
    nn_stack_saved_release(&saved);
    nn_room_release(&room);
    nn_sequence_release(&sequence);
}

/* Attention and MLP as blocks of their own: the same parameters, in the same order. */
Test(nn_saved, halves_one_behind_the_other_are_whole_blocks)
{
    static const nn_block_kind *const kinds[] = {&nn_block_attention, &nn_block_mlp,
                                                 &nn_block_attention, &nn_block_mlp};
    static stack_results got[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        nn_params *params[2];
        nn_stack stacks[2];
        for (int halves = 0; halves < 2; halves++) {
            nn_stack_desc desc = {.name = "block",
                                  .count = halves ? 4 : 2,
                                  .kinds = halves ? kinds : NULL,
                                  .recompute = (nn_recompute)recompute,
                                  .block = small_block()};
            params[halves] = nn_test_store(0, 1);
            SUCCEEDS(nn_stack_init(&stacks[halves], params[halves], NULL, &desc));
            SUCCEEDS(nn_params_seal(params[halves]));
            run_stack(&got[halves], &stacks[halves], params[halves], halves ? params[0] : NULL);
        }
        cr_assert_eq(nn_params_count(params[0]), nn_params_count(params[1]));
        EXPECT_BITS(bits_of(&got[1], &got[0], sizeof got[0], sizeof(nn_real), 0),
                    "halves, recompute %d", recompute);
        cr_assert(nn_params_find(params[1], "block0.mlp.up.weight") < 0 &&
                  nn_params_find(params[1], "block1.mlp.up.weight") >= 0);
        for (int halves = 0; halves < 2; halves++) {
            nn_stack_release(&stacks[halves]);
            nn_params_destroy(params[halves]);
        }
    }
}

/* ------------------------------------------- parts ------------------------------------------- */

enum { IN_TURN = 2, KINDS = 3 };

/* A stack with two micro-batches, and what they give. */
typedef struct parts_bed {
    nn_params *params;
    nn_sequence sequence;
    nn_stack stack;
    nn_stack_saved saved[IN_TURN];
    nn_room rooms[IN_TURN];
} parts_bed;

typedef struct parts_results {
    nn_real y[IN_TURN][N * HIDDEN], dx[IN_TURN][N * HIDDEN];
    nn_real grads[MOST_PARAMETERS][MOST_ELEMENTS];
} parts_results;

static void open_parts(parts_bed *it, const nn_block_kind *const *kinds, int64_t in_flight)
{
    static const nn_lora_selection adapters = {.adapter = {.rank = 2, .alpha = 3, .b_std = 0.3}};
    nn_sequence_desc shape = {NULL, true, S, B, NULL, nn_test_runtime(), 0};
    nn_stack_desc desc = {.name = "block",
                          .count = KINDS,
                          .kinds = kinds,
                          .recompute = in_flight > 0 ? NN_RECOMPUTE_SEND_ROWS : NN_RECOMPUTE_NONE,
                          .in_flight = in_flight,
                          .block = small_block()};
    *it = (parts_bed){.params = nn_test_store(0, 1)};
    desc.block.adapters = &adapters;
    SUCCEEDS(nn_sequence_init(&it->sequence, &shape));
    SUCCEEDS(nn_stack_init(&it->stack, it->params, NULL, &desc));
    SUCCEEDS(nn_params_seal(it->params));
    cr_assert_leq(nn_params_count(it->params), MOST_PARAMETERS);
    for (int m = 0; m < IN_TURN; m++) {
        SUCCEEDS(nn_stack_saved_init(&it->saved[m], &it->stack));
        NN_TEST_PLACE(it->rooms[m], nn_stack_saved_take(&it->saved[m], &it->stack, &it->rooms[m]));
    }
}

static void close_parts(parts_bed *it)
{
    for (int m = 0; m < IN_TURN; m++) {
        nn_stack_saved_release(&it->saved[m]);
        nn_room_release(&it->rooms[m]);
    }
    nn_stack_release(&it->stack);
    nn_sequence_release(&it->sequence);
    nn_params_destroy(it->params);
}

static part_walk begin_forward(parts_bed *it, int m)
{
    nn_real numbers[N * HIDDEN];
    nn_test_fill(numbers, N * HIDDEN, m == 0 ? "x" : "another x");
    nn_test_write(it->saved[m].x[0], numbers, N * HIDDEN);
    SUCCEEDS(nn_stack_begin(&it->stack, &it->saved[m], &it->sequence));
    return (part_walk){&it->stack, &it->saved[m], true, NULL};
}

/* The output has been read. The gradient comes in its place. */
static part_walk begin_backward(parts_results *out, parts_bed *it, int m)
{
    nn_real numbers[N * HIDDEN], *last = it->saved[m].x[KINDS];
    nn_test_read(out->y[m], last, N * HIDDEN);
    nn_test_fill(numbers, N * HIDDEN, m == 0 ? "dy" : "another dy");
    nn_test_write(last, numbers, N * HIDDEN);
    return (part_walk){&it->stack, &it->saved[m], false, NULL};
}

static void read_parts(parts_results *out, parts_bed *it)
{
    for (int m = 0; m < IN_TURN; m++)
        nn_test_read(out->dx[m], it->saved[m].x[0], N * HIDDEN);
    for (int i = 0; i < nn_params_count(it->params); i++)
        SUCCEEDS(nn_params_read(it->params, i, NN_GRAD, out->grads[i]));
}

static void run_one_by_one(parts_results *out, parts_bed *it)
{
    SUCCEEDS(nn_params_zero_grad(it->params));
    for (int m = 0; m < IN_TURN; m++) {
        begin_forward(it, m);
        SUCCEEDS(nn_stack_forward(&it->stack, &it->saved[m], &it->sequence));
        begin_backward(out, it, m);
        SUCCEEDS(nn_stack_backward_input(&it->stack, &it->saved[m]));
        SUCCEEDS(nn_stack_backward_params(&it->stack, &it->saved[m]));
    }
    read_parts(out, it);
}

/* Both forward in turn, and both backward. */
static void run_side_by_side(parts_results *out, parts_bed *it)
{
    SUCCEEDS(nn_params_zero_grad(it->params));
    part_walk a = begin_forward(it, 0), b = begin_forward(it, 1);
    SUCCEEDS(walk_in_turn(&a, &b));
    a = begin_backward(out, it, 0), b = begin_backward(out, it, 1);
    SUCCEEDS(walk_in_turn(&a, &b));
    for (int m = 0; m < IN_TURN; m++)
        SUCCEEDS(nn_stack_backward_params(&it->stack, &it->saved[m]));
    read_parts(out, it);
}

/* Forward of the second one beside backward of the first one. */
static void run_one_behind(parts_results *out, parts_bed *it)
{
    SUCCEEDS(nn_params_zero_grad(it->params));
    begin_forward(it, 0);
    SUCCEEDS(nn_stack_forward(&it->stack, &it->saved[0], &it->sequence));
    part_walk a = begin_backward(out, it, 0), b = begin_forward(it, 1);
    SUCCEEDS(walk_in_turn(&a, &b));
    SUCCEEDS(nn_stack_backward_params(&it->stack, &it->saved[0]));
    begin_backward(out, it, 1);
    SUCCEEDS(nn_stack_backward_input(&it->stack, &it->saved[1]));
    SUCCEEDS(nn_stack_backward_params(&it->stack, &it->saved[1]));
    read_parts(out, it);
}

static const nn_block_kind *const stacks_by_parts[][KINDS] = {
    {&nn_block_dense, &doubling_kind, &nn_block_dense},
    {&nn_block_attention, &nn_block_attention, &nn_block_attention},
    {&nn_block_mlp, &nn_block_mlp, &nn_block_mlp},
    {&nn_block_mlp, &nn_block_dense, &nn_block_attention},
};
enum { STACKS = sizeof stacks_by_parts / sizeof *stacks_by_parts };

/* Layers of both share what lives within one part; all else is each micro-batch's own. */
Test(nn_saved, parts_in_turn_give_the_bits_of_one_by_one)
{
    static parts_results expected, got;
    for (int i = 0; i < STACKS; i++)
        for (int64_t in_flight = 0; in_flight <= IN_TURN; in_flight += IN_TURN) {
            parts_bed it;
            open_parts(&it, stacks_by_parts[i], in_flight);
            memset(&expected, 0, sizeof expected);
            run_one_by_one(&expected, &it);
            memset(&got, 0, sizeof got);
            run_side_by_side(&got, &it);
            EXPECT_BITS(bits_of(&got, &expected, sizeof got, sizeof(nn_real), 0),
                        "side by side, stack %d, recompute for %d", i, (int)in_flight);
            memset(&got, 0, sizeof got);
            run_one_behind(&got, &it);
            EXPECT_BITS(bits_of(&got, &expected, sizeof got, sizeof(nn_real), 0),
                        "one behind, stack %d, recompute for %d", i, (int)in_flight);
            close_parts(&it);
        }
}

/* One part out of turn; and afterwards the walk goes on. */
static void expect_no_turn(parts_bed *it, nn_stack_node at, const char *words)
{
    mimo_op *move;
    FAILS(nn_stack_run(&move, &it->stack, &it->saved[0], at), MIMO_ERR_STATE, words);
}

Test(nn_saved, parts_come_in_order)
{
    const nn_stack_node first = {NN_PASS_FORWARD, 0, NN_PART_BEFORE};
    parts_bed it;
    mimo_op *move;
    open_parts(&it, stacks_by_parts[0], 0);
    expect_no_turn(&it, first, "forward of no sequence");
    expect_no_turn(&it, (nn_stack_node){NN_PASS_INPUT, 0, NN_PART_BEFORE}, "before forward");
    begin_forward(&it, 0);
    expect_no_turn(&it, (nn_stack_node){NN_PASS_FORWARD, 0, NN_PART_EXPERTS},
                   "forward of block 0: part experts needs part before, which has not begun");
    expect_no_turn(&it, (nn_stack_node){NN_PASS_FORWARD, 2, NN_PART_BEFORE},
                   "forward of block 2, where it is the turn of forward of block 0");
    SUCCEEDS(nn_stack_run(&move, &it.stack, &it.saved[0], first));
    cr_assert_null(move);
    expect_no_turn(&it, first, "part before a second time");
    FAILS(nn_stack_backward_input(&it.stack, &it.saved[0]), MIMO_ERR_STATE, "before forward");
    FAILS(nn_stack_run(&move, &it.stack, &it.saved[0], (nn_stack_node){NN_PASS_FORWARD, 3, 0}),
          MIMO_ERR_ARGUMENT, "part 0 of block 3 of 3");
    SUCCEEDS(nn_stack_forward(&it.stack, &it.saved[0], &it.sequence));
    expect_no_turn(&it, (nn_stack_node){NN_PASS_AGAIN, 2, NN_PART_BEFORE},
                   "forward again of block 2, where it is the turn of the input's half");
    expect_no_turn(&it, (nn_stack_node){NN_PASS_INPUT, 2, NN_PART_BEFORE},
                   "part before needs part experts");
    SUCCEEDS(nn_stack_backward_input(&it.stack, &it.saved[0]));
    close_parts(&it);
}

/* With recompute a micro-batch has no state of its own between its blocks. */
Test(nn_saved, recompute_has_room_for_some_in_flight)
{
    const nn_stack_node first = {NN_PASS_FORWARD, 0, NN_PART_BEFORE};
    parts_bed it;
    mimo_op *move;
    open_parts(&it, stacks_by_parts[0], 1);
    begin_forward(&it, 0);
    begin_forward(&it, 1);
    SUCCEEDS(nn_stack_run(&move, &it.stack, &it.saved[0], first));
    FAILS(nn_stack_run(&move, &it.stack, &it.saved[1], first), MIMO_ERR_STATE,
          "room for parts of 1 micro-batches, and all are taken");
    nn_stack_abandon(&it.saved[0]);
    SUCCEEDS(nn_stack_run(&move, &it.stack, &it.saved[1], first));
    SUCCEEDS(nn_stack_forward(&it.stack, &it.saved[1], &it.sequence));
    SUCCEEDS(nn_stack_forward(&it.stack, &it.saved[0], &it.sequence));
    close_parts(&it);
}

/* ------------------------------------------- memory ------------------------------------------ */

static int64_t room_of(int64_t elements)
{
    return (elements * (int64_t)sizeof(nn_real) + 255) / 256 * 256;
}

/* By the comments of the headers: what the parts of a block save. */
static int64_t block_bytes(void)
{
    int64_t rows = room_of(N), wide = room_of(N * HIDDEN), inner = room_of(N * INNER);
    int64_t adapters = 4 * 2 * room_of(N * 2);                  /* z and dz of four layers */
    int64_t norms = 2 * 2 * rows;                               /* mean, rstd */
    int64_t attention = 2 * room_of(3 * N * HIDDEN) + wide      /* projected, context */
                        + room_of((int64_t)B * HEADS * S * S);  /* weights */
    return adapters + norms + attention + 4 * inner + 3 * wide; /* mlp; normed, middle */
}

Test(nn_saved, memory_is_what_the_headers_say)
{
    model m;
    make(&m, NN_ORDER_FAST, false);
    nn_room room = {0};
    nn_block_saved saved;
    const nn_block *block = m.blocks.layers[0];
    SUCCEEDS(nn_block_saved_take(&saved, block, &room));
    cr_assert_eq(room.used, block_bytes(), "%lld bytes, must be %lld", (long long)room.used,
                 (long long)block_bytes());
    SUCCEEDS(nn_room_reserve(&room, &m.runtime));
    cr_assert_eq(room.bytes, block_bytes());
    SUCCEEDS(nn_block_saved_take(&saved, block, &room));
    FAILS(nn_block_saved_take(&saved, block, &room), MIMO_ERR_STATE, "were measured");
    nn_room_release(&room);
    micro_batch b;
    open_micro_batch(&b, &m);
    int64_t stack = (BLOCKS + 1) * room_of(N * HIDDEN) + BLOCKS * block_bytes();
    nn_room measured = {0};
    SUCCEEDS(nn_stack_saved_take(&b.blocks, &m.blocks, &measured));
    cr_assert_eq(measured.used, stack, "%lld bytes, must be %lld", (long long)measured.used,
                 (long long)stack);
    close_micro_batch(&b);
    discard(&m);
}

/* Between forward and backward a micro-batch has the activations between blocks, and no more. */
Test(nn_saved, recompute_saves_the_activations_between_blocks)
{
    model m;
    nn_stack_saved saved;
    nn_room room = {0};
    int64_t between = (BLOCKS + 1) * room_of(N * HIDDEN),
            shared = room_of(N * HIDDEN) + block_bytes();
    make(&m, NN_ORDER_FAST, true);
    SUCCEEDS(nn_stack_saved_init(&saved, &m.blocks));
    SUCCEEDS(nn_stack_saved_take(&saved, &m.blocks, &room));
    cr_assert_eq(room.used, between, "%lld bytes, must be %lld", (long long)room.used,
                 (long long)between);
    cr_assert_eq(m.blocks.room.bytes, shared, "%lld bytes, must be %lld",
                 (long long)m.blocks.room.bytes, (long long)shared);
    nn_stack_saved_release(&saved);
    discard(&m);
}
