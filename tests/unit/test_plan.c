/* Plans: by hand; then moved between the buffers of virtual ranks and compared with a slow
 * reference; then the checker on plans that were changed; then every error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "plan/plan_types.h"
#include "core/hash.h"
#include "cases_ran.h"
#include "item_lists.h"
#include "expect_failure.h"
#include "reference_grid.h"
#include "reference_layout.h"

typedef struct pair_case {
    layout_case src, dst;
    int64_t batch, seq;
} pair_case;

static pair_case swapped(const pair_case *pair)
{
    return (pair_case){pair->dst, pair->src, pair->batch, pair->seq};
}

/* "tp=2,dp=4@0 -> tp=2,cp=2,dp=2@0 ...", for the text of a failure. */
static const char *describe(const pair_case *pair)
{
    static char text[512];
    snprintf(text, sizeof text,
             "%s@%" PRId64 " order %d partition %d sp %d partial %d -> %s@%" PRId64
             " order %d partition %d sp %d partial %d, batch %" PRId64 " seq %" PRId64,
             pair->src.grid, pair->src.offset, (int)pair->src.order, pair->src.partition,
             pair->src.sp, pair->src.partial, pair->dst.grid, pair->dst.offset,
             (int)pair->dst.order, pair->dst.partition, pair->dst.sp, pair->dst.partial,
             pair->batch, pair->seq);
    return text;
}

/* ---------------------------------- layouts and their plans --------------------------------- */

typedef struct planned {
    mimo_grid *src_grid, *dst_grid;
    mimo_layout *src, *dst;
    mimo_plan_set set; /* from rank 0 on */
} planned;

static planned plan_pair(const pair_case *pair)
{
    planned made;
    made.src = layout_of(&pair->src, pair->batch, pair->seq, &made.src_grid);
    made.dst = layout_of(&pair->dst, pair->batch, pair->seq, &made.dst_grid);
    int64_t src_end = pair->src.offset + mimo_grid_size(made.src_grid);
    int64_t dst_end = pair->dst.offset + mimo_grid_size(made.dst_grid);
    made.set.first = 0;
    made.set.chunk = NULL;
    made.set.ranks = src_end > dst_end ? src_end : dst_end;
    made.set.plans = calloc((size_t)made.set.ranks, sizeof(mimo_plan *));
    for (int64_t r = 0; r < made.set.ranks; r++)
        cr_assert_eq(mimo_plan_create(&made.set.plans[r], made.src, made.dst, r), MIMO_OK, "%s: %s",
                     describe(pair), mimo_last_error());
    return made;
}

static void release_pair(planned *made)
{
    for (int64_t r = 0; r < made->set.ranks; r++)
        mimo_plan_destroy(made->set.plans[r]);
    free(made->set.plans);
    mimo_layout_destroy(made->src);
    mimo_layout_destroy(made->dst);
    mimo_grid_destroy(made->src_grid);
    mimo_grid_destroy(made->dst_grid);
}

/* ------------------------------------------ goldens ----------------------------------------- */

static void expect_plan_text(const mimo_plan *plan, const char *expected)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    SUCCEEDS(mimo_plan_print(stream, plan));
    fclose(stream);
    cr_assert_str_eq(text, expected);
    free(text);
}

static void expect_text(const pair_case *pair, int64_t rank, const char *expected)
{
    planned made = plan_pair(pair);
    expect_plan_text(made.set.plans[rank], expected);
    release_pair(&made);
}

#define WHOLE(grid) LAYOUT(grid, 0, MIMO_ROWS_SBH, false, false, false)
#define ZIGZAG(grid) LAYOUT(grid, 0, MIMO_ROWS_SBH, true, false, false)

static const pair_case dp4_cp2 = {WHOLE("dp=4"), ZIGZAG("cp=2,dp=2"), 4, 8};
static const pair_case fan_in = {WHOLE("tp=2,dp=4"), ZIGZAG("tp=2,cp=2,dp=2"), 8, 8};
static const pair_case fan_out = {WHOLE("tp=4,dp=2"), ZIGZAG("tp=1,cp=2,dp=4"), 8, 8};
static const pair_case to_cp4 = {WHOLE("tp=2,dp=2"), ZIGZAG("cp=4,dp=1"), 4, 8};

/* Rank 0 is cp 0 of dp 0, so it reads samples 0 and 1 at 0,1,6,7. It holds sample 0, and rank 1
 * holds sample 1. Rank 1 is cp 1, so it reads 2,3,4,5 of sample 0. */
Test(plan, text_of_dp4_to_cp2_dp2)
{
    expect_text(&dp4_cp2, 0,
                "rank 0 classes 1 rows: recv 4 send 4 local 4\n"
                "recv  peer 1 class 0 samples [1,2) positions [0,2) from 0 +1 +1 to 1 +1 +2\n"
                "recv  peer 1 class 0 samples [1,2) positions [6,8) from 6 +1 +1 to 5 +1 +2\n"
                "send  peer 1 class 0 samples [0,1) positions [2,6) from 2 +1 +1 to 0 +1 +2\n"
                "local peer 0 class 0 samples [0,1) positions [0,2) from 0 +1 +1 to 0 +1 +2\n"
                "local peer 0 class 0 samples [0,1) positions [6,8) from 6 +1 +1 to 4 +1 +2\n");
}

/* Rank 2 is tp 0 of encoder dp 1 (samples 2, 3). In the LLM it is tp 0, cp 1 of dp 0 (samples 0 to
 * 3 at 2,3,4,5). Samples 0 and 1 lie on ranks 0 and 1, which keep their rows. Rank 2 is the first
 * of the remaining readers, so rank 0 serves it, and rank 1 serves rank 3. In the same way rank 2
 * serves rank 0. */
Test(plan, text_of_fan_in)
{
    expect_text(&fan_in, 2,
                "rank 2 classes 1 rows: recv 8 send 8 local 8\n"
                "recv  peer 0 class 0 samples [0,2) positions [2,6) from 4 +1 +2 to 0 +1 +4\n"
                "send  peer 0 class 0 samples [2,4) positions [0,2) from 0 +1 +2 to 2 +1 +4\n"
                "send  peer 0 class 0 samples [2,4) positions [6,8) from 12 +1 +2 to 10 +1 +4\n"
                "local peer 2 class 0 samples [2,4) positions [2,6) from 4 +1 +2 to 2 +1 +4\n");
}

