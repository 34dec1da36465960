/* Ragged updates, one before each step: what the ranks exchange for them, and what calls then
 * move. */
#include <stdlib.h>

#include "bridge/bridge_types.h"
#include "bridge_bed.h"
#include "guarded.h"
#include "ragged_steps.h"

enum { FEW = 4 }; /* images of a sample */

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

/* An update to other spans, and calls by them. Returns the exchanges that the update took. */
static int step(ragged_steps *it, int most)
{
    ragged_draw(it, 0, most);
    host_counter.agreements = host_counter.gathers = 0;
    bed_update(&it->bed);
    int took = host_counter.agreements + host_counter.gathers;
    bed_move(&it->bed, false, next_random(&it->random));
    bed_move(&it->bed, true, next_random(&it->random));
    return took;
}

/* One agreement and one gather. Where there is more to give than ever before, the ranks agree on
 * larger records and gather again, once. */
MPI_TEST(updates, take_two_exchanges)
{
    enum { STEPS = 6 };
    ragged_steps *it = ragged_begin(EXECUTOR_P2P, false);
    count_host_values(it->bed.bridge->mover.parent);
    for (int most = FEW; most <= RAGGED_IMAGES; most = 2 * most) {
        int larger = 0;
        for (int i = 0; i < STEPS; i++) {
            int took = step(it, most);
            larger += took != 2;
            MPI_EXPECT(took == 2 || took == 4, "update %d of at most %d images takes %d exchanges",
                       i, most, took);
        }
        MPI_EXPECT(larger <= 1, "%d of %d updates gather twice", larger, STEPS);
    }
    it->bed.bridge->mover.parent->backend = host_counter.real;
    ragged_end(it);
}

/* Without an agreement, the gather itself tells of ranks that update to other batches. */
MPI_TEST(updates, compare_what_they_gather)
{
    ragged_steps *it = ragged_begin(EXECUTOR_P2P, false);
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.ragged = true;
    batch.batch = 4 + (mpi_test_rank() == 1);
    setenv("MIMO_AGREE", "0", 1);
    MPI_EXPECT_STATUS(mimo_bridge_update(it->bed.bridge, &batch, 1), MIMO_ERR_MISMATCH);
    MPI_EXPECT_SENTENCE("update: ranks 0 and 1 give other numbers");
    setenv("MIMO_AGREE", "1", 1);
    ragged_end(it);
}
