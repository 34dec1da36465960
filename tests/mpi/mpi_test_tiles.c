/* What mimo_bridge_tile says beyond the cases of bridge_bed.h, and what it refuses. */
#include <string.h>

#include "executors.h"
#include "mpi_test.h"

/* A bridge between four samples and two cp halves of two samples. */
typedef struct tiles_bed {
    mimo_bridge *bridge;
    mimo_bridge_sizes sizes;
} tiles_bed;

static tiles_bed begin(executor_id executor, const mimo_partition_rule *rule, int64_t batch)
{
    tiles_bed it = {.sizes = MIMO_BRIDGE_SIZES_INIT};
    mimo_bridge_desc desc =
        mpi_test_bridge_desc(mpi_test_grid("tp=1,dp=4", 0), mpi_test_grid("tp=1,cp=2,dp=2", 0));
    desc.partition = rule;
    desc.executor = executor_of(executor);
    desc.batch = batch;
    desc.name = "tiles";
    MPI_EXPECT_OK(mimo_bridge_create(&it.bridge, mpi_test_comm(), &desc));
    it.sizes.batch = 4;
    it.sizes.seq = 8;
    it.sizes.hidden = 3;
    it.sizes.dtype = MIMO_F32;
    return it;
}

static void end(tiles_bed *it)
{
    mimo_bridge_destroy(it->bridge);
}

/* "f32 sbh[4,2,3]" */
static void expect(const tiles_bed *it, mimo_side side, const char *text)
{
    char got[96];
    mimo_tensor tile;
    memset(&tile, 7, sizeof tile);
    MPI_EXPECT_OK(mimo_bridge_tile(&tile, it->bridge, side, &it->sizes));
    mimo_tensor_text(got, sizeof got, &tile);
    MPI_EXPECT(strcmp(got, text) == 0, "%s, not %s", got, text);
    MPI_EXPECT(!tile.data && tile.memory == MIMO_MEMORY_HOST, "data %p", tile.data);
}

static void expect_error(const tiles_bed *it, mimo_side side, mimo_status status, const char *words)
{
    mimo_tensor tile, before;
    memset(&tile, 7, sizeof tile);
    memcpy(&before, &tile, sizeof tile);
    MPI_FAILS(mimo_bridge_tile(&tile, it->bridge, side, &it->sizes), status, words);
    MPI_EXPECT_SENTENCE("bridge 'tiles'");
    MPI_EXPECT(memcmp(&before, &tile, sizeof tile) == 0, "%s: a failure wrote a tile", words);
}

static const mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;

/* The example of docs/concepts.md, twice as large: letters, batches and flat sides. */
MPI_TEST(tiles, letters_and_batches)
{
    tiles_bed it = begin(EXECUTOR_ROUTED, &zigzag, -1);
    expect(&it, MIMO_SRC, "f32 sbh[8,1,3]");
    expect(&it, MIMO_DST, "f32 sbh[4,2,3]");
    it.sizes.src_letters = "bsh";
    it.sizes.dst_letters = "th";
    it.sizes.dtype = MIMO_BF16;
    expect(&it, MIMO_SRC, "bf16 bsh[1,8,3]");
    expect(&it, MIMO_DST, "bf16 th[8,3]");
    it.sizes.src_letters = "bh";
    it.sizes.batch = 7; /* the first coordinates have one more */
    expect(&it, MIMO_SRC, mpi_test_rank() < 3 ? "bf16 bh[16,3]" : "bf16 bh[8,3]");
    expect(&it, MIMO_DST, mpi_test_rank() < 2 ? "bf16 th[16,3]" : "bf16 th[12,3]");
    it.sizes.batch = 0;
    expect(&it, MIMO_SRC, "bf16 bh[0,3]");
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    batch.batch = 8;
    MPI_EXPECT_OK(mimo_bridge_update(it.bridge, &batch, 1));
    it.sizes.batch = -1;
    expect(&it, MIMO_SRC, "bf16 bh[16,3]");
    it.sizes.batch = 8;
    expect(&it, MIMO_DST, "bf16 th[16,3]");
    end(&it);
}

