/*
 * Gradient rules on real ranks, against one loop over the whole step. Every loss, count and
 * gradient is a whole number that any rank can compute for any place, so sums are exact, and the
 * reference needs no communication. It computes the places (dp, cp, tp, pp) by arithmetic of its
 * own.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "gradient/gradient_state.h"
#include "guarded.h"
#include "mpi_test.h"
#include "test_memory.h"
#include "same_bits.h"

/* --------------------------------------- pairs of grids ------------------------------------- */

typedef struct sizes {
    int64_t tp, cp, pp, dp, offset;
} sizes;

typedef struct grid_pair {
    int ranks;
    sizes side[2]; /* by mimo_side */
} grid_pair;

static const grid_pair pairs[] = {
    {1, {{1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}}}, {2, {{1, 1, 1, 2, 0}, {1, 2, 1, 1, 0}}},
    {2, {{2, 1, 1, 1, 0}, {2, 1, 1, 1, 0}}}, {3, {{1, 1, 1, 3, 0}, {1, 3, 1, 1, 0}}},
    {3, {{1, 1, 1, 2, 1}, {2, 1, 1, 1, 0}}}, {4, {{2, 1, 1, 2, 0}, {1, 2, 1, 2, 0}}},
    {4, {{1, 1, 1, 4, 0}, {2, 1, 2, 1, 0}}}, {6, {{2, 1, 1, 3, 0}, {1, 3, 1, 2, 0}}},
    {6, {{2, 1, 1, 1, 0}, {1, 2, 1, 2, 2}}}, {8, {{2, 1, 1, 4, 0}, {2, 2, 1, 2, 0}}},
    {8, {{4, 1, 1, 2, 0}, {1, 2, 1, 4, 0}}}, {8, {{1, 1, 1, 8, 0}, {2, 2, 2, 1, 0}}},
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

static mimo_grid *grid_of(const sizes *s)
{
    char spec[128];
    snprintf(spec, sizeof spec, "tp=%" PRId64 ",remat=1,cp=%" PRId64 ",pp=%" PRId64 ",dp=%" PRId64,
             s->tp, s->cp, s->pp, s->dp);
    return mpi_test_grid(spec, s->offset);
}

/* A place in a grid; `inside` is false where the rank is outside. */
typedef struct coords {
    bool inside;
    int64_t t, c, p, d;
} coords;

static coords coords_of(const sizes *s, int rank)
{
    int64_t r = rank - s->offset;
    coords at = {r >= 0 && r < s->tp * s->cp * s->pp * s->dp, 0, 0, 0, 0};
    at.t = r % s->tp;
    at.c = r / s->tp % s->cp;
    at.p = r / (s->tp * s->cp) % s->pp;
    at.d = r / (s->tp * s->cp * s->pp);
    return at;
}

/* ------------------------------------------ the step ---------------------------------------- */

enum { MICRO_BATCHES = 3 };

static int64_t hashed(uint64_t seed, int64_t a, int64_t b, int64_t c, int64_t limit)
{
    uint64_t state = seed;
    state = next_random(&state) + (uint64_t)a;
    state = next_random(&state) + (uint64_t)b;
    state = next_random(&state) + (uint64_t)c;
    return random_below(&state, limit);
}

/* Valid tokens of a data place in a micro-batch. The numbers differ, and a third of the places have
 * none. */
static int64_t tokens_of(uint64_t seed, int64_t d, int64_t c, int64_t micro)
{
    return hashed(seed, d, c, micro, 3) == 0 ? 0 : hashed(seed + 1, d, c, micro, 40);
}

static double loss_of(uint64_t seed, int64_t d, int64_t c, int64_t micro)
{
    return tokens_of(seed, d, c, micro) ? (double)hashed(seed + 2, d, c, micro, 1000) : 0;
}

/* Whether the tokens of a place count: its own or, along tp, those of the first rank. */
static bool counts(const sizes *llm, const coords *at)
{
    return at->inside && at->p == llm->pp - 1;
}

static void add_step(mimo_gradient *gradient, const grid_pair *pair, uint64_t seed)
{
    const sizes *llm = &pair->side[MIMO_DST];
    coords at = coords_of(llm, mpi_test_rank());
    for (int64_t m = 0; m < MICRO_BATCHES && counts(llm, &at); m++)
        if (tokens_of(seed, at.d, at.c, m) > 0) /* a rank without a sample adds nothing */
            MPI_EXPECT_OK(mimo_gradient_add(gradient, loss_of(seed, at.d, at.c, m),
                                            tokens_of(seed, at.d, at.c, m)));
}

static int64_t expected_count(const grid_pair *pair, uint64_t seed, double *loss)
{
    int64_t n = 0;
    *loss = 0;
    for (int64_t d = 0; d < pair->side[MIMO_DST].dp; d++)
        for (int64_t c = 0; c < pair->side[MIMO_DST].cp; c++)
            for (int64_t m = 0; m < MICRO_BATCHES; m++) {
                n += tokens_of(seed, d, c, m);
                *loss += loss_of(seed, d, c, m);
            }
    *loss /= n > 0 ? (double)n : 1.0;
    return n;
}

/* ----------------------------------------- the buckets ---------------------------------------- */

typedef struct bucket_case {
    const char *name;
    mimo_side module;
    mimo_dtype dtype;
    int64_t count;
    bool shard_t, shard_p, part_t, part_p;
} bucket_case;

static const bucket_case bucket_cases[] = {
    {"vision.sharded", MIMO_SRC, MIMO_F64, 7, true, false, false, false},
    {"vision.replicated", MIMO_SRC, MIMO_F32, 5, false, false, false, false},
    {"vision.partial", MIMO_SRC, MIMO_F64, 3, false, false, true, false},
    {"vision.empty", MIMO_SRC, MIMO_F32, 0, false, false, true, false},
    {"llm.sharded", MIMO_DST, MIMO_F32, 11, true, true, false, false},
    {"llm.replicated", MIMO_DST, MIMO_F64, 6, false, false, false, false},
    {"llm.norm", MIMO_DST, MIMO_F32, 4, false, true, true, false},
    {"llm.tied", MIMO_DST, MIMO_F64, 5, true, false, false, true},
    {"llm.factor", MIMO_DST, MIMO_F64, 2, false, false, true, true},
};
enum { BUCKETS = sizeof bucket_cases / sizeof bucket_cases[0], MOST = 16 };

static const char *dims_text(bool t, bool p)
{
    return t ? (p ? "pp,tp" : "tp") : (p ? "pp" : "");
}

/* Number of the element among all of the bucket's, over its shards. */
static int64_t element_of(const bucket_case *bucket, const sizes *s, const coords *at, int64_t i)
{
    int64_t shard = (bucket->shard_t ? at->t : 0) + s->tp * (bucket->shard_p ? at->p : 0);
    return shard * bucket->count + i;
}

/* What the rank at a place adds to the gradient of an element, before any sum. */
static int64_t local_gradient(const bucket_case *bucket, const sizes *s, const coords *at,
                              int64_t i, uint64_t seed)
{
    int64_t part = (bucket->part_t ? at->t : 0) + 16 * (bucket->part_p ? at->p : 0);
    int64_t data = at->d + 64 * at->c;
    return hashed(seed + (uint64_t)(bucket - bucket_cases), element_of(bucket, s, at, i), data,
                  part, 201) -
           100;
}

/* The sum over every data place and every part. */
static int64_t whole_gradient(const bucket_case *bucket, const sizes *s, coords at, int64_t i,
                              uint64_t seed)
{
    int64_t sum = 0;
    const coords mine = at;
    for (at.d = 0; at.d < s->dp; at.d++)
        for (at.c = 0; at.c < s->cp; at.c++)
            for (int64_t t = 0; t < (bucket->part_t ? s->tp : 1); t++)
                for (int64_t p = 0; p < (bucket->part_p ? s->pp : 1); p++) {
                    at.t = bucket->part_t ? t : mine.t;
                    at.p = bucket->part_p ? p : mine.p;
                    sum += local_gradient(bucket, s, &at, i, seed);
                }
    return sum;
}

/* The sum times 1/N, rounded to the bucket's dtype. */
static double expected_gradient(const bucket_case *bucket, int64_t sum, int64_t n)
{
    double factor = 1.0 / (double)(n > 0 ? n : 1);
    return bucket->dtype == MIMO_F32 ? (double)((float)sum * (float)factor) : (double)sum * factor;
}

/* Each bucket has room for MOST doubles. */
typedef struct step_buckets {
    mimo_gradient_bucket list[BUCKETS];
    test_room room;
} step_buckets;

static double *bucket_room(const step_buckets *buckets, int k)
{
    return (double *)buckets->room.host + k * MOST;
}

static void set(double *room, mimo_dtype dtype, int64_t i, double value)
{
    if (dtype == MIMO_F32)
        ((float *)room)[i] = (float)value;
    else
        room[i] = value;
}

static double get(const double *room, mimo_dtype dtype, int64_t i)
{
    return dtype == MIMO_F32 ? (double)((const float *)room)[i] : room[i];
}

static step_buckets new_buckets(void)
{
    step_buckets buckets = {.room = test_room_new(BUCKETS * MOST * sizeof(double))};
    return buckets;
}

static void fill_buckets(step_buckets *buckets, const grid_pair *pair, uint64_t seed)
{
    memset(buckets->room.host, GUARD_POISON, (size_t)buckets->room.bytes);
    for (int k = 0; k < BUCKETS; k++) {
        const bucket_case *it = &bucket_cases[k];
        const sizes *s = &pair->side[it->module];
        coords at = coords_of(s, mpi_test_rank());
        buckets->list[k] = (mimo_gradient_bucket){
            .size = sizeof(mimo_gradient_bucket),
            .name = it->name,
            .grad = (double *)buckets->room.place + k * MOST,
            .count = at.inside ? it->count : 0,
            .dtype = it->dtype,
            .module = it->module,
            .shard = dims_text(it->shard_t, it->shard_p),
            .partial = dims_text(it->part_t, it->part_p),
        };
        for (int64_t i = 0; i < buckets->list[k].count; i++)
            set(bucket_room(buckets, k), it->dtype, i, (double)local_gradient(it, s, &at, i, seed));
    }
    test_push(&buckets->room);
}

static void expect_final(const step_buckets *buckets, const grid_pair *pair, uint64_t seed,
                         int64_t n)
{
    test_pull(&buckets->room);
    for (int k = 0; k < BUCKETS; k++) {
        const bucket_case *it = &bucket_cases[k];
        const mimo_gradient_bucket *bucket = &buckets->list[k];
        const sizes *s = &pair->side[it->module];
        coords at = coords_of(s, mpi_test_rank());
        const double *room = bucket_room(buckets, k);
        for (int64_t i = 0; i < bucket->count; i++) {
            double expected = expected_gradient(it, whole_gradient(it, s, at, i, seed), n);
            double got = get(room, it->dtype, i);
            MPI_EXPECT(got == expected, "%s[%d] is %a, not %a", it->name, (int)i, got, expected);
        }
        int64_t used = bucket->count * (int64_t)mimo_dtype_size(bucket->dtype);
        MPI_EXPECT_BITS(bits_of_poison(room, used, MOST * (int64_t)sizeof *room - used),
                        "behind the elements of %s", it->name);
    }
}

/* The norm counts every element of every shard once. */
static double expected_norm(const grid_pair *pair, uint64_t seed, int64_t n)
{
    double sum = 0;
    for (int k = 0; k < BUCKETS; k++) {
        const bucket_case *it = &bucket_cases[k];
        const sizes *s = &pair->side[it->module];
        coords at = {true, 0, 0, 0, 0};
        for (at.t = 0; at.t < (it->shard_t ? s->tp : 1); at.t++)
            for (at.p = 0; at.p < (it->shard_p ? s->pp : 1); at.p++)
                for (int64_t i = 0; i < it->count; i++) {
                    double x = expected_gradient(it, whole_gradient(it, s, at, i, seed), n);
                    sum += x * x;
                }
    }
    return sqrt(sum);
}

/* -------------------------------------------- tests ----------------------------------------- */

static mimo_gradient *gradient_of(const grid_pair *pair)
{
    mimo_gradient *gradient = NULL;
    MPI_EXPECT_OK(mimo_gradient_create(&gradient, mpi_test_comm(), grid_of(&pair->side[0]),
                                       grid_of(&pair->side[1])));
    return gradient;
}

static mimo_gradient_bucket bucket_of(const char *name, mimo_side module, float *grad,
                                      int64_t count)
{
    mimo_gradient_bucket bucket = MIMO_GRADIENT_BUCKET_INIT;
    bucket.name = name;
    bucket.module = module;
    bucket.grad = grad;
    bucket.count = count;
    return bucket;
}

static void check_step(mimo_gradient *gradient, const grid_pair *pair, uint64_t seed)
{
    step_buckets buckets = new_buckets();
    int64_t tokens = -1;
    double loss = -1, wanted, norm = -1;
    add_step(gradient, pair, seed);
    int64_t n = expected_count(pair, seed, &wanted);
    MPI_EXPECT_OK(mimo_gradient_count(&tokens, &loss, gradient));
    MPI_EXPECT(tokens == n, "N is %" PRId64 ", not %" PRId64, tokens, n);
    MPI_EXPECT(loss == wanted, "loss is %a, not %a", loss, wanted);
    fill_buckets(&buckets, pair, seed);
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, buckets.list, BUCKETS, test_stream()));
    expect_final(&buckets, pair, seed, n);
    MPI_EXPECT_OK(mimo_gradient_norm(&norm, gradient, buckets.list, BUCKETS, test_stream()));
    wanted = expected_norm(pair, seed, n);
    MPI_EXPECT(fabs(norm - wanted) <= 1e-12 * wanted, "norm is %.17g, not %.17g", norm, wanted);
    mimo_gradient_reset(gradient);
}

