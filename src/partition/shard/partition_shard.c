/* Moving rows between a full tensor and a rank's shard, in one pass over the tensor that is
 * written. The sequence can be any of the dimensions: those before it are the outer loop, those
 * after it are the row. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/mutation.h"
#include "device/profile.h"
#include "partition/shard/partition_rows.h"
#include "partition/partition_state.h"

enum { VIEW_TEXT = 96 };

/* Both tensors of a call as [outer, sequence, row]. */
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
                     mimo_tensor_text(full_text, sizeof full_text, full),
                     mimo_tensor_text(shard_text, sizeof shard_text, shard), what);
}

/* Check that everything except the sequence dimension agrees. That is dimension *at. */
static mimo_status check_alike(int *at, const mimo_tensor *full, const mimo_tensor *shard,
                               char letter)
{
    char text[VIEW_TEXT];
    const char *found = strchr(full->letters, letter);
    if (strncmp(full->letters, shard->letters, MIMO_TENSOR_DIMS) != 0)
        return misfit(full, shard, "have different letters");
    MIMO_CHECK(found, MIMO_ERR_SHAPE, "partition: %s has no sequence dimension '%c'",
               mimo_tensor_text(text, sizeof text, full), letter);
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

static mimo_status check_memory(const shard_pair *pair)
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
    MIMO_TRY(mimo_tensor_extent(NULL, &out->full_bytes, full));
    MIMO_TRY(mimo_tensor_extent(NULL, &out->shard_bytes, shard));
    MIMO_TRY(check_alike(&at, full, shard, partition->format == MIMO_SBHD ? 's' : 't'));
    mimo_status status = mimo_partition_runs_of(&out->runs, partition, content, full->shape[at]);
    if (status != MIMO_OK)
        return mimo_fail_prefix(status,
                                "partition of %s: ", mimo_tensor_text(text, sizeof text, full));
    if (shard->shape[at] != out->runs.shard_rows) {
        snprintf(want, sizeof want,
                 "do not fit: the shard has %" PRId64 " rows, it must have %" PRId64,
                 shard->shape[at], out->runs.shard_rows);
        return misfit(full, shard, want);
    }
    MIMO_TRY(measure(out, full, shard, at));
    return check_memory(out);
}

/* ---------------------------------------- copies --------------------------------------- */

/* A copy of rows of a sequence: the inner loops run over its positions. */
typedef struct shard_copy {
    const mimo_device *device;
    const mimo_rows *to, *from;
    mimo_stream stream;
} shard_copy;

/* Positions [first, first + count) of the inner loop. */
static mimo_rows positions(const mimo_rows *rows, int64_t first, int64_t count)
{
    mimo_rows out = *rows;
    out.first += first * rows->inner;
    out.n_inner = count;
    return out;
}

/* Copy this rank's runs, which are the whole shard. A launch takes up to AT_A_TIME of them. */
static mimo_status keep_runs(const shard_copy *it, const mimo_partition_runs *runs)
{
    enum { AT_A_TIME = 32 };
    mimo_row_copy list[AT_A_TIME];
    mimo_run run;
    int64_t count = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        if (!mimo_partition_run(&run, runs, i, runs->tp_rank))
            continue;
        if (count == AT_A_TIME) {
            MIMO_TRY(it->device->copy_list(list, count, it->stream));
            count = 0;
        }
        list[count++] = (mimo_row_copy){positions(it->to, run.local, run.length),
                                        positions(it->from, run.global, run.length)};
    }
    return it->device->copy_list(list, count, it->stream);
}

/* Writing a full sequence. Stretches wait here until a call of the device has as many as it
 * takes. */
typedef struct filling {
    const shard_copy *copy;
    int64_t done; /* positions of `to` that are written */
    mimo_stretches waiting;
} filling;

/* Write positions [done, end) of `to`. */
static mimo_status fill_up_to(filling *it, int64_t end)
{
    const shard_copy *copy = it->copy;
    const mimo_rows rows = positions(copy->to, it->done, end - it->done);
    if (rows.n_inner > 0)
        MIMO_TRY(copy->device->fill_rows(&rows, copy->from, &it->waiting, copy->stream));
    it->done = end;
    it->waiting.count = 0;
    return MIMO_OK;
}

