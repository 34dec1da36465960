/* The images that lanes have loaded, as items of their samples; and items listed by lane. */
#include <inttypes.h>
#include <string.h>

#include <mimo/plan.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/mutation.h"

/* The lanes while their images are found. */
typedef struct image_finder {
    const mimo_image_lists *out;
    const mimo_lane_images *lanes;
    int64_t count, merge;
    bool any_runs;
    int64_t samples, seq;        /* of all lanes */
    int64_t image, span, sample; /* found so far */
} image_finder;

/* ------------------------------------------ lanes ------------------------------------------- */

static mimo_status check_numbers(const mimo_lane_images *lane, int64_t d)
{
    MIMO_CHECK(lane->samples >= 0 && lane->seq >= 0 && lane->images >= 0 && lane->span_count >= 0,
               MIMO_ERR_ARGUMENT,
               "lane %" PRId64 " has %" PRId64 " samples of %" PRId64 " positions, %" PRId64
               " images and %" PRId64 " spans",
               d, lane->samples, lane->seq, lane->images, lane->span_count);
    MIMO_CHECK((lane->patches || lane->images == 0) && (lane->spans || lane->span_count == 0),
               MIMO_ERR_ARGUMENT, "lane %" PRId64 ": %s is NULL", d,
               lane->patches || lane->images == 0 ? "spans" : "patches");
    return MIMO_OK;
}

/* Samples of all lanes, and their length. */
static mimo_status count_samples(image_finder *it)
{
    for (int64_t d = 0; d < it->count; d++) {
        MIMO_TRY(check_numbers(&it->lanes[d], d));
        MIMO_TRY(mimo_add(&it->samples, it->samples, it->lanes[d].samples));
        it->seq = it->lanes[d].seq > it->seq ? it->lanes[d].seq : it->seq;
    }
    for (int64_t d = 0; d < it->count; d++) {
        const mimo_lane_images *lane = &it->lanes[d];
        int64_t share = it->samples / it->count + (d < it->samples % it->count);
        MIMO_CHECK(
            lane->samples == share && (lane->samples == 0 || lane->seq == it->seq), MIMO_ERR_SHAPE,
            "lane %" PRId64 " has %" PRId64 " samples of %" PRId64 " positions, and of %" PRId64
            " samples it takes %" PRId64 " of %" PRId64 " positions",
            d, lane->samples, lane->seq, it->samples, share, it->seq);
    }
    return MIMO_OK;
}

/* ------------------------------------------ images ------------------------------------------ */

/* The spans of one sample, from lane->spans[*at] on: write them with their rows, which are counted
 * into *rows. */
static mimo_status take_spans(int64_t *rows, int64_t *at, image_finder *it,
                              const mimo_lane_images *lane, int64_t sample)
{
    *rows = 0;
    for (; *at < lane->span_count && lane->spans[*at].sample == sample; ++*at) {
        mimo_span span = lane->spans[*at];
        MIMO_CHECK(span.length > 0, MIMO_ERR_SHAPE,
                   "sample %" PRId64 " has a span of %" PRId64 " rows", it->sample, span.length);
        it->out->spans[it->span++] = (mimo_span){it->sample, *rows, span.position, span.length};
        MIMO_TRY(mimo_add(rows, *rows, span.length));
    }
    return MIMO_OK;
}

static mimo_status check_patches(const image_finder *it, int64_t d, int64_t i)
{
    int64_t patches = it->lanes[d].patches[i];
    MIMO_CHECK(patches > 0 && patches % it->merge == 0, MIMO_ERR_SHAPE,
               "image %" PRId64 " of lane %" PRId64 " has %" PRId64
               " patches, no multiple of merge=%" PRId64,
               i, d, patches, it->merge);
    return MIMO_OK;
}

/* An image's rows lie in one run. *span moves on to that of its first row. */
static mimo_status check_run(const mimo_span **span, const image_finder *it, int64_t d, int64_t i,
                             const mimo_item *own)
{
    while ((*span)->row + (*span)->length <= own->row)
        ++*span;
    int64_t room = (*span)->row + (*span)->length - own->row;
    MIMO_CHECK(it->any_runs || own->rows <= room, MIMO_ERR_SHAPE,
               "image %" PRId64 " of lane %" PRId64 " has %" PRId64
               " rows, and the run of special ids at position %" PRId64 " of sample %" PRId64
               " has %" PRId64 " left for it (without any_runs an image lies in one)",
               i, d, own->rows, (*span)->position, own->sample, room);
    return MIMO_OK;
}