/* Several steps on one object: counts are reset, groups are kept. */
MPI_TEST(gradient, steps)
{
    int found = 0;
    for (int p = 0; p < PAIRS; p++) {
        if (pairs[p].ranks != mpi_test_size())
            continue;
        mimo_gradient *gradient = gradient_of(&pairs[p]);
        for (uint64_t seed = 1; seed <= 4; seed++)
            check_step(gradient, &pairs[p], seed * 1000);
        mimo_gradient_destroy(gradient);
        found++;
    }
    MPI_EXPECT(found > 0, "no pair of grids on %d ranks", mpi_test_size());
}

static const grid_pair *first_pair(void)
{
    for (int p = 0; p < PAIRS; p++)
        if (pairs[p].ranks == mpi_test_size() && pairs[p].side[0].dp > 1)
            return &pairs[p];
    return &pairs[0];
}

MPI_TEST(gradient, no_tokens_at_all)
{
    mimo_gradient *gradient = gradient_of(first_pair());
    step_buckets buckets = new_buckets();
    int64_t tokens = -1;
    double loss = -1;
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 0, 0));
    MPI_EXPECT_OK(mimo_gradient_count(&tokens, &loss, gradient));
    MPI_EXPECT(tokens == 0 && loss == 0, "N %" PRId64 ", loss %g", tokens, loss);
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    fill_buckets(&buckets, first_pair(), 9);
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, buckets.list, BUCKETS, test_stream()));
    expect_final(&buckets, first_pair(), 9, 0);
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, NULL, 0, test_stream()));
    mimo_gradient_reset(gradient); /* the next step must be counted anew */
    MPI_EXPECT_STATUS(mimo_gradient_finalize(gradient, NULL, 0, test_stream()), MIMO_ERR_STATE);
    mimo_gradient_destroy(gradient);
}

