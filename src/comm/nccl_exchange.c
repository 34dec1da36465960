/*
 * Messages over grouped ncclSend and ncclRecv. A message whose rows are one contiguous run is sent
 * and received where it lies; any other is packed into, or unpacked from, room of the exchange.
 *
 * Peers are grouped by their distance, (peer - rank) mod size for sends and (rank - peer) mod size
 * for receives, a fixed number of distances to a group: all ranks cut alike, so the groups of a
 * large plan are bounded and still match.
 */
#include <limits.h>

#include "comm/nccl_state.h"
#include "core/checked.h"
#include "core/memory.h"

enum { DISTANCES_PER_GROUP = 32 };

/* One message: its rows, and where NCCL finds them. */
typedef struct packet {
    int peer, distance;
    int64_t count, bytes;
    mimo_rows *rows; /* rows[count], part of the exchange's one list */
    char *place;     /* the run itself, or room in the exchange */
    bool packed;
} packet;

typedef struct packets {
    packet *list;
    int count;
} packets;

struct mimo_exchange {
    const mimo_device *device;
    packets receives, sends;
    mimo_rows *rows;
    char *room;
};

static int64_t bytes_of(const mimo_rows *rows)
{
    return rows->n_outer * rows->n_inner * rows->row_bytes;
}

static bool is_run(const mimo_rows *rows)
{
    return (rows->n_inner == 1 || rows->inner == 1) &&
           (rows->n_outer == 1 || rows->outer == rows->n_inner);
}

/* Copy the messages; *rows and *room move on by what they take. */
static mimo_status read_messages(packets *out, const mimo_messages *all, bool sends,
                                 const mimo_comm *comm, mimo_rows **rows, int64_t *room)
{
    const mimo_message *from = sends ? all->sends : all->receives;
    out->count = sends ? all->send_count : all->receive_count;
    MIMO_TRY(mimo_reserve(&out->list, out->count, sizeof *out->list));
    for (int i = 0; i < out->count; i++) {
        packet *it = &out->list[i];
        int ahead = sends ? from[i].peer - comm->rank : comm->rank - from[i].peer;
        it->peer = from[i].peer;
        it->distance = (ahead + comm->size) % comm->size;
        it->count = from[i].count;
        it->rows = *rows;
        *rows += it->count;
        for (int64_t j = 0; j < it->count; j++) {
            it->rows[j] = from[i].rows[j];
            MIMO_TRY(mimo_add(&it->bytes, it->bytes, bytes_of(&it->rows[j])));
        }
        it->packed = it->count != 1 || !is_run(it->rows);
        if (it->packed)
            MIMO_TRY(mimo_add(room, *room, (it->bytes + 15) / 16 * 16));
    }
    return MIMO_OK;
}

static int64_t count_rows(const mimo_messages *messages)
{
    int64_t count = 0;
    for (int i = 0; i < messages->receive_count; i++)
        count += messages->receives[i].count;
    for (int i = 0; i < messages->send_count; i++)
        count += messages->sends[i].count;
    return count;
}

/* Packed messages one after the other in the room, the others where their run lies. */
static char *place_packets(const packets *all, char *room)
{
    for (int i = 0; i < all->count; i++) {
        packet *it = &all->list[i];
        it->place = room;
        if (it->packed)
            room += (it->bytes + 15) / 16 * 16;
        else
            it->place = (char *)it->rows->base + it->rows->first * it->rows->row_bytes;
    }
    return room;
}

mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages)
{
    mimo_exchange *made;
    mimo_rows *rows;
    mimo_status status;
    void *room;
    int64_t bytes = 0;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->device = comm->device;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made->rows, count_rows(messages), sizeof *rows));
    rows = made->rows;
    MIMO_TRY_GOTO(status, fail,
                  read_messages(&made->receives, messages, false, comm, &rows, &bytes));
    MIMO_TRY_GOTO(status, fail, read_messages(&made->sends, messages, true, comm, &rows, &bytes));
    if (bytes > 0) {
        MIMO_TRY_GOTO(status, fail, comm->device->reserve(&room, bytes));
        made->room = room;
    }
    place_packets(&made->sends, place_packets(&made->receives, made->room));
    *out = made;
    return MIMO_OK;
fail:
    mimo_nccl_exchange_destroy(made);
    return status;
}

/* Between a message's rows and its place in the room. */
static mimo_status move_packed(const mimo_exchange *exchange, const packet *it, bool pack,
                               mimo_stream stream)
{
    char *at = it->place;
    for (int64_t j = 0; j < it->count && it->packed; j++) {
        const mimo_rows *rows = &it->rows[j];
        mimo_rows line = {at, rows->row_bytes, 0, rows->n_outer, rows->n_inner, rows->n_inner, 1};
        MIMO_TRY(exchange->device->copy_rows(pack ? &line : rows, pack ? rows : &line, stream));
        at += bytes_of(rows);
    }
    return MIMO_OK;
}

static bool is_in_group(const packet *it, int group)
{
    return it->bytes > 0 && (it->distance - 1) / DISTANCES_PER_GROUP == group;
}

static ncclResult_t enqueue_group(const mimo_exchange *exchange, ncclComm_t handle, int group,
                                  mimo_stream stream)
{
    ncclResult_t code = ncclSuccess;
    for (int i = 0; i < exchange->receives.count && code == ncclSuccess; i++) {
        const packet *it = &exchange->receives.list[i];
        if (is_in_group(it, group))
            code = ncclRecv(it->place, (size_t)it->bytes, ncclUint8, it->peer, handle, stream);
    }
    for (int i = 0; i < exchange->sends.count && code == ncclSuccess; i++) {
        const packet *it = &exchange->sends.list[i];
        if (is_in_group(it, group))
            code = ncclSend(it->place, (size_t)it->bytes, ncclUint8, it->peer, handle, stream);
    }
    return code;
}

static mimo_status move_group(const mimo_exchange *exchange, ncclComm_t handle, int group,
                              mimo_stream stream)
{
    MIMO_TRY_NCCL(handle, ncclGroupStart());
    ncclResult_t inside = enqueue_group(exchange, handle, group, stream);
    ncclResult_t ended = ncclGroupEnd(); /* also after an error: the group must be closed */
    MIMO_TRY(mimo_nccl_status(inside, handle, "ncclSend or ncclRecv"));
    return mimo_nccl_status(ended, handle, "ncclGroupEnd");
}

mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream)
{
    const nccl_team *team = ((nccl_comm *)comm)->team;
    *out = NULL;
    if (!team)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_check(team));
    for (int i = 0; i < exchange->sends.count; i++)
        MIMO_TRY(move_packed(exchange, &exchange->sends.list[i], true, stream));
    for (int group = 0; group * DISTANCES_PER_GROUP < comm->size - 1; group++)
        MIMO_TRY(move_group(exchange, team->handle, group, stream));
    for (int i = 0; i < exchange->receives.count; i++)
        MIMO_TRY(move_packed(exchange, &exchange->receives.list[i], false, stream));
    return MIMO_OK;
}

void mimo_nccl_exchange_destroy(mimo_exchange *exchange)
{
    if (!exchange)
        return;
    exchange->device->release(exchange->room);
    mimo_release(exchange->receives.list);
    mimo_release(exchange->sends.list);
    mimo_release(exchange->rows);
    mimo_release(exchange);
}
