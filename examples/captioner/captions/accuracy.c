#include "captioner/captions/accuracy.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* A forward of one micro-batch, and what each rank knows of it: those of the last stage. */
typedef struct name_reading {
    bridged_model *model;
    model_pass pass;
    int64_t letters;      /* bytes of the longest name, and its end */
    int64_t *predicted;   /* [rows] */
    double *losses;       /* [rows] */
    uint8_t *wrong;       /* [total, letters] */
    uint8_t *all_wrong;   /* [ranks, total, letters] */
    double *sums;         /* [total] */
    double *all_sums;     /* [ranks, total] */
    batch_item *together; /* [total] */
} name_reading;

static mimo_status reading_reserve(name_reading *out)
{
    const bridged_model *model = out->model;
    int64_t total = model->batch.total, rows = model->language.rows;
    int64_t ranks = mimo_comm_size(model->topology->world);
    out->letters = model->batch.desc.seq - model->batch.desc.tokens + 1;
    TRY(memory_reserve(&out->predicted, rows, sizeof *out->predicted));
    TRY(memory_reserve(&out->losses, rows, sizeof *out->losses));
    TRY(memory_reserve(&out->wrong, total * out->letters, sizeof *out->wrong));
    TRY(memory_reserve(&out->all_wrong, ranks * total * out->letters, sizeof *out->all_wrong));
    TRY(memory_reserve(&out->sums, total, sizeof *out->sums));
    TRY(memory_reserve(&out->all_sums, ranks * total, sizeof *out->all_sums));
    return memory_reserve(&out->together, total, sizeof *out->together);
}

/* Collective. */
static mimo_status reading_create(name_reading *out, bridged_model *model)
{
    const model_pass_desc pass = {.micro_batches = 1, .samples = model->batch.total};
    out->model = model;
    TRY(model_pass_create(&out->pass, model, &pass));
    return mimo_comm_agree(model->topology->world, reading_reserve(out));
}

static void reading_destroy(name_reading *reading)
{
    model_pass_destroy(&reading->pass);
    memory_release(reading->predicted);
    memory_release(reading->losses);
    memory_release(reading->wrong);
    memory_release(reading->all_wrong);
    memory_release(reading->sums);
    memory_release(reading->all_sums);
    memory_release(reading->together);
}

static mimo_status forward(name_reading *reading, const batch_item *items, int64_t count)
{
    double loss_sum; /* nobody asks for that of all */
    int64_t tokens;
    TRY(caption_pass_run(&reading->pass, items, count));
    return language_losses(&reading->model->language, &loss_sum, &tokens);
}

/* ----------------------------------------- letters -------------------------------------------- */

/* The letters of its rows that this rank's model would write otherwise. */
static void mark_wrong(name_reading *reading)
{
    const bridged_model *model = reading->model;
    const language_model *language = &model->language;
    const micro_batch *batch = &model->batch;
    memset(reading->wrong, 0, (size_t)(batch->total * reading->letters));
    for (int64_t s = 0; language->last && s < language->share; s++)
        for (int64_t b = 0; b < batch->sentences; b++) {
            int64_t row = s * batch->sentences + b, label = reading->pass.texts[0].labels[row];
            int64_t letter = language->positions[s] + 1 - batch->desc.tokens;
            if (label != NN_IGNORE && label != reading->predicted[row])
                reading->wrong[(batch->first_sentence + b) * reading->letters + letter] = 1;
        }
}

static mimo_status share_wrong(name_reading *reading)
{
    mimo_comm *world = reading->model->topology->world;
    int64_t bytes = reading->model->batch.total * reading->letters;
    TRY(mimo_comm_host_allgather(world, reading->all_wrong, reading->wrong, (int)bytes));
    for (int64_t i = 0; i < mimo_comm_size(world) * bytes; i++)
        reading->wrong[i % bytes] |= reading->all_wrong[i];
    return MIMO_OK;
}

/* A word ends with a space, or with the name. */
static void count_words(caption_accuracy *out, const batch_item *item, const uint8_t *wrong)
{
    bool exact = true, right = true;
    for (int64_t i = 0; i <= item->length; i++) {
        right = right && !wrong[i];
        if (i < item->length && item->name[i] != ' ')
            continue;
        out->words++;
        out->right_words += right;
        exact = exact && right;
        right = true;
    }
    out->names++;
    out->exact += exact;
}

/* On the last stage. */
static mimo_status predict(name_reading *reading)
{
    language_model *language = &reading->model->language;
    int64_t state = language_last_state(language);
    return language->last ? language_predict(language, state, reading->predicted) : MIMO_OK;
}

