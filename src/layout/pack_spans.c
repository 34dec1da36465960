/* Spans in a pack, whose sequences are cut one by one, as spans in one sequence that is cut as a
 * whole. */
#include <inttypes.h>

#include <mimo/plan.h>

#include "core/check.h"
#include "core/checked.h"
#include "partition/packed_runs.h"
#include "partition/zigzag_runs.h"

/* What is found so far. The last span is still open: what follows it in rows and positions joins
 * it. */
typedef struct pack_cut {
    mimo_span *out; /* out[capacity] */
    int64_t capacity, count;
    mimo_span open; /* length 0: none is */
} pack_cut;

static void close_span(pack_cut *cut)
{
    if (cut->open.length == 0)
        return;
    if (cut->count < cut->capacity)
        cut->out[cut->count] = cut->open;
    cut->count++;
    cut->open.length = 0;
}

static void add_piece(pack_cut *cut, const mimo_span *piece)
{
    mimo_span *open = &cut->open;
    if (open->length > 0 && open->sample == piece->sample &&
        open->row + open->length == piece->row &&
        open->position + open->length == piece->position) {
        open->length += piece->length;
        return;
    }
    close_span(cut);
    *open = *piece;
}

/* Where the runs of a cp rank lie in the pack, and in a sequence of the same length. Both list the
 * same local rows in ascending order, so the rank's row l is a position in either. */
typedef struct rank_runs {
    mimo_run pack[2], whole[2]; /* of one sequence of the pack; of the whole */
    int64_t pack_count, whole_count;
} rank_runs;

/* The piece of `span` that begins at `position`: as long as it lies in one run of the pack and in
 * one of the whole. */
static void add_rows(pack_cut *cut, const mimo_span *span, int64_t position, int64_t rows,
                     const mimo_run *run, const rank_runs *runs)
{
    while (rows > 0) {
        int64_t local = run->local + (position - run->global);
        const mimo_run *whole = &runs->whole[0];
        if (local >= whole->local + whole->length)
            whole = &runs->whole[1];
        int64_t within = local - whole->local, count = mimo_smaller(rows, whole->length - within);
        add_piece(cut, &(mimo_span){.sample = span->sample,
                                    .row = span->row + (position - span->position),
                                    .position = whole->global + within,
                                    .length = count});
        position += count;
        rows -= count;
    }
}

/* Runs of the cp rank that has a position, in the sequence `at` of the pack. */
static void runs_of(rank_runs *out, const mimo_packed_spans *pack, int64_t cp, int64_t at,
                    int64_t position)
{
    int64_t first = pack->cu[at], length = pack->cu[at + 1] - first;
    int64_t chunk = (position - first) / (length / (2 * cp));
    mimo_cp_coordinate rank = {chunk < cp ? chunk : 2 * cp - 1 - chunk, cp};
    out->pack_count = mimo_zigzag_append(out->pack, 0, first, length, rank);
    for (int64_t i = 0; i < out->pack_count; i++)
        out->pack[i].local += first / cp;
    out->whole_count = mimo_zigzag_append(out->whole, 0, 0, pack->cu[pack->sequences], rank);
}

/* A span, chunk by chunk. *at moves on to its last sequence. */
static void cut_span(pack_cut *cut, int64_t *at, const mimo_packed_spans *pack, int64_t cp,
                     const mimo_span *span)
{
    int64_t position = span->position, end = span->position + span->length;
    while (position < end) {
        rank_runs runs;
        while (pack->cu[*at + 1] <= position)
            ++*at;
        runs_of(&runs, pack, cp, *at, position);
        const mimo_run *run = &runs.pack[0];
        if (position < run->global || position >= run->global + run->length)
            run = &runs.pack[1];
        int64_t rows = mimo_smaller(end, run->global + run->length) - position;
        add_rows(cut, span, position, rows, run, &runs);
        position += rows;
    }
}

static mimo_status check_pack(const mimo_packed_spans *pack, int64_t cp)
{
    MIMO_CHECK(pack->cu && pack->sequences >= 0 && cp >= 1, MIMO_ERR_ARGUMENT,
               "spans of a pack: %s, %" PRId64 " sequences, cp %" PRId64,
               pack->cu ? "lengths" : "cu is NULL", pack->sequences, cp);
    MIMO_CHECK((pack->spans || pack->span_count == 0) && pack->span_count >= 0, MIMO_ERR_ARGUMENT,
               "spans of a pack: %" PRId64 " of them%s", pack->span_count,
               pack->spans ? "" : ", NULL");
    MIMO_TRY(mimo_packed_check(pack->cu, pack->sequences, "cu"));
    return cp > 1 ? mimo_packed_check_multiple(pack->cu, pack->sequences, 2 * cp, "cu") : MIMO_OK;
}

static mimo_status check_span(const mimo_packed_spans *pack, int64_t i)
{
    int64_t rows = pack->cu[pack->sequences];
    const mimo_span *span = &pack->spans[i];
    int64_t first = i > 0 ? span[-1].position + span[-1].length : 0;
    MIMO_CHECK(span->length > 0 && span->position >= first && span->position <= rows &&
                   span->length <= rows - span->position,
               MIMO_ERR_SHAPE,
               "spans of a pack: span %" PRId64 " has %" PRId64 " rows at position %" PRId64
               ", and must lie behind position %" PRId64 " in the %" PRId64 " of the pack",
               i, span->length, span->position, first, rows);
    return MIMO_OK;
}

mimo_status mimo_spans_pack(int64_t *count, mimo_span *out, int64_t capacity,
                            const mimo_packed_spans *pack, int64_t cp)
{
    MIMO_CHECK(count && pack, MIMO_ERR_ARGUMENT, "spans of a pack: %s is NULL",
               count ? "pack" : "count");
    MIMO_CHECK(capacity >= 0 && (out || capacity == 0), MIMO_ERR_ARGUMENT,
               "spans of a pack: room for %" PRId64 "%s", capacity, out ? "" : ", NULL");
    MIMO_TRY(check_pack(pack, cp));
    for (int64_t i = 0; i < pack->span_count; i++)
        MIMO_TRY(check_span(pack, i));
    pack_cut cut = {.out = out, .capacity = capacity};
    for (int64_t i = 0, at = 0; i < pack->span_count; i++) {
        if (cp == 1)
            add_piece(&cut, &pack->spans[i]);
        else
            cut_span(&cut, &at, pack, cp, &pack->spans[i]);
    }
    close_span(&cut);
    *count = cut.count;
    return MIMO_OK;
}
