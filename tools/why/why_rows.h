/* What mimo-why prints of each ring. */
#ifndef MIMO_TOOLS_WHY_WHY_ROWS_H
#define MIMO_TOOLS_WHY_WHY_ROWS_H

#include <stdio.h>

#include "ring/ring_waits.h"
#include "tools/why/why_rings.h"

typedef struct why_row {
    const mimo_ring_sample *ring;
    mimo_ring_life life;
    const char *state; /* "waits", "works" (inside of a call), "outside", "ended" */
    bool has_call;
    char call[128];               /* in words: the open one, or the last */
    int64_t since;                /* nanoseconds: since it began, or since the last one ended */
    const mimo_ring_group *group; /* whose blockers it waits for; NULL: it does not wait */
} why_row;

/* A row of ring i. */
why_row why_row_of(why_rings *rings, const mimo_ring_waits *waits, int i);

/* Print verdict and table as text; as one line of JSON. */
void why_print_text(FILE *out, why_rings *rings, const mimo_ring_waits *waits,
                    const mimo_ring_verdict *verdict);
void why_print_json(FILE *out, why_rings *rings, const mimo_ring_waits *waits,
                    const mimo_ring_verdict *verdict);

#endif
