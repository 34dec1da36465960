/*
 * Messages over grouped ncclSend and ncclRecv. A message whose rows are one contiguous run is sent
 * and received where it lies; any other is packed into, or unpacked from, the communicator's room
 * for the stream: as a whole, since NCCL takes longer for two messages between two ranks than for
 * packing one.
 *
 * Peers are grouped by their distance, (peer - rank) mod size for sends and (rank - peer) mod size
 * for receives, a fixed number of distances to a group: all ranks cut alike, so the groups of a
 * large plan are bounded and still match.
 */
#include <limits.h>

#include "comm/nccl/nccl_buffer.h"
#include "comm/nccl/nccl_packing.h"
#include "comm/nccl/nccl_push_program.h"
#include "core/checked.h"
#include "core/memory.h"

enum { DISTANCES_PER_GROUP = 32 };

/* One message, and where NCCL finds its rows. */
typedef struct packet {
    int peer, distance;
    int64_t bytes;
    char *run;      /* the rows, where they are one run; else NULL */
    int64_t offset; /* in the room, where they are not */
} packet;

typedef struct packets {
    packet *list;
    int count;
    int64_t bytes; /* of the room that they are packed in */
    mimo_packing packing;
} packets;

struct mimo_exchange {
    packets receives, sends;  /* rows that stay are copied with what is unpacked, */
    mimo_push_program pushes; /* or with what is pushed */
    mimo_buffer *buffer;      /* whose flags that uses; NULL: no peer takes part */
    const mimo_device *device;
};

/* An exchange on its way. */
typedef struct flight {
    const mimo_exchange *exchange;
    nccl_comm *comm;
    ncclComm_t handle;
    mimo_stream stream;
    char *arriving, *leaving; /* room of the packed receives, and of the packed sends */
} flight;

static bool is_run(const mimo_message *message)
{
    return message->count == 1 && mimo_rows_are_one_run(&message->rows[0]);
}

