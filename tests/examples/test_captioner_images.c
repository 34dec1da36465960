/* Samples of several pictures: their ids and labels, how a run chooses their turns, and who encodes
 * which of their pictures. */
#include <math.h>
#include <string.h>

#include "captioner/training/lane_loads.h"
#include "captioner/training/turn_choice.h"
#include "expect_failure.h"

enum { SIDE = 16, P = 4, S = 24, SAMPLES = 8, MOST = 3, LANES = 4 };
enum { I = TOKEN_IMAGE, E = TOKEN_END, N = TOKEN_PAD, X = NN_IGNORE };

static const uint8_t picture[SIDE * SIDE * 3];

static micro_batch batch_of(int64_t total, int64_t *ids, int64_t *labels)
{
    return (micro_batch){.desc = {.tokens = P,
                                  .patch_values = PATCH_VALUES,
                                  .seq = S,
                                  .words = CAPTION_WORDS,
                                  .group = 1,
                                  .most_images = MOST},
                         .total = total,
                         .pictures = total / LANES * MOST,
                         .sentences = total,
                         .ids = ids,
                         .labels = labels};
}

static void fill_sentences(micro_batch *batch, const batch_item *items, int64_t count)
{
    const caption_samples own = {items, count, P, S, MOST};
    const model_samples samples = caption_describe(&own);
    batch_fill_sentences(batch, &samples, 0, count);
}

static batch_item turn_of(const char *name, const batch_item *next)
{
    return (batch_item){
        .picture = picture, .name = name, .length = (int64_t)strlen(name), .next = next};
}

Test(captioner_images, turns_follow_each_other_in_a_sentence)
{
    enum { COUNT = 4 };
    int64_t ids[COUNT][S], labels[COUNT][S];
    micro_batch batch = batch_of(COUNT, ids[0], labels[0]);
    const batch_item third = turn_of("xyzabcd", NULL), second = turn_of("c", &third);
    batch_item items[] = {turn_of("ab", &second), turn_of("ab", NULL), turn_of("ab", NULL)};
    items[1].picture = NULL; /* a name alone */
    items[2].open = true;
    fill_sentences(&batch, items, 3);

    /* The last EOS of the first sentence is a label alone; the last sentence is masked. */
    static const int64_t want_ids[COUNT][S] = {
        {I, I, I, I, 'a', 'b', E,   I,   I,   I,   I,   'c',
         E, I, I, I, I,   'x', 'y', 'z', 'a', 'b', 'c', 'd'},
        {'a', 'b', E, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N},
        {I, I, I, I, 'a', 'b', N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N},
        {N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N}};
    static const int64_t want_labels[COUNT][S] = {
        {X, X, X, 'a', 'b', E,   X,   X,   X,   X,   'c', E,
         X, X, X, X,   'x', 'y', 'z', 'a', 'b', 'c', 'd', E},
        {'b', E, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X},
        {X, X, X, 'a', 'b', X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X},
        {X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X}};
    for (int b = 0; b < COUNT; b++)
        for (int s = 0; s < S; s++) {
            cr_assert_eq(ids[b][s], want_ids[b][s], "id %d of sample %d is %ld", s, b,
                         (long)ids[b][s]);
            cr_assert_eq(labels[b][s], want_labels[b][s], "label %d of sample %d is %ld", s, b,
                         (long)labels[b][s]);
        }
}

/* ------------------------------------------- choosing ----------------------------------------- */

enum { ITEMS = 50, ROOM_FOR_TWO = 2 * (P + 2) - 1 };

static void fill_items(batch_item items[ITEMS])
{
    static char names[ITEMS][2];
    static uint8_t pictures[ITEMS][SIDE * SIDE * 3];
    for (int i = 0; i < ITEMS; i++) {
        names[i][0] = (char)('0' + i);
        items[i] = turn_of(names[i], NULL);
        items[i].picture = pictures[i];
    }
}

/* How many of a sample's turns behind the first are no turn that it had before. */
static int count_new(const batch_item *sample)
{
    int count = 0;
    for (const batch_item *turn = sample->next; turn; turn = turn->next) {
        const batch_item *before = sample;
        while (before != turn && before->picture != turn->picture)
            before = before->next;
        count += before == turn;
    }
    return count;
}

