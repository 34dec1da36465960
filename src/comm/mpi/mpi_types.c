#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi/mpi_types.h"
#include "core/checked.h"

enum { BYTES_PER_ELEMENT = 1 << 30 };

mimo_status mimo_mpi_status(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS)
        return MIMO_OK;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI error %d", code);
    return mimo_fail(MIMO_ERR_COMM, "%.*s: %s", (int)strcspn(call, "("), call, text);
}

/* Replace *type by the type that was built on it. MPI keeps what a type is built on, so *type is
 * freed. */
static mimo_status wrap(MPI_Datatype *type, int code, MPI_Datatype wrapped, const char *call)
{
    MPI_Type_free(type);
    MIMO_TRY(mimo_mpi_status(code, call));
    *type = wrapped;
    return MIMO_OK;
}

static mimo_status bytes_type(MPI_Datatype *out, int64_t bytes)
{
    MPI_Datatype type = MPI_BYTE, element, elements;
    int64_t whole = bytes / BYTES_PER_ELEMENT;
    int rest = (int)(bytes % BYTES_PER_ELEMENT);
    MIMO_CHECK(whole <= INT_MAX, MIMO_ERR_OVERFLOW, "%" PRId64 " bytes in one message", bytes);
    if (whole == 0) {
        MIMO_TRY_MPI(MPI_Type_contiguous(rest, MPI_BYTE, &type));
        *out = type;
        return MIMO_OK;
    }
    MIMO_TRY_MPI(MPI_Type_contiguous(BYTES_PER_ELEMENT, MPI_BYTE, &element));
    int code = MPI_Type_contiguous((int)whole, element, &elements);
    MPI_Type_free(&element);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Type_contiguous"));
    int lengths[2] = {1, rest};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(whole * BYTES_PER_ELEMENT)};
    MPI_Datatype types[2] = {elements, MPI_BYTE};
    code = MPI_Type_create_struct(rest > 0 ? 2 : 1, lengths, offsets, types, &type);
    MPI_Type_free(&elements);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Type_create_struct"));
    *out = type;
    return MIMO_OK;
}

/* Replace *type by `count` elements of it, `stride` bytes apart. */
static mimo_status repeat(MPI_Datatype *type, int64_t count, int64_t stride)
{
    MPI_Datatype wrapped = MPI_DATATYPE_NULL;
    int code = MPI_Type_create_hvector((int)count, 1, (MPI_Aint)stride, *type, &wrapped);
    return wrap(type, code, wrapped, "MPI_Type_create_hvector");
}

static mimo_status resize_and_commit(MPI_Datatype *type, int64_t extent)
{
    MPI_Datatype wrapped = MPI_DATATYPE_NULL;
    int code = MPI_Type_create_resized(*type, 0, (MPI_Aint)extent, &wrapped);
    MIMO_TRY(wrap(type, code, wrapped, "MPI_Type_create_resized"));
    code = MPI_Type_commit(type);
    if (code != MPI_SUCCESS)
        MPI_Type_free(type);
    return mimo_mpi_status(code, "MPI_Type_commit");
}

mimo_status mimo_mpi_bytes_type(MPI_Datatype *out, int64_t bytes)
{
    MPI_Datatype type;
    MIMO_TRY(bytes_type(&type, bytes));
    MIMO_TRY(resize_and_commit(&type, bytes));
    *out = type;
    return MIMO_OK;
}

mimo_status mimo_mpi_rows_type(MPI_Datatype *out, const mimo_rows *rows, int64_t step)
{
    MPI_Datatype type;
    int64_t run = rows->row_bytes, outer = rows->outer * rows->row_bytes;
    MIMO_CHECK(rows->n_outer <= INT_MAX && rows->n_inner <= INT_MAX, MIMO_ERR_OVERFLOW,
               "%" PRId64 " x %" PRId64 " rows in one message", rows->n_outer, rows->n_inner);
    /* Contiguous loops become one run, which MPI copies as a block. */
    bool inner_runs = rows->inner == 1 || rows->n_inner == 1;
    if (inner_runs)
        run *= rows->n_inner;
    bool outer_runs = inner_runs && (outer == run || rows->n_outer == 1);
    if (outer_runs)
        run *= rows->n_outer;
    MIMO_TRY(bytes_type(&type, run));
    if (!inner_runs)
        MIMO_TRY(repeat(&type, rows->n_inner, rows->inner * rows->row_bytes));
    if (!outer_runs)
        MIMO_TRY(repeat(&type, rows->n_outer, outer));
    MIMO_TRY(resize_and_commit(&type, step * rows->row_bytes));
    *out = type;
    return MIMO_OK;
}
