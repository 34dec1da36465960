/*
 * The plan of one rank: boxes of src and dst intersected pair by pair, and one owner for each
 * intersection.
 *
 * Nothing here loops over a grid. A rank goes through its own boxes. For each it steps through the
 * boxes of the other layout that overlap it; the layouts find these in closed form.
 */
#include <stdlib.h>

#include "layout/layout_types.h"
#include "plan/plan_types.h"
#include "core/checked.h"
#include "core/memory.h"

/* ------------------------------------------ blocks ------------------------------------------ */

mimo_status mimo_blocks_append(mimo_blocks *blocks, const mimo_block *block)
{
    MIMO_TRY(
        mimo_make_room(&blocks->list, &blocks->capacity, blocks->count, 8, sizeof *blocks->list));
    blocks->list[blocks->count++] = *block;
    blocks->rows += block->nb * block->ns;
    return MIMO_OK;
}

/* No two blocks have the same key, as a sender has each row once, and a receiver needs it once. */
static int compare_blocks(const void *left, const void *right)
{
    const mimo_block *a = left, *b = right;
    const int64_t keys[][2] = {
        {a->peer, b->peer}, {a->contribution, b->contribution}, {a->b0, b->b0}, {a->s0, b->s0}};
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

void mimo_blocks_sort(mimo_blocks *blocks)
{
    if (blocks->count > 1)
        qsort(blocks->list, (size_t)blocks->count, sizeof(mimo_block), compare_blocks);
}

/* The intersection of [a, a + na) and [b, b + nb), which overlap. */
static mimo_range intersect(int64_t a, int64_t na, int64_t b, int64_t nb)
{
    int64_t first = a > b ? a : b, end = a + na < b + nb ? a + na : b + nb;
    return (mimo_range){first, end - first};
}

mimo_block mimo_block_of(const mimo_box *src, const mimo_box *dst)
{
    mimo_range b = intersect(src->b0, src->nb, dst->b0, dst->nb);
    mimo_range s = intersect(src->s0, src->ns, dst->s0, dst->ns);
    return (mimo_block){.b0 = b.first,
                        .nb = b.count,
                        .s0 = s.first,
                        .ns = s.count,
                        .src_row = mimo_box_row(src, b.first, s.first),
                        .src_b = src->row_b,
                        .src_s = src->row_s,
                        .dst_row = mimo_box_row(dst, b.first, s.first),
                        .dst_b = dst->row_b,
                        .dst_s = dst->row_s};
}

/* ------------------------------------------ owners ------------------------------------------ */

static bool holds_cell(const mimo_layout *layout, int64_t rank, const mimo_cell *cell)
{
    mimo_cell own;
    return mimo_layout_cell(&own, layout, rank) && mimo_cell_is(&own, cell);
}

/*
 * Who sends a row: the rule that both ends evaluate.
 *
 * A src cell has `copies` ranks with equal rows. The dst ranks are numbered: dp slowest, then their
 * coordinates along the other dimensions. A dst rank that is itself one of the copies keeps what it
 * has, and gets no number. Then number j reads from
 *
 *     copy j mod copies
 *
 * Claim: of the readers of one dp coordinate, any two copies serve equally many, or numbers that
 * differ by one.
 * Why: these have consecutive numbers. A number does not depend on the position that is read. So
 * the cp ranks of a sample, which read different rows, take turns as well. And where a sample's
 * items go to several dp coordinates with few readers each, these coordinates take turns.
 */
typedef struct owner_rule {
    int64_t first_rank; /* copy 0 */
    int64_t *holders;   /* holders[held]: mimo_layout_reader of the copies that are dst ranks */
    int64_t held;
} owner_rule;

static void set_rule(owner_rule *rule, const mimo_layout *src, const mimo_layout *dst,
                     const mimo_cell *cell)
{
    rule->first_rank = mimo_layout_first_rank(src, cell);
    rule->held = 0;
    for (int64_t i = 0; i < src->copies.size; i++) {
        int64_t copy = rule->first_rank + mimo_axes_offset(&src->copies, i);
        if (mimo_layout_reader(&rule->holders[rule->held], dst, copy))
            rule->held++;
    }
}

/* The rank that sends to a reader that does not hold the cell. */
static int64_t owner_of(const owner_rule *rule, const mimo_layout *src, int64_t reader)
{
    int64_t before = 0;
    for (int64_t i = 0; i < rule->held; i++)
        before += rule->holders[i] < reader;
    int64_t copy = (reader - before) % src->copies.size;
    return rule->first_rank + mimo_axes_offset(&src->copies, copy);
}

/* ----------------------------------------- planning ----------------------------------------- */

typedef struct plan_maker {
    const mimo_layout *src, *dst;
    mimo_plan *plan;
    owner_rule rule;
} plan_maker;

/* Called for each pair of overlapping boxes: `own` is a box of this rank, `other` is one of `cell`
 * in the other layout. */
typedef mimo_status (*box_visit)(plan_maker *maker, const mimo_box *own, const mimo_cell *cell,
                                 const mimo_box *other);

/* Visit every box of `layout` that overlaps `own`, each once: always step to the box that has the
 * first row that is not covered yet. This works as boxes of one dp coordinate share no position. */
static mimo_status walk(plan_maker *maker, const mimo_layout *layout, const mimo_box *own,
                        box_visit visit)
{
    mimo_cell cell;
    mimo_box other;
    for (int64_t b = own->b0; b < own->b0 + own->nb; b = other.b0 + other.nb)
        for (int64_t s = own->s0; s < own->s0 + own->ns; s = other.s0 + other.ns) {
            mimo_layout_find(layout, b, s, &cell, &other);
            MIMO_TRY(visit(maker, own, &cell, &other));
        }
    return MIMO_OK;
}

/* Walk all boxes of this rank's cell in `mine`. */
static mimo_status walk_cell(plan_maker *maker, const mimo_layout *mine, const mimo_cell *cell,
                             const mimo_layout *layout, box_visit visit)
{
    mimo_box_walk boxes;
    mimo_box_walk_begin(&boxes, mine, cell);
    for (const mimo_box *box; (box = mimo_next_box(&boxes));)
        MIMO_TRY(walk(maker, layout, box, visit));
    return MIMO_OK;
}

/* This rank's dst box needs rows of a src cell: from one owner in each class. */
static mimo_status receive(plan_maker *maker, const mimo_box *own, const mimo_cell *cell,
                           const mimo_box *other)
{
    mimo_plan *plan = maker->plan;
    mimo_block block = mimo_block_of(other, own);
    mimo_cell from = *cell;
    int64_t reader;
    mimo_layout_reader(&reader, maker->dst, plan->rank);
    for (from.contribution = 0; from.contribution < plan->classes; from.contribution++) {
        bool local = holds_cell(maker->src, plan->rank, &from);
        if (!local)
            set_rule(&maker->rule, maker->src, maker->dst, &from);
        block.contribution = from.contribution;
        block.peer = local ? plan->rank : owner_of(&maker->rule, maker->src, reader);
        MIMO_TRY(mimo_blocks_append(&plan->blocks[local ? MIMO_LOCAL : MIMO_RECV], &block));
    }
    return MIMO_OK;
}

/* All ranks of a dst cell need rows of this rank's src box, in every class there. Send to those
 * that the owner rule gives to this rank. */
static mimo_status send(plan_maker *maker, const mimo_box *own, const mimo_cell *cell,
                        const mimo_box *other)
{
    const mimo_layout *dst = maker->dst;
    mimo_plan *plan = maker->plan;
    mimo_block block = mimo_block_of(own, other);
    mimo_cell to = *cell, self;
    mimo_layout_cell(&self, maker->src, plan->rank);
    block.contribution = self.contribution;
    for (to.contribution = 0; to.contribution < dst->dims.contribution.size; to.contribution++) {
        int64_t first = mimo_layout_first_rank(dst, &to);
        for (int64_t i = 0; i < dst->copies.size; i++) {
            int64_t reader;
            block.peer = first + mimo_axes_offset(&dst->copies, i);
            if (holds_cell(maker->src, block.peer, &self))
                continue;
            mimo_layout_reader(&reader, dst, block.peer);
            if (owner_of(&maker->rule, maker->src, reader) == plan->rank)
                MIMO_TRY(mimo_blocks_append(&plan->blocks[MIMO_SEND], &block));
        }
    }
    return MIMO_OK;
}

static mimo_status plan_receives(plan_maker *maker)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, maker->dst, maker->plan->rank))
        return MIMO_OK;
    return walk_cell(maker, maker->dst, &cell, maker->src, receive);
}