static int count_pictures(const batch_item *sample)
{
    int count = 0;
    for (; sample; sample = sample->next)
        count += sample->picture != NULL;
    return count;
}

Test(captioner_images, numbers_of_pictures_come_from_the_place_in_the_run)
{
    enum { PLACES = 500 };
    batch_item items[ITEMS], further[MOST], again[MOST];
    int seen[MOST + 1] = {0}, further_turns = 0, others = 0;
    fill_items(items);
    turn_choice choice = {.items = items, .samples = ITEMS, .most = MOST, .side = SIDE, .seq = 64};
    for (int64_t place = 0; place < PLACES; place++) {
        batch_item sample = turn_choose(further, &choice, place % ITEMS, place);
        batch_item same = turn_choose(again, &choice, place % ITEMS, place);
        int count = count_pictures(&sample);
        cr_assert(count <= MOST && count == count_pictures(&same));
        cr_assert_str_eq(sample.name, items[place % ITEMS].name, "the chosen one comes first");
        cr_assert_eq(sample.picture == NULL, count == 0, "a sample is pictures, or a name alone");
        for (const batch_item *a = &sample, *b = &same; a; a = a->next, b = b->next)
            cr_assert_str_eq(a->name, b->name);
        seen[count]++;
        further_turns += count > 1 ? count - 1 : 0;
        others += count > 1 ? count_new(&sample) : 0;
    }
    for (int n = 0; n <= MOST; n++)
        cr_assert(seen[n] > PLACES / (MOST + 1) / 2, "%d pictures %d times", n, seen[n]);
    cr_assert(others > further_turns * 9 / 10, "%d of %d further turns", others, further_turns);
}

Test(captioner_images, a_sample_ends_where_there_is_no_more_room)
{
    batch_item items[ITEMS], further[MOST];
    fill_items(items);
    turn_choice choice = {.items = items,
                          .samples = ITEMS,
                          .least = MOST,
                          .most = MOST,
                          .side = SIDE,
                          .seq = ROOM_FOR_TWO};
    for (int64_t place = 0; place < 20; place++) {
        batch_item sample = turn_choose(further, &choice, 0, place);
        cr_assert_eq(count_pictures(&sample), 2, "the last EOS is a label alone");
    }
    choice.seq--;
    batch_item sample = turn_choose(further, &choice, 0, 0);
    cr_assert_eq(count_pictures(&sample), 1);
}

Test(captioner_images, each_turn_changes_by_itself)
{
    enum { PLACES = 100 };
    batch_item items[ITEMS], further[MOST];
    int differ = 0;
    fill_items(items);
    const turn_choice choice = {.items = items,
                                .samples = ITEMS,
                                .least = 3,
                                .most = 3,
                                .side = 64,
                                .seq = 256,
                                .augment = AUGMENT_SHIFT,
                                .seed = 3};
    for (int64_t place = 0; place < PLACES; place++) {
        batch_item sample = turn_choose(further, &choice, 0, place);
        const batch_item *second = sample.next, *third = second->next;
        differ += sample.change.right != second->change.right &&
                  second->change.right != third->change.right;
    }
    cr_assert(differ > PLACES / 2, "%d of %d", differ, PLACES);
}

/* -------------------------------------------- dealing ----------------------------------------- */

typedef struct dealt_batch {
    batch_item turns[SAMPLES][MOST];
    batch_item items[SAMPLES];
    caption_samples samples;
    int64_t ids[SAMPLES][S], labels[SAMPLES][S];
    micro_batch batch;
    rank_topology topology[LANES];
    picture_deal deals[LANES];
    int pictures;
} dealt_batch;

