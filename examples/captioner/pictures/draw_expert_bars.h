/* The load of experts, beside a loss curve: for each mixture a bar for each expert, by the mean. */
#ifndef CAPTIONER_DRAW_EXPERT_BARS_H
#define CAPTIONER_DRAW_EXPERT_BARS_H

#include "captioner/pictures/picture_canvas.h"

/* Where they go. */
struct bars_frame {
    cairo_t *cairo;
    double left, top, width, height;
};

/* Draw the first mixtures, as many as there is room for; nothing where there are none. */
void draw_expert_bars(const struct bars_frame *frame, const struct expert_bars *bars, int count);

#endif