/* Packs of sequences of 8 and 4 rows. */
MPI_TEST(tiles, packed)
{
    static const int32_t cu[] = {0, 8, 12};
    mimo_partition_rule packs = MIMO_PARTITION_RULE_INIT;
    packs.format = MIMO_THD;
    packs.cu = cu;
    packs.sequences = 2;
    tiles_bed it = begin(EXECUTOR_ROUTED, &packs, -1);
    it.sizes.seq = 0;
    expect(&it, MIMO_SRC, "f32 sbh[12,1,3]");
    it.sizes.seq = 12;
    it.sizes.dst_letters = "th";
    expect(&it, MIMO_DST, "f32 th[12,3]");
    it.sizes.seq = 8;
    expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE,
                 "a sequence of 8 positions, and the packing has 12");
    end(&it);
}

/* Those of this rank's two samples. */
static void expect_spans(const tiles_bed *it, const mimo_span *spans, int64_t count)
{
    mimo_span got[4];
    int64_t found = -1;
    MPI_EXPECT_OK(mimo_bridge_spans(&found, NULL, 0, it->bridge));
    MPI_EXPECT(found == count, "%d spans, not %d", (int)found, (int)count);
    memset(got, 7, sizeof got);
    const mimo_span untouched = got[3];
    MPI_EXPECT_OK(mimo_bridge_spans(&found, got, 4, it->bridge));
    MPI_EXPECT(found == count && memcmp(got, spans, (size_t)count * sizeof *got) == 0,
               "span 0 is %d, %d, %d, %d", (int)got[0].sample, (int)got[0].row,
               (int)got[0].position, (int)got[0].length);
    memset(got, 7, sizeof got);
    MPI_EXPECT_OK(mimo_bridge_spans(&found, got, 1, it->bridge));
    MPI_EXPECT(found == count && memcmp(&got[1], &untouched, sizeof untouched) == 0,
               "%d spans of 1", (int)found);
}

static void expect_no_spans(const tiles_bed *it, const char *words)
{
    int64_t found = -7;
    MPI_FAILS(mimo_bridge_spans(&found, NULL, 0, it->bridge), MIMO_ERR_STATE, words);
    MPI_EXPECT(found == -7, "a failure wrote %d", (int)found);
}

/* Each rank gives its own sample's, and asks for those of the two that it holds as LLM. */
MPI_TEST(tiles, spans)
{
    mimo_batch_desc batches[2] = {MIMO_BATCH_DESC_INIT, MIMO_BATCH_DESC_INIT};
    const mimo_span spans[] = {{0, 0, 1, 2}, {1, 0, 0, 1}, {1, 1, 5, 2}, {3, 0, 2, 4}};
    const mimo_span *own[] = {spans, spans + 1, NULL, spans + 3};
    const int64_t counts[] = {1, 2, 0, 1};
    int rank = mpi_test_rank();
    tiles_bed it = begin(EXECUTOR_ROUTED, &zigzag, 4);
    expect_no_spans(&it, "bridge 'tiles': spans: micro-batch 0 is not ragged");
    batches[0].batch = batches[1].batch = 4;
    batches[1].ragged = true;
    batches[1].spans = own[rank];
    batches[1].span_count = counts[rank];
    MPI_EXPECT_OK(mimo_bridge_update(it.bridge, batches, 2));
    expect_no_spans(&it, "bridge 'tiles': spans: micro-batch 0 is not ragged");
    MPI_EXPECT_OK(mimo_bridge_select(it.bridge, 1));
    bool first = rank < 2; /* cp ranks of one dp coordinate are neighbours */
    expect_spans(&it, first ? spans : spans + 3, first ? 3 : 1);
    end(&it);
    it = begin(EXECUTOR_COLLECTIVE, &zigzag, 4);
    expect_no_spans(&it, "is not ragged");
    end(&it);
}

