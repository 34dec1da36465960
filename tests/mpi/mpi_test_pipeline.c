/*
 * The whole path of a training step, bit for bit, with two modalities. Each crosses its own bridge;
 * both are merged with text rows and split along cp and sp. Then gradients go all the way back.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "reference_grid.h"
#include "test_memory.h"

enum { MODALITIES = 2, SPECIAL = 1000, HIDDEN = 5, TEXT_SEED = 7, GRADIENT_SEED = 8 };

static const int64_t rows_per_sample[MODALITIES] = {3, 2};

typedef struct step {
    const char *src_spec, *dst_spec;
    bool sp;
    int64_t batch, seq, rank;
    int64_t src_first, src_batch, dst_first, dst_batch, shard_rows;
    mimo_grid *src, *dst;
    mimo_bridge *bridge[MODALITIES];
    mimo_alignment *alignment;
    mimo_partition *partition;
    test_tile encoded[MODALITIES], crossed[MODALITIES], text, merged, shard;
} step;

/* The id at a position. The positions of modality rows differ from sample to sample. */
static int64_t id_at(int64_t seq, int64_t sample, int64_t position)
{
    int64_t turned = (position * 5 + sample * 3) % seq; /* 5 and seq are coprime: a permutation */
    if (turned < rows_per_sample[0])
        return SPECIAL;
    return turned < rows_per_sample[0] + rows_per_sample[1] ? SPECIAL + 1 : turned;
}

/* How often the id of this kind (modality, or -1 for text) occurs in the sample before a
 * position. */
static int64_t kind_of(int64_t id)
{
    return id >= SPECIAL ? id - SPECIAL : -1;
}

static int64_t occurrence(int64_t seq, int64_t sample, int64_t position)
{
    int64_t kind = kind_of(id_at(seq, sample, position)), count = 0;
    for (int64_t s = 0; s < position; s++)
        count += kind_of(id_at(seq, sample, s)) == kind;
    return count;
}

static void store_value(float *to, uint64_t word)
{
    *to = (float)(word % 16777215) + 1.0f; /* exact in f32, never 0 */
}

/* A tile of f32, filled with NaN. */
static test_tile new_tile(const char *letters, int64_t a, int64_t b, int64_t c)
{
    test_tile tile = test_tile_new(letters, MIMO_F32, a, b, c);
    memset(tile.room.host, 0xff, (size_t)tile.room.bytes);
    test_push(&tile.room);
    return tile;
}

static float *at(const test_tile *tile, int64_t row, int64_t element)
{
    return (float *)tile->room.host + row * HIDDEN + element;
}

static void set_up(step *x)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_alignment_desc align = MIMO_ALIGNMENT_DESC_INIT;
    static const int64_t special[MODALITIES] = {SPECIAL, SPECIAL + 1};
    x->rank = mpi_test_rank();
    int64_t cp = ref_size(x->dst_spec, "cp"), tp = ref_size(x->dst_spec, "tp");
    x->src_batch = x->batch / ref_size(x->src_spec, "dp");
    x->dst_batch = x->batch / ref_size(x->dst_spec, "dp");
    x->src_first = ref_coord(x->src_spec, "dp", x->rank) * x->src_batch;
    x->dst_first = ref_coord(x->dst_spec, "dp", x->rank) * x->dst_batch;
    x->shard_rows = x->seq / (cp * (x->sp ? tp : 1));
    MPI_EXPECT_OK(mimo_grid_create_text(&x->src, x->src_spec, 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&x->dst, x->dst_spec, 0));
    MPI_EXPECT_OK(mimo_grid_connect(x->dst, mpi_test_comm()));
    MPI_EXPECT_OK(mimo_grid_create_group(x->dst, "tp"));
    mimo_bridge_desc bridge = mpi_test_bridge_desc(x->src, x->dst);
    for (int m = 0; m < MODALITIES; m++) {
        MPI_EXPECT_OK(mimo_bridge_create(&x->bridge[m], mpi_test_comm(), &bridge));
        x->encoded[m] = new_tile("sbh", rows_per_sample[m], x->src_batch, HIDDEN);
        x->crossed[m] = new_tile(m ? "bsh" : "sbh", m ? x->dst_batch : rows_per_sample[m],
                                 m ? rows_per_sample[m] : x->dst_batch, HIDDEN);
    }
    align.modalities = MODALITIES;
    align.special = special;
    align.memory = test_memory();
    MPI_EXPECT_OK(mimo_alignment_create(&x->alignment, &align));
    rule.sp = x->sp;
    mimo_partition_coords place = {sizeof(mimo_partition_coords),
                                   ref_coord(x->dst_spec, "cp", x->rank), cp,
                                   ref_coord(x->dst_spec, "tp", x->rank), tp};
    MPI_EXPECT_OK(mimo_partition_create(&x->partition, &rule, &place));
    int64_t text_rows = (x->seq - rows_per_sample[0] - rows_per_sample[1]) * x->dst_batch;
    x->text = new_tile("th", text_rows, HIDDEN, 1);
    x->merged = new_tile("sbh", x->seq, x->dst_batch, HIDDEN);
    x->shard = new_tile("sbh", x->shard_rows, x->dst_batch, HIDDEN);
}

