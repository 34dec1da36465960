#include "captioner/captions/generate.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/utf8.h"

/* One micro-batch of names in the making. */
typedef struct name_drafts {
    bridged_model *model;
    model_pass pass; /* over one micro-batch */
    const batch_item *items;
    generated_name *names;
    int64_t count;      /* names of this micro-batch, at most its total */
    batch_item *picked; /* [total] */
    int32_t *next;      /* [total] the token after each name; -1 where another rank knows */
    int32_t *heard;     /* [ranks, total] what each rank knows */
    bool *ended;        /* [total] */
    int64_t *predicted; /* [rows] */
} name_drafts;

static mimo_status draft_reserve(name_drafts *draft)
{
    int64_t total = draft->model->batch.total;
    TRY(memory_reserve(&draft->picked, total, sizeof *draft->picked));
    TRY(memory_reserve(&draft->next, total, sizeof *draft->next));
    int64_t ranks = mimo_comm_size(draft->model->topology->world);
    TRY(memory_reserve(&draft->heard, ranks * total, sizeof *draft->heard));
    TRY(memory_reserve(&draft->ended, total, sizeof *draft->ended));
    return memory_reserve(&draft->predicted, draft->model->language.rows, sizeof *draft->predicted);
}

static void draft_release(name_drafts *draft)
{
    memory_release(draft->picked);
    memory_release(draft->next);
    memory_release(draft->heard);
    memory_release(draft->ended);
    memory_release(draft->predicted);
    model_pass_destroy(&draft->pass);
}

static void pick_beginnings(name_drafts *draft)
{
    for (int64_t i = 0; i < draft->count; i++)
        draft->picked[i] = (batch_item){.picture = draft->items[i].picture,
                                        .name = draft->names[i].bytes,
                                        .length = draft->names[i].length,
                                        .open = true};
}

/* The prediction after the last byte of each name, where this rank holds that position and is of
 * the last stage. */
static void read_predictions(name_drafts *draft)
{
    const language_model *language = &draft->model->language;
    const micro_batch *batch = &draft->model->batch;
    for (int64_t i = 0; i < draft->count; i++)
        draft->next[i] = -1;
    for (int64_t s = 0; language->last && s < language->share; s++)
        for (int64_t b = 0; b < batch->sentences; b++) {
            int64_t i = batch->first_sentence + b;
            if (i < draft->count &&
                language->positions[s] == batch->desc.tokens + draft->picked[i].length - 1)
                draft->next[i] = (int32_t)draft->predicted[s * batch->sentences + b];
        }
}

/* Append what was predicted; returns whether any name goes on: to EOS, or for want of room. */
static bool append(name_drafts *draft)
{
    const micro_batch *batch = &draft->model->batch;
    int64_t room = batch->desc.seq - batch->desc.tokens;
    int64_t longest = room < NAME_CAPACITY ? room : NAME_CAPACITY;
    bool open = false;
    for (int64_t i = 0; i < draft->count; i++) {
        generated_name *name = &draft->names[i];
        int32_t token = draft->next[i];
        bool *ended = &draft->ended[i];
        if (!*ended && token >= 0 && token < TOKEN_END)
            name->bytes[name->length++] = (char)token;
        else
            *ended = true;
        *ended = *ended || name->length >= longest;
        open = open || !*ended;
    }
    return open;
}

/* tp ranks know the same, other ranks -1: the maximum is what the one knows. */
static mimo_status share_predictions(name_drafts *draft)
{
    mimo_comm *world = draft->model->topology->world;
    int64_t count = draft->count;
    TRY(mimo_comm_host_allgather(world, draft->heard, draft->next,
                                 (int)(count * (int64_t)sizeof *draft->next)));
    for (int64_t i = 0; i < mimo_comm_size(world) * count; i++)
        if (draft->heard[i] > draft->next[i % count])
            draft->next[i % count] = draft->heard[i];
    return MIMO_OK;
}

/* On the last stage. */
static mimo_status predict(name_drafts *draft)
{
    language_model *language = &draft->model->language;
    int64_t state = language_last_state(language);
    return language->last ? language_predict(language, state, draft->predicted) : MIMO_OK;
}

static mimo_status extend_all(name_drafts *draft)
{
    bool open = true;
    memset(draft->ended, 0, (size_t)draft->count * sizeof *draft->ended);
    while (open) {
        pick_beginnings(draft);
        TRY(caption_pass_run(&draft->pass, draft->picked, draft->count));
        TRY(mimo_comm_agree(draft->model->topology->world, predict(draft)));
        read_predictions(draft);
        TRY(share_predictions(draft));
        open = append(draft);
    }
    double loss_sum; /* of names in the making: nobody asks for it */
    int64_t tokens;
    return language_losses(&draft->model->language, &loss_sum, &tokens);
}

/* An untrained model writes any byte: keep terminals and pictures safe. */
static void make_printable(generated_name *name)
{
    size_t length = (size_t)name->length, at = 0;
    while ((at += utf8_printable(name->bytes + at, length - at)) < length)
        name->bytes[at++] = '?';
}

mimo_status generate_names(bridged_model *model, const batch_item *items, int64_t count,
                           generated_name *names)
{
    int64_t total = model->batch.total;
    name_drafts draft = {.model = model};
    const model_pass_desc pass = {.micro_batches = 1, .samples = total};
    mimo_status status = model_pass_create(&draft.pass, model, &pass);
    if (status == MIMO_OK)
        status = mimo_comm_agree(model->topology->world, draft_reserve(&draft));
    memset(names, 0, (size_t)count * sizeof *names);
    for (int64_t first = 0; status == MIMO_OK && first < count; first += total) {
        draft.items = items + first;
        draft.names = names + first;
        draft.count = count - first < total ? count - first : total;
        status = extend_all(&draft);
    }
    draft_release(&draft);
    for (int64_t i = 0; status == MIMO_OK && i < count; i++)
        make_printable(&names[i]);
    return status;
}
