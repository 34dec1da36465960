/* Grids that were added to a gradient object: views for experts, and a second encoder. What experts
 * get under every view is in mpi_test_expert_gradients.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradient/gradient_state.h"
#include "mpi_test.h"

typedef struct fixture {
    mimo_grid *encoder, *llm, *added; /* `added` may be a view of the LLM's */
    mimo_gradient *gradient;
} fixture;

static fixture fixture_of(const char *encoder, const char *llm)
{
    fixture it = {0};
    MPI_EXPECT_OK(mimo_grid_create_text(&it.encoder, encoder, 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&it.llm, llm, 0));
    MPI_EXPECT_OK(mimo_gradient_create(&it.gradient, mpi_test_comm(), it.encoder, it.llm));
    return it;
}

/* The object keeps its grids: here they are destroyed before it. */
static void release(fixture *it)
{
    if (it->added && !it->added->base)
        mimo_grid_destroy(it->added);
    mimo_grid_destroy(it->encoder);
    mimo_grid_destroy(it->llm);
    mimo_gradient_destroy(it->gradient);
}

static mimo_gradient_bucket bucket_of(const char *name, const char *grid, void *grad, int64_t count)
{
    mimo_gradient_bucket bucket = MIMO_GRADIENT_BUCKET_INIT;
    bucket.name = name;
    bucket.grid = grid;
    bucket.module = MIMO_DST;
    bucket.grad = grad;
    bucket.count = count;
    return bucket;
}

static void expect_explained(const fixture *it, const mimo_gradient_bucket *list, int n,
                             const char *sentence)
{
    char text[8000];
    MPI_EXPECT_OK(mimo_gradient_text(NULL, text, sizeof text, it->gradient, list, n));
    MPI_EXPECT(strstr(text, sentence), "no \"%s\" in:\n%s", sentence, text);
}

/* ------------------------------------------- experts ------------------------------------------ */

static fixture experts_of_views(void)
{
    fixture it = fixture_of("dp=8", "tp=2,cp=2,dp=2");
    const mimo_dim dims[] = {{"etp", 2}, {"ep", 2}, {"edp", 2}};
    MPI_EXPECT_OK(mimo_grid_create_view(&it.added, it.llm, "experts", dims, 3));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it.gradient, "experts", it.added, "edp", "ep"));
    return it;
}

/* etp 2, x = [1, 2], B = [1, 2 | 3, 4], every dz 1: the ranks' parts of A's gradient are [3, 6] and
 * [7, 14], and their sum is what one process has. */
MPI_TEST(gradient_grids, lora_by_hand)
{
    fixture it = fixture_of("dp=2", "tp=2,dp=1");
    float parts[2][2] = {{3, 6}, {7, 14}}, *a = parts[mpi_test_rank()];
    mimo_gradient_bucket bucket = bucket_of("lora_A", "experts", a, 2);
    MPI_EXPECT_OK(mimo_grid_create_text(&it.added, "etp=2,ep=1", 0));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it.gradient, "experts", it.added, NULL, "ep"));
    bucket.partial = "etp";
    bucket.shard = "ep";
    MPI_EXPECT_OK(mimo_gradient_add(it.gradient, 0, 1));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, it.gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(it.gradient, &bucket, 1, NULL));
    MPI_EXPECT(a[0] == 10 && a[1] == 20, "gradient [%g, %g]", a[0], a[1]);
    release(&it);
}

MPI_TEST(gradient_grids, explained)
{
    float grad[3] = {0};
    fixture it = experts_of_views();
    mimo_gradient_bucket bucket = bucket_of("fc1", "experts", grad, 3);
    bucket.shard = "etp,ep";
    expect_explained(&it, &bucket, 1,
                     "fc1 (experts etp=2,ep=2,edp=2, 3 elements here, f32): SUM over 2 ranks");
    expect_explained(&it, &bucket, 1,
                     "SUM over edp=2: ranks hold other tokens for the same experts.");
    expect_explained(&it, &bucket, 1, "not over ep=2: sharded, ranks hold other elements.");
    bucket.shard = "ep";
    expect_explained(&it, &bucket, 1, "not over etp=2: replicated");
    release(&it);
}

/* ---------------------------------------- another encoder ------------------------------------- */

