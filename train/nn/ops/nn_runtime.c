#include "train/nn/ops/nn_runtime.h"

#include <string.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "device/device.h"
#include "train/nn/ops/nn_ops.h"

struct nn_workspace {
    void *memory;
    int64_t bytes;
};

static const nn_runtime host_runtime = {
    .memory = MIMO_MEMORY_HOST,
    .ops = &nn_ops_host,
    .device = &mimo_device_host,
};

const nn_runtime *nn_runtime_or_host(const nn_runtime *runtime)
{
    return runtime ? runtime : &host_runtime;
}

static mimo_status choose_tables(nn_runtime *made)
{
    MIMO_TRY(mimo_device_for(&made->device, made->memory));
    switch (made->memory) {
    case MIMO_MEMORY_HOST:
        made->ops = &nn_ops_host;
        return MIMO_OK;
#ifdef NN_WITH_CUDA
    case MIMO_MEMORY_CUDA:
        made->ops = &nn_ops_cuda;
        return MIMO_OK;
#endif
    default:
        return mimo_fail(MIMO_ERR_UNSUPPORTED,
                         "runtime: this build has no layers for tensors in %s",
                         mimo_memory_text(made->memory));
    }
}

static mimo_status check_order(const nn_runtime_desc *desc)
{
    MIMO_CHECK((unsigned)desc->order <= NN_ORDER_FIXED, MIMO_ERR_ARGUMENT,
               "runtime: unknown order of additions %d", (int)desc->order);
    if (desc->order == NN_ORDER_FAST)
        return MIMO_OK;
    MIMO_CHECK(NN_DTYPE == MIMO_F32, MIMO_ERR_UNSUPPORTED,
               "runtime: the fixed order of additions is for layers in f32, these are in %s",
               mimo_dtype_name(NN_DTYPE));
    MIMO_CHECK(desc->precision == NN_PRECISION_FULL, MIMO_ERR_UNSUPPORTED,
               "runtime: the fixed order of additions needs products of full precision");
    return MIMO_OK;
}

mimo_status nn_runtime_init(nn_runtime *runtime, const nn_runtime_desc *desc)
{
    MIMO_CHECK(runtime && desc, MIMO_ERR_ARGUMENT, "runtime: NULL struct or descriptor");
    MIMO_CHECK((unsigned)desc->precision <= NN_PRECISION_BF16, MIMO_ERR_ARGUMENT,
               "runtime: unknown precision %d", (int)desc->precision);
    MIMO_CHECK(desc->precision == NN_PRECISION_FULL || NN_DTYPE == MIMO_F32, MIMO_ERR_UNSUPPORTED,
               "runtime: products in bf16 need layers in f32, these are in %s",
               mimo_dtype_name(NN_DTYPE));
    MIMO_TRY(check_order(desc));
    nn_runtime made = {.memory = desc->memory,
                       .stream = desc->stream,
                       .precision = desc->precision,
                       .order = desc->order,
                       .spared = desc->spared};
    MIMO_TRY(choose_tables(&made));
    mimo_status status = MIMO_OK;
    if (made.order == NN_ORDER_FIXED)
        status = mimo_reserve(&made.workspace, 1, sizeof *made.workspace);
    if (status == MIMO_OK)
        status = made.ops->open(&made);
    if (status != MIMO_OK) {
        nn_runtime_release(&made);
        return status;
    }
    *runtime = made;
    return MIMO_OK;
}

void nn_runtime_release(nn_runtime *runtime)
{
    if (runtime->ops)
        runtime->ops->close(runtime);
    if (runtime->workspace)
        nn_runtime_free(runtime, runtime->workspace->memory);
    mimo_release(runtime->workspace);
    memset(runtime, 0, sizeof *runtime);
}

mimo_status nn_runtime_workspace(const nn_runtime *runtime, void *out, int64_t bytes)
{
    struct nn_workspace *workspace = runtime->workspace;
    if (bytes > workspace->bytes) {
        void *grown;
        MIMO_TRY(nn_runtime_reserve(runtime, &grown, bytes, 1));
        nn_runtime_free(runtime, workspace->memory);
        workspace->memory = grown;
        workspace->bytes = bytes;
    }
    memcpy(out, &workspace->memory, sizeof workspace->memory);
    return MIMO_OK;
}

mimo_status nn_runtime_reserve(const nn_runtime *runtime, void *out, int64_t count, size_t size)
{
    const nn_runtime *where = nn_runtime_or_host(runtime);
    int64_t bytes;
    void *room;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)size));
    MIMO_TRY(where->device->reserve(&room, bytes));
    mimo_status status = nn_runtime_zero(where, room, bytes);
    if (status != MIMO_OK) {
        where->device->release(room);
        return status;
    }
    memcpy(out, &room, sizeof room);
    return MIMO_OK;
}

void nn_runtime_free(const nn_runtime *runtime, void *room)
{
    nn_runtime_or_host(runtime)->device->release(room);
}

mimo_status nn_runtime_zero(const nn_runtime *runtime, void *to, int64_t bytes)
{
    const nn_runtime *where = nn_runtime_or_host(runtime);
    mimo_rows whole = {.base = to, .row_bytes = bytes, .n_outer = 1, .n_inner = 1};
    return where->device->zero_rows(&whole, where->stream);
}

mimo_status nn_runtime_write(const nn_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    const nn_runtime *where = nn_runtime_or_host(runtime);
    return where->device->upload(to, from, bytes, where->stream);
}

mimo_status nn_runtime_read(const nn_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    const nn_runtime *where = nn_runtime_or_host(runtime);
    return where->device->download(to, from, bytes, where->stream);
}

mimo_status nn_runtime_copy(const nn_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    const nn_runtime *where = nn_runtime_or_host(runtime);
    return where->device->copy(to, from, bytes, where->stream);
}
