#include "captioner/pictures/draw_loss_curve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "captioner/pictures/draw_expert_bars.h"
#include "captioner/pictures/picture_canvas.h"

enum { TICKS = 8, LABEL_CAPACITY = 160, WIDEST_MEAN = 50 };

/* In points. */
static const double page_width = 860, page_height = 500, margin = 24;
static const double bars_width = 250; /* beside the curve */
static const double largest_loss = 1e9;
static const double narrowest = 1e-5; /* span of losses, by the largest */
static const double log_from = 8;     /* times the smallest loss that the largest has */
static const double rounding = 1e-9;  /* of logarithms */
static const double axis_room = 46;   /* left and below, for numbers and names */
static const double legend_stroke = 30, legend_row = 19;
static const double held_out_stroke = 1.4, dot_radius = 3;
static const struct font_style tick_style = {.size = 10.5, .colour = COLOUR_FAINT};
static const struct font_style axis_style = {.size = 11.5, .colour = COLOUR_TEXT};
static const rgb_colour level_colours[] = {COLOUR_GREEN, COLOUR_RED, COLOUR_PLUM};

/* From steps and losses to points of the page. */
struct frame {
    cairo_t *cairo;
    double left, top, width, height;
    double first, last; /* steps */
    double low, high;   /* losses */
    bool logarithmic;   /* where losses of a run span several times the smallest one */
};

static double x_of(const struct frame *frame, double step)
{
    return frame->left + frame->width * (step - frame->first) / (frame->last - frame->first);
}

static double y_of(const struct frame *frame, double loss)
{
    double down = frame->logarithmic ? log(frame->high / loss) / log(frame->high / frame->low)
                                     : (frame->high - loss) / (frame->high - frame->low);
    return frame->top + frame->height * down;
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them make the span. */
static double tick_of(double span)
{
    double rough = span / TICKS, power = pow(10, floor(log10(rough))), head = rough / power;
    return power * (head > 5 ? 10 : head > 2 ? 5 : head > 1 ? 2 : 1);
}

/* What is not finite, or too far off to share a picture with anything, is left out. */
static bool drawable(double loss)
{
    return fabs(loss) < largest_loss; /* false for NAN */
}

static void widen(double *low, double *high, double value)
{
    if (!drawable(value))
        return;
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

/* NAN where nobody looked. */
static double held_out_at(const struct loss_curve *curve, int64_t i)
{
    return curve->held_out ? curve->held_out[i] : (double)NAN;
}

/* The next 1, 2 or 5 times a power of ten at or below `value`, at or above it, or behind a tick. */
static double log_tick_below(double value)
{
    double power = pow(10, floor(log10(value) + rounding)), head = value / power * (1 + rounding);
    return power * (head >= 5 ? 5 : head >= 2 ? 2 : 1);
}

static double log_tick_after(double tick)
{
    double power = pow(10, floor(log10(tick) + rounding)), head = tick / power;
    return power * (head > 4 ? 10 : head > 1.5 ? 5 : 2);
}

/* A loss falls fast and then for a long time slowly: on a linear axis most of a run is a flat line
 * at the bottom. */
static bool set_log_span(struct frame *frame, double low, double high)
{
    frame->logarithmic = low > 0 && high > log_from * low;
    if (!frame->logarithmic)
        return false;
    frame->low = log_tick_below(low);
    frame->high = log_tick_below(high);
    if (frame->high < high)
        frame->high = log_tick_after(frame->high);
    return true;
}

/* Losses begin at 0 where that costs less than half of the picture. */
static void set_linear_span(struct frame *frame, double low, double high)
{
    double least = narrowest * fmax(1, fmax(fabs(low), fabs(high)));
    if (high - low < least) { /* a flat line, in the middle */
        low -= least / 2;
        high += least / 2;
    }
    if (low >= 0 && low < high / 2)
        low = 0;
    double tick = tick_of(high - low);
    frame->low = tick * floor(low / tick);
    frame->high = tick * ceil(high / tick);
}

static void set_spans(struct frame *frame, const struct loss_curve *curve)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < curve->count; i++) {
        widen(&low, &high, curve->loss[i]);
        widen(&low, &high, held_out_at(curve, i));
    }
    for (int i = 0; i < curve->level_count; i++)
        widen(&low, &high, curve->levels[i].loss);
    if (low > high) {
        low = 0;
        high = 1;
    }
    if (!set_log_span(frame, low, high))
        set_linear_span(frame, low, high);
    frame->first = curve->first_step > 1 ? (double)curve->first_step : 0;
    frame->last = (double)(curve->first_step + curve->count - 1);
    if (frame->last <= frame->first)
        frame->last = frame->first + 1;
}

