#include "captioner/pictures/draw_expert_bars.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MOST_PANELS = 6, LABEL_CAPACITY = 64 };

/* In points. */
static const double label_room = 20, axis_room = 16, between = 14;
static const double highest = 2.5; /* times the mean: what is more is cut, and its number says so */
static const struct font_style label_style = {.size = 11.5, .colour = COLOUR_TEXT};
static const struct font_style tick_style = {.size = 10.5, .colour = COLOUR_FAINT};

static double mean_of(const struct expert_bars *bars)
{
    double sum = 0;
    for (int64_t e = 0; e < bars->experts; e++)
        sum += (double)bars->counts[e];
    return sum > 0 ? sum / (double)bars->experts : 1;
}

static double most_of(const struct expert_bars *bars)
{
    double most = 0;
    for (int64_t e = 0; e < bars->experts; e++)
        most = fmax(most, (double)bars->counts[e]);
    return most / mean_of(bars);
}

static void draw_label(const struct bars_frame *panel, const struct expert_bars *bars)
{
    char label[LABEL_CAPACITY], text[2 * LABEL_CAPACITY];
    clean_text(label, sizeof label, bars->label);
    snprintf(text, sizeof text, "%s: busiest %.2f x mean", label, most_of(bars));
    draw_text(panel->cairo, text, panel->left, panel->top + label_room - 7, TEXT_LEFT,
              &label_style);
}

/* Lines at once and twice the mean. */
static void draw_levels(const struct bars_frame *panel)
{
    static const char *const names[] = {"1", "2"};
    for (int i = 0; i < 2; i++) {
        double y = panel->top + panel->height * (1 - (i + 1) / highest);
        set_colour(panel->cairo, i == 0 ? COLOUR_FAINT : COLOUR_RED, 0.7);
        cairo_set_line_width(panel->cairo, 1);
        cairo_move_to(panel->cairo, panel->left, y);
        cairo_line_to(panel->cairo, panel->left + panel->width, y);
        cairo_stroke(panel->cairo);
        draw_text(panel->cairo, names[i], panel->left - 6, y + 4, TEXT_RIGHT, &tick_style);
    }
}

static void draw_bars(const struct bars_frame *panel, const struct expert_bars *bars)
{
    double mean = mean_of(bars), each = panel->width / (double)bars->experts;
    double bottom = panel->top + panel->height;
    for (int64_t e = 0; e < bars->experts; e++) {
        double load = fmin((double)bars->counts[e] / mean, highest);
        double height = panel->height * load / highest;
        cairo_rectangle(panel->cairo, panel->left + each * ((double)e + 0.12), bottom - height,
                        each * 0.76, height);
        set_colour(panel->cairo, COLOUR_BLUE, 0.85);
        cairo_fill(panel->cairo);
    }
}

static void draw_axis(const struct bars_frame *panel, const struct expert_bars *bars)
{
    char text[LABEL_CAPACITY];
    double y = panel->top + panel->height + axis_room - 3;
    snprintf(text, sizeof text, "%" PRId64, bars->experts - 1);
    draw_text(panel->cairo, "expert 0", panel->left, y, TEXT_LEFT, &tick_style);
    draw_text(panel->cairo, text, panel->left + panel->width, y, TEXT_RIGHT, &tick_style);
}

static void draw_panel(const struct bars_frame *whole, const struct expert_bars *bars)
{
    struct bars_frame panel = *whole;
    draw_label(whole, bars);
    panel.top += label_room;
    panel.height -= label_room + axis_room;
    set_colour(panel.cairo, COLOUR_CARD, 1);
    cairo_rectangle(panel.cairo, panel.left, panel.top, panel.width, panel.height);
    cairo_fill(panel.cairo);
    draw_bars(&panel, bars);
    draw_levels(&panel);
    draw_axis(&panel, bars);
}

void draw_expert_bars(const struct bars_frame *frame, const struct expert_bars *bars, int count)
{
    int panels = count < MOST_PANELS ? count : MOST_PANELS;
    double each = (frame->height + between) / fmax(panels, 2) - between;
    for (int i = 0; i < panels; i++) {
        const struct bars_frame panel = {frame->cairo, frame->left,
                                         frame->top + i * (each + between), frame->width, each};
        draw_panel(&panel, &bars[i]);
    }
}