MPI_TEST(tiles, ragged)
{
    mimo_batch_desc batch = MIMO_BATCH_DESC_INIT;
    const mimo_span spans[] = {{0, 0, 1, 2}, {1, 0, 0, 1}, {1, 1, 5, 2}, {3, 0, 2, 4}};
    static const char *const rows[] = {"f32 th[2,3]", "f32 th[3,3]", "f32 th[0,3]", "f32 th[4,3]"};
    tiles_bed it = begin(EXECUTOR_ROUTED, &zigzag, -1);
    batch.batch = 4;
    batch.ragged = true;
    batch.spans = spans;
    batch.span_count = 4;
    MPI_EXPECT_OK(mimo_bridge_update(it.bridge, &batch, 1));
    it.sizes.batch = -1;
    expect(&it, MIMO_SRC, rows[mpi_test_rank()]);
    expect(&it, MIMO_DST, "f32 sbh[4,2,3]");
    it.sizes.src_letters = "sbh";
    expect_error(&it, MIMO_SRC, MIMO_ERR_SHAPE, "letters 'sbh' of src: of a ragged batch");
    it.sizes.src_letters = NULL;
    it.sizes.dst_letters = "bh";
    expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE, "letters 'bh' of dst: of a ragged batch");
    it.sizes.dst_letters = NULL;
    it.sizes.seq = 4; /* the last span ends at 6 */
    expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE, "do not lie in 4 positions");
    expect(&it, MIMO_SRC, rows[mpi_test_rank()]); /* where S is not read */
    end(&it);
}

MPI_TEST(tiles, refused)
{
    mimo_tensor tile;
    tiles_bed it = begin(EXECUTOR_ROUTED, &zigzag, 4);
    const mimo_bridge_sizes good = it.sizes;
    MPI_FAILS(mimo_bridge_tile(NULL, it.bridge, MIMO_SRC, &good), MIMO_ERR_ARGUMENT, "out is NULL");
    MPI_FAILS(mimo_bridge_tile(&tile, NULL, MIMO_SRC, &good), MIMO_ERR_ARGUMENT, "bridge is NULL");
    MPI_FAILS(mimo_bridge_tile(&tile, it.bridge, MIMO_SRC, NULL), MIMO_ERR_ARGUMENT,
              "sizes is NULL");
    expect_error(&it, (mimo_side)2, MIMO_ERR_ARGUMENT, "unknown side 2");
    it.sizes.size = 3;
    expect_error(&it, MIMO_SRC, MIMO_ERR_ARGUMENT, "descriptor's size is 3");
    it.sizes = good;
    it.sizes.src_letters = "hbs";
    expect_error(&it, MIMO_SRC, MIMO_ERR_ARGUMENT, "letters 'hbs' of src are none of");
    it.sizes = good;
    it.sizes.batch = 8;
    expect_error(&it, MIMO_SRC, MIMO_ERR_SHAPE, "a batch of 8, and the bridge was given 4");
    it.sizes = good;
    it.sizes.seq = 7; /* of src alone any sequence would do */
    expect_error(&it, MIMO_SRC, MIMO_ERR_SHAPE, "7 rows are not a multiple of 2*cp = 4");
    expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE, "7 rows are not a multiple of 2*cp = 4");
    it.sizes.seq = -8;
    expect_error(&it, MIMO_DST, MIMO_ERR_ARGUMENT, "a sequence of -8 positions");
    it.sizes = good;
    it.sizes.hidden = -3;
    expect_error(&it, MIMO_DST, MIMO_ERR_ARGUMENT, "rows of -3 elements");
    it.sizes.hidden = INT64_MAX / 2;
    expect_error(&it, MIMO_DST, MIMO_ERR_OVERFLOW, "");
    it.sizes = good;
    it.sizes.dtype = (mimo_dtype)77;
    expect_error(&it, MIMO_DST, MIMO_ERR_ARGUMENT, "77");
    end(&it);
    it = begin(EXECUTOR_ROUTED, &zigzag, -1);
    it.sizes.batch = -1;
    expect_error(&it, MIMO_SRC, MIMO_ERR_ARGUMENT, "a batch of -1, and the bridge was given none");
    end(&it);
}

/* The views of samples without positions can be moved, or are refused, for either side. */
MPI_TEST(tiles, without_positions)
{
    static const char *const letters[][2] = {
        {"sbh", "sbh"}, {"sbh", "th"}, {"bh", "bsh"}, {"th", "th"}};
    for (int executor = 0; executor < 2; executor++)
        for (int i = 0; i < 4; i++) {
            tiles_bed it = begin(executor > 0 ? EXECUTOR_COLLECTIVE : EXECUTOR_ROUTED, NULL, 4);
            mimo_tensor from, to;
            it.sizes.seq = 0;
            it.sizes.src_letters = letters[i][0];
            it.sizes.dst_letters = letters[i][1];
            if (i > 0) {
                const char *words = "a flat tile without rows does not say how many of the 4";
                expect_error(&it, MIMO_SRC, MIMO_ERR_SHAPE, words);
                expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE, words);
            } else {
                MPI_EXPECT_OK(mimo_bridge_tile(&from, it.bridge, MIMO_SRC, &it.sizes));
                MPI_EXPECT_OK(mimo_bridge_tile(&to, it.bridge, MIMO_DST, &it.sizes));
                MPI_EXPECT_OK(mimo_bridge_forward(it.bridge, &to, &from, 1, NULL));
                MPI_EXPECT_OK(mimo_bridge_backward(it.bridge, &from, &to, 1, NULL));
            }
            end(&it);
        }
}

