/*
 * Where layers compute: a kind of memory, a stream, a precision. The caller makes a runtime.
 * Stores, sequences and losses borrow it, so it is released after them. On the host, NULL stands
 * for a runtime of full precision.
 *
 * With a stream, forward, backward and the optimizer only enqueue. The host does not wait, and
 * after the first call of a shape nothing is allocated. So a graph can capture them (tests/gpu
 * does). Experts in the fast order are an exception: they wait for their route (nn_dispatch.h). A
 * function that reads results back says that it waits. Ids and labels come from pageable host
 * memory. A large copy of them may wait for earlier work of the stream, and belongs outside a
 * graph.
 */
#ifndef MIMO_NN_NN_RUNTIME_H
#define MIMO_NN_NN_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include <mimo/tensor.h>

#include "train/nn/ops/nn_order.h"

MIMO_BEGIN_DECLS

/* How matrices are multiplied. */
typedef enum nn_precision {
    NN_PRECISION_FULL = 0, /* in nn_real; never TF32 */
    NN_PRECISION_BF16 = 1, /* factors in bf16, sums in f32; only where nn_real is float */
} nn_precision;

typedef struct nn_runtime_desc {
    mimo_memory memory;
    mimo_stream stream; /* borrowed: a cudaStream_t of the current device; NULL on the host */
    nn_precision precision;
    nn_order order; /* of additions */
    /* Multiprocessors that products are not cut for, because something else has them; for a device.
     * Another number may give other bits, except in the fixed order. */
    int spared;
} nn_runtime_desc;

typedef struct nn_runtime {
    mimo_memory memory;
    mimo_stream stream;
    nn_precision precision;
    nn_order order;
    int spared;
    const struct nn_ops *ops;
    const struct mimo_device *device;
    void *context;                  /* of the operations: nn_ops.open makes it */
    struct nn_workspace *workspace; /* of the exchanges in the fixed order; NULL in the fast one */
} nn_runtime;

/** Local. Errors: MIMO_ERR_UNSUPPORTED (this build lacks the kind of memory; bf16 in an f64 build),
 *  MIMO_ERR_MEMORY. Release accepts a zeroed struct, and leaves the struct zeroed. */
mimo_status nn_runtime_init(nn_runtime *runtime, const nn_runtime_desc *desc);
void nn_runtime_release(nn_runtime *runtime);

/** Memory of `bytes` at least, for one use at a time: the next call may give the same. The first
 *  call of a size allocates and may block. Only in the fixed order. Errors: MIMO_ERR_MEMORY. */
mimo_status nn_runtime_workspace(const nn_runtime *runtime, void *out, int64_t bytes);

/** The runtime itself; for NULL, the host's. */
const nn_runtime *nn_runtime_or_host(const nn_runtime *runtime);

/* Memory of the runtime; `runtime` NULL means the host.
 *   reserve  sets *out to zeroed memory for `count` elements of `size` bytes. `out` points to a
 *            pointer of any type. It may block.
 *   free     accepts NULL. It may block.
 *   write    copies from host memory, which may be reused on return.
 *   read     copies to host memory. It waits for everything enqueued before.
 *   copy     copies within the runtime's memory. */
mimo_status nn_runtime_reserve(const nn_runtime *runtime, void *out, int64_t count, size_t size);
void nn_runtime_free(const nn_runtime *runtime, void *room);
mimo_status nn_runtime_zero(const nn_runtime *runtime, void *to, int64_t bytes);
mimo_status nn_runtime_write(const nn_runtime *runtime, void *to, const void *from, int64_t bytes);
mimo_status nn_runtime_read(const nn_runtime *runtime, void *to, const void *from, int64_t bytes);
mimo_status nn_runtime_copy(const nn_runtime *runtime, void *to, const void *from, int64_t bytes);

MIMO_END_DECLS

#endif