/* Without a partition, the gradients of cp ranks 0 and 1 are two classes. Rank 3, dp 3 of 4, reads
 * sample 3: class 0 from rank 2 (cp 0, dp 1), class 1 from itself. */
Test(plan, text_of_classes)
{
    const pair_case partial = {LAYOUT("cp=2,dp=2", 0, MIMO_ROWS_SBH, false, false, true),
                               WHOLE("dp=4"), 4, 3};
    expect_text(&partial, 3,
                "rank 3 classes 2 rows: recv 3 send 3 local 3\n"
                "recv  peer 2 class 0 samples [3,4) positions [0,3) from 1 +1 +2 to 0 +1 +1\n"
                "send  peer 2 class 1 samples [2,3) positions [0,3) from 0 +1 +2 to 0 +1 +1\n"
                "local peer 3 class 1 samples [3,4) positions [0,3) from 1 +1 +2 to 0 +1 +1\n");
}

Test(plan, one_block_from_sbh_to_bsh)
{
    const pair_case turn = {LAYOUT("dp=1", 0, MIMO_ROWS_SBH, false, false, false),
                            LAYOUT("dp=1", 1, MIMO_ROWS_BSH, false, false, false), 2, 3};
    expect_text(&turn, 0,
                "rank 0 classes 1 rows: recv 0 send 6 local 0\n"
                "send  peer 1 class 0 samples [0,2) positions [0,3) from 0 +1 +2 to 0 +3 +1\n");
    expect_text(&turn, 1,
                "rank 1 classes 1 rows: recv 6 send 0 local 0\n"
                "recv  peer 0 class 0 samples [0,2) positions [0,3) from 0 +1 +2 to 0 +3 +1\n");
}

/* Backward is not the forward plan reversed: each of the four tp copies gets its whole gradient. */
Test(plan, every_copy_gets_its_gradient)
{
    const pair_case backward = swapped(&fan_out);
    planned made = plan_pair(&backward);
    for (int64_t r = 0; r < 8; r++) {
        int64_t got = mimo_plan_rows(made.set.plans[r], MIMO_RECV) +
                      mimo_plan_rows(made.set.plans[r], MIMO_LOCAL);
        cr_assert_eq(got, 4 * 8, "rank %" PRId64 " gets %" PRId64 " rows of 32", r, got);
    }
    release_pair(&made);
}

/* Each copy serves the same number of readers. */
Test(plan, owners_are_balanced)
{
    const pair_case disjoint = {WHOLE("tp=4"), LAYOUT("dp=4", 4, MIMO_ROWS_SBH, true, false, false),
                                4, 8};
    /* The copies of a sample are every second of its readers. Copies that keep it must not
     * count. */
    const pair_case interleaved = {WHOLE("dp=2,tp=2"), ZIGZAG("cp=4"), 4, 8};
    const pair_case *const cases[] = {&fan_in, &to_cp4, &disjoint, &interleaved};
    for (size_t c = 0; c < 4; c++) {
        planned made = plan_pair(cases[c]);
        int64_t senders = mimo_grid_size(made.src_grid);
        for (int64_t r = 1; r < senders; r++)
            cr_assert_eq(mimo_plan_rows(made.set.plans[r], MIMO_SEND),
                         mimo_plan_rows(made.set.plans[0], MIMO_SEND), "%s: rank %" PRId64,
                         describe(cases[c]), r);
        cr_assert_gt(mimo_plan_rows(made.set.plans[0], MIMO_SEND), 0);
        release_pair(&made);
    }
}

/* ---------------------------------------- virtual ranks ------------------------------------- */

enum { GUARD = 3 };
#define POISON INT64_C(0x7ff4deadbeef7ff4)

typedef int64_t (*row_value)(uint64_t seed, int64_t b, int64_t s, int64_t contribution);

/* dst buffers of all ranks. tile[rank] is GUARD words, then [class][row], then GUARD words. */
typedef struct moved {
    const planned *made;
    reference_layout src, dst;
    int64_t **from, **to;
} moved;

static int64_t tile_words(const moved *m, int64_t rank)
{
    int64_t rows = rank < m->dst.end ? m->dst.tiles[rank].rows : 0;
    return rows * m->src.classes + 2 * GUARD;
}

static void fill_buffers(moved *m, row_value value, uint64_t seed)
{
    int64_t ranks = m->made->set.ranks;
    m->from = calloc((size_t)ranks, sizeof *m->from);
    m->to = calloc((size_t)ranks, sizeof *m->to);
    for (int64_t r = 0; r < ranks; r++) {
        const reference_tile *tile = r < m->src.end ? &m->src.tiles[r] : NULL;
        m->from[r] = calloc(tile ? (size_t)tile->rows + 1 : 1, sizeof(int64_t));
        for (int64_t i = 0; tile && i < tile->rows; i++)
            m->from[r][i] = value(seed, tile->b[i], tile->s[i], tile->contribution);
        m->to[r] = calloc((size_t)tile_words(m, r), sizeof(int64_t));
        for (int64_t i = 0; i < tile_words(m, r); i++)
            m->to[r][i] = POISON;
    }
}

/* The sender reads by its block, the receiver writes by its block. */
static void copy_block(moved *m, int64_t sender, const mimo_block *sent, int64_t receiver,
                       const mimo_block *got)
{
    int64_t rows = receiver < m->dst.end ? m->dst.tiles[receiver].rows : 0;
    cr_assert(sent->nb == got->nb && sent->ns == got->ns, "sizes differ");
    cr_assert(got->contribution >= 0 && got->contribution < m->src.classes);
    int64_t *to = m->to[receiver] + GUARD + got->contribution * rows;
    for (int64_t i = 0; i < got->nb; i++)
        for (int64_t j = 0; j < got->ns; j++) {
            int64_t src_row = sent->src_row + i * sent->src_b + j * sent->src_s;
            int64_t dst_row = got->dst_row + i * got->dst_b + j * got->dst_s;
            cr_assert(src_row >= 0 && src_row < m->src.tiles[sender].rows, "reads past its tile");
            cr_assert(dst_row >= 0 && dst_row < rows, "writes past its tile");
            cr_assert_eq(to[dst_row], POISON, "rank %" PRId64 " row %" PRId64 " written twice",
                         receiver, dst_row);
            to[dst_row] = m->from[sender][src_row];
        }
}

