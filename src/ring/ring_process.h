/* Processes, as rings know them: who this one is, and what became of another one. */
#ifndef MIMO_RING_RING_PROCESS_H
#define MIMO_RING_RING_PROCESS_H

#include "ring/ring_layout.h"

/* This process, without a ring. */
void mimo_ring_identify(mimo_ring_identity *out);

typedef enum mimo_ring_life {
    MIMO_RING_RUNNING,
    MIMO_RING_STOPPED,   /* by a signal, or by a debugger */
    MIMO_RING_GONE,      /* it has ended, and perhaps nobody has taken its status yet */
    MIMO_RING_ELSEWHERE, /* it runs on another host, or ran before this one's last boot */
    MIMO_RING_HIDDEN,    /* it is in another pid namespace of this host */
    MIMO_RING_UNKNOWN,   /* nobody said which process it is */
} mimo_ring_life;

/* What has become of a process, seen from `self`. */
mimo_ring_life mimo_ring_life_of(const mimo_ring_identity *process, const mimo_ring_identity *self);

/* Whether two of them are one process. */
bool mimo_ring_same_process(const mimo_ring_identity *a, const mimo_ring_identity *b);

/* "running", "stopped", ... */
const char *mimo_ring_life_text(mimo_ring_life life);

/* The start of a process of this pid namespace, in ticks since the boot; 0: there is none, or it
 * can't be read. *letter gets its state as /proc has it. */
uint64_t mimo_ring_start_of(int32_t pid, char *letter);

#endif
