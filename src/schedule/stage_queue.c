#include "schedule/stage_queue.h"

#include "core/memory.h"
#include "schedule/step_events.h"

/* --------------------------------------------- set ------------------------------------------- */

mimo_status mimo_stage_set_open(mimo_stage_set *out, int64_t pp)
{
    *out = (mimo_stage_set){NULL, 0, NULL};
    MIMO_TRY(mimo_reserve(&out->list, pp, sizeof *out->list));
    mimo_status status = mimo_reserve(&out->has, pp, sizeof *out->has);
    if (status != MIMO_OK)
        mimo_stage_set_close(out);
    return status;
}

void mimo_stage_set_close(mimo_stage_set *set)
{
    mimo_release(set->list);
    mimo_release(set->has);
    *set = (mimo_stage_set){NULL, 0, NULL};
}

void mimo_stage_set_add(mimo_stage_set *set, int64_t stage)
{
    if (set->has[stage])
        return;
    set->has[stage] = true;
    set->list[set->count++] = stage;
}

void mimo_stage_set_add_all(mimo_stage_set *set, int64_t pp)
{
    for (int64_t p = 0; p < pp; p++)
        mimo_stage_set_add(set, p);
}

int64_t mimo_stage_set_take(mimo_stage_set *set)
{
    if (set->count == 0)
        return -1;
    int64_t stage = set->list[--set->count];
    set->has[stage] = false;
    return stage;
}

/* -------------------------------------------- queue ------------------------------------------ */

mimo_status mimo_stage_queue_open(mimo_stage_queue *out, int64_t pp)
{
    *out = (mimo_stage_queue){NULL, NULL, 2};
    while (out->leaves < pp)
        out->leaves *= 2;
    MIMO_TRY(mimo_reserve(&out->begin, out->leaves, sizeof *out->begin));
    mimo_status status = mimo_reserve(&out->first, out->leaves, sizeof *out->first);
    if (status != MIMO_OK) {
        mimo_stage_queue_close(out);
        return status;
    }
    for (int64_t p = 0; p < out->leaves; p++)
        out->begin[p] = MIMO_NOT_YET;
    for (int64_t node = out->leaves - 1; node > 0; node--)
        out->first[node] = 2 * node < out->leaves ? out->first[2 * node] : 2 * node - out->leaves;
    return MIMO_OK;
}

void mimo_stage_queue_close(mimo_stage_queue *queue)
{
    mimo_release(queue->begin);
    mimo_release(queue->first);
    *queue = (mimo_stage_queue){NULL, NULL, 0};
}

/* The first of the stages below a node. */
static int64_t first_of(const mimo_stage_queue *queue, int64_t node)
{
    return node < queue->leaves ? queue->first[node] : node - queue->leaves;
}

/* Stage b, which is higher, begins before a. */
static bool is_before(const mimo_stage_queue *queue, int64_t b, int64_t a)
{
    int64_t low = queue->begin[a], high = queue->begin[b];
    return high != MIMO_NOT_YET && (low == MIMO_NOT_YET || high < low);
}

void mimo_stage_queue_put(mimo_stage_queue *queue, int64_t stage, int64_t begin)
{
    queue->begin[stage] = begin;
    for (int64_t node = (queue->leaves + stage) / 2; node > 0; node /= 2) {
        int64_t low = first_of(queue, 2 * node), high = first_of(queue, 2 * node + 1);
        queue->first[node] = is_before(queue, high, low) ? high : low;
    }
}

int64_t mimo_stage_queue_first(const mimo_stage_queue *queue)
{
    int64_t stage = queue->first[1];
    return queue->begin[stage] == MIMO_NOT_YET ? -1 : stage;
}
