/* A partition: creation with its checks, rows and index map, padding helper. */
#include <inttypes.h>
#include <string.h>

#include "core/checked.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "partition/packed_rule.h"
#include "core/search.h"
#include "partition/packed_runs.h"
#include "partition/partition_state.h"

MIMO_DEFINE_INIT(mimo_partition_rule, MIMO_PARTITION_RULE_INIT)
MIMO_DEFINE_INIT(mimo_partition_coords, MIMO_PARTITION_COORDS_INIT)

/* ------------------------------------ divisibility ------------------------------------ */

/* The rules on the number of rows of a whole sequence, or of all packed sequences together. */
static mimo_status check_division(const mimo_partition *partition, bool sp, int64_t seq)
{
    int64_t cp = partition->coords.cp_size, tp = partition->coords.tp_size;
    int64_t chunks = cp > 1 ? 2 * cp : 1, all;
    MIMO_CHECK(seq >= 0, MIMO_ERR_SHAPE, "a sequence of %" PRId64 " rows", seq);
    if (partition->strict) {
        MIMO_TRY(mimo_mul(&all, chunks, tp));
        MIMO_CHECK(seq % all == 0, MIMO_ERR_SHAPE,
                   "%" PRId64 " rows are not a multiple of %" PRId64 " (strict: %stp, cp %" PRId64
                   ", tp %" PRId64 ")",
                   seq, all, cp > 1 ? "2*cp*" : "", cp, tp);
    }
    MIMO_CHECK(seq % chunks == 0, MIMO_ERR_SHAPE,
               "%" PRId64 " rows are not a multiple of 2*cp = %" PRId64, seq, chunks);
    MIMO_CHECK(!sp || (seq / cp) % tp == 0, MIMO_ERR_SHAPE,
               "%" PRId64 " rows over cp %" PRId64 " leave %" PRId64
               ", not a multiple of tp %" PRId64,
               seq, cp, seq / cp, tp);
    return MIMO_OK;
}

/* -------------------------------------- creation -------------------------------------- */

static mimo_status read_rule(mimo_partition_rule *own, const mimo_partition_rule *rule)
{
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, rule, "partition"));
    MIMO_CHECK(own->format == MIMO_SBHD || own->format == MIMO_THD, MIMO_ERR_ARGUMENT,
               "partition: unknown format %d", (int)own->format);
    return MIMO_OK;
}

static mimo_status check_coordinate(const char *dim, int64_t rank, int64_t size)
{
    MIMO_CHECK(size >= 1 && size <= INT32_MAX, MIMO_ERR_ARGUMENT,
               "partition: %s size %" PRId64 " is not in [1, 2^31)", dim, size);
    MIMO_CHECK(rank >= 0 && rank < size, MIMO_ERR_ARGUMENT,
               "partition: %s rank %" PRId64 " is outside its size %" PRId64, dim, rank, size);
    return MIMO_OK;
}

static mimo_status check_packed(const mimo_partition_rule *rule, int64_t cp)
{
    int64_t n = rule->sequences;
    const char *name = rule->cu_padded ? "cu_padded" : "cu";
    const int32_t *cu = mimo_rule_lengths(rule);
    MIMO_CHECK(n >= 0, MIMO_ERR_ARGUMENT, "partition: %" PRId64 " sequences", n);
    MIMO_CHECK(rule->cu, MIMO_ERR_ARGUMENT,
               "partition: thd with %" PRId64 " sequences, and cu is NULL", n);
    MIMO_TRY(mimo_packed_check(rule->cu, n, "cu"));
    MIMO_TRY(mimo_packed_check(cu, n, name));
    for (int64_t i = 0; i < n; i++)
        MIMO_CHECK(cu[i + 1] - cu[i] >= rule->cu[i + 1] - rule->cu[i], MIMO_ERR_SHAPE,
                   "sequence %" PRId64 " has %" PRId32 " rows in cu and only %" PRId32
                   " in cu_padded",
                   i, rule->cu[i + 1] - rule->cu[i], cu[i + 1] - cu[i]);
    return cp > 1 ? mimo_packed_check_multiple(cu, n, 2 * cp, name) : MIMO_OK;
}

static mimo_status keep_packed(mimo_partition *partition, const mimo_partition_rule *rule)
{
    const int32_t *cu = mimo_rule_lengths(rule);
    int64_t n = rule->sequences, capacity;
    mimo_cp_coordinate cp = {partition->coords.cp_rank, partition->coords.cp_size};
    MIMO_TRY(check_packed(rule, cp.size));
    partition->packed_rows = cu[n];
    MIMO_TRY(check_division(partition, partition->sp, cu[n]));
    MIMO_TRY(mimo_mul(&capacity, n, 2));
    MIMO_TRY(mimo_reserve(&partition->packed, capacity, sizeof *partition->packed));
    partition->packed_count = mimo_packed_runs(partition->packed, cu, n, cp);
    MIMO_TRY(mimo_reserve(&partition->first, n, sizeof *partition->first));
    partition->sequences = n;
    for (int64_t i = 0; i < n; i++)
        partition->first[i] = cu[i];
    for (int64_t i = 0; i <= n; i++)
        partition->hash = mimo_hash_int(partition->hash, cu[i]);
    return MIMO_OK;
}

static void hash_shared(mimo_partition *partition)
{
    const mimo_partition_coords *coords = &partition->coords;
    const int64_t shared[] = {partition->format, partition->sp,   partition->strict,
                              coords->cp_rank,   coords->cp_size, coords->tp_size};
    partition->hash = mimo_hash_bytes(MIMO_HASH_START, shared, sizeof shared);
}

