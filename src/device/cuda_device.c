/* The device table for CUDA memory. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>

#include "core/dtype_kind.h"
#include "device/cuda_calls.h"
#include "device/cuda_kernels.h"

mimo_status mimo_cuda_status(cudaError_t code, const char *call)
{
    int name = (int)strcspn(call, "(");
    if (code == cudaSuccess)
        return MIMO_OK;
    (void)cudaGetLastError(); /* the next launch would report it again */
    return mimo_fail(code == cudaErrorMemoryAllocation ? MIMO_ERR_MEMORY : MIMO_ERR_DEVICE,
                     "%.*s: %s", name, call, cudaGetErrorString(code));
}

static int cuda_current(void)
{
    int number;
    if (cudaGetDevice(&number) == cudaSuccess)
        return number;
    (void)cudaGetLastError();
    return -1;
}

/* Whether the process uses a device. Only the driver says so; CUDA's runtime has loaded it. */
static bool has_context(int number)
{
    int (*get_state)(int device, unsigned *flags, int *active);
    unsigned flags;
    int active = 1;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = driver ? dlsym(driver, "cuDevicePrimaryCtxGetState") : NULL;
    memcpy(&get_state, &found, sizeof found);
    if (found && get_state(number, &flags, &active) != 0)
        active = 1;
    if (driver)
        (void)dlclose(driver);
    return active != 0;
}

/* cudaSetDevice would make a context where there is none, which takes hundreds of megabytes of that
 * device. Where it fails, CUDA's next calls say so. */
static void cuda_set_current(int number)
{
    if (has_context(number) && cudaSetDevice(number) != cudaSuccess)
        (void)cudaGetLastError();
}

static mimo_status memory_status(cudaError_t code, int64_t bytes, const char *call)
{
    mimo_status status = mimo_cuda_status(code, call);
    if (code == cudaErrorMemoryAllocation)
        return mimo_fail(MIMO_ERR_MEMORY, "out of device memory allocating %" PRId64 " bytes",
                         bytes);
    return status;
}

static size_t at_least_one(int64_t bytes)
{
    return bytes > 0 ? (size_t)bytes : 1;
}

/* While this thread captures a stream, CUDA refuses cudaMalloc, which could wait for the stream.
 * Here nothing depends on that. */
static mimo_status cuda_reserve(void **out, int64_t bytes)
{
    void *made;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    MIMO_TRY_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t code = cudaMalloc(&made, at_least_one(bytes));
    MIMO_TRY_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    MIMO_TRY(memory_status(code, bytes, "cudaMalloc"));
    *out = made;
    return MIMO_OK;
}

/* cudaFree waits for the device, which is what the table promises. */
static void cuda_release(void *memory)
{
    (void)cudaFree(memory);
}

static mimo_status cuda_reserve_on(void **out, int64_t bytes, mimo_stream stream)
{
    void *made;
    MIMO_TRY(memory_status(cudaMallocAsync(&made, at_least_one(bytes), stream), bytes,
                           "cudaMallocAsync"));
    *out = made;
    return MIMO_OK;
}

static void cuda_release_on(void *memory, mimo_stream stream)
{
    if (memory)
        (void)cudaFreeAsync(memory, stream);
}

/* cudaFree does not wait for what uses memory of cudaMallocAsync. */
static void cuda_release_last(void *memory)
{
    struct cudaPointerAttributes attributes;
    int before = cuda_current();
    if (!memory)
        return;
    bool elsewhere = before >= 0 && cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
                     attributes.device != before;
    if (elsewhere)
        cuda_set_current(attributes.device);
    (void)cudaDeviceSynchronize();
    (void)cudaFree(memory);
    if (elsewhere)
        cuda_set_current(before);
}

static mimo_status cuda_copy(void *to, const void *from, int64_t bytes, mimo_stream stream)
{
    if (bytes > 0)
        MIMO_TRY_CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
    return MIMO_OK;
}

/* CUDA stages bytes from pageable memory before the call returns, so `from` may be reused. */
static mimo_status cuda_upload(void *to, const void *from, int64_t bytes, mimo_stream stream)
{
    if (bytes > 0)
        MIMO_TRY_CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, stream));
    return MIMO_OK;
}

