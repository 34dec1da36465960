#ifndef MIMO_TESTS_IDLE_THREADS_H
#define MIMO_TESTS_IDLE_THREADS_H

/* Wait until no other thread of this process has work to do, for at most some seconds. */
void idle_threads_wait(void);

#endif
