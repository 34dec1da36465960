#include "tools/why/why_rows.h"

#include <string.h>

#include "ring/ring_words.h"

static const mimo_ring_group *group_of(const mimo_ring_waits *waits, const mimo_ring_sample *ring)
{
    for (int g = 0; g < waits->count; g++)
        for (int w = 0; w < waits->groups[g].waiter_count; w++)
            if (waits->groups[g].waiters[w]->now == ring)
                return &waits->groups[g];
    return NULL;
}

/* The communicator whose call a row shows: that of the wait, or else one that is open. */
static const mimo_ring_seen *shown_comm(const mimo_ring_sample *ring, const mimo_ring_group *group)
{
    const mimo_ring_seen *waited = group ? mimo_ring_find_comm(ring, group->comm) : NULL;
    if (waited && mimo_ring_is_open(waited))
        return waited;
    for (int i = 1; i < ring->count; i++)
        if (mimo_ring_is_open(&ring->seen[i]))
            return &ring->seen[i];
    return NULL;
}

static bool is_inside(const mimo_ring_sample *ring)
{
    for (int i = 0; i < ring->count; i++)
        if (ring->seen[i].inside)
            return true;
    return false;
}

static const char *state_of(const why_row *row)
{
    if (row->ring->closed || row->ring->end != 0)
        return "ended";
    if (row->group)
        return "waits";
    return is_inside(row->ring) ? "works" : "outside";
}

static void write_call(why_row *row)
{
    mimo_ring_text text = {row->call, sizeof row->call, 0};
    const mimo_ring_seen *open = shown_comm(row->ring, row->group);
    const mimo_ring_call *call = open ? &open->open : &row->ring->last;
    row->has_call = call->state != MIMO_RING_NONE;
    if (!row->has_call)
        return;
    mimo_ring_append_call(&text, row->ring, call);
    row->since = row->ring->taken - (open ? call->begun : call->ended);
}

why_row why_row_of(why_rings *rings, const mimo_ring_waits *waits, int i)
{
    why_row row = {.ring = rings->looked[i].now};
    row.life = mimo_ring_life_of(&row.ring->owner, &rings->self);
    row.group = group_of(waits, row.ring);
    row.state = state_of(&row);
    write_call(&row);
    return row;
}
