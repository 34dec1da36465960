/*
 * Nodes as a timeline: a row a lane of each stage, a box a node, to scale. The colour of a box is
 * its pass. Where a lane waits, its row is hatched.
 *
 * Coordinates are whole tenths of a pixel, as in schedule_svg.c.
 */
#include "schedule/node_types.h"

#include <inttypes.h>
#include <string.h>

enum {
    MARGIN = 120,
    LABEL = 1250, /* the names of the lanes, to the left of the rows */
    TITLE = 580,  /* above the rows */
    ROW = 260,    /* of a lane, with the gap below it */
    BOX = 220,
    GAP = 120, /* more between stages */
    LEGEND = 520,
    LETTER = 56,      /* the width of a letter in a box */
    LEAST_NODE = 320, /* the width of the shortest node */
    LEAST_WIDTH = 9600,
    MOST_WIDTH = 300000,
};

typedef enum colour { FRONT, REPLAY, BACK, WEIGHTS, ENCODER, CALL, COLOURS } colour;

typedef struct look {
    const char *fill, *ink, *text;
} look;

static const look looks[COLOURS] = {
    [FRONT] = {"#4c78a8", "#fff", "forward"},
    [REPLAY] = {"#9ecae9", "#222", "forward again"},
    [BACK] = {"#f28e2b", "#222", "backward"},
    [WEIGHTS] = {"#b9770e", "#fff", "gradients of weights"},
    [ENCODER] = {"#2e8b57", "#fff", "encoder"},
    [CALL] = {"#b5179e", "#fff", "calls of the bridge"},
};

static colour colour_of(const mimo_node *node)
{
    static const colour of_pass[MIMO_NODE_PASSES] = {FRONT, REPLAY, BACK, WEIGHTS};
    if (node->part == MIMO_NODE_ENCODER)
        return ENCODER;
    return node->part == MIMO_NODE_CALL ? CALL : of_pass[node->pass];
}

typedef struct drawing {
    FILE *stream;
    const mimo_node_timeline *line;
    int64_t time, width; /* all of the time, and the width of all rows */
    int64_t y;           /* of the row that is drawn */
    bool used[COLOURS];
} drawing;

static int64_t x_of(const drawing *own, int64_t time)
{
    double share = own->time > 0 ? (double)time / (double)own->time : 0;
    return MARGIN + LABEL + (int64_t)(share * (double)own->width);
}

/* Nodes of compute and exchanges have room for their names. */
static bool is_named(const mimo_node *node)
{
    return mimo_node_lane_of(node->part) <= MIMO_NODE_LANE_EXCHANGES;
}

/* In a plan the shortest of them; of a run, in which some may take no time at all, the mean one. */
static int64_t named_length(const mimo_node_timeline *line, int64_t time)
{
    int64_t least = time, sum = 0, count = 0;
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < line->nodes->stages[p].count; i++) {
            int64_t lasts = line->times[p][i].end - line->times[p][i].begin;
            if (lasts == 0 || !is_named(&line->nodes->stages[p].nodes[i]))
                continue;
            least = lasts < least ? lasts : least;
            sum += lasts;
            count++;
        }
    bool planned = line->times[0] == line->nodes->stages[0].times;
    return planned || count == 0 ? least : sum / count;
}

static int64_t width_of(const mimo_node_timeline *line, int64_t time)
{
    int64_t length = named_length(line, time);
    double width = length > 0 ? (double)time / (double)length * LEAST_NODE : LEAST_WIDTH;
    return width < LEAST_WIDTH ? LEAST_WIDTH : (width > MOST_WIDTH ? MOST_WIDTH : (int64_t)width);
}

static int64_t time_of(const mimo_node_timeline *line)
{
    int64_t time = 0;
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < line->nodes->stages[p].count; i++)
            time = line->times[p][i].end > time ? line->times[p][i].end : time;
    return time;
}

/* Each stage has the rows of compute and exchanges, and those of other lanes that take time. */
static bool draws(const mimo_node_timeline *line, int64_t stage, mimo_node_lane lane)
{
    const mimo_stage_nodes *list = &line->nodes->stages[stage];
    for (int64_t i = 0; i < list->count; i++)
        if (mimo_node_lane_of(list->nodes[i].part) == lane &&
            line->times[stage][i].end > line->times[stage][i].begin)
            return true;
    return lane <= MIMO_NODE_LANE_EXCHANGES;
}

static int64_t height_of(const mimo_node_timeline *line)
{
    int64_t height = TITLE;
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++) {
        height += GAP;
        for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
            height += draws(line, p, (mimo_node_lane)lane) ? ROW : 0;
    }
    return height + LEGEND;
}

static void draw_text(const drawing *own, int64_t x, int64_t y, const char *attributes,
                      const char *text)
{
    fprintf(own->stream, "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\" %s>%s</text>\n", x, y,
            attributes, text);
}