/* What collective refuses in a call, it refuses here. */
MPI_TEST(tiles, of_collective)
{
    tiles_bed it = begin(EXECUTOR_COLLECTIVE, &zigzag, -1);
    expect(&it, MIMO_DST, "f32 sbh[4,2,3]");
    it.sizes.src_letters = "th";
    expect(&it, MIMO_SRC, "f32 th[8,3]");
    it.sizes.batch = 6;
    expect_error(&it, MIMO_SRC, MIMO_ERR_SHAPE, "6");
    it.sizes.batch = 4;
    it.sizes.dst_letters = "th";
    expect_error(&it, MIMO_DST, MIMO_ERR_SHAPE, "letters 'th' of dst: with a partition");
    end(&it);
    it = begin(EXECUTOR_COLLECTIVE, NULL, -1);
    it.sizes.dst_letters = "th";
    expect(&it, MIMO_DST, "f32 th[16,3]");
    end(&it);
}

/* ---------------------------------------- buffers ----------------------------------------- */

static void expect_in(const mimo_buffer *buffer, int64_t at, int64_t bytes)
{
    const mimo_buffer *found = NULL;
    int64_t offset = -1;
    const char *data = (const char *)mimo_buffer_data(buffer) + at;
    MPI_EXPECT_OK(mimo_buffer_find(&found, &offset, mpi_test_comm(), data, bytes));
    MPI_EXPECT(found == buffer && offset == at, "found %p at %lld", (const void *)found,
               (long long)offset);
}

static void expect_nowhere(const void *data, int64_t bytes)
{
    const mimo_buffer *found = NULL;
    int64_t offset = -1;
    MPI_FAILS(mimo_buffer_find(&found, &offset, mpi_test_comm(), data, bytes), MIMO_ERR_NOT_FOUND,
              "lie in no buffer");
    MPI_EXPECT(!found && offset == -1, "a failure wrote its outputs");
}

MPI_TEST(tiles, place_in_a_buffer)
{
    mimo_buffer *buffers[2] = {NULL, NULL};
    const mimo_buffer *found = NULL;
    int64_t offset;
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(mimo_buffer_create(&buffers[i], mpi_test_comm(), 100 + i));
    for (int i = 0; i < 2; i++) {
        const char *data = mimo_buffer_data(buffers[i]);
        expect_in(buffers[i], 0, 100 + i);
        expect_in(buffers[i], 99, 1);
        expect_in(buffers[i], 40, 0);
        expect_nowhere(data + 100 + i, 0);
        expect_nowhere(data + 40, 61 + i);
        expect_nowhere(data - 1, 2);
    }
    expect_nowhere(&offset, sizeof offset);
    expect_nowhere(NULL, 0);
    MPI_FAILS(mimo_buffer_find(NULL, &offset, mpi_test_comm(), &offset, 1), MIMO_ERR_ARGUMENT,
              "out is NULL");
    MPI_FAILS(mimo_buffer_find(&found, NULL, mpi_test_comm(), &offset, 1), MIMO_ERR_ARGUMENT,
              "offset is NULL");
    MPI_FAILS(mimo_buffer_find(&found, &offset, NULL, &offset, 1), MIMO_ERR_ARGUMENT,
              "comm is NULL");
    MPI_FAILS(mimo_buffer_find(&found, &offset, mpi_test_comm(), &offset, -1), MIMO_ERR_ARGUMENT,
              "-1 bytes");
    void *gone = mimo_buffer_data(buffers[0]);
    mimo_buffer_destroy(buffers[0]);
    expect_nowhere(gone, 1);
    mimo_buffer_destroy(buffers[1]);
}
