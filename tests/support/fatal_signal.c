#include "fatal_signal.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEEPEST = 64 };
static char phase[256];

/* The first line stands alone where the process ran code that is not mapped: no backtrace begins
 * there. Where it died inside of malloc this may hang. Launches have a time limit for that. */
static void write_last_words(int number, siginfo_t *info, void *context)
{
    void *frames[DEEPEST];
    bool main_thread = syscall(SYS_gettid) == getpid();
    (void)context;
    dprintf(STDERR_FILENO, "process %d died of signal %d at %p %s, in %s:\n", (int)getpid(), number,
            info->si_addr, phase, main_thread ? "its main thread" : "another of its threads");
    backtrace_symbols_fd(frames, backtrace(frames, DEEPEST), STDERR_FILENO);
    raise(number); /* once more, with the default action */
}

void fatal_signal_watch(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    const struct sigaction last_words = {.sa_sigaction = write_last_words,
                                         .sa_flags = (int)SA_RESETHAND | SA_SIGINFO};
    void *frame;
    backtrace(&frame, 1); /* The first call loads a library, which a handler must not do. */
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before;
        sigaction(numbers[i], NULL, &before);
        if (before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &last_words, NULL);
    }
}

void fatal_signal_phase(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(phase, sizeof phase, format, arguments);
    va_end(arguments);
}
