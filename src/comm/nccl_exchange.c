/*
 * Messages over grouped ncclSend and ncclRecv. A message whose rows are one contiguous run is sent
 * and received where it lies; any other is packed into, or unpacked from, the communicator's room
 * for the stream.
 *
 * Peers are grouped by their distance, (peer - rank) mod size for sends and (rank - peer) mod size
 * for receives, a fixed number of distances to a group: all ranks cut alike, so the groups of a
 * large plan are bounded and still match.
 */
#include <limits.h>

#include "comm/nccl_buffer.h"
#include "comm/nccl_push_program.h"
#include "core/checked.h"
#include "core/memory.h"

enum { DISTANCES_PER_GROUP = 32 };

/* One message: its rows, and where NCCL finds them. */
typedef struct packet {
    int peer, distance;
    int64_t count, bytes;
    mimo_rows *rows; /* rows[count], part of the exchange's one list */
    char *run;       /* the rows, where they are one run; else NULL */
    int64_t offset;  /* in the room, where they are not */
} packet;

typedef struct packets {
    packet *list;
    int count;
    int64_t bytes; /* of the room that they are packed in */
} packets;

struct mimo_exchange {
    packets receives, sends;
    mimo_rows *rows;
    mimo_push_program program; /* what is pushed, and what stays */
    mimo_buffer *buffer;       /* whose flags that uses; NULL: no peer takes part */
    const mimo_device *device;
};

/* An exchange on its way. */
typedef struct flight {
    const mimo_exchange *exchange;
    mimo_comm *comm;
    ncclComm_t handle;
    mimo_stream stream;
    char *arriving, *leaving; /* room of the packed receives, and of the packed sends */
} flight;

static int64_t bytes_of(const mimo_rows *rows)
{
    return rows->n_outer * rows->n_inner * rows->row_bytes;
}

/* Copy the messages; *rows moves on by what they take. */
static mimo_status read_messages(packets *out, const mimo_messages *all, bool sends,
                                 const mimo_comm *comm, mimo_rows **rows)
{
    enum { ALIGNMENT = 16 };
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
        if (it->count == 1 && mimo_rows_are_one_run(it->rows)) {
            it->run = mimo_rows_begin(it->rows);
            continue;
        }
        it->offset = out->bytes;
        MIMO_TRY(
            mimo_add(&out->bytes, out->bytes, (it->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
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

static mimo_status make_program(mimo_exchange *made, const mimo_comm *comm,
                                const mimo_messages *messages)
{
    const mimo_pushes *pushes = &messages->pushes;
    mimo_push_place place = {comm->device, comm->rank, NULL};
    made->device = comm->device;
    if (pushes->count + pushes->pusher_count > 0) {
        made->buffer = pushes->buffer;
        place.abort = mimo_nccl_buffer_abort_word(pushes->buffer);
    }
    return mimo_push_program_make(&made->program, &place, messages);
}

mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages)
{
    mimo_exchange *made;
    mimo_rows *rows;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made->rows, count_rows(messages), sizeof *rows));
    rows = made->rows;
    MIMO_TRY_GOTO(status, fail, read_messages(&made->receives, messages, false, comm, &rows));
    MIMO_TRY_GOTO(status, fail, read_messages(&made->sends, messages, true, comm, &rows));
    MIMO_TRY_GOTO(status, fail, make_program(made, comm, messages));
    *out = made;
    return MIMO_OK;
fail:
    mimo_nccl_exchange_destroy(made);
    return status;
}

static mimo_status get_room(char **out, const flight *it, mimo_room_slot slot, int64_t bytes)
{
    void *room = NULL;
    const mimo_room_key key = {it->comm->device, it->stream, slot};
    if (bytes > 0)
        MIMO_TRY(mimo_rooms_get(&room, &it->comm->rooms, &key, bytes));
    *out = room;
    return MIMO_OK;
}

static char *place_of(const packet *it, char *room)
{
    return it->run ? it->run : room + it->offset;
}

/* Between a message's rows and its place in the room. */
static mimo_status move_packed(const flight *it, const packet *message, bool pack)
{
    char *at = (pack ? it->leaving : it->arriving) + message->offset;
    for (int64_t j = 0; j < message->count && !message->run; j++) {
        const mimo_rows *rows = &message->rows[j];
        mimo_rows line = {at, rows->row_bytes, 0, rows->n_outer, rows->n_inner, rows->n_inner, 1};
        MIMO_TRY(it->comm->device->copy_rows(pack ? &line : rows, pack ? rows : &line, it->stream));
        at += bytes_of(rows);
    }
    return MIMO_OK;
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
    MIMO_TRY_NCCL(it->handle, ncclGroupStart());
    ncclResult_t inside = enqueue_group(it, group);
    ncclResult_t ended = ncclGroupEnd(); /* also after an error: the group must be closed */
    MIMO_TRY(mimo_nccl_status(inside, it->handle, "ncclSend or ncclRecv"));
    return mimo_nccl_status(ended, it->handle, "ncclGroupEnd");
}

static mimo_status move_messages(mimo_comm *comm, const nccl_team *team, mimo_exchange *exchange,
                                 mimo_stream stream)
{
    flight it = {exchange, comm, team->handle, stream, NULL, NULL};
    MIMO_TRY(mimo_nccl_check(team));
    MIMO_TRY(get_room(&it.arriving, &it, MIMO_ROOM_GATHERED, exchange->receives.bytes));
    MIMO_TRY(get_room(&it.leaving, &it, MIMO_ROOM_PACKED, exchange->sends.bytes));
    for (int i = 0; i < exchange->sends.count; i++)
        MIMO_TRY(move_packed(&it, &exchange->sends.list[i], true));
    for (int group = 0; group * DISTANCES_PER_GROUP < comm->size - 1; group++)
        MIMO_TRY(move_group(&it, group));
    for (int i = 0; i < exchange->receives.count; i++)
        MIMO_TRY(move_packed(&it, &exchange->receives.list[i], false));
    return MIMO_OK;
}

static mimo_status run_program(mimo_exchange *exchange, mimo_stream stream)
{
    if (exchange->buffer)
        MIMO_TRY(mimo_nccl_buffer_enter(exchange->buffer, stream));
    const mimo_push_program *program = &exchange->program;
    return mimo_cuda_status(
        (program->bulk ? mimo_push_bulk : mimo_push_words)(program, stream), "zero-copy kernel");
}

mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream)
{
    const nccl_team *team = ((nccl_comm *)comm)->team;
    *out = NULL;
    if (team && exchange->receives.count + exchange->sends.count > 0)
        MIMO_TRY(move_messages(comm, team, exchange, stream));
    if (!mimo_push_program_is_empty(&exchange->program))
        MIMO_TRY(run_program(exchange, stream));
    return MIMO_OK;
}

void mimo_nccl_exchange_destroy(mimo_exchange *exchange)
{
    if (!exchange)
        return;
    mimo_release(exchange->receives.list);
    mimo_release(exchange->sends.list);
    mimo_release(exchange->rows);
    mimo_push_program_release(&exchange->program, exchange->device);
    mimo_release(exchange);
}
