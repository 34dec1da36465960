#include "evaluate.h"

#include "core/check.h"
#include "core/memory.h"

/* The micro-batch that starts at item `first`. Past the end it repeats the last picture without a
 * name: every rank runs the same calls, and a masked sample adds nothing to sums and counts. */
static void pick_items(batch_item *picked, int64_t total, const batch_item *items, int64_t count,
                       int64_t first, int64_t rotation)
{
    for (int64_t i = 0; i < total; i++) {
        int64_t at = first + i < count ? first + i : count - 1;
        picked[i] = items[at];
        picked[i].picture = items[(at + rotation) % count].picture;
        if (first + i >= count)
            picked[i].name = NULL;
    }
}

static mimo_status add_losses(captioner_model *model, const batch_item *items, int64_t count,
                              int64_t rotation, batch_item *picked)
{
    int64_t total = model->desc.micro_batch;
    for (int64_t first = 0; first < count; first += total) {
        double loss_sum;
        int64_t tokens;
        pick_items(picked, total, items, count, first, rotation);
        batch_fill(&model->batch, picked);
        MIMO_TRY(model_forward(model, &loss_sum, &tokens));
        MIMO_TRY(mimo_gradient_add(model->topology->gradient, loss_sum, tokens));
    }
    return MIMO_OK;
}

mimo_status evaluate_loss(captioner_model *model, const batch_item *items, int64_t count,
                          int64_t rotation, double *loss)
{
    batch_item *picked = NULL;
    mimo_status status = mimo_reserve(&picked, model->desc.micro_batch, sizeof *picked);
    mimo_gradient_reset(model->topology->gradient);
    if (status == MIMO_OK)
        status = add_losses(model, items, count, rotation, picked);
    if (status == MIMO_OK)
        status = mimo_gradient_count(model->topology->gradient, NULL, loss);
    mimo_release(picked);
    return status;
}
