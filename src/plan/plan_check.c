/*
 * The proof of all ranks' plans. It trusts the boxes of the layouts. It trusts nothing of the
 * planner: neither its owner rule nor how it finds peers. The blocks that a rank receives are
 * checked row by row. The blocks that a rank sends must be, peer by peer, those that the receivers
 * expect.
 */
#include <string.h>

#include "layout/layout_types.h"
#include "plan/plan_types.h"
#include "core/checked.h"
#include "core/memory.h"

typedef struct plan_proof {
    const mimo_layout *src, *dst;
    int64_t first, ranks;    /* the ranks of both layouts: [first, first + ranks) */
    mimo_plan *const *plans; /* plans[ranks] */
    const mimo_chunk *chunk; /* NULL: they move everything */
    unsigned char *seen;     /* seen[class * rows + row] of the rank that is looked at */
    int64_t capacity;        /* bytes of `seen` */
} plan_proof;

/* ------------------------------------------ blocks ------------------------------------------ */

/* Whether rows (first, stride_b, stride_s) of a block are where a box puts them. */
static bool in_box(const mimo_box *box, const mimo_block *block, const int64_t rows[3])
{
    return block->b0 >= box->b0 && block->b0 + block->nb <= box->b0 + box->nb &&
           block->s0 >= box->s0 && block->s0 + block->ns <= box->s0 + box->ns &&
           rows[0] == mimo_box_row(box, block->b0, block->s0) && rows[1] == box->row_b &&
           rows[2] == box->row_s;
}

/* Whether `rank` has the rows of a block where the block says. */
static bool lies_at(const mimo_layout *layout, int64_t rank, const mimo_block *block,
                    const int64_t rows[3])
{
    mimo_box_walk walk;
    mimo_box_walk_begin_rank(&walk, layout, rank);
    for (const mimo_box *box; (box = mimo_next_box(&walk));)
        if (in_box(box, block, rows))
            return true;
    return false;
}

/* Whether `rank` holds any row of a block in the block's class. */
static bool holds_any(const mimo_layout *layout, int64_t rank, const mimo_block *block)
{
    mimo_cell cell;
    if (!mimo_layout_cell(&cell, layout, rank) || cell.contribution != block->contribution)
        return false;
    mimo_box_walk walk;
    mimo_box_walk_begin(&walk, layout, &cell);
    for (const mimo_box *box; (box = mimo_next_box(&walk));)
        if (block->b0 < box->b0 + box->nb && box->b0 < block->b0 + block->nb &&
            block->s0 < box->s0 + box->ns && box->s0 < block->s0 + block->ns)
            return true;
    return false;
}

static mimo_status check_source(const plan_proof *proof, int64_t rank, mimo_block_kind kind,
                                const mimo_block *block)
{
    const int64_t rows[3] = {block->src_row, block->src_b, block->src_s};
    mimo_cell cell;
    MIMO_CHECK(block->nb > 0 && block->ns > 0, MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": an empty block from rank %" PRId64, rank, block->peer);
    MIMO_CHECK(lies_at(proof->src, block->peer, block, rows) &&
                   mimo_layout_cell(&cell, proof->src, block->peer) &&
                   cell.contribution == block->contribution,
               MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": row (%" PRId64 ", %" PRId64 ") of class %" PRId64
               " should come from rank %" PRId64 ", which does not hold it at row %" PRId64,
               rank, block->b0, block->s0, block->contribution, block->peer, block->src_row);
    MIMO_CHECK((kind == MIMO_LOCAL) == (block->peer == rank), MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": a %s block of row (%" PRId64 ", %" PRId64 ") from rank %" PRId64,
               rank, kind == MIMO_LOCAL ? "local" : "remote", block->b0, block->s0, block->peer);
    MIMO_CHECK(kind == MIMO_LOCAL || !holds_any(proof->src, rank, block), MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": receives row (%" PRId64 ", %" PRId64 ") of class %" PRId64
               " from rank %" PRId64 ", and holds it",
               rank, block->b0, block->s0, block->contribution, block->peer);
    return MIMO_OK;
}

/* ----------------------------------------- coverage ----------------------------------------- */

