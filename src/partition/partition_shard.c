/* Moving rows between a full tensor and a rank's shard: each run is one strided copy, whatever the
 * place of the sequence in the letters. Dimensions before it are the outer loop, those after it are
 * the row. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/agreement.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/mutation.h"
#include "partition/partition_runs.h"

enum { VIEW_TEXT = 96 };

/* Both tensors of a call, looked at as [outer, sequence, row]. */
typedef struct shard_pair {
    const mimo_device *device;
    char *full, *shard;
    int64_t outer; /* product of the dimensions before the sequence */
    int64_t row_bytes;
    int64_t full_rows, full_bytes;
    int64_t shard_bytes;
    mimo_partition_runs runs;
} shard_pair;

/* ---------------------------------------- checks --------------------------------------- */

static mimo_status misfit(const mimo_tensor *full, const mimo_tensor *shard, const char *what)
{
    char full_text[VIEW_TEXT], shard_text[VIEW_TEXT];
    return mimo_fail(MIMO_ERR_SHAPE, "partition: full %s and shard %s %s",
                     mimo_tensor_text(full, full_text, sizeof full_text),
                     mimo_tensor_text(shard, shard_text, sizeof shard_text), what);
}

/* Everything but the sequence dimension agrees; its place in the letters is *at. */
static mimo_status check_alike(int *at, const mimo_tensor *full, const mimo_tensor *shard,
                               char letter)
{
    char text[VIEW_TEXT];
    const char *found = strchr(full->letters, letter);
    if (strncmp(full->letters, shard->letters, MIMO_TENSOR_DIMS) != 0)
        return misfit(full, shard, "have different letters");
    MIMO_CHECK(found, MIMO_ERR_SHAPE, "partition: %s has no sequence dimension '%c'",
               mimo_tensor_text(full, text, sizeof text), letter);
    *at = (int)(found - full->letters);
    if (full->dtype != shard->dtype)
        return misfit(full, shard, "have different dtypes");
    if (full->memory != shard->memory)
        return misfit(full, shard, "lie in different kinds of memory");
    for (int i = 0; i < mimo_tensor_ndim(full); i++)
        if (i != *at && full->shape[i] != shard->shape[i])
            return misfit(full, shard, "differ in another dimension than the sequence");
    return MIMO_OK;
}

static mimo_status check_room(const shard_pair *pair)
{
    const char *full = pair->full, *shard = pair->shard;
    MIMO_CHECK(full || pair->full_bytes == 0, MIMO_ERR_ARGUMENT,
               "partition: the full tensor's data is NULL for %" PRId64 " bytes", pair->full_bytes);
    MIMO_CHECK(shard || pair->shard_bytes == 0, MIMO_ERR_ARGUMENT,
               "partition: the shard's data is NULL for %" PRId64 " bytes", pair->shard_bytes);
    MIMO_CHECK(pair->full_bytes == 0 || pair->shard_bytes == 0 ||
                   full + pair->full_bytes <= shard || shard + pair->shard_bytes <= full,
               MIMO_ERR_ARGUMENT,
               "partition: the full tensor (%" PRId64 " bytes) and the shard (%" PRId64
               " bytes) overlap",
               pair->full_bytes, pair->shard_bytes);
    return MIMO_OK;
}

/* The tensors as [outer, sequence, row]; the sequence is dimension `at`. */
static mimo_status measure(shard_pair *out, const mimo_tensor *full, const mimo_tensor *shard,
                           int at)
{
    MIMO_TRY(mimo_device_for(&out->device, full->memory));
    out->full = full->data;
    out->shard = shard->data;
    out->full_rows = full->shape[at];
    out->outer = 1;
    out->row_bytes = (int64_t)mimo_dtype_size(full->dtype);
    for (int i = 0; i < mimo_tensor_ndim(full); i++) {
        int64_t *product = i < at ? &out->outer : &out->row_bytes;
        MIMO_TRY(mimo_mul(product, *product, i == at ? 1 : full->shape[i]));
    }
    return MIMO_OK;
}

