/* A dispatch in host memory, beside the calls of MPI. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mpi.h>

#include "bench_support.h"
#include "core/float16.h"
#include "dispatch_place.h"

static mimo_comm *world;

static void open_place(mimo_comm **comm, mimo_stream *stream)
{
    bench_must(mimo_comm_create_mpi(&world, MPI_COMM_WORLD, NULL), "communicator");
    *comm = world;
    *stream = NULL;
}

static void close_place(void)
{
    mimo_comm_destroy(world);
}

static void *room(int64_t bytes)
{
    return bench_room(bytes, 1);
}

static void copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

static double time_calls(place_call call, void *context, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        call(context);
    return (MPI_Wtime() - begin) * 1e6 / calls;
}

/* Counts and displacements of MPI, in rows. */
static int *counts_of(const int64_t *rows, int ranks)
{
    int *made = room(2 * ranks * (int64_t)sizeof *made), at = 0;
    for (int r = 0; r < ranks; r++) {
        made[r] = (int)rows[r];
        made[ranks + r] = at;
        at += made[r];
    }
    return made;
}

static void exchange(void *to, const void *from, const place_rows *rows)
{
    int ranks;
    MPI_Datatype row;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *out = counts_of(rows->to, ranks), *in = counts_of(rows->from, ranks);
    MPI_Type_contiguous((int)rows->row_bytes, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    MPI_Alltoallv(from, out, out + ranks, row, to, in, in + ranks, row, MPI_COMM_WORLD);
    MPI_Type_free(&row);
    free(out);
    free(in);
}

static void gather(void *to, const void *from, int64_t bytes)
{
    MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void scatter_sums(float *to, const float *from, int64_t count)
{
    MPI_Reduce_scatter_block(from, to, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void select_rows(void *to, const void *from, const int32_t *index, int64_t rows,
                        int64_t row_bytes)
{
    for (int64_t i = 0; i < rows; i++)
        copy((char *)to + i * row_bytes, (const char *)from + index[i] * row_bytes, row_bytes);
}

static void add_row(float *sum, const uint16_t *row, int64_t hidden)
{
    for (int64_t h = 0; h < hidden; h++)
        sum[h] += mimo_bf16_to(row[h]);
}

static void add(void *to, const void *from, const routing_sums *sums, int64_t hidden, int wide)
{
    float *sum = room(hidden * (int64_t)sizeof *sum);
    for (int64_t i = 0; i < sums->count; i++) {
        memset(sum, 0, (size_t)hidden * sizeof *sum);
        for (int32_t n = sums->begin[i]; n < sums->begin[i + 1]; n++)
            add_row(sum, (const uint16_t *)from + sums->leaf[n] * hidden, hidden);
        for (int64_t h = 0; h < hidden && !wide; h++)
            ((uint16_t *)to)[i * hidden + h] = mimo_bf16_from(sum[h]);
        if (wide)
            copy((float *)to + i * hidden, sum, hidden * (int64_t)sizeof *sum);
    }
    free(sum);
}

const dispatch_place dispatch_place_host = {.memory = MIMO_MEMORY_HOST,
                                            .open = open_place,
                                            .close = close_place,
                                            .room = room,
                                            .release = free,
                                            .put = copy,
                                            .take = copy,
                                            .time = time_calls,
                                            .exchange = exchange,
                                            .gather = gather,
                                            .scatter_sums = scatter_sums,
                                            .select = select_rows,
                                            .add = add};