static mimo_status add_stretch(filling *it, mimo_stretch stretch)
{
    if (it->waiting.count == MIMO_STRETCHES)
        MIMO_TRY(fill_up_to(it, stretch.to));
    stretch.to -= it->done;
    it->waiting.at[it->waiting.count++] = stretch;
    return MIMO_OK;
}

/* Write the full sequence from the shards of `runs->tp_size` ranks, which begin `step` positions
 * apart. Rows of other cp ranks become zero. */
static mimo_status put_runs_back(const shard_copy *copy, const mimo_partition_runs *runs,
                                 int64_t step)
{
    mimo_run run;
    filling it = {.copy = copy};
    for (int64_t i = 0; i < runs->count; i++)
        for (int64_t t = 0; t < runs->tp_size; t++) {
            int64_t shard = MIMO_MUTATED("sp-reversed") ? runs->tp_size - 1 - t : t;
            if (mimo_partition_run(&run, runs, i, t))
                MIMO_TRY(add_stretch(
                    &it, (mimo_stretch){run.global, shard * step + run.local, run.length}));
        }
    return fill_up_to(&it, copy->to->n_inner);
}

mimo_status mimo_partition_keep_rows(const mimo_partition *partition, const mimo_rows *to,
                                     const mimo_rows *from, const mimo_device *device,
                                     mimo_stream stream)
{
    mimo_partition_runs runs;
    const shard_copy copy = {device, to, from, stream};
    MIMO_TRY(mimo_partition_runs_of(&runs, partition, MIMO_EMBEDDINGS, from->n_inner));
    return keep_runs(&copy, &runs);
}

static mimo_rows full_rows(const shard_pair *pair)
{
    return (mimo_rows){pair->full,      pair->row_bytes, 0, pair->outer,
                       pair->full_rows, pair->full_rows, 1};
}

static mimo_rows shard_rows(const shard_pair *pair, char *shard)
{
    int64_t rows = pair->runs.shard_rows;
    return (mimo_rows){shard, pair->row_bytes, 0, pair->outer, rows, rows, 1};
}

mimo_status mimo_partition_shard(const mimo_partition *partition, mimo_content content,
                                 const mimo_tensor *to, const mimo_tensor *from, mimo_stream stream)
{
    MIMO_RANGE();
    shard_pair pair;
    MIMO_TRY(pair_of(&pair, partition, content, from, to));
    if (content == MIMO_LABELS && MIMO_MUTATED("contiguous-labels"))
        pair.runs.zigzag[1].global = pair.runs.zigzag[0].global + pair.runs.zigzag[0].length;
    const mimo_rows rows = shard_rows(&pair, pair.shard), full = full_rows(&pair);
    const shard_copy copy = {pair.device, &rows, &full, stream};
    return keep_runs(&copy, &pair.runs);
}

/* --------------------------------------- adjoint --------------------------------------- */

/* Write the full tensor from the shards of all tp ranks, which lie one after the other at
 * `shards`. */
static mimo_status put_back(const shard_pair *pair, char *shards, mimo_stream stream)
{
    const mimo_rows full = full_rows(pair), rows = shard_rows(pair, shards);
    const shard_copy copy = {pair->device, &full, &rows, stream};
    return put_runs_back(&copy, &pair->runs, pair->outer * pair->runs.shard_rows);
}

/* An adjoint under sp. */
typedef struct sp_call {
    const mimo_partition *partition;
    const mimo_tensor *to, *from;
    mimo_comm *tp;
    mimo_stream stream;
    bool guarded;
} sp_call;

/* Gather the tp ranks' shards into staging, one after the other. They can't go straight into the
 * full tensor: zigzag splits each of them at a different row. */
static mimo_status gather_shards(const shard_pair *pair, char *staging, const sp_call *call)
{
    mimo_request *request = NULL;
    mimo_comm *tp = call->tp;
    const mimo_gather shards = {.to = mimo_one_row(staging, pair->shard_bytes),
                                .from = mimo_one_row(pair->shard, pair->shard_bytes),
                                .step = 1,
                                .guarded = call->guarded};
    if (pair->shard_bytes == 0)
        return MIMO_OK;
    mimo_status status = tp->backend->allgather_start(&request, tp, &shards, call->stream);
    if (status == MIMO_OK)
        status = mimo_wait(tp, &request, "partition adjoint");
    if (status != MIMO_OK && mimo_comm_may_still_move(tp))
        mimo_staging_abandon(&tp->staging);
    return status;
}

