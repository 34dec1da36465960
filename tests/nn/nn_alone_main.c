/* main() of the tests of the layers on one rank: skips visibly (exit status 77) where this machine
 * lacks what they need. */
#include <stdio.h>

#include "train/device/blas_kernels.h"
#include "nn_alone.h"
#include "skip_unless.h"

int main(int argc, char **argv)
{
    blas_kernels_choose(argv);
    const char *lacks = nn_alone_lacks();
    if (lacks) {
        fprintf(stderr, "skipped: this machine lacks %s\n", lacks);
        return 77;
    }
    return run_tests(argc, argv);
}
