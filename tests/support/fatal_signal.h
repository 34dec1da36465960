/* The last words of a process that dies of a signal: where it was, and a backtrace. So a crash that
 * happens once in thousands of launches, in MPI_Finalize or in a thread of MPI's, is no riddle. */
#ifndef MIMO_TESTS_FATAL_SIGNAL_H
#define MIMO_TESTS_FATAL_SIGNAL_H

/* From now on a fatal signal writes them to stderr. The process still dies of the signal, and
 * leaves a core where that is allowed. A handler that is there already stays, such as a
 * sanitizer's. */
void fatal_signal_watch(void);

/* Where the process is now: "in MPI_Init". */
void fatal_signal_phase(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
