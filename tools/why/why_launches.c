#include "tools/why/why_launches.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"

/* How a launcher tells a process its rank. */
typedef struct launcher {
    const char *rank, *size, *launch;
} launcher;

static const launcher launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "PMI_PORT"},
    {"RANK", "WORLD_SIZE", "MASTER_PORT"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"},
};

enum { MOST_BYTES = 1 << 18 }; /* of an environment that is read */

/* The value of a variable among NAME=VALUE texts, each of which ends with 0; NULL: none. */
static const char *value_of(const char *environment, size_t bytes, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = environment; at < environment + bytes; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

static size_t read_environment(char *environment, int32_t pid)
{
    char path[64];
    size_t used = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; fd >= 0 && got > 0 && used<MOST_BYTES; used += got> 0 ? (size_t)got : 0)
        got = read(fd, environment + used, MOST_BYTES - used);
    if (fd >= 0)
        (void)close(fd);
    environment[used] = '\0';
    return used;
}

static bool read_launch(why_launched *out, const char *environment, size_t bytes)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const char *rank = value_of(environment, bytes, launchers[i].rank);
        const char *size = value_of(environment, bytes, launchers[i].size);
        const char *launch = value_of(environment, bytes, launchers[i].launch);
        if (!rank || !size)
            continue;
        out->rank = (int)strtol(rank, NULL, 10);
        out->size = (int)strtol(size, NULL, 10);
        out->launch =
            mimo_hash_bytes(MIMO_HASH_START, launch ? launch : "", launch ? strlen(launch) : 0);
        return out->size > 1;
    }
    return false;
}

mimo_status why_launches_add(why_launches *launches, int32_t pid)
{
    char *environment;
    why_launched it = {.pid = pid};
    MIMO_TRY(mimo_reserve(&environment, MOST_BYTES + 1, 1));
    bool is_launched = read_launch(&it, environment, read_environment(environment, pid));
    mimo_release(environment);
    if (!is_launched)
        return MIMO_OK;
    MIMO_TRY(mimo_regrow(&launches->list, launches->count, (int64_t)launches->count + 1,
                         sizeof *launches->list));
    launches->list[launches->count++] = it;
    return MIMO_OK;
}

static bool has_ring(const why_rings *rings, int32_t pid)
{
    for (int i = 0; i < rings->count; i++)
        if (((const mimo_ring_head *)rings->memories[i].base)->owner.pid == pid)
            return true;
    return false;
}

/* Children inherit the environment of their rank: one process with a ring speaks for all of a rank,
 * and without one the first. */
static bool is_missing(const why_rings *rings, const why_launches *launches, int i)
{
    const why_launched *it = &launches->list[i];
    bool launch_has_ring = rings->count == 0;
    for (int j = 0; j < launches->count; j++) {
        const why_launched *other = &launches->list[j];
        if (other->launch != it->launch)
            continue;
        bool other_has = has_ring(rings, other->pid);
        launch_has_ring |= other_has;
        if (other->rank == it->rank && (other_has || j < i))
            return false;
    }
    return launch_has_ring;
}

mimo_status why_launches_missing(why_rings *rings, const why_launches *launches)
{
    MIMO_TRY(mimo_reserve(&rings->missing, launches->count, sizeof *rings->missing));
    for (int i = 0; i < launches->count; i++)
        if (is_missing(rings, launches, i))
            rings->missing[rings->missing_count++] = (why_missing){
                launches->list[i].rank, launches->list[i].size, launches->list[i].pid};
    return MIMO_OK;
}
