/* Products of matrices through OpenBLAS. In bf16, rounded copies of the factors go to a workspace
 * first. The product of two bf16 numbers is exact in f32. So BLAS adds the same terms as a device,
 * in another order. */
#include <cblas.h>

#include "core/float16.h"
#include "core/memory.h"
#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_host_ordered.h"

/* Workspace for rounded factors. In bf16 it is runtime->context; in full precision that is NULL. */
typedef struct rounded_factors {
    nn_real *a, *b;
    int64_t a_count, b_count;
} rounded_factors;

mimo_status nn_host_open(nn_runtime *runtime)
{
    if (runtime->precision == NN_PRECISION_FULL)
        return MIMO_OK;
    return mimo_reserve(&runtime->context, 1, sizeof(rounded_factors));
}

void nn_host_close(nn_runtime *runtime)
{
    rounded_factors *rooms = runtime->context;
    if (!rooms)
        return;
    mimo_release(rooms->a);
    mimo_release(rooms->b);
    mimo_release(rooms);
    runtime->context = NULL;
}

/* The number of lines in memory, and the elements of a line, transposed or not. */
static int64_t lines_of(const nn_matrix *a)
{
    return a->transposed ? a->columns : a->rows;
}

static int64_t line_of(const nn_matrix *a)
{
    return a->transposed ? a->rows : a->columns;
}

/* Pack the rounded copy of *a into *room, and let *a point there. */
static mimo_status round_factor(nn_matrix *a, nn_real **room, int64_t *capacity)
{
    int64_t lines = lines_of(a), line = line_of(a);
    if (lines * line > *capacity) {
        MIMO_TRY(mimo_regrow(room, *capacity, lines * line, sizeof **room));
        *capacity = lines * line;
    }
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < line; j++)
            (*room)[i * line + j] =
                (nn_real)mimo_bf16_to(mimo_bf16_from((float)a->data[i * a->stride + j]));
    a->data = *room;
    a->stride = line > 0 ? line : 1;
    return MIMO_OK;
}

/* One product of a batch, by BLAS. */
static void multiply(const nn_product *p, nn_real *c, const nn_matrix *a, const nn_matrix *b)
{
    CBLAS_TRANSPOSE ta = a->transposed ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tb = b->transposed ? CblasTrans : CblasNoTrans;
#ifdef NN_REAL_F64
    cblas_dgemm(CblasRowMajor, ta, tb, (int)a->rows, (int)b->columns, (int)a->columns, p->alpha,
                a->data, (int)a->stride, b->data, (int)b->stride, p->beta, c, (int)p->stride);
#else
    cblas_sgemm(CblasRowMajor, ta, tb, (int)a->rows, (int)b->columns, (int)a->columns, p->alpha,
                a->data, (int)a->stride, b->data, (int)b->stride, p->beta, c, (int)p->stride);
#endif
}

mimo_status nn_host_matmul(const nn_runtime *runtime, const nn_product *product)
{
    rounded_factors *rooms = runtime->context;
    if (runtime->order == NN_ORDER_FIXED)
        return nn_host_matmul_ordered(product);
    for (int64_t i = 0; i < product->count; i++) {
        nn_matrix a = product->a, b = product->b;
        a.data += i * a.step;
        b.data += i * b.step;
        if (rooms) {
            MIMO_TRY(round_factor(&a, &rooms->a, &rooms->a_count));
            MIMO_TRY(round_factor(&b, &rooms->b, &rooms->b_count));
        }
        multiply(product, product->c + i * product->step, &a, &b);
    }
    return MIMO_OK;
}