/* The next block that `sender` lists for `receiver`, from *cursor on. */
static const mimo_block *next_sent(const moved *m, int64_t sender, int64_t receiver,
                                   int64_t *cursor)
{
    int64_t count;
    const mimo_block *sends = mimo_plan_blocks(&count, m->made->set.plans[sender], MIMO_SEND);
    while (*cursor < count && sends[*cursor].peer != receiver)
        ++*cursor;
    cr_assert_lt(*cursor, count, "rank %" PRId64 " expects more than rank %" PRId64 " sends",
                 receiver, sender);
    return &sends[(*cursor)++];
}

static void move_all(moved *m)
{
    int64_t ranks = m->made->set.ranks, count, received = 0, sent = 0;
    int64_t *cursors = calloc((size_t)ranks, sizeof *cursors);
    for (int64_t r = 0; r < ranks; r++) {
        const mimo_plan *plan = m->made->set.plans[r];
        const mimo_block *list = mimo_plan_blocks(&count, plan, MIMO_RECV);
        memset(cursors, 0, (size_t)ranks * sizeof *cursors);
        for (int64_t i = 0; i < count; i++) {
            int64_t peer = list[i].peer;
            cr_assert(peer >= 0 && peer < ranks && peer != r, "peer %" PRId64, peer);
            copy_block(m, peer, next_sent(m, peer, r, &cursors[peer]), r, &list[i]);
        }
        received += count;
        list = mimo_plan_blocks(&count, plan, MIMO_LOCAL);
        for (int64_t i = 0; i < count; i++)
            copy_block(m, r, &list[i], r, &list[i]);
        mimo_plan_blocks(&count, plan, MIMO_SEND);
        sent += count;
    }
    cr_assert_eq(sent, received, "%" PRId64 " blocks sent, %" PRId64 " received", sent, received);
    free(cursors);
}

static moved move_pair(const pair_case *pair, const planned *made, row_value value, uint64_t seed)
{
    moved m = {.made = made,
               .src = reference_of(&pair->src, pair->batch, pair->seq),
               .dst = reference_of(&pair->dst, pair->batch, pair->seq)};
    fill_buffers(&m, value, seed);
    move_all(&m);
    return m;
}

static void release_moved(moved *m)
{
    for (int64_t r = 0; r < m->made->set.ranks; r++) {
        free(m->from[r]);
        free(m->to[r]);
    }
    free(m->from);
    free(m->to);
    reference_release(&m->src);
    reference_release(&m->dst);
}

/* The value of rank r at (row, class) after the move. */
static int64_t got(const moved *m, int64_t r, int64_t row, int64_t contribution)
{
    return m->to[r][GUARD + contribution * m->dst.tiles[r].rows + row];
}

/* An injective hash of (b, s, class). */
static int64_t hashed(uint64_t seed, int64_t b, int64_t s, int64_t contribution)
{
    return (int64_t)mimo_mix64(seed +
                               ((uint64_t)b << 40 | (uint64_t)s << 16 | (uint64_t)contribution));
}

static void check_tiles(const pair_case *pair, const moved *m, uint64_t seed)
{
    for (int64_t r = 0; r < m->made->set.ranks; r++) {
        int64_t rows = r < m->dst.end ? m->dst.tiles[r].rows : 0;
        for (int64_t i = 0; i < rows * m->src.classes; i++) {
            const reference_tile *tile = &m->dst.tiles[r];
            int64_t row = i % rows, contribution = i / rows;
            int64_t expected = hashed(seed, tile->b[row], tile->s[row], contribution);
            if (tile->b[row] < 0)
                expected = POISON;
            cr_assert_eq(got(m, r, row, contribution), expected,
                         "%s: rank %" PRId64 ", row %" PRId64 " of class %" PRId64 " is %" PRIx64
                         ", not %" PRIx64,
                         describe(pair), r, row, contribution,
                         (uint64_t)got(m, r, row, contribution), (uint64_t)expected);
        }
        for (int64_t i = 0; i < GUARD; i++)
            cr_assert(m->to[r][i] == POISON && m->to[r][tile_words(m, r) - 1 - i] == POISON,
                      "%s: rank %" PRId64 " writes past its tile", describe(pair), r);
    }
}

/* The number of rows that a rank holds on both sides, in its own class. */
static int64_t held_rows(const moved *m, int64_t r)
{
    int64_t held = 0;
    if (r >= m->src.end || r >= m->dst.end)
        return 0;
    bool *has = calloc((size_t)(m->src.batch * m->src.seq) + 1, sizeof *has);
    for (int64_t i = 0; i < m->src.tiles[r].rows; i++)
        if (m->src.tiles[r].b[i] >= 0)
            has[m->src.tiles[r].b[i] * m->src.seq + m->src.tiles[r].s[i]] = true;
    for (int64_t i = 0; i < m->dst.tiles[r].rows; i++)
        held += m->dst.tiles[r].b[i] >= 0 &&
                has[m->dst.tiles[r].b[i] * m->src.seq + m->dst.tiles[r].s[i]];
    free(has);
    return held;
}

static int64_t needed_rows(const moved *m, int64_t r)
{
    int64_t needed = 0, rows = r < m->dst.end ? m->dst.tiles[r].rows : 0;
    for (int64_t i = 0; i < rows; i++)
        needed += m->dst.tiles[r].b[i] >= 0;
    return needed;
}

/* Every row arrives once, so a plan is minimal where each rank keeps all rows that it has. */
static void check_minimal(const pair_case *pair, const moved *m)
{
    for (int64_t r = 0; r < m->made->set.ranks; r++) {
        const mimo_plan *plan = m->made->set.plans[r];
        int64_t rows = needed_rows(m, r), held = held_rows(m, r);
        int64_t kept = mimo_plan_rows(plan, MIMO_LOCAL), count;
        cr_assert_eq(mimo_plan_classes(plan), m->src.classes);
        cr_assert_eq(kept, held, "%s: rank %" PRId64 " keeps %" PRId64 " of %" PRId64 " rows",
                     describe(pair), r, kept, held);
        cr_assert_eq(mimo_plan_rows(plan, MIMO_RECV), rows * m->src.classes - held, "%s",
                     describe(pair));
        for (int kind = 0; kind < MIMO_BLOCK_KINDS; kind++) {
            int64_t sum = 0;
            const mimo_block *list = mimo_plan_blocks(&count, plan, (mimo_block_kind)kind);
            for (int64_t i = 0; i < count; i++)
                sum += list[i].nb * list[i].ns;
            cr_assert_eq(sum, mimo_plan_rows(plan, (mimo_block_kind)kind));
        }
    }
}

