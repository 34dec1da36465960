/*
 * Programs of the push kernel: rows become blocks of wide words, blocks are cut into pieces, and
 * the thread blocks are dealt out.
 *
 * Peers are taken in the order of their distance, (peer - rank) mod size, so that all ranks write
 * to different ones at a time.
 */
#include "comm/nccl_push_program.h"

#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "device/cuda_calls.h"

enum {
    PIECES_PER_CTA = 4, /* where there is enough */
    WIDEST = 4,         /* 1 << 4 bytes a word */
};
static const int64_t MOST_SEGMENTS = INT32_MAX;

/* ------------------------------------------ blocks ------------------------------------------ */

/* A block in making: strides are bytes. */
typedef struct draft {
    char *to;
    const char *from;
    int64_t row, n_inner, n_outer;
    int64_t to_inner, from_inner, to_outer, from_outer;
} draft;

/* The program in making: blocks[count], the remote ones first. */
typedef struct maker {
    const mimo_push_place *place;
    const mimo_messages *messages;
    mimo_push_head head;
    mimo_push_peer *peers; /* targets, then sources */
    mimo_push_block *blocks;
    int64_t count, capacity;
    int64_t segments;
} maker;

static draft read_rows(const mimo_row_copy *rows)
{
    int64_t bytes = rows->to.row_bytes;
    return (draft){.to = mimo_rows_begin(&rows->to),
                   .from = mimo_rows_begin(&rows->from),
                   .row = bytes,
                   .n_inner = rows->to.n_inner,
                   .n_outer = rows->to.n_outer,
                   .to_inner = rows->to.inner * bytes,
                   .from_inner = rows->from.inner * bytes,
                   .to_outer = rows->to.outer * bytes,
                   .from_outer = rows->from.outer * bytes};
}

/* Rows that lie one after the other on both ends are one longer row; a loop of one is none. */
static void lengthen(draft *it)
{
    for (int loop = 0; loop < 2; loop++) {
        bool one_run = it->to_inner == it->row && it->from_inner == it->row;
        if (it->n_inner > 1 && !one_run)
            return;
        it->row *= it->n_inner;
        it->n_inner = it->n_outer;
        it->to_inner = it->to_outer;
        it->from_inner = it->from_outer;
        it->n_outer = 1;
    }
}

/* The order of rows is free, and long inner loops waste the fewest threads. */
static void turn(draft *it)
{
    const draft was = *it;
    if (was.n_inner >= was.n_outer)
        return;
    it->n_inner = was.n_outer;
    it->n_outer = was.n_inner;
    it->to_inner = was.to_outer;
    it->to_outer = was.to_inner;
    it->from_inner = was.from_outer;
    it->from_outer = was.from_inner;
}

/* The widest word that rows, strides and both ends are multiples of. */
static uint32_t width_of(const draft *it)
{
    uintptr_t bits = (uintptr_t)it->to | (uintptr_t)it->from | (uintptr_t)it->row;
    uint32_t width = 0;
    if (it->n_inner > 1)
        bits |= (uintptr_t)(it->to_inner | it->from_inner);
    if (it->n_outer > 1)
        bits |= (uintptr_t)(it->to_outer | it->from_outer);
    while (width < WIDEST && bits % (2u << width) == 0)
        width++;
    return width;
}

/* Exact for n < 2^31: the error of factor / 2^shift is under 1 / (2^31 * divisor). */
static mimo_push_divisor divisor_of(uint32_t divisor)
{
    uint32_t bits = 0;
    while (((uint64_t)1 << bits) < divisor)
        bits++;
    return (mimo_push_divisor){(uint32_t)(((uint64_t)1 << (31 + bits)) / divisor + 1), 31 + bits};
}

static mimo_status append(maker *it, const draft *rows, int target);

/* Both halves of what is too long for one block: of its longest loop. */
static mimo_status append_halves(maker *it, const draft *rows, int target)
{
    draft first = *rows, second = *rows;
    if (rows->n_outer > 1) {
        first.n_outer = rows->n_outer / 2;
        second.n_outer -= first.n_outer;
        second.to += first.n_outer * rows->to_outer;
        second.from += first.n_outer * rows->from_outer;
    } else if (rows->n_inner > 1) {
        first.n_inner = rows->n_inner / 2;
        second.n_inner -= first.n_inner;
        second.to += first.n_inner * rows->to_inner;
        second.from += first.n_inner * rows->from_inner;
    } else {
        first.row = rows->row / 2;
        second.row -= first.row;
        second.to += first.row;
        second.from += first.row;
    }
    MIMO_TRY(append(it, &first, target));
    return append(it, &second, target);
}

