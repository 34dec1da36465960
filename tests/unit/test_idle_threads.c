/* The wait ends when the other threads have. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "idle_threads.h"

static bool done;

static void *compute(void *argument)
{
    enum { HUNDREDTH = 10000000 };
    struct timespec used = {0, 0};
    (void)argument;
    while (used.tv_sec == 0 && used.tv_nsec < HUNDREDTH)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    __atomic_store_n(&done, true, __ATOMIC_RELEASE);
    return NULL;
}

Test(idle_threads, wait_for_one_that_computes)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, compute, NULL), 0);
    idle_threads_wait();
    cr_assert(__atomic_load_n(&done, __ATOMIC_ACQUIRE), "the other thread has still to compute");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    idle_threads_wait();
}