/* The images of one sample, from the lane's image *at on. They have all of its rows, which lie at
 * `span` and the spans behind it. */
static mimo_status take_images(int64_t *at, image_finder *it, int64_t d, int64_t rows,
                               const mimo_span *span)
{
    const mimo_lane_images *lane = &it->lanes[d];
    mimo_item own = {it->sample, 0, 0}, patches = {it->sample, 0, 0};
    while (own.row < rows) {
        bool there = *at < lane->images;
        if (there)
            MIMO_TRY(check_patches(it, d, *at));
        patches.rows = there ? lane->patches[*at] : 0;
        own.rows = MIMO_MUTATED("merge-ratio-forgotten") ? patches.rows : patches.rows / it->merge;
        MIMO_CHECK(there && own.rows <= rows - own.row, MIMO_ERR_SHAPE,
                   "sample %" PRId64 " of lane %" PRId64 ": %" PRId64
                   " special ids, its images have %" PRId64 " rows",
                   it->sample, d, rows, own.row + own.rows);
        MIMO_TRY(check_run(&span, it, d, *at, &own));
        it->out->rows[it->image] = own;
        it->out->patches[it->image] = patches;
        own.row += own.rows;
        MIMO_TRY(mimo_add(&patches.row, patches.row, patches.rows));
        it->image++;
        ++*at;
    }
    return MIMO_OK;
}

static mimo_status take_lane(image_finder *it, int64_t d)
{
    const mimo_lane_images *lane = &it->lanes[d];
    int64_t span = 0, image = 0, rows;
    for (int64_t b = 0; b < lane->samples; b++, it->sample++) {
        const mimo_span *first = it->out->spans + it->span;
        MIMO_TRY(take_spans(&rows, &span, it, lane, b));
        MIMO_TRY(take_images(&image, it, d, rows, first));
    }
    MIMO_CHECK(span == lane->span_count, MIMO_ERR_SHAPE,
               "span %" PRId64 " of lane %" PRId64 " is one of sample %" PRId64 " of %" PRId64
               ", or out of order",
               span, d, lane->spans[span].sample, lane->samples);
    MIMO_CHECK(image == lane->images, MIMO_ERR_SHAPE,
               "lane %" PRId64 " has %" PRId64 " images more than its special ids take", d,
               lane->images - image);
    return MIMO_OK;
}

mimo_status mimo_images_find(const mimo_image_lists *out, const mimo_lane_images *lanes,
                             int64_t count, int64_t merge, bool any_runs)
{
    MIMO_CHECK(out && (lanes || count == 0), MIMO_ERR_ARGUMENT, "images: %s is NULL",
               out ? "lanes" : "out");
    MIMO_CHECK(count >= 0 && merge > 0, MIMO_ERR_ARGUMENT,
               "images: %" PRId64 " lanes, merge=%" PRId64, count, merge);
    image_finder it = {
        .out = out, .lanes = lanes, .count = count, .merge = merge, .any_runs = any_runs};
    MIMO_TRY(count_samples(&it));
    for (int64_t d = 0; d < count; d++)
        MIMO_TRY(take_lane(&it, d));
    return MIMO_OK;
}

/* ------------------------------------------- items ------------------------------------------ */

/* first[d] moves from where the items of a lane begin to where they end, which is where those of
 * the next lane begin. */
mimo_status mimo_items_deal(mimo_item *out, int64_t *first, const mimo_item *items,
                            const int64_t *lane, int64_t count, int64_t lanes)
{
    MIMO_CHECK(count >= 0 && lanes > 0, MIMO_ERR_ARGUMENT,
               "items: %" PRId64 " of them on %" PRId64 " lanes", count, lanes);
    MIMO_CHECK(first && ((out && items && lane) || count == 0), MIMO_ERR_ARGUMENT,
               "items: an array is NULL");
    for (int64_t i = 0; i < count; i++)
        MIMO_CHECK(lane[i] >= 0 && lane[i] < lanes, MIMO_ERR_ARGUMENT,
                   "items: item %" PRId64 " is on lane %" PRId64 " of %" PRId64, i, lane[i], lanes);
    memset(first, 0, ((size_t)lanes + 1) * sizeof *first);
    for (int64_t i = 0; i < count; i++)
        first[lane[i] + 1]++;
    for (int64_t d = 0; d < lanes; d++)
        first[d + 1] += first[d];
    for (int64_t i = 0; i < count; i++)
        out[first[lane[i]]++] = items[i];
    memmove(first + 1, first, (size_t)lanes * sizeof *first);
    first[0] = 0;
    return MIMO_OK;
}
