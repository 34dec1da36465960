/* A block, a head and the loss, with what a micro-batch saves. A failure here ends the process. */
#ifndef MIMO_TESTS_BLOCK_MODEL_H
#define MIMO_TESTS_BLOCK_MODEL_H

#include <string.h>

#include "train/nn/nn.h"
#include "nn_test_memory.h"

typedef struct model {
    nn_params *params;
    nn_sequence sequence;
    nn_block block;
    nn_linear head;
    nn_loss loss;
    nn_block_saved block_saved;
    nn_linear_saved head_saved;
    nn_loss_saved loss_saved;
    nn_room room; /* of the three */
} model;

typedef struct model_parts {
    nn_params *params; /* the model's from then on */
    mimo_comm *tp;
    nn_sequence_desc sequence;
    nn_block_desc block;
    nn_linear_desc head;
} model_parts;

static inline mimo_status model_place(model *m)
{
    mimo_status status = nn_block_saved_take(&m->block_saved, &m->block, &m->room);
    if (status == MIMO_OK)
        status = nn_linear_saved_take(&m->head_saved, &m->head, &m->room);
    return status == MIMO_OK ? nn_loss_saved_take(&m->loss_saved, &m->loss, &m->room) : status;
}

#define MODEL_MUST(call) nn_test_must((call), #call)

static inline void model_make(model *m, const model_parts *of)
{
    int64_t rows = of->sequence.rows * of->sequence.batch;
    memset(m, 0, sizeof *m);
    m->params = of->params;
    MODEL_MUST(nn_sequence_init(&m->sequence, &of->sequence));
    MODEL_MUST(nn_block_init(&m->block, m->params, of->tp, &of->block));
    MODEL_MUST(nn_linear_init(&m->head, m->params, of->tp, &of->head));
    MODEL_MUST(nn_loss_init(&m->loss, nn_test_runtime(), of->tp, of->head.out, rows));
    MODEL_MUST(nn_params_seal(m->params));
    NN_TEST_PLACE(m->room, model_place(m));
}

static inline void model_release(model *m)
{
    nn_sequence_release(&m->sequence);
    nn_block_release(&m->block);
    nn_linear_release(&m->head);
    nn_loss_release(&m->loss);
    nn_room_release(&m->room);
    nn_params_destroy(m->params);
}

#endif
