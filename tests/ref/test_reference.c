/* The reference itself: gradients against finite differences, what each part must and must not
 * depend on, optimizers and generator against numbers computed elsewhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "ref_model.h"
#include "ref_optimizer.h"
#include "ref_random.h"
#include "same_bits.h"

enum {
    SAMPLES = 3,
    IMAGE_TOKENS = 3,
    SEQ = 8,
    VALUES = 5,
    TEXT = 9,
    VOCABULARY = 11,
    IMAGE_ID = 10
};

typedef struct fixture {
    double patches[SAMPLES][IMAGE_TOKENS * VALUES];
    int64_t ids[SAMPLES][SEQ], labels[SAMPLES][SEQ];
    ref_sample samples[SAMPLES];
    ref_model *model;
} fixture;

static void set_up_experts(fixture *f, int64_t experts)
{
    ref_sizes sizes = {.hidden = 8,
                       .heads = 2,
                       .encoder_layers = 1,
                       .llm_layers = 2,
                       .patch_values = VALUES,
                       .image_tokens = IMAGE_TOKENS,
                       .seq = SEQ,
                       .text_vocabulary = TEXT,
                       .vocabulary = VOCABULARY,
                       .image_id = IMAGE_ID,
                       .adapter = 2,
                       .adapter_alpha = 3,
                       .adapted = experts > 0 ? NULL : "head",
                       .experts = experts,
                       .top_k = 2,
                       .balance = 0.3,
                       .others_every = 4,
                       .seed = 5};
    uint64_t key = ref_key(1, "fixture");
    for (int64_t b = 0; b < SAMPLES; b++) {
        for (int64_t i = 0; i < IMAGE_TOKENS * VALUES; i++)
            f->patches[b][i] = ref_normal(key, b * 100 + i);
        for (int64_t s = 0; s < SEQ; s++) {
            f->ids[b][s] = s >= b && s < b + IMAGE_TOKENS ? IMAGE_ID : (3 * s + b) % TEXT;
            f->labels[b][s] = (s + b) % 3 == 0 ? -100 : (5 * s + b) % VOCABULARY;
        }
        f->samples[b] = (ref_sample){f->patches[b], f->ids[b], f->labels[b]};
    }
    f->model = ref_model_create(&sizes);
}

static void set_up(fixture *f)
{
    set_up_experts(f, 0);
}

static ref_result run(fixture *f)
{
    ref_result result;
    ref_model_run(f->model, f->samples, SAMPLES, &result);
    return result;
}

static double loss_of(fixture *f)
{
    ref_result result = run(f);
    ref_free(&result.tensors);
    ref_free(&result.notes);
    return result.loss + result.balance;
}

static double difference(fixture *f, double *at)
{
    const double step = 1e-4;
    double kept = *at, loss[4];
    for (int i = 0; i < 4; i++) {
        *at = kept + step * (i < 2 ? i - 2 : i - 1);
        loss[i] = loss_of(f);
    }
    *at = kept;
    return (loss[0] - 8 * loss[1] + 8 * loss[2] - loss[3]) / (12 * step); /* fourth order */
}

/* A few elements of every parameter. A key bias has gradient 0, so the bound has an absolute
 * part. */
static void check_gradients(int64_t experts)
{
    fixture f;
    set_up_experts(&f, experts);
    loss_of(&f);
    ref_table grads = ref_like(ref_model_grads(f.model), 1), *values = ref_model_values(f.model);
    for (int t = 0; t < values->count; t++) {
        ref_tensor *value = &values->list[t];
        int64_t count = value->rows * value->columns;
        for (int64_t i = 0; i < count; i += 1 + count / 12) {
            double written = grads.list[t].data[i], found = difference(&f, &value->data[i]);
            cr_assert(fabs(written - found) <= 1e-8 * fabs(found) + 1e-11,
                      "gradient of %s[%lld] is %.12g, finite difference %.12g", value->name,
                      (long long)i, written, found);
        }
    }
    ref_free(&grads);
    ref_model_destroy(f.model);
}

Test(reference, gradients_are_finite_differences)
{
    check_gradients(0);
}

Test(reference, gradients_of_experts_are_finite_differences)
{
    check_gradients(5);
}

/* Summed over all rows, the gradient of the sum of the losses is the gradient of the projection's
 * bias. */
Test(reference, gradient_of_the_rows_is_that_of_the_sum)
{
    fixture f;
    set_up(&f);
    ref_result result = run(&f);
    const ref_tensor *rows = ref_find(&result.tensors, "encoder.d_rows");
    const ref_tensor *bias = ref_find(ref_model_grads(f.model), "encoder.project.bias");
    for (int64_t e = 0; e < rows->columns; e++) {
        double sum = 0;
        for (int64_t i = 0; i < rows->rows; i++)
            sum += rows->data[i * rows->columns + e];
        cr_assert(fabs(sum / (double)result.tokens - bias->data[e]) < 1e-14);
    }
    cr_assert_eq(result.tokens, 16);
    ref_free(&result.tensors);
    ref_model_destroy(f.model);
}