mimo_status mimo_partition_create(mimo_partition **out, const mimo_partition_rule *rule,
                                  const mimo_partition_coords *coords)
{
    mimo_partition_rule own = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords at = MIMO_PARTITION_COORDS_INIT;
    mimo_partition *partition;
    MIMO_CHECK(out && rule && coords, MIMO_ERR_ARGUMENT, "partition: %s is NULL",
               !out ? "out" : (!rule ? "rule" : "coords"));
    MIMO_TRY(read_rule(&own, rule));
    MIMO_TRY(mimo_read_descriptor(&at, sizeof at, coords, "partition coordinates"));
    MIMO_TRY(check_coordinate("cp", at.cp_rank, at.cp_size));
    if (own.sp)
        MIMO_TRY(check_coordinate("tp", at.tp_rank, at.tp_size));
    MIMO_TRY(mimo_reserve(&partition, 1, sizeof *partition));
    partition->format = own.format;
    partition->sp = own.sp;
    partition->strict = own.strict;
    partition->coords = at;
    if (!own.sp) {
        partition->coords.tp_rank = 0;
        partition->coords.tp_size = 1;
    }
    hash_shared(partition);
    mimo_status status = own.format == MIMO_THD ? keep_packed(partition, &own) : MIMO_OK;
    if (status == MIMO_OK)
        *out = partition;
    else
        mimo_partition_destroy(partition);
    return status;
}

void mimo_partition_destroy(mimo_partition *partition)
{
    if (!partition)
        return;
    mimo_release(partition->packed);
    mimo_release(partition->first);
    mimo_release(partition);
}

/* ---------------------------------------- runs ---------------------------------------- */

/* Run i of the cp rank, before sp divides it. */
static const mimo_run *whole_run(const mimo_partition_runs *runs, int64_t i)
{
    return runs->runs ? &runs->runs[i] : &runs->zigzag[i];
}

bool mimo_partition_run(mimo_run *out, const mimo_partition_runs *runs, int64_t i, int64_t tp_rank)
{
    return mimo_run_clip(out, whole_run(runs, i), tp_rank * runs->shard_rows, runs->shard_rows);
}

mimo_status mimo_partition_runs_of(mimo_partition_runs *out, const mimo_partition *partition,
                                   mimo_content content, int64_t seq)
{
    const mimo_partition_coords *coords = &partition->coords;
    bool sp = partition->sp && content == MIMO_EMBEDDINGS;
    MIMO_CHECK(content == MIMO_EMBEDDINGS || content == MIMO_LABELS, MIMO_ERR_ARGUMENT,
               "partition: unknown content %d", (int)content);
    MIMO_CHECK(partition->format != MIMO_THD || seq == partition->packed_rows, MIMO_ERR_SHAPE,
               "%" PRId64 " rows, but the packed sequences have %" PRId64, seq,
               partition->packed_rows);
    MIMO_TRY(check_division(partition, sp, seq));
    out->tp_size = sp ? coords->tp_size : 1;
    out->tp_rank = sp ? coords->tp_rank : 0;
    out->shard_rows = seq / coords->cp_size / out->tp_size;
    out->runs = partition->packed;
    out->count = partition->packed_count;
    if (partition->format == MIMO_SBHD)
        out->count = mimo_zigzag_append(out->zigzag, 0, 0, seq,
                                        (mimo_cp_coordinate){coords->cp_rank, coords->cp_size});
    return MIMO_OK;
}

mimo_status mimo_partition_rows(int64_t *rows, const mimo_partition *partition,
                                mimo_content content, int64_t seq)
{
    mimo_partition_runs runs;
    MIMO_CHECK(partition && rows, MIMO_ERR_ARGUMENT, "mimo_partition_rows: %s is NULL",
               partition ? "rows" : "partition");
    MIMO_TRY(mimo_partition_runs_of(&runs, partition, content, seq));
    *rows = runs.shard_rows;
    return MIMO_OK;
}

mimo_status mimo_partition_index(int64_t *global, const mimo_partition *partition,
                                 mimo_content content, int64_t seq)
{
    mimo_partition_runs runs;
    mimo_run run;
    MIMO_CHECK(partition, MIMO_ERR_ARGUMENT, "mimo_partition_index: partition is NULL");
    MIMO_TRY(mimo_partition_runs_of(&runs, partition, content, seq));
    MIMO_CHECK(global || runs.shard_rows == 0, MIMO_ERR_ARGUMENT,
               "mimo_partition_index: global is NULL for %" PRId64 " rows", runs.shard_rows);
    for (int64_t i = 0; i < runs.count; i++)
        if (mimo_partition_run(&run, &runs, i, runs.tp_rank))
            for (int64_t j = 0; j < run.length; j++)
                global[run.local + j] = run.global + j;
    return MIMO_OK;
}

mimo_status mimo_partition_positions(int64_t *position, const mimo_partition *partition,
                                     mimo_content content, int64_t seq)
{
    MIMO_TRY(mimo_partition_index(position, partition, content, seq));
    if (partition->format != MIMO_THD)
        return MIMO_OK;
    mimo_partition_runs runs;
    MIMO_TRY(mimo_partition_runs_of(&runs, partition, content, seq));
    for (int64_t i = 0; i < runs.shard_rows; i++)
        position[i] -=
            partition
                ->first[mimo_last_at_most(partition->first, 1, partition->sequences, position[i])];
    return MIMO_OK;
}
