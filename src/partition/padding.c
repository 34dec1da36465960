/* Padding of packed sequences: the padded lengths, and rows copied to where they lie after
 * padding. */
#include <inttypes.h>
#include <string.h>

#include <mimo/partition.h>

#include "core/checked.h"
#include "partition/packed_runs.h"

static mimo_status padded_length(int64_t *out, int32_t length, int64_t multiple, int64_t sequence)
{
    MIMO_CHECK(length >= 0, MIMO_ERR_ARGUMENT,
               "mimo_partition_pad: sequence %" PRId64 " has %" PRId32 " rows", sequence, length);
    int64_t short_by = length % multiple == 0 ? 0 : multiple - length % multiple;
    return mimo_add(out, length, short_by);
}

mimo_status mimo_partition_pad(int32_t *cu_padded, const int32_t *lengths, int64_t sequences,
                               int64_t multiple)
{
    int64_t total = 0, length = 0;
    MIMO_CHECK(sequences >= 0 && multiple >= 1, MIMO_ERR_ARGUMENT,
               "mimo_partition_pad: %" PRId64 " sequences, multiple %" PRId64, sequences, multiple);
    MIMO_CHECK(cu_padded && (lengths || sequences == 0), MIMO_ERR_ARGUMENT,
               "mimo_partition_pad: %s is NULL", cu_padded ? "lengths" : "cu_padded");
    for (int64_t i = 0; i < sequences; i++) {
        MIMO_TRY(padded_length(&length, lengths[i], multiple, i));
        MIMO_TRY(mimo_add(&total, total, length));
        MIMO_CHECK(total <= INT32_MAX, MIMO_ERR_OVERFLOW,
                   "mimo_partition_pad: %" PRId64 " rows up to sequence %" PRId64
                   " do not fit 32 bits",
                   total, i);
    }
    cu_padded[0] = 0;
    for (int64_t i = 0; i < sequences; i++) {
        MIMO_TRY(padded_length(&length, lengths[i], multiple, i));
        cu_padded[i + 1] = cu_padded[i] + (int32_t)length;
    }
    return MIMO_OK;
}

/* `call` and `name` are for sentences. */
static mimo_status check_packed_view(const mimo_tensor *view, const char *call, const char *name,
                                     int32_t rows)
{
    char text[96];
    int64_t elements;
    MIMO_CHECK(view, MIMO_ERR_ARGUMENT, "%s: %s is NULL", call, name);
    MIMO_TRY(mimo_tensor_extent(&elements, NULL, view));
    mimo_tensor_text(text, sizeof text, view);
    MIMO_CHECK(strcmp(view->letters, "t") == 0 && elements == rows &&
                   (view->dtype == MIMO_I32 || view->dtype == MIMO_I64),
               MIMO_ERR_SHAPE, "%s: %s is %s, the lengths need t[%" PRId32 "] in i32 or i64", call,
               name, text, rows);
    MIMO_CHECK(view->memory == MIMO_MEMORY_HOST && (view->data || elements == 0), MIMO_ERR_ARGUMENT,
               "%s: %s %s is not in host memory, or NULL", call, name, text);
    return MIMO_OK;
}

/* Both ends of a copy of rows: their sizes, one dtype, and a fill that it holds. */
static mimo_status check_ends(const char *call, const mimo_tensor *to, int32_t to_rows,
                              const mimo_tensor *from, int32_t from_rows, int64_t fill)
{
    MIMO_TRY(check_packed_view(to, call, "to", to_rows));
    MIMO_TRY(check_packed_view(from, call, "from", from_rows));
    MIMO_CHECK(to->dtype == from->dtype, MIMO_ERR_SHAPE, "%s: to is %s and from is %s", call,
               mimo_dtype_name(to->dtype), mimo_dtype_name(from->dtype));
    MIMO_CHECK(to->dtype == MIMO_I64 || (fill >= INT32_MIN && fill <= INT32_MAX), MIMO_ERR_ARGUMENT,
               "%s: fill %" PRId64 " does not fit i32", call, fill);
    return MIMO_OK;
}