static mimo_status append(maker *it, const draft *rows, int target)
{
    uint32_t width = width_of(rows);
    int64_t row_words = rows->row >> width;
    int64_t side = row_words < MIMO_PUSH_THREADS ? MIMO_PUSH_THREADS / row_words : 1;
    int64_t chunks = (row_words + MIMO_PUSH_THREADS - 1) / MIMO_PUSH_THREADS;
    int64_t groups = (rows->n_inner + side - 1) / side;
    if (row_words > MOST_SEGMENTS || rows->n_inner > MOST_SEGMENTS ||
        chunks > MOST_SEGMENTS / groups / rows->n_outer)
        return append_halves(it, rows, target);
    if (it->count == it->capacity) {
        int64_t capacity = 2 * it->capacity + 1;
        MIMO_TRY(mimo_regrow(&it->blocks, it->capacity, capacity, sizeof *it->blocks));
        it->capacity = capacity;
    }
    int64_t segments = chunks * groups * rows->n_outer;
    it->blocks[it->count++] = (mimo_push_block){.to = rows->to,
                                                .from = rows->from,
                                                .to_outer = rows->to_outer,
                                                .to_inner = rows->to_inner,
                                                .from_outer = rows->from_outer,
                                                .from_inner = rows->from_inner,
                                                .segments = (uint32_t)segments,
                                                .row_words = (uint32_t)row_words,
                                                .n_inner = (uint32_t)rows->n_inner,
                                                .side = (uint32_t)side,
                                                .chunks = (uint32_t)chunks,
                                                .groups = (uint32_t)groups,
                                                .width = width,
                                                .target = target,
                                                .by_row = divisor_of((uint32_t)row_words),
                                                .by_chunks = divisor_of((uint32_t)chunks),
                                                .by_groups = divisor_of((uint32_t)groups)};
    it->segments += segments;
    return MIMO_OK;
}

static mimo_status append_copies(maker *it, const mimo_row_copy *rows, int64_t count, int target)
{
    for (int64_t i = 0; i < count; i++) {
        draft block = read_rows(&rows[i]);
        if (block.row == 0 || block.n_inner == 0 || block.n_outer == 0)
            continue;
        lengthen(&block);
        turn(&block);
        MIMO_TRY(append(it, &block, target));
    }
    return MIMO_OK;
}

/* ------------------------------------------ peers ------------------------------------------- */

static mimo_push_peer peer_at(const maker *it, int peer)
{
    const mimo_buffer *buffer = it->messages->pushes.buffer;
    int rank = it->place->rank;
    return (mimo_push_peer){&buffer->flags[rank][peer], &buffer->flags[peer][rank]};
}

/* Targets from the first one above the own rank on, and around. */
static mimo_status append_targets(maker *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    int above = 0;
    while (above < pushes->count && pushes->list[above].peer < it->place->rank)
        above++;
    for (int i = 0; i < pushes->count; i++) {
        const mimo_push *push = &pushes->list[(above + i) % pushes->count];
        it->peers[i] = peer_at(it, push->peer);
        MIMO_TRY(append_copies(it, push->rows, push->count, i));
    }
    it->head.targets = pushes->count;
    it->head.remote_blocks = (int32_t)it->count;
    return MIMO_OK;
}

static mimo_status append_all(maker *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    int64_t peers = (int64_t)pushes->count + pushes->pusher_count;
    MIMO_TRY(mimo_reserve(&it->peers, peers, sizeof *it->peers));
    MIMO_TRY(append_targets(it));
    for (int i = 0; i < pushes->pusher_count; i++)
        it->peers[pushes->count + i] = peer_at(it, pushes->pushers[i]);
    it->head.sources = pushes->pusher_count;
    MIMO_TRY(append_copies(it, it->messages->copies, it->messages->copy_count, -1));
    it->head.local_blocks = (int32_t)(it->count - it->head.remote_blocks);
    return MIMO_OK;
}