static mimo_status mark_block(plan_proof *proof, int64_t rank, const mimo_block *block,
                              int64_t rows)
{
    const int64_t expected[3] = {block->dst_row, block->dst_b, block->dst_s};
    MIMO_CHECK(block->contribution >= 0 &&
                   block->contribution < proof->src->dims.contribution.size &&
                   lies_at(proof->dst, rank, block, expected),
               MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": row (%" PRId64 ", %" PRId64 ") of class %" PRId64
               " does not belong at row %" PRId64,
               rank, block->b0, block->s0, block->contribution, block->dst_row);
    for (int64_t i = 0; i < block->nb; i++)
        for (int64_t j = 0; j < block->ns; j++) {
            int64_t row = block->dst_row + i * block->dst_b + j * block->dst_s;
            unsigned char *seen = &proof->seen[block->contribution * rows + row];
            MIMO_CHECK(!*seen, MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": row %" PRId64 " of class %" PRId64 " is written twice",
                       rank, row, block->contribution);
            *seen = 1;
        }
    return MIMO_OK;
}

static mimo_status reserve_marks(plan_proof *proof, int64_t bytes)
{
    if (bytes > proof->capacity) {
        mimo_release(proof->seen);
        proof->seen = NULL;
        proof->capacity = 0;
        MIMO_TRY(mimo_reserve(&proof->seen, bytes, 1));
        proof->capacity = bytes;
    }
    if (bytes > 0)
        memset(proof->seen, 0, (size_t)bytes);
    return MIMO_OK;
}

/* Whether these plans are to move row i of a box. */
static bool is_moved(const plan_proof *proof, const mimo_box *box, int64_t i)
{
    return !proof->chunk ||
           mimo_chunk_has(proof->chunk, box->b0 + i / box->ns, box->s0 + i % box->ns);
}

/* The rows of a box are seen in every class, or, outside of the chunk, in none. */
static mimo_status check_box(const plan_proof *proof, int64_t rank, int64_t rows,
                             const mimo_box *box)
{
    for (int64_t contribution = 0; contribution < proof->src->dims.contribution.size;
         contribution++)
        for (int64_t i = 0; i < box->nb * box->ns; i++) {
            int64_t row = box->row0 + i / box->ns * box->row_b + i % box->ns * box->row_s;
            bool moved = is_moved(proof, box, i);
            MIMO_CHECK(proof->seen[contribution * rows + row] == moved, MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": row %" PRId64 " of class %" PRId64 " is %s", rank, row,
                       contribution, moved ? "never written" : "written, and of another chunk");
        }
    return MIMO_OK;
}

static mimo_status check_covered(const plan_proof *proof, int64_t rank, int64_t rows)
{
    mimo_box_walk walk;
    mimo_box_walk_begin_rank(&walk, proof->dst, rank);
    for (const mimo_box *box; (box = mimo_next_box(&walk));)
        MIMO_TRY(check_box(proof, rank, rows, box));
    return MIMO_OK;
}

/* Every row that the rank needs is written once in each class, from a rank that holds it. No other
 * row is written. */
static mimo_status check_receiver(plan_proof *proof, int64_t rank)
{
    const mimo_plan *plan = proof->plans[rank - proof->first];
    int64_t rows, bytes, classes = proof->src->dims.contribution.size;
    MIMO_TRY(mimo_layout_rows(&rows, proof->dst, rank));
    MIMO_TRY(mimo_mul(&bytes, rows, classes));
    MIMO_TRY(reserve_marks(proof, bytes));
    const mimo_block_kind kinds[] = {MIMO_RECV, MIMO_LOCAL};
    for (int k = 0; k < 2; k++) {
        const mimo_blocks *blocks = &plan->blocks[kinds[k]];
        for (int64_t i = 0; i < blocks->count; i++) {
            MIMO_TRY(check_source(proof, rank, kinds[k], &blocks->list[i]));
            MIMO_TRY(mark_block(proof, rank, &blocks->list[i], rows));
        }
    }
    return check_covered(proof, rank, rows);
}

/* ------------------------------------------ pairs ------------------------------------------- */

/* The blocks of a sorted list that name a peer: the first one, and *count of them. */
static const mimo_block *find_peer(const mimo_blocks *blocks, int64_t peer, int64_t *count)
{
    int64_t low = 0, high = blocks->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (blocks->list[middle].peer < peer)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t end = low;
    while (end < blocks->count && blocks->list[end].peer == peer)
        end++;
    *count = end - low;
    return blocks->count > 0 ? &blocks->list[low] : NULL;
}

