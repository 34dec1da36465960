#include "core/forks.h"

#include <pthread.h>
#include <stdbool.h>

#include "core/check.h"

/* What a fork changes is the process, so this is the library's only state of the process. */
static unsigned forks;
static bool counted;

static void in_child(void)
{
    __atomic_fetch_add(&forks, 1, __ATOMIC_RELAXED);
}

static void start(void)
{
    counted = pthread_atfork(NULL, NULL, in_child) == 0;
}

mimo_status mimo_forks_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    MIMO_CHECK(counted, MIMO_ERR_MEMORY, "out of memory to watch for forks of the process");
    return MIMO_OK;
}

unsigned mimo_forks(void)
{
    return __atomic_load_n(&forks, __ATOMIC_RELAXED);
}