/* On 4 ranks: images under dp=4, audio under tp=2 on the last two ranks. One N, one scale, one
 * norm. A step that was prepared makes no group. */
MPI_TEST(gradient_grids, second_encoder)
{
    int rank = mpi_test_rank();
    bool hears = rank >= 2;
    double norm = -1;
    float image = 1, audio = (float)(rank + 1), llm = 2;
    fixture it = fixture_of("dp=4", "tp=2,dp=2");
    mimo_gradient_bucket list[] = {bucket_of("weight", NULL, &image, 1),
                                   bucket_of("weight", "audio", &audio, hears),
                                   bucket_of("weight", NULL, &llm, 1)};
    list[0].module = MIMO_SRC;
    list[1].shard = "tp";
    MPI_EXPECT_OK(mimo_grid_create_text(&it.added, "tp=2,dp=1", 2));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it.gradient, "audio", it.added, "dp", ""));
    MPI_EXPECT_OK(mimo_gradient_prepare(it.gradient, list, 3));
    int64_t groups = it.gradient->group_count;
    MPI_EXPECT_OK(mimo_gradient_add(it.gradient, 0, 2));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, it.gradient));
    for (int i = 0; i < 3; i++) /* of equal names, on three grids */
        MPI_EXPECT_OK(mimo_gradient_finalize(it.gradient, &list[i], 1, NULL));
    MPI_EXPECT(groups == 2 && it.gradient->group_count == 2, "%d groups, then %d", (int)groups,
               (int)it.gradient->group_count);
    MPI_EXPECT(image == 1 && llm == 1, "gradients %g and %g of N 4", image, llm);
    MPI_EXPECT(!hears || audio == (float)(rank + 1) / 4, "audio gradient %g", audio);
    MPI_FAILS(mimo_gradient_finalize(it.gradient, &list[1], 1, NULL), MIMO_ERR_STATE,
              "'weight' was finalized twice");
    MPI_EXPECT_OK(mimo_gradient_norm(&norm, it.gradient, list, 3, NULL));
    MPI_EXPECT(norm == sqrt(1 + 9 / 16.0 + 1 + 1), "norm %g", norm);
    expect_explained(&it, &list[1], 1, "weight (audio tp=2,dp=1, ");
    list[1].count = 1;
    MPI_FAILS(mimo_gradient_prepare(it.gradient, list, 3), MIMO_ERR_GRID,
              "rank 0 is outside the audio grid and has 1 elements");
    release(&it);
}

/* -------------------------------------------- errors ------------------------------------------ */

