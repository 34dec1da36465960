/* Routes as text: a line for the rank, for each of its experts, for each block, and for what is
 * lost. Stable enough to be stored. */
#include <inttypes.h>

#include "core/memory.h"
#include "core/printed.h"
#include "dispatch/route/virtual_ranks.h"

/* A row of the tile; rank -1: padding. */
typedef struct tile_row {
    int64_t rank, pair;
} tile_row;

static mimo_status list_rows(tile_row **out, const mimo_route_map *map)
{
    const mimo_route_blocks *in = &map->in;
    int64_t rows = mimo_route_rows(map, map->rank);
    MIMO_TRY(mimo_reserve(out, rows, sizeof **out));
    for (int64_t row = 0; row < rows; row++)
        (*out)[row].rank = -1;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++)
        for (int64_t q = in->pairs[in->begin[rank]]; q < in->pairs[in->begin[rank + 1]]; q++)
            (*out)[in->row[q]] = (tile_row){rank, in->pair[q]};
    return MIMO_OK;
}

/* expert 2 rows [0,2): (0,2,0) (1,0,1) */
static bool print_expert(FILE *stream, const mimo_route_map *map, int64_t local,
                         const tile_row *rows)
{
    int64_t expert = mimo_route_x(&map->shape, map->rank) * map->shape.held + local;
    int64_t top_k = map->shape.top_k;
    bool written = fprintf(stream, "expert %" PRId64 " rows [%" PRId64 ",%" PRId32 "):", expert,
                           map->starts[expert], map->ends[local]) > 0;
    for (int64_t row = map->starts[expert]; row < map->ends[local] && written; row++) {
        const tile_row *it = &rows[row];
        written = it->rank < 0 ? fprintf(stream, " 0") > 0
                               : fprintf(stream, " (%" PRId64 ",%" PRId64 ",%" PRId64 ")", it->rank,
                                         it->pair / top_k, it->pair % top_k) > 0;
    }
    return written && fputc('\n', stream) != EOF;
}

/* to rank 1: 1 at 2, 2 at 0 3 */
static bool print_block(FILE *stream, const mimo_route_blocks *blocks, int64_t peer,
                        const char *direction, int64_t rank)
{
    const char *separator = "";
    bool written = fprintf(stream, "%s rank %" PRId64 ":", direction, rank) > 0;
    for (int64_t n = blocks->begin[peer]; n < blocks->begin[peer + 1] && written; n++) {
        written = fprintf(stream, "%s %" PRId64 " at", separator, blocks->token[n]) > 0;
        for (int64_t q = blocks->pairs[n]; q < blocks->pairs[n + 1] && written; q++)
            written = fprintf(stream, " %" PRId64, blocks->row[q]) > 0;
        separator = ",";
    }
    return written && fputc('\n', stream) != EOF;
}

static bool loses_pair(const mimo_route_map *map, const mimo_route_ids *ids, int64_t token)
{
    const mimo_route_blocks *out = &map->out;
    for (int64_t x = 0; x < map->shape.ep; x++)
        for (int64_t n = out->begin[x]; n < out->begin[x + 1]; n++)
            for (int64_t q = out->pairs[n]; q < out->pairs[n + 1]; q++)
                if (out->token[n] == token && mimo_route_is_lost(map, ids, x, out->row[q]))
                    return true;
    return false;
}

/* lost: 1 */
static bool print_lost(FILE *stream, const mimo_route_map *map, const mimo_route_ids *ids)
{
    bool written = fprintf(stream, "lost:") > 0;
    for (int64_t token = 0; token < ids->tokens[map->rank] && written; token++)
        if (loses_pair(map, ids, token))
            written = fprintf(stream, " %" PRId64, token) > 0;
    return written && fputc('\n', stream) != EOF;
}

static bool print_route(FILE *stream, const mimo_route_map *map, const mimo_route_ids *ids,
                        const tile_row *rows)
{
    const mimo_route_shape *shape = &map->shape;
    int64_t rank = map->rank, capacity = ids->capacity[rank];
    bool written = fprintf(stream,
                           "rank %" PRId64 " of %" PRId64 ", t %" PRId64 ", x %" PRId64
                           ", tokens %" PRId64 ", rows needed %" PRId64,
                           rank, shape->ranks, rank % shape->etp, mimo_route_x(shape, rank),
                           ids->tokens[rank], mimo_route_rows(map, rank)) > 0;
    if (capacity >= 0)
        written = written && fprintf(stream, " of %" PRId64, capacity) > 0;
    written = written && fputc('\n', stream) != EOF;
    for (int64_t local = 0; local < shape->held && written; local++)
        written = print_expert(stream, map, local, rows);
    for (int64_t peer = 0; peer < shape->ranks && written; peer++)
        written = print_block(stream, &map->out, mimo_route_x(shape, peer), "to", peer);
    for (int64_t peer = 0; peer < shape->ranks && written; peer++)
        written = print_block(stream, &map->in, peer, "from", peer);
    return written && print_lost(stream, map, ids);
}

static mimo_status print_rank(FILE *stream, const mimo_virtual_ranks *ranks, int64_t rank)
{
    mimo_route_map map;
    tile_row *rows = NULL;
    MIMO_CHECK(rank >= 0 && rank < ranks->shape.ranks, MIMO_ERR_ARGUMENT,
               "mimo_route_print: rank %" PRId64 " of %" PRId64, rank, ranks->shape.ranks);
    mimo_status status = mimo_virtual_ranks_route(&map, ranks, rank);
    if (status == MIMO_OK)
        status = list_rows(&rows, &map);
    if (status == MIMO_OK && !(print_route(stream, &map, &ranks->ids, rows) && fflush(stream) == 0))
        status =
            mimo_fail(MIMO_ERR_IO,
                      "mimo_route_print: the route of rank %" PRId64 " could not be written", rank);
    mimo_release(rows);
    mimo_route_map_release(&map);
    return status;
}

mimo_status mimo_route_print(FILE *stream, const mimo_routing *routing, int64_t rank)
{
    mimo_virtual_ranks ranks;
    MIMO_CHECK(stream, MIMO_ERR_ARGUMENT, "mimo_route_print: stream is NULL");
    mimo_status status = mimo_virtual_ranks_read(&ranks, routing, "mimo_route_print");
    if (status == MIMO_OK)
        status = print_rank(stream, &ranks, rank);
    mimo_virtual_ranks_release(&ranks);
    return status;
}

mimo_status mimo_route_text(int64_t *length, char *text, int64_t capacity,
                            const mimo_routing *routing, int64_t rank)
{
    mimo_printed printed;
    MIMO_TRY(mimo_printed_open(&printed, text, capacity, "mimo_route_text"));
    return mimo_printed_close(length, text, capacity, &printed,
                              mimo_route_print(printed.stream, routing, rank));
}
