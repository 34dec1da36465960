/*
 * A schedule as a timeline: a row a stage, a box a step, to scale. Where a stage waits, its row is
 * hatched. A thin arrow shows what a bridge call brings: BF up to stage 0, BB from there to all.
 *
 * Coordinates are whole tenths of a pixel, so that no locale has a say in how numbers are written.
 */
#include "schedule/schedule_formats.h"

#include <inttypes.h>
#include <string.h>

/* All in tenths of a pixel. */
enum {
    MARGIN = 120,
    LABEL = 560,      /* the names of the stages, to the left of the rows */
    TITLE = 580,      /* above the rows */
    ROW = 300,        /* of a stage, with the gap below it */
    BOX = 240,        /* a box in it */
    LEGEND = 520,     /* below the rows */
    LETTER = 56,      /* the width of a letter in a box */
    LEAST_STEP = 180, /* the width of the shortest LLM step */
    LEAST_WIDTH = 9600,
    MOST_WIDTH = 300000,
};

/* Legend and colour of each kind: fill, text, and what the legend says. */
typedef struct look {
    const char *fill, *ink, *text;
} look;

static const look looks[MIMO_STEP_KINDS] = {
    [MIMO_STEP_F] = {"#4c78a8", "#fff", "F forward"},
    [MIMO_STEP_B] = {"#f28e2b", "#222", "B backward"},
    [MIMO_STEP_I] = {"#f2b36b", "#222", "I backward, inputs"},
    [MIMO_STEP_W] = {"#b9770e", "#fff", "W backward, weights"},
    [MIMO_STEP_FB] = {"#7a5195", "#fff", "FB both"},
    [MIMO_STEP_E] = {"#2e8b57", "#fff", "E encoder forward"},
    [MIMO_STEP_BF] = {"#2e8b57", "#fff", "BF rows to stage 0"},
    [MIMO_STEP_BB] = {"#b5179e", "#fff", "BB gradients to all"},
    [MIMO_STEP_EB] = {"#8fd19e", "#222", "EB encoder backward"},
};

typedef struct drawing {
    FILE *stream;
    const mimo_timeline *line;
    int64_t time, width; /* all of the time, and the width of all rows */
} drawing;

static int64_t x_of(const drawing *own, int64_t time)
{
    double share = own->time > 0 ? (double)time / (double)own->time : 0;
    return MARGIN + LABEL + (int64_t)(share * (double)own->width);
}

static int64_t y_of(int64_t stage)
{
    return TITLE + stage * ROW;
}

/* The width at which the shortest kind of LLM step has room for its number; of stage 0, and where
 * steps of a kind differ, on average. */
static int64_t width_of(const mimo_timeline *line, int64_t time)
{
    int64_t lasts[MIMO_STEP_KINDS] = {0}, count[MIMO_STEP_KINDS] = {0}, least = time;
    const mimo_stage_list *list = &line->schedule->lists[0];
    for (int64_t i = 0; i < list->count; i++) {
        lasts[list->steps[i].kind] += line->end[0][i] - line->begin[0][i];
        count[list->steps[i].kind]++;
    }
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++) {
        int64_t each = count[kind] > 0 ? lasts[kind] / count[kind] : 0;
        if (mimo_step_of_llm((mimo_step_kind)kind) && each > 0 && each < least)
            least = each;
    }
    double width = least > 0 ? (double)time / (double)least * LEAST_STEP : LEAST_WIDTH;
    return width < LEAST_WIDTH ? LEAST_WIDTH : (width > MOST_WIDTH ? MOST_WIDTH : (int64_t)width);
}

/* -------------------------------------------- parts ----------------------------------------- */

static void draw_text(const drawing *own, int64_t x, int64_t y, const char *attributes,
                      const char *text)
{
    fprintf(own->stream, "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\" %s>%s</text>\n", x, y,
            attributes, text);
}

/* What a box says: the kind is its colour, except of FB, which has two numbers. */
static void draw_step(const drawing *own, int64_t stage, int64_t i)
{
    const mimo_schedule *schedule = own->line->schedule;
    const mimo_schedule_step *step = &schedule->lists[stage].steps[i];
    int64_t x = x_of(own, own->line->begin[stage][i]);
    int64_t width = x_of(own, own->line->end[stage][i]) - x, y = y_of(stage);
    mimo_step_name name = mimo_step_name_of(schedule, step);
    const char *number = name.text + strcspn(name.text, "0123456789");
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%" PRId64
            "\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"6\"><title>stage %" PRId64
            ": %s, %" PRId64 " to %" PRId64 "</title></rect>\n",
            x, y, width, BOX, looks[step->kind].fill, stage, name.text, own->line->begin[stage][i],
            own->line->end[stage][i]);
    if ((int64_t)strlen(number) * LETTER + 20 > width)
        return;
    fprintf(own->stream,
            "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\" class=\"n\" fill=\"%s\">%s</text>\n",
            x + width / 2, y + BOX / 2 + 35, looks[step->kind].ink, number);
}

static void draw_row(const drawing *own, int64_t stage)
{
    const mimo_stage_list *list = &own->line->schedule->lists[stage];
    char label[40];
    snprintf(label, sizeof label, "stage %" PRId64, stage);
    draw_text(own, MARGIN, y_of(stage) + BOX / 2 + 40, "class=\"l\"", label);
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%" PRId64
            "\" height=\"%d\" fill=\"url(#idle)\"/>\n",
            x_of(own, 0), y_of(stage), own->width, BOX);
    for (int64_t i = 0; i < list->count; i++)
        if (!mimo_step_is_call(list->steps[i].kind))
            draw_step(own, stage, i);
}