/* ------------------------------------------ chunks ------------------------------------------ */

/* In the dst tiles exactly the rows of the chunks up to `last` are written. */
static void check_chunks_up_to(const pair_case *pair, const moved *m, const layout_case *tiles,
                               const mimo_chunk *last)
{
    for (int64_t r = 0; r < m->dst.end; r++) {
        const reference_tile *tile = &m->dst.tiles[r];
        for (int64_t i = 0; i < tile->rows * m->src.classes; i++) {
            int64_t row = i % tile->rows, sample = tile->b[row];
            bool wanted = sample >= 0 && reference_chunk(tiles, pair->batch, sample, tile->s[row],
                                                         last->count) <= last->index;
            cr_assert_eq(got(m, r, row, i / tile->rows) != POISON, wanted,
                         "%s: chunk %" PRId64 " of %" PRId64 ", rank %" PRId64 " row %" PRId64,
                         describe(pair), last->index, last->count, r, row);
        }
    }
}

/* Prove the plans of one chunk, and carry them out. */
static void move_chunk(const pair_case *pair, moved *m, const mimo_chunk *chunk)
{
    const planned *made = m->made;
    planned part = *made;
    part.set.chunk = chunk;
    part.set.plans = calloc((size_t)part.set.ranks, sizeof(mimo_plan *));
    for (int64_t r = 0; r < part.set.ranks; r++)
        SUCCEEDS(mimo_plan_chunk(&part.set.plans[r], made->set.plans[r], chunk));
    cr_assert_eq(mimo_plan_check_set(made->src, made->dst, &part.set), MIMO_OK, "%s: %s",
                 describe(pair), mimo_last_error());
    m->made = &part;
    move_all(m);
    m->made = made;
    for (int64_t r = 0; r < part.set.ranks; r++)
        mimo_plan_destroy(part.set.plans[r]);
    free(part.set.plans);
}

/* Chunks of the samples or items of either side's tiles. Together they are the plan. */
static void check_chunks(const pair_case *pair, const planned *made, uint64_t seed)
{
    for (int side = 0; side < 2; side++) {
        const layout_case *tiles = side == 0 ? &pair->src : &pair->dst;
        mimo_chunk chunk = {.tiles = side == 0 ? made->src : made->dst};
        moved m = {.made = made,
                   .src = reference_of(&pair->src, pair->batch, pair->seq),
                   .dst = reference_of(&pair->dst, pair->batch, pair->seq)};
        fill_buffers(&m, hashed, seed);
        chunk.count = 1 + (int64_t)(seed % 5);
        for (; chunk.index < chunk.count; chunk.index++) {
            move_chunk(pair, &m, &chunk);
            check_chunks_up_to(pair, &m, tiles, &chunk);
        }
        check_tiles(pair, &m, seed);
        release_moved(&m);
    }
}

static void check_direction(const pair_case *pair, uint64_t seed)
{
    planned made = plan_pair(pair);
    moved m = move_pair(pair, &made, hashed, seed);
    check_tiles(pair, &m, seed);
    check_minimal(pair, &m);
    release_moved(&m);
    check_chunks(pair, &made, seed);
    cr_assert_eq(mimo_plan_check(made.src, made.dst), MIMO_OK, "%s: %s", describe(pair),
                 mimo_last_error());
    release_pair(&made);
}

/* ------------------------------------------ adjoint ----------------------------------------- */

/* Small integers: sums and products are exact. */
static int64_t small(uint64_t seed, int64_t b, int64_t s, int64_t contribution)
{
    return (int64_t)(mimo_mix64((uint64_t)hashed(seed, b, s, contribution)) >> 32) % 101 - 50;
}

/* Whether a rank is copy 0 of its cell, so at 0 along every dimension that only replicates. */
static bool is_first_copy(const layout_case *layout, int64_t rank)
{
    static const char *const dims[] = {"tp", "cp", "pp", "ep"};
    const bool cuts[] = {layout->partition && layout->sp, layout->partition || layout->partial,
                         layout->all_stages && layout->partial, false};
    for (int i = 0; i < 4; i++)
        if (!cuts[i] && ref_coord(layout->grid, dims[i], rank - layout->offset) != 0)
            return false;
    return true;
}

/* <P x, y>. x is on the src tiles, moved and summed over its classes. y is on the dst tiles. */
static int64_t dot(const pair_case *pair, uint64_t x_seed, uint64_t y_seed)
{
    planned made = plan_pair(pair);
    moved m = move_pair(pair, &made, small, x_seed);
    int64_t sum = 0;
    for (int64_t r = pair->dst.offset; r < m.dst.end; r++) {
        const reference_tile *tile = &m.dst.tiles[r];
        for (int64_t row = 0; is_first_copy(&pair->dst, r) && row < tile->rows; row++)
            for (int64_t contribution = 0; tile->b[row] >= 0 && contribution < m.src.classes;
                 contribution++)
                sum += got(&m, r, row, contribution) *
                       small(y_seed, tile->b[row], tile->s[row], tile->contribution);
    }
    release_moved(&m);
    release_pair(&made);
    return sum;
}

static void check_adjoint(const pair_case *pair, uint64_t seed)
{
    const pair_case backward = swapped(pair);
    int64_t forward_dot = dot(pair, seed, ~seed), backward_dot = dot(&backward, ~seed, seed);
    cr_assert_eq(forward_dot, backward_dot, "%s: <Px, y> is %" PRId64 ", <x, P'y> is %" PRId64,
                 describe(pair), forward_dot, backward_dot);
}

static void check_pair_case(const pair_case *pair, uint64_t seed)
{
    const pair_case backward = swapped(pair);
    check_direction(pair, seed);
    check_direction(&backward, seed + 1);
    check_adjoint(pair, seed + 2);
}

/* ----------------------------------------- properties --------------------------------------- */

