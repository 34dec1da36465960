/* The load of all ranks of grids that pair, by the closed form in plan_paired.h. Only messages that
 * are not one run in memory are counted one by one. */
#include "tools/plan_paired.h"

#include "plan/plan_types.h"
#include "core/memory.h"

/* One slice: P readers, N cells in src, C copies of each cell. */
typedef struct slice {
    const mimo_layout *src, *dst;
    int64_t readers, cells, copies;
} slice;

/* The number of cells at one dp coordinate; 1 where sequences are whole. */
static int64_t cuts_of(const mimo_layout *layout)
{
    return layout->dims.cp.size * layout->dims.tp.size;
}

static slice slice_of(const mimo_layout *src, const mimo_layout *dst)
{
    int64_t src_dp = src->dims.dp.size, dst_dp = dst->dims.dp.size;
    int64_t slices = src_dp < dst_dp ? src_dp : dst_dp;
    int64_t cells = src_dp / slices * cuts_of(src), readers = src->ranks / slices;
    return (slice){src, dst, readers, cells, readers / cells};
}

/* ----------------------------------------- messages ----------------------------------------- */

/* The cutter: the layout that splits sequences. Its cell alone decides how a message lies in
 * memory, because cells of the other layout hold whole sequences and differ only in their first
 * sample. */
static const mimo_layout *cutter(const slice *of)
{
    return cuts_of(of->src) > 1 ? of->src : of->dst;
}

/* Whether messages of a cell of the cutter are *scattered* at this end: not one run in memory. */
static bool is_scattered(const slice *of, const mimo_cell *cell, mimo_block_kind end)
{
    mimo_box from[MIMO_LAYOUT_BOXES], to[MIMO_LAYOUT_BOXES];
    const mimo_cell whole = {0, 0, 0, 0}, cut = {0, cell->cp, cell->tp, 0};
    bool src_cuts = cutter(of) == of->src;
    int sent = mimo_layout_piece_boxes(of->src, src_cuts ? &cut : &whole, 0, from);
    int got = mimo_layout_piece_boxes(of->dst, src_cuts ? &whole : &cut, 0, to);
    mimo_block block = mimo_block_of(&from[0], &to[0]);
    return sent * got > 1 || !mimo_block_is_one_run(&block, end);
}

/* How many of the cutter's cells at one dp coordinate have scattered messages. */
static int64_t scattered_cells(const slice *of, mimo_block_kind end)
{
    mimo_cell cell = {0, 0, 0, 0};
    const mimo_cell_dims *cut = &cutter(of)->dims;
    int64_t count = 0;
    for (cell.cp = 0; cell.cp < cut->cp.size; cell.cp++)
        for (cell.tp = 0; cell.tp < cut->tp.size; cell.tp++)
            count += is_scattered(of, &cell, end);
    return count;
}

/* The most scattered messages that one rank receives. */
static int64_t most_unpacked(const slice *of)
{
    int64_t scattered = scattered_cells(of, MIMO_RECV);
    if (cutter(of) == of->dst) /* the reader's cell decides, for all its messages */
        return scattered > 0 ? of->cells - 1 : 0;
    /* The sender's cell decides. A reader gets messages of all cells except the one it holds. */
    scattered *= of->cells / cuts_of(of->src);
    return scattered == of->cells ? scattered - 1 : scattered;
}

/* ------------------------------------------ dealing ----------------------------------------- */

/* The P readers of the first slice, numbered from 0: which of the N src cells each one holds, and
 * which of them get scattered messages. */
typedef struct dealer {
    int64_t *first; /* first[N]: the first reader that holds a cell */
    int64_t *next;  /* next[P + 1]: the next reader that holds the same cell; P: none */
    int64_t *after; /* after[P + C]: how many of i, i + C, i + 2 C ... get scattered messages */
    int64_t *dealt; /* dealt[C]: scattered messages that each copy of a cell sends */
} dealer;

static mimo_status reserve_readers(dealer *deal, const slice *of)
{
    MIMO_TRY(mimo_reserve(&deal->first, of->cells, sizeof(int64_t)));
    MIMO_TRY(mimo_reserve(&deal->next, of->readers + 1, sizeof(int64_t)));
    MIMO_TRY(mimo_reserve(&deal->after, of->readers + of->copies, sizeof(int64_t)));
    return mimo_reserve(&deal->dealt, of->copies, sizeof(int64_t));
}

