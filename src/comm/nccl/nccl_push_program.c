/*
 * Programs of the push kernels: rows become blocks, blocks are divided into pieces, and thread
 * blocks are assigned to remote and local rows.
 *
 * Peers are taken in the order of their distance, so that all ranks write to different peers at the
 * same time:
 *   (peer - rank) mod size
 */
#include "comm/nccl/nccl_push_program.h"

#include <inttypes.h>
#include <string.h>

#include "comm/nccl/nccl_programs.h"
#include "comm/peer_order.h"
#include "comm/row_loops.h"
#include "core/checked.h"
#include "core/memory.h"
#include "device/cuda_calls.h"

enum {
    PIECES_PER_CTA = 4, /* where there are enough rows */
    LEAST_BULK = 2 << 10,
    MOST_IN_FLIGHT = 2 << 20, /* bytes of one piece of every thread block: a slow thread block still
                                      has a piece to move when the others are done */
    MOST_BY_LOAD_STORE = 16 << 10, /* bytes of a thread block */
};
static const int64_t MOST_SEGMENTS = INT32_MAX;

/* ------------------------------------------ blocks ------------------------------------------ */

/* Rows that will become a block. */
typedef struct draft {
    mimo_place to, from; /* of the first row */
    mimo_row_loops loops;
    int target;
    int64_t alignment; /* of both bases, as bits */
} draft;

/* A program that is being built. */
typedef struct builder {
    const mimo_push_context *context;
    const mimo_messages *messages;
    mimo_push_head head;
    mimo_push_peer *peers; /* targets, then sources */
    draft *drafts;         /* drafts[draft_count], the remote ones first */
    int64_t draft_count, remote_drafts;
    uint32_t width; /* the narrowest of all drafts */
    int64_t bytes[MIMO_PUSH_LISTS];
    bool few;                /* few bytes: every piece may have a thread block of its own */
    bool bulk;               /* the bulk kernel moves them */
    mimo_push_block *blocks; /* blocks[count], the remote ones first */
    int64_t count, capacity;
} builder;

/* Where row (0, 0) begins. */
static mimo_place begin_of(const mimo_placed_rows *placed)
{
    return (mimo_place){placed->at.base,
                        placed->at.offset + placed->rows.first * placed->rows.row_bytes};
}

static draft read_rows(const mimo_placed_copy *copy, const int64_t *alignments)
{
    return (draft){.to = begin_of(&copy->to),
                   .from = begin_of(&copy->from),
                   .loops = mimo_row_loops_of(&copy->to.rows, &copy->from.rows),
                   .alignment = alignments[copy->to.at.base] | alignments[copy->from.at.base]};
}

/* Make the longer loop the inner one: the order of rows is free, and long inner loops waste the
 * fewest threads. */
static void swap_loops(mimo_row_loops *it)
{
    const mimo_row_loops was = *it;
    if (was.n_inner >= was.n_outer)
        return;
    it->n_inner = was.n_outer;
    it->n_outer = was.n_inner;
    it->to_inner = was.to_outer;
    it->to_outer = was.to_inner;
    it->from_inner = was.from_outer;
    it->from_outer = was.from_inner;
}

/* The widest word that divides rows, strides and both addresses, wherever bases of this alignment
 * lie. */
static uint32_t width_of(const draft *it)
{
    return mimo_word_width(&it->loops, (uint64_t)(it->to.offset | it->from.offset | it->alignment));
}

static mimo_status append(builder *it, const draft *rows);

/* Append rows that have too many segments for one block as two halves: of the outermost loop, or of
 * the row. */
static mimo_status append_halves(builder *it, const draft *rows)
{
    draft first = *rows, second = *rows;
    const mimo_row_loops *loops = &rows->loops;
    if (loops->n_outer > 1) {
        first.loops.n_outer = loops->n_outer / 2;
        second.loops.n_outer -= first.loops.n_outer;
        second.to.offset += first.loops.n_outer * loops->to_outer;
        second.from.offset += first.loops.n_outer * loops->from_outer;
    } else if (loops->n_inner > 1) {
        first.loops.n_inner = loops->n_inner / 2;
        second.loops.n_inner -= first.loops.n_inner;
        second.to.offset += first.loops.n_inner * loops->to_inner;
        second.from.offset += first.loops.n_inner * loops->from_inner;
    } else {
        first.loops.row = loops->row / 2 >> MIMO_WIDEST_WORD << MIMO_WIDEST_WORD;
        second.loops.row -= first.loops.row;
        second.to.offset += first.loops.row;
        second.from.offset += first.loops.row;
    }
    MIMO_TRY(append(it, &first));
    return append(it, &second);
}