static mimo_status add_batch(caption_accuracy *out, name_reading *reading, const batch_item *items,
                             int64_t count)
{
    TRY(forward(reading, items, count));
    TRY(mimo_comm_agree(reading->model->topology->world, predict(reading)));
    mark_wrong(reading);
    TRY(share_wrong(reading));
    for (int64_t i = 0; i < count; i++)
        count_words(out, &items[i], reading->wrong + i * reading->letters);
    return MIMO_OK;
}

mimo_status accuracy_measure(caption_accuracy *out, bridged_model *model, const batch_item *items,
                             int64_t count)
{
    int64_t total = model->batch.total;
    caption_accuracy sums = {0};
    name_reading reading = {0};
    mimo_status status = reading_create(&reading, model);
    for (int64_t first = 0; status == MIMO_OK && first < count; first += total)
        status = add_batch(&sums, &reading, items + first,
                           count - first < total ? count - first : total);
    reading_destroy(&reading);
    if (status == MIMO_OK)
        *out = sums;
    return status;
}

/* ----------------------------------------- places --------------------------------------------- */

/* The loss of each sample, from the rows of this rank of the last stage. Of tp ranks, which have
 * the same, one adds them. */
static mimo_status add_losses(name_reading *reading)
{
    const bridged_model *model = reading->model;
    const language_model *language = &model->language;
    const micro_batch *batch = &model->batch;
    mimo_comm *tp = model->topology->llm_tp;
    memset(reading->sums, 0, (size_t)batch->total * sizeof *reading->sums);
    if (!language->last)
        return MIMO_OK;
    const language_saved *saved = &language->saved[language_last_state(language)];
    TRY(nn_loss_read_rows(&language->loss, &saved->loss, reading->losses));
    for (int64_t row = 0; (!tp || mimo_comm_rank(tp) == 0) && row < language->rows; row++)
        reading->sums[batch->first_sentence + row % batch->sentences] += reading->losses[row];
    return MIMO_OK;
}

static mimo_status share_losses(name_reading *reading)
{
    mimo_comm *world = reading->model->topology->world;
    int64_t total = reading->model->batch.total;
    TRY(mimo_comm_host_allgather(world, reading->all_sums, reading->sums,
                                 (int)(total * (int64_t)sizeof *reading->sums)));
    memset(reading->sums, 0, (size_t)total * sizeof *reading->sums);
    for (int64_t i = 0; i < mimo_comm_size(world) * total; i++)
        reading->sums[i % total] += reading->all_sums[i];
    return MIMO_OK;
}

/* A table of pictures and names: each picture with each of the others' names, then with its own. */
typedef struct pairing {
    const batch_item *items, *others;
    int64_t count, many;
} pairing;

static batch_item pair_at(const pairing *pairs, int64_t index)
{
    const batch_item *picture = &pairs->items[index / (pairs->many + 1)];
    int64_t name = index % (pairs->many + 1);
    batch_item pair = name < pairs->many ? pairs->others[name] : *picture;
    pair.picture = picture->picture;
    return pair;
}

static mimo_status read_losses(double *losses, name_reading *reading, const pairing *pairs)
{
    bridged_model *model = reading->model;
    int64_t count = pairs->count * (pairs->many + 1), total = model->batch.total;
    for (int64_t first = 0; first < count; first += total) {
        int64_t some = count - first < total ? count - first : total;
        for (int64_t i = 0; i < some; i++)
            reading->together[i] = pair_at(pairs, first + i);
        TRY(forward(reading, reading->together, some));
        TRY(mimo_comm_agree(model->topology->world, add_losses(reading)));
        TRY(share_losses(reading));
        memcpy(losses + first, reading->sums, (size_t)some * sizeof *losses);
    }
    return MIMO_OK;
}

mimo_status accuracy_places(int64_t *places, bridged_model *model, const batch_item *items,
                            int64_t count, const batch_item *others, int64_t many)
{
    const pairing pairs = {items, others, count, many};
    name_reading reading = {0};
    double *losses = NULL;
    mimo_status status = reading_create(&reading, model);
    if (status == MIMO_OK)
        status = mimo_comm_agree(model->topology->world,
                                 memory_reserve(&losses, count * (many + 1), sizeof *losses));
    if (status == MIMO_OK)
        status = read_losses(losses, &reading, &pairs);
    for (int64_t i = 0; status == MIMO_OK && i < count; i++) {
        const double *row = losses + i * (many + 1);
        places[i] = 0;
        for (int64_t j = 0; j < many; j++)
            places[i] += row[j] < row[many];
    }
    memory_release(losses);
    reading_destroy(&reading);
    return status;
}
