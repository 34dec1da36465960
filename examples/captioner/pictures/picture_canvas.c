#include "captioner/pictures/picture_canvas.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/support/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define ELLIPSIS "\xe2\x80\xa6"

enum {
    PIXELS_A_POINT = 2,
    TEXT_CAPACITY = 512,
};

static const double pi = 3.14159265358979323846;

mimo_status page_open(struct page *page, double width, double height, struct plugin_sentence *why)
{
    page->surface = cairo_image_surface_create(
        CAIRO_FORMAT_RGB24, (int)ceil(width * PIXELS_A_POINT), (int)ceil(height * PIXELS_A_POINT));
    page->cairo = cairo_create(page->surface);
    cairo_status_t status = cairo_status(page->cairo);
    if (status != CAIRO_STATUS_SUCCESS) {
        snprintf(why->text, sizeof why->text, "a page of %.0f x %.0f points: %s", width, height,
                 cairo_status_to_string(status));
        page_close(page);
        return MIMO_ERR_MEMORY;
    }
    cairo_scale(page->cairo, PIXELS_A_POINT, PIXELS_A_POINT);
    set_colour(page->cairo, COLOUR_PAGE, 1);
    cairo_paint(page->cairo);
    return MIMO_OK;
}

void page_close(struct page *page)
{
    cairo_destroy(page->cairo);
    cairo_surface_destroy(page->surface);
}

/* cairo asks for its own status back, so the sink's is kept aside. */
struct png_stream {
    const struct picture_sink *sink;
    mimo_status status;
};

static cairo_status_t to_sink(void *context, const unsigned char *data, unsigned bytes)
{
    struct png_stream *stream = context;
    stream->status = stream->sink->write(stream->sink->context, data, bytes);
    return stream->status == MIMO_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

mimo_status page_finish(struct page *page, const struct picture_sink *sink,
                        struct plugin_sentence *why)
{
    struct png_stream stream = {.sink = sink, .status = MIMO_OK};
    cairo_status_t status = cairo_status(page->cairo);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_write_to_png_stream(page->surface, to_sink, &stream);
    page_close(page);
    if (stream.status != MIMO_OK)
        return stream.status;
    if (status == CAIRO_STATUS_SUCCESS)
        return MIMO_OK;
    snprintf(why->text, sizeof why->text, "%s", cairo_status_to_string(status));
    return status == CAIRO_STATUS_NO_MEMORY ? MIMO_ERR_MEMORY : MIMO_ERR_INTERNAL;
}

void set_colour(cairo_t *cairo, rgb_colour colour, double opacity)
{
    cairo_set_source_rgba(cairo, (double)(colour >> 16 & 0xff) / 255,
                          (double)(colour >> 8 & 0xff) / 255, (double)(colour & 0xff) / 255,
                          opacity);
}

void rounded_rectangle(cairo_t *cairo, double x, double y, double width, double height,
                       double radius)
{
    cairo_new_sub_path(cairo);
    cairo_arc(cairo, x + width - radius, y + radius, radius, -pi / 2, 0);
    cairo_arc(cairo, x + width - radius, y + height - radius, radius, 0, pi / 2);
    cairo_arc(cairo, x + radius, y + height - radius, radius, pi / 2, pi);
    cairo_arc(cairo, x + radius, y + radius, radius, pi, 3 * pi / 2);
    cairo_close_path(cairo);
}

void clean_text(char *clean, size_t room, const char *text)
{
    size_t used = 0, length = strlen(text);
    for (size_t at = 0; at < length;) {
        uint32_t code;
        size_t bytes = utf8_next(text + at, length - at, &code);
        bool good = bytes > 0 && utf8_printable(text + at, bytes) == bytes;
        const char *from = good ? text + at : REPLACEMENT;
        size_t put = good ? bytes : strlen(REPLACEMENT);
        if (used + put >= room)
            break;
        memcpy(clean + used, from, put);
        used += put;
        at += bytes > 0 ? bytes : 1;
    }
    clean[used] = '\0';
}

static void use_font(cairo_t *cairo, const struct font_style *style)
{
    cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           style->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, style->size);
    set_colour(cairo, style->colour, 1);
}

