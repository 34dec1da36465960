/*
 * Calls as torch's flight recorder dumps them, so that its reader compares the ranks: a file a
 * rank, which is a pickle of
 *
 *     {"version": "2.10", "pg_config": {name: {"name", "desc", "ranks"}}, "entries": [...]}
 *
 * A communicator is a process group. The reader knows the operations of NCCL alone, so each call is
 * an all_to_all of one element. Its own name stands in its frame.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/check.h"
#include "ring/ring_waits.h"
#include "ring/ring_words.h"
#include "tools/why/why_calls.h"

/* ------------------------------------- pickles ------------------------------------ */

/* Protocol 2: values follow each other, and MARK begins the items of a list or a dictionary. */
enum {
    MARK = '(',
    PROTOCOL = 0x80,
    EMPTY_DICT = '}',
    SET_ITEMS = 'u',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    TUPLE2 = 0x86,
    TEXT = 'X',
    LONG = 0x8a,
    TRUE_ = 0x88,
    FALSE_ = 0x89,
    STOP = '.'
};

static void put(FILE *out, int byte)
{
    fputc(byte, out);
}

static void put_little(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(out, (int)(value >> (8 * i) & 0xff));
}

static void put_text(FILE *out, const char *text)
{
    size_t length = strlen(text);
    put(out, TEXT);
    put_little(out, length, 4);
    fwrite(text, 1, length, out);
}

static void put_number(FILE *out, int64_t value)
{
    put(out, LONG);
    put(out, 8);
    put_little(out, (uint64_t)value, 8);
}

static void begin_dict(FILE *out)
{
    put(out, EMPTY_DICT);
    put(out, MARK);
}

static void begin_list(FILE *out)
{
    put(out, EMPTY_LIST);
    put(out, MARK);
}

static void put_text_item(FILE *out, const char *key, const char *text)
{
    put_text(out, key);
    put_text(out, text);
}

static void put_number_item(FILE *out, const char *key, int64_t value)
{
    put_text(out, key);
    put_number(out, value);
}

/* [[1]] and ["Byte"]. */
static void put_one_element(FILE *out, const char *sizes, const char *dtypes)
{
    put_text(out, sizes);
    begin_list(out);
    begin_list(out);
    put_number(out, 1);
    put(out, APPENDS);
    put(out, APPENDS);
    put_text(out, dtypes);
    begin_list(out);
    put_text(out, "Byte");
    put(out, APPENDS);
}

/* ------------------------------------- groups ------------------------------------- */

static bool is_group(const mimo_ring_seen *comm)
{
    return comm && comm->size > 0;
}

static void write_group(char name[32], const char **desc, const mimo_ring_seen *comm)
{
    snprintf(name, 32, "%016" PRIx64, comm->comm);
    *desc = comm->title[0] ? comm->title : "communicator";
}

static void put_group(FILE *out, const mimo_ring_sample *ring, const mimo_ring_seen *comm)
{
    char name[32], number[16];
    const char *desc;
    write_group(name, &desc, comm);
    put_text(out, name);
    begin_dict(out);
    put_text_item(out, "name", name);
    put_text_item(out, "desc", desc);
    put_text(out, "ranks");
    char text[1 << 16];
    mimo_ring_text ranks = {text, sizeof text, 0};
    mimo_ring_append(&ranks, "[");
    for (int i = 0; i < comm->size; i++) {
        snprintf(number, sizeof number, "%s%d", i > 0 ? ", " : "", mimo_ring_member(ring, comm, i));
        mimo_ring_append(&ranks, "%s", number);
    }
    mimo_ring_append(&ranks, "]");
    put_text(out, text);
    put(out, SET_ITEMS);
}

static void put_groups(FILE *out, const mimo_ring_sample *ring)
{
    put_text(out, "pg_config");
    begin_dict(out);
    for (int i = 1; i < ring->count; i++)
        if (is_group(&ring->seen[i]))
            put_group(out, ring, &ring->seen[i]);
    put(out, SET_ITEMS);
}

/* ------------------------------------- entries ------------------------------------ */

static void put_frame(FILE *out, const char *name)
{
    put_text(out, "frames");
    begin_list(out);
    begin_dict(out);
    put_text_item(out, "name", name);
    put_text_item(out, "filename", "mimo-bridge");
    put_number_item(out, "line", 0);
    put(out, SET_ITEMS);
    put(out, APPENDS);
}