/* Ones in 16 bits sum to the number of ranks, a small whole number: exact in f16 and bf16. */
MPI_TEST(gradient, buckets_of_16_bits)
{
    const grid_pair *pair = first_pair();
    static const uint16_t one[] = {0x3c00, 0x3f80}, half_exponent[] = {0x0400, 0x0080};
    static const mimo_dtype dtypes[] = {MIMO_F16, MIMO_BF16};
    mimo_gradient *gradient = gradient_of(pair);
    test_room room = test_room_new(6 * sizeof(uint16_t));
    uint16_t *here = room.host, *place = room.place;
    mimo_gradient_bucket buckets[2];
    int64_t places = pair->side[MIMO_SRC].dp;
    MPI_EXPECT((places & (places - 1)) == 0, "dp %d is no power of two", (int)places);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++)
            here[3 * k + i] = one[k];
        buckets[k] = (mimo_gradient_bucket){sizeof(mimo_gradient_bucket),
                                            "ones",
                                            place + 3 * k,
                                            3,
                                            dtypes[k],
                                            MIMO_SRC,
                                            "tp",
                                            "",
                                            NULL};
    }
    test_push(&room);
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, buckets, 2, test_stream()));
    test_pull(&room);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            int doublings = 0;
            while ((INT64_C(1) << doublings) < places)
                doublings++;
            uint16_t wanted = (uint16_t)(one[k] + doublings * half_exponent[k]);
            MPI_EXPECT(here[3 * k + i] == wanted, "%04x, not %04x", here[3 * k + i], wanted);
        }
    mimo_gradient_destroy(gradient);
}

/* Sums in fixed point: summed exactly, beyond 2^53, where f64 would round; not scaled. Only a norm
 * of floats exists, and the refusal reaches every rank. */
MPI_TEST(gradient, buckets_of_whole_numbers)
{
    const grid_pair *pair = first_pair();
    mimo_gradient *gradient = gradient_of(pair);
    test_room room = test_room_new(3 * sizeof(int64_t));
    int64_t *here = room.host, big = (INT64_C(1) << 58) + 1;
    coords at = coords_of(&pair->side[MIMO_SRC], mpi_test_rank());
    for (int64_t i = 0; i < 3; i++)
        here[i] = (i - 1) * (big + at.d);
    test_push(&room);
    mimo_gradient_bucket bucket = {
        sizeof(mimo_gradient_bucket), "fixed", room.place, 3, MIMO_I64, MIMO_SRC, "", "", NULL};
    double norm = -1;
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 0, 7)); /* a scale of a float would show */
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, &bucket, 1, test_stream()));
    test_pull(&room);
    int64_t places = pair->side[MIMO_SRC].dp, sum = places * big + places * (places - 1) / 2;
    for (int64_t i = 0; i < 3; i++)
        MPI_EXPECT(here[i] == (i - 1) * sum, "%" PRId64 ", not %" PRId64, here[i], (i - 1) * sum);
    MPI_FAILS(mimo_gradient_norm(&norm, gradient, &bucket, 1, test_stream()), MIMO_ERR_UNSUPPORTED,
              "gradient bucket 'fixed': no norm of whole numbers");
    mimo_gradient_destroy(gradient);
}

/* -------------------------------------------- errors ---------------------------------------- */

static void expect_unchanged(const step_buckets *buckets, const step_buckets *good,
                             const char *what)
{
    test_pull(&buckets->room);
    test_pull(&good->room);
    MPI_EXPECT_BITS(bits_of(buckets->room.host, good->room.host, good->room.bytes, 1, MOST * 8),
                    "gradients (a row is a bucket), %s", what);
}