static void tear_down(step *x)
{
    for (int m = 0; m < MODALITIES; m++) {
        mimo_bridge_destroy(x->bridge[m]);
        test_tile_free(&x->encoded[m]);
        test_tile_free(&x->crossed[m]);
    }
    mimo_alignment_destroy(x->alignment);
    mimo_partition_destroy(x->partition);
    mimo_grid_destroy(x->src);
    mimo_grid_destroy(x->dst);
    test_tile_free(&x->text);
    test_tile_free(&x->merged);
    test_tile_free(&x->shard);
}

/* Fill the inputs of a rank: encoder rows of its samples, text rows, ids. */
static void fill_inputs(step *x)
{
    for (int m = 0; m < MODALITIES; m++)
        for (int64_t n = 0; n < rows_per_sample[m]; n++)
            for (int64_t b = 0; b < x->src_batch; b++)
                for (int64_t e = 0; e < HIDDEN; e++)
                    store_value(at(&x->encoded[m], n * x->src_batch + b, e),
                                ref_word((uint64_t)m, x->src_first + b, n, e));
    int64_t *ids = malloc((size_t)(x->dst_batch * x->seq) * sizeof *ids), row = 0;
    for (int64_t b = 0; b < x->dst_batch; b++)
        for (int64_t s = 0; s < x->seq; s++) {
            int64_t sample = x->dst_first + b, id = id_at(x->seq, sample, s);
            ids[b * x->seq + s] = id;
            if (kind_of(id) >= 0)
                continue;
            for (int64_t e = 0; e < HIDDEN; e++)
                store_value(at(&x->text, row, e),
                            ref_word(TEXT_SEED, sample, occurrence(x->seq, sample, s), e));
            row++;
        }
    mimo_tensor view = mimo_tensor_2d(ids, MIMO_I64, "bs", x->dst_batch, x->seq);
    MPI_EXPECT_OK(mimo_alignment_update(x->alignment, &view, test_stream()));
    free(ids);
    for (int m = 0; m < MODALITIES; m++)
        test_push(&x->encoded[m].room);
    test_push(&x->text.room);
}

static void check_shard(const step *x)
{
    for (int64_t i = 0; i < x->shard_rows; i++)
        for (int64_t b = 0; b < x->dst_batch; b++) {
            int64_t s = ref_position(x->dst_spec, x->rank, x->seq, x->sp, i);
            int64_t sample = x->dst_first + b, kind = kind_of(id_at(x->seq, sample, s));
            uint64_t seed = kind < 0 ? TEXT_SEED : (uint64_t)kind;
            for (int64_t e = 0; e < HIDDEN; e++) {
                float expected, got;
                store_value(&expected, ref_word(seed, sample, occurrence(x->seq, sample, s), e));
                got = *at(&x->shard, i * x->dst_batch + b, e);
                MPI_EXPECT(got == expected, "local row %d of sample %d: %g is not %g", (int)i,
                           (int)sample, (double)got, (double)expected);
            }
        }
}