Test(plan, chosen_pairs)
{
    static const pair_case cases[] = {
        {WHOLE("dp=3"), WHOLE("dp=2"), 7, 3},
        {WHOLE("dp=4"), ZIGZAG("cp=2,dp=6"), 5, 4},
        {WHOLE("tp=2,dp=4"), WHOLE("dp=4,tp=2"), 8, 4}, /* dp innermost */
        {WHOLE("tp=1"), ZIGZAG("cp=7"), 3, 14},
        {WHOLE("tp=7"), LAYOUT("cp=7", 0, MIMO_ROWS_BSH, true, true, false), 3, 14},
        {WHOLE("dp=8"), LAYOUT("cp=8", 0, MIMO_ROWS_SBH, false, false, true), 8, 2},
        {LAYOUT("tp=2,dp=3", 0, MIMO_ROWS_BSH, true, true, false),
         LAYOUT("tp=3,cp=2", 0, MIMO_ROWS_SBH, true, true, false), 4, 12},
        {WHOLE("tp=2,dp=2"), LAYOUT("cp=2,dp=3", 4, MIMO_ROWS_SBH, true, false, false), 6, 4},
        {WHOLE("tp=2,dp=3"), LAYOUT("cp=2,pp=2,dp=2", 3, MIMO_ROWS_BSH, true, false, false), 6, 4},
        {WHOLE("dp=6"), ZIGZAG("cp=3,dp=2"), 0, 12},
        {WHOLE("dp=6"), ZIGZAG("cp=3,dp=2"), 3, 0},
    };
    check_pair_case(&dp4_cp2, 1);
    check_pair_case(&fan_in, 2);
    check_pair_case(&fan_out, 3);
    check_pair_case(&to_cp4, 4);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        check_pair_case(&cases[c], 100 + c);
}

/* -------- random pairs: a counter-based stream, so that a failing case can be made again ------ */

typedef struct stream {
    uint64_t seed, next;
} stream;

static int64_t draw(stream *random, int64_t choices)
{
    return (int64_t)(mimo_mix64(mimo_mix64(random->seed) + ++random->next) % (uint64_t)choices);
}

static uint64_t next_word(stream *random)
{
    return mimo_mix64(mimo_mix64(random->seed) + ++random->next) | 1;
}

static bool flip(stream *random)
{
    return draw(random, 2) == 1;
}

/* Some of the dimensions in some order, at most `limit` ranks. */
static void draw_grid(stream *random, int64_t limit, char text[64])
{
    const char *dims[] = {"tp", "cp", "dp", "pp", "ep"};
    static const int64_t sizes[] = {1, 2, 3, 2, 4, 6, 7};
    static const int64_t dp_sizes[] = {1, 2, 3, 31, 64, 100, 256};
    int64_t ranks = 1, size;
    size_t used = 0;
    for (int i = 0; i < 5; i++) {
        int64_t j = i + draw(random, 5 - i);
        const char *dim = dims[j];
        dims[j] = dims[i];
        size = sizes[draw(random, (dim[0] == 'p' || dim[0] == 'e') ? 2 : 7)];
        if (dim[0] == 'd' && limit > 100)
            size = dp_sizes[draw(random, 7)];
        if (ranks * size > limit)
            size = 1;
        ranks *= size;
        if (size > 1 || flip(random))
            used +=
                (size_t)snprintf(text + used, 64 - used, "%s%s=%" PRId64 "%s", used > 0 ? "," : "",
                                 dim, size, dim[0] == 'e' ? ":copies" : "");
    }
    if (used == 0)
        snprintf(text, 64, "dp=1");
}

/* Up to three spans in each sample, some of them adjacent. Returns the number of all spans. */
static int64_t draw_spans(stream *random, int64_t batch, int64_t seq, mimo_span *spans)
{
    int64_t count = 0;
    for (int64_t b = 0; b < batch; b++) {
        int64_t row = 0, position = 0;
        for (int64_t i = draw(random, 4); i > 0; i--) {
            position += flip(random) ? draw(random, seq + 1) / 2 : 0;
            int64_t length = position < seq ? 1 + draw(random, seq - position) : 0;
            if (length == 0)
                break;
            spans[count++] = (mimo_span){b, row, position, length};
            row += length;
            position += length;
        }
    }
    return count;
}

static layout_case draw_layout(stream *random, int64_t limit, char text[64])
{
    layout_case layout = {.grid = text, .order = flip(random) ? MIMO_ROWS_BSH : MIMO_ROWS_SBH};
    draw_grid(random, limit, text);
    layout.offset = flip(random) ? 0 : draw(random, 9);
    layout.partition = flip(random);
    layout.sp = flip(random);
    layout.partial = flip(random);
    layout.all_stages = flip(random);
    layout.ragged = flip(random) ? next_word(random) : 0;
    return layout;
}

/* Pack a layout's sequences: T = seq positions in up to 5 sequences, some empty. */
static void draw_packing(stream *random, layout_case *layout, int64_t seq, int32_t cu[6])
{
    int64_t unit = 2 * ref_size(layout->grid, "cp"), left = seq / unit;
    if (!layout->partition || seq % unit != 0 || flip(random))
        return;
    cu[0] = 0;
    for (int i = 0; i < 5; i++) {
        int64_t units = i == 4 ? left : draw(random, left + 1);
        cu[i + 1] = cu[i] + (int32_t)(units * unit);
        left -= units;
    }
    layout->cu = cu;
    layout->sequences = 5;
}

/* A number that S must be a multiple of. */
static int64_t divisor(const layout_case *layout)
{
    int64_t cp = ref_size(layout->grid, "cp"), tp = ref_size(layout->grid, "tp");
    if (!layout->partition)
        return 1;
    return 2 * cp * (layout->sp ? tp : 1);
}

static bool divides(const layout_case *layout, int64_t seq)
{
    return seq % divisor(layout) == 0;
}

static int64_t draw_seq(stream *random, const layout_case *src, const layout_case *dst)
{
    int64_t least = divisor(src);
    while (!divides(dst, least))
        least += divisor(src);
    return least > 120 ? 0 : least * (1 + draw(random, 120 / least < 3 ? 120 / least : 3));
}

/* The rows of a modality: packed on one side, at their positions on the other. */
Test(plan, random_ragged_pairs, .timeout = 250)
{
    int64_t moving = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        stream random = {seed + 90000, 0};
        char src_text[64], dst_text[64];
        mimo_span spans[3 * 10];
        pair_case pair = {.src = draw_layout(&random, 36, src_text),
                          .dst = draw_layout(&random, 36, dst_text),
                          .batch = draw(&random, 11)};
        pair.src.partition = pair.src.sp = false;
        pair.seq = draw_seq(&random, &pair.src, &pair.dst);
        int64_t count = draw_spans(&random, pair.batch, pair.seq, spans);
        pair.src.kind = MIMO_RAGGED_PACKED;
        pair.dst.kind = MIMO_RAGGED_PLACED;
        pair.src.spans = pair.dst.spans = spans;
        pair.src.span_count = pair.dst.span_count = count;
        moving += count > 0;
        check_pair_case(&pair, seed);
    }
    CASES_RAN(moving, 200, 150, "random ragged pairs that move rows");
}