/* One rank's gradients are at an address that is no multiple of the dtype's size. */
MPI_TEST(gradient, odd_addresses)
{
    mimo_gradient *gradient = gradient_of(first_pair());
    step_buckets good = new_buckets(), buckets = new_buckets();
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    double norm = -5;
    fill_buckets(&good, first_pair(), 3);
    fill_buckets(&buckets, first_pair(), 3);
    buckets.list[5].grad = (char *)buckets.list[5].grad + (last ? 4 : 0);
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_FAILS(mimo_gradient_finalize(gradient, buckets.list, BUCKETS, test_stream()),
              MIMO_ERR_ARGUMENT, "rank 3: gradient bucket 'llm.replicated': grad lies at 0x",
              "f64 numbers have to lie at a multiple of 8 bytes");
    expect_unchanged(&buckets, &good, "a gradient was touched");
    MPI_EXPECT_STATUS(mimo_gradient_norm(&norm, gradient, buckets.list, BUCKETS, test_stream()),
                      MIMO_ERR_ARGUMENT);
    MPI_EXPECT(norm == -5, "a failed call wrote its output");
    mimo_gradient_destroy(gradient);
}

/* Finalize must fail for bucket k, of which these ranks have one element fewer. */
static void expect_count_noticed(mimo_gradient *gradient, const grid_pair *pair,
                                 step_buckets *buckets, int k, bool less)
{
    char words[64];
    const bucket_case *bucket = &bucket_cases[k];
    fill_buckets(buckets, pair, 3);
    buckets->list[k].count -= less;
    MPI_EXPECT_STATUS(mimo_gradient_finalize(gradient, buckets->list, BUCKETS, test_stream()),
                      MIMO_ERR_MISMATCH);
    snprintf(words, sizeof words, "gradient bucket '%s' has %d elements on rank ", bucket->name,
             (int)bucket->count - 1);
    MPI_EXPECT(strncmp(mimo_last_error(), words, strlen(words)) == 0, "%s: %s", words,
               mimo_last_error());
    snprintf(words, sizeof words, " and %d on rank ", (int)bucket->count);
    MPI_EXPECT_SENTENCE(words);
}

/* Counts are compared between the ranks of a sum, and between copies where every sum has equal
 * counts. Sentences number the ranks in the communicator. */
static void expect_counts_compared(mimo_gradient *gradient, const grid_pair *pair,
                                   step_buckets *buckets, const step_buckets *good)
{
    char words[64];
    int last = mpi_test_size() - 1;
    const sizes *encoder = &pair->side[MIMO_SRC];
    coords at = coords_of(encoder, mpi_test_rank());
    if (last > 0) {
        expect_count_noticed(gradient, pair, buckets, 0, mpi_test_rank() == last);
        snprintf(words, sizeof words, " has 6 elements on rank %d and 7 on rank ", last);
        MPI_EXPECT_SENTENCE(words);
        expect_count_noticed(gradient, pair, buckets, 5, mpi_test_rank() == last);
    }
    if (encoder->tp > 1) {
        expect_count_noticed(gradient, pair, buckets, 1, at.inside && at.t == 1);
        MPI_EXPECT_SENTENCE(", and along tp");
    }
    expect_unchanged(buckets, good, "gradients of counts that differ");
}

/* A bucket list that is wrong on the last rank only. Every rank gets the error, and no gradient
 * changes. */
MPI_TEST(gradient, mistakes_of_one_rank)
{
    const grid_pair *pair = first_pair();
    mimo_gradient *gradient = gradient_of(pair);
    step_buckets good = new_buckets(), buckets = new_buckets();
    double norm = -5;
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    char rank_text[32] = "";
    if (mpi_test_size() > 1)
        snprintf(rank_text, sizeof rank_text, "rank %d: ", mpi_test_size() - 1);
    fill_buckets(&good, pair, 3);
#define FINALIZE() mimo_gradient_finalize(gradient, buckets.list, BUCKETS, test_stream())
#define FAILS_EVERYWHERE(change, status, words)        \
    do {                                               \
        fill_buckets(&buckets, pair, 3);               \
        if (last) {                                    \
            change;                                    \
        }                                              \
        MPI_FAILS(FINALIZE(), status, words);          \
        expect_unchanged(&buckets, &good, "" #change); \
    } while (0)

    FAILS_EVERYWHERE((void)0, MIMO_ERR_STATE, "mimo_gradient_count was not called");
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    if (last)
        MPI_EXPECT_OK(mimo_gradient_add(gradient, 1, 13));
    FAILS_EVERYWHERE((void)0, MIMO_ERR_STATE, "13 tokens");
    MPI_EXPECT_SENTENCE(rank_text);
    MPI_EXPECT_STATUS(mimo_gradient_norm(&norm, gradient, buckets.list, BUCKETS, test_stream()),
                      MIMO_ERR_STATE);
    MPI_EXPECT_OK(last ? MIMO_OK : mimo_gradient_add(gradient, 1, 13));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));

    mimo_gradient_bucket *bucket = &buckets.list[5];
    FAILS_EVERYWHERE(bucket->shard = "tp,ep", MIMO_ERR_GRID, "no dimension 'ep'");
    MPI_EXPECT_SENTENCE(rank_text);
    FAILS_EVERYWHERE(bucket->shard = "tp,,pp", MIMO_ERR_GRID, "no dimension ''");
    FAILS_EVERYWHERE(bucket->shard = "tp,", MIMO_ERR_GRID, "no dimension ''");
    FAILS_EVERYWHERE(bucket->partial = ",tp", MIMO_ERR_GRID, "no dimension ''");
    FAILS_EVERYWHERE(bucket->shard = ",", MIMO_ERR_GRID, "no dimension ''");
    FAILS_EVERYWHERE(bucket->shard = "tp,tp", MIMO_ERR_GRID, "'tp' is named twice");
    FAILS_EVERYWHERE((bucket->shard = "tp", bucket->partial = "pp,tp"), MIMO_ERR_GRID,
                     "'llm.replicated' (LLM): 'tp' is both sharded and partial");
    FAILS_EVERYWHERE(bucket->shard = "cp", MIMO_ERR_GRID, "'cp' is a data dimension");
    FAILS_EVERYWHERE(bucket->partial = "dp", MIMO_ERR_GRID, "'dp' is a data dimension");
    FAILS_EVERYWHERE(buckets.list[0].shard = "dp", MIMO_ERR_GRID, "(encoder): 'dp'");
    FAILS_EVERYWHERE(bucket->dtype = MIMO_I32, MIMO_ERR_UNSUPPORTED, "dtype i32");
    FAILS_EVERYWHERE(bucket->dtype = MIMO_F8, MIMO_ERR_UNSUPPORTED, "dtype f8");
    FAILS_EVERYWHERE(bucket->grad = NULL, MIMO_ERR_ARGUMENT, "NULL for 6 elements");
    FAILS_EVERYWHERE(bucket->count = -6, MIMO_ERR_ARGUMENT, "-6 elements");
    FAILS_EVERYWHERE(bucket->count = INT64_MAX / 2, MIMO_ERR_OVERFLOW, "does not fit");
    FAILS_EVERYWHERE(bucket->name = NULL, MIMO_ERR_ARGUMENT, "bucket 5 has no name");
    FAILS_EVERYWHERE(bucket->module = (mimo_side)4, MIMO_ERR_ARGUMENT, "module 4");
    if (mpi_test_size() > 1) {
        FAILS_EVERYWHERE(bucket->name = "other", MIMO_ERR_MISMATCH, "bucket 5 'other' LLM f64");
        FAILS_EVERYWHERE(bucket->dtype = MIMO_F32, MIMO_ERR_MISMATCH,
                         "bucket 5 'llm.replicated' LLM f32");
        FAILS_EVERYWHERE(buckets.list[1].shard = "tp", MIMO_ERR_MISMATCH,
                         "'vision.replicated' encoder f32 partial '' shard 'tp'");
        FAILS_EVERYWHERE(buckets.list[1].partial = "tp", MIMO_ERR_MISMATCH,
                         "'vision.replicated' encoder f32 partial 'tp' shard ''");
    }
    expect_counts_compared(gradient, pair, &buckets, &good);
    fill_buckets(&buckets, pair, 3);
    MPI_FAILS(mimo_gradient_finalize(gradient, buckets.list, last ? -1 : BUCKETS, test_stream()),
              MIMO_ERR_ARGUMENT, "-1 buckets");
    MPI_EXPECT_STATUS(
        mimo_gradient_norm(last ? NULL : &norm, gradient, buckets.list, BUCKETS, test_stream()),
        MIMO_ERR_ARGUMENT);
    MPI_EXPECT(norm == -5, "a failed call wrote its output");
    MPI_FAILS(mimo_gradient_add(gradient, 1, -2), MIMO_ERR_ARGUMENT, "-2 tokens");
    MPI_EXPECT_STATUS(mimo_gradient_add(gradient, 1, INT64_MAX), MIMO_ERR_OVERFLOW);
    mimo_gradient_destroy(gradient);
}