static mimo_status pair_of(shard_pair *out, const mimo_partition *partition, mimo_content content,
                           const mimo_tensor *full, const mimo_tensor *shard)
{
    char text[VIEW_TEXT], want[VIEW_TEXT];
    int at = -1;
    MIMO_CHECK(partition && full && shard, MIMO_ERR_ARGUMENT, "partition: %s is NULL",
               partition ? "a view" : "the partition");
    MIMO_TRY(mimo_tensor_extent(full, NULL, &out->full_bytes));
    MIMO_TRY(mimo_tensor_extent(shard, NULL, &out->shard_bytes));
    MIMO_TRY(check_alike(&at, full, shard, partition->format == MIMO_SBHD ? 's' : 't'));
    mimo_status status = mimo_partition_runs_of(&out->runs, partition, content, full->shape[at]);
    if (status != MIMO_OK)
        return mimo_fail_prefix(status,
                                "partition of %s: ", mimo_tensor_text(full, text, sizeof text));
    if (shard->shape[at] != out->runs.shard_rows) {
        snprintf(want, sizeof want,
                 "do not fit: the shard has %" PRId64 " rows, it must have %" PRId64,
                 shard->shape[at], out->runs.shard_rows);
        return misfit(full, shard, want);
    }
    MIMO_TRY(measure(out, full, shard, at));
    return check_room(out);
}

/* ---------------------------------------- copies --------------------------------------- */

/* How many runs of a tp rank, from run i on, are as long as `part`, its part of run i, and equally
 * far apart: one copy takes them all. *next is its part of run i + 1, where that is one of them. */
static int64_t count_alike(const shard_pair *pair, int64_t i, int64_t tp_rank, const mimo_run *part,
                           mimo_run *next)
{
    int64_t alike = 1;
    mimo_run other;
    while (i + alike < pair->runs.count &&
           mimo_partition_run(&other, &pair->runs, i + alike, tp_rank) &&
           other.length == part->length) {
        if (alike == 1)
            *next = other;
        if (other.global - part->global != alike * (next->global - part->global) ||
            other.local - part->local != alike * (next->local - part->local))
            break;
        alike++;
    }
    return alike;
}

/* Copy the runs of one tp rank between the full tensor and that rank's shard at `shard`. Where the
 * sequence is the slowest dimension, alike runs (zigzag's two) are the outer loop of one copy. */
static mimo_status copy_runs(const shard_pair *pair, char *shard, int64_t tp_rank, bool put_back,
                             mimo_stream stream)
{
    mimo_run part, next = {0, 0, 0};
    mimo_rows in_full = {pair->full, pair->row_bytes, 0, pair->outer, pair->full_rows, 0, 1};
    mimo_rows in_shard = {shard, pair->row_bytes, 0, pair->outer, pair->runs.shard_rows, 0, 1};
    for (int64_t i = 0, taken; i < pair->runs.count; i += taken) {
        taken = 1;
        if (!mimo_partition_run(&part, &pair->runs, i, tp_rank))
            continue;
        if (pair->outer == 1) {
            taken = count_alike(pair, i, tp_rank, &part, &next);
            in_full.n_outer = in_shard.n_outer = taken;
            in_full.outer = next.global - part.global;
            in_shard.outer = next.local - part.local;
        }
        in_full.first = part.global;
        in_shard.first = part.local;
        in_full.n_inner = in_shard.n_inner = part.length;
        MIMO_TRY(pair->device->copy_rows(put_back ? &in_full : &in_shard,
                                         put_back ? &in_shard : &in_full, stream));
    }
    return MIMO_OK;
}

mimo_status mimo_partition_shard(const mimo_partition *partition, mimo_content content,
                                 const mimo_tensor *to, const mimo_tensor *from, mimo_stream stream)
{
    shard_pair pair;
    MIMO_TRY(pair_of(&pair, partition, content, from, to));
    if (content == MIMO_LABELS && MIMO_MUTATED("contiguous-labels")) {
        int64_t rows = pair.runs.shard_rows;
        pair.runs.zigzag[0] = (mimo_run){0, partition->place.cp_rank * rows, rows};
        pair.runs.count = 1;
    }
    return copy_runs(&pair, pair.shard, pair.runs.tp_rank, false, stream);
}

/* --------------------------------------- adjoint --------------------------------------- */

/* Zero the rows of the full tensor that no shard of this cp place holds. */
static mimo_status zero_gaps(const shard_pair *pair, mimo_stream stream)
{
    mimo_rows gap = {pair->full, pair->row_bytes, 0, pair->outer, pair->full_rows, 0, 1};
    for (int64_t i = 0; i <= pair->runs.count; i++) {
        const mimo_run *run =
            i < pair->runs.count ? mimo_partition_whole_run(&pair->runs, i) : NULL;
        int64_t end = run ? run->global : pair->full_rows;
        gap.n_inner = end - gap.first;
        if (gap.n_inner > 0)
            MIMO_TRY(pair->device->zero_rows(&gap, stream));
        gap.first = run ? run->global + run->length : end;
    }
    return MIMO_OK;
}

/* Gather the tp ranks' shards, one after the other. They can't land in place: zigzag cuts each at
 * another row. */
