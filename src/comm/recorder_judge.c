/* Who waits for whom, as the rings of a family on this host say. */
#include "comm/recorder.h"

#include "core/memory.h"

static mimo_ring_life life_of(void *context, const mimo_ring_identity *process)
{
    return mimo_ring_life_of(process, context);
}

/* This rank's ring, and those of the others of its host. A failed sample is left out. */
static int take_samples(mimo_ring_looked *looked, const mimo_recorder *it)
{
    int count = 0;
    for (int i = -1; i < it->peer_count; i++) {
        const mimo_ring_memory *memory = i < 0 ? &it->ring->memory : &it->peers[i].memory;
        mimo_ring_sample *sample;
        if (mimo_ring_sample_take(&sample, memory, &it->self) == MIMO_OK)
            looked[count++].now = sample;
    }
    return count;
}

bool mimo_recorder_judge(mimo_ring_verdict *out, const mimo_family *family)
{
    const mimo_recorder *it = family->recorder;
    mimo_ring_looked *looked = NULL;
    if (!it || !it->ring || it->size == 1 ||
        mimo_reserve(&looked, it->peer_count + 1, sizeof *looked) != MIMO_OK)
        return false;
    const int count = take_samples(looked, it);
    const mimo_ring_world world = {looked, count, &it->self, life_of, (void *)&it->self};
    bool judged = mimo_ring_judge(out, &world, "; ") == MIMO_OK;
    for (int i = 0; i < count; i++)
        mimo_ring_sample_release((mimo_ring_sample *)looked[i].now);
    mimo_release(looked);
    return judged;
}