/* Append rows as a block for the kernel that moves them. */
static mimo_status append(builder *it, const draft *rows)
{
    const mimo_row_loops *loops = &rows->loops;
    uint32_t width = width_of(rows);
    int64_t unit = it->bulk ? it->head.piece : MIMO_PUSH_THREADS; /* of a segment */
    int64_t row = it->bulk ? loops->row : loops->row >> width;
    int64_t segment_rows = row < unit ? unit / row : 1, chunks = (row + unit - 1) / unit;
    if (it->bulk)
        segment_rows = mimo_smaller(segment_rows, MIMO_PUSH_SEGMENT_ROWS);
    int64_t groups = (loops->n_inner + segment_rows - 1) / segment_rows;
    if (row > MOST_SEGMENTS || loops->n_inner > MOST_SEGMENTS ||
        chunks > MOST_SEGMENTS / groups / loops->n_outer)
        return append_halves(it, rows);
    if (it->count == it->capacity) {
        int64_t capacity = 2 * it->capacity + 1;
        MIMO_TRY(mimo_regrow(&it->blocks, it->capacity, capacity, sizeof *it->blocks));
        it->capacity = capacity;
    }
    it->blocks[it->count++] =
        (mimo_push_block){.to = rows->to.offset,
                          .from = rows->from.offset,
                          .to_base = (uint16_t)rows->to.base,
                          .from_base = (uint16_t)rows->from.base,
                          .to_outer = loops->to_outer,
                          .to_inner = loops->to_inner,
                          .from_outer = loops->from_outer,
                          .from_inner = loops->from_inner,
                          .segments = (uint32_t)(chunks * groups * loops->n_outer),
                          .row_words = (uint32_t)row,
                          .n_inner = (uint32_t)loops->n_inner,
                          .segment_rows = (uint32_t)segment_rows,
                          .chunks = (uint32_t)chunks,
                          .groups = (uint32_t)groups,
                          .width = width,
                          .target = rows->target,
                          .by_row = mimo_divisor_of((uint32_t)row),
                          .by_chunks = mimo_divisor_of((uint32_t)chunks),
                          .by_groups = mimo_divisor_of((uint32_t)groups)};
    return MIMO_OK;
}

/* Draft rows into it->drafts, which is long enough. */
static void draft_rows(builder *it, const mimo_placed_copy *rows, int64_t count, int target)
{
    for (int64_t i = 0; i < count; i++) {
        draft *made = &it->drafts[it->draft_count];
        *made = read_rows(&rows[i], it->messages->alignments);
        int64_t bytes = mimo_rows_bytes(&rows[i].to.rows);
        if (bytes == 0)
            continue;
        made->target = target;
        it->bytes[target < 0 ? MIMO_PUSH_LOCAL : MIMO_PUSH_REMOTE] += bytes;
        swap_loops(&made->loops);
        it->width = width_of(made) < it->width ? width_of(made) : it->width;
        it->draft_count++;
    }
}

/* ------------------------------------------ peers ------------------------------------------- */

static mimo_push_peer peer_at(const builder *it, int peer)
{
    const mimo_buffer *buffer = it->messages->pushes.buffer;
    int rank = it->context->rank;
    return (mimo_push_peer){&buffer->flags[rank][peer], &buffer->flags[peer][rank]};
}

static void draft_targets(builder *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    int first =
        mimo_first_peer(it->context->rank, pushes->list, pushes->count, sizeof *pushes->list);
    for (int i = 0; i < pushes->count; i++) {
        const mimo_push *push = &pushes->list[(first + i) % pushes->count];
        it->peers[i] = peer_at(it, push->peer);
        draft_rows(it, push->rows, push->count, i);
    }
    it->head.targets = pushes->count;
    it->remote_drafts = it->draft_count;
}

static mimo_status draft_all(builder *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    int64_t peers = (int64_t)pushes->count + pushes->pusher_count;
    int64_t rows = it->messages->copy_count;
    for (int i = 0; i < pushes->count; i++)
        rows += pushes->list[i].count;
    MIMO_TRY(mimo_reserve(&it->peers, peers, sizeof *it->peers));
    MIMO_TRY(mimo_reserve(&it->drafts, rows, sizeof *it->drafts));
    draft_targets(it);
    for (int i = 0; i < pushes->pusher_count; i++)
        it->peers[pushes->count + i] = peer_at(it, pushes->pushers[i]);
    it->head.sources = pushes->pusher_count;
    draft_rows(it, it->messages->copies, it->messages->copy_count, -1);
    return MIMO_OK;
}

