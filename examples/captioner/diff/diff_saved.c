#include "captioner/diff/diff_saved.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/formats/safetensors.h"
#include "train/formats/safetensors_format.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/little_endian.h"
#include "train/support/visible_text.h"

enum { AT_ONCE = 1 << 16 };

typedef struct saved_pair {
    FILE *out;
    const char *path[2];
    safetensors_file *file[2];
    unsigned char *room[2]; /* [AT_ONCE] elements of the widest dtype */
} saved_pair;

/* Of one tensor. */
typedef struct tensor_difference {
    int64_t count, differing;
    int64_t first;    /* of these elements */
    uint64_t bits[2]; /* of that element */
    double largest;   /* of |a - b|, where both are finite */
    bool finite;      /* all that differ are */
} tensor_difference;

/* ----------------------------------------- elements ------------------------------------------- */

static double value_of(mimo_dtype dtype, uint64_t bits)
{
    double wide;
    switch (dtype) {
    case MIMO_F32:
        return (double)bits_float((uint32_t)bits);
    case MIMO_F16:
        return (double)widen_f16((uint16_t)bits);
    case MIMO_BF16:
        return (double)widen_bf16((uint16_t)bits);
    case MIMO_F64:
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    case MIMO_I32:
        return (double)(int32_t)(uint32_t)bits;
    case MIMO_I64:
        return (double)(int64_t)bits;
    case MIMO_F8: /* an opaque byte */
        break;
    }
    return (double)bits;
}

/* Between whole numbers it is exact up to 2^53. */
static double gap_of(mimo_dtype dtype, const uint64_t bits[2])
{
    if (dtype == MIMO_I64)
        return (double)((int64_t)bits[0] > (int64_t)bits[1] ? bits[0] - bits[1]
                                                            : bits[1] - bits[0]);
    return fabs(value_of(dtype, bits[0]) - value_of(dtype, bits[1]));
}

static void add_element(tensor_difference *found, mimo_dtype dtype, int64_t index,
                        const uint64_t bits[2])
{
    double gap = gap_of(dtype, bits);
    if (found->differing++ == 0) {
        found->first = index;
        memcpy(found->bits, bits, sizeof found->bits);
        found->finite = true;
    }
    if (!isfinite(gap))
        found->finite = false;
    else if (gap > found->largest)
        found->largest = gap;
}

static void compare_elements(tensor_difference *found, const saved_pair *pair, mimo_dtype dtype,
                             int64_t count)
{
    size_t size = mimo_dtype_size(dtype);
    const unsigned char *a = pair->room[0], *b = pair->room[1];
    if (memcmp(a, b, (size_t)count * size) != 0)
        for (int64_t i = 0; i < count; i++, a += size, b += size)
            if (memcmp(a, b, size) != 0) {
                const uint64_t bits[2] = {get_little_endian(a, size), get_little_endian(b, size)};
                add_element(found, dtype, found->count + i, bits);
            }
    found->count += count;
}

/* Both files have the tensor at the same index: names are sorted, and the same. */
static mimo_status compare_tensor(tensor_difference *found, const saved_pair *pair, int64_t index)
{
    const struct safetensors_tensor *tensor = safetensors_at(pair->file[0], index);
    int64_t elements;
    *found = (tensor_difference){0};
    TRY(safetensors_elements(&elements, tensor));
    while (found->count < elements) {
        int64_t rest = elements - found->count, some = rest < AT_ONCE ? rest : AT_ONCE;
        for (int i = 0; i < 2; i++)
            TRY(safetensors_read(pair->file[i], index, found->count, some, pair->room[i]));
        compare_elements(found, pair, tensor->dtype, some);
    }
    return MIMO_OK;
}

/* ------------------------------------------ headers ------------------------------------------- */

