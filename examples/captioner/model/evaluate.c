#include "captioner/model/evaluate.h"

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

static mimo_status add_losses(captioner_model *model, const batch_item *items, int64_t count,
                              int64_t rotation, batch_item *picked)
{
    int64_t total = model->batch.total;
    for (int64_t first = 0; first < count; first += total) {
        int64_t many = count - first < total ? count - first : total;
        for (int64_t i = 0; i < many; i++) {
            picked[i] = items[first + i];
            picked[i].picture = items[(first + i + rotation) % count].picture;
        }
        batch_fill(&model->batch, picked, many);
        TRY(model_read(model));
        TRY(model_forward(model, &model->text));
    }
    double loss_sum;
    int64_t tokens;
    TRY(language_losses(&model->language, &loss_sum, &tokens));
    return mimo_gradient_add(model->topology->gradient, loss_sum, tokens);
}

mimo_status evaluate_loss(captioner_model *model, const batch_item *items, int64_t count,
                          int64_t rotation, double *loss)
{
    batch_item *picked = NULL;
    mimo_status status = memory_reserve(&picked, model->batch.total, sizeof *picked);
    status = mimo_comm_agree(model->topology->world, status);
    mimo_gradient_reset(model->topology->gradient);
    if (status == MIMO_OK)
        status = add_losses(model, items, count, rotation, picked);
    if (status == MIMO_OK)
        status = mimo_gradient_count(NULL, loss, model->topology->gradient);
    memory_release(picked);
    return status;
}
