/*
 * On a processor that OpenBLAS does not know (pretended_openblas.c) this program executes itself
 * again, once, with the same arguments and with kernels that the processor can run. It does not
 * where the user chose the kernels.
 *
 *   begins_again 'one word' two
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/device/blas_kernels.h"

enum { EXIT_SKIPPED = 77 };

static bool is(const char *value, const char *expected)
{
    bool equal = value && strcmp(value, expected) == 0;
    if (!equal)
        fprintf(stderr, "'%s', and not '%s'\n", value ? value : "nothing", expected);
    return equal;
}

static bool has_avx2(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char word[64];
    bool found = false;
    while (file && !found && fscanf(file, "%63s", word) == 1)
        found = strcmp(word, "avx2") == 0;
    if (file)
        fclose(file);
    return found;
}

/* A child in which the user chose kernels. It must not begin again: with these arguments the second
 * run would fail. */
static bool leaves_the_users_choice(char *program)
{
    char *argv[] = {program, NULL};
    int result = 1;
    pid_t child = fork();
    if (child == 0) {
        setenv("OPENBLAS_CORETYPE", "Prescott", 1);
        unsetenv("CAPTIONER_BLAS_REPLACED");
        blas_kernels_choose(argv);
        _exit(getenv("CAPTIONER_BLAS_REPLACED") ? 1 : 0);
    }
    return child > 0 && waitpid(child, &result, 0) == child && result == 0;
}

/* The program after it began again. */
static int judge(int argc, char **argv)
{
    const char *now = getenv("OPENBLAS_CORETYPE");
    bool right = argc == 3 && is(argv[1], "one word") && is(argv[2], "two");
    right = is(getenv("CAPTIONER_BLAS_REPLACED"), "Prescott") && right;
    right = now && (strcmp(now, "SkylakeX") == 0 || is(now, "Haswell")) && right;
    right = right && leaves_the_users_choice(argv[0]);
    blas_kernels_print(stdout);
    return right ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (!has_avx2()) {
        fprintf(stderr, "skipped: this processor has no better kernels than the oldest\n");
        return EXIT_SKIPPED;
    }
    bool first = !getenv("CAPTIONER_BLAS_REPLACED");
    if (first)
        unsetenv("OPENBLAS_CORETYPE");
    blas_kernels_choose(argv);
    if (first)
        fprintf(stderr, "the program did not begin again\n");
    return first ? 1 : judge(argc, argv);
}
