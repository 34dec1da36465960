#include "ring/ring_judgement.h"

#include <stdlib.h>

void mimo_ring_begin_sentence(mimo_ring_judgement *it)
{
    if (it->text.used > 0)
        mimo_ring_append(&it->text, "%s", it->separator);
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

void mimo_ring_append_list(mimo_ring_judgement *it, int count)
{
    qsort(it->ranks, (size_t)count, sizeof *it->ranks, by_number);
    mimo_ring_append_ranks(&it->text, it->ranks, count);
}

void mimo_ring_append_process(mimo_ring_judgement *it, const mimo_ring_identity *process,
                              mimo_ring_life life)
{
    bool here = strncmp(process->host, it->world->self->host, sizeof process->host) == 0;
    mimo_ring_append(&it->text, " (");
    if (!here)
        mimo_ring_append(&it->text, "host %.*s, ", (int)sizeof process->host - 1, process->host);
    mimo_ring_append(&it->text, "pid %d, %s)", (int)process->pid, mimo_ring_life_text(life));
}

/* Those of the first sentence stay. */
void mimo_ring_note_ranks(mimo_ring_judgement *it, int count)
{
    mimo_ring_verdict *out = it->out;
    if (out->count > 0)
        return;
    qsort(it->ranks, (size_t)count, sizeof *it->ranks, by_number);
    out->count = count;
    for (int i = 0; i < count && i < MIMO_RING_VERDICT_RANKS; i++)
        out->ranks[i] = it->ranks[i];
}
