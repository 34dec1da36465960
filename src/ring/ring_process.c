#include "ring/ring_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/hash.h"

/* The first bytes of a small file, as text. Empty where it can't be read. */
static void read_text(char *text, size_t capacity, const char *path)
{
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t bytes = read(fd, text, capacity - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    (void)close(fd);
}

uint64_t mimo_ring_start_of(int32_t pid, char *letter)
{
    char path[64], text[1024];
    uint64_t start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    read_text(text, sizeof text, path);
    const char *behind = strrchr(text, ')'); /* a name may hold spaces and brackets */
    if (!behind || sscanf(behind + 1, " %c", letter) != 1)
        return 0;
    enum { FIELDS_BETWEEN = 19 }; /* the start is field 22, the state field 3 */
    const char *at = behind + 2;
    for (int i = 0; i < FIELDS_BETWEEN && at; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at && sscanf(at, "%" SCNu64, &start) == 1 ? start : 0;
}

/* "8be4df61-93ca-11d2-aa0d-00e098032b8c" as two words. */
static void read_boot(uint64_t boot[2])
{
    char text[64], digits[33] = "";
    int count = 0;
    read_text(text, sizeof text, "/proc/sys/kernel/random/boot_id");
    for (const char *at = text; *at && count < 32; at++)
        if (*at != '-' && *at != '\n')
            digits[count++] = *at;
    boot[0] = boot[1] = 0;
    if (count == 32)
        (void)sscanf(digits, "%16" SCNx64 "%16" SCNx64, &boot[0], &boot[1]);
}

/* Threads of a process that ask in the same nanosecond have different stacks. */
static uint64_t new_nonce(const mimo_ring_identity *it)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t hash = mimo_hash_bytes(MIMO_HASH_START, it, sizeof *it);
    hash = mimo_hash_int(mimo_hash_int(hash, now.tv_sec), now.tv_nsec);
    return mimo_hash_int(hash, (int64_t)(intptr_t)&now);
}

void mimo_ring_identify(mimo_ring_identity *out)
{
    struct stat pids;
    char letter;
    memset(out, 0, sizeof *out);
    (void)gethostname(out->host, sizeof out->host - 1);
    read_boot(out->boot);
    if (stat("/proc/self/ns/pid", &pids) == 0)
        out->pids = pids.st_ino;
    out->pid = (int32_t)getpid();
    out->start = mimo_ring_start_of(out->pid, &letter);
    out->fd = -1;
    out->nonce = new_nonce(out);
}

static mimo_ring_life life_here(const mimo_ring_identity *process)
{
    char letter = 'R';
    uint64_t start = mimo_ring_start_of(process->pid, &letter);
    if (start == 0) /* /proc may hide processes of others */
        return kill(process->pid, 0) == 0 || errno != ESRCH ? MIMO_RING_RUNNING : MIMO_RING_GONE;
    if (process->start != 0 && start != process->start) /* another process has its number */
        return MIMO_RING_GONE;
    if (letter == 'Z' || letter == 'X')
        return MIMO_RING_GONE;
    return letter == 'T' || letter == 't' ? MIMO_RING_STOPPED : MIMO_RING_RUNNING;
}

mimo_ring_life mimo_ring_life_of(const mimo_ring_identity *process, const mimo_ring_identity *self)
{
    if (process->pid == 0)
        return MIMO_RING_UNKNOWN;
    if (memcmp(process->boot, self->boot, sizeof self->boot) != 0 ||
        strncmp(process->host, self->host, sizeof self->host) != 0)
        return MIMO_RING_ELSEWHERE;
    return process->pids == self->pids ? life_here(process) : MIMO_RING_HIDDEN;
}

bool mimo_ring_same_process(const mimo_ring_identity *a, const mimo_ring_identity *b)
{
    return a->pid == b->pid && a->start == b->start && a->boot[0] == b->boot[0] &&
           a->boot[1] == b->boot[1] && a->pids == b->pids &&
           strncmp(a->host, b->host, sizeof a->host) == 0;
}

const char *mimo_ring_life_text(mimo_ring_life life)
{
    static const char *const texts[] = {
        [MIMO_RING_RUNNING] = "running",
        [MIMO_RING_STOPPED] = "stopped",
        [MIMO_RING_GONE] = "gone",
        [MIMO_RING_ELSEWHERE] = "on another host",
        [MIMO_RING_HIDDEN] = "another pid namespace",
        [MIMO_RING_UNKNOWN] = "unknown",
    };
    return texts[life];
}