/* ------------------------------------- pieces and CTAs -------------------------------------- */

/* Pieces of all blocks of a kind. */
static uint32_t count_pieces(mimo_push_block *blocks, int64_t count, uint32_t piece)
{
    uint32_t pieces = 0;
    for (int64_t i = 0; i < count; i++) {
        blocks[i].first_piece = pieces;
        pieces += (blocks[i].segments + piece - 1) / piece;
    }
    return pieces;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Half of the thread blocks, by default one a multiprocessor, keep the link busy; the others copy.
 * Without peers, copies take all that fit. */
static mimo_status deal_ctas(maker *it, int32_t *out)
{
    int chip, each;
    mimo_push_head *head = &it->head;
    int asked = it->messages->pushes.ctas;
    bool remote = head->remote_blocks > 0, local = head->local_blocks > 0;
    MIMO_TRY_CUDA(mimo_push_most_ctas(&chip, &each));
    int64_t all = remote || head->sources > 0 ? chip : (int64_t)chip * each;
    if (asked > 0)
        all = least(all, asked);
    int64_t writers = !remote ? 0 : local && all > 1 ? all / 2 : all;
    int64_t share = it->segments / (all * PIECES_PER_CTA);
    uint32_t piece = 1;
    while (piece < MIMO_PUSH_PIECE && piece < share)
        piece *= 2;
    head->piece = piece;
    head->remote_pieces = count_pieces(it->blocks, head->remote_blocks, piece);
    head->local_pieces = count_pieces(it->blocks + head->remote_blocks, head->local_blocks, piece);
    writers = least(writers, head->remote_pieces);
    int64_t copiers = least(all - writers, head->local_pieces);
    if (local && copiers == 0)
        copiers = 1; /* a chip of one thread block: it writes, another one copies */
    if (writers + copiers == 0 && head->sources > 0)
        copiers = 1; /* to say READY and wait */
    head->remote_ctas = (int32_t)writers;
    *out = (int32_t)(writers + copiers);
    return MIMO_OK;
}

/* ------------------------------------------ image ------------------------------------------- */

static char *put(char *at, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(at, from, bytes);
    return at + bytes;
}

static mimo_status make_image(mimo_push_program *out, const maker *it)
{
    size_t peers = (size_t)(it->head.targets + it->head.sources) * sizeof *it->peers;
    size_t blocks = (size_t)it->count * sizeof *it->blocks;
    size_t bytes = sizeof it->head + peers + blocks;
    char *image = out->image.bytes, *kept = NULL;
    void *far = NULL;
    if (bytes > MIMO_PUSH_INLINE) {
        MIMO_TRY(mimo_reserve(&kept, (int64_t)bytes, 1));
        image = kept;
    }
    put(put(put(image, &it->head, sizeof it->head), it->peers, peers), it->blocks, blocks);
    mimo_status status = MIMO_OK;
    if (kept)
        status = it->place->device->reserve(&far, (int64_t)bytes);
    if (far)
        status =
            mimo_cuda_status(cudaMemcpy(far, kept, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    out->far = far;
    out->bytes = (int32_t)bytes;
    mimo_release(kept);
    return status;
}

static mimo_status make(mimo_push_program *out, maker *it)
{
    const mimo_pushes *pushes = &it->messages->pushes;
    MIMO_TRY(append_all(it));
    it->head.idle = pushes->idle;
    it->head.abort = it->place->abort;
    if (it->head.targets + it->head.sources > 0)
        it->head.tickets = &pushes->buffer->flags[it->place->rank][it->place->rank].ready;
    if (it->count == 0 && it->head.sources == 0)
        return MIMO_OK;
    MIMO_TRY(deal_ctas(it, &out->ctas));
    return make_image(out, it);
}

mimo_status mimo_push_program_make(mimo_push_program *out, const mimo_push_place *place,
                                   const mimo_messages *messages)
{
    maker it = {.place = place, .messages = messages};
    mimo_status status = make(out, &it);
    mimo_release(it.peers);
    mimo_release(it.blocks);
    if (status != MIMO_OK)
        mimo_push_program_release(out, place->device);
    return status;
}

void mimo_push_program_release(mimo_push_program *program, const mimo_device *device)
{
    if (program->far)
        device->release((void *)program->far);
    program->far = NULL;
    program->ctas = 0;
}
