#include "captioner/training/model_state.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { PARTS = 3 };
static const struct {
    nn_part part;
    const char *suffix;
} parts[PARTS] = {{NN_VALUE, ""}, {NN_MOMENT_M, ".adam_m"}, {NN_MOMENT_V, ".adam_v"}};

static bool is_chosen(const nn_param *param, nn_part part, state_choice choice)
{
    if (!nn_param_has(param, part))
        return false;
    switch (choice) {
    case STATE_CHANGING:
        return param->held && nn_param_changes(param);
    case STATE_TRAINED:
        return nn_param_changes(param);
    case STATE_BASE:
        return part == NN_VALUE && !param->adapter;
    case STATE_ALL:
        break;
    }
    return true;
}

static void list_store(model_state *out, const nn_owners *owners, state_choice choice)
{
    for (int i = 0; i < nn_params_count(owners->params); i++)
        for (int p = 0; p < PARTS; p++) {
            const nn_param *param = nn_params_at(owners->params, i);
            if (is_chosen(param, parts[p].part, choice))
                out->arrays[out->count++] =
                    (state_array){param, {owners, i, parts[p].part}, parts[p].suffix};
        }
}

mimo_status model_state_list(model_state *out, const bridged_model *model, state_choice choice)
{
    int64_t most = 0;
    for (int s = 0; s < MODEL_STORES; s++)
        most += PARTS * (int64_t)nn_params_count(model->owners[s].params);
    TRY(memory_reserve(&out->arrays, most, sizeof *out->arrays));
    for (int s = 0; s < MODEL_STORES; s++)
        list_store(out, &model->owners[s], choice);
    return MIMO_OK;
}

void model_state_release(model_state *state)
{
    memory_release(state->arrays);
    *state = (model_state){0};
}

size_t model_state_param_length(const char *name)
{
    size_t length = strlen(name);
    for (int p = 0; p < PARTS; p++) {
        size_t bytes = strlen(parts[p].suffix);
        if (bytes > 0 && length > bytes && strcmp(name + length - bytes, parts[p].suffix) == 0)
            return length - bytes;
    }
    return length;
}

void model_state_set_steps(const bridged_model *model, int64_t steps)
{
    for (int s = 0; s < MODEL_STORES; s++)
        nn_params_set_steps(model->owners[s].params, steps);
}
