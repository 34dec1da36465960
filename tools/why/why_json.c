/* mimo-why's JSON: one object on one line. */
#include <inttypes.h>

#include "tools/why/why_calls.h"
#include "tools/why/why_rows.h"

static void print_blockers(FILE *out, const mimo_ring_group *group)
{
    fputc('[', out);
    for (int i = 0; group && i < group->blocker_count; i++)
        fprintf(out, "%s%d", i > 0 ? "," : "", group->blockers[i].rank);
    fputc(']', out);
}

static void print_kernels(FILE *out, const mimo_ring_sample *ring)
{
    fputs(",\"kernels\":[", out);
    for (int i = 0; i < ring->launched_count; i++) {
        const mimo_ring_launched *it = &ring->launched[i];
        fprintf(out, "%s{\"object\":", i > 0 ? "," : "");
        why_print_string(out, it->title);
        fprintf(out,
                ",\"state\":\"%s\",\"enqueued\":%" PRIu64 ",\"captured\":%" PRIu64
                ",\"begun\":%" PRIu64 ",\"ended\":%" PRIu64 "}",
                mimo_ring_kernel_text(mimo_ring_kernel_of(it)), it->enqueued, it->captured,
                it->begun, it->ended);
    }
    fputc(']', out);
}

static void print_ring(FILE *out, const why_row *row)
{
    const mimo_ring_sample *ring = row->ring;
    fprintf(out, "{\"family\":\"%016" PRIx64 "\",\"rank\":%d,\"size\":%d,\"host\":", ring->family,
            ring->rank, ring->size);
    why_print_string(out, ring->owner.host);
    fprintf(out, ",\"pid\":%d,\"process\":", (int)ring->owner.pid);
    why_print_string(out, mimo_ring_life_text(row->life));
    fprintf(out, ",\"state\":\"%s\",\"ended\":%" PRIu64 ",\"call\":", row->state, ring->ended);
    if (row->has_call)
        why_print_string(out, row->call);
    else
        fputs("null", out);
    fprintf(out, ",\"seconds\":%.6f,\"waits_for\":", (double)row->since / 1e9);
    print_blockers(out, row->group);
    print_kernels(out, ring);
    fputc('}', out);
}

void why_print_json(FILE *out, why_rings *rings, const mimo_ring_waits *waits,
                    const mimo_ring_verdict *verdict)
{
    fputs("{\"verdict\":", out);
    why_print_string(out, rings->count > 0 ? verdict->text : "no rings");
    fprintf(out, ",\"waits\":%s,\"stands\":%s,\"rank_count\":%d,\"ranks\":[",
            verdict->waits ? "true" : "false", verdict->stands ? "true" : "false", verdict->count);
    for (int i = 0; i < verdict->count && i < MIMO_RING_VERDICT_RANKS; i++)
        fprintf(out, "%s%d", i > 0 ? "," : "", verdict->ranks[i]);
    fputs("],\"rings\":[", out);
    for (int i = 0; i < rings->count; i++) {
        const why_row row = why_row_of(rings, waits, i);
        fputs(i > 0 ? "," : "", out);
        print_ring(out, &row);
    }
    fputs("],\"without_ring\":[", out);
    for (int i = 0; i < rings->missing_count; i++)
        fprintf(out, "%s{\"rank\":%d,\"size\":%d,\"pid\":%d}", i > 0 ? "," : "",
                rings->missing[i].rank, rings->missing[i].size, (int)rings->missing[i].pid);
    fputs("]}\n", out);
}