static mimo_status cuda_download(void *to, const void *from, int64_t bytes, mimo_stream stream)
{
    if (bytes > 0)
        MIMO_TRY_CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToHost, stream));
    MIMO_TRY_CUDA(cudaStreamSynchronize(stream));
    return MIMO_OK;
}

/* `count` stretches of `bytes` bytes, `step` bytes apart. */
static mimo_status zero_stretches(char *at, int64_t step, int64_t bytes, int64_t count,
                                  mimo_stream stream)
{
    if (count == 1 || step == bytes) {
        MIMO_TRY_CUDA(cudaMemsetAsync(at, 0, (size_t)(bytes * count), stream));
        return MIMO_OK;
    }
    if (step <= INT32_MAX) { /* the largest pitch */
        MIMO_TRY_CUDA(cudaMemset2DAsync(at, (size_t)step, 0, (size_t)bytes, (size_t)count, stream));
        return MIMO_OK;
    }
    for (int64_t i = 0; i < count; i++)
        MIMO_TRY_CUDA(cudaMemsetAsync(at + i * step, 0, (size_t)bytes, stream));
    return MIMO_OK;
}

static mimo_status cuda_zero_rows(const mimo_rows *to, mimo_stream stream)
{
    int64_t bytes = to->row_bytes;
    char *at = (char *)to->base + to->first * bytes;
    if (bytes == 0 || to->n_inner == 0 || to->n_outer == 0)
        return MIMO_OK;
    if (to->inner == 1 || to->n_inner == 1)
        return zero_stretches(at, to->outer * bytes, bytes * to->n_inner, to->n_outer, stream);
    for (int64_t i = 0; i < to->n_outer; i++)
        MIMO_TRY(zero_stretches(at + i * to->outer * bytes, to->inner * bytes, bytes, to->n_inner,
                                stream));
    return MIMO_OK;
}

static mimo_status cuda_copy_rows(const mimo_rows *to, const mimo_rows *from, mimo_stream stream)
{
    MIMO_TRY_CUDA(mimo_cuda_copy_rows(to, from, stream));
    return MIMO_OK;
}

static mimo_status cuda_copy_list(const mimo_row_copy *list, int64_t count, mimo_stream stream)
{
    MIMO_TRY_CUDA(mimo_cuda_copy_list(list, count, stream));
    return MIMO_OK;
}

static mimo_status cuda_fill_rows(const mimo_rows *to, const mimo_rows *from,
                                  const mimo_stretches *stretches, mimo_stream stream)
{
    MIMO_TRY_CUDA(mimo_cuda_fill_rows(to, from, stretches, stream));
    return MIMO_OK;
}

static mimo_status cuda_gather_rows(void *to, const void *from, const mimo_row_map *map,
                                    mimo_stream stream)
{
    MIMO_TRY_CUDA(mimo_cuda_gather_rows(to, from, map, stream));
    return MIMO_OK;
}

static mimo_status cuda_finished(bool *out, mimo_stream stream)
{
    cudaError_t code = cudaStreamQuery(stream);
    *out = code == cudaSuccess;
    return code == cudaErrorNotReady ? MIMO_OK : mimo_cuda_status(code, "cudaStreamQuery");
}

static mimo_status cuda_event_create(mimo_event **out)
{
    cudaEvent_t event;
    MIMO_TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *out = (mimo_event *)event;
    return MIMO_OK;
}

static void cuda_event_destroy(mimo_event *event)
{
    if (event)
        (void)cudaEventDestroy((cudaEvent_t)event);
}

static mimo_status cuda_event_record(mimo_event *event, mimo_stream stream)
{
    MIMO_TRY_CUDA(cudaEventRecord((cudaEvent_t)event, stream));
    return MIMO_OK;
}

static mimo_status cuda_event_wait(mimo_event *event, mimo_stream stream)
{
    MIMO_TRY_CUDA(cudaStreamWaitEvent(stream, (cudaEvent_t)event, 0));
    return MIMO_OK;
}

