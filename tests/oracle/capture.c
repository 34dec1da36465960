#include "capture.h"

#include <string.h>

#include "core/check.h"
#include "core/memory.h"

/* A block in the bytes: this header, then row_of[count], then data[count, columns]. */
typedef struct block_header {
    char name[64];
    int64_t count, first, columns;
} block_header;

static int64_t block_bytes(int64_t count, int64_t columns)
{
    return (int64_t)sizeof(block_header) + count * 8 + count * columns * 8;
}

/* Room for `bytes` more; NULL where there is none. */
static char *extend(oracle_capture *capture, int64_t bytes)
{
    int64_t needed = capture->used + bytes, grown = 2 * needed;
    if (capture->status == MIMO_OK && needed > capture->capacity) {
        capture->status = mimo_regrow(&capture->bytes, capture->capacity, grown, 1);
        if (capture->status == MIMO_OK)
            capture->capacity = grown;
    }
    if (capture->status != MIMO_OK)
        return NULL;
    capture->used = needed;
    return capture->bytes + needed - bytes;
}

void capture_add(oracle_capture *capture, const capture_block *block)
{
    block_header header = {"", 0, block->first, block->columns};
    for (int64_t i = 0; i < block->count; i++)
        header.count += block->row_of[i] >= 0;
    strncpy(header.name, block->name, sizeof header.name - 1);
    char *room = extend(capture, block_bytes(header.count, header.columns));
    if (!room)
        return;
    memcpy(room, &header, sizeof header);
    int64_t *row = (int64_t *)(void *)(room + sizeof header);
    double *value = (double *)(void *)(row + header.count);
    for (int64_t i = 0; i < block->count; i++) {
        if (block->row_of[i] < 0)
            continue;
        *row++ = block->row_of[i];
        for (int64_t j = 0; j < block->columns; j++)
            *value++ = (double)block->data[i * block->columns + j];
    }
}

void capture_scalar(oracle_capture *capture, const char *name, double value)
{
    block_header header = {"", 1, 0, 1};
    int64_t row = 0;
    strncpy(header.name, name, sizeof header.name - 1);
    char *room = extend(capture, block_bytes(1, 1));
    if (!room)
        return;
    memcpy(room, &header, sizeof header);
    memcpy(room + sizeof header, &row, sizeof row);
    memcpy(room + sizeof header + sizeof row, &value, sizeof value);
}

void capture_release(oracle_capture *capture)
{
    mimo_release(capture->bytes);
    memset(capture, 0, sizeof *capture);
}

static void visit_blocks(const char *bytes, int64_t length, int rank, capture_visitor *visit,
                         void *context)
{
    for (int64_t at = 0; at < length;) {
        const block_header *header = (const void *)(bytes + at);
        const int64_t *row_of = (const void *)(header + 1);
        capture_piece piece = {rank,
                               header->name,
                               row_of,
                               header->count,
                               header->first,
                               header->columns,
                               (const void *)(row_of + header->count)};
        visit(context, &piece);
        at += block_bytes(header->count, header->columns);
    }
}

/* One rank after the other, so that rank 0 holds at most one other rank's blocks. */
static mimo_status visit_rank(oracle_capture *capture, mimo_comm *world, int rank,
                              capture_visitor *visit, void *context)
{
    int64_t length = capture->used;
    MIMO_TRY(mimo_comm_broadcast(world, &length, sizeof length, rank, NULL));
    char *bytes = capture->bytes, *room = NULL;
    mimo_status status = MIMO_OK;
    if (rank != mimo_comm_rank(world)) {
        status = mimo_reserve(&room, length, 1);
        bytes = room;
    }
    status = mimo_comm_agree(world, status);
    if (status == MIMO_OK)
        status = mimo_comm_broadcast(world, bytes, length, rank, NULL);
    if (status == MIMO_OK && mimo_comm_rank(world) == 0)
        visit_blocks(bytes, length, rank, visit, context);
    mimo_release(room);
    return status;
}

mimo_status capture_collect(oracle_capture *capture, mimo_comm *world, capture_visitor *visit,
                            void *context)
{
    mimo_status status = mimo_comm_agree(world, capture->status);
    for (int rank = 0; rank < mimo_comm_size(world) && status == MIMO_OK; rank++)
        status = visit_rank(capture, world, rank, visit, context);
    capture->used = 0;
    return status;
}
