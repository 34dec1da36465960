/* The adjoint of a partition under sequence parallelism. The ranks of a launch are the tp ranks of
 * one cp place after the other. */
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "mpi_test.h"
#include "slow_partition.h"
#include "test_memory.h"
#include "same_bits.h"

typedef struct sp_case {
    const char *letters;
    mimo_dtype dtype;
    int64_t cp, c;
} sp_case;

static mimo_partition *partition_of(const sp_case *it, const int32_t *cu, int64_t n)
{
    mimo_partition *partition = NULL;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords place = {sizeof(mimo_partition_coords), it->c, it->cp, mpi_test_rank(),
                                   mpi_test_size()};
    rule.sp = true;
    if (strchr(it->letters, 't')) {
        rule.format = MIMO_THD;
        rule.cu = cu;
        rule.sequences = n;
    }
    MPI_EXPECT_OK(mimo_partition_create(&partition, &rule, &place));
    return partition;
}

/* Every dimension except the sequence's has size 3. */
static test_tile tile_of(const sp_case *it, int64_t rows)
{
    int64_t size[] = {3, 3, 3};
    for (int i = 0; it->letters[i]; i++)
        if (it->letters[i] == 's' || it->letters[i] == 't')
            size[i] = rows;
    return test_tile_new(it->letters, it->dtype, size[0], size[1], size[2]);
}

/* Row g of the full tensor is row j of the shard of tp rank t, which is filled with seed 100 +
 * t. */
static void expect_row(const test_tile *full_tile, const test_tile *shard_tile, const int64_t g[2],
                       int t)
{
    const mimo_tensor *full = &full_tile->view, *shard = &shard_tile->view;
    const char *data = full_tile->room.host;
    int64_t size = (int64_t)mimo_dtype_size(full->dtype), outer = 1, inner = 1, rows = 1, kept = 1;
    bool before = true;
    for (int i = 0; full->letters[i]; i++) {
        bool sequence = full->letters[i] == 's' || full->letters[i] == 't';
        before = before && !sequence;
        if (sequence)
            rows = full->shape[i], kept = shard->shape[i];
        else
            *(before ? &outer : &inner) *= full->shape[i];
    }
    bit_report report = {.element = size, .columns = inner};
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < inner; r++) {
            int64_t at = (o * rows + g[0]) * inner + r, from = (o * kept + g[1]) * inner + r;
            unsigned char expected[8] = {0};
            if (t >= 0)
                element_of_seed(expected, 100 + (uint64_t)t, from, size);
            bits_note(&report, at, data + at * size, expected);
        }
    MPI_EXPECT_BITS(report, "%s: row %d of the full tensor, from tp rank %d", full->letters,
                    (int)g[0], t);
}

static void check_case(mimo_comm *tp, const sp_case *it)
{
    enum { MOST = 256 };
    int32_t multiple = (int32_t)(2 * it->cp * mpi_test_size());
    int32_t cu[] = {0, 0, multiple, 3 * multiple, 3 * multiple};
    if (!strchr(it->letters, 't'))
        cu[1] = 2 * multiple; /* one sequence */
    int64_t n = strchr(it->letters, 't') ? 4 : 1, seq = cu[n], global[MOST];
    mimo_partition *partition = partition_of(it, cu, n);
    test_tile full = tile_of(it, seq), shard = tile_of(it, seq / it->cp / mpi_test_size());
    int64_t size = (int64_t)mimo_dtype_size(it->dtype), count = shard.room.bytes / size;
    fill_elements(shard.room.host, 100 + (uint64_t)mpi_test_rank(), count, size);
    test_push(&shard.room);
    MPI_EXPECT_OK(mimo_partition_adjoint(partition, MIMO_EMBEDDINGS, &full.view, &shard.view, tp,
                                         test_stream()));
    test_pull(&full.room);
    slow_place at = {cu, n, it->cp, it->c, mpi_test_size(), 0};
    for (int64_t g = 0; g < seq; g++)
        if (slow_cp_owner(&at, g) != it->c)
            expect_row(&full, &shard, (int64_t[]){g, 0}, -1);
    for (at.t = 0; at.t < at.tp; at.t++) {
        int64_t rows = slow_rows(global, &at);
        for (int64_t j = 0; j < rows; j++)
            expect_row(&full, &shard, (int64_t[]){global[j], j}, (int)at.t);
    }
    test_tile_free(&full);
    test_tile_free(&shard);
    mimo_partition_destroy(partition);
}

MPI_TEST(partition, sp_adjoint)
{
    static const char *const letters[] = {"sbh", "bsh", "bs", "pbs", "th", "t"};
    for (int64_t cp = 1; cp <= 3; cp++)
        for (int64_t c = 0; c < cp; c++)
            for (int l = 0; l < 6; l++)
                for (mimo_dtype dtype = MIMO_F32; dtype <= MIMO_F8; dtype++)
                    check_case(mpi_test_comm(), &(sp_case){letters[l], dtype, cp, c});
}