static mimo_status plan_sends(plan_maker *maker)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, maker->src, maker->plan->rank))
        return MIMO_OK;
    set_rule(&maker->rule, maker->src, maker->dst, &cell);
    return walk_cell(maker, maker->src, &cell, maker->dst, send);
}

static mimo_status fill(mimo_plan *plan, const mimo_layout *src, const mimo_layout *dst)
{
    plan_maker maker = {.src = src, .dst = dst, .plan = plan};
    mimo_status status;
    MIMO_TRY(mimo_reserve(&maker.rule.holders, src->copies.size, sizeof(int64_t)));
    MIMO_TRY_GOTO(status, done, plan_receives(&maker));
    MIMO_TRY_GOTO(status, done, plan_sends(&maker));
    for (int kind = 0; kind < MIMO_BLOCK_KINDS; kind++)
        mimo_blocks_sort(&plan->blocks[kind]);
done:
    mimo_release(maker.rule.holders);
    return status;
}

static mimo_status check_pair(const mimo_layout *src, const mimo_layout *dst)
{
    MIMO_CHECK(src && dst, MIMO_ERR_ARGUMENT, "plan: the %s layout is NULL", src ? "dst" : "src");
    MIMO_CHECK(src->batch == dst->batch && src->seq == dst->seq, MIMO_ERR_SHAPE,
               "plan: src has batch %" PRId64 " and seq %" PRId64 ", dst has batch %" PRId64
               " and seq %" PRId64,
               src->batch, src->seq, dst->batch, dst->seq);
    bool ragged = src->ragged.kind != MIMO_RAGGED_NOT;
    MIMO_CHECK(ragged == (dst->ragged.kind != MIMO_RAGGED_NOT), MIMO_ERR_SHAPE,
               "plan: %s is ragged and %s is not (batch %" PRId64 ", seq %" PRId64 ")",
               mimo_side_names[!ragged], mimo_side_names[ragged], src->batch, src->seq);
    int64_t sample = ragged ? mimo_ragged_difference(src, dst) : -1;
    MIMO_CHECK(sample < 0, MIMO_ERR_SHAPE,
               "plan: sample %" PRId64 " has %" PRId64 " rows in src and %" PRId64 " in dst",
               sample, mimo_ragged_sample_rows(src, sample), mimo_ragged_sample_rows(dst, sample));
    return MIMO_OK;
}