/* A box says its part and layer; the micro-batch and the multiprocessors are in its title. */
static void draw_box(drawing *own, int64_t stage, int64_t i)
{
    const mimo_node *node = &own->line->nodes->stages[stage].nodes[i];
    const mimo_node_time *time = &own->line->times[stage][i];
    const mimo_node_name name = mimo_node_name_of(node);
    const char *word = name.text + strlen("f.");
    int64_t x = x_of(own, time->begin), width = x_of(own, time->end) - x;
    const look *drawn = &looks[colour_of(node)];
    const char *unit = own->line->unit;
    char more[96] = "", label[64];
    int used = snprintf(more, sizeof more, "%s%s", unit ? " " : "", unit ? unit : "");
    if (time->multiprocessors > 0)
        snprintf(more + used, sizeof more - (size_t)used, ", %" PRId64 " multiprocessors",
                 time->multiprocessors);
    snprintf(label, sizeof label, "%.*s", (int)strcspn(word, "."), word);
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%" PRId64
            "\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"6\"><title>stage %" PRId64
            ": %s of %" PRId64 ", %" PRId64 " to %" PRId64 "%s</title></rect>\n",
            x, own->y, width, BOX, drawn->fill, stage, name.text, node->micro_batch, time->begin,
            time->end, more);
    own->used[colour_of(node)] = true;
    if ((int64_t)strlen(label) * LETTER + 20 <= width)
        fprintf(own->stream,
                "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\" class=\"n\" fill=\"%s\">%s</text>\n",
                x + width / 2, own->y + BOX / 2 + 35, drawn->ink, label);
}

static void draw_lane(drawing *own, int64_t stage, mimo_node_lane lane)
{
    const mimo_stage_nodes *list = &own->line->nodes->stages[stage];
    const mimo_node_time *times = own->line->times[stage];
    char label[64];
    snprintf(label, sizeof label, "stage %" PRId64 " %s", stage, mimo_node_lane_name(lane));
    draw_text(own, MARGIN, own->y + BOX / 2 + 40, "class=\"l\"", label);
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%" PRId64
            "\" height=\"%d\" fill=\"url(#idle)\"/>\n",
            x_of(own, 0), own->y, own->width, BOX);
    for (int64_t i = 0; i < list->count; i++)
        if (mimo_node_lane_of(list->nodes[i].part) == lane && times[i].end > times[i].begin)
            draw_box(own, stage, i);
    own->y += ROW;
}

static void draw_legend(const drawing *own)
{
    int64_t x = MARGIN + LABEL, y = own->y + 200;
    for (int c = 0; c < COLOURS; c++) {
        if (!own->used[c])
            continue;
        fprintf(own->stream,
                "<rect x=\"%" PRId64 "\" y=\"%" PRId64
                "\" width=\"120\" height=\"120\" fill=\"%s\"/>\n",
                x, y, looks[c].fill);
        draw_text(own, x + 170, y + 100, "class=\"l\"", looks[c].text);
        x += 170 + 68 * (int64_t)strlen(looks[c].text) + 160;
    }
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64
            "\" width=\"120\" height=\"120\" fill=\"url(#idle)\"/>\n",
            x, y);
    draw_text(own, x + 170, y + 100, "class=\"l\"", "waits");
}

static void draw_title(const drawing *own, const char *title)
{
    char first[300];
    size_t length = strcspn(title, "\n");
    snprintf(first, sizeof first, "%.*s", (int)length, title);
    draw_text(own, MARGIN + LABEL, 240, "class=\"h\"", first);
    draw_text(own, MARGIN + LABEL, 440, "class=\"l\"", title + length + (title[length] != '\0'));
}

static void draw_head(const drawing *own)
{
    int64_t width = 2 * MARGIN + LABEL + own->width, height = height_of(own->line);
    fprintf(own->stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
            "\" viewBox=\"0 0 %" PRId64 " %" PRId64 "\" font-family=\"sans-serif\">\n"
            "<style>.n{font-size:100px;text-anchor:middle}.l{font-size:120px;fill:#222}"
            ".h{font-size:140px;fill:#222}</style>\n"
            "<defs>\n<pattern id=\"idle\" width=\"60\" height=\"60\" "
            "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
            "<rect width=\"60\" height=\"60\" fill=\"#f4f4f4\"/>"
            "<rect width=\"10\" height=\"60\" fill=\"#cfcfcf\"/></pattern>\n</defs>\n"
            "<rect width=\"%" PRId64 "\" height=\"%" PRId64 "\" fill=\"#fff\"/>\n",
            width / 10, height / 10, width, height, width, height);
}

void mimo_nodes_write_svg(FILE *stream, const mimo_node_timeline *line, const char *title)
{
    int64_t time = time_of(line);
    drawing own = {
        .stream = stream, .line = line, .time = time, .width = width_of(line, time), .y = TITLE};
    draw_head(&own);
    draw_title(&own, title);
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++) {
        for (int lane = 0; lane < MIMO_NODE_LANES; lane++)
            if (draws(line, p, (mimo_node_lane)lane))
                draw_lane(&own, p, (mimo_node_lane)lane);
        own.y += GAP;
    }
    draw_legend(&own);
    fputs("</svg>\n", stream);
}
