#include "train/model/picture_deal.h"

#include <inttypes.h>

#include "core/mutation.h"
#include "train/model/row_order.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static int64_t samples_of(const micro_batch *batch)
{
    return batch->desc.group * batch->total;
}

static bool is_ragged(const picture_deal *deal)
{
    return deal->desc.batch->desc.most_images > 0;
}

static int64_t picture_values(const micro_batch *batch)
{
    return batch->desc.tokens * batch->desc.patch_values;
}

/* --------------------------------------------- life ------------------------------------------- */

static mimo_status reserve_lists(picture_deal *out)
{
    const micro_batch *batch = out->desc.batch;
    int64_t most = samples_of(batch) * batch->desc.most_images;
    TRY(memory_reserve(&out->pictures, most, sizeof *out->pictures));
    TRY(memory_reserve(&out->positions, batch->desc.most_images, sizeof *out->positions));
    TRY(memory_reserve(&out->items, most, sizeof *out->items));
    TRY(memory_reserve(&out->spans, most, sizeof *out->spans));
    TRY(memory_reserve(&out->rows, most, sizeof *out->rows));
    TRY(memory_reserve(&out->home, most, sizeof *out->home));
    TRY(memory_reserve(&out->lane, most, sizeof *out->lane));
    TRY(memory_reserve(&out->dealt, most, sizeof *out->dealt));
    return memory_reserve(&out->first, out->desc.topology->encoder_dp + 1, sizeof *out->first);
}

mimo_status picture_deal_create(picture_deal *out, const picture_deal_desc *desc)
{
    out->desc = *desc;
    out->desc.runtime = nn_runtime_or_host(desc->runtime);
    TRY(row_order_create(&out->order, out->desc.runtime));
    TRY(memory_reserve(&out->own, desc->batch->pictures, sizeof *out->own));
    TRY(nn_runtime_reserve(out->desc.runtime, &out->patches,
                           desc->batch->pictures * picture_values(desc->batch),
                           sizeof *out->patches));
    return is_ragged(out) ? reserve_lists(out) : MIMO_OK;
}

void picture_deal_destroy(picture_deal *deal)
{
    mimo_alignment_destroy(deal->order);
    nn_runtime_free(deal->desc.runtime, deal->patches);
    memory_release(deal->own);
    memory_release(deal->pictures);
    memory_release(deal->positions);
    memory_release(deal->items);
    memory_release(deal->spans);
    memory_release(deal->rows);
    memory_release(deal->home);
    memory_release(deal->lane);
    memory_release(deal->dealt);
    memory_release(deal->first);
    *deal = (picture_deal){0};
}

/* ------------------------------------------- dealing ------------------------------------------ */

/* The pictures of the sample at a place in the group, each P rows of it. */
static void list_sample(picture_deal *deal, const model_samples *samples, int64_t place,
                        int64_t sample)
{
    const micro_batch *batch = deal->desc.batch;
    int64_t tokens = batch->desc.tokens;
    int64_t home = place * deal->desc.topology->encoder_dp / samples_of(batch);
    int64_t count = sample < 0 ? 0 : samples->pictures(deal->positions, samples->of, sample);
    for (int64_t n = 0; n < count; n++) {
        int64_t i = deal->all++;
        deal->pictures[i] = (picture_number){sample, n};
        deal->items[i] = (mimo_item){place, n * tokens, tokens};
        deal->spans[i] = (mimo_span){place, n * tokens, deal->positions[n], tokens};
        deal->rows[i] = tokens;
        deal->home[i] = home;
    }
}

/* Pictures have one size, so their cost is their number of rows. */
static mimo_status choose_lanes(picture_deal *deal)
{
    const micro_batch *batch = deal->desc.batch;
    mimo_balance_desc desc = MIMO_BALANCE_DESC_INIT;
    desc.items = deal->all;
    desc.lanes = deal->desc.topology->encoder_dp;
    desc.cost = desc.rows = deal->rows;
    desc.home = deal->home;
    desc.max_rows = batch->pictures * batch->desc.tokens;
    if (deal->desc.balanced)
        TRY(mimo_balance(deal->lane, &desc));
    for (int64_t i = 0; !deal->desc.balanced && i < deal->all; i++)
        deal->lane[i] = deal->home[i];
    mimo_balance_report_init(&deal->report, sizeof deal->report);
    TRY(mimo_balance_report_of(&deal->report, &desc, deal->lane));
    CHECK(deal->report.rows_over == 0, MIMO_ERR_INTERNAL,
          "%" PRId64 " image rows more than the encoder has room for", deal->report.rows_over);
    return mimo_items_deal(deal->dealt, deal->first, deal->items, deal->lane, deal->all,
                           desc.lanes);
}

static void take_own(picture_deal *deal)
{
    deal->count = 0;
    for (int64_t i = 0; i < deal->all; i++)
        if (deal->lane[i] == deal->desc.topology->encoder_dp_rank)
            deal->own[deal->count++] = deal->pictures[i];
}

static mimo_status deal_ragged(picture_deal *deal, const model_samples *samples,
                               const int64_t *picked)
{
    deal->all = 0;
    for (int64_t place = 0; place < samples_of(deal->desc.batch); place++)
        list_sample(deal, samples, place, picked[place]);
    TRY(choose_lanes(deal));
    take_own(deal);
    return MIMO_OK;
}

static mimo_status find_order(picture_deal *deal)
{
    if (deal->count == 0 || deal->ordered == deal->count)
        return MIMO_OK;
    TRY(row_order_set(deal->order, deal->count, deal->desc.batch->desc.tokens, deal->desc.runtime));
    deal->ordered = deal->count;
    return MIMO_OK;
}

mimo_status picture_deal_make(picture_deal *deal, const model_samples *samples,
                              const int64_t *picked)
{
    const micro_batch *batch = deal->desc.batch;
    int64_t first = MIMO_MUTATED("pictures-of-lane-0") ? 0 : batch->first_picture;
    deal->count = batch->pictures;
    for (int64_t b = 0; !is_ragged(deal) && b < deal->count; b++)
        deal->own[b] = (picture_number){picked[first + b], 0};
    if (is_ragged(deal))
        TRY(deal_ragged(deal, samples, picked));
    return find_order(deal);
}

mimo_status picture_deal_load(picture_deal *deal, const model_samples *samples)
{
    micro_batch *batch = deal->desc.batch;
    int64_t values = deal->count * picture_values(batch);
    batch_fill_pictures(batch, samples, deal->own, deal->count);
    return nn_runtime_write(deal->desc.runtime, deal->patches, batch->patches,
                            values * (int64_t)sizeof *deal->patches);
}

void picture_deal_count(lane_rows *sums, const picture_deal *deal)
{
    const mimo_balance_report *report = &deal->report;
    sums->lanes = deal->desc.topology->encoder_dp;
    sums->all += report->rows;
    sums->loaded += report->longest_home;
    sums->encoded += report->longest;
    sums->moved += report->rows_moved;
}

mimo_batch_desc picture_deal_batch(mimo_batch_items *items, const picture_deal *deal)
{
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    mimo_batch_items_init(items, sizeof *items);
    items->src = deal->dealt;
    items->src_first = deal->first;
    desc.batch = samples_of(deal->desc.batch);
    desc.ragged = true;
    desc.spans = deal->spans;
    desc.span_count = deal->all;
    desc.items = items;
    return desc;
}
