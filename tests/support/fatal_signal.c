#include "fatal_signal.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { DEEPEST = 64 };
static char phase[256];

/* It may hang where the process died inside of malloc. Launches have a time limit for that. */
static void write_last_words(int number)
{
    void *frames[DEEPEST];
    dprintf(STDERR_FILENO, "process %d died of signal %d %s; the thread that died:\n",
            (int)getpid(), number, phase);
    backtrace_symbols_fd(frames, backtrace(frames, DEEPEST), STDERR_FILENO);
    raise(number); /* once more, with the default action */
}

void fatal_signal_watch(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    const struct sigaction last_words = {.sa_handler = write_last_words,
                                         .sa_flags = (int)SA_RESETHAND};
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
