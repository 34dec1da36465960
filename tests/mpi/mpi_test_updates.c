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
    MPI_FAILS(mimo_bridge_update(it->bed.bridge, &batch, 1), MIMO_ERR_MISMATCH,
              "update: ranks 0 and 1 give other numbers");
    setenv("MIMO_AGREE", "1", 1);
    ragged_end(it);
}

/* ------------------------------------------ several ----------------------------------------- */

enum { PAIR = 2 };

/* Two beds whose bridges are updated together, and what they are given. */
typedef struct ragged_pair {
    ragged_steps *beds[PAIR];
    mimo_batch_desc batches[PAIR];
    mimo_update_desc updates[PAIR];
} ragged_pair;

static void pair_begin(ragged_pair *it)
{
    for (int i = 0; i < PAIR; i++) {
        it->beds[i] = ragged_begin(EXECUTOR_P2P, false);
        it->beds[i]->random += (uint64_t)i;
        it->batches[i] = (mimo_batch_desc)MIMO_BATCH_DESC_INIT;
        it->updates[i] = (mimo_update_desc)MIMO_UPDATE_DESC_INIT;
        it->updates[i].bridge = it->beds[i]->bed.bridge;
        it->updates[i].descs = &it->batches[i];
        it->updates[i].n = 1;
    }
}

static void pair_draw(ragged_pair *it, int least)
{
    for (int i = 0; i < PAIR; i++) {
        const bed_case *c = &it->beds[i]->bed.c;
        ragged_draw(it->beds[i], least, FEW);
        it->batches[i].batch = c->batch;
        it->batches[i].ragged = true;
        it->batches[i].spans = c->dst.spans;
        it->batches[i].span_count = mpi_test_rank() == 0 ? c->dst.span_count : 0;
    }
}

static void pair_move(ragged_pair *it)
{
    for (int i = 0; i < PAIR; i++) {
        bed_move(&it->beds[i]->bed, false, next_random(&it->beds[i]->random));
        bed_move(&it->beds[i]->bed, true, next_random(&it->beds[i]->random));
    }
}

static void pair_end(ragged_pair *it)
{
    for (int i = 0; i < PAIR; i++)
        ragged_end(it->beds[i]);
}

/* The ranks agree once for both, and gather once for each. */
MPI_TEST(updates, of_two_bridges_at_once)
{
    ragged_pair it;
    pair_begin(&it);
    pair_draw(&it, FEW); /* later ones have no more to give */
    MPI_EXPECT_OK(mimo_bridge_update_all(it.updates, PAIR));
    count_host_values(it.beds[0]->bed.bridge->mover.parent);
    for (int round = 0; round < 3; round++) {
        pair_draw(&it, 0);
        host_counter.agreements = host_counter.gathers = 0;
        MPI_EXPECT_OK(mimo_bridge_update_all(it.updates, PAIR));
        MPI_EXPECT(host_counter.agreements == 1 && host_counter.gathers == PAIR,
                   "%d agreements, %d gathers", host_counter.agreements, host_counter.gathers);
        pair_move(&it);
    }
    it.beds[0]->bed.bridge->mover.parent->backend = host_counter.real;
    pair_end(&it);
}

/* What is wrong with one bridge leaves both as they were: calls go on by the last update. */
static void expect_refused(ragged_pair *it, int count, mimo_status status, const char *words)
{
    MPI_FAILS(mimo_bridge_update_all(it->updates, count), status, words);
    pair_move(it);
}

static void expect_one_communicator(ragged_pair *it)
{
    mimo_comm *same_ranks;
    mimo_bridge *bridge, *own = it->updates[1].bridge;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = desc.dst = it->beds[0]->bed.src_grid;
    MPI_EXPECT_OK(mimo_comm_split(&same_ranks, mpi_test_comm(), 0, mpi_test_rank()));
    MPI_EXPECT_OK(mimo_bridge_create(&bridge, same_ranks, &desc));
    it->updates[1].bridge = bridge;
    expect_refused(it, PAIR, MIMO_ERR_ARGUMENT, "bridges 0 and 1 were made from two communicators");
    it->updates[1].bridge = own;
    mimo_bridge_destroy(bridge);
    mimo_comm_destroy(same_ranks);
}

MPI_TEST(updates, of_two_bridges_that_fail)
{
    ragged_pair it;
    int last = mpi_test_rank() == mpi_test_size() - 1;
    pair_begin(&it);
    pair_draw(&it, 0);
    MPI_EXPECT_OK(mimo_bridge_update_all(it.updates, PAIR));
    expect_one_communicator(&it);
    it.batches[1].span_count = last ? -1 : 0;
    expect_refused(&it, PAIR, MIMO_ERR_ARGUMENT, "bridge 2: update: -1 spans");
    it.batches[1].span_count = 0;
    it.batches[1].batch += last;
    expect_refused(&it, PAIR, MIMO_ERR_MISMATCH, "bridge 2 update to a ragged batch of");
    it.batches[1].batch -= last;
    it.updates[1].bridge = it.updates[0].bridge;
    expect_refused(&it, PAIR, MIMO_ERR_ARGUMENT, "bridges 0 and 1 are the same");
    it.updates[1].bridge = NULL;
    expect_refused(&it, PAIR, MIMO_ERR_ARGUMENT, "bridge 1 is NULL");
    it.updates[1].size = 1;
    expect_refused(&it, PAIR, MIMO_ERR_ARGUMENT, "its size is 1");
    expect_refused(&it, 0, MIMO_ERR_ARGUMENT, "bridge update all: 0 bridges");
    it.updates[0].bridge = NULL;
    expect_refused(&it, 1, MIMO_ERR_ARGUMENT, "the first bridge is NULL");
    MPI_EXPECT_STATUS(mimo_bridge_update_all(NULL, 1), MIMO_ERR_ARGUMENT);
    pair_end(&it);
}