/* On 4 ranks: the encoder is on two of them, and a third rank has an element. */
MPI_TEST(gradient, elements_outside_the_grid)
{
    const grid_pair pair = {4, {{1, 1, 1, 2, 0}, {1, 2, 1, 2, 0}}};
    mimo_gradient *gradient = gradient_of(&pair);
    step_buckets buckets = new_buckets(), good = new_buckets();
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    fill_buckets(&good, &pair, 3);
    fill_buckets(&buckets, &pair, 3);
    if (mpi_test_rank() == 3)
        buckets.list[0].count = 2;
    MPI_FAILS(FINALIZE(), MIMO_ERR_GRID, "rank 3 is outside the encoder grid and has 2 elements");
    expect_unchanged(&buckets, &good, "a gradient changed");
    mimo_gradient_destroy(gradient);
}

static void expect_creation(const char *src, const char *dst, mimo_status status, const char *words)
{
    mimo_gradient *gradient = NULL;
    MPI_FAILS(mimo_gradient_create(&gradient, mpi_test_comm(), mpi_test_grid(src, 0),
                                   mpi_test_grid(dst, 0)),
              status, words);
    MPI_EXPECT(!gradient, "a failed call made an object");
}

MPI_TEST(gradient, wrong_creation)
{
    bool last = mpi_test_rank() == mpi_test_size() - 1;
    mimo_gradient *gradient = NULL;
    expect_creation("tp=2,dp=2", last ? "tp=2,cp=2,dp=1" : "tp=2,cp=1,dp=2", MIMO_ERR_MISMATCH,
                    "tp=2,cp=2,dp=1");
    expect_creation("tp=2,dp=4", "tp=2,cp=1,dp=2", MIMO_ERR_GRID, "8");
    expect_creation("tp=2,dp=2", "tp=1,ep=2,dp=2", MIMO_ERR_GRID,
                    "the LLM grid tp=1,ep=2,dp=2 has ep = 2");
    expect_creation("pd=4", "tp=1,dp=4", MIMO_ERR_GRID, "the encoder grid pd=4 has pd = 4");
    expect_creation("tp=2,cp=2", "tp=1,dp=4", MIMO_ERR_UNSUPPORTED, "encoder grid has cp=2");
    MPI_FAILS(mimo_gradient_create(&gradient, mpi_test_comm(), NULL, NULL), MIMO_ERR_ARGUMENT,
              "src grid is NULL");
    MPI_EXPECT_STATUS(mimo_gradient_create(&gradient, NULL, NULL, NULL), MIMO_ERR_ARGUMENT);
    mimo_gradient_destroy(NULL);
    mimo_gradient_reset(NULL);
}

/* ----------------------------------------- wrong counts --------------------------------------- */

/* What one rank adds beside its right numbers, or in their place. */
typedef struct count_mistake {
    const char *name;
    int64_t tokens;
    double loss;
    bool in_place;
} count_mistake;

static const count_mistake count_mistakes[] = {
    {"a token more", 1, 0, false},
    {"a shard's loss", 0, -1, false}, /* as many tokens as the others, and the loss of others */
    {"NaN without tokens", 0, NAN, true},
    {"infinity without tokens", 0, INFINITY, true},
    {"NaN with tokens", 0, NAN, false},
};
enum { COUNT_MISTAKES = sizeof count_mistakes / sizeof count_mistakes[0] };

/* A rank that has no mistake, or is the wrong one, adds this. */
static mimo_share share_of(const sizes *llm, int rank, const count_mistake *mistake)
{
    coords at = coords_of(llm, rank);
    mimo_share share = {0, 0};
    if (counts(llm, &at) && !(mistake && mistake->in_place))
        share = (mimo_share){3.5 * (double)(4 + at.c + 10 * at.d), 4 + at.c + 10 * at.d};
    if (mistake) {
        share.value += mistake->loss;
        share.count += mistake->tokens;
    }
    return share;
}

static char last_line[256];

static void note_line(void *context, mimo_log_level level, const char *text)
{
    (void)context;
    snprintf(last_line, sizeof last_line, "%s%s",
             level == MIMO_LOG_WARNING ? "" : "no warning: ", text);
}

static void describe_share(char *text, size_t size, int rank, mimo_share share)
{
    snprintf(text, size, "rank %d added %" PRId64 " tokens with a loss sum of %g", rank,
             share.count, share.value);
}