static bool same_shape(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static mimo_status check_names(const saved_pair *pair, int one, int other)
{
    for (int64_t i = 0; i < safetensors_count(pair->file[one]); i++) {
        const char *name = safetensors_at(pair->file[one], i)->name;
        CHECK(safetensors_find(pair->file[other], name) >= 0, MIMO_ERR_SHAPE,
              "%s has no tensor %s, which %s has", pair->path[other], name, pair->path[one]);
    }
    return MIMO_OK;
}

static mimo_status check_comparable(const saved_pair *pair)
{
    safetensors_kind text[2];
    const char *a = safetensors_metadata(pair->file[0], "step");
    const char *b = safetensors_metadata(pair->file[1], "step");
    CHECK(!a || !b || strcmp(a, b) == 0, MIMO_ERR_SHAPE,
          "%s is of step %s and %s of step %s: only the same step can be compared", pair->path[0],
          a, pair->path[1], b);
    TRY(check_names(pair, 0, 1));
    TRY(check_names(pair, 1, 0));
    for (int64_t i = 0; i < safetensors_count(pair->file[0]); i++) {
        const struct safetensors_tensor *x = safetensors_at(pair->file[0], i);
        const struct safetensors_tensor *y = safetensors_at(pair->file[1], i);
        CHECK(same_shape(x, y), MIMO_ERR_SHAPE, "tensor %s is %s in %s and %s in %s", x->name,
              safetensors_describe(text[0], x), pair->path[0], safetensors_describe(text[1], y),
              pair->path[1]);
    }
    return MIMO_OK;
}

/* Metadata of file `one` that the other lacks or has with another value; how many. Equal keys are
 * the business of the first file. */
static int64_t print_metadata(const saved_pair *pair, int one)
{
    int64_t differing = 0;
    for (int64_t i = 0; i < safetensors_metadata_count(pair->file[one]); i++) {
        struct safetensors_text mine = safetensors_metadata_at(pair->file[one], i);
        const char *theirs = safetensors_metadata(pair->file[1 - one], mine.key);
        if (theirs && (one == 1 || strcmp(mine.value, theirs) == 0))
            continue;
        differing++;
        fputs("metadata ", pair->out);
        visible_print(pair->out, mine.key);
        fputs(": ", pair->out);
        visible_print(pair->out, mine.value);
        fputs(theirs ? " in A, " : " in ", pair->out);
        visible_print(pair->out, theirs ? theirs : one == 0 ? "A" : "B");
        fputs(theirs ? " in B\n" : " alone\n", pair->out);
    }
    return differing;
}

/* ------------------------------------------ report -------------------------------------------- */

static void print_value(FILE *out, mimo_dtype dtype, uint64_t bits)
{
    if (dtype == MIMO_I32 || dtype == MIMO_I64)
        fprintf(out, "%" PRId64,
                dtype == MIMO_I64 ? (int64_t)bits : (int64_t)(int32_t)(uint32_t)bits);
    else if (dtype != MIMO_F8)
        fprintf(out, "%.*g", dtype == MIMO_F64 ? 17 : 9, value_of(dtype, bits));
    fprintf(out, "%sbits %0*" PRIx64 "%s", dtype == MIMO_F8 ? "" : " (",
            2 * (int)mimo_dtype_size(dtype), bits, dtype == MIMO_F8 ? "" : ")");
}

/* The place along each dimension; the last one varies fastest. */
static void print_place(FILE *out, const struct safetensors_tensor *tensor, int64_t index)
{
    int64_t below = 1;
    for (int i = 0; i < tensor->ndim; i++)
        below *= tensor->shape[i]; /* not 0: there is an element */
    fputs("[", out);
    for (int i = 0; i < tensor->ndim; i++) {
        below /= tensor->shape[i];
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", index / below);
        index %= below;
    }
    fputs("]", out);
}

static void print_tensor(const saved_pair *pair, const struct safetensors_tensor *tensor,
                         const tensor_difference *found)
{
    safetensors_kind text;
    FILE *out = pair->out;
    fputs("first tensor: ", out);
    visible_print(out, tensor->name);
    fprintf(out, ", %s\n", safetensors_describe(text, tensor));
    fputs("  first element ", out);
    print_place(out, tensor, found->first);
    fputs(": ", out);
    print_value(out, tensor->dtype, found->bits[0]);
    fputs(" and ", out);
    print_value(out, tensor->dtype, found->bits[1]);
    fprintf(out, "\n  %" PRId64 " of %" PRId64 " elements differ", found->differing, found->count);
    if (tensor->dtype != MIMO_F8)
        fprintf(out, ", by at most %.9g%s", found->largest,
                found->finite ? "" : "; some are not finite");
    fputs("\n", out);
}

static mimo_status compare(saved_pair *pair, bool *equal)
{
    tensor_difference found, first = {0};
    int64_t first_index = 0, differing = 0, elements = 0, count;
    TRY(check_comparable(pair));
    count = safetensors_count(pair->file[0]);
    for (int64_t i = 0; i < count; i++) {
        TRY(compare_tensor(&found, pair, i));
        elements += found.count;
        if (found.differing > 0 && differing++ == 0) {
            first = found;
            first_index = i;
        }
    }
    fprintf(pair->out, "A: %s\nB: %s\n", pair->path[0], pair->path[1]);
    int64_t metadata = print_metadata(pair, 0) + print_metadata(pair, 1);
    if (differing > 0) {
        fprintf(pair->out, "%" PRId64 " of %" PRId64 " tensors differ\n", differing, count);
        print_tensor(pair, safetensors_at(pair->file[0], first_index), &first);
    } else {
        fprintf(pair->out, "%s: %" PRId64 " tensors, %" PRId64 " elements\n",
                metadata > 0 ? "the tensors are equal" : "equal", count, elements);
    }
    *equal = differing == 0 && metadata == 0;
    return MIMO_OK;
}

static mimo_status open_pair(saved_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        TRY(safetensors_open(&pair->file[i], pair->path[i]));
        TRY(memory_reserve(&pair->room[i], AT_ONCE, sizeof(uint64_t)));
    }
    return MIMO_OK;
}

mimo_status diff_saved(bool *equal, FILE *out, const char *path_a, const char *path_b)
{
    saved_pair pair = {.out = out, .path = {path_a, path_b}};
    mimo_status status = open_pair(&pair);
    if (status == MIMO_OK)
        status = compare(&pair, equal);
    for (int i = 0; i < 2; i++) {
        safetensors_close(pair.file[i]);
        memory_release(pair.room[i]);
    }
    return status;
}
