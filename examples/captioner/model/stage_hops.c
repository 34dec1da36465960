#include "captioner/model/stage_hops.h"

#include <string.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

static int64_t elements_of(const stage_hops *hops)
{
    return hops->desc.rows * hops->desc.width;
}

/* --------------------------------------------- life ------------------------------------------- */

static mimo_status create_bridge(mimo_bridge **out, const stage_hops *hops, mimo_comm *comm,
                                 hop_way way)
{
    static const char *const names[HOP_WAYS] = {"activations", "gradients"};
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    bool back = way == HOP_GRADIENTS;
    desc.src = hops->ends[back];
    desc.dst = hops->ends[!back];
    desc.batch = hops->desc.rows;
    desc.name = names[way];
    return mimo_bridge_create(out, comm, &desc);
}

/* Join this rank with its neighbour at a boundary: boundary b lies between stage b and the one
 * behind it. -1: this rank has none at this time. */
static mimo_status join_pair(stage_hops *out, int64_t boundary)
{
    int64_t stages = mimo_grid_dim_size(out->desc.grid, "pp"), line, stage;
    TRY(mimo_grid_group_of(&line, &stage, out->desc.grid, "pp", mimo_comm_rank(out->desc.world)));
    bool paired = boundary >= 0, ahead = boundary == stage;
    hop_pair *pair = ahead ? &out->behind : &out->before;
    mimo_comm *none = NULL;
    TRY(mimo_comm_split(paired ? &pair->comm : &none, out->desc.world,
                        paired ? (int)(line * stages + boundary) : -1, ahead ? 0 : 1));
    for (int way = 0; paired && way < HOP_WAYS; way++)
        TRY(create_bridge(&pair->ways[way], out, pair->comm, (hop_way)way));
    return MIMO_OK;
}

/* The boundary at which this rank joins in a round: those of even numbers, those of odd ones, and
 * in the last round that between the last stage and the first one. So each rank is in one pair at a
 * time. */
static mimo_status find_boundary(int64_t *out, const stage_hops *hops, int64_t round)
{
    int64_t stages = mimo_grid_dim_size(hops->desc.grid, "pp"), stage;
    TRY(mimo_grid_coord(&stage, hops->desc.grid, mimo_comm_rank(hops->desc.world), "pp"));
    int64_t boundary = stage % 2 == round ? stage : stage - 1;
    if (round == 2)
        boundary = stage == 0 || stage == stages - 1 ? stages - 1 : -1;
    *out = round < 2 && boundary + 1 == stages ? -1 : boundary;
    return MIMO_OK;
}

static mimo_status create_ends(stage_hops *out)
{
    TRY(mimo_grid_create_text(&out->ends[0], "dp=1", 0));
    return mimo_grid_create_text(&out->ends[1], "dp=1", 1);
}

mimo_status stage_hops_create(stage_hops *out, const stage_hops_desc *desc)
{
    out->desc = *desc;
    if (mimo_grid_dim_size(desc->grid, "pp") == 1)
        return MIMO_OK;
    TRY(mimo_comm_agree(desc->world, create_ends(out)));
    for (int64_t round = 0; round < (desc->ring ? 3 : 2); round++) {
        int64_t boundary;
        TRY(find_boundary(&boundary, out, round));
        TRY(mimo_comm_agree(desc->world, join_pair(out, boundary)));
    }
    return MIMO_OK;
}

static void release_tiles(hop_tiles *tiles)
{
    memory_release(tiles->rows);
    memory_release(tiles->sent);
    *tiles = (hop_tiles){0};
}

static void release_pair(hop_pair *pair)
{
    for (int way = 0; way < HOP_WAYS; way++)
        mimo_bridge_destroy(pair->ways[way]);
    mimo_comm_destroy(pair->comm);
}

void stage_hops_destroy(stage_hops *hops)
{
    (void)stage_hops_finish(hops);
    release_pair(&hops->before);
    release_pair(&hops->behind);
    for (int way = 0; way < HOP_WAYS; way++)
        release_tiles(&hops->tiles[way]);
    mimo_grid_destroy(hops->ends[0]);
    mimo_grid_destroy(hops->ends[1]);
    *hops = (stage_hops){0};
}

mimo_status stage_hops_reserve(stage_hops *hops, hop_way way, int64_t count)
{
    hop_tiles *tiles = &hops->tiles[way];
    int64_t elements;
    if (count <= tiles->count)
        return MIMO_OK;
    TRY(size_mul(&elements, count, elements_of(hops)));
    release_tiles(tiles);
    TRY(memory_reserve(&tiles->rows, elements, sizeof *tiles->rows));
    TRY(memory_reserve(&tiles->sent, count, sizeof *tiles->sent));
    tiles->count = count;
    return MIMO_OK;
}

/* ------------------------------------------- messages ----------------------------------------- */

/* A message as one sequence position of `rows` samples; of the end that has none, an empty view. */
static mimo_tensor view_rows(const stage_hops *hops, const nn_real *rows)
{
    return mimo_tensor_3d((void *)rows, NN_DTYPE, "sbh", 1, rows ? hops->desc.rows : 0,
                          hops->desc.width);
}

static mimo_status begin(mimo_op **out, stage_hops *hops, mimo_bridge *bridge, nn_real *to,
                         const nn_real *from)
{
    mimo_tensor receives = view_rows(hops, to), sends = view_rows(hops, from);
    hops->calls++;
    return mimo_bridge_forward_start(out, bridge, &receives, &sends, 1, NULL);
}

mimo_status stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows)
{
    hop_tiles *tiles = &hops->tiles[way];
    const hop_pair *pair = way == HOP_ACTIVATIONS ? &hops->behind : &hops->before;
    int64_t elements = elements_of(hops), next = tiles->next;
    nn_real *tile = tiles->rows + next * elements;
    TRY(mimo_op_wait(&tiles->sent[next])); /* its rows are gone: see `count` */
    memcpy(tile, rows, (size_t)elements * sizeof *rows);
    tiles->next = (next + 1) % tiles->count;
    return begin(&tiles->sent[next], hops, pair->ways[way], NULL, tile);
}

mimo_status stage_hops_receive(stage_hops *hops, hop_way way, nn_real *rows)
{
    const hop_pair *pair = way == HOP_ACTIVATIONS ? &hops->before : &hops->behind;
    mimo_op *op = NULL;
    TRY(begin(&op, hops, pair->ways[way], rows, NULL));
    return mimo_op_wait(&op);
}

mimo_status stage_hops_finish(stage_hops *hops)
{
    mimo_status status = MIMO_OK;
    for (int way = 0; way < HOP_WAYS; way++)
        for (int64_t i = 0; i < hops->tiles[way].count; i++) {
            mimo_status ended = mimo_op_wait(&hops->tiles[way].sent[i]);
            status = status == MIMO_OK ? ended : status;
        }
    return status;
}