/* An arrow over all stages at the end of each call. */
static void draw_calls(const drawing *own)
{
    const mimo_schedule *schedule = own->line->schedule;
    int64_t top = y_of(0) + BOX, bottom = y_of(schedule->desc.stages - 1) + BOX + 40;
    for (int64_t i = 0; i < schedule->lists[0].count; i++) {
        const mimo_schedule_step *step = &schedule->lists[0].steps[i];
        if (!mimo_step_is_call(step->kind))
            continue;
        bool up = step->kind == MIMO_STEP_BF;
        int64_t x = x_of(own, own->line->end[0][i]);
        fprintf(own->stream,
                "<path d=\"M%" PRId64 " %" PRId64 "V%" PRId64
                "\" stroke=\"%s\" class=\"a\" marker-end=\"url(#%s)\"><title>%s</title></path>\n",
                x, up ? bottom : top, up ? top : bottom, looks[step->kind].fill, up ? "up" : "down",
                mimo_step_name_of(schedule, step).text);
    }
}

static void draw_legend(const drawing *own, bool used[MIMO_STEP_KINDS])
{
    int64_t x = MARGIN + LABEL, y = y_of(own->line->schedule->desc.stages) + 200;
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++) {
        bool call = mimo_step_is_call((mimo_step_kind)kind);
        if (!used[kind])
            continue;
        fprintf(own->stream,
                "<rect x=\"%" PRId64 "\" y=\"%" PRId64
                "\" width=\"%d\" height=\"120\" fill=\"%s\"/>\n",
                x + (call ? 50 : 0), y, call ? 20 : 120, looks[kind].fill);
        draw_text(own, x + 170, y + 100, "class=\"l\"", looks[kind].text);
        x += 170 + 68 * (int64_t)strlen(looks[kind].text) + 160;
    }
    fprintf(own->stream,
            "<rect x=\"%" PRId64 "\" y=\"%" PRId64
            "\" width=\"120\" height=\"120\" fill=\"url(#idle)\"/>\n",
            x, y);
    draw_text(own, x + 170, y + 100, "class=\"l\"", "waits");
}

static void draw_title(const drawing *own, const mimo_schedule_report *report)
{
    const mimo_schedule_desc *desc = &own->line->schedule->desc;
    int idle = mimo_permille(report->idle, desc->stages * report->time);
    const char *unit = own->line->unit ? own->line->unit : "", *space = *unit ? " " : "";
    char chunks[40] = "", text[300];
    if (desc->chunks > 1)
        snprintf(chunks, sizeof chunks, " in %" PRId64 " chunks a stage", desc->chunks);
    snprintf(text, sizeof text,
             "pp %" PRId64 ", %" PRId64 " micro-batches%s: time %" PRId64
             "%s%s, stages wait %d.%d%% of it, chunks alive %" PRId64,
             desc->stages, desc->micro_batches, chunks, report->time, space, unit, idle / 10,
             idle % 10, report->chunks_alive);
    draw_text(own, MARGIN + LABEL, 240, "class=\"h\"", text);
    if (desc->encoder_group == 0)
        return;
    snprintf(text, sizeof text,
             "%sthree phases %" PRId64 ", LLM alone %" PRId64 ", lower bound %" PRId64
             ", encoder micro-batches alive %" PRId64,
             own->line->measured ? "at the costs of its steps: " : "", report->three_phases,
             report->llm_alone, report->lower_bound, report->encoder_alive);
    draw_text(own, MARGIN + LABEL, 440, "class=\"l\"", text);
}

static void draw_head(const drawing *own, int64_t stages)
{
    int64_t width = 2 * MARGIN + LABEL + own->width, height = y_of(stages) + LEGEND;
    fprintf(
        own->stream,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
        "\" viewBox=\"0 0 %" PRId64 " %" PRId64 "\" font-family=\"sans-serif\">\n"
        "<style>.n{font-size:100px;text-anchor:middle}.l{font-size:120px;fill:#222}"
        ".h{font-size:140px;fill:#222}.a{stroke-width:10;stroke-opacity:.55;fill:none}</style>\n"
        "<defs>\n"
        "<pattern id=\"idle\" width=\"60\" height=\"60\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"60\" height=\"60\" fill=\"#f4f4f4\"/>"
        "<rect width=\"10\" height=\"60\" fill=\"#cfcfcf\"/></pattern>\n",
        width / 10, height / 10, width, height);
    for (int way = 0; way < 2; way++)
        fprintf(own->stream,
                "<marker id=\"%s\" markerWidth=\"60\" markerHeight=\"60\" refX=\"50\" refY=\"30\" "
                "orient=\"auto\" markerUnits=\"userSpaceOnUse\"><path d=\"M0 0L60 30L0 60z\" "
                "fill=\"%s\"/></marker>\n",
                way == 0 ? "up" : "down", looks[way == 0 ? MIMO_STEP_BF : MIMO_STEP_BB].fill);
    fprintf(own->stream,
            "</defs>\n<rect width=\"%" PRId64 "\" height=\"%" PRId64 "\" fill=\"#fff\"/>\n", width,
            height);
}

static void draw(const drawing *own, const mimo_schedule_report *report)
{
    const mimo_schedule *schedule = own->line->schedule;
    bool used[MIMO_STEP_KINDS] = {false};
    draw_head(own, schedule->desc.stages);
    draw_title(own, report);
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        draw_row(own, p);
        for (int64_t i = 0; i < schedule->lists[p].count; i++)
            used[schedule->lists[p].steps[i].kind] = true;
    }
    draw_calls(own);
    draw_legend(own, used);
    fputs("</svg>\n", own->stream);
}

void mimo_schedule_write_svg(FILE *stream, const mimo_timeline *timeline,
                             const mimo_schedule_report *report)
{
    draw(&(drawing){stream, timeline, report->time, width_of(timeline, report->time)}, report);
}