static mimo_status gather_shards(const shard_pair *pair, char *room, mimo_comm *tp,
                                 mimo_stream stream)
{
    mimo_request *request = NULL;
    mimo_rows all = {room, pair->shard_bytes, 0, 1, 1, 1, 1};
    mimo_rows mine = {pair->shard, pair->shard_bytes, 0, 1, 1, 1, 1};
    if (pair->shard_bytes == 0)
        return MIMO_OK;
    MIMO_TRY(tp->backend->allgather_start(&request, tp, &all, 1, &mine, stream));
    return mimo_wait(tp, &request, "partition adjoint");
}

/* An adjoint under sp. */
typedef struct sp_call {
    const mimo_partition *partition;
    const mimo_tensor *to, *from;
    mimo_comm *tp;
    mimo_stream stream;
} sp_call;

static mimo_status check_tp(const mimo_partition *partition, const mimo_comm *tp)
{
    const mimo_partition_place *place = &partition->place;
    MIMO_CHECK(tp->size == place->tp_size && tp->rank == place->tp_rank, MIMO_ERR_ARGUMENT,
               "partition: the tp communicator has rank %d of %d, the place says %" PRId64
               " of %" PRId64,
               tp->rank, tp->size, place->tp_rank, place->tp_size);
    return MIMO_OK;
}

/* What this rank can say about the call on its own; *room is the staging of the gather. */
static mimo_status prepare_gather(shard_pair *pair, void **room, const sp_call *call)
{
    int64_t bytes;
    mimo_comm *tp = call->tp;
    MIMO_TRY(check_tp(call->partition, tp));
    MIMO_TRY(pair_of(pair, call->partition, MIMO_EMBEDDINGS, call->to, call->from));
    MIMO_CHECK(call->from->memory == tp->memory, MIMO_ERR_ARGUMENT,
               "partition: tensors in %s, the tp communicator moves %s",
               mimo_memory_text(call->from->memory), mimo_memory_text(tp->memory));
    MIMO_TRY(mimo_mul(&bytes, pair->shard_bytes, tp->size));
    const mimo_room_key key = {pair->device, call->stream, MIMO_ROOM_SHARDS};
    return mimo_rooms_get(room, &tp->rooms, &key, bytes);
}

/* All tp ranks of a cp place hold the same partition and pass the same shapes. */
static uint64_t signature_of(const mimo_partition *partition, const mimo_tensor *from)
{
    uint64_t hash = mimo_hash_int(partition->hash, from->dtype);
    hash = mimo_hash_bytes(hash, from->letters, sizeof from->letters);
    for (int i = 0; i < mimo_tensor_ndim(from); i++)
        hash = mimo_hash_int(hash, from->shape[i]);
    return hash;
}

static mimo_status adjoint_sp(const sp_call *it)
{
    char text[VIEW_TEXT], call[MIMO_CALL_TEXT];
    shard_pair pair;
    mimo_comm *tp = it->tp;
    void *room = NULL;
    mimo_status status = prepare_gather(&pair, &room, it);
    uint64_t signature = status == MIMO_OK ? signature_of(it->partition, it->from) : 0;
    snprintf(call, sizeof call, "partition adjoint of %s",
             it->from ? mimo_tensor_text(it->from, text, sizeof text) : "NULL");
    MIMO_TRY(mimo_agree_as(tp, MIMO_AGREE_DATA, status, signature, call));
    MIMO_TRY(gather_shards(&pair, room, tp, it->stream));
    MIMO_TRY(zero_gaps(&pair, it->stream));
    for (int64_t t = 0; t < tp->size; t++)
        MIMO_TRY(copy_runs(&pair, (char *)room + t * pair.shard_bytes,
                           MIMO_MUTATED("sp-reversed") ? tp->size - 1 - t : t, true, it->stream));
    return MIMO_OK;
}

mimo_status mimo_partition_adjoint(const mimo_partition *partition, mimo_content content,
                                   const mimo_tensor *to, const mimo_tensor *from, mimo_comm *tp,
                                   mimo_stream stream)
{
    shard_pair pair;
    MIMO_CHECK(partition, MIMO_ERR_ARGUMENT, "mimo_partition_adjoint: partition is NULL");
    if (partition->sp && content == MIMO_EMBEDDINGS) {
        MIMO_CHECK(tp, MIMO_ERR_ARGUMENT,
                   "mimo_partition_adjoint: sp over tp %" PRId64 " needs the tp communicator",
                   partition->place.tp_size);
        const sp_call call = {partition, to, from, tp, stream};
        return adjoint_sp(&call);
    }
    MIMO_TRY(pair_of(&pair, partition, content, to, from));
    MIMO_TRY(zero_gaps(&pair, stream));
    return copy_runs(&pair, pair.shard, 0, true, stream);
}
