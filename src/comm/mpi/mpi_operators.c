#include "comm/mpi/mpi_operators.h"
#include "comm/mpi/mpi_types.h"
#include "core/float16.h"

#define COMBINE(name, to, from, expression)                                 \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type) \
    {                                                                       \
        const uint16_t *left = in;                                          \
        uint16_t *right = inout;                                            \
        (void)type;                                                         \
        for (int i = 0; i < *count; i++) {                                  \
            float a = to(left[i]), b = to(right[i]);                        \
            right[i] = from(expression);                                    \
        }                                                                   \
    }

COMBINE(add_f16, mimo_f16_to, mimo_f16_from, a + b)
COMBINE(max_f16, mimo_f16_to, mimo_f16_from, a > b ? a : b)
COMBINE(add_bf16, mimo_bf16_to, mimo_bf16_from, a + b)
COMBINE(max_bf16, mimo_bf16_to, mimo_bf16_from, a > b ? a : b)

static mimo_status create_all(mimo_mpi_operators *operators)
{
    MIMO_TRY_MPI(MPI_Op_create(add_f16, 1, &operators->f16_sum));
    MIMO_TRY_MPI(MPI_Op_create(max_f16, 1, &operators->f16_max));
    MIMO_TRY_MPI(MPI_Op_create(add_bf16, 1, &operators->bf16_sum));
    MIMO_TRY_MPI(MPI_Op_create(max_bf16, 1, &operators->bf16_max));
    return MIMO_OK;
}

mimo_status mimo_mpi_operators_create(mimo_mpi_operators *out)
{
    *out = (mimo_mpi_operators){MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL};
    mimo_status status = create_all(out);
    if (status != MIMO_OK)
        mimo_mpi_operators_release(out);
    return status;
}

void mimo_mpi_operators_release(mimo_mpi_operators *operators)
{
    MPI_Op *all[] = {&operators->f16_sum, &operators->f16_max, &operators->bf16_sum,
                     &operators->bf16_max};
    for (int i = 0; i < 4; i++)
        if (*all[i] != MPI_OP_NULL)
            MPI_Op_free(all[i]);
}

void mimo_mpi_operators_pick(const mimo_mpi_operators *operators, mimo_dtype dtype, mimo_reduce op,
                             MPI_Datatype *type, MPI_Op *mpi_op)
{
    *mpi_op = op == MIMO_MAX ? MPI_MAX : MPI_SUM;
    switch (dtype) {
    case MIMO_F32:
        *type = MPI_FLOAT;
        return;
    case MIMO_F64:
        *type = MPI_DOUBLE;
        return;
    case MIMO_I32:
        *type = MPI_INT32_T;
        return;
    case MIMO_I64:
        *type = MPI_INT64_T;
        return;
    case MIMO_F16:
        *type = MPI_UINT16_T;
        *mpi_op = op == MIMO_MAX ? operators->f16_max : operators->f16_sum;
        return;
    case MIMO_BF16:
        *type = MPI_UINT16_T;
        *mpi_op = op == MIMO_MAX ? operators->bf16_max : operators->bf16_sum;
        return;
    case MIMO_F8: /* no caller combines it */
        break;
    }
    *type = MPI_DATATYPE_NULL;
}

/* -------------------------------- reductions in pieces -------------------------------- */

enum { ELEMENTS_PER_SUM = 1 << 28 };

#ifdef MIMO_TEST_HOOKS
static int test_elements;

void mimo_mpi_split_sums(int elements)
{
    test_elements = elements;
}
#endif

int64_t mimo_mpi_elements_per_sum(void)
{
#ifdef MIMO_TEST_HOOKS
    if (test_elements > 0)
        return test_elements;
#endif
    return ELEMENTS_PER_SUM;
}

int64_t mimo_mpi_sums(int64_t count)
{
    int64_t most = mimo_mpi_elements_per_sum();
    return (count + most - 1) / most;
}

int mimo_mpi_sum_length(int64_t count, int64_t i)
{
    int64_t most = mimo_mpi_elements_per_sum(), left = count - i * most;
    return (int)(left < most ? left : most);
}
