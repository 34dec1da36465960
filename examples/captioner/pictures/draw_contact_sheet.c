#include "captioner/pictures/draw_contact_sheet.h"

#include <stdio.h>
#include <string.h>

#include "captioner/pictures/picture_canvas.h"

enum { MOST_COLUMNS = 5, MOST_LINES = 5, LABEL_CAPACITY = 64 };

/* In points. */
static const double margin = 24, gap = 14, card_width = 172, image_side = 128, padding = 12;
static const struct font_style name_style = {.size = 11.5, .bold = true, .colour = COLOUR_TEXT};
static const struct font_style note_style = {.size = 9, .colour = COLOUR_FAINT};

/* A row of cards is as tall as its longest names ask for. */
struct row {
    int first, count;                            /* cells */
    int name_lines, base_lines, generated_lines; /* base_lines is 0 where no cell has one */
    double y, height;
};

static const char *answer(const char *text)
{
    return text[0] ? text : "(nothing)";
}

static struct text_block block_of(const char *text)
{
    return (struct text_block){
        .text = text, .width = card_width - 2 * padding, .most_lines = MOST_LINES};
}

static int most_lines(cairo_t *cairo, const char *text, int so_far)
{
    const struct text_block block = block_of(text);
    int lines = count_lines(cairo, &block, &name_style);
    return lines > so_far ? lines : so_far;
}

/* A label, lines of a name, and the room below them. */
static double name_height(int lines)
{
    return lines > 0 ? line_height(&note_style) + lines * line_height(&name_style) + padding : 0;
}

static struct row measure_row(cairo_t *cairo, const struct contact_sheet *sheet, int first,
                              double y)
{
    int left = sheet->count - first;
    struct row row = {.first = first,
                      .count = left < MOST_COLUMNS ? left : MOST_COLUMNS,
                      .name_lines = 1,
                      .generated_lines = 1,
                      .y = y};
    for (int i = first; i < first + row.count; i++) {
        row.name_lines = most_lines(cairo, sheet->cells[i].name, row.name_lines);
        if (sheet->cells[i].base)
            row.base_lines = most_lines(cairo, answer(sheet->cells[i].base), row.base_lines);
        row.generated_lines =
            most_lines(cairo, answer(sheet->cells[i].generated), row.generated_lines);
    }
    row.height = image_side + 2 * padding + name_height(row.name_lines) +
                 name_height(row.base_lines) + name_height(row.generated_lines);
    return row;
}

/* The image as squares: crisp pixels, as the model sees them. */
static void draw_image(cairo_t *cairo, const struct contact_sheet *sheet, const uint8_t *image,
                       double x, double y)
{
    double side = image_side / sheet->image_size;
    cairo_antialias_t before = cairo_get_antialias(cairo);
    cairo_set_antialias(cairo, CAIRO_ANTIALIAS_NONE); /* no seams between the squares */
    for (int row = 0; row < sheet->image_size; row++) {
        for (int column = 0; column < sheet->image_size; column++) {
            const uint8_t *p = image + ((int64_t)row * sheet->image_size + column) * 3;
            set_colour(cairo, (rgb_colour)p[0] << 16 | (rgb_colour)p[1] << 8 | p[2], 1);
            cairo_rectangle(cairo, x + column * side, y + row * side, side, side);
            cairo_fill(cairo);
        }
    }
    cairo_set_antialias(cairo, before);
}

static void draw_card(cairo_t *cairo, double x, double y, double height)
{
    rounded_rectangle(cairo, x, y, card_width, height, 8);
    set_colour(cairo, COLOUR_CARD, 1);
    cairo_fill_preserve(cairo);
    set_colour(cairo, COLOUR_EDGE, 1);
    cairo_set_line_width(cairo, 1);
    cairo_stroke(cairo);
}