double text_width(cairo_t *cairo, const char *text, const struct font_style *style)
{
    cairo_text_extents_t extents;
    use_font(cairo, style);
    cairo_text_extents(cairo, text, &extents);
    return extents.x_advance;
}

double draw_text(cairo_t *cairo, const char *text, double x, double y, enum text_anchor anchor,
                 const struct font_style *style)
{
    double width = text_width(cairo, text, style);
    double left = anchor == TEXT_LEFT ? x : anchor == TEXT_RIGHT ? x - width : x - width / 2;
    cairo_move_to(cairo, left, y);
    cairo_show_text(cairo, text);
    return width;
}

/* How many bytes of text[0 .. length) make the longest line that fits: up to a space where one is
 * there, otherwise the characters that go in, at least one. */
static size_t bytes_that_fit(cairo_t *cairo, const char *text, double width,
                             const struct font_style *style)
{
    char line[TEXT_CAPACITY];
    size_t length = strlen(text), fit = 0, space = 0, at = 0;
    while (at < length) {
        uint32_t code;
        size_t bytes = utf8_next(text + at, length - at, &code);
        bytes = bytes ? bytes : 1;
        memcpy(line, text, at + bytes);
        line[at + bytes] = '\0';
        if (fit > 0 && text_width(cairo, line, style) > width)
            return space > 0 ? space : fit;
        if (text[at] == ' ' && at > 0)
            space = at;
        at += bytes;
        fit = at;
    }
    return length;
}

/* Shorten the line until it and an ellipsis fit. */
static void put_ellipsis(cairo_t *cairo, char *line, double width, const struct font_style *style)
{
    size_t length = strlen(line);
    for (;;) {
        while (length > 0 && line[length - 1] == ' ')
            length--;
        memcpy(line + length, ELLIPSIS, sizeof ELLIPSIS);
        if (length == 0 || text_width(cairo, line, style) <= width)
            return;
        while (length > 0 && ((unsigned char)line[--length] & 0xc0) == 0x80)
            ; /* to the first byte of the last character */
    }
}

static int break_lines(cairo_t *cairo, const struct text_block *block,
                       const struct font_style *style, bool draw)
{
    char clean[TEXT_CAPACITY], line[TEXT_CAPACITY + sizeof ELLIPSIS];
    clean_text(clean, sizeof clean, block->text);
    const char *rest = clean + strspn(clean, " ");
    int lines = 0;
    for (; *rest && lines < block->most_lines; lines++) {
        size_t bytes = bytes_that_fit(cairo, rest, block->width, style);
        memcpy(line, rest, bytes);
        line[bytes] = '\0';
        rest += bytes + strspn(rest + bytes, " ");
        if (*rest && lines == block->most_lines - 1)
            put_ellipsis(cairo, line, block->width, style);
        if (draw)
            draw_text(cairo, line, block->centre, block->y + lines * line_height(style),
                      TEXT_CENTRE, style);
    }
    return lines;
}

int draw_block(cairo_t *cairo, const struct text_block *block, const struct font_style *style)
{
    return break_lines(cairo, block, style, true);
}

int count_lines(cairo_t *cairo, const struct text_block *block, const struct font_style *style)
{
    return break_lines(cairo, block, style, false);
}

enum { HEADING_LINES = 2 };
static const double title_base = 17, first_line = 37, next_line = 17, below_heading = 21;

void draw_heading(cairo_t *cairo, const struct heading *heading, double x, double y)
{
    static const struct font_style title_style = {.size = 17, .bold = true, .colour = COLOUR_TEXT};
    static const struct font_style line_style = {.size = 11.5, .colour = COLOUR_FAINT};
    char clean[TEXT_CAPACITY];
    if (heading->title) {
        clean_text(clean, sizeof clean, heading->title);
        draw_text(cairo, clean, x, y + title_base, TEXT_LEFT, &title_style);
    }
    for (int i = 0; i < HEADING_LINES; i++)
        if (heading->lines[i]) {
            clean_text(clean, sizeof clean, heading->lines[i]);
            draw_text(cairo, clean, x, y + first_line + i * next_line, TEXT_LEFT, &line_style);
        }
}

double heading_height(const struct heading *heading)
{
    if (heading->lines[1])
        return first_line + next_line + below_heading;
    return heading->title || heading->lines[0] ? first_line + below_heading : 0;
}