static void set_items(layout_case *layout, const item_lists *lists)
{
    layout->kind = MIMO_RAGGED_ITEMS;
    layout->partition = layout->sp = false;
    layout->ragged = 0;
    layout->items = lists->items;
    layout->first_item = lists->first;
    layout->spans = NULL;
    layout->span_count = 0;
}

/* Items on any lane on one side; on the other one items as well, or positions, or all rows of a
 * sample. Forward is from items in every second case. */
Test(plan, random_item_pairs, .timeout = 250)
{
    int64_t moving = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        stream random = {seed + 120000, 0};
        uint64_t word = seed;
        char src_text[64], dst_text[64];
        mimo_span spans[3 * 8];
        item_lists lists[2];
        pair_case pair = {.src = draw_layout(&random, 12, src_text),
                          .dst = draw_layout(&random, 12, dst_text),
                          .batch = draw(&random, 9)};
        layout_case *other = seed % 2 ? &pair.src : &pair.dst;
        layout_case *own = seed % 2 ? &pair.dst : &pair.src;
        own->partition = own->sp = false;
        other->kind = (mimo_ragged)(1 + seed / 2 % 3);
        if (other->kind != MIMO_RAGGED_PLACED)
            other->partition = other->sp = false;
        pair.seq = draw_seq(&random, &pair.src, &pair.dst);
        int64_t count = draw_spans(&random, pair.batch, pair.seq, spans);
        other->spans = spans;
        other->span_count = count;
        draw_item_lists(&lists[0], &word, spans, count, pair.batch, ref_size(own->grid, "dp"));
        draw_item_lists(&lists[1], &word, spans, count, pair.batch, ref_size(other->grid, "dp"));
        set_items(own, &lists[0]);
        if (other->kind == MIMO_RAGGED_ITEMS)
            set_items(other, &lists[1]);
        moving += count > 0;
        check_pair_case(&pair, seed);
    }
    CASES_RAN(moving, 2000, 1500, "random pairs with items");
}

Test(plan, random_pairs, .timeout = 250)
{
    int64_t moving = 0, packed = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        stream random = {seed, 0};
        char src_text[64], dst_text[64];
        pair_case pair = {.src = draw_layout(&random, 36, src_text),
                          .dst = draw_layout(&random, 36, dst_text),
                          .batch = draw(&random, 11)};
        int32_t src_cu[6], dst_cu[6];
        pair.seq = draw_seq(&random, &pair.src, &pair.dst);
        draw_packing(&random, &pair.src, pair.seq, src_cu);
        draw_packing(&random, &pair.dst, pair.seq, dst_cu);
        packed += pair.src.cu || pair.dst.cu;
        moving += pair.batch * pair.seq > 0;
        check_pair_case(&pair, seed);
    }
    CASES_RAN(packed, 400, 150, "random pairs that pack sequences");
    CASES_RAN(moving, 400, 320, "random pairs that move rows");
}

/* Gradients of cp ranks without a partition are padded with zeros. The sum of the classes is the
 * gradient that ranks with a partition would have sent. */
static int64_t zero_padded(uint64_t seed, int64_t b, int64_t s, int64_t contribution)
{
    const int64_t cp = 3, seq = 12, chunk = s / (seq / (2 * cp));
    return (chunk < cp ? chunk : 2 * cp - 1 - chunk) == contribution ? hashed(seed, b, s, 0) : 0;
}

Test(plan, classes_add_up_to_the_zero_padded_gradient)
{
    const pair_case pair = {LAYOUT("cp=3,tp=2,dp=2", 0, MIMO_ROWS_SBH, false, false, true),
                            WHOLE("tp=3,dp=4"), 8, 12};
    planned made = plan_pair(&pair);
    moved m = move_pair(&pair, &made, zero_padded, 5);
    for (int64_t r = 0; r < 12; r++)
        for (int64_t row = 0; row < m.dst.tiles[r].rows; row++) {
            int64_t sum = 0;
            for (int64_t contribution = 0; contribution < 3; contribution++)
                sum += got(&m, r, row, contribution);
            cr_assert_eq(sum, hashed(5, m.dst.tiles[r].b[row], m.dst.tiles[r].s[row], 0));
        }
    release_moved(&m);
    release_pair(&made);
}

/* ------------------------------------------ 4,096 ranks ------------------------------------- */

static void check_large(const pair_case *pair)
{
    mimo_grid *src_grid, *dst_grid;
    mimo_layout *src = layout_of(&pair->src, pair->batch, pair->seq, &src_grid);
    mimo_layout *dst = layout_of(&pair->dst, pair->batch, pair->seq, &dst_grid);
    cr_assert_eq(mimo_plan_check(src, dst), MIMO_OK, "%s: %s", describe(pair), mimo_last_error());
    cr_assert_eq(mimo_plan_check(dst, src), MIMO_OK, "%s: %s", describe(pair), mimo_last_error());
    mimo_layout_destroy(src);
    mimo_layout_destroy(dst);
    mimo_grid_destroy(src_grid);
    mimo_grid_destroy(dst_grid);
}

Test(plan, thousands_of_ranks)
{
    static const pair_case cases[] = {
        {WHOLE("tp=8,dp=512"), ZIGZAG("tp=8,cp=8,dp=64"), 512, 16},
        {WHOLE("tp=64,dp=64"), LAYOUT("tp=2,cp=4,dp=512", 0, MIMO_ROWS_BSH, true, true, false), 512,
         16},
        {WHOLE("dp=4096"), LAYOUT("tp=4,cp=16,dp=64", 0, MIMO_ROWS_SBH, false, false, true), 4096,
         1},
        {WHOLE("tp=4,dp=300"),
         LAYOUT("tp=8,cp=4,pp=2,dp=60", 1200, MIMO_ROWS_SBH, true, true, false), 307, 32},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        check_large(&cases[c]);
}

Test(plan, random_pairs_of_thousands_of_ranks, .timeout = 250)
{
    int64_t large = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        stream random = {seed + 7000, 0};
        char src_text[64], dst_text[64];
        pair_case pair = {.src = draw_layout(&random, 4096, src_text),
                          .dst = draw_layout(&random, 4096, dst_text),
                          .batch = draw(&random, 300)};
        pair.seq = draw_seq(&random, &pair.src, &pair.dst);
        if (pair.seq > 24)
            continue;
        large += pair.batch * pair.seq > 0 && ref_ranks(src_text) + ref_ranks(dst_text) > 1000;
        check_large(&pair);
    }
    CASES_RAN(large, 40, 12, "large random pairs that move rows");
}

