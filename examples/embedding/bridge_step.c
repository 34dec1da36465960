/*
 * A step of multimodal training: an image encoder (dp N), an audio encoder (tp 2, dp N/2) and an
 * LLM (cp 2, dp N/2) on the same N ranks. Images and audio have a bridge each, and arrive in one
 * tile of the LLM. Each row and each gradient is checked. Beside this file: step_setup.c makes
 * grids and bridges, step_place.c communicators and memory, and toy_models.c has the models.
 *
 *   mpirun -n 4 bridge_step [--device host|cuda]
 *
 * MPI starts the ranks, also on GPUs; docs/gpu.md says how to start without it. With MIMO_LOG=warn
 * in the environment the library's warnings go to stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "step_setup.h"

enum { CHUNKS = 2, CHUNK = HELD / CHUNKS, MICRO_BATCHES = 2 };

/* Encode this rank's samples of the micro-batch that begins at sample `start` of the data, and tell
 * the bridge which rows there are. Each rank passes the spans of the samples that it knows. */
static mimo_status encode(training *t, int m, int64_t start)
{
    float host[ROWS] = {0};
    mimo_span spans[MOST_ENCODED];
    mimo_batch_desc desc = MIMO_BATCH_DESC_INIT;
    for (int64_t i = 0; i < t->encoded[m]; i++) {
        spans[i] = toy_span(start + t->first[m] + i, m);
        spans[i].sample = t->first[m] + i; /* counted within the micro-batch */
    }
    desc.batch = t->batch;
    desc.ragged = true;
    desc.spans = spans;
    desc.span_count = t->encoded[m];
    TRY(mimo_bridge_update(t->bridge[m], &desc, 1));
    toy_encode(host, start + t->first[m], t->encoded[m], m);
    return place_copy(&t->at, t->rows[m], host, ROWS, t->at.moving);
}

/* The views of both sides on this rank, as the last update says; their data is the caller's. */
static mimo_status view(mimo_tensor *src, mimo_tensor *dst, const training *t, int m)
{
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    sizes.batch = t->batch;
    sizes.seq = SEQ;
    sizes.hidden = HIDDEN;
    sizes.dtype = MIMO_F32;
    sizes.dst_letters = "bsh"; /* the samples of a chunk lie together */
    TRY(mimo_bridge_tile(src, t->bridge[m], MIMO_SRC, &sizes));
    return mimo_bridge_tile(dst, t->bridge[m], MIMO_DST, &sizes);
}

static mimo_status begin_forward(mimo_op **op, training *t, int m)
{
    mimo_tensor from, to;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    TRY(view(&from, &to, t, m));
    from.data = t->rows[m];
    to.data = t->tile;
    move.from = &from;
    move.to = &to;
    move.n = 1;
    move.chunks = CHUNKS;
    move.stream = t->at.moving;
    return mimo_bridge_forward_start_chunked(op, t->bridge[m], &move);
}

/* The LLM on the samples of a chunk, while later ones are still on their way. */
static mimo_status compute(training *t, mimo_op **ops, int chunk, int64_t start)
{
    int64_t at = chunk * CHUNK * SAMPLE;
    float share[CHUNK * SAMPLE], d_share[CHUNK * SAMPLE];
    for (int m = 0; m < MODALITIES; m++)
        TRY(mimo_op_wait_chunk(ops[m], chunk, t->at.computing));
    TRY(place_copy(&t->at, share, t->tile + at, CHUNK * SAMPLE, t->at.computing));
    TRY(toy_llm(&t->sums, d_share, share, t->partition, start + t->held + chunk * CHUNK, CHUNK));
    return place_copy(&t->at, t->d_tile + at, d_share, CHUNK * SAMPLE, t->at.computing);
}

static mimo_status forward(training *t, int64_t start)
{
    float text[HELD * SAMPLE];
    mimo_op *ops[MODALITIES] = {NULL};
    mimo_status status = MIMO_OK;
    for (int m = 0; m < MODALITIES; m++)
        TRY(encode(t, m, start));
    /* Text first: from the start of a call on, peers write their rows between it. */
    toy_embed(text, HELD * SHARE);
    TRY(place_copy(&t->at, t->tile, text, HELD * SAMPLE, t->at.moving));
    for (int m = 0; m < MODALITIES && status == MIMO_OK; m++)
        status = begin_forward(&ops[m], t, m);
    for (int chunk = 0; chunk < CHUNKS && status == MIMO_OK; chunk++)
        status = compute(t, ops, chunk, start);
    for (int m = 0; m < MODALITIES; m++) { /* due after an error as well */
        mimo_status ended = mimo_op_wait(&ops[m]);
        status = status == MIMO_OK ? ended : status;
    }
    return status;
}

