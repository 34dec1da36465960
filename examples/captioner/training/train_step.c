#include "captioner/training/train_step.h"

#include <math.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

enum { WARMUP_STEPS = 100 };
#define PI 3.14159265358979323846

mimo_status trainer_create(step_trainer *out, captioner_model *model, const trainer_desc *desc)
{
    out->desc = *desc;
    out->model = model;
    const rank_topology *topology = model->topology;
    out->gradients = (nn_gradients){.gradient = topology->gradient,
                                    .world = topology->world,
                                    .n = 2,
                                    .stores = {model->encoder.params, model->language.params},
                                    .tp = {topology->encoder_tp, topology->llm_tp}};
    TRY(memory_reserve(&out->chosen, desc->global_batch, sizeof *out->chosen));
    TRY(memory_reserve(&out->gathered, desc->global_batch, sizeof *out->gathered));
    int64_t most = model->desc.micro_batch, count = (desc->global_batch + most - 1) / most;
    TRY(memory_reserve(&out->texts, count, sizeof *out->texts));
    out->micro_batches = count;
    for (int64_t i = 0; i < count; i++)
        TRY(language_text_create(&out->texts[i], &model->language));
    return MIMO_OK;
}

void trainer_destroy(step_trainer *trainer)
{
    for (int64_t i = 0; i < trainer->micro_batches; i++)
        language_text_destroy(&trainer->texts[i]);
    memory_release(trainer->texts);
    memory_release(trainer->chosen);
    memory_release(trainer->gathered);
    *trainer = (struct step_trainer){0};
}

double learning_rate(const trainer_desc *desc, int64_t step)
{
    if (step < WARMUP_STEPS)
        return desc->lr * (double)(step + 1) / WARMUP_STEPS;
    double bucket = (double)(desc->steps - WARMUP_STEPS);
    double done = fmin(1.0, (double)(step - WARMUP_STEPS) / fmax(bucket, 1.0));
    return desc->lr * (0.1 + 0.45 * (1.0 + cos(PI * done)));
}

/* The samples of a micro-batch. */
typedef struct part {
    const batch_item *items;
    int64_t count;
} part;

static part part_at(const step_trainer *trainer, int64_t i)
{
    int64_t most = trainer->model->desc.micro_batch, first = i * most;
    int64_t left = trainer->desc.global_batch - first;
    return (part){trainer->gathered + first, left < most ? left : most};
}

/* The sentences of all micro-batches. Reading is what may fail on one rank alone: the ranks agree
 * on it once, and not between two micro-batches. */
static mimo_status read_texts(step_trainer *trainer)
{
    captioner_model *model = trainer->model;
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; status == MIMO_OK && i < trainer->micro_batches; i++) {
        part own = part_at(trainer, i);
        batch_fill_sentences(&model->batch, own.items, own.count);
        status = language_read(&model->language, &trainer->texts[i], &model->batch);
    }
    return mimo_comm_agree(model->topology->world, status);
}

/* Sums of losses and of gradients over the micro-batches; nothing divides here. */
static mimo_status accumulate(step_trainer *trainer)
{
    captioner_model *model = trainer->model;
    TRY(read_texts(trainer));
    for (int64_t i = 0; i < trainer->micro_batches; i++) {
        part own = part_at(trainer, i);
        batch_fill_pictures(&model->batch, own.items, own.count);
        TRY(model_forward(model, &trainer->texts[i]));
        TRY(model_backward(model, &trainer->texts[i]));
    }
    double loss_sum;
    int64_t tokens;
    TRY(language_losses(&model->language, &loss_sum, &tokens));
    return mimo_gradient_add(trainer->gradients.gradient, loss_sum, tokens);
}

/* The local sums become the gradient of the mean loss over the step's tokens, wherever they lie. */
static mimo_status finish_gradients(const step_trainer *trainer, step_result *result)
{
    const nn_gradients *gradients = &trainer->gradients;
    TRY(mimo_gradient_count(&result->tokens, &result->loss, gradients->gradient));
    TRY(nn_gradients_finish(&result->grad_norm, gradients, result->tokens));
    CHECK(isfinite(result->grad_norm), MIMO_ERR_STATE,
          "the gradient norm is %g at a loss of %g: %s", result->grad_norm, result->loss,
          trainer->stepped ? "lower --lr" : "the weights that this run began with are too large");
    return MIMO_OK;
}

mimo_status train_step(step_trainer *trainer, int64_t step, step_result *result)
{
    const trainer_desc *desc = &trainer->desc;
    nn_params *stores[] = {trainer->model->encoder.params, trainer->model->language.params};
    batch_choose(trainer->chosen, desc->global_batch, step, desc->seed, desc->samples);
    for (int64_t i = 0; i < desc->global_batch; i++)
        trainer->gathered[i] = desc->items[trainer->chosen[i]];

    mimo_gradient_reset(trainer->gradients.gradient);
    for (int i = 0; i < 2; i++)
        TRY(nn_params_zero_grad(stores[i]));
    TRY(accumulate(trainer));
    TRY(finish_gradients(trainer, result));
    nn_adamw rule = NN_ADAMW_INIT;
    rule.lr = learning_rate(desc, step);
    for (int i = 0; i < 2; i++)
        TRY(nn_adamw_step(&rule, stores[i], result->grad_norm));
    trainer->stepped = true;
    return MIMO_OK;
}