static mimo_status cuda_scatter_rows(void *to, const void *from, const mimo_row_map *map,
                                     mimo_stream stream)
{
    MIMO_TRY_CUDA(mimo_cuda_scatter_rows(to, from, map, stream));
    return MIMO_OK;
}

static mimo_status check_float(mimo_dtype dtype)
{
    mimo_dtype_kind kind = mimo_dtype_kind_of(dtype);
    MIMO_CHECK(kind == MIMO_DTYPE_FLOAT || kind == MIMO_DTYPE_HALF, MIMO_ERR_UNSUPPORTED,
               "dtype %s is not a float that can be scaled", mimo_dtype_name(dtype));
    return MIMO_OK;
}

static mimo_status cuda_scale(void *data, int64_t count, mimo_dtype dtype, double factor,
                              mimo_stream stream)
{
    MIMO_TRY(check_float(dtype));
    if (count > 0)
        MIMO_TRY_CUDA(mimo_cuda_scale(data, count, dtype, factor, stream));
    return MIMO_OK;
}

static mimo_status cuda_accumulate(const mimo_addends *addends, mimo_stream stream)
{
    if (addends->stretches > 0 && addends->count > 0 && addends->n > 0)
        MIMO_TRY_CUDA(mimo_cuda_accumulate(addends, stream));
    return MIMO_OK;
}

static mimo_status cuda_add_rows(const mimo_row_sums *sums, mimo_stream stream)
{
    if (sums->count > 0 && sums->width > 0)
        MIMO_TRY_CUDA(mimo_cuda_add_rows(sums, stream));
    return MIMO_OK;
}

static mimo_status cuda_repeat_rows(const mimo_row_repeats *repeats, mimo_stream stream)
{
    if (repeats->count > 0 && repeats->row_bytes > 0)
        MIMO_TRY_CUDA(mimo_cuda_repeat_rows(repeats, stream));
    return MIMO_OK;
}

static mimo_status cuda_sum_squares(double *out, const void *data, int64_t count, mimo_dtype dtype,
                                    mimo_stream stream)
{
    void *partials;
    double sum = 0;
    MIMO_TRY(check_float(dtype));
    if (count == 0) {
        *out = 0;
        return MIMO_OK;
    }
    MIMO_TRY_CUDA(cudaMallocAsync(&partials, MIMO_CUDA_PARTIALS * sizeof(double), stream));
    mimo_status status = mimo_cuda_status(
        mimo_cuda_sum_squares(partials, data, count, dtype, stream), "mimo_cuda_sum_squares");
    if (status == MIMO_OK)
        status = cuda_download(&sum, partials, sizeof sum, stream);
    MIMO_KEEP_FIRST(status, mimo_cuda_status(cudaFreeAsync(partials, stream), "cudaFreeAsync"));
    if (status == MIMO_OK)
        *out = sum;
    return status;
}

static bool cuda_records(mimo_stream stream)
{
    enum cudaStreamCaptureStatus capture;
    if (cudaStreamIsCapturing(stream, &capture) == cudaSuccess)
        return capture != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError(); /* a legacy stream while another one captures */
    return false;
}

const mimo_device mimo_device_cuda = {
    .name = "cuda",
    .enqueues = true,
    .current = cuda_current,
    .set_current = cuda_set_current,
    .records = cuda_records,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .reserve_on = cuda_reserve_on,
    .release_on = cuda_release_on,
    .release_last = cuda_release_last,
    .copy = cuda_copy,
    .upload = cuda_upload,
    .download = cuda_download,
    .finished = cuda_finished,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .zero_rows = cuda_zero_rows,
    .copy_rows = cuda_copy_rows,
    .copy_list = cuda_copy_list,
    .fill_rows = cuda_fill_rows,
    .gather_rows = cuda_gather_rows,
    .scatter_rows = cuda_scatter_rows,
    .scale = cuda_scale,
    .accumulate = cuda_accumulate,
    .add_rows = cuda_add_rows,
    .repeat_rows = cuda_repeat_rows,
    .sum_squares = cuda_sum_squares,
};