static void forward(step *x)
{
    mimo_stream stream = test_stream();
    mimo_tensor rows[MODALITIES];
    for (int m = 0; m < MODALITIES; m++) {
        rows[m] = x->crossed[m].view;
        MPI_EXPECT_OK(mimo_bridge_forward(x->bridge[m], &rows[m], &x->encoded[m].view, 1, stream));
    }
    MPI_EXPECT_OK(mimo_alignment_merge(x->alignment, &x->merged.view, rows, &x->text.view, stream));
    MPI_EXPECT_OK(mimo_partition_shard(x->partition, MIMO_EMBEDDINGS, &x->shard.view,
                                       &x->merged.view, stream));
    test_pull(&x->shard.room);
}

static void backward(step *x)
{
    mimo_stream stream = test_stream();
    mimo_comm *tp = NULL;
    mimo_tensor rows[MODALITIES];
    MPI_EXPECT_OK(mimo_grid_group(&tp, x->dst, "tp"));
    test_push(&x->shard.room);
    MPI_EXPECT_OK(mimo_partition_adjoint(x->partition, MIMO_EMBEDDINGS, &x->merged.view,
                                         &x->shard.view, tp, stream));
    for (int m = 0; m < MODALITIES; m++)
        rows[m] = x->crossed[m].view;
    MPI_EXPECT_OK(mimo_alignment_split(x->alignment, rows, &x->text.view, &x->merged.view, stream));
    for (int m = 0; m < MODALITIES; m++) {
        MPI_EXPECT_OK(mimo_bridge_backward(x->bridge[m], &x->encoded[m].view, &rows[m], 1, stream));
        test_pull(&x->encoded[m].room);
    }
}

/* Row n of a modality of a sample gets the gradient of the position that it went to. */
static void check_gradients(const step *x)
{
    for (int64_t b = 0; b < x->src_batch; b++)
        for (int64_t s = 0; s < x->seq; s++) {
            int64_t sample = x->src_first + b, kind = kind_of(id_at(x->seq, sample, s));
            int64_t n = occurrence(x->seq, sample, s);
            if (kind < 0)
                continue;
            for (int64_t e = 0; e < HIDDEN; e++) {
                float expected, got;
                store_value(&expected, ref_word(GRADIENT_SEED, sample, s, e));
                got = *at(&x->encoded[kind], n * x->src_batch + b, e);
                MPI_EXPECT(got == expected, "modality %d, sample %d, row %d: %g is not %g",
                           (int)kind, (int)sample, (int)n, (double)got, (double)expected);
            }
        }
}

static void run(const char *src, const char *dst, bool sp)
{
    step x = {.src_spec = src, .dst_spec = dst, .sp = sp, .seq = 48};
    int64_t src_dp = ref_size(src, "dp"), dst_dp = ref_size(dst, "dp");
    x.batch = 2 * (src_dp > dst_dp ? src_dp : dst_dp);
    set_up(&x);
    fill_inputs(&x);
    forward(&x);
    check_shard(&x);
    for (int64_t i = 0; i < x.shard_rows; i++)
        for (int64_t b = 0; b < x.dst_batch; b++)
            for (int64_t e = 0; e < HIDDEN; e++)
                store_value(at(&x.shard, i * x.dst_batch + b, e),
                            ref_word(GRADIENT_SEED, x.dst_first + b,
                                     ref_position(dst, x.rank, x.seq, sp, i), e));
    backward(&x);
    check_gradients(&x);
    tear_down(&x);
}

MPI_TEST(pipeline, two_modalities)
{
    static const char *pairs[][2] = {
        {"tp=1,dp=1", "tp=1,cp=1,dp=1"},      {"tp=1,dp=2", "tp=1,cp=2,dp=1"},
        {"tp=2,dp=1", "tp=2,cp=1,dp=1"},      {"tp=1,dp=4", "tp=1,cp=2,dp=2"},
        {"tp=2,dp=2", "tp=2,cp=2,dp=1"},      {"tp=4,dp=1", "tp=1,cp=2,dp=2"},
        {"tp=1,dp=6", "tp=1,cp=3,dp=2"},      {"tp=2,dp=4", "tp=2,cp=2,dp=2"},
        {"tp=4,dp=2", "tp=1,cp=2,pp=1,dp=4"}, {"tp=1,dp=8", "tp=2,cp=4,dp=1"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int sp = 0; sp < 2; sp++)
            if (ref_ranks(pairs[i][0]) == mpi_test_size())
                run(pairs[i][0], pairs[i][1], sp);
}
