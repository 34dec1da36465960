/* A process that dies of a signal says where it was, and dies of that signal. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fatal_signal.h"

enum { MOST_TEXT = 4096 };

/* A child that dies of the signal in this phase: its exit status, and what it wrote to stderr. */
static int die(int number, const char *phase, char *text)
{
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t more;
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        signal(number, SIG_DFL); /* Criterion and sanitizers have handlers of their own */
        fatal_signal_watch();
        fatal_signal_phase("in %s", phase);
        raise(number);
        _exit(0);
    }
    close(ends[1]);
    while ((more = read(ends[0], text + used, MOST_TEXT - 1 - used)) > 0)
        used += (size_t)more;
    text[used] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(fatal_signal, says_where)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    char text[MOST_TEXT], words[64];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int status = die(numbers[i], "MPI_Finalize", text);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i], "status %d", status);
        snprintf(words, sizeof words, "died of signal %d at ", numbers[i]);
        cr_assert(strstr(text, words), "no '%s' in '%s'", words, text);
        cr_assert(strstr(text, " in MPI_Finalize, in its main thread:"), "'%s'", text);
        cr_assert(strstr(text, "/libc."), "no backtrace in '%s'", text);
    }
}