/* ----------------------------------------- the checker -------------------------------------- */

typedef void (*tamper)(mimo_plan_set *set);

static void expect_caught(const pair_case *pair, tamper change, const char *sentence)
{
    planned made = plan_pair(pair);
    SUCCEEDS(mimo_plan_check_set(made.src, made.dst, &made.set));
    change(&made.set);
    FAILS(mimo_plan_check_set(made.src, made.dst, &made.set), MIMO_ERR_INTERNAL, sentence);
    release_pair(&made);
}

static mimo_blocks *blocks_of(mimo_plan_set *set, int64_t rank, mimo_block_kind kind)
{
    return &set->plans[rank]->blocks[kind];
}

static void drop_receive(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->count--;
}

static void drop_send(mimo_plan_set *set)
{
    blocks_of(set, 0, MIMO_SEND)->count--;
}

static void send_to_nobody(mimo_plan_set *set)
{
    mimo_blocks *blocks = blocks_of(set, 0, MIMO_SEND);
    mimo_block more = blocks->list[blocks->count - 1];
    more.peer = 7;
    SUCCEEDS(mimo_blocks_append(blocks, &more));
}

/* Both ends read with other strides. */
static void read_with_other_strides(mimo_plan_set *set)
{
    blocks_of(set, 0, MIMO_SEND)->list[0].src_b++;
    blocks_of(set, 2, MIMO_RECV)->list[0].src_b++;
}

/* Rank 0 has two blocks from each peer. The peers change places. */
static void receive_out_of_order(mimo_plan_set *set)
{
    mimo_block *list = blocks_of(set, 0, MIMO_RECV)->list;
    for (int i = 0; i < 2; i++) {
        mimo_block first = list[i];
        list[i] = list[2 + i];
        list[2 + i] = first;
    }
}

static void receive_twice(mimo_plan_set *set)
{
    mimo_blocks *blocks = blocks_of(set, 0, MIMO_RECV);
    blocks->list[1] = blocks->list[0];
}

static void receive_from_stranger(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->list[0].peer = 5;
}

static void receive_from_other_copy(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->list[0].peer = 1;
}

static void receive_what_it_holds(mimo_plan_set *set)
{
    mimo_blocks *blocks = blocks_of(set, 2, MIMO_RECV);
    blocks->list[0] = blocks_of(set, 2, MIMO_LOCAL)->list[0];
    blocks->list[0].peer = 3;
    blocks_of(set, 2, MIMO_LOCAL)->count = 0;
}

static void receive_nothing(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->list[0].nb = 0;
}

/* Rank 0 receives what it holds itself. */
static void receive_from_itself(mimo_plan_set *set)
{
    mimo_blocks *local = blocks_of(set, 2, MIMO_LOCAL);
    SUCCEEDS(mimo_blocks_append(blocks_of(set, 2, MIMO_RECV), &local->list[0]));
    local->count--;
}

static void copy_from_another(mimo_plan_set *set)
{
    mimo_blocks *received = blocks_of(set, 2, MIMO_RECV);
    SUCCEEDS(mimo_blocks_append(blocks_of(set, 2, MIMO_LOCAL), &received->list[0]));
    received->count--;
}

static void write_elsewhere(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->list[0].dst_row++;
}

static void read_elsewhere(mimo_plan_set *set)
{
    blocks_of(set, 2, MIMO_RECV)->list[0].src_row++;
}

static void send_other_rows(mimo_plan_set *set)
{
    blocks_of(set, 0, MIMO_SEND)->list[0].src_row++;
}

static void send_out_of_order(mimo_plan_set *set)
{
    mimo_blocks *blocks = blocks_of(set, 2, MIMO_SEND);
    mimo_block first = blocks->list[0];
    blocks->list[0] = blocks->list[1];
    blocks->list[1] = first;
}

/* The plan of a whole call is no plan of a chunk. The plan of one chunk is none of another. */
Test(plan, checker_catches_other_chunks)
{
    planned made = plan_pair(&fan_in), part = made;
    const mimo_chunk first = {made.dst, 0, 2}, second = {made.dst, 1, 2};
    mimo_plan *plans[8];
    part.set.chunk = &first;
    FAILS(mimo_plan_check_set(made.src, made.dst, &part.set), MIMO_ERR_INTERNAL,
          "rank 0: row 2 of class 0 is written, and of another chunk");
    for (int64_t r = 0; r < 8; r++)
        SUCCEEDS(mimo_plan_chunk(&plans[r], made.set.plans[r], &second));
    part.set.plans = plans;
    FAILS(mimo_plan_check_set(made.src, made.dst, &part.set), MIMO_ERR_INTERNAL,
          "row 0 of class 0 is never written");
    part.set.chunk = &second;
    SUCCEEDS(mimo_plan_check_set(made.src, made.dst, &part.set));
    for (int64_t r = 0; r < 8; r++)
        mimo_plan_destroy(plans[r]);
    release_pair(&made);
}

/* By hand: rank 2's plan of fan_in (above), for the last of its four samples. */
Test(plan, text_of_a_chunk)
{
    planned made = plan_pair(&fan_in);
    const mimo_chunk last = {made.dst, 3, 4};
    mimo_plan *plan;
    SUCCEEDS(mimo_plan_chunk(&plan, made.set.plans[2], &last));
    expect_plan_text(
        plan, "rank 2 classes 1 rows: recv 0 send 4 local 4\n"
              "send  peer 0 class 0 samples [3,4) positions [0,2) from 1 +1 +2 to 3 +1 +4\n"
              "send  peer 0 class 0 samples [3,4) positions [6,8) from 13 +1 +2 to 11 +1 +4\n"
              "local peer 2 class 0 samples [3,4) positions [2,6) from 5 +1 +2 to 3 +1 +4\n");
    mimo_plan_destroy(plan);
    release_pair(&made);
}