static void put_times(FILE *out, const why_calls *calls, const mimo_ring_call *call)
{
    put_number_item(out, "time_created_ns", call->begun + calls->to_real);
    put_number_item(out, "time_discovered_started_ns",
                    (call->agreed ? call->agreed : call->begun) + calls->to_real);
    if (call->ended)
        put_number_item(out, "time_discovered_completed_ns", call->ended + calls->to_real);
}

static void put_entry(FILE *out, const why_calls *calls, const mimo_ring_call *call, int64_t record)
{
    char name[32], words[256];
    const char *desc;
    const mimo_ring_seen *comm = mimo_ring_find_comm(calls->ring, call->comm);
    bool ended = call->state == MIMO_RING_ENDED;
    write_group(name, &desc, comm);
    why_call_name(words, sizeof words, calls->ring, call);
    begin_dict(out);
    put_frame(out, words);
    put_number_item(out, "record_id", record);
    put_number_item(out, "pg_id", comm->slot);
    put_text(out, "process_group");
    put_text(out, name);
    put_text(out, desc);
    put(out, TUPLE2);
    put_number_item(out, "collective_seq_id", (int64_t)call->number);
    put_number_item(out, "p2p_seq_id", 0);
    put_number_item(out, "op_id", (int64_t)call->number);
    put_text_item(out, "profiling_name", "nccl:all_to_all");
    put_times(out, calls, call);
    put_one_element(out, "input_sizes", "input_dtypes");
    put_one_element(out, "output_sizes", "output_dtypes");
    put_text_item(out, "state", ended ? "completed" : "started");
    put_text(out, "retired");
    put(out, ended ? TRUE_ : FALSE_);
    put_number_item(out, "timeout_ms", 0);
    put_text(out, "is_p2p");
    put(out, FALSE_);
    put(out, SET_ITEMS);
}

static void put_dump(FILE *out, const why_calls *calls)
{
    int64_t record = 0;
    put(out, PROTOCOL);
    put(out, 2);
    begin_dict(out);
    put_text_item(out, "version", "2.10");
    put_groups(out, calls->ring);
    put_text(out, "entries");
    begin_list(out);
    for (int i = 0; i < calls->count; i++)
        if (is_group(mimo_ring_find_comm(calls->ring, calls->calls[i].comm)))
            put_entry(out, calls, &calls->calls[i], record++);
    put(out, APPENDS);
    put(out, SET_ITEMS);
    put(out, STOP);
}

/* -------------------------------------- files ------------------------------------- */

static mimo_status write_file(const char *folder, const why_calls *calls)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/mimo_rank_%d", folder, calls->ring->rank);
    FILE *out = fopen(path, "wb");
    MIMO_CHECK(out, MIMO_ERR_IO, "%s: %s", path, strerror(errno));
    put_dump(out, calls);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    MIMO_CHECK(!failed, MIMO_ERR_IO, "%s: %s", path, strerror(errno));
    return MIMO_OK;
}

/* How much a family has to say: its rings, and where that is the same, its calls. */
static uint64_t weight_of(const why_rings *rings, uint64_t family)
{
    uint64_t count = 0, calls = 0;
    for (int i = 0; i < rings->count; i++) {
        const mimo_ring_sample *ring = rings->looked[i].now;
        count += ring->family == family;
        calls += ring->family == family ? ring->ended : 0;
    }
    return (count << 40) + calls;
}

static uint64_t largest_family(const why_rings *rings)
{
    uint64_t best = 0;
    for (int i = 0; i < rings->count; i++) {
        uint64_t family = rings->looked[i].now->family;
        if (i == 0 || weight_of(rings, family) > weight_of(rings, best))
            best = family;
    }
    return best;
}

mimo_status why_write_flight(const char *folder, const why_rings *rings)
{
    uint64_t family = largest_family(rings);
    for (int i = 0; i < rings->count; i++) {
        why_calls calls;
        if (rings->looked[i].now->family != family)
            continue;
        mimo_status status = why_calls_read(&calls, rings, i);
        if (status == MIMO_OK)
            status = write_file(folder, &calls);
        why_calls_release(&calls);
        MIMO_TRY(status);
    }
    return MIMO_OK;
}
