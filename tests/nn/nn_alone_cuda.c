/* Tensors of tests on one rank in CUDA memory. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "nn_alone.h"
#include "test_memory.h"

mimo_memory test_memory(void)
{
    return MIMO_MEMORY_CUDA;
}

mimo_stream test_stream(void)
{
    static cudaStream_t stream;
    if (!stream && cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        fprintf(stderr, "no stream: %s\n", cudaGetErrorString(cudaGetLastError()));
        abort();
    }
    return stream;
}

/* Tests run in children of this process, so this process must not have used the device. A child of
 * its own looks for the device. */
const char *nn_alone_lacks(void)
{
    pid_t child = fork();
    int result = 1;
    if (child == 0) {
        int devices = 0;
        _exit(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 ? 0 : 1);
    }
    if (child > 0 && waitpid(child, &result, 0) == child && result == 0)
        return NULL;
    return "a GPU";
}