/* A mistake on one rank is an error on all ranks, and no rank writes. */
MPI_TEST(partition, sp_errors)
{
    mimo_comm *tp = mpi_test_comm();
    int rank = mpi_test_rank(), size = mpi_test_size();
    bool odd = rank == size - 1;
    sp_case it = {"sbh", MIMO_F32, 2, 1};
    int32_t cu[] = {0, 0};
    mimo_partition *partition = partition_of(&it, cu, 0), *other, *stranger = NULL;
    test_tile full_tile = tile_of(&it, 4 * size), shard_tile = tile_of(&it, 2);
    mimo_tensor full = full_tile.view, shard = shard_tile.view, bad = shard;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords place = {sizeof(mimo_partition_coords), 1, 2, (rank + 1) % size, size};
    rule.sp = true;
    test_agree_on_data();
    char words[64];
#define ADJOINT(partition, to, from) \
    mimo_partition_adjoint(partition, MIMO_EMBEDDINGS, to, from, tp, test_stream())

    bad.shape[0] = odd ? 3 : 2;
    MPI_EXPECT_STATUS(ADJOINT(partition, &full, &bad), MIMO_ERR_SHAPE);
    snprintf(words, sizeof words, "rank %d: partition: full f32 sbh[%d,3,3]", size - 1, 4 * size);
    MPI_EXPECT_SENTENCE(words);
    MPI_EXPECT_SENTENCE("has 3 rows, it must have 2");

    MPI_FAILS(ADJOINT(partition, odd ? NULL : &full, &shard), MIMO_ERR_ARGUMENT, "a view is NULL");

    if (test_memory() != MIMO_MEMORY_HOST) { /* a build without CUDA has no other memory */
        mimo_tensor host_full = full, host_shard = shard;
        host_full.memory = host_shard.memory = MIMO_MEMORY_HOST;
        MPI_FAILS(ADJOINT(partition, &host_full, &host_shard), MIMO_ERR_ARGUMENT,
                  "tensors in host memory, the tp communicator moves CUDA memory");
    }

    /* A correct call that differs from the others'. */
    mimo_tensor other_full = full, other_shard = shard;
    other_full.dtype = other_shard.dtype = odd ? MIMO_I32 : MIMO_F32;
    MPI_FAILS(ADJOINT(partition, &other_full, &other_shard), MIMO_ERR_MISMATCH, "i32 sbh[2,3,3]");
    other_full = full, other_shard = shard;
    other_full.shape[2] = other_shard.shape[2] = odd ? 2 : 3;
    MPI_FAILS(ADJOINT(partition, &other_full, &other_shard), MIMO_ERR_MISMATCH, "f32 sbh[2,3,2]");
    it.c = odd ? 0 : 1;
    other = partition_of(&it, cu, 0);
    MPI_EXPECT_STATUS(ADJOINT(other, &full, &shard), MIMO_ERR_MISMATCH);

    MPI_EXPECT_OK(mimo_partition_create(&stranger, &rule, &place));
    MPI_EXPECT_STATUS(ADJOINT(odd ? stranger : partition, &full, &shard), MIMO_ERR_ARGUMENT);
    snprintf(words, sizeof words, "has rank %d of %d, the coordinates say 0 of %d", size - 1, size,
             size);
    MPI_EXPECT_SENTENCE(words);

    test_pull(&full_tile.room);
    MPI_EXPECT_BITS(bits_of_poison(full_tile.room.host, 0, full_tile.room.bytes),
                    "written by a failed call");
    MPI_EXPECT_OK(ADJOINT(partition, &full, &shard));
    test_tile_free(&full_tile);
    test_tile_free(&shard_tile);
    mimo_partition_destroy(partition);
    mimo_partition_destroy(other);
    mimo_partition_destroy(stranger);
}

/* Only the sizes that the letters name count. The others may differ between ranks. */
MPI_TEST(partition, behind_the_letters)
{
    sp_case it = {"bs", MIMO_I32, 1, 0};
    int64_t size = mpi_test_size();
    mimo_partition *partition = partition_of(&it, NULL, 0);
    test_tile full = tile_of(&it, 2 * size), shard = tile_of(&it, 2);
    shard.view.letters[3] = (char)('0' + mpi_test_rank());
    MPI_EXPECT_OK(mimo_partition_adjoint(partition, MIMO_EMBEDDINGS, &full.view, &shard.view,
                                         mpi_test_comm(), test_stream()));
    test_tile_free(&full);
    test_tile_free(&shard);
    mimo_partition_destroy(partition);
}