/* --------------------------------- pieces and thread blocks --------------------------------- */

/* The blocks from `first` on, up to the last so far, as a list. */
static mimo_status make_list(builder *it, mimo_push_block_list *out, int64_t first, int64_t most)
{
    int64_t pieces = 0, each = it->bulk ? 1 : it->head.piece;
    for (int64_t i = first; i < it->count; i++) {
        it->blocks[i].begin = (uint32_t)pieces;
        pieces += (it->blocks[i].segments + each - 1) / each;
        MIMO_CHECK(pieces <= most, MIMO_ERR_OVERFLOW,
                   "the rows of one call are in %" PRId64 " pieces, more than %" PRId64, pieces,
                   most);
    }
    *out =
        (mimo_push_block_list){(int32_t)first, (int32_t)(it->count - first), (uint32_t)pieces, 0};
    return MIMO_OK;
}

/* How many of `all` thread blocks begin with remote rows. Bytes decide. Half of the multiprocessors
 * keep the link busy. */
static int64_t writers_of(const builder *it, int64_t all, int64_t multiprocessors)
{
    int64_t written = it->bytes[MIMO_PUSH_REMOTE], copied = it->bytes[MIMO_PUSH_LOCAL];
    double remote = (double)written / MIMO_LINK_SPEED, local = (double)copied / MIMO_COPY_SPEED;
    if (written == 0)
        return 0;
    if (copied == 0 || all == 1)
        return all;
    int64_t writers = mimo_link_workers(all, remote, local);
    int64_t most = it->few ? all - 1 : mimo_smaller(all - 1, multiprocessors / 2);
    return writers < 1 ? 1 : mimo_smaller(writers, most);
}

static int64_t all_bytes(const builder *it)
{
    return it->bytes[MIMO_PUSH_REMOTE] + it->bytes[MIMO_PUSH_LOCAL];
}

/* Choose the kernel and the largest number of thread blocks. By default that is one for each
 * multiprocessor, as they wait for peers. For few rows the load/store kernel is faster: they go
 * through registers only, which took 2.5 to 4 us less with three targets (H200). */
static mimo_status choose_kernel(builder *it, int64_t *most, int64_t *multiprocessors)
{
    int bulk;
    MIMO_TRY(mimo_nccl_most_ctas(most, multiprocessors, it->messages->pushes.ctas));
    MIMO_TRY_CUDA(mimo_push_bulk_fits(&bulk));
    it->few = all_bytes(it) <= MOST_BY_LOAD_STORE * *most;
    it->bulk = it->width == MIMO_WIDEST_WORD && bulk > 0 && !it->few;
    return MIMO_OK;
}

/* Large pieces cost less; small pieces give every thread block some. */
static void choose_piece(builder *it, int64_t ctas)
{
    int64_t share = all_bytes(it) / (ctas * PIECES_PER_CTA);
    int64_t bulk = mimo_smaller(MIMO_PUSH_BULK, MOST_IN_FLIGHT / ctas);
    int64_t piece = it->bulk ? LEAST_BULK : 1, most = it->bulk ? bulk : MIMO_PUSH_PIECE;
    int64_t bytes =
        it->bulk ? 1 : (int64_t)MIMO_PUSH_THREADS << MIMO_WIDEST_WORD; /* of a piece of 1 */
    while (2 * piece <= most && piece * bytes < share)
        piece *= 2;
    it->head.piece = (uint32_t)piece;
}

static mimo_status append_drafts(builder *it, int list, int64_t begin, int64_t end)
{
    int64_t first = it->count;
    for (int64_t i = begin; i < end; i++)
        MIMO_TRY(append(it, &it->drafts[i]));
    return make_list(it, &it->head.list[list], first,
                     list == MIMO_PUSH_REMOTE ? MIMO_PUSH_UNIT : MOST_SEGMENTS);
}