/* Samples of 3, 0, 2, 1, 3, 3, 0, 0 pictures: lanes have loaded 3, 3, 6 and 0. */
static void begin(dealt_batch *own, bool balanced)
{
    static const int counts[SAMPLES] = {3, 0, 2, 1, 3, 3, 0, 0};
    int64_t picked[SAMPLES];
    *own = (dealt_batch){.batch = batch_of(SAMPLES, own->ids[0], own->labels[0]),
                         .samples = {own->items, SAMPLES, P, S, MOST}};
    for (int i = 0; i < SAMPLES; i++) {
        for (int t = 0; t < MOST; t++)
            own->turns[i][t] = turn_of("ab", t + 1 < counts[i] ? &own->turns[i][t + 1] : NULL);
        if (counts[i] == 0)
            own->turns[i][0].picture = NULL;
        own->items[i] = own->turns[i][0];
        picked[i] = i;
        own->pictures += counts[i];
    }
    fill_sentences(&own->batch, own->items, SAMPLES);
    const model_samples samples = caption_describe(&own->samples);
    for (int lane = 0; lane < LANES; lane++) {
        own->topology[lane] = (rank_topology){.encoder_dp = LANES, .encoder_dp_rank = lane};
        const picture_deal_desc desc = {
            .topology = &own->topology[lane], .batch = &own->batch, .balanced = balanced};
        SUCCEEDS(picture_deal_create(&own->deals[lane], &desc));
        SUCCEEDS(picture_deal_make(&own->deals[lane], &samples, picked));
    }
}

static void end(dealt_batch *own)
{
    for (int lane = 0; lane < LANES; lane++)
        picture_deal_destroy(&own->deals[lane]);
}

/* The pictures of a lane in the order of its items, which all lanes know. */
static void expect_own(const dealt_batch *own, int lane, int seen[SAMPLES][MOST])
{
    const picture_deal *deal = &own->deals[lane];
    mimo_batch_items items;
    mimo_batch_desc desc = picture_deal_batch(&items, &own->deals[(lane + 1) % LANES]);
    cr_assert(desc.ragged && desc.batch == SAMPLES && desc.span_count == own->pictures);
    cr_assert_eq(items.src_first[lane + 1] - items.src_first[lane], deal->count);
    for (int64_t i = 0; i < deal->count; i++) {
        mimo_item item = items.src[items.src_first[lane] + i];
        cr_assert_eq(item.rows, P);
        cr_assert(deal->own[i].sample == item.sample && deal->own[i].number == item.row / P);
        seen[item.sample][item.row / P]++;
    }
}

static void expect_spans(const dealt_batch *own)
{
    mimo_batch_items items;
    mimo_batch_desc desc = picture_deal_batch(&items, &own->deals[0]);
    int images = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int s = 0; s < S; s++)
            images += own->ids[i][s] == TOKEN_IMAGE;
    cr_assert_eq(images, own->pictures * P);
    for (int64_t i = 0; i < desc.span_count; i++)
        for (int64_t r = 0; r < desc.spans[i].length; r++)
            cr_assert_eq(own->ids[desc.spans[i].sample][desc.spans[i].position + r], TOKEN_IMAGE,
                         "row %ld of span %ld", (long)r, (long)i);
}

static void expect_each_once(const dealt_batch *own)
{
    int seen[SAMPLES][MOST] = {{0}}, count = 0;
    for (int lane = 0; lane < LANES; lane++)
        expect_own(own, lane, seen);
    for (int i = 0; i < SAMPLES; i++)
        for (int t = 0; t < MOST; t++) {
            cr_assert(seen[i][t] <= 1, "picture %d of sample %d", t, i);
            count += seen[i][t];
        }
    cr_assert_eq(count, own->pictures);
    expect_spans(own);
}

Test(captioner_images, lanes_encode_what_they_load)
{
    static const int64_t counts[LANES] = {3, 3, 6, 0};
    static dealt_batch own;
    begin(&own, false);
    expect_each_once(&own);
    for (int lane = 0; lane < LANES; lane++)
        cr_assert_eq(own.deals[lane].count, counts[lane]);
    end(&own);
}

Test(captioner_images, lanes_deal_pictures_out)
{
    static dealt_batch own;
    lane_rows rows = {0}, sums = {0};
    begin(&own, true);
    expect_each_once(&own);
    for (int lane = 0; lane < LANES; lane++)
        cr_assert_eq(own.deals[lane].count, 3);
    picture_deal_count(&rows, &own.deals[0]);
    lane_loads_add(&sums, &rows);
    lane_loads_add(&sums, &rows);
    struct train_log_balance balance = lane_loads_balance(&sums);
    cr_assert(balance.loaded == 2 && balance.encoded == 1 && balance.moved == 0.25, "%g %g %g",
              balance.loaded, balance.encoded, balance.moved);
    cr_assert(isnan(lane_loads_balance(&(lane_rows){.lanes = LANES}).encoded));
    end(&own);
}