static void rule(const struct frame *frame, double x0, double y0, double x1, double y1)
{
    cairo_set_line_width(frame->cairo, 1);
    cairo_move_to(frame->cairo, x0, y0);
    cairo_line_to(frame->cairo, x1, y1);
    cairo_stroke(frame->cairo);
}

static void draw_loss_tick(const struct frame *frame, double loss, int digits)
{
    char text[LABEL_CAPACITY];
    double y = y_of(frame, loss);
    set_colour(frame->cairo, COLOUR_GRID, 1);
    rule(frame, frame->left, y, frame->left + frame->width, y);
    snprintf(text, sizeof text, "%.*f", digits, loss);
    draw_text(frame->cairo, text, frame->left - 8, y + 4, TEXT_RIGHT, &tick_style);
}

static int digits_of(double tick)
{
    return tick < 1 ? (int)ceil(-log10(tick) - rounding) : 0;
}

static void draw_log_ticks(const struct frame *frame)
{
    for (double loss = frame->low; loss < frame->high * (1 + rounding); loss = log_tick_after(loss))
        draw_loss_tick(frame, loss, digits_of(loss));
}

static void draw_linear_ticks(const struct frame *frame)
{
    double tick = tick_of(frame->high - frame->low);
    int ticks = (int)lround((frame->high - frame->low) / tick);
    for (int i = 0; i <= ticks; i++)
        draw_loss_tick(frame, frame->low + i * tick, digits_of(tick));
}

static void draw_loss_axis(const struct frame *frame)
{
    if (frame->logarithmic)
        draw_log_ticks(frame);
    else
        draw_linear_ticks(frame);
    cairo_save(frame->cairo);
    cairo_translate(frame->cairo, margin + 8, frame->top + frame->height / 2);
    cairo_rotate(frame->cairo, -1.57079632679489662);
    draw_text(frame->cairo, "loss (nats a byte)", 0, 0, TEXT_CENTRE, &axis_style);
    cairo_restore(frame->cairo);
}

static void draw_step_axis(const struct frame *frame)
{
    double tick = tick_of(frame->last - frame->first);
    double bottom = frame->top + frame->height;
    tick = tick < 1 ? 1 : tick;
    for (double step = tick * ceil(frame->first / tick); step <= frame->last; step += tick) {
        char text[LABEL_CAPACITY];
        double x = x_of(frame, step);
        set_colour(frame->cairo, COLOUR_GRID, 1);
        rule(frame, x, frame->top, x, bottom + 4);
        snprintf(text, sizeof text, "%.0f", step);
        draw_text(frame->cairo, text, x, bottom + 18, TEXT_CENTRE, &tick_style);
    }
    set_colour(frame->cairo, COLOUR_FAINT, 1);
    rule(frame, frame->left, bottom, frame->left + frame->width, bottom);
    draw_text(frame->cairo, "step", frame->left + frame->width / 2, bottom + 38, TEXT_CENTRE,
              &axis_style);
}

/* The mean over as many steps before as after, so that the curve does not lag behind: fewer at the
 * beginning, where losses fall fast. At the end, where none are left after it, the steps before
 * stay, so that the curve does not end at the loss of one step. NAN where the step itself has no
 * loss. */