static mimo_status check_lengths(const int32_t *cu, const int32_t *cu_padded, int64_t sequences)
{
    MIMO_CHECK(cu && cu_padded && sequences >= 0, MIMO_ERR_ARGUMENT,
               "mimo_partition_pad_rows: %s, %" PRId64 " sequences",
               !cu ? "cu is NULL" : (cu_padded ? "lengths" : "cu_padded is NULL"), sequences);
    MIMO_CHECK(cu[0] == 0 && cu_padded[0] == 0, MIMO_ERR_SHAPE,
               "mimo_partition_pad_rows: lengths begin at %" PRId32 " and %" PRId32 ", not at 0",
               cu[0], cu_padded[0]);
    for (int64_t i = 0; i < sequences; i++)
        MIMO_CHECK(cu[i + 1] >= cu[i] &&
                       (int64_t)cu_padded[i + 1] - cu_padded[i] >= (int64_t)cu[i + 1] - cu[i],
                   MIMO_ERR_SHAPE,
                   "mimo_partition_pad_rows: sequence %" PRId64 " has rows %" PRId32 " to %" PRId32
                   " and padded rows %" PRId32 " to %" PRId32,
                   i, cu[i], cu[i + 1], cu_padded[i], cu_padded[i + 1]);
    return MIMO_OK;
}

/* As bytes: rows only move, so they may lie at any address. */
static void put(const mimo_tensor *to, int64_t at, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (to->dtype == MIMO_I32)
        memcpy((char *)to->data + at * (int64_t)sizeof narrow, &narrow, sizeof narrow);
    else
        memcpy((char *)to->data + at * (int64_t)sizeof value, &value, sizeof value);
}

static int64_t get(const mimo_tensor *from, int64_t at)
{
    int32_t narrow;
    int64_t value;
    if (from->dtype == MIMO_I32) {
        memcpy(&narrow, (const char *)from->data + at * (int64_t)sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&value, (const char *)from->data + at * (int64_t)sizeof value, sizeof value);
    return value;
}

mimo_status mimo_partition_pad_rows(const mimo_tensor *to, const mimo_tensor *from,
                                    const int32_t *cu, const int32_t *cu_padded, int64_t sequences,
                                    int64_t fill)
{
    MIMO_TRY(check_lengths(cu, cu_padded, sequences));
    MIMO_TRY(
        check_ends("mimo_partition_pad_rows", to, cu_padded[sequences], from, cu[sequences], fill));
    for (int64_t i = 0; i < sequences; i++) {
        int32_t rows = cu[i + 1] - cu[i], padded = cu_padded[i + 1] - cu_padded[i];
        for (int32_t j = 0; j < padded; j++)
            put(to, cu_padded[i] + j, j < rows ? get(from, cu[i] + j) : fill);
    }
    return MIMO_OK;
}

mimo_status mimo_partition_shift_labels(const mimo_tensor *to, const mimo_tensor *from,
                                        const int32_t *cu, int64_t sequences, int64_t fill)
{
    static const char call[] = "mimo_partition_shift_labels";
    MIMO_CHECK(cu && sequences >= 0, MIMO_ERR_ARGUMENT, "%s: %s, %" PRId64 " sequences", call,
               cu ? "lengths" : "cu is NULL", sequences);
    MIMO_TRY(mimo_packed_check(cu, sequences, "cu"));
    MIMO_TRY(check_ends(call, to, cu[sequences], from, cu[sequences], fill));
    for (int64_t i = 0; i < sequences; i++)
        for (int32_t j = cu[i]; j < cu[i + 1]; j++)
            put(to, j, j + 1 < cu[i + 1] ? get(from, j + 1) : fill);
    return MIMO_OK;
}
