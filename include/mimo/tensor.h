/*
 * Tensor views.
 *
 * A view borrows memory: it is a pointer, a dtype, one letter per dimension and a shape. Memory is
 * contiguous, the last dimension fastest. The letters, defined once for the whole library:
 *
 *   s  positions of a sequence (S)      b  samples (B)      h  hidden elements of one row (H)
 *   t  rows of flattened or packed sequences, sample-major (T)
 *   p  components of a position id (multi-dimensional rotary positions)
 *   k  choices of a token among experts (mimo/dispatch.h)
 *
 * A row is one token of one sample: H contiguous elements.
 *
 * Data may lie at any address where rows only move: forward, backward without a sum, partitions,
 * gathers, broadcasts. Calls that add or compare numbers need an address that is a multiple of the
 * element size: mimo_comm_allreduce and mimo_comm_reduce_scatter; backward where several ranks'
 * gradients are added; mimo_gradient_finalize and mimo_gradient_norm. They return
 * MIMO_ERR_ARGUMENT for any other address, before anything moves.
 */
#ifndef MIMO_TENSOR_H
#define MIMO_TENSOR_H

#include <stdint.h>
#include <string.h>

#include <mimo/dtype.h>

MIMO_BEGIN_DECLS

/** The most dimensions that a view can have. */
#define MIMO_TENSOR_DIMS 3

/** Where a tensor's memory lies. */
typedef enum mimo_memory {
    MIMO_MEMORY_HOST = 0,
    MIMO_MEMORY_CUDA = 1,
} mimo_memory;

/** The order of work on a device: a cudaStream_t for tensors in CUDA memory, NULL for host memory.
 *  With a stream, work is enqueued and the host does not wait; on the host a call is done when it
 *  returns. With CUDA memory NULL is a stream as well: the legacy default stream, also where the
 *  program is compiled for default streams of each thread. Other streams that were not created with
 *  cudaStreamNonBlocking wait for it, and it can't be captured. */
typedef void *mimo_stream;

typedef struct mimo_tensor {
    void *data; /* borrowed; may be NULL where the view has no elements; the address: see above */
    mimo_dtype dtype;
    mimo_memory memory;
    char letters[MIMO_TENSOR_DIMS + 1]; /* slowest first: "sbh", "bsh", "th"; terminated */
    int64_t shape[MIMO_TENSOR_DIMS];    /* elements, in the order of the letters */
} mimo_tensor;

/** A view of host memory in up to three dimensions; unused dimensions are ignored. For CUDA memory
 *  set view.memory = MIMO_MEMORY_CUDA afterwards. Nothing is checked here: every call that takes a
 *  view checks it and reports both shapes. Thread-safe. */
static inline mimo_tensor mimo_tensor_3d(void *data, mimo_dtype dtype, const char *letters,
                                         int64_t size0, int64_t size1, int64_t size2)
{
    mimo_tensor view;
    memset(&view, 0, sizeof view);
    view.data = data;
    view.dtype = dtype;
    view.memory = MIMO_MEMORY_HOST;
    for (int i = 0; i < MIMO_TENSOR_DIMS && letters[i]; i++)
        view.letters[i] = letters[i];
    view.shape[0] = size0;
    view.shape[1] = size1;
    view.shape[2] = size2;
    return view;
}

/** The same in two dimensions ("bs", "th"). */
static inline mimo_tensor mimo_tensor_2d(void *data, mimo_dtype dtype, const char *letters,
                                         int64_t size0, int64_t size1)
{
    return mimo_tensor_3d(data, dtype, letters, size0, size1, 1);
}

/** Number of dimensions: the number of letters. Thread-safe. */
MIMO_API int mimo_tensor_ndim(const mimo_tensor *tensor);

/** Size of the dimension named `letter`; -1 where the view has no such dimension. Thread-safe. */
MIMO_API int64_t mimo_tensor_size(const mimo_tensor *tensor, char letter);

/** Elements and bytes of a whole view, overflow-checked. MIMO_ERR_OVERFLOW, MIMO_ERR_SHAPE
 *  (negative size, no letters, a letter twice, letters that are not terminated), MIMO_ERR_ARGUMENT
 *  (unknown dtype). Either output may be NULL. Thread-safe. */
MIMO_API mimo_status mimo_tensor_extent(int64_t *elements, int64_t *bytes,
                                        const mimo_tensor *tensor);

/** Write "bf16 sbh[577,4,1024]" into `text` (always terminated) and return `text`. Thread-safe. */
MIMO_API char *mimo_tensor_text(char *text, size_t capacity, const mimo_tensor *tensor);

MIMO_END_DECLS

#endif