/* The largest batch that a layout may have. The arithmetic must not lose any part of it. */
Test(plan, chunks_of_the_largest_batch)
{
    const layout_case one = WHOLE("dp=1");
    mimo_grid *grid;
    mimo_layout *tiles = layout_of(&one, INT64_MAX, 1, &grid);
    mimo_chunk chunk = {tiles, 0, 7};
    int64_t end = 0;
    for (; chunk.index < chunk.count; chunk.index++) {
        mimo_range samples = mimo_chunk_samples(&chunk, 0);
        cr_assert_eq(samples.first, end);
        cr_assert_eq(samples.count, INT64_MAX / 7, "chunk %" PRId64, chunk.index);
        end += samples.count;
    }
    cr_assert_eq(end, INT64_MAX);
    mimo_layout_destroy(tiles);
    mimo_grid_destroy(grid);
}

Test(plan, checker_catches)
{
    expect_caught(&fan_in, drop_receive, "never written");
    expect_caught(&fan_in, drop_send, "sends 0");
    expect_caught(&fan_in, receive_twice, "written twice");
    expect_caught(&fan_in, receive_from_stranger, "rank 5");
    expect_caught(&fan_in, receive_from_other_copy, "which sends 0");
    expect_caught(&fan_in, receive_what_it_holds, "and holds it");
    expect_caught(&fan_in, receive_nothing, "rank 2: an empty block from rank 0");
    expect_caught(&fan_in, receive_from_itself, "rank 2: a remote block");
    expect_caught(&fan_in, copy_from_another, "rank 2: a local block");
    expect_caught(&fan_in, write_elsewhere, "does not belong at row 1");
    expect_caught(&fan_in, read_elsewhere, "does not hold it at row 5");
    expect_caught(&fan_in, send_other_rows, "block 0");
    expect_caught(&fan_in, send_out_of_order, "the sender's at (2, 6)");
    expect_caught(&fan_in, send_to_nobody, "13 blocks are sent and 12 are received");
    expect_caught(&fan_in, read_with_other_strides, "which does not hold it at row 4");
    const pair_case dp4_cp4 = {WHOLE("dp=4"), ZIGZAG("cp=4,dp=1"), 4, 8};
    expect_caught(&dp4_cp4, receive_out_of_order, "blocks from rank 2 are not in order");
}

/* ------------------------------------------ errors ------------------------------------------ */

/* Both sides of a ragged pair must have the same number of rows in every sample. */
Test(plan, spans_that_differ)
{
    const mimo_span spans[] = {{0, 0, 1, 2}, {1, 0, 0, 3}},
                    shorter[] = {{0, 0, 1, 2}, {1, 0, 0, 2}};
    const layout_case cases[] = {
        {.grid = "dp=2", .kind = MIMO_RAGGED_PACKED, .spans = spans, .span_count = 2},
        {.grid = "dp=2", .kind = MIMO_RAGGED_PLACED, .spans = spans, .span_count = 2},
        {.grid = "dp=2", .kind = MIMO_RAGGED_PLACED, .spans = shorter, .span_count = 2},
        WHOLE("dp=2")};
    enum { CASES = sizeof cases / sizeof cases[0] };
    mimo_grid *grids[CASES];
    mimo_layout *layouts[CASES];
    mimo_plan *plan = NULL;
    for (int i = 0; i < CASES; i++)
        layouts[i] = layout_of(&cases[i], 2, 4, &grids[i]);
    for (int i = 2; i < CASES; i++) {
        FAILS(mimo_plan_create(&plan, layouts[0], layouts[i], 0), MIMO_ERR_SHAPE,
              i == 2 ? "sample 1 has 3 rows in src and 2 in dst" : "src is ragged and dst is not",
              i == 2 ? "" : "batch 2, seq 4");
        FAILS(mimo_plan_create(&plan, layouts[i], layouts[0], 0), MIMO_ERR_SHAPE,
              i == 2 ? "sample 1 has 2 rows in src and 3 in dst" : "dst is ragged and src is not");
    }
    cr_assert_null(plan, "a failed call leaves its output");
    SUCCEEDS(mimo_plan_check(layouts[0], layouts[1]));
    for (int i = 0; i < CASES; i++) {
        mimo_layout_destroy(layouts[i]);
        mimo_grid_destroy(grids[i]);
    }
}

Test(plan, wrong_arguments)
{
    const layout_case two = WHOLE("dp=2");
    mimo_grid *grids[3];
    mimo_layout *good = layout_of(&two, 4, 6, &grids[0]);
    mimo_layout *batch = layout_of(&two, 5, 6, &grids[1]), *seq = layout_of(&two, 4, 7, &grids[2]);
    mimo_plan *plan = NULL;
    FAILS(mimo_plan_create(NULL, good, good, 0), MIMO_ERR_ARGUMENT, "out");
    FAILS(mimo_plan_create(&plan, NULL, good, 0), MIMO_ERR_ARGUMENT, "src");
    FAILS(mimo_plan_create(&plan, good, NULL, 0), MIMO_ERR_ARGUMENT, "dst");
    FAILS(mimo_plan_create(&plan, good, good, -4), MIMO_ERR_ARGUMENT, "-4");
    FAILS(mimo_plan_create(&plan, good, batch, 0), MIMO_ERR_SHAPE, "batch 4", "batch 5");
    FAILS(mimo_plan_create(&plan, good, seq, 0), MIMO_ERR_SHAPE, "seq 6", "seq 7");
    FAILS(mimo_plan_check(NULL, good), MIMO_ERR_ARGUMENT, "src");
    FAILS(mimo_plan_check(good, NULL), MIMO_ERR_ARGUMENT, "dst");
    FAILS(mimo_plan_check(good, seq), MIMO_ERR_SHAPE, "seq 7");
    cr_assert_null(plan, "a failed call leaves its output");

    cr_assert_eq(mimo_plan_create(&plan, good, good, 99), MIMO_OK, "a rank of neither span");
    FAILS(mimo_plan_print(stdout, NULL), MIMO_ERR_ARGUMENT, "plan");
    FAILS(mimo_plan_print(NULL, plan), MIMO_ERR_ARGUMENT, "stream");
    FILE *full = fopen("/dev/full", "w");
    cr_assert_not_null(full);
    FAILS(mimo_plan_print(full, plan), MIMO_ERR_IO, "rank 99");
    fclose(full);
    mimo_plan_destroy(plan);
    mimo_plan_destroy(NULL);
    mimo_layout *layouts[] = {good, batch, seq};
    for (int i = 0; i < 3; i++) {
        mimo_layout_destroy(layouts[i]);
        mimo_grid_destroy(grids[i]);
    }
}