static void list_readers(dealer *deal, const slice *of)
{
    for (int64_t cell = 0; cell < of->cells; cell++)
        deal->first[cell] = of->readers;
    for (int64_t i = of->readers - 1; i >= 0; i--) {
        mimo_cell holds, needs;
        int64_t rank = of->dst->offset + mimo_axes_offset(&of->dst->readers, i);
        mimo_layout_cell(&holds, of->src, rank);
        mimo_layout_cell(&needs, of->dst, rank);
        deal->next[i] = deal->first[holds.dp];
        deal->first[holds.dp] = i;
        deal->after[i] = is_scattered(of, &needs, MIMO_SEND) + deal->after[i + of->copies];
    }
}

/* Deal a run of readers to the copies of a cell, from copy `turn` on. None of these readers holds
 * the cell. Returns the copy whose turn is next. */
static int64_t deal_run(dealer *deal, int64_t copies, mimo_range readers, int64_t turn)
{
    int64_t end = readers.first + readers.count;
    int64_t turns = readers.count < copies ? readers.count : copies;
    for (int64_t i = 0; i < turns; i++) {
        int64_t reader = readers.first + i;
        int64_t beyond = reader + (end - reader + copies - 1) / copies * copies;
        deal->dealt[(turn + i) % copies] += deal->after[reader] - deal->after[beyond];
    }
    return (turn + readers.count) % copies;
}

/* The most scattered messages that one copy of a cell sends. The readers that hold the cell divide
 * the other readers into runs. */
static int64_t deal_cell(dealer *deal, const slice *of, int64_t cell)
{
    int64_t most = 0, turn = 0, begin = 0;
    for (int64_t i = 0; i < of->copies; i++)
        deal->dealt[i] = 0;
    for (int64_t end = deal->first[cell]; begin <= of->readers; end = deal->next[end]) {
        turn = deal_run(deal, of->copies, (mimo_range){begin, end - begin}, turn);
        begin = end + 1;
    }
    for (int64_t i = 0; i < of->copies; i++)
        most = deal->dealt[i] > most ? deal->dealt[i] : most;
    return most;
}

/*
 * Where the readers of a cell differ: count who sends to whom.
 *
 * Claim: it takes at most 2 * P * sqrt(P) steps.
 * Why: a cell's C holders divide its readers into at most C + 1 runs. A run of r readers takes
 * min(r, C) steps. So a cell takes at most min(P, C * (C + 1)) steps, and the N cells take
 *
 *   N * min(P, C * (C + 1)),    N * C = P
 *
 * Where C <= sqrt(P), this is at most P * (C + 1). Where C > sqrt(P), N < sqrt(P), and it is at
 * most N * P.
 */
static mimo_status deal_readers(int64_t *most, const slice *of)
{
    dealer deal = {NULL, NULL, NULL, NULL};
    mimo_status status;
    *most = 0;
    MIMO_TRY_GOTO(status, done, reserve_readers(&deal, of));
    list_readers(&deal, of);
    for (int64_t cell = 0; cell < of->cells; cell++) {
        int64_t dealt = deal_cell(&deal, of, cell);
        *most = dealt > *most ? dealt : *most;
    }
done:
    mimo_release(deal.first);
    mimo_release(deal.next);
    mimo_release(deal.after);
    mimo_release(deal.dealt);
    return status;
}

/* The most scattered messages that one rank sends. */
static mimo_status most_packed(int64_t *most, const slice *of)
{
    int64_t scattered = scattered_cells(of, MIMO_SEND), all = cuts_of(cutter(of));
    if (cutter(of) == of->dst && scattered > 0 && scattered < all && of->cells > 1)
        return deal_readers(most, of);
    *most = scattered > 0 ? of->cells - 1 : 0;
    return MIMO_OK;
}

/* ------------------------------------------- load ------------------------------------------- */

mimo_status mimo_plan_load_paired(mimo_plan_load *out, const mimo_layout *src,
                                  const mimo_layout *dst, int64_t row_bytes)
{
    const slice of = slice_of(src, dst);
    int64_t rows, packed;
    MIMO_TRY(mimo_layout_rows(&rows, dst, dst->offset));
    MIMO_TRY(most_packed(&packed, &of));
    int64_t message = rows / of.cells * row_bytes, others = of.cells - 1;
    *out = (mimo_plan_load){.in = others * message,
                            .out = others * message,
                            .local = message,
                            .packed = packed * message,
                            .unpacked = most_unpacked(&of) * message,
                            .pair = others > 0 ? message : 0};
    return MIMO_OK;
}
