/* What a bridge asks of its backend, written down by a table that stands before the real one, as
 * results do not tell it: the limit of thread blocks, which has no effect on the host. */
#include <stdlib.h>

#include "bridge/bridge_types.h"
#include "bridge_bed.h"

enum { RANKS = 4, MOST = 8 };

/* What one exchange was asked to move. */
typedef struct asked {
    int ctas;
    int sends, pushes;
    int64_t bytes[RANKS]; /* from here to each rank, sent or pushed */
} asked;

static struct {
    const mimo_comm_backend *real;
    int count; /* of exchanges, as they were prepared; those past MOST are counted alone */
    asked list[MOST];
} record;

static int64_t bytes_of(const mimo_rows *rows)
{
    return rows->n_outer * rows->n_inner * rows->row_bytes;
}

static void write_down(asked *out, const mimo_messages *messages)
{
    const mimo_pushes *pushes = &messages->pushes;
    *out = (asked){.ctas = pushes->ctas, .sends = messages->send_count, .pushes = pushes->count};
    for (int i = 0; i < messages->send_count; i++)
        for (int64_t j = 0; j < messages->sends[i].count; j++)
            out->bytes[messages->sends[i].peer] += bytes_of(&messages->sends[i].rows[j]);
    for (int i = 0; i < pushes->count; i++)
        for (int64_t j = 0; j < pushes->list[i].count; j++)
            out->bytes[pushes->list[i].peer] += bytes_of(&pushes->list[i].rows[j].to);
}

static mimo_status recording_create(mimo_exchange **out, mimo_comm *comm,
                                    const mimo_messages *messages)
{
    if (record.count < MOST)
        write_down(&record.list[record.count], messages);
    record.count++;
    return record.real->exchange_create(out, comm, messages);
}

/* From here on, until the end of the bridge: its communicator is its own, so nobody else's is
 * changed. The table stays the caller's. */
static void record_bridge(mimo_bridge *bridge, mimo_comm_backend *table)
{
    record.real = bridge->comm->backend;
    record.count = 0;
    *table = *record.real;
    table->exchange_create = recording_create;
    bridge->comm->backend = table;
}

/* --------------------------------------- thread blocks -------------------------------------- */

static void set_environment(const char *value)
{
    if (value)
        setenv("MIMO_CTAS", value, 1);
    else
        unsetenv("MIMO_CTAS");
}

static void expect_ctas(int wanted)
{
    bool pushed = false;
    for (int i = 0; i < record.count && i < MOST; i++) {
        MPI_EXPECT(record.list[i].ctas == wanted, "exchange %d: %d thread blocks, not %d", i,
                   record.list[i].ctas, wanted);
        pushed = pushed || record.list[i].pushes > 0;
    }
    MPI_EXPECT(pushed && record.count <= MOST, "%d exchanges, none of which pushes", record.count);
}

/* The descriptor's goes before the environment's, which counts as it was at the creation; both
 * reach whatever pushes rows, forward and backward, whole calls and chunks. */
MPI_TEST(recorded, limit_of_thread_blocks)
{
    static const struct {
        int ctas;
        const char *environment;
        int wanted;
    } cases[] = {{0, NULL, 0}, {5, NULL, 5}, {0, "7", 7}, {5, "7", 5}, {0, "0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bed_case c = bed_fan_in;
        bridge_bed bed;
        mimo_comm_backend table;
        c.ctas = cases[i].ctas;
        set_environment(cases[i].environment);
        bed_create(&bed, &c);
        set_environment("3");
        record_bridge(bed.bridge, &table);
        for (bed.c.chunks = 0; bed.c.chunks < 3; bed.c.chunks += 2) {
            bed_move(&bed, false, i);
            bed_move(&bed, true, i);
        }
        expect_ctas(cases[i].wanted);
        bed_destroy(&bed);
        set_environment(NULL);
    }
}
