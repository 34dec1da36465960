#define _GNU_SOURCE /* sched_getaffinity */
#include "comm/places.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"

uint64_t mimo_host_hash(void)
{
    char name[256] = "", boot[64] = "";
    (void)gethostname(name, sizeof name - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        boot[fread(boot, 1, sizeof boot - 1, file)] = '\0';
        (void)fclose(file);
    }
    uint64_t hash = mimo_hash_bytes(MIMO_HASH_START, name, strlen(name));
    return mimo_hash_bytes(hash, boot, strlen(boot));
}

/* The largest number of processors that Linux can be built for fits. */
typedef struct processor_set {
    cpu_set_t words[8192 / CPU_SETSIZE];
} processor_set;

/* Empty where the system does not say. */
static processor_set own_processors(void)
{
    processor_set set;
    memset(&set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof set, set.words) != 0)
        memset(&set, 0, sizeof set);
    return set;
}

uint64_t mimo_place_hash(void)
{
    const processor_set set = own_processors();
    return mimo_hash_bytes(mimo_host_hash(), &set, sizeof set);
}

int mimo_processors(void)
{
    const processor_set set = own_processors();
    int count = CPU_COUNT_S(sizeof set, set.words);
    return count > 0 ? count : INT_MAX;
}
