/* Ragged updates, one before each step: what the ranks exchange for them, and what calls then
 * move. */
#include <stdlib.h>

#include "bridge/bridge_types.h"
#include "bridge_bed.h"
#include "guarded.h"
#include "same_bits.h"

enum { STEP = 3, FEW = 4, MANY = 40 }; /* positions of an image; images of a sample */

/* Counts the exchanges of host values by a table before the real one. */
static struct {
    const mimo_comm_backend *real;
    mimo_comm_backend table;
    int agreements, gathers;
} host_counter;

static mimo_status count_max(mimo_request **out, mimo_comm *comm, uint64_t *values, int count)
{
    host_counter.agreements++;
    return host_counter.real->host_max_start(out, comm, values, count);
}

static mimo_status count_gather(mimo_request **out, mimo_comm *comm, void *to, const void *from,
                                int bytes)
{
    host_counter.gathers++;
    return host_counter.real->host_allgather_start(out, comm, to, from, bytes);
}

static void count_host_values(mimo_comm *comm)
{
    host_counter.real = comm->backend;
    host_counter.table = *comm->backend;
    host_counter.table.host_max_start = count_max;
    host_counter.table.host_allgather_start = count_gather;
    comm->backend = &host_counter.table;
}

static bed_case case_of(mimo_span *spans)
{
    static char src[32], dst[32];
    bed_case c = {.src = {.grid = src, .kind = MIMO_RAGGED_PACKED, .spans = spans},
                  .dst = {.grid = dst, .kind = MIMO_RAGGED_PLACED, .spans = spans}};
    snprintf(src, sizeof src, "dp=%d", mpi_test_size());
    snprintf(dst, sizeof dst, "cp=%d", mpi_test_size());
    c.src_letters = "th";
    c.dst_letters = "sbh";
    c.executor = EXECUTOR_P2P;
    c.dtype = MIMO_F32;
    c.hidden = 2;
    c.batch = 2 * mpi_test_size();
    c.seq = MANY * STEP;
    return c;
}

/* From 0 to `most` images in each sample, of one or two rows. */
static void draw_spans(bridge_bed *bed, mimo_span *spans, int most, uint64_t *random)
{
    int64_t count = 0;
    for (int64_t b = 0; b < bed->c.batch; b++) {
        int64_t images = random_below(random, most + 1), row = 0;
        for (int64_t i = 0; i < images; i++) {
            int64_t length = 1 + random_below(random, STEP - 1);
            spans[count++] = (mimo_span){b, row, STEP * i, length};
            row += length;
        }
    }
    bed->c.src.span_count = bed->c.dst.span_count = count;
    reference_release(&bed->src);
    reference_release(&bed->dst);
    bed->src = reference_of(&bed->c.src, bed->c.batch, bed->c.seq);
    bed->dst = reference_of(&bed->c.dst, bed->c.batch, bed->c.seq);
}

/* An update to other spans, and calls by them. Returns the exchanges that the update took. */
static int step(bridge_bed *bed, mimo_span *spans, int most, uint64_t *random)
{
    draw_spans(bed, spans, most, random);
    host_counter.agreements = host_counter.gathers = 0;
    bed_update(bed);
    int took = host_counter.agreements + host_counter.gathers;
    bed_move(bed, false, next_random(random));
    bed_move(bed, true, next_random(random));
    return took;
}

static bridge_bed begin(mimo_span **spans)
{
    bridge_bed bed;
    *spans = calloc((size_t)(2 * mpi_test_size() * MANY), sizeof **spans);
    bed_case c = case_of(*spans);
    bed_create(&bed, &c);
    return bed;
}

/* One agreement and one gather. Where there is more to tell than ever before, the ranks agree on
 * larger records and gather again, once. */
MPI_TEST(updates, take_two_exchanges)
{
    enum { STEPS = 6 };
    uint64_t random = 9;
    mimo_span *spans;
    bridge_bed bed = begin(&spans);
    count_host_values(bed.bridge->parent);
    for (int most = FEW; most <= MANY; most = 2 * most) {
        int larger = 0;
        for (int i = 0; i < STEPS; i++) {
            int took = step(&bed, spans, most, &random);
            larger += took != 2;
            MPI_EXPECT(took == 2 || took == 4, "update %d of at most %d images takes %d exchanges",
                       i, most, took);
        }
        MPI_EXPECT(larger <= 1, "%d of %d updates gather twice", larger, STEPS);
    }
    bed.bridge->parent->backend = host_counter.real;
    bed_destroy(&bed);
    free(spans);
}

/* Without an agreement, the gather itself tells of ranks that update to other batches. */
MPI_TEST(updates, compare_what_they_gather)
{
    mimo_span *spans;
    bridge_bed bed = begin(&spans);
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.ragged = true;
    batch.batch = 4 + (mpi_test_rank() == 1);
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_STATUS(mimo_bridge_update(bed.bridge, &batch, 1), MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("update: ranks 0 and 1 tell of other numbers");
    setenv("MIMO_AGREE", "1", 1);
    bed_destroy(&bed);
    free(spans);
}
