#include "captioner/training/train_step.h"

#include <math.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { WARMUP_STEPS = 100 };
#define PI 3.14159265358979323846

static mimo_status reserve_lists(step_trainer *out)
{
    int64_t count = out->desc.global_batch;
    const language_model *language = &out->model->language;
    int64_t most = out->model->desc.most_images;
    TRY(memory_reserve(&out->further, most > 1 ? count * (most - 1) : 0, sizeof *out->further));
    TRY(memory_reserve(&out->chosen, count, sizeof *out->chosen));
    TRY(memory_reserve(&out->loads, language->mixtures * language->experts, sizeof *out->loads));
    return memory_reserve(&out->gathered, count, sizeof *out->gathered);
}

mimo_status trainer_create(step_trainer *out, bridged_model *model, const trainer_desc *desc)
{
    out->desc = *desc;
    out->model = model;
    const rank_topology *topology = model->topology;
    out->gradients = (nn_gradients){.gradient = topology->gradient,
                                    .world = topology->world,
                                    .n = 2,
                                    .stores = {model->encoder.params, model->language.params},
                                    .tp = {topology->encoder_tp, topology->llm_tp},
                                    .pp = {NULL, topology->llm_pp},
                                    .experts = {NULL, topology->experts.group}};
    TRY(mimo_comm_agree(topology->world, reserve_lists(out)));
    int64_t most = model->desc.micro_batch;
    const model_pass_desc pass = {
        .backward = true, .micro_batches = (desc->global_batch + most - 1) / most, .samples = most};
    return model_pass_create(&out->pass, model, &pass);
}

void trainer_destroy(step_trainer *trainer)
{
    model_pass_destroy(&trainer->pass);
    memory_release(trainer->chosen);
    memory_release(trainer->gathered);
    memory_release(trainer->further);
    memory_release(trainer->loads);
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

/* Sums of losses and of gradients over the micro-batches; nothing divides here. */
static mimo_status accumulate(step_trainer *trainer)
{
    double loss_sum;
    int64_t tokens;
    TRY(caption_pass_run(&trainer->pass, trainer->gathered, trainer->desc.global_batch));
    trainer->lanes = model_pass_lanes(&trainer->pass);
    TRY(language_losses(&trainer->model->language, &loss_sum, &tokens));
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

/* The samples of a step, each as its place in the run has it. */
static void gather_samples(step_trainer *trainer, int64_t step)
{
    const trainer_desc *desc = &trainer->desc;
    const model_desc *model = &trainer->model->desc;
    int64_t count = desc->global_batch, more = model->most_images > 1 ? model->most_images - 1 : 0;
    const turn_choice choice = {.items = desc->items,
                                .samples = desc->samples,
                                .least = desc->least_images,
                                .most = model->most_images,
                                .side = caption_side(model->tokens),
                                .seq = model->seq,
                                .augment = desc->augment,
                                .seed = desc->seed};
    turn_samples(trainer->chosen, count, step, desc->seed, desc->samples);
    for (int64_t i = 0; i < count; i++)
        trainer->gathered[i] =
            turn_choose(&trainer->further[i * more], &choice, trainer->chosen[i], step * count + i);
}

mimo_status train_step(step_trainer *trainer, int64_t step, step_result *result)
{
    const trainer_desc *desc = &trainer->desc;
    nn_params *stores[] = {trainer->model->encoder.params, trainer->model->language.params};
    gather_samples(trainer, step);
    mimo_gradient_reset(trainer->gradients.gradient);
    for (int i = 0; i < 2; i++)
        TRY(nn_params_zero_grad(stores[i]));
    TRY(accumulate(trainer));
    TRY(finish_gradients(trainer, result));
    nn_adamw rule = NN_ADAMW_INIT;
    rule.lr = learning_rate(desc, step);
    rule.decay = desc->decay;
    for (int i = 0; i < 2; i++)
        TRY(nn_adamw_step(&rule, stores[i], result->grad_norm));
    trainer->stepped = true;
    return language_adjust(&trainer->model->language, trainer->model->topology->experts.stage,
                           trainer->loads);
}