static mimo_status assign_ctas(builder *it, mimo_push_program *out)
{
    int64_t most, multiprocessors;
    mimo_push_block_list *remote = &it->head.list[MIMO_PUSH_REMOTE];
    mimo_push_block_list *local = &it->head.list[MIMO_PUSH_LOCAL];
    MIMO_TRY(choose_kernel(it, &most, &multiprocessors));
    choose_piece(it, mimo_smaller(most, multiprocessors));
    MIMO_TRY(append_drafts(it, MIMO_PUSH_REMOTE, 0, it->remote_drafts));
    MIMO_TRY(append_drafts(it, MIMO_PUSH_LOCAL, it->remote_drafts, it->draft_count));
    int64_t writers = mimo_smaller(writers_of(it, most, multiprocessors), remote->pieces);
    if (it->head.targets > 0 && writers == 0)
        writers = 1; /* nothing to write, but DONE must be set */
    int64_t copiers = mimo_smaller(most - writers, local->pieces);
    if (writers + copiers == 0 && it->head.sources > 0)
        copiers = 1; /* to set READY and wait */
    remote->ctas = (uint32_t)writers;
    local->ctas = (uint32_t)copiers;
    out->ctas = (int32_t)(writers + copiers);
    out->bulk = it->bulk;
    return MIMO_OK;
}

/* ----------------------------------------- program ------------------------------------------ */

static mimo_status set_small(mimo_push_program *out, const builder *it, int64_t peers)
{
    mimo_push_small *small = &out->as.small;
    small->head = it->head;
    if (peers > 0)
        memcpy(small->peers, it->peers, (size_t)peers * sizeof *it->peers);
    if (it->count > 0)
        memcpy(small->blocks, it->blocks, (size_t)it->count * sizeof *it->blocks);
    return MIMO_OK;
}

/* Blocks first: their alignment is at least that of peers. */
static mimo_status set_large(mimo_push_program *out, const builder *it, int64_t peers)
{
    const mimo_list lists[] = {{it->blocks, (size_t)it->count * sizeof *it->blocks},
                               {it->peers, (size_t)peers * sizeof *it->peers}};
    mimo_push_large *large = &out->as.large;
    MIMO_TRY(mimo_program_memory_take(&out->lists, it->context->pool, lists, 2));
    large->head = it->head;
    large->blocks = out->lists->data;
    large->peers =
        (const mimo_push_peer *)(const void *)((char *)out->lists->data + lists[0].bytes);
    return MIMO_OK;
}

static mimo_status make(mimo_push_program *out, builder *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    MIMO_TRY(draft_all(it));
    it->head.idle = pushes->idle;
    it->head.note = it->context->note;
    it->head.progress = it->context->progress;
    it->head.own = &pushes->buffer->flags[it->context->rank][it->context->rank];
    if (it->draft_count == 0 && it->head.targets + it->head.sources == 0)
        return MIMO_OK;
    out->base_count = it->messages->base_count;
    MIMO_TRY(assign_ctas(it, out));
    int64_t peers = (int64_t)it->head.targets + it->head.sources;
    bool small = peers <= MIMO_PUSH_SMALL_PEERS && it->count <= MIMO_PUSH_SMALL_BLOCKS &&
                 it->messages->base_count <= MIMO_PUSH_SMALL_BASES;
    return small ? set_small(out, it, peers) : set_large(out, it, peers);
}

mimo_status mimo_push_program_make(mimo_push_program *out, const mimo_push_context *context,
                                   const mimo_messages *messages)
{
    builder it = {.context = context, .messages = messages, .width = MIMO_WIDEST_WORD};
    mimo_status status = make(out, &it);
    mimo_release(it.peers);
    mimo_release(it.drafts);
    mimo_release(it.blocks);
    if (status != MIMO_OK)
        mimo_push_program_release(out);
    return status;
}

void mimo_push_program_bind(mimo_push_program *program, char *const *bases, uint64_t signature)
{
    mimo_push_small *small = &program->as.small;
    mimo_push_large *large = &program->as.large;
    if (program->ctas == 0)
        return;
    memcpy(program->lists ? large->bases : small->bases, bases,
           (size_t)program->base_count * sizeof *bases);
    (program->lists ? &large->head : &small->head)->signature = signature;
}

mimo_status mimo_push_program_run(const mimo_push_program *program, mimo_stream stream)
{
    if (program->ctas == 0)
        return MIMO_OK;
    if (program->lists)
        MIMO_TRY(mimo_program_memory_enter(program->lists, stream));
    cudaError_t code = (program->bulk ? mimo_push_bulk : mimo_push_load_store)(program, stream);
    MIMO_TRY(mimo_cuda_status(code, "zero-copy kernel"));
    return program->lists ? mimo_program_memory_leave(program->lists, stream) : MIMO_OK;
}

void mimo_push_program_release(mimo_push_program *program)
{
    mimo_program_memory_give_back(program->lists);
    program->lists = NULL;
    program->ctas = 0;
}
