/*
 * Messages over grouped ncclSend and ncclRecv. A message whose rows are one contiguous run is sent
 * and received where it lies. Any other is packed in, and unpacked from, the communicator's staging
 * of the stream. It is packed as a whole: two messages between two ranks take NCCL longer than
 * packing one. Messages to ranks within reach of the communicator's FIFOs can be staged instead
 * (comm/staged).
 *
 * Peers are grouped by their distance, a fixed number of distances for each group:
 *   sends      (peer - rank) mod size
 *   receives   (rank - peer) mod size
 * All ranks form the same groups. So the groups of a large plan are bounded and still match.
 */
#include <string.h>

#include "comm/nccl/nccl_buffer.h"
#include "comm/nccl/nccl_launches.h"
#include "comm/nccl/nccl_packing.h"
#include "comm/nccl/nccl_push_program.h"
#include "comm/nccl/nccl_staged.h"
#include "comm/staged/staged_program.h"
#include "core/checked.h"
#include "core/memory.h"

enum { DISTANCES_PER_GROUP = 32 };

/* One message, and where NCCL finds its rows. */
typedef struct nccl_message {
    int peer, distance;
    int64_t bytes;
    bool is_run;    /* the rows are one run */
    mimo_place run; /* where it is one */
    int64_t offset; /* in the staging where it is not */
} nccl_message;

typedef struct nccl_messages {
    nccl_message *list;
    int count;
    int64_t bytes; /* of the staging that they are packed in */
    mimo_packing packing;
} nccl_messages;

struct mimo_exchange {
    char **bases; /* bases[base_count], where the next start finds them */
    int base_count;
    nccl_messages receives; /* without pushes, rows that stay are copied with the unpacking */
    nccl_messages sends;
    mimo_nccl_staged staged;  /* without pushes, it copies rows that stay, if anything is staged */
    mimo_buffer *fifos;       /* of what is staged; NULL: nothing is */
    mimo_push_program pushes; /* with pushes, it copies rows that stay */
    mimo_buffer *buffer;      /* its flags synchronise the pushes; NULL: there are none */
};

/* An exchange that is being started. */
typedef struct exchange_start {
    const mimo_exchange *exchange;
    nccl_comm *comm;
    ncclComm_t handle;
    mimo_stream stream;
    char *arriving, *leaving; /* staging of the packed receives, and of the packed sends */
    bool connects;            /* one byte of staging travels in place of each message */
} exchange_start;

static bool is_run(const mimo_message *message)
{
    return message->count == 1 && mimo_rows_are_one_run(&message->rows[0].rows);
}

