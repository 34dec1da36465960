#include "tools/why/why_rings.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/memory.h"
#include "tools/why/why_launches.h"

/* ------------------------------------- a ring ------------------------------------- */

static const mimo_ring_head *head_of(const mimo_ring_memory *memory)
{
    return (const mimo_ring_head *)memory->base;
}

static bool is_known(const why_rings *rings, const mimo_ring_memory *memory)
{
    for (int i = 0; i < rings->count; i++)
        if (head_of(&rings->memories[i])->owner.nonce == head_of(memory)->owner.nonce)
            return true;
    return false;
}

/* Takes the memory over. What is no ring, and what was found before, is passed over. */
static mimo_status add_ring(why_rings *rings, mimo_ring_memory *memory)
{
    mimo_ring_sample *sample = NULL;
    bool is_ring = mimo_ring_sample_take(&sample, memory, &rings->self) == MIMO_OK;
    mimo_ring_sample_release(sample);
    if (!is_ring || is_known(rings, memory)) {
        mimo_ring_memory_release(memory);
        return MIMO_OK;
    }
    mimo_ring_memory_close(memory); /* it stays mapped */
    mimo_status status = mimo_regrow(&rings->memories, rings->count, (int64_t)rings->count + 1,
                                     sizeof *rings->memories);
    if (status != MIMO_OK) {
        mimo_ring_memory_release(memory);
        return status;
    }
    rings->memories[rings->count++] = *memory;
    return MIMO_OK;
}

/* ------------------------------------ processes ----------------------------------- */

/* Whether a link of /proc/PID/fd leads to what may be a ring. */
static bool leads_to_ring(const char *path)
{
    static const char memfd[] = "/memfd:" MIMO_RING_FILE_NAME, file[] = ".ring";
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    return strncmp(target, memfd, sizeof memfd - 1) == 0 || strstr(target, file);
}

/* All rings that a process has open: its own, and those of some other ranks. */
static mimo_status find_in_process(why_rings *rings, int32_t pid, bool *found)
{
    char path[PATH_MAX];
    mimo_status status = MIMO_OK;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    *found = folder != NULL;
    if (!folder)
        return MIMO_OK;
    for (struct dirent *it; status == MIMO_OK && (it = readdir(folder));) {
        mimo_ring_memory memory;
        int32_t fd = (int32_t)strtol(it->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)fd);
        if (it->d_name[0] != '.' && leads_to_ring(path) &&
            mimo_ring_memory_map(&memory, pid, fd) == MIMO_OK)
            status = add_ring(rings, &memory);
    }
    (void)closedir(folder);
    return status;
}

static bool is_mine(int32_t pid)
{
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &about) == 0 && about.st_uid == geteuid();
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

static mimo_status find_everywhere(why_rings *rings, why_launches *launches)
{
    mimo_status status = MIMO_OK;
    DIR *folder = opendir("/proc");
    MIMO_CHECK(folder, MIMO_ERR_IO, "/proc: %s", strerror(errno));
    for (struct dirent *it; status == MIMO_OK && (it = readdir(folder));) {
        bool found;
        int32_t pid = is_number(it->d_name) ? (int32_t)strtol(it->d_name, NULL, 10) : 0;
        if (pid == 0 || pid == rings->self.pid || !is_mine(pid))
            continue;
        status = find_in_process(rings, pid, &found);
        if (status == MIMO_OK)
            status = why_launches_add(launches, pid);
    }
    (void)closedir(folder);
    return status;
}

/* ------------------------------------- places ------------------------------------- */

static mimo_status find_in_folder(why_rings *rings, const char *place)
{
    char path[PATH_MAX];
    mimo_status status = MIMO_OK;
    DIR *folder = opendir(place);
    MIMO_CHECK(folder, MIMO_ERR_IO, "%s: %s", place, strerror(errno));
    for (struct dirent *it; status == MIMO_OK && (it = readdir(folder));) {
        mimo_ring_memory memory;
        size_t length = strlen(it->d_name);
        if (length < 5 || strcmp(it->d_name + length - 5, ".ring") != 0)
            continue;
        int wanted = snprintf(path, sizeof path, "%s/%s", place, it->d_name);
        if (wanted < (int)sizeof path && mimo_ring_memory_map_file(&memory, path) == MIMO_OK)
            status = add_ring(rings, &memory);
    }
    (void)closedir(folder);
    return status;
}

static mimo_status find_at(why_rings *rings, why_launches *launches, const char *place, bool again)
{
    bool found;
    if (!is_number(place))
        return find_in_folder(rings, place);
    MIMO_TRY(find_in_process(rings, (int32_t)strtol(place, NULL, 10), &found));
    if (!found && again)
        return MIMO_OK;
    MIMO_CHECK(found, MIMO_ERR_IO, "process %s: it has ended, or is not this user's", place);
    return why_launches_add(launches, (int32_t)strtol(place, NULL, 10));
}

mimo_status why_rings_find(why_rings *out, const char *const *places, int place_count, bool again)
{
    why_launches launches = {NULL, 0};
    mimo_status status = MIMO_OK;
    memset(out, 0, sizeof *out);
    mimo_ring_identify(&out->self);
    for (int i = 0; i < place_count && status == MIMO_OK; i++)
        status = find_at(out, &launches, places[i], again);
    if (place_count == 0)
        status = find_everywhere(out, &launches);
    if (status == MIMO_OK)
        status = why_launches_missing(out, &launches);
    mimo_release(launches.list);
    MIMO_TRY(status);
    return mimo_reserve(&out->looked, out->count, sizeof *out->looked);
}

/* -------------------------------------- looks ------------------------------------- */

static mimo_status look_once(why_rings *rings, bool first)
{
    for (int i = 0; i < rings->count; i++) {
        mimo_ring_sample *sample;
        MIMO_TRY(mimo_ring_sample_take(&sample, &rings->memories[i], &rings->self));
        *(first ? &rings->looked[i].before : &rings->looked[i].now) = sample;
    }
    return MIMO_OK;
}

mimo_status why_rings_look(why_rings *rings, int64_t gap)
{
    const struct timespec time = {(time_t)(gap / 1000000000), (long)(gap % 1000000000)};
    MIMO_TRY(look_once(rings, true));
    if (rings->count > 0)
        (void)nanosleep(&time, NULL);
    return look_once(rings, false);
}

void why_rings_release(why_rings *rings)
{
    for (int i = 0; i < rings->count; i++) {
        if (rings->looked) {
            mimo_ring_sample_release((mimo_ring_sample *)rings->looked[i].before);
            mimo_ring_sample_release((mimo_ring_sample *)rings->looked[i].now);
        }
        mimo_ring_memory_release(&rings->memories[i]);
    }
    mimo_release(rings->memories);
    mimo_release(rings->looked);
    mimo_release(rings->missing);
    memset(rings, 0, sizeof *rings);
}

static mimo_ring_life life_of(void *context, const mimo_ring_identity *process)
{
    return mimo_ring_life_of(process, context);
}

mimo_ring_world why_world_of(why_rings *rings)
{
    return (mimo_ring_world){rings->looked, rings->count, &rings->self, life_of, &rings->self};
}