/* A later id changes nothing before its position, and something from there on. Samples do not
 * affect each other. */
Test(reference, the_llm_is_causal_and_samples_are_apart)
{
    fixture f;
    set_up(&f);
    ref_result before = run(&f);
    f.ids[1][6] = (f.ids[1][6] + 1) % TEXT;
    ref_result after = run(&f);
    const ref_tensor *x = ref_find(&before.tensors, "llm.logits");
    const ref_tensor *y = ref_find(&after.tensors, "llm.logits");
    for (int64_t row = 0; row < SAMPLES * SEQ; row++) {
        size_t bytes = VOCABULARY * sizeof *x->data;
        bool same = memcmp(x->data + row * VOCABULARY, y->data + row * VOCABULARY, bytes) == 0;
        cr_assert_eq(same, row / SEQ != 1 || row % SEQ < 6, "row %lld", (long long)row);
    }
    ref_free(&before.tensors);
    ref_free(&after.tensors);
    ref_model_destroy(f.model);
}

Test(reference, the_last_patch_reaches_the_first_row)
{
    fixture f;
    set_up(&f);
    ref_result before = run(&f);
    f.patches[2][IMAGE_TOKENS * VALUES - 1] += 1;
    ref_result after = run(&f);
    const ref_tensor *x = ref_find(&before.tensors, "encoder.rows");
    const ref_tensor *y = ref_find(&after.tensors, "encoder.rows");
    int64_t first = 2 * IMAGE_TOKENS * x->columns;
    EXPECT_BITS(
        bits_of(y->data, x->data, first * (int64_t)sizeof *x->data, sizeof *x->data, x->columns),
        "rows of the images before");
    cr_assert_neq(x->data[first], y->data[first]);
    ref_free(&before.tensors);
    ref_free(&after.tensors);
    ref_model_destroy(f.model);
}

/* Means are weighted by tokens: three samples together, against each alone. */
Test(reference, loss_and_gradients_are_means_over_tokens)
{
    fixture f;
    set_up(&f);
    ref_table *grads = ref_model_grads(f.model);
    double sum = 0, gradient = 0;
    int64_t tokens = 0;
    for (int64_t b = 0; b < SAMPLES; b++) {
        ref_result one;
        ref_model_run(f.model, &f.samples[b], 1, &one);
        sum += one.loss * (double)one.tokens;
        gradient += ref_find(grads, "llm.head.weight")->data[7] * (double)one.tokens;
        tokens += one.tokens;
        ref_free(&one.tensors);
    }
    cr_assert(fabs(loss_of(&f) - sum / (double)tokens) < 1e-14);
    double all = ref_find(grads, "llm.head.weight")->data[7];
    cr_assert(fabs(all - gradient / (double)tokens) < 1e-16);
    ref_model_destroy(f.model);
}

Test(reference, optimizers_by_hand)
{
    ref_table values = {0}, grads = {0};
    *ref_add(&values, "w", 1, 1) = 2;
    *ref_add(&grads, "w", 1, 1) = 4;
    ref_sgd(&values, &grads, 0.5);
    cr_assert_eq(values.list[0].data[0], 0);

    values.list[0].data[0] = 2;
    values.list[0].decays = 1;
    ref_adamw rule = {
        .lr = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1, .decay = 0.5, .clip = 1};
    ref_adamw_step(&rule, &values, &grads); /* clipped to 1: m/(1-b1) = 1, sqrt(v/(1-b2)) = 1 */
    cr_assert(fabs(values.list[0].data[0] - (2 - 0.1 * (0.5 + 1))) < 1e-15);
    grads.list[0].data[0] = -0.5; /* m = 0, v = 0.25 * 0.75 + 0.25 * 0.25 */
    ref_adamw_step(&rule, &values, &grads);
    cr_assert(fabs(values.list[0].data[0] - 1.85 * (1 - 0.1 * 0.5)) < 1e-15);
    ref_free(&values), ref_free(&grads), ref_free(&rule.m), ref_free(&rule.v);
}

Test(reference, generator_by_its_rule)
{
    uint64_t key = ref_key(7, "llm.head.weight");
    cr_assert_eq(key, 0x2f4c4c23dd61bb6du);
    cr_assert(fabs(ref_normal(key, 0) - -0.027567360499808333) < 1e-15);
    cr_assert(fabs(ref_normal(key, 1000) - -1.6646306064844312) < 1e-15);
}