static mimo_status read_message(packets *out, const mimo_message *from, const mimo_comm *comm)
{
    enum { ALIGNMENT = 16 };
    packet *it = &out->list[out->count++];
    int ahead = out->packing.packs ? from->peer - comm->rank : comm->rank - from->peer;
    it->peer = from->peer;
    it->distance = (ahead + comm->size) % comm->size;
    it->offset = out->bytes;
    if (is_run(from))
        it->run = mimo_rows_begin(&from->rows[0]);
    for (int64_t j = 0; j < from->count; j++) {
        if (!it->run)
            mimo_packing_add(&out->packing, &from->rows[j], it->offset + it->bytes);
        MIMO_TRY(mimo_add(&it->bytes, it->bytes, mimo_rows_bytes(&from->rows[j])));
    }
    if (it->run)
        return MIMO_OK;
    return mimo_add(&out->bytes, out->bytes, (it->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* `stay`: how many rows that stay are going to be added to the packing. */
static mimo_status read_messages(packets *out, const mimo_messages *all, const mimo_comm *comm,
                                 bool sends, int64_t stay)
{
    const mimo_message *from = sends ? all->sends : all->receives;
    int count = sends ? all->send_count : all->receive_count;
    int64_t lines = 0;
    for (int i = 0; i < count; i++)
        lines += is_run(&from[i]) ? 0 : from[i].count;
    out->packing.packs = sends;
    MIMO_TRY(mimo_reserve(&out->list, count, sizeof *out->list));
    MIMO_TRY(mimo_packing_reserve(&out->packing, lines, stay));
    for (int i = 0; i < count; i++)
        MIMO_TRY(read_message(out, &from[i], comm));
    return MIMO_OK;
}

static mimo_status read_pushes(mimo_exchange *made, const mimo_messages *all, const mimo_comm *comm)
{
    const mimo_push_place place = {comm->device, comm->rank,
                                   mimo_nccl_buffer_note(all->pushes.buffer)};
    made->buffer = all->pushes.buffer;
    return mimo_push_program_make(&made->pushes, &place, all);
}

static mimo_status read_all(mimo_exchange *made, const mimo_messages *all, const mimo_comm *comm)
{
    bool pushes = all->pushes.count + all->pushes.pusher_count > 0;
    int64_t stay = pushes ? 0 : all->copy_count;
    MIMO_TRY(read_messages(&made->receives, all, comm, false, stay));
    MIMO_TRY(read_messages(&made->sends, all, comm, true, 0));
    for (int64_t i = 0; i < stay; i++)
        mimo_packing_add_staying(&made->receives.packing, &all->copies[i]);
    return pushes ? read_pushes(made, all, comm) : MIMO_OK;
}

mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages)
{
    mimo_exchange *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->device = comm->device;
    mimo_status status = read_all(made, messages, comm);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_nccl_exchange_destroy(made);
    return status;
}

static mimo_status get_room(char **out, mimo_comm *comm, const flight *it, mimo_staging_slot slot,
                            int64_t bytes)
{
    void *room = NULL;
    const mimo_staging_key key = {comm->device, it->stream, slot};
    if (bytes > 0)
        MIMO_TRY(mimo_staging_get(&room, &comm->staging, &key, bytes));
    *out = room;
    return MIMO_OK;
}

static char *place_of(const packet *it, char *room)
{
    return it->run ? it->run : room + it->offset;
}

static bool is_in_group(const packet *it, int group)
{
    return it->bytes > 0 && (it->distance - 1) / DISTANCES_PER_GROUP == group;
}

static ncclResult_t enqueue_group(const flight *it, int group)
{
    ncclResult_t code = ncclSuccess;
    const packets *receives = &it->exchange->receives, *sends = &it->exchange->sends;
    for (int i = 0; i < receives->count && code == ncclSuccess; i++) {
        const packet *from = &receives->list[i];
        if (is_in_group(from, group))
            code = ncclRecv(place_of(from, it->arriving), (size_t)from->bytes, ncclUint8,
                            from->peer, it->handle, it->stream);
    }
    for (int i = 0; i < sends->count && code == ncclSuccess; i++) {
        const packet *to = &sends->list[i];
        if (is_in_group(to, group))
            code = ncclSend(place_of(to, it->leaving), (size_t)to->bytes, ncclUint8, to->peer,
                            it->handle, it->stream);
    }
    return code;
}

static mimo_status move_group(const flight *it, int group)
{
    MIMO_TRY_NCCL(it->comm, ncclGroupStart());
    ncclResult_t inside = enqueue_group(it, group);
    ncclResult_t ended = ncclGroupEnd(); /* also after an error: the group must be closed */
    MIMO_TRY(mimo_nccl_status(inside, it->comm, it->handle, "ncclSend or ncclRecv"));
    return mimo_nccl_status(ended, it->comm, it->handle, "ncclGroupEnd");
}

static mimo_status move_messages(mimo_comm *comm, const nccl_team *team, mimo_exchange *exchange,
                                 mimo_stream stream)
{
    packets *receives = &exchange->receives, *sends = &exchange->sends;
    flight it = {exchange, (nccl_comm *)comm, team->handle, stream, NULL, NULL};
    MIMO_TRY(mimo_nccl_check(team));
    MIMO_TRY(get_room(&it.arriving, comm, &it, MIMO_STAGING_GATHERED, receives->bytes));
    MIMO_TRY(get_room(&it.leaving, comm, &it, MIMO_STAGING_PACKED, sends->bytes));
    MIMO_TRY(mimo_packing_run(&sends->packing, comm->device, it.leaving, stream));
    for (int group = 0; group * DISTANCES_PER_GROUP < comm->size - 1; group++)
        MIMO_TRY(move_group(&it, group));
    return mimo_packing_run(&receives->packing, comm->device, it.arriving, stream);
}

static mimo_status push(const nccl_team *team, mimo_exchange *exchange, mimo_stream stream)
{
    if (team)
        MIMO_TRY(mimo_nccl_check(team));
    MIMO_TRY(mimo_nccl_buffer_enter(exchange->buffer, stream));
    return mimo_push_program_run(&exchange->pushes, stream);
}

mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream)
{
    const nccl_team *team = ((nccl_comm *)comm)->team;
    *out = NULL;
    if (exchange->buffer)
        MIMO_TRY(mimo_buffer_check(exchange->buffer));
    if (team && exchange->receives.count + exchange->sends.count > 0)
        MIMO_TRY(move_messages(comm, team, exchange, stream));
    else
        MIMO_TRY(mimo_packing_run(&exchange->receives.packing, comm->device, NULL, stream));
    return exchange->buffer ? push(team, exchange, stream) : MIMO_OK;
}

void mimo_nccl_exchange_destroy(mimo_exchange *exchange)
{
    if (!exchange)
        return;
    mimo_packing_release(&exchange->receives.packing);
    mimo_packing_release(&exchange->sends.packing);
    mimo_push_program_release(&exchange->pushes, exchange->device);
    mimo_release(exchange->receives.list);
    mimo_release(exchange->sends.list);
    mimo_release(exchange);
}
