#include "captioner/captions/evaluate.h"

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Samples that one pass takes. */
static int64_t samples_of(const model_pass *pass)
{
    return pass->desc.micro_batches * pass->desc.samples;
}

static mimo_status add_losses(model_pass *pass, const batch_item *items, int64_t count,
                              int64_t rotation, batch_item *picked)
{
    bridged_model *model = pass->model;
    for (int64_t first = 0; first < count; first += samples_of(pass)) {
        int64_t many = smaller(count - first, samples_of(pass));
        for (int64_t i = 0; i < many; i++) {
            picked[i] = items[first + i];
            picked[i].picture = items[(first + i + rotation) % count].picture;
        }
        TRY(caption_pass_run(pass, picked, many));
    }
    double loss_sum;
    int64_t tokens;
    TRY(language_losses(&model->language, &loss_sum, &tokens));
    return mimo_gradient_add(model->topology->gradient, loss_sum, tokens);
}

/* As many micro-batches at a time as the model was made for, where there are that many. */
static mimo_status create_pass(model_pass *out, bridged_model *model, int64_t count)
{
    int64_t total = model->batch.total, parts = (count + total - 1) / total;
    const model_pass_desc desc = {.micro_batches = smaller(parts, model->desc.micro_batches),
                                  .samples = total};
    return model_pass_create(out, model, &desc);
}

mimo_status evaluate_loss(bridged_model *model, const batch_item *items, int64_t count,
                          int64_t rotation, double *loss)
{
    model_pass pass = {0};
    batch_item *picked = NULL;
    mimo_status status = create_pass(&pass, model, count > 0 ? count : 1);
    if (status == MIMO_OK)
        status = mimo_comm_agree(model->topology->world,
                                 memory_reserve(&picked, samples_of(&pass), sizeof *picked));
    mimo_gradient_reset(model->topology->gradient);
    if (status == MIMO_OK)
        status = add_losses(&pass, items, count, rotation, picked);
    if (status == MIMO_OK)
        status = mimo_gradient_count(NULL, loss, model->topology->gradient);
    memory_release(picked);
    model_pass_destroy(&pass);
    return status;
}