static mimo_status check_tp(const mimo_partition *partition, const mimo_comm *tp)
{
    const mimo_partition_coords *coords = &partition->coords;
    MIMO_CHECK(tp->size == coords->tp_size && tp->rank == coords->tp_rank, MIMO_ERR_ARGUMENT,
               "partition: the tp communicator has rank %d of %d, the coordinates say %" PRId64
               " of %" PRId64,
               tp->rank, tp->size, coords->tp_rank, coords->tp_size);
    return MIMO_OK;
}

/* What this rank can check without the others. *out is the staging of the gather. */
static mimo_status prepare_gather(shard_pair *pair, void **out, const sp_call *call)
{
    int64_t bytes;
    mimo_comm *tp = call->tp;
    MIMO_TRY(check_tp(call->partition, tp));
    MIMO_TRY(pair_of(pair, call->partition, MIMO_EMBEDDINGS, call->to, call->from));
    MIMO_CHECK(call->from->memory == tp->memory, MIMO_ERR_ARGUMENT,
               "partition: tensors in %s, the tp communicator moves %s",
               mimo_memory_text(call->from->memory), mimo_memory_text(tp->memory));
    MIMO_TRY(mimo_mul(&bytes, pair->shard_bytes, tp->size));
    MIMO_TRY(mimo_guard_prepare(tp, call->guarded, 1, bytes));
    const mimo_staging_key key = {pair->device, call->stream, MIMO_STAGING_SHARDS};
    return mimo_staging_get(out, &tp->staging, &key, bytes);
}

/* tp ranks with the same cp coordinate hold the same partition and pass the same shapes. */
static uint64_t signature_of(const mimo_partition *partition, const mimo_tensor *from)
{
    uint64_t hash = mimo_hash_int(partition->hash, from->dtype);
    hash = mimo_hash_bytes(hash, from->letters, (size_t)mimo_tensor_ndim(from));
    for (int i = 0; i < mimo_tensor_ndim(from); i++)
        hash = mimo_hash_int(hash, from->shape[i]);
    return hash;
}

static mimo_status adjoint_sp(const sp_call *it)
{
    char text[VIEW_TEXT], call[MIMO_CALL_TEXT];
    shard_pair pair;
    mimo_comm *tp = it->tp;
    void *staging = NULL;
    mimo_status status = prepare_gather(&pair, &staging, it);
    uint64_t signature = status == MIMO_OK ? signature_of(it->partition, it->from) : 0;
    snprintf(call, sizeof call, "partition adjoint of %s",
             it->from ? mimo_tensor_text(text, sizeof text, it->from) : "NULL");
    MIMO_TRY(mimo_agree_as(tp, MIMO_AGREE_DATA, status, signature, call));
    MIMO_TRY(gather_shards(&pair, staging, it));
    return put_back(&pair, staging, it->stream);
}

mimo_status mimo_partition_adjoint(const mimo_partition *partition, mimo_content content,
                                   const mimo_tensor *to, const mimo_tensor *from, mimo_comm *tp,
                                   mimo_stream stream)
{
    MIMO_RANGE();
    shard_pair pair;
    MIMO_CHECK(partition, MIMO_ERR_ARGUMENT, "mimo_partition_adjoint: partition is NULL");
    if (partition->sp && content == MIMO_EMBEDDINGS && (tp || partition->coords.tp_size > 1)) {
        MIMO_CHECK(tp, MIMO_ERR_ARGUMENT,
                   "mimo_partition_adjoint: sp over tp %" PRId64 " needs the tp communicator",
                   partition->coords.tp_size);
        MIMO_ENTER(tp, "mimo_partition_adjoint");
        const sp_call call = {partition, to, from, tp, stream, mimo_is_guarding(tp)};
        return adjoint_sp(&call);
    }
    MIMO_TRY(pair_of(&pair, partition, content, to, from));
    return put_back(&pair, pair.shard, stream);
}