static mimo_status backward(training *t, int64_t start)
{
    float host[ROWS];
    for (int m = 0; m < MODALITIES; m++) {
        mimo_tensor from, to;
        TRY(view(&to, &from, t, m));
        from.data = t->d_tile;
        to.data = t->d_rows[m];
        TRY(mimo_bridge_backward(t->bridge[m], &to, &from, 1, t->at.moving));
        TRY(place_copy(&t->at, host, to.data, to.shape[0] * HIDDEN, t->at.moving));
        TRY(toy_encode_backward(&t->sums, host, start + t->first[m], t->encoded[m], m));
    }
    return MIMO_OK;
}

static void list_buckets(mimo_gradient_bucket buckets[WEIGHTS], const training *t)
{
    static const char *const names[] = {"images", "audio", "llm"};
    for (int i = 0; i < WEIGHTS; i++) {
        buckets[i] = (mimo_gradient_bucket)MIMO_GRADIENT_BUCKET_INIT;
        buckets[i].name = names[i];
        buckets[i].module = i < MODALITIES ? MIMO_SRC : MIMO_DST;
        buckets[i].grid = i == AUDIO ? "audio" : NULL; /* NULL: its module's */
        buckets[i].grad = t->d_weights + i * HIDDEN;
        buckets[i].count = HIDDEN;
    }
}

/* Local sums become the gradient of the mean loss: summed over ranks, divided once by the number of
 * tokens. */
static mimo_status finish(training *t)
{
    double loss, norm;
    int64_t tokens;
    float grads[WEIGHTS][HIDDEN];
    mimo_gradient_bucket buckets[WEIGHTS];
    list_buckets(buckets, t);
    for (int i = 0; i < WEIGHTS; i++)
        TRY(place_copy(&t->at, buckets[i].grad, i < MODALITIES ? t->sums.d_w[i] : t->sums.d_v,
                       HIDDEN, t->at.computing));
    TRY(mimo_gradient_count(&tokens, &loss, t->gradient));
    TRY(mimo_gradient_finalize(t->gradient, buckets, WEIGHTS, t->at.computing));
    TRY(mimo_gradient_norm(&norm, t->gradient, buckets, WEIGHTS, t->at.computing));
    TRY(place_copy(&t->at, grads[0], t->d_weights, WEIGHTS * HIDDEN, t->at.computing));
    TRY(toy_check_step(grads, grads[MODALITIES], tokens, MICRO_BATCHES * t->batch));
    TRY(mimo_comm_barrier(t->at.comm)); /* no rank leaves before all have succeeded */
    if (mimo_comm_rank(t->at.comm) == 0)
        printf("bridge_step: %d ranks, %" PRId64 " rows in place, loss %g, gradient norm %g\n",
               mimo_comm_size(t->at.comm), tokens, loss, norm);
    return MIMO_OK;
}

static mimo_status train(training *t)
{
    mimo_gradient_bucket buckets[WEIGHTS];
    list_buckets(buckets, t);
    /* Before the first step: no deadline holds where MPI or NCCL make communicators. */
    TRY(mimo_gradient_prepare(t->gradient, buckets, WEIGHTS));
    for (int64_t i = 0; i < MICRO_BATCHES; i++) {
        t->sums.loss = 0;
        t->sums.tokens = 0;
        TRY(forward(t, i * t->batch));
        TRY(mimo_gradient_add(t->gradient, t->sums.loss, t->sums.tokens));
        TRY(backward(t, i * t->batch));
    }
    return finish(t);
}

int main(int argc, char **argv)
{
    training t = {0};
    int rank;
    bool cuda = argc == 3 && strcmp(argv[2], "cuda") == 0;
    bool wrong = argc != 1 && (argc != 3 || strcmp(argv[1], "--device") != 0 ||
                               (!cuda && strcmp(argv[2], "host") != 0));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mimo_status status =
        wrong ? mimo_fail(MIMO_ERR_ARGUMENT, "usage: bridge_step [--device host|cuda]")
              : training_create(&t, cuda);
    if (status == MIMO_OK)
        status = train(&t);
    bool missing = status == MIMO_ERR_TIMEOUT || status == MIMO_ERR_COMM;
    if (status != MIMO_OK) {
        /* Most errors are the same on every rank. One that failed alone tells the others why. The
         * rank that is missing may be rank 0. */
        if (rank == 0 || missing)
            fprintf(stderr, "bridge_step: %s: %s\n", mimo_status_name(status), mimo_last_error());
        if (t.at.comm)
            mimo_comm_abort(t.at.comm, mimo_last_error());
    }
    training_destroy(&t);
    if (missing) { /* MPI_Finalize would wait for it ("Deadlines" in <mimo/comm.h>) */
        fflush(NULL);
        _exit(1);
    }
    MPI_Finalize();
    return status == MIMO_OK ? 0 : 1;
}
