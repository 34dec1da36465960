/* What both pictures are drawn with: a page on cairo, colours, text that fits. Inside the module
 * captioner-pictures only. Lengths are in points, which are pixels at the page's scale. */
#ifndef CAPTIONER_PICTURE_CANVAS_H
#define CAPTIONER_PICTURE_CANVAS_H

#include <stdbool.h>
#include <stdint.h>

#include <cairo.h>

#include "captioner/pictures/pictures_module.h"

/* 0xRRGGBB. */
typedef uint32_t rgb_colour;

#define COLOUR_PAGE 0xfafaf8u
#define COLOUR_CARD 0xffffffu
#define COLOUR_EDGE 0xdedbd3u
#define COLOUR_TEXT 0x1f2328u
#define COLOUR_FAINT 0x6b7178u
#define COLOUR_GRID 0xe8e6e0u
#define COLOUR_BLUE 0x2367b1u
#define COLOUR_PALE 0xb9cfe8u
#define COLOUR_GREEN 0x1d7d46u
#define COLOUR_RED 0xb3412eu
#define COLOUR_AMBER 0x94600bu
#define COLOUR_PLUM 0x7b4a98u

struct page {
    cairo_surface_t *surface;
    cairo_t *cairo;
};

struct font_style {
    double size;
    bool bold;
    rgb_colour colour;
};

enum text_anchor { TEXT_LEFT, TEXT_CENTRE, TEXT_RIGHT };

/* A page of width x height points, drawn with two pixels a point. MIMO_ERR_MEMORY. */
mimo_status page_open(struct page *page, double width, double height, struct plugin_sentence *why);

/* Send the page to the sink as PNG, and release it. */
mimo_status page_finish(struct page *page, const struct picture_sink *sink,
                        struct plugin_sentence *why);

/* Release a page that goes nowhere. */
void page_close(struct page *page);

void set_colour(cairo_t *cairo, rgb_colour colour, double opacity);

/* A rectangle with round corners, as the path. */
void rounded_rectangle(cairo_t *cairo, double x, double y, double width, double height,
                       double radius);

/* The text, with U+FFFD for what is not printable UTF-8, into `clean` (always terminated). */
void clean_text(char *clean, size_t room, const char *text);

/* One line, its baseline at y. Returns the width. */
double draw_text(cairo_t *cairo, const char *text, double x, double y, enum text_anchor anchor,
                 const struct font_style *style);

/* How wide draw_text would be. */
double text_width(cairo_t *cairo, const char *text, const struct font_style *style);

/* Centred lines within a width, broken at spaces (or anywhere, where a word is too wide); the last
 * ends with an ellipsis where more would follow. */
struct text_block {
    const char *text;
    double centre, y; /* y is the baseline of the first line */
    double width;
    int most_lines;
};

/* Draw the block, or only count. Both return the number of lines. */
int draw_block(cairo_t *cairo, const struct text_block *block, const struct font_style *style);
int count_lines(cairo_t *cairo, const struct text_block *block, const struct font_style *style);

/* A title and two lines below it, at the top left; any may be NULL. */
struct heading {
    const char *title, *lines[2];
};
void draw_heading(cairo_t *cairo, const struct heading *heading, double x, double y);

/* How far below y it ends, with room below it; 0 where it is empty. */
double heading_height(const struct heading *heading);

/* The distance from one line of this size to the next. */
static inline double line_height(const struct font_style *style)
{
    return 1.3 * style->size;
}

#endif