/* The last rank's mistake, or all ranks', is every rank's error, and adds nothing. */
MPI_TEST(gradient_grids, mistakes)
{
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    fixture it = fixture_of("dp=4", "tp=2,dp=2");
    mimo_gradient *gradient = it.gradient;
    mimo_grid *grid, *wide, *copies;
    MPI_EXPECT_OK(mimo_grid_create_text(&it.added, "ep=2,one=1,edp=2", 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&wide, "ep=4,edp=2", 0));
    MPI_EXPECT_OK(mimo_grid_create_text(&copies, "ep=2:copies,edp=2", 0));
    grid = it.added;
#define ADD_FAILS(name, grid, data, shard, status, words)                                    \
    do {                                                                                     \
        MPI_FAILS(mimo_gradient_add_grid(gradient, name, grid, data, shard), status, words); \
        MPI_EXPECT(gradient->grid_count == 2, "a failed call added a grid");                 \
    } while (0)
    ADD_FAILS("experts", grid, last ? "ed" : "edp", "ep", MIMO_ERR_GRID,
              "rank 3: gradient grid 'experts', data: the set of dimensions 'ed' names 'ed'");
    ADD_FAILS("experts", grid, "edp", "ep,ep", MIMO_ERR_GRID, "'experts', shard: ");
    ADD_FAILS("experts", grid, "edp,one", "ep,one", MIMO_ERR_GRID, "'one' is in both");
    ADD_FAILS("experts", copies, "edp", "ep", MIMO_ERR_GRID,
              "'experts', shard: ranks along 'ep' hold copies");
    ADD_FAILS("experts", wide, "edp", "ep", MIMO_ERR_GRID, "8");
    ADD_FAILS("", grid, "edp", "ep", MIMO_ERR_GRID, "empty name");
    ADD_FAILS(NULL, grid, "edp", "ep", MIMO_ERR_ARGUMENT, "name is NULL");
    ADD_FAILS("experts", NULL, "edp", "ep", MIMO_ERR_ARGUMENT, "grid is NULL");
    ADD_FAILS("LLM", grid, "edp", "ep", MIMO_ERR_EXISTS, "has a grid 'LLM' already");
    ADD_FAILS(last ? "expert" : "experts", grid, "edp", "ep", MIMO_ERR_MISMATCH,
              "add grid 'expert' data 'edp' shard 'ep' ep=2,one=1,edp=2");
    ADD_FAILS("experts", last ? it.llm : grid, "", "", MIMO_ERR_MISMATCH, "tp=2,dp=2");
    ADD_FAILS("experts", grid, last ? "" : "edp", "", MIMO_ERR_MISMATCH, "data ''");
    ADD_FAILS("experts", grid, "", last ? "" : "ep", MIMO_ERR_MISMATCH, "shard ''");
    MPI_FAILS(mimo_gradient_add_grid(NULL, "x", grid, "", ""), MIMO_ERR_ARGUMENT,
              "mimo_gradient_add_grid: gradient is NULL");
    MPI_EXPECT_OK(mimo_gradient_add_grid(gradient, "experts", grid, "edp", "ep,one"));
    MPI_EXPECT_STATUS(mimo_gradient_add_grid(gradient, "experts", grid, "edp", ""),
                      MIMO_ERR_EXISTS);
    MPI_EXPECT_STATUS(mimo_grid_set_copies(grid, "one"), MIMO_ERR_STATE);
    mimo_grid_destroy(wide);
    mimo_grid_destroy(copies);
    release(&it);
}

MPI_TEST(gradient_grids, mistakes_of_buckets)
{
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    float grad = 1;
    fixture it = fixture_of("dp=4", "tp=2,dp=2");
    mimo_gradient_bucket bucket = bucket_of("fc1", "experts", &grad, 1);
    MPI_EXPECT_OK(mimo_grid_create_text(&it.added, "ep=2,one=1,edp=2", 0));
    MPI_EXPECT_OK(mimo_gradient_add_grid(it.gradient, "experts", it.added, "edp", "ep,one"));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, it.gradient));
#define FINALIZE_FAILS(change, back, status, words)                                      \
    do {                                                                                 \
        if (last)                                                                        \
            change;                                                                      \
        MPI_FAILS(mimo_gradient_finalize(it.gradient, &bucket, 1, NULL), status, words); \
        MPI_EXPECT(grad == 1, "a gradient was touched");                                 \
        back;                                                                            \
    } while (0)
    bucket.shard = "ep,one";
    FINALIZE_FAILS(bucket.shard = "one", bucket.shard = "one,ep", MIMO_ERR_GRID,
                   "rank 3: gradient bucket 'fc1' (experts): its shard 'one' does not name 'ep'");
    FINALIZE_FAILS(bucket.shard = "ep", bucket.shard = "one,ep", MIMO_ERR_GRID,
                   "does not name 'one'");
    FINALIZE_FAILS(bucket.partial = "edp", bucket.partial = "", MIMO_ERR_GRID,
                   "'fc1' (experts): 'edp' is a data dimension");
    FINALIZE_FAILS(bucket.partial = "ep", bucket.partial = "", MIMO_ERR_GRID,
                   "'ep' is both sharded and partial");
    FINALIZE_FAILS(bucket.grid = "expert", bucket.grid = "experts", MIMO_ERR_NOT_FOUND,
                   "rank 3: gradient bucket 'fc1': no grid 'expert' was added");
    bucket.shard = "ep,one";
    MPI_EXPECT_OK(mimo_gradient_add_grid(it.gradient, "more", it.added, "edp", "ep"));
    FINALIZE_FAILS(bucket.grid = "more", bucket.grid = "experts", MIMO_ERR_MISMATCH,
                   "bucket 0 'fc1' more f32");
    MPI_EXPECT_OK(mimo_gradient_finalize(it.gradient, &bucket, 1, NULL));
    MPI_EXPECT(grad == 2, "gradient %g", grad);
    release(&it);
}