/* What the mistake of a rank is to all ranks, and the words of the sentence or the warning. */
static mimo_status expected_status(char *words, size_t size, const sizes *llm, int wrong,
                                   const count_mistake *mistake)
{
    coords at = coords_of(llm, wrong);
    int named = wrong;
    bool uncounted = !counts(llm, &at), nan = isnan(mistake->loss) && !mistake->in_place;
    *words = '\0';
    if (uncounted || nan || mistake->in_place || llm->tp > 1) {
        named += llm->tp > 1 && at.t == 0 && !uncounted && !nan && !mistake->in_place;
        describe_share(words, size, named, share_of(llm, named, named == wrong ? mistake : NULL));
    }
    if (uncounted || mistake->in_place)
        return MIMO_ERR_ARGUMENT;
    return nan || llm->tp == 1 ? MIMO_OK : MIMO_ERR_MISMATCH;
}

static void expect_refused(const sizes *llm, int wrong, mimo_status status)
{
    coords at = coords_of(llm, wrong);
    char words[80];
    if (status == MIMO_ERR_MISMATCH)
        MPI_EXPECT_SENTENCE("They differ along tp alone");
    else if (!at.inside)
        MPI_EXPECT_SENTENCE("outside the LLM grid");
    else if (!counts(llm, &at)) {
        snprintf(words, sizeof words, "on stage %d of pp=%d, and only stage %d counts", (int)at.p,
                 (int)llm->pp, (int)llm->pp - 1);
        MPI_EXPECT_SENTENCE(words);
    }
}

static void check_mistake(mimo_gradient *gradient, const sizes *llm, int wrong,
                          const count_mistake *mistake)
{
    char words[128];
    bool mine = wrong == mpi_test_rank();
    mimo_share share = share_of(llm, mpi_test_rank(), mine ? mistake : NULL);
    mimo_status status = expected_status(words, sizeof words, llm, wrong, mistake);
    coords at = coords_of(llm, wrong);
    int64_t n = -1;
    double loss = -1;
    *last_line = '\0';
    mimo_gradient_reset(gradient);
    MPI_EXPECT_OK(mimo_gradient_add(gradient, share.value, share.count));
    MPI_EXPECT(mimo_gradient_count(&n, &loss, gradient) == status, "%s on rank %d: %s",
               mistake->name, wrong, mimo_last_error());
    MPI_EXPECT(status == MIMO_OK || (n == -1 && loss == -1), "a failed call wrote its outputs");
    if (status != MIMO_OK) {
        MPI_EXPECT_SENTENCE(words);
        MPI_EXPECT(!gradient->counted, "a failed call counted");
        expect_refused(llm, wrong, status);
    } else {
        MPI_EXPECT(n > 0 && isnan(loss) == (isnan(mistake->loss) && at.t == 0), "N %d, loss %g",
                   (int)n, loss);
        MPI_EXPECT(strstr(last_line, words), "'%s' lacks '%s'", last_line, words);
    }
}

/* Numbers that are wrong on one rank, each rank in its turn. All ranks hear of it, also where they
 * make no agreement. */
MPI_TEST(gradient, mistakes_of_counts)
{
    for (int p = 0; p < PAIRS; p++) {
        if (pairs[p].ranks != mpi_test_size())
            continue;
        mimo_gradient *gradient = gradient_of(&pairs[p]);
        mimo_log_set(note_line, NULL);
        for (int wrong = 0; wrong < mpi_test_size(); wrong++)
            for (int k = 0; k < COUNT_MISTAKES; k++) {
                setenv("MIMO_AGREE", (wrong + k) % 2 ? "1" : "0", 1);
                check_mistake(gradient, &pairs[p].side[MIMO_DST], wrong, &count_mistakes[k]);
            }
        setenv("MIMO_AGREE", "1", 1);
        mimo_log_set(NULL, NULL);
        mimo_gradient_destroy(gradient);
    }
}

/* ------------------------------------- order of the calls ------------------------------------- */

/* A loop that forgets the reset: N would be 16, 32, 48. Only rank 0 adds, and all hear of it. */
MPI_TEST(gradient, forgotten_reset)
{
    const grid_pair pair = {mpi_test_size(), {{1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}}};
    bool adds = mpi_test_rank() == 0;
    mimo_gradient *gradient = gradient_of(&pair);
    mimo_gradient_bucket bucket = bucket_of("llm", MIMO_DST, NULL, 0);
    int64_t n = -1;
    for (int step = 0; step < 2; step++) {
        for (int micro = 0; micro < 2 && adds; micro++)
            MPI_EXPECT_OK(mimo_gradient_add(gradient, 1, 8));
        MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, gradient));
        MPI_EXPECT(n == 16, "N is %" PRId64, n);
        MPI_EXPECT_OK(mimo_gradient_finalize(gradient, &bucket, 1, NULL));
        MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, gradient)); /* without new adds */
        MPI_EXPECT(n == 16, "N is %" PRId64 " at a second count", n);
        if (step == 0)
            mimo_gradient_reset(gradient);
    }
    n = -1;
    for (int micro = 0; micro < 2 && adds; micro++)
        MPI_EXPECT_OK(mimo_gradient_add(gradient, 1, 8));
    for (int again = 0; again < 2; again++) {
        MPI_FAILS(mimo_gradient_count(&n, NULL, gradient), MIMO_ERR_STATE,
                  "of the 32 tokens of this rank, 16 are of a step that was finalized");
    }
    MPI_EXPECT(n == -1, "a failed call wrote its output");
    mimo_gradient_reset(gradient);
    MPI_EXPECT_OK(mimo_gradient_count(&n, NULL, gradient));
    MPI_EXPECT(n == 0, "N is %" PRId64 " after the reset", n);
    mimo_gradient_destroy(gradient);
}

/* Two buckets in two calls are right. A second finalize of one would sum sums. */
MPI_TEST(gradient, finalized_twice)
{
    const grid_pair pair = {mpi_test_size(),
                            {{1, 1, 1, mpi_test_size(), 0}, {1, 1, 1, mpi_test_size(), 0}}};
    mimo_gradient *gradient = gradient_of(&pair);
    float grad[3] = {1, 1, 1};
    const mimo_gradient_bucket list[3] = {bucket_of("llm", MIMO_DST, &grad[0], 1),
                                          bucket_of("other", MIMO_DST, &grad[1], 1),
                                          bucket_of("llm", MIMO_SRC, &grad[2], 1)};
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 0, 2));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    for (int i = 0; i < 3; i++) /* the last one has an equal name, in the other module */
        MPI_EXPECT_OK(mimo_gradient_finalize(gradient, &list[i], 1, NULL));
    for (int again = 0; again < 2; again++) {
        MPI_FAILS(mimo_gradient_finalize(gradient, list, 2, NULL), MIMO_ERR_STATE,
                  "gradient bucket 'llm' was finalized twice since the count");
    }
    MPI_EXPECT(grad[0] == 0.5f && grad[1] == 0.5f && grad[2] == 0.5f, "gradients %g %g %g", grad[0],
               grad[1], grad[2]);
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, list, 1, NULL));
    MPI_EXPECT(grad[0] == 0.25f, "gradient %g of a second count", grad[0]);
    mimo_gradient_destroy(gradient);
}