/* The same rows at the same local rows: everything except the peer, which names the other end. */
static bool same_rows(const mimo_block *a, const mimo_block *b)
{
    return a->contribution == b->contribution && a->b0 == b->b0 && a->nb == b->nb &&
           a->s0 == b->s0 && a->ns == b->ns && a->src_row == b->src_row && a->src_b == b->src_b &&
           a->src_s == b->src_s && a->dst_row == b->dst_row && a->dst_b == b->dst_b &&
           a->dst_s == b->dst_s;
}

/* What `rank` expects of one sender, from block `i` on, is what the sender's list has; *count
 * blocks.
 */
static mimo_status check_pair(const plan_proof *proof, int64_t rank, int64_t i, int64_t *count)
{
    const mimo_blocks *receives = &proof->plans[rank - proof->first]->blocks[MIMO_RECV];
    int64_t sender = receives->list[i].peer, sent;
    const mimo_block *expected = find_peer(receives, sender, count);
    const mimo_block *sends =
        find_peer(&proof->plans[sender - proof->first]->blocks[MIMO_SEND], rank, &sent);
    MIMO_CHECK(expected == &receives->list[i], MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": blocks from rank %" PRId64 " are not in order", rank, sender);
    MIMO_CHECK(sent == *count, MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": expects %" PRId64 " blocks from rank %" PRId64
               ", which sends %" PRId64,
               rank, *count, sender, sent);
    for (int64_t j = 0; j < sent; j++)
        MIMO_CHECK(same_rows(&sends[j], &expected[j]), MIMO_ERR_INTERNAL,
                   "rank %" PRId64 ": block %" PRId64 " from rank %" PRId64
                   " starts at row (%" PRId64 ", %" PRId64 "), and the sender's at (%" PRId64
                   ", %" PRId64 ")",
                   rank, j, sender, expected[j].b0, expected[j].s0, sends[j].b0, sends[j].s0);
    return MIMO_OK;
}

/* Every receive has its send; equal totals then leave no send without a receive. */
static mimo_status check_pairs(const plan_proof *proof)
{
    int64_t sent = 0, received = 0, count;
    for (int64_t r = 0; r < proof->ranks; r++) {
        const mimo_plan *plan = proof->plans[r];
        for (int64_t i = 0; i < plan->blocks[MIMO_RECV].count; i += count)
            MIMO_TRY(check_pair(proof, proof->first + r, i, &count));
        received += plan->blocks[MIMO_RECV].count;
        sent += plan->blocks[MIMO_SEND].count;
    }
    MIMO_CHECK(sent == received, MIMO_ERR_INTERNAL,
               "%" PRId64 " blocks are sent and %" PRId64 " are received", sent, received);
    return MIMO_OK;
}

/* ------------------------------------------- all -------------------------------------------- */

mimo_status mimo_plan_check_set(const mimo_layout *src, const mimo_layout *dst,
                                const mimo_plan_set *set)
{
    plan_proof proof = {.src = src,
                        .dst = dst,
                        .first = set->first,
                        .ranks = set->ranks,
                        .plans = set->plans,
                        .chunk = set->chunk};
    mimo_status status = MIMO_OK;
    for (int64_t r = 0; status == MIMO_OK && r < set->ranks; r++)
        status = check_receiver(&proof, set->first + r);
    if (status == MIMO_OK)
        status = check_pairs(&proof);
    mimo_release(proof.seen);
    return status;
}

mimo_status mimo_plan_check(const mimo_layout *src, const mimo_layout *dst)
{
    MIMO_CHECK(src && dst, MIMO_ERR_ARGUMENT, "mimo_plan_check: the %s layout is NULL",
               src ? "dst" : "src");
    int64_t src_end = src->offset + src->ranks, dst_end = dst->offset + dst->ranks;
    mimo_plan_set set = {.first = src->offset < dst->offset ? src->offset : dst->offset};
    set.ranks = (src_end > dst_end ? src_end : dst_end) - set.first;
    MIMO_TRY(mimo_reserve(&set.plans, set.ranks, sizeof *set.plans));
    mimo_status status = MIMO_OK;
    for (int64_t r = 0; status == MIMO_OK && r < set.ranks; r++)
        status = mimo_plan_create(&set.plans[r], src, dst, set.first + r);
    if (status == MIMO_OK)
        status = mimo_plan_check_set(src, dst, &set);
    for (int64_t r = 0; r < set.ranks; r++)
        mimo_plan_destroy(set.plans[r]);
    mimo_release(set.plans);
    return status;
}
