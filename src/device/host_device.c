/* The device table for host memory. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/check.h"
#include "core/float16.h"
#include "core/memory.h"
#include "device/device.h"
#include "device/host_row_lists.h"
#include "device/host_sums.h"

static mimo_status host_reserve(void **out, int64_t bytes)
{
    return mimo_reserve(out, bytes, 1);
}

static mimo_status host_copy(void *to, const void *from, int64_t bytes, mimo_stream stream)
{
    (void)stream;
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
    return MIMO_OK;
}

static char *row_at(const mimo_rows *rows, int64_t i, int64_t j)
{
    return (char *)rows->base + (rows->first + i * rows->outer + j * rows->inner) * rows->row_bytes;
}

static mimo_status host_copy_rows(const mimo_rows *to, const mimo_rows *from, mimo_stream stream)
{
    (void)stream;
    size_t bytes = (size_t)to->row_bytes;
    bool runs = to->inner == 1 && from->inner == 1; /* the inner loop is one contiguous run */
    if (bytes == 0)
        return MIMO_OK;
    for (int64_t i = 0; i < to->n_outer; i++) {
        if (runs && to->n_inner > 0) {
            memcpy(row_at(to, i, 0), row_at(from, i, 0), bytes * (size_t)to->n_inner);
            continue;
        }
        for (int64_t j = 0; j < to->n_inner; j++)
            memcpy(row_at(to, i, j), row_at(from, i, j), bytes);
    }
    return MIMO_OK;
}

static mimo_status host_copy_list(const mimo_row_copy *list, int64_t count, mimo_stream stream)
{
    for (int64_t i = 0; i < count; i++)
        MIMO_TRY(host_copy_rows(&list[i].to, &list[i].from, stream));
    return MIMO_OK;
}

static mimo_status host_zero_rows(const mimo_rows *to, mimo_stream stream)
{
    (void)stream;
    if (to->row_bytes == 0)
        return MIMO_OK;
    for (int64_t i = 0; i < to->n_outer; i++) {
        if (to->inner == 1 && to->n_inner > 0) {
            memset(row_at(to, i, 0), 0, (size_t)(to->row_bytes * to->n_inner));
            continue;
        }
        for (int64_t j = 0; j < to->n_inner; j++)
            memset(row_at(to, i, j), 0, (size_t)to->row_bytes);
    }
    return MIMO_OK;
}

/* Iterations [begin, begin + count) of the inner loop. */
static mimo_rows inner_range(const mimo_rows *rows, int64_t begin, int64_t count)
{
    mimo_rows out = *rows;
    out.first += begin * rows->inner;
    out.n_inner = count;
    return out;
}

static mimo_status host_fill_rows(const mimo_rows *to, const mimo_rows *from,
                                  const mimo_stretches *stretches, mimo_stream stream)
{
    int64_t done = 0;
    mimo_rows gap;
    for (int i = 0; i < stretches->count; i++) {
        const mimo_stretch *it = &stretches->at[i];
        mimo_rows target = inner_range(to, it->to, it->length);
        mimo_rows rows = inner_range(from, it->from, it->length);
        gap = inner_range(to, done, it->to - done);
        MIMO_TRY(host_zero_rows(&gap, stream));
        MIMO_TRY(host_copy_rows(&target, &rows, stream));
        done = it->to + it->length;
    }
    gap = inner_range(to, done, to->n_inner - done);
    return host_zero_rows(&gap, stream);
}

/* Offsets in bytes of packed row n, in the tile and in the packed rows. */
static int64_t in_tile(const mimo_row_map *map, int64_t n)
{
    int64_t position = map->position[n];
    return (position / map->seq * map->tile_b + position % map->seq * map->tile_s) * map->row_bytes;
}

static int64_t in_packed(const mimo_row_map *map, int64_t n)
{
    return (n / map->length * map->packed_b + n % map->length * map->packed_s) * map->row_bytes;
}

static mimo_status host_gather_rows(void *to, const void *from, const mimo_row_map *map,
                                    mimo_stream stream)
{
    (void)stream;
    if (map->row_bytes > 0)
        for (int64_t n = 0; n < map->rows; n++)
            memcpy((char *)to + in_packed(map, n), (const char *)from + in_tile(map, n),
                   (size_t)map->row_bytes);
    return MIMO_OK;
}

static mimo_status host_scatter_rows(void *to, const void *from, const mimo_row_map *map,
                                     mimo_stream stream)
{
    (void)stream;
    if (map->row_bytes > 0)
        for (int64_t n = 0; n < map->rows; n++)
            memcpy((char *)to + in_tile(map, n), (const char *)from + in_packed(map, n),
                   (size_t)map->row_bytes);
    return MIMO_OK;
}

static mimo_status not_a_float(mimo_dtype dtype)
{
    return mimo_fail(MIMO_ERR_UNSUPPORTED, "dtype %s is not a float that can be scaled",
                     mimo_dtype_name(dtype));
}

static mimo_status host_scale(void *data, int64_t count, mimo_dtype dtype, double factor,
                              mimo_stream stream)
{
    (void)stream;
    float narrow = (float)factor;
    switch (dtype) {
    case MIMO_F32:
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] *= narrow;
        return MIMO_OK;
    case MIMO_F64:
        for (int64_t i = 0; i < count; i++)
            ((double *)data)[i] *= factor;
        return MIMO_OK;
    case MIMO_F16:
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)data)[i] = mimo_f16_from(mimo_f16_to(((uint16_t *)data)[i]) * narrow);
        return MIMO_OK;
    case MIMO_BF16:
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)data)[i] = mimo_bf16_from(mimo_bf16_to(((uint16_t *)data)[i]) * narrow);
        return MIMO_OK;
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return not_a_float(dtype);
}

static mimo_status host_finished(bool *out, mimo_stream stream)
{
    (void)stream;
    *out = true;
    return MIMO_OK;
}

static mimo_status host_sum_squares(double *out, const void *data, int64_t count, mimo_dtype dtype,
                                    mimo_stream stream)
{
    (void)stream;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = 0;
        switch (dtype) {
        case MIMO_F32:
            x = ((const float *)data)[i];
            break;
        case MIMO_F64:
            x = ((const double *)data)[i];
            break;
        case MIMO_F16:
            x = mimo_f16_to(((const uint16_t *)data)[i]);
            break;
        case MIMO_BF16:
            x = mimo_bf16_to(((const uint16_t *)data)[i]);
            break;
        case MIMO_I32:
        case MIMO_I64:
        case MIMO_F8:
            return not_a_float(dtype);
        }
        sum += x * x;
    }
    *out = sum;
    return MIMO_OK;
}

const mimo_device mimo_device_host = {
    .name = "host",
    .reserve = host_reserve,
    .release = mimo_release,
    .copy = host_copy,
    .upload = host_copy,
    .download = host_copy,
    .finished = host_finished,
    .zero_rows = host_zero_rows,
    .copy_rows = host_copy_rows,
    .copy_list = host_copy_list,
    .fill_rows = host_fill_rows,
    .gather_rows = host_gather_rows,
    .scatter_rows = host_scatter_rows,
    .scale = host_scale,
    .accumulate = mimo_host_accumulate,
    .add_rows = mimo_host_add_rows,
    .repeat_rows = mimo_host_repeat_rows,
    .sum_squares = host_sum_squares,
};