static double mean_around(const struct loss_curve *curve, int64_t i)
{
    int64_t radius = curve->count / 100 < WIDEST_MEAN ? curve->count / 100 : WIDEST_MEAN;
    radius = i < radius ? i : radius;
    int64_t left = curve->count - 1 - i, last = i + (left < radius ? left : radius);
    double sum = 0;
    int64_t terms = 0;
    for (int64_t j = i - radius; j <= last; j++) {
        if (!drawable(curve->loss[j]))
            continue;
        sum += curve->loss[j];
        terms++;
    }
    return drawable(curve->loss[i]) ? sum / (double)terms : NAN;
}

/* A loss that cannot be drawn breaks the line. */
static void trace(const struct frame *frame, const struct loss_curve *curve, bool smooth)
{
    bool pen_down = false;
    for (int64_t i = 0; i < curve->count; i++) {
        double loss = smooth ? mean_around(curve, i) : curve->loss[i];
        if (!drawable(loss)) {
            pen_down = false;
            continue;
        }
        double x = x_of(frame, (double)(curve->first_step + i)), y = y_of(frame, loss);
        if (!pen_down)
            cairo_move_to(frame->cairo, x, y);
        cairo_line_to(frame->cairo, x, y); /* a lone step shows as a dot */
        pen_down = true;
    }
}

static void draw_training(const struct frame *frame, const struct loss_curve *curve)
{
    cairo_t *cairo = frame->cairo;
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cairo, CAIRO_LINE_CAP_ROUND);
    trace(frame, curve, false);
    set_colour(cairo, COLOUR_PALE, 1);
    cairo_set_line_width(cairo, 0.8);
    cairo_stroke(cairo);
    trace(frame, curve, true);
    set_colour(cairo, COLOUR_BLUE, 1);
    cairo_set_line_width(cairo, 2.2);
    cairo_stroke(cairo);
    cairo_set_line_cap(cairo, CAIRO_LINE_CAP_BUTT);
}

/* From look to look a line, or at each look a dot, as the path. */
static void trace_held_out(const struct frame *frame, const struct loss_curve *curve, bool dots)
{
    bool pen_down = false;
    for (int64_t i = 0; i < curve->count; i++) {
        double loss = held_out_at(curve, i);
        if (!drawable(loss))
            continue;
        double x = x_of(frame, (double)(curve->first_step + i)), y = y_of(frame, loss);
        if (dots || !pen_down)
            cairo_new_sub_path(frame->cairo);
        if (dots)
            cairo_arc(frame->cairo, x, y, dot_radius, 0, 2 * acos(-1));
        else
            cairo_line_to(frame->cairo, x, y);
        pen_down = true;
    }
}

static void draw_held_out(const struct frame *frame, const struct loss_curve *curve)
{
    set_colour(frame->cairo, COLOUR_GREEN, 1);
    cairo_set_line_width(frame->cairo, held_out_stroke);
    trace_held_out(frame, curve, false);
    cairo_stroke(frame->cairo);
    trace_held_out(frame, curve, true);
    cairo_fill(frame->cairo);
}

static void draw_level_line(const struct frame *frame, double y, rgb_colour colour)
{
    static const double dashes[] = {6, 4};
    set_colour(frame->cairo, colour, 0.9);
    cairo_set_dash(frame->cairo, dashes, 2, 0);
    cairo_set_line_width(frame->cairo, 1.4);
    cairo_move_to(frame->cairo, frame->left, y);
    cairo_line_to(frame->cairo, frame->left + frame->width, y);
    cairo_stroke(frame->cairo);
    cairo_set_dash(frame->cairo, NULL, 0, 0);
}

/* One line of the legend: a stroke from x on, and its words. */
static void draw_legend_row(const struct frame *frame, double x, double y, const char *text,
                            const struct font_style *stroke, bool dashed)
{
    static const double dashes[] = {6, 4};
    set_colour(frame->cairo, stroke->colour, 1);
    cairo_set_line_width(frame->cairo, stroke->size);
    if (dashed)
        cairo_set_dash(frame->cairo, dashes, 2, 0);
    cairo_move_to(frame->cairo, x, y - 4);
    cairo_line_to(frame->cairo, x + legend_stroke, y - 4);
    cairo_stroke(frame->cairo);
    cairo_set_dash(frame->cairo, NULL, 0, 0);
    draw_text(frame->cairo, text, x + legend_stroke + 9, y, TEXT_LEFT, &axis_style);
}