/* A small label and, below it, the name. */
static void draw_name(cairo_t *cairo, const char *label, struct text_block block, rgb_colour colour)
{
    struct font_style style = name_style;
    style.colour = colour;
    draw_text(cairo, label, block.centre, block.y + note_style.size, TEXT_CENTRE, &note_style);
    block.y += line_height(&note_style) + name_style.size;
    draw_block(cairo, &block, &style);
}

static bool is_in(const char *text, const char *word, size_t length)
{
    for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
        if (strcspn(text, " ") == length && memcmp(text, word, length) == 0)
            return true;
    return false;
}

/* How many of the *words of a name were generated, anywhere. */
static int count_right_words(const struct contact_cell *cell, int *words)
{
    int right = 0;
    *words = 0;
    for (const char *word = cell->name; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        right += length > 0 && is_in(cell->generated, word, length);
        *words += length > 0;
        word += length;
    }
    return right;
}

/* Green where every letter is right, amber where some words are. A name of the right words may have
 * them in another order, or others between them. */
static rgb_colour verdict(char label[LABEL_CAPACITY], const struct contact_cell *cell)
{
    int words, right = count_right_words(cell, &words);
    const char *who = cell->base ? "adapted" : "generated";
    if (strcmp(cell->name, cell->generated) == 0) {
        snprintf(label, LABEL_CAPACITY, "%s, the same", who);
        return COLOUR_GREEN;
    }
    if (right == words)
        snprintf(label, LABEL_CAPACITY, "%s, all words, in another order", who);
    else
        snprintf(label, LABEL_CAPACITY, "%s, %d of %d words", who, right, words);
    return right > 0 ? COLOUR_AMBER : COLOUR_RED;
}

static void draw_cell(cairo_t *cairo, const struct contact_sheet *sheet, const struct row *row,
                      int column)
{
    const struct contact_cell *cell = &sheet->cells[row->first + column];
    char label[LABEL_CAPACITY];
    double x = margin + column * (card_width + gap);
    draw_card(cairo, x, row->y, row->height);
    draw_image(cairo, sheet, cell->image, x + (card_width - image_side) / 2, row->y + padding);
    struct text_block block = block_of(cell->name);
    block.centre = x + card_width / 2;
    block.y = row->y + padding + image_side + padding;
    draw_name(cairo, "name", block, COLOUR_TEXT);
    /* The answers begin on one line across the row. */
    block.y += name_height(row->name_lines);
    if (cell->base) {
        block.text = answer(cell->base);
        draw_name(cairo, "base", block, COLOUR_PLUM);
    }
    block.y += name_height(row->base_lines);
    block.text = answer(cell->generated);
    rgb_colour colour = verdict(label, cell);
    draw_name(cairo, label, block, colour);
}

/* Draw on any page, or, where `draw` is false, only tell how tall the sheet is. */
static double lay_out(cairo_t *cairo, const struct contact_sheet *sheet, bool draw)
{
    const struct heading heading = {sheet->title, {sheet->subtitle, sheet->note}};
    double y = margin + heading_height(&heading);
    if (draw)
        draw_heading(cairo, &heading, margin, margin);
    for (int first = 0; first < sheet->count; first += MOST_COLUMNS) {
        struct row row = measure_row(cairo, sheet, first, y);
        for (int column = 0; draw && column < row.count; column++)
            draw_cell(cairo, sheet, &row, column);
        y += row.height + gap;
    }
    return y - gap + margin;
}

mimo_status draw_contact_sheet(const struct contact_sheet *sheet, const struct picture_sink *sink,
                               struct plugin_sentence *why)
{
    int columns = sheet->count < MOST_COLUMNS ? sheet->count : MOST_COLUMNS;
    double width = 2 * margin + columns * (card_width + gap) - gap;
    struct page page;
    mimo_status status = page_open(&page, width, 1, why);
    if (status != MIMO_OK)
        return status;
    double height = lay_out(page.cairo, sheet, false);
    page_close(&page);
    status = page_open(&page, width, height, why);
    if (status != MIMO_OK)
        return status;
    lay_out(page.cairo, sheet, true);
    return page_finish(&page, sink, why);
}