/* ------------------------------------------ prepared ------------------------------------------ */

static mimo_status refuse_split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    (void)out, (void)parent, (void)color, (void)key;
    return mimo_fail(MIMO_ERR_INTERNAL, "a split");
}

/* A step of buckets that were prepared makes no communicator. */
MPI_TEST(gradient, prepared)
{
    const grid_pair pair = {4, {{2, 1, 1, 2, 0}, {1, 2, 1, 2, 0}}};
    mimo_gradient *gradient = gradient_of(&pair);
    mimo_comm *comm = gradient->comm;
    const mimo_comm_backend *backend = comm->backend;
    mimo_comm_backend refusing = *backend;
    refusing.split = refuse_split;
    float grad[2] = {1, 1};
    mimo_gradient_bucket list[2] = {bucket_of("encoder", MIMO_SRC, &grad[0], 1),
                                    bucket_of("llm", MIMO_DST, &grad[1], 1)};
    list[0].partial = "tp";
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 0, 1));
    MPI_EXPECT_OK(mimo_gradient_prepare(gradient, list, 1));
    comm->backend = &refusing;
    MPI_EXPECT_STATUS(mimo_gradient_prepare(gradient, list, 2), MIMO_ERR_INTERNAL);
    comm->backend = backend;
    MPI_EXPECT_OK(mimo_gradient_prepare(gradient, list, 2));
    comm->backend = &refusing;
    MPI_EXPECT_OK(mimo_gradient_prepare(gradient, list, 2));
    MPI_EXPECT(grad[0] == 1 && grad[1] == 1, "prepare wrote a gradient");
    MPI_EXPECT_STATUS(mimo_gradient_finalize(gradient, list, 2, NULL), MIMO_ERR_STATE);
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, list, 2, NULL));
    MPI_EXPECT(grad[0] == 1 && grad[1] == 1, "gradients %g and %g of 4 ranks with 1 token each",
               grad[0], grad[1]);
    comm->backend = backend;
    if (mpi_test_rank() == 1)
        list[1].name = NULL;
    MPI_FAILS(mimo_gradient_prepare(gradient, list, 2), MIMO_ERR_ARGUMENT,
              "rank 1: gradient bucket 1 has no name");
    MPI_FAILS(mimo_gradient_prepare(NULL, list, 2), MIMO_ERR_ARGUMENT,
              "mimo_gradient_prepare: gradient is NULL");
    mimo_gradient_destroy(gradient);
}

/* ------------------------------------------- copies ------------------------------------------- */

/* The explanation contains each of these sentences. */
static void expect_explained(const mimo_gradient *gradient, const mimo_gradient_bucket *list, int n,
                             const char *const *sentences, size_t count)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    MPI_EXPECT_OK(mimo_gradient_explain(stream, gradient, list, n));
    fclose(stream);
    for (size_t i = 0; i < count; i++)
        MPI_EXPECT(strstr(text, sentences[i]), "no \"%s\" in:\n%s", sentences[i], text);
    free(text);
}

/* On 4 ranks, x fastest: ranks along x hold the same elements and gradients, and their tokens count
 * once. N is 1 + 2, each gradient 1 + 2 over dp. */
MPI_TEST(gradient, copies)
{
    static const char *const sentences[] = {
        "tp ranks hold copies, and so do x ranks, so all of these add the same loss and tokens "
        "(under "
        "sp: sums over tp)",
        "llm (LLM x=2:copies,dp=2, 2 elements here, f32): SUM over 2 ranks, then * 1/3",
        "not over x=2: ranks hold copies, as the grid says",
    };
    double d = mpi_test_rank() / 2, norm = 0, loss = 0;
    float encoder[3] = {(float)d + 1, 0, 0}, llm[3] = {(float)d + 1, 2 * (float)d + 2, 0};
    int64_t n = 0;
    mimo_grid *grid = mpi_test_grid("x=2:copies,dp=2", 0);
    mimo_gradient *gradient = NULL;
    mimo_gradient_bucket list[2] = {bucket_of("encoder", MIMO_SRC, encoder, 1),
                                    bucket_of("llm", MIMO_DST, llm, 2)};
    MPI_EXPECT_OK(mimo_gradient_create(&gradient, mpi_test_comm(), grid, grid));
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 10 * (d + 1), (int64_t)d + 1));
    MPI_EXPECT_OK(mimo_gradient_count(&n, &loss, gradient));
    MPI_EXPECT(n == 3 && loss == 10, "N is %" PRId64 ", the loss %g", n, loss);
    if (mpi_test_rank() == 1)
        MPI_EXPECT_OK(mimo_gradient_add(gradient, 0, 1));
    MPI_FAILS(mimo_gradient_count(&n, &loss, gradient), MIMO_ERR_MISMATCH,
              "rank 1 added 2 tokens with a loss sum of 10, and rank 0 1 with 10. They "
              "differ along x alone");
    mimo_gradient_reset(gradient);
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 10 * (d + 1), (int64_t)d + 1));
    MPI_EXPECT_OK(mimo_gradient_count(&n, &loss, gradient));
    list[1].count += mpi_test_rank() == 1;
    MPI_FAILS(mimo_gradient_finalize(gradient, list, 2, NULL), MIMO_ERR_MISMATCH,
              "3 elements on rank 1 and 2 on rank 0, and along x,dp ranks hold the same");
    list[1].count = 2;
    list[1].shard = "x";
    MPI_FAILS(mimo_gradient_finalize(gradient, list, 2, NULL), MIMO_ERR_GRID,
              "'llm': ranks along 'x' of the LLM grid x=2:copies,dp=2 hold copies");
    list[1].shard = "";
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, list, 2, NULL));
    MPI_EXPECT(encoder[0] == 1 && llm[0] == 1 && llm[1] == 2, "gradients %g, %g %g", encoder[0],
               llm[0], llm[1]);
    MPI_EXPECT_OK(mimo_gradient_norm(&norm, gradient, list, 2, NULL));
    MPI_EXPECT(norm == sqrt(6), "norm %g", norm);
    expect_explained(gradient, list, 2, sentences, sizeof sentences / sizeof sentences[0]);
    mimo_gradient_destroy(gradient);
}

/* ------------------------------------------- stages ----------------------------------------- */

