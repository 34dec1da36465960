/* mimo-why's table. */
#include <inttypes.h>
#include <string.h>

#include "ring/ring_words.h"
#include "tools/why/why_rows.h"

static bool several_families(const why_rings *rings)
{
    for (int i = 1; i < rings->count; i++)
        if (rings->looked[i].now->family != rings->looked[0].now->family)
            return true;
    return false;
}

static void write_waited_for(char *text, size_t capacity, const mimo_ring_group *group)
{
    enum { SHOWN = 8 };
    int ranks[SHOWN], count = 0;
    mimo_ring_text to = {text, capacity, 0};
    text[0] = '\0';
    if (!group || group->blocker_count == 0)
        return;
    for (int i = 0; i < group->blocker_count && count < SHOWN; i++)
        ranks[count++] = group->blockers[i].rank;
    mimo_ring_append_ranks(&to, ranks, count);
    if (group->blocker_count > SHOWN)
        mimo_ring_append(&to, ", ...");
}

static void print_row(FILE *out, const why_row *row, bool families)
{
    char since[32] = "", waited_for[128];
    mimo_ring_text to = {since, sizeof since, 0};
    if (row->has_call)
        mimo_ring_append_time(&to, row->since);
    write_waited_for(waited_for, sizeof waited_for, row->group);
    if (families)
        fprintf(out, "%08" PRIx32 "  ", (uint32_t)(row->ring->family >> 32));
    fprintf(out, "%4d  %-12.32s  %7d  %-8s  %-7s  %-44s  %7s%s%s\n", row->ring->rank,
            row->ring->owner.host, (int)row->ring->owner.pid, mimo_ring_life_text(row->life),
            row->state, row->call, since, waited_for[0] ? "  " : "", waited_for);
}

/* What devices do now, a line for each object that has a kernel there. */
static void print_kernels(FILE *out, const mimo_ring_sample *ring)
{
    for (int i = 0; i < ring->launched_count; i++) {
        const mimo_ring_launched *it = &ring->launched[i];
        mimo_ring_kernel kernel = mimo_ring_kernel_of(it);
        if (kernel == MIMO_RING_KERNEL_RUNS)
            fprintf(out, "      device: launch %" PRIu64 " of %s runs\n", it->begun, it->title);
        else if (kernel == MIMO_RING_KERNEL_ENQUEUED)
            fprintf(out, "      device: launch %" PRIu64 " of %s is enqueued and has not begun\n",
                    it->begun + 1, it->title);
    }
}

static void print_missing(FILE *out, const why_rings *rings)
{
    for (int i = 0; i < rings->missing_count; i++)
        fprintf(out, "rank %d of %d (pid %d) has no ring yet\n", rings->missing[i].rank,
                rings->missing[i].size, (int)rings->missing[i].pid);
}

/* Families one after the other, and the ranks of each in their order. */
static int next_row(const why_rings *rings, int last)
{
    int best = -1;
    for (int i = 0; i < rings->count; i++) {
        const mimo_ring_sample *it = rings->looked[i].now;
        const mimo_ring_sample *low = last < 0 ? NULL : rings->looked[last].now;
        const mimo_ring_sample *found = best < 0 ? NULL : rings->looked[best].now;
        bool behind = !low || it->family > low->family ||
                      (it->family == low->family &&
                       (it->rank > low->rank || (it->rank == low->rank && i > last)));
        bool before = !found || it->family < found->family ||
                      (it->family == found->family && it->rank < found->rank);
        if (behind && before)
            best = i;
    }
    return best;
}

void why_print_text(FILE *out, why_rings *rings, const mimo_ring_waits *waits,
                    const mimo_ring_verdict *verdict)
{
    bool families = several_families(rings);
    fprintf(out, "%s\n", rings->count > 0 ? verdict->text : "no rings");
    print_missing(out, rings);
    if (rings->count == 0)
        return;
    fprintf(out, "\n%s%4s  %-12s  %7s  %-8s  %-7s  %-44s  %7s  %s\n", families ? "family    " : "",
            "rank", "host", "pid", "process", "state", "call", "for", "waits for");
    for (int i = next_row(rings, -1); i >= 0; i = next_row(rings, i)) {
        const why_row row = why_row_of(rings, waits, i);
        print_row(out, &row, families);
        print_kernels(out, row.ring);
    }
}
