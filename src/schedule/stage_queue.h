/* Stages while a schedule is walked: which of them must be asked again, and which begins first. A
 * walk of many steps must not look at all stages for each. */
#ifndef MIMO_STAGE_QUEUE_H
#define MIMO_STAGE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

/* Some of the stages, each once. */
typedef struct mimo_stage_set {
    int64_t *list, count; /* list[pp], the first `count` of which are in it */
    bool *has;            /* has[pp] */
} mimo_stage_set;

/* Of no stage; of pp at most. */
mimo_status mimo_stage_set_open(mimo_stage_set *out, int64_t pp);
void mimo_stage_set_close(mimo_stage_set *set);

void mimo_stage_set_add(mimo_stage_set *set, int64_t stage);
void mimo_stage_set_add_all(mimo_stage_set *set, int64_t pp);

/* Take one out; -1 where there is none. The last that was added comes first. */
int64_t mimo_stage_set_take(mimo_stage_set *set);

/* When each stage begins something: a tree whose nodes have the first one of their leaves. */
typedef struct mimo_stage_queue {
    int64_t *begin; /* begin[leaves]; MIMO_NOT_YET: it can begin nothing */
    int64_t *first; /* first[leaves]: of nodes 1 to leaves - 1, a stage; node n has 2n and 2n + 1 */
    int64_t leaves; /* a power of 2, at least 2; leaf p is node leaves + p */
} mimo_stage_queue;

/* No stage can begin anything. */
mimo_status mimo_stage_queue_open(mimo_stage_queue *out, int64_t pp);
void mimo_stage_queue_close(mimo_stage_queue *queue);

void mimo_stage_queue_put(mimo_stage_queue *queue, int64_t stage, int64_t begin);

/* The stage that begins first, the lowest one of equals; -1 where none can begin anything. */
int64_t mimo_stage_queue_first(const mimo_stage_queue *queue);

#endif