mimo_status mimo_plan_create(mimo_plan **out, const mimo_layout *src, const mimo_layout *dst,
                             int64_t rank)
{
    mimo_plan *plan;
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "mimo_plan_create: out is NULL");
    MIMO_TRY(check_pair(src, dst));
    MIMO_CHECK(rank >= 0, MIMO_ERR_ARGUMENT, "mimo_plan_create: rank is %" PRId64, rank);
    MIMO_TRY(mimo_reserve(&plan, 1, sizeof *plan));
    plan->rank = rank;
    plan->classes = src->dims.contribution.size;
    mimo_status status = fill(plan, src, dst);
    if (status == MIMO_OK)
        *out = plan;
    else
        mimo_plan_destroy(plan);
    return status;
}

void mimo_plan_destroy(mimo_plan *plan)
{
    if (!plan)
        return;
    for (int kind = 0; kind < MIMO_BLOCK_KINDS; kind++)
        mimo_release(plan->blocks[kind].list);
    mimo_release(plan);
}

/* ---------------------------------------- questions ----------------------------------------- */

const mimo_block *mimo_plan_blocks(int64_t *count, const mimo_plan *plan, mimo_block_kind kind)
{
    bool known = (unsigned)kind <= MIMO_LOCAL;
    *count = known ? plan->blocks[kind].count : 0;
    return known ? plan->blocks[kind].list : NULL;
}

int64_t mimo_plan_rows(const mimo_plan *plan, mimo_block_kind kind)
{
    return (unsigned)kind <= MIMO_LOCAL ? plan->blocks[kind].rows : 0;
}

int64_t mimo_plan_classes(const mimo_plan *plan)
{
    return plan->classes;
}