static rgb_colour level_colour(int index)
{
    return level_colours[index % (int)(sizeof level_colours / sizeof *level_colours)];
}

/* The words of level i, with its number. */
static void level_text(char text[LABEL_CAPACITY], const struct loss_level *level)
{
    char label[LABEL_CAPACITY - 32];
    clean_text(label, sizeof label, level->label);
    snprintf(text, LABEL_CAPACITY, "%s: %.3f", label, level->loss);
}

/* At the top right, where a falling curve leaves room. */
static void draw_legend(const struct frame *frame, const struct loss_curve *curve)
{
    static const struct font_style raw = {.size = 1.2, .colour = COLOUR_PALE};
    static const struct font_style smooth = {.size = 2.2, .colour = COLOUR_BLUE};
    static const struct font_style looks = {.size = 1.4, .colour = COLOUR_GREEN};
    int rows = 2 + (curve->held_out != NULL) + curve->level_count;
    char text[LABEL_CAPACITY];
    double widest = text_width(frame->cairo, "training, each step", &axis_style);
    for (int i = 0; i < curve->level_count; i++) {
        level_text(text, &curve->levels[i]);
        widest = fmax(widest, text_width(frame->cairo, text, &axis_style));
    }
    double width = widest + legend_stroke + 33;
    double x = frame->left + frame->width - width - 8, y = frame->top + 8;
    rounded_rectangle(frame->cairo, x, y, width, legend_row * rows + 10, 6);
    set_colour(frame->cairo, COLOUR_CARD, 0.9);
    cairo_fill_preserve(frame->cairo);
    set_colour(frame->cairo, COLOUR_EDGE, 1);
    cairo_set_line_width(frame->cairo, 1);
    cairo_stroke(frame->cairo);
    x += 12;
    draw_legend_row(frame, x, y += legend_row, "training, each step", &raw, false);
    draw_legend_row(frame, x, y += legend_row, "training, smoothed", &smooth, false);
    if (curve->held_out)
        draw_legend_row(frame, x, y += legend_row, "held out, on the way", &looks, false);
    for (int i = 0; i < curve->level_count; i++) {
        const struct font_style level = {.size = 1.6, .colour = level_colour(i)};
        level_text(text, &curve->levels[i]);
        draw_legend_row(frame, x, y += legend_row, text, &level, true);
    }
}

mimo_status draw_loss_curve(const struct loss_curve *curve, const struct picture_sink *sink,
                            struct plugin_sentence *why)
{
    struct page page;
    const struct heading heading = {curve->title, {curve->subtitle, NULL}};
    double top = margin + heading_height(&heading);
    double beside = curve->bar_count > 0 ? bars_width : 0;
    mimo_status status = page_open(&page, page_width + beside, page_height, why);
    if (status != MIMO_OK)
        return status;
    struct frame frame = {.cairo = page.cairo,
                          .left = margin + axis_room,
                          .top = top,
                          .width = page_width - 2 * margin - axis_room,
                          .height = page_height - top - margin - axis_room};
    set_spans(&frame, curve);
    draw_heading(page.cairo, &heading, margin, margin);
    set_colour(page.cairo, COLOUR_CARD, 1);
    cairo_rectangle(page.cairo, frame.left, frame.top, frame.width, frame.height);
    cairo_fill(page.cairo);
    draw_loss_axis(&frame);
    draw_step_axis(&frame);
    draw_training(&frame, curve);
    draw_held_out(&frame, curve);
    for (int i = 0; i < curve->level_count; i++)
        if (drawable(curve->levels[i].loss))
            draw_level_line(&frame, y_of(&frame, curve->levels[i].loss), level_colour(i));
    draw_legend(&frame, curve);
    const struct bars_frame bars = {frame.cairo, frame.left + frame.width + margin + 16, frame.top,
                                    bars_width - margin - 4, frame.height};
    draw_expert_bars(&bars, curve->bars, curve->bar_count);
    return page_finish(&page, sink, why);
}
