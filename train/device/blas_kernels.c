#include "train/device/blas_kernels.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cblas.h>

/* Set for the program that is executed again: what OpenBLAS had chosen. */
static const char replaced[] = "CAPTIONER_BLAS_REPLACED";

/* What OpenBLAS takes for processors of Intel and of AMD that it does not know. */
static const char *const fallbacks[] = {"Prescott", "Barcelona"};

/* The best first. Each needs all that its compiler was allowed to use. */
static const struct {
    const char *name, *needs;
} kernels[] = {
    {"SkylakeX", "avx avx2 fma bmi1 bmi2 abm movbe f16c "
                 "avx512f avx512cd avx512bw avx512dq avx512vl"},
    {"Haswell", "avx avx2 fma bmi1 bmi2 abm movbe f16c"},
};

static bool is_among(const char *words, const char *word, size_t length)
{
    for (const char *at = words + strspn(words, " \t\n"); *at; at += strspn(at, " \t\n")) {
        size_t here = strcspn(at, " \t\n");
        if (here == length && strncmp(at, word, length) == 0)
            return true;
        at += here;
    }
    return false;
}

static bool has_all(const char *flags, const char *needs)
{
    for (const char *at = needs; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (!is_among(flags, at, length))
            return false;
        at += length;
    }
    return true;
}

static bool is_fallback(const char *chosen)
{
    for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks; i++)
        if (strcmp(chosen, fallbacks[i]) == 0)
            return true;
    return false;
}

const char *blas_kernels_better(const char *chosen, const char *flags)
{
    if (!is_fallback(chosen))
        return NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (has_all(flags, kernels[i].needs))
            return kernels[i].name;
    return NULL;
}

/* The first line of "flags" in /proc/cpuinfo; the caller frees it. NULL where there is none. */
static char *read_flags(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    while (file && !found && getline(&line, &room, file) >= 0)
        found = strncmp(line, "flags", strlen("flags")) == 0;
    if (file)
        fclose(file);
    if (!found)
        free(line);
    return found ? line : NULL;
}

/* By its path, as /proc/self/exe itself would name the process "exe". Returns where that failed. */
static void begin_again(char **argv)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    execv(path, argv);
}

void blas_kernels_choose(char **argv)
{
    if (getenv("OPENBLAS_CORETYPE"))
        return;
    const char *chosen = openblas_get_corename();
    char *flags = read_flags();
    const char *better = flags ? blas_kernels_better(chosen, flags) : NULL;
    free(flags);
    if (!better || setenv(replaced, chosen, 1) != 0 || setenv("OPENBLAS_CORETYPE", better, 1) != 0)
        return;
    begin_again(argv); /* where that fails the program goes on, with slow kernels */
}

void blas_kernels_print(FILE *stream)
{
    const char *old = getenv(replaced);
    fprintf(stream, "BLAS kernels: %s", openblas_get_corename());
    if (old)
        fprintf(stream, ", as OpenBLAS took this processor for a %s", old);
    else if (getenv("OPENBLAS_CORETYPE"))
        fprintf(stream, ", with OPENBLAS_CORETYPE=%s", getenv("OPENBLAS_CORETYPE"));
    fputc('\n', stream);
}
