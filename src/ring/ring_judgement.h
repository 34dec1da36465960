/* A verdict while it is written, for the files that write its sentences. */
#ifndef MIMO_RING_RING_JUDGEMENT_H
#define MIMO_RING_RING_JUDGEMENT_H

#include "ring/ring_waits.h"
#include "ring/ring_words.h"

typedef struct mimo_ring_judgement {
    mimo_ring_verdict *out;
    mimo_ring_text text;
    const char *separator;
    const mimo_ring_world *world;
    const mimo_ring_waits *waits;
    int *ranks; /* room for the ranks of one sentence */
} mimo_ring_judgement;

/* The separator, where a sentence stands before. */
void mimo_ring_begin_sentence(mimo_ring_judgement *it);
/* ranks[count], ascending. */
void mimo_ring_append_list(mimo_ring_judgement *it, int count);
/* " (host b, pid 4711, running)"; this host has no name. */
void mimo_ring_append_process(mimo_ring_judgement *it, const mimo_ring_identity *process,
                              mimo_ring_life life);
/* ranks[count] are those that the caller gets as numbers. */
void mimo_ring_note_ranks(mimo_ring_judgement *it, int count);

/* What kernels on devices say (ring_device.c). */

/* Ranks whose devices have not begun a launch that the kernels of others run, and wait in. */
void mimo_ring_tell_devices(mimo_ring_judgement *it);
/* Behind ranks that wait for a stream: what the kernels of this library do there. True: these have
 * ended, or have gone on between two looks, so no rank is waited for. */
bool mimo_ring_append_kernels(mimo_ring_judgement *it, const mimo_ring_group *group);

#endif
