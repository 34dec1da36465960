/* Which OpenBLAS kernels are chosen on which processor. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "train/device/blas_kernels.h"

static const char *const haswell[] = {"avx", "avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "f16c"};
static const char *const skylake[] = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"};
enum { HASWELL = sizeof haswell / sizeof *haswell, SKYLAKE = sizeof skylake / sizeof *skylake };

/* A line as in /proc/cpuinfo. The flags of both lists are numbered together, and flag number
 * `without` is left out. */
static void write_flags(char *line, size_t room, int count, int without)
{
    size_t used = (size_t)snprintf(line, room, "flags\t\t: fpu sse2 avx512vbmi avx2x xfma");
    for (int i = 0; i < count; i++)
        if (i != without)
            used += (size_t)snprintf(line + used, room - used, " %s",
                                     i < HASWELL ? haswell[i] : skylake[i - HASWELL]);
    snprintf(line + used, room - used, "\n");
}

static const char *better_without(int count, int without)
{
    static char line[512];
    write_flags(line, sizeof line, count, without);
    return blas_kernels_better("Prescott", line);
}

Test(captioner_kernels, best_that_the_processor_has)
{
    cr_assert_str_eq(better_without(HASWELL + SKYLAKE, -1), "SkylakeX");
    cr_assert_str_eq(better_without(HASWELL, -1), "Haswell");
    cr_assert_null(better_without(0, -1));
}

/* A kernel that uses a missing instruction would end the program. */
Test(captioner_kernels, none_where_one_flag_is_missing)
{
    for (int i = 0; i < HASWELL; i++)
        cr_assert_null(better_without(HASWELL + SKYLAKE, i), "without %s", haswell[i]);
    for (int i = 0; i < SKYLAKE; i++)
        cr_assert_str_eq(better_without(HASWELL + SKYLAKE, HASWELL + i), "Haswell", "without %s",
                         skylake[i]);
}

Test(captioner_kernels, only_a_fallback_is_replaced)
{
    char line[512];
    write_flags(line, sizeof line, HASWELL + SKYLAKE, -1);
    const char *const known[] = {"Haswell", "SkylakeX", "Cooperlake", "Zen", "Nehalem",
                                 "unknown", ""};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        cr_assert_null(blas_kernels_better(known[i], line), "%s", known[i]);
    cr_assert_str_eq(blas_kernels_better("Barcelona", line), "SkylakeX");
}