/* Two stages of norm 3 and 4, all of it on tp rank 0: the element of tp rank 1 is 0. */
static mimo_status norm_of_stages(double *norm, const char *shard, const char *check)
{
    const grid_pair pair = {4, {{2, 1, 1, 2, 0}, {2, 1, 2, 1, 0}}};
    coords at = coords_of(&pair.side[MIMO_DST], mpi_test_rank());
    float grad = at.t > 0 ? 0 : (float)(3 + at.p);
    mimo_gradient_bucket bucket = bucket_of("stage", MIMO_DST, &grad, 1);
    bucket.shard = shard;
    setenv("MIMO_CHECK", check, 1);
    mimo_gradient *gradient = gradient_of(&pair);
    unsetenv("MIMO_CHECK");
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    MPI_EXPECT_OK(mimo_gradient_finalize(gradient, &bucket, 1, NULL));
    mimo_status status = mimo_gradient_norm(norm, gradient, &bucket, 1, NULL);
    mimo_gradient_destroy(gradient);
    return status;
}

/* Along a dimension that a bucket does not name, the norm takes the first rank's elements for all
 * others'. */
MPI_TEST(gradient, norm_of_stages)
{
    double norm = -1;
    MPI_EXPECT_OK(norm_of_stages(&norm, "tp,pp", ""));
    MPI_EXPECT(norm == 5, "norm %g of stages of 3 and 4", norm);
    MPI_EXPECT_OK(norm_of_stages(&norm, "tp,pp", "replicas"));
    MPI_EXPECT(norm == 5, "norm %g of stages of 3 and 4, compared", norm);
    MPI_EXPECT_OK(norm_of_stages(&norm, "tp", ""));
    MPI_EXPECT(norm == 3, "norm %g of the first stage", norm);
    norm = -1;
    MPI_FAILS(norm_of_stages(&norm, "tp", "replicas"), MIMO_ERR_MISMATCH,
              "gradient bucket 'stage' has norm 4 on rank 2 and 3 on rank 0. They differ "
              "along pp alone");
    MPI_EXPECT(norm == -1, "a failed call wrote its output");
    MPI_FAILS(norm_of_stages(&norm, "pp", "replicas"), MIMO_ERR_MISMATCH,
              "norm 0 on rank 1 and 3 on rank 0. They differ along tp alone");
}

/* Ranks that were started with other checks would wait for each other in the norm. */
MPI_TEST(gradient, other_checks)
{
    const grid_pair pair = {4, {{2, 1, 1, 2, 0}, {2, 1, 2, 1, 0}}};
    mimo_grid *grid[2] = {grid_of(&pair.side[0]), grid_of(&pair.side[1])};
    mimo_gradient *gradient = NULL;
    setenv("MIMO_CHECK", mpi_test_rank() == 2 ? "replicas" : "", 1);
    MPI_FAILS(mimo_gradient_create(&gradient, mpi_test_comm(), grid[0], grid[1]), MIMO_ERR_MISMATCH,
              "MIMO_CHECK replicas");
    setenv("MIMO_CHECK", "everything", 1);
    MPI_FAILS(mimo_gradient_create(&gradient, mpi_test_comm(), grid[0], grid[1]), MIMO_ERR_ARGUMENT,
              "MIMO_CHECK");
    unsetenv("MIMO_CHECK");
    MPI_EXPECT(!gradient, "a failed call made an object");
}

/* ------------------------------------------- explain ---------------------------------------- */

MPI_TEST(gradient, explain)
{
    static const char *const sentences[] = {
        "cp=2 x dp=2 = 4 ranks and all micro-batches",
        "N = 8, so every gradient of both modules is scaled once by 1/8",
        "llm.sharded (LLM tp=2,remat=1,cp=2,pp=1,dp=2, 11 elements here, f32): SUM over 4 ranks, "
        "then "
        "* 1/8",
        "not over tp=2: sharded",
        "SUM over cp=2: ranks hold other tokens",
        "SUM over dp=2: ranks hold other samples",
        "llm.norm (LLM tp=2,remat=1,cp=2,pp=1,dp=2, 4 elements here, f32): SUM over 8 ranks",
        "SUM over tp=2: ranks hold the same elements, and each only a part",
        "not over tp=2: replicated",
        "vision.sharded (encoder tp=2,remat=1,cp=1,pp=1,dp=4, 7 elements here, f64): SUM over 4",
    };
    const grid_pair pair = {8, {{2, 1, 1, 4, 0}, {2, 2, 1, 2, 0}}};
    mimo_gradient *gradient = gradient_of(&pair);
    step_buckets buckets = new_buckets();
    fill_buckets(&buckets, &pair, 3);
    expect_explained(gradient, buckets.list, BUCKETS, &(const char *){"N is not known yet"}, 1);
    MPI_EXPECT_OK(mimo_gradient_add(gradient, 1, 2));
    MPI_EXPECT_OK(mimo_gradient_count(NULL, NULL, gradient));
    expect_explained(gradient, buckets.list, BUCKETS, sentences,
                     sizeof sentences / sizeof sentences[0]);
    FILE *stream = fopen("/dev/full", "w");
    if (stream) {
        MPI_EXPECT_STATUS(mimo_gradient_explain(stream, gradient, buckets.list, BUCKETS),
                          MIMO_ERR_IO);
        fclose(stream);
    }
    buckets.list[2].shard = "wide";
    MPI_EXPECT_STATUS(mimo_gradient_explain(stderr, gradient, buckets.list, BUCKETS),
                      MIMO_ERR_GRID);
    MPI_EXPECT_STATUS(mimo_gradient_explain(test_stream(), gradient, buckets.list, BUCKETS),
                      MIMO_ERR_ARGUMENT);
    mimo_gradient_destroy(gradient);
}

/* Explained before the count, with stages of which one has the loss, and where nothing is
 * summed. */
MPI_TEST(gradient, explain_stages)
{
    static const char *const sentences[] = {
        "cp=1 x dp=2 = 2 ranks and all micro-batches",
        "only the last pipeline stage adds its own",
        "N is not known yet",
        "vision.sharded (encoder tp=8,remat=1,cp=1,pp=1,dp=1, 7 elements here, f64): * 1/max(N, 1)",
        "no sum: one rank holds all of the gradient",
    };
    const grid_pair pair = {8, {{8, 1, 1, 1, 0}, {2, 1, 2, 2, 0}}};
    mimo_gradient *gradient = gradient_of(&pair);
    step_buckets buckets = new_buckets();
    fill_buckets(&buckets, &pair, 3);
    expect_explained(gradient, buckets.list, BUCKETS, sentences,
                     sizeof sentences / sizeof sentences[0]);
    mimo_gradient_destroy(gradient);
}