static mimo_status read_message(nccl_messages *out, const mimo_message *from, const mimo_comm *comm)
{
    enum { ALIGNMENT = 16 };
    nccl_message *it = &out->list[out->count++];
    int distance = out->packing.packs ? from->peer - comm->rank : comm->rank - from->peer;
    it->peer = from->peer;
    it->distance = (distance + comm->size) % comm->size;
    it->offset = out->bytes;
    it->is_run = is_run(from);
    if (it->is_run) {
        it->run = from->rows[0].at;
        it->run.offset += from->rows[0].rows.first * from->rows[0].rows.row_bytes;
    }
    for (int64_t j = 0; j < from->count; j++) {
        if (!it->is_run)
            mimo_packing_add(&out->packing, &from->rows[j], it->offset + it->bytes);
        MIMO_TRY(mimo_add(&it->bytes, it->bytes, mimo_rows_bytes(&from->rows[j].rows)));
    }
    if (it->is_run)
        return MIMO_OK;
    return mimo_add(&out->bytes, out->bytes, (it->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* Read the messages that go out, or come in, by out->packing.packs. `stay`: how many rows that stay
 * will be added to the packing. */
static mimo_status read_messages(nccl_messages *out, const mimo_messages *all,
                                 const mimo_comm *comm, int64_t stay)
{
    bool sends = out->packing.packs;
    const mimo_message *from = sends ? all->sends : all->receives;
    int count = sends ? all->send_count : all->receive_count;
    int64_t packed = 0;
    for (int i = 0; i < count; i++)
        packed += is_run(&from[i]) ? 0 : from[i].count;
    MIMO_TRY(mimo_reserve(&out->list, count, sizeof *out->list));
    MIMO_TRY(mimo_packing_reserve(&out->packing, packed, stay));
    for (int i = 0; i < count; i++) {
        int64_t bytes;
        MIMO_TRY(mimo_message_bytes(&bytes, &from[i]));
        if (!mimo_is_staged(all->fifos, from[i].peer, bytes))
            MIMO_TRY(read_message(out, &from[i], comm));
    }
    return MIMO_OK;
}

static mimo_status read_pushes(mimo_exchange *made, const mimo_messages *all, const mimo_comm *comm)
{
    const mimo_push_context context = {((const nccl_comm *)comm)->programs, comm->rank,
                                       mimo_nccl_buffer_note(all->pushes.buffer),
                                       mimo_nccl_buffer_progress(all->pushes.buffer)};
    made->buffer = all->pushes.buffer;
    return mimo_push_program_make(&made->pushes, &context, all);
}

/* Whether the kernel of staged messages can copy what stays: its lists count 32-bit words. */
static mimo_status fits_staged(bool *out, const mimo_messages *all)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < all->copy_count; i++)
        MIMO_TRY(mimo_add(&bytes, bytes, mimo_rows_bytes(&all->copies[i].to.rows)));
    *out = bytes <= INT32_MAX;
    return MIMO_OK;
}

static mimo_status read_staged(mimo_exchange *made, const mimo_messages *all, const mimo_comm *comm,
                               bool copies)
{
    MIMO_TRY(mimo_nccl_staged_make(&made->staged, comm, all, copies));
    made->fifos = made->staged.runs ? all->fifos : NULL;
    return MIMO_OK;
}

static mimo_status read_all(mimo_exchange *made, const mimo_messages *all, const mimo_comm *comm)
{
    bool pushes = all->pushes.count + all->pushes.pusher_count > 0, fits;
    MIMO_TRY(fits_staged(&fits, all));
    MIMO_TRY(read_staged(made, all, comm, fits && !pushes));
    int64_t stay = pushes || (fits && made->fifos) ? 0 : all->copy_count;
    MIMO_TRY(mimo_reserve(&made->bases, all->base_count, sizeof(char *)));
    made->base_count = all->base_count;
    made->sends.packing.packs = true;
    MIMO_TRY(read_messages(&made->receives, all, comm, stay));
    MIMO_TRY(read_messages(&made->sends, all, comm, 0));
    for (int64_t i = 0; i < stay; i++)
        mimo_packing_add_staying(&made->receives.packing, &all->copies[i]);
    return pushes ? read_pushes(made, all, comm) : MIMO_OK;
}

mimo_status mimo_nccl_exchange_create(mimo_exchange **out, mimo_comm *comm,
                                      const mimo_messages *messages)
{
    mimo_exchange *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    mimo_status status = read_all(made, messages, comm);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_nccl_exchange_destroy(made);
    return status;
}

static mimo_status get_staging(char **out, mimo_comm *comm, const exchange_start *it,
                               mimo_staging_use use, int64_t bytes)
{
    void *staging = NULL;
    const mimo_staging_key key = {comm->device, it->stream, use};
    if (bytes > 0)
        MIMO_TRY(mimo_staging_get(&staging, &comm->staging, &key, bytes));
    *out = staging;
    return MIMO_OK;
}

mimo_status mimo_nccl_exchange_bind(mimo_exchange *exchange, char *const *bases, uint64_t signature)
{
    memcpy(exchange->bases, bases, (size_t)exchange->base_count * sizeof *bases);
    mimo_nccl_staged_bind(&exchange->staged, bases);
    if (exchange->buffer)
        mimo_push_program_bind(&exchange->pushes, bases, signature);
    return MIMO_OK;
}

/* What message number `i` of a list sends or receives. */
typedef struct sent_bytes {
    char *at;
    size_t count;
} sent_bytes;

static sent_bytes bytes_of(const exchange_start *start, const nccl_messages *list, int i,
                           char *staging)
{
    const nccl_message *it = &list->list[i];
    if (start->connects)
        return (sent_bytes){staging + i, 1};
    char *at =
        it->is_run ? mimo_address_of(&it->run, start->exchange->bases) : staging + it->offset;
    return (sent_bytes){at, (size_t)it->bytes};
}

static bool is_in_group(const nccl_message *it, int group)
{
    return it->bytes > 0 && (it->distance - 1) / DISTANCES_PER_GROUP == group;
}

static ncclResult_t enqueue_group(const exchange_start *it, int group)
{
    ncclResult_t code = ncclSuccess;
    const nccl_messages *receives = &it->exchange->receives, *sends = &it->exchange->sends;
    for (int i = 0; i < receives->count && code == ncclSuccess; i++) {
        const nccl_message *from = &receives->list[i];
        const sent_bytes to = bytes_of(it, receives, i, it->arriving);
        if (is_in_group(from, group))
            code = ncclRecv(to.at, to.count, ncclUint8, from->peer, it->handle, it->stream);
    }
    for (int i = 0; i < sends->count && code == ncclSuccess; i++) {
        const nccl_message *to = &sends->list[i];
        const sent_bytes from = bytes_of(it, sends, i, it->leaving);
        if (is_in_group(to, group))
            code = ncclSend(from.at, from.count, ncclUint8, to->peer, it->handle, it->stream);
    }
    return code;
}

static mimo_status move_group(const exchange_start *it, int group)
{
    MIMO_TRY_NCCL(it->comm, ncclGroupStart());
    return mimo_nccl_end_group(it->comm, enqueue_group(it, group));
}

static mimo_status move_groups(const exchange_start *it)
{
    for (int group = 0; group * DISTANCES_PER_GROUP < it->comm->base.size - 1; group++)
        MIMO_TRY(move_group(it, group));
    return MIMO_OK;
}

static mimo_status move_messages(mimo_comm *comm, const nccl_shared_comm *shared,
                                 mimo_exchange *exchange, mimo_stream stream)
{
    nccl_messages *receives = &exchange->receives, *sends = &exchange->sends;
    exchange_start it = {exchange, (nccl_comm *)comm, shared->handle, stream, NULL, NULL, false};
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared));
    MIMO_TRY(get_staging(&it.arriving, comm, &it, MIMO_STAGING_GATHERED, receives->bytes));
    MIMO_TRY(get_staging(&it.leaving, comm, &it, MIMO_STAGING_PACKED, sends->bytes));
    const mimo_packing_bases packed = {exchange->bases, it.leaving};
    const mimo_packing_bases unpacked = {exchange->bases, it.arriving};
    MIMO_TRY(mimo_packing_run(&sends->packing, comm->device, &packed, stream));
    MIMO_TRY(move_groups(&it));
    return mimo_packing_run(&receives->packing, comm->device, &unpacked, stream);
}

/* NCCL connects two ranks when the first message between them is enqueued, with all channels that a
 * message of any size uses. */
mimo_status mimo_nccl_exchange_connect(mimo_comm *comm, mimo_exchange *exchange, mimo_stream stream)
{
    const nccl_shared_comm *shared = ((nccl_comm *)comm)->shared;
    const nccl_messages *receives = &exchange->receives, *sends = &exchange->sends;
    if (!shared || receives->count + sends->count == 0)
        return MIMO_OK;
    exchange_start it = {exchange, (nccl_comm *)comm, shared->handle, stream, NULL, NULL, true};
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared));
    MIMO_TRY(get_staging(&it.arriving, comm, &it, MIMO_STAGING_GATHERED,
                         mimo_larger(receives->bytes, receives->count)));
    MIMO_TRY(get_staging(&it.leaving, comm, &it, MIMO_STAGING_PACKED,
                         mimo_larger(sends->bytes, sends->count)));
    return move_groups(&it);
}

static mimo_status push(nccl_comm *comm, mimo_exchange *exchange, mimo_stream stream)
{
    MIMO_TRY(mimo_nccl_check(comm, comm->shared));
    MIMO_TRY(mimo_nccl_buffer_enter(exchange->buffer, stream));
    MIMO_TRY(mimo_push_program_run(&exchange->pushes, stream));
    if (exchange->pushes.ctas > 0)
        mimo_nccl_launched(exchange->buffer, stream);
    return MIMO_OK;
}

static mimo_status stage(nccl_comm *comm, mimo_exchange *exchange, mimo_stream stream)
{
    MIMO_TRY(mimo_nccl_check(comm, comm->shared));
    MIMO_TRY(mimo_nccl_buffer_enter(exchange->fifos, stream));
    MIMO_TRY(mimo_nccl_staged_run(&exchange->staged, stream));
    mimo_nccl_launched(exchange->fifos, stream);
    return MIMO_OK;
}

static mimo_status copy_staying(mimo_exchange *exchange, const mimo_device *device,
                                mimo_stream stream)
{
    const mimo_packing_bases at = {exchange->bases, NULL};
    return mimo_packing_run(&exchange->receives.packing, device, &at, stream);
}

mimo_status mimo_nccl_exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                     mimo_stream stream)
{
    nccl_comm *own = (nccl_comm *)comm;
    *out = NULL;
    if (exchange->buffer)
        MIMO_TRY(mimo_buffer_check(exchange->buffer));
    if (own->shared && exchange->receives.count + exchange->sends.count > 0)
        MIMO_TRY(move_messages(comm, own->shared, exchange, stream));
    else
        MIMO_TRY(copy_staying(exchange, comm->device, stream));
    if (exchange->fifos)
        MIMO_TRY(stage(own, exchange, stream));
    return exchange->buffer ? push(own, exchange, stream) : MIMO_OK;
}

void mimo_nccl_exchange_destroy(mimo_exchange *exchange)
{
    if (!exchange)
        return;
    mimo_packing_release(&exchange->receives.packing);
    mimo_packing_release(&exchange->sends.packing);
    mimo_push_program_release(&exchange->pushes);
    mimo_nccl_staged_release(&exchange->staged);
    mimo_release(exchange->bases);
    mimo_release(exchange->receives.list);
    mimo_release(exchange->sends.list);
    mimo_release(exchange);
}
